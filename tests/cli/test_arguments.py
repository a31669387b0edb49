"""The functions of the front door, with arguments of wrong types: each error is rankplan's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rankplan
from rankplan import PlacementError
from support.arguments import refused_by_python
from support.paths import EXAMPLES

CONFIG = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-7", "rollout": "8-15"}}}
PLAN = rankplan.plan(CONFIG, "2x8")
FUNCTIONS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (rankplan.check, {"config": CONFIG}),
    (rankplan.plan, {"config": EXAMPLES / "quickstart.yaml"}),
    (rankplan.requests, {"config": CONFIG}),
    (rankplan.tune, {"costs": {"components": {"actor": {"seconds": {8: 1.0}}}}, "nodes": "2x8"}),
    (rankplan.arrange, {"plan": PLAN, "inventory": PLAN.inventory}),
    (rankplan.replan, {"plan": PLAN, "inventory": PLAN.inventory}),
    (rankplan.diff, {"before": PLAN, "after": PLAN}),
    (rankplan.convert, {"planned": PLAN, "to": "rlinf"}),
    (rankplan.emit, {"plan": PLAN, "to": "slurm", "options": rankplan.EmitOptions(command="python train.py")}),
    (rankplan.EmitOptions, {"command": "python train.py"}),
    (rankplan.EmitOptions, {"entrypoint": "python train.py", "image": "a:1"}),
]


@pytest.mark.parametrize(("function", "given"), FUNCTIONS, ids=[function.__name__ for function, _ in FUNCTIONS])
def test_a_wrong_argument_is_refused_by_rankplan(function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Not by Python, in the middle of the work."""
    function(**given)
    assert refused_by_python(function, given) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shrink": 5}, "`shrink` is 5; it must be a name, or several"),
        ({"shrink": [3]}, "unknown component `3` to shrink"),
        ({"without": 5}, "`without` is 5; it must be a name, or several"),
    ],
)
def test_what_replan_takes_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlacementError) as caught:
        rankplan.replan(PLAN, PLAN.inventory, **options)
    assert words in str(caught.value) and caught.value.help

"""Plans of trainers that grow: only by what the trainer can run, on the nodes that a larger cluster has."""

from __future__ import annotations

import pytest
import rankplan
from rankplan import Inventory, replan
from rankplan.arranging.faults import POOL_KEYS
from rankplan.dialects import DIALECTS
from rankplan.errors import PlacementError
from rankplan.render.changes import replan_lines
from support.paths import ROOT

_CONFIGS = ["areal.yaml", "nemo_rl.yaml", "openrlhf.sh", "roll.yaml", "skyrl.sh", "slime.yaml", "slime-colocated.yaml"]
_CONFIGS += ["verl.sh", "verl.yaml", "verl-topology/colocated.yaml", "verl-topology/separate.yaml"]


@pytest.mark.parametrize("config", _CONFIGS)
def test_what_shares_a_pool_stays_there_and_what_grows_can_shrink_again(config: str) -> None:
    path = ROOT / "examples" / config
    sizes = [rank.num_accelerators for nodes, rank in rankplan.plan(path).inventory.stretches() for _ in nodes]
    sizes += [sizes[0]] * 4
    entries = [
        {"ranks": rank, "accelerators": each, "hostname": f"h{rank}", "ip": f"10.0.0.{rank + 1}"}
        for rank, each in enumerate(sizes)
    ]
    nodes = Inventory.from_dict({"nodes": entries})
    plan = rankplan.plan(path, nodes)
    answers = set()
    for name, part in plan.items():
        devices = part.rows.accelerators()
        others = [other for other, one in plan.items() if other != name and one.rows.accelerators() & devices]
        for count in (1, 2, 4):
            try:
                found = replan(plan, nodes, grow={name: count})
            except PlacementError as refused:
                if "elsewhere" in refused.message:
                    answers.add("elsewhere")
                    assert others and set(POOL_KEYS[str(plan.dialect)]) <= set(str(refused.help).split("`"))
                continue
            larger = found.plan
            assert not others or plan.dialect not in POOL_KEYS
            noted = any("`rankplan pin` cannot bind this plan" in line for line in replan_lines(found))
            assert noted == bool(plan.requests and not larger.requests)
            smaller = replan(larger, nodes, shrink={name: count}).plan
            assert smaller.inventory == plan.inventory
            assert list(smaller.values()) == list(plan.values())
            answers.add("grown")
    assert answers, "every growth is refused for another reason"


def test_the_keys_that_are_named_exist() -> None:
    for name, keys in POOL_KEYS.items():
        known = {key.path for key in DIALECTS[name].keys.keys}
        parts = ("actor", "rollout", "trainer")
        sections = {f"{part}.{path[2:]}" for path in known if path[:2] == "@." for part in parts}
        assert set(keys) <= known | sections

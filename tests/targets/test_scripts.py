"""Scripts show the recorded facts of every plan, and read back to the same plan."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan.targets import script_file
from rankplan.targets.options import Draft
from rankplan.targets.script_file import MPIRUN, SLURM, TORCHRUN, Kind
from support.launchers import CASES, planned
from support.scripts import FACTS

KINDS: dict[str, Kind] = {"slurm": SLURM, "torchrun": TORCHRUN, "mpirun": MPIRUN}
COMMAND = "python {}.py --text 'two words' --cost '$5' --quote \"it's\""


def emitted(plan: rankplan.Plan, target: str, **options: Any) -> str:
    return rankplan.emit(plan, target, **{"command": COMMAND, **options})


def case_options(case: str) -> dict[str, Any]:
    return {"segment_level": CASES[case]["options"].get("segment_level")}


def rows(plan: rankplan.Plan) -> dict[str, list[tuple[Any, ...]]]:
    """Return what law 1 compares: places, node groups, visibility and coordinates."""
    return {
        name: [
            (
                row.rank,
                row.cluster_node_rank,
                tuple(row.local_hardware_ranks),
                row.visible_accelerators,
                row.node_group_label,
                row.visibility,
                component.coordinates(row.rank),
            )
            for row in component
        ]
        for name, component in plan.items()
    }


def check_laws(plan: rankplan.Plan, target: str, text: str) -> None:
    """The script is a script of bash, the plan reads back, and is written with the same bytes."""
    kind = KINDS[target]
    assert [name for name, one in KINDS.items() if script_file.wrote(one)(text)] == [target]
    found = script_file.read(kind, "train.sh", text)
    assert rows(found.plan) == rows(plan)
    if target != "slurm" or found.options.pin:
        assert found.plan == plan
    assert kind.write(Draft(found.plan, found.options), found.head) == text


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_a_script_shows_the_recorded_facts(case: str, target: str, tmp_path: Path) -> None:
    expected, plan = CASES[case]["targets"][target], planned(case)
    if "refused" in expected:
        with pytest.raises(rankplan.PlacementError) as refused:
            emitted(plan, target, **case_options(case))
        assert {found.code for found in refused.value.diagnostics} == {expected["refused"]}
        return
    text = emitted(plan, target, **case_options(case))
    assert FACTS[target](text, plan) == expected
    assert subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True).stderr == b""
    check_laws(plan, target, text)

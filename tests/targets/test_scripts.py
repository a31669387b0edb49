"""Scripts show the recorded facts of every plan, and read back to the same plan."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import rankplan
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from rankplan.targets import script_file
from rankplan.targets.options import Draft
from rankplan.targets.script_file import MPIRUN, SLURM, TORCHRUN, Kind
from rankplan.testing import placements
from support.launchers import CASES, planned
from support.scripts import FACTS, STARTED, plan_lines_of

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


# ------------------------------------------------------------------------------------------------- random plans

NAMES = st.sampled_from(["actor", "rollout", "my_env", "two words", "it's", "$x`", "ünïcode", "nodes", "a/b", "json"])
COMMANDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6), min_size=1, max_size=3
)


@st.composite
def plans(draw: st.DrawFn) -> rankplan.Plan:
    """Draw a plan on unequal nodes: with unused and excluded nodes, and ranks that return to earlier nodes."""
    counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    kinds = draw(st.sampled_from([("NV_GPU",), ("NV_GPU",), ("AMD_GPU", "NV_GPU"), ("NPU",)]))
    named = draw(st.sampled_from(["ip", "hostname", "both", "none"]))
    nodes = []
    for rank, count in enumerate(counts):
        node: dict[str, Any] = {"ranks": rank, "accelerators": count}
        if count:
            node["accelerator_type"] = kinds[rank % len(kinds)]
        node |= {"ip": f"10.0.0.{len(counts) - rank}"} if named in ("ip", "both") else {}
        node |= {"hostname": f"n{len(counts) - rank}"} if named in ("hostname", "both") else {}
        nodes.append(node)
    inventory = rankplan.Inventory.from_dict({"nodes": nodes})
    order = draw(st.permutations(range(len(counts))))
    groups = [{"label": f"g{rank}", "node_ranks": rank} for rank in order]
    components: dict[str, Any] = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        if draw(st.booleans()):
            mine = [rank for rank in order if counts[rank] or not any(counts)]
            labels = ",".join(f"g{rank}" for rank in mine[: draw(st.integers(1, len(mine)))])
            components[name] = {"node_group": labels, "placement": "all"}
        elif draw(st.integers(0, 4)) == 0:
            components[name] = {"node_group": "node", "placement": draw(placements(len(counts)))}
        else:
            components[name] = draw(placements(inventory))
    excluded = draw(st.sampled_from([[], [], [f"node-{len(counts) - 1}"]]))
    section = {"num_nodes": len(counts), "node_groups": groups, "exclude": excluded, "component_placement": components}
    try:
        return rankplan.plan({"cluster": section}, inventory)
    except rankplan.PlacementError:
        reject()


@settings(max_examples=40)  # each starts bash several times
@given(plans(), st.sampled_from(list(KINDS)), COMMANDS, st.booleans())
def test_a_plan_that_is_not_refused_reads_back(plan: rankplan.Plan, target: str, words: list[str], pin: bool) -> None:
    """Laws 1, 3 and 4, and every rank is started where the plan says."""
    command = {name: shlex.join([*words, name]) for name in plan}
    try:
        text = emitted(plan, target, command=command, pin=pin)
    except rankplan.PlacementError as refused:
        codes = {found.code for found in refused.diagnostics}
        assert codes <= {"emit-order", "emit-no-address", "emit-resource-key"}
        assert "emit-order" not in codes or target != "mpirun"
        return
    assert subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True).stderr == b""
    check_laws(plan, target, text)
    started = STARTED[target](text)
    for name, component in plan.items():
        assert started[name] == [(row.cluster_node_rank, [*words, name]) for row in component], name


@given(plans(), st.sampled_from(list(KINDS)), st.data())
def test_one_changed_number_is_found(plan: rankplan.Plan, target: str, data: st.DataObject) -> None:
    """Law 2: every number that rankplan wrote, changed, is a fault. The first port is the user's."""
    try:
        text = emitted(plan, target, command="python train.py")
    except rankplan.PlacementError:
        reject()
    places = [
        found
        for found in re.finditer(r"(?<![\w.:])(?<!--master-port=)\d+(?![\w.])", text)
        if "#!" not in text[found.start() - 2 :][:2]
    ]
    found = data.draw(st.sampled_from(places))
    line = text.count("\n", 0, found.start()) + 1
    changed = text[: found.start()] + str(int(found[0]) + 1) + text[found.end() :]
    with pytest.raises(rankplan.PlacementError) as refused:
        script_file.read(KINDS[target], "train.sh", changed)
    faults = refused.value.diagnostics
    assert all(one.file == "train.sh" for one in faults)
    if line not in plan_lines_of(text):
        assert {one.code for one in faults} == {"emit-changed"}
        assert line in {one.line for one in faults}

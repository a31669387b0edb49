"""Data groups that go together when a component shrinks, and the help where nothing shrinks."""

from __future__ import annotations

from dataclasses import asdict
from math import lcm

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, Plan, replan
from rankplan.arranging.units import Together, sets_together
from rankplan.errors import PlacementError
from rankplan.parallel import Parallel
from rankplan.render.changes import replan_lines
from rankplan.words import counted


def job(nodes: int, placement: str, parallel: Parallel) -> Plan:
    """Return a job on nodes with 4 accelerators."""
    entry = {"placement": placement, "parallel": asdict(parallel)}
    return rankplan.plan({"cluster": {"num_nodes": nodes, "component_placement": {"policy": entry}}}, cluster(nodes))


def cluster(nodes: int) -> Inventory:
    """Return nodes with 4 accelerators."""
    return Inventory.from_dict(
        {"nodes": [{"ranks": rank, "hostname": f"node-{rank}", "accelerators": 4} for rank in range(nodes)]}
    )


def unit(each: int, parallel: Parallel) -> int:
    """Return the accelerators of the data groups that go together."""
    return lcm(each, parallel.dense * parallel.fsdp, parallel.expert)


@st.composite
def sharded(draw: st.DrawFn) -> tuple[int, Parallel, int]:
    """Draw the accelerators of a process, sizes, and a number of nodes that they divide."""
    sizes = st.sampled_from([1, 2, 4])
    parallel = Parallel(**{kind: draw(sizes) for kind in ("tp", "cp", "ep", "etp", "fsdp")})
    each, nodes = draw(sizes), draw(st.integers(2, 9))
    together = unit(each, parallel)
    return each, parallel, nodes if nodes * 4 % together == 0 else -(-together // 4)


@given(sharded(), st.booleans())
def test_what_goes_together_is_lost_together(case: tuple[int, Parallel, int], renumber: bool) -> None:
    """Processes with several accelerators, shards and expert groups: the largest number that divides them is left."""
    each, parallel, nodes = case
    before = job(nodes, f"0-{nodes * 4 - 1}:0-{nodes * 4 // each - 1}", parallel)
    left = (nodes - 1) * 4 // unit(each, parallel) * unit(each, parallel)
    try:
        found = replan(before, before.inventory, without=["node-0"], shrink=["policy"], renumber=renumber)
    except PlacementError as error:
        assert error.code == "no-spare" and not left
        return
    after = found.plan["policy"]
    assert len(after) * each == left == after.layout.size("dp") * parallel.dense
    counts = [
        (plan["policy"].layout.size("dp") if parallel.stated else len(plan["policy"])) for plan in (before, found.plan)
    ]
    assert f"policy shrinks from {counted(counts[0], 'data group')} to {counts[1]}: " in "\n".join(replan_lines(found))


@given(sharded())
def test_the_last_set_is_that_of_all_sets(case: tuple[int, Parallel, int]) -> None:
    each, parallel, nodes = case
    component = job(nodes, f"0-{nodes * 4 - 1}:0-{nodes * 4 // each - 1}", parallel)["policy"]
    sets, last = sets_together(component), Together.of(component)
    assert sets.count(sets[-1]) == last.processes and sets[-last.processes :] == [sets[-1]] * last.processes
    if parallel.stated:
        assert component.layout.size("dp") == last.groups * len(set(sets))


@pytest.mark.parametrize(("tp", "more"), [(8, " (`--shrink policy`)"), (16, "")])
def test_the_help_names_a_component_that_can_shrink(tp: int, more: str) -> None:
    before = job(4, "0-15", Parallel(tp=tp))
    with pytest.raises(PlacementError) as refused:
        replan(before, cluster(3), without=["node-1"])
    shrink = ", or shrink a component that has data groups" if more else ""
    assert refused.value.help == f"add spare nodes to the inventory{shrink}{more}"

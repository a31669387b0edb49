"""The comparison of what runs with a plan, against recorded runs of the trainers' own placement code.

The oracle compares the recorded accelerators of each rank with those of the plan, without groups or bundles.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rankplan import PlacementError, Plan, plan
from rankplan.runtime.live.compare import compare
from rankplan.runtime.usage.look import look
from rankplan.runtime.usage.model import Live
from support.goldens import lines
from support.live_tables import MINE, OTHER, recorded
from support.outcomes import some
from support.recorded_trainers import cluster, config, in_order

LINES = [line for line in lines("trainer_requests") if "ends" in line["alone"] or "ends" in line.get("pinned", {})]
RUNS = [(line, which) for line in LINES for which in ("alone", "pinned") if "ends" in line.get(which, {})]
SPLIT = {"areal-07-fragments"}
"""A predicted process is on two nodes, which no bundle is: nobody tells its accelerators on the other one."""


def compared(line: dict[str, Any], which: str, folder: Path) -> tuple[Live, Plan]:
    """Compare a recorded run with the plan of its config: as predicted, or in the trainer's order."""
    found = recorded(line, line[which])
    inventory = cluster(line)
    if which == "pinned":
        ids = [found.ids[str(inventory.node(rank).ip)] for rank in range(inventory.num_nodes)]
        order = line["order"]
        inventory = in_order(inventory, order if order in ("text", "id") else "number", ids)
    planned = plan(config(line, folder), inventory, dialect=line["trainer"], pinned=line["trainer"] == "roll")
    return compare(look(found.tables(), planned=planned.inventory), planned, "the plan"), planned


def ranks_elsewhere(line: dict[str, Any], which: str, planned: Plan) -> Iterator[tuple[str, int, str]]:
    """Yield the ranks that were recorded on another node, or on other accelerators, than planned."""
    ips = {rank: planned.inventory.node(rank).ip for rank in range(planned.inventory.num_nodes)}
    for name, ends in line[which]["ends"].items():
        for row, places in zip(planned[name], ends, strict=True):
            mine = [(ips[node], index) for node, index in row.devices]
            theirs = [(address, index) for address, index in places]
            if {address for address, _ in mine} != {address for address, _ in theirs}:
                yield name, row.rank, "node"
            elif mine != theirs:
                yield name, row.rank, "accelerators"


@pytest.mark.parametrize(("line", "which"), RUNS, ids=[f"{line['id']}-{which}" for line, which in RUNS])
def test_the_recorded_differences_are_found(line: dict[str, Any], which: str, tmp_path: Path) -> None:
    if "plan_in_order" not in line:  # it runs alone, but rankplan refuses the config
        with pytest.raises(PlacementError):
            compared(line, which, tmp_path)
        return
    live, planned = compared(line, which, tmp_path)
    assert live.compared is not None
    found = {
        (one.component, rank, one.kind)
        for one in live.differences
        for rank in one.ranks
        if one.component in line[which]["ends"] and one.kind != "group-spans"
    }
    expected = set(ranks_elsewhere(line, which, planned))
    if line["id"] in SPLIT:
        found, expected = ({one for one in each if one[2] == "node"} for each in (found, expected))
    assert found == expected
    assert live.compared.job == MINE[:2]
    assert live.compared.claimed == live.compared.groups == len(line[which]["requests"])
    if which == "pinned":
        assert live.differences == ()
        assert live.compared.ranks == live.compared.up == live.compared.on_nodes > 0


TORN = [line for line in LINES if any(torn for torn, _ in line.get("alone_against_plan", {}).get("torn", {}).values())]


@pytest.mark.parametrize("line", TORN, ids=[line["id"] for line in TORN])
def test_tensor_groups_on_several_nodes_are_found(line: dict[str, Any], tmp_path: Path) -> None:
    """As many as recorded, without those that the plan has on several nodes, too."""
    live, planned = compared(line, "alone", tmp_path)
    for name, (torn, _) in some(line["alone_against_plan"]["torn"].items()):
        spans = [one for one in live.differences if one.kind == "group-spans" and one.component == name]
        size = max(planned[name].parallel.tp // len(planned[name][0].devices), 1)
        nodes = [node for row in planned[name] for node, _ in row.devices]
        width = planned[name].parallel.tp
        allowed = sum(len({*nodes[start : start + width]}) > 1 for start in range(0, len(nodes), width))
        assert torn - allowed <= sum(len(one.ranks) for one in spans) / size <= torn


@pytest.mark.parametrize(("roles", "up"), [(0, 0), (1, 8), (2, 16), (3, 24), (4, 26)])
def test_a_rank_is_up_once_its_role_has_started(roles: int, up: int, tmp_path: Path) -> None:
    """Four roles of OpenRLHF share eight bundles, one of them with two ranks of four bundles; they start in turn."""
    line = next(line for line in LINES if line["id"] == "openrlhf-00-odd-join")
    found = recorded(line, line["pinned"], actors=[0.2] * roles)
    planned = plan(config(line, tmp_path), cluster(line), dialect="openrlhf")
    live = compare(look(found.tables(), planned=planned.inventory), planned, "the plan", MINE[:2])
    assert live.compared is not None
    assert (live.compared.up, live.compared.ranks) == (up, 26)


def test_accelerators_of_other_jobs_are_known() -> None:
    line = next(line for line in LINES if line["cluster"]["held"] and "ends" in line["alone"])
    live = look(recorded(line, line["alone"]).tables())
    held = {live.inventory.node(rank).ip: list(each) for rank, each in live.held(but=MINE[:2]).items()}
    assert held == {address: sorted(each) for address, each in line["cluster"]["held"] if each}
    assert {actor.job for actor in live.actors} == {MINE[:2], OTHER[:2]}

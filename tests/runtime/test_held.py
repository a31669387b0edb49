"""Plans on what other jobs leave free: known accelerators are left out, uncertain nodes come last."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, Plan, RankSet, plan
from rankplan.front.job import read_job
from rankplan.read.sources import Planned, Sources
from rankplan.runtime.live.binding import Binding, bound, fit
from rankplan.runtime.live.live import _planned
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.usage.held import Held
from rankplan.runtime.usage.look import look
from support.configs import from_overrides
from support.live_tables import MINE, OTHER, Cluster

VERL = ["trainer.nnodes=1", "trainer.n_gpus_per_node=2", "algorithm.adv_estimator=grpo"]


def slime(count: int) -> dict[str, Any]:
    """A config that asks for a group of so many bundles of one accelerator."""
    return {"actor_num_nodes": 1, "actor_num_gpus_per_node": count, "colocate": True}


def nodes_of(found: Cluster) -> Nodes:
    """The nodes as `rankplan pin` finds them."""
    live = look(found.tables())
    return Nodes(tuple(node.node_id for node in live.nodes), live.inventory)


def used(found: Plan) -> dict[int, int]:
    """The accelerators in use, by node."""
    devices = {device for one in found.values() for row in one for device in row.devices}
    return {node: sum(on == node for on, _ in devices) for node, _ in devices}


def fitted(found: Cluster, config: Any, *without: str) -> tuple[Binding, list[str]]:
    """The binding of a config or a plan, and the notes."""
    told: list[str] = []

    def planned(nodes: Nodes, held: Held) -> Planned:
        if isinstance(config, Plan):
            return Planned(fit(config, nodes, held, without), Sources())
        left = held.left(nodes.inventory)
        return Planned(held.planned(left, lambda inventory: plan(config, inventory, pinned=True)), Sources())

    return bound(planned, nodes_of(found), found.tables(), told.append, lenient=False), told


NODES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 2), st.sampled_from([0, 0, 0.5, 1, 2])), min_size=1, max_size=6
)


@given(NODES, st.integers(1, 12))
@example([(3, 0, 0.5), (4, 2, 0.5), (4, 2, 0.5)], 2)
def test_as_few_uncertain_nodes_as_possible_are_used(nodes: list[tuple[int, int, float]], wanted: int) -> None:
    """``nodes`` has the accelerators of each, those that an actor holds, and the amount that a task holds."""
    found = Cluster([(f"10.0.0.{at + 1}", count) for at, (count, _, _) in enumerate(nodes)])
    free: dict[int, int] = {}
    for at, (count, held, task) in enumerate(nodes):
        held = min(held, count)
        task = min(task, count - held)
        if held:
            found.actor(f"10.0.0.{at + 1}", range(held), job=OTHER)
        if task:
            found.task(f"10.0.0.{at + 1}", task)
        free[at] = int(count - held - task)
    uncertain = {at for at, (count, held, task) in enumerate(nodes) if task and count > held}
    live = look(found.tables())
    others = Held.of(live)
    assert set(others.hidden) == uncertain
    left = others.left(live.inventory)
    try:
        answer = others.planned(left, lambda inventory: plan(slime(wanted), inventory, pinned=True))
    except PlacementError:
        assert sum(free.values()) < wanted
        return
    assert sum(used(answer).values()) == wanted
    assert all(count <= free[node] for node, count in used(answer).items())
    certain = sum(count for at, count in free.items() if at not in uncertain)
    rooms = sorted((free[at] for at in uncertain), reverse=True)
    least = next(count for count in range(len(rooms) + 1) if certain + sum(rooms[:count]) >= wanted)
    assert len(uncertain & set(used(answer))) <= least
    assert bool(uncertain & set(used(answer))) == bool(least)


def test_what_is_held_is_told_and_left_out() -> None:
    found = Cluster([("10.0.0.9", 4), ("10.0.0.10", 4), ("10.0.0.11", 4)])
    found.actor("10.0.0.9", [0], job=OTHER)
    found.task("10.0.0.9", 1.5)
    found.task("10.0.0.11", 1)
    binding, notes = fitted(found, slime(4))
    told = "10.0.0.9: 0 and 1.5 that Ray does not name; 10.0.0.11: 1 that Ray does not name"
    assert notes == [f"other jobs hold accelerators, which the plan leaves out: {told}"]
    assert used(binding.plan) == {1: 4}
    assert binding.pins.free == (1, 0, 3)  # what the plan sets aside is free for what it lacks


def test_the_nodes_that_a_pinned_plan_leaves_are_its_spares() -> None:
    found = Cluster([("10.0.0.9", 4), ("10.0.0.10", 4), ("10.0.0.8", 4)])
    rack = {"topology": {"keep": {"actor": {"world": "rack"}}, "levels": ["rack"]}}
    config = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-7"}, **rack}}
    entries = [{"ranks": rank, "ip": f"10.0.0.{10 - rank}", "accelerators": 4} for rank in range(2)]
    for entry in entries:
        entry["labels"] = {"rack": "a"}
    planned = plan(config, Inventory.from_dict({"nodes": entries}))
    nodes = nodes_of(found)
    fits = fit(planned, nodes, Held({}, {}))
    assert [fits.inventory.node(rank).ip for rank in range(fits.inventory.num_nodes)] == ["10.0.0.10", "10.0.0.9"]
    assert fits.job is not None and fits.job.spares is not None and fits.job.spares.node(0).ip == "10.0.0.8"


def test_nodes_outside_the_plan_do_not_count() -> None:
    """A node with an empty rank label, and one that joins after the nodes were found, are none of the plan's."""
    found = Cluster([("10.0.0.9", 4), ("10.0.0.10", 4), ("10.0.0.8", 4)])
    live, outside = look(found.tables()), "10.0.0.8"
    inside = [node for node in live.nodes if node.spec.ip != outside]
    found.actor(outside, [0], job=OTHER)
    found.task(outside, 1)
    found.task("10.0.0.10", 1)
    entries = [{"ranks": rank, "ip": str(node.spec.ip), "accelerators": 4} for rank, node in enumerate(inside)]
    nodes = Nodes(tuple(node.node_id for node in inside), Inventory.from_dict({"nodes": entries}))
    told: list[str] = []
    planned = saved("10.0.0.9", "10.0.0.10", count=6)
    binding = bound(
        lambda on, held: Planned(fit(planned, on, held), Sources()), nodes, found.tables(), told.append, lenient=False
    )
    assert binding.pins.ids == tuple(node.node_id for node in inside)
    assert not any(outside in note for note in told) and "10.0.0.10" in told[0]


def test_a_plan_that_needs_an_uncertain_node_warns() -> None:
    found = Cluster([("10.0.0.9", 4), ("10.0.0.10", 4)])
    found.task("10.0.0.9", 1)
    binding, notes = fitted(found, slime(6))
    assert used(binding.plan) == {0: 2, 1: 4} or used(binding.plan) == {0: 3, 1: 3}
    assert notes[1].startswith("the plan needs 10.0.0.9, but Ray does not tell which accelerators tasks, or ")
    with pytest.raises(PlacementError):
        fitted(found, slime(8))


def saved(*addresses: str, count: int) -> Plan:
    """A saved plan of a group of bundles on these nodes with four accelerators."""
    entries = [{"ranks": rank, "ip": address, "accelerators": 4} for rank, address in enumerate(addresses)]
    return plan(slime(count), Inventory.from_dict({"nodes": entries}), pinned=True)


@pytest.mark.parametrize("task", [0, 1, 2])
def test_a_saved_plan_fits_while_enough_is_free(task: int) -> None:
    """Ray does not tell which accelerators a task has: only their number decides."""
    found = Cluster([("10.0.0.9", 4), ("10.0.0.10", 4), ("10.0.0.8", 4)])
    found.actor("10.0.0.8", range(4), job=OTHER)
    found.task("10.0.0.10", task)
    planned = saved("10.0.0.9", "10.0.0.10", count=6)
    assert used(planned) == {0: 4, 1: 2}
    binding, notes = fitted(found, planned)
    assert used(binding.plan) == {0: 4, 1: 2}
    assert binding.pins.free == (0, 2 - task, 0)
    assert [note.startswith("the plan needs 10.0.0.10, but Ray does not tell") for note in notes] == [False, True][
        : 1 + bool(task)
    ]


def test_a_saved_plan_that_needs_what_others_hold_names_them() -> None:
    found = Cluster([("10.0.0.10", 4), ("10.0.0.9", 4)])
    found.actor("10.0.0.9", [0], job=OTHER)
    found.task("10.0.0.10", 2.5)
    with pytest.raises(PlacementError) as caught:
        fitted(found, saved("10.0.0.9", "10.0.0.10", count=6))
    assert [fault.message for fault in caught.value.diagnostics] == [
        "10.0.0.9: the plan needs 0-3, but other jobs hold 0",
        "10.0.0.10: the plan needs 0-1, but other jobs hold 2.5 that Ray does not name",
    ]
    assert {fault.code for fault in caught.value.diagnostics} == {"plan-mismatch"}


def test_a_saved_plan_keeps_what_it_does_not_use() -> None:
    """Also by rank and by name, and where its own facts exclude something already."""
    found = Cluster([("10.0.0.10", 4), ("10.0.0.9", 4), ("10.0.0.8", 4)])
    plain = saved("10.0.0.10", "10.0.0.9", "10.0.0.8", count=4)
    excludes = plain.on(plain.inventory.excluding(["10.0.0.8"]))
    assert fitted(found, excludes, "10.0.0.9/1")[0].plan.inventory.excluded == [
        (RankSet("1"), RankSet("1")),
        (RankSet("2"), None),
    ]
    for planned, names in ((plain, ["10.0.0.9"]), (excludes, ["10.0.0.8", "10.0.0.9"])):
        bound_to = fitted(found, planned, "10.0.0.9")[0].plan
        assert used(bound_to) == {0: 4}
        assert bound_to.inventory.facts is not None and sorted(bound_to.inventory.facts.exclude) == names
    with pytest.raises(PlacementError, match="resource ranks 0-3 are excluded: node 0"):
        fitted(found, plain, "10.0.0.10")
    with pytest.raises(PlacementError, match="unknown node or accelerator"):
        fitted(found, plain, "10.0.0.7")


def test_live_plans_a_config_as_pin_does() -> None:
    """A task on the first node moves the group to the other, although verl sorts addresses as text."""
    found = Cluster([("10.0.0.9", 2), ("10.0.0.10", 2)])
    config = from_overrides(VERL)
    job = read_job(config, "1x1")
    assert used(_planned(look(found.tables()), job, None)) == used(fitted(found, config)[0].plan) == {0: 2}
    found.task("10.0.0.9", 0.5)
    assert fitted(found, config)[0].plan.inventory.node(0).ip == "10.0.0.9"
    for node in (used(_planned(look(found.tables()), job, None)), used(fitted(found, config)[0].plan)):
        assert node == {1: 2}
    # The job's own group hides accelerators before its actors are up; these are not those of others.
    group = found.group(["10.0.0.10"] * 2, [1] * 2, name="global_poolverl_group_2:0", strategy="STRICT_PACK")
    assert look(found.tables()).hidden() == {0: 0.5, 1: 2.0}
    assert used(_planned(look(found.tables()), job, MINE[:2])) == {1: 2} and group


def test_nothing_held_is_the_plan_on_all_nodes() -> None:
    inventory = Inventory.uniform(2, 4)
    nothing = Held({}, {})
    assert not nothing and nothing.left(inventory) is inventory and not nothing.nodes()
    assert Held({0: RankSet("1-2")}, {}).text(0) == "1-2"
    assert used(nothing.planned(inventory, lambda on: plan(slime(8), on, pinned=True))) == {0: 4, 1: 4}

"""What the nodes of a plan can never reserve: named, and compared with every way to place small jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Actors, Inventory, PlacementError, Plan, Request
from rankplan._core import Requests
from rankplan.plans.reserving import reservation_faults, reservation_warnings
from support.outcomes import at_least, outcome

SLIME = {"actor_num_nodes": 1, "actor_num_gpus_per_node": 4, "rollout_num_gpus": 4, "rollout_num_gpus_per_engine": 2}


def cluster(*nodes: tuple[int, float | None], **more: Any) -> Inventory:
    """Nodes with these accelerators and CPUs."""
    entries = [{"accelerators": size, "cpus": cpus, **more} for size, cpus in nodes]
    return Inventory.from_dict({"nodes": [{"ranks": rank, **entry} for rank, entry in enumerate(entries)]})


def request(*bundles: tuple[int, float], nodes: Sequence[int] = (), strategy: str = "PACK", **more: Any) -> Request:
    """A request of bundles with these accelerators and CPUs."""
    sizes = [size for size, _ in bundles]
    amounts = [(cpus, more.get("memory"), more.get("resources", ())) for _, cpus in bundles]
    return Request("actor", None, sizes, nodes or [0] * len(sizes), strategy, amounts=amounts)


def told(inventory: Inventory, *requests: Request, actors: Sequence[Actors] = ()) -> tuple[list[str], list[str]]:
    """The messages of what can never be reserved, and of what cannot be on the nodes of the plan."""
    plan = Plan(inventory, (), requests=requests, actors=actors)
    faults, warnings = reservation_faults(plan), reservation_warnings(plan)
    assert {one.code for one in faults + warnings} <= {"never-reserved"} and all(one.help for one in faults + warnings)
    bound = reservation_faults(plan, bound=True)
    assert {one.message for one in faults} <= {one.message for one in bound}
    if not actors:  # nothing binds actors without accelerators
        assert [one.message for one in bound] == [one.message for one in faults + warnings]
    return [one.message for one in faults], [one.message for one in warnings]


def test_slime_waits_for_ever_on_two_nodes_of_two_cpus() -> None:
    with pytest.raises(PlacementError) as refused:
        rankplan.plan(SLIME, cluster((4, 2), (4, 2)), dialect="slime")
    assert [one.message for one in refused.value.diagnostics] == [
        "actor asks for 8 bundles with 1 CPU each, but the nodes have room for 4: nodes 0-1 have 2 of the 4 CPUs that "
        "their accelerators need"
    ]
    assert rankplan.check(SLIME, cluster((4, 2), (4, 2)), dialect="slime").faults == [*refused.value.diagnostics]
    report = rankplan.check(SLIME, cluster((4, 4), (4, 4)), dialect="slime")
    assert report.plan is not None, "Ray may have a head without accelerators for the manager and the lock"
    assert [one.message for one in report.warnings if one.code == "never-reserved"] == [
        "the trainer asks for 10 CPUs, but its nodes have 8: 8 for its groups, 1 for the rollout manager, 1 for the "
        "engine lock"
    ]
    for enough in (
        cluster((4, 5), (4, 5)),
        cluster((4, 4), (4, 6)),
        cluster((4, None), (4, 2)),
        Inventory.parse("2x4"),
    ):
        assert rankplan.check(SLIME, enough, dialect="slime").plan is not None


@pytest.mark.parametrize(
    ("inventory", "requests", "faults", "warnings"),
    [
        (
            cluster((8, 32)),
            [request((8, 64))],
            ["a bundle of actor asks for 64 CPUs, but no node has more than 32"],
            [],
        ),
        (
            cluster((8, 16), (8, 8)),
            [request(*[(1, 3)] * 8, strategy="STRICT_PACK")],
            ["a group of actor, which must be on one node, asks for 24 CPUs, but no node has more than 16"],
            [],
        ),
        (
            cluster((8, 8), (8, 64)),
            [request(*[(1, 2)] * 8)],
            [],
            ["node 0 has 8 of the 16 CPUs that its bundles ask for"],
        ),
        (
            cluster((8, 64), reservable_memory=1024),
            [request((8, 1), memory=2048)],
            ["a bundle of actor asks for 2048 MiB of memory, but no node has more than 1024"],
            [],
        ),
        (
            cluster((8, 64), (8, 64), resources={"license": 0.5}),
            [request((8, 1), resources=[("license", 1)])],
            ["a bundle of actor asks for 1 of `license`, but no node has more than 0.5"],
            [],
        ),
        (cluster((8, 64)), [request((8, 1), resources=[("license", 1)])], [], []),
        (cluster((8, None)), [request((8, 640))], [], []),
    ],
)
def test_what_lacks_is_named(
    inventory: Inventory, requests: list[Request], faults: list[str], warnings: list[str]
) -> None:
    assert told(inventory, *requests) == (faults, warnings)


def test_a_custom_resource_that_one_node_has_lacks_on_the_others() -> None:
    nodes = [{"ranks": 0, "accelerators": 8, "cpus": 8, "resources": {"license": 1}}, {"ranks": 1, "accelerators": 8}]
    license = [("license", 1)]
    two = [request((8, 1), resources=license), request((8, 1), resources=license, nodes=[1])]
    assert told(Inventory.from_dict({"nodes": nodes}), *two) == ([], [])
    nodes[1]["cpus"] = 8
    message = "the nodes have room for 1: node 1 has 0 of the 1 of `license` that its accelerators need"
    (fault,), _ = told(Inventory.from_dict({"nodes": nodes}), *two)
    assert fault.endswith(message)


def test_actors_beside_the_groups() -> None:
    large, builder = Actors("rollouter", 2, cpus=10), Actors("builder", cpus=1, each_node=True, brief=True)
    group = request(*[(1, 3)] * 8)
    assert told(cluster((8, 43)), group, actors=[large])[1] == [
        "the trainer asks for 44 CPUs, but its nodes have 43: 24 for its groups, 20 for the rollouter"
    ]
    assert told(cluster((8, 9)), request((1, 1)), actors=[large])[1] == [
        "the rollouter asks for 10 CPUs, but no node has more than 9"
    ]
    assert told(cluster((8, 33), (8, 33)), group, actors=[large]) == ([], [])
    split = told(cluster((8, 30), (8, 14)), group, actors=[large])
    assert split == ([], ["a node has at most 6 left beside the groups, but the rollouter asks for 10 CPUs"])
    assert told(cluster((8, 24)), group, actors=[builder]) == (
        [],
        ["a node has at most 0 left beside the groups, but the builder asks for 1 CPU"],
    )
    assert told(cluster((8, 25)), group, actors=[builder]) == ([], [])
    assert told(cluster((8, 25), (0, 0)), group, actors=[builder]) == ([], []), "a head that takes no work"
    short = Actors("short", cpus=4, each_node=True, brief=True)
    assert told(cluster((8, 30)), group, actors=[short, Actors("last", cpus=6)]) == ([], []), "short ones have ended"
    several = [Actors("one", cpus=6), Actors("two", 2, cpus=5)]
    assert told(cluster((8, 34), (0, 6)), group, actors=several) == ([], []), (
        "6 on the smaller node, 5 and 5 on the other"
    )


@pytest.mark.parametrize("actor", [Actors("large", cpus=9), Actors("manager", cpus=6)])
def test_what_actors_lack_hides_nothing_that_bundles_lack(actor: Actors) -> None:
    """Ray may have other nodes for the actor, but none for the bundles of a plan that is bound."""
    inventory = cluster((8, 4), (8, 8))
    group = request(*[(1, 1)] * 8)
    plan = Plan(inventory, (), requests=[group], actors=[actor])
    (fault,) = reservation_faults(plan, bound=True)
    assert "node 0 has 4 of the 8" in fault.message
    without = Plan(inventory, (), requests=[group])
    assert [one.message for one in reservation_faults(without, bound=True)] == [fault.message]


def test_bundles_that_fit_nowhere_are_refused_beside_an_actor_that_does_not_fit() -> None:
    group = request(*[(1, 1)] * 8, nodes=[0] * 4 + [1] * 4)
    message = "actor asks for 8 bundles with 1 CPU each, but the nodes have room for 4: nodes 0-1 have 2 of the 4 CPUs "
    for actors in ([], [Actors("large", cpus=3)]):
        faults, _ = told(cluster((4, 2), (4, 2)), group, actors=actors)
        assert faults == [f"{message}that their accelerators need"]


def test_excluded_nodes_have_nothing_to_reserve() -> None:
    inventory = cluster((8, 8), (8, 8))
    group = request(*[(1, 1)] * 8, nodes=[1] * 8)
    lock = [Actors("lock", cpus=1)]
    assert told(inventory, group, actors=lock) == ([], [])
    assert told(inventory.without("node-0"), group, actors=lock)[1] == [
        "the trainer asks for 9 CPUs, but its nodes have 8: 8 for its groups, 1 for the lock"
    ]


def test_a_saved_plan_is_checked_too(tmp_path: Path) -> None:
    plan = rankplan.plan(SLIME, cluster((4, 5), (4, 5)), dialect="slime")
    content = plan.to_dict()
    content["inventory"]["nodes"][0]["cpus"] = 4
    Plan.from_dict(content).save(tmp_path / "plan.json")
    assert [one.code for one in rankplan.check(tmp_path / "plan.json").diagnostics] == ["never-reserved"]


# ------------------------------------------------------------------------------------ every way to place a small job

NODES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=3)
BUNDLES = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 3)), min_size=1, max_size=4)


def placed(free: list[list[int]], bundles: Sequence[tuple[int, ...]]) -> bool:
    """Whether the bundles fit on what is free of accelerators and CPUs, in any way."""
    if not bundles:
        return True
    (size, cpus), *others = bundles
    for node in free:
        if node[0] >= size and node[1] >= cpus:
            node[0], node[1] = node[0] - size, node[1] - cpus
            fits = placed(free, others)
            node[0], node[1] = node[0] + size, node[1] + cpus
            if fits:
                return True
    return False


def alone(nodes: Sequence[tuple[int, int]], bundles: Sequence[tuple[int, int]]) -> bool:
    """Whether the accelerators suffice: if not, that is another fault."""
    return placed([[size, 1 << 20] for size, _ in nodes], bundles)


@at_least(refused=0.05, fits=0.05)
@given(NODES, BUNDLES, st.lists(st.integers(1, 3), max_size=2))
def test_what_is_refused_fits_in_no_way(
    nodes: list[tuple[int, int]], bundles: list[tuple[int, int]], actors: list[int]
) -> None:
    plan = Plan(cluster(*nodes), (), requests=[request(*bundles)], actors=[Actors("a", cpus=cpus) for cpus in actors])
    fits = placed([list(node) for node in nodes], [*bundles, *((0, cpus) for cpus in actors)])
    if reservation_faults(plan):
        outcome("refused")
        assert not fits
    elif fits:
        outcome("fits")


@at_least(refused=0.05, fits=0.05)
@given(NODES, st.tuples(st.integers(1, 2), st.integers(0, 3)), st.integers(1, 4))
def test_equal_bundles_are_refused_if_they_fit_in_no_way(
    nodes: list[tuple[int, int]], bundle: tuple[int, int], count: int
) -> None:
    bundles = [bundle] * count
    plan = Plan(cluster(*nodes), (), requests=[request(*bundles)])
    if not alone(nodes, bundles):
        return
    fits = placed([list(node) for node in nodes], bundles)
    outcome("fits" if fits else "refused")
    assert bool(reservation_faults(plan)) is not fits


def test_no_request_is_no_fault() -> None:
    assert told(cluster((8, 0)), actors=[Actors("a", cpus=1)]) == ([], [])
    assert Requests().lacking(cluster((8, 0)).core, [], {}, rankplan.RankSet(), rankplan.RankSet()) == []

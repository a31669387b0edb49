"""The records of a group that changes, without Ray: the places that it uses, and the ports of its ranks."""

from __future__ import annotations

from typing import Any

import pytest
from rankplan import Component, Inventory, plan
from rankplan.runtime.group.crew import Crew, LiveRank, Terms
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.rank.ports import PORTS
from rankplan.runtime.rank.spec import RankSpec


class Owning:
    """A connection and a reservation of which nothing is asked."""

    is_current, has_launched = False, False

    def own(self, thing: object) -> None: ...
    def disown(self, thing: object) -> None: ...
    def leave(self, group: object) -> None: ...
    def check_open(self) -> None: ...

    def enter(self, component: str, group: object) -> list[object]:
        return []


def nodes_of(*addresses: int) -> Nodes:
    entries = [{"ranks": rank, "ip": f"10.0.0.{at}", "accelerators": 2} for rank, at in enumerate(addresses)]
    return Nodes(tuple(f"id{at}" for at in addresses), Inventory.from_dict({"nodes": entries}))


def on(nodes: Nodes) -> Component:
    """A process on each node."""
    count = nodes.inventory.num_nodes
    entry = {"rollout": ",".join(str(2 * node) for node in range(count))}
    return plan({"cluster": {"num_nodes": count, "component_placement": entry}}, nodes.inventory)["rollout"]


def crew_on(nodes: Nodes) -> Crew:
    """A group that has a rank on each node."""
    owner: Any = Owning()
    crew = Crew(Terms(lambda: nodes, (int, (), {}), None, on(nodes), "rollout", None, None), owner, nodes, owner)
    start(crew, nodes)
    crew.settle(list(crew.newcomers), nodes, None)
    return crew


def start(crew: Crew, nodes: Nodes, *ranks: int) -> None:
    """Start these ranks, or all, as newcomers."""
    component = on(nodes)
    crew.announce(list(component), nodes)
    for row in component:
        if not ranks or row.rank in ranks:
            make_actor: Any = object
            crew.add(RankSpec("rollout", row, [], nodes.ids[row.cluster_node_rank]), make_actor)


def test_newcomers_are_on_the_nodes_of_their_own_plan() -> None:
    """A node that has joined since, and one that has another node's rank now: the places tell them by Ray's ids."""
    crew = crew_on(nodes_of(1, 2))
    assert crew.places() == {("id1", 0), ("id2", 0)}
    start(crew, nodes_of(1, 3, 4), 1, 2)
    assert crew.places() == {("id1", 0), ("id2", 0), ("id3", 0), ("id4", 0)}
    crew.dismiss()
    assert crew.places() == {("id1", 0), ("id2", 0)}


@pytest.mark.parametrize("then", ["shrink", "end"])
def test_a_rank_that_starts_again_keeps_its_ports_until_it_leaves(then: str) -> None:
    nodes, machine = nodes_of(1, 2), "a machine of this test"
    crew = crew_on(nodes)

    def replaced() -> list[LiveRank]:
        start(crew, nodes, 1)
        return [crew.ranks[0], *crew.newcomers]

    with PORTS.searching() as search:
        block = PORTS.choice(search, machine, 1)
        crew.hold(search, [(crew.ranks[1], machine, block)])
    for _ in range(2):
        crew.settle(replaced(), nodes, None)
        assert PORTS.taken(machine) == set(block)
    if then == "shrink":
        crew.retire(crew.ranks[1:])
        crew.settle(list(crew.ranks), nodes, None)
    else:
        crew.end()
    assert not PORTS.taken(machine)
    crew.end()

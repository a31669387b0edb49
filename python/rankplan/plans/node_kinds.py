"""Nodes of a plan with the same equipment on which the same happens."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from rankplan._core import Pattern, RankSet, Run
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component


@frozen
class Stay:
    """Processes of one component with consecutive ranks that run on one node, or use resources there.

    Two nodes have equal stays if only the ranks differ; see `Pattern` for the rest.
    """

    component_name: str
    pattern: Pattern


@frozen
class Exclusion:
    """Accelerators of a node that must not be used, by local index; ``None`` for the whole node.

    ``job`` is the other job that has the node, if any.
    """

    accelerators: RankSet | None
    job: str | None = None


@dataclass(slots=True)
class NodeKind:
    """Nodes with the same hardware, the same exclusion and the same stays.

    ``hardware`` is the number of configured pieces by type. ``excluded`` is ``None`` if all of the node can be used.
    ``first_ranks`` is the first rank of each stay on the first
    node; ``ranks`` are the ranks of each component on the other nodes.
    """

    nodes: RankSet
    num_accelerators: int
    accelerator_type: str
    accelerator_model: str | None
    hardware: dict[str, int]
    stays: list[Stay]
    excluded: Exclusion | None = None
    first_ranks: list[int] = field(default_factory=list)
    ranks: dict[str, RankSet] = field(default_factory=dict)


def node_kinds(inventory: Inventory, components: Mapping[str, Component], *, fold: bool = True) -> list[NodeKind]:
    """Return the kinds of nodes in the order of their first nodes; without ``fold``, a kind per node.

    Linear in runs and nodes.
    """
    # A state stands for everything found on a node so far: nodes in the same state are of the same kind.
    first_new = 1 if fold else inventory.num_nodes
    states = array("I", [0] * inventory.num_nodes if fold else range(inventory.num_nodes))
    next_states: dict[tuple[int, Any], int] = {}
    parts_of: dict[int, tuple[Any, ...]] = {}

    def add(nodes: Iterable[int], part: Any) -> None:
        for node in nodes:
            state = next_states.setdefault((states[node], part), first_new + len(next_states))
            if state not in parts_of:
                parts_of[state] = (*parts_of.get(states[node], ()), part)
            states[node] = state

    for nodes, equipment in _equipment(inventory):
        add(nodes, equipment)
    runs = {name: component.rows.runs() for name, component in components.items()}
    for name, runs_of_name in runs.items():
        stays: dict[Pattern, Stay] = {}
        for run in runs_of_name:
            add(range(run.node, run.node + run.nodes), stays.setdefault(run.pattern, Stay(name, run.pattern)))

    members: dict[int, list[int]] = {}
    for node, state in enumerate(states):
        members.setdefault(state, []).append(node)
    kinds = {state: _kind(RankSet(nodes), *parts_of[state]) for state, nodes in members.items()}
    _add_ranks(kinds, states, runs)
    return list(kinds.values())


def _add_ranks(kinds: Mapping[int, NodeKind], states: Sequence[int], runs: Mapping[str, Sequence[Run]]) -> None:
    """Add the ranks of components to the kinds of nodes: of each stay on the first node, of all on the others."""
    first_nodes = {kind.nodes[0]: kind for kind in kinds.values()}
    for name, runs_of_name in runs.items():
        on_others: dict[int, list[range]] = {}
        for run in runs_of_name:
            size = run.pattern.processes
            for offset in range(run.nodes):
                node = run.node + offset
                first_rank = run.first_rank + offset * size
                if node in first_nodes:
                    first_nodes[node].first_ranks.append(first_rank)
                else:
                    on_others.setdefault(states[node], []).append(range(first_rank, first_rank + size))
        for state, ranks in on_others.items():
            kinds[state].ranks[name] = RankSet(chain.from_iterable(ranks))


def _kind(nodes: RankSet, accelerators: tuple[int, str, str | None], *parts: Any) -> NodeKind:
    hardware: dict[str, int] = {}
    stays: list[Stay] = []
    excluded = None
    for part in parts:
        if isinstance(part, Stay):
            stays.append(part)
        elif isinstance(part, Exclusion):
            excluded = part
        else:
            hardware.update([part])
    return NodeKind(nodes, *accelerators, hardware, stays, excluded)


def _equipment(inventory: Inventory) -> Iterator[tuple[Iterable[int], Any]]:
    """Yield nodes with their accelerators, those with an exclusion, and those with pieces of a hardware type."""
    jobs: dict[int, str] = {}
    for nodes, spec in inventory.stretches():
        yield nodes, (spec.num_accelerators, spec.accelerator_type, spec.accelerator_model)
        if spec.taken is not None:
            jobs.update(dict.fromkeys(nodes, spec.taken))
    for node, accelerators in inventory.marks.items():
        yield [node], Exclusion(accelerators, jobs.get(node))
    for group in inventory.node_groups:
        if group.hardware is not None:
            for node, count in group.hardware.counts():
                yield [node], (group.hardware.type, count)

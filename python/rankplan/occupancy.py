"""What runs on each node, read from the columns of a plan: nodes on which the same runs are found together."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import sub
from typing import Any, TypeAlias

from rankplan._core import Placements, RankSet
from rankplan.inventory import Inventory

Columns: TypeAlias = tuple[int, int, bytes, bytes]
"""Index of the node group, number of processes, resources of each process (32 bits), local indices (16 bits)."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Processes of one component with consecutive ranks that run on one node, or have resources there.

    ``resource`` is ``accelerator``, ``node`` or a type of configured hardware. ``devices`` are the local indices of
    each process; none where it is placed by node. Two nodes have equal stays where only the ranks differ.
    """

    component: str
    node_group: str
    resource: str
    processes: int
    devices: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class NodeKind:
    """Nodes that have the same, and on which the same runs.

    ``hardware`` is the number of configured pieces by type. ``first_ranks`` is, for each stay, its first rank on the
    first of the nodes; ``ranks`` is what each component has on the others.
    """

    nodes: RankSet
    accelerators: int
    accelerator_type: str
    accelerator_model: str | None
    hardware: dict[str, int]
    stays: list[Stay]
    first_ranks: list[int] = field(default_factory=list)
    ranks: dict[str, RankSet] = field(default_factory=dict)


def node_kinds(inventory: Inventory, components: Mapping[str, Placements], fold: bool = True) -> list[NodeKind]:
    """Return the nodes by what runs on them, in the order of their first nodes; without ``fold``, each by itself.

    Linear in rows and nodes.
    """
    # A state stands for all that was found on a node so far; nodes on which the same was found are in the same one.
    states = array("I", [0] * inventory.num_nodes if fold else range(inventory.num_nodes))
    after: dict[tuple[int, Any], int] = {}
    path: list[tuple[int, Any] | None] = [None] * (1 if fold else inventory.num_nodes)

    def add(nodes: Iterator[tuple[int, Any]]) -> None:
        for node, found in nodes:
            step = states[node], found
            state = after.get(step)
            if state is None:
                state = after[step] = len(path)
                path.append(step)
            states[node] = state

    add(_equipment(inventory))
    for component, rows in components.items():
        add((node, (component, columns)) for node, _, columns in runs(rows))

    nodes: dict[int, list[int]] = {}
    for node, state in enumerate(states):
        nodes.setdefault(state, []).append(node)
    stay = _Stays(components)
    kinds = {}
    for state, members in nodes.items():
        found = []
        while step := path[state]:
            state, part = step
            found.append(part)
        found.reverse()
        accelerators, accelerator_type, model = found[0]
        kind = NodeKind(RankSet(members), accelerators, accelerator_type, model, {}, [])
        for part in found[1:]:
            if isinstance(part[1], int):
                kind.hardware[part[0]] = part[1]
            else:
                kind.stays.append(stay(*part))
        kinds[states[members[0]]] = kind
    _add_ranks(kinds, states, components)
    return list(kinds.values())


def _add_ranks(kinds: dict[int, NodeKind], states: array[int], components: Mapping[str, Placements]) -> None:
    firsts = {kind.nodes[0]: kind for kind in kinds.values()}
    for component, rows in components.items():
        spans: dict[int, list[range]] = {}
        for node, first, columns in runs(rows):
            if node in firsts:
                firsts[node].first_ranks.append(first)
                continue
            end = first + columns[1]
            held = spans.setdefault(states[node], [])
            if held and held[-1].stop == first:
                held[-1] = range(held[-1].start, end)
            else:
                held.append(range(first, end))
        for state, held in spans.items():
            kinds[state].ranks[component] = RankSet(chain.from_iterable(held))


def _equipment(inventory: Inventory) -> Iterator[tuple[int, Any]]:
    """Yield what each node has: its accelerators first, then (type, number) of configured hardware."""
    for nodes, spec in inventory.stretches():
        accelerators = spec.accelerators, spec.accelerator_type, spec.accelerator_model
        yield from ((node, accelerators) for node in nodes)
    for group in inventory.section.node_groups if inventory.section else ():
        if group.hardware is not None:
            yield from ((node, (group.hardware.type, count)) for node, count in group.hardware.counts())


def runs(rows: Placements, at_home: bool = False) -> Iterator[tuple[int, int, Columns]]:
    """Yield node, first rank and columns of each run of rows on one node, in rank order.

    A process that has resources on other nodes too is a run on each; with ``at_home``, it stays with its own node.
    """
    _, group_starts, node_column, start_column, devices, elsewhere = rows.state()
    nodes, starts = array("I", node_column), array("I", start_column)
    sizes = array("I", map(sub, starts[1:], starts)).tobytes()
    away = dict(elsewhere)
    ends = [first for first, _ in group_starts[1:]] + [len(nodes)]
    for (first, group), end in zip(group_starts, ends, strict=True):
        if away and not at_home:
            yield from _runs_of_resources(range(first, end), group, nodes, starts, devices, away)
            continue
        for node, run in groupby(nodes[first:end]):
            count = sum(1 for _ in run)
            after = first + count
            held = devices[2 * starts[first] : 2 * starts[after]] if starts else b""
            yield node, first, (group, count, sizes[4 * first : 4 * after], held)
            first = after


def _runs_of_resources(
    ranks: range, group: int, nodes: array[int], starts: array[int], devices: bytes, away: Mapping[int, int]
) -> Iterator[tuple[int, int, Columns]]:
    for rank in ranks:
        homes = ((away.get(index, nodes[rank]), index) for index in range(starts[rank], starts[rank + 1]))
        for node, found in groupby(homes, key=lambda home: home[0]):
            indices = [index for _, index in found]
            held = devices[2 * indices[0] : 2 * indices[-1] + 2]
            yield node, rank, (group, 1, array("I", [len(indices)]).tobytes(), held)


class _Stays:
    """Columns read; many nodes of different kinds have some in common."""

    def __init__(self, components: Mapping[str, Placements]) -> None:
        self._groups = {component: rows.state()[0] for component, rows in components.items()}
        self._known: dict[tuple[str, Columns], Stay] = {}

    def __call__(self, component: str, columns: Columns) -> Stay:
        key = component, columns
        if key not in self._known:
            group, count, sizes, held = columns
            local = iter(array("H", held))
            devices = tuple(tuple(next(local) for _ in range(size)) for size in array("I", sizes))
            self._known[key] = Stay(component, *self._groups[component][group], count, devices)
        return self._known[key]

"""The plan: the components of a job over one inventory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations, islice, zip_longest
from pathlib import Path
from typing import Any

from rankplan._core import ACCELERATOR, Placement, RankSet
from rankplan.arranging.physical import same_nodes
from rankplan.config.models import ClusterSection
from rankplan.errors import Diagnostic, PlacementError, refusal
from rankplan.hardware.policies import EXCLUSIVE, NO_BINDING
from rankplan.nodes.clusters import SupportsInventory, inventory_of
from rankplan.nodes.inventory import Inventory
from rankplan.plans import plan_file
from rankplan.plans.component import Component, Coordinates, Visibility, fitted
from rankplan.plans.crossings import check_keep, topology_faults
from rankplan.plans.mode import PlacementMode
from rankplan.plans.occupancy import NodeKind, node_kinds
from rankplan.plans.weights import WeightMap
from rankplan.words import counted, did_you_mean

SHARE_UNIT = 10_000
"""Shares are added up in ten-thousandths, Ray's own unit."""


@dataclass(frozen=True, slots=True)
class Move:
    """A process that runs elsewhere, sees other devices, or has another node group or coordinates in the other plan.

    ``before`` is ``None`` if it appeared, ``after`` is ``None`` if it went. ``was`` and ``now`` are its coordinates
    (`Component.coordinates`), ``None`` if the component states no parallel sizes. ``replaced``: one of its nodes is
    another machine in the other plan.
    """

    component: str
    rank: int
    before: Placement | None
    after: Placement | None
    was: list[Coordinates] | None = None
    now: list[Coordinates] | None = None
    replaced: bool = False

    @property
    def in_place(self) -> bool:
        """Whether only the coordinates change."""
        if self.before is None or self.after is None or self.replaced:
            return False
        return _place(self.before) == _place(self.after)


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """The changes from one plan to another; false if there are none.

    ``renumbered`` processes keep their place, but have other coordinates in the parallel groups.
    """

    moved: tuple[Move, ...]
    appeared: tuple[Move, ...]
    went: tuple[Move, ...]
    renumbered: tuple[Move, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.moved or self.appeared or self.went or self.renumbered)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(getattr(self, name))} {name}" for name in self.__slots__)
        return f"<PlanDiff: {counts}>"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which components use the same accelerators.

    ``kind`` is ``collocated`` if all components use the same accelerators, ``disaggregated`` if no two share any, else
    ``hybrid``. ``pairs`` maps two components to the accelerators that they share: local indices by node rank.
    Components without accelerators do not count.
    """

    kind: str
    pairs: dict[tuple[str, str], dict[int, RankSet]]

    def __repr__(self) -> str:
        return f"<Sharing: {self.kind}, pairs: {len(self.pairs)}>"


@dataclass(frozen=True, slots=True)
class Oversubscription:
    """Accelerators that are each used by more than one process.

    ``processes`` is the number of processes of each component on each of them; ``accelerators`` are local indices by
    node rank.
    """

    processes: dict[str, int]
    accelerators: dict[int, RankSet]


class Plan(Mapping[str, Component]):
    """Where every process of every component runs: a mapping from names to `Component`, over one inventory.

    Raises ``ValueError`` for components over different inventories, or two with one name.
    """

    def __init__(
        self, inventory: Inventory, components: Iterable[Component], mode: PlacementMode | None = None
    ) -> None:
        self._inventory = inventory
        self._mode = mode
        self._components: dict[str, Component] = {}
        for component in components:
            if component.inventory is not inventory and component.inventory != inventory:
                raise ValueError(f"component {component.name!r} is placed on another inventory")
            if component.name in self._components:
                raise ValueError(f"two components are named {component.name!r}")
            self._components[component.name] = component
        self._share_cores()

    def _share_cores(self) -> None:
        """Give components without accelerators the cores that others do not use exclusively."""
        exclusive = (one.rows.accelerators() for one in self.values() if one.binding == EXCLUSIVE)
        if not (taken := RankSet().union(*exclusive)):
            return  # a part of a plan keeps what it knows of the others
        for name, component in self.items():
            if component.binding != NO_BINDING and not component.rows.accelerators():
                self._components[name] = replace(component, taken=taken)

    @property
    def inventory(self) -> Inventory:
        """The nodes of the plan and its node groups."""
        return self._inventory

    @property
    def mode(self) -> PlacementMode | None:
        """RLinf's placement mode, if the plan comes from a config that has one."""
        return self._mode

    @property
    def components(self) -> list[str]:
        """Names of the components."""
        return list(self._components)

    @property
    def section(self) -> ClusterSection | None:
        """The cluster section with the node groups, if the plan comes from one."""
        return self._inventory.section

    def __getitem__(self, name: str) -> Component:
        try:
            return self._components[name]
        except KeyError:
            help = did_you_mean(str(name), self._components, "the components are")
            raise KeyError(f"unknown component {name!r}; {help}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._components

    def __iter__(self) -> Iterator[str]:
        return iter(self._components)

    def __len__(self) -> int:
        return len(self._components)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        same = self.mode == other.mode and self._inventory == other._inventory
        return same and self._components == other._components

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {len(rows)}" for name, rows in islice(self._components.items(), 8))
        sizes += f" and {len(self) - 8} more" if len(self) > 8 else ""
        return f"<Plan of {sizes or 'nothing'} on {counted(self._inventory.num_nodes, 'node')}>"

    def on(self, inventory: Inventory | SupportsInventory) -> Plan:
        """Apply the rule of every component to another inventory, or a cluster, and return the new plan.

        Raises `PlacementError` with every fault.
        """
        inventory = inventory_of(inventory)
        if self.section is not None:
            inventory = inventory.with_config(self.section)
        faults: list[Diagnostic] = []
        components = []
        for component in self.values():
            try:
                components.append(component.on(inventory))
            except PlacementError as error:
                faults += (replace(one, path=component.name) for one in error.diagnostics)
        if faults:
            raise refusal(faults)
        return Plan(inventory, components, self.mode)

    def fitted(self, cluster: Inventory | SupportsInventory) -> Plan:
        """Return the plan in the same places of a cluster that it fits, with that cluster's accelerator ids.

        Each used node must have the same type and number of accelerators, and the ids, hostname and address that the
        plan states. Raises `PlacementError` (``plan-mismatch``) node by node otherwise.
        """
        cluster = inventory_of(cluster)
        components = fitted(list(self.values()), cluster)
        return Plan(components[0].inventory if components else cluster, components, self.mode)

    def replanned(
        self,
        inventory: Inventory | SupportsInventory,
        without: Iterable[str] = (),
        *,
        shrink: Sequence[str] = (),
        renumber: bool = False,
    ) -> Plan:
        """Return the plan after a failure, on the nodes of an inventory, or a cluster, that has spares.

        ``without`` names hardware that is gone: nodes (hostname, else address, else ``node-3``), accelerators
        (``node-5/2``, or their ids) or domains (``nvlink=b``). Nodes of the plan that the inventory lacks are gone too.
        Node ranks keep their nodes if these are left; each lost one gets a spare with the same hardware, in its domain
        if possible. Of a node with a broken accelerator, the processes use others that are idle; else the components
        that use it get another node; else all do. Process ranks do not change.

        If the spares do not suffice, the components in ``shrink`` lose whole data groups: the last ones, so that the
        other ranks keep their numbers, or with ``renumber`` those on the lost nodes. `diff` has what changed.

        Raises `PlacementError`: ``no-spare``, ``plan-mismatch`` if no node of the plan is left in the inventory,
        ``unknown-component``, and the faults of `Inventory.arranged`.
        """
        from rankplan.arranging.replanning import replanned  # most programs never need it

        found = replanned(list(self.values()), inventory_of(inventory), without, shrink, renumber)
        return Plan(found.inventory, found.components, self.mode)

    def with_visibility(self, visibility: Visibility) -> Plan:
        """Return the plan with another visibility of every component."""
        components = [component.with_settings(visibility=visibility) for component in self.values()]
        return Plan(self._inventory, components, self.mode)

    def only(self, *names: str) -> Plan:
        """Return the plan of these components. Raises ``KeyError`` for an unknown one."""
        return Plan(self._inventory, [self[name] for name in names], self.mode)

    def idle(self) -> dict[int, RankSet]:
        """Return the accelerators that no component uses and that are not excluded: local indices by node rank."""
        used = self._inventory.excluded_accelerators.union(*(one.rows.accelerators() for one in self.values()))
        return self._inventory.core.by_node(self._inventory.core.accelerators() - used)

    def sharing(self) -> Sharing:
        """Return which components use the same accelerators."""
        used = {name: devices for name, one in self.items() if (devices := one.rows.accelerators())}
        # Many pairs of components share the same accelerators, which are looked up once.
        shared: dict[tuple[RankSet, RankSet], dict[int, RankSet]] = {}
        pairs = {}
        for first, second in combinations(used, 2):
            key = used[first], used[second]
            if key not in shared and (both := key[0] & key[1]):
                shared[key] = self._inventory.core.by_node(both)
            if key in shared:
                pairs[first, second] = shared[key]
        if not pairs:
            return Sharing("disaggregated", pairs)
        return Sharing("collocated" if len(set(used.values())) == 1 else "hybrid", pairs)

    def oversubscribed(self) -> list[Oversubscription]:
        """Return the accelerators that more than one process uses, by the components of these, in node order."""
        crowds: dict[tuple[tuple[str, int], ...], dict[int, RankSet]] = {}
        for kind in self.node_kinds:
            users: dict[int, Counter[str]] = {}
            for stay in kind.stays:
                pattern = stay.pattern
                for index in chain.from_iterable(pattern.devices) if pattern.resource_type == ACCELERATOR else ():
                    users.setdefault(index, Counter())[stay.component_name] += 1
            here: dict[tuple[tuple[str, int], ...], list[int]] = {}
            for index in sorted(users):
                if users[index].total() > 1:
                    here.setdefault(tuple(users[index].items()), []).append(index)
            for crowd, indices in here.items():
                crowds.setdefault(crowd, {}).update(dict.fromkeys(kind.nodes, RankSet(indices)))
        return [Oversubscription(dict(crowd), dict(sorted(where.items()))) for crowd, where in crowds.items()]

    def check_shares(self) -> None:
        """Raise `PlacementError` (``share-overflow``) if the shares of an accelerator add up to more than 1."""
        crowds: dict[tuple[str, ...], dict[int, list[int]]] = {}
        for kind in self.node_kinds:
            users: dict[int, dict[str, int]] = {}
            for stay in kind.stays:
                share = self[stay.component_name].share
                if share is not None and stay.pattern.resource_type == ACCELERATOR:
                    for index in chain.from_iterable(stay.pattern.devices):
                        users.setdefault(index, {})[stay.component_name] = round(share * SHARE_UNIT)
            for index, shares in sorted(users.items()):
                if sum(shares.values()) > SHARE_UNIT:
                    here = crowds.setdefault(tuple(shares), {})
                    for node in kind.nodes:
                        here.setdefault(node, []).append(index)
        if crowds:
            raise PlacementError([self._overflow(names, where) for names, where in crowds.items()])

    def _overflow(self, names: tuple[str, ...], where: Mapping[int, list[int]]) -> Diagnostic:
        node, indices = next(iter(where.items()))
        shares = " + ".join(f"{name} {self[name].share:g}" for name in names)
        total = sum(round((self[name].share or 0) * SHARE_UNIT) for name in names) / SHARE_UNIT
        more = f" and {counted(len(where) - 1, 'more node')}" if len(where) > 1 else ""
        noun = "accelerator" if len(indices) == 1 else "accelerators"
        message = (
            f"{noun} {RankSet(indices)} of node {node}{more}: the shares add up to {total:g} ({shares}); at most 1"
        )
        help = "lower the shares, or place the components on different accelerators"
        return Diagnostic("share-overflow", message, help)

    def topology_faults(self, *, labelled: bool = True) -> list[tuple[tuple[str, ...], Diagnostic]]:
        """Return the groups that cross what ``keep`` forbids, and unknown names, each with its path in the topology.

        ``labelled``: whether the labels of the nodes are known; otherwise only known levels are checked.
        """
        layouts = {name: component.layout for name, component in self.items()}
        return list(topology_faults(layouts, self._inventory, labelled=labelled))

    def check_keep(self) -> None:
        """Raise `PlacementError` with the faults of `topology_faults`: ``group-spans`` and unknown names."""
        check_keep({name: component.layout for name, component in self.items()}, self._inventory)

    @cached_property
    def node_kinds(self) -> list[NodeKind]:
        """The nodes by hardware and processes, with equal nodes together."""
        return node_kinds(self._inventory, self._components)

    def weight_map(self, sender: str, receiver: str) -> WeightMap:
        """Return the slots of the receiver that get weights from each slot of the sender.

        Raises ``KeyError`` for an unknown component, `PlacementError` (``no-weight-sender``) if some weights have no
        sender.
        """
        return WeightMap(self[sender], self[receiver])

    def diff(self, other: Plan) -> PlanDiff:
        """Return what changes from this plan to the other: processes that move, appear, go or get other coordinates."""
        moved: list[Move] = []
        appeared: list[Move] = []
        went: list[Move] = []
        renumbered: list[Move] = []
        for move in self.changes(other):
            stays = renumbered if move.in_place else moved
            (appeared if move.before is None else went if move.after is None else stays).append(move)
        return PlanDiff(tuple(moved), tuple(appeared), tuple(went), tuple(renumbered))

    def changes(self, other: Plan) -> Iterator[Move]:
        """Yield the moves of `diff` component by component, in rank order."""
        replaced = self.replaced(other)
        for name in dict.fromkeys([*self, *other]):
            here, there = self.get(name), other.get(name)
            same = here is not None and there is not None and (here.rows, here.parallel) == (there.rows, there.parallel)
            if same and not replaced:
                continue
            for rank, (old, new) in enumerate(zip_longest(here or (), there or ())):
                elsewhere = old is not None and _on(old, replaced)
                move = Move(name, rank, old, new, _coordinates(here, old), _coordinates(there, new), elsewhere)
                if not move.in_place or move.was != move.now:
                    yield move

    def replaced(self, other: Plan) -> frozenset[int]:
        """Return the node ranks that are another machine in the other plan, by hostname or else address.

        The plans must have a machine in common; otherwise they are for different clusters, and there are none.
        """
        here, there = (_are_named(plan._inventory) for plan in (self, other))
        found = same_nodes(self._inventory, other._inventory)
        if not any(named and node is not None for named, node in zip(here, found, strict=True)):
            return frozenset()
        named = (all(both) for both in zip(here, there, strict=False))
        return frozenset(rank for rank, both in enumerate(named) if both and found[rank] != rank)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, which `from_dict` reads."""
        return plan_file.plain(self._inventory, self.values(), self.mode)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Plan:
        """Return the plan of a mapping that `to_dict` made.

        Raises `PlacementError` (``invalid-plan``) with each wrong key and the reason.
        """
        return cls(*plan_file.read(content))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, atomically. Equal plans give equal bytes. Raises ``OSError``."""
        plan_file.save(Path(path), self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a saved plan; it equals the plan that was saved.

        Raises `PlacementError` (``invalid-plan``) with each wrong key and the reason, ``OSError`` if the file cannot be
        read.
        """
        return cls(*plan_file.load(os.fspath(path)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._inventory, list(self.values()), self.mode)


def _are_named(inventory: Inventory) -> list[bool]:
    return [bool(spec.hostname or spec.ip) for nodes, spec in inventory.stretches() for _ in nodes]


def _on(row: Placement, nodes: frozenset[int]) -> bool:
    return bool(nodes) and (row.cluster_node_rank in nodes or any(node in nodes for node, _ in row.devices))


def _place(row: Placement) -> tuple[Any, ...]:
    seen = row.visible_accelerators, row.accelerator_type
    return row.cluster_node_rank, row.devices, *seen, row.node_group_label


def _coordinates(component: Component | None, row: Placement | None) -> list[Coordinates] | None:
    stated = component is not None and component.parallel.stated and row is not None
    return component.coordinates(row.rank) if stated else None  # type: ignore[union-attr]  # neither is None here

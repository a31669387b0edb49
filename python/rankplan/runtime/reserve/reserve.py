"""Reservations: what Ray keeps for some components, in one placement group per node.

They have whole accelerators, and the CPUs and the memory of each process.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

from ray.util.placement_group import PlacementGroup, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rankplan._core import Placement
from rankplan.accelerators import vendor
from rankplan.errors import LaunchError
from rankplan.plans.component import Component
from rankplan.runtime.nodes.nodes import Nodes, live_nodes
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import launch_error, plain
from rankplan.runtime.ray.asking import ask
from rankplan.runtime.ray.connection import Connection, Ends, Owner, using_session
from rankplan.runtime.ray.internals import available_resources, granted
from rankplan.runtime.ray.signals import Uninterrupted
from rankplan.runtime.reserve.groups import NamedGroups
from rankplan.runtime.reserve.notices import Notice, overlap_lines
from rankplan.words import counted

if TYPE_CHECKING:
    from typing_extensions import Self

_ADVICE = "end what holds the rest, use other nodes, or launch without a reservation"

Place: TypeAlias = tuple[str, int | None]
"""An accelerator, as Ray's id of its node and its local index; with ``None``, the CPUs of processes without any."""

Bundles: TypeAlias = dict[int | None, dict[str, float]]
"""The bundles of a node: one for each accelerator, by local index, and one (``None``) for processes without any."""


class Wanted(NamedTuple):
    """Processes to reserve for: their rows, and the CPUs and the MiB of host memory of each."""

    rows: Iterable[Placement]
    cpus: float = 1
    memory: int = 0

    @classmethod
    def of(cls, component: Component, rows: Iterable[Placement] | None = None) -> Wanted:
        """Return what some rows of a component need, or all of them. A process has one CPU unless it states others."""
        cpus = component.cpus_per_process
        memory = component.host_memory_per_process or 0
        return cls(component if rows is None else rows, 1 if cpus is None else cpus, memory)

    @property
    def amounts(self) -> dict[str, float]:
        """What Ray counts for each process."""
        return {name: amount for name, amount in (("CPU", self.cpus), ("memory", self.memory << 20)) if amount}


_claimed: dict[tuple[str, int], Reservation] = {}  # accelerators (Ray's node id, local index) with their reservation
_claiming = threading.Lock()


class Reservation(Owner):
    """Whole accelerators, CPUs and memory that Ray keeps for some components; made by ``Cluster.reserve``.

    A process has one CPU unless its component states others. Tasks and actors that it starts are in the reservation,
    too.

    Groups are launched in it with ``launch(..., reservation=...)``, and leave it unchanged when they are shut down.
    ``release()``, leaving ``with``, or closing the cluster shuts down the groups that still run in it, then returns
    everything to Ray.
    """

    def __init__(
        self,
        connection: Connection,
        nodes: Nodes,
        components: Mapping[str, Wanted],
        parent: Reservation | None = None,
    ) -> None:
        super().__init__()
        self.connection, self._nodes, self._parent = connection, nodes, parent
        self._ends_with_groups = False
        # one at a time for it and its additions: what is added, what is used and what is returned
        self._changing: threading.RLock = threading.RLock() if parent is None else parent._changing
        self._bundles = _bundles(nodes, components.values(), parent)
        self._ranks = {nodes.ids[rank]: rank for rank in self._bundles}
        self._groups: dict[int, PlacementGroup] = {}  # those that Ray has granted
        self._names: dict[int, str] = {}  # of the same
        self._vacant: set[Place] = set()  # removed processes have left them, and nothing was wrong with them
        self._asked = NamedGroups(connection)
        self._notice = Notice(connection, nodes, {name: wanted.rows for name, wanted in components.items()})
        self.components = tuple(components)
        """Names of the components that it was made for."""

    def __repr__(self) -> str:
        state = "released" if self._ended else f"on {counted(len(self._groups), 'node')}"
        return f"<Reservation for {self._who}, {state}>"

    @property
    def _who(self) -> str:
        more = [f"{len(self.components) - 4} more"] if len(self.components) > 4 else []
        return " + ".join([*self.components[:4], *more])

    def check_open(self) -> None:
        """Raise ``LaunchError`` if it was released, or the cluster was closed."""
        self.connection.check_open()
        if self._ended:
            raise LaunchError(
                f"the reservation for {self._who} was released; launch before release(), inside its `with`"
            )

    def release_when_unused(self) -> None:
        """Release it as soon as the last group that runs in it has been shut down."""
        self._ends_with_groups = True

    def release(self) -> None:
        """Shut down the groups that run in it and return everything to Ray; may be called again."""
        with Uninterrupted():
            self.end_owned()  # before anything that waits for an addition: it notices this
            with self._changing:
                self._notice.withdraw()
                self._asked.end()
                self._groups = {}
                self._unclaim(set(self._ranks))
            (self._parent or self.connection).disown(self)

    end = release

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def strategy(self, component: str, row: Placement, nodes: Nodes) -> PlacementGroupSchedulingStrategy:
        """Return the strategy that starts a rank in the bundle of its first accelerator; raises ``LaunchError``."""
        self.check_open()
        if component not in self.components:
            raise LaunchError(
                f"{component} is outside of the reservation, which was made for {self._who}; launch it under one of "
                "these names, or reserve it too",
                component,
            )
        home, own = row.cluster_node_rank, _accelerators(row)
        with self._changing:
            self._vacant -= places([row], nodes)
            outside = [
                f"accelerator {index} of node {node}" for node, index in own if not self.place(nodes.ids[node], index)
            ]
            found = self.place(nodes.ids[home], own[0][1] if own else None)
        if outside or found is None:
            what = ", ".join(outside) or f"a process of node {home} without an accelerator of its own"
            what += f", which is outside of the reservation for {self._who}; launch the component that was reserved"
            raise launch_error(component, row, f" needs {what}")
        # what the rank starts itself must not take what others need, nor look for it elsewhere
        return PlacementGroupSchedulingStrategy(*found, placement_group_capture_child_tasks=True)

    def place(self, node_id: str, index: int | None) -> tuple[PlacementGroup, int] | None:
        """Return the placement group and the bundle of an accelerator, or of processes without any, if reserved."""
        rank, groups = self._ranks.get(node_id, -1), self._groups
        if rank in groups and index in self._bundles[rank]:
            return groups[rank], list(self._bundles[rank]).index(index)
        additions = (one for one in self._owned if isinstance(one, Reservation))
        return next((found for one in additions if (found := one.place(node_id, index))), None)

    def extend(self, nodes: Nodes, component: str, wanted: Wanted) -> set[Place]:
        """Also reserve, until this ends, all that these processes need on these nodes; return the places it lacked.

        The group that needs them must say so before (``places``), so that nobody returns what is reserved already.
        """
        with self._changing:
            addition = Reservation(self.connection, nodes, {component: wanted}, self)
            if not addition._bundles:
                return set()
            try:
                addition.fill()
                return {(nodes.ids[rank], index) for rank, found in addition._bundles.items() for index in found}
            except BaseException:
                addition.release()
                raise

    def vacate(self, left: set[Place]) -> None:
        """Return nodes to Ray of which no place is used any more, now that removed processes have left these places.

        What ``Cluster.reserve`` has reserved stays reserved: its user asked for it.
        """
        with Uninterrupted(), self._changing:
            self._vacant |= left
            parts = [one for one in self._owned if isinstance(one, Reservation)]
            for one in self._owned:
                if isinstance(one, _Tenant):
                    self._vacant -= one.places()
            for part in [*parts, self] if self._ends_with_groups else parts:
                part._return_nodes(self._vacant)

    def _return_nodes(self, vacant: set[Place]) -> None:
        """Return the nodes all of whose places are vacant; release an addition that has no other."""
        for rank in list(self._groups):
            node_id = self._nodes.ids[rank]
            if {(node_id, index) for index in self._bundles[rank]} <= vacant:
                self._notice.leave(rank)
                self._asked.remove(self._names.pop(rank))
                del self._groups[rank], self._bundles[rank]
                self._unclaim({node_id})
        if self._parent is not None and not self._bundles:
            self.release()

    def disown(self, thing: Ends) -> None:
        """Forget a thing that has ended, such as an addition."""
        super().disown(thing)
        if self._ends_with_groups and all(isinstance(one, Reservation) for one in self._owned):
            self.release()

    def fill(self) -> None:
        """Ask Ray for everything; raises ``LaunchError`` if something does not fit. The caller releases it then."""
        (self._parent or self.connection).own(self)
        self._claim()
        total, before = live_nodes(), available_resources()
        for rank in self._bundles:
            there = total.get(self._nodes.ids[rank], {}).get("Resources", {})
            if any(amount > there.get(name, 0) for name, amount in self._total(rank).items()):
                raise self._refused(rank, before)
        # All drivers ask for nodes in the same order, so the driver that gets the first contested node meets no
        # other driver on the later ones.
        for rank in self._bundles:
            self._ask(rank, before)
        self._notice.post()
        # Ray counts accelerators, so another job may use the same ones while enough others are available
        if overlaps := self._notice.overlaps():
            why = "\n  ".join(["another job uses the same accelerators:", *overlap_lines(overlaps)])
            raise self._error(min(overlaps[0].nodes), f"{why}\n{_ADVICE}")
        self.check_open()

    def _claim(self) -> None:
        """Claim the accelerators within this program: Ray counts those of a node, but does not tell them apart."""
        with _claiming:
            for rank, bundles in self._bundles.items():
                for index in (index for index in bundles if index is not None):
                    place = self._nodes.ids[rank], index
                    if place in _claimed:
                        raise self._error(
                            rank,
                            f"accelerator {index} of node {rank} is reserved by this program for "
                            f"{_claimed[place]._who}; "
                            "reserve these components together, or release the other reservation first",
                        )
                    _claimed[place] = self

    def _unclaim(self, node_ids: set[str]) -> None:
        """Give up the claims on accelerators of these nodes."""
        with _claiming:
            for place in [place for place, holder in _claimed.items() if holder is self and place[0] in node_ids]:
                del _claimed[place]

    def _ask(self, rank: int, before: Amounts) -> None:
        """Reserve the bundles of a node."""
        bundles = list(self._bundles[rank].values())
        started = time.monotonic()
        while True:
            name = f"{self._who} (rankplan {uuid.uuid4().hex[:8]})"  # unique, as Ray requires
            group = self._asked.create(name, bundles, self._nodes.ids[rank])
            while (answer := granted(group)) is None:
                self.check_open()
                if time.monotonic() - started > timeouts.GRANT:
                    place = f"node {rank} ({self._nodes.address(rank)})"
                    raise self._error(rank, f"{place} did not answer within {timeouts.GRANT:g} s")
                time.sleep(timeouts.GRANT_POLL)
            if answer:
                self._groups[rank], self._names[rank] = group, name
                return
            self._asked.remove(name)
            self.check_open()
            if time.monotonic() - started > timeouts.SETTLE:
                raise self._refused(rank, before)
            time.sleep(timeouts.RETRY)

    def _refused(self, rank: int, before: Amounts) -> LaunchError:
        """Return the error with a table of the shortage on this node and on all others that are not yet granted."""
        waiting = [node for node in self._bundles if node not in self._groups]
        rows = shortage({self._nodes.ids[node]: (node, self._total(node)) for node in waiting}, rank, before)
        return self._error(rank, f"too little is available\n{rows}\n{_ADVICE}")

    def _total(self, node: int) -> Counter[str]:
        """Return the amount of each resource that is needed of a node."""
        total: Counter[str] = Counter()
        for bundle in self._bundles[node].values():
            total.update(bundle)
        return total

    def _error(self, node: int, why: str) -> LaunchError:
        component = self.components[0] if len(self.components) == 1 else None
        return LaunchError(f"cannot reserve {self._who}: {why}", component, node=node)


def make_reservation(connection: Connection, nodes: Nodes, components: Iterable[Component]) -> Reservation:
    """Reserve what these components need, which are placed on these nodes; see `Reservation`."""
    connection.check_alive()
    reservation = Reservation(connection, nodes, {one.name: Wanted.of(one) for one in components})
    try:
        with using_session(), connection.progress() as report:
            report(f"reserving {counted(len(reservation._bundles), 'node')}")
            reservation.fill()
        return reservation
    except BaseException:
        reservation.release()
        raise


_LEAST = {"CPU": 0.0001}
"""The smallest bundle: Ray takes no empty one, for processes that reserve nothing."""


def _bundles(nodes: Nodes, components: Iterable[Wanted], held: Reservation | None) -> dict[int, Bundles]:
    """Return the bundles of each node that ``held`` lacks; the bundle of processes without accelerators comes last.

    An accelerator has the CPUs and the memory of each process whose first accelerator it is.
    """
    amounts: dict[int, dict[int | None, Counter[str]]] = {}
    for wanted in components:
        each = wanted.amounts
        for row in wanted.rows:
            places_of_row = _accelerators(row) or [(row.cluster_node_rank, None)]
            for position, (node, index) in enumerate(places_of_row):
                bundle = amounts.setdefault(node, {}).setdefault(index, Counter())
                if position == 0:
                    bundle.update(each)
    found: dict[int, Bundles] = {}
    for node, bundles in sorted(amounts.items()):
        kind = vendor(nodes.inventory.node(node).accelerator_type)
        for index in sorted(bundles, key=lambda index: (index is None, index)):
            if held is not None and held.place(nodes.ids[node], index) is not None:
                continue
            accelerator = {kind.resource: 1} if kind is not None and index is not None else {}
            found.setdefault(node, {})[index] = {**accelerator, **bundles[index]} or _LEAST
    return found


@runtime_checkable
class _Tenant(Protocol):
    """A group that runs in a reservation."""

    def places(self) -> set[Place]:
        """Return the places that its processes use, and those that are about to start."""


def places(rows: Iterable[Placement], nodes: Nodes) -> set[Place]:
    """Return the places that these processes use on these nodes."""
    return {
        (nodes.ids[node], index)
        for row in rows
        for node, index in _accelerators(row) or [(row.cluster_node_rank, None)]
    }


def _accelerators(row: Placement) -> Sequence[tuple[int, int | None]]:
    """Return a process's own accelerators, as (node rank, local index)."""
    return row.devices if row.num_accelerators else []


Amounts: TypeAlias = Mapping[str, Mapping[str, float]]
"""Amount of each resource, by Ray's id of the node."""

_MOST_ROWS = 20


def shortage(needs: Mapping[str, tuple[int, Mapping[str, float]]], refused: int, before: Amounts) -> str:
    """Return a table of what nodes lack, by their ids. Ray refused one node when ``before`` was available."""
    total = {node_id: entry["Resources"] for node_id, entry in live_nodes().items()}
    available = available_resources()
    holders = _holders()
    rows: list[tuple[str, ...]] = [("node", "resource", "needed", "available", "total", "held by")]
    for node_id, (rank, needed) in needs.items():
        if node_id not in total or node_id not in available:
            rows.append((str(rank), "all", "", "", "", "the node has left the cluster"))
            continue
        resources = []
        for name, amount in needed.items():
            held = {who: amounts[name] for who, amounts in holders.get(node_id, {}).items() if name in amounts}
            there = total[node_id].get(name, 0.0)
            free = available[node_id].get(name, 0.0)
            if rank == refused:
                # Ray counts a group that it failed to place as taken until something else changes on the node
                free = max(free, min(before.get(node_id, {}).get(name, 0.0), there - sum(held.values())))
            resources.append(_Resource(name, amount, free, there, held))
        short = [resource.row(rank) for resource in resources if resource.needed > resource.free]
        if rank == refused and not short:
            short = [resources[0].row(rank, "(only parts are available, or the node is down)")]
        rows += short
    return _table(rows)


class _Resource(NamedTuple):
    """How much of a resource is needed on a node, is free there, is there in all, and is held by groups, by name."""

    name: str
    needed: float
    free: float
    total: float
    held: Mapping[str, float]

    def row(self, rank: int, note: str = "") -> tuple[str, ...]:
        """Return the row of a table, in which the largest holders come first, with a note after them."""
        others = round(self.total - self.free - sum(self.held.values()), 4)
        amounts = {**self.held, "others": others}
        largest_first = sorted(amounts.items(), key=lambda item: -item[1])
        holders = ", ".join(f"{amount:g} by {who}" for who, amount in largest_first if amount > 0)
        numbers = (f"{self.needed:g}", f"{self.free:g}", f"{self.total:g}")
        return (str(rank), self.name, *numbers, f"{holders} {note}".strip())


def _holders() -> dict[str, dict[str, Counter[str]]]:
    """Return the resources that placement groups hold, by Ray's id of the node, name of the group and resource."""
    holders: dict[str, dict[str, Counter[str]]] = {}
    for group_id, entry in ask(placement_group_table).items():
        for bundle, node_id in entry["bundles_to_node_id"].items() if entry["state"] == "CREATED" else ():
            who = plain(entry["name"]) or f"placement group {group_id[:8]}"
            holders.setdefault(node_id, {}).setdefault(who, Counter()).update(entry["bundles"][bundle])
    return holders


def _table(rows: Sequence[Sequence[str]]) -> str:
    shown = rows[: 1 + _MOST_ROWS]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    more = [f"and {len(rows) - len(shown)} more rows"] if len(rows) > len(shown) else []
    return "\n".join(f"  {line}" for line in [*lines, *more])

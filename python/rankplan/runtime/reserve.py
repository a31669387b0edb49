"""Reservations: whole accelerators and CPUs that Ray keeps for some components, in one placement group per node."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain
from types import TracebackType
from typing import Self

from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rankplan.accelerators import vendor
from rankplan.component import Component
from rankplan.errors import LaunchError
from rankplan.placement import Placement
from rankplan.runtime import session, timeouts
from rankplan.runtime.connection import Connection, Owner
from rankplan.runtime.nodes import Nodes
from rankplan.runtime.ray_internals import available_resources, granted
from rankplan.runtime.shortage import Amounts, shortage, total_resources

_ADVICE = "end what holds the rest, use other nodes, or launch without a reservation"

_claimed: dict[tuple[str, int], str] = {}  # accelerators (Ray's node id, local index) that this program has reserved
_claiming = threading.Lock()


@dataclass(slots=True)
class Need:
    """What a reservation takes of one node.

    ``processes`` is, for each accelerator (by local index), the number of processes whose first accelerator it is; for
    ``None``, the number of processes without an accelerator of their own. ``resource`` is Ray's name of an accelerator.
    """

    resource: str | None
    processes: dict[int | None, int] = field(default_factory=dict)

    @property
    def accelerators(self) -> list[int]:
        """Local indices of the accelerators, ascending."""
        return sorted(index for index in self.processes if index is not None)

    def bundles(self) -> list[dict[str, float]]:
        """Return a bundle for each accelerator, and then one for the processes without."""
        bundles = [{str(self.resource): 1, "CPU": self.processes[index]} for index in self.accelerators]
        bundles += [{"CPU": self.processes[None]}] if None in self.processes else []
        return [{name: count for name, count in bundle.items() if count} for bundle in bundles]

    def bundle(self, accelerator: int | None) -> int:
        """Return the index of the bundle of this accelerator."""
        return len(self.accelerators) if accelerator is None else self.accelerators.index(accelerator)

    def totals(self) -> dict[str, float]:
        """Return the amount of each of Ray's resources."""
        accelerators = {str(self.resource): float(len(self.accelerators))} if self.accelerators else {}
        return {**accelerators, "CPU": float(sum(self.processes.values()))}


class Reservation(Owner):
    """Whole accelerators, and a CPU per process, that Ray keeps for some components; made by ``Cluster.reserve``.

    Groups are launched in it with ``launch(..., reservation=...)``, and leave it unchanged when they are shut down.
    ``release()``, leaving ``with``, or closing the cluster shuts down the groups that still run in it, then returns
    everything to Ray.
    """

    def __init__(self, connection: Connection, nodes: Nodes, components: Collection[Component]) -> None:
        super().__init__()
        self.connection = connection
        self._nodes = nodes
        self._needs = _needs(nodes, components)
        self._groups: dict[int, PlacementGroup] = {}
        self._claims: list[tuple[str, int]] = []
        self.components = tuple(component.name for component in components)
        """Names of the components that it was made for."""

    def __repr__(self) -> str:
        state = "released" if self._ended else f"on {len(self._groups)} nodes"
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

    def release(self) -> None:
        """Shut down the groups that run in it and return everything to Ray; may be called again."""
        self.end_owned()
        self.connection.disown(self)
        groups, self._groups = self._groups, {}
        if self.connection.is_current:
            for group in groups.values():
                remove_placement_group(group)
        with _claiming:
            while self._claims:
                del _claimed[self._claims.pop()]

    end = release

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def strategy(self, component: str, row: Placement) -> PlacementGroupSchedulingStrategy:
        """Return the strategy that starts a rank in the bundle of its first accelerator.

        Raises ``LaunchError`` if the component or the row is outside of the reservation.
        """
        if component not in self.components:
            raise LaunchError(
                f"{component} is outside of the reservation, which was made for {self._who}; launch it under one of "
                "these names, or reserve it too",
                component,
            )
        own = _accelerators(row)
        first = own[0][1] if own else None
        need = self._needs.get(row.cluster_node_rank)
        outside = [
            f"accelerator {index} of node {node}"
            for node, index in own
            if node not in self._needs or index not in self._needs[node].processes
        ]
        if outside or need is None or first not in need.processes:
            what = ", ".join(outside) or f"a process of node {row.cluster_node_rank} without an accelerator of its own"
            raise LaunchError(
                f"{component} rank {row.rank} (node {row.cluster_node_rank}) needs {what}, which is outside of the "
                f"reservation for {self._who}; launch the component of the plan that was reserved",
                component,
                row.rank,
                row.cluster_node_rank,
            )
        group = self._groups[row.cluster_node_rank]
        return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=need.bundle(first))

    def fill(self) -> None:
        """Ask Ray for everything, node after node; raises ``LaunchError`` if something does not fit.

        All drivers ask for nodes in the same order, so of several that want the same nodes, the one that gets the first
        contested node is not held up by the others on any later one.
        """
        self._claim()
        total, before = total_resources(), available_resources()
        for rank, need in self._needs.items():
            there = total.get(self._nodes.ids[rank], {})
            if any(count > there.get(name, 0) for name, count in need.totals().items()):
                raise self._refused(rank, before)
        for rank in self._needs:
            self._ask(rank, before)
        self.check_open()

    def _claim(self) -> None:
        """Claim the accelerators within this program: Ray counts those of a node, but does not tell them apart."""
        with _claiming:
            for rank, need in self._needs.items():
                for index in need.accelerators:
                    place = self._nodes.ids[rank], index
                    if place in _claimed:
                        raise self._error(
                            rank,
                            f"accelerator {index} of node {rank} is reserved by this program for {_claimed[place]}; "
                            "reserve these components together, or release the other reservation first",
                        )
                    _claimed[place] = self._who
                    self._claims.append(place)

    def _ask(self, rank: int, before: Amounts) -> None:
        """Reserve what is needed of a node."""
        started = time.monotonic()
        while True:
            self.check_open()
            self._groups[rank] = self._requested(rank)
            while (answer := granted(self._groups[rank])) is None:
                if time.monotonic() - started > timeouts.GRANT:
                    place = f"node {rank} ({self._nodes.address(rank)})"
                    raise self._error(rank, f"{place} did not answer within {timeouts.GRANT:g} s")
                time.sleep(timeouts.GRANT_POLL)
            if answer:
                return
            remove_placement_group(self._groups.pop(rank))
            if time.monotonic() - started > timeouts.SETTLE:
                raise self._refused(rank, before)
            time.sleep(timeouts.RETRY)

    def _requested(self, rank: int) -> PlacementGroup:
        bundles = self._needs[rank].bundles()
        pins = [{"ray.io/node-id": self._nodes.ids[rank]}] * len(bundles)
        name = f"{self._who} (rankplan {uuid.uuid4().hex[:8]})"  # unique, as Ray requires
        group: PlacementGroup = placement_group(bundles, name=name, bundle_label_selector=pins)
        return group

    def _refused(self, rank: int, before: Amounts) -> LaunchError:
        """Return the error with a table of what is missing on this node and on those not yet granted."""
        waiting = {rank: need.totals() for rank, need in self._needs.items() if rank not in self._groups}
        rows = shortage({self._nodes.ids[rank]: (rank, totals) for rank, totals in waiting.items()}, rank, before)
        return self._error(rank, f"too little is available\n{rows}\n{_ADVICE}")

    def _error(self, node: int, why: str) -> LaunchError:
        component = self.components[0] if len(self.components) == 1 else None
        return LaunchError(f"cannot reserve {self._who}: {why}", component, node=node)


def make_reservation(connection: Connection, nodes: Nodes, components: Collection[Component]) -> Reservation:
    """Reserve the accelerators of these components, which are placed on these nodes, and a CPU for each process.

    All or nothing: raises ``LaunchError`` within about a second if it does not fit.
    """
    connection.check_alive()
    reservation = Reservation(connection, nodes, components)
    with session.used(), connection.progress() as report:
        connection.own(reservation)
        try:
            report(f"reserving {len(reservation._needs)} nodes")
            reservation.fill()
        except BaseException:
            reservation.release()
            raise
    return reservation


def _needs(nodes: Nodes, components: Iterable[Component]) -> dict[int, Need]:
    """Return what the components need of each node, in node order."""
    needs: dict[int, Need] = {}

    def count(node: int, accelerator: int | None, processes: int) -> None:
        if node not in needs:
            row = vendor(nodes.inventory.node(node).accelerator_type)
            needs[node] = Need(row.resource if row else None)
        held = needs[node].processes
        held[accelerator] = held.get(accelerator, 0) + processes

    for row in chain.from_iterable(components):
        own = _accelerators(row)
        if not own:
            count(row.cluster_node_rank, None, 1)
        for place, (node, index) in enumerate(own):
            count(node, index, int(place == 0))
    return dict(sorted(needs.items()))


def _accelerators(row: Placement) -> list[tuple[int, int]]:
    """Return the accelerators of a process's own, as (node rank, local index)."""
    return row.devices if row.num_accelerators else []

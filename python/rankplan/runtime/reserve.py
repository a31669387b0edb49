"""What a component reserves with Ray: shares of its accelerators and CPUs, in one placement group on each of its nodes.

Ray does not tell which accelerators a placement group holds, so the group's name says which ones it is meant for: every
driver on the cluster can read there what is taken, and of what.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from rankplan._core import RankSet
from rankplan.accelerators import vendor
from rankplan.errors import LaunchError
from rankplan.runtime.probe import pinned
from rankplan.runtime.seats import Seat

if TYPE_CHECKING:
    from rankplan.runtime.cluster import Cluster

SchedulingStrategy: TypeAlias = NodeAffinitySchedulingStrategy | PlacementGroupSchedulingStrategy

_UNIT = 10_000  # Ray counts in ten-thousandths; so do the whole numbers here, to add up without rounding
_NEAR = 1e-3  # of a unit: NumPy's float32(0.8) is 0.8
_PREFIX = "rankplan"
_SETTLE_SECONDS = 1.0
_RETURN_SECONDS = 5.0  # what nobody is known to hold may have been given back, and be on its way
_ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.02
_MOST_ROWS = 20
_ONE_AT_A_TIME = threading.Lock()


@dataclass(slots=True)
class _Demand:
    """What a component needs on one node: CPUs, and a share of each of these accelerators (by local index).

    ``resource`` is the name under which Ray counts the accelerators.
    """

    node_rank: int
    node_id: str
    resource: str | None
    cpus: int = 0
    shares: dict[int, int] = field(default_factory=dict)

    def bundles(self) -> list[dict[str, float]]:
        """Return one bundle an accelerator, ascending, and one for the CPUs: shares must not be cut in pieces."""
        accelerators = [{str(self.resource): share / _UNIT} for _, share in sorted(self.shares.items())]
        return [*accelerators, {"CPU": self.cpus / _UNIT}] if self.cpus else accelerators

    def totals(self) -> dict[str, int]:
        """Return how much of each of Ray's resources it needs."""
        accelerators = {str(self.resource): sum(self.shares.values())} if self.shares else {}
        return {**accelerators, "CPU": self.cpus}


@dataclass(frozen=True, slots=True)
class Reservation:
    """The placement groups of a component, by Ray's id of their node; without any, nothing is reserved."""

    groups: Mapping[str, tuple[PlacementGroup, _Demand]]

    def strategy(self, seat: Seat) -> SchedulingStrategy:
        """Return what makes Ray start a rank on its node: in the bundle of its first accelerator, if it holds one."""
        if seat.node_id not in self.groups:
            return pinned(seat.node_id)
        group, demand = self.groups[seat.node_id]
        own = _accelerators(seat)
        index = sorted(demand.shares).index(own[0][1]) if own else len(demand.shares)
        return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)

    def release(self) -> None:
        """Give everything back; the ranks must have ended."""
        if ray.is_initialized():
            for group, _ in self.groups.values():
                remove_placement_group(group)


NOTHING = Reservation({})


def reserve(cluster: Cluster, component: str, seats: Sequence[Seat], share: float) -> Reservation:
    """Reserve, for each rank, this share of each of its accelerators and of one CPU.

    All or nothing, and at once: raises ``LaunchError`` with a table, node by node, when it does not fit.
    """
    demands = _demands(cluster, component, seats, round(share * _UNIT))
    firsts = {seat.node_id: seat.placement for seat in reversed(seats)}
    try:
        with _ONE_AT_A_TIME:
            holders = _holders()
            _check_shares(demands, holders)
            return _placed(component, demands, holders)
    except _Short as short:
        first = firsts.get(short.demands[0].node_id, seats[0].placement)
        raise LaunchError(
            f"{component} cannot reserve its shares (reserve={share:g}), so the group is not launched:\n"
            f"{short.table()}\nreserve less, end what holds the rest, place it elsewhere, or launch without reserve",
            component,
            first.rank,
            short.demands[0].node_rank,
        ) from None


def _accelerators(seat: Seat) -> list[tuple[int, int]]:
    """Return the accelerators of a rank's own, as (node rank, local index)."""
    return seat.placement.devices if seat.placement.num_accelerators else []


def _demands(cluster: Cluster, component: str, seats: Sequence[Seat], share: int) -> list[_Demand]:
    demands: dict[int, _Demand] = {}
    users: dict[tuple[int, int], int] = {}

    def on(node: int) -> _Demand:
        if node not in demands:
            row = vendor(cluster.inventory.node(node).accelerator_type)
            demands[node] = _Demand(node, cluster.node_ids[node], row.resource if row else None)
        return demands[node]

    for seat in seats:
        on(seat.placement.cluster_node_rank).cpus += share
        for node, index in _accelerators(seat):
            shares = on(node).shares
            shares[index] = shares.get(index, 0) + share
            users[node, index] = users.get((node, index), 0) + 1
    for (node, index), count in users.items():
        if count * share > _UNIT:
            raise LaunchError(
                f"{component}: {count} processes share accelerator {index} of node {node}, and each is to reserve "
                f"{_amount(share)} of it (reserve); use {_amount(_UNIT // count)} or less, or give each process an "
                "accelerator of its own",
                component,
                next(seat.placement.rank for seat in seats if (node, index) in _accelerators(seat)),
                node,
            )
    return [demands[node] for node in sorted(demands)]


@dataclass(frozen=True, slots=True)
class _Holder:
    """A placement group that has something on a node: who, and how much of what.

    ``shares`` (by local index) is known of rankplan's own.
    """

    who: str
    totals: Mapping[str, int]
    shares: Mapping[int, int]


def _holders(besides: Iterable[str] = ()) -> dict[str, list[_Holder]]:
    """Return what placement groups hold on each node, but for these groups (by Ray's id)."""
    holders: dict[str, list[_Holder]] = {}
    for group_id, entry in placement_group_table().items():
        if entry["state"] != "CREATED" or group_id in besides:
            continue
        who, indices = _owner(entry["name"], group_id)
        nodes: dict[str, tuple[dict[str, int], dict[int, int]]] = {}
        for bundle, node_id in entry["bundles_to_node_id"].items():
            totals, shares = nodes.setdefault(node_id, ({}, {}))
            for resource, amount in entry["bundles"][bundle].items():
                totals[resource] = totals.get(resource, 0) + round(amount * _UNIT)
                if bundle < len(indices):
                    shares[indices[bundle]] = round(amount * _UNIT)
        for node_id, found in nodes.items():
            holders.setdefault(node_id, []).append(_Holder(who, *found))
    return holders


def _name(component: str, demand: _Demand) -> str:
    return f"{_PREFIX}:{RankSet(demand.shares)}:{uuid.uuid4().hex[:8]}:{component}"


def _owner(name: str, group_id: str) -> tuple[str, list[int]]:
    """Return whose placement group it is, and the accelerators that rankplan's own is meant for."""
    parts = name.split(":", 3)
    if len(parts) < 4 or parts[0] != _PREFIX:
        return (f"placement group {name or group_id[:8]}", [])
    here = group_id.endswith(ray.get_runtime_context().get_job_id())
    return (parts[3] if here else f"{parts[3]} of another driver", list(RankSet(parts[1])) if parts[1] else [])


class _Short(Exception):
    """Some nodes have not enough; ``rows`` are the lines of the table."""

    def __init__(self, demands: Sequence[_Demand], rows: Sequence[Sequence[str]]) -> None:
        super().__init__(demands)
        self.demands, self.rows = demands, rows

    def table(self) -> str:
        head = ("node", "resource", "needed", "present", "taken")
        shown = [head, *self.rows[:_MOST_ROWS]]
        widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in shown]
        more = [f"and {len(self.rows) - _MOST_ROWS} more rows"] if len(self.rows) > _MOST_ROWS else []
        return "\n".join(f"  {line.rstrip()}" for line in [*lines, *more])


def _check_shares(demands: Sequence[_Demand], holders: Mapping[str, Sequence[_Holder]]) -> None:
    """Raise ``_Short`` when an accelerator is taken by others of rankplan's, which Ray does not see for each."""
    short, rows = [], []
    for demand in demands:
        folded: dict[tuple[str, str], list[int]] = {}
        for index, needed in sorted(demand.shares.items()):
            takers = [
                (holder.who, holder.shares[index])
                for holder in holders.get(demand.node_id, ())
                if index in holder.shares
            ]
            if needed + sum(taken for _, taken in takers) > _UNIT:
                folded.setdefault((_amount(needed), _taken(takers)), []).append(index)
        if folded:
            short.append(demand)
        for (needed_text, taken_text), indices in folded.items():
            what = f"accelerator{'s' if len(indices) > 1 else ''} {RankSet(indices)}"
            rows.append((str(demand.node_rank), what, needed_text, "1", taken_text))
    if short:
        raise _Short(short, rows)


def _placed(component: str, demands: Sequence[_Demand], holders: Mapping[str, Sequence[_Holder]]) -> Reservation:
    groups: dict[str, tuple[PlacementGroup, _Demand]] = {}
    reservation, fillers = Reservation(groups), list[PlacementGroup]()
    try:
        _fill(fillers, component, demands, holders)
        for demand in demands:
            group = _pinned_group(demand.bundles(), _name(component, demand), demand.node_id)
            groups[demand.node_id] = (group, demand)
        _await(groups)
        # another driver may have looked at the same moment
        _check_shares(demands, _holders({group.id.hex() for group, _ in groups.values()}))
    except BaseException:
        reservation.release()
        raise
    finally:
        _empty(fillers)
    return reservation


def _pinned_group(bundles: list[dict[str, float]], name: str, node_id: str) -> PlacementGroup:
    pins = [{"ray.io/node-id": node_id}] * len(bundles)
    group: PlacementGroup = placement_group(bundles, name=name, bundle_label_selector=pins)
    return group


def _fill(
    fillers: list[PlacementGroup],
    component: str,
    demands: Sequence[_Demand],
    holders: Mapping[str, Sequence[_Holder]],
) -> None:
    """Take for a moment what is left of accelerators that are shared: Ray would put shares of several on one."""
    for demand in demands:
        taken: dict[int, int] = {}
        for holder in holders.get(demand.node_id, ()):
            for index, share in holder.shares.items():
                taken[index] = taken.get(index, 0) + share
        bundles = []
        for index in sorted({*taken, *demand.shares}):
            needed = demand.shares.get(index, 0)
            if (rest := _UNIT - taken.get(index, 0) - needed) > needed:
                bundles.append({str(demand.resource): rest / _UNIT})
        if bundles:
            fillers.append(_pinned_group(bundles, f"{_PREFIX}::{uuid.uuid4().hex[:8]}:{component}", demand.node_id))
    if not all(filler.wait(_SETTLE_SECONDS) for filler in fillers):
        _empty(fillers)


def _empty(fillers: list[PlacementGroup]) -> None:
    while fillers:
        remove_placement_group(fillers.pop())


def _await(groups: Mapping[str, tuple[PlacementGroup, _Demand]]) -> None:
    """Wait until every placement group is there; raises ``_Short`` as soon as it is sure that some cannot be."""
    own = {group.id.hex() for group, _ in groups.values()}
    started = time.monotonic()
    while True:
        table = placement_group_table()
        entries = [(table[group.id.hex()], demand) for group, demand in groups.values()]
        waiting = [(entry, demand) for entry, demand in entries if entry["state"] != "CREATED"]
        if not waiting:
            return
        states = {entry["stats"]["scheduling_state"] for entry, _ in waiting}
        hopeless = "INFEASIBLE" in states and states <= {"INFEASIBLE", "NO_RESOURCES"}
        waited = time.monotonic() - started
        if hopeless or waited > _SETTLE_SECONDS:
            short, sure = _shortage([demand for _, demand in waiting], _holders(own))
            if short.rows and sure:
                raise short
            if short.rows and waited > _RETURN_SECONDS:
                raise _without(groups, [demand for _, demand in waiting])
        if waited > _ANSWER_SECONDS:
            raise _in_pieces([demand for _, demand in waiting], ", or the node does not answer")
        time.sleep(_POLL_SECONDS)


def _without(groups: Mapping[str, tuple[PlacementGroup, _Demand]], waiting: Sequence[_Demand]) -> _Short:
    """Give these groups back and return what was missing without them: Ray counts what it tries to place as taken."""
    Reservation(groups).release()
    started = time.monotonic()
    while True:
        short, _ = _shortage(waiting, _holders())
        if not short.rows:
            return _in_pieces(waiting)
        if time.monotonic() - started > _SETTLE_SECONDS:
            return short
        time.sleep(_POLL_SECONDS)


def _in_pieces(waiting: Sequence[_Demand], more: str = "") -> _Short:
    """Return what is missing where enough is free on a node, but not on so many of its accelerators."""
    why = f"enough is free, but in pieces{more}"
    return _Short(waiting, [(str(demand.node_rank), "all", "", "", why) for demand in waiting])


def _shortage(waiting: Sequence[_Demand], holders: Mapping[str, Sequence[_Holder]]) -> tuple[_Short, bool]:
    """Return what is missing where, in Ray's own count of whole nodes; and whether it is sure that some is.

    It is sure where a node has too little beside what placement groups hold; the rest of what is taken may come back.
    """
    present = {entry["NodeID"]: entry["Resources"] for entry in ray.nodes() if entry["Alive"]}
    free = available_resources_per_node()
    short: list[_Demand] = []
    rows: list[tuple[str, ...]] = []
    sure = False
    for demand in waiting:
        node, node_id = str(demand.node_rank), demand.node_id
        before = len(rows)
        if node_id not in present:
            rows.append((node, "all", "", "0", "the node has left the cluster"))
            sure = True
        for resource, needed in demand.totals().items() if node_id in present else ():
            there = round(present[node_id].get(resource, 0) * _UNIT)
            left = round(free.get(node_id, {}).get(resource, 0) * _UNIT)
            takers = [(holder.who, holder.totals.get(resource, 0)) for holder in holders.get(node_id, ())]
            held = sum(taken for _, taken in takers)
            takers.append(("others", there - left - held))
            if needed > left:
                sure = sure or needed > there - held
                rows.append((node, resource, _amount(needed), _amount(there), _taken(takers)))
        if len(rows) > before:
            short.append(demand)
    return _Short(short, rows), sure


def _taken(takers: Iterable[tuple[str, int]]) -> str:
    amounts: dict[str, int] = {}
    for who, amount in takers:
        amounts[who] = amounts.get(who, 0) + amount
    most_first = sorted(amounts.items(), key=lambda taker: (-taker[1], taker[0]))
    return ", ".join(f"{_amount(amount)} by {who}" for who, amount in most_first if amount > 0) or "0"


def _amount(units: int) -> str:
    return f"{units / _UNIT:g}"


def as_share(value: Any) -> float | None:
    """Return a share that can be reserved, or ``None`` when this is none."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) <= 1:
        return None
    units = round(float(value) * _UNIT)
    return units / _UNIT if units and abs(float(value) * _UNIT - units) < _NEAR else None

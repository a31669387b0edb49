"""What a component reserves with Ray: shares of its accelerators and CPUs, in one placement group a node."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from rankplan.errors import LaunchError
from rankplan.runtime.holders import (
    Holder,
    Short,
    check_shares,
    filler_name,
    group_name,
    in_pieces,
    node_holders,
    on_its_way,
    shortage,
)
from rankplan.runtime.probe import pinned
from rankplan.runtime.seats import Seat
from rankplan.runtime.shares import UNIT, Demand, accelerators_of, demands_of

if TYPE_CHECKING:
    from rankplan.runtime.cluster import Cluster

SchedulingStrategy: TypeAlias = NodeAffinitySchedulingStrategy | PlacementGroupSchedulingStrategy

_SETTLE_SECONDS = 1.0
_RETURN_SECONDS = 5.0  # what nobody is known to hold may have been given back, and be on its way
_ANSWER_SECONDS = 10.0
_VIEW_SECONDS = 0.5  # at most, until what was given back is in Ray's view: some of it may be others' own
_POLL_SECONDS = 0.02
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True)
class Reservation:
    """The placement groups of a component, by Ray's id of their node; without any, nothing is reserved."""

    groups: Mapping[str, tuple[PlacementGroup, Demand]]

    def strategy(self, seat: Seat) -> SchedulingStrategy:
        """Return what makes Ray start a rank on its node: in the bundle of its first accelerator, if it holds one."""
        if seat.node_id not in self.groups:
            return pinned(seat.node_id)
        group, demand = self.groups[seat.node_id]
        own = accelerators_of(seat)
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
    demands = demands_of(cluster, component, seats, round(share * UNIT))
    firsts = {seat.node_id: seat.placement for seat in reversed(seats)}
    try:
        with _ONE_AT_A_TIME:
            holders = node_holders()
            check_shares(demands, holders)
            return _placed(component, demands, holders)
    except Short as short:
        first = firsts.get(short.demands[0].node_id, seats[0].placement)
        raise LaunchError(
            f"{component} cannot reserve its shares (reserve={share:g}), so the group is not launched:\n"
            f"{short.table()}\nreserve less, end what holds the rest, place it elsewhere, or launch without reserve",
            component,
            first.rank,
            short.demands[0].node_rank,
        ) from None


def _placed(component: str, demands: Sequence[Demand], holders: Mapping[str, Sequence[Holder]]) -> Reservation:
    started = time.monotonic()
    with _filled(component, demands, holders) as filled:
        try:
            return _reserved(component, demands, _SETTLE_SECONDS if filled else _RETURN_SECONDS)
        except Short:
            if not filled:
                raise
    # what filled was in the way, or is named as a holder
    _await_view(demands)
    return _reserved(component, demands, max(_SETTLE_SECONDS, _RETURN_SECONDS - (time.monotonic() - started)))


def _reserved(component: str, demands: Sequence[Demand], patience: float) -> Reservation:
    groups: dict[str, tuple[PlacementGroup, Demand]] = {}
    reservation = Reservation(groups)
    try:
        for demand in demands:
            group = _pinned_group(demand.bundles(), group_name(component, demand.shares), demand.node_id)
            groups[demand.node_id] = (group, demand)
        _await(groups, patience)
        # another driver may have looked at the same moment
        check_shares(demands, node_holders({group.id.hex() for group, _ in groups.values()}))
    except BaseException:
        reservation.release()
        raise
    return reservation


def _pinned_group(bundles: list[dict[str, float]], name: str, node_id: str) -> PlacementGroup:
    pins = [{"ray.io/node-id": node_id}] * len(bundles)
    group: PlacementGroup = placement_group(bundles, name=name, bundle_label_selector=pins)
    return group


@contextmanager
def _filled(component: str, demands: Sequence[Demand], holders: Mapping[str, Sequence[Holder]]) -> Iterator[bool]:
    """Take for a moment what accelerators have beside their shares: Ray would put shares of several on one.

    It takes the accelerator where the least is left. No two rests that are larger than their shares go on one; exact
    halves would, and wedges that are a little larger keep these apart. Yields whether something is taken.
    """
    fillers: list[PlacementGroup] = []
    wedges: list[PlacementGroup] = []

    def take(groups: list[PlacementGroup], demand: Demand, amounts: Iterable[int]) -> None:
        bundles = [{str(demand.resource): amount / UNIT} for amount in sorted(amounts, reverse=True)]
        if bundles:
            groups.append(_pinned_group(bundles, filler_name(component), demand.node_id))

    halves = {}
    _await_view(demands)
    try:
        for demand in demands:
            rests = _rests(demand, holders.get(demand.node_id, ()))
            take(fillers, demand, [rest for rest, share in rests if rest > share])
            same = [rest for rest, share in rests if rest == share > 1]
            halves[demand.node_id] = same if len(same) > 1 else []
            take(wedges, demand, [half + 1 for half in halves[demand.node_id]])
        there = _all_there([*fillers, *wedges])
        if there and wedges:
            for demand in demands:
                take(fillers, demand, [half - 1 for half in halves[demand.node_id]])
            there = _all_there(fillers)
        if not there:
            _empty(fillers)
        if wedges or not there:
            _empty(wedges)
            _await_view(demands)
        yield bool(fillers)
    finally:
        _empty(fillers)
        _empty(wedges)


def _await_view(demands: Sequence[Demand]) -> None:
    """Wait until Ray's view has all that no placement group holds; what it refuses before, it tries again later."""
    started = time.monotonic()
    while time.monotonic() - started < _VIEW_SECONDS and on_its_way(demands):
        time.sleep(_POLL_SECONDS)


def _rests(demand: Demand, holders: Iterable[Holder]) -> list[tuple[int, int]]:
    """Return, for each accelerator that is shared, what it has beside the share that is needed, and this share."""
    taken: dict[int, int] = {}
    for holder in holders:
        for index, share in holder.shares.items():
            taken[index] = taken.get(index, 0) + share
    shares = {index: demand.shares.get(index, 0) for index in {*taken, *demand.shares}}
    return [(UNIT - taken.get(index, 0) - share, share) for index, share in shares.items()]


def _all_there(groups: Iterable[PlacementGroup]) -> bool:
    return all(group.wait(_SETTLE_SECONDS) for group in groups)


def _empty(groups: list[PlacementGroup]) -> None:
    while groups:
        remove_placement_group(groups.pop())


def _await(groups: Mapping[str, tuple[PlacementGroup, Demand]], patience: float) -> None:
    """Wait until every placement group is there; raises ``Short`` as soon as it is sure that some cannot be.

    Where it is not sure, after ``patience`` seconds.
    """
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
            short, sure = shortage([demand for _, demand in waiting], node_holders(own))
            if short.rows and sure:
                raise short
            if short.rows and waited > patience:
                raise _without(groups, [demand for _, demand in waiting])
        if waited > _ANSWER_SECONDS:
            raise in_pieces([demand for _, demand in waiting], ", or the node does not answer")
        time.sleep(_POLL_SECONDS)


def _without(groups: Mapping[str, tuple[PlacementGroup, Demand]], waiting: Sequence[Demand]) -> Short:
    """Give these groups back and return what was missing without them: Ray counts what it tries to place as taken."""
    Reservation(groups).release()
    started = time.monotonic()
    while True:
        short, _ = shortage(waiting, node_holders())
        if not short.rows:
            return in_pieces(waiting)
        if time.monotonic() - started > _SETTLE_SECONDS:
            return short
        time.sleep(_POLL_SECONDS)

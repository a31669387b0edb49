"""Bringing up the ranks of a component, all or none."""

from __future__ import annotations

import logging
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import cloudpickle
from ray._private.state import actors

from rankplan._core import RankSet
from rankplan.errors import LaunchError
from rankplan.placement import Placement
from rankplan.render.progress import Report
from rankplan.runtime import session
from rankplan.runtime.calls import Failed, Unanswered, collect
from rankplan.runtime.host import HostActor, RankSetup
from rankplan.runtime.ports import PORTS
from rankplan.runtime.reserve import NOTHING, Reservation, SchedulingStrategy, reserve
from rankplan.runtime.seats import Seat, find_seats
from rankplan.runtime.verify import Expectation, check

if TYPE_CHECKING:
    from ray.actor import ActorHandle

    from rankplan.inventory import Inventory
    from rankplan.runtime.cluster import Cluster

_GONE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the ranks of a group are made of: the class, its arguments, and how many calls a rank works on at a time."""

    worker_class: type
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class LiveRank:
    """A rank that is up, and what the plan says about it."""

    host: ActorHandle[Any]
    expected: Expectation

    def in_process(self, pid: int) -> LiveRank:
        """Return the rank, expected in that process from now on."""
        return replace(self, expected=replace(self.expected, pid=pid))


@dataclass(frozen=True, slots=True)
class Crew:
    """The ranks of a component that are up, in rank order, what it has reserved, and its ports by machine."""

    ranks: list[LiveRank]
    reservation: Reservation
    ports: dict[str, set[int]] = field(default_factory=dict)

    def end(self) -> None:
        """Kill the ranks, and give back what was reserved."""
        _destroy([rank.host for rank in self.ranks])
        self.reservation.release()
        for machine, ports in self.ports.items():
            PORTS.give_back(machine, ports)

    def choice(self, machine: str, count: int) -> range:
        """Take ports of a machine to find a block of ``count`` in; they are given back at the end."""
        choice = PORTS.choice(machine, count)
        self.ports.setdefault(machine, set()).update(choice)
        return choice

    def keep(self, machine: str, choice: range, block: range) -> None:
        """Give all but this block of a choice back."""
        rest = set(choice) - set(block)
        self.ports[machine] -= rest
        PORTS.give_back(machine, rest)


def bring_up(
    cluster: Cluster,
    inventory: Inventory,
    component: str,
    recipe: Recipe,
    placements: Sequence[Placement],
    share: float | None,
    timeout: float,
) -> Crew:
    """Start a rank for each row, verify them, and return them. ``inventory`` knows their node groups.

    ``share`` is what each rank reserves of its accelerators; ``None`` reserves nothing. Raises ``LaunchError`` when a
    rank does not come up within ``timeout`` seconds, or not as planned; the others are gone by then.
    """
    cluster.check_alive()
    seats = find_seats(cluster, inventory, component, placements)
    # the first answer is rank 0's too: the free port that the others wait for
    rows = [placements[0], *placements]
    try:
        with session.used(), cluster.progress() as report:
            cluster.check_open()
            return _start(cluster, component, recipe, seats, share, timeout, report)
    except Failed as failed:
        row, fault, also = failed.culprit(rows)
        error = LaunchError(
            f"{component} rank {row.rank} (node {row.cluster_node_rank}) did not come up, so the group is not "
            f"launched: it {fault.reason}{also}",
            component,
            row.rank,
            row.cluster_node_rank,
        )
        raise fault.noted(error) from fault.cause


def _destroy(hosts: Sequence[ActorHandle[Any]]) -> None:
    """Kill these actors, and wait until Ray says that they are dead."""
    if not hosts or not ray.is_initialized():
        return
    for host in hosts:
        ray.kill(host)
    last_words: list[Any] = [host.look.remote() for host in hosts]
    ray.wait(last_words, num_returns=len(last_words), timeout=_GONE_SECONDS, fetch_local=False)


def _start(
    cluster: Cluster,
    component: str,
    recipe: Recipe,
    seats: Sequence[Seat],
    share: float | None,
    timeout: float,
    report: Report,
) -> Crew:
    """Submit everything at once, wait for it together, compare with the plan; on any error leave nothing behind."""
    name = recipe.worker_class.__name__
    parts = recipe.worker_class, recipe.args, recipe.kwargs
    advice = "let the constructor open files, locks and connections itself"
    payload = ray.put(_pickled(component, f"{name} or its arguments", parts, advice))
    advice = "define the model of its type in a module, outside of any function"
    hardware = [_pickled(component, "the hardware of a rank", seat.hardware, advice) for seat in seats]
    node = cluster.inventory.node(seats[0].placement.cluster_node_rank)
    address, machine = node.ip, str(node.hostname)
    import_path, log_level = _import_path(), logging.getLogger("rankplan").level or logging.INFO
    crew = Crew([], NOTHING if share is None else reserve(cluster, component, seats, share))

    def tell(done: int) -> None:
        cluster.check_open()  # another thread may have closed it meanwhile
        report(f"{component}: {max(0, done - 1)} of {len(seats)} ranks are up")

    try:
        for seat in seats:
            host = _host(component, seat, crew.reservation.strategy(seat), recipe.max_concurrency)
            crew.ranks.append(LiveRank(host, seat.expectation()))
        choice = crew.choice(machine, 1)
        port: ray.ObjectRef[int | None] = crew.ranks[0].host.free_block.remote(choice, 1)
        starts = []
        for seat, rank, held in zip(seats, crew.ranks, hardware, strict=True):
            setup = RankSetup(component, seat.placement, held, address, seat.env_vars, import_path, log_level)
            starts.append(rank.host.start.remote(setup, port, payload))
        try:
            master_port, *sightings = collect([port, *starts], timeout, tell)
        except Unanswered as unanswered:
            late = {max(0, index - 1) for index in unanswered.pending}
            raise _not_up(component, crew.ranks, late, timeout) from None
        crew.keep(machine, choice, range(master_port, master_port + 1))
        reports = check(component, [rank.expected for rank in crew.ranks], sightings)
        crew.ranks[:] = [rank.in_process(found.pid) for rank, found in zip(crew.ranks, reports, strict=True)]
    except BaseException:
        crew.end()
        raise
    return crew


def _not_up(component: str, ranks: Sequence[LiveRank], late: set[int], timeout: float) -> LaunchError:
    """Return the error that says which ranks are late, and what they are at; they must not have been killed yet."""
    bare = {index for index in late if actors(ranks[index].host._actor_id.hex())["State"] != "ALIVE"}
    if 0 in bare:
        late = bare  # the others wait for its port
    states = []
    for indices, what in ((bare, "has no process yet"), (late - bare, "is still importing or in its constructor")):
        rows = [ranks[index].expected.placement for index in indices]
        if rows:
            nodes = RankSet({row.cluster_node_rank for row in rows})
            states.append(f"rank {RankSet({row.rank for row in rows})} on node {nodes} {what}")
    first = ranks[min(late)].expected.placement
    return LaunchError(
        f"{component}: {len(late)} of {len(ranks)} ranks did not come up within {timeout:g} s, so the group is not "
        f"launched: {', '.join(states)}; see what it waits for, or allow more time (timeout)",
        component,
        first.rank,
        first.cluster_node_rank,
    )


def _host(component: str, seat: Seat, strategy: SchedulingStrategy, max_concurrency: int | None) -> ActorHandle[Any]:
    options = {
        "scheduling_strategy": strategy,
        "runtime_env": seat.runtime_env(),
        "max_concurrency": max_concurrency,
    }
    actor = HostActor.options(**{name: value for name, value in options.items() if value is not None})
    host: ActorHandle[Any] = actor.remote(f"{component}:{seat.placement.rank}")
    return host


def _pickled(component: str, what: str, parts: Any, advice: str) -> bytes:
    try:
        return bytes(cloudpickle.dumps(parts))
    except Exception as error:
        raise LaunchError(f"{component}: {what} cannot be sent to the ranks: {error}; {advice}", component) from error


def _import_path() -> list[str]:
    """Return the folders that this driver imports its own modules from: all but those of the installation itself."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders = (Path(entry).absolute() for entry in sys.path)
    return [str(folder) for folder in folders if not any(folder.is_relative_to(path) for path in installed)]

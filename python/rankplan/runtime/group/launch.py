"""Starting the ranks of a component, all or none."""

from __future__ import annotations

import logging
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import ray
from ray import cloudpickle

from rankplan._core import Placement, RankSet
from rankplan.errors import LaunchError
from rankplan.runtime.group.calls import Failed, Unanswered, collect, ranks_text
from rankplan.runtime.group.crew import Crew, LiveRank
from rankplan.runtime.group.seats import Seat
from rankplan.runtime.nodes.nodes import Nodes, pinned
from rankplan.runtime.rank.host import AsyncHostActor, HostActor, RankSetup, has_async_methods
from rankplan.runtime.rank.ports import free_block
from rankplan.runtime.rank.report import RankReport, check, unbound_text
from rankplan.runtime.rank.settings import RankSettings
from rankplan.runtime.ray import session
from rankplan.runtime.ray.faults import launch_error
from rankplan.runtime.ray.internals import has_process
from rankplan.words import nodes_text

_logger = logging.getLogger("rankplan")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the ranks of a group run: the class, its arguments, and how many calls a rank works on at a time.

    Without a number, plain methods run one at a time, and ``async`` ones concurrently.
    """

    worker_class: type
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Ranks to start together: the seat and the settings of each, on these nodes.

    ``first`` is the row of rank 0, which may be running already. ``restarts`` is how often ranks of the group were
    restarted, this time included.
    """

    recipe: Recipe
    nodes: Nodes
    seats: Sequence[Seat]
    settings: Sequence[RankSettings]
    first: Placement
    timeout: float
    restarts: int = 0

    @property
    def what(self) -> str:
        """What is not done if it fails."""
        return "restarted" if self.restarts else "launched"


Started: TypeAlias = tuple[list[LiveRank], tuple[str, int], list[RankReport]]


def bring_up(crew: Crew, start: Start) -> None:
    """Start the ranks of a crew, and verify them.

    Raises ``LaunchError`` if a rank does not come up in time, or differs from its plan. No rank is left then, and the
    crew has ended.
    """
    with session.used():
        try:
            crew.announce([seat.placement for seat in start.seats], start.nodes)
            ranks, master, _ = started(crew, start)
            crew.settle(ranks, start.nodes, master)
            crew.check_open()
        except BaseException:
            crew.end()
            raise


def started(crew: Crew, start: Start) -> Started:
    """Start newcomers of a crew, and verify them; return them, the address and the port of rank 0, and the reports.

    Raises ``LaunchError`` if one does not come up in time, or differs from its plan. The newcomers are left to the
    caller.
    """
    try:
        return _started(crew, start)
    except Failed as failed:
        crew.check_open()  # the ranks may have failed because the cluster was closed
        # the first answer is the free port, on the node of rank 0
        row, fault, also = failed.culprit([start.first, *(seat.placement for seat in start.seats)])
        what = f" did not come up, so the group is not {start.what}: it {fault.reason}{also}"
        raise fault.noted(launch_error(crew.component, row, what)) from fault.cause


def _started(crew: Crew, start: Start) -> Started:
    """Submit everything at once, wait for it together, and compare it with the plan."""
    component, recipe, nodes, seats = crew.component, start.recipe, start.nodes, start.seats
    first = start.first.cluster_node_rank
    address, machine = nodes.address(first), nodes.machine(first)
    name = recipe.worker_class.__name__
    parts = recipe.worker_class, recipe.args, recipe.kwargs
    advice = "open files, locks and connections in the constructor"
    payload = ray.put(_pickled(component, f"{name} or its arguments", parts, advice))
    advice = "define its model at the top level of a module"
    hardware = [_pickled(component, "the hardware of a rank", seat.hardware, advice) for seat in seats]
    strategies = [
        crew.reservation.strategy(component, seat.placement, nodes) if crew.reservation else pinned(seat.node_id)
        for seat in seats
    ]
    pickled_nodes = ray.put(pickle.dumps(nodes))
    is_async = has_async_methods(recipe.worker_class)
    kind, threads = (AsyncHostActor, [recipe.max_concurrency or 1]) if is_async else (HostActor, [])
    import_path, log_level = _import_path(), logging.getLogger("rankplan").level or logging.INFO

    with crew.connection.progress() as report:

        def tell(done: int) -> None:
            crew.check_open()  # another thread may have closed the cluster
            report(f"{component}: {max(0, done - 1)} of {len(seats)} ranks are up")

        newcomers = []
        for seat, strategy, one in zip(seats, strategies, start.settings, strict=True):
            options = {
                "scheduling_strategy": strategy,
                "runtime_env": seat.runtime_env(),
                "max_concurrency": recipe.max_concurrency,
            }
            host = kind.options(**{key: value for key, value in options.items() if value is not None})
            name, expected = f"{component}:{seat.placement.rank}", replace(seat.expectation(), settings=one)
            newcomers.append(LiveRank(host.remote(name, *threads), expected))
            crew.add(newcomers[-1])
        with _choice(crew, machine) as choice:
            port: ray.ObjectRef[int | None]
            if seats[0].placement.rank == 0:
                port = newcomers[0].host.free_block.remote(choice, 1)
            else:  # rank 0 runs, and may be busy
                port = _free_block.options(scheduling_strategy=pinned(nodes.ids[first])).remote(choice, 1)
            starts: list[ray.ObjectRef[Any]] = []
            for seat, rank, held, one in zip(seats, newcomers, hardware, start.settings, strict=True):
                row, late = seat.placement, seat.late()
                setup = RankSetup(
                    component,
                    row,
                    seat.coordinates,
                    held,
                    address,
                    *late,
                    import_path,
                    log_level,
                    settings=one,
                    restarts=start.restarts,
                )
                starts.append(rank.host.start.remote(setup, port, payload, pickled_nodes))
            try:
                master_port, *sightings = collect([port, *starts], start.timeout, tell)
            except Unanswered as unanswered:
                missing = {max(0, index - 1) for index in unanswered.pending}
                raise _not_up(component, newcomers, missing, start) from None
            crew.keep(machine, choice, range(master_port, master_port + 1))
    reports = check(component, [rank.expected for rank in newcomers], sightings)
    if not nodes.simulated and (unbound := unbound_text(reports)):
        _logger.warning("%s: %s", component, unbound)
    up = [rank.in_process(found.pid) for rank, found in zip(newcomers, reports, strict=True)]
    return up, (address, master_port), reports


@contextmanager
def _choice(crew: Crew, machine: str) -> Iterator[range]:
    """Take ports of a machine in which to find a free one, and return them if that fails."""
    choice = crew.choice(machine, 1)
    try:
        yield choice
    except BaseException:
        crew.keep(machine, choice, range(0))
        raise


_free_block = ray.remote(num_cpus=0)(free_block)


def _not_up(component: str, ranks: Sequence[LiveRank], late: set[int], start: Start) -> LaunchError:
    """Return the error that names the late ranks and what they are doing; they must not have been killed yet."""
    bare = {index for index in late if not has_process(ranks[index].host)}
    if 0 in bare:
        late = bare  # the others wait for the port of rank 0
    states = []
    for indices, what in ((bare, "no process yet"), (late - bare, "still importing or constructing")):
        rows = [ranks[index].expected.placement for index in indices]
        if rows:
            nodes = nodes_text(RankSet({row.cluster_node_rank for row in rows}))
            states.append(f"{ranks_text({row.rank for row in rows})} on {nodes}: {what}")
    first = ranks[min(late)].expected.placement
    return LaunchError(
        f"{component}: {len(late)} of {len(ranks)} ranks did not come up within {start.timeout:g} s, so the group is "
        f"not {start.what} ({'; '.join(states)}); check what blocks them, or allow more time (timeout)",
        component,
        first.rank,
        first.cluster_node_rank,
    )


def _pickled(component: str, what: str, parts: Any, advice: str) -> bytes:
    try:
        return bytes(cloudpickle.dumps(parts))
    except Exception as error:
        raise LaunchError(f"{component}: {what} cannot be sent to the ranks: {error}; {advice}", component) from error


def _import_path() -> list[str]:
    """Return the folders from which this driver imports its own modules, not those of the installation."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders = (Path(entry).absolute() for entry in sys.path)
    return [str(folder) for folder in folders if not any(folder.is_relative_to(path) for path in installed)]

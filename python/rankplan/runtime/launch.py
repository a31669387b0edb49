"""Starting the ranks of a component, all or none."""

from __future__ import annotations

import logging
import pickle
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle

from rankplan._core import RankSet
from rankplan.errors import LaunchError
from rankplan.runtime import session
from rankplan.runtime.calls import Failed, Unanswered, collect, ranks_text
from rankplan.runtime.crew import Crew, LiveRank
from rankplan.runtime.faults import launch_error
from rankplan.runtime.host import AsyncHostActor, HostActor, RankSetup, has_async_methods
from rankplan.runtime.nodes import pinned
from rankplan.runtime.ray_internals import has_process
from rankplan.runtime.seats import Seat
from rankplan.runtime.settings import RankSettings
from rankplan.runtime.verify import check, unbound_text
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


def bring_up(
    crew: Crew, recipe: Recipe, seats: Sequence[Seat], timeout: float, settings: Sequence[RankSettings]
) -> None:
    """Start a rank of the crew for each seat, and verify them.

    Raises ``LaunchError`` if a rank does not come up within ``timeout`` seconds, or differs from its plan. No rank is
    left then, and the crew has ended.
    """
    with session.used():
        try:
            _start(crew, recipe, seats, timeout, settings)
        except BaseException as error:
            try:
                if isinstance(error, Failed):
                    crew.check_open()  # the ranks may have failed because the cluster was closed
                    _raise_failure(crew.component, seats, error)
                raise
            finally:
                crew.end()


def _raise_failure(component: str, seats: Sequence[Seat], failed: Failed) -> None:
    # the first answer is the free port, also from rank 0
    row, fault, also = failed.culprit([seats[0].placement, *(seat.placement for seat in seats)])
    what = f" did not come up, so the group is not launched: it {fault.reason}{also}"
    raise fault.noted(launch_error(component, row, what)) from fault.cause


def _start(crew: Crew, recipe: Recipe, seats: Sequence[Seat], timeout: float, settings: Sequence[RankSettings]) -> None:
    """Submit everything at once, wait for it together, and compare it with the plan."""
    crew.announce([seat.placement for seat in seats])
    component, first = crew.component, seats[0].placement.cluster_node_rank
    address, machine = crew.nodes.address(first), crew.nodes.machine(first)
    name = recipe.worker_class.__name__
    parts = recipe.worker_class, recipe.args, recipe.kwargs
    advice = "open files, locks and connections in the constructor"
    payload = ray.put(_pickled(component, f"{name} or its arguments", parts, advice))
    advice = "define its model at the top level of a module"
    hardware = [_pickled(component, "the hardware of a rank", seat.hardware, advice) for seat in seats]
    strategies = [
        crew.reservation.strategy(component, seat.placement) if crew.reservation else pinned(seat.node_id)
        for seat in seats
    ]
    nodes = ray.put(pickle.dumps(crew.nodes))
    is_async = has_async_methods(recipe.worker_class)
    kind, threads = (AsyncHostActor, [recipe.max_concurrency or 1]) if is_async else (HostActor, [])
    import_path, log_level = _import_path(), logging.getLogger("rankplan").level or logging.INFO

    with crew.connection.progress() as report:

        def tell(done: int) -> None:
            crew.check_open()  # another thread may have closed the cluster
            report(f"{component}: {max(0, done - 1)} of {len(seats)} ranks are up")

        for seat, strategy, one in zip(seats, strategies, settings, strict=True):
            options = {
                "scheduling_strategy": strategy,
                "runtime_env": seat.runtime_env(),
                "max_concurrency": recipe.max_concurrency,
            }
            host = kind.options(**{key: value for key, value in options.items() if value is not None})
            name, expected = f"{component}:{seat.placement.rank}", replace(seat.expectation(), settings=one)
            crew.add(LiveRank(host.remote(name, *threads), expected))
        choice = crew.choice(machine, 1)
        port: ray.ObjectRef[int | None] = crew.ranks[0].host.free_block.remote(choice, 1)
        starts = []
        for seat, rank, held, one in zip(seats, crew.ranks, hardware, settings, strict=True):
            row, late = seat.placement, seat.late()
            setup = RankSetup(
                component, row, seat.coordinates, held, address, *late, import_path, log_level, settings=one
            )
            starts.append(rank.host.start.remote(setup, port, payload, nodes))
        try:
            master_port, *sightings = collect([port, *starts], timeout, tell)
        except Unanswered as unanswered:
            late = {max(0, index - 1) for index in unanswered.pending}
            raise _not_up(component, crew.ranks, late, timeout) from None
    crew.keep(machine, choice, range(master_port, master_port + 1))
    reports = check(component, [rank.expected for rank in crew.ranks], sightings)
    if not crew.nodes.simulated and (unbound := unbound_text(reports)):
        _logger.warning("%s: %s", component, unbound)
    crew.ranks[:] = [rank.in_process(found.pid) for rank, found in zip(crew.ranks, reports, strict=True)]
    crew.check_open()


def _not_up(component: str, ranks: Sequence[LiveRank], late: set[int], timeout: float) -> LaunchError:
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
        f"{component}: {len(late)} of {len(ranks)} ranks did not come up within {timeout:g} s, so the group is not "
        f"launched ({'; '.join(states)}); check what blocks them, or allow more time (timeout)",
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

"""Starting the ranks of a component, all or none."""

from __future__ import annotations

import logging
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import ray

from rankplan._core import Placement, RankSet
from rankplan.errors import LaunchError
from rankplan.runtime.group.crew import Crew, LiveRank
from rankplan.runtime.group.ranks import pickled
from rankplan.runtime.group.verify import unbound_text, verified
from rankplan.runtime.nodes.nodes import Nodes, pinned
from rankplan.runtime.rank.host import AsyncHostActor, GroupSetup, HostActor, has_async_methods
from rankplan.runtime.rank.ports import free_block
from rankplan.runtime.rank.report import RankReport
from rankplan.runtime.rank.spec import RankSpec
from rankplan.runtime.ray import session
from rankplan.runtime.ray.answers import Failed, Unanswered, collect, ranks_text
from rankplan.runtime.ray.faults import launch_error
from rankplan.runtime.ray.internals import has_process
from rankplan.words import nodes_text

_logger = logging.getLogger("rankplan")


def bring_up(crew: Crew, specs: Sequence[RankSpec], timeout: float) -> None:
    """Start the ranks of a crew, and verify them.

    Raises ``LaunchError`` if a rank does not come up in time, or differs from its plan. No rank is left then, and the
    crew has ended.
    """
    with session.used():
        try:
            crew.announce([spec.placement for spec in specs], crew.nodes)
            ranks, master, _ = started(crew, crew.nodes, specs, specs[0].placement, timeout)
            crew.settle(ranks, crew.nodes, master)
            crew.check_open()
        except BaseException:
            crew.end()
            raise


Started: TypeAlias = tuple[list[LiveRank], tuple[str, int], list[RankReport]]


def started(
    crew: Crew, nodes: Nodes, specs: Sequence[RankSpec], first: Placement, timeout: float, restarts: int = 0
) -> Started:
    """Start newcomers of a crew, and verify them; return them, the address and the port of rank 0, and the reports.

    ``first`` is the row of rank 0, which may be running already. ``restarts`` is how often ranks of the group were
    restarted, this time included. Raises ``LaunchError`` if one does not come up in time, or differs from its plan. The
    newcomers are left to the caller.
    """
    component, terms, node = crew.component, crew.terms, first.cluster_node_rank
    address, machine = nodes.address(node), nodes.machine(node)
    undone = "restarted" if restarts else "launched"
    name, advice = terms.worker_class.__name__, "open files, locks and connections in the constructor"
    parts = terms.worker_class, terms.args, terms.kwargs
    payload = ray.put(pickled(component, f"{name} or its arguments", parts, advice))
    log_level = logging.getLogger("rankplan").level or logging.INFO
    setup = ray.put(
        GroupSetup(address, nodes.exports, _import_path(), log_level, pickle.dumps(nodes), restarts=restarts)
    )
    with crew.connection.progress() as report:

        def tell(done: int) -> None:
            crew.check_open()  # another thread may have closed the cluster
            report(f"{component}: {max(0, done - 1)} of {len(specs)} ranks are up")

        newcomers = _created(crew, nodes, specs)
        with _choice(crew, machine) as choice:
            port: ray.ObjectRef[int | None]
            if specs[0].placement.rank == 0:
                port = newcomers[0].actor.free_block.remote(choice, 1)
            else:  # rank 0 runs, and may be busy
                port = _free_block.options(scheduling_strategy=pinned(nodes.ids[node])).remote(choice, 1)
            starts = [rank.actor.start.remote(rank.spec, setup, port, payload) for rank in newcomers]
            try:
                master_port, *found = collect([port, *starts], timeout, tell)
            except Failed as failed:
                crew.check_open()  # the ranks may have failed because the cluster was closed
                # the first answer is the free port, on the node of rank 0
                row, fault, also = failed.culprit([first, *(spec.placement for spec in specs)])
                what = f" did not come up, so the group is not {undone}: it {fault.reason}{also}"
                raise fault.noted(launch_error(component, row, what)) from fault.cause
            except Unanswered as unanswered:
                late = {max(0, index - 1) for index in unanswered.pending}
                raise _not_up(component, newcomers, late, timeout, undone) from None
            crew.keep(machine, choice, range(master_port, master_port + 1))
    reports = verified(component, newcomers, found)
    if not nodes.simulated and (unbound := unbound_text(reports)):
        _logger.warning("%s: %s", component, unbound)
    up = [replace(rank, pid=one.pid) for rank, one in zip(newcomers, reports, strict=True)]
    return up, (address, master_port), reports


def _created(crew: Crew, nodes: Nodes, specs: Sequence[RankSpec]) -> list[LiveRank]:
    """Create the actors of these ranks, on their nodes or in their reservation, and add them to the crew."""
    held, terms = crew.reservation, crew.terms
    strategies = [
        held.strategy(crew.component, spec.placement, nodes) if held else pinned(spec.node_id) for spec in specs
    ]
    is_async = has_async_methods(terms.worker_class)
    kind, threads = (AsyncHostActor, [terms.max_concurrency or 1]) if is_async else (HostActor, [])
    newcomers = []
    for spec, strategy in zip(specs, strategies, strict=True):
        options = {
            "scheduling_strategy": strategy,
            "runtime_env": spec.runtime_env(),
            "max_concurrency": terms.max_concurrency,
        }
        host = kind.options(**{key: value for key, value in options.items() if value is not None})
        actor = host.remote(f"{crew.component}:{spec.placement.rank}", *threads)
        newcomers.append(LiveRank(spec, spec.placement, actor))
        crew.add(newcomers[-1])
    return newcomers


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


def _not_up(component: str, ranks: Sequence[LiveRank], late: set[int], timeout: float, undone: str) -> LaunchError:
    """Return the error with the state of the late ranks, which must not have been killed yet.

    It names them like ``ranks 0-3 on nodes 0-1: no process yet``.
    """
    bare = {index for index in late if not has_process(ranks[index].actor)}
    if 0 in bare:
        late = bare  # the others wait for the port of rank 0
    states = []
    for indices, state in ((bare, "no process yet"), (late - bare, "still importing or constructing")):
        rows = [ranks[index].placement for index in indices]
        if rows:
            nodes = nodes_text(RankSet({row.cluster_node_rank for row in rows}))
            states.append(f"{ranks_text({row.rank for row in rows})} on {nodes}: {state}")
    first = ranks[min(late)].placement
    return LaunchError(
        f"{component}: {len(late)} of {len(ranks)} ranks did not come up within {timeout:g} s, so the group is "
        f"not {undone} ({'; '.join(states)}); check what blocks them, or allow more time (timeout)",
        component,
        first.rank,
        first.cluster_node_rank,
    )


def _import_path() -> list[str]:
    """Return the folders from which this driver imports its own modules, not those of the installation."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders = (Path(entry).absolute() for entry in sys.path)
    return [str(folder) for folder in folders if not any(folder.is_relative_to(path) for path in installed)]

"""Starting the ranks of a component, all or none, and comparing their reports with the plan."""

from __future__ import annotations

import logging
import pickle
import sys
import sysconfig
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray

from rankplan._core import Placement, RankSet
from rankplan.errors import LaunchError
from rankplan.runtime.group.crew import Crew, LiveRank, Master
from rankplan.runtime.group.ranks import pickled
from rankplan.runtime.nodes.nodes import Nodes, pinned
from rankplan.runtime.rank.host import AsyncHostActor, GroupSetup, HostActor, has_async_methods
from rankplan.runtime.rank.ports import PORTS, free_block
from rankplan.runtime.rank.spec import RankReport, RankSpec, differences, shared_devices
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import Failed, Fault, Unanswered, collect, launch_error, outcomes, ranks_text
from rankplan.runtime.ray.asking import HeadSilent, ask
from rankplan.runtime.ray.connection import using_session
from rankplan.runtime.ray.internals import has_process, own_address
from rankplan.runtime.ray.timeouts import launch_timeout
from rankplan.words import nodes_text

_logger = logging.getLogger("rankplan")


def bring_up(crew: Crew, specs: Sequence[RankSpec], timeout: float | None) -> None:
    """Start the ranks of a crew, and verify them; if one fails, the caller ends the crew."""
    with using_session(), PORTS.searching() as search:
        crew.announce([spec.placement for spec in specs], crew.nodes)
        ranks, master, _ = started(crew, crew.nodes, specs, specs[0].placement, search, timeout)
        crew.settle(ranks, crew.terms.component, crew.nodes, master, search=search)
        crew.check_open()


def started(
    crew: Crew,
    nodes: Nodes,
    specs: Sequence[RankSpec],
    first: Placement,
    search: object,
    timeout: float | None,
    restarts: int = 0,
) -> tuple[list[LiveRank], Master, list[RankReport]]:
    """Start newcomers of a crew, and verify them; return them, where they meet, and their reports.

    ``first`` is the row of rank 0, which may be running already, and ``search`` gets its port. The default of
    ``timeout`` depends on the specs. If one fails, newcomers are left to the caller.
    """
    component = crew.component
    worker = crew.terms.worker
    node = first.cluster_node_rank
    address = nodes.address(node)
    machine = nodes.machine(node)
    if timeout is None:
        ranks_on = Counter(nodes.machine(spec.placement.cluster_node_rank) for spec in specs)
        timeout = launch_timeout(max(ranks_on.values()))
    undone = "restarted" if restarts else "launched"
    content = f"{worker[0].__name__} or its arguments"
    advice = "open files, locks and connections in the constructor"
    payload = ray.put(pickled(component, content, worker, advice))
    log_level = logging.getLogger("rankplan").level or logging.INFO
    setup = ray.put(
        GroupSetup(address, nodes.exports, _import_path(), log_level, pickle.dumps(nodes), restarts=restarts)
    )
    with crew.connection.progress() as report:

        def tell(done: int) -> None:
            crew.check_open()  # another thread may have closed the cluster
            report(f"{component}: {max(0, done - 1)} of {len(specs)} ranks are up")

        newcomers = _created(crew, nodes, specs)
        choice = PORTS.choice(search, machine, 1)
        port: ray.ObjectRef[int | None]
        try:
            if specs[0].placement.rank == 0:
                port = newcomers[0].actor.free_block.remote(choice, 1)
            else:  # rank 0 runs, and may be busy
                port = _port_on(nodes.ids[node], choice)
            starts = [rank.actor.start.remote(rank.spec, setup, port, payload) for rank in newcomers]
            master_port, *started_reports = collect([port, *starts], timeout, tell)
        except Failed as failed:
            crew.check_open()  # the ranks may have failed because the cluster was closed
            # the first answer is the free port, on the node of rank 0
            row, fault, also = failed.culprit([first, *(spec.placement for spec in specs)])
            what = f" did not come up, so the group is not {undone}: it {fault.reason}{also}"
            raise fault.noted(launch_error(component, row, what)) from fault.cause
        except Unanswered as unanswered:
            late = {max(0, index - 1) for index in unanswered.pending}
            raise _not_up(component, newcomers, late, timeout, undone) from None
        PORTS.give_back(search, machine, set(choice) - {master_port})
    reports = verified(component, newcomers, started_reports)
    if not nodes.simulated and (unbound := unbound_text(reports)):
        _logger.warning("%s: %s", component, unbound)
    master = Master(address, master_port, machine)
    up = [replace(rank, pid=report.pid, masters=(master,)) for rank, report in zip(newcomers, reports, strict=True)]
    return up, master, reports


def _created(crew: Crew, nodes: Nodes, specs: Sequence[RankSpec]) -> list[LiveRank]:
    """Create the actors of these ranks, on their nodes or in their reservation, and add them to the crew."""
    name = crew.component
    reservation = crew.reservation
    at_a_time = crew.terms.max_concurrency
    strategies: list[Any] = []
    for spec in specs:
        if reservation is None:
            strategies.append(pinned(spec.node_id))
        else:
            strategies.append(reservation.strategy(name, spec.placement, nodes))
    is_async = has_async_methods(crew.terms.worker[0])
    kind, threads = (AsyncHostActor, [at_a_time or 1]) if is_async else (HostActor, [])
    driver = own_address()
    newcomers = []
    for spec, strategy in zip(specs, strategies, strict=True):
        # a reservation has what its ranks need, for them and for what they start
        amounts = {} if reservation is not None else spec.amounts()
        options = {"runtime_env": spec.runtime_env(), "max_concurrency": at_a_time, **amounts}
        stated_options = {key: value for key, value in options.items() if value is not None}
        create = kind.options(scheduling_strategy=strategy, **stated_options).remote
        actor = partial(create, f"{name}:{spec.placement.rank}", driver, *threads)
        newcomers.append(crew.add(spec, partial(ask, actor)))
    return newcomers


_free_block = ray.remote(num_cpus=0)(free_block)


def _port_on(node_id: str, choice: range) -> ray.ObjectRef[int | None]:
    """Find a free port on a node whose ranks may be busy."""
    port: ray.ObjectRef[int | None] = ask(
        lambda: _free_block.options(scheduling_strategy=pinned(node_id)).remote(choice, 1)
    )
    return port


def new_master(crew: Crew, nodes: Nodes, first: Placement, search: object) -> Master:
    """Return where the ranks of a crew, without newcomers, may meet again; ``first`` is the row of rank 0."""
    node = first.cluster_node_rank
    address = nodes.address(node)
    machine = nodes.machine(node)
    choice = PORTS.choice(search, machine, 1)
    (answer,) = outcomes([_port_on(nodes.ids[node], choice)], timeouts.ENVIRONMENT)
    if not isinstance(answer, int):
        why = f"it {answer.reason}" if isinstance(answer, Fault) else "none of the ports tried is free"
        text = f"{crew.component}: node {node} ({address}), where rank 0 runs, has no port for its ranks: {why}"
        raise LaunchError(text, crew.component, first.rank, node)
    PORTS.give_back(search, machine, set(choice) - {answer})
    return Master(address, answer, machine)


def _not_up(component: str, ranks: Sequence[LiveRank], late: set[int], timeout: float, undone: str) -> LaunchError:
    """Return the error with the state of the late ranks, which must not have been killed yet."""
    try:
        unborn = {index for index in late if not has_process(ranks[index].actor)}
        if 0 in unborn:
            late = unborn  # the others wait for the port of rank 0
        states = []
        for indices, state in ((unborn, "no process yet"), (late - unborn, "still importing or constructing")):
            rows = [ranks[index].placement for index in indices]
            if rows:
                nodes = nodes_text(RankSet({row.cluster_node_rank for row in rows}))
                states.append(f"{ranks_text({row.rank for row in rows})} on {nodes}: {state}")
        why = f" ({'; '.join(states)}); check what blocks them, or allow more time (timeout)"
    except HeadSilent as silent:
        why = f": {silent}"
    first = ranks[min(late)].placement
    text = f"{component}: {len(late)} of {len(ranks)} ranks did not come up within {timeout:g} s"
    text += f", so the group is not {undone}{why}"
    return LaunchError(text, component, first.rank, first.cluster_node_rank)


def _import_path() -> list[str]:
    """Return the folders from which this driver imports its own modules, not those of the installation."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders = (Path(entry).absolute() for entry in sys.path)
    return [str(folder) for folder in folders if not any(folder.is_relative_to(path) for path in installed)]


def verified(component: str, ranks: Sequence[LiveRank], reports: Sequence[RankReport]) -> list[RankReport]:
    """Return the reports of these ranks, with the node ranks of their plan; raises ``LaunchError`` if they differ."""
    lines = []
    first = None
    for rank, report in zip(ranks, reports, strict=True):
        row = rank.placement
        for difference in differences(rank.spec, report, rank.pid):
            first = first or row
            lines.append(f"rank {row.rank} (node {row.cluster_node_rank}, pid {report.pid}): {difference}")
    rows = [rank.placement for rank in ranks]
    for later, earlier, uuid in shared_devices(rows, [report.uuids for report in reports]):
        first = first or rows[later]
        pair = f"ranks {rows[earlier].rank} and {rows[later].rank}"
        lines.append(f"{pair} both see {uuid}, but share no device in the plan")
    if first is not None:
        more = f"\n  and {len(lines) - 10} more" if len(lines) > 10 else ""
        text = "\n  ".join([f"{component} differs from its plan:", *lines[:10]]) + more
        raise LaunchError(text, component, first.rank, first.cluster_node_rank)
    return [replace(report, node_rank=row.cluster_node_rank) for report, row in zip(reports, rows, strict=True)]


def unbound_text(reports: Sequence[RankReport]) -> str:
    """Return which ranks are not bound as planned, and how the first one is; empty if all are."""
    loose = [report for report in reports if not report.is_bound]
    if not loose:
        return ""
    first = loose[0]
    parts = []
    if first.planned_cpus not in (None, first.cpus):
        parts.append(f"CPUs {first.cpus}, planned {first.planned_cpus}")
    if first.planned_memory not in (None, first.memory):
        parts.append(f"memory {first.memory or 'none'}, planned {first.planned_memory}")
    ranks = RankSet(report.rank for report in loose)
    return f"ranks {ranks} are not bound as planned; rank {first.rank} has {' and '.join(parts)}"

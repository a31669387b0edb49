"""What the drivers of the nodes say: which processes compute on which accelerators, besides what Ray counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import ray

from rankplan.nodes.inventory import NodeSpec
from rankplan.runtime.live.spots import Device
from rankplan.runtime.nodes.nodes import live_nodes
from rankplan.runtime.nodes.probe import Process, computing
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.connection import connect
from rankplan.runtime.usage.model import Doubled, Live, LiveActor, LiveProcess


def with_devices(live: Live) -> Live:
    """Return what runs with the processes on each accelerator: one short task a node asks its driver.

    This process becomes a job of the cluster until they have answered.
    """
    was_connected = connect(live.address, None) == "kept"
    try:
        entries = live_nodes()
        nodes = [node for node in live.nodes if node.node_id in entries and node.spec.num_accelerators]
        answers = computing([entries[node.node_id] for node in nodes], timeouts.DRIVER)
    finally:
        if not was_connected:
            ray.shutdown()
    specs: dict[int, NodeSpec] = {}
    reported: dict[int, Sequence[Process]] = {}
    silent: dict[int, str] = {}
    for node, answer in zip(nodes, answers, strict=True):
        if not isinstance(answer, tuple):
            silent[node.rank] = str(answer)
            continue
        spec, processes = answer
        if spec.num_accelerators == node.spec.num_accelerators:
            specs[node.rank] = spec.at(node.spec.ranks)
        if processes is None:
            silent[node.rank] = f"node {node.rank}: its driver does not tell which processes use its accelerators"
        else:
            reported[node.rank] = processes
    return entered(live, specs, reported, silent)


def entered(
    live: Live, specs: Mapping[int, NodeSpec], reported: Mapping[int, Sequence[Process]], silent: Mapping[int, str]
) -> Live:
    """Return what runs with the answers of the drivers: by node rank its record and processes, or why it is silent."""
    actors = {(actor.node, actor.pid): actor.actor_id for actor in live.actors if actor.pid is not None}
    processes: list[LiveProcess] = []
    for rank, on_node in reported.items():
        processes += [_owned(rank, process, actors) for process in on_node]
    nodes = []
    for node in live.nodes:
        spec = specs.get(node.rank)
        nodes.append(node if spec is None else replace(node, spec=spec, ids_known=True))
    records = [specs.get(rank, live.inventory.node(rank)) for rank in range(live.inventory.num_nodes)]
    doubled = {(entry.node, entry.accelerator): entry for entry in live.doubled}
    doubled |= {(entry.node, entry.accelerator): entry for entry in _doubled(live.actors, processes)}
    return replace(
        live,
        inventory=live.inventory.updated(records),
        nodes=tuple(nodes),
        processes=tuple(processes),
        silent=tuple(silent.values()),
        doubled=tuple(doubled[key] for key in sorted(doubled)),
    )


def _owned(rank: int, process: Process, actors: Mapping[tuple[int | None, int], str]) -> LiveProcess:
    """Return a process of a node with the actor that it is, or that has started it; ``actors`` are by node and pid."""
    lineage = () if process.ancestors is None else (process.pid, *process.ancestors)
    owner = next((actors[rank, pid] for pid in lineage if (rank, pid) in actors), None)
    is_elsewhere = process.ancestors is None
    return LiveProcess(rank, process.accelerator, process.pid, process.memory, owner, is_elsewhere)


def _doubled(actors: Sequence[LiveActor], processes: Sequence[LiveProcess]) -> Iterator[Doubled]:
    """Yield the accelerators that several jobs compute on, or a process that Ray gave them to nobody for.

    A process of another pid namespace may be that of an actor: it counts only where no actor may use the accelerator.
    """
    by_id = {actor.actor_id: actor for actor in actors}
    holders: dict[Device, list[LiveActor]] = defaultdict(list)
    for actor in actors:
        if actor.node is not None:
            for index in actor.accelerators or ():
                holders[actor.node, index].append(actor)
    running: dict[Device, list[LiveProcess]] = defaultdict(list)
    for process in processes:
        running[process.node, process.accelerator].append(process)
    for device, processes_there in running.items():
        owners: dict[str, LiveActor] = {}
        strangers: list[LiveProcess] = []
        for process in processes_there:
            if process.actor_id is not None:
                owners[process.actor_id] = by_id[process.actor_id]
            elif not (process.elsewhere and holders[device]):
                strangers.append(process)
        owners |= {actor.actor_id: actor for actor in holders[device]}
        jobs = {actor.job for actor in owners.values()}
        if len(jobs) + len(strangers) > 1:
            users = [actor.title for actor in owners.values()] + [_process(stranger) for stranger in strangers]
            yield Doubled(*device, tuple(users))


def _process(process: LiveProcess) -> str:
    return f"pid {process.pid}" + (" of another pid namespace" if process.elsewhere else ", no actor's")

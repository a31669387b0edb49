"""What the drivers of the nodes say: which processes compute on which accelerators, besides what Ray counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import ray

from rankplan.nodes.inventory import NodeSpec
from rankplan.runtime.live.model import Doubled, Live, LiveActor, LiveProcess
from rankplan.runtime.nodes.nodes import live_nodes
from rankplan.runtime.nodes.probe import Process, computing
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.connection import connect


def with_devices(live: Live) -> Live:
    """Return what runs with the processes on each accelerator: one short task a node asks its driver.

    This process becomes a job of the cluster until they have answered.
    """
    kept = connect(live.address, None) == "kept"
    try:
        entries = live_nodes()
        asked = [node for node in live.nodes if node.node_id in entries and node.spec.num_accelerators]
        answers = computing([entries[node.node_id] for node in asked], timeouts.DRIVER)
    finally:
        if not kept:
            ray.shutdown()
    specs: dict[int, NodeSpec] = {}
    told: dict[int, Sequence[Process]] = {}
    silent: dict[int, str] = {}
    for node, answer in zip(asked, answers, strict=True):
        if not isinstance(answer, tuple):
            silent[node.rank] = str(answer)
            continue
        spec, processes = answer
        if spec.num_accelerators == node.spec.num_accelerators:
            specs[node.rank] = spec.at(node.spec.ranks)
        if processes is None:
            silent[node.rank] = f"node {node.rank}: its driver does not tell which processes use its accelerators"
        else:
            told[node.rank] = processes
    return entered(live, specs, told, silent)


def entered(
    live: Live, specs: Mapping[int, NodeSpec], told: Mapping[int, Sequence[Process]], silent: Mapping[int, str]
) -> Live:
    """Return what runs with the answers of the drivers."""
    actors = {(actor.node, actor.pid): actor for actor in live.actors if actor.pid is not None}
    found: list[LiveProcess] = []
    for rank, processes in told.items():
        for one in processes:
            line = (one.pid, *(one.ancestors or ())) if one.ancestors is not None else ()
            owner = next((actors[rank, pid] for pid in line if (rank, pid) in actors), None)
            id_ = None if owner is None else owner.actor_id
            found.append(LiveProcess(rank, one.accelerator, one.pid, one.memory, id_, one.ancestors is None))
    nodes = tuple(
        replace(node, spec=specs[node.rank], ids_known=True) if node.rank in specs else node for node in live.nodes
    )
    records = [specs.get(rank, live.inventory.node(rank)) for rank in range(live.inventory.num_nodes)]
    inventory = live.inventory.updated(records)
    doubled = {(one.node, one.accelerator): one for one in live.doubled}
    doubled |= {(one.node, one.accelerator): one for one in _doubled(live.actors, found)}
    return replace(
        live,
        inventory=inventory,
        nodes=nodes,
        processes=tuple(found),
        silent=tuple(silent.values()),
        doubled=tuple(doubled[key] for key in sorted(doubled)),
    )


def _doubled(actors: Sequence[LiveActor], processes: Sequence[LiveProcess]) -> Iterator[Doubled]:
    """Yield the accelerators that several jobs compute on, or a process that Ray gave them to nobody for.

    A process of another pid namespace may be that of an actor: it counts only where no actor may use the accelerator.
    """
    by_id = {actor.actor_id: actor for actor in actors}
    holders: dict[tuple[int, int], list[LiveActor]] = defaultdict(list)
    for actor in actors:
        for index in (actor.accelerators or ()) if actor.node is not None else ():
            holders[actor.node, index].append(actor)  # type: ignore[index]  # it has a node
    on: dict[tuple[int, int], list[LiveProcess]] = defaultdict(list)
    for process in processes:
        on[process.node, process.accelerator].append(process)
    for place, here in on.items():
        owners = {by_id[one.actor_id].actor_id: by_id[one.actor_id] for one in here if one.actor_id is not None}
        owners |= {actor.actor_id: actor for actor in holders[place]}
        strangers = [one for one in here if one.actor_id is None and not (one.elsewhere and holders[place])]
        users = [actor.title for actor in owners.values()] + [_process(one) for one in strangers]
        if len({actor.job for actor in owners.values()}) + len(strangers) > 1:
            yield Doubled(*place, tuple(users))


def _process(process: LiveProcess) -> str:
    return f"pid {process.pid}" + (" of another pid namespace" if process.elsewhere else ", no actor's")

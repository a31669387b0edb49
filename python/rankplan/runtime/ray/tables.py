"""The tables of a Ray head as records: nodes, placement groups, actors, jobs, free resources. Ids are hexadecimal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from rankplan.frozen import frozen


@frozen
class NodeEntry:
    """A node. ``resources`` are its totals, empty once the node has left."""

    node_id: str
    address: str
    hostname: str
    alive: bool
    resources: Mapping[str, float]
    labels: Mapping[str, str]


@frozen
class GroupEntry:
    """A placement group.

    ``bundles`` has the resources of each, ``nodes`` its node id, or ``""`` before Ray has placed it. ``state`` is
    PENDING, PREPARED, CREATED or RESCHEDULING; ``scheduling`` tells why it waits: NO_RESOURCES, INFEASIBLE and others.
    ``asked`` tells when the head got the request, ``ActorEntry.started`` when the actor came alive: the order counts.
    """

    group_id: str
    name: str
    job_id: str
    state: str
    strategy: str
    detached: bool
    bundles: tuple[Mapping[str, float], ...]
    nodes: tuple[str, ...]
    scheduling: str
    asked: int = 0


@frozen
class ActorEntry:
    """An actor that is not dead. Without a process, it has no node (``""``) and holds nothing.

    ``requires`` are the resources that it reserves; in a group, they have its id in their names. ``holds`` has the
    amount of each accelerator by resource and index on the node. ``group_id`` is its placement group, ``bundles`` are
    those that it is in, as far as Ray tells them: mostly one, and none before the actor is alive.
    """

    actor_id: str
    class_name: str
    name: str
    job_id: str
    pid: int
    node_id: str
    state: str
    detached: bool
    requires: Mapping[str, float]
    holds: Mapping[str, Mapping[int, float]]
    group_id: str | None
    bundles: tuple[int, ...]
    started: int = 0


@frozen
class JobEntry:
    """A job: the command of its driver, and where that runs. ``metadata`` is what the driver was started with."""

    job_id: str
    ended: bool
    entrypoint: str
    address: str
    pid: int
    metadata: Mapping[str, str] = field(default_factory=dict)


@frozen
class Tables:
    """What the head knows at a moment: groups that are not removed, actors that are not dead, all nodes and jobs.

    ``free`` has the free resources of each live node by its id, those of bundles included.
    """

    nodes: tuple[NodeEntry, ...]
    groups: tuple[GroupEntry, ...]
    actors: tuple[ActorEntry, ...]
    jobs: tuple[JobEntry, ...]
    free: Mapping[str, Mapping[str, float]]

"""Reading the tables of a Ray head from any process, which does not become a job and needs no raylet of its own.

Like ``internals.py``, this file depends on private parts of Ray: the head's accessor and the messages of its tables.
``tests/runtime/test_head.py`` exercises them on a real cluster.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from rankplan_hook.names import NAMESPACE
from ray._raylet import (  # type: ignore[attr-defined]  # compiled, not in the stubs
    GcsClient,
    GcsClientOptions,
    GlobalStateAccessor,
    JobID,
)
from ray.core.generated import common_pb2, gcs_pb2

from rankplan.accelerators import VENDORS
from rankplan.errors import ClusterError
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.internals import greet
from rankplan.runtime.ray.tables import ActorEntry, GroupEntry, JobEntry, NodeEntry, Tables

_Gcs: Any = gcs_pb2  # generated at run time
_Common: Any = common_pb2

_UNDEAD = ("ALIVE", "RESTARTING", "PENDING_CREATION", "DEPENDENCIES_UNREADY")
"""States of actors to ask for; the head keeps 100,000 dead ones."""

_IN_GROUP = re.compile(r"(?P<resource>.+?)_group_(?:(?P<bundle>\d+)_)?(?P<group>[0-9a-f]{36})")
"""The name of a resource of a placement group, or of one of its bundles."""

_BUNDLE = "bundle"
"""The resource that Ray gives to each bundle, and of which every actor in it holds some."""


class Head:
    """A connection to the head at host:port, which answers and accepts the token of this process."""

    def __init__(self, address: str) -> None:
        self.address = address
        options = GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
        self._accessor: Any = GlobalStateAccessor(options)
        if not self._accessor.connect():
            raise ClusterError(f"the Ray head at {address} refused the connection")
        self._keys: Any = None

    def put(self, key: str, value: bytes) -> None:
        """Write a value to the key-value store, in rankplan's namespace. Raises ``ClusterError``."""
        self._store().internal_kv_put(key.encode(), value, overwrite=True, namespace=NAMESPACE)

    def get(self, key: str) -> bytes | None:
        """Return the value of a key, ``None`` without one. Raises ``ClusterError``."""
        found: bytes | None = self._store().internal_kv_get(key.encode(), NAMESPACE)
        return found

    def keys(self, prefix: str) -> list[str]:
        """Return all keys that start like this. Raises ``ClusterError``."""
        return sorted(key.decode() for key in self._store().internal_kv_keys(prefix.encode(), NAMESPACE))

    def values(self, prefix: str) -> dict[str, bytes]:
        """Return the values of all keys that start like this. Raises ``ClusterError``."""
        store = self._store()
        keys = store.internal_kv_keys(prefix.encode(), NAMESPACE)
        found = store.internal_kv_multi_get(keys, NAMESPACE) if keys else {}
        return {key.decode(): value for key, value in sorted(found.items())}

    def remove(self, prefix: str) -> None:
        """Remove all keys that start like this. Raises ``ClusterError``."""
        self._store().internal_kv_del(prefix.encode(), del_by_prefix=True, namespace=NAMESPACE)

    def _store(self) -> Any:
        self._check()
        if self._keys is None:
            self._keys = GcsClient(address=self.address)
        return self._keys

    def _check(self) -> None:
        """Raise ``ClusterError`` if the head has gone: Ray itself would end this process."""
        try:
            greet(self.address, timeouts.CONNECT)
        except OSError as error:
            raise ClusterError(f"the Ray head at {self.address} does not answer ({error})") from None

    def tables(self) -> Tables:
        """Read all tables. Raises ``ClusterError`` if the head has gone."""
        self._check()
        ask = self._accessor
        actors = (_Gcs.ActorTableData.FromString(one) for state in _UNDEAD for one in ask.get_actor_table(None, state))
        jobs = ask.get_job_table(skip_submission_job_info_field=True, skip_is_running_tasks_field=True)
        free = map(_Gcs.AvailableResources.FromString, ask.get_all_available_resources())
        found = {actor.actor_id: actor for actor in map(_actor, actors)}  # one may change its state between questions
        return Tables(
            nodes=tuple(map(_node, ask.get_node_table())),
            groups=tuple(one for one in self._groups() if one.state != "REMOVED"),
            actors=tuple(found.values()),
            jobs=tuple(map(_job, map(_Gcs.JobTableData.FromString, jobs))),
            free={one.node_id.hex(): dict(one.resources_available) for one in free},
        )

    def actor_ids(self, job_id: str) -> list[str]:
        """Return the ids of all actors of a job, also of those that are dead. Raises ``ClusterError``."""
        self._check()
        actors = map(_Gcs.ActorTableData.FromString, self._accessor.get_actor_table(JobID.from_hex(job_id), None))
        return [actor.actor_id.hex() for actor in actors]

    def groups(self) -> list[GroupEntry]:
        """Read the table of placement groups, with those that Ray has removed. Raises ``ClusterError``."""
        self._check()
        return self._groups()

    def _groups(self) -> list[GroupEntry]:
        return [
            _group(_Gcs.PlacementGroupTableData.FromString(one)) for one in self._accessor.get_placement_group_table()
        ]


def _node(entry: Mapping[str, Any]) -> NodeEntry:
    return NodeEntry(
        node_id=entry["NodeID"],
        address=entry["NodeManagerAddress"],
        hostname=entry["NodeManagerHostname"],
        alive=bool(entry["Alive"]),
        resources=entry["Resources"],
        labels=entry["Labels"],
    )


def _group(entry: Any) -> GroupEntry:
    bundles = sorted(entry.bundles, key=lambda bundle: bundle.bundle_id.bundle_index)
    return GroupEntry(
        group_id=entry.placement_group_id.hex(),
        name=entry.name,
        job_id=entry.creator_job_id.hex(),
        state=_Gcs.PlacementGroupTableData.PlacementGroupState.Name(entry.state),
        strategy=_Common.PlacementStrategy.Name(entry.strategy),
        detached=entry.is_detached,
        bundles=tuple(dict(bundle.unit_resources) for bundle in bundles),
        nodes=tuple(_known(bundle.node_id) for bundle in bundles),
        scheduling=_Gcs.PlacementGroupStats.SchedulingState.Name(entry.stats.scheduling_state),
        asked=entry.stats.creation_request_received_ns,
    )


def _known(identity: bytes) -> str:
    """Return an id as text, ``""`` for Ray's id of nothing, which is all ones."""
    return "" if set(identity) <= {255} else identity.hex()


def _actor(entry: Any) -> ActorEntry:
    mapping = {one.name: {each.index: each.quantity for each in one.resource_ids} for one in entry.resource_mapping}
    group, bundles, holds = held(mapping)
    return ActorEntry(
        actor_id=entry.actor_id.hex(),
        class_name=entry.class_name,
        name=entry.name,
        job_id=entry.job_id.hex(),
        pid=entry.pid,
        node_id=_known(entry.address.node_id) if entry.state == _Gcs.ActorTableData.ALIVE else "",  # else its owner's
        state=_Gcs.ActorTableData.ActorState.Name(entry.state),
        detached=entry.is_detached,
        requires=dict(entry.required_resources),
        holds=holds,
        group_id=group or _known(entry.placement_group_id) or None,
        bundles=bundles,
        started=entry.start_time,
    )


def held(
    mapping: Mapping[str, Mapping[int, float]],
) -> tuple[str | None, tuple[int, ...], dict[str, dict[int, float]]]:
    """Return the placement group, its bundles and the accelerators, by resource, of an actor's ``resource_mapping``.

    Ray lists what an actor holds in a group twice, for the bundle and for the group; the numbers of the bundle count.
    An actor without accelerators holds only a part of its bundle. One that names no bundle holds accelerators of one
    bundle, and may hold that part of another: accelerators decide.
    """
    group: str | None = None
    bundles: dict[bool, set[int]] = {True: set(), False: set()}
    single: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    whole: dict[str, dict[int, float]] = {}
    accelerators = {row.resource for row in VENDORS}
    for name, amounts in mapping.items():
        found = _IN_GROUP.fullmatch(name)
        resource = name if found is None else found["resource"]
        if found is not None and (resource in accelerators or resource == _BUNDLE):
            group = found["group"]
            if found["bundle"] is not None:
                bundles[resource in accelerators].add(int(found["bundle"]))
        if resource in accelerators:
            if found is not None and found["bundle"] is None:
                whole[resource] = dict(amounts)
                continue
            for index, amount in amounts.items():
                single[resource][index] += amount
    holds = whole | {resource: dict(amounts) for resource, amounts in single.items()}
    return group, tuple(sorted(bundles[True] or bundles[False])), holds


def _job(entry: Any) -> JobEntry:
    address = entry.driver_address.ip_address or entry.driver_ip_address
    metadata = dict(entry.config.metadata)
    return JobEntry(entry.job_id.hex(), bool(entry.is_dead), entry.entrypoint, address, entry.driver_pid, metadata)

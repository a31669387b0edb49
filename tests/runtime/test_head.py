"""The tables of a head, read by a process that is no job, on a real cluster.

A failure here means that a new version of Ray has changed what ``rankplan/runtime/ray/head.py`` relies on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from rankplan import Cluster, ClusterError
from rankplan.runtime.ray.connection import head_of
from rankplan.runtime.ray.head import Head
from rankplan.runtime.ray.tables import Tables
from ray import cloudpickle
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers of Ray cannot import this module


@ray.remote(num_cpus=0)
class Sleeper:
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


@ray.remote(num_cpus=0, num_gpus=8)
class Waiting:
    """More accelerators than a node has."""


@pytest.fixture(scope="module")
def read() -> Iterator[tuple[Tables, dict[str, Any]]]:
    """Yield the tables of a cluster with some of everything, and what Ray's own interfaces say."""
    with Cluster.simulate("2x4") as cluster:
        group = placement_group([{"GPU": 1}, {"GPU": 1}, {"GPU": 2, "CPU": 1}], strategy="STRICT_PACK", name="pool")
        waiting = placement_group([{"GPU": 8}], name="large", lifetime="detached")
        removed = placement_group([{"CPU": 1}])
        ray.get([group.ready(), removed.ready()])
        remove_placement_group(removed)

        actors: dict[str, Any] = {}
        nodes: dict[str, str] = {}

        def start(what: str, **options: Any) -> None:
            """Start an actor and wait for it: the one without a bundle must not take what another one needs."""
            actors[what] = Sleeper.options(**options).remote()
            nodes[what] = ray.get(actors[what].node.remote())

        def inside(bundle: int) -> PlacementGroupSchedulingStrategy:
            return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)

        start("of a bundle", num_gpus=1, scheduling_strategy=inside(1))
        start("of a bundle of two", num_gpus=2, scheduling_strategy=inside(2))
        start("without a bundle", num_gpus=0.5, scheduling_strategy=inside(-1))
        start("without accelerators", num_gpus=0, scheduling_strategy=inside(0))
        start("bare", num_gpus=0.25, name="bare", lifetime="detached")
        dead = Sleeper.remote()
        ray.get(dead.node.remote())
        ray.kill(dead)
        forever = Waiting.remote()
        connection = head_of(None)
        before = connection.tables().jobs
        found = connection.tables()
        assert found.jobs == before == Head(cluster.address).tables().jobs  # reading them is no job
        names = {actor._actor_id.hex(): name for name, actor in actors.items()}
        facts = {
            "names": names,
            "nodes": nodes,
            "ids": {entry["NodeID"] for entry in ray.nodes()},
            "group": group.id.hex(),
            "waiting": waiting.id.hex(),
            "job": ray.get_runtime_context().get_job_id(),
            "pending": forever._actor_id.hex(),
        }
        yield found, facts


def test_nodes_are_those_of_ray(read: tuple[Tables, dict[str, Any]]) -> None:
    found, facts = read
    assert {node.node_id for node in found.nodes} == facts["ids"]
    assert sorted(node.address for node in found.nodes) == ["127.0.0.2", "127.0.0.3"]
    assert all(node.alive and node.resources["GPU"] == 4 and node.hostname for node in found.nodes)
    assert {node.labels["rankplan.io/accelerator-type"] for node in found.nodes} == {"NV_GPU"}


def test_groups_tell_their_state_and_where_their_bundles_are(read: tuple[Tables, dict[str, Any]]) -> None:
    found, facts = read
    groups = {group.name: group for group in found.groups}
    assert sorted(groups) == ["large", "pool"]
    pool, large = groups["pool"], groups["large"]
    assert (pool.group_id, pool.job_id, pool.detached) == (facts["group"], facts["job"], False)
    assert (pool.state, pool.strategy, pool.scheduling) == ("CREATED", "STRICT_PACK", "FINISHED")
    assert [dict(bundle) for bundle in pool.bundles] == [{"GPU": 1}, {"GPU": 1}, {"GPU": 2, "CPU": 1}]
    assert set(pool.nodes) == {facts["nodes"]["of a bundle"]} and len(pool.nodes) == 3
    assert (large.group_id, large.detached) == (facts["waiting"], True)
    assert (large.state, large.scheduling, large.nodes) == ("PENDING", "INFEASIBLE", ("",))


def test_actors_tell_their_bundle_and_their_accelerators(read: tuple[Tables, dict[str, Any]]) -> None:
    found, facts = read
    actors = {facts["names"].get(actor.actor_id, "other"): actor for actor in found.actors}
    assert len(actors) == len(found.actors) == 6  # the dead one is not there
    assert {actor.class_name for actor in found.actors} == {"Sleeper", "Waiting"}
    places = {
        name: (actor.bundles, {index: amount for held in actor.holds.values() for index, amount in held.items()})
        for name, actor in actors.items()
    }
    (two,) = {actor.group_id for name, actor in actors.items() if name not in ("bare", "other")}
    assert two == facts["group"]
    assert places["of a bundle"] == ((1,), {1: 1})
    assert places["of a bundle of two"] == ((2,), {2: 1, 3: 1})
    assert places["without a bundle"] == ((0,), {0: 0.5})  # the only bundle with room
    assert places["without accelerators"] == ((0,), {})
    assert places["bare"] == ((), {0: 0.25})
    bare, pending = actors["bare"], actors["other"]
    assert (bare.name, bare.detached, bare.group_id) == ("bare", True, None)
    assert (pending.actor_id, pending.state, pending.node_id) == (facts["pending"], "PENDING_CREATION", "")
    assert pending.requires == {"GPU": 8} and pending.holds == {}
    assert {name: actor.node_id for name, actor in actors.items() if name != "other"} == facts["nodes"]
    assert all(actor.pid > 0 and actor.job_id == facts["job"] for name, actor in actors.items() if name != "other")


def test_free_resources_are_those_of_nodes_and_bundles(read: tuple[Tables, dict[str, Any]]) -> None:
    found, facts = read
    node, group = facts["nodes"]["of a bundle"], facts["group"]
    other = facts["nodes"]["bare"]
    assert node != other and found.free[other]["GPU"] == 3.75
    here = found.free[node]
    assert here.get("GPU", 0) == 0
    assert [here.get(f"GPU_group_{bundle}_{group}", 0) for bundle in range(3)] == [0.5, 0, 0]


def test_jobs_tell_their_drivers(read: tuple[Tables, dict[str, Any]]) -> None:
    found, facts = read
    (job,) = found.jobs
    assert (job.job_id, job.ended) == (facts["job"], False) and job.pid > 0 and job.entrypoint


def test_a_head_that_does_not_answer_is_named() -> None:
    with pytest.raises(ClusterError, match=r"no Ray cluster answers at 127\.0\.0\.2:9"):
        head_of("127.0.0.2:9")
    with pytest.raises(ClusterError, match="no running Ray cluster was found; give the host:port of its head"):
        head_of("local")

"""``rankplan live`` on a real cluster with two jobs: whoever started them, from a process that is no job."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from rankplan import Cluster, ClusterError, RankSet, live, plan
from rankplan.runtime.ray.connection import head_of
from ray import cloudpickle
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from support.configs import from_overrides

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers of Ray cannot import this module

OTHER = """
import ray, sys
from ray.util.placement_group import placement_group
ray.init(address=sys.argv[1], logging_level="ERROR")

@ray.remote(num_cpus=0, num_gpus=1)
class Other:
    def ready(self): return 1

ray.get(placement_group([{"GPU": 1}], name="kept", lifetime="detached").ready())
actor = Other.options(name="bare").remote()
ray.get(actor.ready.remote())
print("ready", flush=True)
sys.stdin.read()
"""
VERL = ["trainer.nnodes=2", "trainer.n_gpus_per_node=2", "algorithm.adv_estimator=grpo"]


@ray.remote(num_cpus=0)
class WorkerDict:
    def ready(self) -> None:
        pass


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Yield a cluster with another job, and this one with the groups of verl on the nodes that Ray chose."""
    with Cluster.simulate("3x2") as cluster:
        names = [f"global_poolverl_group_2_2:{number}" for number in range(2)]
        groups = [placement_group([{"GPU": 1}] * 2, strategy="STRICT_PACK", name=name) for name in names]
        ray.get([group.ready() for group in groups])
        places = [PlacementGroupSchedulingStrategy(group, bundle) for group in groups for bundle in range(2)]
        actors = [WorkerDict.options(num_gpus=1, scheduling_strategy=place).remote() for place in places[:3]]
        ray.get([actor.ready.remote() for actor in actors])
        command = [sys.executable, "-c", OTHER, cluster.address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None and other.stdout.readline() == "ready\n"
            yield cluster
            other.communicate("")


def run(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that is not connected to Ray."""
    command = [sys.executable, "-m", "rankplan", "live", "--ray", cluster.address, *words]
    return subprocess.run(command, capture_output=True, text=True)


def jobs(cluster: Cluster) -> int:
    return len(head_of(cluster.address).tables().jobs)


def test_it_shows_all_jobs_and_is_none(cluster: Cluster) -> None:
    before = jobs(cluster)
    found = live(cluster.address)
    assert jobs(cluster) == before == 2
    assert [node.spec.num_accelerators for node in found.nodes] == [2, 2, 2]
    own = {group.name: group for group in found.groups}
    assert sorted(own) == ["global_poolverl_group_2_2:0", "global_poolverl_group_2_2:1", "kept"]
    assert own["kept"].detached and own["kept"].job != own["global_poolverl_group_2_2:0"].job
    assert [actor.class_name for actor in found.actors] == [*["WorkerDict"] * 3, "Other"]
    *workers, bare = found.actors
    assert (bare.name, bare.group, bare.bundle) == ("bare", None, None)
    assert all(actor.accelerators == RankSet([actor.bundle]) for actor in workers if actor.bundle is not None)
    assert len(found.held()) == 3 and sum(map(len, found.held().values())) == 6
    idle = found.idle
    assert sorted(len(one.accelerators) for one in idle) == [1, 1]
    assert {name for one in idle for name in one.bundles} == {
        own["kept"].group_id,
        own["global_poolverl_group_2_2:1"].group_id,
    }
    assert not found.doubled and not found.differences and not found.waiting


def test_the_command_compares_with_a_config_and_with_a_saved_plan(cluster: Cluster, tmp_path: Path) -> None:
    config = tmp_path / "verl.yaml"
    config.write_text(
        "trainer: {nnodes: 2, n_gpus_per_node: 2}\nalgorithm: {adv_estimator: grpo}\nactor_rollout_ref: {rollout: {}}\n"
    )
    before = jobs(cluster)
    done = run(cluster, str(config), "--format", "json")
    assert jobs(cluster) == before
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["plan"]["claimed"] == 2
    by_kind = {one["kind"]: (one["component"], one["ranks"]) for one in found["differences"]}
    first, last = ([bundle["node"] for bundle in one["bundles"]] for one in found["groups"] if one["component"])
    assert by_kind == {"not-running": ("actor", [3 if first < last else 1])}  # verl sorts by address, not by name
    elsewhere = live(cluster.address, plan(from_overrides(VERL), cluster.inventory.first(2)))
    assert elsewhere.compared is not None
    places = {node for group in elsewhere.groups if group.component == "actor" for node in group.nodes}
    assert (elsewhere.compared.on_nodes == 3) == (places == {0, 1})
    table = run(cluster, str(config), "--job", found["plan"]["job"])
    assert "does not run: no actor is in its bundle" in table.stdout and "Other" not in table.stdout
    assert "(held by bundle 0 of another job, no actor)" in table.stdout
    assert run(cluster).returncode == 0


def test_a_job_that_has_nothing_is_unknown(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="no job '7f' has anything on the cluster; the running jobs are 0"):
        live(cluster.address, job="7f")


def test_devices_are_asked_by_a_job_with_a_task_on_each_node(cluster: Cluster) -> None:
    before = jobs(cluster)
    done = run(cluster, "--devices")
    assert done.returncode == 0, done.stderr
    assert jobs(cluster) == before + 1
    assert done.stdout.count("its driver does not tell which processes use its accelerators") == 3
    assert "#" not in done.stdout  # the nodes told the ids


def test_watching_prints_what_changes_until_it_is_interrupted(cluster: Cluster) -> None:
    command = [sys.executable, "-u", "-m", "rankplan", "live", "--ray", cluster.address, "--watch", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = iter(watching.stdout.readline, "")  # ends with the command

        def comes(start: str, part: str = "") -> bool:
            return any(line.startswith(start) and part in line for line in lines)

        assert comes("doubled: none")
        group = ray.util.get_placement_group("global_poolverl_group_2_2:1")
        place = PlacementGroupSchedulingStrategy(group, 1)
        actor: Any = WorkerDict.options(num_gpus=1, name="late", scheduling_strategy=place).remote()
        assert comes("+ ", "late")
        ray.kill(actor)
        assert comes("- ", "late")
        watching.send_signal(signal.SIGINT)
        _, told = watching.communicate()
    assert watching.returncode == 130 and "Traceback" not in told

"""Ray in an allocation of a real Slurm: a program of rankplan, its commands, and the file of a trainer."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import EmitOptions, Inventory
from support.slurm import Slurm, slurm

pytestmark = pytest.mark.long

NODES = {"nodes": [{"ranks": rank, "accelerators": 4, "hostname": f"n{rank}"} for rank in range(2)]}
ADDRESSES = {"nodes": [{"ranks": rank, "accelerators": 4, "ip": f"127.0.0.{rank + 2}"} for rank in range(2)]}
"""The raylets have the hostname of this machine."""
RAY = """\
#!/bin/sh
# Ray with the address that Slurm's node has on this machine, and as many accelerators
[ "$1" != start ] || set -- "$@" --node-ip-address="$(getent hosts "$SLURMD_NODENAME" | cut -d' ' -f1)" \\
  --num-cpus=16 --num-gpus=4 --object-store-memory=80000000 --disable-usage-stats
[ "$2" != --head ] || set -- "$@" --include-dashboard=false
exec {ray} "$@"
"""
"""`ray start` gives up, and kills what it has started, if its raylet has not registered 30 s after the dashboard
(`Node.__init__`). On a machine that several tests share, the processes of a dashboard can take that long to start."""
OWN = """\
import json, os
import rankplan

class Worker(rankplan.Worker):
    def where(self):
        return [os.environ[key] for key in ("RANK", "CLUSTER_NODE_RANK", "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES")]

plan = rankplan.Plan.load(os.environ["RANKPLAN_PLAN"])
with rankplan.Cluster(plan=plan) as cluster:
    groups = rankplan.launch(plan, cluster, {name: Worker for name in plan})
    print("ROWS", json.dumps({name: group.where().wait() for name, group in groups.items()}))
"""

PINNED = """\
import json
import ray
from ray.util.placement_group import placement_group, placement_group_table

ray.init(logging_level="ERROR", log_to_driver=False)
names = [f"global_poolverl_group_4_4:{index}" for index in range(2)]
groups = [placement_group([{"GPU": 1, "CPU": 3}] * 4, strategy="STRICT_PACK", name=name) for name in names]
ray.get([group.ready() for group in groups])
addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
nodes = [set(placement_group_table(group)["bundles_to_node_id"].values()) for group in groups]
print("ROWS", json.dumps({"nodes": [[addresses[node] for node in each] for each in nodes]}))
"""


VERL = """\
trainer: {nnodes: 2, n_gpus_per_node: 4}
actor_rollout_ref: {rollout: {name: vllm, tensor_model_parallel_size: 1}}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm"), "2x4") as found:
        program = found.folder / "bin" / "ray"
        program.write_text(RAY.format(ray=shutil.which("ray", path=Path(sys.executable).parent)))
        program.chmod(0o755)
        yield found


def rows(output: str, programs: int) -> list[Any]:
    """Return what the ranks of each program told."""
    found = re.findall(r"^ROWS (.*)$", output, re.M)
    assert len(found) == programs, output
    return [json.loads(one) for one in found]


def test_a_driver_and_the_commands_in_one_allocation(cluster: Slurm, tmp_path: Path) -> None:
    config = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-3", "rollout": "2-5:0-1"}}}
    plan = rankplan.plan(config, Inventory.from_dict(NODES))
    Path(tmp_path, "own.py").write_text(OWN)
    Path(tmp_path, "verl.yaml").write_text(VERL)
    rankplan.plan(tmp_path / "verl.yaml", Inventory.from_dict(ADDRESSES), pinned=True).save(tmp_path / "verl.json")
    Path(tmp_path, "train.py").write_text(PINNED)
    commands = [
        f"cd {tmp_path}",
        f"{sys.executable} own.py",
        'rankplan run "$RANKPLAN_PLAN" --format json > run.json',
        f"rankplan pin verl.json -- {sys.executable} train.py",
    ]
    script = f"bash -c {shlex.quote(' && '.join(commands))}"
    output = cluster.run(rankplan.emit(plan, "slurm", EmitOptions(entrypoint=script)))
    own, pinned = rows(output, 2)
    assert own == {
        name: [
            [str(one.rank), str(one.cluster_node_rank), f"n{one.cluster_node_rank}", ",".join(one.visible_accelerators)]
            for one in component
        ]
        for name, component in plan.items()
    }
    launched = json.loads((tmp_path / "run.json").read_text())["ranks"]
    assert [(one["component"], one["rank"], one["node_rank"], one["accelerators"]) for one in launched] == [
        (name, one.rank, one.cluster_node_rank, list(one.visible_accelerators))
        for name, component in plan.items()
        for one in component
    ]
    assert pinned == {"nodes": [["127.0.0.2"], ["127.0.0.3"]]}
    assert "groups: 2 of 2 pinned" in output


def test_the_file_of_a_trainer_starts_it_pinned_on_all_nodes(cluster: Slurm, tmp_path: Path) -> None:
    """Its second node joins late; the plan names no hosts."""
    Path(tmp_path, "train.py").write_text(PINNED)
    Path(tmp_path, "verl.yaml").write_text(VERL)
    plan = rankplan.plan(tmp_path / "verl.yaml", "2x4", pinned=True)
    text = rankplan.emit(plan, "slurm", EmitOptions(command=f"cd {tmp_path} && {sys.executable} train.py"))
    joins = "  exec ray start --address="
    assert joins in text
    output = cluster.run(text.replace(joins, f"  sleep 6\n{joins}"))
    assert rows(output, 1) == [{"nodes": [["127.0.0.2"], ["127.0.0.3"]]}]
    assert "groups: 2 of 2 pinned" in output

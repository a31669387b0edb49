"""The pods of a Kubernetes file that rankplan did not write are nodes, in the order of its groups."""

from __future__ import annotations

from pathlib import Path

import pytest
import rankplan
from rankplan import Inventory, PlacementError

RAY = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: c}
spec:
  headGroupSpec:
    rayStartParams: {num-cpus: "0"}
    template: {spec: {containers: [{name: head, image: x}]}}
  workerGroupSpecs:
    - groupName: big
      replicas: 2
      template: {spec: {containers: [{name: w, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]}}
    - groupName: small
      minReplicas: 1
      numOfHosts: 2
      template: {spec: {containers: [{name: w, image: x, resources: {limits: {amd.com/gpu: "4"}}}]}}
"""
POD = "{spec: {containers: [{name: w, image: x, resources: {limits: {huawei.com/Ascend910: 8}}}]}}"
JOBS = f"""\
apiVersion: v1
kind: Service
metadata: {{name: s}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: j}}
spec:
  replicatedJobs:
    - name: driver
      template: {{spec: {{template: {{spec: {{containers: [{{name: d, image: x}}]}}}}}}}}
    - name: workers
      replicas: 2
      template: {{spec: {{parallelism: 3, completions: 3, template: {POD}}}}}
"""
LWS = f"""\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: l}}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 3
    leaderTemplate: {{spec: {{containers: [{{name: l, image: x}}]}}}}
    workerTemplate: {POD}
"""


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (RAY, [("NV_GPU", 8)] * 2 + [("AMD_GPU", 4)] * 2),
        (RAY.replace('num-cpus: "0"', 'num-gpus: "1"'), [("NV_GPU", 1)] + [("NV_GPU", 8)] * 2 + [("AMD_GPU", 4)] * 2),
        (RAY.replace("replicas: 2", "replicas: 0"), [("AMD_GPU", 4)] * 2),
        (JOBS, [("NO_ACCEL", 0)] + [("NPU", 8)] * 6),
        (LWS, ([("NO_ACCEL", 0)] + [("NPU", 8)] * 2) * 2),
        (LWS.replace("    leaderTemplate", "    x-leader"), [("NPU", 8)] * 6),
    ],
)
def test_each_pod_is_a_node(text: str, nodes: list[tuple[str, int]], tmp_path: Path) -> None:
    (path := tmp_path / "cluster.yaml").write_text(text)
    found = Inventory.load(path)
    records = [found.node(rank) for rank in range(found.num_nodes)]
    assert [(one.accelerator_type, one.num_accelerators) for one in records] == nodes


def test_a_config_is_checked_on_the_pods_of_a_file(tmp_path: Path) -> None:
    (path := tmp_path / "job.yaml").write_text(
        RAY.replace("kind: RayCluster", "kind: RayJob").replace("spec:\n  head", "spec:\n rayClusterSpec:\n  head")
    )
    config = {"cluster": {"num_nodes": 4, "component_placement": {"actor": "0-15", "rollout": "16-23"}}}
    assert rankplan.plan(config, path)["rollout"][0].accelerator_type == "AMD_GPU"
    config["cluster"]["component_placement"]["rollout"] = "16-24"  # type: ignore[index]
    with pytest.raises(PlacementError, match="24"):
        rankplan.plan(config, path)


@pytest.mark.parametrize(
    ("before", "after", "message", "line"),
    [
        ("replicas: 2", "replicas: N", "`replicas` is 'N'; it must be a whole number", 10),
        ('gpu: "4"', "gpu: four", "`amd.com/gpu` is 'four'; it must be a whole number", 15),
        ("replicas: 2", "replicas: 99999999999", "`replicas` is 99999999999; it must be a whole number", 10),
        ("workerGroupSpecs", "groups", "the RayCluster has no pods, so there are no nodes", 4),
    ],
)
def test_a_number_that_is_none_is_located(before: str, after: str, message: str, line: int, tmp_path: Path) -> None:
    (path := tmp_path / "cluster.yaml").write_text(RAY.replace(before, after))
    with pytest.raises(PlacementError) as refused:
        Inventory.load(path)
    assert (refused.value.message, refused.value.line, refused.value.file) == (message, line, str(path))

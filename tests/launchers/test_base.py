"""The user's own parts: merged by name, kept, and refused where they contradict the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import EmitOptions
from support.commands import run
from support.launchers import documents, object_of, planned

BASE = """\
apiVersion: ray.io/v1
kind: RayJob
metadata:
  name: mine
  namespace: team
  labels: {kueue.x-k8s.io/queue-name: gold, owner: me}
spec:
  ttlSecondsAfterFinished: 600
  rayClusterSpec:
    rayVersion: "2.52.0"
    headGroupSpec:
      rayStartParams: {dashboard-host: 0.0.0.0}
      template:
        spec:
          containers: [{name: ray-head, image: "ray:1"}]
    workerGroupSpecs:
      - groupName: "*"
        template:
          spec:
            hostNetwork: yes
            tolerations: [{key: gpu, operator: Exists}]
            containers:
              - name: ray-worker
                image: ray:1
                env:
                  - {name: TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}
                resources: {limits: {memory: 900Gi}}
              - {name: sidecar, image: "side:1"}
            volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
      - groupName: rollout
        template:
          spec:
            priorityClassName: low
            containers: [{name: ray-worker, image: "ray:2"}]
---
apiVersion: v1
kind: Service
metadata: {name: extra}
spec: {ports: [{port: 80}]}
"""
GROUP = "groupName: rollout"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(BASE)
    return path


def test_a_base_is_merged_by_name(base: Path, tmp_path: Path) -> None:
    text = rankplan.emit(planned("v02"), "kuberay", EmitOptions(entrypoint="python train.py", base=base))
    job = object_of(text, "RayJob")
    assert job["metadata"]["name"] == "mine" and job["metadata"]["labels"]["owner"] == "me"
    assert [one["metadata"].get("namespace") for one in documents(text)] == ["team", "team", None]
    assert job["spec"]["suspend"] is True and job["spec"]["ttlSecondsAfterFinished"] == 600
    assert job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"] == {
        "num-cpus": "0",
        "dashboard-host": "0.0.0.0",
    }
    actor, rollout = (one["template"]["spec"] for one in job["spec"]["rayClusterSpec"]["workerGroupSpecs"])
    for spec, image in ((actor, "ray:1"), (rollout, "ray:2")):
        main_one, sidecar = spec["containers"]
        assert (main_one["image"], sidecar["image"]) == (image, "side:1")
        assert [one["name"] for one in main_one["env"]][-1] == "TOKEN"
        assert spec["hostNetwork"] is True and spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
        assert [one["name"] for one in spec["volumes"]] == ["rankplan", "shm", "data"]
    assert actor["containers"][0]["resources"]["limits"] == {"memory": "900Gi", "nvidia.com/gpu": "8"}
    assert "priorityClassName" not in actor and rollout["priorityClassName"] == "low"
    assert [one["kind"] for one in documents(text)] == ["ConfigMap", "RayJob", "Service"]
    # what was written comes back, and gives the same file
    file = tmp_path / "train.yaml"
    file.write_text(text)
    assert rankplan.emit(file, "kuberay") == text
    assert rankplan.plan(file).components == ["actor", "rollout"]


@pytest.mark.parametrize(
    ("before", "after", "message", "line"),
    [
        (GROUP, f"{GROUP}\n        replicas: 3", "`replicas` of rollout is 3; the plan needs 1", 31),
        (GROUP, f"{GROUP}\n        numOfHosts: 2", "`numOfHosts` of rollout is 2, but the plan does not set it", 31),
        (GROUP, "groupName: other", "other is in no group of the plan", 30),
        ("900Gi", '900Gi, nvidia.com/gpu: "2"', "`nvidia.com/gpu` of ray-worker is '2'; the plan needs '8'", 27),
        ("ttlSecondsAfterFinished: 600", "backoffLimit: 2", "`backoffLimit` is 2; the plan needs 0", 8),
        ("dashboard-host: 0.0.0.0", 'num-gpus: "1"', None, 0),
    ],
)
def test_a_base_that_contradicts_the_plan_is_refused(
    base: Path, before: str, after: str, message: str | None, line: int
) -> None:
    base.write_text(BASE.replace(before, after))
    try:
        rankplan.emit(planned("v02"), "kuberay", EmitOptions(entrypoint="python train.py", base=base))
    except rankplan.PlacementError as error:
        found = {one.message: (one.code, one.line, one.file) for one in error.diagnostics}
        assert message is not None and found[message] == ("emit-conflict", line, str(base))
    else:
        assert message is None  # the head is the user's


def test_a_base_keeps_its_own_shared_memory(base: Path, tmp_path: Path) -> None:
    """An API server refuses two mounts at one path."""
    mount = "env:\n                  - {name: TOKEN,"
    mounted = BASE.replace(mount, "volumeMounts: [{name: dshm, mountPath: /dev/shm}]\n                " + mount)
    volume = "volumes: [{name: data"
    base.write_text(mounted.replace(volume, "volumes: [{name: dshm, emptyDir: {sizeLimit: 64Gi}}, {name: data"))
    text = rankplan.emit(planned("v02"), "kuberay", EmitOptions(entrypoint="python train.py", base=base))
    cluster = object_of(text, "RayJob")["spec"]["rayClusterSpec"]
    pod = cluster["workerGroupSpecs"][0]["template"]["spec"]
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {"/etc/rankplan": "rankplan", "/dev/shm": "dshm"}
    assert [volume["name"] for volume in pod["volumes"]] == ["rankplan", "dshm", "data"]
    head = cluster["headGroupSpec"]["template"]["spec"]
    assert [volume["name"] for volume in head["volumes"]] == ["rankplan", "shm"]
    (file := tmp_path / "train.yaml").write_text(text)
    assert rankplan.emit(file, "kuberay") == text
    base.write_text(base.read_text().replace("/dev/shm", "/etc/rankplan"))
    with pytest.raises(rankplan.PlacementError) as refused:
        rankplan.emit(planned("v02"), "kuberay", EmitOptions(entrypoint="python train.py", base=base))
    (fault,) = refused.value.diagnostics  # once, although it is in two groups
    assert fault.message == "`name` of /etc/rankplan is 'dshm'; the plan needs 'rankplan'"


def test_a_base_of_another_kind_is_refused(base: Path) -> None:
    with pytest.raises(rankplan.PlacementError, match=r"the base has RayJob, Service; it must have a JobSet"):
        rankplan.emit(planned("v02"), "jobset", EmitOptions(command="python {}.py", base=base))


def test_an_image_is_never_invented(tmp_path: Path) -> None:
    conf = tmp_path / "conf.yaml"
    conf.write_text("cluster:\n  num_nodes: 2\n  component_placement: {actor: all}\n")
    words = ["emit", str(conf), "--nodes", "2x8", "--to", "jobset", "--command", "python {}.py"]
    done = run(*words)
    assert done.exit_code == 0 and "image: IMAGE\n" in done.stdout
    assert done.stderr == "no image is stated; replace IMAGE, or pass --image\n"
    done = run(*words, "--image", "a:1", "--cpus", "64", "--memory", "1Ti", "--namespace", "ml")
    job = object_of(done.stdout, "JobSet")
    container: dict[str, Any] = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][
        0
    ]
    assert done.stderr == "" and container["image"] == "a:1" and job["metadata"]["namespace"] == "ml"
    assert container["resources"] == {"limits": {"cpu": "64", "memory": "1Ti", "nvidia.com/gpu": "8"}}


def test_an_entrypoint_may_be_in_the_base(base: Path) -> None:
    base.write_text(BASE.replace("  ttlSecondsAfterFinished: 600", "  entrypoint: python mine.py"))
    assert (
        object_of(rankplan.emit(planned("v02"), "kuberay", EmitOptions(base=base)), "RayJob")["spec"]["entrypoint"]
        == "python mine.py"
    )
    base.write_text(BASE)
    with pytest.raises(rankplan.PlacementError, match=r"base\.yaml:7:1: `entrypoint` is missing"):
        rankplan.emit(planned("v02"), "kuberay", EmitOptions(base=base))


def test_a_new_plan_keeps_what_the_user_wrote_into_the_old_file(base: Path, tmp_path: Path) -> None:
    base.write_text(BASE.replace("groupName: rollout", "groupName: actor-rollout"))
    (file := tmp_path / "train.yaml").write_text(
        rankplan.emit(planned("v01"), "kuberay", EmitOptions(entrypoint="x", base=base))
    )
    text = rankplan.emit(planned("v04"), "kuberay", EmitOptions(base=file, name="other", queue="iron"))
    plan, job, service = documents(text)
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["groupName"], group["replicas"]) == ("actor", 1) and service["kind"] == "Service"
    assert (plan["metadata"]["name"], job["metadata"]["name"]) == ("other-plan", "other")
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "iron", "owner": "me"}
    assert job["spec"]["entrypoint"] == "x" and job["metadata"]["namespace"] == "team"
    # a file that somebody has changed is no base
    file.write_text(file.read_text().replace("replicas: 2", "replicas: 3", 1))
    with pytest.raises(rankplan.PlacementError, match="`replicas` of actor-rollout is 3; the plan says 2"):
        rankplan.emit(planned("v04"), "kuberay", EmitOptions(base=file))


def test_options_replace_those_of_a_file(base: Path, tmp_path: Path) -> None:
    (file := tmp_path / "train.yaml").write_text(
        rankplan.emit(planned("v02"), "jobset", EmitOptions(command="x", image="old:1"))
    )
    text = rankplan.emit(file, "jobset", EmitOptions(image="new:1", port=1000, command={"rollout": "y $HOME"}))
    assert "old:1" not in text and text.count("image: new:1") == 2
    assert "actor=x" in text and "rollout=y $$HOME" in text and "train-rollout-0-0.train:1001" in text

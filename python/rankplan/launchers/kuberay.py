"""A RayJob or a RayCluster: a head outside the plan, and one worker group per pod group.

Source: KubeRay's API (``ray.io/v1``). It labels each worker with its index in the group from 1.6 on (1.5 with the
feature gate ``RayMultiHostIndexing``), and counts accelerators in ``common.generateRayStartCommand``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rankplan.accelerators import vendor
from rankplan.errors import Diagnostic, KeyPath
from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.groups import PodGroup, pod_groups
from rankplan.launchers.launcher import Launcher, Starts
from rankplan.launchers.merge import ABSENT, USER, Closed, Optional
from rankplan.launchers.object_file import POD_OPTIONS, ObjectFile
from rankplan.launchers.options import CLUSTER, JOB
from rankplan.launchers.pods import (
    INDEX,
    MOST_POD_SETS,
    NODE_RANK,
    PLAN_FILE,
    QUEUE,
    check_name,
    check_pods,
    kueue_annotations,
    metadata,
    pod_requests,
    pod_spec,
    resource_key,
    template,
    topology_annotations,
    unconstrained,
)
from rankplan.launchers.trainer import driver, is_pinned, pinning, starts_itself
from rankplan.plans.plan import Plan

HEAD, WORKER = "ray-head", "ray-worker"
"""The names of Ray's containers."""

_SUBMITTER_NOTE = (
    "the pod that submits the job asks for 500m CPU and 200Mi memory: the queue needs quota for both, or the "
    "base `submissionMode: HTTPMode`"
)
_LONGEST_JOB, _LONGEST_CLUSTER = 47, 53
_INDEX = {INDEX: "metadata.labels['ray.io/worker-group-replica-index']"}
_COUNTED = ("aws.amazon.com/neuroncore", "google.com/tpu")
"""Resources that KubeRay counts beside those that end in gpu: ``customAcceleratorToRayResourceMap``."""


def ray_object(draft: Draft, text: str) -> dict[str, Any]:
    """Return the object for a plan with this text."""
    options = draft.options
    is_job = options.kind == JOB
    check_name(draft, "job" if is_job else "cluster", options.name, _LONGEST_JOB if is_job else _LONGEST_CLUSTER)
    suspended = True if options.queue is not None else USER
    cluster = _cluster(draft)
    if options.queue is not None and _has_submitter(draft):
        draft.notes.append(_SUBMITTER_NOTE)
    if is_job:
        spec = {
            "entrypoint": _entrypoint(draft),
            "shutdownAfterJobFinishes": True,
            "backoffLimit": 0,
            "suspend": suspended,
            "rayClusterSpec": cluster,
        }
    else:
        spec = {"suspend": suspended, **cluster}
    kind = "RayJob" if is_job else "RayCluster"
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": metadata(draft, text), "spec": spec}


def _entrypoint(draft: Draft) -> Any:
    """Return the driver, which the shell of the submitter reads; without one, it is the user's."""
    if draft.options.entrypoint is None or not starts_itself(draft.plan):
        return draft.options.entrypoint or USER
    return driver(draft, PLAN_FILE, shlex.quote)


def _cluster(draft: Draft) -> dict[str, Any]:
    groups = pod_groups(draft.plan, single=draft.options.pin)
    check_pods(draft, groups, len(groups) + 1 + _has_submitter(draft))
    asked = zip(groups, pod_requests(draft, groups), strict=True)
    annotations = [kueue_annotations(draft, slices, len(one.nodes)) for one, slices in asked]
    head = pod_spec(draft, HEAD, [{"name": NODE_RANK, "value": "none", "valueFrom": ABSENT}], {})
    head_annotations = Optional(topology_annotations(unconstrained(annotations)))
    return {
        "enableInTreeAutoscaling": ABSENT,
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0"},
            "template": {"metadata": Optional(annotations=head_annotations), "spec": head},
        },
        "workerGroupSpecs": Closed(_workers(draft, *both) for both in zip(groups, annotations, strict=True)),
    }


def _has_submitter(draft: Draft) -> bool:
    """Whether KubeRay starts a pod that submits the job; a base may choose another ``submissionMode``.

    Source: ``common.GetDefaultSubmitterContainer`` of KubeRay; ``RayJob.PodSets`` of Kueue.
    """
    return draft.options.kind == JOB and draft.options.base is None


def _workers(draft: Draft, group: PodGroup, annotations: dict[str, str]) -> dict[str, Any]:
    """Return a worker group.

    With a topology request, Kueue decides which pod is in which domain: the pods have the range of their node ranks,
    and rankplan numbers them along the domains after the start.
    """
    pods, first = len(group.nodes), group.nodes.start
    rank = f"{first}-{group.nodes[-1]}" if annotations and pods > 1 else group.node_rank
    return {
        "groupName": group.name,
        "replicas": pods,
        "minReplicas": pods,
        "maxReplicas": pods,
        "numOfHosts": ABSENT,
        "suspend": ABSENT,
        "resources": Optional(_resources(draft, group)),
        "rayStartParams": {"num-gpus": ABSENT, "resources": ABSENT},
        "template": template(draft, group, WORKER, _INDEX, rank, annotations),
    }


def _resources(draft: Draft, group: PodGroup) -> dict[str, Any]:
    """Return the accelerators of a node as Ray counts them, if KubeRay does not count them itself."""
    row = vendor(group.accelerator_type)
    if row is None:
        return {}
    key = resource_key(draft, group.accelerator_type)
    counted = key is None or key.endswith("gpu") or key in _COUNTED
    return {row.resource: ABSENT if counted else str(group.num_accelerators)}


def _missing(written: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Yield the faults of a job with a base: no driver, or more pod sets with the submitter than Kueue allows."""
    if written["kind"] != "RayJob":
        return
    spec = written["spec"]
    if "entrypoint" not in spec:
        yield faults.no_entrypoint()
    pod_sets = len(spec["rayClusterSpec"]["workerGroupSpecs"]) + 1
    submits = spec.get("submissionMode", "K8sJobMode") == "K8sJobMode"
    if QUEUE in written["metadata"].get("labels", {}) and pod_sets == MOST_POD_SETS and submits:
        yield faults.many_pod_sets(pod_sets + 1, MOST_POD_SETS)


def _unpinned(plan: Plan, written: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Diagnostic]]:
    """Yield the fault of an entrypoint that starts the trainer of a plan without `rankplan pin`."""
    entrypoint = written.get("spec", {}).get("entrypoint") if isinstance(written.get("spec"), Mapping) else None
    if starts_itself(plan) and isinstance(entrypoint, str) and not is_pinned(entrypoint):
        yield ("spec", "entrypoint"), faults.unpinned_trainer(entrypoint, pinning(PLAN_FILE), str(plan.dialect))


FILE = ObjectFile(
    compose=ray_object, kinds={"RayJob": JOB, "RayCluster": CLUSTER}, missing=_missing, contradicting=_unpinned
)
LAUNCHER = Launcher(
    name="kuberay",
    write=FILE.write,
    recognises=FILE.recognises,
    read=FILE.read,
    starts=Starts.DRIVER,
    options=POD_OPTIONS,
    kinds=True,
)

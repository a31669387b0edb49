"""A LeaderWorkerSet: groups of equal pods, of which each is a slice of the nodes.

Source: the API of LeaderWorkerSet (``leaderworkerset.x-k8s.io/v1``).
"""

from __future__ import annotations

from typing import Any

from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.groups import PodGroup, pod_groups
from rankplan.launchers.jobset import CONTAINER, pod_command
from rankplan.launchers.launcher import Launcher, Starts
from rankplan.launchers.merge import ABSENT
from rankplan.launchers.object_file import POD_OPTIONS, ObjectFile
from rankplan.launchers.options import JOB
from rankplan.launchers.pods import (
    GROUP,
    INDEX,
    check_name,
    check_pods,
    kueue_annotations,
    metadata,
    pod_requests,
    template,
)
from rankplan.launchers.trainer import has_driver

_RESTARTS = (
    "a LeaderWorkerSet starts again what ends: a command that fails runs again, and the pods stay after one that "
    "succeeds; use jobset or kuberay for a job that ends"
)
_LONGEST = 63
_LABELS = "metadata.labels['leaderworkerset.sigs.k8s.io/{}-index']"
_INDEX = {GROUP: _LABELS.format("group"), INDEX: _LABELS.format("worker")}


def leader_worker_set(draft: Draft, text: str) -> dict[str, Any]:
    """Return the object for a plan with this text."""
    name = draft.options.name
    groups = pod_groups(draft.plan, single=draft.options.pin)
    if len(groups) > 1:
        draft.refuse(faults.uneven([group.name for group in groups]))
    check_pods(draft, groups, 1)
    asked = pod_requests(draft, groups)
    size = asked[0][0].size if asked[0] else len(groups[0].nodes)
    replicas = len(groups[0].nodes) // size
    # a StatefulSet labels its pods with its name and a hash
    check_name(draft, "job", name, _LONGEST, f"{name}-{replicas - 1}-0123456789")
    if replicas > 1:
        draft.notes.append(
            f"{name} has {replicas} groups, which start and restart one by one: right for engines, not for one trainer"
        )
    addresses = {node: _address(name, at, size) for group in groups for at, node in enumerate(group.nodes)}
    started = pod_command(draft, addresses, restarted=True)
    if has_driver(draft):
        draft.notes.append(_RESTARTS)
    pods = []  # of one group, unless the plan is refused
    for one, slices in zip(groups, asked, strict=True):
        annotations = kueue_annotations(draft, slices, size)
        pods.append(template(draft, one, CONTAINER, _INDEX, _node_rank(one, size), annotations))
    pods[0]["spec"]["containers"][0]["command"] = started(groups[0].components)
    workers = {
        "leaderTemplate": ABSENT,
        "size": size,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "workerTemplate": pods[0],
    }
    spec = {"replicas": replicas, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": workers}
    kind = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    return {**kind, "metadata": metadata(draft, text), "spec": spec}


def _address(name: str, at: int, size: int) -> str:
    """Return the address of the pod for a node, counted from 0."""
    group, worker = divmod(at, size)
    return f"{name}-{group}.{name}" if not worker else f"{name}-{group}-{worker}.{name}"


def _node_rank(group: PodGroup, size: int) -> str:
    if len(group.nodes) == size:
        return group.node_rank
    return f"{group.nodes.start}+{size}*$({GROUP})+$({INDEX})"


FILE = ObjectFile(compose=leader_worker_set, kinds={"LeaderWorkerSet": JOB})
LAUNCHER = Launcher(
    name="lws",
    write=FILE.write,
    recognises=FILE.recognises,
    read=FILE.read,
    starts=Starts.DRIVER | Starts.COMMANDS,
    options=POD_OPTIONS,
)

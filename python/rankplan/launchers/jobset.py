"""A JobSet: one replicated job per pod group, whose pods are the nodes in order.

Source: JobSet's API (``jobset.x-k8s.io/v1alpha2``) and its webhooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.groups import PodGroup, pod_groups
from rankplan.launchers.launcher import Launcher, Starts
from rankplan.launchers.merge import ABSENT, USER, Closed
from rankplan.launchers.object_file import POD_OPTIONS, ObjectFile
from rankplan.launchers.options import JOB
from rankplan.launchers.pods import (
    INDEX,
    NODE_RANK,
    PLAN_FILE,
    check_name,
    check_pods,
    kueue_annotations,
    metadata,
    pod_requests,
    template,
)
from rankplan.launchers.ray_pods import ray_command
from rankplan.launchers.scripts import home_nodes
from rankplan.launchers.trainer import has_driver

CONTAINER = "main"
_LONGEST = 63
_INDEX = {INDEX: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
"""The variable JOB_COMPLETION_INDEX is appended after those of a pod, which cannot use it."""


def job_set(draft: Draft, text: str) -> dict[str, Any]:
    """Return the object for a plan with this text."""
    name = draft.options.name
    groups = pod_groups(draft.plan, single=draft.options.pin)
    longest = max((f"{name}-{one.name}-0-{len(one.nodes) - 1}-abcde" for one in groups), key=len, default=name)
    check_name(draft, "job", name, _LONGEST, longest)
    check_pods(draft, groups, len(groups))
    addresses = {node: _address(draft, one, index) for one in groups for index, node in enumerate(one.nodes)}
    started = pod_command(draft, addresses)
    jobs = []
    for one, asked in zip(groups, pod_requests(draft, groups), strict=True):
        pods = len(one.nodes)
        annotations = kueue_annotations(draft, asked, pods)
        pod = template(draft, one, CONTAINER, _INDEX, one.node_rank, annotations)
        pod["spec"]["containers"][0]["command"] = started(one.components)
        pod["spec"]["restartPolicy"] = "Never"
        job = {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": 0,
            "template": pod,
        }
        jobs.append({"name": one.name, "replicas": 1, "template": {"spec": job}})
    spec = {
        "suspend": True if draft.options.queue is not None else USER,
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": ABSENT},
        "failurePolicy": {"maxRestarts": 0},
        "coordinator": _coordinator(draft, groups),
        "replicatedJobs": Closed(jobs),
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(draft, text),
        "spec": spec,
    }


def _coordinator(draft: Draft, groups: Sequence[PodGroup]) -> Any:
    """Return the node of Ray's head, or of the plan's first rank; nothing if its address is too long.

    JobSet labels pods with the address, a label has at most 63 characters, and rankplan reads the label nowhere
    (``jobset_webhook.go: validateCoordinatorLabelValue``).
    """
    node = min(home_nodes(draft.plan)) if has_driver(draft) else first_nodes(draft)[next(iter(draft.plan))]
    group = next(one for one in groups if node in one.nodes)
    index = node - group.nodes.start
    if len(_address(draft, group, index)) > _LONGEST:
        return USER
    return {"replicatedJob": group.name, "jobIndex": 0, "podIndex": index}


def _address(draft: Draft, group: PodGroup, index: int) -> str:
    """Return the name in DNS of a pod of a group."""
    name = draft.options.name
    return f"{name}-{group.name}-0-{index}.{name}"


def first_nodes(draft: Draft) -> dict[str, int]:
    """Return the node of rank 0 of each component."""
    return {name: component[0].cluster_node_rank for name, component in draft.plan.items()}


def masters_of(draft: Draft, addresses: Mapping[int, str]) -> dict[str, str]:
    """Return the rendezvous of each component: the address of its first node, and a port of its own."""
    first, port = first_nodes(draft), draft.options.port
    return {name: f"{addresses[first[name]]}:{port + index}" for index, name in enumerate(draft.plan)}


def pod_command(
    draft: Draft, addresses: Mapping[int, str], *, restarted: bool = False
) -> Callable[[Sequence[str]], list[Any]]:
    """Return the function from the components of a node to the command of its pod.

    It starts the ranks of the node; or, for a driver, Ray, which is the same on every node. ``restarted``: see
    `ray_command`.
    """
    if has_driver(draft):
        words = [escaped(word) for word in ray_command(draft, addresses, restarted=restarted)]
        return lambda components: words
    masters = masters_of(draft, addresses)
    return lambda components: _exec_command(draft, components, masters)


def _exec_command(draft: Draft, components: Sequence[str], masters: Mapping[str, str]) -> list[Any]:
    """Return the command of a pod that starts the ranks of its node."""
    words: list[Any] = ["rankplan", "exec", PLAN_FILE, "--node", f"$({NODE_RANK})"]
    for name in components:
        if "=" in name:
            draft.refuse(faults.equals_in_name(name))
        run = f"{name}={draft.options.command(name) or ''}"
        words += ["--master", escaped(f"{name}={masters[name]}"), "--run", escaped(run)]
    return words


def escaped(text: str) -> str:
    """Return a text that the kubelet turns into this one: ``$(NAME)`` would be the value of a variable, ``$$`` is $."""
    return text.replace("$", "$$")


FILE = ObjectFile(compose=job_set, kinds={"JobSet": JOB})
LAUNCHER = Launcher(
    name="jobset",
    write=FILE.write,
    recognises=FILE.recognises,
    read=FILE.read,
    starts=Starts.DRIVER | Starts.COMMANDS,
    options=POD_OPTIONS,
)

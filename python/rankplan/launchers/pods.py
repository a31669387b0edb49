"""What launchers of Kubernetes write: metadata, pods, the ConfigMap with the plan, and limits of names and sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

from rankplan._core import ACCELERATOR, WHOLE_NODE
from rankplan.accelerators import VENDORS, vendor
from rankplan.frozen import frozen
from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.embedded import digest
from rankplan.launchers.groups import PodGroup, is_label
from rankplan.launchers.merge import ABSENT, USER, AtLeast, Default, Optional
from rankplan.launchers.requests import Requests, level_order, requests
from rankplan.nodes.topology.sources import HOSTNAME
from rankplan.plans.node_amounts import NodeAmounts
from rankplan.read.inventories.quantities import quantity

PLAN = "rankplan.io/plan"
"""The annotation with the digest of the plan."""
OPTIONS = "rankplan.io/options"
"""The annotation with the options that the fields of the file do not show."""
QUEUE = "kueue.x-k8s.io/queue-name"
"""The label with the local queue of Kueue."""
MOUNT, SHARED_MEMORY = "/etc/rankplan", "/dev/shm"
MEMORY_VOLUME = {"name": "shm", "emptyDir": {"medium": "Memory"}}
"""Shared memory for processes on a node. A base that mounts a volume of its own there keeps it instead."""
PLAN_FILE = f"{MOUNT}/plan.json"
INDEX, GROUP, NODE_RANK = "RANKPLAN_INDEX", "RANKPLAN_GROUP", "RANKPLAN_NODE_RANK"
PLACE_VARIABLES = (INDEX, GROUP, NODE_RANK)
PLACEHOLDER = "IMAGE"

_KUEUE = "kueue.x-k8s.io/podset-"
_REQUIRED, _UNCONSTRAINED = f"{_KUEUE}required-topology", f"{_KUEUE}unconstrained-topology"
_SLICE_LEVEL, _SLICE_SIZE = f"{_KUEUE}slice-required-topology", f"{_KUEUE}slice-size"
_LAYERS = f"{_SLICE_LEVEL}-constraints"
_TOPOLOGY = (_REQUIRED, f"{_KUEUE}preferred-topology", _UNCONSTRAINED, _SLICE_LEVEL, _SLICE_SIZE, _LAYERS)
MOST_LAYERS = 3
MOST_POD_SETS = 18
_MOST_BYTES = 1 << 20
_QUOTA_NOTE = "the pods ask for CPUs or memory, which the job reserves there: the queue needs quota for both"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL_KEY = re.compile(r"(?P<domain>[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NO_NODE_LABELS = ("slurm/", "ray.io/")
"""What Slurm's files and Ray's labels say of a node, which no label of a Kubernetes node says."""


def plan_map(draft: Draft, text: str) -> dict[str, Any]:
    """Return the ConfigMap with the plan. A plan that it cannot hold is ``emit-too-large``."""
    if (size := len(text.encode())) > _MOST_BYTES:
        draft.refuse(faults.large_for_config_map(size, _MOST_BYTES))
    metadata = {"name": f"{draft.options.name}-plan", **_place(draft), "annotations": {PLAN: digest(text)}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"plan.json": text}}


def metadata(draft: Draft, text: str) -> dict[str, Any]:
    """Return the metadata of the object that starts the pods."""
    queue = draft.options.queue
    labels = Optional({QUEUE: ABSENT if queue is None else queue})
    annotations = {PLAN: digest(text), OPTIONS: _kept_options(draft) or ABSENT}
    return {"name": draft.options.name, **_place(draft), "labels": labels, "annotations": annotations}


def _place(draft: Draft) -> dict[str, Any]:
    return {"namespace": draft.options.namespace or USER}


def _kept_options(draft: Draft) -> str:
    """Return the options that the fields of a file do not show, as on a command line."""
    options = draft.options
    words = [f"--level {level}={label}" for level, label in sorted(options.levels.items())]
    words += [f"--resource-key {kind}={key}" for kind, key in sorted(options.resource_keys.items())]
    return " ".join([*words, *(["--pin"] if options.pin else [])])


class AnnotatedOptions(NamedTuple):
    """The options that the fields of a file do not show."""

    levels: dict[str, str]
    resource_keys: dict[str, str]
    pin: bool


def options_read(text: str) -> AnnotatedOptions | None:
    """Return the options that `_kept_options` wrote, or ``None`` for another text."""
    levels: dict[str, str] = {}
    keys: dict[str, str] = {}
    pin = False
    words = iter(text.split(" ") if text else ())
    for word in words:
        if word == "--pin":
            pin = True
            continue
        name, equals, value = next(words, "").partition("=")
        if word == "--level" and equals:
            levels[name] = value
        elif word == "--resource-key" and equals:
            keys[name] = value
        else:
            return None
    return AnnotatedOptions(levels, keys, pin)


def template(
    draft: Draft, group: PodGroup, container: str, index: Mapping[str, str], rank: str, asked: Mapping[str, str]
) -> dict[str, Any]:
    """Return the template of the pods of a group, without a command.

    ``index`` are the fields of the pod that the variables of the node rank are filled from; ``asked`` are Kueue's
    annotations.
    """
    env: list[dict[str, Any]] = [
        {"name": name, "value": ABSENT, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in index.items()
        if f"$({name})" in rank
    ]
    env.append({"name": NODE_RANK, "value": rank, "valueFrom": ABSENT})
    spec = pod_spec(draft, container, env, limits(draft, group), amounts_of(draft, group))
    if group.hostname is not None:
        spec = {"nodeSelector": {HOSTNAME: group.hostname}, **spec}
    return {"metadata": Optional(annotations=topology_annotations(asked)), "spec": spec}


def topology_annotations(asked: Mapping[str, str]) -> dict[str, Any]:
    """Return Kueue's annotations of a pod set: these, and no others about the topology."""
    return Optional({**asked, **{key: ABSENT for key in _TOPOLOGY if key not in asked}})


class PodAmounts(NamedTuple):
    """The CPUs and the memory of a pod: at most, and what is kept for it."""

    limits: dict[str, Any]
    requests: dict[str, Any]


def amounts_of(draft: Draft, group: PodGroup) -> PodAmounts:
    """Return the CPUs and the memory of the pods of a group.

    A pod requests what the job reserves there. Its CPUs are limited to those of the node, which Ray then counts, if the
    inventory knows them; its memory is not, as what Ray counts of a node is less than what the node has. Options take
    the place of both. Amounts that are too small for the job are a fault.
    """
    needed = NodeAmounts()
    for node in group.nodes:
        needed = needed.most(draft.needed.get(node, needed))
    cpus = ceil(needed.cpus)
    mebibytes = ceil(needed.memory)
    options = draft.options
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for amount in (
        _Amount("cpu", "--cpus", options.cpus, str(cpus), cpus, _fewest_cpus(draft, group) if cpus else 0),
        _Amount("memory", "--memory", options.memory, f"{mebibytes}Mi", mebibytes << 20, 0),
    ):
        if amount.stated is not None:
            limits[amount.resource] = amount.stated
            number = quantity(amount.stated)
            if number is not None and number < amount.least:
                draft.refuse(faults.small_pod(amount.option, amount.stated, amount.text, group.name))
        elif amount.least:
            limit = str(amount.of_node) if amount.of_node >= amount.least else None
            limits[amount.resource] = AtLeast(limit, amount.least)
            requests[amount.resource] = AtLeast(amount.text)
        else:
            limits[amount.resource] = USER
    if requests and options.queue is not None and _QUOTA_NOTE not in draft.notes:
        draft.notes.append(_QUOTA_NOTE)
    return PodAmounts(limits, requests)


@frozen
class _Amount:
    """The CPUs, or the memory, of a pod, and the option that states them, with its value.

    The job reserves ``least`` units, which are ``text`` as a quantity. ``of_node`` is what each node has; 0 if unknown.
    """

    resource: str
    option: str
    stated: str | None
    text: str
    least: int
    of_node: int


def _fewest_cpus(draft: Draft, group: PodGroup) -> int:
    """Return the CPUs that each node of a group has, 0 if the inventory does not know them all."""
    cpus = [draft.plan.inventory.node(node).cpus for node in group.nodes]
    known = [int(count) for count in cpus if count is not None]
    return min(known, default=0) if len(known) == len(cpus) else 0


def pod_spec(
    draft: Draft,
    container: str,
    env: Sequence[dict[str, Any]],
    asked: Mapping[str, Any],
    amounts: PodAmounts | None = None,
) -> dict[str, Any]:
    """Return a pod with the plan and shared memory mounted, which asks for these accelerators and amounts."""
    options = draft.options
    amounts = amounts or PodAmounts({"cpu": USER, "memory": USER}, {})
    mounts = [
        {"name": "rankplan", "mountPath": MOUNT, "readOnly": True},
        {"name": Default(MEMORY_VOLUME["name"]), "mountPath": SHARED_MEMORY},
    ]
    one = {
        "name": container,
        "image": options.image or USER,
        "command": USER,
        "env": [{"name": "RANKPLAN_PLAN", "value": PLAN_FILE}, *env],
        "resources": Optional(limits=Optional({**amounts.limits, **asked}), requests=Optional(amounts.requests)),
        "volumeMounts": mounts,
    }
    volumes = [{"name": "rankplan", "configMap": {"name": f"{options.name}-plan"}}, MEMORY_VOLUME]
    return {"containers": [one], "volumes": volumes}


def limits(draft: Draft, group: PodGroup) -> dict[str, Any]:
    """Return the accelerators of a pod by resource, and no others; an unknown resource is ``emit-resource-key``."""
    found: dict[str, Any] = {row.resource_key: ABSENT for row in VENDORS if row.resource_key is not None}
    if group.num_accelerators and (key := resource_key(draft, group.accelerator_type)) is not None:
        found = {key: str(group.num_accelerators), **{other: mark for other, mark in found.items() if other != key}}
    return found


def resource_key(draft: Draft, accelerator_type: str) -> str | None:
    """Return the resource that counts accelerators of a type; without one, the fault is ``emit-resource-key``."""
    row = vendor(accelerator_type)
    key = draft.options.resource_keys.get(accelerator_type) or (None if row is None else row.resource_key)
    if key is None:
        draft.refuse(faults.no_resource(accelerator_type))
    elif not _LABEL_KEY.fullmatch(key) or "/" not in key:
        draft.refuse(faults.no_device_plugin(key, accelerator_type))
    return key


def level_key(draft: Draft, level: str) -> str:
    """Return the node label of a level; one that is not the key of a label is ``emit-level-key``."""
    label = draft.options.levels.get(level, level)
    is_stated = level in draft.options.levels
    match = _LABEL_KEY.fullmatch(label)
    if match is None or not (is_stated or match["domain"]) or label.startswith(_NO_NODE_LABELS):
        draft.refuse(faults.no_node_label(level, label if is_stated else None))
    return label


def pod_requests(draft: Draft, groups: Sequence[PodGroup]) -> list[Requests]:
    """Return the topology requests of pod groups; pods that are pinned to hosts have none."""
    return [() for _ in groups] if draft.options.pin else requests(draft, [one.nodes for one in groups])


def kueue_annotations(draft: Draft, asked: Requests, pods: int) -> dict[str, str]:
    """Return Kueue's annotations for the slices of a pod set of so many pods; empty without a queue."""
    if draft.options.pin:
        return {}
    slices = [(level_key(draft, one.level), one.size) for one in asked]
    if draft.options.queue is None:
        if asked:
            draft.refuse(faults.no_queue([slice.level for slice in asked]))
        return {}
    if not slices:
        return {_UNCONSTRAINED: "true"} if level_order(draft) else {}
    found: dict[str, str] = {}
    if slices[0][1] == pods:
        found[_REQUIRED] = slices.pop(0)[0]
    if len(slices) > MOST_LAYERS:
        draft.refuse(faults.many_layers(len(slices), MOST_LAYERS))
    if len(slices) == 1:
        found |= {_SLICE_LEVEL: slices[0][0], _SLICE_SIZE: str(slices[0][1])}
    elif slices:
        layers = [{"topology": level, "size": size} for level, size in slices]
        found[_LAYERS] = json.dumps(layers, separators=(",", ":"))
    return found


def unconstrained(annotations: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the annotations of a pod set that has no wish, beside these of others."""
    return {_UNCONSTRAINED: "true"} if any(annotations) else {}


def check_hardware(draft: Draft) -> None:
    """Refuse components on robots and other configured hardware: pods choose no hosts."""
    for name, component in draft.plan.items():
        kinds = {run.pattern.resource_type for run in component.rows.runs()}
        for kind in sorted(kinds - {ACCELERATOR, WHOLE_NODE}):
            draft.refuse(faults.fixed_hardware(name, kind))


def check_name(draft: Draft, what: str, name: str, most: int, longest: str | None = None) -> None:
    """Refuse a name that Kubernetes refuses: ``longest`` is the longest one that is made from it, by default itself."""
    made = longest or name
    if not is_label(name.ljust(1)):
        draft.refuse(faults.no_label(what, name, most))
    elif len(made) > most:
        draft.refuse(faults.long_name(what, name, made, most))


def check_options(draft: Draft) -> None:
    """Refuse names of namespaces and queues that Kubernetes refuses."""
    options = draft.options
    for what, name in (("namespace", options.namespace), ("queue", options.queue)):
        if name is not None and (len(name) > 63 or not _NAME.fullmatch(name) or (what == "namespace" and "." in name)):
            draft.refuse(faults.no_kubernetes_name(what, name))


def check_pods(draft: Draft, groups: Sequence[PodGroup], pod_sets: int) -> None:
    """Refuse what no pods can hold: more pod sets than Kueue allows, nodes without the name to pin to."""
    if draft.options.queue is not None and pod_sets > MOST_POD_SETS:
        draft.refuse(faults.many_pod_sets(pod_sets, MOST_POD_SETS))
    if draft.options.pin and (unnamed := [group.nodes.start for group in groups if group.hostname is None]):
        draft.refuse(faults.no_pod_hostname(unnamed))

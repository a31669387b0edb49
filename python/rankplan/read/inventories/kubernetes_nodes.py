"""The nodes that Kubernetes shows: ``kubectl get nodes -o json``, or ``kubectl get nodes,pods -A -o json``; or YAML.

Source: the API of Kubernetes, ``NodeStatus`` and ``NodeSpec``; the labels of NVIDIA's and AMD's operators.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import Any, TypeGuard

from rankplan.accelerators import VENDORS
from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import read_text
from rankplan.kinds import KUBERNETES_NODES
from rankplan.nodes.topology.domains import RANK_LABELS
from rankplan.nodes.topology.sources import HOSTNAME, known_key
from rankplan.read.inventories.pod_requests import usage_of_pods
from rankplan.read.inventories.quantities import reservable
from rankplan.read.inventories.shown_nodes import ShownNode, beside_jobs
from rankplan.read.text.document import Document
from rankplan.words import natural, shown, whole_number

_LARGEST = 1 << 30
"""Kubernetes shows 10 to 30 KiB of each node."""
_MODELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name")
_SLICES = "nvidia.com/mig-"
_SICK = "node.kubernetes.io/"
"""The prefix of the taints that Kubernetes sets itself on nodes with a problem."""
_REPELLING = ("NoSchedule", "NoExecute")
"""The effects of taints that keep pods away."""
_CONTROL = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


def read_kubernetes_nodes(
    path: str | os.PathLike[str], keys: Collection[str] = (), *, ignore_jobs: bool = False
) -> list[ShownNode]:
    """Return the nodes of a file, in natural order of their names.

    Labels that tell where a node is are kept, and those with these ``keys``. A node is not healthy if it is not ready,
    cordoned, or tainted by Kubernetes for a problem; nodes of the control plane that take no jobs are left out. What
    the pods of the file request is left to them, unless ``ignore_jobs``. Raises `PlacementError` for any other file,
    ``OSError`` if it cannot be read.
    """
    file = os.fspath(path)
    nodes: dict[str, Mapping[str, Any]] = {}
    pods: dict[str, list[Mapping[str, Any]]] = {}
    for item in _items(file):
        if item.get("kind") == "Pod":
            pods.setdefault(str(_at(item, "spec", "nodeName")), []).append(item)
            continue
        name = _at(item, "metadata", "name")
        if not _is_text(name) or not name:
            raise _refusal(file, f"a node has the name {shown(name)}", KUBERNETES_NODES.help)
        if name in nodes:
            raise _refusal(file, f"node {shown(name)} is listed twice", "list each node once")
        nodes[name] = item
    if pods and not nodes:
        raise PlacementError([replace(KUBERNETES_NODES.fault({"kind": "Pod", "apiVersion": "v1"}), file=file)])
    shown_nodes = []
    for name in sorted(nodes, key=natural):
        node = nodes[name]
        taints = [taint for taint in _list(node, "spec", "taints") if taint.get("effect") in _REPELLING]
        if any(taint.get("key") in _CONTROL for taint in taints):
            continue
        entry = _entry(node, name, keys)
        in_use = None
        if not ignore_jobs:
            entry, in_use = beside_jobs(entry, usage_of_pods(pods.get(name, ()), _counted_keys(node)))
        problem = _problem(node, taints)
        if problem is not None:
            entry["healthy"] = False
        shown_nodes.append(ShownNode(name, entry, problem, in_use))
    if not shown_nodes:
        raise _refusal(file, "the file has no nodes that take jobs", KUBERNETES_NODES.help)
    return shown_nodes


def _items(file: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a file, which must be nodes, or pods beside them."""
    text = read_text(file, _LARGEST)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = Document(file, text).value()
    items = content.get("items") if isinstance(content, Mapping) and "items" in content else [content]
    for item in items if isinstance(items, list) else [items]:
        kind = item.get("kind", "Node") if isinstance(item, Mapping) and "metadata" in item else None
        if not isinstance(item, Mapping) or kind not in ("Node", "Pod"):
            raise PlacementError([replace(KUBERNETES_NODES.fault(item), file=file)])
        yield item


def _entry(node: Mapping[str, Any], name: str, keys: Collection[str]) -> dict[str, Any]:
    """Return the entry of a node. Its hostname is the one that it reports."""
    labels = _at(node, "metadata", "labels")
    labels = labels if isinstance(labels, Mapping) else {}
    addresses = _addresses(node)
    entry: dict[str, Any] = {"hostname": addresses.get("Hostname") or name}
    if "InternalIP" in addresses:
        entry["ip"] = addresses["InternalIP"]
    entry |= _accelerators(node, labels)
    entry |= _reservable(node)
    of_place: dict[str, str] = {}
    for key, value in labels.items():
        if _is_text(value) and key != HOSTNAME and (known_key(key) or key in RANK_LABELS or key in keys):
            of_place[key] = value
    if of_place:
        entry["labels"] = of_place
    return entry


def _addresses(node: Mapping[str, Any]) -> dict[Any, Any]:
    """Return the first address of each kind that a node reports."""
    addresses: dict[Any, Any] = {}
    for address in _list(node, "status", "addresses"):
        kind = address.get("type")
        text = address.get("address")
        if _is_text(kind) and _is_text(text):
            addresses.setdefault(kind, text)
    return addresses


def _amounts(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the amounts that jobs may have of a node, in Kubernetes' texts."""
    amounts = _at(node, "status", "allocatable")
    amounts = amounts if isinstance(amounts, Mapping) else _at(node, "status", "capacity")
    return amounts if isinstance(amounts, Mapping) else {}


def _reservable(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CPUs and the MiB of memory that Ray has in a pod with the whole node, where they are quantities.

    KubeRay rounds the CPUs of a pod up.
    """
    amounts = _amounts(node)
    entry = reservable(amounts.get("cpu"), amounts.get("memory"))
    if "cpus" in entry:
        entry["cpus"] = ceil(entry["cpus"])
    return entry


def _accelerators(node: Mapping[str, Any], labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return what jobs may have of a node: whole accelerators, or else parts of GPUs (MIG), counted one by one."""
    amounts, counted_keys = _amounts(node), _counted_keys(node)
    if not counted_keys:
        return {"accelerators": 0}
    accelerators = {"accelerators": sum(whole_number(amounts[key]) or 0 for key in counted_keys)}
    if counted_keys[0].startswith(_SLICES):
        name = {"accelerator_model": f"MIG {counted_keys[0].removeprefix(_SLICES)}"} if len(counted_keys) == 1 else {}
        return accelerators | name
    kind = next(row.accelerator_type for row in VENDORS if row.resource_key == counted_keys[0])
    model = next((labels[key] for key in _MODELS if _is_text(labels.get(key))), None)
    return {
        **accelerators,
        **({} if kind == "NV_GPU" else {"accelerator_type": kind}),
        **({"accelerator_model": model} if model else {}),
    }


def _counted_keys(node: Mapping[str, Any]) -> list[str]:
    """Return the keys of the amounts that count as accelerators of a node: that of a vendor, or else those of MIG."""
    amounts = _amounts(node)
    for row in VENDORS:
        if row.resource_key is not None and whole_number(amounts.get(row.resource_key, 0)):
            return [row.resource_key]
    return [str(key) for key, value in amounts.items() if str(key).startswith(_SLICES) and whole_number(value)]


def _problem(node: Mapping[str, Any], taints: list[Mapping[str, Any]]) -> str | None:
    """Return why a node must not be used, ``None`` if it may be."""
    ready = next((one for one in _list(node, "status", "conditions") if one.get("type") == "Ready"), None)
    if ready is not None and ready.get("status") != "True":
        reason = ready.get("reason")
        return f"not ready{f': {reason}' if _is_text(reason) and reason else ''}"
    if _at(node, "spec", "unschedulable") is True:
        return "cordoned"
    sick = next((one["key"] for one in taints if str(one.get("key")).startswith(_SICK)), None)
    return None if sick is None else sick.removeprefix(_SICK)


def _is_text(value: Any) -> TypeGuard[str]:
    """Return whether a value is a text that can be shown: JSON may escape lone surrogates."""
    return isinstance(value, str) and value.isprintable()


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _list(value: Any, *path: str) -> list[Mapping[str, Any]]:
    found = _at(value, *path)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _refusal(file: str, message: str, help: str) -> PlacementError:
    return PlacementError([Diagnostic("invalid-inventory", message, help, file=file)])

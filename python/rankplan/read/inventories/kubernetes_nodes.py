"""The nodes that Kubernetes shows: the output of ``kubectl get nodes -o json`` or ``-o yaml``.

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
from rankplan.read.inventories.quantities import reservable
from rankplan.read.text.document import Document
from rankplan.words import natural, shown, whole_number

_LARGEST = 1 << 30
"""Kubernetes shows 10 to 30 KiB of each node."""
_MODELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name")
_SLICES = "nvidia.com/mig-"
_SICK = "node.kubernetes.io/"
"""The prefix of the taints that Kubernetes sets itself on nodes with a problem."""
_CONTROL = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


def read_kubernetes_nodes(
    path: str | os.PathLike[str], keys: Collection[str] = ()
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return an entry of an inventory for each node, in natural order of the names, and why nodes are not healthy.

    Labels that tell where a node is are kept, and those with these ``keys``. A node is not healthy if it is not ready,
    cordoned, or tainted by Kubernetes for a problem; nodes of the control plane that take no jobs are left out. Raises
    `PlacementError` for any other file, ``OSError`` if it cannot be read.
    """
    file = os.fspath(path)
    entries: dict[str, dict[str, Any]] = {}
    problems: dict[str, str] = {}
    for node in _nodes(file):
        name = _at(node, "metadata", "name")
        if not _is_text(name) or not name:
            raise _refusal(file, f"a node has the name {shown(name)}", KUBERNETES_NODES.help)
        if name in entries:
            raise _refusal(file, f"node {shown(name)} is listed twice", "list each node once")
        taints = [one for one in _list(node, "spec", "taints") if one.get("effect") in ("NoSchedule", "NoExecute")]
        if not any(one.get("key") in _CONTROL for one in taints):
            entries[name] = _entry(node, name, keys)
            if (problem := _problem(node, taints)) is not None:
                problems[name] = problem
                entries[name]["healthy"] = False
    if not entries:
        raise _refusal(file, "the file has no nodes that take jobs", KUBERNETES_NODES.help)
    return [entries[name] for name in sorted(entries, key=natural)], problems


def _nodes(file: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a file, which must be nodes."""
    text = read_text(file, _LARGEST)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = Document(file, text).value()
    listed = content.get("items") if isinstance(content, Mapping) and "items" in content else [content]
    for one in listed if isinstance(listed, list) else [listed]:
        kind = one.get("kind", "Node") if isinstance(one, Mapping) and "metadata" in one else None
        if kind != "Node" or not isinstance(one, Mapping):
            raise PlacementError([replace(KUBERNETES_NODES.fault(one), file=file)])
        yield one


def _entry(node: Mapping[str, Any], name: str, keys: Collection[str]) -> dict[str, Any]:
    """Return the entry of a node. Its hostname is the one that it reports."""
    labels = _at(node, "metadata", "labels")
    labels = labels if isinstance(labels, Mapping) else {}
    addresses = [(one.get("type"), one.get("address")) for one in _list(node, "status", "addresses")]
    known = {kind: text for kind, text in reversed(addresses) if _is_text(kind) and _is_text(text)}
    entry: dict[str, Any] = {"hostname": known.get("Hostname") or name}
    if "InternalIP" in known:
        entry["ip"] = known["InternalIP"]
    entry |= _accelerators(node, labels)
    entry |= _reservable(node)
    kept = {
        key: value
        for key, value in labels.items()
        if _is_text(value) and key != HOSTNAME and (known_key(key) or key in RANK_LABELS or key in keys)
    }
    return entry | ({"labels": kept} if kept else {})


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
    amounts = _amounts(node)
    for row in VENDORS:
        if row.resource_key is not None and (count := whole_number(amounts.get(row.resource_key, 0)) or 0):
            model = next((labels[key] for key in _MODELS if _is_text(labels.get(key))), None)
            kind = {} if row.accelerator_type == "NV_GPU" else {"accelerator_type": row.accelerator_type}
            return {"accelerators": count, **kind, **({"accelerator_model": model} if model else {})}
    slices = {key: whole_number(value) or 0 for key, value in amounts.items() if str(key).startswith(_SLICES)}
    found = {key: count for key, count in slices.items() if count}
    if not found:
        return {"accelerators": 0}
    name = {"accelerator_model": f"MIG {next(iter(found)).removeprefix(_SLICES)}"} if len(found) == 1 else {}
    return {"accelerators": sum(found.values()), **name}


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

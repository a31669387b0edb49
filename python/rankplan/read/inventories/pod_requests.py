"""What the pods on a node request, as Kubernetes' scheduler counts it.

Source: ``PodRequests`` of ``k8s.io/component-helpers/resource``: the containers and sidecars of a pod together, or an
init container if it requests more; what the pod states for itself counts in their place; ``overhead`` comes on top.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from math import ceil
from typing import Any

from rankplan.read.inventories.quantities import quantity
from rankplan.read.inventories.shown_nodes import Usage
from rankplan.words import counted

_ENDED = ("Succeeded", "Failed")


def usage_of_pods(pods: Iterable[Mapping[str, Any]], accelerators: Collection[str]) -> Usage:
    """Return what the pods of a node hold. ``accelerators`` are the resources that count as such.

    Pods that have ended hold nothing.
    """
    total = Counter[str]()
    names = []
    for pod in pods:
        if _mapping(pod.get("status")).get("phase") in _ENDED:
            continue
        requests = _of_pod(_mapping(pod.get("spec")))
        total += requests
        if any(requests[key] for key in accelerators):
            names.append(_name(pod))
    return Usage(
        accelerators=ceil(sum(total[key] for key in accelerators)),
        cpus=ceil(total["cpu"]),
        memory=ceil(total["memory"] / 2**20),
        jobs=names[0] if len(names) == 1 else counted(len(names), "pod") if names else "pods",
    )


def _of_pod(spec: Mapping[str, Any]) -> Counter[str]:
    """Return the amounts that a pod requests."""
    running = Counter[str]()
    for container in _mappings(spec.get("containers")):
        running += _requests(container)
    most = Counter[str]()
    sidecars = Counter[str]()
    for container in _mappings(spec.get("initContainers")):
        if container.get("restartPolicy") == "Always":
            sidecars += _requests(container)
            most |= sidecars
        else:
            most |= _requests(container) + sidecars
    containers = (running + sidecars) | most
    return Counter({**containers, **_requests(spec)}) + _amounts(spec.get("overhead"))


def _requests(container: Mapping[str, Any]) -> Counter[str]:
    """Return the requests of a container. A limit without a request is a request."""
    resources = _mapping(container.get("resources"))
    return Counter({**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))})


def _amounts(value: Any) -> Counter[str]:
    amounts = {str(key): quantity(text) for key, text in _mapping(value).items()}
    return Counter({key: amount for key, amount in amounts.items() if amount})


def _name(pod: Mapping[str, Any]) -> str:
    metadata = _mapping(pod.get("metadata"))
    parts = [metadata.get("namespace"), metadata.get("name")]
    return "/".join(part for part in parts if isinstance(part, str) and part.isprintable() and part) or "a pod"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []

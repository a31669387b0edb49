"""The nodes that a Kubernetes file asks for: the pods of a RayCluster, a RayJob, a JobSet or a LeaderWorkerSet."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from typing import Any, TypeAlias

from rankplan._core import MAX_NODES
from rankplan.accelerators import VENDORS
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.files import beginning
from rankplan.read.inventories.quantities import quantity, reservable
from rankplan.read.text.manifest import Object, read_objects
from rankplan.words import must_be, whole_number

_Pods: TypeAlias = tuple[int, KeyPath, KeyPath | None]
"""A number of pods, and the paths of their spec and of the start parameters of Ray."""


class _Reader:
    """An object, and the faults of its numbers."""

    def __init__(self, started: Object) -> None:
        self.started = started
        self.faults: list[Diagnostic] = []

    def number(self, path: KeyPath, otherwise: int) -> int:
        """Return a number of the object; one that is missing is ``otherwise``."""
        value = self.started.at(*path)
        found = otherwise if value is None else whole_number(value)
        if found is None or not 0 <= found <= MAX_NODES:
            fault = must_be(path, value, "a whole number", "replace placeholders, and write a number")
            self.faults.append(self.started.located(path, fault))
            return 0
        return found

    def items(self, path: KeyPath) -> Iterator[KeyPath]:
        """Yield the path of each mapping in a list."""
        found = self.started.at(*path)
        for index, one in enumerate(found if isinstance(found, list) else ()):
            if isinstance(one, Mapping):
                yield (*path, index)

    def accelerators(self, spec: KeyPath, start: KeyPath | None) -> tuple[str | None, int]:
        """Return the type and the number of the accelerators of a pod: those that Ray is told, or else its limits."""
        kind, count = None, 0
        for container in self.items((*spec, "containers")):
            for row in VENDORS:
                for amounts in ("limits", "requests"):
                    path = (*container, "resources", amounts, row.resource_key or "")
                    if row.resource_key is not None and self.started.at(*path) is not None:
                        kind, count = row.accelerator_type, count + self.number(path, 0)
                        break
        if start is not None:
            count = self.number((*start, "num-gpus"), count)
        return (kind, count) if count else (None, 0)

    def reservable(self, spec: KeyPath, start: KeyPath | None) -> dict[str, Any]:
        """Return the CPUs and the memory of a pod: those that Ray is told, or else the limits of its first container.

        KubeRay rounds CPUs up for Ray, and takes requests where there are no limits.
        """
        container = next(self.items((*spec, "containers")), None)
        if container is None:
            return {}
        amounts = {}
        for name in ("cpu", "memory"):
            limit = self.started.at(*container, "resources", "limits", name)
            amounts[name] = self.started.at(*container, "resources", "requests", name) if limit is None else limit
        entry = reservable(amounts["cpu"], amounts["memory"])
        if start is not None and "cpus" in entry:
            entry["cpus"] = ceil(entry["cpus"])
        told = None if start is None else quantity(self.started.at(*start, "num-cpus"))
        if told is not None:
            entry["cpus"] = ceil(told)
        return entry


def _ray(reader: _Reader, spec: KeyPath) -> Iterator[_Pods]:
    """Yield the head, if it has accelerators, and the worker groups (KubeRay: ``RayClusterSpec``)."""
    head = (*spec, "headGroupSpec")
    template, start = (*head, "template", "spec"), (*head, "rayStartParams")
    if reader.accelerators(template, start)[1]:
        yield 1, template, start
    for group in reader.items((*spec, "workerGroupSpecs")):
        least = reader.number((*group, "minReplicas"), 0)
        pods = reader.number((*group, "replicas"), least) * max(1, reader.number((*group, "numOfHosts"), 1))
        yield pods, (*group, "template", "spec"), (*group, "rayStartParams")


def _job_set(reader: _Reader) -> Iterator[_Pods]:
    for job in reader.items(("spec", "replicatedJobs")):
        inner = (*job, "template", "spec")
        pods = reader.number((*job, "replicas"), 1) * reader.number((*inner, "parallelism"), 1)
        yield pods, (*inner, "template", "spec"), None


def _leader_worker_set(reader: _Reader) -> Iterator[_Pods]:
    template: KeyPath = ("spec", "leaderWorkerTemplate")
    size = reader.number((*template, "size"), 1)
    workers = (*template, "workerTemplate", "spec")
    leader = (*template, "leaderTemplate", "spec")
    replicas = reader.number(("spec", "replicas"), 1)
    if reader.started.at(*leader) is None:
        yield replicas * size, workers, None
        return
    for _ in range(replicas):
        yield min(size, 1), leader, None
        yield max(size - 1, 0), workers, None


_KINDS: dict[str, Callable[[_Reader], Iterator[_Pods]]] = {
    "RayCluster": lambda reader: _ray(reader, ("spec",)),
    "RayJob": lambda reader: _ray(reader, ("spec", "rayClusterSpec")),
    "JobSet": _job_set,
    "LeaderWorkerSet": _leader_worker_set,
}
_KIND = re.compile(rb"^kind: *['\"]?(%s)\b" % b"|".join(map(str.encode, _KINDS)), re.MULTILINE)
_LARGEST = 16 << 20


def read_pods(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return an inventory with a node for each pod that a file asks for, in the order of its groups.

    The head of Ray is a node if it has accelerators. ``None`` for a file without an object of these kinds. Raises
    `PlacementError` with every invalid number, ``OSError`` if the file cannot be read.
    """
    if _KIND.search(beginning(path, _LARGEST)) is None:
        return None
    started = next((one for one in read_objects(path) if one.kind in _KINDS), None)
    if started is None:
        return None
    reader = _Reader(started)
    entries: list[dict[str, Any]] = []
    first = 0
    for pods, spec, start in _KINDS[started.kind](reader):
        kind, count = reader.accelerators(spec, start)
        if first + pods > MAX_NODES:
            fault = must_be(("pods",), first + pods, f"at most {MAX_NODES:,}")
            reader.faults.append(started.located(("spec",), fault))
            break
        if pods:
            entry = {"accelerators": count, **({} if kind is None else {"accelerator_type": kind})}
            entry |= reader.reservable(spec, start)
            entries.append({"ranks": f"{first}-{first + pods - 1}", **entry})
            first += pods
    if not entries and not reader.faults:
        reader.faults.append(started.located(("spec",), _no_pods(started.kind)))
    if reader.faults:
        raise PlacementError(dict.fromkeys(reader.faults))
    return {"nodes": _joined(entries)}


def _no_pods(kind: str) -> Diagnostic:
    message = f"the {kind} has no pods, so there are no nodes"
    return Diagnostic("invalid-inventory", message, "write replicas, or pass the nodes with --nodes")


def _joined(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries with equal nodes together."""
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in entries:
        key = tuple(one.get(name) for name in ("accelerators", "accelerator_type", "cpus", "reservable_memory"))
        alike.setdefault(key, []).append(one)
    return [{**ones[0], "ranks": ",".join(one["ranks"] for one in ones)} for ones in alike.values()]

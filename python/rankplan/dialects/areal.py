"""AReaL: for each engine, its backend with its parallel sizes (``sglang:d4t2``), which give its number of GPUs.

Engines take consecutive GPUs in the order written, unless ``scheduling_strategy`` puts one on those of another. An
instance of an inference engine (sglang, vllm) is a process of tensor x pipeline size GPUs; training has one process per
GPU. The older ``allocation_mode`` names all engines: ``+`` puts them apart, ``|`` together.

mode       = allocation { ( "+" | "|" ) allocation }
allocation = backend [ "[" name "]" ] ":" ( dimensions | "(" "attn:" dimensions "|" "ffn:" dimensions ")" )
dimensions = { "d" | "t" | "p" | "c" | "e" number }          data, tensor, pipeline, context, expert

Follows AReaL's ``ModelAllocation.from_str`` and ``_AllocationMode.from_str`` (4aef98d).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Reader
from rankplan.dialects.keys import AREAL, AREAL_ENGINES
from rankplan.dialects.pools import Job, Pools
from rankplan.errors import Diagnostic, Label, PlacementError
from rankplan.parallel import ENGINE_ORDER, Parallel
from rankplan.plans.configured import ASSUMED
from rankplan.words import must_be, nearest, shown

__all__ = ["Allocation", "assumed_inventory", "parse_allocation", "parse_mode", "plan", "read"]

_CLUSTER: KeyPath = ("cluster",)
_MODE = "allocation_mode"
_INFERENCE = ("sglang", "vllm")
_BACKENDS = {"sglang": "dtp", "vllm": "dtp", "fsdp": "dtc", "megatron": "dtpce", "archon": "dtpce"}
"""Backends and the dimensions that each has; others must be 1."""

_HEAD = re.compile(r"\s*(?P<backend>[A-Za-z]*)\s*(?:\[\s*(?P<name>[A-Za-z_]\w*)\s*\]\s*)?:(?P<rest>.*)", re.DOTALL)
_HYBRID = re.compile(r"\s*(\(?)\s*attn\s*:(?P<attn>[^|]*)\|\s*ffn\s*:(?P<ffn>[^)]*)(\)?)\s*", re.DOTALL)
_NAMES = dict(zip("dtpce", ("dp", "tp", "pp", "cp", "ep"), strict=True))


class _Job(Job):
    """The nodes of an AReaL config, the allocation of each engine, and the engine whose GPUs it shares."""

    keys = AREAL

    def __init__(self, reader: Reader) -> None:
        self.nodes = reader.size((*_CLUSTER, "n_nodes"), 1)
        self.each = reader.size((*_CLUSTER, "n_gpus_per_node"), ASSUMED)
        self.engines: dict[str, tuple[Allocation, str | None, KeyPath]] = {}
        for name in reader.content:
            section = reader.content[name] if name in AREAL_ENGINES else None
            if isinstance(section, Mapping) and reader.at((name, "backend")):
                self._read_engine(reader, name)
        mode = reader.at((_MODE,))
        if mode and not self.engines:
            self._read_mode(reader, mode)
        if not self.engines and not reader.faults:
            message = "no engine has a `backend`, and there is no `allocation_mode`"
            reader.add((), Diagnostic("missing-key", message, "add backends: `actor: {backend: 'fsdp:d4'}`"))

    def _read_engine(self, reader: Reader, name: str) -> None:
        path, strategy = (name, "backend"), (name, "scheduling_strategy")
        text = reader.at(path)
        target = reader.at((*strategy, "target")) if reader.at((*strategy, "type")) == "colocation" else None
        if not isinstance(text, str):
            reader.add(path, must_be(path, text, "text", "write a backend such as fsdp:d4"))
            return
        try:
            allocation = parse_allocation(text)
        except PlacementError as error:
            reader.add_all(path, error)
            return
        if target is not None and target not in reader.content:
            fault = Diagnostic("invalid-value", f"unknown engine {shown(target)}", "name an engine of this config")
            reader.add((*strategy, "target"), fault)
        else:
            self.engines[name] = allocation, target, path

    def _read_mode(self, reader: Reader, mode: Any) -> None:
        try:
            for name, allocation, target in parse_mode(str(mode)):
                self.engines[name] = allocation, target, (_MODE,)
        except PlacementError as error:
            reader.add_all((_MODE,), error)

    def size(self) -> tuple[int, int]:
        """Return ``cluster.n_nodes`` and ``cluster.n_gpus_per_node``."""
        return self.nodes, self.each

    def place(self, pools: Pools) -> None:
        """Place a component for each engine."""
        reader, present, start = pools.reader, pools.free.left, 0
        resources: dict[str, range] = {}
        targets = {name: target for name, (_, target, _) in self.engines.items()}
        for name in sorted(self.engines, key=lambda name: targets[name] is not None):
            allocation, target, path = self.engines[name]
            if target is not None and target in resources:
                resources[name] = resources[target][: allocation.world]
                if len(resources[target]) != allocation.world:
                    message = f"{name} shares the {len(resources[target])} GPUs of {target}, but has {allocation.world}"
                    reader.add(path, Diagnostic("invalid-value", message, "give both the same number of GPUs"))
                continue
            resources[name] = range(start, start + allocation.world)
            if start + allocation.world > present:
                pools.too_many(path, name, allocation.world, present - start, "what is left")
            start += allocation.world
        reader.finish()
        for name, (allocation, _, path) in self.engines.items():
            share = pools.share(sum(resources[name][0] in taken for taken in resources.values()))
            pools.place(name, resources[name], path, allocation.each, parallel=allocation.parallel, share=share)


read, plan, assumed_inventory = _Job.read, _Job.plan, _Job.assumed_inventory


@dataclass(frozen=True, slots=True)
class Allocation:
    """A backend with its sizes; ``world`` is its number of GPUs, ``each`` those of a process."""

    backend: str
    name: str | None
    parallel: Parallel
    world: int
    each: int


def parse_allocation(text: str) -> Allocation:
    """Read the text of one engine. Raises `PlacementError` with every fault and its place in the text."""
    return _parse(text, 0, text)


def parse_mode(text: str) -> list[tuple[str, Allocation, str | None]]:
    """Read an ``allocation_mode``: each engine with its name, and the engine whose GPUs it shares, or ``None``.

    An engine without a name is ``rollout`` if its backend infers, else ``actor``. Raises `PlacementError`.
    """
    found: dict[str, tuple[str, Allocation, str | None]] = {}
    for start, group in _split(text, "+", 0):
        anchor: str | None = None
        for position, part in _split(group, "|", start):
            allocation = _parse(part, position, text)
            name = allocation.name or ("rollout" if allocation.backend in _INFERENCE else "actor")
            label = (Label(position, position + len(part)),)
            if name in found:
                message, help = f"two engines are named `{name}`", f"name them: {allocation.backend}[other]:..."
                raise PlacementError([Diagnostic("duplicate-component", message, help, label, text)])
            if anchor is not None and (shared := found[anchor][1].world) != allocation.world:
                message = f"`{name}` shares the {shared} GPUs of `{anchor}`, but has {allocation.world}"
                help = "give both the same number of GPUs, or separate them by `+`"
                raise PlacementError([Diagnostic("invalid-value", message, help, label, text)])
            found[name] = name, allocation, anchor
            anchor = anchor or name
    return list(found.values())


def _split(text: str, separator: str, start: int) -> list[tuple[int, str]]:
    """Return the parts of a text outside parentheses, with their offsets."""
    parts, depth, begin = list[tuple[int, str]](), 0, 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == separator and depth == 0:
            parts.append((start + begin, text[begin:index]))
            begin = index + 1
    return [*parts, (start + begin, text[begin:])]


def _parse(text: str, start: int, whole: str) -> Allocation:
    def fault(begin: int, end: int, message: str, help: str) -> PlacementError:
        label = Label(start + begin, start + max(end, begin + 1))
        return PlacementError([Diagnostic("invalid-value", message, help, (label,), whole)])

    head = _HEAD.fullmatch(text)
    if head is None:
        raise fault(0, len(text), "expected a backend and its sizes", "write a backend such as fsdp:d4 or sglang:d4t2")
    backend = head["backend"]
    if backend not in _BACKENDS:
        near = nearest(backend, _BACKENDS)
        help = f"did you mean `{near}`?" if near else f"use one of {', '.join(_BACKENDS)}"
        message = f"unknown backend `{backend}`" if backend else "the backend is missing"
        raise fault(head.start("backend"), head.end("backend"), message, help)
    hybrid = _HYBRID.fullmatch(head["rest"])
    offset = head.start("rest")
    if hybrid is not None and bool(hybrid[1]) != bool(hybrid[4]):
        raise fault(offset, len(text), "a parenthesis is missing", f"write {backend}:(attn:...|ffn:...)")
    stages: int | None = None
    if hybrid is None:
        parallel, experts = _sizes(head["rest"], start + offset, whole), None
    else:
        parallel = _sizes(hybrid["attn"], start + offset + hybrid.start("attn"), whole)
        experts = _sizes(hybrid["ffn"], start + offset + hybrid.start("ffn"), whole)
        stages = experts.pp if "p" in hybrid["ffn"] else parallel.pp  # of the same layers
    for letter, name in _NAMES.items():
        size = max(getattr(one, name) or 1 for one in (parallel, experts) if one is not None)
        if size > 1 and letter not in _BACKENDS[backend]:
            help = f"{backend} has {', '.join(_BACKENDS[backend])}"
            raise fault(offset, len(text), f"{backend} has no dimension `{letter}`", help)
    world = (parallel.dp or 1) * parallel.dense
    if experts is not None:
        other = (experts.dp or 1) * experts.tp * experts.pp * experts.ep
        other = other // experts.pp * (stages or 1)
        if experts.dp is None and world % other == 0:
            other = world
        if (other, stages) != (world, parallel.pp) or parallel.ep > 1 or experts.cp > 1:
            message = f"attn has {world} GPUs in {parallel.pp} stages, but ffn has {other} in {stages}"
            raise fault(offset, len(text), message, "give both the same number of GPUs and stages")
        parallel = replace(parallel, ep=experts.ep, etp=experts.tp)
    elif world % (parallel.ep * parallel.pp):
        message = f"expert size {parallel.ep} x pipeline size {parallel.pp} does not divide the {world} GPUs"
        raise fault(offset, len(text), message, "use a divisor, or more data or tensor parallelism")
    each = parallel.tp * parallel.pp if backend in _INFERENCE else 1
    parallel = replace(parallel, order=ENGINE_ORDER) if backend in _INFERENCE else parallel
    return Allocation(backend, head["name"], parallel, world, each)


def _sizes(text: str, start: int, whole: str) -> Parallel:
    try:
        return Parallel.parse(text)
    except PlacementError as error:
        moved = []
        for one in error.diagnostics:
            labels = tuple(Label(label.start + start, label.end + start) for label in one.labels)
            moved.append(replace(one, text=whole, labels=labels))
        raise PlacementError(moved) from None

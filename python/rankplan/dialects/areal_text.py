"""AReaL's allocation texts: ``backend[name]:dimensions``, alone, or joined by ``+`` (apart) and ``|`` (together).

allocation = backend [ "[" name "]" ] ":" ( dimensions | "(" "attn:" dimensions "|" "ffn:" dimensions ")" )
dimensions = { "d" | "t" | "p" | "c" | "e" number }          data, tensor, pipeline, context, expert
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rankplan.errors import Diagnostic, Label, PlacementError
from rankplan.parallel import ENGINE_ORDER, Parallel
from rankplan.words import nearest

INFERENCE = ("sglang", "vllm")
_BACKENDS = {"sglang": "dtp", "vllm": "dtp", "fsdp": "dtc", "megatron": "dtpce", "archon": "dtpce"}
"""Backends and the dimensions that each has; others must be 1."""

_HEAD = re.compile(r"\s*(?P<backend>[A-Za-z]*)\s*(?:\[\s*(?P<name>[A-Za-z_]\w*)\s*\]\s*)?:(?P<rest>.*)", re.DOTALL)
_HYBRID = re.compile(r"\s*(\(?)\s*attn\s*:(?P<attn>[^|]*)\|\s*ffn\s*:(?P<ffn>[^)]*)(\)?)\s*", re.DOTALL)
_NAMES = dict(zip("dtpce", ("dp", "tp", "pp", "cp", "ep"), strict=True))


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
    found: list[tuple[str, Allocation, str | None]] = []
    for start, group in _split(text, "+", 0):
        anchor: str | None = None
        for position, part in _split(group, "|", start):
            allocation = _parse(part, position, text)
            name = allocation.name or ("rollout" if allocation.backend in INFERENCE else "actor")
            label = (Label(position, position + len(part)),)
            if name in [other for other, _, _ in found]:
                message, help = f"two engines are named `{name}`", f"name them: {allocation.backend}[other]:..."
                raise PlacementError([Diagnostic("duplicate-component", message, help, label, text)])
            if anchor is not None and (shared := _world(found, anchor)) != allocation.world:
                message = f"`{name}` shares the {shared} GPUs of `{anchor}`, but has {allocation.world}"
                help = "give both the same number of GPUs, or separate them by `+`"
                raise PlacementError([Diagnostic("invalid-value", message, help, label, text)])
            found.append((name, allocation, anchor))
            anchor = anchor or name
    return found


def _world(found: list[tuple[str, Allocation, str | None]], name: str) -> int:
    return next(allocation.world for other, allocation, _ in found if other == name)


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
    extra = [letter for letter in _NAMES if letter not in _BACKENDS[backend]]
    for letter in extra:
        if max(getattr(one, _NAMES[letter]) or 1 for one in (parallel, experts) if one is not None) > 1:
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
    if backend in INFERENCE:
        return Allocation(
            backend, head["name"], replace(parallel, order=ENGINE_ORDER), world, parallel.tp * parallel.pp
        )
    return Allocation(backend, head["name"], parallel, world, 1)


def _sizes(text: str, start: int, whole: str) -> Parallel:
    try:
        parallel = Parallel.parse(text)
    except PlacementError as error:
        moved = [
            replace(
                one, text=whole, labels=tuple(Label(label.start + start, label.end + start) for label in one.labels)
            )
            for one in error.diagnostics
        ]
        raise PlacementError(moved) from None
    return parallel if parallel.dp is not None else replace(parallel, dp=None)

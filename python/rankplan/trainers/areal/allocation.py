"""The texts by which AReaL gives engines their backends and parallel sizes: ``sglang:d4t2``.

mode       = ( allocation | sizes ) { ( "+" | "|" ) ( allocation | sizes ) }
sizes      = [ "[" name "]" ":" ] dimensions | [ "(" ] attn "|" ffn [ ")" ]
allocation = backend [ "[" name "]" ] ":" dimensions | backend ":" [ "(" ] attn "|" ffn [ ")" ]
attn       = "attn" ":" dimensions
ffn        = "ffn" ":" dimensions
dimensions = { "d" | "t" | "p" | "c" | "e" number }          data, tensor, pipeline, context, expert

Follows ``ModelAllocation.from_str`` and ``_AllocationMode.from_str`` (4aef98d).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from rankplan import Diagnostic, Label, Parallel, PlacementError
from rankplan.sdk.words import nearest

__all__ = [
    "BACKENDS",
    "INFERENCE",
    "LETTERS",
    "Allocation",
    "ModeEngine",
    "omits_backend",
    "parse_allocation",
    "parse_mode",
    "with_colons",
]

INFERENCE = ("sglang", "vllm")
"""The backends of inference; the others train."""
BACKENDS = {"sglang": "dtp", "vllm": "dtp", "fsdp": "dtc", "megatron": "dtpce", "archon": "dtpce"}
"""Backends and the dimensions that each has; others must be 1."""

_KINDS = dict(zip("dtpce", ("dp", "tp", "pp", "cp", "ep"), strict=True))
LETTERS = {kind: letter for letter, kind in _KINDS.items()}
"""The letter of each size, by its kind."""

_HEAD = re.compile(r"\s*(?P<backend>[A-Za-z]*)\s*(?:\[\s*(?P<name>[A-Za-z_]\w*)\s*\]\s*)?:(?P<sizes>.*)", re.DOTALL)
_WITHOUT_BACKEND = re.compile(
    r"\s*(?:\[\s*(?P<name>[A-Za-z_]\w*)\s*\]\s*:)?(?P<sizes>\s*(?:[dtpce]\s*[0-9]+\s*)+|\s*\(?\s*attn\s*:.*)", re.DOTALL
)
"""Training without a backend, in a mode."""
_NEEDS_MEGATRON = re.compile("attn|[pe]\\s*0*(?:[2-9]|1[0-9])")
_HYBRID = re.compile(
    r"\s*(?P<opened>\(?)\s*attn\s*:(?P<attn>[^|]*)\|\s*ffn\s*:(?P<ffn>[^)]*)(?P<closed>\)?)\s*", re.DOTALL
)
_DOTTED = re.compile(r"([a-z]{4,})\.(?=[dtpce][0-9])")
_EXPERTS = re.compile(r"e\s*[0-9]+")
_APART, _TOGETHER = re.compile(r"\+"), re.compile(r"\|(?!\s*ffn\s*:)")


class Allocation(NamedTuple):
    """A backend with its sizes; ``world`` is its number of GPUs, ``each`` those of a process."""

    backend: str
    name: str | None
    parallel: Parallel
    world: int
    each: int


class ModeEngine(NamedTuple):
    """An engine of a mode: its name, its sizes, and the engine whose GPUs it shares, or ``None``."""

    name: str
    allocation: Allocation
    host: str | None


def parse_allocation(text: str) -> Allocation:
    """Read the text of one engine. Raises `PlacementError` with every fault and its place in the text."""
    return _with_backend(_Part(text, 0, text))


def parse_mode(text: str) -> list[ModeEngine]:
    """Read an ``allocation_mode``: its engines, in the order written.

    An engine without a name is ``rollout`` if its backend infers, else ``actor``; if another engine is named so,
    ``gen`` or ``train``, as ``_AllocationMode`` calls them. Raises `PlacementError`.
    """
    groups = []
    given_names = set()
    for group in _Part(text, 0, text).split(_APART):
        parsed = [(part, _parse_in_mode(part)) for part in group.split(_TOGETHER)]
        given_names |= {allocation.name for _, allocation in parsed}
        groups.append(parsed)
    engines: dict[str, ModeEngine] = {}
    for parsed in groups:
        host: str | None = None
        for part, allocation in parsed:
            name = allocation.name or _usual_name(allocation, given_names)
            if name in engines:
                message, help = f"two engines are named `{name}`", f"name them: {allocation.backend}[other]:..."
                raise part.fault(message, help, code="duplicate-component")
            if host is not None:
                _check_shared(part, name, allocation, engines[host])
            engines[name] = ModeEngine(name, allocation, host)
            host = host or name
    return list(engines.values())


def omits_backend(mode: str) -> bool:
    """Return whether an engine of a mode has no backend."""
    for group in _Part(mode, 0, mode).split(_APART):
        if any(_WITHOUT_BACKEND.fullmatch(part.text) for part in group.split(_TOGETHER)):
            return True
    return False


def with_colons(mode: str) -> str:
    """Return a mode of version 0.3 (``sglang.d4``) as later versions write it (``sglang:d4``)."""
    return _DOTTED.sub(r"\1:", mode)


def _usual_name(allocation: Allocation, given_names: set[str | None]) -> str:
    """Return the name of an engine of a mode that states none."""
    name, second_name = ("rollout", "gen") if allocation.backend in INFERENCE else ("actor", "train")
    return second_name if name in given_names else name


def _check_shared(part: _Part, name: str, allocation: Allocation, host: ModeEngine) -> None:
    """Raise the fault of an engine that shares the GPUs of another one, and has another number."""
    shared = host.allocation.world
    if shared != allocation.world:
        message = f"`{name}` shares the {shared} GPUs of `{host.name}`, but has {allocation.world}"
        raise part.fault(message, "give both the same number of GPUs, or separate them by `+`")


class _Part(NamedTuple):
    """A part of a whole text, which starts at a character of it."""

    text: str
    start: int
    whole: str

    def inner(self, begin: int, end: int) -> _Part:
        """Return characters of this part."""
        return _Part(self.text[begin:end], self.start + begin, self.whole)

    def group(self, match: re.Match[str], name: str) -> _Part:
        """Return a group of a match of this part."""
        return self.inner(*match.span(name))

    def split(self, separator: re.Pattern[str]) -> list[_Part]:
        """Return the parts between separators."""
        parts = []
        begin = 0
        for match in separator.finditer(self.text):
            parts.append(self.inner(begin, match.start()))
            begin = match.end()
        return [*parts, self.inner(begin, len(self.text))]

    def fault(self, message: str, help: str, *, code: str = "invalid-value") -> PlacementError:
        """Return the fault of this part; an empty one is marked by a character."""
        label = Label(self.start, self.start + max(len(self.text), 1))
        return PlacementError([Diagnostic(code, message, help, (label,), self.whole)])

    def sizes(self) -> Parallel:
        """Read the part as sizes."""
        try:
            return Parallel.parse(self.text)
        except PlacementError as error:
            moved = []
            for fault in error.diagnostics:
                labels = tuple(Label(label.start + self.start, label.end + self.start) for label in fault.labels)
                moved.append(replace(fault, text=self.whole, labels=labels))
            raise PlacementError(moved) from None


def _parse_in_mode(part: _Part) -> Allocation:
    """Read an engine of a mode. Without a backend it trains, and its sizes decide what with."""
    match = _WITHOUT_BACKEND.fullmatch(part.text)
    if match is None:
        return _with_backend(part)
    backend = "megatron" if _NEEDS_MEGATRON.search(match["sizes"]) else "fsdp"
    return _allocation(part, match, backend)


def _with_backend(part: _Part) -> Allocation:
    """Read an engine that states its backend."""
    match = _HEAD.fullmatch(part.text)
    if match is None:
        raise part.fault("expected a backend and its sizes", "write a backend such as fsdp:d4 or sglang:d4t2")
    backend = match["backend"]
    if backend not in BACKENDS:
        near = nearest(backend, BACKENDS)
        help = f"did you mean `{near}`?" if near else f"use one of {', '.join(BACKENDS)}"
        message = f"unknown backend `{backend}`" if backend else "the backend is missing"
        raise part.group(match, "backend").fault(message, help)
    return _allocation(part, match, backend)


def _allocation(part: _Part, match: re.Match[str], backend: str) -> Allocation:
    """Read the sizes of an engine whose backend is known."""
    sizes = part.group(match, "sizes")
    hybrid = _HYBRID.fullmatch(sizes.text)
    if hybrid is None:
        parallel = _uniform_sizes(sizes, backend)
    else:
        form = f"write {backend}:(attn:...|ffn:...)"
        if bool(hybrid["opened"]) != bool(hybrid["closed"]):
            raise sizes.fault("a parenthesis is missing", form)
        if match["name"]:
            raise part.group(match, "name").fault("an engine with attn and ffn sizes cannot have a name", form)
        parallel = _hybrid_sizes(sizes, hybrid, backend)
    world = (parallel.dp or 1) * parallel.dense
    each = 1
    if backend in INFERENCE:
        each = parallel.tp * parallel.pp
        parallel = replace(parallel, order=Parallel.ENGINE_ORDER)
    return Allocation(backend, match["name"], parallel, world, each)


def _uniform_sizes(text: _Part, backend: str) -> Parallel:
    """Read sizes that all layers have."""
    parallel = text.sizes()
    _check_dimensions(text, backend, parallel)
    world = (parallel.dp or 1) * parallel.dense
    if world % (parallel.ep * parallel.pp):
        message = f"expert size {parallel.ep} x pipeline size {parallel.pp} does not divide the {world} GPUs"
        match = _EXPERTS.search(text.text)
        place = text if match is None else text.inner(*match.span())
        raise place.fault(message, "use a divisor, or more data or tensor parallelism")
    return parallel


def _hybrid_sizes(text: _Part, match: re.Match[str], backend: str) -> Parallel:
    """Read the sizes of attention and of experts, which are two divisions of the same GPUs into the same stages."""
    attention = text.group(match, "attn").sizes()
    experts = text.group(match, "ffn").sizes()
    _check_dimensions(text, backend, attention, experts)
    stages = experts.pp if "p" in match["ffn"] else attention.pp
    world = (attention.dp or 1) * attention.dense
    experts_world = (experts.dp or 1) * experts.tp * experts.ep * stages
    if experts.dp is None and world % experts_world == 0:
        experts_world = world
    is_same = experts_world == world and stages == attention.pp
    if not is_same or attention.ep > 1 or experts.cp > 1:
        message = f"attn has {world} GPUs in {attention.pp} stages, but ffn has {experts_world} in {stages}"
        raise text.fault(message, "give both the same number of GPUs and stages")
    return replace(attention, ep=experts.ep, etp=experts.tp)


def _check_dimensions(text: _Part, backend: str, *sizes: Parallel) -> None:
    """Raise the fault of a dimension that the backend lacks."""
    for letter, kind in _KINDS.items():
        largest = max(getattr(parallel, kind) or 1 for parallel in sizes)
        if largest > 1 and letter not in BACKENDS[backend]:
            raise text.fault(f"{backend} has no dimension `{letter}`", f"{backend} has {', '.join(BACKENDS[backend])}")

"""AReaL: for each engine, its backend with its parallel sizes (``sglang:d4t2``), which give its number of GPUs.

Engines take consecutive GPUs in the order written, unless ``scheduling_strategy`` puts one on those of another. An
instance of an inference engine (sglang, vllm) is a process of tensor x pipeline size GPUs; training has one process per
GPU. An engine whose ``scheduling_spec`` asks for 0 GPUs runs on CPUs. The reference model of a PPO job starts only if
``actor.kl_ctl`` is above 0. The ``allocation_mode`` of versions before 1.0.3 names all engines: ``+`` puts them apart,
``|`` together; a critic and a reference model share the actor's GPUs. Without a backend, training has fsdp, or megatron
if a pipeline or expert size is above 1. ``sglang.d4`` is ``sglang:d4`` in version 0.3.

mode       = ( allocation | sizes ) { ( "+" | "|" ) ( allocation | sizes ) }
sizes      = [ "[" name "]" ":" ] dimensions | [ "(" ] attn "|" ffn [ ")" ]
allocation = backend [ "[" name "]" ] ":" dimensions | backend ":" [ "(" ] attn "|" ffn [ ")" ]
attn       = "attn" ":" dimensions
ffn        = "ffn" ":" dimensions
dimensions = { "d" | "t" | "p" | "c" | "e" number }          data, tensor, pipeline, context, expert

Follows AReaL's ``PPOTrainer.__init__``, ``DPOTrainer.__init__``, ``TrainController.initialize``,
``RolloutController.initialize``, ``ModelAllocation.from_str`` and ``_AllocationMode.from_str`` (4aef98d), and
``PPOTrainer.__init__`` (v1.0.0).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankplan._core import Short, Taken
from rankplan.dialects.placing.job import Job
from rankplan.dialects.placing.placer import Placer
from rankplan.dialects.tables import AREAL, AREAL_ENGINES
from rankplan.errors import Diagnostic, KeyPath, Label, PlacementError
from rankplan.parallel import ENGINE_ORDER, Parallel
from rankplan.read.components import ASSUMED
from rankplan.read.text.reader import Reader
from rankplan.words import counted, must_be, nearest, shown

__all__ = ["Allocation", "assumed_inventory", "node_order", "parse_allocation", "parse_mode", "plan", "read"]

_CLUSTER: KeyPath = ("cluster",)
_MODE = "allocation_mode"
_INFERENCE = ("sglang", "vllm")
_BACKENDS = {"sglang": "dtp", "vllm": "dtp", "fsdp": "dtc", "megatron": "dtpce", "archon": "dtpce"}
"""Backends and the dimensions that each has; others must be 1."""

_STARTED = ("actor", "critic", "ref", "teacher", "gen", "rollout")
"""The engines in the order in which they start: one can share the GPUs of an earlier one only."""

_SCHEDULER = ("scheduler", "type")
_KL = ("actor", "kl_ctl")
_KL_DEFAULT = 0.1

_HEAD = re.compile(r"\s*(?P<backend>[A-Za-z]*)\s*(?:\[\s*(?P<name>[A-Za-z_]\w*)\s*\]\s*)?:(?P<rest>.*)", re.DOTALL)
_BARE = re.compile(
    r"\s*(?:\[\s*(?P<name>[A-Za-z_]\w*)\s*\]\s*:)?(?P<rest>\s*(?:[dtpce]\s*[0-9]+\s*)+|\s*\(?\s*attn\s*:.*)", re.DOTALL
)
"""Training without a backend, in a mode."""
_DOTTED = re.compile(r"([a-z]{4,})\.(?=[dtpce][0-9])")
_FIRST = re.compile(r"m[0-9]|manual|heuristic")
"""What only the modes of the first AReaL have: a model size ``m``."""
_HYBRID = re.compile(r"\s*(\(?)\s*attn\s*:(?P<attn>[^|]*)\|\s*ffn\s*:(?P<ffn>[^)]*)(\)?)\s*", re.DOTALL)
_APART, _TOGETHER = re.compile(r"\+"), re.compile(r"\|(?!\s*ffn\s*:)")
_NAMES = dict(zip("dtpce", ("dp", "tp", "pp", "cp", "ep"), strict=True))
_LETTERS = {kind: letter for letter, kind in _NAMES.items()}


@dataclass(frozen=True, slots=True)
class _Engine:
    """An engine: its allocation, the engine whose GPUs it shares, the path of its backend, and whether it has GPUs.

    ``groups`` is AReaL's ``ray_placement_strategy``.
    """

    allocation: Allocation
    target: str | None
    path: KeyPath
    on_cpu: bool = False
    groups: str = "shared"

    @property
    def processes(self) -> int:
        return self.allocation.world // self.allocation.each


class _Job(Job):
    """The nodes of an AReaL config, and its engines in the order written."""

    name, keys = "areal", AREAL

    def __init__(self, reader: Reader) -> None:
        self.nodes = reader.size((*_CLUSTER, "n_nodes"), 1)
        self.each = reader.size((*_CLUSTER, "n_gpus_per_node"), ASSUMED, 0)
        self.engines: dict[str, _Engine] = {}
        sections = [name for name in reader.content if name in AREAL_ENGINES and _starts(reader, name)]
        stated = [name for name in sections if reader.at((*_section(reader, name), "backend")) is not None]
        mode = reader.at((_MODE,))
        if mode and not any(":" in str(reader.at((*_section(reader, name), "backend"))) for name in stated):
            self._read_mode(reader, str(mode), sections)
        elif stated:
            self._read_engines(reader, sections, set(stated))
        if not self.engines and not reader.faults:
            message = "no engine has a `backend`, and there is no `allocation_mode`"
            reader.add((), Diagnostic("missing-key", message, "add backends: `actor: {backend: 'fsdp:d4'}`"))

    def _read_engines(self, reader: Reader, names: Sequence[str], stated: Collection[str]) -> None:
        for name in names:
            if name in stated:
                self._read_engine(reader, name)
            elif "actor" in stated:  # an evaluation has an actor without a backend
                fault = Diagnostic("missing-key", f"`{name}` has no `backend`", "add one, such as fsdp:d4 or sglang:d4")
                reader.add((name,), fault)
        if not reader.faults:
            for name, engine in self.engines.items():
                if engine.target is not None:
                    self._check_target(reader, name, engine)
                elif reader.at(_SCHEDULER) == "slurm" and not engine.on_cpu:
                    self._check_whole_nodes(reader, name, engine)

    def _read_engine(self, reader: Reader, name: str) -> None:
        section = _section(reader, name)
        path, strategy = (*section, "backend"), (*section, "scheduling_strategy")
        text = reader.at(path)
        if not isinstance(text, str):
            reader.add(path, must_be(path, text, "text", "write a backend such as fsdp:d4"))
            return
        try:
            allocation = parse_allocation(text)
        except PlacementError as error:
            reader.add_all(path, error)
            return
        infers = "rollout" in section
        if name != "gen" and (allocation.backend in _INFERENCE) != infers:
            allowed = " or ".join(one for one in _BACKENDS if (one in _INFERENCE) == infers)
            message = f"the backend of `{name}` is {allocation.backend}; it must be {allowed}"
            reader.add(path, Diagnostic("invalid-value", message, f"write one such as {allowed.split()[-1]}:d4"))
        target = reader.at((*strategy, "target")) if reader.at((*strategy, "type")) == "colocation" else None
        self.engines[name] = _Engine(allocation, target, path, _on_cpu(reader, name), _groups(reader, name))

    def _check_target(self, reader: Reader, name: str, engine: _Engine) -> None:
        """Record the fault of a target that has no workers yet, or another number of them (``create_workers``)."""
        path, target = (name, "scheduling_strategy", "target"), self.engines.get(str(engine.target))
        if target is None:
            known = "name an engine of this config that starts"
            reader.add(path, Diagnostic("invalid-value", f"unknown engine {shown(engine.target)}", known))
        elif _STARTED.index(str(engine.target)) >= _STARTED.index(name):
            message = f"`{name}` shares the GPUs of `{engine.target}`, which starts after it"
            help = f"remove it here, and set it for `{engine.target}` with the target {name}"
            reader.add(path, Diagnostic("invalid-value", message, help))
        elif target.processes != engine.processes and not (
            name == "rollout" and target.allocation.world == engine.allocation.world  # (RolloutController, cbff54d)
        ):
            has, other = (counted(one.processes, "process", "processes") for one in (engine, target))
            message = f"`{name}` has {has}, but shares the GPUs of the {other} of `{engine.target}`"
            reader.add(engine.path, Diagnostic("invalid-value", message, "give both the same number of processes"))

    def _check_whole_nodes(self, reader: Reader, name: str, engine: _Engine) -> None:
        """Record the fault of a part of a node, which Slurm cannot allocate (``_generate_sbatch_script``)."""
        world = engine.allocation.world
        if self.each and world % self.each:
            below = world // self.each * self.each
            message = f"`{name}` has {counted(world, 'GPU')}, but Slurm allocates whole nodes of {self.each}"
            help = f"use {' or '.join(str(count) for count in (below, below + self.each) if count)}"
            reader.add(engine.path, Diagnostic("not-multiple", message, help))

    def _read_mode(self, reader: Reader, mode: str, sections: Collection[str]) -> None:
        """Read the engines of versions before 1.0.3, whose trainer gives every model the training's GPUs."""
        if _FIRST.search(mode) or "actor_train" in reader.content:
            message = "this is a config of AReaL before 0.3.1 (`realhf`), which rankplan does not read"
            help = "write the sections of AReaL's PPOTrainer: rollout, actor and ref, each with a `backend`"
            reader.add((_MODE,), Diagnostic("unknown-key", message, help))
            return
        try:
            engines = parse_mode(_DOTTED.sub(r"\1:", mode))
        except PlacementError as error:
            reader.add_all((_MODE,), error)
            return
        bare = any(
            _BARE.fullmatch(part) for _, group in _split(_APART, mode, 0) for _, part in _split(_TOGETHER, group, 0)
        )
        if bare and reader.at(_SCHEDULER) is not None:
            message = "with `scheduler.type`, AReaL 1.0.3 and later read the `backend` of each engine, not this"
            help = (
                "write `rollout: {backend: ...}` and `actor: {backend: ...}`; for an older AReaL, remove scheduler.type"
            )
            reader.add((_MODE,), Diagnostic("missing-key", message, help))
            return
        for name, allocation, target in engines:
            self.engines[name] = _Engine(allocation, target, (_MODE,))
        if (actor := self.engines.get("actor")) is not None:
            for name in [one for one in ("critic", "ref") if one in sections and one not in self.engines]:
                self.engines[name] = replace(actor, target="actor")

    def size(self) -> tuple[int, int]:
        """Return ``cluster.n_nodes`` and ``cluster.n_gpus_per_node``."""
        return self.nodes, self.each

    def place(self, placer: Placer) -> None:
        """Place a component for each engine."""
        resources: dict[str, Taken] = {}
        for name, engine in self.engines.items():
            if engine.target is None and not engine.on_cpu:
                resources[name] = self._taken(placer, name, engine)
        placer.reader.finish()
        for name in sorted(resources, key=self._start):
            self._ask(placer, name, resources[name])
        for name in sorted(self.engines, key=self._start):
            if (target := self.engines[name].target) in resources:
                shared = resources[str(target)]
                resources[name] = shared.slice(0, min(self.engines[name].allocation.world, len(shared)))
        users = Counter(taken.first for taken in resources.values())
        for name, engine in self.engines.items():
            if name not in resources:
                placer.without_accelerators(name, engine.processes, engine.path)
                continue
            taken, allocation = resources[name], engine.allocation
            placer.component(
                name,
                taken,
                engine.path,
                allocation.each,
                sizes=allocation.parallel,
                share=placer.share(users[taken.first]),
                facts={"backend": allocation.backend},
            )
            placer.reader.size_letters[engine.path] = _LETTERS

    def _taken(self, placer: Placer, name: str, engine: _Engine) -> Taken:
        """Take the GPUs of an engine; pinned, in whole steps: no node may split a bundle of several."""
        allocation, left = engine.allocation, "what is left"
        if not placer.pinned:
            return placer.take(allocation.world, name, engine.path, node_by_node=True, of=left)
        if allocation.backend not in _INFERENCE:
            shared = [one.allocation for one in self.engines.values() if one.target == name]
            parallels = [one.parallel for one in (allocation, *shared)]
            whole = {size for one in parallels for size in (one.tp, one.tp * one.cp)}
            return placer.take(allocation.world, name, engine.path, whole=whole, of=left)

        def torn(short: Short) -> Diagnostic:
            message = f"a process of `{name}` needs {short.size} GPUs of one node; {short.free} are free, but no node "
            help = "use a smaller tensor or pipeline size, or nodes with more GPUs"
            return Diagnostic("spans-nodes", f"{message}has that many", help)

        return placer.bundles(allocation.world, self._bundles(engine), name, engine.path, torn, of=left)

    def _bundles(self, engine: _Engine) -> list[int]:
        """Return the bundles of a process: one, or if deferred, one a node (``_create_bundle_specs_split``)."""
        each, per_node = engine.allocation.each, self.each
        if engine.groups != "deferred" or not 0 < per_node < each:
            return [each]
        return [min(per_node, each - start) for start in range(0, each, per_node)]

    def _ask(self, placer: Placer, name: str, taken: Taken) -> None:
        """Record the requests for an engine's GPUs: one group with all workers, or one for each."""
        engine = self.engines[name]
        each = engine.allocation.each
        if engine.groups == "shared" and engine.allocation.backend not in _INFERENCE:
            placer.ask(name, taken, bundles=[each])
        else:
            placer.ask(name, taken, bundles=self._bundles(engine), per_group=each)

    @staticmethod
    def _start(name: str) -> int:
        return _STARTED.index(name) if name in _STARTED else len(_STARTED)


def _starts(reader: Reader, name: str) -> bool:
    """Return whether the trainer starts an engine that has a section (``PPOTrainer.__init__``).

    A reference model needs ``actor.kl_ctl`` above 0, except without a rollout (``DPOTrainer.__init__``).
    """
    if not isinstance(reader.content[name], Mapping):
        return False
    if name != "ref" or not isinstance(reader.content.get("rollout"), Mapping):
        return True
    return reader.coefficient(_KL, _KL_DEFAULT) > 0


def _section(reader: Reader, name: str) -> KeyPath:
    """Return the section of an engine; that of a teacher may be inside its own (``TeacherConfig``, cbff54d)."""
    if name != "teacher" or reader.at((name, "backend")) is not None:
        return (name,)
    kind = reader.at((name, "engine_type")) or "rollout"
    return (name, str(kind)) if isinstance(reader.at((name, str(kind))), Mapping) else (name,)


def _on_cpu(reader: Reader, name: str) -> bool:
    """Return whether the workers of an engine ask for no GPU (``RolloutController.initialize``)."""
    gpus: Any = reader.value(_spec(reader, name), "gpu", (name, "scheduling_spec"))
    return bool(gpus == 0)


def _groups(reader: Reader, name: str) -> str:
    """Return how the workers of an engine are divided into placement groups (``_get_placement_strategy``)."""
    return str(reader.value(_spec(reader, name), "ray_placement_strategy", (name, "scheduling_spec")) or "shared")


def _spec(reader: Reader, name: str) -> Mapping[Any, Any]:
    specs = reader.at((*_section(reader, name), "scheduling_spec"))
    first = specs[0] if isinstance(specs, Sequence) and not isinstance(specs, str) and specs else specs
    return first if isinstance(first, Mapping) else {}


read, plan, assumed_inventory, node_order = _Job.read, _Job.plan, _Job.assumed_inventory, _Job.order


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

    An engine without a name is ``rollout`` if its backend infers, else ``actor``; if another engine is named so,
    ``gen`` or ``train``, as ``_AllocationMode`` calls them. Raises `PlacementError`.
    """
    groups = [
        [(_parse(part, at, text, bare=True), Label(at, at + len(part))) for at, part in _split(_TOGETHER, group, start)]
        for start, group in _split(_APART, text, 0)
    ]
    given = {allocation.name for group in groups for allocation, _ in group}
    found: dict[str, tuple[str, Allocation, str | None]] = {}
    for parts in groups:
        anchor: str | None = None
        for allocation, label in parts:
            defaults = ("rollout", "gen") if allocation.backend in _INFERENCE else ("actor", "train")
            name = allocation.name or defaults[defaults[0] in given]
            if name in found:
                message, help = f"two engines are named `{name}`", f"name them: {allocation.backend}[other]:..."
                raise PlacementError([Diagnostic("duplicate-component", message, help, (label,), text)])
            if anchor is not None and (shared := found[anchor][1].world) != allocation.world:
                message = f"`{name}` shares the {shared} GPUs of `{anchor}`, but has {allocation.world}"
                help = "give both the same number of GPUs, or separate them by `+`"
                raise PlacementError([Diagnostic("invalid-value", message, help, (label,), text)])
            found[name] = name, allocation, anchor
            anchor = anchor or name
    return list(found.values())


def _split(separator: re.Pattern[str], text: str, start: int) -> list[tuple[int, str]]:
    """Return the parts of a text between separators, with their offsets."""
    ends = [0, *(end for found in separator.finditer(text) for end in found.span()), len(text)]
    return [(start + begin, text[begin:end]) for begin, end in zip(ends[::2], ends[1::2], strict=True)]


def _parse(text: str, start: int, whole: str, *, bare: bool = False) -> Allocation:
    def fault(begin: int, end: int, message: str, help: str) -> PlacementError:
        label = Label(start + begin, start + max(end, begin + 1))
        return PlacementError([Diagnostic("invalid-value", message, help, (label,), whole)])

    head = _BARE.fullmatch(text) if bare else None
    folded = head is not None and re.search("attn|[pe]\\s*0*(?:[2-9]|1[0-9])", head["rest"])
    backend = "megatron" if folded else "fsdp"
    if head is None:
        head = _HEAD.fullmatch(text)
        if head is None:
            help = "write a backend such as fsdp:d4 or sglang:d4t2"
            raise fault(0, len(text), "expected a backend and its sizes", help)
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
    if hybrid is not None and head["name"]:
        message, help = "an engine with attn and ffn sizes cannot have a name", f"write {backend}:(attn:...|ffn:...)"
        raise fault(head.start("name"), head.end("name"), message, help)
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
        place = re.search(r"e\s*[0-9]+", text[offset:])
        begin, end = place.span() if place is not None else (0, len(text) - offset)
        raise fault(offset + begin, offset + end, message, "use a divisor, or more data or tensor parallelism")
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

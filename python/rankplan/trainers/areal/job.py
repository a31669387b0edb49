"""AReaL: for each engine, its backend with its parallel sizes (``sglang:d4t2``), which give its number of GPUs.

Engines take consecutive GPUs in the order written, unless ``scheduling_strategy`` puts one on those of another. An
instance of an inference engine (sglang, vllm) is a process of tensor x pipeline size GPUs; training has one process per
GPU. An engine whose ``scheduling_spec`` asks for 0 GPUs runs on CPUs. The reference model of a PPO job starts only if
``actor.kl_ctl`` is above 0. The ``allocation_mode`` of versions before 1.0.3 names all engines: ``+`` puts them apart,
``|`` together; a critic and a reference model share the actor's GPUs. Without a backend, training has fsdp, or megatron
if a pipeline or expert size is above 1. ``sglang.d4`` is ``sglang:d4`` in version 0.3. The grammar of both is in
`rankplan.trainers.areal.allocation`.

Follows AReaL's ``PPOTrainer.__init__``, ``DPOTrainer.__init__``, ``TrainController.initialize`` and
``RolloutController.initialize`` (4aef98d), and ``PPOTrainer.__init__`` (v1.0.0).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rankplan import Actors, Diagnostic, PlacementError
from rankplan.sdk import Config, Job, Placer, Sizes, Taken, Where, must_be
from rankplan.sdk.placing import Short
from rankplan.sdk.words import whole_number
from rankplan.trainers.areal import faults, keys
from rankplan.trainers.areal.allocation import (
    BACKENDS,
    INFERENCE,
    LETTERS,
    Allocation,
    omits_backend,
    parse_allocation,
    parse_mode,
    with_colons,
)

_STARTED = ("actor", "critic", "ref", "teacher", "gen", "rollout")
"""The engines in the order in which they start: one can share the GPUs of an earlier one only."""

_LEFT = "what is left"

_MOST = 1_000_000
"""The most CPUs or GiB of a worker that are believed."""
_USUAL_CPUS, _USUAL_GIBIBYTES = 8, 32
"""``cpu`` and ``mem`` of a ``SchedulingSpec`` by default."""

_FIRST_MODE = re.compile(r"m[0-9]|manual|heuristic")
"""What only the modes of the first AReaL have: a model size ``m``."""


class _Engine(NamedTuple):
    """An engine: its allocation, and how it gets its GPUs.

    ``where`` is the place of its allocation. ``host`` is the engine whose GPUs it shares, and ``host_where`` the place
    that says so. ``grouping`` is AReaL's ``ray_placement_strategy``. ``cpus`` and
    ``memory`` (MiB) are what it asks for with each GPU, or without GPUs, for each process; ``None`` is unknown.
    """

    allocation: Allocation
    where: Where
    host: str | None = None
    host_where: Where | None = None
    on_cpu: bool = False
    grouping: str = "shared"
    cpus: float | None = None
    memory: int | None = None

    @property
    def processes(self) -> int:
        """The number of its processes."""
        return self.allocation.world // self.allocation.each

    @property
    def infers(self) -> bool:
        """Whether its backend is one of inference."""
        return self.allocation.backend in INFERENCE

    @property
    def sizes(self) -> Sizes:
        """Its parallel sizes, which one text states."""
        return Sizes(self.allocation.parallel, self.where, letters=LETTERS)


class ArealJob(Job):
    """The nodes of an AReaL config, and its engines in the order written."""

    def __init__(self, config: Config) -> None:
        self.nodes = config[keys.NODES]
        self.gpus_per_node = config[keys.GPUS_PER_NODE]
        self.engines: dict[str, _Engine] = {}
        sections = _started_sections(config)
        backends = [str(section.raw(keys.BACKEND)) for section in sections.values() if section.stated(keys.BACKEND)]
        mode = config[keys.MODE]
        if mode and not any(":" in backend for backend in backends):
            self._read_mode(config, mode, sections)
        elif backends:
            self._read_engines(config, sections)
        if not self.engines and not config.faults:
            config.faults.add(config.place, faults.no_engines())

    def _read_engines(self, config: Config, sections: Mapping[str, Config]) -> None:
        """Read the engines that have sections, and check that they can start."""
        has_actor = "actor" in sections and sections["actor"].stated(keys.BACKEND)
        for name, section in sections.items():
            if section.stated(keys.BACKEND):
                self._read_engine(name, section)
            elif has_actor:  # an evaluation has an actor without a backend
                config.faults.add(config.under(name).place, faults.no_backend(name))
        if config.faults:
            return
        scheduler = config[keys.SCHEDULER]
        is_slurm = scheduler == "slurm"
        if scheduler in ("slurm", "local"):
            self.not_on_ray = config.where(keys.SCHEDULER).locate(faults.own_scheduler(scheduler))
        for name, engine in self.engines.items():
            if engine.host is not None:
                self._check_host(config, name, engine)
            elif is_slurm and not engine.on_cpu:
                self._check_whole_nodes(config, name, engine)

    def _read_engine(self, name: str, config: Config) -> None:
        """Read an engine from its section."""
        where = config.where(keys.BACKEND)
        text = config.raw(keys.BACKEND)
        if not isinstance(text, str):
            fault = must_be(config.path(keys.BACKEND), text, "text", "write a backend such as fsdp:d4")
            config.faults.add(where, fault)
            return
        try:
            allocation = parse_allocation(text)
        except PlacementError as error:
            config.faults.add_all(where, error)
            return
        must_infer = _must_infer(name, config)
        if must_infer is not None and must_infer != (allocation.backend in INFERENCE):
            allowed = [backend for backend in BACKENDS if (backend in INFERENCE) == must_infer]
            config.faults.add(where, faults.wrong_backend(name, allocation.backend, allowed))
        scheduling = _scheduling(config)
        cpus = memory = None
        if config[keys.SCHEDULER] != "local":  # that one starts processes without Ray, and compares no amounts
            cpus = _amount(config.entry(keys.SCHEDULING, scheduling, "cpu"), _USUAL_CPUS)
            memory = _mebibytes(_amount(config.entry(keys.SCHEDULING, scheduling, "mem"), _USUAL_GIBIBYTES))
        self.engines[name] = _Engine(
            allocation,
            where,
            config[keys.TARGET] if config[keys.STRATEGY] == "colocation" else None,
            config.where(keys.TARGET),
            on_cpu=config.entry(keys.SCHEDULING, scheduling, "gpu") == 0,
            grouping=str(config.entry(keys.SCHEDULING, scheduling, "ray_placement_strategy") or "shared"),
            cpus=cpus,
            memory=memory,
        )

    def _check_host(self, config: Config, name: str, engine: _Engine) -> None:
        """Record the fault of a host that has no workers yet, or another number of them (``create_workers``)."""
        host_name = str(engine.host)
        where = engine.host_where or engine.where
        if host_name not in self.engines:
            config.faults.add(where, faults.unknown_host(engine.host))
            return
        host = self.engines[host_name]
        if _start(host_name) >= _start(name):
            config.faults.add(where, faults.host_starts_later(name, host_name))
        elif not _may_share(name, engine, host):
            fault = faults.other_processes(name, engine.processes, host_name, host.processes)
            config.faults.add(engine.where, fault)

    def _check_whole_nodes(self, config: Config, name: str, engine: _Engine) -> None:
        """Record the fault of a part of a node, which Slurm cannot allocate (``_generate_sbatch_script``)."""
        world, each = engine.allocation.world, self.gpus_per_node
        if each > 0 and world % each != 0:
            config.faults.add(engine.where, faults.part_of_node(name, world, each))

    def _read_mode(self, config: Config, text: str, sections: Collection[str]) -> None:
        """Read the engines of versions before 1.0.3, whose trainer gives every model the training's GPUs."""
        if _FIRST_MODE.search(text) or config.stated(keys.FIRST_AREAL):
            config.faults.refuse(config.key_place(keys.MODE), faults.first_areal())
        where = config.where(keys.MODE)
        try:
            engines = parse_mode(with_colons(text))
        except PlacementError as error:
            is_name = error.code == "duplicate-component"  # a fault of the whole mode
            config.faults.add_all(config.key_place(keys.MODE) if is_name else where, error)
            return
        if omits_backend(text) and config.stated(keys.SCHEDULER):
            config.faults.add(where, faults.mode_not_read())
            return
        for engine in engines:
            self.engines[engine.name] = _Engine(engine.allocation, where, engine.host)
        if "actor" not in self.engines:
            return
        for name in sections:
            if name in ("critic", "ref") and name not in self.engines:
                self.engines[name] = self.engines["actor"]._replace(host="actor")

    def size(self) -> tuple[int, int]:
        """Return ``cluster.n_nodes`` and ``cluster.n_gpus_per_node``."""
        return self.nodes, self.gpus_per_node

    def place(self, placer: Placer) -> None:
        """Place a component for each engine."""
        resources = self._take_all(placer)
        placer.finish()
        for name in sorted(resources, key=_start):
            self._ask(placer, name, resources[name])
        self._share(resources)
        users = Counter(taken.first for taken in resources.values())
        for name, engine in self.engines.items():
            if name in resources:
                taken, allocation = resources[name], engine.allocation
                share = placer.share(users[taken.first])
                facts = {"backend": allocation.backend}
                placer.component(
                    name, taken, engine.where, allocation.each, sizes=engine.sizes, share=share, facts=facts
                )
            else:
                placer.without_accelerators(name, engine.processes, engine.where)
                if engine.host is None and (engine.cpus, engine.memory) != (None, None):
                    placer.hold(Actors(name, engine.processes, engine.cpus, engine.memory))

    def _take_all(self, placer: Placer) -> dict[str, Taken]:
        """Take the GPUs of each engine that has its own; the engines are in the order written."""
        own = {name: engine for name, engine in self.engines.items() if engine.host is None and not engine.on_cpu}
        steps = {name: self._steps(name, engine) for name, engine in own.items()}
        resources = {name: self._take(placer, name, own[name]) for name in placer.in_turn(steps)}
        return {name: resources[name] for name in own}

    def _take(self, placer: Placer, name: str, engine: _Engine) -> Taken:
        """Take the GPUs of an engine; pinned, in whole steps: no node may split a bundle of several."""
        world = engine.allocation.world
        users = [name, *(guest for guest, other in self.engines.items() if other.host == name)]
        if not placer.pinned:
            return placer.take(world, name, engine.where, node_by_node=True, of=_LEFT, users=users)
        if not engine.infers:
            steps = self._steps(name, engine)
            return placer.take(world, name, engine.where, whole=steps, of=_LEFT, users=users)

        def lacking(short: Short) -> Diagnostic:
            return faults.no_node_for_process(name, short)

        return placer.bundles(world, self._bundles(engine), name, engine.where, lacking, of=_LEFT, users=users)

    def _steps(self, name: str, engine: _Engine) -> set[int]:
        """Return the sizes of the groups of an engine and of those that share its GPUs; or of its bundles."""
        if engine.infers:
            return set(self._bundles(engine))
        users = [engine, *(guest for guest in self.engines.values() if guest.host == name)]
        steps = set()
        for user in users:
            sizes = user.allocation.parallel
            steps |= {sizes.tp, sizes.tp * sizes.cp}
        return steps

    def _bundles(self, engine: _Engine) -> list[int]:
        """Return the bundles of a process: one, or if deferred, one a node (``_create_bundle_specs_split``)."""
        each, per_node = engine.allocation.each, self.gpus_per_node
        if engine.grouping != "deferred" or not 0 < per_node < each:
            return [each]
        return [min(per_node, each - start) for start in range(0, each, per_node)]

    def _ask(self, placer: Placer, name: str, taken: Taken) -> None:
        """Record the requests for an engine's GPUs: one group with all workers, or one for each."""
        engine = self.engines[name]
        each = engine.allocation.each
        if engine.grouping == "shared" and not engine.infers:
            placer.ask(name, taken, bundles=[each], cpus=engine.cpus, memory=engine.memory)
        else:
            bundles = self._bundles(engine)
            placer.ask(name, taken, bundles=bundles, per_group=each, cpus=engine.cpus, memory=engine.memory)

    def _share(self, resources: dict[str, Taken]) -> None:
        """Give the engines that share GPUs those of their hosts, which start before them."""
        for name in sorted(self.engines, key=_start):
            engine = self.engines[name]
            if engine.host in resources:
                shared = resources[str(engine.host)]
                resources[name] = shared.slice(0, min(engine.allocation.world, len(shared)))


def _started_sections(config: Config) -> dict[str, Config]:
    """Return the sections of the engines that the trainer starts (``PPOTrainer.__init__``), in the order written.

    A reference model needs ``actor.kl_ctl`` above 0, except without a rollout (``DPOTrainer.__init__``).
    """
    written = config.section
    sections = {}
    started = ("rollout",) if _generates_only(config) else keys.ENGINES
    for name in written:
        if name not in started or not isinstance(written[name], Mapping):
            continue
        needs_coefficient = name == "ref" and isinstance(written.get("rollout"), Mapping)
        if not needs_coefficient or config[keys.KL_COEFFICIENT] > 0:
            sections[name] = _section(config, name)
    return sections


def _generates_only(config: Config) -> bool:
    """Return whether a config is of a program that starts a ``RolloutControllerV2`` alone.

    These are ``examples/experimental/inference_service/*_rollout.py`` (4aef98d), whose configs have their names.
    """
    names = (config.program.rpartition(".")[2], Path(config.file).stem)
    return config[keys.ROLLOUT_VERSION] == "v2" and any(name.endswith("_rollout") for name in names)


def _section(config: Config, name: str) -> Config:
    """Return the section of an engine; that of a teacher may be inside its own (``TeacherConfig``, cbff54d)."""
    section = config.under(name)
    if name != "teacher" or section.stated(keys.BACKEND):
        return section
    inner = config.under(f"teacher.{config[keys.TEACHER_KIND]}")
    return inner if inner.section else section


def _must_infer(name: str, section: Config) -> bool | None:
    """Return whether the backend of an engine must be one of inference; ``None`` if it may be any."""
    if name == "gen":
        return None
    return "rollout" in section.path(keys.BACKEND)


def _scheduling(config: Config) -> Mapping[Any, Any]:
    """Return what the workers of an engine ask for (``RolloutController.initialize``): the first of its entries."""
    entries = config[keys.SCHEDULING]
    if isinstance(entries, Sequence) and not isinstance(entries, str) and entries:
        entries = entries[0]
    return entries if isinstance(entries, Mapping) else {}


def _amount(value: Any, usual: int) -> int | None:
    """Return an amount of a ``SchedulingSpec``, the usual one if it is missing, ``None`` if Ray cannot take it."""
    amount = usual if value is None else whole_number(value)
    return amount if amount is not None and 0 <= amount <= _MOST else None


def _mebibytes(gibibytes: int | None) -> int | None:
    return None if gibibytes is None else gibibytes << 10


def _may_share(name: str, engine: _Engine, host: _Engine) -> bool:
    """Return whether an engine has as many processes as its host; a rollout, as many GPUs (cbff54d)."""
    if engine.processes == host.processes:
        return True
    return name == "rollout" and engine.allocation.world == host.allocation.world


def _start(name: str) -> int:
    """Return the position of an engine among those that start."""
    return _STARTED.index(name) if name in _STARTED else len(_STARTED)

"""The front door: `check`, `plan` and `tune` take a config of any dialect, as the commands of these names do.

`rankplan.arrange`, `replan`, `diff`, `convert` and `launch` take the plan; they live in the rooms that do the
work.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rankplan.config.models import component_names
from rankplan.config.text.faults import KeyPath
from rankplan.config.text.load import load_config
from rankplan.config.text.reader import Reader
from rankplan.dialects import DIALECTS, Dialect, dialect_of, mixed, resembled
from rankplan.dialects.rlinf.clusters import AnyCluster, inventory_of
from rankplan.errors import Diagnostic, PlacementError, printable
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import PlacementMode
from rankplan.plans.memory_faults import memory_faults
from rankplan.plans.plan import Plan
from rankplan.plans.weights import senderless
from rankplan.render.lines import group_lines
from rankplan.render.memory import memory_lines, plain_needs
from rankplan.words import by_nodes, counted

if TYPE_CHECKING:
    from rankplan.tuning.costs import Costs
    from rankplan.tuning.search import Tuning

Config: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Plan
"""The path of a config or of a saved plan, a mapping (a dict, an OmegaConf object), or a plan."""

Nodes: TypeAlias = str | os.PathLike[str] | AnyCluster
"""A size (``2x8``), the path of an inventory file, an inventory, or a cluster."""

notes = logging.getLogger("rankplan.notes")
"""Tells which nodes are assumed. A record may have a ``hint``, which names the options of the command."""

_SAVED = re.compile(rb"\s*\{\s*\"rankplan\"\s*:")
_SIZE = re.compile(r"\s*[0-9]+x[0-9]+\s*", re.ASCII)
_TENSOR_SIZES = ("tp", "tensor_parallel_size", "tp_size")
"""Names of a receiver's tensor size in configs."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `check`: the plan, or ``None`` if the config has faults, and every fault and warning.

    ``file`` is the path of the config, or a word for a config that is not in a file. ``memory``: it tells what each
    phase needs.
    """

    file: str
    plan: Plan | None
    diagnostics: tuple[Diagnostic, ...]
    memory: bool = False

    @property
    def faults(self) -> list[Diagnostic]:
        """The diagnostics that reject the config."""
        return [found for found in self.diagnostics if not found.warning]

    @property
    def warnings(self) -> list[Diagnostic]:
        """The diagnostics that do not reject the config."""
        return [found for found in self.diagnostics if found.warning]

    def __bool__(self) -> bool:
        return self.plan is not None

    def render(self, *, color: bool = False) -> str:
        """Return the report as the command prints it."""
        if self.plan is None:
            return f"{PlacementError(self.faults).render(color=color)}\n\n{faults_line(self.faults)}"
        counts = (
            counted(len(self.plan), "component"),
            counted(sum(len(rows) for rows in self.plan.values()), "process", "processes"),
            counted(self.plan.inventory.num_nodes, "node"),
        )
        mode = "" if self.plan.mode is None else f", mode {self.plan.mode.name}"
        lines = [
            f"{printable(self.file)}: fine, {counts[0]}, {counts[1]} on {counts[2]}{mode}",
            *group_lines(self.plan),
            *(memory_lines(self.plan) if self.memory else []),
        ]
        return "\n".join([*lines, *(warning.render(color=color) for warning in self.warnings)])

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        plan = self.plan
        return {
            "file": self.file,
            "fine": plan is not None,
            "nodes": None if plan is None else plan.inventory.num_nodes,
            "components": None if plan is None else {name: len(rows) for name, rows in plan.items()},
            "mode": None if plan is None or plan.mode is None else plan.mode.name,
            "groups": [] if plan is None else group_lines(plan),
            "faults": [fault.plain() for fault in self.faults],
            "warnings": [warning.plain() for warning in self.warnings],
            "error": None,
            **({"memory": plain_needs(plan)} if self.memory and plan is not None else {}),
        }


def faults_line(faults: Sequence[Diagnostic]) -> str:
    """Return the number of faults, and the files that have them."""
    files = dict.fromkeys(found.file for found in faults if found.file)
    where = f" in {' and '.join(map(printable, files))}" if files else ""
    return f"{counted(len(faults), 'fault')}{where}"


def check(
    config: Config,
    nodes: Nodes | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    memory: bool = False,
) -> Report:
    """Find every fault and warning of a config, as ``rankplan check`` does. See `plan` for the arguments.

    ``memory``: also tell what each phase needs.

    Raises ``OSError`` if a file cannot be read, ``ValueError`` for an unknown dialect.
    """
    job: Job | None = None
    try:
        if (saved := saved_plan(config, nodes, dialect, overrides, without)) is not None:
            return Report(_name(config), saved, tuple(_saved_warnings(saved, _name(config))), memory)
        job = read_job(config, nodes, dialect=dialect, overrides=overrides, without=without)
        job.announce(unknown=False)
        plan = job.plan()
        return Report(job.name, plan, tuple(job.warnings(plan)), memory)
    except PlacementError as error:
        known = () if job is None else job.reader.warnings
        return Report(_name(config), None, (*error.diagnostics, *known))


def plan(
    config: Config,
    nodes: Nodes | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    isolate: bool | None = None,
) -> Plan:
    """Return the plan of a config, as ``rankplan plan`` does.

    ``config`` is a path, a mapping, or a plan. ``nodes`` is a size (``"2x8"``), an inventory or the path of one, or a
    cluster; by default every node has as many accelerators as the config states, or 8, which is logged. A saved plan
    has its own nodes. ``dialect`` is detected from the keys. ``overrides`` change values of a file:
    ``["trainer.nnodes=2"]``. ``without`` names hardware that must not be used: see `Inventory.without`. ``isolate``
    tells whether a process sees only its own accelerators (by default as saved, else yes).

    Raises `PlacementError` with every fault, ``OSError`` if a file cannot be read, ``ValueError`` for an unknown
    dialect, or options that a saved plan does not take.
    """
    if (saved := saved_plan(config, nodes, dialect, overrides, without)) is not None:
        return saved if isolate is None else saved.with_visibility("own" if isolate else "node")
    job = read_job(config, nodes, dialect=dialect, overrides=overrides, without=without)
    job.announce()
    return job.plan(isolate=isolate)


def tune(
    costs: Costs | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    nodes: Nodes | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    extrapolate: bool = False,
    present: Plan | None = None,
) -> Tuning:
    """Find the placement with the shortest iteration, as ``rankplan tune`` does.

    ``costs`` is a mapping like ``costs.yaml`` (see `Costs.from_dict`), its path, or `Costs`; without it, the config has
    the times, as ``profile_data``. The parallel sizes of the config count where the costs state none; if it is RLinf's
    or rankplan's own, its sections decide which placements are valid. ``extrapolate`` allows times far from every
    measured size. Of equally fast placements, the one with fewer accelerators wins, then with fewer groups across
    nodes, then with fewer moves from the ``present`` plan. See `plan` for the other arguments.

    The answer is exact under the model, which the guide "Which placement is fastest?" states. Raises `PlacementError`
    with every fault, or (``no-schedule``) if no placement fits, and ``ValueError`` without a config if the costs or the
    nodes are missing, too.
    """
    from rankplan.tuning.search import costs_for, read_costs, search  # most programs never tune

    read = None if costs is None else read_costs(costs)
    if config is None:
        if read is None or nodes is None:
            raise ValueError("pass a config, or costs and nodes")
        inventory = inventory_from(nodes)
        inventory = inventory.without(without) if without else inventory
        return search(read, inventory, extrapolate=extrapolate, present=present)
    job = read_job(config, nodes, dialect=dialect, overrides=overrides, without=without)
    job.announce()
    read = costs_for(read, job.reader, job.dialect, job.inventory, job.name)
    return search(read, job.inventory, job.reader, extrapolate=extrapolate, present=present)


def is_saved(file: str | os.PathLike[str]) -> bool:
    """Whether a file starts like a saved plan. A pipe never counts as one. Raises ``OSError``."""
    if not Path(file).is_file():
        return False  # a pipe can be read only once
    with Path(file).open("rb") as opened:
        return _SAVED.match(opened.read(256)) is not None


def saved_plan(
    config: Config,
    nodes: Nodes | None = None,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Plan | None:
    """Return the plan that a config is, without excluded hardware; ``None`` for a config that must be planned."""
    if not isinstance(config, Plan) and (isinstance(config, Mapping) or not is_saved(config)):
        return None
    if nodes is not None or dialect is not None or overrides:
        raise ValueError(f"{_name(config)} is a plan with its own nodes; it takes no nodes, dialect or overrides")
    saved = config if isinstance(config, Plan) else Plan.load(config)
    return saved.on(saved.inventory.without(without)) if without else saved


@dataclass(frozen=True, slots=True)
class Job:
    """A config that was read, its dialect, and the nodes to plan it on.

    ``assumed``: the nodes are those that the config is probably meant for. ``labelled``: their labels are known.
    """

    name: str
    reader: Reader
    dialect: Dialect
    inventory: Inventory
    assumed: bool
    labelled: bool

    def announce(self, *, unknown: bool = True) -> None:
        """Log which nodes are assumed and, if ``unknown``, how many values of a script are known only when it runs."""
        if self.assumed:
            nodes, has = self.inventory.num_nodes, counted(self.inventory.node(0).num_accelerators, "accelerator")
            each = " each" if nodes > 1 else ""
            hint = {"hint": "set other nodes with --nodes, --inventory or --ray"}
            notes.warning("%s: assuming %s with %s%s", self.name, counted(nodes, "node"), has, each, extra=hint)
        if unknown and self.reader.warnings:
            values = counted(len(self.reader.warnings), "warning")
            notes.warning("%s: %s about what only a run decides; rankplan check lists them", self.name, values)

    def plan(self, *, isolate: bool | None = None) -> Plan:
        """Return the plan. Raises `PlacementError` with every fault, also for groups that cross what is forbidden."""
        found = self.dialect.plan(self.reader, self.inventory, isolate_accelerator=isolate is not False)
        reject_crossings(found, self.reader, labelled=self.labelled)
        return found

    def warnings(self, plan: Plan) -> Iterator[Diagnostic]:
        """Yield the warnings about a plan of this job.

        Raises `PlacementError` for components that cannot fit, and for weights without a sender.
        """
        reject_memory(plan, self.reader)
        yield from self.reader.warnings
        yield from empty_warnings(plan, self.reader)
        yield from sender_warnings(plan, self.reader)
        yield from group_warnings(plan, self.reader)
        if not self.assumed:
            yield from idle_warnings(plan, self.inventory, self.name)


def read_job(
    config: Config,
    nodes: Nodes | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Job:
    """Read a config and its nodes; see `plan`."""
    name = _name(config)
    if isinstance(config, Mapping):
        if overrides:
            raise ValueError("overrides apply to files only; change the mapping")
        content: Mapping[str, Any] = config
    else:
        content = load_config(config, overrides)
    chosen = _dialect(dialect, content)
    reader = chosen.read(content)
    inventory = chosen.assumed_inventory(reader) if nodes is None else inventory_from(nodes)
    inventory = inventory.without(without) if without else inventory
    labelled = nodes is not None and not (isinstance(nodes, str) and _SIZE.fullmatch(nodes))
    return Job(name, reader, chosen, inventory, nodes is None, labelled)


def _name(config: Config) -> str:
    return "the plan" if isinstance(config, Plan) else "config" if isinstance(config, Mapping) else os.fspath(config)


def inventory_from(nodes: Nodes) -> Inventory:
    """Return the inventory of a size, a path or a cluster. Raises `PlacementError`, ``OSError`` or ``TypeError``."""
    if isinstance(nodes, str) and _SIZE.fullmatch(nodes):
        return Inventory.parse(nodes)
    return Inventory.load(nodes) if isinstance(nodes, str | os.PathLike) else inventory_of(nodes)


def _dialect(name: str | None, config: Mapping[str, Any]) -> Dialect:
    """Return the dialect with this name, or else the one detected from the keys of the config.

    Raises `PlacementError` for a config with keys of several, unless one is named.
    """
    if name is not None:
        if name not in DIALECTS:
            raise ValueError(f"unknown dialect {name!r}; the dialects are {', '.join(DIALECTS)}")
        return DIALECTS[name]
    reader = Reader(config)
    for path, fault in mixed(config):
        reader.add(path, fault)
    reader.finish()
    return dialect_of(config)


def reject_crossings(plan: Plan, config: Reader, *, labelled: bool) -> None:
    """Raise `PlacementError` if groups cross what the config forbids, with the place of each rule.

    Unless the labels of the nodes are known, only the level ``node`` is checked.
    """
    reader = config.fork()
    for keys, found in plan.topology_faults(labelled=labelled):
        reader.add_in_config(("cluster", "topology", *keys), found)
    reader.finish()


def _saved_warnings(plan: Plan, name: str) -> Iterator[Diagnostic]:
    """Yield the warnings about a saved plan. Raises `PlacementError` for its faults."""
    plan.check_shares()
    plan.check_keep()
    no_config = Reader({})
    reject_memory(plan, no_config)
    yield from sender_warnings(plan, no_config)
    yield from group_warnings(plan, no_config)
    yield from idle_warnings(plan, plan.inventory, name)


def empty_warnings(plan: Plan, reader: Reader) -> Iterator[Diagnostic]:
    """Yield a warning if nothing is placed; it names the system that the config looks written for."""
    if plan:
        return
    config: Any = reader.content if reader.config is None else reader.config
    cluster = config.get("cluster")
    name = resembled({**config, **(cluster if isinstance(cluster, Mapping) else {})})
    help = "add components: `component_placement: {actor: 0-7}`"
    if "defaults" in config:
        help = "pass the config that Hydra has composed: `defaults` are not read"
    if name is not None:
        help = f"this looks like a config of {name}; pass --dialect {name}"
    found = Diagnostic("no-components", "the config places no component", help, warning=True)
    yield reader.located(("cluster",) if "cluster" in config else (), found)


def reject_memory(plan: Plan, reader: Reader) -> None:
    """Raise `PlacementError` if a component cannot fit, at its ``memory``."""
    found = [reader.located(_memory_path(reader, name), fault) for name, fault in memory_faults(plan)]
    if found:
        raise PlacementError(found)


def _memory_path(reader: Reader, name: str) -> KeyPath:
    """Return the path of what a component states about its memory, empty if there is none."""
    here: Any = reader.content if reader.config is None else reader.config
    for part in ("cluster", "component_placement"):
        here = here.get(part) if isinstance(here, Mapping) else None
    for key, entry in here.items() if isinstance(here, Mapping) else ():
        if isinstance(entry, Mapping) and "memory" in entry and name in component_names(str(key)):
            return "cluster", "component_placement", str(key), "memory"
    return ()


def sender_warnings(plan: Plan, reader: Reader) -> Iterator[Diagnostic]:
    """Yield warnings about weights without a sender, at the tensor size of the receiver.

    Raises `PlacementError` if the config has a mode of RLinf, which sends weights slot by slot: other trainers may
    gather whole tensors first.
    """
    found = [(reader.size_paths.get(name, ()), fault) for name, fault in senderless(plan)]
    located = [reader.located(_tensor_size(reader, path), fault) for path, fault in found]
    if located and plan.mode not in (None, PlacementMode.HYBRID):
        raise PlacementError(located)
    for fault in located:
        yield replace(
            fault, help=f"{fault.help}; a trainer that gathers whole tensors can ignore this warning", warning=True
        )


def _tensor_size(reader: Reader, path: KeyPath) -> KeyPath:
    """Return the path of the tensor size in the sizes at a path of the config, or that path."""
    here: Any = reader.content if reader.config is None else reader.config
    for part in path:
        here = here.get(part) if isinstance(here, Mapping) else None
    keys = [key for key in _TENSOR_SIZES if isinstance(here, Mapping) and key in here]
    return (*path, *keys[:1])


def group_warnings(plan: Plan, reader: Reader) -> Iterator[Diagnostic]:
    """Yield warnings about parallel groups, at the sizes of their components."""
    for name, component in plan.items():
        for warning in component.parallel_warnings():
            yield reader.located(reader.size_paths.get(name, ()), warning)


def idle_warnings(plan: Plan, inventory: Inventory, file: str) -> Iterator[Diagnostic]:
    """Yield warnings about unused nodes and accelerators."""
    if inventory.num_nodes > plan.inventory.num_nodes:
        message = f"num_nodes is {plan.inventory.num_nodes}, but the inventory has {inventory.num_nodes} nodes"
        help = f"set num_nodes to {inventory.num_nodes} to use all nodes"
        yield Diagnostic("idle-nodes", message, help, file=file, warning=True)
    if idle := plan.idle():
        usable = plan.inventory.core.accelerators() - plan.inventory.excluded_accelerators
        unused, total = sum(map(len, idle.values())), len(usable)
        message = f"no component uses {unused} of {total} accelerators: {by_nodes(idle)}"
        help = "place a component on them, or ignore this warning"
        yield Diagnostic("idle-accelerators", message, help, file=file, warning=True)

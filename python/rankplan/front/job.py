"""A config with its dialect and its nodes; saved plans, and plans in the files of launchers."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rankplan.dialects import DIALECTS, OWN, Dialect, mixed, no_job, recognised
from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import beginning
from rankplan.front.warnings import group_warnings, idle_warnings, plan_warnings, reject_crossings, reject_empty
from rankplan.frozen import frozen
from rankplan.marks import is_emitted
from rankplan.nodes.inventory import Inventory
from rankplan.plans.node_order import in_order
from rankplan.plans.plan import Plan
from rankplan.read.sources import Planned
from rankplan.read.text.document import Section
from rankplan.read.text.load import load_config
from rankplan.read.text.read_config import ReadConfig
from rankplan.read.text.reader import Reader
from rankplan.rlinf.clusters import AnyCluster, inventory_of
from rankplan.words import counted, wrong_type

if TYPE_CHECKING:
    from rankplan.memory.needs import Needs

Config: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Plan
"""The path of a config, of a saved plan or of an emitted file, a mapping (a dict, an OmegaConf object), or a plan."""

Nodes: TypeAlias = str | os.PathLike[str] | AnyCluster
"""A size (``2x8``), the path of an inventory file, an inventory, or a cluster."""

notes = logging.getLogger("rankplan.notes")
"""Tells which nodes are assumed. A record may have a ``hint``, which names the options of the command."""

_SAVED = re.compile(rb"\s*\{\s*\"rankplan\"\s*:")
_SIZE = re.compile(r"\s*[0-9]+x[0-9]+\s*", re.ASCII)


@frozen
class Job:
    """A config that was read, its dialect, and the nodes to plan it on.

    ``config`` is the result of `Dialect.read`. ``assumed``: the nodes are those that the config is probably meant for.
    ``labelled``: their labels are known.
    """

    name: str
    config: ReadConfig
    dialect: Dialect
    inventory: Inventory
    assumed: bool
    labelled: bool

    @property
    def reader(self) -> Reader:
        """The values of the config with their places, and its faults."""
        return self.config.reader

    def announce(self) -> None:
        """Log which nodes are assumed."""
        if not self.assumed:
            return
        kinds = []
        for nodes, record in self.inventory.stretches():
            each = " each" if len(nodes) > 1 else ""
            kinds.append(f"{counted(len(nodes), 'node')} with {counted(record.num_accelerators, 'accelerator')}{each}")
        hint = {"hint": "set other nodes with --nodes, --inventory or --ray"}
        notes.warning("%s: assuming %s", self.name, " and ".join(kinds), extra=hint)

    def announce_unknown(self) -> None:
        """Log how many values of a script decide the placement, and are known only when it runs."""
        reported = self.reader.warnings
        if unknown := [warning for warning in reported if warning.code == "not-run" and self.config.decides(warning)]:
            values = counted(len(unknown), "warning")
            notes.warning("%s: %s about what only a run decides; rankplan check lists them", self.name, values)

    def announced_plan(self, *, isolate: bool | None = None, pinned: bool = False) -> Plan:
        """Return the plan of `announced`."""
        return self.announced(isolate=isolate, pinned=pinned).plan

    def announced(self, *, isolate: bool | None = None, pinned: bool = False) -> Planned:
        """Return what `planned` does; log assumed nodes, what only a run decides, and groups to pin that are torn."""
        self.announce()
        planned = self.planned(isolate=isolate, pinned=pinned)
        self.announce_unknown()
        if pinned:
            self.announce_torn(planned)
        return planned

    def plan(self, *, isolate: bool | None = None, pinned: bool = False, node_ids: Sequence[str] = ()) -> Plan:
        """Return the plan; see `planned`."""
        return self.planned(isolate=isolate, pinned=pinned, node_ids=node_ids).plan

    def planned(self, *, isolate: bool | None = None, pinned: bool = False, node_ids: Sequence[str] = ()) -> Planned:
        """Return the plan, and where the config states what decides it.

        Raises `PlacementError` with every fault, also for groups that cross what is forbidden.

        ``node_ids`` are Ray's ids of the nodes, by which some trainers sort them: see `plan`.
        """
        inventory = self.inventory
        if pinned:
            inventory = in_order(inventory, self.dialect.node_order(self.config), node_ids)
        planned = self.dialect.planned(self.config, inventory, isolate_accelerator=isolate is not False, pinned=pinned)
        reject_empty(planned.plan, self.reader)
        reject_crossings(planned.plan, labelled=self.labelled, cluster=inventory)
        return planned

    def announce_torn(self, planned: Planned) -> None:
        """Log which groups of a plan to pin are on several nodes."""
        for warning in group_warnings(planned, self.reader):
            if warning.code == "group-spans":
                notes.warning("%s: warning[%s]: %s", self.name, warning.code, warning.message)

    def warnings(self, planned: Planned, needs: Needs | None) -> Iterator[Diagnostic]:
        """Yield the warnings about a plan of this job and its memory.

        Raises `PlacementError` for components that cannot fit, and for weights without a sender.
        """
        yield from plan_warnings(planned, needs, self.reader)
        if self.labelled:
            yield from planned.plan.rule_warnings()
        if not self.assumed:
            yield from idle_warnings(planned.plan, self.inventory, self.name)


def read_job(
    config: Config,
    nodes: Nodes | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Job:
    """Read a config and its nodes; see `plan`."""
    name = name_of(config)
    if isinstance(config, Mapping):
        if overrides:
            raise ValueError("overrides apply to files only; change the mapping")
        content: Mapping[str, Any] = config
    else:
        content = load_config(config, overrides)
    chosen, guest_warnings = _dialect(dialect, content)
    read = chosen.read(content)
    for warning in guest_warnings:
        read.reader.faults.note(warning)
    inventory = chosen.assumed_inventory(read) if nodes is None else inventory_from(nodes)
    inventory = inventory.without(without) if without else inventory
    labelled = nodes is not None and not (isinstance(nodes, str) and _SIZE.fullmatch(nodes))
    return Job(name, read, chosen, inventory, nodes is None, labelled)


def name_of(config: Config) -> str:
    """Return a config as messages name it."""
    if isinstance(config, Plan):
        return "the plan"
    if isinstance(config, Mapping):
        return (config.document.file if isinstance(config, Section) else None) or "config"
    return os.fspath(config)


def inventory_from(nodes: Nodes) -> Inventory:
    """Return the inventory of a size, a path or a cluster. Raises `PlacementError`, ``OSError`` or ``TypeError``."""
    if isinstance(nodes, str) and _SIZE.fullmatch(nodes):
        return Inventory.parse(nodes)
    return Inventory.load(nodes) if isinstance(nodes, str | os.PathLike) else inventory_of(nodes)


def _dialect(name: str | None, config: Mapping[str, Any]) -> tuple[Dialect, list[Diagnostic]]:
    """Return the dialect with this name, else the one detected from the keys, and warnings about guests that failed.

    Raises ``ValueError`` for an unknown name, `PlacementError` for a config of no job, or one without a stated dialect
    whose keys are of several.
    """
    if name is not None:
        if name not in DIALECTS:
            raise ValueError(f"unknown dialect {name!r}; the dialects are {', '.join(DIALECTS)}")
        return DIALECTS[name], []
    detected = recognised(config)
    if (fault := no_job(config)) is not None:
        raise PlacementError([fault, *detected.warnings])
    reader = Reader(config)
    for path, fault in mixed(config):
        reader.add(path, fault)
    reader.finish()
    return DIALECTS[detected.name or OWN], detected.warnings


def is_saved(file: str | os.PathLike[str]) -> bool:
    """Whether a file is a saved plan, or has one for a launcher. A pipe never counts as one. Raises ``OSError``."""
    if not isinstance(file, str | os.PathLike):
        raise wrong_type("config", file, "the path of a config, a mapping, or a plan")
    return _SAVED.match(beginning(file, 256)) is not None or is_emitted(file)


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
        raise ValueError(f"{name_of(config)} is a plan with its own nodes; it takes no nodes, dialect or overrides")
    saved = config if isinstance(config, Plan) else load_plan(config)
    return saved.on(saved.inventory.without(without)) if without else saved


def load_plan(file: str | os.PathLike[str]) -> Plan:
    """Return the plan in a saved plan or in the file of a launcher. Raises `PlacementError`, ``OSError``."""
    if not is_emitted(file):
        return Plan.load(file)
    from rankplan.launchers.emit import read_emitted  # most programs read no such files

    return read_emitted(file).emitted.plan

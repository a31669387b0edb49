"""A config with its dialect and its nodes, and what its job file adds; saved plans, also in the files of launchers."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rankplan.dialects import DIALECTS, OWN, Dialect, inventory_of, mixed, no_job, recognised
from rankplan.dialects.interface.cluster import AnyCluster
from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import beginning, is_pipe, read_pipe
from rankplan.front.memory import UsedMemory, needs_of
from rankplan.front.warnings import (
    group_warnings,
    idle_warnings,
    plan_warnings,
    reject_crossings,
    reject_empty,
    reject_unfit,
    reject_unreservable,
    reservation_warnings,
)
from rankplan.frozen import frozen
from rankplan.jobs.recognising import JOB, SAVED, is_job_file
from rankplan.marks import is_emitted
from rankplan.nodes.entries import hardware_names
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.inventory_file import is_size, neither
from rankplan.plans.plan import Plan
from rankplan.plans.plan_job import PlanJob
from rankplan.read.read_config import ReadConfig
from rankplan.read.sources import Planned
from rankplan.read.text.document import Section
from rankplan.read.text.load import checked_overrides, load_config
from rankplan.read.text.reader import Reader
from rankplan.words import counted, wrong_type

if TYPE_CHECKING:
    from rankplan.front.arranged import ArrangedJob
    from rankplan.jobs.reader import JobFile
    from rankplan.memory.needs import Needs
    from rankplan.plans.rules import Rules

Config: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Plan
"""The path of a config, of a saved plan or of an emitted file, a mapping (a dict, an OmegaConf object), or a plan."""

Nodes: TypeAlias = str | os.PathLike[str] | AnyCluster
"""A size (``2x8``), the path of an inventory file, an inventory, or a cluster."""

notes = logging.getLogger("rankplan.notes")
"""Tells which nodes are assumed. A record may have a ``hint``, which names the options of the command."""


@frozen
class Job:
    """A config that was read, its dialect, and the nodes to plan it on.

    ``config`` is the result of `Dialect.read`. ``assumed``: the nodes are those that the config is probably meant for.
    ``labelled``: their labels are known. ``stated`` is what a job file states about it, ``overrides`` are all those of
    the config. ``options`` are rules that replace those of their names.
    """

    name: str
    config: ReadConfig
    dialect: Dialect
    inventory: Inventory
    assumed: bool
    labelled: bool
    stated: JobFile | None = None
    overrides: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def on(self, inventory: Inventory, *, labelled: bool = True) -> Job:
        """Return the job on other nodes, with what its file states of them. Raises `PlacementError`, ``OSError``."""
        inventory = _stated_nodes(inventory, self.stated)
        return replace(self, inventory=inventory, assumed=False, labelled=labelled)

    @property
    def starts(self) -> str:
        """How its processes start: on ``ray``, or as ``processes`` without it."""
        of_job: str | None = getattr(self.config.values, "starts", None)
        return of_job or self.dialect.starts

    @property
    def asks_ray(self) -> bool:
        """Whether it asks Ray for placement groups, which `pin` binds to nodes."""
        return self.starts == "ray" and not self.dialect.no_groups

    @property
    def reader(self) -> Reader:
        """The values of the config with their places, and its faults."""
        return self.config.reader

    def announce(self) -> None:
        """Log which nodes are assumed, which rules these cannot show, and which variables of the environment count."""
        if environment := self.reader.environment:
            # Other values than counts may be secrets, such as WANDB_API_KEY.
            variables = ", ".join(
                f"{name}={value}" if value.isdecimal() else name for name, value in environment.items()
            )
            notes.warning("%s: from the environment: %s", self.name, variables)
        if self.assumed:
            self._announce_assumed()
        if not self.labelled and (rules := self._rules()):
            from rankplan.front.unlabelled import unchecked  # most jobs state no rules

            if what := unchecked(rules):
                hint = {"hint": "pass nodes that have them with --inventory or --ray"}
                notes.warning("%s: rules about %s are not checked on nodes without labels", self.name, what, extra=hint)

    def _announce_assumed(self) -> None:
        """Log which nodes are assumed."""
        kinds = []
        for nodes, record in self.inventory.stretches():
            each = " each" if len(nodes) > 1 else ""
            kinds.append(f"{counted(len(nodes), 'node')} with {counted(record.num_accelerators, 'accelerator')}{each}")
        hint = {"hint": "set other nodes with --nodes, --inventory or --ray"}
        allocation = self.reader.allocation
        reason = "" if allocation is None else allocation.reason(self.inventory)
        notes.warning("%s: assuming %s%s", self.name, " and ".join(kinds), reason, extra=hint)

    def _rules(self) -> list[Rules]:
        """Return the rules of the job file and of the config."""
        return [one.rules for one in (self.stated, self.config.cluster) if one is not None and one.rules]

    def announce_unknown(self) -> None:
        """Log how many values of a script decide the placement, and are known only when it runs."""
        reported = self.reader.warnings
        if unknown := [warning for warning in reported if warning.code == "not-run" and self.config.decides(warning)]:
            values = counted(len(unknown), "warning")
            notes.warning("%s: %s about what only a run decides; rankplan check lists them", self.name, values)

    def announced_plan(self, *, isolate: bool | None = None, pinned: bool = False) -> Plan:
        """Return the plan of `announced`."""
        return self.announced(isolate=isolate, pinned=pinned).plan

    def announced(self, *, isolate: bool | None = None, pinned: bool = False, fitting: bool = True) -> Planned:
        """Return what `planned` does; log assumed nodes, what only a run decides, and groups to pin that are torn.

        Unless it must be ``fitting``, the plan may need more memory than there is.
        """
        self.announce()
        planned = (self.planned if fitting else self.kept)(isolate=isolate, pinned=pinned)
        self.announce_unknown()
        if pinned:
            self.announce_torn(planned)
        return planned

    def plan(self, *, isolate: bool | None = None, pinned: bool = False, node_ids: Sequence[str] = ()) -> Plan:
        """Return the plan; see `planned`."""
        return self.planned(isolate=isolate, pinned=pinned, node_ids=node_ids).plan

    def planned(self, *, isolate: bool | None = None, pinned: bool = False, node_ids: Sequence[str] = ()) -> Planned:
        """Return the plan, and where the config states what decides it.

        Raises `PlacementError` with every fault, also for groups that cross what is forbidden, and for components that
        cannot fit into memory.

        ``node_ids`` are Ray's ids of the nodes, by which some trainers sort them: see `plan`.
        """
        return self.fitting(self.kept(isolate=isolate, pinned=pinned, node_ids=node_ids))

    def fitting(self, planned: Planned) -> Planned:
        """Return a plan of this job. Raises `PlacementError` for components that cannot fit into memory."""
        reject_unfit(planned, needs_of(planned, UsedMemory().or_stated(self.stated)), self.reader)
        return planned

    def kept(self, *, isolate: bool | None = None, pinned: bool = False, node_ids: Sequence[str] = ()) -> Planned:
        """Return what `planned` does, also if it does not fit into memory."""
        job, ids = self, node_ids
        if self.is_arranged:
            found = self.arranged(node_ids, isolate=isolate, pinned=pinned)
            job, ids, planned = found.job, found.node_ids, found.planned
        else:
            planned = self.placed(isolate=isolate, pinned=pinned)
        if pinned:
            from rankplan.front.sorted_pools import with_sorted_pools  # most plans are predictions

            order = self.dialect.node_order(self.config)
            job, planned = with_sorted_pools(job, planned, ids, order, isolate=isolate)
        return job.checked(planned, pinned=pinned)

    def checked(self, planned: Planned, *, pinned: bool = False) -> Planned:
        """Return the plan of this job on its nodes in their order, with those that it does not use as spares.

        Raises `PlacementError` if it is empty, breaks a rule, or asks Ray for what its nodes cannot reserve.
        """
        reject_empty(planned.plan, self.reader)
        reject_crossings(planned.plan, labelled=self.labelled, cluster=self.inventory)
        reject_unreservable(planned, self.reader, self.stated, pinned=pinned)
        if planned.plan.inventory.num_nodes == self.inventory.num_nodes:
            return planned
        from rankplan.plans.spares import with_spares  # most plans have all nodes

        return Planned(with_spares(planned.plan, self.inventory), planned.sources)

    def arranged(
        self, node_ids: Sequence[str] = (), *, isolate: bool | None = None, pinned: bool = False
    ) -> ArrangedJob[Job]:
        """Return the job on the arrangement of its nodes that its rules ask for; see `rankplan.front.arranged`."""
        from rankplan.front.arranged import arranged  # most configs state no rules

        return arranged(self, node_ids, isolate=isolate, pinned=pinned)

    @property
    def is_arranged(self) -> bool:
        """Whether the rules of the job choose among its nodes; see `rankplan.front.arranged.chooses_nodes`."""
        if not self.options and (self.stated is None or not self.stated.cluster):
            return False
        from rankplan.front.arranged import chooses_nodes

        return chooses_nodes(self)

    def reordered(self, order: Sequence[int]) -> Job:
        """Return the job on its nodes in another order, given by their ranks."""
        from rankplan.nodes.ordered import reordered

        stated = None if self.stated is None else self.stated.reordered(order)
        return replace(self, inventory=reordered(self.inventory, order), stated=stated)

    def unchecked_plan(self) -> Plan:
        """Return the plan, whose rules may not hold on its nodes. Raises `PlacementError` with every other fault."""
        return self.placed().plan

    def placed(self, *, isolate: bool | None = None, pinned: bool = False) -> Planned:
        """Return the plan on the nodes in their order, whose rules are not checked, and where the config states it."""
        is_isolated = isolate is not False
        groups = None if self.stated is None else self.stated.groups
        with self.naming_unknown_values():
            try:
                planned = self.dialect.planned(
                    self.config, self.inventory, isolate_accelerator=is_isolated, pinned=pinned, groups=groups
                )
            except PlacementError:
                if self.stated is not None and groups:
                    self._check_grouped(self.stated)
                raise
        plan = planned.plan
        if self.stated is not None:
            from rankplan.jobs.joining import check_plan, with_rules

            if self.stated.cluster:
                check_plan(plan, self.stated)
            plan = with_rules(plan, self.stated, self.overrides)
        if self.overrides and plan.job is not None and plan.job.commands:
            plan = plan.with_job(replace(plan.job, commands=()))  # they have the values of the files alone
        if self.options:
            from rankplan.read.facts import with_stated

            plan = plan.placed(plan.inventory, plan.values(), with_stated(plan.rules, self.options))
        labels = self.inventory.level_labels
        if labels:
            plan = plan.with_job((plan.job or PlanJob()).with_level_labels(labels))
        return Planned(plan, planned.sources)

    @contextmanager
    def naming_unknown_values(self) -> Iterator[None]:
        """Add to faults of places and sizes the values that only a run knows, and that may be their reason."""
        try:
            yield
        except PlacementError as error:
            unknown = [warning for warning in self.reader.warnings if warning.code == "not-run" and warning.path]
            deciding = [warning for warning in unknown if self.config.decides(warning)]
            if not deciding:
                raise
            from rankplan.front.unknown_values import with_unknown  # few configs have faults

            faults = [with_unknown(fault, deciding) for fault in error.diagnostics]
            named = {fault.path for fault in faults}
            raise PlacementError([*faults, *(found for found in deciding if found.path not in named)]) from None

    def _check_grouped(self, stated: JobFile) -> None:
        """Raise `PlacementError` if node groups name components that the job lacks: their nodes are not free."""
        from rankplan.jobs.joining import check_grouped

        try:
            components = list(self.dialect.plan(self.config, self.inventory))
        except PlacementError:
            return  # the config has other faults
        check_grouped(components, stated)

    def with_stated_rules(self, plan: Plan) -> Plan:
        """Return another plan of this job with the rules of its file, on nodes that keep them.

        Raises `PlacementError` if no nodes do.
        """
        if self.stated is None:
            return plan
        from rankplan.jobs.joining import with_rules

        plan = with_rules(plan, self.stated, self.overrides)
        if self.is_arranged and plan.inventory.num_nodes == self.inventory.num_nodes:
            from rankplan.front.arranged import on_arrangement

            plan = on_arrangement(plan, self.inventory)
        reject_crossings(plan, labelled=self.labelled, cluster=self.inventory)
        return plan

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
        yield from reservation_warnings(planned.plan, self.reader)
        if self.dialect.name != OWN:
            from rankplan.front.unread import unread_rules, unread_sizes  # RLinf's own rules are read

            yield from unread_rules(self.reader, self.dialect.system, self.dialect.keys.known)
            yield from unread_sizes(self.reader, self.dialect.system, self.dialect.keys.entries)
        if self.dialect.tried is not None and self.reader.program_file:
            from rankplan.front.newer import newer_version  # few scripts start a program that is here

            warning = newer_version(self.dialect, self.reader.program_file)
            yield from () if warning is None else (warning,)
        if self.labelled:
            yield from planned.plan.rule_warnings()
        if not self.assumed:
            states_nodes = self.dialect.name == OWN
            # A job file states what the job may use: the nodes that are left are its spares.
            nodes = self.inventory if self.stated is None else planned.plan.inventory
            yield from idle_warnings(planned.plan, nodes, self.name, states_nodes=states_nodes)


def read_job(
    config: Config,
    nodes: Nodes | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    model: str | None = None,
) -> Job:
    """Read a config, or a job file with its config, and its nodes; see `plan`.

    ``model`` is for components whose own model is unknown.
    """
    job = unplaced_job(config, dialect=dialect, overrides=overrides, model=model)
    with job.naming_unknown_values():
        return _on_nodes(job, nodes, without)


def _on_nodes(job: Job, nodes: Nodes | None, without: Sequence[str]) -> Job:
    """Return a job on the given nodes, on those of its job file, or on those that its config is probably meant for."""
    stated = job.stated
    if nodes is not None or stated is None or (stated.nodes is None and stated.ray is None):
        inventory = job.dialect.assumed_inventory(job.config) if nodes is None else inventory_from(nodes)
        labelled = nodes is not None and not (isinstance(nodes, str) and is_size(nodes))
        assumed = nodes is None
    else:
        from rankplan.jobs.nodes import nodes_of

        inventory, labelled, assumed = nodes_of(stated), not is_size(stated.nodes or ""), False
    inventory = excluding(_stated_nodes(inventory, stated), without)
    return replace(job, inventory=inventory, assumed=assumed, labelled=labelled)


def excluding(inventory: Inventory, names: Sequence[str]) -> Inventory:
    """Return the nodes without this hardware, whose names their plans keep: it stays out of later plans, too.

    Raises `PlacementError` with every unknown name.
    """
    if not names:
        return inventory
    checked = list(hardware_names(names))
    inventory.without(checked)  # for its faults
    return inventory.excluding(checked)


def unplaced_job(
    config: Config, *, dialect: str | None = None, overrides: Sequence[str] = (), model: str | None = None
) -> Job:
    """Read a config whose nodes are known later: see `Job.on`. Until then, it has one node with one accelerator."""
    config = opened(config)
    name, stated = name_of(config), job_file_of(config)
    overrides = checked_overrides(overrides)
    content: Mapping[str, Any]
    if stated is not None:
        dialect = stated.dialect if dialect is None else dialect
        overrides = (*stated.overrides, *overrides)
        content = _below(stated, overrides)
    elif isinstance(config, Mapping):
        if overrides:
            raise ValueError("overrides apply to files only; change the mapping")
        content = config
    else:
        content = load_config(_path(config), overrides)
    chosen, guest_warnings = _dialect(dialect, content)
    if stated is not None:
        from rankplan.jobs.joining import check_processes

        check_processes(stated, None if chosen.name == OWN else chosen.system)
    read = chosen.read(content)
    if model is not None:
        if not isinstance(model, (str, os.PathLike)):
            raise wrong_type("model", model, "a name or a path: Qwen/Qwen3-8B, model/config.json")
        from rankplan.jobs.joining import passed_model

        read.values.model = passed_model(model)
    if stated is not None and stated.memory.model is not None:
        from rankplan.jobs.joining import model_of

        if getattr(read.values, "model", None) is None:
            read.values.model = model_of(stated)
    for warning in guest_warnings:
        read.reader.faults.note(warning)
    given = tuple(overrides)
    return Job(name, read, chosen, _ONE_NODE, assumed=False, labelled=False, stated=stated, overrides=given)


_ONE_NODE = Inventory.uniform(1, 1)


def _below(stated: JobFile, overrides: Sequence[str]) -> Mapping[str, Any]:
    """Return the trainer's config that a job file names. One that cannot be read is a fault of the job file."""
    try:
        return load_config(stated.job, overrides)
    except OSError as error:
        from rankplan.jobs.faults import no_file

        fault = no_file(JOB, stated.job, error.strerror or str(error))
        raise PlacementError([stated.where(JOB).locate(fault)]) from None


def _stated_nodes(inventory: Inventory, stated: JobFile | None) -> Inventory:
    if stated is None:
        return inventory
    from rankplan.jobs.joining import with_stated

    return with_stated(inventory, stated)


def job_file_of(config: Any) -> JobFile | None:
    """Return what a job file states, ``None`` for any other config. Raises `PlacementError`, ``OSError``."""
    if isinstance(config, Plan) or not is_job_file(config):
        return None
    from rankplan.jobs.reader import job_file  # most programs read no job file

    return job_file(config)


def opened(config: Config) -> Config:
    """Read a job file, or a pipe, once, for all functions that take it next; return any other config unchanged."""
    stated = job_file_of(config)
    if stated is None and isinstance(config, str | os.PathLike) and is_pipe(config):
        config = read_pipe(config)
        stated = job_file_of(config)
    return config if stated is None else stated


def _path(config: Any) -> str | os.PathLike[str]:
    """Return the path that a config is. Raises ``TypeError`` for anything else."""
    if not isinstance(config, str | os.PathLike):
        raise wrong_type("config", config, "the path of a config, a mapping, or a plan")
    return config


def name_of(config: Config) -> str:
    """Return a config as messages name it."""
    if isinstance(config, Plan):
        return "the plan"
    if isinstance(config, Mapping):
        return (config.document.file if isinstance(config, Section) else None) or "config"
    return os.fspath(_path(config))


def inventory_from(nodes: Nodes) -> Inventory:
    """Return the inventory of a size, a path or a cluster. Raises `PlacementError`, ``OSError`` or ``TypeError``.

    A text that cannot be a path, because it has no suffix and no folder, is a size or a fault.
    """
    if isinstance(nodes, str):
        if is_size(nodes):
            return Inventory.parse(nodes)
        path = Path(nodes)
        if path.name == nodes and not path.suffix and not path.exists():
            raise PlacementError([neither(nodes)])
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
        raise PlacementError([_lacking_job(config) or fault, *detected.warnings])
    reader = Reader(config)
    for path, fault in mixed(config):
        from rankplan.front.unread import with_job_lines  # few configs have keys of two systems

        reader.add(path, with_job_lines(config, fault))
    reader.finish()
    return DIALECTS[detected.name or OWN], detected.warnings


def _lacking_job(config: Mapping[str, Any]) -> Diagnostic | None:
    """Return the fault of a job file whose key ``job`` is missing or misspelt; ``None`` for any other config."""
    from rankplan.jobs.faults import missing_job, unknown_key
    from rankplan.jobs.keys import KEYS
    from rankplan.jobs.recognising import lacks_job

    key = lacks_job(config, KEYS)
    if key is None:
        return None
    reader = Reader(config)
    return reader.where((key,), key=True).locate(unknown_key(key, JOB)) if key else reader.located((), missing_job())


def is_saved(file: Any) -> bool:
    """Whether a file is a saved plan, has one for a launcher, or is a job file that names one. Raises ``OSError``.

    A pipe counts once it was read: see `opened`.
    """
    stated = job_file_of(file)
    return _is_plan(_path(file) if stated is None else stated.job)


def _is_plan(file: str | os.PathLike[str]) -> bool:
    return SAVED.match(beginning(file, 256)) is not None or is_emitted(file)


def saved_file(config: Config) -> str | None:
    """Return the path of a saved plan, also of one that a job file names; ``None`` for a plan in memory."""
    if isinstance(config, Plan | Mapping):
        return None
    stated = job_file_of(config)
    return os.fspath(config) if stated is None else stated.job


def saved_plan(
    config: Config,
    nodes: Nodes | None = None,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Plan | None:
    """Return the plan that a config is, without excluded hardware; ``None`` for a config that must be planned.

    A job file may name a saved plan, and state other rules.
    """
    stated = None if isinstance(config, Plan) else job_file_of(config)
    if stated is not None:
        saved = _plan_below(stated)
    elif isinstance(config, Plan):
        saved = config
    elif isinstance(config, Mapping) or not _is_plan(_path(config)):
        saved = None
    else:
        saved = load_plan(config)
    if saved is None:
        return None
    if nodes is not None or dialect is not None or overrides:
        raise ValueError(f"{name_of(config)} is a plan with its own nodes; it takes no nodes, dialect or overrides")
    return saved.on(excluding(saved.inventory, without)) if without else saved


def _plan_below(stated: JobFile) -> Plan | None:
    """Return the saved plan that a job file names, with what the job file states; ``None`` if it names a config."""
    if not _is_plan(stated.job):
        return None
    from rankplan.jobs.joining import on_plan

    return on_plan(load_plan(stated.job), stated)


def load_plan(file: str | os.PathLike[str]) -> Plan:
    """Return the plan in a saved plan or in the file of a launcher. Raises `PlacementError`, ``OSError``."""
    if not is_emitted(file):
        return Plan.load(file)
    from rankplan.launchers.emit import read_emitted  # most programs read no such files

    return read_emitted(file).emitted.plan

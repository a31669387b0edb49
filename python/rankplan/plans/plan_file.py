"""The file of a plan: its decisions as JSON, written and read by the core.

Rows are not stored: the rules give them again. The core reads each value; what several values must not state together
is checked here: node groups, pools, settings of memory, and components on the nodes of the plan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from rankplan._core import PLAN_VERSION, PlanFile, Requests
from rankplan.errors import Diagnostic, KeyPath, PlacementError, Where, refusal
from rankplan.files import folder_of, read_text, write_whole
from rankplan.kinds import PLAN
from rankplan.nodes.facts import NO_FACTS, ClusterFacts
from rankplan.nodes.group_rules import group_faults
from rankplan.nodes.inventory import Inventory, configured
from rankplan.parallel import Parallel
from rankplan.plans.cluster_values import cluster_values
from rankplan.plans.component import Component, Exclusive, PlacementMode, Rule, Settings, check_size
from rankplan.plans.memory_settings import MemorySettings, settings_of
from rankplan.plans.plan_job import BASE, TO, PlanJob
from rankplan.plans.pool_rules import stated_pool_faults
from rankplan.plans.requests import Actors
from rankplan.plans.rules import NO_RULES, Rules, with_named_levels
from rankplan.words import path_text, shown

_LARGEST = 1 << 30
"""The most bytes of a saved plan: 2**24 processes in no order take a third of it."""

Saved: TypeAlias = tuple[
    Inventory, list[Component], PlacementMode | None, str | None, Requests, Rules, PlanJob | None, list[Actors]
]
"""The arguments of `rankplan.Plan`: inventory, components, mode, dialect, requests, rules, job and actors."""

_Fault: TypeAlias = tuple[KeyPath, Diagnostic]


def content(
    inventory: Inventory,
    components: Mapping[str, Component],
    mode: PlacementMode | None,
    dialect: str | None,
    requests: Requests,
    rules: Rules,
    job: PlanJob | None,
    actors: Iterable[Actors],
) -> PlanFile:
    """Return the content of the file of a plan."""
    written = []
    for name, one in components.items():
        beside = [other for other in one.beside if other.name not in components]
        written.append((name, (one.node_groups, one.rule), _stated(one.settings), beside))
    cluster, levels = cluster_values(inventory, rules), inventory.written_levels()
    mode_name = None if mode is None else mode.name
    stated = None if job is None else job.plain() or None
    held = [one.plain() for one in actors]
    return PlanFile.of(inventory.core, levels, cluster, mode_name, dialect, requests, held, written, stated)


def _stated(settings: Settings) -> dict[str, Any]:
    """Return the settings that are not the usual ones, as plain values."""
    values = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value == field.default:
            continue
        if isinstance(value, (Parallel, MemorySettings)):
            value = value.plain()
        elif field.name == "share":
            value = float(value)
        values[field.name] = value
    return values


def save(path: Path, plan: PlanFile) -> None:
    """Write a plan atomically. Equal plans give equal bytes. Raises ``OSError``."""
    write_whole(path, plan.text())


def load(file: str) -> Saved:
    """Read a file. Raises `PlacementError`, whose faults have the path of the file, ``OSError`` if it is unreadable."""
    text = read_text(file, _LARGEST)
    plan = PlanFile.parse(text)
    try:
        return read(PlanFile(json.loads(text)) if plan is None else plan, file)
    except PlacementError as error:
        faults = [replace(one, file=file) for one in error.diagnostics]
    except (ValueError, RecursionError) as error:
        from rankplan.plans.other_files import not_json  # needs YAML

        faults = [replace(not_json(file, text, error), file=file)]
    raise PlacementError(faults)


def read(plan: PlanFile, file: str | None = None) -> Saved:
    """Return the arguments of the plan that a content states.

    The rules are stated in the ``file``.

    Raises `PlacementError` (``invalid-plan``) with each wrong key and its reason.
    """
    try:
        return _read(plan, file)
    except PlacementError as error:
        faults = [replace(one, code=PLAN.code, help=one.help or PLAN.help) for one in error.diagnostics]
    raise PlacementError(faults)


def _read(plan: PlanFile, file: str | None) -> Saved:
    if plan.version is None:
        raise PlacementError([_no_plan(plan.plain())])
    saved = plan.read()
    faults: list[_Fault] = list(saved.faults)
    if saved.inventory is None:
        raise _refused(plan, faults)
    inventory = Inventory.of_core(saved.inventory, saved.levels)
    is_cluster_known = not any(path[:1] == ("cluster",) for path, _ in faults)
    rules = NO_RULES
    if saved.cluster is not None:
        inventory, rules, found = _with_cluster(inventory, saved.cluster, file)
        is_cluster_known = not found
        faults += found
    components, found = _components(saved.components, inventory if is_cluster_known else None)
    faults += found
    faults += _no_patterns(saved.names)
    mode = None if saved.mode is None else PlacementMode[saved.mode]
    job = None if saved.job is None else PlanJob.of(saved.job)
    if job is not None:
        faults += _job_faults(job)
    if faults:
        raise _refused(plan, faults)
    if job is not None and file is not None:
        job = job.read_in(folder_of(file))
    actors = [Actors(**actors) for actors in saved.actors]
    return inventory, components, mode, saved.dialect, saved.requests, rules, job, actors


def _components(
    entries: Iterable[tuple[str, Any, Any]], inventory: Inventory | None
) -> tuple[list[Component], list[_Fault]]:
    """Return the components of a plan, and the faults; without an inventory, only their settings of memory are read."""
    components: list[Component] = []
    faults: list[_Fault] = []
    processes = 0
    for name, stated, rest in entries:
        path: KeyPath = ("components", name)
        memory, found = (None, []) if stated is None else settings_of(stated)
        faults += (((*path, "memory", *inner), fault) for inner, fault in found)
        if rest is None or found or inventory is None:
            continue
        try:
            component = _component(name, inventory, memory, *rest)
        except PlacementError as error:
            faults += (((*path, one.path or "rule"), one) for one in error.diagnostics)
        else:
            components.append(component)
            processes += len(component)
        check_size(name, processes)
    return components, faults


def _with_cluster(
    inventory: Inventory, cluster: Mapping[str, Any], file: str | None
) -> tuple[Inventory, Rules, list[_Fault]]:
    """Return an inventory with what ``cluster`` of a plan states of the nodes, the rules of the plan, and faults."""
    facts, rules = ClusterFacts.of(cluster), Rules.of(cluster)
    num_nodes = cluster["num_nodes"]
    found: list[_Fault] = []
    for path, fault in group_faults(dict(enumerate(facts.node_groups)), num_nodes):
        found.append((("node_groups", *path), fault))
    for path, fault in stated_pool_faults(dict(enumerate(rules.pools)), (), num_nodes, ()):
        found.append((("pools", *path), fault))
    if not found and ("node_groups" in cluster or facts != NO_FACTS):
        facts = with_named_levels(facts, rules, inventory)
        inventory, unfit = configured(inventory, facts, num_nodes, planned=True)
        found += ((("topology", *path) if path[0] == "levels" else path, fault) for path, fault in unfit)
    rules = rules.stated_at(lambda path: Where(path_text(("cluster", *path)), file))
    return inventory, rules, [(("cluster", *path), fault) for path, fault in found]


def _no_plan(content: Any) -> Diagnostic:
    """Return the fault of the content of another file, or of a plan of another version."""
    if not isinstance(content, dict):
        return PLAN.fault(content)
    version = content.get("rankplan")
    found = "" if version is None else f", but of version {shown(version)}"
    message = PLAN.instead(content) or f"the file is not a plan of version {PLAN_VERSION}{found}"
    return Diagnostic(PLAN.code, message, PLAN.help, path="")


def _refused(plan: PlanFile, faults: Iterable[_Fault]) -> PlacementError:
    """Return the exception for these faults (at least one), each once, in the order of the file."""
    return refusal(list(dict.fromkeys(_placed(one) for one in _sorted(plan, faults))))


def _sorted(plan: PlanFile, faults: Iterable[_Fault]) -> list[_Fault]:
    return sorted(faults, key=lambda fault: plan.position(fault[0]))


def _placed(fault: _Fault) -> Diagnostic:
    path, diagnostic = fault
    return replace(diagnostic, path=path_text(path))


def _component(
    name: str,
    inventory: Inventory,
    memory: MemorySettings | None,
    node_groups: tuple[str, ...],
    rule: Rule,
    settings: dict[str, Any],
    beside: Iterable[tuple[str, tuple[str, ...], Rule]],
) -> Component:
    """Return a component on an inventory. The faults of its parallel sizes have their path."""
    sizes = settings.pop("parallel", {})
    try:
        parallel = Parallel.parse(sizes) if isinstance(sizes, str) else Parallel(**sizes)
    except PlacementError as error:
        raise _of_sizes(error) from None
    others = tuple(Exclusive(*one) for one in beside)
    component = Component.place(name, inventory, node_groups, rule, Settings(**settings, memory=memory), others)
    try:
        return component.with_settings(parallel=parallel)
    except PlacementError as error:
        raise _of_sizes(error) from None


def _of_sizes(error: PlacementError) -> PlacementError:
    return PlacementError([replace(one, path="parallel") for one in error.diagnostics])


def _job_faults(job: PlanJob) -> list[_Fault]:
    """Return the faults of the commands of a job, and of options that are used before a launcher is known."""
    faults: list[_Fault] = []
    for key in (BASE, TO):
        value = job.emit.get(key, "")
        if not isinstance(value, str) or "\0" in value:
            faults.append((("job", "emit", key), _of_plan(f"`{key}` is {shown(value)}; it must be text")))
    if job.commands:
        from rankplan.plans.command_rules import command_faults  # few plans have commands

        faults += ((("job", "commands", *at), _of_plan(why)) for at, why in command_faults(job.commands))
    return faults


def _no_patterns(names: Sequence[tuple[int, str, str]]) -> list[_Fault]:
    """Return the faults of names of groups that are no regular expressions."""
    faults: list[_Fault] = []
    for index, key, name in names:
        try:
            re.compile(name)
        except re.error as error:
            message = f"`{key}` is {shown(name)}, which is no regular expression: {error}"
            faults.append((("requests", index, key), _of_plan(message)))
    return faults


def _of_plan(message: str) -> Diagnostic:
    """Return a fault of a text that is no plan of ours."""
    return Diagnostic(PLAN.code, message, PLAN.help)

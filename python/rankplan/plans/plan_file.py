"""The file of a plan: its decisions as JSON, written and read by the core.

Rows are not stored: the rules give them again. Two parts are plain values here, each read by one function: the section
of the cluster, and what a component keeps in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeAlias

from rankplan._core import PLAN_VERSION, PlanFile, Requests
from rankplan.errors import Diagnostic, KeyPath, PlacementError, Where, refusal
from rankplan.files import read_text, write_whole
from rankplan.kinds import PLAN
from rankplan.nodes.facts import NO_FACTS
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import Parallel
from rankplan.plans.cluster_values import cluster_values
from rankplan.plans.component import Component, Exclusive, PlacementMode, Rule, Settings, check_size
from rankplan.plans.memory_settings import MemorySettings
from rankplan.plans.rules import NO_RULES, Rules
from rankplan.words import path_text, shown

_LARGEST = 1 << 30
"""The most bytes of a saved plan: 2**24 processes in no order take a third of it."""

Saved: TypeAlias = tuple[Inventory, list[Component], PlacementMode | None, str | None, Requests, Rules]
"""The arguments of `rankplan.Plan`: inventory, components, mode, dialect, requests and rules."""

_Fault: TypeAlias = tuple[KeyPath, Diagnostic]


def content(
    inventory: Inventory,
    components: Mapping[str, Component],
    mode: PlacementMode | None,
    dialect: str | None,
    requests: Requests,
    rules: Rules,
) -> PlanFile:
    """Return the content of the file of a plan."""
    written = []
    for name, one in components.items():
        beside = [other for other in one.beside if other.name not in components]
        written.append((name, (one.node_groups, one.rule), _stated(one.settings), beside))
    cluster, levels = cluster_values(inventory, rules), inventory.written_levels()
    mode_name = None if mode is None else mode.name
    return PlanFile.of(inventory.core, levels, cluster, mode_name, dialect, requests, written)


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


def _with_cluster(inventory: Inventory, cluster: Mapping[str, Any] | None, file: str | None) -> tuple[Inventory, Rules]:
    """Return an inventory with what ``cluster`` of a plan states of the nodes, and its rules."""
    if cluster is None:
        return inventory, NO_RULES
    from rankplan.read.section import read_section, with_section

    reading = read_section(cluster)
    found = with_section(inventory, reading, planned=True)
    rules = reading.rules.stated_at(lambda path: Where(path_text(("cluster", *path)), file))
    states_nothing = "node_groups" not in cluster and reading.facts == NO_FACTS
    return inventory if states_nothing else found, rules


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
        faults = [replace(_not_json(file, text, error), file=file)]
    raise PlacementError(faults)


def _not_json(file: str, text: str, error: Exception) -> Diagnostic:
    """Return the fault of a text that is not JSON: of a damaged plan, or of another kind of file.

    Only then YAML is needed.
    """
    if text.lstrip().startswith("{"):
        if not isinstance(error, JSONDecodeError):
            return Diagnostic(PLAN.code, "the file is not a plan: it is not JSON", PLAN.help)
        message = f"the file is not a plan: invalid JSON at line {error.lineno}, column {error.colno}"
        return Diagnostic(PLAN.code, message, PLAN.help, line=error.lineno, column=error.colno)
    from rankplan.read.text.document import Document

    try:
        return PLAN.fault(Document(file, text).value())
    except PlacementError:
        return Diagnostic(PLAN.code, "the file is not a plan: it is not JSON", PLAN.help)


def read(plan: PlanFile, file: str | None = None) -> Saved:
    """Return the inventory of a plan with its node groups, its components, its mode, dialect, requests and rules.

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
    try:
        inventory, rules = _with_cluster(inventory, saved.cluster, file)
    except PlacementError as error:
        raise PlacementError([*(_placed(one) for one in _sorted(plan, faults)), *error.diagnostics]) from None
    components: list[Component] = []
    processes = 0
    for name, stated, rest in saved.components:
        path: KeyPath = ("components", name)
        memory, found = _memory(stated, (*path, "memory"))
        faults += found
        if rest is None or found:
            continue
        try:
            component = _component(name, inventory, memory, *rest)
        except PlacementError as error:
            faults += (((*path, one.path or "rule"), one) for one in error.diagnostics)
        else:
            components.append(component)
            processes += len(component)
        check_size(name, processes)
    faults += _no_patterns(saved.names)
    if faults:
        raise _refused(plan, faults)
    mode = None if saved.mode is None else PlacementMode[saved.mode]
    return inventory, components, mode, saved.dialect, saved.requests, rules


def _memory(stated: Any, path: KeyPath) -> tuple[MemorySettings | None, list[_Fault]]:
    """Return what a component states about its memory, or the faults of that."""
    if stated is None:
        return None, []
    from rankplan.read.memory import read_memory

    return read_memory(stated, path)


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


def _no_patterns(names: Sequence[tuple[int, str, str]]) -> list[_Fault]:
    """Return the faults of names of groups that are no regular expressions."""
    faults: list[_Fault] = []
    for index, key, name in names:
        try:
            re.compile(name)
        except re.error as error:
            message = f"`{key}` is {shown(name)}, which is no regular expression: {error}"
            faults.append((("requests", index, key), Diagnostic(PLAN.code, message, PLAN.help)))
    return faults

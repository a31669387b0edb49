"""The file of a plan: versioned JSON with its nodes, its node groups, and the decisions of every component.

Rows are not stored: the rules give them again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, Field, ValidationError, model_validator

from rankplan._core import Chunks, Packed, RankMap
from rankplan.config.base import BindingWord, MemoryWord, Model, NicsWord, VisibilityWord
from rankplan.config.memory import MemoryEntry
from rankplan.config.parallel import ParallelEntry
from rankplan.config.ranks import Count
from rankplan.config.section import read_section, with_section
from rankplan.config.text.document import Document
from rankplan.config.text.faults import diagnostics, fault
from rankplan.config.text.files import read_text, write_whole
from rankplan.config.text.reader import Reader
from rankplan.errors import Diagnostic, KeyPath, PlacementError, Where
from rankplan.hardware.policies import NO_BINDING, NO_MEMORY
from rankplan.kinds import PLAN
from rankplan.nodes.facts import NO_FACTS
from rankplan.nodes.inventory import Inventory
from rankplan.plans.cluster_values import cluster_values
from rankplan.plans.component import Component, Exclusive, PlacementMode, Rule, Settings, check_size
from rankplan.plans.requests import Request, RequestEntry, plain_requests
from rankplan.plans.rules import NO_RULES, Rules
from rankplan.words import path_text, shown

VERSION = 2

_LARGEST = 1 << 30
"""The most bytes of a saved plan: 2**24 processes in no order take a third of it."""


class _Rule(Model):
    """One of: a rank map; chunks of resources, in order; the four arguments of the packed strategy."""

    map: str | None = None
    chunks: str | None = None
    per_process: Count = Field(default=1, ge=1)
    packed: tuple[Count, Count, Count, Count] | None = None

    @model_validator(mode="after")
    def _one(self) -> _Rule:
        if sum(value is not None for value in (self.map, self.chunks, self.packed)) != 1:
            raise fault("invalid-plan", "a rule must have one of `map`, `chunks` and `packed`", PLAN.help)
        return self

    @classmethod
    def of(cls, rule: Rule) -> _Rule:
        if isinstance(rule, RankMap):
            return cls(map=str(rule))
        if isinstance(rule, Chunks):
            return cls(chunks=str(rule), per_process=rule.per_process)
        return cls(packed=(rule.start, rule.end, rule.per_process, rule.stride))

    def value(self) -> Rule:
        if self.map is not None:
            return RankMap.read(self.map)
        if self.chunks is not None:
            return Chunks.parse(self.chunks, self.per_process)
        return Packed(*self.packed or (0, 0, 0, 0))


class _Placed(Model):
    node_groups: tuple[str, ...] = Field(min_length=1)
    rule: _Rule


class _Component(_Placed):
    visibility: VisibilityWord = "own"
    by_node: bool = False
    parallel: ParallelEntry = ParallelEntry()
    share: float | None = Field(default=None, gt=0, le=1)
    engines: Count = Field(default=1, ge=1)
    binding: BindingWord = NO_BINDING
    memory_binding: MemoryWord = NO_MEMORY
    egl: bool = False
    nics: NicsWord = "check"
    memory: MemoryEntry | None = None
    beside: dict[str, _Placed] = Field(default_factory=dict)
    """Components that the plan leaves out but that use cores exclusively."""

    @classmethod
    def of(cls, component: Component, names: Container[str]) -> _Component:
        """Return the state of a component of a plan with these names."""
        beside = {
            one.name: _Placed(node_groups=one.node_groups, rule=_Rule.of(one.rule))
            for one in component.beside
            if one.name not in names
        }
        rule, settings = _Rule.of(component.rule), asdict(component.settings)
        return cls(node_groups=component.node_groups, rule=rule, beside=beside, **settings)

    def value(self, name: str, inventory: Inventory) -> Component:
        plain = self.model_dump(exclude={"node_groups", "rule", "parallel", "beside", "memory"})
        settings = Settings(**plain, memory=self.memory)
        beside = tuple(Exclusive(one, of.node_groups, of.rule.value()) for one, of in sorted(self.beside.items()))
        component = Component.place(name, inventory, self.node_groups, self.rule.value(), settings, beside)
        try:
            return component.with_settings(parallel=self.parallel.value())
        except PlacementError as error:
            raise PlacementError([replace(one, path="parallel") for one in error.diagnostics]) from None


_MODELS: dict[str, type[BaseModel]] = {
    "": _Component,
    "rule": _Rule,
    "parallel": ParallelEntry,
    "memory": MemoryEntry,
    "beside": _Placed,
}

Saved: TypeAlias = tuple[Inventory, list[Component], PlacementMode | None, str | None, Sequence[Request], Rules]
"""The arguments of `rankplan.Plan`: inventory, components, mode, dialect, requests and rules."""


def plain(
    inventory: Inventory,
    components: Mapping[str, Component],
    mode: PlacementMode | None,
    dialect: str | None,
    requests: Sequence[Request],
    rules: Rules,
) -> dict[str, Any]:
    """Return a plan as plain values."""
    return {
        "rankplan": VERSION,
        "inventory": inventory.to_dict(),
        "cluster": cluster_values(inventory, rules),
        **({} if mode is None else {"mode": mode.name}),
        **({} if dialect is None else {"dialect": dialect}),
        **({"requests": plain_requests(requests)} if requests else {}),
        "components": {
            name: _Component.of(one, components).model_dump(mode="json", exclude_defaults=True)
            for name, one in components.items()
        },
    }


def text(content: Mapping[str, Any]) -> str:
    """Return the file of a plan, a component per line. Equal plans give equal texts."""
    components = [f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in content["components"].items()]
    # equal mappings may differ in the order of their keys
    parts = {key: json.dumps(value, sort_keys=True) for key, value in content.items()}
    parts["components"] = "{\n" + ",\n".join(components) + "\n}"
    return "{\n" + ",\n".join(f'"{key}": {part}' for key, part in parts.items()) + "\n}\n"


def save(path: Path, content: Mapping[str, Any]) -> None:
    """Write a plan atomically. Equal plans give equal bytes. Raises ``OSError``."""
    write_whole(path, text(content))


def load(file: str) -> Saved:
    """Read a file for `read`. Its faults have the path of the file. Raises ``OSError`` for an unreadable file."""
    text = read_text(file, _LARGEST)
    try:
        return read(json.loads(text), file)
    except PlacementError as error:
        faults = [replace(one, file=file) for one in error.diagnostics]
    except (ValueError, RecursionError) as error:
        faults = [replace(_not_json(file, text, error), file=file)]
    raise PlacementError(faults)


def _not_json(file: str, text: str, error: Exception) -> Diagnostic:
    """Return the fault of a text that is not JSON: of a damaged plan, or of another kind of file."""
    if text.lstrip().startswith("{"):
        if not isinstance(error, JSONDecodeError):
            return Diagnostic(PLAN.code, "the file is not a plan: it is not JSON", PLAN.help)
        message = f"the file is not a plan: invalid JSON at line {error.lineno}, column {error.colno}"
        return Diagnostic(PLAN.code, message, PLAN.help, line=error.lineno, column=error.colno)
    try:
        return PLAN.fault(Document(file, text).value())
    except PlacementError:
        return Diagnostic(PLAN.code, "the file is not a plan: it is not JSON", PLAN.help)


def read(content: Any, file: str | None = None) -> Saved:
    """Return the inventory of a plan with its node groups, its components, its mode, dialect, requests and rules.

    The rules are stated in the ``file``.

    Raises `PlacementError` (``invalid-plan``) with each wrong key and its reason.
    """
    try:
        return _read(content, file)
    except PlacementError as error:
        faults = [replace(one, code="invalid-plan", help=one.help or PLAN.help) for one in error.diagnostics]
    raise PlacementError(faults)


def _read(content: Any, file: str | None) -> Saved:
    if not isinstance(content, dict):
        raise PlacementError([PLAN.fault(content)])
    reader = Reader(content)

    def fault(path: KeyPath, message: str) -> None:
        reader.add(path, Diagnostic("invalid-plan", message, PLAN.help))

    version = content.get("rankplan")
    if type(version) is not int or version != VERSION:
        found = "" if version is None else f", but of version {shown(version)}"
        fault((), PLAN.instead(content) or f"the file is not a plan of version {VERSION}{found}")
        raise reader.refusal()
    for key in ("inventory", "cluster", "components"):
        if key not in content:
            fault((), f"the file is not a plan: `{key}` is missing")
        elif not isinstance(content[key], dict) and not (key == "cluster" and content[key] is None):
            fault((key,), f"`{key}` is {shown(content[key])}; it must be a mapping")
    mode, modes = content.get("mode"), PlacementMode.__members__
    if mode is not None and (not isinstance(mode, str) or mode not in modes):
        fault(("mode",), f"`mode` is {shown(mode)}; it must be {', '.join(list(modes)[:-1])} or {list(modes)[-1]}")
    dialect = content.get("dialect")
    if dialect is not None and not (isinstance(dialect, str) and dialect and dialect.isprintable()):
        fault(("dialect",), f"`dialect` is {shown(dialect)}; it must be a name")
    reader.finish()
    try:
        inventory = Inventory.from_dict(content["inventory"])
    except PlacementError as error:
        faults = [replace(one, path=f"inventory.{one.path}".rstrip(".")) for one in error.diagnostics]
        raise PlacementError(faults) from None
    inventory, rules = _with_cluster(inventory, content["cluster"], file)
    components: list[Component] = []
    processes = 0
    for name, state in content["components"].items():
        path: KeyPath = ("components", name)
        if not name.isprintable():
            fault(("components",), f"the component name {shown(name)} contains unprintable characters")
            continue
        try:
            component = _Component.model_validate(state).value(name, inventory)
            components.append(component)
            processes += len(component)
        except ValidationError as error:
            for place, diagnostic in diagnostics(error, _MODELS, path):
                reader.add(place, diagnostic)
        except PlacementError as error:
            for one in error.diagnostics:
                reader.add((*path, one.path or "rule"), one)
        except (ValueError, OverflowError) as error:
            fault(path, f"the rule of `{name}` is damaged: {error}")
        check_size(name, processes)
    requests = _requests(reader, content.get("requests", []), inventory)
    reader.finish()
    return inventory, components, None if mode is None else modes[mode], dialect, requests, rules


def _with_cluster(inventory: Inventory, cluster: Mapping[str, Any] | None, file: str | None) -> tuple[Inventory, Rules]:
    """Return an inventory with what ``cluster`` of a plan states of the nodes, and its rules."""
    if cluster is None:
        return inventory, NO_RULES
    reading = read_section(cluster)
    found = with_section(inventory, reading, planned=True)
    rules = reading.rules.stated_at(lambda path: Where(path_text(("cluster", *path)), file))
    states_nothing = "node_groups" not in cluster and reading.facts == NO_FACTS
    return inventory if states_nothing else found, rules


def _requests(reader: Reader, content: Any, inventory: Inventory) -> list[Request]:
    found: list[Request] = []
    patterns: set[str] = set()
    if not isinstance(content, list):
        message = f"`requests` is {shown(content)}; it must be a list"
        reader.add(("requests",), Diagnostic("invalid-plan", message, PLAN.help))
        return found
    for index, state in enumerate(content):
        path: KeyPath = ("requests", index)
        try:
            request = RequestEntry.model_validate(state).value()
        except ValidationError as error:
            for place, diagnostic in diagnostics(error, _MODELS, path):
                reader.add(place, diagnostic)
            continue
        if len(request.nodes) != (0 if request.optional else len(request.accelerators)):
            message = "an optional request has no nodes" if request.optional else "a bundle has no node"
            reader.add((*path, "bundles"), Diagnostic("invalid-plan", message, PLAN.help))
        elif (last := max(request.nodes, default=0)) >= inventory.num_nodes:
            message = f"a bundle is on node {last}, but the plan has {inventory.num_nodes}"
            reader.add((*path, "bundles"), Diagnostic("invalid-plan", message, PLAN.help))
        if (reason := _no_pattern(request.name or "", patterns)) is not None:
            message = f"`name` is {shown(request.name)}, which is no regular expression: {reason}"
            reader.add((*path, "name"), Diagnostic("invalid-plan", message, PLAN.help))
        found.append(request)
    return found


def _no_pattern(name: str, known: set[str]) -> str | None:
    """Return why a name is no regular expression, if it is none.

    ``known`` gets the patterns that are one, without the number at their end: with any number they are one, too. So
    thousands of names that only differ in their number are compiled once.
    """
    template = name.rstrip("0123456789")
    if template in known:
        return None
    for pattern in (template, name):  # "\x41" is one only with its digits
        try:
            re.compile(pattern)
        except re.error as error:
            reason = str(error)
        else:
            known.add(pattern)
            return None
    return reason

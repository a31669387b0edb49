"""The file of a plan: versioned JSON with its nodes, its node groups, and the decisions of every component.

Rows are not stored: the rules give them again. Version 1 stored rows only; their rules are derived.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, Field, ValidationError, model_validator

from rankplan._core import Chunks, Packed, Placements, RankMap
from rankplan.config.base import Model
from rankplan.config.models import Count
from rankplan.config.parallel import ParallelEntry
from rankplan.config.text.faults import KeyPath, diagnostics, fault
from rankplan.config.text.files import write_whole
from rankplan.config.text.reader import Reader
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.binding import Binding
from rankplan.plans.component import Component, Rule, Visibility, merged
from rankplan.words import shown

VERSION = 2
"""The version that is written. Versions 1 and 2 are read."""

_HELP = "save a plan with `rankplan plan CONFIG --save FILE` or Plan.save"


class _Rule(Model):
    """One of: a rank map; chunks of resources, in order; the four arguments of the packed strategy."""

    map: str | None = None
    chunks: str | None = None
    per_process: Count = Field(default=1, ge=1)
    packed: tuple[Count, Count, Count, Count] | None = None

    @model_validator(mode="after")
    def _one(self) -> _Rule:
        if sum(value is not None for value in (self.map, self.chunks, self.packed)) != 1:
            raise fault("invalid-plan", "a rule must have one of `map`, `chunks` and `packed`", _HELP)
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
            return RankMap.parse(self.map)
        if self.chunks is not None:
            return Chunks.parse(self.chunks, self.per_process)
        return Packed(*self.packed or (0, 0, 0, 0))


class _Component(Model):
    node_groups: tuple[str, ...] = Field(min_length=1)
    rule: _Rule
    by_node: bool = False
    visibility: Visibility = "own"
    parallel: ParallelEntry = ParallelEntry()
    share: float | None = Field(default=None, gt=0, le=1)
    engines: Count = Field(default=1, ge=1)
    binding: Literal["none", "node", "socket", "exclusive", "core-complex"] = "none"
    memory: Literal["none", "preferred", "bind"] = "none"
    render: bool = False
    nics: Literal["check", "set"] = "check"

    @classmethod
    def of(cls, component: Component) -> _Component:
        return cls(
            node_groups=component.node_groups,
            rule=_Rule.of(component.rule),
            by_node=component.by_node,
            visibility=component.visibility,
            parallel=ParallelEntry.of(component.parallel),
            share=component.share,
            engines=component.engines,
            binding=cast(Any, component.binding.policy),
            memory=cast(Any, component.binding.memory),
            render=component.render,
            nics=cast(Any, component.nics),
        )

    def value(self, name: str, inventory: Inventory) -> Component:
        more: dict[str, Any] = {"share": self.share, "engines": self.engines, "render": self.render, "nics": self.nics}
        more["binding"] = Binding(self.binding, self.memory)
        placed = self.node_groups, self.rule.value(), self.visibility, self.by_node
        component = Component.place(name, inventory, *placed, **more)
        try:
            return replace(component, parallel=self.parallel.value())
        except PlacementError as error:
            raise PlacementError([replace(one, path="parallel") for one in error.diagnostics]) from None


_MODELS: dict[str, type[BaseModel]] = {"": _Component, "rule": _Rule, "parallel": ParallelEntry}


def save(path: Path, inventory: Inventory, components: Iterable[Component], mode: str | None = None) -> None:
    """Write a plan atomically. Equal plans give equal bytes. Raises ``OSError``."""
    section = inventory.section
    plain = {one.name: _Component.of(one).model_dump(mode="json", exclude_defaults=True) for one in components}
    parts = {
        "rankplan": str(VERSION),
        "inventory": json.dumps(inventory.to_dict()),
        "cluster": json.dumps(section.model_dump(mode="json") if section else None),
        **({} if mode is None else {"mode": json.dumps(mode)}),
        "components": "{\n"
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in plain.items())
        + "\n}",
    }
    write_whole(path, "{\n" + ",\n".join(f'"{key}": {text}' for key, text in parts.items()) + "\n}\n")


def load(file: str) -> tuple[Inventory, list[Component], str | None]:
    """Read a plan: its inventory with node groups, its components, and its mode.

    Raises `PlacementError` (``invalid-plan``) with each wrong key and its reason, ``OSError`` for an unreadable file.
    """
    data = Path(file).read_bytes()
    try:
        return _read(json.loads(data))
    except PlacementError as error:
        faults = [replace(one, code="invalid-plan", help=one.help or _HELP, file=file) for one in error.diagnostics]
    except JSONDecodeError as error:
        message = f"the file is not a plan: invalid JSON at line {error.lineno}, column {error.colno}"
        faults = [Diagnostic("invalid-plan", message, _HELP, file=file, line=error.lineno, column=error.colno)]
    except (ValueError, RecursionError):
        faults = [Diagnostic("invalid-plan", "the file is not a plan: it is not JSON", _HELP, file=file)]
    raise PlacementError(faults)


def _read(content: Any) -> tuple[Inventory, list[Component], str | None]:
    reader = Reader(content)

    def fault(path: KeyPath, message: str) -> None:
        reader.add(path, Diagnostic("invalid-plan", message, _HELP))

    version = content.get("rankplan") if isinstance(content, dict) else None
    if type(version) is not int or version not in _READERS:
        found = "" if version is None else f", but of version {shown(version)}"
        fault((), f"the file is not a plan of version 1 or {VERSION}{found}")
        raise reader.refusal()
    for key in ("inventory", "cluster", "components"):
        if key not in content:
            fault((), f"the file is not a plan: `{key}` is missing")
        elif not isinstance(content[key], dict) and not (key == "cluster" and content[key] is None):
            fault((key,), f"`{key}` is {shown(content[key])}; it must be a mapping")
    mode = content.get("mode")
    if mode is not None and not (isinstance(mode, str) and mode.isprintable()):
        fault(("mode",), f"`mode` is {shown(mode)}; it must be text")
    reader.finish()
    inventory = _inventory(content)
    components = []
    for name, state in content["components"].items():
        path: KeyPath = ("components", name)
        if not name.isprintable():
            fault(("components",), f"the component name {shown(name)} contains unprintable characters")
            continue
        try:
            components.append(_READERS[version](name, state, inventory))
        except ValidationError as error:
            for place, diagnostic in diagnostics(error, _MODELS, path):
                reader.add(place, diagnostic)
        except PlacementError as error:
            for one in error.diagnostics:
                reader.add((*path, *((one.path or "rule",) if version == VERSION else ())), one)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
            fault(path, f"the columns of `{name}` are damaged: {error}")
    reader.finish()
    return inventory, components, mode


def _inventory(content: Mapping[str, Any]) -> Inventory:
    try:
        inventory = Inventory.from_dict(content["inventory"])
    except PlacementError as error:
        faults = [replace(one, path=f"inventory.{one.path}".rstrip(".")) for one in error.diagnostics]
        raise PlacementError(faults) from None
    return inventory if content["cluster"] is None else inventory.with_config(content["cluster"])


def _component(name: str, state: Any, inventory: Inventory) -> Component:
    return _Component.model_validate(state).value(name, inventory)


def _component_of_version_1(name: str, state: Any, inventory: Inventory) -> Component:
    """Return a component of a file that has columns: its rows, and the rule that gives them."""
    groups = [(label, kind) for label, kind in state["node_groups"]]
    labels = tuple(label for label, _ in groups)
    isolate, pool = state["isolate_accelerator"], inventory.pool(labels)
    if not isinstance(isolate, bool) or groups != pool.groups:
        raise ValueError("they do not match the node groups")
    columns = (
        groups,
        [(first, group) for first, group in state["group_starts"]],
        _bytes("I", state["cluster_node_rank"]),
        _bytes("I", state["device_starts"]),
        _bytes("H", state["devices"]),
        [(device, node) for device, node in state.get("elsewhere", ())],
    )
    rows = Placements.from_state(inventory.core, isolate, columns)
    ranks = pool.ranks_of(rows)
    if ranks == sorted(map(sorted, ranks)) and not state.get("elsewhere"):
        rule: Rule = RankMap.parse(merged(RankMap.from_lists(ranks)))
    else:
        rule = Chunks([rank for each in ranks for rank in each], len(ranks[0]))
    component = Component.place(name, inventory, labels, rule, isolate)
    if component.rows != rows:
        raise ValueError("no rule gives these rows")
    return component


def _bytes(kind: str, numbers: list[int]) -> bytes:
    # Columns are little-endian 32-bit (I) and 16-bit (H) numbers, like `array` on every platform of Ray.
    if not set(map(type, numbers)) <= {int}:
        raise ValueError("a column contains more than numbers")
    return array(kind, numbers).tobytes()


_READERS: dict[int, Callable[[str, Any, Inventory], Component]] = {1: _component_of_version_1, VERSION: _component}

"""Converts a plan into a config of another dialect, as far as that dialect can express it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import eq
from typing import Any, TypeAlias

import yaml

from rankplan._core import WHOLE_NODE
from rankplan.dialects import DIALECTS, WRITERS, dialect_of
from rankplan.dialects.verl_writing import topology_written
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import ENGINE_ORDER
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan


@dataclass(frozen=True, slots=True)
class Converted:
    """A config in another dialect; what it omits of the plan, with the reason; and the components that it adds."""

    config: dict[str, Any]
    omitted: tuple[str, ...]
    added: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The config as YAML; empty if nothing can be written."""
        return yaml.safe_dump(self.config, sort_keys=False) if self.config else ""


_Writer: TypeAlias = Callable[[Plan], tuple[dict[str, Any], dict[str, str]]]


def convert(planned: Plan, to: str, *, topology: bool = False) -> Converted:
    """Write a plan in the dialect ``to`` (``rlinf``, ``verl``, ``slime``, ``roll``).

    ``topology`` writes the section of this name in verl's draft (RFC #7269) instead of its keys of today.

    The result is planned again, and only components that come out the same are kept. Node groups are not converted.
    Raises ``ValueError`` for an unknown dialect, or one that can only be read.
    """
    if to not in WRITERS:
        what = "rankplan reads, but cannot write" if to in DIALECTS else "unknown dialect"
        raise ValueError(f"{what} {to!r}; it writes {', '.join(WRITERS)}")
    if topology and to != "verl":
        raise ValueError("only verl has a topology section")
    write: _Writer = topology_written if topology else WRITERS[to].written
    bare = planned.inventory.without_groups()
    wanted, reasons, config = list(planned.values()), dict[str, str](), dict[str, Any]()
    again: Plan | None = None
    while wanted:
        config, failed = write(Plan(planned.inventory, wanted))
        if not failed:
            again, failed = _compared(wanted, to, config, bare, write)
        if not failed:
            break
        reasons |= failed
        wanted = [component for component in wanted if component.name not in failed]
    omitted = [f"{name}: {reasons[name]}" for name in planned if name in reasons]
    for component in wanted:
        if again is not None and 1 != component.engines != again[component.name].engines:
            omitted.append(f"{component.name}: its engines of {component.engines} processes each")
        if again is not None and _other_groups(component, again[component.name]):
            sizes = component.parallel if component.parallel.stated else "tp 1"
            omitted.append(f"{component.name}: its parallel sizes, {sizes}")
    added = [name for name in again if name not in [one.name for one in wanted]] if again is not None else []
    return Converted(config if wanted else {}, tuple(_lost(planned) + omitted), tuple(added))


def _compared(
    wanted: list[Component], to: str, config: Any, inventory: Inventory, write: _Writer
) -> tuple[Plan | None, dict[str, str]]:
    """Plan a config again; return that plan, and why components that differ in it do."""
    isolate = all(component.visibility == "own" for component in wanted)
    try:
        if dialect_of(config) is not WRITERS[to]:
            raise PlacementError([Diagnostic("invalid-value", "its name is a key of another dialect")])
        again = WRITERS[to].plan(config, inventory, isolate_accelerator=isolate)
    except PlacementError as error:
        if len(wanted) == 1:
            return None, {wanted[0].name: error.message}
        found: dict[str, str] = {}
        for component in wanted:
            alone, _ = write(Plan(component.inventory, [component]))
            found |= _compared([component], to, alone, inventory, write)[1]
        return None, found or dict.fromkeys((component.name for component in wanted), error.message)
    kept = {one.name for one in wanted if one.name in again and all(map(eq, _places(one), _places(again[one.name])))}
    different = [one.name for one in wanted if one.name not in kept or len(one) != len(again[one.name])]
    return again, dict.fromkeys(different, f"{to} would place it elsewhere")


def _places(rows: Component) -> Iterator[tuple[Any, ...]]:
    """Yield each row without its node group."""
    for row in rows:
        by_node = row.resource_type == WHOLE_NODE
        yield row.cluster_node_rank, row.devices, row.visible_accelerators, by_node


def _other_groups(component: Component, other: Component) -> bool:
    """Whether the groups of a component that states its sizes, or of an engine, which has them, differ."""
    engine = component.parallel.order == ENGINE_ORDER and other.parallel.stated
    kinds = ("tp", "cp", "fsdp", "pp", "etp", "ep")
    return (component.parallel.stated or engine) and any(component.groups(one) != other.groups(one) for one in kinds)


def _lost(planned: Plan) -> list[str]:
    """Return the settings that a cluster section gives to processes beside their place."""
    groups = {group.label: group for group in planned.section.node_groups} if planned.section else {}
    return [
        f"{name}: node group `{label}`, with its variables and interpreters"
        for name, component in planned.items()
        for label in dict.fromkeys(run.pattern.node_group for run in component.rows.runs())
        if label in groups and groups[label].env_configs
    ]

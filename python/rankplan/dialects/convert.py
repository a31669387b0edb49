"""Converts a plan into a config of another dialect, as far as that dialect can express it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import yaml

from rankplan._core import WHOLE_NODE
from rankplan.dialects import DIALECTS, name_of, writers
from rankplan.dialects.interface.dialect import Writer
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.guests.doors import GuestError
from rankplan.nodes.facts import NO_FACTS
from rankplan.nodes.groups import NodeGroup
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import Parallel
from rankplan.plans.component import USUAL_SETTINGS, Component, PlacementMode, Settings
from rankplan.plans.parts import rules_of
from rankplan.plans.plan import Plan, check_plan
from rankplan.plans.rules import Rules
from rankplan.read.text.load import load_config

_NOUNS = {
    "memory_binding": "memory binding",
    "egl": "rendering with EGL",
    "memory": "settings of memory",
    "nics": "use of network cards",
    "cpus_per_process": "CPUs of each process",
    "host_memory_per_process": "host memory of each process",
}
"""Words for settings, where their names are none."""


@frozen
class Converted:
    """A config in another dialect; what it omits of the plan; and what it adds, such as shares.

    The config of a system that places by its commands is a launch script.
    """

    config: dict[str, Any] | str
    omitted: tuple[str, ...]
    added: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The config as YAML, or the launch script; empty if nothing can be written."""
        if isinstance(self.config, str):
            return self.config
        return yaml.safe_dump(self.config, sort_keys=False) if self.config else ""


_SCRIPT = "job.sh"
"""The name of a launch script, which no message has."""
TOPOLOGY = "topology"
"""The form of a config that has the section of this name."""


def convert(planned: Plan, to: str, *, topology: bool = False) -> Converted:
    """Write a plan in the dialect ``to``, one of `rankplan.dialects.writers`, also of another package.

    ``topology`` writes the section of this name in verl's draft (RFC #7269) instead of its keys of today.

    The result is planned again on the same nodes, and everything that comes out otherwise is named: components that
    would be elsewhere, which are left out; settings, node groups, and rules of the cluster section.
    Raises ``ValueError`` for an unknown dialect, one that can only be read, or one without a topology section, and
    `PlacementError` if the dialect of another package fails.
    """
    check_plan(planned, "planned")
    form = TOPOLOGY if topology else ""
    _check_writer(to, form)
    written = _written(planned, to, partial(DIALECTS[to].written, form=form))
    components = {component.name: component for component in written.components}
    omitted = list(_section_lost(planned, written.again))
    omitted += [f"{name}: {written.reasons[name]}" for name in planned if name in written.reasons]
    added = [f"{name}: the component" for name in written.again if name not in components]
    for name, component in components.items():
        for change in _changes(component, written.again[name], to):
            (omitted if change.is_lost else added).append(f"{name}: {change.what}")
    return Converted(written.config, tuple(omitted), tuple(added))


def _check_writer(to: str, form: str) -> None:
    """Raise ``ValueError`` for a dialect that does not exist, that can only be read, or that lacks this form."""
    is_known = to in DIALECTS
    if not (is_known and DIALECTS[to].writers):
        what = "rankplan reads, but cannot write" if is_known else "unknown dialect"
        raise ValueError(f"{what} {to!r}; it writes {', '.join(writers())}")
    if form not in DIALECTS[to].writers:
        raise ValueError(f"only {' and '.join(writers(form))} has a topology section")


class _Written(NamedTuple):
    """A config, the components in it, the plan that comes out of it, and why it lacks the other components."""

    config: dict[str, Any] | str
    components: list[Component]
    again: Plan
    reasons: dict[str, str]


def _written(planned: Plan, to: str, write: Writer) -> _Written:
    """Write the components of a plan that a dialect can express and that run at the same places when planned again.

    The others are left out, and what is left is written again, until nothing more has to be left out.
    """
    inventory = planned.inventory.without_groups()
    components = list(planned.values())
    reasons: dict[str, str] = {}
    while components:
        config, failed = write(_plan_of(components, planned.rules, planned.mode))
        if not failed:
            again, failed = _compared(components, to, config, inventory, write)
        if not failed:
            return _Written(config, components, again, reasons)
        reasons |= failed
        components = [component for component in components if component.name not in failed]
    return _Written({}, [], Plan(inventory, []), reasons)


def _plan_of(components: list[Component], rules: Rules, mode: PlacementMode | None = None) -> Plan:
    """Return the plan of some components that is written: its rules are about these only."""
    about_them = rules_of(rules, {component.name: component for component in components})
    return Plan(components[0].inventory, components, mode, rules=about_them)


def _compared(
    components: list[Component], to: str, config: Any, inventory: Inventory, write: Writer
) -> tuple[Plan, dict[str, str]]:
    """Plan a config again; return that plan, and why components that differ in it do."""
    try:
        values = load_config(_SCRIPT, text=config) if isinstance(config, str) else config
        if name_of(values) != to:
            raise PlacementError([_named_like_a_dialect()])
        again = DIALECTS[to].plan(values, inventory)
    except GuestError:
        raise  # the code of the other package failed, which says nothing about the components
    except PlacementError as error:
        nothing = Plan(inventory, [])
        if len(components) == 1:
            return nothing, {components[0].name: error.message}
        reasons: dict[str, str] = {}
        for component in components:
            alone, _ = write(_plan_of([component], component.plan_rules))
            if alone:
                reasons |= _compared([component], to, alone, inventory, write)[1]
            else:  # the system has it with others only
                reasons[component.name] = error.message
        return nothing, reasons or dict.fromkeys((component.name for component in components), error.message)
    different = []
    for component in components:
        if component.name not in again or not _same_places(component, again[component.name]):
            different.append(component.name)
    return again, dict.fromkeys(different, f"{to} would place it elsewhere")


def _named_like_a_dialect() -> Diagnostic:
    """Return the fault of a component by whose name the written config is taken for another system's."""
    return Diagnostic("invalid-value", "its name is a key of another dialect")


def _same_places(component: Component, other: Component) -> bool:
    return all(one == two for one, two in zip_longest(_places(component), _places(other)))


def _places(rows: Component) -> Iterator[tuple[Any, ...]]:
    """Yield each row without what settings decide, and without its node group."""
    for row in rows:
        yield row.cluster_node_rank, row.devices, row.resource_type == WHOLE_NODE


class _Change(NamedTuple):
    """What a component decides otherwise in another plan; ``is_lost`` unless only the other plan decides it."""

    what: str
    is_lost: bool


def _changes(component: Component, other: Component, to: str) -> Iterator[_Change]:
    """Yield what two components at the same places decide otherwise."""
    for field in fields(Settings):
        mine = getattr(component, field.name)
        theirs = getattr(other, field.name)
        if field.name == "by_node":
            continue  # it decides about places
        if field.name == "parallel":
            if _other_groups(component, other):
                yield _change_of_sizes(mine, theirs)
        elif mine != theirs:
            yield _change_of_setting(field.name, mine, theirs, to)
    if component.beside != other.beside:
        neighbours = ", ".join(neighbour.name for neighbour in component.beside)
        yield _Change(f"its cores, which {neighbours} leaves", is_lost=True)


def _change_of_sizes(mine: Parallel, theirs: Parallel) -> _Change:
    """Return the change of parallel sizes; an engine that states none has a tensor size of 1."""
    if mine.stated:
        return _Change(f"its parallel sizes, {mine}", is_lost=True)
    if mine.order == Parallel.ENGINE_ORDER and theirs.stated:
        return _Change("its parallel sizes, tp 1", is_lost=True)
    return _Change(f"its parallel sizes, {theirs}", is_lost=False)


def _change_of_setting(name: str, mine: Any, theirs: Any, to: str) -> _Change:
    usual = getattr(USUAL_SETTINGS, name)
    is_lost = mine != usual
    value = mine if is_lost else theirs
    if name == "engines":
        what = f"engines of {value} processes each"
    elif name in ("egl", "memory"):
        what = _NOUNS[name]
    else:
        what = f"{_NOUNS.get(name, name)}, {_shown(value)}"
        if usual not in (mine, theirs):
            what += f" ({to}: {_shown(theirs)})"
    return _Change(f"its {what}", is_lost)


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else format(value, "g")


def _other_groups(component: Component, other: Component) -> bool:
    """Whether the groups differ, if either component states its sizes."""
    kinds = ("tp", "cp", "fsdp", "pp", "etp", "ep")
    stated = component.parallel.stated or other.parallel.stated
    return stated and any(component.groups(kind) != other.groups(kind) for kind in kinds)


def _section_lost(planned: Plan, again: Plan) -> Iterator[str]:
    """Yield the decisions about the whole job, and the node groups, that another plan of its components lacks."""
    if planned.mode not in (None, again.mode):
        yield f"the mode {planned.mode.name}"
    for key, (stated, other) in _stated(planned, again).items():
        if stated != other:
            yield f"`cluster.topology.{key}`"
    pools = planned.rules.with_pools_of(again).pools
    lost_pools = [pool.name for pool in pools if pool.decides and pool not in again.rules.pools]
    if lost_pools:
        yield f"`cluster.pools`, {', '.join(lost_pools)}"
    mine, theirs = planned.inventory.facts or NO_FACTS, again.inventory.facts or NO_FACTS
    if mine.exclude != theirs.exclude:
        yield f"`cluster.exclude`, {', '.join(mine.exclude)}"
    for group in mine.node_groups:
        if group not in theirs.node_groups:
            yield from _group_lost(group, planned)


def _group_lost(group: NodeGroup, planned: Plan) -> list[str]:
    """Return that a node group is lost, for each component that uses it."""
    what = f"node group `{group.label}`"
    if group.environments:
        what += ", with its variables and interpreters"
    users = [name for name, component in planned.items() if group.label in component.node_groups]
    return [f"{name}: {what}" for name in users] or [what]


def _stated(planned: Plan, again: Plan) -> dict[str, tuple[Any, Any]]:
    """Return what two plans state about the network, by key."""
    mine, theirs = planned.inventory.facts or NO_FACTS, again.inventory.facts or NO_FACTS
    facts = {"levels": (mine.levels, theirs.levels), "order": (mine.order, theirs.order)}
    rules, others = planned.rules.topology(), again.rules.topology()
    return facts | {key: (value, others[key]) for key, value in rules.items()}

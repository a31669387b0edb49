"""Converts a plan into a config of another dialect, as far as that dialect can express it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from itertools import zip_longest
from typing import Any

import yaml

from rankplan._core import WHOLE_NODE
from rankplan.dialects import DIALECTS, name_of, writers
from rankplan.dialects.interface.dialect import Writer
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.guests.doors import GuestError
from rankplan.nodes.facts import NO_FACTS
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
    is_known = to in DIALECTS
    if not (is_known and DIALECTS[to].writers):
        what = "rankplan reads, but cannot write" if is_known else "unknown dialect"
        raise ValueError(f"{what} {to!r}; it writes {', '.join(writers())}")
    form = TOPOLOGY if topology else ""
    if form not in DIALECTS[to].writers:
        raise ValueError(f"only {' and '.join(writers(form))} has a topology section")
    write = partial(DIALECTS[to].written, form=form)
    bare = planned.inventory.without_groups()
    wanted, reasons = list(planned.values()), dict[str, str]()
    config: dict[str, Any] | str = {}
    again = Plan(bare, [])
    while wanted:
        config, failed = write(_plan_of(wanted, planned.rules, planned.mode))
        if not failed:
            again, failed = _compared(wanted, to, config, bare, write)
        if not failed:
            break
        reasons |= failed
        wanted = [component for component in wanted if component.name not in failed]
    if not wanted:
        again = Plan(bare, [])  # not the last attempt, of which nothing is written
    omitted = [*_section_lost(planned, again), *(f"{name}: {reasons[name]}" for name in planned if name in reasons)]
    kept = {component.name: component for component in wanted}
    added = [f"{name}: the component" for name in again if name not in kept]
    for name, component in kept.items():
        for lost, what in _changes(component, again[name], to):
            (omitted if lost else added).append(f"{name}: {what}")
    return Converted(config if wanted else {}, tuple(omitted), tuple(added))


def _plan_of(components: list[Component], rules: Rules, mode: PlacementMode | None = None) -> Plan:
    """Return the plan of some components that is written: its rules are about these only."""
    about_them = rules_of(rules, {component.name: component for component in components})
    return Plan(components[0].inventory, components, mode, rules=about_them)


def _compared(
    wanted: list[Component], to: str, config: Any, inventory: Inventory, write: Writer
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
        if len(wanted) == 1:
            return nothing, {wanted[0].name: error.message}
        found: dict[str, str] = {}
        for component in wanted:
            alone, _ = write(_plan_of([component], component.plan_rules))
            if alone:
                found |= _compared([component], to, alone, inventory, write)[1]
            else:  # the system has it with others only
                found[component.name] = error.message
        return nothing, found or dict.fromkeys((component.name for component in wanted), error.message)
    different = [one.name for one in wanted if one.name not in again or not _same_places(one, again[one.name])]
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


def _changes(component: Component, other: Component, to: str) -> Iterator[tuple[bool, str]]:
    """Yield what two components at the same places decide otherwise, and whether the first has something to lose."""
    for name in (field.name for field in fields(Settings) if field.name != "by_node"):  # which decides about places
        mine, theirs, usual = (getattr(one, name) for one in (component, other, USUAL_SETTINGS))
        lost, value = mine != usual, theirs if mine == usual else mine
        if name == "parallel":
            lost = mine.stated or (mine.order == Parallel.ENGINE_ORDER and theirs.stated)
            if _other_groups(component, other):
                sizes = (mine if mine.stated else "tp 1") if lost else theirs
                yield lost, f"its parallel sizes, {sizes}"
        elif mine == theirs:
            continue
        elif name == "engines":
            yield lost, f"its engines of {value} processes each"
        elif name in ("egl", "memory"):
            yield lost, f"its {_NOUNS[name]}"
        else:
            instead = f" ({to}: {_shown(theirs)})" if usual not in (mine, theirs) else ""
            yield lost, f"its {_NOUNS.get(name, name)}, {_shown(value)}{instead}"
    if component.beside != other.beside:
        yield True, f"its cores, which {', '.join(one.name for one in component.beside)} leaves"


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else format(value, "g")


def _other_groups(component: Component, other: Component) -> bool:
    """Whether the groups differ, if either component states its sizes."""
    kinds = ("tp", "cp", "fsdp", "pp", "etp", "ep")
    stated = component.parallel.stated or other.parallel.stated
    return stated and any(component.groups(one) != other.groups(one) for one in kinds)


def _section_lost(planned: Plan, again: Plan) -> Iterator[str]:
    """Yield the decisions about the whole job, and the node groups, that another plan of its components lacks."""
    if planned.mode not in (None, again.mode):
        yield f"the mode {planned.mode.name}"
    for key, (stated, other) in _stated(planned, again).items():
        if stated != other:
            yield f"`cluster.topology.{key}`"
    pools, others = planned.rules.with_pools_of(again).pools, again.rules.pools
    if lost := [pool.name for pool in pools if pool.decides and pool not in others]:
        yield f"`cluster.pools`, {', '.join(lost)}"
    mine, theirs = (one.inventory.facts or NO_FACTS for one in (planned, again))
    if mine.exclude != theirs.exclude:
        yield f"`cluster.exclude`, {', '.join(mine.exclude)}"
    for group in mine.node_groups:
        if group not in theirs.node_groups:
            more = ", with its variables and interpreters" if group.environments else ""
            users = [name for name, one in planned.items() if group.label in one.node_groups]
            yield from (f"{name}: node group `{group.label}`{more}" for name in users)
            if not users:
                yield f"node group `{group.label}`{more}"


def _stated(planned: Plan, again: Plan) -> dict[str, tuple[Any, Any]]:
    """Return what two plans state about the network, by key."""
    mine, theirs = (one.inventory.facts or NO_FACTS for one in (planned, again))
    facts = {"levels": (mine.levels, theirs.levels), "order": (mine.order, theirs.order)}
    rules, others = planned.rules.topology(), again.rules.topology()
    return facts | {key: (value, others[key]) for key, value in rules.items()}

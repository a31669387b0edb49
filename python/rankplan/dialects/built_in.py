"""The dialects by name: those of rankplan itself, and guests, whose code may fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from rankplan.dialects import faults
from rankplan.dialects.interface.dialect import Dialect
from rankplan.errors import Diagnostic
from rankplan.frozen import frozen
from rankplan.guests import built_in
from rankplan.guests.doors import Door, Guest, GuestError, Table
from rankplan.nodes.inventory import Inventory
from rankplan.plans.requests import NodeOrder
from rankplan.read.read_config import ReadConfig

if TYPE_CHECKING:
    from rankplan.dialects.interface.planning import Planner
    from rankplan.dialects.placing.grouping import ComponentGroups
    from rankplan.read.sources import Planned


class Dialects(Table[Dialect]):
    """The dialects by name. Only ``dialects[name]`` imports one; what a guest's code raises is a `GuestError`."""

    def __init__(self) -> None:
        super().__init__(Door.DIALECTS, Dialect, built_in.DIALECTS)

    def __getitem__(self, name: str) -> Dialect:
        """Return a dialect. Raises ``KeyError`` for an unknown name, `GuestError` for a guest that fails."""
        guest = self.guest(name)
        return super().__getitem__(name) if guest is None else _guarded(guest)

    def usable(self) -> tuple[list[Dialect], list[Diagnostic]]:
        """Return the dialects of guests by name, and a warning for each guest that cannot be used."""
        loaded = self.loaded()
        dialects: list[Dialect] = []
        warnings = list(loaded.warnings)
        for guest in loaded.guests:
            try:
                dialects.append(_guarded(guest))
            except GuestError as error:
                warnings.append(error.warning)
        return sorted(dialects, key=lambda dialect: dialect.name), warnings


DIALECTS = Dialects()


@cache
def _guarded(guest: Guest) -> Dialect:
    """Return the dialect of a guest: each call of its code turns errors into `GuestError`.

    Raises `GuestError` if it cannot be imported, has another name than its entry point, or has wrong keys.
    """
    dialect = guest.load(Dialect)
    if dialect.name != guest.name:
        raise GuestError([faults.other_name(str(guest), guest.package, dialect.name)])
    with guest.running():
        dialect.keys.entries  # noqa: B018  # also imports what the keys say about memory
        for program in dialect.programs:
            re.compile(program.pattern)
    writers = {form: _Guarded(guest, partial(dialect.written, form=form)) for form in dialect.writers}
    keys = replace(dialect.keys, tells=_Guarded(guest, dialect.keys.tells))
    unplaced = _Guarded(guest, dialect.unplaced_text)
    planner = _GuardedPlanner(guest, dialect)
    resized = _Guarded(guest, dialect.requests_of)
    own_nodes = _Guarded(guest, lambda plan: not dialect.plans_all_nodes(plan))
    return replace(
        dialect,
        keys=keys,
        job=None,
        planner=planner,
        writers=writers,
        unplaced=unplaced,
        resized=resized,
        has_own_nodes=own_nodes,
    )


@frozen
class _Guarded:
    """A function of a guest."""

    guest: Guest
    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Call it. Raises `GuestError` for what it raises."""
        with self.guest.running():
            return self.function(*arguments)


@frozen
class _GuardedPlanner:
    """The planner of a guest."""

    guest: Guest
    planner: Planner

    def read(self, config: Any) -> ReadConfig:
        """Read a config; see `Planner.read`."""
        with self.guest.running():
            return self.planner.read(config)

    def planned(
        self,
        config: Any,
        inventory: Inventory,
        *,
        isolate_accelerator: bool = True,
        pinned: bool = False,
        groups: ComponentGroups | None = None,
    ) -> Planned:
        """Return the plan of a config; see `Planner.planned`."""
        with self.guest.running():
            return self.planner.planned(
                config, inventory, isolate_accelerator=isolate_accelerator, pinned=pinned, groups=groups
            )

    def node_order(self, config: Any) -> NodeOrder | None:
        """Return what the trainer sorts nodes by; see `Planner.node_order`."""
        with self.guest.running():
            return self.planner.node_order(config)

    def assumed_inventory(self, config: Any) -> Inventory:
        """Return the inventory that a config is probably meant for; see `Planner.assumed_inventory`."""
        with self.guest.running():
            return self.planner.assumed_inventory(config)

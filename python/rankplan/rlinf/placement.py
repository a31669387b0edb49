"""`ComponentPlacement`: the strategies of a config's components, under RLinf's name."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rankplan.dialects.interface.cluster import AnyCluster
from rankplan.errors import PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.read.read_config import ReadConfig
from rankplan.read.text.reader import Config
from rankplan.rlinf import faults
from rankplan.rlinf.clusters import inventory_of
from rankplan.rlinf.dialect import DIALECT
from rankplan.rlinf.job import roles_of
from rankplan.rlinf.roles import Roles, plan_of
from rankplan.rlinf.strategies import PlacementStrategy, as_assertion
from rankplan.words import unknown

if TYPE_CHECKING:
    from typing_extensions import Self


class ComponentPlacement:
    """The checked placement of every component of a config, the same as ``rankplan plan`` gives.

    ``config`` is a mapping with a ``cluster`` section (a dict, an OmegaConf object, the result of `load_config`) or the
    path of a YAML file. Its other sections decide how RLinf places the components: by their parallel sizes, in a mode.
    ``cluster`` is an `Inventory` or a live `Cluster`; the config need not repeat the node groups that it knows, and
    overrides those of the same name. An empty ``component_placement`` leaves all components to `with_strategy`.

    Raises `PlacementError` with every fault of the config in the order of the file (``no-components`` for a section
    without ``component_placement``); ``OSError`` if the file cannot be read; ``TypeError`` for any other cluster.
    """

    _kind: ClassVar[type[Roles] | None] = None
    """The kind of roles, if the sections of the config do not decide it."""

    @as_assertion
    def __init__(self, config: Config | ReadConfig, cluster: AnyCluster) -> None:
        read = DIALECT.read(config)
        section = read.values.section.reporting(read.reader.faults)
        inventory = inventory_of(cluster)
        self._roles = roles_of(section, inventory) if self._kind is None else self._kind(section, inventory)
        self._inventory = self._roles.inventory
        self._placement_mode = self._roles.mode
        self._placements = self._roles.strategies()  # RLinf's name, which its subclasses write to
        if not section.states_components:
            section.reject((), faults.no_components())
            section.faults.finish()

    @property
    def components(self) -> list[str]:
        """Names of the components, in the order of the config."""
        return list(self._placements)

    @property
    def inventory(self) -> Inventory:
        """The nodes of the config and its node groups."""
        return self._inventory

    @as_assertion
    def get_strategy(self, component: str) -> PlacementStrategy:
        """Return the strategy of a component; components of one key share the object.

        Raises `PlacementError` (``unknown-component``) for an unknown component.
        """
        if component not in self._placements:
            found = unknown("component", component, self.components, "the components are")
            raise PlacementError([replace(found, help=found.help or "the config places no component")])
        return self._placements[component]

    def with_strategy(self, component: str, strategy: PlacementStrategy) -> Self:
        """Return a copy in which this component, known or new, has another strategy."""
        other = copy(self)
        other._placements = {**self._placements, component: strategy}
        return other

    def get_world_size(self, component: str) -> int:
        """Return the number of processes of a component. Raises like `get_strategy`."""
        return self.get_strategy(component).world_size

    def get_hardware_ranks(self, component: str) -> list[int]:
        """Return the resource ranks that a component uses, ascending. Raises like `get_strategy`."""
        return self.get_strategy(component).hardware_ranks

    @as_assertion
    def plan(self, *, isolate_accelerator: bool = True) -> Plan:
        """Return the plan of all components; see `PlacementStrategy.get_placement` for the argument.

        Raises `PlacementError` (``group-spans``) for groups that cross what ``cluster.topology.keep`` forbids.
        """
        plan = plan_of(self._roles, self._placements, isolate=isolate_accelerator)
        plan.check_keep()
        return plan

    def __repr__(self) -> str:
        plan = plan_of(self._roles, self._placements, isolate=True)
        return f"<ComponentPlacement of {plan!r}>"

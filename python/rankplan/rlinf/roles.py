"""The components of a config of RLinf's, placed as its ``cluster`` section states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from rankplan._core import MAX_PROCESSES, RankMap
from rankplan.errors import KeyPath, PlacementError
from rankplan.hardware.policies import NO_BINDING, NO_MEMORY
from rankplan.nodes.inventory import Inventory, configured
from rankplan.parallel import NO_SIZES, Parallel
from rankplan.plans.component import Component, PlacementMode, Settings, Visibility, check_size
from rankplan.plans.memory_settings import MemorySettings
from rankplan.plans.plan import Plan
from rankplan.plans.rules import component_names, with_named_levels
from rankplan.read.components import sized, with_memory
from rankplan.read.models import ClusterSection, ComponentEntry
from rankplan.read.section import Reading
from rankplan.read.sources import Sources
from rankplan.rlinf import faults
from rankplan.rlinf.sizes import ENGINE, TRAINING, located, reject_conflicts, stated_sizes
from rankplan.rlinf.strategies import PlacementStrategy, strategy_of


class Roles:
    """The components of a config on an inventory, by name; those of one key share the object.

    The config need not repeat the node groups of the inventory, and overrides those of the same name. Raises
    `PlacementError` with every fault of the config, in the order of the file.
    """

    mode: PlacementMode | None = None

    def __init__(self, reading: Reading, inventory: Inventory) -> None:
        reading = reading.fork()
        num_nodes = reading.section.num_nodes
        self.rules = reading.rules
        facts = with_named_levels(reading.facts, self.rules, inventory)
        self.inventory, unfit = configured(inventory, inventory.with_groups_added(facts, num_nodes), num_nodes)
        reading.add_unfit(unfit)
        self.components: dict[str, Component] = {}
        self.sources = Sources()
        """Where the config states the sizes and the memory of its components."""
        self._processes = 0
        seen: set[str] = set()
        for key in reading.keys:
            for name in component_names(key):
                if not name:
                    reading.add(("component_placement", key), faults.empty_name(key))
                elif name in seen:
                    reading.add(("component_placement", key), faults.placed_twice(name))
                seen.add(name)
        known = reading.num_nodes_known and not unfit
        for key, entry in reading.section.component_placement.items():
            if not known or reading.lost(entry.node_group):
                _check_text(key, entry, reading)
            else:
                self._place(key, entry, reading)
            if self._processes > MAX_PROCESSES:
                break  # a fault by now; the others would take more memory
        reject_conflicts(reading)
        self._arrange(reading)
        if reading.faults:  # without any, the rules are checked with the groups of the plan
            levels, unplaced = self.inventory.levels, seen - {"", *self.components}
            from rankplan.plans.topology import NodeRules  # few configs have rules

            rules = NodeRules.of(
                self.rules,
                self.components,
                levels,
                labelled=bool(levels),
                unplaced=sorted(unplaced),
                lost=facts.levels or (),
            )
            for path, found in rules.faults:
                reading.add(("topology", *path), found)
        reading.finish()

    def _arrange(self, reading: Reading) -> None:
        """Change the components by the rules of their mode. Those with faults are missing."""

    def _place(self, key: str, entry: ComponentEntry, reading: Reading) -> None:
        path, at, names = ("component_placement", key), "node_group", component_names(key)
        try:
            pool = self.inventory.pool(entry.node_group)
            at = "placement"
            rule, rows = pool.place(entry.placement)
            self._processes += len(rows) * len(names)
            check_size(names[-1], self._processes)
            at = "visibility"
            settings = _settings(entry, reading.section)
            component = Component(names[0], self.inventory, entry.node_group, rule, rows, settings)
            for found in component.binding_faults():
                reading.add((*path, "binding"), found)
            at = "parallel"
            parallel, stated_at = _sizes(entry), reading.in_config((*path, at))
            self.sources.sizes |= dict.fromkeys(names, located(reading, parallel, stated_at, {}))
            self.components |= dict.fromkeys(names, component.with_settings(parallel=parallel))
        except PlacementError as error:
            _add(reading, (*path, at), error)
            if at == "node_group":
                _check_text(key, entry, reading)

    def take_sizes(self, reading: Reading) -> None:
        """Give components without parallel sizes those of their sections: ``actor.model``, ``rollout``.

        Raises `PlacementError` for sizes that do not fit.
        """
        reading = reading.fork()
        for name, component in self.components.items():
            for path, keys in (((name, "model"), TRAINING), ((name,), ENGINE)):
                found = None if component.parallel.stated else stated_sizes(reading, path, keys)
                if found is not None:
                    sizes = located(reading, found, path, keys)
                    self.sources.sizes[name] = sizes
                    component = sized(replace(component, name=name), sizes, reading.faults)
            self.components[name] = component
        reading.finish()

    def take_memory(self, reading: Reading) -> None:
        """Give components without ``memory`` what their sections say of it. Raises `PlacementError` for its faults."""
        if reading.config is None or not reading.config.keys() - {"cluster"}:
            return
        from rankplan.dialects.keys.config import Config
        from rankplan.dialects.memory.read import MemoryReader
        from rankplan.rlinf.memory import RLINF

        reading = reading.fork()
        memory = MemoryReader(Config(reading, reading.faults), RLINF, model=reading.section.model, undivided=False)
        memory.sources.sizes |= self.sources.sizes
        self.sources = memory.sources
        for name, component in self.components.items():
            found = with_memory(replace(component, name=name), memory.memory, {})
            if found.memory is not component.memory:
                self.components[name] = found
        reading.finish()

    def strategies(self) -> dict[str, PlacementStrategy]:
        """Return the strategy of each component; components of one key share the object."""
        made = {id(component): strategy_of(component) for component in self.components.values()}
        return {name: made[id(component)] for name, component in self.components.items()}


class HybridRoles(Roles):
    """Components that may run on any accelerators."""

    mode = PlacementMode.HYBRID


def plan_of(roles: Roles, strategies: Mapping[str, PlacementStrategy], *, isolate: bool) -> Plan:
    """Return the plan of components with these strategies, on the nodes of a config and by its rules."""
    inventory = roles.inventory
    placed = (strategy.on(inventory, name, isolate_accelerator=isolate) for name, strategy in strategies.items())
    return Plan(inventory, placed, roles.mode, rules=roles.rules)


def _settings(entry: ComponentEntry, section: ClusterSection) -> Settings:
    """Return the settings that an entry states, or else the section, without the parallel sizes."""
    return Settings(
        visibility=cast(Visibility, entry.visibility),
        binding=entry.binding or section.binding or NO_BINDING,
        memory_binding=entry.memory_binding or section.memory_binding or NO_MEMORY,
        egl=entry.egl,
        nics=entry.nics or section.nics or "check",
        memory=_memory(entry, section),
    )


def _sizes(entry: ComponentEntry) -> Parallel:
    return NO_SIZES if entry.parallel is None else entry.parallel.value()


def _memory(entry: ComponentEntry, section: ClusterSection) -> MemorySettings | None:
    """Return the ``memory`` of an entry; its model is that of the section by default."""
    if entry.memory is None:
        return None
    memory = entry.memory.value()
    if memory.kind == "resident" or memory.model or memory.params or section.model is None:
        return memory
    return replace(memory, model=section.model)


def _check_text(key: str, entry: ComponentEntry, reading: Reading) -> None:
    """Check a placement without knowing its resources."""
    try:
        RankMap.parse(entry.placement)
    except PlacementError as error:
        known = [diagnostic for diagnostic in error.diagnostics if diagnostic.code != "no-resources"]
        if known:
            _add(reading, ("component_placement", key, "placement"), PlacementError(known))


def _add(reading: Reading, path: KeyPath, error: PlacementError) -> None:
    """Record the faults of a placement; an int may be YAML 1.1's reading of a text such as ``1:0``."""
    for diagnostic in error.diagnostics:
        number = int(diagnostic.text or 0) if reading.is_number(str(path[1])) else 0
        if diagnostic.code == "resource-out-of-range" and number >= 60:
            hint = f"{number} may be YAML 1.1's reading of {number // 60}:{number % 60}; quote it"
            diagnostic = replace(diagnostic, help=f"{diagnostic.help}; {hint}")
        reading.add(path, diagnostic)

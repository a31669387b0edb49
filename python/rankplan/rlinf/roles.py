"""The components of a config of RLinf's, placed as its ``cluster`` section states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from rankplan._core import MAX_PROCESSES, RankMap
from rankplan.dialects.keys.key import Key
from rankplan.dialects.keys.roles import ARE_SIZED
from rankplan.errors import KeyPath, PlacementError
from rankplan.hardware.policies import NO_BINDING, NO_MEMORY
from rankplan.nodes.inventory import Inventory, configured
from rankplan.plans.component import Component, PlacementMode, Settings, Visibility, check_size
from rankplan.plans.memory_settings import MemorySettings
from rankplan.plans.plan import Plan
from rankplan.plans.rules import component_names, with_named_levels
from rankplan.read.cluster import in_section
from rankplan.read.components import sized, with_memory
from rankplan.read.sources import Sources
from rankplan.rlinf import faults
from rankplan.rlinf.keys import COMPONENTS, ENTRY_BINDING, MEMORY, NODE_GROUP, PARALLEL, PLACEMENT, SECTION, VISIBILITY
from rankplan.rlinf.section import Entry, Section
from rankplan.rlinf.sizes import located, reject_conflicts, sections_of, stated_sizes
from rankplan.rlinf.strategies import PlacementStrategy, strategy_of


class Roles:
    """The components of a config on an inventory, by name; those of one key share the object.

    The config need not repeat the node groups of the inventory, and overrides those of the same name. Raises
    `PlacementError` with every fault of the config, in the order of the file.
    """

    mode: PlacementMode | None = None

    def __init__(self, section: Section, inventory: Inventory) -> None:
        section = section.fork()
        num_nodes = section.num_nodes
        self.rules = section.shared.rules
        facts = with_named_levels(section.shared.facts, self.rules, inventory)
        self.inventory, unfit = configured(inventory, inventory.with_groups_added(facts, num_nodes), num_nodes)
        for path, fault in in_section(unfit):
            section.reject(path, fault)
        self.components: dict[str, Component] = {}
        self.sources = Sources()
        """Where the config states the sizes and the memory of its components."""
        self.facts: dict[str, dict[str, Any]] = {}
        """What is known of components whose sections state sizes, for the keys of their memory."""
        self._processes = 0
        names = self._check_names(section)
        known = section.num_nodes_known and not unfit
        for key, entry in section.entries.items():
            if not known or section.lost(entry.node_group):
                _check_text(key, entry, section)
            else:
                self._place(key, entry, section)
            if self._processes > MAX_PROCESSES:
                break  # a fault by now; the others would take more memory
        reject_conflicts(section)
        self._arrange(section)
        if section.faults:  # without any, the rules are checked with the groups of the plan
            self._check_rules(section, sorted(names - self.components.keys()), facts.levels or ())
        section.faults.finish()

    def _check_names(self, section: Section) -> set[str]:
        """Record names of components that are empty, or twice, and return the others."""
        seen: set[str] = set()
        for key in section.short:
            for name in component_names(key):
                if not name:
                    section.reject((COMPONENTS.name, key), faults.empty_name(key))
                elif name in seen:
                    section.reject((COMPONENTS.name, key), faults.placed_twice(name))
                seen.add(name)
        return seen - {""}

    def _check_rules(self, section: Section, unplaced: Sequence[str], lost: Sequence[str]) -> None:
        """Record what is wrong with the rules; see `NodeRules.of`."""
        from rankplan.plans.topology import NodeRules  # few configs have rules

        levels = self.inventory.levels
        rules = NodeRules.of(self.rules, self.components, levels, labelled=bool(levels), unplaced=unplaced, lost=lost)
        for path, fault in rules.faults:
            section.reject(("topology", *path), fault)

    def _arrange(self, section: Section) -> None:
        """Change the components by the rules of their mode. Those with faults are missing."""

    def _place(self, key: str, entry: Entry, section: Section) -> None:
        path, names = (COMPONENTS.name, key), component_names(key)
        at: Key[Any] = NODE_GROUP
        try:
            pool = self.inventory.pool(entry.node_group)
            at = PLACEMENT
            rule, rows = pool.place(entry.placement)
            self._processes += len(rows) * len(names)
            check_size(names[-1], self._processes)
            at = VISIBILITY
            settings = _settings(entry, section)
            component = Component(names[0], self.inventory, entry.node_group, rule, rows, settings)
            for fault in component.binding_faults():
                section.reject((*path, ENTRY_BINDING.name), fault)
            at = PARALLEL
            component = component.with_settings(parallel=entry.parallel)
        except PlacementError as error:
            _reject(section, (*path, at.name), error)
            if at is NODE_GROUP:
                _check_text(key, entry, section)
            return
        config = section.config.under((SECTION, *path, PARALLEL.name))
        self.sources.sizes |= dict.fromkeys(names, located(config, entry.parallel, {}))
        self.sources.entries |= dict.fromkeys(names, (SECTION, *path))
        if entry.memory is not None:
            self.sources.memory |= dict.fromkeys(names, (SECTION, *path, MEMORY.name))
        self.components |= dict.fromkeys(names, component)

    def take_sizes(self, section: Section) -> None:
        """Give components without parallel sizes those of their sections: ``actor.model``, ``rollout``.

        Raises `PlacementError` for sizes that do not fit.
        """
        section = section.fork()
        for name, component in self.components.items():
            for own_section, keys in sections_of(section.config, name):
                parallel = None if component.parallel.stated else stated_sizes(own_section, keys)
                if parallel is not None:
                    sizes = located(own_section, parallel, keys)
                    self.sources.sizes[name] = sizes
                    self.facts[name] = {ARE_SIZED: True}
                    component = sized(replace(component, name=name), sizes, section.faults)
            self.components[name] = component
        section.faults.finish()

    def take_memory(self, section: Section) -> None:
        """Give components without ``memory`` what their sections say of it. Raises `PlacementError` for its faults."""
        if not has_other_sections(section):
            return
        from rankplan.dialects.memory.read import MemoryReader
        from rankplan.rlinf.memory import RLINF

        config = section.config.fork()
        memory = MemoryReader(config, RLINF, model=section.model, undivided=False)
        memory.sources.sizes |= self.sources.sizes
        memory.sources.memory |= self.sources.memory
        memory.sources.entries |= self.sources.entries
        self.sources = memory.sources
        for name, component in self.components.items():
            with_its_memory = with_memory(replace(component, name=name), memory.memory, self.facts.get(name, {}))
            if with_its_memory.memory is not component.memory:
                self.components[name] = with_its_memory
        config.faults.finish()

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


def has_other_sections(section: Section) -> bool:
    """Return whether the config has sections beside ``cluster``, which may say more about its components."""
    return bool(section.config.section.keys() - {SECTION})


def _settings(entry: Entry, section: Section) -> Settings:
    """Return the settings that an entry states, or else the section, without the parallel sizes."""
    return Settings(
        visibility=cast(Visibility, entry.visibility),
        binding=entry.binding or section.binding or NO_BINDING,
        memory_binding=entry.memory_binding or section.memory_binding or NO_MEMORY,
        egl=entry.egl,
        nics=entry.nics or section.nics or "check",
        cpus_per_process=entry.cpus_per_process,
        host_memory_per_process=entry.host_memory_per_process,
        memory=_memory(entry, section),
    )


def _memory(entry: Entry, section: Section) -> MemorySettings | None:
    """Return the ``memory`` of an entry; its model is that of the section by default."""
    memory = entry.memory
    if memory is None or memory.kind == "resident" or memory.model or memory.params or section.model is None:
        return memory
    return replace(memory, model=section.model)


def _check_text(key: str, entry: Entry, section: Section) -> None:
    """Check a placement without knowing its resources."""
    try:
        RankMap.parse(entry.placement)
    except PlacementError as error:
        known = [fault for fault in error.diagnostics if fault.code != "no-resources"]
        if known:
            _reject(section, (COMPONENTS.name, key, PLACEMENT.name), PlacementError(known))


def _reject(section: Section, path: KeyPath, error: PlacementError) -> None:
    """Record the faults of a placement; an int may be YAML 1.1's reading of a text such as ``1:0``."""
    for fault in error.diagnostics:
        number = int(fault.text or 0) if str(path[1]) in section.numbers else 0
        if fault.code == "resource-out-of-range" and number >= 60:
            hint = f"{number} may be YAML 1.1's reading of {number // 60}:{number % 60}; quote it"
            fault = replace(fault, help=f"{fault.help}; {hint}")
        section.reject(path, fault)

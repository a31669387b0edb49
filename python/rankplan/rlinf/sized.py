"""The roles of an evaluation, whose parallel sizes decide how each is placed, and RLinf's rules for engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rankplan._core import Packed, RankMap, RankSet
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.parallel import NO_SIZES, Parallel
from rankplan.plans.component import Component, PlacementMode, Rule
from rankplan.plans.rules import component_names
from rankplan.read.text.invalid import missing
from rankplan.rlinf import faults
from rankplan.rlinf.keys import COMPONENTS, ENGINE, PLACEMENT
from rankplan.rlinf.roles import Roles
from rankplan.rlinf.section import Section
from rankplan.rlinf.sizes import RoleSizes, SizeKeys, located, missing_section, sizes_at
from rankplan.words import nearest


class ModelParallelEvalRoles(Roles):
    """A rollout and, optionally, a reward for evaluation: collocated, without an actor.

    The roles are the names of components and of the sections with their parallel sizes, which decide the placement.

    ``names`` are the components of the roles that are placed, ``stated`` the components as the config states them,
    ``parts`` those of the roles, ``ranks`` their resource ranks, and ``sizes`` the sizes of the roles with a section.
    """

    known: tuple[str, ...] = ("rollout", "reward")
    _required: tuple[str, ...] = ("rollout",)

    def _arrange(self, section: Section) -> None:
        self._keys = {name: key for key in section.short for name in component_names(key)}
        self.stated = {name: replace(component, name=name) for name, component in self.components.items()}
        self.names = {role: name for role in self.known if (name := self._name(role)) in self._keys}
        self.parts = {role: self.stated[name] for role, name in self.names.items() if name in self.stated}
        self.sizes = {role: sizes for role, sizes in self._read_sizes(section) if sizes is not None}
        self._used = {role: part.rows.accelerators() for role, part in self.parts.items()}
        self.ranks = {role: part.rule.resources for role, part in self.parts.items()}
        if self._complete(section):
            self._arrange_roles(section)

    def _name(self, role: str) -> str:
        """Return the name of the component with a role."""
        return "actor_inference" if role == "inference" and "inference" not in self._keys else role

    def _complete(self, section: Section) -> bool:
        """Record which components are missing or have no accelerators, and return whether all can be arranged."""
        for role in self._required:
            if role not in self._keys:
                others = [name for name in self._keys if name not in self.names.values()]
                section.reject((COMPONENTS.name,), missing(role, nearest(role, others, 0.8)))
        for role, used in self._used.items():
            if not used and role != "reward":
                section.reject(self._path(role), faults.without_accelerators(self.names[role]))
        return self.parts.keys() == self.names.keys() and all(self._used.get(role) for role in self._required)

    def _path(self, role: str) -> KeyPath:
        """Return the path of a role's placement in the section."""
        return COMPONENTS.name, self._keys[self.names[role]], PLACEMENT.name

    def _read_sizes(self, section: Section) -> Iterator[tuple[str, RoleSizes | None]]:
        yield "rollout", self._role_sizes(section, "rollout", ("rollout",), ENGINE)

    def _role_sizes(
        self, section: Section, role: str, path: KeyPath, keys: SizeKeys, **defaults: int
    ) -> RoleSizes | None:
        """Return the sizes of a role. Faults count only if the role is placed."""
        is_placed = role in self.names
        config = section.config if is_placed else section.config.fork()
        own_section = config.under(path)
        before = len(config.faults)
        sizes = sizes_at(own_section, keys, **defaults)
        if is_placed:
            name, parallel = self.names[role], NO_SIZES if sizes is None else sizes.parallel
            self.sources.sizes[name] = located(own_section, parallel, {} if sizes is None else keys)
        if sizes is None and is_placed and not role.startswith("critic") and len(config.faults) == before:
            self._add_missing(section, role, path)
        return None if len(config.faults) > before else sizes

    def _add_missing(self, section: Section, role: str, path: KeyPath) -> None:
        section.config.reject(path, missing_section(path, self.names[role], section))

    def _arrange_roles(self, section: Section) -> None:
        self.mode = PlacementMode.COLLOCATED
        self._place_each(section, "reward")
        self._place_engines(section, 1)

    def _place_each(self, section: Section, *roles: str) -> None:
        """Place roles with a process per accelerator."""
        for role in roles:
            part = self.parts.get(role)
            if part is not None and self._used[role] and self._divides(section, role, len(part.rule.resources)):
                try:  # the rows are those that the config gives
                    each = replace(part, rule=one_each(part.rule))
                    self.components[part.name] = each.with_settings(parallel=self._parallel(role))
                except PlacementError as error:
                    for fault in error.diagnostics:
                        section.config.reject(self.sources.sizes_of(part.name, section.config.place_of(())).path, fault)

    def _place_engines(self, section: Section, stride: int) -> None:
        """Place the rollout with a process per engine."""
        self.rollout_stride = stride
        part, sizes = self.parts["rollout"], self.sizes.get("rollout")
        if sizes is None:
            return
        count, size = len(part.rule.resources), sizes.dense
        if (found := self._stated_engines(size)) is not None:
            section.reject(self._path("rollout"), found)
        elif isinstance(part.rule, RankMap) and not is_plain(part.rule) and per_process(part.rule) == {0}:
            self._put(section, "rollout", part.rule)
        elif self._divides(section, "rollout", count):
            if count % (size * stride):
                section.reject(self._path("rollout"), faults.uneven_engines("rollout", count, size, stride))
            else:
                self._put(section, "rollout", engines(part.rule.resources, size, stride))

    def _stated_engines(self, size: int) -> Diagnostic | None:
        """Return the fault of process ranks that contradict the size of an engine."""
        rule = self.parts["rollout"].rule
        if not isinstance(rule, RankMap) or is_plain(rule):
            return None
        found = per_process(rule)
        if found == {size} or (found == {0} and size == 1):
            return None
        most = max(*found, 1)
        return faults.engine_of_another_size(most, size, self.sizes["rollout"].text("tp", "pp"))

    def _divides(self, section: Section, role: str, count: int, what: str = "") -> bool:
        """Record which sizes of a role do not divide its accelerators, and return whether all do."""
        sizes = self.sizes.get(role)
        found = None if sizes is None else sizes.undivided(what or f"`{self.names[role]}`", count)
        if sizes is None or found is None:
            return True
        path, fault = found
        if role == "rollout" and not what and count // sizes.dense == 1:
            each, rest = f"an engine of `rollout` has {count} accelerators", count - sizes.dense
            message = f"{each}, but {sizes.text('tp', 'pp')} needs {sizes.dense}: {rest} would be idle"
            fault = replace(fault, code="parallel-idle", message=message)
        if path is None:
            section.reject(self._path(role), fault)
        else:
            section.config.reject(path, fault)
        return False

    def _put(self, section: Section, role: str, rule: Rule, groups: tuple[str, ...] | None = None) -> None:
        """Give a role another rule."""
        part, sizes = self.parts[role], self._parallel(role)
        place = part.name, self.inventory, groups or part.node_groups, rule
        try:
            self.components[part.name] = Component.place(*place, part.settings, parallel=sizes)
        except PlacementError as error:
            section.reject_all(self._path(role), error)

    def _parallel(self, role: str) -> Parallel:
        return self.sizes.get(role, RoleSizes()).parallel


def one_each(rule: Rule) -> Rule:
    """Return a rule for the same rows: RLinf's, if a range of resources has a process each, else the rule itself."""
    resources = rule.resources
    if not is_plain(rule) or len(resources.ranges) > 1:
        return rule
    return Packed(resources[0], resources[-1], 1, 1)


def is_plain(rule: Rule) -> bool:
    """Return whether each process has a resource of its own."""
    return not isinstance(rule, RankMap) or all(len(there) == len(processes) for there, processes in rule.segments)


def per_process(rule: RankMap) -> set[int]:
    """Return the numbers of resources that processes have; 0 stands for a part of one."""
    return {len(there) // len(processes) for there, processes in rule.segments}


def engines(resources: RankSet, size: int, stride: int) -> Rule:
    """Return a rule with engines of ``size`` resources, ``stride`` apart; gaps are kept.

    The resources must be a multiple of ``size * stride``.
    """
    if len(resources.ranges) == 1:
        return Packed(resources[0], resources[-1], size, stride)
    if stride == 1:
        return RankMap.parse(f"{resources}:0-{len(resources) // size - 1}")
    window = size * stride
    starts = (base + first for base in range(0, len(resources), window) for first in range(stride))
    return RankMap.from_lists([[resources[start + stride * index] for index in range(size)] for start in starts])

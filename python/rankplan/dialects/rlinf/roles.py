"""What RLinf's placement classes share: roles with sizes, and rules that depend on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, overload

from rankplan._core import RankMap
from rankplan.config.models import component_names
from rankplan.config.section import Reading
from rankplan.config.text.faults import KeyPath, missing
from rankplan.dialects.rlinf.modes import PlacementMode
from rankplan.dialects.rlinf.placement import ComponentPlacement, PlacementStrategy, strategy_of
from rankplan.dialects.rlinf.rules import engines, is_plain, one_each, per_process
from rankplan.dialects.rlinf.sizes import ENGINE, Sizes, missing_section, reject_conflicts, sizes_at
from rankplan.errors import Diagnostic, PlacementError
from rankplan.parallel import Parallel
from rankplan.plans.component import Component, Rule
from rankplan.words import counted, nearest


class Size:
    """A size of a role. Raises ``AttributeError`` if the config has no section for it."""

    def __init__(self, role: str, size: str) -> None:
        self._role, self._size = role, size
        self.__doc__ = f"The {'number of accelerators' if size == 'world' else f'{size} size'} of the {role}."

    @overload
    def __get__(self, placement: None, owner: Any) -> Size: ...
    @overload
    def __get__(self, placement: RolePlacement, owner: Any) -> int: ...
    def __get__(self, placement: RolePlacement | None, owner: Any) -> Size | int:
        if placement is None:
            return self
        count: int = getattr(placement, f"_{self._role}_num_gpus")
        if self._size == "world":
            return count
        sizes = placement._sizes.get(self._role)
        if sizes is None:
            raise AttributeError(f"the sizes of the {self._role} are unknown: the config has no section for them")
        if self._size == "dp":
            return count // sizes.dense
        size: int = getattr(sizes.parallel, self._size)
        return size


class Ranks:
    """The resource ranks of a role as a list, ``None`` if it is not placed."""

    def __init__(self, role: str) -> None:
        self._role = role

    @overload
    def __get__(self, placement: None, owner: Any) -> Ranks: ...
    @overload
    def __get__(self, placement: RolePlacement, owner: Any) -> list[int] | None: ...
    def __get__(self, placement: RolePlacement | None, owner: Any) -> Ranks | list[int] | None:
        if placement is None:
            return self
        ranks = placement._ranks.get(self._role)
        return None if ranks is None else list(ranks)


class HybridComponentPlacement(ComponentPlacement):
    """A placement that lets every component run on any accelerators."""

    _placement_mode = PlacementMode.HYBRID

    def _arrange(self, reading: Reading) -> None:
        reject_conflicts(reading)

    @property
    def placement_mode(self) -> PlacementMode:
        """How the roles share accelerators."""
        return self._placement_mode

    @property
    def _components(self) -> list[str]:
        return self.components

    @property
    def _cluster_num_gpus(self) -> int:
        return len(self._inventory.core.accelerators())

    @property
    def _mode(self) -> PlacementMode:
        return self._placement_mode


class RolePlacement(HybridComponentPlacement):
    """A placement whose rules depend on the sections of the roles, which are the names of components.

    The names that start with ``_`` are those that RLinf's workers and scripts use.
    """

    _roles: tuple[str, ...] = ("rollout", "reward")
    _required: tuple[str, ...] = ("rollout",)

    rollout_world_size = Size("rollout", "world")
    rollout_dp_size = Size("rollout", "dp")
    rollout_tp_size = Size("rollout", "tp")
    rollout_pp_size = Size("rollout", "pp")
    reward_world_size = Size("reward", "world")

    _rollout_gpus = Ranks("rollout")
    _reward_gpus = Ranks("reward")

    def _arrange(self, reading: Reading) -> None:
        super()._arrange(reading)
        self._keys = {name: key for key in reading.keys for name in component_names(key)}
        self._stated = {name: one.component(name, self._inventory) for name, one in self._placements.items()}
        self._names = {role: name for role in self._roles if (name := self._name(role)) in self._keys}
        self._parts = {role: self._stated[name] for role, name in self._names.items() if name in self._stated}
        self._sizes = {role: sizes for role, sizes in self._read_sizes(reading) if sizes is not None}
        # Components of one key have the same rows.
        rows = {(part.node_groups, part.rule): part.rows for part in self._parts.values()}
        used = {key: each.accelerators() for key, each in rows.items()}
        self._used = {role: used[part.node_groups, part.rule] for role, part in self._parts.items()}
        self._ranks = {role: part.rule.resources for role, part in self._parts.items()}
        for role in self._roles:
            setattr(self, f"_{role}_num_gpus", len(self._ranks.get(role, ())))
        if self._complete(reading):
            self._arrange_roles(reading)

    def _name(self, role: str) -> str:
        """Return the name of the component with a role."""
        return "actor_inference" if role == "inference" and "inference" not in self._keys else role

    def _complete(self, reading: Reading) -> bool:
        """Record which components are missing or have no accelerators, and return whether all can be arranged."""
        for role in self._required:
            if role not in self._keys:
                others = [name for name in self._keys if name not in self._names.values()]
                reading.add(("component_placement",), missing(role, nearest(role, others, 0.8)))
        for role, used in self._used.items():
            if not used and role != "reward":
                name = self._names[role]
                message = f"`{name}` is placed without accelerators, which its sizes count"
                help = "place it on accelerators, in a node group that has some"
                reading.add(self._path(role), Diagnostic("no-resources", message, help))
        return self._parts.keys() == self._names.keys() and all(self._used.get(role) for role in self._required)

    def _path(self, role: str) -> KeyPath:
        """Return the path of a role's placement in the section."""
        return "component_placement", self._keys[self._names[role]], "placement"

    def _read_sizes(self, reading: Reading) -> Iterator[tuple[str, Sizes | None]]:
        yield "rollout", self._role_sizes(reading, "rollout", ("rollout",), ENGINE)

    def _role_sizes(
        self, reading: Reading, role: str, path: KeyPath, keys: Mapping[str, str], **defaults: int
    ) -> Sizes | None:
        """Return the sizes of a role. Faults count only if the role is placed."""
        counted = role in self._names
        reader = reading if counted else reading.fork()
        before = len(reader.faults)
        sizes = sizes_at(reader, path, keys, **defaults)
        if counted:
            reading.size_paths[self._names[role]] = path
        if sizes is None and counted and not role.startswith("critic") and len(reader.faults) == before:
            self._add_missing(reading, role, path)
        return None if len(reader.faults) > before else sizes

    def _add_missing(self, reading: Reading, role: str, path: KeyPath) -> None:
        reading.add_in_config(path, missing_section(path, self._names[role], reading.config))

    def _arrange_roles(self, reading: Reading) -> None:
        self._placement_mode = PlacementMode.COLLOCATED
        self._place_each(reading, "reward")
        self._place_engines(reading, 1)

    def _place_each(self, reading: Reading, *roles: str) -> None:
        """Place roles with a process per accelerator."""
        for role in roles:
            part = self._parts.get(role)
            if part is not None and self._used[role] and self._divides(reading, role, len(part.rule.resources)):
                try:  # the rows are those that the config gives
                    each = replace(part, rule=one_each(part.rule))
                    self._keep(role, each.with_settings(parallel=self._parallel(role)))
                except PlacementError as error:
                    for one in error.diagnostics:
                        reading.add_in_config(reading.size_paths.get(self._names[role], ()), one)

    def _place_engines(self, reading: Reading, stride: int) -> None:
        """Place the rollout with a process per engine."""
        self._rollout_stride = stride
        part, sizes = self._parts["rollout"], self._sizes.get("rollout")
        if sizes is None:
            return
        count, size = len(part.rule.resources), sizes.dense
        if (found := self._stated_engines(size)) is not None:
            reading.add(self._path("rollout"), found)
        elif isinstance(part.rule, RankMap) and not is_plain(part.rule) and per_process(part.rule) == {0}:
            self._put(reading, "rollout", part.rule)
        elif self._divides(reading, "rollout", count):
            if count % (size * stride):
                reading.add(self._path("rollout"), uneven("rollout", count, size, stride))
            else:
                self._put(reading, "rollout", engines(part.rule.resources, size, stride))

    def _stated_engines(self, size: int) -> Diagnostic | None:
        """Return the fault of process ranks that contradict the size of an engine."""
        rule = self._parts["rollout"].rule
        if not isinstance(rule, RankMap) or is_plain(rule):
            return None
        found = per_process(rule)
        if found == {size} or (found == {0} and size == 1):
            return None
        most = max(*found, 1)
        has = counted(most, "accelerator")
        sizes = self._sizes["rollout"].text("tp", "pp")
        message = f"a process of `rollout` has {has}, but its engine needs {size} ({sizes})"
        help = f"remove the process ranks, or give each process {counted(size, 'accelerator')}"
        return Diagnostic("parallel-idle" if most > size else "parallel-not-divisible", message, help)

    def _divides(self, reading: Reading, role: str, count: int, what: str = "") -> bool:
        """Record which sizes of a role do not divide its accelerators, and return whether all do."""
        sizes = self._sizes.get(role)
        faults = list(sizes.undivided(what or f"`{self._names[role]}`", count)) if sizes is not None else []
        for path, fault in faults:
            if sizes is not None and role == "rollout" and not what and count // sizes.dense == 1:
                each, rest = f"an engine of `rollout` has {count} accelerators", count - sizes.dense
                message = f"{each}, but {sizes.text('tp', 'pp')} needs {sizes.dense}: {rest} would be idle"
                fault = replace(fault, code="parallel-idle", message=message)
            if path is None:
                reading.add(self._path(role), fault)
            else:
                reading.add_in_config(path, fault)
        return not faults

    def _put(self, reading: Reading, role: str, rule: Rule, groups: tuple[str, ...] | None = None) -> None:
        """Give a role another rule."""
        part, sizes = self._parts[role], self._parallel(role)
        place = self._names[role], self._inventory, groups or part.node_groups, rule
        try:
            self._keep(role, Component.place(*place, part.settings, parallel=sizes))
        except PlacementError as error:
            reading.add_all(self._path(role), error)

    def _keep(self, role: str, component: Component) -> None:
        self._placements[self._names[role]] = strategy_of(component)

    def _parallel(self, role: str) -> Parallel:
        return self._sizes.get(role, Sizes()).parallel

    def get_strategy(self, component: str) -> PlacementStrategy:
        """Return the strategy of a component; ``inference`` and ``actor_inference`` are the same one.

        Raises `PlacementError` (``unknown-component``) for an unknown component.
        """
        if component in ("inference", "actor_inference") and component not in self._placements:
            component = self._names.get("inference", component)
        return super().get_strategy(component)

    def get_world_size(self, component: str) -> int:
        """Return the number of processes that the config states: by default the number of accelerators.

        The strategy of an engine has fewer. Raises like `get_strategy`.
        """
        return len(self._stated[component]) if component in self._stated else super().get_world_size(component)

    def get_hardware_ranks(self, component: str) -> list[int]:
        """Return the resource ranks that the config states, ascending. Raises like `get_strategy`."""
        if component not in self._stated:
            return super().get_hardware_ranks(component)
        return list(self._stated[component].rule.resources)

    @property
    def is_collocated(self) -> bool:
        """Whether actor and rollout have the same accelerators."""
        return self._placement_mode is PlacementMode.COLLOCATED

    @property
    def is_disaggregated(self) -> bool:
        """Whether actor, rollout and inference have accelerators of their own."""
        return self._placement_mode is PlacementMode.DISAGGREGATED

    @property
    def is_auto(self) -> bool:
        """Whether a scheduler moves accelerators between the roles."""
        return self._placement_mode is PlacementMode.AUTO

    @property
    def is_pipeline(self) -> bool:
        """Whether the roles work at the same time."""
        return self.is_disaggregated or self.is_auto

    @property
    def has_dedicated_inference(self) -> bool:
        """Whether inference has accelerators of its own."""
        return self.is_pipeline and "inference" in self._parts


def uneven(name: str, count: int, size: int, stride: int) -> Diagnostic:
    """Return the fault of engines that do not fill the accelerators of a component."""
    message = (
        f"`{name}` has {count} accelerators, which is not a multiple of {size * stride}: engines of {size} alternate, "
        f"{stride} at a time, because the actor's tensor size is {stride} times the rollout's"
    )
    help = f"use a multiple of {size * stride} accelerators, or the same tensor size for both"
    return Diagnostic("parallel-not-divisible", message, help)

"""RLinf's names for rules and components: the strategies, and `ComponentPlacement`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self, cast

from rankplan._core import CLUSTER, MAX_RANK, NODE, Packed, Placement, Placements, RankMap
from rankplan.config.models import ClusterSection, ComponentEntry, component_names
from rankplan.config.section import Config, Reading, read_config
from rankplan.config.text.faults import KeyPath
from rankplan.errors import Diagnostic, PlacementError
from rankplan.hardware.policies import NO_BINDING, NO_MEMORY
from rankplan.nodes.clusters import AnyCluster, inventory_of
from rankplan.nodes.inventory import Inventory, configured
from rankplan.plans.component import USUAL_SETTINGS, Component, Rule, Settings, Visibility
from rankplan.plans.mode import PlacementMode
from rankplan.plans.plan import Plan
from rankplan.words import as_int, counted, did_you_mean, shown

__all__ = [
    "ComponentPlacement",
    "FlexiblePlacementStrategy",
    "NodePlacementStrategy",
    "PackedPlacementStrategy",
    "Placement",
    "PlacementStrategy",
    "Placements",
    "parse_placement",
]


class PlacementStrategy:
    """The rule of a component with its node groups. Immutable: repeated calls return equal placements.

    A strategy from a config carries the component that it was checked as, and places again only on another inventory.
    """

    __slots__ = ("_component", "_labels", "_rule")

    _by_node = False

    def __init__(self, rule: Rule, labels: tuple[str, ...], component: Component | None = None) -> None:
        self._rule = rule
        self._labels = labels
        self._component = component

    @property
    def node_group_label(self) -> str:
        """Labels of the node groups that count the resource ranks, separated by commas."""
        return ",".join(self._labels)

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return self._rule.world_size

    @property
    def hardware_ranks(self) -> list[int]:
        """Resource ranks that any process uses, ascending."""
        return list(self._rule.resources)

    def get_placement(self, cluster: AnyCluster, isolate_accelerator: bool = True) -> Placements:
        """Return the rows on this cluster, one per process in rank order.

        With ``isolate_accelerator`` each process sees its own accelerators only, else all of its node. Raises
        `PlacementError` if a resource does not exist or a process would need two nodes or two types of hardware,
        ``TypeError`` if ``cluster`` is neither an inventory nor a cluster.
        """
        return self.component("", cluster, isolate_accelerator).rows

    def component(self, name: str, cluster: AnyCluster, isolate_accelerator: bool = True) -> Component:
        """Return a component with the strategy's rule, under this name; see `get_placement`."""
        inventory, placed = self.inventory_on(cluster), self._component
        visibility = self._visibility(isolate_accelerator)
        if placed is not None and placed.inventory == inventory:
            return replace(placed, name=name).with_settings(visibility=visibility)
        if not self._by_node:
            inventory.pool(self._labels).require_hardware()
        settings = USUAL_SETTINGS if placed is None else placed.settings
        settings = replace(settings, visibility=visibility, by_node=self._by_node)
        return Component.place(name, inventory, self._labels, self._rule, settings)

    def _visibility(self, isolate: bool) -> Visibility:
        """Return what the config states, if that is more than the own accelerators, else what the caller requests."""
        stated = "own" if self._component is None else self._component.visibility
        return stated if stated != "own" else "own" if isolate else "node"

    def inventory_on(self, cluster: AnyCluster) -> Inventory:
        """Return the inventory of a cluster, with the node groups of the strategy's config, if it comes from one.

        The config's groups override same-named groups of the cluster. Raises `PlacementError` if the cluster is too
        small for them.
        """
        inventory = inventory_of(cluster)
        if self._component is None or self._component.inventory.section is None:
            return inventory
        return inventory.with_config(self._component.inventory.section)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlacementStrategy):
            return NotImplemented
        return type(self) is type(other) and self._key() == other._key()

    def _key(self) -> tuple[Any, ...]:
        return self._rule, self._labels, self._component and self._component.inventory.section

    def __hash__(self) -> int:
        return hash((type(self), self._labels, self.world_size))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._rule, self._labels, self._component)

    def __repr__(self) -> str:
        size = counted(self.world_size, "process", "processes")
        return f"<{type(self).__name__} of {size} in '{self.node_group_label}'>"


def _restored(
    kind: type[PlacementStrategy], rule: Rule, labels: tuple[str, ...], component: Component | None
) -> PlacementStrategy:
    strategy = kind.__new__(kind)
    PlacementStrategy.__init__(strategy, rule, labels, component)
    return strategy


class FlexiblePlacementStrategy(PlacementStrategy):
    """Process ``i`` uses the resources ``hardware_ranks_list[i]``.

    Ranks within a process are sorted, and processes by their first rank; the caller's lists do not change. Two
    processes may share a resource.
    """

    __slots__ = ()

    def __init__(
        self, hardware_ranks_list: Iterable[Iterable[int]], node_group_label: str | Sequence[str] | None = None
    ) -> None:
        """``node_group_label``: one label, several (a list, or separated by commas), or ``None`` for all nodes.

        Raises `PlacementError` for an empty list, a rank twice in one process, or a value that is not a rank.
        """
        try:
            given = iter(hardware_ranks_list)
        except TypeError:
            message = f"hardware_ranks_list is {shown(hardware_ranks_list)}; it must be a list of lists of ranks"
            help = "pass one list of ints per process"
            raise PlacementError([Diagnostic("invalid-value", message, help)]) from None
        lists = [_ranks(ranks, f"hardware_ranks_list[{index}]") for index, ranks in enumerate(given)]
        super().__init__(RankMap.from_lists(lists), _labels(node_group_label, CLUSTER))


class NodePlacementStrategy(PlacementStrategy):
    """Process ``i`` runs on node ``sorted(node_ranks)[i]`` of the node group; a node named twice gets two processes."""

    __slots__ = ()

    _by_node = True
    _rule: RankMap

    def __init__(self, node_ranks: Iterable[int], node_group_label: str | Sequence[str] | None = None) -> None:
        """``node_ranks`` count the nodes of the group; the default group ``node`` has all nodes of the cluster.

        Raises `PlacementError` for an empty list or a value that is not a rank.
        """
        ranks = _ranks(node_ranks, "node_ranks")
        if not ranks:
            raise PlacementError([Diagnostic("empty-placement", "node_ranks is empty", "name at least one node rank")])
        super().__init__(RankMap.from_lists([[rank] for rank in ranks]), _labels(node_group_label, NODE))

    @property
    def node_ranks(self) -> list[int]:
        """The node rank of each process, counted in the node group."""
        return [
            resources[index * len(resources) // len(processes)]
            for resources, processes in self._rule.segments
            for index in range(len(processes))
        ]

    _node_ranks = node_ranks  # the name that RLinf's scripts read


class PackedPlacementStrategy(PlacementStrategy):
    """Resources ``start_hardware_rank`` to ``end_hardware_rank``, ``num_hardware_per_process`` per process.

    Windows of ``num_hardware_per_process * stride`` consecutive resources hold ``stride`` processes; process ``j`` of a
    window takes every ``stride``-th resource, starting with its ``j``-th. With stride 2 and two per process, 0-7 become
    0,2 | 1,3 | 4,6 | 5,7.
    """

    __slots__ = ()

    _rule: Packed

    def __init__(
        self,
        start_hardware_rank: int,
        end_hardware_rank: int,
        num_hardware_per_process: int = 1,
        stride: int = 1,
        node_group: str | Sequence[str] | None = None,
    ) -> None:
        """``node_group``: one label, several (a list, or separated by commas), or ``None`` for all nodes.

        Raises `PlacementError` if the windows do not fill the range, or for a value that is not a rank.
        """
        first = _rank(start_hardware_rank, "start_hardware_rank")
        last = _rank(end_hardware_rank, "end_hardware_rank")
        each = _rank(num_hardware_per_process, "num_hardware_per_process", least=1)
        rule = Packed(first, last, each, _rank(stride, "stride", least=1))
        super().__init__(rule, _labels(node_group, CLUSTER))

    @property
    def start_hardware_rank(self) -> int:
        """The first resource rank."""
        return self._rule.start

    @property
    def end_hardware_rank(self) -> int:
        """The last resource rank."""
        return self._rule.end

    @property
    def num_hardware_per_process(self) -> int:
        """The number of resources per process."""
        return self._rule.per_process

    @property
    def stride(self) -> int:
        """The distance between two resources of a process."""
        return self._rule.stride

    # The names that RLinf's scripts read.
    _start_hw_rank, _end_hw_rank = start_hardware_rank, end_hardware_rank
    _num_hardware_per_process, _stride = num_hardware_per_process, stride


def strategy_of(component: Component) -> PlacementStrategy:
    """Return the strategy that places a component, with its node groups."""
    kind: type[PlacementStrategy] = FlexiblePlacementStrategy
    if isinstance(component.rule, Packed):
        kind = PackedPlacementStrategy
    elif component.inventory.pool(component.node_groups).by_node:
        kind = NodePlacementStrategy
    return _restored(kind, component.rule, component.node_groups, component)


class ComponentPlacement:
    """The checked placement of every component of a config.

    ``config`` is a mapping with a ``cluster`` section (a dict, an OmegaConf object, the result of `load_config`) or the
    path of a YAML file. ``cluster`` is an `Inventory` or a live `Cluster`; the config need not repeat the node groups
    that it knows, and overrides those of the same name. Raises `PlacementError` with every fault of the config in the
    order of the file; ``OSError`` if the file cannot be read; ``TypeError`` for any other cluster.
    """

    def __init__(self, config: Config | Reading, cluster: AnyCluster) -> None:
        reading = read_config(config).fork()
        present = inventory_of(cluster)
        self._inventory, unfit = configured(present, present.with_groups_added(reading.section))
        for path, found in unfit:
            reading.add(path, found)
        self._placements: dict[str, PlacementStrategy] = {}  # RLinf's name, which its subclasses write to
        seen: set[str] = set()
        for key in reading.keys:
            for name in component_names(key):
                if fault := _bad_name(name, key, seen):
                    reading.add(("component_placement", key), fault)
                seen.add(name)
        known = reading.num_nodes_known and not unfit
        for key, entry in reading.section.component_placement.items():
            if not known or reading.lost(entry.node_group):
                _check_text(key, entry, reading)
            else:
                self._place(key, entry, reading)
        self._arrange(reading)
        reading.finish()

    @property
    def _mode(self) -> PlacementMode | None:
        """The placement mode, for subclasses."""
        return None

    def _arrange(self, reading: Reading) -> None:
        """Change the components that the section alone gives. For subclasses; a component with faults is missing."""

    def _place(self, key: str, entry: ComponentEntry, reading: Reading) -> None:
        path = ("component_placement", key)
        try:
            pool = self._inventory.pool(entry.node_group)
        except PlacementError as error:
            reading.add_all((*path, "node_group"), error)
            _check_text(key, entry, reading)
            return
        try:
            rule, rows = pool.place(entry.placement)
        except PlacementError as error:
            _add(reading, (*path, "placement"), error)
            return
        names = component_names(key)
        component = Component(names[0], self._inventory, entry.node_group, rule, rows)
        try:
            component = replace(component, settings=_settings(entry, reading.section))
            for found in component.binding_faults():
                reading.add((*path, "binding"), found)
        except PlacementError as error:
            reading.add_all((*path, "visibility"), error)
            return
        reading.size_paths |= dict.fromkeys(names, reading.in_config((*path, "parallel")))
        try:
            component = component.with_settings(parallel=entry.parallel.value())
        except PlacementError as error:
            reading.add_all((*path, "parallel"), error)
            return
        self._placements |= dict.fromkeys(names, strategy_of(component))

    @property
    def components(self) -> list[str]:
        """Names of the components, in the order of the config."""
        return list(self._placements)

    @property
    def inventory(self) -> Inventory:
        """The nodes of the config and its node groups."""
        return self._inventory

    def get_strategy(self, component: str) -> PlacementStrategy:
        """Return the strategy of a component; components of one key share the object.

        Raises `PlacementError` (``unknown-component``) for an unknown component.
        """
        if component not in self._placements:
            help = did_you_mean(str(component), self.components, "the components are")
            message = f"unknown component `{component}`"
            raise PlacementError([Diagnostic("unknown-component", message, help or "the config places no component")])
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

    def plan(self, isolate_accelerator: bool = True) -> Plan:
        """Return the plan of all components; see `PlacementStrategy.get_placement` for the argument."""
        placed = (one.component(name, self._inventory, isolate_accelerator) for name, one in self._placements.items())
        return Plan(self._inventory, placed, self._mode)

    def __repr__(self) -> str:
        return f"<ComponentPlacement of {self.plan()!r}>"


def _settings(entry: ComponentEntry, section: ClusterSection) -> Settings:
    """Return the settings that an entry states, or else the section, without the parallel sizes."""
    return Settings(
        visibility=cast(Visibility, entry.visibility),
        binding=entry.binding or section.binding or NO_BINDING,
        memory_binding=entry.memory_binding or section.memory_binding or NO_MEMORY,
        egl=entry.egl,
        nics=entry.nics or section.nics or "check",
    )


def _bad_name(name: str, key: str, seen: set[str]) -> Diagnostic | None:
    if not name:
        message = f"`{key}` contains an empty component name"
        return Diagnostic("empty-name", message, "write a name between the commas, e.g. actor")
    if name in seen:
        return Diagnostic("duplicate-component", f"component `{name}` is placed twice", "give each component one rule")
    return None


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


def _labels(labels: str | Sequence[str] | None, default: str) -> tuple[str, ...]:
    if labels is None:
        return (default,)
    if isinstance(labels, str):
        return tuple(label.strip() for label in labels.split(",")) if "," in labels else (labels,)
    # As in RLinf, an empty list selects the default group.
    return tuple(str(label) for label in labels) or (default,)


def _rank(value: Any, name: str, least: int = 0) -> int:
    rank = as_int(value)
    if rank is None or not least <= rank <= MAX_RANK:
        message = f"{name} is {shown(value)}; it must be a whole number of {least} or more"
        raise PlacementError([Diagnostic("invalid-value", message, f"use {least} to {MAX_RANK}")])
    return rank


def _ranks(values: Iterable[int], name: str) -> list[int]:
    try:
        found = iter(values)
    except TypeError:
        message = f"{name} is {shown(values)}; it must be a list of ranks"
        raise PlacementError([Diagnostic("invalid-value", message, "pass a list of ints")]) from None
    return [_rank(value, f"{name}[{index}]") for index, value in enumerate(found)]


def parse_placement(text: str | int, num_resources: int | None = None) -> RankMap:
    """Read and check a placement text (or an int, a one-rank range) without an inventory.

    ``num_resources`` bounds the ranks and defines ``all``; without it bounds are not checked and ``all`` is rejected.
    Raises `PlacementError` with every fault.
    """
    bound = None if num_resources is None else _rank(num_resources, "num_resources")
    if not isinstance(text, str) and as_int(text) is None:
        message, help = f"the placement is {shown(text)}; it must be text", "write text such as 0-7, 0-1:0-3 or all"
        raise PlacementError([Diagnostic("invalid-value", message, help)])
    return RankMap.parse(text if isinstance(text, str) else str(_rank(text, "the placement")), bound)

"""The strategies, and `ComponentPlacement`: from a config and an inventory to rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rankplan._core import Packed, Placement, Placements, Pool, RankMap
from rankplan.config.faults import KeyPath
from rankplan.config.models import CLUSTER, LARGEST_RANK, NODE, ClusterSection, ComponentEntry, as_int, component_names
from rankplan.config.section import Config, Reading, read_config
from rankplan.errors import Diagnostic, PlacementError
from rankplan.inventory import Inventory
from rankplan.plan import Plan
from rankplan.words import did_you_mean

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


class HasInventory(Protocol):
    """A live cluster: something that knows an inventory."""

    @property
    def inventory(self) -> Inventory: ...


def inventory_of(cluster: Inventory | HasInventory) -> Inventory:
    """Return the inventory itself, or that of a live cluster; ``TypeError`` for anything else."""
    inventory = cluster if isinstance(cluster, Inventory) else getattr(cluster, "inventory", None)
    if not isinstance(inventory, Inventory):
        raise TypeError(f"{type(cluster).__name__} is neither a rankplan.Inventory nor a rankplan.Cluster")
    return inventory


class PlacementStrategy:
    """Which resources each process of a component uses. Never changes; asked twice, it gives equal answers."""

    __slots__ = ("_labels", "_rule", "_section", "_text")

    def __init__(
        self, rule: RankMap | Packed, labels: tuple[str, ...], text: str = "", section: ClusterSection | None = None
    ) -> None:
        self._rule = rule
        self._labels = labels
        self._text = text
        self._section = section

    @property
    def node_group_label(self) -> str:
        """Labels of the node groups that resource ranks are counted in, with commas between."""
        return ",".join(self._labels)

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return self._rule.world_size

    @property
    def hardware_ranks(self) -> list[int]:
        """Resource ranks that any process uses, ascending."""
        return list(self._rule.resources)

    def get_placement(self, cluster: Inventory | HasInventory, isolate_accelerator: bool = True) -> Placements:
        """Return where each process runs on this cluster, one row a process, in rank order.

        ``isolate_accelerator``: each process sees its own accelerators only; otherwise all of its node. Raises
        `PlacementError` when a resource is not there, or a process would need two nodes or two types of hardware, and
        ``TypeError`` for what is no cluster.
        """
        pool = self._pool(self.inventory_on(cluster))
        return pool.apply(self._rule, isolate_accelerator)

    def inventory_on(self, cluster: Inventory | HasInventory) -> Inventory:
        """Return what this cluster has, with the node groups of the config that the strategy came from, if any.

        It was checked with them: they are meant, whatever others are called. Raises `PlacementError` when the cluster
        is too small for them.
        """
        inventory = inventory_of(cluster)
        if self._section is None or inventory.section == self._section:
            return inventory
        return inventory.with_config(self._section)

    def _pool(self, inventory: Inventory) -> Pool:
        pool = inventory.pool(self._labels)
        pool.require_hardware()
        return pool

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlacementStrategy):
            return NotImplemented
        mine, others = (self._rule, self._labels, self._section), (other._rule, other._labels, other._section)
        return type(self) is type(other) and mine == others

    def __hash__(self) -> int:
        return hash((type(self), self._labels, self.world_size))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self._rule, self._labels, self._text, self._section)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.world_size} processes in '{self.node_group_label}'>"


def _restore(
    kind: type[PlacementStrategy],
    rule: RankMap | Packed,
    labels: tuple[str, ...],
    text: str,
    section: ClusterSection | None,
) -> PlacementStrategy:
    strategy = kind.__new__(kind)
    PlacementStrategy.__init__(strategy, rule, labels, text, section)
    return strategy


class FlexiblePlacementStrategy(PlacementStrategy):
    """Process ``i`` uses the resources ``hardware_ranks_list[i]``.

    Ranks inside a process are sorted, and processes by their first rank; the caller's lists are left alone. Two
    processes may name the same resource: they share it.
    """

    __slots__ = ()

    def __init__(
        self, hardware_ranks_list: Iterable[Iterable[int]], node_group_label: str | Sequence[str] | None = None
    ) -> None:
        """``node_group_label``: one label, several (a list, or with commas), or ``None`` for all nodes of the cluster.

        Raises `PlacementError` for an empty list, a rank twice in one process, or what is not a rank.
        """
        try:
            given = iter(hardware_ranks_list)
        except TypeError:
            message = f"hardware_ranks_list is {hardware_ranks_list!r}; it must be a list of lists of ranks"
            help = "give one list of ints a process"
            raise PlacementError([Diagnostic("invalid-value", message, help)]) from None
        lists = [_ranks(ranks, f"hardware_ranks_list[{index}]") for index, ranks in enumerate(given)]
        super().__init__(RankMap.from_lists(lists), _labels(node_group_label, CLUSTER))


class NodePlacementStrategy(PlacementStrategy):
    """Process ``i`` runs on node ``sorted(node_ranks)[i]`` of the node group; a node named twice gets two processes."""

    __slots__ = ()

    def __init__(self, node_ranks: Iterable[int], node_group_label: str | Sequence[str] | None = None) -> None:
        """``node_ranks`` count the nodes of the group; in the default group ``node`` they are those of the cluster.

        Raises `PlacementError` for an empty list, or what is not a rank.
        """
        ranks = _ranks(node_ranks, "node_ranks")
        if not ranks:
            raise PlacementError([Diagnostic("empty-placement", "node_ranks is empty", "name at least one node rank")])
        super().__init__(RankMap.from_lists([[rank] for rank in ranks]), _labels(node_group_label, NODE))

    def _pool(self, inventory: Inventory) -> Pool:
        return inventory.pool(self._labels, by_node=True)


class PackedPlacementStrategy(PlacementStrategy):
    """Resources from ``start_hardware_rank`` to ``end_hardware_rank``, ``num_hardware_per_process`` for each process.

    Windows of ``num_hardware_per_process * stride`` consecutive resources hold ``stride`` processes; process ``j`` of a
    window takes every ``stride``-th resource from its ``j``-th on. With stride 2 and two for each, 0-7 become
    0,2 | 1,3 | 4,6 | 5,7.
    """

    __slots__ = ()

    def __init__(
        self,
        start_hardware_rank: int,
        end_hardware_rank: int,
        num_hardware_per_process: int = 1,
        stride: int = 1,
        node_group: str | Sequence[str] | None = None,
    ) -> None:
        """``node_group``: one label, several (a list, or with commas), or ``None`` for all nodes of the cluster.

        Raises `PlacementError` when the windows do not fill the range, or for what is not a rank.
        """
        first = _rank(start_hardware_rank, "start_hardware_rank")
        last = _rank(end_hardware_rank, "end_hardware_rank")
        each = _rank(num_hardware_per_process, "num_hardware_per_process", least=1)
        rule = Packed(first, last, each, _rank(stride, "stride", least=1))
        super().__init__(rule, _labels(node_group, CLUSTER))


class ComponentPlacement:
    """The checked placement of every component of a config.

    ``config`` is a mapping that has ``cluster`` (a dict, an OmegaConf object, what `load_config` returns), or the path
    of a YAML file. ``cluster`` is an `Inventory` or a live `Cluster`. Raises `PlacementError` with every fault of the
    config, in the order of the file; ``OSError`` when the file cannot be read, ``TypeError`` for any other cluster.
    """

    def __init__(self, config: Config, cluster: Inventory | HasInventory) -> None:
        reading = read_config(config)
        self._inventory, too_few = inventory_of(cluster).configured(reading.section)
        if too_few is not None:
            reading.add(("num_nodes",), too_few)
        self._strategies: dict[str, PlacementStrategy] = {}
        self._placements: dict[str, Placements] = {}
        seen: set[str] = set()
        for key in reading.keys:
            for name in component_names(key):
                if fault := _bad_name(name, key, seen):
                    reading.add(("component_placement", key), fault)
                seen.add(name)
        known = reading.num_nodes_known and too_few is None
        for key, entry in reading.section.component_placement.items():
            if not known or reading.lost(entry.node_group):
                _check_text(key, entry, reading)
            else:
                self._place(key, entry, reading)
        reading.finish()

    def _place(self, key: str, entry: ComponentEntry, reading: Reading) -> None:
        path = ("component_placement", key)
        try:
            pool = self._inventory.pool(entry.node_group)
        except PlacementError as error:
            _note(reading, (*path, "node_group"), error)
            _check_text(key, entry, reading)
            return
        try:
            rank_map, placements = pool.place(entry.placement)
        except PlacementError as error:
            _note(reading, (*path, "placement"), error)
            return
        names = component_names(key)
        kind = NodePlacementStrategy if pool.by_node else FlexiblePlacementStrategy
        strategy = _restore(kind, rank_map, entry.node_group, entry.placement, self._inventory.section)
        self._strategies.update(dict.fromkeys(names, strategy))
        self._placements.update(dict.fromkeys(names, placements))

    @property
    def components(self) -> list[str]:
        """Names of the components, in the order of the config."""
        return list(self._strategies)

    @property
    def inventory(self) -> Inventory:
        """The nodes that the config uses, and its node groups."""
        return self._inventory

    def get_strategy(self, component: str) -> PlacementStrategy:
        """Return the strategy of a component; components written together share one object.

        Raises `PlacementError` (``unknown-component``) when there is no such component.
        """
        if component not in self._strategies:
            message = f"component `{component}` is not in component_placement"
            help = did_you_mean(str(component), self.components, "the components are")
            raise PlacementError([Diagnostic("unknown-component", message, help or "the config places no component")])
        return self._strategies[component]

    def get_world_size(self, component: str) -> int:
        """Return the number of processes of a component. Raises like `get_strategy`."""
        return self.get_strategy(component).world_size

    def get_hardware_ranks(self, component: str) -> list[int]:
        """Return the resource ranks that a component uses, ascending. Raises like `get_strategy`."""
        return self.get_strategy(component).hardware_ranks

    def plan(self, isolate_accelerator: bool = True) -> Plan:
        """Return the placements of all components; see `PlacementStrategy.get_placement` for the argument."""
        rows = {name: placements.isolated(isolate_accelerator) for name, placements in self._placements.items()}
        return Plan(self._inventory, rows)

    def __repr__(self) -> str:
        return f"<ComponentPlacement of {self.plan()!r}>"


def _bad_name(name: str, key: str, seen: set[str]) -> Diagnostic | None:
    if not name:
        message = f"`{key}` names a component without a name"
        return Diagnostic("empty-name", message, "write a name between the commas, e.g. actor")
    if name in seen:
        return Diagnostic("duplicate-component", f"component `{name}` is placed twice", "give each component one rule")
    return None


def _check_text(key: str, entry: ComponentEntry, reading: Reading) -> None:
    """Find what is wrong with a placement whose resources are not known."""
    try:
        RankMap.parse(entry.placement)
    except PlacementError as error:
        known = [diagnostic for diagnostic in error.diagnostics if diagnostic.code != "no-resources"]
        if known:
            _note(reading, ("component_placement", key, "placement"), PlacementError(known))


def _note(reading: Reading, path: KeyPath, error: PlacementError) -> None:
    for diagnostic in error.diagnostics:
        number = int(diagnostic.text or 0) if path[1] in reading.numbers and reading.document is None else 0
        if diagnostic.code == "resource-out-of-range" and number >= 60:
            hint = f"{number} may be YAML 1.1's reading of {number // 60}:{number % 60}; quote it"
            diagnostic = replace(diagnostic, help=f"{diagnostic.help}; {hint}")
        reading.add(path, diagnostic)


def _labels(labels: str | Sequence[str] | None, default: str) -> tuple[str, ...]:
    if labels is None:
        return (default,)
    if isinstance(labels, str):
        return tuple(label.strip() for label in labels.split(",")) if "," in labels else (labels,)
    # As in RLinf, an empty list selects what is selected without the argument.
    return tuple(str(label) for label in labels) or (default,)


def _rank(value: Any, name: str, least: int = 0) -> int:
    rank = as_int(value)
    if rank is None or not least <= rank <= LARGEST_RANK:
        message = f"{name} is {value!r}; it must be a whole number of {least} or more"
        raise PlacementError([Diagnostic("invalid-value", message, f"use {least} to {LARGEST_RANK}")])
    return rank


def _ranks(values: Iterable[int], name: str) -> list[int]:
    try:
        found = iter(values)
    except TypeError:
        message = f"{name} is {values!r}; it must be a list of ranks"
        raise PlacementError([Diagnostic("invalid-value", message, "give a list of ints")]) from None
    return [_rank(value, f"{name}[{index}]") for index, value in enumerate(found)]


def parse_placement(text: str | int, num_resources: int | None = None) -> RankMap:
    """Read and check a placement text (or an int, the one-rank range) by itself.

    ``num_resources`` bounds the ranks and is what ``all`` means; without it bounds are not checked and ``all`` is
    refused. Raises `PlacementError` with every fault.
    """
    bound = None if num_resources is None else _rank(num_resources, "num_resources")
    if not isinstance(text, str) and as_int(text) is None:
        message, help = f"{text!r} is not a placement", "write text such as 0-7, 0-1:0-3 or all"
        raise PlacementError([Diagnostic("invalid-value", message, help)])
    return RankMap.parse(text if isinstance(text, str) else str(_rank(text, "the placement")), bound)

"""RLinf's names for rules, the strategies, and its errors, whose users catch ``AssertionError``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from rankplan._core import CLUSTER, MAX_RANK, NODE, Packed, Placements, RankMap
from rankplan.dialects.interface.cluster import AnyCluster
from rankplan.errors import PlacementError, ResourceOutOfRangeError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import USUAL_SETTINGS, Component, Rule, Visibility
from rankplan.rlinf import faults
from rankplan.rlinf.clusters import inventory_of
from rankplan.words import as_int, counted, must_be

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class RlinfPlacementError(PlacementError, AssertionError):
    """A ``PlacementError`` of RLinf's classes: RLinf checks placements with ``assert``."""


class RlinfOutOfRangeError(ResourceOutOfRangeError, RlinfPlacementError):
    """A ``ResourceOutOfRangeError`` of RLinf's classes."""


def as_assertion(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a function that raises its `PlacementError` as one that is an ``AssertionError``, too."""

    @wraps(function)
    def converted(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
        try:
            return function(*arguments, **keywords)
        except RlinfPlacementError:
            raise
        except PlacementError as error:
            kind = RlinfOutOfRangeError if isinstance(error, ResourceOutOfRangeError) else RlinfPlacementError
            raise kind(error.diagnostics).with_traceback(error.__traceback__) from error.__cause__

    return converted


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

    @as_assertion
    def get_placement(self, cluster: AnyCluster, isolate_accelerator: bool = True) -> Placements:  # noqa: FBT001, FBT002  # RLinf's signature
        """Return the rows on this cluster, one per process in rank order.

        With ``isolate_accelerator`` each process sees its own accelerators only, else all of its node. Raises
        `PlacementError` if a resource does not exist or a process would need two nodes or two types of hardware,
        ``TypeError`` if ``cluster`` is neither an inventory nor a cluster.
        """
        return self.on(cluster, isolate_accelerator=isolate_accelerator).rows

    @as_assertion
    def on(self, cluster: AnyCluster, name: str = "", *, isolate_accelerator: bool = True) -> Component:
        """Return a component with the strategy's rule, under this name; see `get_placement`."""
        inventory, placed = self.inventory_on(cluster), self._component
        visibility = self._visibility(isolate=isolate_accelerator)
        if placed is not None and placed.inventory == inventory:
            return replace(placed, name=name).with_settings(visibility=visibility)
        if not self._by_node:
            inventory.pool(self._labels).require_hardware()
        settings = USUAL_SETTINGS if placed is None else placed.settings
        settings = replace(settings, visibility=visibility, by_node=self._by_node)
        return Component.place(name, inventory, self._labels, self._rule, settings)

    def _visibility(self, *, isolate: bool) -> Visibility:
        """Return what the config states, if that is more than the own accelerators, else what the caller requests."""
        stated = "own" if self._component is None else self._component.visibility
        return stated if stated != "own" else "own" if isolate else "node"

    def inventory_on(self, cluster: AnyCluster) -> Inventory:
        """Return the inventory of a cluster, with the node groups of the strategy's config, if it comes from one.

        The config's groups override same-named groups of the cluster. Raises `PlacementError` if the cluster is too
        small for them.
        """
        inventory = inventory_of(cluster)
        planned = None if self._component is None else self._component.inventory
        if planned is None or planned.facts is None:
            return inventory
        return inventory.with_facts(planned.facts, planned.num_nodes, planned=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlacementStrategy):
            return NotImplemented
        return type(self) is type(other) and self._key() == other._key()

    def _key(self) -> tuple[Any, ...]:
        return self._rule, self._labels, self._component and self._component.inventory.facts

    def __hash__(self) -> int:
        return hash((type(self), self._labels, self.world_size))

    def __repr__(self) -> str:
        size = counted(self.world_size, "process", "processes")
        return f"<{type(self).__name__} of {size} in '{self.node_group_label}'>"


class FlexiblePlacementStrategy(PlacementStrategy):
    """Process ``i`` uses the resources ``hardware_ranks_list[i]``.

    Ranks within a process are sorted, and processes by their first rank; the caller's lists do not change. Two
    processes may share a resource.
    """

    __slots__ = ()

    @as_assertion
    def __init__(
        self, hardware_ranks_list: Iterable[Iterable[int]], node_group_label: str | Sequence[str] | None = None
    ) -> None:
        """``node_group_label``: one label, several (a list, or separated by commas), or ``None`` for all nodes.

        Raises `PlacementError` for an empty list, a rank twice in one process, or a value that is not a rank.
        """
        name = "hardware_ranks_list"
        given = _items(hardware_ranks_list, name, "a list of lists of ranks", "pass one list of ints per process")
        lists = [_ranks(ranks, f"{name}[{index}]") for index, ranks in enumerate(given)]
        super().__init__(RankMap.from_lists(lists), _labels(node_group_label, CLUSTER))


class NodePlacementStrategy(PlacementStrategy):
    """Process ``i`` runs on node ``sorted(node_ranks)[i]`` of the node group; a node named twice gets two processes."""

    __slots__ = ()

    _by_node = True
    _rule: RankMap

    @as_assertion
    def __init__(self, node_ranks: Iterable[int], node_group_label: str | Sequence[str] | None = None) -> None:
        """``node_ranks`` count the nodes of the group; the default group ``node`` has all nodes of the cluster.

        Raises `PlacementError` for an empty list or a value that is not a rank.
        """
        ranks = _ranks(node_ranks, "node_ranks")
        if not ranks:
            raise PlacementError([faults.no_node_ranks()])
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

    @as_assertion
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
    strategy = kind.__new__(kind)
    PlacementStrategy.__init__(strategy, component.rule, component.node_groups, component)
    return strategy


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
        allowed = f"a whole number of {least} or more"
        raise PlacementError([must_be(name, value, allowed, f"use {least} to {MAX_RANK}")])
    return rank


def _items(values: Any, name: str, allowed: str, help: str) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise PlacementError([must_be(name, values, allowed, help)]) from None


def _ranks(values: Iterable[int], name: str) -> list[int]:
    found = _items(values, name, "a list of ranks", "pass a list of ints")
    return [_rank(value, f"{name}[{index}]") for index, value in enumerate(found)]


def parse_placement(text: str | int, num_resources: int | None = None) -> RankMap:
    """Read and check a placement text (or an int, a one-rank range) without an inventory.

    ``num_resources`` bounds the ranks and defines ``all``; without it bounds are not checked and ``all`` is rejected.
    Raises `PlacementError` with every fault.
    """
    bound = None if num_resources is None else _rank(num_resources, "num_resources")
    if not isinstance(text, str) and as_int(text) is None:
        raise PlacementError([must_be("the placement", text, "text", "write text such as 0-7, 0-1:0-3 or all")])
    return RankMap.parse(text if isinstance(text, str) else str(_rank(text, "the placement")), bound)

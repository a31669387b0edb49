"""A component of a plan: the rule that placed its processes, and the rows that the rule gives on the plan's nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import cached_property
from itertools import chain, groupby, repeat
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, overload

from rankplan._core import (
    ACCELERATOR,
    MAX_PROCESSES,
    Chunks,
    Groups,
    Layout,
    Packed,
    Pattern,
    Placement,
    Placements,
    RankMap,
    RankSet,
    Spans,
)
from rankplan.accelerators import vendor
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.hardware.policies import NO_BINDING, NO_MEMORY, NOTHING, Bound
from rankplan.nodes.facts import NODE_LEVEL
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import NO_SIZES, Parallel
from rankplan.plans.binding import Cores
from rankplan.plans.crossings import level_warnings, spans_of
from rankplan.plans.memory_settings import MemorySettings
from rankplan.plans.rules import NO_RULES, Rules
from rankplan.words import counted

Rule: TypeAlias = RankMap | Packed | Chunks
"""Which resource ranks each process uses."""

Visibility: TypeAlias = Literal["own", "node", "own-first"]
"""Whether a process sees its own accelerators only, all of its node, or all of its node with its own first."""

Coordinates: TypeAlias = dict[str, int]
"""The position of a slot in its group of each kind: ``{"tp": 1, "dp": 0, "pp": 2}``."""


class PlacementMode(Enum):
    """How the roles of a job share accelerators: the modes of RLinf (``rlinf/utils/placement.py``, 0.3.0).

    ``COLLOCATED``: actor and rollout have the same ones. ``DISAGGREGATED``: actor, rollout and inference have their
    own. ``AUTO``: disaggregated at first, then a scheduler moves accelerators between the roles. ``HYBRID``: any.
    """

    COLLOCATED = auto()
    DISAGGREGATED = auto()
    HYBRID = auto()
    AUTO = auto()


@frozen
class Settings:
    """The decisions of a component besides its rule and its node groups.

    ``visibility``: the devices that its processes see. ``by_node`` counts each node as one resource, whatever its
    hardware. ``parallel`` divides its slots into groups. ``share`` is the fraction of each of its accelerators that a
    reservation counts for it; ``None`` counts nothing. ``engines`` is the number of processes per engine. ``binding``
    and ``memory_binding`` are the policies for the CPUs and the memory of its processes. ``egl``: they render with EGL,
    on their first accelerator. ``nics`` tells whether nearby network cards are only reported (``check``) or used
    (``set``). ``cpus_per_process`` and ``host_memory_per_process`` (MiB) are what each process reserves with Ray;
    ``None`` reserves nothing. ``memory`` is what it keeps in memory, see `Plan.memory`.
    """

    visibility: Visibility = "own"
    by_node: bool = False
    parallel: Parallel = NO_SIZES
    share: float | None = None
    engines: int = 1
    binding: str = NO_BINDING
    memory_binding: str = NO_MEMORY
    egl: bool = False
    nics: str = "check"
    cpus_per_process: float | None = None
    host_memory_per_process: int | None = None
    memory: MemorySettings | None = None


USUAL_SETTINGS = Settings()


_DECIDING_SLOTS = frozenset({"visibility", "parallel"})
"""The settings that decide what the rows show, and how the slots are divided."""


def _setting(name: str) -> Any:
    """Return an attribute of a component for one of its settings."""
    return property(attrgetter(f"settings.{name}"), doc=f"``settings.{name}``, see `Settings`.")


class Exclusive(NamedTuple):
    """The name, the node groups and the rule of a component that uses the cores near its accelerators exclusively."""

    name: str
    node_groups: tuple[str, ...]
    rule: Rule

    def accelerators(self, inventory: Inventory) -> RankSet:
        """Return its accelerators, counted node by node; none on an inventory on which it cannot run."""
        try:
            return inventory.pool(self.node_groups).apply(self.rule).accelerators()
        except PlacementError:
            return NOTHING


@frozen(slots=False, eq=False, repr=False)
class Component(Sequence[Placement]):
    """A sequence of rows, one per process in rank order, with the decisions that they come from.

    ``rule`` says which resource ranks of ``node_groups`` each process uses; applied to ``inventory`` it gives ``rows``.
    ``settings`` has all other decisions, which are attributes of the component too: ``component.share``. ``beside`` are
    the components of its plan that leave it the cores which they do not use, and ``plan_rules`` the rules of its plan.
    Components are equal if they are placed alike, whatever their names.

    A component has slots: the accelerators of its processes in process order. A process without accelerators, or with
    one that another of its processes uses too, is one slot. The parallel sizes divide the slots into groups.

    Raises ``ValueError`` for a slice of rows, `PlacementError` if the parallel sizes do not fit the slots.
    """

    visibility: ClassVar[Visibility] = _setting("visibility")
    by_node: ClassVar[bool] = _setting("by_node")
    parallel: ClassVar[Parallel] = _setting("parallel")
    share: ClassVar[float | None] = _setting("share")
    engines: ClassVar[int] = _setting("engines")
    binding: ClassVar[str] = _setting("binding")
    memory_binding: ClassVar[str] = _setting("memory_binding")
    egl: ClassVar[bool] = _setting("egl")
    nics: ClassVar[str] = _setting("nics")
    cpus_per_process: ClassVar[float | None] = _setting("cpus_per_process")
    host_memory_per_process: ClassVar[int | None] = _setting("host_memory_per_process")
    memory: ClassVar[MemorySettings | None] = _setting("memory")

    name: str
    inventory: Inventory
    node_groups: tuple[str, ...]
    rule: Rule
    rows: Placements
    settings: Settings = USUAL_SETTINGS
    beside: tuple[Exclusive, ...] = ()
    plan_rules: Rules = NO_RULES

    def __post_init__(self) -> None:
        if not self.rows.whole:
            raise ValueError(f"component {self.name!r} needs all its rows, not a slice of them")
        if self.rows.visibility != self.visibility:
            object.__setattr__(self, "rows", self.rows.seeing(self.visibility))
        if self.visibility == "own-first":
            self._check_order()
        if self.parallel.stated:
            _ = self.layout  # raises for sizes that do not fit

    @classmethod
    def place(
        cls,
        name: str,
        inventory: Inventory,
        node_groups: tuple[str, ...],
        rule: Rule,
        settings: Settings = USUAL_SETTINGS,
        beside: tuple[Exclusive, ...] = (),
        **changes: Any,
    ) -> Component:
        """Return the component that a rule gives on an inventory. Raises `PlacementError` with every fault.

        ``changes`` are single settings: ``Component.place(..., share=0.5)``.
        """
        settings = replace(settings, **changes)
        rows = inventory.pool(node_groups, by_node=settings.by_node).apply(rule, settings.visibility)
        return cls(name, inventory, node_groups, rule, rows, settings, beside)

    def _check_order(self) -> None:
        """Raise `PlacementError` (``visibility-order``) if the mask of a used accelerator cannot be reordered."""
        used = self.used_nodes() if self.rows.accelerators() else RankSet()
        types = {spec.accelerator_type for nodes, spec in self.inventory.stretches() if RankSet(nodes) & used}
        vendors = filter(None, map(vendor, sorted(types)))
        faults = [_unordered(one.vendor, one.unordered) for one in vendors if one.unordered]
        if faults:
            raise PlacementError(faults)

    def with_settings(self, **changes: Any) -> Component:
        """Return the component with other settings: ``component.with_settings(visibility="node", share=0.5)``.

        Raises `PlacementError` for sizes that do not fit the slots, ``TypeError`` for an unknown setting.
        """
        settings = replace(self.settings, **changes)
        if not _DECIDING_SLOTS.isdisjoint(changes):
            return replace(self, settings=settings)
        found = self._alike(settings=settings)
        found.__dict__.pop("_bindings", None)
        return found

    def under(self, rules: Rules) -> Component:
        """Return the component as a part of a plan with these rules."""
        if self.plan_rules is rules:
            return self
        return self._alike(plan_rules=rules)

    def with_facts_of(self, inventory: Inventory) -> Component:
        """Return the component on the same nodes with other facts: none of its node groups, and of what is excluded."""
        return self._alike(inventory=inventory)

    def _alike(self, **fields: Any) -> Component:
        """Return the component with other values of fields that decide neither its rows nor its slots.

        What was worked out from these is not worked out again.
        """
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__, **fields)
        return found

    def on(self, inventory: Inventory) -> Component:
        """Apply the rule to another inventory, which must know the node groups. Raises `PlacementError`."""
        return Component.place(self.name, inventory, self.node_groups, self.rule, self.settings, self.beside)

    @cached_property
    def layout(self) -> Layout:
        """The slots and their parallel groups."""
        return Layout(self.rows, self.parallel)

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self.layout.slots

    def groups(self, kind: str) -> Groups:
        """Return the groups of a kind, each a range of slots.

        The kinds are ``tp``, ``cp``, ``dp`` and ``pp``; ``etp``, ``ep`` and ``edp`` for experts; ``fsdp`` and
        ``replica`` for the two parts of ``dp``. Raises ``ValueError`` for any other.
        """
        return self.layout.groups(kind)

    def spans(self, kind: str, level: str = NODE_LEVEL) -> Spans:
        """Return how many groups of a kind are ``within`` a domain of a level and how many are ``crossing`` one.

        A level is ``node`` or one of ``inventory.levels``. Raises `PlacementError` (``unknown-level``).
        """
        return spans_of(self.layout, self.inventory, kind, level)

    def coordinates(self, rank: int) -> list[Coordinates]:
        """Return the coordinates of each slot of a process: ``[{"tp": 1, "dp": 0}]``.

        Coordinates have every kind with groups of two or more slots, and ``dp``. Raises ``IndexError``.
        """
        rank = rank + len(self) if -len(self) <= rank < 0 else rank
        return [self.layout.coordinates(slot) for slot in self.layout.slots_of(rank)]

    def to_numpy(self) -> dict[str, Any]:
        """Return the columns of the rows and, if sizes are stated, the coordinates as NumPy arrays by name.

        For the rows, see ``Placements.to_numpy``. Coordinates have shape (slots,), one array per kind; the slots of
        rank ``r`` are ``slot_starts[r]`` to ``slot_starts[r + 1]``. Raises ``ImportError`` without NumPy.
        """
        return self.rows.to_numpy() | (self.layout.to_numpy() if self.parallel.stated else {})

    def mesh(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the shape and the names of a mesh of all slots, outermost first.

        As torch takes it: ``shape, names = component.mesh()``, then
        ``init_device_mesh("cuda", shape, mesh_dim_names=names)``. Dimensions of size 1 are left out, except ``dp``.
        With ``fsdp``, the dimensions ``replica`` and ``fsdp`` take the place of ``dp``.
        """
        dimensions = self.layout.mesh()
        return tuple(size for _, size in dimensions), tuple(name for name, _ in dimensions)

    def parallel_warnings(self) -> list[Diagnostic]:
        """Return warnings for groups that cross a node or a domain, or leave their rails; empty without sizes."""
        if not self.parallel.stated:
            return []
        return [*self.layout.warnings(self.name), *level_warnings(self.name, self.layout, self.inventory)]

    def bound(self, rank: int) -> Bound:
        """Return the CPUs and the memory that a process should use; empty without a binding, or without facts.

        Raises ``IndexError``.
        """
        return self._bindings.bound(self.rows[rank])

    def cpus(self, rank: int) -> RankSet | None:
        """Return the CPUs that a process should run on, ``None`` for any. Raises ``IndexError``."""
        return self.bound(rank).cpus or None

    def binding_faults(self) -> list[Diagnostic]:
        """Return the bindings that the facts of the nodes do not allow (``binding-unmet``)."""
        if not self._bindings.stated:
            return []
        facts: list[str] = []
        for nodes, spec in self.inventory.stretches():
            facts += repeat(spec.facts, len(nodes))
        # equal nodes with equal processes are looked at once
        alike: dict[tuple[str, Pattern], tuple[int, list[int]]] = {}
        for run in self.rows.runs(at_home=True) if any(facts) else ():
            for offset in range(run.nodes):
                first = run.first_rank + offset * run.pattern.processes
                alike.setdefault((facts[run.node + offset], run.pattern), (first, []))[1].append(run.node + offset)
        rows = (
            (self.rows[first + index], nodes)
            for (known, pattern), (first, nodes) in alike.items()
            for index in range(pattern.processes if known else 0)
        )
        return self._bindings.faults(self.name, rows)

    @cached_property
    def _bindings(self) -> Cores:
        taken = NOTHING.union(*(one.accelerators(self.inventory) for one in self.beside))
        return Cores(self.binding, self.memory_binding, self.inventory, self.inventory.core.by_node(taken))

    def used_nodes(self) -> RankSet:
        """Return the nodes that its processes run on or use accelerators of."""
        return RankSet(chain.from_iterable(range(run.node, run.node + run.nodes) for run in self.rows.runs()))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, key: int) -> Placement: ...
    @overload
    def __getitem__(self, key: slice) -> Placements: ...
    def __getitem__(self, key: int | slice) -> Placement | Placements:
        return self.rows[key]

    def __iter__(self) -> Iterator[Placement]:
        return iter(self.rows)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Placements):
            return self.rows == other
        if not isinstance(other, Component):
            return NotImplemented
        mine, others = ((one.node_groups, one.rule, one.settings, one.beside) for one in (self, other))
        return mine == others and self.rows == other.rows

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Component {self.name}: {counted(len(self.rows), 'process', 'processes')}, rule {self.rule!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.name, self.inventory, self.node_groups, self.rule, self.settings, self.beside, self.plan_rules
        return _restored, state


def _restored(*state: Any) -> Component:
    *placed, rules = state
    return Component.place(*placed).under(rules)


def local_accelerators(pattern: Pattern) -> RankSet:
    """Return the accelerators of a node that processes use, by local index."""
    return RankSet(chain.from_iterable(pattern.devices) if pattern.resource_type == ACCELERATOR else ())


def merged(rank_map: RankMap) -> str:
    """Return the text of a map with as few segments as possible: neighbours that share in the same way become one."""
    from fractions import Fraction  # few plans are written as such a text

    shared = [
        (resources, [processes for _, processes in parts])
        for resources, parts in groupby(rank_map.segments, itemgetter(0))
    ]
    texts = []
    for _, alike in groupby(shared, lambda one: Fraction(len(one[0]), sum(map(len, one[1])))):
        resources, processes = zip(*alike, strict=True)
        texts.append(f"{RankSet().union(*resources)}:{RankSet().union(*chain.from_iterable(processes))}")
    return ",".join(texts)


def reserves(component: Component) -> bool:
    """Whether the processes of a component reserve CPUs or host memory."""
    return bool(component.cpus_per_process or component.host_memory_per_process)


def used_nodes(components: Iterable[Component]) -> RankSet:
    """Return the nodes that processes of these components run on or use accelerators of."""
    return RankSet().union(*(component.used_nodes() for component in components))


def check_size(name: str, processes: int) -> None:
    """Raise `PlacementError` (``too-many-processes``) if the components of a plan up to this one have too many."""
    if processes > MAX_PROCESSES:
        raise PlacementError([_too_many_processes(name, processes)])


def _too_many_processes(name: str, processes: int) -> Diagnostic:
    message = f"the components up to `{name}` have {processes:,} processes; a plan has at most {MAX_PROCESSES:,}"
    return Diagnostic("too-many-processes", message, "place fewer processes")


def _unordered(vendor: str, reason: str) -> Diagnostic:
    """Return the fault of ``visibility: own-first`` on devices whose mask has no order."""
    message = f"visibility own-first needs an ordered mask, which {vendor} devices do not have: {reason}"
    return Diagnostic("visibility-order", message, "use own, or node with LOCAL_RANK as the index of the device")

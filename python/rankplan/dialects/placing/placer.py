"""Where the components of a config go: what a dialect wants in numbers, taken by the core, and the faults of places."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rankplan._core import CLUSTER, MAX_PROCESSES, MAX_RANK, NODE, Free, RankSet, Requests, Short, Taken
from rankplan.dialects.keys.roles import OF_ROLE
from rankplan.dialects.placing.engines import Engine, engine_faults
from rankplan.errors import Diagnostic, Faults, KeyPath, PlacementError, Where
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import NO_SIZES, Parallel
from rankplan.plans.component import Component, PlacementMode
from rankplan.plans.plan import SHARE_UNIT, Plan
from rankplan.plans.requests import Actors, NodeOrder
from rankplan.plans.rules import NO_RULES, Rules
from rankplan.read.components import lacks_accelerators, sized, with_memory
from rankplan.read.sources import Planned, Sources
from rankplan.read.text.sizes import Sizes

if TYPE_CHECKING:
    from rankplan.dialects.launching.masks import Mask
    from rankplan.dialects.memory.read import MemoryReader
    from rankplan.dialects.placing.devices import Device
    from rankplan.dialects.placing.grouping import ComponentGroups, Grouping

_LEFT = "what is left of the cluster"


@frozen
class Packing:
    """How a trainer takes accelerators.

    ``pinned``: the plan will be bound to its nodes, so that no bundle may be on two. ``whole``: pools take whole steps.
    ``largest_first``: pools with larger steps take before those with smaller ones, instead of in the trainer's order.
    ``order`` is what the trainer sorts nodes by; ``sorted_first``: it takes the accelerators in that order, those of a
    node in the order of their ids. Otherwise they are taken in rank order. ``chosen`` are the only nodes to take them
    from; ``None``: from all.
    """

    pinned: bool = False
    whole: bool = False
    largest_first: bool = False
    order: NodeOrder | None = None
    sorted_first: bool = False
    chosen: RankSet | None = None


PREDICTED = Packing()
"""How most trainers take accelerators, if nothing binds their processes."""


class Placer:
    """Takes accelerators of an inventory for the components of a config, and places the components on them.

    It makes no object for an accelerator or a node: `Taken` are ranges. ``faults`` collects what cannot be placed, each
    fault at the place in the config that asks for it.

    ``groups`` are the node groups that a job file gives components: such a component takes accelerators of its group
    only. Whatever takes accelerators has ``users``, the names of all components that will use them; by default, it is
    the one with its ``name``.
    """

    def __init__(
        self,
        faults: Faults,
        inventory: Inventory,
        packing: Packing = PREDICTED,
        *,
        isolate: bool = True,
        groups: ComponentGroups | None = None,
    ) -> None:
        self.faults = faults
        self.sizes: dict[str, Sizes] = {}
        """The parallel sizes of the components with their places, by name."""
        self.memory: dict[str, KeyPath] = {}
        """Where the config states the memory of a component as rankplan does; see `Sources`."""
        self.entries: dict[str, KeyPath] = {}
        """Where the config states where a component runs; see `Sources`."""
        self.inventory = inventory
        self.packing = packing
        self.isolates = isolate
        self.visibility = "own" if isolate else "node"
        self.components: list[Component] = []
        self.requests = Requests()
        self.actors: list[Actors] = []
        self.rules: Rules = NO_RULES
        """What the config states about the components."""
        self.has_other_turn = False
        """Whether pools would take in another turn if the largest were first."""
        self.mode: PlacementMode | None = None
        """How the roles share accelerators, for a system with such modes."""
        self.facts: dict[str, Mapping[str, Any]] = {}
        """What the dialect knows of a component besides the keys of its memory, by name."""
        self.groups: ComponentGroups = groups or {}
        self._grouped = RankSet()
        """The accelerators that are taken, if components have groups."""
        self._contradicting: set[str] = set()
        """The components whose group contradicts that of another one, which is a fault already."""

    def use(self, inventory: Inventory) -> None:
        """Place on these nodes instead, before anything is taken: those of the inventory as the config states them."""
        self.inventory = inventory

    def require(self, *, places: Mapping[KeyPath, Where] | None = None, **rules: Any) -> None:
        """State rules about the components, by their names in a topology: ``keep``, ``segment``, ``prefer``, ...

        ``places`` has where each is stated: by ``("keep", "learner", "tp")``, for example. Earlier rules stay: those of
        other components, and of a component those about other groups and levels. ``pools`` is a tuple of `Pool`, which
        have places of their own; state them before a component is placed.
        """
        from rankplan.dialects.placing import required  # few jobs state rules

        self.rules = required.joined(self.rules, rules, places or {})
        if self.rules.pools:
            self.inventory = required.as_planned(self.inventory)

    @property
    def _grouping(self) -> Grouping:
        from rankplan.dialects.placing.grouping import Grouping  # few jobs state groups of components

        return Grouping(self.groups, self.inventory)

    @property
    def pinned(self) -> bool:
        """Whether the plan will be bound to its nodes."""
        return self.packing.pinned

    @cached_property
    def pool(self) -> Free:
        """The accelerators that are not taken, whatever node group they are in."""
        return self._free(self._grouped)

    def _free(self, excluded: RankSet) -> Free:
        """Return the accelerators besides these that may be used."""
        first = self.packing.sorted_first
        order = self.packing.order if first else None
        core, excluded = self.inventory.core, self.inventory.excluded_accelerators | excluded
        if self.packing.chosen is not None:
            from rankplan.nodes.group_ranks import accelerators_of  # few trainers sort nodes that they were given

            excluded = core.accelerators() - accelerators_of(self.inventory, self.packing.chosen) | excluded
        return Free(core, excluded, order, by_id=first)

    def pool_for(self, *users: str) -> Free:
        """Return the accelerators that are not taken, and that these components may use."""
        if not self.groups:
            return self.pool
        outside = self.inventory.core.accelerators() - self._grouping.accelerators(users)
        return self._free(outside | self._grouped)

    @property
    def free(self) -> int:
        """The number of accelerators that are not taken, whatever node group they are in."""
        return self.pool.left

    def free_for(self, *users: str) -> int:
        """Return the number of accelerators that are not taken, and that these components may use."""
        return self.pool_for(*users).left

    def has_several_groups(self, sides: Sequence[Collection[str]]) -> bool:
        """Return whether the components that share accelerators are in another node group than others, or in none."""
        stated = [self._grouping.of(users) for users in sides] if self.groups else []
        return len({None if group is None else group.label for group in stated}) > 1

    def reject_group(self, users: Collection[str], fault: Diagnostic) -> None:
        """Record a fault of the node group of components, where it is stated; without one, of any group."""
        group = self._grouping.of(users) or next(iter(self.groups.values()))
        self.reject(group.where, fault)

    def _pool_of(self, users: Collection[str]) -> Free:
        """Return the pool of the users of what is taken next; those in different node groups are a fault."""
        for name, fault in self._grouping.contradicting(users) if self.groups else ():
            self._contradicting.add(name)
            self.reject(self.groups[name].where, fault)
        return self.pool_for(*users)

    def _keep(self, found: Taken | Short) -> Taken:
        """Return what was taken, nothing if it was too little, and keep it from components that take later."""
        if not isinstance(found, Taken):
            return Taken()
        if self.groups:
            self._grouped |= found.accelerators
            self.__dict__.pop("pool", None)
        return found

    def _left(self, users: Collection[str], of: str) -> str:
        """Return what components may use, as messages name it: ``of``, unless node groups decide that."""
        return f"what is left of {self._grouping.words(users)}" if self.groups else of

    def in_turn(self, steps: Mapping[str, Collection[int]]) -> list[str]:
        """Return the names of pools in the order in which they take accelerators.

        ``steps`` has the sizes of the groups of each pool, in the order in which the trainer makes the pools.
        """
        largest_first = sorted(
            steps, key=lambda name: -max(steps[name], default=0)
        )  # pools with equal steps keep their order
        self.has_other_turn = largest_first != list(steps)
        return largest_first if self.packing.largest_first else list(steps)

    def take(
        self,
        count: int,
        name: str,
        at: Where,
        *,
        whole: Collection[int] = (),
        node_by_node: bool = False,
        of: str = _LEFT,
        users: Collection[str] = (),
    ) -> Taken:
        """Take accelerators of one node if one has enough, else node by node; too few are a fault.

        ``whole`` are the sizes of the groups on them, for whole steps. ``node_by_node``: even if one node has enough.
        ``of`` says in a message what there is too little of.
        """
        users = users or (name,)
        pool = self._pool_of(users)
        if count > pool.left:
            self.too_many(at, name, count, pool.left, self._left(users, of))
            return Taken()
        if node_by_node:
            return self._keep(pool.next(count))
        if self.packing.whole:
            sizes = [size for size in whole if size <= count]  # larger ones are no steps
            return self._keep(pool.in_steps(count, sizes, ascending=self.packing.order is not None))
        return self._keep(pool.packed(count))

    def nodes(
        self,
        nodes: int,
        each: int,
        name: str,
        at: Where,
        *,
        cure: Callable[[], str | None] = lambda: None,
        users: Collection[str] = (),
    ) -> Taken:
        """Take ``each`` accelerators of a node, ``nodes`` times; too few are a fault, for which there may be a cure."""
        users = users or (name,)
        pool = self._pool_of(users)
        if nodes * each <= pool.left:
            taken = pool.in_bundles(nodes * each, [each])
            if isinstance(taken, Taken):
                return self._keep(taken)
        self.reject(at, self._few_nodes(nodes, each, name, users, cure))
        return Taken()

    def _few_nodes(
        self, nodes: int, each: int, name: str, users: Collection[str], cure: Callable[[], str | None]
    ) -> Diagnostic:
        """Return the fault of a component for which there are too few nodes with ``each`` free accelerators."""
        from rankplan.dialects.placing import faults  # most configs have none

        present, sizes = "the cluster", self.inventory.core.nodes_by_size()
        if self.groups:
            own = self._grouping.nodes(users)
            present, sizes = self._grouping.words(users), {size: ranks & own for size, ranks in sizes.items()}
        counts = {size: len(ranks) for size, ranks in sizes.items() if ranks}
        excluded = len(self.inventory.excluded_accelerators)
        help = faults.larger_nodes(in_group=bool(self.groups), cure=cure)
        return faults.few_nodes(name, nodes, each, present, counts, excluded, help)

    def bundles(
        self,
        count: int,
        sizes: Sequence[int],
        name: str,
        at: Where,
        lacking: Callable[[Short], Diagnostic],
        *,
        of: str = _LEFT,
        users: Collection[str] = (),
    ) -> Taken:
        """Take bundles of these sizes in turn, each of the first node with room for it.

        Too few accelerators are a fault, and one that ``lacking`` returns if no node has room for a bundle.
        """
        users = users or (name,)
        pool = self._pool_of(users)
        if count > pool.left:
            self.too_many(at, name, count, pool.left, self._left(users, of))
            return Taken()
        taken = pool.in_bundles(count, sizes)
        if not isinstance(taken, Taken):
            self.reject(at, lacking(taken))
        return self._keep(taken)

    def spread(
        self,
        sizes: Sequence[int],
        name: str,
        at: Where,
        lacking: Callable[[Short], Diagnostic],
        *,
        strict: bool,
        users: Collection[str] = (),
        of: str = _LEFT,
    ) -> Taken:
        """Take bundles of these sizes, each of a node without another one of them; see `bundles` for the faults.

        ``strict``: too few nodes are a fault, too. Otherwise the first node with room takes what is left.
        """
        users = users or (name,)
        pool, count = self._pool_of(users), sum(sizes)
        if count > pool.left:
            self.too_many(at, name, count, pool.left, self._left(users, of))
            return Taken()
        taken = pool.spread(count, sizes, strict=strict)
        if not isinstance(taken, Taken):
            self.reject(at, lacking(taken))
        return self._keep(taken)

    def lists(self, count: int, lists: Sequence[Sequence[tuple[int, int]]], *, users: Collection[str] = ()) -> Taken:
        """Take free accelerators in the first of these lists of steps that fits; see `Free.in_lists`."""
        return self._keep(self._pool_of(users).in_lists(count, lists))

    def visible(self, mask: Mask, node: int, command: str, at: Where) -> list[Device] | None:
        """Return the devices of a node that a command sees, whoever has taken them.

        ``None``, and a fault, if the node or a device is missing. ``command`` is what messages call it.
        """
        from rankplan.dialects.placing import devices, faults  # trainers on Ray name no devices

        core = self.inventory.core
        if node >= core.num_nodes:
            self.reject(at, faults.no_such_node(command, node, core.num_nodes))
            return None
        present = core.num_accelerators(node)
        numbers = range(present) if mask.devices is None else mask.devices
        missing = next((number for number in numbers if number >= present), None)
        if missing is not None:
            self.reject(mask.where or at, faults.no_device(missing, node, present, mask.stated))
            return None
        return [devices.Device(node, number) for number in numbers]

    def devices(self, devices: Iterable[Device]) -> Taken:
        """Return devices that a command sees as accelerators, in their order."""
        core = self.inventory.core
        numbers = [core.resource(device.node, device.number) for device in devices]
        return Taken([(number, number) for number in numbers])

    def too_many(self, at: Where, name: str, count: int, present: int, of: str) -> None:
        """Record the fault of a component that needs more accelerators than there are."""
        from rankplan.dialects.placing import faults  # most configs have none

        self.reject(at, faults.few_accelerators(name, count, present, of, in_group=bool(self.groups)))

    def ask(
        self,
        component: str,
        taken: Taken,
        *,
        bundles: Sequence[int] = (1,),
        per_group: int | None = None,
        name: str | None = None,
        pools: tuple[str, int] | None = None,
        strategy: str | None = "PACK",
        order: NodeOrder | None = None,
        cpus: float | None = None,
        memory: int | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        """Record the requests for placement groups on these accelerators; see `Requests.of`.

        ``cpus``, ``memory`` (MiB) and custom ``resources`` are what the trainer asks for with each accelerator of a
        bundle; ``None`` is unknown.
        """
        amounts: list[tuple[float | None, int | None, list[tuple[str, float]]]] = []
        if (cpus, memory, resources) != (None, None, None):
            for size in bundles:
                custom = [(name, amount * size) for name, amount in (resources or {}).items()]
                each = (None if cpus is None else cpus * size, None if memory is None else memory * size, custom)
                amounts.append(each)
        if taken:
            self.requests += Requests.of(
                self.inventory.core,
                component,
                taken,
                bundles,
                per_group,
                name=name,
                pools=pools,
                strategy=strategy,
                order=order,
                amounts=amounts,
            )

    def hold(self, actors: Actors) -> None:
        """Record what actors of the trainer outside its placement groups hold, if there are any."""
        if actors.count:
            self.actors.append(actors)

    def lacks_accelerators(self, at: Where) -> bool:
        """Record a fault at a place if no node has an accelerator, and return whether that is so."""
        return lacks_accelerators(self.faults, self.inventory, at)

    def reject(self, at: Where, fault: Diagnostic) -> None:
        """Record a fault at a place."""
        self.faults.add(at, fault)

    def component(
        self,
        name: str,
        taken: Taken,
        at: Where,
        each: int = 1,
        *,
        sizes: Parallel | Sizes = NO_SIZES,
        facts: Mapping[str, Any] | None = None,
        keys_of: str | None = None,
        **settings: Any,
    ) -> None:
        """Place a component whose processes take ``each`` of these accelerators in turn, if there are any.

        Its faults are recorded at ``at``, as are those of sizes without places of their own. With ``keys_of``, the keys
        of memory of another component are its own.
        """
        if not taken:
            return
        if facts is not None or keys_of is not None:
            self.facts[name] = {**(facts or {}), **({} if keys_of is None else {OF_ROLE: keys_of})}
        label, own = CLUSTER, taken
        if self.groups and name not in self._contradicting:
            label = self._grouping.label(name, taken, self.faults)
            own = self._grouping.within(label, taken)
        placed = self._placed(name, label, own, each, at, **settings)
        if placed is None:
            return
        if isinstance(sizes, Parallel):
            sizes = Sizes(sizes, at)
        self.sizes[name] = sizes
        self.components.append(sized(placed, sizes, self.faults))

    def without_accelerators(self, name: str, processes: int, at: Where, nodes: RankSet | None = None) -> None:
        """Place a component without accelerators: its processes take nodes in turn, by default those in use."""
        if processes > MAX_PROCESSES:
            from rankplan.dialects.placing import faults  # most configs have none

            self.reject(at, faults.too_many_processes(processes))
            return
        if nodes is None:
            every = RankSet(range(self.inventory.num_nodes))
            nodes = every - RankSet(node for node, local in self.inventory.marks.items() if local is None)
        if name in self.groups:
            self._grouping.reject_unbound(name, self.faults)
        taken = Taken.in_turn(nodes, processes) if nodes else Taken()
        placed = self._placed(name, NODE, taken, 1, at)
        if placed is not None:
            self.components.append(placed)

    def _placed(self, name: str, group: str, taken: Taken, each: int, at: Where, **settings: Any) -> Component | None:
        """Return the component on these resources of a node group; ``None`` if it has faults, which are recorded."""
        try:
            rule = taken.chunks(min(each, MAX_RANK))
            return Component.place(name, self.inventory, (group,), rule, visibility=self.visibility, **settings)
        except PlacementError as error:
            for fault in error.diagnostics:
                self.reject(at, fault)
            return None

    def engines(
        self,
        name: str,
        pool: Taken,
        per_node: int,
        engine: Engine,
        share: float | None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Place engines one after the other on a pool with ``per_node`` accelerators per node, unless it is empty."""
        if not pool:
            return  # the pool is a fault already
        each = min(per_node, engine.size)
        found = engine_faults(name, engine, each, pool, self.inventory.core)
        for fault in found:
            self.reject(engine.path, fault)
        if not found:
            engines = engine.size // each
            self.component(
                name, pool, engine.where, each, sizes=engine.parallel, share=share, engines=engines, facts=facts
            )

    def finish(self) -> None:
        """Raise `PlacementError` with every fault so far if there is any."""
        self.faults.finish()

    def planned(self, dialect: str | None, memory: MemoryReader | None) -> Planned:
        """Return the plan of the components with the memory that their config states. Raises `PlacementError`.

        ``memory`` reads the keys of memory, ``None`` if they say nothing.
        """
        sources = Sources() if memory is None else memory.sources
        sources.sizes |= self.sizes
        sources.memory |= self.memory
        sources.entries |= self.entries
        components = self.components
        if memory is not None:
            components = [with_memory(one, memory.memory, self.facts.get(one.name, {})) for one in components]
        self.faults.finish()
        plan = Plan(self.inventory, components, self.mode, dialect, self.requests, self.rules, actors=self.actors)
        return Planned(plan, sources)

    @staticmethod
    def share(users: int) -> float:
        """Return the share of one of so many equal users of an accelerator."""
        return SHARE_UNIT // users / SHARE_UNIT

"""The plan: the components of a job over one inventory, and the processes on each of its nodes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rankplan._core import ACCELERATOR, PlanFile, RankSet, Requests
from rankplan.errors import Diagnostic, KeyPath, PlacementError, refusal
from rankplan.files import folder_of
from rankplan.frozen import frozen
from rankplan.hardware.policies import EXCLUSIVE, NO_BINDING
from rankplan.nodes.clusters import SupportsInventory, inventory_of
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component, Exclusive, PlacementMode, Visibility, check_size
from rankplan.plans.plan_job import PlanJob
from rankplan.plans.requests import Actors, Request
from rankplan.plans.rules import NO_RULES, Rules, with_named_levels
from rankplan.words import counted, did_you_mean, first_node, listed, wrong_type

if TYPE_CHECKING:
    from rankplan.memory.need import Need
    from rankplan.memory.peaks import HasPeaks
    from rankplan.plans.node_kinds import NodeKind
    from rankplan.plans.weights import WeightMap

_Crowd = TypeVar("_Crowd", bound=tuple[Any, ...])

SHARE_UNIT = 10_000
"""Shares are added up in ten-thousandths, Ray's own unit."""


@frozen
class Sharing:
    """Which components use the same accelerators.

    ``kind`` is ``collocated`` if all components use the same accelerators, ``disaggregated`` if no two share any, else
    ``hybrid``. ``pairs`` maps two components to the accelerators that they share: local indices by node rank.
    Components without accelerators do not count.
    """

    kind: str
    pairs: dict[tuple[str, str], dict[int, RankSet]]

    def __repr__(self) -> str:
        return f"<Sharing: {self.kind}, pairs: {len(self.pairs)}>"


@frozen
class Oversubscription:
    """Accelerators that are each used by more than one process.

    ``processes`` is the number of processes of each component on each of them; ``accelerators`` are local indices by
    node rank.
    """

    processes: dict[str, int]
    accelerators: dict[int, RankSet]


class Plan(Mapping[str, Component]):
    """Where every process of every component runs: a mapping from names to `Component`, over one inventory.

    ``rules`` are what is stated about the components and their nodes. Plans are equal if their inventories and rules
    are, the components in their order, and what they know of their trainer: ``dialect`` is the dialect of the config,
    ``requests`` are the placement groups that the trainer will ask Ray for, ``actors`` what its other actors hold.
    ``job`` is what a job file states besides; it does not count for equality.

    Raises ``ValueError`` for components over different inventories, or two with one name, and `PlacementError`
    (``too-many-processes``) for more than 16,777,216 processes.
    """

    def __init__(
        self,
        inventory: Inventory,
        components: Iterable[Component],
        mode: PlacementMode | None = None,
        dialect: str | None = None,
        requests: Iterable[Request] = (),
        rules: Rules = NO_RULES,
        job: PlanJob | None = None,
        actors: Iterable[Actors] = (),
    ) -> None:
        self._inventory, self._mode, self._dialect = inventory, mode, dialect
        self._requests, self._rules, self._job = Requests(requests), rules, job
        self._actors = tuple(actors)
        self._components: dict[str, Component] = {}
        processes = 0
        for component in components:
            check_size(component.name, processes := processes + len(component))
            if component.inventory is not inventory and component.inventory != inventory:
                raise ValueError(f"component {component.name!r} is placed on another inventory")
            if component.name in self._components:
                raise ValueError(f"two components are named {component.name!r}")
            self._components[component.name] = component.under(rules)
        self._share_cores()

    def _share_cores(self) -> None:
        """Give components without accelerators the cores that others do not use exclusively.

        A part of a plan keeps what it knows of the components that it leaves out.
        """
        exclusive = [one for one in self.values() if one.binding == EXCLUSIVE and one.rows.accelerators()]
        here = {one.name: Exclusive(one.name, one.node_groups, one.rule) for one in exclusive}
        for name, component in self.items():
            if component.binding != NO_BINDING and not component.rows.accelerators():
                others = here | {one.name: one for one in component.beside if one.name not in self}
                self._components[name] = replace(component, beside=tuple(others[one] for one in sorted(others)))

    @property
    def inventory(self) -> Inventory:
        """The nodes of the plan and its node groups."""
        return self._inventory

    @property
    def mode(self) -> PlacementMode | None:
        """RLinf's placement mode, if the plan comes from a config that has one."""
        return self._mode

    @property
    def dialect(self) -> str | None:
        """The dialect of the trainer's config; ``None`` if it is unknown, or needs no requests (RLinf)."""
        return self._dialect

    @property
    def requests(self) -> Requests:
        """The placement groups that the trainer will ask Ray for, in order: a sequence of `Request`.

        Each is made when it is read. The sequence is empty if they are unknown.
        """
        return self._requests

    @property
    def actors(self) -> tuple[Actors, ...]:
        """What actors of the trainer outside these groups hold; those that hold nothing are left out."""
        return self._actors

    def lacking(self) -> list[tuple[Any, ...]]:
        """Return what the nodes cannot reserve of the requests and actors, as the core tells it; see `reserving`."""
        if not self._requests:
            return []
        unused = RankSet(node for node, local in self._inventory.marks.items() if local is None)
        actors = [one.plain() for one in self._actors]
        owners = [self[name] for name in {one.component for one in self._actors} if name is not None and name in self]
        homes = {owner.name: owner.rows.runs(at_home=True) for owner in owners}
        nodes = {name: [(run.node, run.nodes, run.pattern.processes) for run in runs] for name, runs in homes.items()}
        excluded = self._inventory.excluded_accelerators
        return list(self._requests.lacking(self._inventory.core, actors, nodes, excluded, unused))

    @property
    def components(self) -> list[str]:
        """Names of the components."""
        return list(self._components)

    @property
    def rules(self) -> Rules:
        """What is stated about the components and their nodes."""
        return self._rules

    @property
    def job(self) -> PlanJob | None:
        """What a job file states besides the placement; ``None`` for a plan without one."""
        return self._job

    def __getitem__(self, name: str) -> Component:
        if name not in self:
            help = did_you_mean(str(name), self._components, "the components are") or "the plan has no components"
            raise KeyError(f"unknown component {name!r}; {help}")
        return self._components[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._components

    def __iter__(self) -> Iterator[str]:
        return iter(self._components)

    def __len__(self) -> int:
        return len(self._components)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        same = self.mode == other.mode and list(self) == list(other) and self._inventory == other._inventory
        same = same and self._dialect == other._dialect and self._requests == other._requests
        same = same and self._actors == other._actors and self._rules == other._rules
        return same and self._components == other._components

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = listed([f"{name}: {len(rows)}" for name, rows in self._components.items()], 8)
        return f"<Plan of {sizes or 'nothing'} on {counted(self._inventory.num_nodes, 'node')}>"

    def on(self, inventory: Inventory | SupportsInventory) -> Plan:
        """Apply the rule of every component to another inventory, or a cluster, and return the new plan.

        What the plan excludes stays excluded, if the inventory has it.
        Raises `PlacementError` with every fault.
        """
        inventory = inventory_of(inventory)
        if self._inventory.facts is not None:
            facts = with_named_levels(self._inventory.facts, self._rules, inventory)
            inventory = inventory.with_facts(facts, self._inventory.num_nodes, planned=True)
        faults: list[Diagnostic] = []
        components = []
        for component in self.values():
            try:
                components.append(component.on(inventory))
            except PlacementError as error:
                faults += (replace(one, path=component.name) for one in error.diagnostics)
        if faults:
            raise refusal(faults)
        return self.placed(inventory, components)

    def placed(self, inventory: Inventory, components: Iterable[Component], rules: Rules | None = None) -> Plan:
        """Return the plan with other components, which keeps the requests if all places are those of this plan.

        It has the rules of this plan unless others are given. On other nodes, it has no spares: it may be on these.
        """
        rules = self._rules if rules is None else rules
        job = self._job
        if job is not None and job.spares is not None and _names(inventory) != _names(self._inventory):
            job = job.without_spares()
        found = Plan(inventory, components, self.mode, self._dialect, rules=rules, job=job)
        if self._requests and list(found) == list(self):
            alike = all(_places(one) == _places(found[name]) for name, one in self.items())
            found._requests = self._requests if alike else Requests()
            found._actors = self._actors if alike else ()
        return found

    def fitted(self, cluster: Inventory | SupportsInventory) -> Plan:
        """Return the plan in the same places of a cluster that it fits, with that cluster's accelerator ids.

        Each used node must have the same type and number of accelerators, and the ids, hostname and address that the
        plan states. Raises `PlacementError` (``plan-mismatch``) node by node otherwise.
        """
        from rankplan.plans.fitting import fitted

        cluster = inventory_of(cluster)
        components = fitted(list(self.values()), cluster)
        return self.placed(components[0].inventory if components else cluster, components)

    def with_visibility(self, visibility: Visibility) -> Plan:
        """Return the plan with another visibility of every component."""
        return self.placed(self._inventory, [one.with_settings(visibility=visibility) for one in self.values()])

    def with_job(self, job: PlanJob | None) -> Plan:
        """Return the same plan, which states this about its job."""
        known = self._dialect, self._requests, self._rules
        return Plan(self._inventory, self.values(), self.mode, *known, job, self._actors)

    def only(self, *names: str) -> Plan:
        """Return the plan of these components, which keep the cores that the others leave.

        The trainer asks for all components together: without one of them, the plan has no requests. Raises ``KeyError``
        for an unknown one.
        """
        return self.placed(self._inventory, [self[name] for name in names])

    def idle(self) -> dict[int, RankSet]:
        """Return the accelerators that no component uses and that are not excluded: local indices by node rank."""
        used = self._inventory.excluded_accelerators.union(*(one.rows.accelerators() for one in self.values()))
        return self._inventory.core.by_node(self._inventory.core.accelerators() - used)

    def sharing(self) -> Sharing:
        """Return which components use the same accelerators."""
        used = {name: devices for name, one in self.items() if (devices := one.rows.accelerators())}
        # Many pairs of components share the same accelerators, which are looked up once.
        shared: dict[tuple[RankSet, RankSet], dict[int, RankSet]] = {}
        pairs = {}
        for first, second in combinations(used, 2):
            key = used[first], used[second]
            if key not in shared and (both := key[0] & key[1]):
                shared[key] = self._inventory.core.by_node(both)
            if key in shared:
                pairs[first, second] = shared[key]
        if not pairs:
            return Sharing("disaggregated", pairs)
        return Sharing("collocated" if len(set(used.values())) == 1 else "hybrid", pairs)

    def oversubscribed(self) -> list[Oversubscription]:
        """Return the accelerators that more than one process uses, by the components of these, in node order."""
        crowds = self._crowds(lambda users: tuple(users.items()) if users.total() > 1 else ())
        return [Oversubscription(dict(crowd), dict(sorted(where.items()))) for crowd, where in crowds.items()]

    def check_shares(self) -> None:
        """Raise `PlacementError` (``share-overflow``) if the shares of an accelerator add up to more than 1."""
        units = {name: round(one.share * SHARE_UNIT) for name, one in self.items() if one.share is not None}

        def too_many(users: Iterable[str]) -> tuple[str, ...]:
            names = tuple(name for name in users if name in units)
            return names if sum(units[name] for name in names) > SHARE_UNIT else ()

        if crowds := self._crowds(too_many):
            raise PlacementError([self._overflow(names, where) for names, where in crowds.items()])

    def _crowds(self, crowd_of: Callable[[Counter[str]], _Crowd]) -> dict[_Crowd, dict[int, RankSet]]:
        """Return the accelerators of each crowd that ``crowd_of`` finds in the number of processes by component."""
        crowds: dict[_Crowd, dict[int, RankSet]] = {}
        for kind in self.node_kinds:
            users: dict[int, Counter[str]] = {}
            for stay in kind.stays:
                pattern = stay.pattern
                for index in chain.from_iterable(pattern.devices) if pattern.resource_type == ACCELERATOR else ():
                    users.setdefault(index, Counter())[stay.component_name] += 1
            here: dict[_Crowd, list[int]] = {}
            for index in sorted(users):
                if crowd := crowd_of(users[index]):
                    here.setdefault(crowd, []).append(index)
            for crowd, indices in here.items():
                crowds.setdefault(crowd, {}).update(dict.fromkeys(kind.nodes, RankSet(indices)))
        return crowds

    def _overflow(self, names: tuple[str, ...], where: Mapping[int, RankSet]) -> Diagnostic:
        node, indices = next(iter(where.items()))
        shares = " + ".join(f"{name} {self[name].share:g}" for name in names)
        total = sum(round((self[name].share or 0) * SHARE_UNIT) for name in names) / SHARE_UNIT
        place = f"accelerator{'s' if len(indices) > 1 else ''} {indices} of {first_node(node, len(where))}"
        message = f"{place}: the shares add up to {total:g} ({shares}); at most 1"
        help = "lower the shares, or place the components on different accelerators"
        return Diagnostic("share-overflow", message, help)

    def rule_faults(self, *, labelled: bool = True, cluster: Inventory | None = None) -> list[Diagnostic]:
        """Return what breaks the rules, and unknown names in them, each where its rule is stated.

        ``labelled``: whether the labels of the nodes are known; otherwise only rules about nodes are checked.
        ``cluster`` has the nodes of the plan and others: those that other jobs have taken count for ``cap``.
        """
        if not self._rules:
            return []
        from rankplan.plans.pools import pool_faults
        from rankplan.plans.topology import topology_faults

        found: list[tuple[KeyPath, Diagnostic]] = []
        found += topology_faults(self._rules, self, self._inventory, labelled=labelled, cluster=cluster)
        found += pool_faults(self._rules.pools, self)
        faults = [self._rules.where(*path).locate(fault) for path, fault in found]
        return sorted(faults, key=lambda fault: (fault.line or 0, fault.column or 0))

    def rule_warnings(self) -> list[Diagnostic]:
        """Return the rules of ``prefer`` that do not hold, each where it is stated."""
        from rankplan.plans.topology import topology_warnings

        found = topology_warnings(self._rules, self, self._inventory)
        return [self._rules.where(*path).locate(warning) for path, warning in found]

    def check_keep(self) -> None:
        """Raise `PlacementError` with the faults of `rule_faults`: ``group-spans``, ``segment-incomplete`` ..."""
        if faults := self.rule_faults():
            raise PlacementError(faults)

    @cached_property
    def node_kinds(self) -> list[NodeKind]:
        """The nodes by hardware and processes, with equal nodes together."""
        from rankplan.plans.node_kinds import node_kinds

        return node_kinds(self._inventory, self._components)

    def memory(self, costs: HasPeaks | None = None, reserve: float = 0) -> dict[tuple[str, ...], dict[str, Need]]:
        """Return what each phase of the components that state their ``memory`` needs: by components, then by phase.

        The phases of a component are ``train``, ``forward``, ``generate`` or ``resident``; a trainer and an engine of
        one model on the same accelerators have ``switch``. Each `Need` is that of the accelerator that needs the most.
        Peaks that ``costs`` have of the same settings replace the bounds. ``reserve``: bytes of other programs.
        """
        from rankplan.memory.deciding import memory_of

        return memory_of(self, costs, reserve)

    def weight_map(self, sender: str, receiver: str, *, ranks: Iterable[int] | None = None) -> WeightMap:
        """Return the slots of the receiver that get weights from each slot of the sender.

        ``ranks`` are the process ranks of the receiver that need weights, such as those that have joined; default: all.
        Raises ``KeyError`` for an unknown component, `PlacementError` (``no-weight-sender``) if some weights have no
        sender, ``ValueError`` for unknown ranks.
        """
        from rankplan.plans.weights import WeightMap

        return WeightMap(self[sender], self[receiver], ranks)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, which `from_dict` reads."""
        content: dict[str, Any] = self._file().plain()
        return content

    def _file(self) -> PlanFile:
        from rankplan.plans import plan_file

        known = self._dialect, self._requests, self._rules, self._job, self._actors
        return plan_file.content(self._inventory, self, self.mode, *known)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Plan:
        """Return the plan of a mapping that `to_dict` made.

        Raises `PlacementError` (``invalid-plan``) with each wrong key and the reason.
        """
        from rankplan.plans import plan_file

        return cls(*plan_file.read(PlanFile(content)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, atomically. Equal plans of one job, and no others, give equal bytes.

        Raises ``OSError``.
        """
        from rankplan.plans import plan_file

        job = None if self._job is None else self._job.written_in(folder_of(os.fspath(path)))
        plan = self if job is self._job else self.with_job(job)
        plan_file.save(Path(path), plan._file())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a saved plan; it equals the plan that was saved.

        Raises `PlacementError` (``invalid-plan``) with each wrong key and the reason, ``OSError`` if the file cannot be
        read.
        """
        from rankplan.plans import plan_file

        return cls(*plan_file.load(os.fspath(path)))

    def __reduce__(self) -> tuple[Any, ...]:
        known = self.mode, self._dialect, self._requests, self._rules, self._job, self._actors
        return type(self), (self._inventory, list(self.values()), *known)


def check_plan(value: object, name: str = "plan") -> None:
    """Raise ``TypeError`` for an argument that is no plan."""
    if not isinstance(value, Plan):
        raise wrong_type(name, value, "a rankplan.Plan, such as rankplan.plan(config) or Plan.load(path)")


def _names(inventory: Inventory) -> list[str]:
    """Return the names of nodes, whatever their order."""
    return sorted(inventory.node(rank).name for rank in range(inventory.num_nodes))


def _places(component: Component) -> list[tuple[Any, ...]]:
    """Return the nodes and the local devices of all processes, folded."""
    return [(run.node, run.nodes, run.first_rank, run.pattern) for run in component.rows.runs()]

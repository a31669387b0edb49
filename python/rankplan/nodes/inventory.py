"""The nodes of a cluster, with what a config states of them; its node groups as resources."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any

from rankplan._core import CLUSTER, NODE, Pool, RankSet
from rankplan._core import Inventory as Core
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.nodes import entries, inventory_file
from rankplan.nodes.facts import NO_FACTS, NODE_LEVEL, ClusterFacts
from rankplan.nodes.groups import NodeGroup
from rankplan.nodes.node import NodeSpec
from rankplan.nodes.topology import Domains, detect, levels_of
from rankplan.words import counted, path_text, unknown

__all__ = ["Inventory", "NodeSpec"]


class Inventory:
    """The nodes of a cluster and, after `with_facts`, what a config states of them: node groups, exclusion, levels.

    Inventories are values: immutable, equal if they describe the same nodes and groups, and picklable.
    Raises `PlacementError` (``invalid-inventory``) unless the node ranks of ``nodes`` are 0 to n-1, each once.
    """

    def __init__(
        self, nodes: Sequence[NodeSpec], facts: ClusterFacts | None = None, levels: Sequence[str] | None = None
    ) -> None:
        """``facts`` are what a config states of these nodes, ``None`` without any."""
        self._fill(Core(nodes), facts, None if levels is None else tuple(levels))

    def _fill(self, core: Core, facts: ClusterFacts | None, levels: tuple[str, ...] | None) -> None:
        self.core = core
        self._stated_levels = levels
        self._facts = facts
        self._pools: dict[tuple[tuple[str, ...], bool], Pool] = {}
        self._last: Inventory | None = None
        groups = () if facts is None else facts.node_groups
        self.node_groups = [group.equipped(self.stretches()) for group in groups]
        self._groups = {group.label: group for group in reversed(self.node_groups)}

    @classmethod
    def of_core(cls, core: Core, levels: Sequence[str] | None) -> Inventory:
        """Return the inventory of nodes that the core has read, with the levels that are stated."""
        return cls._of(core, levels=None if levels is None else tuple(levels))

    @classmethod
    def _of(cls, core: Core, facts: ClusterFacts | None = None, levels: tuple[str, ...] | None = None) -> Inventory:
        """Return the inventory of nodes that the core knows."""
        found = cls.__new__(cls)
        found._fill(core, facts, levels)
        return found

    def _derived(self, core: Core, facts: ClusterFacts | None) -> Inventory:
        """Return the inventory of some of these nodes, with the levels of all: a node may lack the label of a level."""
        levels = detect(self.core.label_keys()) if self._stated_levels is None else self._stated_levels
        return Inventory._of(core, facts, levels or None)

    @classmethod
    def uniform(
        cls,
        num_nodes: int,
        num_accelerators: int,
        accelerator_type: str | None = None,
        accelerator_model: str | None = None,
    ) -> Inventory:
        """Return an inventory of ``num_nodes`` equal nodes with ``num_accelerators`` each (type ``NV_GPU`` by default).

        Raises `PlacementError` for an invalid number or an unknown type.
        """
        kind = {"accelerator_type": accelerator_type, "accelerator_model": accelerator_model}
        return cls.from_dict({"nodes": [inventory_file.equal_nodes(num_nodes, num_accelerators) | kind]})

    @classmethod
    def parse(cls, text: str) -> Inventory:
        """Return the inventory of a size such as ``2x8``: 2 equal nodes with 8 accelerators each.

        The model of the accelerators may follow: ``4x8:H100``, ``2x4:A100-40GB``, ``4x8:80GiB``. Raises
        `PlacementError` for any other text, and for an unknown model.
        """
        size = inventory_file.size(text)
        return cls.uniform(size.nodes, size.accelerators, accelerator_model=size.model)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Inventory:
        """Return the inventory of a mapping: ``{"nodes": [{"ranks": "0-7", "accelerators": 8, ...}, ...]}``.

        Keys of an entry: ``ranks`` (range text, int or list), ``accelerators`` (number on each node),
        ``accelerator_type`` (``NV_GPU`` without), ``accelerator_model``, ``accelerator_ids`` (the node's own ids, by
        local index), ``ip``, ``hostname``, ``labels``, ``hardware`` (pieces by type: ``{Franka: 2}``),
        ``healthy: false`` for a node that must not be used, ``taken: JOB`` for one that another job has,
        ``unhealthy`` for accelerators that must not be used (local indices), and what jobs can reserve as Ray, Slurm or
        Kubernetes counts it: ``cpus``, ``reservable_memory`` (MiB), ``resources`` (custom ones: ``{license: 2}``).
        ``accelerators`` may be a list: ``[{id: GPU-5c89, healthy: false}, ...]``. ``levels`` next to ``nodes`` are the
        keys of labels that tell where a node is in the network, outermost first. Raises `PlacementError` with every
        fault.
        """
        core, levels = inventory_file.read(content)
        return cls._of(core, levels=levels)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Inventory:
        """Read an inventory, a table of nodes (``.csv``, ``.tsv``), or the file of a job with its pods or nodes.

        Raises `PlacementError`, ``OSError``.
        """
        from rankplan.read.inventories.files import read_file

        return cls.from_dict(read_file(path))

    def to_dict(self) -> dict[str, Any]:
        """Return the mapping that `from_dict` reads, without node groups."""
        levels: list[Any] | None = self.written_levels()
        if levels is not None:
            stated = self.level_labels
            levels = [
                {"name": level, "label": stated[level]} if level in stated else level
                for level in entries.labelled(levels, self.core)
            ]
        return {**({} if levels is None else {"levels": levels}), "nodes": self.core.described()}

    def written_levels(self) -> list[str] | None:
        """Return the levels that the file of a plan states; ``None`` if none are known, and none would be detected.

        The file of an inventory states those of them that a node has a label of.
        """
        return list(self.levels) if self.levels or detect(self.core.label_keys()) else None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an inventory file atomically. Raises ``OSError`` if it cannot be written."""
        from rankplan.read.inventories.files import write_file

        write_file(path, self.to_dict())

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.core.num_nodes

    def node(self, rank: int) -> NodeSpec:
        """Return the node of this rank. Raises ``IndexError`` for an unknown rank."""
        if rank not in range(self.num_nodes):
            raise self._unknown_node(rank)
        return self.core.node(rank)

    def _unknown_node(self, rank: int) -> IndexError:
        return IndexError(f"unknown node {rank}; the node ranks are {RankSet(range(self.num_nodes))}")

    def stretches(self) -> Sequence[tuple[range, NodeSpec]]:
        """Return each range of equal nodes, ascending, with their record."""
        return self._stretches

    @cached_property
    def _stretches(self) -> Sequence[tuple[range, NodeSpec]]:
        return self.core.stretches()

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The levels of the network: keys of node labels, outermost first.

        The first that is stated counts: those of a config, those of the inventory, those detected from the labels.
        """
        if self._facts is not None and self._facts.levels is not None:
            # The nodes of a plan may lack all labels of a level: each is a domain of its own there. Without any labels
            # in the whole cluster, no domains are known.
            return self._facts.levels if self._stated_levels or self.core.label_keys() else ()
        if self._stated_levels is not None:
            return tuple(map(str, self._stated_levels))
        return detect(self.core.label_keys())

    @property
    def level_labels(self) -> dict[str, str]:
        """The keys of node labels in the cluster, by level, as far as the inventory states them."""
        labels = {str(level): getattr(level, "label", None) for level in self._stated_levels or ()}
        return {level: label for level, label in labels.items() if label is not None}

    def domains_of(self, level: str) -> Domains | None:
        """Return the domains of a level, ``None`` for ``node``. Raises `PlacementError` (``unknown-level``)."""
        if level == NODE_LEVEL:
            return None
        if level not in self.levels:
            raise PlacementError([unknown("level", level, [*self.levels, NODE_LEVEL], "the levels are")])
        return self.domains[self.levels.index(level)]

    @cached_property
    def domains(self) -> tuple[Domains, ...]:
        """The domains of each level, outermost first."""
        return self.domains_at(self.levels)

    def domains_at(self, levels: Sequence[str]) -> tuple[Domains, ...]:
        """Return the domains of each of these levels, outermost first."""
        return levels_of(levels, self.core.domains(levels))

    def with_levels(self, levels: Sequence[str]) -> Inventory:
        """Return the same nodes and groups with these levels, which a config may override."""
        known = {str(level): level for level in self._stated_levels or ()}
        return Inventory._of(self.core, self._facts, tuple(known.get(level, level) for level in levels))

    def with_labels(self, labels: Mapping[str, Mapping[str, str]]) -> tuple[Inventory, RankSet]:
        """Return the inventory with these labels added, by the name of the node, and the nodes that have no new ones.

        A node has the name of its hostname, with or without the domain, or else its address, or ``node-3``. The levels
        are detected again.
        """
        records, unlisted = entries.with_labels(self.core.entries(), labels)
        return Inventory(records, self._facts), unlisted

    def reordered(self, order: Sequence[int]) -> Inventory:
        """Return the nodes of these ranks, numbered from 0 in this order, without node groups.

        Raises ``IndexError`` for an unknown rank, ``ValueError`` without any.
        """
        if not order:
            raise ValueError("an inventory has at least one node")
        if min(order) < 0 or max(order) >= self.num_nodes:
            raise self._unknown_node(next(rank for rank in order if not 0 <= rank < self.num_nodes))
        return self._derived(self.core.reordered(order), None)

    @property
    def facts(self) -> ClusterFacts | None:
        """What a config states of the nodes; ``None`` if none did."""
        return self._facts

    def with_facts(
        self, facts: ClusterFacts = NO_FACTS, num_nodes: int | None = None, *, planned: bool = False
    ) -> Inventory:
        """Return its first ``num_nodes`` nodes (default: all) with what a config states of them.

        ``planned``: the facts are those of a plan, whose names are known to be right. Hardware that it excludes, and
        levels of the network, may be missing here. What this inventory excludes stays excluded.

        Raises `PlacementError`: ``too-few-nodes``, ``unknown-level``, ``invalid-value`` for unknown names.
        """
        found, faults = configured(self, facts, self.num_nodes if num_nodes is None else num_nodes, planned=planned)
        if faults:
            raise PlacementError([replace(fault, path=path_text(path)) for path, fault in faults])
        return found

    def without(self, names: Iterable[str]) -> Inventory:
        """Return the inventory without this hardware, for example after a failure. No rank changes.

        ``names`` may be a single one. A name is that of a node (its hostname, else its address, else ``node-3``), of an
        accelerator (``node-5/2``, or its id), or the label of a domain (``nvlink=b``). Raises `PlacementError` with
        every unknown name.
        """
        marks, faults = self.names.marks(entries.hardware_names(names))
        if faults:
            raise PlacementError([found for _, found in faults])
        return self._marked(marks)

    def excluding(self, names: Sequence[str]) -> Inventory:
        """Return the inventory with these names added to what its facts exclude. Unknown names do no harm."""
        facts = self._facts or NO_FACTS
        more = tuple(name for name in dict.fromkeys(names) if name not in facts.exclude)
        return self.with_exclusions((*facts.exclude, *more)) if more else self

    def with_exclusions(self, names: Sequence[str]) -> Inventory:
        """Return the inventory whose facts exclude exactly these names. They are not checked."""
        facts = replace(self._facts or NO_FACTS, exclude=tuple(names))
        return self._alike(Inventory._of(self.core, facts, self._stated_levels))

    @property
    def taken(self) -> RankSet:
        """The nodes that other jobs have."""
        return RankSet(chain.from_iterable(nodes for nodes, record in self.stretches() if record.taken is not None))

    def taken_by(self, job: str, nodes: Iterable[int]) -> Inventory:
        """Return the inventory in which another job has these nodes."""
        _ = self.domains  # the same for all that are made of it
        return self._marked(dict.fromkeys(nodes), job)

    def _marked(self, marks: entries.Marks, job: str | None = None) -> Inventory:
        if not marks:
            return self
        return self._alike(Inventory._of(self.core.marked(marks, job), self._facts, self._stated_levels))

    def _alike(self, found: Inventory) -> Inventory:
        """Return an inventory of the same labels and names, which knows what this one has computed from them."""
        found.__dict__.update({key: self.__dict__[key] for key in ("domains", "names") if key in self.__dict__})
        return found

    def updated(self, nodes: Sequence[NodeSpec]) -> Inventory:
        """Return the inventory with these records, one per node, and the same node groups and exclusions."""
        return Inventory(nodes, self._facts, self._stated_levels)

    @cached_property
    def names(self) -> entries.Names:
        """The names of the nodes, their accelerators and their domains."""
        return entries.Names(self.stretches())

    @cached_property
    def marks(self) -> entries.Marks:
        """The hardware that must not be used: not healthy, of another job, or excluded by a config."""
        found = self.core.broken()
        if self._facts is not None and (names := self._facts.exclude):
            for node, local in self.names.marks(names)[0].items():
                entries.add_mark(found, node, local)
        return found

    @cached_property
    def excluded(self) -> list[tuple[RankSet, RankSet | None]]:
        """Nodes that must not be used, with the local indices of their accelerators, or ``None`` for whole nodes."""
        alike: dict[RankSet | None, list[int]] = {}
        for node, local in sorted(self.marks.items()):
            alike.setdefault(local, []).append(node)
        return [(RankSet(nodes), local) for local, nodes in alike.items()]

    @property
    def excluded_accelerators(self) -> RankSet:
        """The accelerators that must not be used, counted node by node."""
        pool = self.pool((CLUSTER,))
        return RankSet() if pool.by_node else pool.excluded

    def first(self, num_nodes: int) -> Inventory:
        """Return the first nodes, with the node groups that lie within them. Raises ``ValueError`` without as many."""
        if num_nodes == self.num_nodes:
            return self
        if not 0 < num_nodes < self.num_nodes:
            raise ValueError(f"the inventory has {counted(self.num_nodes, 'node')}, not {num_nodes}")
        facts = self._facts and replace(self._facts, node_groups=self._facts.groups_within(num_nodes))
        return self._derived(self.core.reordered(range(num_nodes)), facts)

    def with_groups_added(self, facts: ClusterFacts, num_nodes: int) -> ClusterFacts:
        """Return facts with the node groups of this inventory that they do not define, if so many nodes suffice."""
        defined = {group.label for group in facts.node_groups}
        known = () if self._facts is None else self._facts.groups_within(num_nodes)
        more = tuple(group for group in known if group.label not in defined)
        return replace(facts, node_groups=(*facts.node_groups, *more)) if more else facts

    def without_groups(self) -> Inventory:
        """Return the same nodes without node groups."""
        return self if self._facts is None else Inventory._of(self.core, levels=self._stated_levels)

    def group(self, label: str) -> NodeGroup | None:
        """Return the configured node group with this label; ``None`` for an unknown or a reserved label."""
        return self._groups.get(label)

    @property
    def group_labels(self) -> list[str]:
        """All labels, the reserved ones first."""
        return [CLUSTER, NODE, *(group.label for group in self.node_groups)]

    def pool(self, labels: tuple[str, ...], *, by_node: bool = False) -> Pool:
        """Return the resources of these node groups, group after group; with ``by_node`` each node is one resource.

        Raises `PlacementError`: ``unknown-node-group``, ``overlapping-groups``.
        """
        key = (labels, by_node)
        if key not in self._pools:
            self._pools[key] = Pool(
                self.core, [self._selection(label, by_node=by_node) for label in labels], self.excluded
            )
        return self._pools[key]

    def _selection(self, label: str, *, by_node: bool) -> tuple[str, RankSet, bool | tuple[str, list[tuple[int, int]]]]:
        if label in (CLUSTER, NODE):
            return label, RankSet(f"0-{self.num_nodes - 1}"), by_node or label == NODE
        group = self.group(label)
        if group is None:
            raise PlacementError([entries.unknown_group(label, self.group_labels)])
        if by_node or group.ignore_hardware or group.hardware is None:
            return label, group.node_ranks, by_node or group.ignore_hardware
        return label, group.node_ranks, (group.hardware.type, group.hardware.counts())

    def environment(self, node_rank: int, node_group_label: str) -> tuple[dict[str, str], str | None]:
        """Return the variables and the interpreter (or ``None``) of a node group for processes on a node.

        Raises `PlacementError` (``unknown-node-group``).
        """
        if node_group_label not in self.group_labels:
            raise PlacementError([entries.unknown_group(node_group_label, self.group_labels)])
        group = self.group(node_group_label)
        variables, interpreter = group.environment(node_rank) if group else ({}, None)
        of_all = {} if self._facts is None else self._facts.environment
        return {**of_all, **variables}, interpreter

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inventory):
            return NotImplemented
        same = self._facts == other._facts and self.levels == other.levels
        return self is other or (same and self.core == other.core)

    def __hash__(self) -> int:
        return hash(self.num_nodes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Inventory, (self.core.entries(), self._facts, self._stated_levels)

    def __repr__(self) -> str:
        nodes = self.core.entries()
        kinds = ", ".join(f"{one.ranks}: {one.num_accelerators} {one.accelerator_type}" for one in nodes[:4])
        more = ", ..." if len(nodes) > 4 else ""
        return f"<Inventory of {counted(self.num_nodes, 'node')}: {kinds}{more}>"


def _too_few_nodes(num_nodes: int, present: int) -> Diagnostic:
    message = f"num_nodes is {num_nodes}, but the cluster has {counted(present, 'node')}"
    help = f"set num_nodes to {'1' if present == 1 else f'{present} or less'}, or use a larger cluster"
    return Diagnostic("too-few-nodes", message, help)


def configured(
    inventory: Inventory, facts: ClusterFacts, num_nodes: int, *, planned: bool = False
) -> tuple[Inventory, list[tuple[KeyPath, Diagnostic]]]:
    """Return an inventory with facts, see `Inventory.with_facts`; itself and the faults if it does not suit them.

    The paths of faults start with ``num_nodes``, ``levels`` or ``exclude``, whichever is wrong first.
    """
    present = inventory.num_nodes
    if num_nodes > present:
        return inventory, [(("num_nodes",), _too_few_nodes(num_nodes, present))]
    core = inventory.core if num_nodes == present else inventory.core.reordered(range(num_nodes))
    levels = () if planned else facts.levels or ()
    unlabelled = core.unlabelled(levels) if levels and core.label_keys() else []
    if unlabelled:
        return inventory, [(("levels", index), fault) for index, fault in unlabelled]
    excluded_before = () if inventory.facts is None else inventory.facts.exclude
    others_excluded = [name for name in excluded_before if name not in facts.exclude]
    new_facts = replace(facts, exclude=(*facts.exclude, *others_excluded))
    # Every strategy of a config asks for the same facts: the last answer is often the next one.
    for known in (inventory, inventory._last):
        if known is not None and known.num_nodes == num_nodes and known.facts == new_facts:
            return known, []
    if facts.exclude:
        # A plan may exclude nodes that it lost; names that were excluded before may be those of nodes that are cut off.
        may_be_missing = facts.exclude if planned else excluded_before
        _, unknown_names = inventory.names.marks(facts.exclude, missing=may_be_missing)
        if unknown_names:
            return inventory, [(("exclude", index), fault) for index, fault in unknown_names]
    inventory._last = inventory._derived(core, new_facts)
    return inventory._last, []

"""The nodes of a cluster, and the node groups of a config as resources on them."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import yaml
from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from rankplan import _core
from rankplan._core import CLUSTER, MAX_LOCAL, MAX_NODES, NODE, RankSet
from rankplan.accelerators import NO_ACCEL, TYPES
from rankplan.arranging import Part, Solution, Task
from rankplan.config.faults import KeyPath, diagnostics, fault
from rankplan.config.hardware import HardwareConfig
from rankplan.config.load import load_config
from rankplan.config.models import ClusterSection, Count, Model, NodeGroup, Ranks
from rankplan.config.reader import Reader, not_a_mapping
from rankplan.config.section import Reading, read_section
from rankplan.errors import Diagnostic, PlacementError
from rankplan.exclusion import Marks, Names
from rankplan.files import write_whole
from rankplan.physical import Rules
from rankplan.words import as_int, counted, did_you_mean, nearest, shown

if TYPE_CHECKING:
    from rankplan._core import Placement


_NULLABLE = {"accelerator_type", "accelerator_model", "accelerator_ids", "ip", "hostname"}


class NodeSpec(Model):
    """One node, or several equal ones: their ranks, accelerators and names.

    The same record serves an entry of an inventory file, a probed node and the core. ``accelerator_type`` and
    ``accelerator_ids`` (the node's own ids, by local index) always have a value; `states` tells whether it was given.
    """

    ranks: Ranks
    accelerators: Count = Field(default=0, ge=0, le=MAX_LOCAL)
    accelerator_type: str = NO_ACCEL
    accelerator_model: str | None = None
    accelerator_ids: tuple[str, ...] = ()
    ip: str | None = None
    hostname: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    healthy: bool = True
    unhealthy: Ranks = RankSet()

    @field_validator("accelerator_ids", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        ids = [str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in value]
        for item in ids:
            if isinstance(item, str) and (not item or "," in item or not item.isprintable()):
                message = f"{item!r} is not an accelerator id"
                raise fault("invalid-value", message, "write ids such as 0 or GPU-5c89, without commas")
        return ids

    @field_validator("accelerator_type")
    @classmethod
    def _known_type(cls, value: str) -> str:
        if value not in TYPES:
            raise fault("invalid-value", f"unknown accelerator_type `{value}`", did_you_mean(value, TYPES))
        return value

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        given = value
        if any(value.get(key, ...) is None for key in _NULLABLE):
            given = {key: item for key, item in value.items() if item is not None or key not in _NULLABLE}
        if isinstance(given.get("accelerator_ids"), (list, tuple)):
            return {"accelerators": len(given["accelerator_ids"]), **given}
        return given

    @model_validator(mode="after")
    def _filled_in(self) -> NodeSpec:
        ids, stated = self.accelerator_ids, self.states("accelerator_ids")
        if stated and len(ids) != self.accelerators:
            message = f"{self.accelerators} accelerators, but {counted(len(ids), 'accelerator id')}"
            raise fault("invalid-inventory", message, "list one id per accelerator, or remove `accelerators`")
        if len(set(ids)) < len(ids):
            twice = next(item for item, count in Counter(ids).items() if count > 1)
            message = f"accelerator id {twice} is listed twice for one node"
            raise fault("invalid-inventory", message, "list each accelerator once")
        if self.accelerators and self.states("accelerator_type") and self.accelerator_type == NO_ACCEL:
            message = f"{counted(self.accelerators, 'accelerator')} of type {NO_ACCEL}"
            raise fault("invalid-inventory", message, "write their type, e.g. NV_GPU, or remove the accelerators")
        # Set past the frozen model, so that the fields do not count as stated.
        if not self.accelerators:
            self.__dict__["accelerator_type"] = NO_ACCEL
        elif self.accelerator_type == NO_ACCEL:
            self.__dict__["accelerator_type"] = "NV_GPU"
        if not stated:
            self.__dict__["accelerator_ids"] = tuple(str(index) for index in range(self.accelerators))
        return self

    def states(self, field: str) -> bool:
        """Return whether the source of the record gave this field."""
        return field in self.model_fields_set

    @property
    def rank(self) -> int:
        """The node rank; of several equal nodes, that of the first."""
        return self.ranks[0]

    @property
    def name(self) -> str:
        """The hostname, else the address, else ``node-3``."""
        return self.hostname or self.ip or f"node-{self.rank}"

    def at(self, ranks: RankSet) -> NodeSpec:
        """Return the same record for other node ranks."""
        return self.model_copy(update={"ranks": ranks})

    def described(self) -> dict[str, Any]:
        """Return what was stated as plain values, as in an inventory file."""
        plain = self.model_dump(mode="json", exclude_unset=True)
        if self.healthy:
            plain.pop("healthy", None)
        return {key: value for key, value in plain.items() if key == "healthy" or value not in (None, {}, 0, [], "")}

    @property
    def kind(self) -> tuple[Any, ...]:
        """Everything but the node ranks, as a hashable value."""
        labels = frozenset(self.labels.items())
        facts = (self.accelerator_type, self.accelerator_model, self.accelerator_ids)
        return *facts, self.ip, self.hostname, labels, self.healthy, self.unhealthy


class _Dumper(yaml.SafeDumper):
    """Quotes text that some YAML reader could take for a number."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _quoted)


_NODES = TypeAdapter[list[NodeSpec]](Annotated[list[NodeSpec], Field(min_length=1)])


class Planned(Protocol):
    """A plan: components by name, and the inventory that they are placed on."""

    @property
    def inventory(self) -> Inventory: ...
    def items(self) -> Iterable[tuple[str, Part]]: ...


class Inventory:
    """The nodes of a cluster and, after `with_config`, its node groups.

    Inventories are values: immutable, equal if they describe the same nodes and groups, and picklable.
    Raises `PlacementError` (``invalid-inventory``) unless the node ranks of ``nodes`` are 0 to n-1, each once.
    """

    def __init__(
        self, nodes: Sequence[NodeSpec], section: ClusterSection | None = None, levels: Sequence[str] | None = None
    ) -> None:
        self._entries = tuple(nodes)
        self._stated_levels = None if levels is None else tuple(levels)
        self.core = _core.Inventory(self._entries)
        self._section = section
        self._pools: dict[tuple[tuple[str, ...], bool], _core.Pool] = {}
        self._configured: Inventory | None = None
        groups = section.node_groups if section else []
        self._groups = {group.label: group for group in reversed(groups)}
        self._hardware: dict[str, dict[int, list[HardwareConfig]]] = {}

    @classmethod
    def uniform(
        cls,
        num_nodes: int,
        accelerators: int,
        accelerator_type: str | None = None,
        accelerator_model: str | None = None,
    ) -> Inventory:
        """Return an inventory of ``num_nodes`` equal nodes with ``accelerators`` each (default type ``NV_GPU``).

        Raises `PlacementError` for an invalid number or an unknown type.
        """
        count, each = as_int(num_nodes), as_int(accelerators)
        if count is None or not 0 < count <= MAX_NODES:
            message = f"{shown(num_nodes)} is not a number of nodes"
            raise PlacementError([Diagnostic("invalid-value", message, f"use a whole number from 1 to {MAX_NODES:,}")])
        if each is None:
            message = f"{shown(accelerators)} is not a number of accelerators"
            raise PlacementError([Diagnostic("invalid-value", message, "use a whole number; 0 means none")])
        kind = {"accelerator_type": accelerator_type, "accelerator_model": accelerator_model}
        entry = {"ranks": RankSet(f"0-{count - 1}"), "accelerators": each, **kind}
        return cls.from_dict({"nodes": [entry]})

    @classmethod
    def of_size(cls, text: str) -> Inventory:
        """Return the inventory of a size such as ``2x8``: 2 equal nodes with 8 accelerators each.

        Raises `PlacementError` for any other text.
        """
        size = re.fullmatch(r"([1-9][0-9]{0,8})x([0-9]{1,6})", text.strip(), re.ASCII)
        if size is None:
            message, help = (
                f"{shown(text)} is not nodes x accelerators",
                "write 2x8 for 2 nodes with 8 accelerators each",
            )
            raise PlacementError([Diagnostic("invalid-value", message, help)])
        return cls.uniform(int(size[1]), int(size[2]))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Inventory:
        """Return the inventory of a mapping: ``{"nodes": [{"ranks": "0-7", "accelerators": 8, ...}, ...]}``.

        Keys of an entry: ``ranks`` (range text, int or list), ``accelerators`` (number on each node),
        ``accelerator_type`` (``NV_GPU`` without), ``accelerator_model``, ``accelerator_ids`` (the node's own ids, by
        local index), ``ip``, ``hostname``, ``labels``. Raises `PlacementError` with every fault.
        """
        if not isinstance(content, Mapping):
            raise PlacementError([not_a_mapping("the inventory", content, "write `nodes:` with a list of nodes")])
        reader = Reader(content)
        if "nodes" not in content:
            reader.add((), Diagnostic("missing-key", "the inventory has no `nodes`", _no_nodes(content)))
            raise reader.refusal()
        path: KeyPath = ("nodes",)
        try:
            return cls(_NODES.validate_python(content["nodes"]), levels=content.get("levels"))
        except ValidationError as error:
            for place, diagnostic in diagnostics(error, {"": NodeSpec}, path):
                reader.add(place, diagnostic)
        except PlacementError as error:
            reader.add_all(path, error)
        raise reader.refusal()

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> Inventory:
        """Read an inventory file. Raises `PlacementError` with its faults, ``OSError`` if the file cannot be read."""
        return cls.from_dict(load_config(path))

    def to_dict(self) -> dict[str, Any]:
        """Return the mapping that `from_dict` reads, without node groups."""
        levels = {"levels": list(self.levels)} if self.levels else {}
        return {**levels, "nodes": [entry.described() for entry in self._entries]}

    def to_yaml(self, path: str | os.PathLike[str]) -> None:
        """Write an inventory file atomically. Raises ``OSError`` if it cannot be written."""
        write_whole(Path(path), yaml.dump(self.to_dict(), Dumper=_Dumper, sort_keys=False))

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.core.num_nodes

    def node(self, rank: int) -> NodeSpec:
        """Return the node of this rank. Raises ``IndexError`` for an unknown rank."""
        if rank not in range(self.num_nodes):
            raise IndexError(f"unknown node {rank}; the node ranks are {RankSet(range(self.num_nodes))}")
        _, entry = self._ranges[bisect_right(self._ranges, rank, key=lambda found: found[0]) - 1]
        return entry.at(RankSet([rank]))

    @cached_property
    def _ranges(self) -> list[tuple[int, NodeSpec]]:
        """The first rank of each range of equal nodes, ascending, and their record."""
        starts = [(first, entry) for entry in self._entries for first, _ in entry.ranks.ranges]
        return sorted(starts, key=lambda found: found[0])

    def stretches(self) -> Iterator[tuple[range, NodeSpec]]:
        """Yield each range of equal nodes, ascending, with their record."""
        firsts = [first for first, _ in self._ranges]
        for (first, entry), end in zip(self._ranges, [*firsts[1:], self.num_nodes], strict=True):
            yield range(first, end), entry

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The levels of the network: keys of node labels, outermost first."""
        return self._stated_levels or ()

    def with_levels(self, levels: Sequence[str]) -> Inventory:
        """Return the same nodes and groups with these levels, which a cluster section may override."""
        return Inventory(self._entries, self._section, levels)

    def without(self, names: Iterable[str]) -> Inventory:
        """Return the inventory without this hardware, for example after a failure. No rank changes.

        A name is that of a node (its hostname, else its address, else ``node-3``), of an accelerator (``node-5/2``, or
        its id), or the label of a domain (``nvlink=b``). Raises `PlacementError` with every unknown name.
        """
        marks, faults = Names(self).marks(names)
        if faults:
            raise PlacementError([found for _, found in faults])
        return Inventory(_marked(self._entries, marks), self._section, self._stated_levels)

    def arranged(
        self, plan: Planned, segment: int | None = None, keep: Mapping[str, Mapping[str, str]] | None = None
    ) -> Inventory:
        """Return the same nodes, numbered to suit a plan and the network; those that the plan does not need come last.

        Every node rank of the plan gets a node with the hardware that it needs. As few parallel groups as possible
        cross a domain, outermost level first, tensor, context and expert-tensor groups before expert, data and
        pipeline groups; then the unused nodes stay in whole domains.

        ``segment`` is a number of nodes that must be in one innermost domain together; ``keep`` has levels that groups
        must stay within, by component and kind: ``{"actor": {"ep": "nvlink"}}``. The defaults are those of
        ``cluster.topology``. See `arrangement` for what changes.

        Raises `PlacementError`: ``too-few-nodes``, ``segment-incomplete``, ``domain-too-small``, ``group-spans``.
        """
        found = self.arrangement(plan, segment, keep)
        return self.reordered([*found.nodes, *found.spares])

    def arrangement(
        self, plan: Planned, segment: int | None = None, keep: Mapping[str, Mapping[str, str]] | None = None
    ) -> Solution:
        """Return the nodes that `arranged` finds, and how many groups cross domains before and after."""
        planned = plan.inventory
        return Task(self, planned, dict(plan.items()), Rules.of(self, planned, segment, keep)).solve()

    def reordered(self, order: Sequence[int]) -> Inventory:
        """Return the nodes of these ranks, numbered from 0 in this order, without node groups.

        Raises ``IndexError`` for an unknown rank.
        """
        places: dict[int, list[int]] = {}
        found = [entry for nodes, entry in self.stretches() for _ in nodes]
        entries = {id(entry): entry for entry in found}
        for rank, node in enumerate(order):
            places.setdefault(id(found[node]), []).append(rank)
        placed = [(entries[key], RankSet(ranks)) for key, ranks in places.items()]
        # A copy takes long: most nodes keep their ranks after a failure.
        nodes = [entry if entry.ranks == ranks else entry.at(ranks) for entry, ranks in placed]
        return Inventory(nodes, levels=self._stated_levels)

    @cached_property
    def excluded(self) -> list[tuple[RankSet, RankSet | None]]:
        """Nodes that must not be used, with the local indices of their accelerators, or ``None`` for whole nodes."""
        broken = [entry for entry in self._entries if entry.unhealthy or not entry.healthy]
        return [(entry.ranks, entry.unhealthy if entry.healthy else None) for entry in broken]

    @property
    def section(self) -> ClusterSection | None:
        """The cluster section that defines its node groups, without components; ``None`` before `with_config`."""
        return self._section

    def with_config(self, cluster_section: Mapping[str, Any] | ClusterSection | Reading) -> Inventory:
        """Return its first ``num_nodes`` nodes with the node groups of a cluster section.

        Raises `PlacementError` for an invalid section, or one that needs more nodes.
        """
        reading = read_section(cluster_section).fork()
        configured, too_few = self.configured(reading.section)
        if too_few is not None:
            reading.add(("num_nodes",), too_few)
        reading.finish()
        return configured

    def configured(self, section: ClusterSection) -> tuple[Inventory, Diagnostic | None]:
        """Return the inventory with the section's node groups; or itself and the fault if it has too few nodes."""
        present, wanted = self.num_nodes, section.num_nodes
        if wanted > present:
            message = f"num_nodes is {wanted}, but the cluster has {counted(present, 'node')}"
            help = f"set num_nodes to {present} or less, or use a larger cluster"
            return self, Diagnostic("too-few-nodes", message, help)
        section = section.model_copy(update={"component_placement": {}})
        if wanted == present and section == self._section:
            return self, None
        # Every strategy of a config asks for the same section.
        last = self._configured
        if last is None or last.section != section:
            entries: Sequence[NodeSpec] = self._entries
            if wanted < present:
                kept = RankSet(f"0-{wanted - 1}")
                cut = [entry.at(entry.ranks & kept) for entry in self._entries]
                entries = [entry for entry in cut if entry.ranks]
            self._configured = last = Inventory(entries, section, self._stated_levels)
        return last, None

    def without_groups(self) -> Inventory:
        """Return the same nodes without node groups."""
        return self if self._section is None else Inventory(self._entries, levels=self._stated_levels)

    def group(self, label: str) -> NodeGroup | None:
        """Return the configured node group with this label; ``None`` for an unknown or a reserved label."""
        return self._groups.get(label)

    @property
    def group_labels(self) -> list[str]:
        """All labels, the reserved ones first."""
        return [CLUSTER, NODE, *(group.label for group in (self._section.node_groups if self._section else ()))]

    def pool(self, labels: tuple[str, ...], by_node: bool = False) -> _core.Pool:
        """Return the resources of these node groups, group after group; with ``by_node`` each node is one resource.

        Raises `PlacementError`: ``unknown-node-group``, ``overlapping-groups``.
        """
        key = (labels, by_node)
        if key not in self._pools:
            self._pools[key] = _core.Pool(self.core, [self._selection(label, by_node) for label in labels])
        return self._pools[key]

    def _selection(self, label: str, by_node: bool) -> tuple[str, RankSet, bool | tuple[str, list[tuple[int, int]]]]:
        if label in (CLUSTER, NODE):
            return label, RankSet(f"0-{self.num_nodes - 1}"), by_node or label == NODE
        group = self.group(label)
        if group is None:
            raise PlacementError([self._unknown(label)])
        if by_node or group.ignore_hardware or group.hardware is None:
            return label, group.node_ranks, by_node or group.ignore_hardware
        return label, group.node_ranks, (group.hardware.type, group.hardware.counts())

    def _unknown(self, label: str) -> Diagnostic:
        help = did_you_mean(label, self.group_labels, "the groups are")
        if not label:
            return Diagnostic(
                "unknown-node-group", "a node group is empty", f"write a label between the commas; {help}"
            )
        return Diagnostic("unknown-node-group", f"unknown node group `{label}`", help)

    def environment(self, node_rank: int, node_group_label: str) -> tuple[dict[str, str], str | None]:
        """Return the variables and the interpreter (or ``None``) of a node group for processes on a node.

        Raises `PlacementError` (``unknown-node-group``).
        """
        if node_group_label not in self.group_labels:
            raise PlacementError([self._unknown(node_group_label)])
        group = self.group(node_group_label)
        return group.environment(node_rank) if group else ({}, None)

    def hardware(self, placement: Placement) -> list[HardwareConfig]:
        """Return the hardware configs of a process, in the order of its ``local_hardware_ranks``; empty without any."""
        group = self.group(placement.node_group_label)
        if group is None or group.hardware is None or placement.resource_type != group.hardware.type:
            return []
        if group.label not in self._hardware:
            by_node: dict[int, list[HardwareConfig]] = {}
            for piece in group.hardware.pieces():
                by_node.setdefault(piece.node_rank, []).append(piece)
            self._hardware[group.label] = by_node
        here = self._hardware[group.label][placement.cluster_node_rank]
        return [here[index] for index in placement.local_hardware_ranks]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inventory):
            return NotImplemented
        same = self._section == other._section and self.levels == other.levels
        return self is other or (same and self._nodes == other._nodes)

    @cached_property
    def _nodes(self) -> dict[tuple[Any, ...], RankSet]:
        """The node ranks of each kind of node, however the entries were split."""
        nodes: dict[tuple[Any, ...], RankSet] = {}
        for entry in self._entries:
            nodes[entry.kind] = nodes.get(entry.kind, RankSet()) | entry.ranks
        return nodes

    def __hash__(self) -> int:
        return hash(self.num_nodes)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._entries, self._section, self._stated_levels)

    def __repr__(self) -> str:
        kinds = ", ".join(
            f"{entry.ranks}: {entry.accelerators} {entry.accelerator_type}" for entry in self._entries[:4]
        )
        more = ", ..." if len(self._entries) > 4 else ""
        return f"<Inventory of {counted(self.num_nodes, 'node')}: {kinds}{more}>"


def _marked(entries: Iterable[NodeSpec], marks: Marks) -> list[NodeSpec]:
    """Return entries with marked nodes as entries of their own that are not healthy."""
    if not marks:
        return list(entries)
    marked, nodes = [], RankSet(marks)
    for entry in entries:
        known = entry.ranks[0] in marks if len(entry.ranks) == 1 else None
        found = entry.ranks & nodes if known is None else entry.ranks if known else RankSet()
        if rest := entry.ranks - found if found else entry.ranks:
            marked.append(entry.at(rest))
        alike: dict[RankSet | None, list[int]] = {}
        for node in found:
            alike.setdefault(marks[node], []).append(node)
        for local, ranks in alike.items():
            new = {"healthy": False} if local is None else {"unhealthy": entry.unhealthy | local}
            marked.append(entry.model_copy(update={"ranks": RankSet(ranks), **new}))
    return marked


def _no_nodes(content: Mapping[str, Any]) -> str:
    """Return the help for an inventory without ``nodes``."""
    help = "write `nodes:` with a list: - {ranks: 0-7, accelerators: 8}"
    if (near := nearest("nodes", map(str, content))) is not None:
        return f"rename `{near}` to `nodes`"
    if "rankplan" in content or "cluster" in content:
        return f"this is a {'saved plan' if 'rankplan' in content else 'config'}, not an inventory: {help}"
    return help

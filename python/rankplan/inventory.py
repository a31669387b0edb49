"""What each node of a cluster has, and what the node groups of a config make of it."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from rankplan import _core
from rankplan._core import RankSet
from rankplan.accelerators import NO_ACCEL, TYPES
from rankplan.config.faults import diagnostics, fault
from rankplan.config.hardware import HardwareConfig
from rankplan.config.load import load_config, placed
from rankplan.config.models import (
    CLUSTER,
    MOST_NODES,
    NODE,
    ClusterSection,
    Count,
    Model,
    NodeGroup,
    Ranks,
    as_int,
)
from rankplan.config.section import Reading, not_a_mapping, read_section
from rankplan.errors import Diagnostic, PlacementError, refusal
from rankplan.files import write_whole
from rankplan.words import counted, did_you_mean, nearest

if TYPE_CHECKING:
    from rankplan._core import Placement


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What one node has: how many accelerators, and their ``accelerator_ids``, the node's own, by local index."""

    rank: int
    accelerators: int
    accelerator_type: str
    accelerator_model: str | None
    accelerator_ids: tuple[str, ...]
    ip: str | None
    hostname: str | None
    labels: Mapping[str, str] = field(default_factory=dict)


class NodeEntry(Model):
    """Nodes that have the same; an entry of an inventory file."""

    ranks: Ranks
    accelerators: Count = Field(default=0, ge=0, le=65536)
    accelerator_type: str | None = None
    accelerator_model: str | None = None
    accelerator_ids: tuple[str, ...] | None = None
    ip: str | None = None
    hostname: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)

    @field_validator("accelerator_ids", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        ids = [str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in value]
        for item in ids:
            if isinstance(item, str) and (not item or "," in item or not item.isprintable()):
                message = f"{item!r} is not the id of an accelerator"
                raise fault("invalid-value", message, "write ids such as 0 or GPU-5c89; a comma separates them")
        return ids

    @field_validator("accelerator_type")
    @classmethod
    def _known_type(cls, value: str | None) -> str | None:
        if value is not None and value not in TYPES:
            raise fault("invalid-value", f"accelerator_type `{value}` is not known", did_you_mean(value, TYPES))
        return value

    @model_validator(mode="before")
    @classmethod
    def _count_of_ids(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(value.get("accelerator_ids"), (list, tuple)):
            return {"accelerators": len(value["accelerator_ids"]), **value}
        return value

    @model_validator(mode="after")
    def _consistent(self) -> NodeEntry:
        ids = self.accelerator_ids
        if ids is not None and len(ids) != self.accelerators:
            message = f"{self.accelerators} accelerators, but {len(ids)} accelerator_ids"
            raise fault("invalid-inventory", message, "give one id an accelerator, or leave `accelerators` out")
        if ids is not None and (twice := [item for item, count in Counter(ids).items() if count > 1]):
            message = f"accelerator id {twice[0]} is given twice for one node"
            raise fault("invalid-inventory", message, "give each accelerator its own id")
        if self.accelerators and self.accelerator_type == NO_ACCEL:
            message = f"{self.accelerators} accelerators of type {NO_ACCEL}"
            raise fault("invalid-inventory", message, "give their type, e.g. NV_GPU, or no accelerators")
        return self

    @property
    def type(self) -> str:
        """The accelerator type; ``NV_GPU`` where accelerators have none, ``NO_ACCEL`` without accelerators."""
        return (self.accelerator_type or "NV_GPU") if self.accelerators else NO_ACCEL

    @property
    def ids(self) -> tuple[str, ...]:
        """The node's own ids: the local indices, if none were given."""
        return self.accelerator_ids or tuple(str(index) for index in range(self.accelerators))

    def described(self) -> dict[str, Any]:
        """Return the entry as plain values, without what says nothing."""
        return {key: value for key, value in self.model_dump(mode="json").items() if value not in (None, {}, 0)}


class _Dumper(yaml.SafeDumper):
    """Writes text in quotes wherever some reader could take it for a number."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _quoted)


class _File(BaseModel):
    nodes: list[NodeEntry] = Field(min_length=1)


class Inventory:
    """What each node of a cluster has; with `with_config`, also what its node groups are.

    Inventories are values: they never change, compare equal when they say the same, and pickle.
    """

    def __init__(self, entries: Sequence[NodeEntry], section: ClusterSection | None = None) -> None:
        self._entries = tuple(entries)
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
        """Return an inventory of ``num_nodes`` equal nodes with ``accelerators`` each, ``NV_GPU`` without a type.

        Raises `PlacementError` for a number that cannot be, and for a type that is not known.
        """
        count, each = as_int(num_nodes), as_int(accelerators)
        if count is None or not 0 < count <= MOST_NODES:
            message = f"{num_nodes!r} is not a number of nodes"
            raise PlacementError([Diagnostic("invalid-value", message, f"use a whole number of 1 to {MOST_NODES:,}")])
        if each is None:
            message = f"{accelerators!r} is not a number of accelerators"
            raise PlacementError([Diagnostic("invalid-value", message, "use a whole number, 0 for none")])
        kind = {"accelerator_type": accelerator_type, "accelerator_model": accelerator_model}
        entry = {"ranks": RankSet(f"0-{count - 1}"), "accelerators": each, **kind}
        return cls.from_dict({"nodes": [entry]})

    @classmethod
    def of_size(cls, text: str) -> Inventory:
        """Return the inventory of a size such as ``2x8``: 2 equal nodes with 8 accelerators each.

        Raises `PlacementError` for a text that is no size.
        """
        size = re.fullmatch(r"([1-9][0-9]{0,8})x([0-9]{1,6})", text.strip(), re.ASCII)
        if size is None:
            message, help = f"{text!r} is not nodes x accelerators", "write 2x8 for 2 nodes with 8 accelerators each"
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
        if "nodes" not in content:
            help = "write `nodes:` with a list: - {ranks: 0-7, accelerators: 8}"
            if (near := nearest("nodes", map(str, content))) is not None:
                help = f"rename `{near}` to `nodes`"
            elif "rankplan" in content or "cluster" in content:
                help = f"this is a {'saved plan' if 'rankplan' in content else 'config'} and no inventory: {help}"
            raise refusal([placed(content, (), Diagnostic("missing-key", "the inventory has no `nodes`", help))])
        try:
            entries = _File.model_validate({"nodes": content["nodes"]}).nodes
            inventory = cls(entries)
            inventory.core  # noqa: B018 (built here so that a contradiction is shown here)
        except ValidationError as error:
            found = diagnostics(error, {"": NodeEntry})
            raise refusal([placed(content, path, diagnostic) for path, diagnostic in found]) from None
        except PlacementError as error:
            raise refusal([placed(content, ("nodes",), diagnostic) for diagnostic in error.diagnostics]) from None
        return inventory

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> Inventory:
        """Read an inventory file. Raises `PlacementError` with places in it, ``OSError`` when it cannot be read."""
        return cls.from_dict(load_config(path))

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` reads. Node groups are not part of it."""
        return {"nodes": [entry.described() for entry in self._entries]}

    def to_yaml(self, path: str | os.PathLike[str]) -> None:
        """Write an inventory file, whole or not at all. Raises ``OSError`` when it cannot be written."""
        write_whole(Path(path), yaml.dump(self.to_dict(), Dumper=_Dumper, sort_keys=False))

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.core.num_nodes

    @cached_property
    def core(self) -> _core.Inventory:
        """The compiled core's view of it."""
        nodes: list[Any] = [
            SimpleNamespace(ranks=entry.ranks, accelerator_type=entry.type, accelerator_ids=entry.ids)
            for entry in self._entries
        ]
        return _core.Inventory(nodes)

    @cached_property
    def first_accelerators(self) -> list[int]:
        """Of each node, the index of its first accelerator among those of the cluster; and at the end, their number."""
        counts = [0] * (self.num_nodes + 1)
        for entry in self._entries:
            for rank in entry.ranks:
                counts[rank + 1] = entry.accelerators
        return list(accumulate(counts))

    def node(self, rank: int) -> NodeSpec:
        """Return what the node of this rank has; ``IndexError`` when there is no such node."""
        if rank not in range(self.num_nodes):
            raise IndexError(f"there is no node {rank}; the node ranks are {RankSet(range(self.num_nodes))}")
        _, entry = self._ranges[bisect_right(self._ranges, rank, key=lambda found: found[0]) - 1]
        kind = (entry.accelerators, entry.type, entry.accelerator_model, entry.ids)
        return NodeSpec(rank, *kind, entry.ip, entry.hostname, dict(entry.labels))

    @cached_property
    def _ranges(self) -> list[tuple[int, NodeEntry]]:
        """First node of each stretch of equal nodes, ascending, and what they have."""
        starts = [(first, entry) for entry in self._entries for first, _ in entry.ranks.ranges]
        return sorted(starts, key=lambda found: found[0])

    def stretches(self) -> Iterator[tuple[range, NodeSpec]]:
        """Yield the nodes, those that were described together in one range, with what the first of them has."""
        firsts = [first for first, _ in self._ranges]
        for first, end in zip(firsts, [*firsts[1:], self.num_nodes], strict=True):
            yield range(first, end), self.node(first)

    @property
    def section(self) -> ClusterSection | None:
        """The cluster section whose node groups it knows, without its components."""
        return self._section

    def with_config(self, cluster_section: Mapping[str, Any] | ClusterSection) -> Inventory:
        """Return the first ``num_nodes`` of its nodes, with the node groups of a cluster section.

        Raises `PlacementError` for a faulty section, and when it wants more nodes than there are.
        """
        if isinstance(cluster_section, ClusterSection):
            reading = Reading(cluster_section)
        else:
            reading = read_section(cluster_section)
        configured, too_few = self.configured(reading.section)
        if too_few is not None:
            reading.add(("num_nodes",), too_few)
        reading.finish()
        return configured

    def configured(self, section: ClusterSection) -> tuple[Inventory, Diagnostic | None]:
        """Return the inventory with the section's node groups; or itself, and the fault, when it has too few nodes."""
        here, wanted = self.num_nodes, section.num_nodes
        if wanted > here:
            message = f"num_nodes is {wanted}, but the cluster has {counted(here, 'node')}"
            help = f"set num_nodes to {here} or less, or use a larger cluster"
            return self, Diagnostic("too-few-nodes", message, help)
        entries: Sequence[NodeEntry] = self._entries
        if wanted < here:
            kept = RankSet(f"0-{wanted - 1}")
            cut = [entry.model_copy(update={"ranks": entry.ranks & kept}) for entry in self._entries]
            entries = [entry for entry in cut if entry.ranks]
        section = section.model_copy(update={"component_placement": {}})
        # Asked again for the same section, which every strategy does, it need not be resolved again.
        last = self._configured
        if last is None or last.section != section:
            self._configured = last = Inventory(entries, section)
        return last, None

    def group(self, label: str) -> NodeGroup | None:
        """Return the configured node group of this label, or ``None``; reserved groups are not configured."""
        return self._groups.get(label)

    @property
    def group_labels(self) -> list[str]:
        """Labels that can be selected, the reserved ones first."""
        return [CLUSTER, NODE, *(group.label for group in (self._section.node_groups if self._section else ()))]

    def pool(self, labels: tuple[str, ...], by_node: bool = False) -> _core.Pool:
        """Return the resources of these node groups, group after group; whole nodes when ``by_node``.

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
            return Diagnostic("unknown-node-group", "a node group has no name", f"write one between the commas; {help}")
        return Diagnostic("unknown-node-group", f"node group `{label}` is not there", help)

    def environment(self, node_rank: int, node_group_label: str) -> tuple[dict[str, str], str | None]:
        """Return the variables and the interpreter (or ``None``) that a node group gives to processes on a node.

        Raises `PlacementError` (``unknown-node-group``).
        """
        if node_group_label not in self.group_labels:
            raise PlacementError([self._unknown(node_group_label)])
        group = self.group(node_group_label)
        return group.environment(node_rank) if group else ({}, None)

    def hardware(self, placement: Placement) -> list[HardwareConfig]:
        """Return the configs of a process's robots, in the order of its ``local_hardware_ranks``; else nothing."""
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
        return self._nodes() == other._nodes() and self._section == other._section

    def _nodes(self) -> dict[tuple[Any, ...], RankSet]:
        """What there is, however it was written: each kind of node, and which nodes are of it."""
        nodes: dict[tuple[Any, ...], RankSet] = {}
        for entry in self._entries:
            labels = frozenset(entry.labels.items())
            kind = (entry.type, entry.accelerator_model, entry.ids, entry.ip, entry.hostname, labels)
            nodes[kind] = nodes.get(kind, RankSet()) | entry.ranks
        return nodes

    def __hash__(self) -> int:
        return hash(self.num_nodes)

    def __reduce__(self) -> tuple[type[Inventory], tuple[tuple[NodeEntry, ...], ClusterSection | None]]:
        return type(self), (self._entries, self._section)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{entry.ranks}: {entry.accelerators} {entry.type}" for entry in self._entries[:4])
        more = ", ..." if len(self._entries) > 4 else ""
        return f"<Inventory of {self.num_nodes} nodes: {kinds}{more}>"

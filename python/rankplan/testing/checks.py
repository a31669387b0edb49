"""The properties of every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from rankplan._core import ACCELERATOR, NODE, WHOLE_NODE, Placement
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.plans.plan import Plan
from rankplan.words import counted


def check_plan(plan: Plan, sharing: Iterable[tuple[str, str]] | None = None) -> None:
    """Check the properties of every plan, from any dialect or file.

    Every rank appears once, in order; nodes, node groups and devices exist and fit together; node and local ranks are
    dense, in the order of the rows; a process sees the ids of its node, or only those of its own devices if isolated.

    ``sharing`` lists the pairs of components that may share an accelerator (or robot): ``("actor", "actor")`` for
    several processes of one component, ``()`` for none. Without it, any sharing is allowed.

    Raises ``AssertionError`` with component, rank and fault, and ``ValueError`` if ``sharing`` does not consist of
    pairs. The cost is linear in rows and nodes.
    """
    allowed = None if sharing is None else set(map(_pair, sharing))
    users: dict[tuple[str, int, int], dict[str, int]] = {}
    known = _Known(plan.inventory)
    for component, rows in plan.items():
        if not len(rows):
            raise AssertionError(f"component {component!r} has no processes")
        before: Counter[int] = Counter()
        on_node = Counter(row.cluster_node_rank for row in rows)
        order = {node: index for index, node in enumerate(on_node)}
        for rank, row in enumerate(rows):
            who, home = f"component {component!r}, rank {rank}", row.cluster_node_rank
            if fault := known.misplaced(row):
                raise AssertionError(f"{who}: {fault}")
            expected = {
                "rank": rank,
                "world_size": len(rows),
                "placement_node_rank": order[home],
                "local_rank": before[home],
                "local_world_size": on_node[home],
                "isolate_accelerator": rows.visibility == "own",
                **_seen(row, known.node(home), rows.visibility),
            }
            for name, value in expected.items():
                if (found := getattr(row, name)) != value:
                    raise AssertionError(f"{who}: {name} is {found!r}; it must be {value!r}")
            before[home] += 1
            if allowed is None:
                continue
            for device in row.devices:
                here = users.setdefault((row.resource_type, *device), {})
                for other, its_rank in here.items():
                    if frozenset((component, other)) not in allowed:
                        what = f"{row.resource_type} {device[1]} of node {device[0]}"
                        raise AssertionError(f"{who}: must not share {what} with rank {its_rank} of {other!r}")
                here.setdefault(component, rank)


def _pair(names: tuple[str, str]) -> frozenset[str]:
    """Return the pair as a set. Raises ``ValueError`` if it is not a pair, e.g. for a pair in place of a list."""
    if isinstance(names, str) or len(names) != 2:
        raise ValueError(f"sharing must be pairs of components, e.g. [('actor', 'rollout')]; {names!r} is not a pair")
    return frozenset(names)


class _Known:
    """An inventory with caches for the questions of every row."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.nodes = range(inventory.num_nodes)
        self.node = cache(inventory.node)
        self.labels = frozenset(inventory.group_labels)
        self.kind_and_counts = cache(self._kind_and_counts)

    def _kind_and_counts(self, label: str) -> tuple[str, dict[int, int]]:
        """Return the type of resource that a node group counts, and for hardware the number on each node."""
        group = self.inventory.group(label)
        if label == NODE or (group and group.ignore_hardware):
            return WHOLE_NODE, {}
        hardware = group and group.hardware
        return (hardware.type, dict(hardware.counts())) if hardware else (ACCELERATOR, {})

    def misplaced(self, row: Placement) -> str | None:
        """Return the fault in the places of a process, if any."""
        home, label, devices = row.cluster_node_rank, row.node_group_label, row.devices
        nodes = {home, *(node for node, _ in devices)}
        if strange := {node for node in nodes if node not in self.nodes}:
            return f"node {min(strange)} does not exist; the cluster has {counted(self.inventory.num_nodes, 'node')}"
        if label not in self.labels:
            return f"unknown node group {label!r}"
        group = self.inventory.group(label)
        if group and (strange := {node for node in nodes if node not in group.node_ranks}):
            return f"node {min(strange)} is not in node group {label!r}, which has {group.node_ranks}"
        if row.resource_type == WHOLE_NODE:
            return f"placed by node, but has devices {devices}" if devices else None
        kind, counts = self.kind_and_counts(label)
        if row.resource_type != kind:
            return f"placed by {row.resource_type} in node group {label!r}, which counts {kind}"
        if not devices or devices[0][0] != home or len(set(devices)) < len(devices):
            return f"devices are {devices}; there must be one or more, each once, the first on node {home}"
        for node, index in devices:
            count = self.node(node).num_accelerators if kind == ACCELERATOR else counts.get(node, 0)
            if index not in range(count):
                return f"{kind} {index} of node {node} does not exist; the node has {count}"
        return None


def _seen(row: Placement, node: NodeSpec, visibility: str) -> dict[str, Any]:
    """Return the expected fields of a process on this node that describe its devices."""
    own = [index for home, index in row.devices if home == node.rank]
    has_its_own = row.resource_type == ACCELERATOR
    every = list(range(node.num_accelerators))
    shown = every
    if has_its_own and visibility != "node":
        shown = own if visibility == "own" else own + [index for index in every if index not in own]
    return {
        "local_hardware_ranks": own,
        "num_accelerators": len(row.devices) if has_its_own else 0,
        "accelerator_type": node.accelerator_type,
        "visible_accelerators": [node.accelerator_ids[index] for index in shown],
        "local_accelerator_rank": (own[0] if has_its_own else 0) if node.num_accelerators else -1,
    }

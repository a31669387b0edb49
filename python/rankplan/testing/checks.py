"""What holds for every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from rankplan._core import ACCELERATOR, NODE, WHOLE_NODE, Placement
from rankplan.inventory import Inventory, NodeSpec
from rankplan.plan import Plan


def check_plan(plan: Plan, sharing: Iterable[tuple[str, str]] | None = None) -> None:
    """Check what must hold for every plan, whichever dialect or file it came from.

    Every rank is there once, in order; nodes, node groups and devices exist and belong to each other; node and local
    ranks are dense, in the order of the rows; a process sees the ids of its node, those of its own devices when it is
    isolated.

    A plan does not tell which sharing was asked for, so ``sharing`` does: pairs of components that may have processes
    on the same accelerator (or robot), ``("actor", "actor")`` for several processes of one component; ``()`` when none
    may. Without it, whatever is shared counts as asked for.

    Raises ``AssertionError`` naming component, rank and what is wrong, and ``ValueError`` for ``sharing`` that is not
    pairs. Its cost is linear in rows and nodes.
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
                **_seen(row, known.node(home)),
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
                        raise AssertionError(f"{who}: it may not share {what} with rank {its_rank} of {other!r}")
                here.setdefault(component, rank)


def _pair(names: tuple[str, str]) -> frozenset[str]:
    """Return what is asked to share, and refuse a pair that was given for a list of pairs."""
    if isinstance(names, str) or len(names) != 2:
        raise ValueError(f"sharing is pairs of components, e.g. [('actor', 'rollout')]; {names!r} is no pair")
    return frozenset(names)


class _Known:
    """An inventory, asked for every row."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.nodes = range(inventory.num_nodes)
        self.node = cache(inventory.node)
        self.labels = frozenset(inventory.group_labels)
        self.kind_and_counts = cache(self._kind_and_counts)

    def _kind_and_counts(self, label: str) -> tuple[str, dict[int, int]]:
        """Return what a node group counts, and how many of it its nodes have (robots; accelerators are the node's)."""
        group = self.inventory.group(label)
        if label == NODE or (group and group.ignore_hardware):
            return WHOLE_NODE, {}
        hardware = group and group.hardware
        return (hardware.type, dict(hardware.counts())) if hardware else (ACCELERATOR, {})

    def misplaced(self, row: Placement) -> str | None:
        """Return what is wrong with where a process is and what it has, if anything."""
        home, label, devices = row.cluster_node_rank, row.node_group_label, row.devices
        nodes = {home, *(node for node, _ in devices)}
        if strange := {node for node in nodes if node not in self.nodes}:
            return f"node {min(strange)} is not there; the cluster has {self.inventory.num_nodes}"
        if label not in self.labels:
            return f"node group {label!r} is not there"
        group = self.inventory.group(label)
        if group and (strange := {node for node in nodes if node not in group.node_ranks}):
            return f"node {min(strange)} is not in node group {label!r}, which has {group.node_ranks}"
        if row.resource_type == WHOLE_NODE:
            return f"it is placed by node and has devices {devices}" if devices else None
        kind, counts = self.kind_and_counts(label)
        if row.resource_type != kind:
            return f"it is placed by {row.resource_type} in node group {label!r}, which counts {kind}"
        if not devices or devices[0][0] != home or len(set(devices)) < len(devices):
            return f"its devices are {devices}; it must have some, each once, the first on its own node {home}"
        for node, index in devices:
            count = self.node(node).accelerators if kind == ACCELERATOR else counts.get(node, 0)
            if index not in range(count):
                return f"{kind} {index} of node {node} is not there; the node has {count}"
        return None


def _seen(row: Placement, node: NodeSpec) -> dict[str, Any]:
    """Return what a process on this node must be told of its devices."""
    own = [index for home, index in row.devices if home == node.rank]
    has_its_own = row.resource_type == ACCELERATOR
    shown = own if has_its_own and row.isolate_accelerator else range(node.accelerators)
    return {
        "local_hardware_ranks": own,
        "num_accelerators": len(row.devices) if has_its_own else 0,
        "accelerator_type": node.accelerator_type,
        "visible_accelerators": [node.accelerator_ids[index] for index in shown],
        "local_accelerator_rank": (own[0] if has_its_own else 0) if node.accelerators else -1,
    }

"""The order in which trainers sort the nodes that Ray gives them, and plans in that order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, islice, takewhile
from typing import Any, TypeAlias

from rankplan._core import CLUSTER, Chunks
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.topology.domains import address_key
from rankplan.nodes.topology.sources import NVLINK_DOMAIN
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan
from rankplan.plans.requests import NodeOrder, Request, pools

NODE_RANK = "NODE_RANK"
"""The variable, and the label, with the rank that a node states to ROLL."""

_Device: TypeAlias = tuple[int, int]
"""A node rank, and the index of an accelerator there."""

_HELP = "plan the config again with --pinned, on the nodes of this cluster (--ray or --inventory)"
_MOST = 8
"""Nodes named in a message."""

_WORDS: dict[NodeOrder, str] = {
    "text": "addresses as text",
    "number": "addresses as numbers",
    "id": "Ray node ids",
    "topology": "ranks in the network",
    "topology-id": "ranks in the network, or else Ray node ids",
    "rank": NODE_RANK,
}


def in_order(inventory: Inventory, order: NodeOrder | None, node_ids: Sequence[str] = ()) -> Inventory:
    """Return the nodes in the order that a trainer sorts them in; as they are if what it sorts by is not known.

    ``node_ids`` are Ray's ids of the nodes.
    """
    ranks = list(range(inventory.num_nodes))
    key = sort_key(inventory, order, node_ids, ranks)
    if key is None or (wanted := sorted(ranks, key=key)) == ranks:
        return inventory
    return reordered(inventory, wanted)


def reordered(inventory: Inventory, ranks: Sequence[int]) -> Inventory:
    """Return the nodes of these ranks in this order, without node groups; what is excluded stays excluded."""
    found = inventory.reordered(ranks)
    return found if inventory.section is None else found.without(inventory.section.exclude)


def in_trainers_order(plan: Plan, node_ids: Sequence[str] = ()) -> tuple[Plan, list[Diagnostic]]:
    """Return a plan whose pools have their nodes in the order in which the trainer sorts them, and what changed.

    Every pool keeps its accelerators. Its nodes are exchanged if what decides is known only on the cluster: ranks, or
    Ray's ids (``node_ids``, by node rank). Raises `PlacementError` (``order-not-kept``) for another order of addresses,
    and for nodes that cannot be exchanged.
    """
    faults: list[Diagnostic] = []
    changes: list[Diagnostic] = []
    moves: dict[_Device, _Device] = {}
    requests = {id(one): one for one in plan.requests}
    for pool in pools(plan.requests):
        nodes = [node for one in pool for node in one.nodes]
        key = sort_key(plan.inventory, pool[0].order, node_ids, nodes)
        if key is None or nodes == (wanted := sorted(nodes, key=key)):
            continue
        found = _difference(plan, pool[0], nodes, wanted)
        before = [] if pool[0].order in ("text", "number") else _accelerators(plan, pool)
        after = sorted(before, key=lambda device: key(device[0]))
        if not before or (moved := _on(pool, after)) is None:
            faults.append(found)
            continue
        changes.append(replace(found, warning=True, help="Ray gives nodes other ids when it starts"))
        moves |= zip(before, after, strict=True)
        requests |= zip(map(id, pool), moved, strict=True)
    if faults:
        raise PlacementError(faults)
    if not moves:
        return plan, []
    components = [_exchanged(one, moves) for one in plan.values()]
    return Plan(plan.inventory, components, plan.mode, plan.dialect, requests.values()), changes


def sort_key(
    inventory: Inventory, order: NodeOrder | None, node_ids: Sequence[str], nodes: Sequence[int]
) -> Callable[[int], Any] | None:
    """Return the key of a node rank by which a trainer sorts these nodes; ``None`` if it is not known for one.

    Follows verl's ``sort_placement_group_by_node_ip``, slime's ``sort_key``, SkyRL's ``ResolvedPlacementGroup``,
    NeMo-RL's ``_sort_bundle_indices_by_topology`` and ROLL's ``ResourceManager.__init__``.
    """
    if order is None:
        return None
    specs = {node: inventory.node(node) for node in nodes}
    if order in ("text", "number"):
        addresses = {node: spec.ip for node, spec in specs.items()}
        if None in addresses.values():
            return None
        return lambda node: addresses[node] if order == "text" else address_key(addresses[node] or "")
    if order == "rank":
        stated = {node: _number(spec.labels.get(NODE_RANK, "0")) for node, spec in specs.items()}
        return stated.__getitem__ if list(stated.values()).count(0) < 2 else None
    if order == "id":
        return node_ids.__getitem__ if node_ids else None
    domains = {node: spec.labels.get(NVLINK_DOMAIN) for node, spec in specs.items()}
    ranks = {node: _number(spec.labels.get("topo_rank", "-1")) for node, spec in specs.items()}
    if any(domains.values()) or max(ranks.values(), default=-1) >= 0:
        lowest = {name: min(ranks[node] for node in domains if domains[node] == name) for name in domains.values()}
        return lambda node: (lowest[domains[node]], ranks[node])
    return node_ids.__getitem__ if order == "topology-id" and node_ids else None


def _number(text: str) -> int:
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 10 else -1


def _accelerators(plan: Plan, pool: Sequence[Request]) -> list[_Device]:
    """Return the accelerators of a pool in the order of its bundles; none if the plan does not tell them."""
    bundles = [bundle for one in pool for bundle in zip(one.nodes, one.accelerators, strict=True)]
    if all(size == plan.inventory.node(node).num_accelerators for node, size in bundles):
        return [(node, index) for node, size in bundles for index in range(size)]
    name = pool[0].component
    before = list(takewhile(lambda one: one is not pool[0], plan.requests))
    start = sum(sum(one.accelerators) for one in before if one.component == name)
    owned = [device for row in plan.get(name, ()) for device in row.devices]
    found = owned[start : start + sum(size for _, size in bundles)]
    owners = [node for node, size in bundles for _ in range(size)]
    return found if [node for node, _ in found] == owners else []


def _on(pool: Sequence[Request], devices: Sequence[_Device]) -> list[Request] | None:
    """Return the requests of a pool with its bundles on these accelerators in turn; ``None`` if one is torn."""
    left = iter(devices)
    found: list[Request] = []
    for one in pool:
        nodes = [{node for node, _ in islice(left, size)} for size in one.accelerators]
        if any(len(of_bundle) > 1 for of_bundle in nodes):
            return None
        found.append(replace(one, nodes=tuple(chain.from_iterable(nodes))))
    return found


def _exchanged(component: Component, moves: Mapping[_Device, _Device]) -> Component:
    """Return a component whose processes have the new accelerators. Raises `PlacementError` for torn ones."""
    lists = [[moves.get(device, device) for device in row.devices] for row in component]
    if not any(device in moves for row in component for device in row.devices):
        return component
    counts = (spec.num_accelerators for nodes, spec in component.inventory.stretches() for _ in nodes)
    firsts = list(accumulate(counts, initial=0))
    rule = Chunks([firsts[node] + index for one in lists for node, index in one], len(lists[0]))
    return Component.place(component.name, component.inventory, (CLUSTER,), rule, component.settings, component.beside)


def _difference(plan: Plan, request: Request, nodes: Sequence[int], wanted: Sequence[int]) -> Diagnostic:
    """Return the diagnostic of a pool with both orders of its nodes."""
    here, there = (", ".join(_names(plan.inventory, order)) for order in (nodes, wanted))
    words = _WORDS[request.order or "id"]
    pool = f"the pool of `{request.component}`" if request.component else "the cluster"
    message = f"{pool} has the nodes {here}; {plan.dialect or 'the trainer'} sorts them by {words}: {there}"
    return Diagnostic("order-not-kept", message, _HELP)


def _names(inventory: Inventory, nodes: Sequence[int]) -> list[str]:
    """Return the addresses of the first nodes, or else their names, each once."""
    specs = [inventory.node(node) for node in dict.fromkeys(nodes)]
    texts = [spec.ip or spec.name for spec in specs[:_MOST]]
    return texts + ([f"and {len(specs) - _MOST} more"] if len(specs) > _MOST else [])

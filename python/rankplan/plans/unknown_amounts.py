"""What a job reserves on nodes of which nothing says how much can be reserved there."""

from __future__ import annotations

from rankplan._core import RankSet
from rankplan.plans.node_amounts import NodeAmounts, node_amounts
from rankplan.plans.plan import Plan
from rankplan.words import amount_text, nodes_text


def unknown_line(plan: Plan) -> str | None:
    """Return a line on what a job reserves on nodes that do not state it; ``None`` if they state everything."""
    reserved = node_amounts(plan)
    nodes: set[int] = set()
    most = NodeAmounts()
    for ranks, record in plan.inventory.stretches():
        for node in ranks:
            amounts = reserved.get(node)
            if amounts is None:
                continue
            unknown = NodeAmounts(
                amounts.cpus if record.cpus is None else 0,
                amounts.memory if record.reservable_memory is None else 0,
            )
            if any(unknown):
                nodes.add(node)
                most = most.most(unknown)
    if not nodes:
        return None
    parts = {"CPU": most.cpus, "memory": most.memory}
    amounts_text = " and ".join(amount_text(resource, amount) for resource, amount in parts.items() if amount)
    fields = " and ".join(
        f"`{field}`" for field, amount in zip(("cpus", "reservable_memory"), most, strict=True) if amount
    )
    state = "states" if len(nodes) == 1 else "state"
    return (
        f"unchecked: the job reserves up to {amounts_text} on {nodes_text(RankSet(nodes))}, which {state} no {fields}"
    )

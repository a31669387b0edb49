"""Arrange the nodes of an inventory for a plan."""

from __future__ import annotations

from collections.abc import Iterable

from rankplan.arranging import faults, rules
from rankplan.arranging.exclusion import Exclusion, restored
from rankplan.arranging.group_nodes import GroupNodes
from rankplan.arranging.replanned import moved_to, nodes_of, resized_facts
from rankplan.arranging.rules import Network
from rankplan.arranging.sorted_arrangement import lined_up, lines_of
from rankplan.arranging.task import Arrangement, Task
from rankplan.nodes.clusters import SupportsInventory, inventory_of
from rankplan.nodes.entries import one_or_several
from rankplan.nodes.inventory import Inventory
from rankplan.plans.diff import same_nodes
from rankplan.plans.fitting import moved
from rankplan.plans.plan import Plan, check_plan
from rankplan.plans.rules import Balance, Cap, Keep, Prefer, Segments
from rankplan.plans.spares import known_nodes, with_spares


def arrange(
    plan: Plan,
    inventory: Inventory | SupportsInventory | None = None,
    *,
    keep: Keep | None = None,
    segment: Segments | None = None,
    prefer: Prefer | None = None,
    balance: Balance | None = None,
    cap: Cap | None = None,
    restore: str | Iterable[str] = (),
    beside: Plan | Iterable[Plan] = (),
) -> Arrangement:
    """Number the nodes of an inventory, or a cluster, to suit a plan and the network.

    Without an inventory, the nodes are those of the plan and the spares of its job.

    Every node rank of the plan gets a node with the hardware that it needs. As few parallel groups as possible cross a
    domain, outermost level first, tensor, context and expert-tensor groups before expert, data and pipeline groups.
    The nodes that the plan does not need come last, and stay in whole domains if possible. A trainer that sorts the
    nodes of a pool, such as by their addresses, finds them in that order.

    Each of these replaces the rule of its name in the plan:

    - ``keep``: levels that groups must stay within, by component and kind: ``{"actor": {"ep": "nvlink"}}``. The kind
      ``world`` means all nodes of a component, and ``"a + b"`` those of two. ``{"nvlink": 2}`` instead of a level
      allows two domains, with equal shares.
    - ``segment``: a number of nodes that must be in one innermost domain together, or such numbers by component,
      ``{"policy": 4, "generation": 2}``, and by level too: ``{"policy": {"block": 16, "nvlink": 8}}``.
    - ``prefer``: like ``keep``, but nothing is refused.
    - ``balance``: a level, or levels by component, whose domains in use get shares as equal as possible.
    - ``cap``: the most nodes of a domain in use, by level: ``{"nvlink": 16}``.

    ``restore`` names what the plan excludes and may be used again: nodes, accelerators (``node-5/2``) or domains.
    ``beside`` are plans of other jobs: their nodes, found by hostname, else address, else rank, are taken. They count
    for ``cap`` only.

    Raises `PlacementError`: ``too-few-nodes``, ``segment-incomplete``, ``domain-too-small``, ``group-spans``,
    ``order-not-kept`` if the rules do not hold once the trainer has sorted the nodes, and every wrong name or size.
    """
    check_plan(plan)
    planned = plan.inventory
    nodes = known_nodes(plan) if inventory is None else inventory_of(inventory)
    inventory = rules.beside(nodes, beside)
    returned = list(one_or_several("restore", restore, faults.RESTORE_HELP))
    if returned:
        planned, inventory = restored(planned, inventory, returned)
    network = Network.of(inventory, plan, keep=keep, segment=segment, prefer=prefer, balance=balance, cap=cap)
    known = same_nodes(planned, inventory)
    excluded = Exclusion.of(planned, inventory, known)
    groups = GroupNodes.of(plan, plan.inventory, inventory, known)
    task = Task(inventory, planned, plan, network, excluded, were=known, groups=groups)
    return lined_up(task, lines_of(plan), plan.dialect)


def arranged_plan(plan: Plan, arrangement: Arrangement, restore: str | Iterable[str] = ()) -> Plan:
    """Return a plan on an arrangement of other nodes for it: in the same places, with its spares after its own nodes.

    If its job has the spares, it has as many nodes as before, and its job the others. It excludes what it excluded
    before, by names that are right there, but for what ``restore`` names.
    """
    names = list(one_or_several("restore", restore, faults.RESTORE_HELP))
    if names:
        before, _ = restored(plan.inventory, plan.inventory, names)
        plan = plan.placed(before, [moved_to(one, before) for one in plan.values()])
    known = same_nodes(plan.inventory, arrangement.present)
    order = arrangement.order
    if plan.job is not None and plan.job.spares is not None:
        order = order[: plan.inventory.num_nodes]
    facts = plan.inventory.facts
    if facts is not None:
        facts = resized_facts(facts, len(order))
    nodes = nodes_of(plan, arrangement.present, known, order, facts)
    found = plan.placed(nodes, [moved(one, nodes) for one in plan.values()])
    return with_spares(found, arrangement.present, order)

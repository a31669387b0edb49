"""What a trainer asks Ray for in a plan whose components have other sizes than before."""

from __future__ import annotations

from rankplan._core import Requests
from rankplan.dialects.built_in import DIALECTS
from rankplan.dialects.interface.dialect import Dialect
from rankplan.guests.doors import GuestError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan


def requests_for(before: Plan, after: Plan) -> Requests | None:
    """Return what the trainer of a plan asks Ray for once its components have other sizes; ``None`` if unknown.

    Its dialect must make the requests before from the components before. Otherwise they do not follow from them.
    """
    asked = before.requests
    if not asked or _made(before, asked) != asked:
        return None
    return _made(after, asked)


def with_requests(plan: Plan, requests: Requests, before: Plan) -> Plan:
    """Return a plan with requests, and with the actors that its trainer had beside them before."""
    stated = plan.rules, plan.job, before.actors
    return Plan(plan.inventory, plan.values(), plan.mode, plan.dialect, requests, *stated)


def has_all_nodes(plan: Plan, inventory: Inventory) -> bool:
    """Return whether a plan has the nodes of an inventory without processes too, as its dialect plans them."""
    dialect = _dialect(plan)
    if dialect is None or plan.inventory.num_nodes != inventory.num_nodes:
        return False
    try:
        return dialect.plans_all_nodes(plan)
    except GuestError:
        return False


def _made(plan: Plan, asked: Requests) -> Requests | None:
    """Return what the dialect of a plan makes of requests for another size; ``None`` if it does not tell."""
    dialect = _dialect(plan)
    try:
        return None if dialect is None else dialect.requests_of(plan, asked)
    except GuestError:
        return None


def _dialect(plan: Plan) -> Dialect | None:
    """Return the dialect of a plan; ``None`` if it is unknown, or its package is not installed or fails."""
    try:
        return DIALECTS[plan.dialect or ""]
    except (KeyError, GuestError):
        return None

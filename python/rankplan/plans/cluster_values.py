"""What a plan states of its nodes and its components as the values of a ``cluster`` section."""

from __future__ import annotations

from typing import Any

from rankplan.nodes.facts import BY_ADDRESS, ClusterFacts
from rankplan.nodes.inventory import Inventory
from rankplan.plans.rules import Rules


def cluster_values(inventory: Inventory, rules: Rules) -> dict[str, Any] | None:
    """Return the facts of an inventory and rules by their keys in a ``cluster`` section; ``None`` without any.

    Keys that most sections lack are left out if they state nothing. An inventory without facts has no ``node_groups``.
    """
    facts = inventory.facts
    if facts is None and not rules:
        return None
    values: dict[str, Any] = {"num_nodes": inventory.num_nodes, "component_placement": {}}
    if facts is not None:
        values["node_groups"] = [group.plain() for group in facts.node_groups]
    if topology := _topology(facts, rules):
        values["topology"] = topology
    optional: dict[str, Any] = {
        "exclude": [] if facts is None else list(facts.exclude),
        "pools": [pool.plain() for pool in rules.pools],
        "accelerator_memory": None if facts is None else facts.accelerator_memory,
        "host_memory": None if facts is None else facts.host_memory,
        "environment": {} if facts is None else dict(facts.environment),
    }
    return values | {key: value for key, value in optional.items() if value not in (None, [], {})}


def _topology(facts: ClusterFacts | None, rules: Rules) -> dict[str, Any]:
    """Return the key ``topology``, empty if nothing is stated about the network."""
    about_nodes = rules.topology() if rules.about_nodes else {}
    if facts is None or (not about_nodes and facts.levels is None and facts.order == BY_ADDRESS):
        return about_nodes
    levels = None if facts.levels is None else list(facts.levels)
    return {"levels": levels, "order": facts.order, **rules.topology()}

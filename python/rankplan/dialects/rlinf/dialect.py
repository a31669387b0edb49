"""RLinf: a ``cluster`` section with ``component_placement`` and node groups, which is also rankplan's own language."""

from __future__ import annotations

from typing import Any

from rankplan._core import CLUSTER, NODE, WHOLE_NODE, RankMap
from rankplan.config.parallel import ParallelEntry
from rankplan.config.section import Config, Reading, read_config
from rankplan.dialects.rlinf.choice import roles_of
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import merged
from rankplan.plans.configured import ASSUMED, resource_lists
from rankplan.plans.plan import Plan

read = read_config


def plan(config: Config | Reading, inventory: Inventory, *, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of a config on an inventory.

    Components have the parallel sizes of their entries, else those of their sections (``actor.model``, ``rollout``).
    Raises `PlacementError` with every fault.
    """
    return roles_of(read(config), inventory).plan(isolate=isolate_accelerator)


def assumed_inventory(config: Config | Reading) -> Inventory:
    """Return ``num_nodes`` nodes with 8 accelerators each. Raises `PlacementError` if the number is invalid."""
    reading = read(config)
    assumed = Inventory.uniform(reading.section.num_nodes, ASSUMED)
    if not reading.num_nodes_known:
        plan(reading, assumed)  # raises that fault, and all others
    return assumed


def written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a config for the components that this dialect can express, and why it cannot express the others."""
    texts: list[tuple[str, str, dict[str, Any], list[str]]] = []
    reasons: dict[str, str] = {}
    cluster = planned.inventory.without_groups()
    for name, component in planned.items():
        if "," in name or name != name.strip():
            reasons[name] = "its name contains a comma, or blanks at an end"
            continue
        try:
            lists = resource_lists(component, cluster)
            text = merged(RankMap.from_lists(lists))
        except ValueError as error:  # a PlacementError is one
            reasons[name] = str(error).splitlines()[0]
            continue
        if lists != sorted(map(sorted, lists)):
            reasons[name] = "its processes do not use their resources in ascending order"
            continue
        group = NODE if component[0].resource_type == WHOLE_NODE else CLUSTER
        sizes = ParallelEntry.plain(component.parallel) if component.parallel.stated else {}
        if not texts or texts[-1][:3] != (group, text, sizes):
            texts.append((group, text, sizes, []))
        texts[-1][3].append(name)
    components: dict[str, Any] = {}
    for group, text, sizes, names in texts:
        entry: dict[str, Any] = {"node_group": NODE} if group != CLUSTER else {}
        entry |= {"placement": text, **({"parallel": sizes} if sizes else {})}
        components[",".join(names)] = text if list(entry) == ["placement"] else entry
    return {"cluster": {"num_nodes": planned.inventory.num_nodes, "component_placement": components}}, reasons

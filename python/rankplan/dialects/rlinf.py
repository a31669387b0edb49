"""RLinf: a ``cluster`` section with ``component_placement`` and node groups, which is rankplan's own language too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan._core import RankMap, RankSet
from rankplan.config.models import CLUSTER, NODE, WHOLE_NODE
from rankplan.config.section import Config, read_config
from rankplan.dialects.reading import ASSUMED, resource_lists
from rankplan.inventory import Inventory
from rankplan.placement import ComponentPlacement
from rankplan.plan import Plan


def recognised(config: Mapping[Any, Any]) -> bool:
    """Whether a config has a ``cluster`` section."""
    return "cluster" in config


def plan(config: Config, inventory: Inventory, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of a config on an inventory. Raises `PlacementError` with every fault."""
    return ComponentPlacement(config, inventory).plan(isolate_accelerator)


def assumed_inventory(config: Config) -> Inventory:
    """Return an inventory of ``num_nodes`` nodes with 8 accelerators each. Raises `PlacementError` without a number."""
    reading = read_config(config)
    assumed = Inventory.uniform(reading.section.num_nodes, ASSUMED)
    if not reading.num_nodes_known:
        plan(config, assumed)  # raises that, and with it what else is wrong
    return assumed


def shares(config: Config, planned: Plan) -> dict[str, float | None]:
    """Return that nothing is reserved: components share freely, as RLinf has it."""
    return dict.fromkeys(planned)


def written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a config that places what this dialect can say, and why the other components are not in it."""
    texts: list[tuple[str, str, list[str]]] = []
    unsaid: dict[str, str] = {}
    for name, rows in planned.items():
        if "," in name or name != name.strip():
            unsaid[name] = "its name has a comma, or blanks at an end"
            continue
        try:
            lists = resource_lists(planned.inventory, rows)
            rank_map = RankMap.from_lists(lists)
        except ValueError as error:  # a PlacementError is one
            unsaid[name] = str(error).splitlines()[0]
            continue
        if lists != sorted(map(sorted, lists)):
            unsaid[name] = "its processes do not take what they use in ascending order"
            continue
        group = NODE if rows[0].resource_type == WHOLE_NODE else CLUSTER
        if not texts or texts[-1][:2] != (group, _text(rank_map)):
            texts.append((group, _text(rank_map), []))
        texts[-1][2].append(name)
    components: dict[str, Any] = {}
    for group, text, names in texts:
        components[",".join(names)] = text if group == CLUSTER else {"node_group": NODE, "placement": text}
    return {"cluster": {"num_nodes": planned.inventory.num_nodes, "component_placement": components}}, unsaid


def _text(rank_map: RankMap) -> str:
    """Return the map with as few segments as can be: neighbours that share in the same way are one."""
    shared: list[tuple[RankSet, RankSet]] = []
    for resources, processes in rank_map.segments:
        if shared and shared[-1][0] == resources:
            processes = shared.pop()[1] | processes
        shared.append((resources, processes))
    segments: list[tuple[RankSet, RankSet]] = []
    for resources, processes in shared:
        if segments and len(segments[-1][0]) * len(processes) == len(resources) * len(segments[-1][1]):
            before = segments.pop()
            resources, processes = before[0] | resources, before[1] | processes
        segments.append((resources, processes))
    return ",".join(f"{resources}:{processes}" for resources, processes in segments)

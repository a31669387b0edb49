"""RLinf: a ``cluster`` section with ``component_placement`` and node groups, which is also rankplan's own language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan._core import CLUSTER, NODE, WHOLE_NODE, RankMap
from rankplan.config.parallel import ParallelEntry
from rankplan.config.section import Config, Reading, read_config
from rankplan.config.text.faults import KeyPath
from rankplan.dialects.rlinf.choice import placement_class
from rankplan.dialects.rlinf.placement import ComponentPlacement
from rankplan.dialects.rlinf.sizes import ENGINE, TRAINING, reject_conflicts, section, sizes_at
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import Parallel
from rankplan.plans.component import merged
from rankplan.plans.configured import ASSUMED, resource_lists, with_sizes
from rankplan.plans.plan import Plan

read = read_config


def recognised(config: Mapping[Any, Any]) -> bool:
    """Return whether a config has a ``cluster`` section."""
    return "cluster" in config


def placement(config: Config | Reading, inventory: Inventory) -> ComponentPlacement:
    """Return the placement of a config, of the class that RLinf's entry script for it uses.

    Raises `PlacementError` with every fault.
    """
    reading = read(config)
    kind = placement_class(reading)
    if kind is ComponentPlacement:  # the others do so themselves
        reading = reading.fork()
        reject_conflicts(reading)
    return kind(reading, inventory)


def plan(config: Config | Reading, inventory: Inventory, *, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of a config on an inventory.

    Components have the parallel sizes of their entries, else those of their sections (``actor.model``, ``rollout``).
    Raises `PlacementError` with every fault.
    """
    reading = read(config)
    planned = placement(reading, inventory).plan(isolate_accelerator)
    return _sized(reading.fork(), planned)


def _sized(reading: Reading, planned: Plan) -> Plan:
    """Return a plan in which components without sizes have those of their sections."""
    components = []
    for name, component in planned.items():
        for path, keys in (((name, "model"), TRAINING), ((name,), ENGINE)):
            found = None if component.parallel.stated else _stated_sizes(reading, path, keys)
            if found is not None:
                component = with_sizes(reading, component, found, path)
        components.append(component)
    reading.finish()
    return Plan(planned.inventory, components, planned.mode)


def _stated_sizes(reading: Reading, path: KeyPath, keys: Mapping[str, str]) -> Parallel | None:
    """Return the sizes at a path of the config, ``None`` if none is stated there."""
    probe = reading.fork()  # sections belong to the trainer: only sizes can have faults
    mapping = section(probe, path) or {}
    stated = {name: key for name, key in keys.items() if probe.value(mapping, key, path) is not None}
    if not stated:
        return None
    before = len(reading.faults)
    sizes = sizes_at(reading, path, keys)
    return None if sizes is None or len(reading.faults) > before else sizes.parallel


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
        sizes = (
            ParallelEntry.of(component.parallel).model_dump(exclude_defaults=True) if component.parallel.stated else {}
        )
        if not texts or texts[-1][:3] != (group, text, sizes):
            texts.append((group, text, sizes, []))
        texts[-1][3].append(name)
    components: dict[str, Any] = {}
    for group, text, sizes, names in texts:
        entry: dict[str, Any] = {"node_group": NODE} if group != CLUSTER else {}
        entry |= {"placement": text, **({"parallel": sizes} if sizes else {})}
        components[",".join(names)] = text if list(entry) == ["placement"] else entry
    return {"cluster": {"num_nodes": planned.inventory.num_nodes, "component_placement": components}}, reasons

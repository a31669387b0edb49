"""RLinf: a ``cluster`` section with ``component_placement`` and node groups, which is also rankplan's own language."""

from __future__ import annotations

from typing import Any

from rankplan._core import CLUSTER, NODE, WHOLE_NODE, RankMap
from rankplan.config.models import component_names
from rankplan.config.parallel import ParallelEntry
from rankplan.config.section import Config, Reading, read_config
from rankplan.dialects.rlinf.model_parallel import (
    ModelParallelRoles,
    MultiAgentModelParallelEvalRoles,
    MultiAgentModelParallelRoles,
)
from rankplan.dialects.rlinf.roles import HybridRoles, Roles, plan_of
from rankplan.dialects.rlinf.sized import ModelParallelEvalRoles
from rankplan.dialects.rlinf.sizes import ENGINE, TRAINING
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import merged
from rankplan.plans.configured import ASSUMED, resource_lists
from rankplan.plans.plan import Plan

read = read_config

_ENGINE_KEYS = {*ENGINE.values(), "rollout_backend"}
_MODEL_KEYS = {*TRAINING.values()}
_FURTHER = "rollout_"
"""How the names of further rollouts start (``_validate_collocated_placement``); a section may be of anything."""


def plan(config: Config | Reading, inventory: Inventory, *, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of a config on an inventory.

    Components have the parallel sizes of their entries, else those of their sections (``actor.model``, ``rollout``).
    Raises `PlacementError` with every fault.
    """
    roles = roles_of(read(config), inventory)
    return plan_of(roles.strategies(), roles.inventory, roles.mode, isolate=isolate_accelerator)


def roles_class(reading: Reading) -> type[Roles]:
    """Return the class for a config: by ``runner.task_type``, else by its sections.

    A rollout with parallel sizes is model-parallel, for evaluation if there is no ``actor`` section; an ``env`` is
    hybrid. Further rollouts, or the choice to have two, are for several agents. Other configs have no mode.
    """
    config = reading.config
    if config is None:
        return Roles
    probe = reading.fork()  # faults are recorded by the class
    task = probe.value(probe.section_at(("runner",)), "task_type", ("runner",))
    rollout = probe.section_at(("rollout",))
    if isinstance(task, str):
        engines, evaluates = task.startswith("reasoning") or task == "coding_online_rl", task.endswith("_eval")
    else:
        model = probe.section_at(("actor", "model"))
        sized = not _ENGINE_KEYS.isdisjoint(rollout) or ("rollout" in config and not _MODEL_KEYS.isdisjoint(model))
        engines, evaluates = sized and "env" not in config, "actor" not in config
    if not engines:
        return HybridRoles if isinstance(task, str) or "env" in config else Roles
    names = [name for key in reading.keys for name in component_names(key)]
    several = "use_fixed_worker" in rollout or any(name.startswith(_FURTHER) for name in names)
    if evaluates:
        return MultiAgentModelParallelEvalRoles if several else ModelParallelEvalRoles
    return MultiAgentModelParallelRoles if several else ModelParallelRoles


def roles_of(reading: Reading, inventory: Inventory) -> Roles:
    """Return the roles of a config on an inventory, with the parallel sizes that its sections state.

    Raises `PlacementError` with every fault.
    """
    roles = roles_class(reading)(reading, inventory)
    roles.take_sizes(reading)
    return roles


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

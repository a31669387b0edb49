"""RLinf: a ``cluster`` section with ``component_placement`` and node groups, which is also rankplan's own language."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rankplan._core import CLUSTER, NODE, RankMap
from rankplan.errors import PlacementError
from rankplan.nodes.facts import BY_ADDRESS
from rankplan.nodes.groups import PREPEND
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import NO_SIZES
from rankplan.plans.cluster_values import cluster_values
from rankplan.plans.component import USUAL_SETTINGS, Component, PlacementMode, Rule, merged
from rankplan.plans.parts import rules_of
from rankplan.plans.plan import Plan
from rankplan.plans.rules import component_names
from rankplan.read.components import ASSUMED
from rankplan.read.section import Config, Reading, read_config
from rankplan.read.sources import Planned
from rankplan.read.text.read_config import ReadConfig
from rankplan.rlinf.model_parallel import (
    ModelParallelRoles,
    MultiAgentModelParallelEvalRoles,
    MultiAgentModelParallelRoles,
)
from rankplan.rlinf.roles import HybridRoles, Roles, plan_of
from rankplan.rlinf.sized import ModelParallelEvalRoles
from rankplan.rlinf.sizes import ENGINE, TRAINING

_ENGINE_KEYS = {*ENGINE.values(), "rollout_backend"}
_MODEL_KEYS = {*TRAINING.values()}
_FURTHER = "rollout_"
"""How the names of further rollouts start (``_validate_collocated_placement``); a section may be of anything."""


def read(config: Config | ReadConfig) -> ReadConfig:
    """Read the ``cluster`` section of a config; one that is already read is returned.

    Raises `PlacementError` if the config has no section that could be read.
    """
    return config if isinstance(config, ReadConfig) else ReadConfig(read_config(config))


def _reading(config: Config | ReadConfig) -> Reading:
    """Return the section of a config."""
    content: Any = config.reader if isinstance(config, ReadConfig) else config
    return read_config(content)


def plan(
    config: Config | ReadConfig, inventory: Inventory, *, isolate_accelerator: bool = True, pinned: bool = False
) -> Plan:
    """Return the plan of a config on an inventory; see `planned`."""
    return planned(config, inventory, isolate_accelerator=isolate_accelerator, pinned=pinned).plan


def planned(
    config: Config | ReadConfig, inventory: Inventory, *, isolate_accelerator: bool = True, pinned: bool = False
) -> Planned:
    """Return the plan of a config on an inventory, and where the config states what decides it.

    Components have the parallel sizes of their entries, else those of their sections (``actor.model``, ``rollout``).
    RLinf places its processes itself: a ``pinned`` plan is the same. Raises `PlacementError` with every fault.
    """
    roles = roles_of(_reading(config), inventory)
    return Planned(plan_of(roles, roles.strategies(), isolate=isolate_accelerator), roles.sources)


def node_order(config: Config | ReadConfig) -> None:
    """Return ``None``: RLinf has its own order of nodes."""


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
    roles.take_memory(reading)
    return roles


def assumed_inventory(config: Config | ReadConfig) -> Inventory:
    """Return ``num_nodes`` nodes with 8 accelerators each. Raises `PlacementError` if the number is invalid."""
    reading = _reading(config)
    assumed = Inventory.uniform(reading.section.num_nodes, ASSUMED)
    if not reading.num_nodes_known:
        plan(ReadConfig(reading), assumed)  # raises that fault, and all others
    return assumed


def written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a config for the components that this dialect can express, and why it cannot express the others."""
    if (config := _by_roles(planned)) is not None:
        return config, {}
    entries: list[tuple[Any, list[str]]] = []
    reasons: dict[str, str] = {}
    for name, component in planned.items():
        if "," in name or name != name.strip():
            reasons[name] = "its name contains a comma, or blanks at an end"
            continue
        try:
            entry = _entry(component)
        except ValueError as error:  # a PlacementError is one
            reasons[name] = str(error).splitlines()[0]
            continue
        if not entries or entries[-1][0] != entry:
            entries.append((entry, []))
        entries[-1][1].append(name)
    runner = {"runner": {"task_type": "embodied"}} if planned.mode is PlacementMode.HYBRID else {}
    return {**runner, "cluster": _cluster(planned, {",".join(names): entry for entry, names in entries})}, reasons


def _by_roles(planned: Plan) -> dict[str, Any] | None:
    """Return a config whose mode and sizes of roles place all components as the plan does, ``None`` if none does."""
    if planned.mode in (None, PlacementMode.HYBRID):
        return None
    config: dict[str, Any] = {}
    if not planned.keys().isdisjoint(("inference", "actor_inference")):
        config["algorithm"] = {"recompute_logprobs": True}
    components: dict[str, Any] = {}
    for name, component in planned.items():
        engine, sizes = name.startswith("rollout"), component.parallel
        stated = {"tp", *(kind for kind in TRAINING if getattr(sizes, kind) > 1)}
        stated |= {"etp"} if sizes.ep > 1 else set()  # by default the tensor size
        stated |= {"pp"} if name.endswith("inference") else set()  # by default the actor's
        keys = {key: getattr(sizes, kind) for kind, key in (ENGINE if engine else TRAINING).items() if kind in stated}
        if engine or name.endswith(("actor", "critic", "inference")) or sizes.stated:
            config[name] = keys if engine else {"model": keys}
        rule = component.rule
        groups = {} if component.node_groups == (CLUSTER,) else {"node_group": ",".join(component.node_groups)}
        text = _joined(rule, ranges=1) if isinstance(rule, RankMap) else str(rule.resources)
        components[name] = {**groups, "placement": text, **_settings(component)}
    if "critic_inference" in config:
        config.setdefault("critic", config["critic_inference"])  # its sizes are read only beside a critic's
    config["cluster"] = _cluster(planned, components)
    for task in ("reasoning", "reasoning_eval"):
        candidate = {"runner": {"task_type": task}, **config}
        with suppress(PlacementError):
            if plan(candidate, planned.inventory.without_groups()) == planned:
                return candidate
    return None


def _settings(component: Component) -> dict[str, Any]:
    """Return the keys and values of an entry for the settings of a process, and for its memory."""
    keys = ("visibility", "binding", "memory_binding", "nics", "egl")
    stated = {key: value for key in keys if (value := getattr(component, key)) != getattr(USUAL_SETTINGS, key)}
    return stated if component.memory is None else {**stated, "memory": component.memory.written()}


def _entry(component: Component) -> dict[str, Any]:
    """Return an entry of ``component_placement``. Raises ``ValueError`` if there is none for a component."""
    groups, inventory = component.node_groups, component.inventory
    pool = inventory.pool(groups)
    restated = component.by_node and not pool.by_node  # nodes counted in a group of accelerators
    if restated:
        groups, pool = (NODE,), inventory.pool((NODE,))
    lists = pool.ranks_of(component.rows)
    if lists != sorted(map(sorted, lists)):
        raise ValueError("its processes do not use their resources in ascending order")
    entry: dict[str, Any] = {} if groups == (CLUSTER,) else {"node_group": ",".join(groups)}
    entry["placement"] = _text(None if restated else component.rule, lists)
    if component.parallel.stated or component.parallel.order != NO_SIZES.order:
        entry["parallel"] = component.parallel.plain()
    return entry | _settings(component)


def _text(rule: Rule | None, lists: list[list[int]]) -> str:
    """Return the shortest text of a rule with these resources of its processes; that of a map keeps its segments."""
    if isinstance(rule, RankMap):
        text = _joined(rule, ranges=1)
        with suppress(PlacementError):
            if RankMap.parse(text) == rule:
                return text
    return _joined(RankMap.parse(merged(RankMap.from_lists(lists))), ranges=len(lists))


def _joined(rank_map: RankMap, ranges: int) -> str:
    """Return the text of a map, without the processes of segments with one each and at most so many ranges."""
    return ",".join(
        str(used) if len(used) == len(ranks) and len(used.ranges) <= ranges else f"{used}:{ranks}"
        for used, ranks in rank_map.segments
    )


def _cluster(planned: Plan, entries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the ``cluster`` section with these entries; one with only a placement is its text."""
    section = _section(planned)
    components = {key: entry["placement"] if len(entry) == 1 else entry for key, entry in entries.items()}
    return {"num_nodes": planned.inventory.num_nodes, **section, "component_placement": components}


def _section(planned: Plan) -> dict[str, Any]:
    """Return what a section states besides the components, and without rules about others than these."""
    rules = rules_of(planned.rules, planned)
    section = cluster_values(planned.inventory, rules) or {}
    section = {key: value for key, value in section.items() if key not in ("num_nodes", "component_placement")}
    if groups := section.pop("node_groups", None):
        section = {"node_groups": [_without_usual(group) for group in groups], **section}
    if topology := section.pop("topology", None):
        stated = {key: value for key, value in topology.items() if value not in (None, {}, BY_ADDRESS)}
        section |= {"topology": stated} if stated else {}
    return section


def _without_usual(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a node group without what every group has, its variables in the form of RLinf."""
    entry: dict[str, Any] = {"label": group["label"], "node_ranks": group["node_ranks"]}
    environments = []
    for config in group["env_configs"]:
        stated = {key: value for key, value in config.items() if value not in (None, {}, PREPEND)}
        if "env_vars" in stated:
            stated["env_vars"] = [{key: value} for key, value in stated["env_vars"].items()]
        environments.append(stated)
    if environments:
        entry["env_configs"] = environments
    if group["hardware"] is not None:
        entry["hardware"] = {key: value for key, value in group["hardware"].items() if value is not None}
    return entry | ({"ignore_hardware": True} if group["ignore_hardware"] else {})

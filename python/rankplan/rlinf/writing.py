"""Plans as RLinf's configs, which are also rankplan's own language."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rankplan._core import CLUSTER, NODE, RankMap
from rankplan.errors import PlacementError
from rankplan.nodes.facts import BY_ADDRESS
from rankplan.nodes.groups import PREPEND
from rankplan.parallel import NO_SIZES
from rankplan.plans.cluster_values import cluster_values
from rankplan.plans.component import USUAL_SETTINGS, Component, PlacementMode, Rule, merged
from rankplan.plans.plan import Plan
from rankplan.rlinf.dialect import DIALECT
from rankplan.rlinf.keys import ENGINE, TRAINING


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
        own_keys = ENGINE if engine else TRAINING
        keys = {key.name: getattr(sizes, kind) for kind, key in own_keys.items() if kind in stated}
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
            if DIALECT.plan(candidate, planned.inventory.without_groups()) == planned:
                return candidate
    return None


def _settings(component: Component) -> dict[str, Any]:
    """Return the keys and values of an entry for the settings of a process, and for its memory."""
    of_processes = ("visibility", "binding", "memory_binding", "nics", "egl")
    keys = (*of_processes, "cpus_per_process", "host_memory_per_process")
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
    """Return what a section states besides the components."""
    section = cluster_values(planned.inventory, planned.rules) or {}
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

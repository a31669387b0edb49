"""Plans as RLinf's configs, which are also rankplan's own language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rankplan._core import CLUSTER, NODE, RankMap
from rankplan.errors import PlacementError
from rankplan.nodes.facts import BY_ADDRESS
from rankplan.nodes.groups import PREPEND
from rankplan.parallel import NO_SIZES, Parallel
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
    entries: dict[str, Any] = {}
    for name, component in planned.items():
        section = _role_section(name, component.parallel)
        if section is not None:
            config[name] = section
        entries[name] = _role_entry(component)
    if "critic_inference" in config:
        config.setdefault("critic", config["critic_inference"])  # its sizes are read only beside a critic's
    config["cluster"] = _cluster(planned, entries)
    for task in ("reasoning", "reasoning_eval"):
        candidate = {"runner": {"task_type": task}, **config}
        with suppress(PlacementError):
            if DIALECT.plan(candidate, planned.inventory.without_groups()) == planned:
                return candidate
    return None


def _role_section(name: str, sizes: Parallel) -> dict[str, Any] | None:
    """Return the section of a role with its sizes, ``None`` for a component that is no role and has no sizes."""
    is_engine = name.startswith("rollout")
    is_role = is_engine or name.endswith(("actor", "critic", "inference"))
    if not is_role and not sizes.stated:
        return None
    kinds = {"tp", *(kind for kind in TRAINING if getattr(sizes, kind) > 1)}
    if sizes.ep > 1:
        kinds.add("etp")  # by default the tensor size
    if name.endswith("inference"):
        kinds.add("pp")  # by default the actor's
    keys = ENGINE if is_engine else TRAINING
    values = {key.name: getattr(sizes, kind) for kind, key in keys.items() if kind in kinds}
    return values if is_engine else {"model": values}


def _role_entry(component: Component) -> dict[str, Any]:
    """Return the entry of a component whose sizes are in the section of a role."""
    rule = component.rule
    text = _joined(rule, ranges=1) if isinstance(rule, RankMap) else str(rule.resources)
    return {**_node_group(component.node_groups), "placement": text, **_settings(component)}


def _node_group(labels: Sequence[str]) -> dict[str, str]:
    """Return the key of an entry for these node groups; all nodes need none."""
    return {} if labels == (CLUSTER,) else {"node_group": ",".join(labels)}


def _settings(component: Component) -> dict[str, Any]:
    """Return the keys and values of an entry for the settings of a process, and for its memory."""
    of_processes = ("visibility", "binding", "memory_binding", "nics", "egl")
    keys = (*of_processes, "cpus_per_process", "host_memory_per_process")
    stated = {key: value for key in keys if (value := getattr(component, key)) != getattr(USUAL_SETTINGS, key)}
    return stated if component.memory is None else {**stated, "memory": component.memory.written()}


def _entry(component: Component) -> dict[str, Any]:
    """Return an entry of ``component_placement``. Raises ``ValueError`` if there is none for a component."""
    labels: tuple[str, ...] = component.node_groups
    rule: Rule | None = component.rule
    pool = component.inventory.pool(labels)
    if component.by_node and not pool.by_node:
        # The group counts accelerators, the component nodes: it is stated by the ranks of all nodes.
        labels = (NODE,)
        rule = None
        pool = component.inventory.pool(labels)
    resources = pool.ranks_of(component.rows)
    if resources != sorted(map(sorted, resources)):
        raise ValueError("its processes do not use their resources in ascending order")
    entry: dict[str, Any] = {**_node_group(labels), "placement": _text(rule, resources)}
    if component.parallel.stated or component.parallel.order != NO_SIZES.order:
        entry["parallel"] = component.parallel.plain()
    return entry | _settings(component)


def _text(rule: Rule | None, resources: list[list[int]]) -> str:
    """Return the shortest text of a rule with these resources of its processes; that of a map keeps its segments."""
    if isinstance(rule, RankMap):
        text = _joined(rule, ranges=1)
        with suppress(PlacementError):
            if RankMap.parse(text) == rule:
                return text
    return _joined(RankMap.parse(merged(RankMap.from_lists(resources))), ranges=len(resources))


def _joined(rank_map: RankMap, ranges: int) -> str:
    """Return the text of a map, without the processes of segments with one each and at most so many ranges."""
    texts = []
    for resources, ranks in rank_map.segments:
        is_clear = len(resources) == len(ranks) and len(resources.ranges) <= ranges
        texts.append(str(resources) if is_clear else f"{resources}:{ranks}")
    return ",".join(texts)


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

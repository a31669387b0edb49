"""Plans as configs of prime-rl: the GPUs of the servers and of the trainer on one node, or the nodes of both.

prime-rl decides where they are by their numbers alone, so that the reader of this dialect tells whether a plan has the
places that its config gives (`rankplan convert` plans it again). The config has no model and no environments of its
own: sources get the names of their servers.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from rankplan import Component, Inventory, Plan
from rankplan.trainers.prime_rl import keys

_SERVERS = ("inference", "prefill", "decode")
_NAMES = (*_SERVERS, "trainer", "orchestrator", "env", "router")

Values = dict[str, Any]


def written(planned: Plan) -> tuple[Values, dict[str, str]]:
    """Return a config for the components that prime-rl can express, and why it cannot express the others."""
    reasons: dict[str, str] = {}
    for name, component in planned.items():
        reason = _reason(name, component)
        if reason is not None:
            reasons[name] = reason
    components = {name: component for name, component in planned.items() if name not in reasons}
    if "trainer" not in components:
        return {}, reasons | dict.fromkeys(components, "prime-rl has no job without its trainer")
    return _config(components, planned.inventory), reasons


def _reason(name: str, component: Component) -> str | None:
    """Return why prime-rl cannot express a component wherever it is, ``None`` if it may."""
    if name not in _NAMES:
        return f"prime-rl only has {', '.join(_NAMES[:-1])} and {_NAMES[-1]}"
    sizes = {row.num_accelerators for row in component}
    if name in _SERVERS and (len(sizes) > 1 or 0 in sizes):
        return "its processes have different numbers of accelerators"
    if name == "trainer" and sizes != {1}:
        return "its processes do not have one accelerator each"
    if name not in (*_SERVERS, "trainer") and sizes != {0}:
        return "it has accelerators, and prime-rl gives it none"
    return None


def _config(components: dict[str, Component], inventory: Inventory) -> Values:
    """Return the config of these components. Sections that prime-rl demands are there, even if they are empty."""
    used = {row.cluster_node_rank for name in (*_SERVERS, "trainer") for row in components.get(name, ())}
    per_node = max(spec.num_accelerators for _, spec in inventory.stretches())
    config: Values = {"deployment": {}}
    if len(used) > 1:
        config |= {"deployment": _deployment_of_nodes(components, per_node), "slurm": {}}
    else:
        config["deployment"] = _deployment_of_node(components)
    if per_node != keys.GPUS_PER_NODE.default:
        config["deployment"][keys.GPUS_PER_NODE.name] = per_node
    config["trainer"] = _trainer(components["trainer"])
    sources = [_source(number) for number in range(len(components.get("env", ())))]
    config["orchestrator"] = {"train": {"source": sources}} if sources else {}
    if any(name in components for name in _SERVERS):
        config["inference"] = _inference(components, per_node)
    elif len(used) > 1:
        config["trainer"]["data"] = {"fake": {}}  # without servers, nothing else trains
    return config


def _source(number: int) -> Values:
    name = f"environment_{number}"
    return {"name": name, "env": {"taskset": {"id": name}}}


def _deployment_of_node(components: dict[str, Component]) -> Values:
    servers = components.get("inference", ())
    return {
        keys.TRAIN_GPUS.name: len(components["trainer"]),
        keys.INFER_GPUS.name: sum(row.num_accelerators for row in servers),
    }


def _deployment_of_nodes(components: dict[str, Component], per_node: int) -> Values:
    """Return the nodes of the trainer and of the servers, whose replicas are groups that share experts."""
    deployment: Values = {"type": keys.MULTI_NODE, keys.TRAIN_NODES.name: len(_nodes(components["trainer"]))}
    if "inference" in components:
        servers = components["inference"]
        nodes = len(_nodes(servers))
        each = _nodes_together(servers, per_node)
        replicas = max(nodes // each, 1) if each and _shares_experts(servers) else 1
        deployment |= {keys.INFER_NODES.name: nodes // replicas, keys.INFER_REPLICAS.name: replicas}
    elif "prefill" in components:
        deployment[keys.INFER_REPLICAS.name] = _runs(components["prefill"])
    serving = [node for name in _SERVERS for node in _nodes(components.get(name, ()))]
    orchestrator = components.get("orchestrator")
    if orchestrator is not None and serving and orchestrator[0].cluster_node_rank == max(serving):
        deployment[keys.ORCHESTRATOR_ON_INFERENCE.name] = True
    return {name: value for name, value in deployment.items() if name != keys.INFER_REPLICAS.name or value > 1}


def _inference(components: dict[str, Component], per_node: int) -> Values:
    """Return the sizes of the servers; those that prefill or decode have nodes of their own."""
    servers = next(components[name] for name in _SERVERS if name in components)
    is_on_one_node = len(_nodes(servers)) == 1 and _nodes(servers) == _nodes(components["trainer"])
    tensor = servers.parallel.tp if is_on_one_node else servers[0].num_accelerators
    vllm: Values = {keys.TENSOR.name: tensor}
    if "inference" not in components:
        return {"vllm": vllm, "deployment": _disaggregated(components, per_node)}
    if _shares_experts(servers):
        vllm |= {keys.EXPERT_PARALLEL.name: True, keys.DATA.name: servers.parallel.ep // tensor}
    return {"vllm": vllm}


def _disaggregated(components: dict[str, Component], per_node: int) -> Values:
    """Return the nodes of each replica with servers that prefill, and of those that decode."""
    deployment: Values = {"type": keys.DISAGGREGATED}
    for name, nodes, groups in (
        ("prefill", keys.PREFILL_NODES, keys.PREFILL_REPLICAS),
        ("decode", keys.DECODE_NODES, keys.DECODE_REPLICAS),
    ):
        servers = components.get(name)
        if servers is not None:
            together = max(_nodes_together(servers, per_node), 1)
            in_replica = len(_nodes(servers)) // _runs(servers)
            deployment |= {nodes.name: together, groups.name: max(in_replica // together, 1)}
    return deployment


def _trainer(trainer: Component) -> Values:
    sizes = trainer.parallel
    if not sizes.stated:
        return {}
    shards = max(sizes.fsdp, 1) * sizes.cp
    model: Values = {keys.CONTEXT.name: sizes.cp, keys.EXPERT.name: sizes.ep}
    if shards > sizes.cp and len(trainer) % shards == 0:
        model[keys.REPLICATE.name] = len(trainer) // shards
    return {"model": model}


def _shares_experts(servers: Component) -> bool:
    return servers.parallel.ep > 1


def _nodes_together(servers: Component, per_node: int) -> int:
    """Return how many nodes have servers that share experts."""
    return servers.parallel.ep // per_node


def _nodes(component: Component | tuple[()]) -> list[int]:
    return list(dict.fromkeys(row.cluster_node_rank for row in component))


def _runs(component: Component) -> int:
    """Return the number of runs of consecutive nodes."""
    nodes = enumerate(_nodes(component))
    return len([key for key, _ in groupby(nodes, key=lambda pair: pair[1] - pair[0])])

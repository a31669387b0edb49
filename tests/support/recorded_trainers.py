"""The questions of ``golden/trainer_requests.jsonl.gz``: a recorded line's config and cluster."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankplan import Inventory
from rankplan.nodes.ordered import reordered
from rankplan.plans.requests import NodeOrder

from support.configs import from_overrides

_APART = {"fully_async": "fully_async_ppo_trainer", "one_step_off": "one_step_off_ppo_trainer"}


def config(line: dict[str, Any], folder: Path) -> Any:
    """The config of a recorded question."""
    trainer, asked = line["trainer"], line["question"]
    if trainer == "openrlhf":
        (path := folder / "train.sh").write_text(
            f"python3 -m openrlhf.cli.train_ppo_ray {shlex.join(asked['flags'])}\n"
        )
        return path
    if trainer in ("verl", "skyrl"):
        name = _APART.get(asked.get("entry", ""))
        return from_overrides([*([f"hydra.job.config_name={name}"] if name else []), *asked["overrides"]])
    if trainer == "slime":
        return asked["flags"]
    if trainer == "roll":
        return {"num_gpus_per_node": asked["per_node"], "num_nodes": asked["num_nodes"]} | {
            name: {"device_mapping": devices, **_worker(each)} for name, (devices, each) in asked["roles"].items()
        }
    return _areal(asked) if trainer == "areal" else _nemo_rl(asked)


def _worker(each: int) -> dict[str, Any]:
    """ROLL: the keys of a worker with several accelerators."""
    vllm = {"strategy_name": "vllm", "strategy_config": {"tensor_parallel_size": each}}
    return {"strategy_args": vllm} if each > 1 else {}


def _areal(asked: dict[str, Any]) -> dict[str, Any]:
    training, tensor = asked["actor"] // asked["train_tp"], asked["train_tp"]
    engines = {
        "rollout": {"backend": f"sglang:d{asked['rollout']}t{asked['tp']}"},
        "actor": {"backend": f"megatron:d{training}t{tensor}"},
    }
    if asked["ref"]:
        engines["ref"] = {"backend": f"megatron:d{asked['ref'] // tensor}t{tensor}"}
    if asked["deferred"]:
        engines["rollout"]["scheduling_spec"] = [{"gpu": 1, "ray_placement_strategy": "deferred"}]
    nodes = asked["actor"] + asked["rollout"] * asked["tp"] + (asked["ref"] or 0)
    each = asked["per_node"]
    return {"cluster": {"n_nodes": -(-nodes // each), "n_gpus_per_node": each}, **engines}


def _nemo_rl(asked: dict[str, Any]) -> dict[str, Any]:
    resources = {"num_nodes": asked["inference"], "gpus_per_node": asked["per_node"]}
    apart = {"enabled": not asked["inference"], "resources": resources if asked["inference"] else {}}
    generation = {
        "backend": "vllm",
        "vllm_cfg": {"tensor_parallel_size": asked["tp"]},
        "colocated": apart,
    }
    policy = {
        "generation": generation,
        "megatron_cfg": {"enabled": True, "tensor_model_parallel_size": asked["train_tp"]},
    }
    found: dict[str, Any] = {"cluster": {"num_nodes": asked["num_nodes"], "gpus_per_node": asked["per_node"]}}
    found |= {"grpo": {}, "policy": policy}
    if asked["reward"]:
        reward = {"enabled": True, "resources": {"num_nodes": asked["reward"], "gpus_per_node": asked["per_node"]}}
        found["env"] = {"reward_model": reward}
    return found


def in_order(inventory: Inventory, order: NodeOrder, node_ids: Sequence[str] = ()) -> Inventory:
    """The nodes in an order of trainers; as they are if what it sorts by is unknown. ``node_ids`` are Ray's."""
    ranks = inventory.core.other_order(order, node_ids)
    return inventory if ranks is None else reordered(inventory, ranks)


def cluster(line: dict[str, Any]) -> Inventory:
    """The recorded nodes in the order of their addresses, without the accelerators of other jobs."""
    content = [
        {"ranks": rank, "ip": ip, "accelerators": gpus, "cpus": cpus}
        for rank, (ip, gpus, cpus) in enumerate(line["cluster"]["joined"])
    ]
    found = in_order(Inventory.from_dict({"nodes": content}), "number")
    return found.without([f"{address}/{gpu}" for address, gpus in line["cluster"]["held"] for gpu in gpus])

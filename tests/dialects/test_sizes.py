"""Parallel sizes in the keys of ROLL, slime and RLinf, and their faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rankplan import Inventory, Parallel, PlacementError, load_config
from rankplan.dialects import dialect_of
from rankplan.rlinf.dialect import DIALECT as rlinf
from rankplan.trainers.roll.dialect import DIALECT as roll
from rankplan.trainers.slime.dialect import DIALECT as slime


def role(strategy: str, sizes: dict[str, Any], per_worker: int = 1) -> dict[str, Any]:
    arguments = {"strategy_name": strategy, "strategy_config": sizes}
    return {"device_mapping": "list(range(0,16))", "num_gpus_per_worker": per_worker, "strategy_args": arguments}


MEGATRON = {
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 2,
    "context_parallel_size": 2,
    "expert_model_parallel_size": 4,
}
TRAINED = Parallel(tp=2, cp=2, pp=2, ep=4, etp=2)

SIZED_ROLES = [
    (role("megatron_train", MEGATRON), TRAINED),
    (role("megatron_infer", MEGATRON | {"expert_tensor_parallel_size": 1}), replace(TRAINED, etp=1)),
    (role("megatron_train", {"tensor_model_parallel_size": 4, "sequence_parallel": True}), Parallel(tp=4)),
    (role("deepspeed_train", {"zero_optimization": {"stage": 3}}), Parallel()),
    (role("vllm", {"tensor_parallel_size": 4}), Parallel(tp=4, order=Parallel.ENGINE_ORDER)),
    (
        role("vllm", {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}),
        Parallel(tp=4, pp=2, order=Parallel.ENGINE_ORDER),
    ),
    (role("sglang", {"tp_size": 2, "pp_size": 2}, per_worker=4), Parallel(tp=2, pp=2, order=Parallel.ENGINE_ORDER)),
    (role("sglang", {"tensor_parallel_size": 4}, per_worker=4), Parallel(tp=4, order=Parallel.ENGINE_ORDER)),
    ({"device_mapping": "list(range(0,16))"}, Parallel()),
    ({"world_size": 4}, Parallel()),
]


@pytest.mark.parametrize(("config", "sizes"), SIZED_ROLES, ids=str)
def test_sizes_of_a_roll_role(config: dict[str, Any], sizes: Parallel) -> None:
    assert roll.plan({"a": config}, Inventory.uniform(2, 8))["a"].parallel == sizes


SIZED_FLAGS: list[tuple[dict[str, Any], dict[str, Parallel]]] = [
    ({**MEGATRON, "actor_num_nodes": 2, "debug_train_only": True}, {"actor": TRAINED}),
    (
        {
            "actor_num_nodes": 1,
            "tensor-model-parallel-size": 4,
            "rollout_num_gpus": 8,
            "rollout_num_gpus_per_engine": 4,
        },
        {"actor": Parallel(tp=4), "rollout": Parallel(tp=4, order=Parallel.ENGINE_ORDER)},
    ),
    (
        {"actor_num_nodes": 2, "colocate": True, "rollout_num_gpus_per_engine": 16, "sglang_pipeline_parallel_size": 2},
        {"actor": Parallel(), "rollout": Parallel(tp=8, pp=2, order=Parallel.ENGINE_ORDER)},
    ),
    (
        {"actor_num_nodes": 1, "colocate": True, "rollout_num_gpus_per_engine": 8, "sglang_ep_size": 4},
        {"actor": Parallel(), "rollout": Parallel(tp=8, ep=4, etp=2, order=Parallel.ENGINE_ORDER)},
    ),
    (
        {"actor_num_nodes": 1, "use_critic": True, "colocate": True, "tensor_model_parallel_size": 2},
        {"actor": Parallel(tp=2), "critic": Parallel(tp=2), "rollout": Parallel(order=Parallel.ENGINE_ORDER)},
    ),
]


@pytest.mark.parametrize(("flags", "sizes"), SIZED_FLAGS, ids=str)
def test_sizes_of_slimes_flags(flags: dict[str, Any], sizes: dict[str, Parallel]) -> None:
    plan = slime.plan(flags, Inventory.uniform(2, 8))
    assert {name: component.parallel for name, component in plan.items()} == sizes


TRAINING = {"model": {"tensor_model_parallel_size": 4, "expert_model_parallel_size": 2, "micro_batch_size": 3}}

SIZED_SECTIONS: list[tuple[dict[str, Any], dict[str, Parallel]]] = [
    ({"actor": TRAINING}, {"actor": Parallel(tp=4, ep=2, etp=4), "env": Parallel()}),
    ({"actor": {"model": {"context_parallel_size": 2}}}, {"actor": Parallel(cp=2), "env": Parallel()}),
    ({"actor": {"model": {"tensor_model_parallel_size": 1}}}, {"actor": Parallel(), "env": Parallel()}),
    ({"actor": "${actor}", "env": {"model": "resnet"}}, {"actor": Parallel(), "env": Parallel()}),
    ({"env": {"tensor_parallel_size": 2}}, {"actor": Parallel(), "env": Parallel(tp=2, order=Parallel.ENGINE_ORDER)}),
    ({}, {"actor": Parallel(), "env": Parallel()}),
]


@pytest.mark.parametrize(("sections", "sizes"), SIZED_SECTIONS, ids=str)
def test_sizes_of_the_sections_of_a_plain_config(sections: dict[str, Any], sizes: dict[str, Parallel]) -> None:
    config = {"cluster": {"num_nodes": 1, "component_placement": {"actor,env": "0-7"}}, **sections}
    plan = rlinf.plan(config, Inventory.uniform(1, 8))
    assert {name: component.parallel for name, component in plan.items()} == sizes


REFUSED_ELSEWHERE = [
    (
        "cluster: {num_nodes: 1, component_placement: {actor: 0-5}}\nactor:\n  model:\n"
        "    tensor_model_parallel_size: 4\n",
        "3:3 parallel-not-divisible: 6 processes are not a multiple of tp 4",
        "use 4 or 8 processes, or tp 3 or 6",
    ),
    (
        "cluster: {num_nodes: 1, component_placement: {actor: 0-5}}\nactor:\n  model:\n"
        "    tensor_model_parallel_size: ${tp}\n",
        "4:33 invalid-value: `tensor_model_parallel_size` is '${tp}'; it must be a whole number of 1 or more",
        "write the value, or pass the config after Hydra has resolved it",
    ),
    # file, place: code: message, help
    (
        "cluster:\n  num_nodes: 2\n  component_placement: {actor: '0-5:0-2', rollout: 8-13}\nactor:\n"
        "  model: {tensor_model_parallel_size: 3}\nrollout: {tensor_parallel_size: 3}\n",
        "5:3 parallel-idle: a group of tp 3 does not fill processes of 2 devices; 1 is idle",
        "use tp 2 or 4, or 1 or 3 devices per process",
    ),
    (
        "a:\n  device_mapping: list(range(0,12))\n  strategy_args:\n    strategy_name: megatron_train\n"
        "    strategy_config: {tensor_model_parallel_size: 8}\n",
        "5:51 parallel-not-divisible: 12 processes are not a multiple of tp 8",
        "use 8 or 16 processes, or tp 6 or 12",
    ),
    (
        "a:\n  device_mapping: list(range(0,8))\n  strategy_args:\n    strategy_name: megatron_train\n"
        "    strategy_config:\n      tensor_model_parallel_size: ${tp}\n",
        "6:35 invalid-value: `tensor_model_parallel_size` is '${tp}'; it must be a whole number of 1 or more",
        "write the value, or pass the config after Hydra has resolved it",
    ),
    (
        "a:\n  device_mapping: list(range(0,8))\n  num_gpus_per_worker: 4\n  strategy_args:\n"
        "    strategy_name: sglang\n    strategy_config: {tp_size: 3}\n",
        "6:32 parallel-idle: a process of 4 devices holds 1 group of tp 3; 1 is idle",
        "use tp 2 or 4, or 3 or 6 devices per process",
    ),
    (
        "actor_num_nodes: 1\nuse_critic: true\ncolocate: true\ntensor_model_parallel_size: 3\n",
        "4:29 parallel-not-divisible: 8 processes are not a multiple of tp 3",
        "use 6 or 9 processes, or tp 2 or 4",
    ),
    (
        "actor_num_nodes: 1\ndebug_train_only: true\ncontext_parallel_size: 0\n",
        "3:24 invalid-value: `context_parallel_size` is 0; it must be a whole number of 1 or more",
        "write a number such as 1",
    ),
    (
        "actor_num_nodes: 1\ncolocate: true\nrollout_num_gpus_per_engine: 4\nsglang_pp_size: 3\n",
        "4:17 parallel-not-divisible: an engine of 4 GPUs cannot be divided into 3 pipeline stages",
        "use 1, 2 or 4",
    ),
    (
        "actor_num_nodes: 1\ncolocate: true\nrollout_num_gpus_per_engine: 4\nsglang_expert_parallel_size: 8\n",
        "4:30 parallel-not-divisible: an engine of 4 GPUs cannot be divided into 8 expert groups",
        "use 1, 2 or 4",
    ),
]


@pytest.mark.parametrize(("text", "message", "help"), REFUSED_ELSEWHERE, ids=lambda text: text[:30])
def test_faults_of_sizes_in_other_dialects(text: str, message: str, help: str, tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(text)
    config = load_config(path)
    with pytest.raises(PlacementError) as refused:
        dialect_of(config).plan(config, Inventory.uniform(2, 8))
    (found,) = refused.value.diagnostics
    assert (f"{found.line}:{found.column} {found.code}: {found.message}", found.help) == (message, help)

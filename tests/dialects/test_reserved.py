"""The CPUs and the memory that trainers ask Ray for, with their groups and with actors outside them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from rankplan import Actors, Inventory, Plan, plan
from support.configs import from_overrides
from support.recorded_trainers import in_order


def asked(found: Plan) -> set[tuple[str, int, float | None, int | None]]:
    """Component, accelerators, CPUs and MiB of each bundle."""
    return {
        (one.component, size, cpus, memory)
        for one in found.requests
        if not one.optional
        for size, cpus, memory in zip(one.accelerators, one.cpus, one.memory, strict=True)
    }


SLIME = {"actor_num_nodes": 1, "actor_num_gpus_per_node": 4, "rollout_num_gpus": 4, "rollout_num_gpus_per_engine": 2}
VERL = ["trainer.nnodes=1", "trainer.n_gpus_per_node=8"]


def test_slime_holds_two_cpus_beside_its_group() -> None:
    """slime 624b824: `ray/placement_group.py:47-48, 230-237`, `ray/rollout.py:403-405`."""
    found = plan(SLIME, "1x8", dialect="slime")
    assert asked(found) == {("actor", 1, 1, None)}
    assert found.actors == (Actors("rollout manager", cpus=1), Actors("engine lock", cpus=1))


@pytest.mark.parametrize(
    ("entry", "more", "expected"),
    [
        ("", [], []),
        ("fully_async_ppo_trainer", ["rollout.nnodes=1", "rollout.n_gpus_per_node=8"], [1, 10, 10, 2]),
        ("one_step_off_ppo_trainer", ["rollout.nnodes=1", "rollout.n_gpus_per_node=8"], [10]),
        ("", ["reward.reward_manager.name=remote"], [64]),
        ("", ["reward.reward_manager.name=remote", "reward.num_workers=2"], [4]),
        ("", ["reward.reward_manager.name=naive"], []),
        ("", ["reward_model.reward_manager=remote"], [1]),
        ("", ["reward_model.reward_manager=remote", "reward_model.num_workers=2"], [4]),
    ],
)
def test_verl_has_three_cpus_an_accelerator_and_two_for_standalone_engines(
    entry: str, more: list[str], expected: list[int]
) -> None:
    """verl 1dda039: `single_controller/ray/base.py:146-158`, `workers/rollout/replica.py:199-206`; the actors of
    `fully_async_main.py:35`, `fully_async_rollouter.py:329`, `fully_async_trainer.py:53`, `message_queue.py:26`,
    `one_step_off_policy/main_ppo.py:33`, `reward_manager/remote.py:26, 57-69`."""
    names = [f"hydra.job.config_name={entry}"] if entry else []
    found = plan(from_overrides([*names, *VERL, *more]), "2x8", dialect="verl")
    engines = {("rollout", 1, 2.0, None)} if entry else set()
    sizes = {(name, 1, cpus, None) for name, _, cpus, _ in asked(found)}
    assert sizes == {("actor", 1, 3.0, None)} | engines
    assert [int((one.cpus or 0) * one.count) for one in found.actors] == expected


def test_areal_asks_for_its_scheduling_spec_with_each_gpu() -> None:
    """AReaL 4aef98d: `api/cli_args.py:958-970`, `infra/utils/ray_placement_group.py:153-154, 182-199`."""
    spec = {"cpu": 4, "mem": 10, "gpu": 1}
    config: dict[str, Any] = {
        "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
        "rollout": {"backend": "sglang:d2t4"},
        "actor": {"backend": "fsdp:d8", "scheduling_spec": [spec]},
        "ref": {"backend": "fsdp:d2", "scheduling_spec": [{"gpu": 0, "cpu": 6}]},
    }
    found = plan(config, "2x8", dialect="areal")
    assert asked(found) == {("rollout", 4, 32, 128 << 10), ("actor", 1, 4, 10 << 10)}
    assert found.actors == (Actors("ref", 2, cpus=6, memory=32 << 10),)


@pytest.mark.parametrize(
    ("scheduler", "spec"), [("ray", {"cpu": -4, "mem": -1}), ("ray", {"cpu": 1e30, "mem": 1e30}), ("local", {"cpu": 4})]
)
def test_amounts_of_areal_that_ray_is_not_asked_for_are_unknown(scheduler: str, spec: dict[str, float]) -> None:
    """Its local scheduler starts processes without Ray."""
    actor = {"backend": "fsdp:d8", "scheduling_spec": [spec]}
    found = plan({"scheduler": {"type": scheduler}, "actor": actor}, "2x8", dialect="areal")
    assert asked(found) == {("actor", 1, None, None)}


def test_deferred_groups_of_areal_divide_their_amounts() -> None:
    """AReaL 4aef98d: `ray_placement_group.py:38-69`."""
    deferred = {"gpu": 1, "ray_placement_strategy": "deferred"}
    config = {
        "cluster": {"n_nodes": 2, "n_gpus_per_node": 4},
        "rollout": {"backend": "sglang:d1t6", "scheduling_spec": [deferred]},
        "actor": {"backend": "fsdp:d2"},
    }
    found = plan(config, "2x4", dialect="areal")
    assert {one for one in asked(found) if one[0] == "rollout"} == {
        ("rollout", 4, 32, 128 << 10),
        ("rollout", 2, 16, 64 << 10),
    }


GENERATION = {"backend": "vllm", "vllm_cfg": {"tensor_parallel_size": 1}, "colocated": {"enabled": True}}


@pytest.mark.parametrize(
    ("algorithm", "generation", "cpus"),
    [
        ("grpo", GENERATION, 2),
        ("grpo", {**GENERATION, "backend": "megatron"}, 1),
        ("ppo", GENERATION, 3),
        ("distillation", GENERATION, 3),
        ("sft", {}, 1),
    ],
)
def test_nemo_rl_has_a_cpu_for_each_worker_group(algorithm: str, generation: dict[str, Any], cpus: int) -> None:
    """NeMo-RL 7ea279a: `distributed/virtual_cluster.py:906-937`, `grpo.py:834, 1030, 1053`, `ppo.py:540`,
    `distillation.py:444`, `utils/venvs.py:163-191`."""
    config = {
        "cluster": {"num_nodes": 2, "gpus_per_node": 8},
        algorithm: {},
        "policy": {"megatron_cfg": {"enabled": True}, **({"generation": generation} if generation else {})},
        **({"value": {"megatron_cfg": {"enabled": True}}} if algorithm == "ppo" else {}),
    }
    found = plan(config, "2x8", dialect="nemo_rl")
    assert asked(found) == {("policy", 1, cpus, None)}
    assert found.actors == (Actors("builder of environments", cpus=1, each_node=True, brief=True),)


def roll(nodes: int) -> dict[str, Any]:
    return {"num_gpus_per_node": 8, "num_nodes": nodes, "actor_train": {"device_mapping": f"list(range({8 * nodes}))"}}


ENGINES = {"num_gpus_per_node": 8, "num_nodes": 2, "engine": {"device_mapping": "list(range(16))"}}


def cluster(*cpus: float | None, ranks: bool = False) -> Inventory:
    """Nodes of 8 accelerators; with ``ranks``, they state their ranks for ROLL."""
    nodes = []
    for rank, number in enumerate(cpus):
        labels = {"labels": {"NODE_RANK": str(rank + 1)}} if ranks else {}
        nodes.append({"ranks": rank, "accelerators": 8, "ip": f"10.0.0.{rank}", "cpus": number, **labels})
    return Inventory.from_dict({"nodes": nodes})


def bundles(inventory: Inventory, config: dict[str, Any]) -> list[tuple[str | None, float | None]]:
    """The address and the CPUs of each bundle of a pinned plan, in the order in which ROLL asks for them."""
    found = plan(config, inventory, dialect="roll", pinned=True)
    return [(found.inventory.node(one.nodes[0]).ip, one.cpus[0]) for one in found.requests]


def test_roll_sorts_nodes_by_cpus_and_asks_for_half_of_each() -> None:
    """ROLL 8eb27cc: `scheduler/resource_manager.py:28, 40-49`."""
    assert bundles(cluster(200, 16, 100), roll(2)) == [("10.0.0.1", 8), ("10.0.0.2", 50)]
    assert bundles(cluster(7, 1), ENGINES) == [("10.0.0.1", 1), ("10.0.0.0", 3.5)]
    assert bundles(cluster(200, None, 100), roll(2)) == [("10.0.0.0", 100), ("10.0.0.1", None)]


def test_ranks_of_nodes_decide_where_rolls_roles_are_but_not_what_it_asks_for_first() -> None:
    inventory = cluster(200, 16, 100, ranks=True)
    assert bundles(inventory, roll(3)) == [("10.0.0.1", 8), ("10.0.0.2", 50), ("10.0.0.0", 100)]
    found = plan(roll(3), in_order(inventory, "rank-cpus"), dialect="roll", pinned=True)
    assert [one.ip for _, one in found.inventory.stretches()] == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]


def test_equal_nodes_keep_their_order() -> None:
    found = [ip for ip, _ in bundles(cluster(64, 64, 64), roll(3))]
    assert all(one < other for one, other in pairwise(map(str, found)))

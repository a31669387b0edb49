"""OpenRLHF's and SkyRL's ways in: sizes of models and engines, alone and together, and their own answers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from rankplan import Inventory, PlacementError, Plan, load_config
from rankplan.dialects import openrlhf, skyrl
from support.configs import from_overrides, nodes
from support.goldens import lines, named

NAMES = {
    "PolicyModelActor": "actor",
    "ReferenceModelActor": "ref",
    "CriticModelActor": "critic",
    "RewardModelActor": "reward",
}
FLAGS = [line for line in lines("openrlhf_sizes") if line["kind"] == "flags"]
OVERRIDES = [line for line in lines("skyrl_sizes") if line["kind"] == "overrides"]


def same(plan: Plan, answer: dict[str, Any], names: dict[str, str], engine: str) -> None:
    """Compare a plan with recorded groups and engines; nodes only where placement groups fix them all."""
    groups = answer["groups"]
    assert {name: (len(one), one.share) for name, one in plan.items() if name != engine} == {
        names.get(one["role"], one["role"].lower()): (one["world"], one["share"]) for one in groups
    }
    place = [one["nodes"] for one in answer["pgs"]]
    if all(one["pg"] is not None for one in groups):
        for one in groups:
            rows = plan[names.get(one["role"], one["role"].lower())]
            assert [row.cluster_node_rank for row in rows] == [place[one["pg"]][bundle] for bundle in one["bundles"]]
    engines = answer.get("engines", answer.get("servers"))
    found = [[node for node, _ in row.devices] for row in plan.get(engine) or ()]
    assert found == [[place[one["pg"]][bundle] for bundle in one["bundles"] or [one["bundle"]]] for one in engines]


@pytest.mark.parametrize("line", FLAGS, ids=[line["id"] for line in FLAGS])
def test_openrlhf_answers_the_same(line: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(f"python3 -m openrlhf.cli.train_ppo_ray {shlex.join(line['flags'])}\n")
    answer = line["result"]
    try:
        plan = openrlhf.plan(path, nodes(line["nodes"]))
    except PlacementError as error:
        if "error" not in answer:
            assert {one.code for one in error.diagnostics} == {"parallel-not-divisible"}
            named("openrlhf-undivided-sizes")
        return
    if "error" in answer:
        assert "packing_samples" in answer["error"]["message"]
        named("unrelated-options")
        return
    same(plan, answer, NAMES, "vllm")


@pytest.mark.parametrize("line", OVERRIDES, ids=[line["id"] for line in OVERRIDES])
def test_skyrl_answers_the_same(line: dict[str, Any]) -> None:
    answer = line["result"]
    refused = "error" in answer or answer.get("validate") != "ok"
    try:
        plan = skyrl.plan(from_overrides(line["overrides"]), nodes(line["nodes"]))
    except PlacementError:
        assert refused
        return
    if refused:
        message = (answer.get("error") or answer["validate"])["message"]
        named("skyrl-plus" if "'+' prefix" in message else "unrelated-options")
        assert any(part in message for part in ("'+' prefix", "estimator", "batch_size", "GRPO", "num_prefill"))
        return
    same(plan, answer, {}, "generator")


BASE = ["actor.num_nodes=1", "actor.num_gpus_per_node=8", "ref.num_nodes=1", "ref.num_gpus_per_node=8"]
BASE += ["algo.advantage.estimator=rloo", "vllm.num_engines=4", "vllm.tensor_parallel_size=2"]

# Words after those of BASE, on 2 nodes of 8, and the fault.
REFUSED = [
    (
        ["train.colocate_all=true", "vllm.num_engines=2"],
        "vllm.num_engines invalid-value: colocate_all: the actor has 8 GPUs, but 2 engines of 2 have 4",
    ),
    (
        ["train.colocate_actor_ref=true", "ref.num_gpus_per_node=4"],
        "ref.num_nodes invalid-value: ref shares the GPUs of actor, but has 1 x 4 GPUs instead of 1 x 8",
    ),
    (
        ["vllm.num_engines=16"],
        "vllm resource-out-of-range: vllm needs 32 accelerators, more than what is left of the cluster: 16",
    ),
    (["actor.num_node=2"], "actor.num_node unknown-key: unknown key `num_node`"),
    (
        ["actor.num_nodes=x"],
        "actor.num_nodes invalid-value: `num_nodes` is 'x'; it must be a whole number of 1 or more",
    ),
]


@pytest.mark.parametrize(("words", "expected"), REFUSED, ids=[words[-1] for words, _ in REFUSED])
def test_faults_have_openrlhfs_keys(words: list[str], expected: str) -> None:
    with pytest.raises(PlacementError) as caught:
        openrlhf.plan(from_overrides([*BASE, *words]), Inventory.uniform(2, 8))
    assert expected in [f"{one.path} {one.code}: {one.message}" for one in caught.value.diagnostics]
    assert all(one.help and one.column for one in caught.value.diagnostics)


def test_faults_of_flags_are_in_the_script(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(
        "ENGINES=x\npython -m openrlhf.cli.train_ppo_ray \\\n   --vllm.num_engines $ENGINES --actor.num_nodes 0\n"
    )
    with pytest.raises(PlacementError) as caught:
        openrlhf.plan(load_config(path), Inventory.uniform(2, 8))
    assert [(one.line, one.column, one.path) for one in caught.value.diagnostics] == [
        (1, 9, "vllm.num_engines"),
        (3, 50, "actor.num_nodes"),
    ]


SKYRL = ["trainer.placement.policy_num_gpus_per_node=4", "trainer.placement.ref_num_gpus_per_node=4"]

SKYRL_REFUSED = [
    (
        ["generator.inference_engine.num_engines=2"],
        "generator.inference_engine.num_engines invalid-value: colocate_all: the policy has 4 GPUs, but the engines "
        "have 2 (2 engines x 1)",
    ),
    (
        ["generator.inference_engine.num_engines=4", "trainer.placement.ref_num_nodes=2"],
        "trainer.placement.ref_num_nodes invalid-value: ref shares the GPUs of the policy, but has 2 x 4 "
        "instead of 1 x 4",
    ),
    (
        [
            "trainer.placement.colocate_all=false",
            "trainer.placement.colocate_policy_ref=false",
            "trainer.placement.policy_num_nodes=3",
        ],
        "trainer.placement.policy_num_nodes resource-out-of-range: policy needs 3 nodes with 4 free accelerators each, "
        "but the cluster has 1 node with 8",
    ),
    (
        ["trainer.placement.reward_num_nodes=1"],
        "trainer.placement.reward_num_nodes unknown-key: unknown key `reward_num_nodes`",
    ),
]


@pytest.mark.parametrize(("words", "expected"), SKYRL_REFUSED, ids=[words[-1] for words, _ in SKYRL_REFUSED])
def test_faults_have_skyrls_keys(words: list[str], expected: str) -> None:
    with pytest.raises(PlacementError) as caught:
        skyrl.plan(from_overrides([*SKYRL, *words]), Inventory.uniform(1, 8))
    assert expected in [f"{one.path} {one.code}: {one.message}" for one in caught.value.diagnostics]
    assert all(one.help for one in caught.value.diagnostics)


def test_sizes_reach_the_plan() -> None:
    words = [*SKYRL, "trainer.strategy=megatron", "trainer.policy.megatron_config.tensor_model_parallel_size=2"]
    words += ["generator.inference_engine.tensor_parallel_size=2", "generator.inference_engine.data_parallel_size=2"]
    plan = skyrl.plan(from_overrides(words), Inventory.uniform(1, 8))
    assert [str(one.parallel) for one in plan.values()] == ["tp 2", "no sizes", "tp 2"]
    assert plan["generator"].engines == 2
    sizes = ["ds.tensor_parallel_size=2", "ds.ring_attn_size=2", "train.colocate_all=true"]
    actor = openrlhf.plan(from_overrides([*BASE, *sizes]), Inventory.uniform(2, 8))["actor"]
    assert (actor.parallel.tp, actor.parallel.cp, actor.share) == (2, 2, 0.2)

"""OpenRLHF's and SkyRL's ways in: sizes of models and engines, alone and together, and their own answers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, Plan, load_config
from rankplan import plan as planned
from rankplan.trainers.openrlhf.dialect import DIALECT as openrlhf
from rankplan.trainers.openrlhf.keys import KEYS as OPENRLHF
from rankplan.trainers.skyrl.dialect import DIALECT as skyrl
from support.configs import from_overrides, nodes
from support.goldens import VERDICTS, check_verdict, lines, named

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
        names = {"parallel-not-divisible": "openrlhf-undivided-sizes"}
        check_verdict(line["id"], [] if "error" in answer else [names[fault.code] for fault in error.diagnostics])
        return
    check_verdict(line["id"], ["unrelated-options"] if "error" in answer else [])
    if "error" in answer:
        assert "packing_samples" in answer["error"]["message"]
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
        check_verdict(line["id"], [])
        return
    message = (answer.get("error") or answer["validate"])["message"] if refused else ""
    names = ["skyrl-plus" if "'+' prefix" in message else "unrelated-options"]
    check_verdict(line["id"], names if refused else [])
    if refused:
        assert any(part in message for part in ("'+' prefix", "estimator", "batch_size", "GRPO", "num_prefill"))
        return
    same(plan, answer, {}, "generator")
    for one in answer["groups"]:
        if [row.local_rank for row in plan[one["role"].lower()]] != one["local_ranks"]:
            named("skyrl-local-rank")


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
        "ref.num_gpus_per_node invalid-value: ref shares the GPUs of actor, but has 1 x 4 GPUs instead of 1 x 8",
    ),
    (
        ["vllm.num_engines=16"],
        "vllm.num_engines resource-out-of-range: vllm needs 32 accelerators, more than what is left of the cluster: 16",
    ),
    (
        ["algo.advantage.estimator=gae", "train.colocate_critic_reward=true", "critic.num_gpus_per_node=4"],
        "critic.num_gpus_per_node invalid-value: reward shares the GPUs of critic, but has 1 x 8 GPUs instead of "
        "1 x 4; reward.num_gpus_per_node is OpenRLHF's default",
    ),
    (
        ["algo.advantage.estimator=gae", "train.colocate_all=true", "critic.num_nodes=2"],
        "critic.num_nodes resource-out-of-range: critic needs 16 accelerators, more than the actor's GPUs: 8",
    ),
    (
        ["algo.advantage.estimator=gae", "ref.num_gpus_per_node=2", "vllm.num_engines=1"],
        "critic.num_gpus_per_node resource-out-of-range: critic (critic.num_gpus_per_node is 8 by default) needs 8 "
        "accelerators, more than what is left of the cluster: 4",
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
    assert all(one.help and (one.column or "by default" in one.message) for one in caught.value.diagnostics)


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
        "generator.inference_engine.num_engines invalid-value: colocate_all, the default: the policy has 4 GPUs "
        "(policy_num_nodes 1 x policy_num_gpus_per_node 4), but the engines have 2 (2 engines x 1)",
    ),
    (
        ["generator.inference_engine.num_engines=4", "trainer.placement.ref_num_nodes=2"],
        "trainer.placement.ref_num_nodes invalid-value: ref shares the GPUs of policy, but has 2 x 4 GPUs instead of "
        "1 x 4; trainer.placement.policy_num_nodes is SkyRL's default",
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
        ["generator.inference_engine.num_engines=4", "generator.inference_engine.enable_pd=true"],
        "generator.inference_engine.num_prefill invalid-value: `num_prefill` is 0; it must be 1 or more, and less than "
        "num_engines, which is 4: the other engines decode",
    ),
    (
        [
            "trainer.placement.policy_num_nodes=2",
            "trainer.placement.policy_num_gpus_per_node=2",
            "generator.inference_engine.tensor_parallel_size=4",
            "generator.inference_engine.distributed_executor_backend=mp",
        ],
        "generator.inference_engine.tensor_parallel_size spans-nodes: an engine of 4 GPUs needs several nodes of 2 "
        "(policy_num_gpus_per_node), but the mp backend of vLLM starts it on one",
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


def test_skyrl_compares_gpus_and_not_nodes_where_everything_shares_them() -> None:
    words = ["trainer.placement.policy_num_nodes=2", "generator.inference_engine.num_engines=8"]
    words += ["trainer.placement.ref_num_gpus_per_node=8"]
    plan = skyrl.plan(from_overrides([*SKYRL, *words]), Inventory.uniform(2, 4))
    assert [row.devices for row in plan["policy"]] == [row.devices for row in plan["ref"]]


def test_engines_of_another_job_are_not_started() -> None:
    words = ["trainer.placement.colocate_all=false", "generator.inference_engine.external_proxy_url=http://h:1"]
    assert list(skyrl.plan(from_overrides([*SKYRL, *words]), Inventory.uniform(1, 8))) == ["policy", "ref"]


def test_engines_that_prefill_are_packed_by_themselves() -> None:
    words = ["trainer.placement.colocate_all=false", "trainer.algorithm.use_kl_loss=false"]
    words += [f"generator.inference_engine.{key}" for key in ("num_engines=3", "enable_pd=true", "num_prefill=2")]
    words += ["trainer.placement.policy_num_gpus_per_node=2"]
    plan = skyrl.plan(from_overrides(words), nodes([1, 2, 2]))
    assert [row.devices for row in plan["generator"]] == [[(1, 0)], [(1, 1)], [(0, 0)]]
    assert [row.devices for row in plan["policy"]] == [[(2, 0)], [(2, 1)]]


MODEL = st.tuples(st.integers(1, 2), st.integers(1, 3))


@given(st.tuples(MODEL, MODEL, MODEL, MODEL), st.tuples(*[st.booleans()] * 7), st.integers(0, 6))
@example(((1, 2), (1, 2), (1, 1), (1, 2)), (False, True, True, True, False, False, False), 2)
def test_openrlhf_shares_gpus_as_its_program_does(
    sizes: tuple[tuple[int, int], ...], switches: tuple[bool, ...], engines: int
) -> None:
    """OpenRLHF: ``train``, retyped. Whatever it starts has a plan, and each fault is there once."""
    names = ("actor", "ref", "critic", "reward")
    everything, kl, gae, rewarded, actor_ref, critic_reward, asynchronous = switches
    config: dict[str, Any] = {
        name: {"num_nodes": n, "num_gpus_per_node": g} for name, (n, g) in zip(names, sizes, strict=True)
    }
    if not rewarded:
        config["reward"]["remote_url"] = "R"
    elif kl:  # the reward model's group is made whether a model is named or not
        config["reward"]["model_name_or_path"] = "R"
    config["vllm"] = {"num_engines": engines}
    config["train"] = {"colocate_all": everything, "async_enable": asynchronous}
    config["train"] |= {"colocate_actor_ref": actor_ref, "colocate_critic_reward": critic_reward}
    config["algo"] = {
        "kl": {"init_coef": 0.01 if kl else -0.01 * gae},
        "advantage": {"estimator": "gae" if gae else "rloo"},
    }
    actor, ref, critic, reward = sizes
    together = everything or actor_ref
    refused = together and kl and actor != ref
    refused |= everything and not asynchronous and engines > 0 and actor[0] * actor[1] != engines
    refused |= gae and critic_reward and critic != reward
    apart = gae and critic_reward
    present = {"actor": True, "ref": kl, "critic": gae, "reward": rewarded}
    counts = {name: n * g for name, (n, g) in zip(names, sizes, strict=True) if present[name]}
    groups = {name: "actor" if together and name in ("actor", "ref") else name for name in counts}
    if everything:
        groups |= dict.fromkeys(counts, "actor")
    if apart:
        groups |= {name: "critic" for name in ("critic", "reward") if name in counts}
    if engines:
        counts["vllm"], groups["vllm"] = engines, "actor" if everything and not asynchronous else "vllm"
    refused |= any(counts[name] > counts[group] for name, group in groups.items())
    try:
        plan = openrlhf.plan(config, Inventory.uniform(4, 8))
    except PlacementError as error:
        assert refused, error
        assert len({one.message for one in error.diagnostics}) == len(error.diagnostics)
        return
    assert not refused
    assert {name: len(one) for name, one in plan.items()} == counts
    devices = {name: {device for row in one for device in row.devices} for name, one in plan.items()}
    for name, group in groups.items():
        for other, its in groups.items():
            shared = min(counts[name], counts[other]) if group == its else 0
            assert len(devices[name] & devices[other]) == shared


def test_sizes_reach_the_plan() -> None:
    words = [*SKYRL, "trainer.strategy=megatron", "trainer.policy.megatron_config.tensor_model_parallel_size=2"]
    words += ["generator.inference_engine.tensor_parallel_size=2", "generator.inference_engine.data_parallel_size=2"]
    plan = skyrl.plan(from_overrides(words), Inventory.uniform(1, 8))
    assert [str(one.parallel) for one in plan.values()] == ["tp 2", "no sizes", "tp 2"]
    assert plan["generator"].engines == 2
    sizes = ["ds.tensor_parallel_size=2", "ds.ring_attn_size=2", "train.colocate_all=true"]
    actor = openrlhf.plan(from_overrides([*BASE, *sizes]), Inventory.uniform(2, 8))["actor"]
    assert (actor.parallel.tp, actor.parallel.cp, actor.share) == (2, 2, 0.2)


def as_older(flags: list[str]) -> list[str]:
    """The flags by their names before OpenRLHF 0.10.2."""
    older = {key.path: key.fallbacks[0] for key in OPENRLHF.keys if key.fallbacks}
    return [f"--{older.get(flag[2:], flag[2:])}" if flag.startswith("--") else flag for flag in flags]


@pytest.mark.parametrize("line", FLAGS[::4], ids=[line["id"] for line in FLAGS[::4]])
def test_flags_of_older_versions_mean_the_same(line: dict[str, Any], tmp_path: Path) -> None:
    answers = []
    for name, flags in (("new.sh", line["flags"]), ("old.sh", as_older(line["flags"]))):
        (tmp_path / name).write_text(f"python3 -m openrlhf.cli.train_ppo_ray {shlex.join(flags)}\n")
        try:
            answers.append(openrlhf.plan(tmp_path / name, nodes(line["nodes"])))
        except PlacementError as error:
            answers.append([one.code for one in error.diagnostics])
    assert answers[0] == answers[1]
    assert isinstance(answers[0], list) == (("error" in line["result"]) != (line["id"] in VERDICTS))


def test_older_flags_are_no_flags_of_slime(tmp_path: Path) -> None:
    words = "--actor_num_nodes 1 --actor_num_gpus_per_node 4 --ref_num_nodes 1 --ref_num_gpus_per_node 4"
    words += " --vllm_num_engines 2 --vllm_tensor_parallel_size 2 --advantage_estimator rloo --colocate_actor_ref"
    words += " --remote_rm_url http://rewards:5000"
    (tmp_path / "run.sh").write_text(f"python3 -m openrlhf.cli.train_ppo_ray {words}\n")
    assert {name: len(one) for name, one in planned(tmp_path / "run.sh").items()} == {"actor": 4, "ref": 4, "vllm": 2}

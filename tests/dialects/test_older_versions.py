"""Files of older versions and of forks: their keys mean what they meant there, and what is not read is named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rankplan import Inventory, PlacementError, plan
from rankplan import check as checked
from rankplan.trainers.areal.dialect import DIALECT as areal
from rankplan.trainers.skyrl.dialect import DIALECT as skyrl
from rankplan.trainers.skyrl.keys import KEYS as SKYRL
from support.configs import from_overrides, nodes
from support.goldens import VERDICTS, lines

SKYRL_WORDS = [line for line in lines("skyrl_sizes") if line["kind"] == "overrides"]
STATED = [f"trainer.placement.{name}_num_gpus_per_node=1" for name in ("policy", "ref", "critic")]
STATED += ["generator.inference_engine.tensor_parallel_size=1"]


def sizes(path: Path | str) -> dict[str, int]:
    """Return the number of processes of each component of a file."""
    return Counter({name: len(one) for name, one in plan(path).items()})


@pytest.mark.parametrize("line", SKYRL_WORDS[::3], ids=[line["id"] for line in SKYRL_WORDS[::3]])
def test_keys_of_skyrl_before_0_3_mean_the_same(line: dict[str, Any]) -> None:
    moved = {key.path: key.fallbacks[0] for key in SKYRL.keys if key.fallbacks}
    new = [*STATED, *line["overrides"]]
    old = [f"{moved.get(key, key)}={value}" for key, _, value in (word.partition("=") for word in new)]
    answers = []
    for words in (new, old):
        try:
            found: Any = skyrl.plan(from_overrides(words), nodes(line["nodes"]))
        except PlacementError as error:
            found = [(one.code, moved.get(one.path or "", one.path)) for one in error.diagnostics]
        answers.append(found)
    assert answers[0] == answers[1]
    refused = "error" in line["result"] or line["result"].get("validate") != "ok"
    assert isinstance(answers[0], list) == (refused != (line["id"] in VERDICTS))


def test_skyrl_before_0_3_has_other_defaults(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("uv run -m skyrl_train.entrypoints.main_base trainer.placement.colocate_critic_reward=true\n")
    assert sizes(path) == {"policy": 4, "ref": 4, "generator": 1}
    path.write_text("uv run -m skyrl.train.entrypoints.main_base generator.num_inference_engines=2\n")
    with pytest.raises(PlacementError, match=r"the policy has 4 GPUs \(.*\), but the engines have 8") as caught:
        plan(path)
    assert caught.value.diagnostics[0].path == "generator.num_inference_engines"


AREAL_MODES = [  # the mode; processes with a reference model; the same as text of HEAD's grammar
    ("sglang:d4p1t1+d4p1t1", {"rollout": 4, "actor": 4, "ref": 4}, "sglang:d4+fsdp:d4"),
    ("sglang.d2p1t2+d2p2t1", {"rollout": 2, "actor": 4, "ref": 4}, "sglang:d2t2+megatron:d2p2"),
    ("sglang.d4+fsdp.d4", {"rollout": 4, "actor": 4, "ref": 4}, "sglang:d4+fsdp:d4"),
    ("vllm:d2t2+attn:d2t2|ffn:d2e2", {"rollout": 2, "actor": 4, "ref": 4}, "vllm:d2t2+megatron:(attn:d2t2|ffn:d2e2)"),
    ("d8p1t1", {"actor": 8, "ref": 8}, "fsdp:d8"),
]


@pytest.mark.parametrize(("mode", "expected", "same"), AREAL_MODES, ids=[mode for mode, _, _ in AREAL_MODES])
def test_an_allocation_mode_without_backends(mode: str, expected: dict[str, int], same: str) -> None:
    """A reference model and a critic share the GPUs of the actor (AReaL: ``PPOTrainer.__init__``, v1.0.0)."""

    def planned(text: str, **actor: Any) -> Any:
        config = {"allocation_mode": text, "rollout": {}, "actor": {"backend": "fsdp", **actor}, "ref": {}}
        return areal.plan({"cluster": {"n_nodes": 1, "n_gpus_per_node": 8}, **config}, Inventory.uniform(1, 8))

    found = planned(mode, kl_ctl=0.1)
    assert {name: len(one) for name, one in found.items()} == expected
    assert [row.devices for row in found["ref"]] == [row.devices for row in found["actor"]]
    assert found == planned(same, kl_ctl=0.1)
    assert "ref" not in planned(mode, kl_ctl=0.0)


def test_a_mode_that_a_newer_areal_ignores_is_named() -> None:
    config = {"cluster": {"n_gpus_per_node": 8}, "allocation_mode": "sglang:d4+d4", "scheduler": {"type": "local"}}
    with pytest.raises(PlacementError, match=r"AReaL 1\.0\.3 and later read the `backend` of each engine"):
        areal.plan(config | {"actor": {}, "rollout": {}}, Inventory.uniform(1, 8))


@pytest.mark.parametrize("more", ["", "actor_train: {parallel: {}}\n"])
def test_the_first_areal_is_named(more: str, tmp_path: Path) -> None:
    path = tmp_path / "ppo.yaml"
    path.write_text(f"allocation_mode: sglang.d4p1m1+d2p2m1\nn_nodes: 1\nn_gpus_per_node: 8\n{more}")
    (fault,) = checked(path).faults
    assert (fault.code, fault.line) == ("unknown-key", 1)
    assert fault.message == "this is a config of AReaL before 0.3.1 (`realhf`), which rankplan does not read"


EASY = """\
algorithm: {adv_estimator: grpo, disable_kl: false}
worker:
  actor: {ulysses_size: 1, model: {lora: {rank: 0}}, fsdp: {}}
  rollout: {tensor_parallel_size: 2}
trainer: {nnodes: 1, n_gpus_per_node: 8}
"""
EASY_WORDS = [
    ("", {"actor": 8, "ref": 8, "rollout": 4}),
    ("worker.rollout.tensor_parallel_size=1 trainer.n_gpus_per_node=2", {"actor": 2, "ref": 2, "rollout": 2}),
    ("algorithm.disable_kl=true", {"actor": 8, "rollout": 4}),
    ("worker.actor.model.lora.rank=64", {"actor": 8, "rollout": 4}),
    ("algorithm.adv_estimator=gae", {"actor": 8, "ref": 8, "critic": 8, "rollout": 4}),
]


@pytest.mark.parametrize(("words", "expected"), EASY_WORDS, ids=[words or "file" for words, _ in EASY_WORDS])
def test_easyr1_names_its_config_in_a_word(words: str, expected: dict[str, int], tmp_path: Path) -> None:
    """EasyR1: ``main`` merges the file of ``config=``, then the other words (b44b311)."""
    (tmp_path / "config.yaml").write_text(EASY)
    path = tmp_path / "run.sh"
    path.write_text(f"python3 -m verl.trainer.main config=config.yaml {words}\n")
    assert sizes(path) == expected
    assert [one.message for one in checked(path).warnings] == []


def test_sizes_of_easyr1_reach_the_plan_and_the_faults(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(EASY.replace("ulysses_size: 1", "ulysses_size: 2"))
    assert plan(path)["actor"].parallel.cp == 2
    critic = "  critic: {ulysses_sequence_parallel_size: 2}\n"  # before ulysses_size
    path.write_text(EASY.replace("grpo", "gae").replace("worker:\n", f"worker:\n{critic}"))
    assert plan(path)["critic"].parallel.cp == 2
    path.write_text(EASY.replace("tensor_parallel_size: 2", "tensor_parallel_size: 16"))
    (fault,) = checked(path).faults
    assert (fault.path, fault.line) == ("worker.rollout.tensor_parallel_size", 4)


@pytest.mark.parametrize(("flag", "fine"), [("--init_kl_coef 0.0", True), ("", False)])
def test_a_model_that_does_not_start_may_have_no_nodes(flag: str, fine: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"python3 -m openrlhf.cli.train_ppo_ray --ref_num_nodes 0 --advantage_estimator rloo {flag}\n")
    found = [(one.path, one.message) for one in checked(path).faults]
    message = "`ref_num_nodes` is 0; it must be a whole number of 1 or more"
    assert found == ([] if fine else [("ref_num_nodes", message)])


NO_JOBS = [
    ("deepspeed --module openrlhf.cli.train_ppo --pretrain m", "PPO in the processes of `deepspeed`, without Ray"),
    ("python3 -m openrlhf.cli.serve_score_rm --port 5000", "serving of a model, not an RL job"),
    ("python3 -m verl.agent_trainer.main_generation trainer.nnodes=1", "generation only, not an RL job"),
    ("python3 -m skyrl_train.inference_engines.vllm.vllm_server --port 8001", "serving of a model, not an RL job"),
    ("python3 -m verl.trainer.main_evaluate data.path=x.parquet", "evaluation, not an RL job"),
]


@pytest.mark.parametrize(("command", "said"), NO_JOBS, ids=[command.split()[-2] for command, _ in NO_JOBS])
def test_other_programs_of_older_versions_are_no_jobs(command: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"{command}\n")
    (fault,) = checked(path).faults
    assert fault.code == "no-components" and said in fault.message


def test_a_key_beside_the_one_that_it_resembles_is_no_typo(tmp_path: Path) -> None:
    """RAGEN: ``actor_rollout_ref.actor`` has a ``micro_batch_size_per_gpu`` of its own."""
    own, known = "{key}micro_batch_size_per_gpu: 1", "ppo_micro_batch_size_per_gpu: 1"
    text = "trainer: {{n_gpus_per_node: 2}}\nactor_rollout_ref: {{actor: {{{0}}}}}\n"
    path = tmp_path / "base.yaml"
    path.write_text(text.format(f"{own.format(key='')}, {known}"))
    assert not checked(path).faults
    path.write_text(text.format(own.format(key="")))
    assert [one.help for one in checked(path).faults] == ["did you mean `ppo_micro_batch_size_per_gpu`?"]


REWARDS = [
    ("reward_model.micro_batch_size_per_gpu=8", {"reward": 8}),
    ("reward_model.model.fsdp_config.param_offload=True", {"reward": 8}),
    ("reward_model.strategy=fsdp", {"reward": 8}),
    ("reward_model.rollout.tensor_model_parallel_size=2", {}),  # of 0.7.1 to 0.8, which move it
]


@pytest.mark.parametrize(("word", "more"), REWARDS, ids=[word for word, _ in REWARDS])
def test_a_reward_model_of_verl_before_0_7_1_has_a_worker_per_accelerator(
    word: str, more: dict[str, int], tmp_path: Path
) -> None:
    """verl: ``add_reward_model_worker`` (v0.7.0). Since 0.7.1, Hydra refuses these keys."""
    path = tmp_path / "run.sh"
    program = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.n_gpus_per_node=8"
    path.write_text(f"{program} reward_model.enable=True {word}\n")
    assert sizes(path) == {"actor": 8, "rollout": 4} | more
    assert bool(more) == (not checked(path).warnings)
    path.write_text(f"{program} {word}\n")
    assert sizes(path) == {"actor": 8, "rollout": 4}


@pytest.mark.parametrize("name", ["gae", "masked_gae", "bi_level_gae"])
def test_estimators_of_vagen_have_a_critic(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"python3 -m vagen.trainer.main_ppo algorithm.adv_estimator={name} trainer.n_gpus_per_node=2\n")
    assert sizes(path) == {"actor": 2, "critic": 2, "rollout": 1}

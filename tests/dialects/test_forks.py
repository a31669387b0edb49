"""Forks of verl, slime and OpenRLHF: small guests that say what they have otherwise than their parents."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rankplan import check, load_config, plan
from rankplan.arranging.faults import pool_keys
from rankplan.dialects import DIALECTS, family_of, name_of, recognisers
from rankplan.dialects.keys.key import fact, size
from rankplan.dialects.keys.table import KeyTable
from rankplan.editor.keys import keys_at
from rankplan.sdk import Dialect
from support.outcomes import some

FORKS = {dialect.name: dialect for dialect in recognisers() if dialect.parent is not None}


def components(config: Any) -> dict[str, int]:
    """Return the number of processes of each component."""
    return Counter({name: len(rows) for name, rows in plan(config).items()})


# ------------------------------------------------------------------------------------------------- the door


def test_a_fork_is_a_guest_with_the_job_of_its_parent() -> None:
    for name, dialect in some(FORKS.items()):
        parent = dialect.parent
        assert parent is not None and family_of(name) == [name, parent.name]
        assert (dialect.resized, dialect.starts) == (parent.resized, parent.starts)
        assert not dialect.writers and not dialect.resembles
        assert not dialect.keys.alone or not set(dialect.keys.alone) & set(parent.keys.alone)


def test_a_fork_replaces_and_lacks_keys_of_its_parent() -> None:
    table = KeyTable(
        (
            size("@.gpus", "the GPUs", at=("a", "b"), default=8, tells="tells"),
            size("c.nodes", "the nodes", fallbacks=("nodes",), tells="alone"),
            size("d.e.f", "more"),
            fact("speed", "how fast", default=1),
        ),
        never="",
    )
    own = (
        size("x.cards", "the GPUs", like="a.gpus", default=4, tells="tells"),
        size("b.gpus", "GPUs", default=2),
        fact("speed", "faster", default=2),
    )
    forked = table.forked(own, lacks=("c", "d.e"))
    places = [".".join(map(str, entry.path)) for entry in forked.placing]
    assert places == ["x.cards", "b.gpus", "nodes"]
    assert forked.telling == [("x", "cards")] and forked.alone == []
    assert [forked.recognises({name: {"gpus": 1, "cards": 1}}) for name in "abx"] == [False, False, True]
    with pytest.raises(ValueError, match=r"the parent has no key 'a\.cards' and no key 'power'"):
        table.forked((size("x", like="a.cards"), fact("power", "none")))


def test_a_fork_of_an_unknown_system_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Dialect.like("no such system", name="x", system="X")


# ------------------------------------------------------------------------------------------------- EasyR1

EASY = {"worker": {"rollout": {"tensor_parallel_size": 2}}, "trainer": {"nnodes": 1, "n_gpus_per_node": 8}}


def test_the_sections_of_easyr1_tell_it() -> None:
    assert name_of(EASY) == "easyr1"
    assert name_of({"trainer": EASY["trainer"], "actor_rollout_ref": {}}) == "verl"
    assert name_of(EASY | {"actor_rollout_ref": {}}) == "verl"
    assert plan(EASY).dialect == "easyr1"


def test_keys_of_verl_mean_nothing_in_easyr1() -> None:
    more = {"critic": {"enable": True}, "rollout": {"nnodes": 1, "n_gpus_per_node": 8}}
    assert components(EASY | more) == {"actor": 8, "ref": 8, "rollout": 4}


def test_faults_and_completion_name_easyr1_and_its_keys(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("python3 -m verl.trainer.main trainer.n_gpus_per_node=3\n")
    (fault,) = check(tmp_path / "run.sh").faults
    assert "EasyR1's default tensor_parallel_size 2; the file does not set it" in fault.message
    assert fault.path == "worker.rollout.tensor_parallel_size"
    (tmp_path / "typo.yaml").write_text("worker: {rollout: {tensor_paralel_size: 1}}\ntrainer: {n_gpus_per_node: 8}\n")
    (fault,) = check(tmp_path / "typo.yaml").faults
    assert (fault.help, fault.line, fault.column) == ("did you mean `tensor_parallel_size`?", 1, 20)
    assert list(keys_at("easyr1", ("worker",))) == ["rollout", "actor", "critic"]
    assert keys_at("easyr1", ("algorithm",))["disable_kl"] == "whether there is no reference model"
    assert keys_at("easyr1", ("actor_rollout_ref",)) == {}


def test_nothing_is_said_of_the_memory_of_easyr1() -> None:
    assert all(component.memory is None for component in plan(EASY).values())


# ------------------------------------------------------------------------------------------------- RL-Factory, VAGEN

VERL = {"trainer": {"nnodes": 1, "n_gpus_per_node": 8}, "actor_rollout_ref": {"rollout": {"name": "vllm"}}}


def test_a_key_of_a_fork_tells_it_beside_the_program_of_its_parent(tmp_path: Path) -> None:
    for words, name in (
        ("reward_rollout.if_use_reward_rollout=false", "rl_factory"),
        ("rllm.async_training.enable=false", "rllm"),
        ("rllm/backend=verl", "rllm"),
        ("algorithm.adv_estimator=masked_gae", "vagen"),
        ("algorithm.adv_estimator=gae", "verl"),
    ):
        path = tmp_path / f"{name}.sh"
        path.write_text(f"python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8 {words}\n")
        assert name_of(load_config(path)) == name
        assert plan(path).dialect == name


def test_only_vagen_has_a_critic_for_its_estimators() -> None:
    config = VERL | {"algorithm": {"adv_estimator": "turn_wise_gae"}}
    assert "critic" in DIALECTS["vagen"].plan(config, plan(VERL).inventory)
    assert "critic" not in DIALECTS["verl"].plan(config, plan(VERL).inventory)


# ------------------------------------------------------------------------------------------------- MARTI

MARTI = "python3 -m {program} {agents} --actor_num_nodes 1 --actor_num_gpus_per_node 2 --ref_num_gpus_per_node 2 "
MARTI += "--vllm_num_engines 2 --colocate_all_models --advantage_estimator group_norm --init_kl_coef 0.0 {words}\n"
AGENTS = "marti.cli.multi_agent_train_ppo_ray"
ONE = """--agents '{"0": {"is_tuning": true}}'"""


def marti(folder: Path, agents: str = "", words: str = "", program: str = AGENTS) -> Path:
    (folder / "run.sh").write_text(MARTI.format(program=program, agents=agents, words=words))
    return folder / "run.sh"


@pytest.mark.parametrize(
    "program", [AGENTS, "openrlhf.cli.multi_agent_train_ppo_ray", "examples.mars2.multi_agent_train_ppo_ray"]
)
def test_one_agent_is_an_ordinary_job(program: str, tmp_path: Path) -> None:
    path = marti(tmp_path, ONE, program=program)
    assert components(path) == {"actor": 2, "ref": 2, "vllm": 2}
    assert plan(path).dialect == "marti" and not check(path).warnings


def test_the_json_of_an_agent_counts_before_what_all_have_and_the_flags(tmp_path: Path) -> None:
    agent = """--agents '{"0": {"is_tuning": true, "actor_num_gpus_per_node": 4, "vllm_num_engines": 4}}'"""
    shared = """--default_agent '{"actor_num_gpus_per_node": 8, "ref_num_gpus_per_node": 4}'"""
    assert components(marti(tmp_path, agent, shared)) == {"actor": 4, "ref": 4, "vllm": 4}
    assert components(marti(tmp_path, ONE, "--reward_pretrain m --reward_num_gpus_per_node 2")) == {
        "actor": 2,
        "ref": 2,
        "reward": 2,
        "vllm": 2,
    }
    assert plan(marti(tmp_path, ONE, "--async_train")).inventory.num_nodes == 1


@pytest.mark.parametrize(
    ("agents", "code", "message"),
    [
        ("--agents a b", "unknown-key", "for each of the 2 agents in `agents`"),
        (f"{ONE} {ONE.removeprefix('--agents ')}", "unknown-key", "for each of the 2 agents in `agents`"),
        ("""--agents '{"0": {}, "1": {}}'""", "unknown-key", "for each of the 2 agents"),
        ('--agents "$AGENTS"', "unknown-key", "which only a run of the script tells"),
        ("--agents a", "invalid-value", "must be mappings of JSON"),
        ("""--agents '{"0": {}}'""", "no-components", "the only agent is not trained"),
    ],
)
def test_agents_that_are_no_job_of_one_are_refused_by_name(
    agents: str, code: str, message: str, tmp_path: Path
) -> None:
    (fault,) = check(marti(tmp_path, agents)).faults
    assert (fault.code, fault.path) == (code, "agents") and message in fault.message


def test_the_other_program_of_marti_is_as_openrlhf_has_it(tmp_path: Path) -> None:
    path = marti(tmp_path, words="--remote_rm_url http://x", program="marti.cli.train_ppo_ray")
    assert components(path) == {"actor": 2, "vllm": 2} and plan(path).dialect == "marti"
    assert pool_keys("marti") == ("actor_num_nodes", "vllm_num_engines")


# ------------------------------------------------------------------------------------------------- miles, vime

SLIME = "--actor-num-nodes 1 --actor-num-gpus-per-node 4 --rollout-num-gpus 4 --rollout-num-gpus-per-engine 4"


@pytest.mark.parametrize(("system", "title"), [("miles", "miles"), ("vime", "vime"), ("slime", "slime")])
def test_the_program_of_the_repository_tells_a_fork_of_slime(system: str, title: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(f"import ray\nfrom {system}.utils.arguments import parse_args\n")
    run = tmp_path / "scripts" / "run.sh"
    run.parent.mkdir()
    run.write_text(f"ray job submit -- python3 train.py {SLIME}\n")
    assert components(run) == {"actor": 4, "rollout": 1} and plan(run).dialect == system
    run.write_text("python3 train.py --rollout-num-gpus 800\n")
    (fault,) = check(run, "1x8").faults
    assert f"8 GPUs per node is {title}'s default actor_num_gpus_per_node" in fault.message


def test_gpus_of_miles_that_only_evaluate_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"python3 train.py {SLIME} --eval-num-gpus 2 --eval-num-gpus-per-engine 1\n")
    (warning,) = check(tmp_path / "run.sh").warnings
    assert "`eval_num_gpus` is 2: miles adds these GPUs to its placement group" in warning.message
    assert plan(tmp_path / "run.sh").dialect == "miles"


def test_engines_of_vime_have_the_sizes_of_vllm(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"python3 train.py {SLIME} --vllm-pipeline-parallel-size 2 --hf-checkpoint Qwen/Qwen3-4B\n")
    planned = plan(path)
    assert planned.dialect == "vime"
    sizes = planned["rollout"].parallel
    assert (sizes.tp, sizes.pp) == (2, 2)
    path.write_text(f"python3 train.py {SLIME} --sglang-pp-size 2 --vllm-gpu-memory-utilization 0.6\n")
    assert (plan(path)["rollout"].parallel.tp, plan(path)["rollout"].parallel.pp) == (4, 1)
    path.write_text(f"python3 train.py {SLIME} --vllm-gpu-memory-utilization 0.6 --hf-checkpoint Qwen/Qwen3-4B\n")
    memory = plan(path)["rollout"].memory
    assert memory is not None and (memory.engine, memory.share) == ("vllm", 0.6)

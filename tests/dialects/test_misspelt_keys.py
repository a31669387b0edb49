"""Typos of the keys that a dialect reads are faults that name the right key; other keys are the trainer's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rankplan.dialects import DIALECTS, dialect_of
from rankplan.dialects.keys.config import Config
from rankplan.dialects.keys.key import Key
from rankplan.dialects.keys.sisters import is_size_name
from rankplan.errors import PlacementError
from rankplan.front.api import check
from rankplan.nodes.inventory import Inventory
from rankplan.read.text.load import load_config
from rankplan.rlinf.dialect import DIALECT as rlinf
from rankplan.words import one_edit
from support.commands import run
from support.dialects import TABLES

LETTERS = "abcdefghijklmnopqrstuvwxyz_"
WORDS = st.text(LETTERS, min_size=7, max_size=30)


@st.composite
def typos(draw: st.DrawFn) -> tuple[str, str]:
    """Return a word, and the word with a letter inserted, left out, replaced, or swapped with the next."""
    word = draw(WORDS)
    at, letter = draw(st.integers(0, len(word) - 2)), draw(st.sampled_from(LETTERS))
    edits = [
        word[:at] + letter + word[at:],
        word[:at] + word[at + 1 :],
        word[:at] + letter + word[at + 1 :],
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
    ]
    return word, draw(st.sampled_from(edits))


def distance(one: str, other: str) -> int:
    """Return the number of letters inserted, left out, replaced or swapped, by the textbook's recursion."""
    rows = {(i, j): max(i, j) for i in range(len(one) + 1) for j in range(len(other) + 1) if not i or not j}
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            rows[i, j] = min(rows[i - 1, j] + 1, rows[i, j - 1] + 1, rows[i - 1, j - 1] + (one[i - 1] != other[j - 1]))
            if i > 1 and j > 1 and one[i - 2 : i] == other[j - 2 : j][::-1]:
                rows[i, j] = min(rows[i, j], rows[i - 2, j - 2] + 1)
    return rows[len(one), len(other)]


@given(typos())
def test_every_single_edit_is_found(pair: tuple[str, str]) -> None:
    word, typo = pair
    assume(typo != word)
    assert one_edit(typo, ["another_key", word]) == word


@given(st.text("ab_", min_size=4, max_size=7), st.text("ab_", min_size=4, max_size=7))
def test_nothing_else_is_found(one: str, other: str) -> None:
    is_own_word = len(one) < 6 and one[0] != other[0]
    assert (one_edit(one, [other]) == other) == (distance(one, other) == 1 and not is_own_word)


def test_short_words_have_too_many_neighbours() -> None:
    assert one_edit("dpp", ["pp"]) is None
    assert one_edit("tpye", ["type"]) == "type"
    assert one_edit("dp_size", ["tp_size"]) == "tp_size"


BASES: dict[str, str] = {
    "rlinf": "cluster: {num_nodes: 1, component_placement: {'actor,rollout': 0-7}}\n"
    "actor: {model: {tensor_model_parallel_size: 4}}\nrollout: {tensor_parallel_size: 2}\nalgorithm: {}\n",
    "verl": "trainer: {nnodes: 2, n_gpus_per_node: 8}\n"
    "actor_rollout_ref:\n  rollout: {tensor_model_parallel_size: 2}\n",
    "nemo_rl": "cluster: {num_nodes: 2, gpus_per_node: 8}\npolicy: {generation: {colocated: {enabled: true}}}\n",
    "areal": "cluster: {n_nodes: 2, n_gpus_per_node: 8}\nrollout: {backend: 'sglang:d4t2'}\n",
    "openrlhf": "vllm: {num_engines: 4, tensor_parallel_size: 2}\nactor: {num_nodes: 1, num_gpus_per_node: 8}\n",
    "slime": "actor_num_gpus_per_node: 8\nrollout_num_gpus: 8\n",
    "roll": "actor_train: {device_mapping: '[0, 1]'}\n",
    "skyrl": "trainer: {placement: {policy_num_nodes: 1, policy_num_gpus_per_node: 8},"
    " algorithm: {use_kl_loss: false}}\n"
    "generator: {inference_engine: {num_engines: 8}}\n",
    "prime_rl": "deployment: {num_train_gpus: 4, num_infer_gpus: 4}\ninference: {vllm: {tensor_parallel_size: 2}}\n"
    "orchestrator: {}\ntrainer: {}\n",
    "trl": "use_vllm: true\nvllm_mode: colocate\nvllm_tensor_parallel_size: 2\nnum_processes: 8\n",
    "open_instruct": "num_learners_per_node: [4]\nvllm_num_engines: 4\n",
    "ms_swift": "rlhf_type: grpo\ntrain: {gpus: 8}\nrollout: {gpus: 8, vllm_tensor_parallel_size: 2}\n",
}
BASES["easyr1"] = "trainer: {nnodes: 2, n_gpus_per_node: 8}\nworker: {rollout: {tensor_parallel_size: 2}}\n"
BASES |= dict.fromkeys(("rl_factory", "rllm", "vagen"), BASES["verl"])
BASES |= dict.fromkeys(("miles", "vime"), BASES["slime"])
BASES["marti"] = "actor_num_nodes: 1\nactor_num_gpus_per_node: 4\nvllm_num_engines: 2\n"
TYPOS = [
    ("rlinf", "cluster.num_nodez=2", "num_nodez", "num_nodes"),
    ("rlinf", "cluster.exclud=[]", "exclud", "exclude"),
    ("rlinf", "cluster.auto_schedular=true", "auto_schedular", "auto_scheduler"),
    (
        "rlinf",
        "actor.model.pipeline_model_paralell_size=2",
        "pipeline_model_paralell_size",
        "pipeline_model_parallel_size",
    ),
    ("verl", "trainer.nnodez=2", "nnodez", "nnodes"),
    ("verl", "trainer.nnoeds=2", "nnoeds", "nnodes"),
    ("verl", "+trainer.nnodez=2", "nnodez", "nnodes"),
    ("verl", "tranier.nnodes=2", "tranier", "trainer"),
    ("verl", "distilation.enabled=true", "distilation", "distillation"),
    ("verl", "actor_rollout_ref.actor.fsdp_confg.fsdp_size=2", "fsdp_confg", "fsdp_config"),
    ("verl", "reward.reward_model.enabled=true", "enabled", "enable"),
    ("nemo_rl", "policy.generation.colocated.enable=false", "enable", "enabled"),
    ("nemo_rl", "policy.generation.colocated.resource.num_nodes=1", "resource", "resources"),
    ("nemo_rl", "policy.megatron_cgf.enabled=true", "megatron_cgf", "megatron_cfg"),
    ("areal", "cluster.n_nods=3", "n_nods", "n_nodes"),
    ("areal", "actor.backed='fsdp:d8'", "backed", "backend"),
    ("areal", "rollout.scheduling_strategy.tpye=colocation", "tpye", "type"),
    ("roll", "actor_infre.world_size=2", "actor_infre", "actor_infer"),
    ("roll", "actor_train.strategy_args.strategy_nmae=vllm", "strategy_nmae", "strategy_name"),
    ("ms_swift", "trian.gpus=4", "trian", "train"),
    ("ms_swift", "rollout.vllm_tensor_paralel_size=4", "vllm_tensor_paralel_size", "vllm_tensor_parallel_size"),
    ("ms_swift", "colocate_group=[[train, rollout]]", "colocate_group", "colocate_groups"),
    ("openrlhf", "vllm.num_engine=2", "num_engine", "num_engines"),
    ("openrlhf", "ds.ring_attn_sise=2", "ring_attn_sise", "ring_attn_size"),
    ("slime", "actor_num_node=2", "actor_num_node", "actor_num_nodes"),
    ("skyrl", "generator.inference_engine.num_engins=2", "num_engins", "num_engines"),
    ("skyrl", "generater.inference_engine.num_engines=2", "generater", "generator"),
]
SISTERS = [
    ("verl", "trainer.num_nodes=4", "~trainer.nnodes", "nnodes"),
    (
        "verl",
        "actor_rollout_ref.rollout.tensor_parallel_size=4",
        "~actor_rollout_ref.rollout.tensor_model_parallel_size",
        "tensor_model_parallel_size",
    ),
    (
        "verl",
        "actor_rollout_ref.actor.expert_model_parallel_size=4",
        "",
        "actor_rollout_ref.actor.megatron.expert_model_parallel_size",
    ),
    ("nemo_rl", "cluster.nnodes=4", "~cluster.num_nodes", "num_nodes"),
    ("nemo_rl", "policy.dtensor_cfg.tensor_model_parallel_size=4", "", "tensor_parallel_size"),
    ("areal", "num_nodes=4", "~cluster.n_nodes", "cluster.n_nodes"),
    ("openrlhf", "vllm.tensor_model_parallel_size=4", "~vllm.tensor_parallel_size", "tensor_parallel_size"),
    (
        "skyrl",
        "generator.num_engines=4",
        "~generator.inference_engine.num_engines",
        "generator.inference_engine.num_engines",
    ),
    (
        "roll",
        "actor_train.strategy_args={strategy_name: vllm, strategy_config: {tensor_model_parallel_size: 2}}",
        "",
        "tensor_parallel_size",
    ),
    (
        "roll",
        "actor_train.strategy_args={strategy_name: megatron_train, strategy_config: {tensor_parallel_size: 2}}",
        "",
        "tensor_model_parallel_size",
    ),
]
"""Sizes under the names of other systems, or in another section; the key that the config does not have then."""


@pytest.mark.parametrize(("dialect", "word", "found", "wanted"), TYPOS, ids=[word for _, word, _, _ in TYPOS])
def test_an_override_with_a_typo_is_a_fault(dialect: str, word: str, found: str, wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(BASES[dialect])
    fault = faults(path, dialect, [word])[0]
    assert (fault.code, fault.message) == ("unknown-key", f"unknown key `{found}`")
    assert fault.help.startswith(f"did you mean `{wanted}`?")
    assert (fault.file, fault.line) == ("command line", 1)


@pytest.mark.parametrize(("dialect", "word", "removed", "wanted"), SISTERS, ids=[word for _, word, _, _ in SISTERS])
def test_a_size_under_another_name_is_a_fault(
    dialect: str, word: str, removed: str, wanted: str, tmp_path: Path
) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(BASES[dialect])
    words = [removed, word] if removed else [word]
    found = [fault for fault in faults(path, dialect, words) if fault.code == "unknown-key"]
    assert [fault.help for fault in found] == [f"did you mean `{wanted}`?"]


@pytest.mark.parametrize(
    ("dialect", "word"),
    [
        ("verl", "trainer.num_nodes=4"),
        ("nemo_rl", "cluster.nnodes=4"),
        ("skyrl", "generator.num_engines=4"),
        ("verl", "actor_rollout_ref.rollout.tensor_parallel_size=4"),
        ("verl", "trainer.num_engines=4"),
        ("verl", "actor_rollout_ref.actor.context_parallel_size=null"),
        ("roll", "actor_train.strategy_args={strategy_name: deepspeed_train, strategy_config: {tp_size: 2}}"),
    ],
)
def test_a_size_that_is_stated_where_it_belongs_is_no_fault(dialect: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(BASES[dialect])
    assert faults(path, dialect, [word]) == []


@pytest.mark.parametrize(
    ("dialect", "word", "message"),
    [
        (
            "skyrl",
            "generator.inference_engine.num_rollout_engines=9",
            "`generator.inference_engine.num_engines` counts",
        ),
        ("verl", "trainer.num_nodes=9", "`trainer.nnodes` counts"),
    ],
)
def test_another_value_under_the_name_of_another_system_is_a_warning(
    dialect: str, word: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(BASES[dialect])
    warnings = [one for one in check(path, overrides=[f"+{word}"]).warnings if "counts, which is" in one.message]
    assert [message in one.message for one in warnings] == [True]


def test_every_parallel_size_has_a_meaning() -> None:
    """A new key of a parallel size belongs to those that mean the same."""
    sizes = {
        str(entry.path[-1])
        for name in TABLES
        for entry in TABLES[name].placing
        if str(entry.path[-1]).endswith("_size")
    }
    parallel = {name for name in sizes if "tensor" in name or name in ("tp_size", "pp_size", "ep_size")}
    apart = {name for name in parallel if not is_size_name(name)}
    assert apart == {
        "decode_tensor_model_parallel_size",
        "expert_tensor_parallel_size",
        "vllm_tensor_parallel_size",
        "ds_tensor_parallel_size",
        "moe_tensor_parallel_size",
    }


def test_one_typo_is_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    for resources in ("resource: {num_nodes: 1, gpus_per_node: 8}", "resources: {num_node: 1, gpus_per_node: 8}"):
        path.write_text(BASES["nemo_rl"].replace("enabled: true", f"enabled: false, {resources}"))
        assert [fault.code for fault in faults(path, "nemo_rl", [])] == ["unknown-key"]


def test_a_script_with_a_typo_is_a_fault_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("python3 -m verl.trainer.main_ppo \\\n  actor_rollout_ref.rolout.n=5 \\\n  trainer.nnodez=2\n")
    assert [(fault.message, fault.line) for fault in faults(path, "verl", [])] == [
        ("unknown key `nnodez`", 3),
        ("unknown key `rolout`", 2),
    ]


@pytest.mark.parametrize(
    ("dialect", "word"),
    [
        ("rlinf", "cluster.distributed_log_dir=logs"),
        ("rlinf", "actor.model.virtual_pipeline_model_parallel_size=2"),
        ("rlinf", "rollout.data_parallel_size=2"),
        ("verl", "trainer.total_epochs=3"),
        ("verl", "actor_rollout_ref.rollout.n=4"),
        ("verl", "actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=2"),
        ("verl", "reward_model.enable=true"),
        ("nemo_rl", "policy.generation.vllm_cfg.async_engine=true"),
        ("areal", "actor.path=/models/x"),
        ("openrlhf", "actor.num_layers=3"),
        ("skyrl", "generator.inference_engine.engine_init_kwargs.x=1"),
    ],
)
def test_the_trainers_other_keys_are_allowed(dialect: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(BASES[dialect])
    assert faults(path, dialect, [word]) == []


def faults(path: Path, dialect: str, words: list[str]) -> list[Any]:
    try:
        config = load_config(path, overrides=words)
        assert dialect_of(config) is DIALECTS[dialect]
        reader = DIALECTS[dialect].read(config).reader
        if dialect == "rlinf":
            rlinf.plan(config, Inventory.uniform(1, 8))
        return list(reader.faults)  # type: ignore[attr-defined]
    except PlacementError as error:
        return list(error.diagnostics)


def test_faults_of_the_command_line_and_of_the_file_are_counted_together(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text("cluster: {num_nodes: 1, component_placement: {actor: 0-8}}\n")
    done = run("check", str(path), "--nodes", "1x8", "--", "cluster.exclud=[]")
    assert done.exit_code == 1
    assert done.stdout.endswith(f"2 faults in command line and {path}\n")


@pytest.mark.parametrize("name", TABLES)
def test_every_key_that_is_read_is_in_the_table(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: set[Key[Any]] = set()

    def path(config: Config, key: Key[Any], read: Any = Config.path) -> Any:
        keys.add(key)
        return read(config, key)

    monkeypatch.setattr(Config, "path", path)
    (tmp_path / "config.yaml").write_text(BASES[name])
    config, dialect = load_config(tmp_path / "config.yaml"), DIALECTS[name]
    dialect.plan(config, dialect.assumed_inventory(config))
    of_hydra = {key for key in keys if key.path.startswith("hydra.")}
    parent = TABLES[name].parent  # the job of a fork is its parent's, which names its own keys
    inherited = set() if parent is None else set(parent.keys)
    assert keys - of_hydra <= {*TABLES[name].keys, *inherited}
    assert len(keys) > 5

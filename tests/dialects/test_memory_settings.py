"""What the keys of each dialect say about memory: names, defaults, laws, and values that say nothing."""

from __future__ import annotations

import gzip
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import rankplan
import rankplan.read.memory
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan.dialects import DIALECTS, name_of
from rankplan.dialects.keys.config import Config
from rankplan.dialects.keys.key import Key, below, fact
from rankplan.dialects.keys.roles import GUESSED, Role, Setting
from rankplan.dialects.memory.common import fixed
from rankplan.dialects.memory.read import SCORING, MemoryReader
from rankplan.errors import Faults, KeyPath, PlacementError
from rankplan.memory.settings import GIB
from rankplan.plans.model import Model
from rankplan.plans.plan import Plan
from rankplan.read.text.reader import Reader
from rankplan.render.memory import memory_lines
from rankplan.trainers.slime.memory import ROLES as SLIME
from support.dialects import MEMORY, TABLES
from support.memory_configs import BASES, CASES, MODEL, changed, planned
from support.outcomes import at_least, outcome, some

SETTINGS = [(base, *row) for base, cases in CASES.items() for row in cases["rows"]]
MOE = "Qwen/Qwen3-30B-A3B"
KWARGS = "actor_rollout_ref.rollout.engine_kwargs"
TRANSFORMER = "actor_rollout_ref.actor.megatron.override_transformer_config"
TEACHERS = "on_policy_distillation.non_colocated_teachers"


def named(base: str, name: str) -> dict[str, Any]:
    """Return a base with another model, wherever it names one."""
    return json.loads(json.dumps(BASES[base]).replace(MODEL, name))


def refusals(base: str, keys: dict[str, Any]) -> list[tuple[str, str | None]]:
    with pytest.raises(PlacementError) as caught:
        planned(base, keys)
    return [(one.code, one.path) for one in caught.value.diagnostics]


@pytest.mark.parametrize(("base", "keys", "component", "wanted"), SETTINGS)
def test_keys_and_defaults(base: str, keys: dict[str, Any], component: str, wanted: dict[str, Any]) -> None:
    memory = planned(base, keys)[component].memory
    assert memory is not None
    model = Model.of(MODEL)
    assert memory.model == (model.scoring() if component in SCORING else model)
    assert {key: getattr(memory, key) for key in wanted} == wanted


@pytest.mark.parametrize("base", BASES)
def test_values_are_read_only_for_settings_that_the_config_or_the_plan_decides(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[tuple[str, ...]] = set()
    read = Config.paths

    def counted(self: Config, key: Key[Any]) -> list[KeyPath]:
        asked.add(key.paths)
        return read(self, key)

    monkeypatch.setattr(Config, "paths", counted)
    planned(base, {})
    keys = {key.paths for role in MEMORY[name_of(BASES[base])] for setting in role.all_settings for key in setting.keys}
    assert 0 < len(asked & keys) < len(keys) / 2


@pytest.mark.parametrize("base", BASES)
def test_every_component_of_a_known_model_has_a_memory(base: str) -> None:
    plan = planned(base, {})
    assert all(component.memory is not None for component in plan.values())
    assert plan.memory()


def test_what_is_not_read_beside_a_trainer_leaves_its_phases_unknown() -> None:
    for base, keys, unread in (
        ("nemo_rl ppo", {"value.hf_config_overrides": {"num_hidden_layers": 2}}, "value"),
        ("verl megatron", {"critic.model.path": "someone/unknown"}, "critic"),
    ):
        plan = planned(base, keys)
        assert plan[unread].memory is None
        found = [need for phases in plan.memory().values() for need in phases.values() if unread in need.others]
        assert found
        assert {need.answer for need in found} == {"unknown"}


def test_sizes_that_a_trainer_leaves_out_are_one() -> None:
    """Unless another file has its defaults, and in a config of one's own, where nothing is known of them."""
    one = {"actor_rollout_ref.rollout.tensor_model_parallel_size": 1}
    plan = planned("verl", one)
    model = Model.of(MODEL)
    assert plan["rollout"].memory is not None
    assert plan["rollout"].memory.undivided
    assert plan.memory()["rollout",]["generate"].parts["weights"][0] == 2 * model.params
    assert Plan.from_dict(plan.to_dict()).memory() == plan.memory()
    elsewhere = planned("verl", one | {"hydra.job.config_name": "somebody_elses"})["rollout"].memory
    assert elsewhere is None or not elsewhere.undivided
    entries = {"rollout": {"placement": "0-7", "memory": {"engine": "vllm", "model": MODEL}}}
    own = {"cluster": {"num_nodes": 1, "component_placement": entries}}
    assert rankplan.plan(own, "1x8").memory()["rollout",]["generate"].parts["weights"][0] < model.params


def test_a_critic_has_no_switch_with_an_engine() -> None:
    phases = planned("verl megatron", {}).memory()
    assert ("actor", "rollout") in phases
    assert ("critic", "rollout") not in phases


@pytest.mark.parametrize("base", BASES)
def test_an_unknown_model_says_nothing(base: str) -> None:
    plan = rankplan.plan(named(base, "someone/unknown-9B"), "1x8")
    assert all(component.memory is None for component in plan.values())
    assert plan.memory() == {}
    assert not rankplan.check(named(base, "someone/unknown-9B"), "1x8").faults


@pytest.mark.parametrize("base", BASES)
def test_a_model_of_a_folder_is_read(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps({**keys, "intermediate_size": 128}))
    monkeypatch.chdir(tmp_path)
    for name in ("mine", str(tmp_path / "mine"), "mine/config.json"):
        models = [
            component.memory and component.memory.model
            for component in rankplan.plan(named(base, name), "1x8").values()
        ]
        assert [model and model.layers for model in models] == [2] * len(models)
    (tmp_path / "mine" / "config.json").write_text("{")
    assert all(one.memory is None for one in rankplan.plan(named(base, "mine"), "1x8").values())


PLACING = ("strategy", "strategy_name", "task_type", "lora_target", "lora_adapter_path")
"""Keys that also decide what there is."""


@cache
def keys_of(base: str) -> list[tuple[Setting, Key[Any], str]]:
    """Return each path that a key of a base's components may have, without those that place."""
    system = base.split()[0]
    placing = {entry.path for entry in TABLES[system].placing} if system in TABLES else set()
    components = planned(base, {})
    found = []
    for role in MEMORY[system]:
        for component in components:
            if (section := role.section(component)) is None:
                continue
            kind = {key: getattr(components[component].memory, key) for key in ("training", "forward", "engine")}
            kind = {key: value for key, value in kind.items() if value}
            for setting in (setting for setting in role.settings if setting.applies(kind)):
                for key in setting.config_keys:
                    for path in (below(section, dotted) for dotted in key.paths):
                        if tuple(path.split(".")) not in placing and not path.endswith(PLACING):
                            found.append((setting, key, path))
    return found


WRONG: dict[str, Any] = {
    "size": "many",
    "switch": "perhaps",
    "number": "half",
    "share": 1.5,
    "fraction": -0.5,
    "text": [1],
}
TYPED = [(base, key.kind.value, path) for base in BASES for _, key, path in keys_of(base) if key.kind.value in WRONG]


@pytest.mark.parametrize(("base", "kind", "path"), sorted(set(TYPED)))
def test_a_value_of_the_wrong_type_is_a_fault_at_its_place(base: str, kind: str, path: str) -> None:
    assert refusals(base, {path: WRONG[kind]}) == [("invalid-value", path)]
    for value in ("${oc.env:NOT_THERE}", "???", None):
        planned(base, {path: value})


@pytest.mark.parametrize(("base", "path"), sorted({(base, path) for base, kind, path in TYPED if kind == "size"}))
def test_a_size_of_0_states_nothing(base: str, path: str) -> None:
    for names, phases in some(planned(base, {path: 0}).memory().items()):
        assert phases, names


VALUES = {"size": [1, 3, 4096], "switch": [True, False], "number": [0.5], "share": [0.4, 1], "fraction": [0, 0.5, 1]}
TEXTS = ["full", "selective", "block", "uniform", "fp8", "bf16", "float32", "adam", "sgd", "auto"]


@at_least(planned=0.4)
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_keys_of_memory_place_and_recognise_nothing(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from(sorted(BASES)))
    paths = {path: VALUES.get(key.kind.value, TEXTS) for _, key, path in keys_of(base)}
    drawn = data.draw(st.lists(st.sampled_from(sorted(paths)), max_size=6, unique=True))
    keys = {path: data.draw(st.sampled_from(paths[path])) for path in drawn}
    for path in list(keys):  # a section and a key inside it
        keys = {one: value for one, value in keys.items() if not one.startswith(f"{path}.")}
    assert name_of(changed(base, keys)) == name_of(BASES[base])
    try:
        plan = planned(base, keys)
    except PlacementError as error:  # the model has fewer layers than its ends
        assert {one.code for one in error.diagnostics} == {"invalid-value"}
        return
    outcome("planned")
    usual = planned(base, {})
    for name, component in plan.items():
        assert component.with_settings(memory=None) == usual[name].with_settings(memory=None)
    assert list(plan) == list(usual)


OPEN = [
    (base, each.name, key, path)
    for base in BASES
    for each, key, path in keys_of(base)
    if key.default is None and each.name not in GUESSED and len(each.keys) == 1 and not key.fallbacks
]


@pytest.mark.parametrize(("base", "setting", "key", "path"), OPEN)
def test_a_missing_key_is_never_narrower_than_a_stated_one(base: str, setting: str, key: Key[Any], path: str) -> None:
    absent = planned(base, {}).memory()
    planned_values = 0
    for value in [*VALUES.get(key.kind.value, TEXTS), *([10**9] if setting in ("sequences", "tokens") else [])]:
        try:
            present = planned(base, {path: value}).memory()
        except PlacementError:
            continue
        planned_values += 1
        for names, phases in present.items():
            for phase, need in phases.items():
                other = absent[names][phase]
                assert other.lower <= need.lower <= need.upper <= other.upper, (value, names, phase)
    assert planned_values


@pytest.mark.parametrize(
    ("base", "keys", "silent"),
    [
        ("verl", {"actor_rollout_ref.model.lora_adapter_path": "/adapter"}, "actor"),
        ("verl", {"actor_rollout_ref.model.override_config.num_hidden_layers": 4}, "actor"),
        ("verl", {"actor_rollout_ref.rollout.quantization": "torchao"}, "rollout"),
        ("verl", {"actor_rollout_ref.rollout.engine_kwargs.vllm.cpu_offload_gb": 8}, "rollout"),
        ("verl", {"actor_rollout_ref.actor.strategy": "veomni"}, "actor"),
        ("verl", {"actor_rollout_ref.actor.fsdp_config.reshard_after_forward": False}, "actor"),
        ("nemo_rl dtensor", {"policy.dtensor_cfg.dp_replicate_size": 2}, "policy"),
        ("verl megatron", {"actor_rollout_ref.actor.megatron.use_megatron_fsdp": True}, "actor"),
        ("nemo_rl", {"policy.hf_config_overrides": {"num_hidden_layers": 2}}, "policy"),
        ("nemo_rl teachers", {"policy.hf_config_overrides": {"num_hidden_layers": 2}}, "teacher.math"),
        ("nemo_rl teachers", {f"{TEACHERS}.default_teacher_cfg.num_layers_in_last_pipeline_stage": 2}, "teacher.math"),
        ("nemo_rl teachers", {f"{TEACHERS}.teacher_overrides": {"math": {"micro_batch_size": 1}}}, "teacher.math"),
        ("roll", {"actor_train.model_args.freeze_module_prefix": "vision"}, "actor_train"),
        ("slime", {"only_train_params_name_list": ["experts"]}, "actor"),
        ("slime", {"sglang_config": "engines.yaml"}, "rollout"),
        ("areal", {"actor.backend": "archon:d4"}, "actor"),
        ("openrlhf", {"ds.load_in_4bit": True}, "actor"),
        ("skyrl", {"trainer.policy.inference_only_init": True}, "policy"),
        ("rlinf", {"actor.training_backend": "fsdp", "actor.fsdp_config.sharding_strategy": "no_shard"}, "actor"),
        ("rlinf", {"runner.task_type": "embodied"}, "actor"),
        ("rlinf", {"actor.model.is_lora": True, "actor.model.lora_rank": 16}, "actor"),
        ("rlinf", {"actor.model.freeze_language_model": True}, "actor"),
        ("rlinf", {"actor.model.freeze_vision_model": True}, "actor"),
        ("rlinf", {"actor.model.decoder_first_pipeline_num_layers": 2}, "actor"),
        ("rlinf", {"actor.training_backend": "fsdp", "actor.model.load_in_8bit": True}, "actor"),
        ("rlinf", {"actor.training_backend": "fsdp", "actor.model.gptq_model": True}, "actor"),
        ("verl", {"actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype": "fp32"}, "actor"),
        ("skyrl", {"trainer.policy.fsdp_config.mixed_precision.param_dtype": "fp32"}, "policy"),
        (
            "rlinf",
            {"actor.training_backend": "fsdp", "actor.fsdp_config.mixed_precision.param_dtype": "fp32"},
            "actor",
        ),
        ("nemo_rl", {"policy.megatron_cfg.freeze_config": {"freeze_language_model": True}}, "policy"),
        ("nemo_rl", {"policy.megatron_cfg.freeze_config.freeze_language_model": "True"}, "policy"),
        ("nemo_rl", {"policy.megatron_cfg.freeze_config": {"freeze_embedding": True}}, "policy"),
        (
            "nemo_rl dtensor",
            {"policy.dtensor_cfg.automodel_kwargs.freeze_config.freeze_language_model": True},
            "policy",
        ),
    ],
)
def test_what_is_not_known_is_not_claimed(base: str, keys: dict[str, Any], silent: str) -> None:
    assert planned(base, keys)[silent].memory is None


STANDALONE_SHARE = "actor_rollout_ref.rollout.standalone_gpu_memory_utilization"


@pytest.mark.parametrize(
    ("program", "words", "share"),
    [
        ("verl.experimental.fully_async_policy.fully_async_main", f"{STANDALONE_SHARE}=0.8", 0.8),
        ("verl.experimental.fully_async_policy.fully_async_main", "", 0.4),
        (
            "verl.experimental.fully_async_policy.fully_async_main",
            f"{STANDALONE_SHARE}=0.8 actor_rollout_ref.rollout.engine_kwargs.vllm.gpu_memory_utilization=0.3",
            0.3,
        ),
        ("verl.experimental.one_step_off_policy.main_ppo", f"{STANDALONE_SHARE}=0.8", 0.4),
    ],
)
def test_engines_of_the_fully_asynchronous_rollout_have_a_share_of_their_own(
    program: str, words: str, share: float, tmp_path: Path
) -> None:
    path = tmp_path / "run.sh"
    words += " actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.gpu_memory_utilization=0.4"
    words += " actor_rollout_ref.model.path=Qwen/Qwen3-8B algorithm.adv_estimator=grpo"
    words += " actor_rollout_ref.rollout.tensor_model_parallel_size=2 trainer.nnodes=1 rollout.nnodes=1"
    path.write_text(f"python3 -m {program} {words}\n")
    memory = rankplan.plan(path, "2x8")["rollout"].memory
    assert memory is not None and memory.unread is None
    assert memory.share == share


def test_a_share_that_is_stated_counts_in_a_config_with_unknown_defaults(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    words = "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.gpu_memory_utilization=0.8"
    words += " actor_rollout_ref.model.path=Qwen/Qwen3-8B trainer.nnodes=1"
    path.write_text(f"python3 -m verl.trainer.main_ppo --config-name mine {words}\n")
    memory = rankplan.plan(path, "1x8")["rollout"].memory
    assert memory is not None and memory.share == 0.8


def test_a_share_of_standalone_engines_changes_no_others() -> None:
    usual, stated = planned("verl", {}), planned("verl", {STANDALONE_SHARE: 0.8})
    assert stated["rollout"].memory == usual["rollout"].memory


def test_what_is_not_claimed_has_its_reason() -> None:
    key = "actor_rollout_ref.model.lora_adapter_path"
    report = rankplan.check(changed("verl", {key: "/adapter"}), "1x8:H100", memory=True)
    assert report.needs is not None
    lines = memory_lines(report.needs)
    assert f"not counted, since the effect of `{key}` is unknown: actor" in lines
    (warning,) = (one for one in report.warnings if one.code == "memory-unknown" and "`rollout`" in one.message)
    assert str(warning.help).startswith(f"the effect of `{key}` on `actor` is unknown; measure a run with rankplan pin")


@pytest.mark.parametrize(
    ("base", "keys", "widened"),
    [
        ("verl", {"hydra.job.config_name": "somebody_elses"}, "rollout"),
        ("nemo_rl", {"policy.quant_cfg": "NVFP4"}, "policy"),
        ("verl", {"actor_rollout_ref.model.mtp.enable": True}, "actor"),
        ("verl", {"actor_rollout_ref.model.mtp.enable": True}, "rollout"),
        ("verl", {"actor_rollout_ref.rollout.update_weights_bucket_megabytes": 8192}, "rollout"),
        ("verl", {"actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes": 8192}, "rollout"),
        ("verl megatron", {f"{TRANSFORMER}.mtp_num_layers": 1}, "actor"),
        ("verl", {f"{KWARGS}.vllm.speculative_config": {"method": "eagle3"}}, "rollout"),
        ("verl megatron", {f"{KWARGS}.sglang.speculative_algorithm": "EAGLE"}, "rollout"),
        ("nemo_rl", {"policy.generation.vllm_kwargs.speculative_config": {"method": "mtp"}}, "generation"),
        ("nemo_rl", {"policy.megatron_cfg.mtp_num_layers": 2}, "policy"),
        ("roll", {"actor_infer.strategy_args.strategy_config.speculative_config": {"method": "mtp"}}, "actor_infer"),
        ("roll", {"actor_train.strategy_args.strategy_config.mtp_num_layers": 1}, "actor_train"),
        ("slime", {"sglang_speculative_algorithm": "EAGLE"}, "rollout"),
        ("slime", {"sglang_enable_dp_attention": True}, "rollout"),
        ("slime", {"mtp_num_layers": 1}, "actor"),
        ("skyrl", {"trainer.mtp.enabled": True}, "policy"),
        (
            "skyrl megatron",
            {"trainer.fused_lm_head_logprob": True, "trainer.logprobs_chunk_size": 4096},
            "policy",
        ),
        (
            "skyrl megatron",
            {"trainer.fused_lm_head_logprob": True, "trainer.logprobs_chunk_size": None},
            "policy",
        ),
        (
            "skyrl megatron",
            {"trainer.fused_lm_head_logprob": True, "trainer.logprobs_chunk_size": "null"},
            "policy",
        ),
        ("verl megatron", {"actor_rollout_ref.actor.optim.use_layer_wise_distributed_optimizer": True}, "actor"),
        ("nemo_rl", {"policy.generation.real_quant": True}, "generation"),
        ("roll", {"actor_train.mtp_training_mode": "joint"}, "actor_train"),
        ("skyrl", {"generator.inference_engine.engine_init_kwargs.speculative_config": {"model": "a"}}, "generator"),
    ],
)
def test_a_small_effect_that_is_not_counted_takes_the_bounds_away(
    base: str, keys: dict[str, Any], widened: str
) -> None:
    plan = planned(base, keys)
    memory = plan[widened].memory
    assert memory is not None and memory.unread is not None
    assert all(path.rpartition(".")[2] in memory.unread or "config_name" in path for path in keys)
    (need,) = plan.memory()[(widened,)].values()
    own = {name: bounds for name, bounds in need.parts.items() if not name.endswith("asleep")}
    assert set(own.values()) == {(0.0, math.inf)}
    assert need.answer not in ("fits", "refused")
    assert Plan.from_dict(plan.to_dict()).memory() == plan.memory()


@pytest.mark.parametrize(
    ("base", "path", "name"),
    [
        ("verl", "actor_rollout_ref.actor.fsdp_config.fsdp_size", "actor"),
        ("skyrl", "trainer.policy.fsdp_config.fsdp_size", "policy"),
    ],
)
def test_a_shard_group_of_one_keeps_all_states_on_each_accelerator(base: str, path: str, name: str) -> None:
    states = {size: planned(base, {path: size}).memory()[(name,)]["train"].lower for size in (1, 4, 8)}
    params = Model.of(MODEL).params
    assert states[1] >= 16 * params
    assert states[1] == pytest.approx(4 * states[4], rel=0.01) == pytest.approx(8 * states[8], rel=0.01)


def test_a_cache_of_a_stated_size_is_the_cache(tmp_path: Path) -> None:
    key = "policy.generation.vllm_kwargs.kv_cache_memory_bytes"
    need = planned("nemo_rl", {key: 20 * GIB}).memory()[("generation",)]["generate"]
    assert need.parts["cache"] == (20 * GIB, 20 * GIB)
    assert need.tokens is not None and need.tokens[0] == need.tokens[1] > 100_000
    config = changed("nemo_rl", {key: 100 << 20, "policy.generation.vllm_cfg.max_model_len": 8192})
    (tmp_path / "nodes.yaml").write_text("nodes: [{ranks: 0, accelerators: 8, accelerator_model: NVIDIA H100}]\n")
    (fault,) = rankplan.check(config, tmp_path / "nodes.yaml").faults
    assert fault.code == "engine-share"
    assert "has 0.1 GiB, which hold 1,422 tokens, but its longest request has 8,192" in fault.message
    assert fault.help is not None and f"write `{key}: 6" in fault.help


@pytest.mark.parametrize(
    ("base", "keys", "component"),
    [
        ("verl", {"actor_rollout_ref.model.mtp.enable": False}, "actor"),
        ("verl", {"actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype": "bf16"}, "actor"),
        ("verl", {"actor_rollout_ref.rollout.update_weights_bucket_megabytes": 512}, "rollout"),
        ("nemo_rl", {"policy.megatron_cfg.mtp_num_layers": 0}, "policy"),
    ],
)
def test_what_is_switched_off_says_nothing(base: str, keys: dict[str, Any], component: str) -> None:
    assert planned(base, keys)[component].memory == planned(base, {})[component].memory is not None


def test_a_components_own_memory_wins_in_rlinf() -> None:
    config = changed("rlinf", {"cluster.component_placement": {"actor": "0-7"}})
    own = {"placement": "0-7", "memory": {"resident": "17 GiB"}}
    config["cluster"]["component_placement"] = {"actor": own, "rollout": "0-7"}
    plan = rankplan.plan(config, "1x8")
    assert plan["actor"].memory is not None and plan["actor"].memory.resident == 17 * GIB
    assert plan["rollout"].memory is not None and plan["rollout"].memory.engine == "vllm"


def test_the_model_of_the_section_is_for_rlinfs_keys_too() -> None:
    config = changed("rlinf", {"rollout.model.model_path": "/path/to/model"})
    assert rankplan.plan(config, "1x8")["actor"].memory is None
    config["cluster"]["model"] = MODEL
    memory = rankplan.plan(config, "1x8")["actor"].memory
    assert memory is not None and memory.model == Model.of(MODEL)


def test_a_refusal_is_at_the_model(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text("nodes: [{ranks: 0, accelerators: 8, accelerator_model: NVIDIA L4}]\n")
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump(named("verl", "Qwen/Qwen3-32B"), sort_keys=False))
    found = rankplan.check(tmp_path / "conf.yaml", tmp_path / "nodes.yaml").faults
    assert {one.code for one in found} == {"memory-exceeded", "engine-share"}
    assert {one.path for one in found} == {"actor_rollout_ref.model.path"}
    lines = (tmp_path / "conf.yaml").read_text().splitlines()
    assert ["path: Qwen/Qwen3-32B" in lines[(one.line or 0) - 1] for one in found] == [True] * len(found)


FLAGS = {
    "num_layers": 36,
    "hidden_size": 4096,
    "ffn_hidden_size": 12288,
    "num_attention_heads": 32,
    "group_query_attention": True,
    "num_query_groups": 8,
    "kv_channels": 128,
    "vocab_size": 151936,
    "swiglu": True,
    "untie_embeddings_and_output_weights": True,
    "qk_layernorm": True,
}
MOE_FLAGS = {**FLAGS, "num_layers": 48, "hidden_size": 2048, "ffn_hidden_size": 6144, "num_query_groups": 4} | {
    "num_experts": 128,
    "moe_router_topk": 8,
    "moe_ffn_hidden_size": 768,
    "moe_layer_freq": "[1]*48",
}


@pytest.mark.parametrize(("flags", "name"), [(FLAGS, MODEL), (MOE_FLAGS, MOE)])
def test_the_sizes_of_slimes_flags_make_the_model(flags: dict[str, Any], name: str) -> None:
    memory = planned("slime", {"hf_checkpoint": "/root/checkpoint", **flags})["actor"].memory
    assert memory is not None and memory.model is not None
    assert memory.model.params == Model.of(name).params
    for size in ("num_layers", "vocab_size"):
        missing = {key: value for key, value in flags.items() if key != size}
        assert planned("slime", {"hf_checkpoint": "/root/checkpoint", **missing})["actor"].memory is None


@pytest.mark.parametrize(
    ("frequency", "dense"),
    [
        ("[0]*3+[1]*45", 3),
        (1, 0),
        ("[0,0," + ",".join("1" * 46) + "]", 2),
        ("[1]*47", None),
        ("[1,0]*24", None),
        (2, None),
    ],
)
def test_where_experts_are(frequency: Any, dense: int | None) -> None:
    flags = {"hf_checkpoint": "/root/checkpoint", **MOE_FLAGS, "moe_layer_freq": frequency}
    memory = planned("slime", flags)["actor"].memory
    experts = memory.model.shape.experts if memory is not None and memory.model and memory.model.shape else None
    assert (experts and experts.dense_layers) == dense


def test_stages_that_do_not_fit_the_model_are_a_fault_at_their_key() -> None:
    keys = {"decoder_first_pipeline_num_layers": 30, "decoder_last_pipeline_num_layers": 30}
    assert refusals("slime", keys) == [("invalid-value", "decoder_last_pipeline_num_layers")]


@pytest.mark.parametrize("name", MEMORY)
def test_the_tables_name_settings(name: str) -> None:
    assert name in DIALECTS
    fields = rankplan.read.memory.MEMORY.fields
    for role in MEMORY[name]:
        assert all(setting.name in fields or not setting.name for setting in role.settings)
        kinds = {key.kind for setting in role.settings for key in setting.keys}
        assert {kind.value for kind in kinds} <= {*WRONG, "any", "fact"}
    assert SLIME is MEMORY["slime"]


def _recipes() -> list[dict[str, Any]]:
    path = Path(__file__).parent.parent / "golden" / "memory_rows.jsonl.gz"
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    return [
        row
        for row in rows
        if row["kind"] in ("ran", "below")
        and "NeMo" in row["source"]
        and isinstance(row.get("model"), str)
        and row.get("train", {}).get("recompute")
        and row["train"]["framework"] in ("megatron", "fsdp2", "fsdp")
    ]


@pytest.mark.parametrize("row", _recipes(), ids=lambda row: row["id"])
def test_recipes_that_ran_are_read_as_they_say_and_not_refused(row: dict[str, Any]) -> None:
    train, engine, card = row["train"], row.get("engine"), row["card"]["gib"]
    megatron = train["framework"] == "megatron"
    policy: dict[str, Any] = {
        "model_name": row["model"],
        "precision": "bfloat16",
        "max_total_sequence_length": train["seq"],
        "train_micro_batch_size": train["micro_batch"] or 1,
        "sequence_packing": {"enabled": False},
    }
    if megatron:
        policy["megatron_cfg"] = {
            "enabled": True,
            "tensor_model_parallel_size": train["tp"],
            "context_parallel_size": train["cp"],
            "pipeline_model_parallel_size": train["pp"],
            "expert_model_parallel_size": train["ep"],
            "expert_tensor_parallel_size": train["etp"],
            "sequence_parallel": train["sequence_parallel"],
            "activation_checkpointing": train["recompute"] != "none",
            "num_layers_in_first_pipeline_stage": train["first_layers"],
            "num_layers_in_last_pipeline_stage": train["last_layers"],
            "peft": {"enabled": bool(train["lora"]), "dim": train["lora"] or 8},
            "distributed_data_parallel_config": {"grad_reduce_in_fp32": train["grads_in_fp32"]},
            "optimizer": {
                "optimizer": "adam",
                "use_precision_aware_optimizer": train["precision_aware"],
                "use_distributed_optimizer": train["distributed_optimizer"],
                "optimizer_cpu_offload": bool(train["optimizer_cpu_fraction"]),
                "optimizer_offload_fraction": train["optimizer_cpu_fraction"],
            },
        }
    else:
        policy["dtensor_cfg"] = {
            "enabled": True,
            "tensor_parallel_size": train["tp"],
            "context_parallel_size": train["cp"],
            "activation_checkpointing": train["recompute"] != "none",
            "lora_cfg": {"enabled": bool(train["lora"]), "dim": train["lora"] or 8},
        }
    config: dict[str, Any] = {"cluster": {"num_nodes": row["nodes"], "gpus_per_node": row["gpus_per_node"]}}
    config |= {"policy": policy, "grpo": {}} if engine else {"policy": policy, "sft": {}}
    if engine and row["colocated"] and engine["name"] == "vllm":
        policy["generation"] = {
            "backend": "vllm",
            "colocated": {"enabled": True},
            "vllm_cfg": {
                "tensor_parallel_size": engine["tp"],
                "pipeline_parallel_size": engine["pp"],
                "expert_parallel_size": engine["ep"],
                "gpu_memory_utilization": engine["utilization"],
                "max_model_len": engine["max_len"],
                "precision": {"bf16": "bfloat16"}.get(engine["weights"], engine["weights"]),
                "kv_cache_dtype": engine["kv"],
            },
        }
    elif engine:
        config = {**config, "sft": {}}
        del config["grpo"]
    plan = rankplan.plan(config, f"{row['nodes']}x{row['gpus_per_node']}")
    memory = plan["policy"].memory
    if memory is None:
        assert row["model"] not in Model.names()
        return
    assert memory.recompute == train["recompute"]
    assert memory.lora == train["lora"]
    assert memory.training == ("megatron" if megatron else "fsdp")
    for phases in plan.memory().values():
        for need in phases.values():
            assert need.lower <= card * GIB
            assert need.starts


SCRIPT = """\
MODEL_PATH=${{MODEL_PATH:-"{folder}"}}
{command} trainer.nnodes=1 trainer.n_gpus_per_node=8 algorithm.adv_estimator=grpo \\
  actor_rollout_ref.model.path="$MODEL_PATH" actor_rollout_ref.rollout.name=vllm
"""
VERL = "python3 -m verl.trainer.main_ppo"


def _actor_of(folder: Path, text: str) -> Any:
    script = folder / "run.sh"
    script.write_text(text)
    return rankplan.plan(script)["actor"].memory


def test_the_model_in_a_folder_of_a_variable_is_known(tmp_path: Path) -> None:
    memory = _actor_of(tmp_path, SCRIPT.format(folder="${HOME}/verl/models/Qwen2.5-32B", command=VERL))
    assert memory is not None and memory.model == rankplan.Model.of("Qwen/Qwen2.5-32B")
    slime = "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate --hf-checkpoint $BASE/Qwen3-4B"
    memory = _actor_of(tmp_path, slime)
    assert memory is not None and memory.model == rankplan.Model.of("Qwen/Qwen3-4B")


@pytest.mark.parametrize("folder", ["${HOME}/models/$NAME", "${HOME}", "$HOME/Qwen3-$SIZE", "$HOME/models/mine"])
def test_a_variable_in_the_name_itself_says_nothing(folder: str, tmp_path: Path) -> None:
    assert _actor_of(tmp_path, SCRIPT.format(folder=folder, command=VERL)) is None


def test_a_model_that_may_not_be_passed_says_nothing(tmp_path: Path) -> None:
    text = SCRIPT.format(folder="$HOME/Qwen3-8B", command=VERL).replace(
        '  actor_rollout_ref.model.path="$MODEL_PATH"', '  "${MORE[@]}"'
    )
    assert (
        _actor_of(tmp_path, 'if test -n "$X"; then MORE=(actor_rollout_ref.model.path="$HOME/Qwen3-8B"); fi\n' + text)
        is None
    )


def test_a_job_without_a_language_model_says_so() -> None:
    config = changed("rlinf", {"runner.task_type": "embodied"})
    report = rankplan.check(config, "1x8", memory=True)
    (warning,) = (warning for warning in report.warnings if warning.code == "unknown-model")
    assert warning.path == "runner.task_type"
    assert "need not train a language model" in warning.message
    config["actor"]["model"]["model_type"] = "openvla_oft"
    report = rankplan.check(config, "1x8", memory=True)
    (warning,) = (warning for warning in report.warnings if warning.code == "unknown-model")
    assert warning.path == "actor.model.model_type"
    assert "'openvla_oft' has unknown sizes" in warning.message
    assert "component_placement" in str(warning.help)
    config = changed("rlinf", {"runner.task_type": "sft", "actor.model.model_type": "qwen3"})
    report = rankplan.check(config, "1x8", memory=True)
    (warning,) = (warning for warning in report.warnings if warning.code == "unknown-model")
    assert warning.path == "runner.task_type"


def test_values_that_a_help_tries_say_nothing_about_the_config() -> None:
    """To name the key of a length, the help tries others for the task of the job."""
    config = {
        "cluster": {"num_nodes": 1, "component_placement": {"actor": "0-7"}},
        "actor": {"training_backend": "fsdp", "model": {"model_path": "Qwen/Qwen3-8B", "precision": "bf16"}},
    }
    warnings = rankplan.check(config, "1x8:H100", memory=True).warnings
    assert [warning.code for warning in warnings] == ["memory-unknown"]


def test_a_role_without_a_key_for_its_model_says_nothing() -> None:
    """A guest may know the model by itself, or not at all."""
    model = Setting("model", (fact("model"),), by=lambda name: name)
    role = Role({"actor": ""}, fixed("training", {"training": "fsdp"}), model, ())
    reader = MemoryReader(Config(Reader({"a": 1}), Faults()), [role])
    assert reader.memory("actor", {}) is None
    assert reader.sources.unnamed_model is None


def test_without_a_language_model_the_table_asks_for_no_other_model() -> None:
    config = {
        "cluster": {"num_nodes": 1, "component_placement": {"actor": "0-3", "rollout": "4-7"}},
        "runner": {"task_type": "embodied"},
        "actor": {"training_backend": "fsdp", "model": {"model_type": "openvla"}},
        "rollout": {"rollout_backend": "huggingface"},
    }
    report = rankplan.check(config, "1x8", memory=True)
    (warning,) = report.warnings
    (line,) = (line for line in report.render().splitlines() if line.startswith("memory:"))
    assert line == f"memory: no component says what it keeps; {warning.help}"


@pytest.mark.parametrize(
    ("base", "named", "key"),
    [
        ("verl", "actor_rollout_ref.model.path", "actor_rollout_ref.model.path"),
        ("rlinf", "rollout.model.model_path", "actor.model.model_path"),
    ],
)
def test_a_config_that_names_no_model_says_which_key_does(base: str, named: str, key: str) -> None:
    config = changed(base, {named: None})
    (warning,) = rankplan.check(config, "1x8", memory=True).warnings
    assert (warning.code, warning.message) == ("unknown-model", f"no key names the model: `{key}` is not stated")
    assert str(warning.help).startswith(f"write `{key}: Qwen/Qwen3-8B`, or pass its name, `--model ")
    passed = rankplan.check(config, "1x8", memory=True, model=MODEL)
    assert "unknown-model" not in {warning.code for warning in passed.warnings}


def test_the_engine_of_an_evaluation_without_a_model_says_which_key_names_it() -> None:
    """RLinf's examples/agent/wideseek_r1/config/base_eval.yaml, whose model is passed on the command line."""
    config = {
        "cluster": {"num_nodes": 1, "component_placement": {"actor,reward": "all", "rollout": "all"}},
        "runner": {"task_type": "reasoning_eval", "seq_length": 32000},
        "rollout": {"rollout_backend": "sglang", "tensor_parallel_size": 1, "model": {"model_type": "qwen3"}},
    }
    warnings = rankplan.check(config, "1x8", memory=True).warnings
    (warning,) = (warning for warning in warnings if warning.code == "unknown-model")
    assert warning.path == "rollout.model.model_path"


def test_supervised_training_of_a_language_model_has_the_length_of_its_prompts() -> None:
    supervised = {
        "runner": {"task_type": "sft", "enable_dynamic_batch_size": True},
        "cluster.component_placement": {"actor": "0-7"},
        "algorithm": {"training_batch_size_per_gpu": 8, "logprob_forward_micro_batch_size": 8},
        "data.max_prompt_length": 1024,
        "actor.micro_batch_size": 4,
        "actor.model.model_path": MODEL,
    }
    memory = planned("rlinf", {**supervised, "actor.model.model_type": "qwen3_vl"})["actor"].memory
    assert memory is not None and memory.training == "megatron"
    assert (memory.length, memory.tokens, memory.trained_tokens) == (1024, 4096, 4096)
    for model in ("qwen3", "openpi"):
        assert planned("rlinf", {**supervised, "actor.model.model_type": model})["actor"].memory is None


@pytest.mark.parametrize(("layers", "recompute"), [(36, "full"), (40, "full"), (35, None), (None, None)])
def test_a_block_of_all_layers_is_full_recomputation(layers: int | None, recompute: str | None) -> None:
    keys = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": layers}
    memory = planned("rlinf", {f"actor.model.{key}": value for key, value in keys.items()})["actor"].memory
    assert memory is not None and memory.model is not None
    assert memory.model.layers == 36 and memory.recompute == recompute


def test_sizes_of_one_are_stated_in_rlinf() -> None:
    keys: dict[str, Any] = {"runner.seq_length": 4096, "actor.model.recompute_granularity": "selective"}
    config = changed("rlinf", keys | {"actor.model.tensor_model_parallel_size": 1, "actor.micro_batch_size": 1})
    train = rankplan.plan(config, "1x8:H100").memory()["actor",]["train"]
    assert train.likely is not None and train.answer == "likely exceeds"
    assert train.lower >= 8.19e9 * 6, "undivided weights and gradients of 32 bits"
    del config["actor"]["model"]["tensor_model_parallel_size"]
    train = rankplan.plan(config, "1x8:H100").memory()["actor",]["train"]
    assert train.likely is None and train.lower < 8.19e9 * 6


@pytest.mark.parametrize("keys", [{"reward.use_reward_model": False}, {}])
def test_rewards_by_rules_need_no_accelerator(keys: dict[str, Any]) -> None:
    config = changed("rlinf", keys)
    config["cluster"]["component_placement"] = {"actor,rollout,reward": "0-7"}
    memory = rankplan.plan(config, "1x8")["reward"].memory
    assert memory is not None and memory.kind == "resident" and memory.resident == 1 << 20
    with_model = changed("rlinf", {"reward.use_reward_model": True})
    with_model["cluster"]["component_placement"] = {"actor,rollout,reward": "0-7"}
    assert rankplan.plan(with_model, "1x8")["reward"].memory is None

"""Help about memory in a trainer's own keys: what it says to write gives the settings that it promises."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import Inventory
from rankplan.dialects.memory.spelling import KeySpelling
from rankplan.errors import Diagnostic
from rankplan.front.job import read_job
from rankplan.memory.need import SWITCH
from rankplan.memory.verdicts import assumed_text
from support.memory_configs import BASES, MODEL, changed, planned

WANTED: list[tuple[str, Any]] = [
    ("optimizer_on_host", 1.0),
    ("sleep", "host"),
    ("sleep", "none"),
    ("recompute", "full"),
    ("recompute", "none"),
    ("share", 0.3),
    ("length", 2048),
    ("sequences", 17),
    ("tokens", 4096),
    ("zero_stage", 3),
    ("gradients", "fp32"),
    ("distributed_optimizer", True),
    ("sequence_parallel", True),
]


def _spellings(base: str) -> dict[str, KeySpelling]:
    sources = read_job(BASES[base], "1x8").planned().sources
    return {name: one for name, one in sources.spellings.items() if isinstance(one, KeySpelling)}


SPELT = {base: _spellings(base) for base in BASES}


def _dotted(values: dict[tuple[Any, ...], Any]) -> dict[str, Any]:
    return {".".join(map(str, path)): value for path, value in values.items()}


@pytest.mark.parametrize("base", BASES)
def test_keys_to_write_state_the_setting_and_change_no_other(base: str) -> None:
    stated = 0
    usual = planned(base, {})
    for component, spelling in SPELT[base].items():
        entry = usual[component].memory
        assert entry is not None
        for setting, value in WANTED:
            values = spelling.values({setting: value})
            if not values:
                continue
            stated += 1
            found = planned(base, _dotted(values))
            assert found[component].memory == replace(entry, **{setting: value}), (component, values)
            assert list(found) == list(usual)
    assert stated


def test_keys_that_are_missing_make_a_setting_known() -> None:
    """Those of AReaL, OpenRLHF and open-instruct have defaults for all of these settings, or no keys."""
    named = set()
    for base in BASES:
        usual = planned(base, {})
        for component, spelling in SPELT[base].items():
            for setting in ("tokens", "length", "share", "sequences", "recompute", "sleep"):
                entry = usual[component].memory
                if entry is None or getattr(entry, setting) is not None or (text := spelling.named(setting)) is None:
                    continue
                assert text.startswith("`") and setting not in text.split("`")[1].split("."), text
                named.add(base)
    assert named == BASES.keys() - {"areal", "openrlhf", "open_instruct"}


VERL = """\
trainer: {nnodes: 1, n_gpus_per_node: 8}
algorithm: {adv_estimator: grpo}
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-32B}
  actor:
    strategy: STRATEGY
    fsdp_config:
      offload_policy: false
  rollout:
    name: vllm
    tensor_model_parallel_size: 2
    gpu_memory_utilization: 0.5
    max_model_len: 32768
"""
NODES = {"nodes": [{"ranks": 0, "accelerators": 8, "accelerator_model": "NVIDIA L40S"}]}


def _help(tmp_path: Path, strategy: str) -> dict[str, Diagnostic]:
    (tmp_path / "verl.yaml").write_text(VERL.replace("STRATEGY", strategy))
    (tmp_path / "nodes.yaml").write_text(json.dumps(NODES))
    faults = rankplan.check(tmp_path / "verl.yaml", tmp_path / "nodes.yaml").faults
    return {one.code: one for one in reversed(faults)}


def test_help_has_the_trainers_keys_and_their_lines(tmp_path: Path) -> None:
    found = _help(tmp_path, "fsdp2")
    assert "use `actor_rollout_ref.actor.fsdp_config.offload_policy: true` (line 8) (" in str(
        found["memory-exceeded"].help
    )
    share = found["engine-share"]
    assert (share.path, share.line) == ("actor_rollout_ref.rollout.gpu_memory_utilization", 12)
    assert "`actor_rollout_ref.rollout.tensor_model_parallel_size: 4` (line 11) (" in str(share.help)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("own", [False, True])
def test_a_share_is_changed_where_it_is_stated(tmp_path: Path, engine: str, *, own: bool) -> None:
    """Only a fully asynchronous rollout reads ``standalone_gpu_memory_utilization``."""
    text = VERL.replace("STRATEGY", "fsdp2").replace("name: vllm", f"name: {engine}")
    text += "    standalone_gpu_memory_utilization: 0.7\n"
    (tmp_path / "verl.yaml").write_text(text + ("rollout: {nnodes: 1, n_gpus_per_node: 8}\n" if own else ""))
    spelling = read_job(tmp_path / "verl.yaml", "2x8").planned().sources.spellings["rollout"]
    assert isinstance(spelling, KeySpelling)
    name = "standalone_gpu_memory_utilization" if own else "gpu_memory_utilization"
    path = ("actor_rollout_ref", "rollout", name)
    assert spelling.place("share") == path
    assert spelling.values({"share": 0.3}) == {path: 0.3}


def test_a_trainer_that_cannot_offload_is_told_the_strategy_that_can(tmp_path: Path) -> None:
    text = str(_help(tmp_path, "fsdp")["memory-exceeded"].help)
    assert "fsdp_config.offload_policy: true` (line 8) and `actor_rollout_ref.actor.strategy: fsdp2` (line 6)" in text
    assert "optimizer_on_host" not in text


def _actor_warning(config: Any) -> str:
    (warning,) = (one for one in rankplan.check(config, "1x8:H100").warnings if one.code.startswith("memory"))
    assert warning.message.startswith("`actor` needs about") and warning.help is not None
    return warning.help


def test_an_engine_that_stays_is_told_the_key_that_lets_it_go(tmp_path: Path) -> None:
    job = {
        "trainer": {"nnodes": 1, "n_gpus_per_node": 8},
        "algorithm": {"adv_estimator": "grpo"},
        "actor_rollout_ref": {
            "model": {"path": "Qwen/Qwen2.5-7B"},
            "actor": {"strategy": "fsdp2", "ppo_micro_batch_size_per_gpu": 4},
            "rollout": {"name": "vllm", "gpu_memory_utilization": 0.7, "free_cache_engine": False},
        },
    }
    assert _actor_warning(job).startswith("use `actor_rollout_ref.rollout.free_cache_engine: true` (")
    script = tmp_path / "run.sh"
    script.write_text(
        "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate --hf-checkpoint Qwen3-4B \\\n"
        "  --sglang-mem-fraction-static 0.7 --rollout-num-gpus-per-engine 1 --tensor-model-parallel-size 2 \\\n"
        "  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \\\n"
        "  --use-dynamic-batch-size --max-tokens-per-gpu 9216 --no-offload-rollout\n"
    )
    assert _actor_warning(script).startswith("use `offload_rollout` (line 4) (")


@pytest.mark.parametrize("base", BASES)
def test_an_unknown_model_is_a_warning_only_if_memory_is_asked_for(base: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": -1}')
    for name, code in (("Qwen/Qwen3-8C", "unknown-model"), (str(tmp_path), "model-keys")):
        config = json.loads(json.dumps(BASES[base]).replace(MODEL, name))
        assert not rankplan.check(config, "1x8").diagnostics
        found = rankplan.check(config, "1x8", memory=True)
        assert not found.faults
        assert {one.code for one in found.warnings} == {code}
        assert all(one.path and one.help for one in found.warnings)


def test_areal_is_told_the_letters_of_its_sizes(tmp_path: Path) -> None:
    """A backend states all sizes in one text; only AReaL's letters are its words."""
    actor = "actor: {path: Qwen/Qwen2.5-32B, backend: 'megatron:d8'}"
    (tmp_path / "areal.yaml").write_text(f"cluster: {{n_nodes: 1, n_gpus_per_node: 8}}\n{actor}\n")
    (tmp_path / "nodes.yaml").write_text(json.dumps(NODES).replace("L40S", "H100 80GB HBM3"))
    (found,) = rankplan.check(tmp_path / "areal.yaml", tmp_path / "nodes.yaml").faults
    assert found.code == "memory-exceeded"
    assert "`t8` in `actor.backend` (line 2)" in str(found.help) and "tp " not in str(found.help)
    old = {"cluster": {"n_nodes": 1, "n_gpus_per_node": 8}, "allocation_mode": "megatron:d8", "actor": {"path": MODEL}}
    spelling = read_job(old, "1x8").planned().sources.spellings["actor"]
    assert spelling.written({}, {"tp": 4, "pp": 2, "fsdp": 2}) == "`t4p2` in `allocation_mode` and fsdp 2"


def test_megatron_is_told_the_keys_that_it_demands_beside_recomputation() -> None:
    section = "actor_rollout_ref.actor.megatron.override_transformer_config"
    written = SPELT["verl megatron"]["actor"].written({"recompute": "full"}, {})
    keys = "recompute_granularity: full", "recompute_method: uniform", "recompute_num_layers: 1"
    assert written == " and ".join(f"`{section}.{key}`" for key in keys)
    assert SPELT["roll"]["actor_train"].written({"recompute": "full"}, {}) == (
        "`actor_train.strategy_args.strategy_config.recompute_granularity: full`"
    )


def test_what_is_assumed_of_sleepers_names_them() -> None:
    """OpenRLHF's switch leaves the weights of an actor: no setting states that."""
    keys = {"ds.enable_sleep": True, "algo.advantage.estimator": "gae", "critic.num_nodes": 1}
    config = changed("openrlhf", keys | {"critic.num_gpus_per_node": 8, "critic.model_name_or_path": MODEL})
    needs = rankplan.check(config, "1x8:H100", memory=True).needs
    assert needs is not None
    texts = {need.components[0]: assumed_text(needs, need) for need in needs.phases().values() if need.phase != SWITCH}
    assert texts["vllm"] == "assuming sleep host of `actor` and `critic`"
    assert texts["actor"] == "assuming sleep host of `critic`"


def test_a_trainer_without_a_key_for_the_host_is_told_what_to_do() -> None:
    section = "actor_rollout_ref.actor.fsdp_config"
    config = changed("verl", {f"{section}.param_offload": True, f"{section}.optimizer_offload": True})
    nodes = {"nodes": [{"ranks": 0, "accelerators": 8, "accelerator_model": "H100", "memory": {0: 64 << 10}}]}
    faults = {fault.code: fault for fault in rankplan.check(config, Inventory.from_dict(nodes)).faults}
    help = "let less of `actor` go to the host, or place fewer of its ranks on a node"
    assert faults["host-memory"].help == help

"""Every key of memory moves a setting, and every setting a bound: a key without effect would make answers false."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import rankplan
from rankplan.dialects.keys.key import Key, Kind
from rankplan.dialects.keys.roles import Setting
from rankplan.plans.memory_settings import FITTING
from support.dialects import MEMORY
from support.memory_configs import MODEL

WORDS = ["full", "selective", "block", "fp8", "fp32", "float16", "bf16", "adam", "adam_bf16", "other", "cpu", "fsdp"]
WORDS += ["fsdp2", "megatron", "vllm", "sglang", "megatron_train", "fsdp2_infer", "reasoning", "a.b", "float32", "lora"]
WORDS += ["sft", "qwen3_vl"]
_HYBRID = [["train", "rollout"]]
"""Roles of ms-swift that share GPUs."""
VALUES: dict[Kind, tuple[Any, ...]] = {
    Kind.SIZE: (None, 1, 2, 3, 64, 4096),
    Kind.SWITCH: (None, True, False),
    Kind.NUMBER: (None, 0, 0.25, float(1 << 34)),
    Kind.SHARE: (None, 0.25, 0.5),
    Kind.FRACTION: (None, 0.25, 0.5),
    Kind.FACT: (None, 8, False, "actor_train", "critic", "fsdp", "megatron", "vllm", "sglang"),
    Kind.TEXT: (None, *WORDS),
    Kind.ANY: (None, True, False, "fp8", 1, {"num_hidden_layers": 2}, {"mode": "selective"}, "full_shard", _HYBRID),
}
DRAWN = 6000


def settings_of(name: str) -> Iterator[tuple[str, Setting]]:
    """Yield the settings of a dialect with the name of a component, each once."""
    for role in MEMORY[name]:
        component = next(iter(role.components))
        for setting in role.all_settings:
            if setting.config_keys:
                yield component, setting


SIZES = {"num_layers": 4, "hidden_size": 64, "ffn_hidden_size": 64, "num_attention_heads": 4, "vocab_size": 64}
SIZES |= {"group_query_attention": True, "num_query_groups": 2, "hybrid_override_pattern": None, "spec": None}
SIZES |= {"hf_checkpoint": None, "kv_lora_rank": 64, "qk_head_dim": 64, "qk_pos_emb_head_dim": 64, "v_head_dim": 64}
"""Flags of slime that make a model together."""


def drawn(draw: random.Random, key: Key[Any], usual: float) -> Any:
    """Return a value of a key: in such a part of all cases the default."""
    if key.path in SIZES and draw.random() < 0.95:
        return SIZES[key.path]
    if key.kind is not Kind.FACT and draw.random() < usual:
        return key.default
    return draw.choice(VALUES[key.kind])


def moves(setting: Setting, key: Key[Any]) -> bool:
    """Whether some values of the other keys let two values of a key make different settings."""
    draw = random.Random(key.path)
    tried = VALUES[key.kind] if key.default in VALUES[key.kind] else (*VALUES[key.kind], key.default)
    for _ in range(DRAWN):
        usual = draw.choice([0.2, 0.5, 0.8, 0.95])
        values = {other: drawn(draw, other, usual) for other in setting.keys if other is not key}
        found = []
        for value in draw.sample(tried, 2):
            try:
                found.append(setting.by(*({**values, key: value}[one] for one in setting.keys)))
            except (TypeError, ValueError, AttributeError):  # facts of another component
                break
        if len(found) == 2 and found[0] != found[1]:
            return True
    return False


CONSTANT = {
    # one value in the system, whatever the key says; the key decides which settings apply
    ("skyrl", "trainer.strategy"),
    ("nemo_rl", "@.dtensor_cfg.enabled"),
    ("roll", "@.strategy_args.strategy_name"),
    ("rlinf", "@.training_backend"),
    ("rlinf", "rollout.rollout_backend"),
    # as many bytes as without
    *((name, "fp16") for name in ("slime", "miles", "vime")),
    # a fact of the job says whether it is off
    ("prime_rl", "trainer.model.ac_offloading"),
}
"""Keys that move nothing by themselves."""


@pytest.mark.parametrize("name", MEMORY)
def test_every_key_moves_a_setting(name: str) -> None:
    idle = {
        (name, key.path) for _, setting in settings_of(name) for key in setting.config_keys if not moves(setting, key)
    }
    assert idle <= CONSTANT


COMMON = {"model": MODEL, "length": 4096, "sleep": "host", "precision": "bf16"}
TRAINER = {**COMMON, "micro_batch": 1, "recompute": "full", "gradients": "bf16", "optimizer": "adam"}
KINDS: dict[str, dict[str, Any]] = {
    "megatron": TRAINER
    | {"training": "megatron", "distributed_optimizer": True, "sequence_parallel": True}
    | {"first_layers": 9, "last_layers": 9},
    "fsdp": {**TRAINER, "training": "fsdp"},
    "deepspeed": {**TRAINER, "training": "deepspeed", "zero_stage": 3},
    "forward": {**COMMON, "forward": "fsdp", "micro_batch": 1},
    "vllm": {**COMMON, "engine": "vllm", "share": 0.5, "sequences": 16, "tokens": 4096, "graphs": True},
    "sglang": {**COMMON, "engine": "sglang", "share": 0.5, "sequences": 16, "tokens": 4096, "graphs": True},
    "trtllm": {**COMMON, "engine": "trtllm", "share": 0.5, "sequences": 16, "tokens": 4096, "graphs": True},
}
OTHERS: dict[str, Any] = {
    "model": "Qwen/Qwen3-4B",
    "length": 2048,
    "sleep": "none",
    "precision": "fp32",
    "micro_batch": 2,
    "recompute": "none",
    "gradients": "fp32",
    "optimizer": "sgd",
    "optimizer_on_host": 0.5,
    "shards": 1,
    "distributed_optimizer": False,
    "sequence_parallel": False,
    "first_layers": 20,
    "last_layers": 8,
    "chunks": 2,
    "whole_gradients": True,
    "wide_logits": True,
    "fused_logits": True,
    "logits_in_place": True,
    "logits_chunk": 128,
    "empties_cache": True,
    "zero_stage": 2,
    "lora": 16,
    "share": 0.4,
    "sequences": 32,
    "tokens": 2048,
    "graphs": False,
    "cache_size": "5 GiB",
    "cache_precision": "fp8",
}
OF_FRAMEWORK = {
    "megatron": {"wide_logits", "chunks", "distributed_optimizer", "sequence_parallel", "first_layers", "last_layers"},
    "fsdp": {"shards", "whole_gradients", "logits_in_place"},
    "deepspeed": {"zero_stage"},
    "vllm": {"cache_size"},
}
NO_EFFECT = {("fsdp", "gradients"), ("deepspeed", "gradients"), ("deepspeed", "precision")}
NO_EFFECT |= {("forward", "zero_stage"), ("fsdp", "logits_in_place"), ("forward", "logits_in_place")}
"""Types that a bound does not know, a stage without effect on what only computes, and what moves the likely value."""


def answer(kind: str, memory: dict[str, Any]) -> Any:
    """Return what is proved about a component beside another one on the same cards."""
    sizes = {"tp": 2, "pp": 4} if kind == "megatron" else {"tp": 2} if "engine" in memory else {}
    one = {"placement": "0-15", "memory": memory, **({"parallel": sizes} if sizes else {})}
    placement = {"one": one, "other": {"placement": "0-15", "memory": {"resident": "1 GiB"}}}
    cluster = {"num_nodes": 2, "accelerator_memory": "80 GiB", "component_placement": placement}
    phases = rankplan.plan({"cluster": cluster}, "2x8").memory()
    needs = [need for each in phases.values() for need in each.values()]
    return [(need.parts, need.tokens, need.starts, need.host) for need in needs]


def changes() -> Iterator[tuple[str, str]]:
    """Yield each kind of component with each setting that is about it."""
    for kind, memory in KINDS.items():
        others = set().union(*(names for name, names in OF_FRAMEWORK.items() if name != kind))
        about = FITTING[next(key for key in ("training", "forward", "engine") if key in memory)]
        yield from ((kind, name) for name in OTHERS if name in about - others)


@pytest.mark.parametrize(("kind", "name"), list(changes()))
def test_every_setting_moves_a_bound(kind: str, name: str) -> None:
    usual = KINDS[kind]
    memory = {**usual, name: OTHERS[name]}
    if name == "tokens":
        memory.pop("micro_batch", None)
    moved = answer(kind, memory) != answer(kind, usual)
    assert moved != ((kind, name) in NO_EFFECT)

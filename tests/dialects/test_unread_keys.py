"""No key that decides memory is unread: of the files of models, and of the config classes of trainers.

``unread_keys.yaml`` has the names of all keys of these classes that sound like memory. Each is read, or was reviewed
and changes no bound. Any other one in the file of a model takes its bounds away.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from rankplan.errors import PlacementError
from rankplan.plans import model_config
from rankplan.plans.model import Model
from support.dialects import MEMORY, TABLES
from support.model_files import LLAMA
from support.outcomes import some

KEYS: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "support" / "unread_keys.yaml").read_text())
SMELLS = re.compile(
    "moe|expert|window|freq|pattern|interval|attn_type|offload|dtype|quant|lora|cache|precision|fp8|recompute|shard"
    "|chunk|fraction|utilization|sleep|micro_batch|mtp|draft|specul|layers|bucket|freeze"
)


def known(name: str) -> set[str]:
    """Return the last names of the keys that a dialect reads for memory or for places."""
    settings = [setting for role in MEMORY[name] for setting in role.all_settings]
    paths = {path for setting in settings for key in setting.config_keys for path in key.paths}
    entries = TABLES[name].entries if name in TABLES else ()  # RLinf's sections are read without a table
    return {path.rpartition(".")[2] for path in paths} | {str(entry.path[-1]) for entry in entries}


@pytest.mark.parametrize("name", KEYS["trainers"])
def test_every_key_of_a_trainer_is_read_or_harmless(name: str) -> None:
    stated = KEYS["trainers"][name]
    harmless = [key for keys in stated["harmless"].values() for key in keys.split()]
    read = stated["read"].split()
    assert len(set(harmless)) == len(harmless)
    assert set(some(read)) <= known(name)
    assert set(some(harmless)).isdisjoint(known(name))
    assert all(SMELLS.search(key) for key in (*read, *harmless))


def is_read_by_models(key: str) -> bool:
    return key in model_config._READ or model_config._is_harmless(key)


def decides(key: str) -> bool:
    """Whether a key of this name would take bounds away if it was not read."""
    return bool(model_config._OF_LAYERS.search(key) or model_config._OF_CACHE.search(key))


def test_every_key_of_a_known_type_is_read_or_harmless() -> None:
    types = KEYS["models"]
    remote = {"deepseek", "internlm2", "kimi_k2", "mimo"}  # their classes are in their own repositories
    assert types.keys() | remote == model_config._TYPES
    unread = {key for keys in types.values() for key in keys.split() if decides(key) and not is_read_by_models(key)}
    assert unread == set()
    smelling = {key for keys in types.values() for key in keys.split() if SMELLS.search(key) and not decides(key)}
    assert smelling == set(KEYS["harmless_of_models"].split())


WORDS = "moe expert window freq pattern interval attn_type offload quant lora cache hybrid sparse kv_share chunk_size"


@pytest.mark.parametrize("word", WORDS.split())
def test_an_unread_key_of_a_model_widens(word: str) -> None:
    for name in (f"my_{word}", f"{word}_size", f"num_{word}_units", f"num_routed_{word}"):
        model, usual = Model.of(LLAMA | {name: 7}), Model.of(LLAMA)
        assert model.shape is not None and model.shape.cached_layers == 0, name
        assert model.stated is not None and model.stated[1] in (math.inf, usual.params), name
        assert model.stated[0] <= usual.params
        assert Model.of(LLAMA | {name: None}) == usual
        for switch in (1, True):
            assert Model.of(LLAMA | {name: switch}).shape == model.shape, name


SIZE_WORDS = "router_scale aux norm topk capacity balance factor rope rotary score"


@pytest.mark.parametrize("word", SIZE_WORDS.split())
def test_a_word_about_routing_or_positions_makes_no_key_of_experts_harmless(word: str) -> None:
    for name in (f"num_{word}_experts", f"moe_{word}_size", f"expert_{word}"):
        assert Model.of(LLAMA | {name: 2}).stated == (4096 * 128256, math.inf), name


QUANTIZED = {"quant_method": "gptq", "bits": 4}


@pytest.mark.parametrize(
    ("quantization", "stored"),
    [
        (QUANTIZED, 0.5),
        (QUANTIZED | {"bits": 3}, 0.375),
        (QUANTIZED | {"bits": 8}, 0.5),
        ({"quant_method": "fp8"}, 1.0),
        ({"quant_method": "bitnet"}, 0.125),
        ({"quant_method": "quanto", "weights": "int2"}, 0.125),
        ({"quant_method": "torchao"}, 0.125),
        ({"quant_method": "gptq"}, 0.125),
        (QUANTIZED | {"bits": "2"}, 0.125),
        (QUANTIZED | {"dynamic": {"+:.*down.*": {"bits": 2}}}, 0.25),
        ({"quant_method": "compressed-tensors", "num_bits": 4, "sparsity_config": {"format": "sparse-24"}}, 0.125),
        ({"quant_method": "quark", "layers": [{"bits": 1}]}, 0.125),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 2}}}}, 0.25),
    ],
)
def test_the_fewest_bits_of_a_checkpoint_count(quantization: dict[str, Any], stored: float) -> None:
    assert Model.of(LLAMA | {"quantization_config": quantization}).stored == stored


@pytest.mark.parametrize("bits", [0, -4, 65, 10**6])
def test_bits_that_no_weight_has_are_a_fault(bits: int) -> None:
    with pytest.raises(PlacementError, match="weights have 1 to 64 bits"):
        Model.of(LLAMA | {"quantization_config": QUANTIZED | {"bits": bits}})


def test_a_quantization_is_a_mapping() -> None:
    with pytest.raises(PlacementError, match="it must be a mapping"):
        Model.of(LLAMA | {"quantization_config": "int4"})


@pytest.mark.parametrize(
    ("name", "content", "stored"),
    [
        ("hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}}, 0.5),
        ("quantize_config.json", {"bits": 4}, 0.5),
        ("quantize_config.json", {"bits": 2}, 0.25),
        ("quantize_config.json", {}, 0.125),
        ("quant_config.json", {"w_bit": 4}, 0.5),
    ],
)
def test_a_quantization_may_stand_in_a_file_of_its_own(
    name: str, content: dict[str, Any], stored: float, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    assert Model.of(config).stored == 2.0
    (tmp_path / name).write_text(json.dumps(content))
    assert Model.of(config).stored == stored
    config.write_text(json.dumps(LLAMA | {"quantization_config": None}))
    assert Model.of(config).stored == stored
    (tmp_path / name).write_text("{")
    with pytest.raises(PlacementError, match=f"{name} is not a JSON file that can be read"):
        Model.of(config)


def test_what_the_file_of_a_quantization_says_of_the_cache_and_of_layers_counts(tmp_path: Path) -> None:
    config, beside = tmp_path / "config.json", tmp_path / "hf_quant_config.json"
    config.write_text(json.dumps(LLAMA | {"quantization_config": {"quant_method": "modelopt"}}))
    beside.write_text(json.dumps({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}))
    shape = Model.of(config).shape
    assert shape is not None and shape.cached_layers == 0
    beside.write_text(json.dumps({"quantization": {"exclude_modules": ["model.layers.31.mlp.down_proj"]}}))
    stated = Model.of(config).stated
    assert stated is not None and math.isinf(stated[1])


def test_a_cache_of_fewer_bits_in_a_checkpoint_has_no_bounds() -> None:
    for key in ({"kv_cache_scheme": {"num_bits": 8}}, {"quantization": {"kv_cache_quant_algo": "FP8"}}):
        shape = Model.of(LLAMA | {"quantization_config": QUANTIZED | key}).shape
        assert shape is not None and shape.cached_layers == 0
    shape = Model.of(LLAMA | {"quantization_config": QUANTIZED | {"kv_cache_scheme": None}}).shape
    assert shape is not None and shape.cached_layers == 32


def test_a_key_that_a_file_leaves_out_has_the_default_of_its_type() -> None:
    """As the text part of Gemma 3 in google/gemma-3-4b-it."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    shape = Model.of({"model_type": "gemma3", "text_config": text}).shape
    assert shape is not None
    assert (shape.heads, shape.kv_heads, shape.head_dim, shape.vocab, shape.tied) == (8, 4, 256, 262208, True)
    stated = Model.of({"model_type": "gemma3", "text_config": {**text, "head_dim": 128}}).shape
    assert stated is not None and stated.head_dim == 128
    small = Model.of({**LLAMA, "model_type": "smollm3"})
    assert small.shape is not None and small.shape.tied


def test_the_layers_of_llama_4_that_look_at_everything_may_be_listed() -> None:
    keys = {"model_type": "llama4_text", "attention_chunk_size": 8192, "num_local_experts": 0}
    listed = Model.of(LLAMA | keys | {"no_rope_layers": [0, 0, *[1] * 30]}).shape
    assert listed is not None and listed.cached_layers == 2
    assert Model.of(LLAMA | keys | {"no_rope_layers": [0]}).shape.cached_layers == 0  # type: ignore[union-attr]


NAMES = [name for names in model_config._NAMES_OF_NUMBERS for name in names]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", sorted(model_config._TYPES))
def test_a_number_of_experts_counts_by_any_name_of_its_type(kind: str, name: str) -> None:
    """No default of the type under another name takes its place; a name of other types takes the bounds away."""
    usual = {"num_experts": 16} if name not in model_config._COUNT_NAMES else {}
    usual |= {"num_experts_per_tok": 2} if name not in model_config._TOKEN_NAMES else {}
    model = Model.of(LLAMA | {"model_type": kind, "sliding_window": None, **usual, name: 5})
    assert model.shape is not None and model.shape.experts is not None
    experts = model.shape.experts
    assert experts.count == (5 if name in model_config._COUNT_NAMES else 16)
    assert experts.top_k == (5 if name in model_config._TOKEN_NAMES else 2)
    if name in model_config._SHARED_NAMES and kind not in ("llama4", "llama4_text", "qwen2_moe"):
        assert experts.shared_ffn == 5 * experts.ffn
    own = {*model_config._WITH_EXPERTS.get(kind, ()), "num_experts_per_tok", "n_shared_experts"}
    is_known = kind in model_config._WITH_EXPERTS and own.issuperset({*usual, name})
    assert (model.stated is None) == is_known


def test_a_number_of_experts_with_two_values_has_no_bounds() -> None:
    keys = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts": 4}
    assert Model.of(keys).stated == (4096 * 128256, math.inf)
    assert Model.of({**keys, "num_experts": 8}).stated is None


@pytest.mark.parametrize(
    ("outer", "inner", "is_known"),
    [
        ({"tie_word_embeddings": False}, {}, True),
        ({}, {"tie_word_embeddings": False}, True),
        ({"tie_word_embeddings": False}, {"tie_word_embeddings": True}, False),
        ({"model_type": "mistral3"}, {"model_type": "mistral"}, False),
    ],
)
def test_an_output_layer_that_only_a_version_decides_has_no_bounds(
    outer: dict[str, Any], inner: dict[str, Any], *, is_known: bool
) -> None:
    model = Model.of({"text_config": LLAMA | inner, **outer})
    tied = Model.of(LLAMA | {"tie_word_embeddings": True}).params
    if is_known:
        assert model.stated is None and model.params > tied
    else:
        assert model.stated is not None and model.stated[0] == tied and math.isinf(model.stated[1])


def test_a_text_part_without_a_type_has_the_defaults_of_its_model() -> None:
    text = {key: value for key, value in LLAMA.items() if key not in ("model_type", "num_key_value_heads")}
    shape = Model.of({"model_type": "gemma3", "text_config": text}).shape
    assert shape is not None and (shape.head_dim, shape.kv_heads) == (256, 4)

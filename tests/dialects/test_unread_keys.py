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
from rankplan.plans import model_config
from rankplan.plans.model import Model
from support.dialects import MEMORY, TABLES
from support.outcomes import some

KEYS: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "support" / "unread_keys.yaml").read_text())
SMELLS = re.compile(
    "moe|expert|window|freq|pattern|interval|attn_type|offload|dtype|quant|lora|cache|precision|fp8|recompute|shard"
    "|chunk|fraction|utilization|sleep|micro_batch|mtp|draft|specul|layers|bucket|freeze"
)
DENSE = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


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
    for name in (f"my_{word}", f"{word}_size", f"num_{word}_units"):
        model, usual = Model.of(DENSE | {name: 7}), Model.of(DENSE)
        assert model.shape is not None and model.shape.cached_layers == 0, name
        assert model.stated is not None and model.stated[1] in (math.inf, usual.params), name
        assert model.stated[0] <= usual.params
        assert Model.of(DENSE | {name: None}) == usual


QUANTIZED = {"quant_method": "gptq", "bits": 4}


@pytest.mark.parametrize(
    ("quantization", "stored"),
    [
        (QUANTIZED, 0.5),
        (QUANTIZED | {"bits": 3}, 0.375),
        (QUANTIZED | {"bits": 8}, 0.5),
        ({"quant_method": "fp8"}, 1.0),
        ({"quant_method": "bitnet"}, 0.125),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 2}}}}, 0.25),
    ],
)
def test_the_fewest_bits_of_a_checkpoint_count(quantization: dict[str, Any], stored: float) -> None:
    assert Model.of(DENSE | {"quantization_config": quantization}).stored == stored


@pytest.mark.parametrize("name", ["hf_quant_config.json", "quantize_config.json", "quant_config.json"])
def test_a_quantization_may_stand_in_a_file_of_its_own(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    assert Model.of(tmp_path / "config.json").stored == 2.0
    (tmp_path / name).write_text("{}")
    assert Model.of(tmp_path / "config.json").stored == 0.5


def test_a_cache_of_fewer_bits_in_a_checkpoint_has_no_bounds() -> None:
    for key in ({"kv_cache_scheme": {"num_bits": 8}}, {"quantization": {"kv_cache_quant_algo": "FP8"}}):
        shape = Model.of(DENSE | {"quantization_config": QUANTIZED | key}).shape
        assert shape is not None and shape.cached_layers == 0
    shape = Model.of(DENSE | {"quantization_config": QUANTIZED | {"kv_cache_scheme": None}}).shape
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
    small = Model.of({**DENSE, "model_type": "smollm3"})
    assert small.shape is not None and small.shape.tied


def test_the_layers_of_llama_4_that_look_at_everything_may_be_listed() -> None:
    keys = {"model_type": "llama4_text", "attention_chunk_size": 8192, "num_local_experts": 0}
    listed = Model.of(DENSE | keys | {"no_rope_layers": [0, 0, *[1] * 30]}).shape
    assert listed is not None and listed.cached_layers == 2
    assert Model.of(DENSE | keys | {"no_rope_layers": [0]}).shape.cached_layers == 0  # type: ignore[union-attr]

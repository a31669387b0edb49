"""Models: the table of names, files, and faults."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rankplan._core import training_likely, training_memory
from rankplan.errors import PlacementError
from rankplan.hardware.cards import card_of, size_of, size_text
from rankplan.memory.settings import GIB, Training
from rankplan.plans.model import Model
from support.model_files import LLAMA

# Numbers of parameters of the checkpoints themselves.
PUBLISHED = {
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "meta-llama/Meta-Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/QwQ-32B": 32_763_876_352,
    "Qwen/Qwen2-72B-Instruct": 72_706_203_648,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "microsoft/phi-4": 14_659_507_200,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "intermediate_size": 18432,
    "vocab_size": 129280,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}

YARN = {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}


def _code(source: object) -> str:
    with pytest.raises(PlacementError) as caught:
        Model.of(source)  # type: ignore[arg-type]
    return caught.value.diagnostics[0].code


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_counted_exactly(name: str) -> None:
    assert Model.of(name).params == PUBLISHED[name]


def test_every_name_of_the_table_survives_a_round_trip() -> None:
    assert len(Model.names()) == 66
    for name in Model.names():
        model = Model.of(name)
        assert Model.of(json.loads(json.dumps(model.plain(), allow_nan=False))) == model
        assert model.params > 1e8


def test_aliases_and_near_misses() -> None:
    assert Model.of("deepseek-ai/DeepSeek-R1") == Model.of("deepseek-ai/DeepSeek-V3")
    assert _help("Qwn/Qwn3-8B") == "did you mean `Qwen/Qwen3-8B`?"
    assert _code("") == "unknown-model"
    assert _code("/nowhere/at/all") == "unknown-model"


def _help(name: str) -> str | None:
    with pytest.raises(PlacementError) as caught:
        Model.of(name)
    assert caught.value.diagnostics[0].code == "unknown-model"
    return caught.value.diagnostics[0].help


@pytest.mark.parametrize("name", ["Qwen/Qwen3-13B", "Qwen/Qwen3-8C", "Qwen/Qwen2.5-70B", "meta-llama/Llama-3.1-80B"])
def test_another_size_is_never_meant(name: str) -> None:
    assert "did you mean" not in (_help(name) or "")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("/data/models/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("/data/models/Qwen3-8B/", "Qwen/Qwen3-8B"),
        ("unsloth/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8b", "Qwen/Qwen3-8B"),
        ("/models/models--Qwen--Qwen3-8B/snapshots/abc", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("Qwen/Qwen2.5-Math-72B", "Qwen/Qwen2.5-72B"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen/Qwen3-30B-A3B"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen/Qwen3-30B-A3B"),
        ("meta-llama/Llama-3.1-8B-Base", "meta-llama/Meta-Llama-3.1-8B"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "Qwen/Qwen2.5-32B"),
        ("agentica-org/DeepScaleR-1.5B-Preview", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"),
    ],
)
def test_a_folder_another_owner_and_a_sibling_have_the_sizes_of_a_model(name: str, known: str) -> None:
    assert Model.of(name) == Model.of(known)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("./checkpoint/multiturn-sft-qwen-2.5-7b-instruct/global_step_372", "Qwen/Qwen2.5-7B"),
        ("/ckpt/Qwen3-8B-SFT/global_step_140/actor/huggingface", "Qwen/Qwen3-8B"),
        ("virtuoussy/Qwen2.5-7B-Instruct-RLVR", "Qwen/Qwen2.5-7B"),
        ("Skywork/Skywork-Reward-V2-Llama-3.2-1B", "meta-llama/Llama-3.2-1B"),
        ("OpenRLHF/Llama-3-8b-rm-700k", "meta-llama/Meta-Llama-3.1-8B"),
    ],
)
def test_a_checkpoint_and_a_fine_tuned_model_have_the_sizes_of_their_model(name: str, known: str) -> None:
    assert Model.of(name) == Model.of(known)


def test_a_folder_of_a_checkpoint_alone_is_no_model() -> None:
    for name in ("global_step_140/huggingface", "huggingface", "/ckpt/sft/latest"):
        assert _code(name) == "unknown-model"


def _is_likely(source: Any) -> bool:
    training = Training(framework="fsdp", slots=8, tokens=4096, recompute="full")
    parts, complete, _ = training_likely(Model.of(source), training)[0]
    return complete and all(math.isfinite(size) for _, _, size in parts)


def test_layers_of_other_kinds_have_a_likely_size() -> None:
    assert _is_likely("Qwen/Qwen3.5-27B")
    assert _is_likely("Qwen/Qwen2.5-VL-7B-Instruct")
    assert _is_likely(LLAMA | {"vision_config": {"depth": 24}})
    parts, _, _ = training_likely(Model.of("Qwen/Qwen3.5-27B"), Training(framework="fsdp", slots=8))[0]
    assert parts[0][:2] == ("weights", "state")
    assert parts[0][2] == pytest.approx(2 * 27e9 / 8)
    # Of these files, only the embedding is certain.
    assert not _is_likely(LLAMA | {"model_type": "unheard_of"})
    assert not _is_likely(LLAMA | {"layer_types": ["linear_attention"] * 32})


def test_a_name_states_how_weights_are_stored() -> None:
    plain = Model.of("Qwen/Qwen3-8B")
    for name, stored in (("Qwen/Qwen3-8B-FP8", 1.0), ("Qwen/Qwen3-8B-AWQ", 0.5), ("x/Qwen3-8B-GPTQ-Int4", 0.5)):
        assert Model.of(name) == replace(plain, stored=stored)


def test_what_has_other_layers_is_no_sibling() -> None:
    for name in ("Qwen/Qwen3-Embedding-0.6B-Omni", "Qwen/Qwen2.5-Omni-7B", "Qwen/Qwen2.5-VL-72B-Instruct"):
        assert _code(name) == "unknown-model"


def test_the_tied_and_the_untied_model_have_other_sizes() -> None:
    tied, untied = Model.of("Qwen/Qwen2.5-1.5B"), Model.of("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B")
    assert untied.params - tied.params == 151_936 * 1536


def test_the_cache_of_hugging_face_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "hub" / "models--owner--own-name"
    for commit, layers in (("aaa", 16), ("bbb", 8)):
        (folder / "snapshots" / commit).mkdir(parents=True)
        (folder / "snapshots" / commit / "config.json").write_text(json.dumps(LLAMA | {"num_hidden_layers": layers}))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("aaa\n")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert Model.of("owner/own-name").layers == 16
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert _code("owner/own-name") == "unknown-model"


def test_layers_that_quantization_leaves_out_widen_the_bounds() -> None:
    quantized = {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head", "model.layers.0.self_attn"]}
    usual = Model.of(LLAMA | {"quantization_config": quantized})
    assert usual.stated is None
    quantized["modules_to_not_convert"].append("model.layers.31.mlp.down_proj")
    wide = Model.of(LLAMA | {"quantization_config": quantized})
    assert wide.stated is not None
    assert wide.stated[0] == usual.params and math.isinf(wide.stated[1])


def test_a_file_and_its_folder_give_the_model_of_the_table(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))
    table = Model.of("meta-llama/Meta-Llama-3.1-8B")
    assert Model.of(file).shape == table.shape
    assert Model.of(str(tmp_path)) == Model.of(file)
    assert Model.of(file).layers == 32


def test_experts_and_latent_attention_are_read() -> None:
    model = Model.of(DEEPSEEK)
    assert model.params == pytest.approx(Model.of("deepseek-ai/DeepSeek-V3").params, rel=1e-3)
    assert Model.of(DEEPSEEK | {"quantization_config": {"quant_method": "fp8"}}).stored == 1.0


LLAMA_4 = {
    "model_type": "llama4_text",
    "hidden_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "vocab_size": 202048,
    "num_experts_per_tok": 1,
    "attention_chunk_size": 8192,
    "router_aux_loss_coef": 0.001,
}
MAVERICK = {**LLAMA_4, "num_local_experts": 128, "interleave_moe_layer_step": 2}
SCOUT = {**LLAMA_4, "num_local_experts": 16, "interleave_moe_layer_step": 1}
ERNIE = {
    "model_type": "ernie4_5_moe",
    "hidden_size": 2560,
    "num_hidden_layers": 28,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "intermediate_size": 12288,
    "vocab_size": 103424,
    "tie_word_embeddings": True,
    "moe_num_experts": 64,
    "moe_k": 6,
    "moe_intermediate_size": 1536,
    "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1,
    "moe_layer_end_index": 27,
    "moe_layer_interval": 1,
    "moe_capacity": [64, 64, 64],
}
SPARSE = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 768}


@pytest.mark.parametrize(
    ("keys", "billions"),
    [(MAVERICK, 400.7), (SCOUT, 107.8), (ERNIE, 21.8), ({**MAVERICK, "moe_layers": list(range(1, 48, 2))}, 400.7)],
)
def test_layers_with_experts_are_counted_where_the_file_says(keys: dict[str, object], billions: float) -> None:
    model = Model.of(keys)
    assert model.params / 1e9 == pytest.approx(billions, abs=0.3)
    assert model.stated is None


@pytest.mark.parametrize(
    ("keys", "layers"),
    [
        ({"decoder_sparse_step": 2}, 16),
        ({"decoder_sparse_step": 3}, 10),
        ({"mlp_only_layers": [0, 1]}, 30),
        ({"moe_layer_freq": 2, "first_k_dense_replace": 1}, 15),
        ({"moe_layer_freq": 1, "first_k_dense_replace": 1}, 31),
        ({"moe_layer_freq": [0] + [1] * 31}, 31),
    ],
)
def test_patterns_of_experts(keys: dict[str, object], layers: int) -> None:
    experts = 3 * 4096 * 768 * 64 + 64 * 4096
    dense = 3 * 4096 * 14336
    all_dense = Model.of(LLAMA | {"model_type": "qwen3_moe", "num_experts": 0}).params
    assert Model.of(SPARSE | keys).params == all_dense + layers * (experts - dense)


@pytest.mark.parametrize(
    "keys",
    [
        {"model_type": "somebody_elses"},
        {"num_fine_experts": 8},
        {"mlp_only_layers": [5]},
        {"moe_layer_freq": [1] + [0] * 31},
        {"moe_layer_freq": [0, 1]},
        {"moe_layers": [3, 9]},
        {"moe_layer_interval": 1, "moe_layer_end_index": 20},
        {"block_pattern": ["a", "b"]},
    ],
)
def test_what_is_unread_about_layers_leaves_only_the_embedding(keys: dict[str, object]) -> None:
    model = Model.of(SPARSE | keys)
    assert model.stated == (4096 * 128256, math.inf)
    assert model.shape is not None and model.shape.cached_layers == 0


@pytest.mark.parametrize(
    ("keys", "cached"),
    [
        ({"sliding_window": 4096}, None),
        ({"sliding_window": None}, 32),
        ({"model_type": "mistral", "sliding_window": 4096}, 0),
        ({"model_type": "gemma2", "sliding_window": 4096}, 16),
        ({"model_type": "gemma3_text", "sliding_window": 1024}, 5),
        ({"model_type": "gemma3_text", "sliding_window": 1024, "sliding_window_pattern": 4}, 8),
        ({"model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 28}, 32),
        ({"model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 28, "use_sliding_window": True}, 28),
        ({"model_type": "llama4_text", "attention_chunk_size": 8192}, 8),
        ({"local_attn_type": "window"}, None),
    ],
)
def test_layers_that_look_back_a_window_are_not_cached_whole(keys: dict[str, object], cached: int | None) -> None:
    model = Model.of(LLAMA | keys)
    assert model.shape is not None
    assert model.shape.cached_layers == (cached or 0)
    whole = Model.of(LLAMA | {"model_type": keys.get("model_type", "llama")})
    assert model.stated == ((whole.params, whole.params) if cached is None else None)


def test_a_missing_key_of_the_output_layer_is_what_the_type_says() -> None:
    tied = Model.of(LLAMA | {"model_type": "gemma2"})
    assert (
        Model.of(LLAMA | {"model_type": "gemma2", "tie_word_embeddings": False}).params - tied.params == 4096 * 128256
    )


@pytest.mark.parametrize("pp", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize(("dense", "every", "offset"), [(0, 2, 1), (1, 2, 0), (3, 3, 1), (2, 5, 4), (4, 1, 0)])
def test_stages_of_a_pattern_are_inside_the_bounds(pp: int, dense: int, every: int, offset: int) -> None:
    shape = Model.of(SPARSE).shape
    assert shape is not None and shape.experts is not None
    experts = replace(shape.experts, dense_layers=dense, every=every, offset=offset)
    model = Model("drawn", replace(shape, layers=30, experts=experts))
    sizes = [30 // pp + (stage < 30 % pp) for stage in range(pp)]
    stages = training_memory(model, Training(framework="megatron", slots=pp, pp=pp, tokens=1))
    one, two = (
        Model("drawn", replace(shape, layers=1, vocab=1, experts=kind)).params for kind in (None, shape.experts)
    )
    start = 0
    for (parts, _, _), size in zip(stages, sizes, strict=True):
        with_experts = sum(layer >= dense and layer % every == offset for layer in range(start, start + size))
        weights = 2 * ((size - with_experts) * one + with_experts * two)
        lower, upper = parts[0][2:]
        assert lower <= weights + 4 * 4096 * 128256 and weights * 0.999 <= upper
        if 30 % pp == 0:
            assert weights * 0.999 <= lower
        start += size


def test_other_layers_have_no_upper_bound() -> None:
    vision = Model.of({"text_config": LLAMA, "vision_config": {}})
    assert vision.stated == (Model.of(LLAMA).params, math.inf)
    linear = Model.of(LLAMA | {"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8})
    assert linear.stated is not None
    assert linear.shape is not None
    assert linear.shape.cached_layers == 8


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": None},
        {"hidden_size": 10**30},
        {"hidden_size": -1},
        {"hidden_size": "4096"},
        {"hidden_size": True},
        {"num_hidden_layers": 0},
        {"num_attention_heads": 1.5},
        {"num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 0},
        {"num_experts": 4, "num_experts_per_tok": 8},
        {"num_key_value_heads": 64},
        {"layer_types": ["full_attention"] * 3},
        {"hidden_size": 10**15, "vocab_size": 10**15},
    ],
)
def test_odd_keys_are_faults(change: dict[str, object]) -> None:
    assert _code(LLAMA | change) == "model-keys"


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000, '"text"', "\x00"])
def test_odd_files_are_faults(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert _code(tmp_path) == "model-keys"


@pytest.mark.parametrize(
    "plain", [{"name": 1}, {"name": "x", "shape": 3}, {"name": "x", "stated": [1]}, {"name": "x", "y": 1}]
)
def test_damaged_plain_values_are_faults(plain: dict[str, object]) -> None:
    assert _code(plain) == "invalid-value"


@pytest.mark.parametrize(
    ("model", "least", "most"),
    [
        ("NVIDIA H100 80GB HBM3", 80, 80),
        ("H20", 96, 96),
        ("NVIDIA H20-3e", 140.4, 141),
        ("NVIDIA H100 NVL", 93.5, 94),
        ("NVIDIA H100 96GB HBM3", 96, 96),
        ("NVIDIA GH200 480GB", 95.5, 144),
        ("NVIDIA A100-SXM-64GB", 64, 64),
        ("A100-40G", 40, 40),
        ("A100-80G", 80, 80),
        ("NVIDIA A800 40GB Active", 40, 40),
        ("NVIDIA A10G", 22.2, 24),
        ("NVIDIA L40S-48GB", 45, 48),
        ("NVIDIA L20", 45, 48),
        ("NVIDIA GeForce RTX 4090", 23.9, 24),
        ("RTX4090", 23.9, 24),
        ("RTX6000-Ada", 47.9, 48),
        ("RTXA6000", 47.9, 48),
        ("NVIDIA RTX A6000", 47.9, 48),
        ("Tesla V100-SXM2-16GB", 15.7, 16),
        ("Tesla V100-SXM2-32GB", 32, 32),
        ("AMD-Instinct-MI300X-OAM", 191.9, 192),
        ("Ascend910B3", 60.9, 64),
        ("Ascend910B4", 28.9, 32),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 35.2, 40),
        ("MIG 1g.10gb", 8.8, 10),
        ("NVIDIA H200 (MIG)", None, None),
        ("NVIDIA-H200", 141, 141),
        ("GB200", 185, 185),
        ("B200", 180, 180),
        ("A100", 40, 80),
        ("NVIDIA A100-SXM4-40GB", 40, 40),
        ("NVIDIA L40S", 45, 45),
        ("NVIDIA L4", 22.2, 24),
        ("Ascend910B", 60.9, 64),
        ("Tesla T4", None, None),
    ],
)
def test_cards(model: str, least: float | None, most: float | None) -> None:
    card = card_of(model)
    assert card == (None if least is None or most is None else pytest.approx((least * GIB, most * GIB)))


def test_sizes() -> None:
    assert size_of("80 GiB") == 80 * GIB
    assert size_of("80gib") == 80 * GIB
    assert size_of("1.5TB") == 1_500_000_000_000
    assert size_of("17") == 17
    assert [size_of(text) for text in ("", "x", "-1 GiB", "1e9", "8 XiB", "9" * 30)] == [None] * 6
    assert size_text(1.5 * GIB) == "1.5 GiB"


def test_a_model_that_scores_may_lack_its_output_layer() -> None:
    model = Model.of(LLAMA)
    assert model.shape is not None
    scoring = model.scoring()
    assert scoring.params == model.params - model.shape.vocab * model.shape.hidden
    for pp in (1, 2):
        training = Training(framework="megatron", pp=pp, tokens=1000, length=1000)
        plain, scored = (training_memory(one, training)[-1][0][0] for one in (model, scoring))
        assert scored[2] == plain[2] - 2 * model.shape.vocab * model.shape.hidden
        assert scored[3] == plain[3]
    assert Model.of(scoring.plain()) == scoring
    linear = Model.of(LLAMA | {"vision_config": {}}).scoring()
    assert linear.stated == (scoring.params, math.inf)
    assert Model.sized(7e9).scoring() == Model.sized(7e9)


@pytest.mark.parametrize(
    ("keys", "longest"),
    [
        ({}, None),
        ({"max_position_embeddings": 40960}, 40960),
        ({"max_position_embeddings": "40960"}, None),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 32768, "rope_scaling": {"type": "linear", "factor": 4}}, 131072),
        ({"max_position_embeddings": 163840, "rope_scaling": YARN}, 163840),
        ({"max_position_embeddings": 32768, "rope_scaling": {"type": "linear"}}, None),
        ({"text_config": {"max_position_embeddings": 8192}}, 8192),
    ],
)
def test_a_config_tells_the_longest_sequence(keys: dict[str, Any], longest: int | None) -> None:
    """vLLM: ``_get_and_verify_max_len``."""
    model = Model.of({**LLAMA, **keys})
    assert model.longest == longest
    assert Model.of(model.plain()) == model

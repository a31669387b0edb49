"""Each bound of a part, calculated by hand from the formulas, on a model that is small enough for that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rankplan._core import engine_memory, switch_memory, training_memory
from rankplan.memory.settings import GIB, Engine, Training
from rankplan.plans.model import Model
from rankplan.plans.shape import Experts, Shape

H, HEADS, KV, HEAD, FFN, VOCAB, LAYERS = 64, 8, 2, 8, 256, 1024, 4
SHAPE = Shape(
    layers=LAYERS,
    hidden=H,
    heads=HEADS,
    kv_heads=KV,
    head_dim=HEAD,
    ffn=FFN,
    vocab=VOCAB,
    cached_layers=LAYERS,
    gated=True,
    tied=False,
    qkv_bias=False,
    qk_norm=False,
    experts=None,
    latent=None,
)
MODEL = Model("small", SHAPE)
SPARSE = Model("sparse", replace(SHAPE, experts=Experts(8, 2, 32, 0, 0)))
ATTENTION = H * (HEADS + 2 * KV) * HEAD + HEADS * HEAD * H
LAYER = ATTENTION + 3 * H * FFN + 2 * H
EMBEDDING = VOCAB * H
PARAMS = LAYERS * LAYER + 2 * EMBEDDING + H
PADDED = PARAMS + 128 * 2 * H
"""With a vocabulary that is padded to a multiple of 128 for each tensor rank, at both ends."""
QKV, OUT = (HEADS + 2 * KV) * HEAD, HEADS * HEAD
STORED = 14 * H + 2 * (2 * QKV + OUT) + 8 * FFN + 2 * H
"""Bytes that a dense layer stores of a token."""


def parts_of(model: Model = MODEL, stage: int = 0, **settings: Any) -> dict[str, tuple[float, float]]:
    parts = training_memory(model, Training(**settings))[stage][0]
    return {name: (low, high) for name, _, low, high in parts}


def test_parameters() -> None:
    assert MODEL.params == PARAMS


MEGATRON: dict[str, Any] = {"framework": "megatron", "slots": 4, "distributed": True, "tokens": 100}
DEEPSPEED: dict[str, Any] = {"framework": "deepspeed", "slots": 4, "tokens": 100}


def test_states_of_megatron() -> None:
    parts = parts_of(**MEGATRON)
    assert parts["weights"] == (2 * PARAMS, 2 * PADDED)
    assert parts["gradients"] == (2 * PARAMS, 4 * PADDED)
    assert parts["optimizer"] == (12 * PARAMS / 4, 12 * PADDED / 4)
    assert parts["copies at the step"] == (0, 4 * PADDED / 4 + 2 * PADDED)
    assert parts_of(**MEGATRON, weight=1.0)["weights"] == (PARAMS, 4 * PADDED)
    aware = parts_of(**MEGATRON, optimizer="adam-precision-aware")["optimizer"]
    assert aware == (4 * PARAMS / 4, 12 * PADDED / 4)


def test_states_of_deepspeed() -> None:
    for stage, gradients, optimizer in ((3, 4 * PADDED / 4, 12 * PADDED / 4), (2, 4 * PADDED, 12 * PADDED / 4)):
        parts = parts_of(**DEEPSPEED, zero=stage)
        assert parts["gradients"] == (2 * PARAMS / 4, gradients)
        assert parts["optimizer"] == (12 * PARAMS / 4, optimizer)
        assert parts["gathered"] == (0, 4 * LAYER)


def test_gathered_units_of_fsdp() -> None:
    assert parts_of(framework="fsdp", slots=4, tokens=1)["gathered"] == (0, 8 * (LAYER + 2 * EMBEDDING))
    tied = Model("tied", replace(SHAPE, tied=True))
    assert parts_of(tied, framework="fsdp", slots=4, tokens=1)["gathered"] == (0, 8 * (LAYER + EMBEDDING))


def test_a_model_that_only_computes() -> None:
    assert parts_of(framework="forward", slots=4)["weights"] == (2 * PARAMS, 4 * PADDED)
    assert parts_of(framework="forward", slots=4, shard=4)["weights"] == (2 * PARAMS / 4, PADDED)


def test_activations() -> None:
    assert parts_of(**MEGATRON)["activations"] == (0, 100 * LAYERS * STORED)
    full = parts_of(**MEGATRON, recompute="full")["activations"]
    assert full == (0, 100 * (LAYERS * 2 * H + 2 * STORED))


@pytest.mark.parametrize(("chunks", "stage", "in_flight"), [(1, 0, 4), (1, 3, 1), (2, 0, 6), (2, 1, 5), (2, 3, 3)])
def test_batches_in_flight(chunks: int, stage: int, in_flight: int) -> None:
    parts = parts_of(stage=stage, **MEGATRON, pp=4, chunks=chunks)
    assert parts["activations"] == (0, 100 * STORED * in_flight)


@pytest.mark.parametrize(("ep", "imbalance"), [(1, 1), (2, 2), (4, 4), (8, 4)])
def test_tokens_of_experts(ep: int, imbalance: int) -> None:
    attention = STORED - 8 * FFN
    routed = 2 * imbalance * 2 * (4 * H + 4 * 32)
    parts = parts_of(SPARSE, **{**MEGATRON, "slots": 8}, ep=ep)
    assert parts["activations"] == (0, 100 * LAYERS * (attention + routed))


def engine_parts(model: Model = MODEL, **settings: Any) -> dict[str, tuple[float, float]]:
    parts = engine_memory(model, Engine(kind="sglang", share=0.5, **settings), 80 * GIB)[0]
    return {name: (low, high) for name, _, low, high in parts}


def test_weights_of_engines() -> None:
    assert engine_parts()["weights"][1] == pytest.approx(1.06 * 2 * PARAMS, abs=2)
    # a quantized checkpoint may keep attention and both ends in 16 bits
    copied = LAYERS * 2 * H + H
    wide = min(2 * EMBEDDING + copied + LAYERS * ATTENTION + 2 * LAYER, PARAMS)
    assert engine_parts(weight=(1.0, 1.0))["weights"][1] == pytest.approx(1.06 * (PARAMS + wide), rel=1e-3)
    # a tensor group larger than the heads of keys and values copies them
    copies = LAYERS * 2 * H * HEAD * (1 - KV / 8)
    divided = PARAMS - copied
    assert engine_parts(tp=8)["weights"][1] == pytest.approx(1.06 * 2 * (divided / 8 + copied + copies), abs=2)


def test_a_step_of_an_engine() -> None:
    elements = 8 * H + 2 * (QKV + OUT) + 3 * FFN
    assert engine_parts(batch=100, sequences=7)["activations"] == (0, 2 * 100 * elements + 7 * VOCAB * 10)


@pytest.mark.parametrize(("tp", "heads"), [(1, 2), (2, 1), (8, 1)])
def test_the_cache_of_a_token(tp: int, heads: int) -> None:
    token = engine_memory(MODEL, Engine(kind="vllm", share=0.5, tp=tp), 80 * GIB)[3]
    assert token == 2 * LAYERS * heads * HEAD * 2


def test_an_engine_starts_if_every_layer_may_be_cached_whole() -> None:
    """Layers with a window need less, but an engine may cache them whole."""
    windows = Model("windows", replace(SHAPE, cached_layers=1))
    tokens = 300_000_000
    for model, starts in ((windows, None), (replace(windows, shape=replace(SHAPE, layers=1, cached_layers=1)), True)):
        room = engine_memory(model, Engine(kind="vllm", share=0.5, batch=1, sequences=1, length=tokens), 80 * GIB)
        assert room[5] is starts


def test_the_switch() -> None:
    trainer, engine = Training(**MEGATRON), Engine(kind="vllm", share=0.5)
    states = parts_of(**MEGATRON)
    for sleep, others in (
        (None, states["gradients"][1] + states["optimizer"][1]),
        ("host", states["gradients"][1]),
        ("none", states["gradients"][1] + states["optimizer"][1]),
    ):
        (parts,) = switch_memory(MODEL, replace(trainer, sleep=sleep), engine, 80 * GIB)
        switch = {name: high for name, _, _, high in parts}
        assert switch["trainer's other states"] == others, sleep
        assert switch["gathered"] == 2 * EMBEDDING


def test_what_is_on_the_host() -> None:
    """A rank keeps its part of what is divided: 8 bytes of a parameter for the model, 16 for its optimizer."""
    for on_host, sleep, lower, upper in (
        (1.0, "none", 8 * PARAMS / 4, 1.5 * PARAMS * (8 + 16 / 4)),
        (0.0, "none", 0, 1.5 * PARAMS * 4),
        (0.0, "host", (2 + 12 / 4) * PARAMS, 1.5 * PARAMS * (8 + 16 / 4)),
    ):
        training = Training(**MEGATRON, on_host=on_host, sleep=sleep)
        assert training_memory(MODEL, training)[0][2] == (lower, pytest.approx(upper, abs=2)), (on_host, sleep)


@pytest.mark.parametrize("sizes", [{"ep": 8}, {"tp": 2, "ep": 8}])
def test_ranks_of_experts_are_processes_of_an_engine(sizes: dict[str, int]) -> None:
    """Where more ranks divide the experts than the tensors of a layer, they have a group, with its buffers."""
    group, alone = engine_parts(tp=8)["communication"], engine_parts()["communication"]
    assert engine_parts(**sizes)["communication"] == group > alone
    model_of_one = Training(framework="forward")
    (parts,) = switch_memory(MODEL, model_of_one, Engine(kind="vllm", share=0.5, **sizes), 80 * GIB)
    communication = next(high for name, _, _, high in parts if "communication" in name)
    assert communication == group[1] + alone[1]

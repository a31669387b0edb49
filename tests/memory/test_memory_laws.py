"""Laws of the bounds: ordered, monotone, additive, and narrower the more is stated."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan._core import USABLE_MEMORY, engine_memory, switch_memory, training_memory
from rankplan.memory.settings import ENGINES, FRAMEWORKS, GIB, OPTIMIZERS, RECOMPUTE, SLEEP, Engine, Training
from rankplan.plans.model import Model
from rankplan.plans.shape import Experts, Latent, Shape

POWERS = st.sampled_from([1, 2, 4, 8])
EXPERTS = st.builds(
    Experts,
    count=st.sampled_from([8, 64, 256]),
    top_k=st.sampled_from([1, 2, 8]),
    ffn=st.sampled_from([256, 1408, 2048]),
    shared_ffn=st.sampled_from([0, 2048]),
    dense_layers=st.integers(0, 3),
)
LATENT = st.builds(
    Latent,
    query_rank=st.sampled_from([0, 1536]),
    rank=st.just(512),
    plain=st.just(128),
    rotary=st.just(64),
    value=st.just(128),
)
SHAPES = st.builds(
    Shape,
    layers=st.integers(4, 96),
    hidden=st.sampled_from([512, 2048, 4096, 8192]),
    heads=st.sampled_from([8, 32, 64]),
    kv_heads=st.sampled_from([1, 2, 8]),
    head_dim=st.sampled_from([64, 128]),
    ffn=st.sampled_from([1024, 11008, 28672]),
    vocab=st.sampled_from([32000, 151936]),
    cached_layers=st.integers(0, 96),
    gated=st.booleans(),
    tied=st.booleans(),
    experts=st.none() | EXPERTS,
    latent=st.none() | LATENT,
)
MODELS = st.builds(Model, name=st.just("drawn"), shape=SHAPES)
SIZED = st.floats(1e6, 1e13).map(Model.sized)


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    tp, cp, pp, data = draw(POWERS), draw(POWERS), draw(POWERS), draw(POWERS)
    slots = tp * cp * pp * data
    etp = draw(st.sampled_from([1, tp]))
    ep = draw(st.sampled_from([size for size in (1, 2, 4, 8) if slots % (size * etp * pp) == 0]))
    return Training(
        framework=draw(st.sampled_from([*FRAMEWORKS, "forward"])),
        slots=slots,
        tp=tp,
        cp=cp,
        pp=pp,
        chunks=draw(st.sampled_from([1, 2])),
        ep=ep,
        etp=etp,
        zero=draw(st.none() | st.integers(0, 3)),
        weight=draw(st.sampled_from([4.0, 2.0, 1.0, 0.5])),
        gradient=draw(st.sampled_from([None, 2.0, 4.0])),
        optimizer=draw(st.sampled_from(OPTIMIZERS)),
        on_host=draw(st.sampled_from([0.0, 0.25, 1.0])),
        distributed=draw(st.none() | st.booleans()),
        sequence_parallel=draw(st.none() | st.booleans()),
        recompute=draw(st.none() | st.sampled_from(RECOMPUTE)),
        tokens=draw(st.none() | st.integers(1, 100_000)),
        length=draw(st.none() | st.integers(1, 100_000)),
        fixed_length=draw(st.booleans()),
        unfused=draw(st.booleans()),
        micro_batches=draw(st.none() | st.integers(1, 64)),
        lora=draw(st.booleans()),
        whole_gradients=draw(st.booleans()),
        wide_logits=draw(st.booleans()),
        fused_logits=draw(st.booleans()),
        logits_in_place=draw(st.booleans()),
        logits_chunk=draw(st.none() | st.integers(1, 100_000)),
        empties_cache=draw(st.booleans()),
        sleep=draw(st.none() | st.sampled_from(SLEEP)),
    )


ENGINE = st.builds(
    Engine,
    kind=st.sampled_from(ENGINES),
    tp=POWERS,
    pp=st.sampled_from([1, 2]),
    ep=POWERS,
    share=st.none() | st.floats(0.05, 1),
    length=st.none() | st.integers(1, 200_000),
    weight=st.sampled_from([(2.0, 2.0), (1.0, 1.0), (1.0, 2.0)]),
    sequences=st.none() | st.integers(1, 10**9),
    batch=st.none() | st.integers(1, 10**9),
    graphs=st.booleans(),
    sleep=st.none() | st.sampled_from(SLEEP),
)


def _check(parts: list[tuple[str, str, float, float]]) -> None:
    for name, _, lower, upper in parts:
        assert 0 <= lower <= upper, name
        assert math.isfinite(lower)
        assert lower == int(lower)
        assert math.isinf(upper) or upper == int(upper)


def _bounds(model: Model, training: Training) -> tuple[float, float]:
    """Return the bounds of the fullest stage."""
    stages = training_memory(model, training)
    lower, upper = (max(sum(part[at] for part in parts) for parts, _, _ in stages) for at in (2, 3))
    return lower, upper


def _engine_bounds(model: Model, engine: Engine, card: float = 80 * GIB) -> tuple[float, float]:
    parts = engine_memory(model, engine, card)[0]
    return sum(part[2] for part in parts), sum(part[3] for part in parts)


@given(MODELS | SIZED, trainings(), ENGINE)
def test_bounds_are_ordered(model: Model, training: Training, engine: Engine) -> None:
    for parts, asleep, host in training_memory(model, training):
        _check([*parts, ("asleep", "", *asleep), ("host", "", *host)])
    parts, asleep, host, token, tokens, _ = engine_memory(model, engine, 80 * GIB)
    _check([*parts, ("asleep", "", *asleep), ("host", "", *host), ("tokens", "", *tokens)])
    assert token >= 0
    for parts in switch_memory(model, training, engine, 80 * GIB):
        _check(parts)


@given(MODELS, trainings(), st.data())
def test_what_is_stated_is_inside_what_is_not(model: Model, training: Training, data: st.DataObject) -> None:
    keys = ["zero", "gradient", "distributed", "sequence_parallel", "recompute", "tokens", "micro_batches"]
    keys.append("logits_chunk")
    key = data.draw(st.sampled_from(keys))
    lower, upper = _bounds(model, training)
    open_lower, open_upper = _bounds(model, replace(training, **{key: None}))
    assert open_lower <= lower
    assert upper <= open_upper
    for one, other in zip(
        training_memory(model, training), training_memory(model, replace(training, sleep=None)), strict=True
    ):
        assert other[1][0] <= one[1][0] <= one[1][1] <= other[1][1]


@given(MODELS, ENGINE, st.sampled_from(["share", "length", "sequences", "batch", "graphs"]))
def test_a_stated_key_of_an_engine_is_inside(model: Model, engine: Engine, key: str) -> None:
    lower, upper = _engine_bounds(model, engine)
    left_out = replace(engine, **{key: True if key == "graphs" else None})
    open_lower, open_upper = _engine_bounds(model, left_out)
    assert open_lower <= lower
    # An engine whose weights may leave no room for a request has no use for a bound.
    weights, cache = engine_memory(model, engine, 80 * GIB)[0][:2]
    assert upper <= open_upper or weights[3] + cache[2] > (engine.share or 1) * 80 * GIB
    (least, most), (open_least, open_most) = (engine_memory(model, one, 80 * GIB)[4] for one in (engine, left_out))
    assert open_least <= least <= most <= open_most


GROWS = st.sampled_from(["hidden", "vocab", "ffn", "layers", "count", "expert ffn"])


def _grown(shape: Shape, what: str, pp: int) -> Shape:
    if what in ("count", "expert ffn"):
        if shape.experts is None:
            return shape
        key = "count" if what == "count" else "ffn"
        return replace(shape, experts=replace(shape.experts, **{key: getattr(shape.experts, key) * 2}))
    if what == "layers":
        return replace(shape, layers=shape.layers + pp)
    return replace(shape, **{what: getattr(shape, what) * 2})


@given(MODELS, trainings(), ENGINE, GROWS)
def test_a_larger_model_never_needs_less(model: Model, training: Training, engine: Engine, what: str) -> None:
    assert model.shape is not None
    larger = replace(model, shape=_grown(model.shape, what, training.pp))
    assert _no_less(_bounds(model, training), _bounds(larger, training))
    assert _no_less(_engine_bounds(model, engine), _engine_bounds(larger, engine))


@given(MODELS, trainings(), st.sampled_from(["tokens", "length"]))
def test_more_tokens_never_need_less(model: Model, training: Training, key: str) -> None:
    training = replace(training, tokens=training.tokens or 1000, length=training.length or 1000)
    more = replace(training, **{key: getattr(training, key) * 3})
    assert _no_less(_bounds(model, training), _bounds(model, more))


@given(MODELS, ENGINE, st.integers(1, 100_000))
def test_longer_requests_never_need_less(model: Model, engine: Engine, length: int) -> None:
    assert _no_less(*(_engine_bounds(model, replace(engine, length=times * length)) for times in (1, 3)))


@given(MODELS, trainings())
def test_a_larger_data_group_or_more_on_the_host_never_needs_more(model: Model, training: Training) -> None:
    # One slot alone has no group, and smaller buffers.
    several = replace(training, slots=training.slots * 2)
    assert _no_less(_bounds(model, replace(several, slots=several.slots * 2)), _bounds(model, several))
    if training.on_host <= 0.25:
        assert _no_less(_bounds(model, replace(training, on_host=training.on_host + 0.5)), _bounds(model, training))


def _no_less(small: tuple[float, float], large: tuple[float, float]) -> bool:
    return all(one <= other for one, other in zip(small, large, strict=True))


@given(MODELS, trainings())
def test_the_ranks_of_a_component_hold_its_weights(model: Model, training: Training) -> None:
    megatron = replace(training, framework="megatron", weight=2.0, lora=False)
    stages = training_memory(model, megatron)
    weights = [next(part for part in one[0] if part[0] == "weights") for one in stages]
    held = sum(upper for _, _, _, upper in weights) * megatron.slots / megatron.pp
    assert held >= 2 * model.params


@given(MODELS, ENGINE, st.floats(20, 200))
def test_a_larger_card_never_turns_fits_into_anything_else(model: Model, engine: Engine, card: float) -> None:
    fits = []
    for size in (card * GIB, 2 * card * GIB):
        lower, upper = _engine_bounds(model, replace(engine, share=engine.share or 0.9), size)
        fits.append((upper <= USABLE_MEMORY * size, lower <= size))
    assert all(small <= large for small, large in zip(*fits, strict=True))


def test_a_word_that_the_core_does_not_know_is_refused() -> None:
    model: Any = Model.sized(7e9)
    for bad in (Training(framework="other"), Training(framework="fsdp", recompute="some"), Engine(kind="other")):
        with pytest.raises(ValueError, match=r"other|some"):
            training_memory(model, bad) if isinstance(bad, Training) else engine_memory(model, bad, GIB)

"""Published runs, measured peaks and misfits: nothing that ran is refused, nothing that failed is called fits."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from rankplan._core import engine_memory, switch_memory, training_likely, training_memory
from rankplan.memory.settings import GIB, Engine, Training
from rankplan.plans.model import Model
from support.goldens import lines
from support.memory_rows import engine_of, judge, model_of, peak, training_of
from support.outcomes import some

ROWS = lines("memory_rows")
FSDP_PEAKS = lines("fsdp_peaks")
VERDICTS = ("fits", "misfit", "misfit-assumed")
JUDGED = [row for row in ROWS if row["answer"].get("verdict") in VERDICTS and "model" in row]
KINDS = {"train-peak", "ran", "batch-search", "below", "measured", "oom", "derived"}
KINDS |= {"kv-batch", "kv-log", "asleep", "estimate"}


def _of(kind: str) -> list[dict]:
    return some(row for row in ROWS if row["kind"] == kind)


def test_every_kind_of_row_is_read() -> None:
    assert {row["kind"] for row in ROWS} == KINDS
    assert len(ROWS) == 368


def test_nothing_that_ran_is_refused_and_nothing_that_failed_fits() -> None:
    wrong = []
    for row in JUDGED:
        answer = judge(row).answer
        ran = row["answer"]["verdict"] == "fits"
        if answer == ("refused" if ran else "fits"):
            wrong.append((row["id"], answer))
    assert not wrong


def test_the_answers_are_at_least_as_useful_as_they_were() -> None:
    answers = [(row["answer"]["verdict"], judge(row).answer) for row in JUDGED]
    assert answers.count(("fits", "fits")) >= 46
    assert answers.count(("misfit", "refused")) >= 6


def test_measured_peaks_are_inside() -> None:
    for row in (*_of("train-peak"), *FSDP_PEAKS):
        lower, upper = peak(row)
        assert lower <= row["answer"]["peak_bytes"] <= upper, row["id"]


def test_peaks_of_fsdp_were_measured_on_two_cards() -> None:
    assert {row["card"]["name"] for row in FSDP_PEAKS} == {"NVIDIA H100 80GB HBM3", "NVIDIA H200"}
    assert len(FSDP_PEAKS) == 34


def test_what_fsdp_keeps_between_steps_is_inside() -> None:
    for row in FSDP_PEAKS:
        parts = training_memory(model_of(row), training_of(row))[-1][0]
        kept = [(low, high) for _, belongs, low, high in parts if belongs == "state"]
        lower, upper = sum(low for low, _ in kept), sum(high for _, high in kept)
        buffers = 0.03 * upper  # of libraries, and the tokens
        assert lower <= row["answer"]["between_steps_bytes"] <= upper + buffers, row["id"]


def test_steady_bytes_are_at_least_the_lower_bound_of_the_states() -> None:
    for row in some(row for row in _of("train-peak") if "steady_bytes" in row["answer"]):
        steady = row["answer"]["steady_bytes"]
        parts = training_memory(model_of(row), training_of(row))[-1][0]
        upper = sum(high for name, _, _, high in parts if name not in ("activations", "logits"))
        lower = sum(low for _, belongs, low, _ in parts if belongs in ("state", "gradients"))
        assert lower <= 1.02 * steady, row["id"]
        assert steady <= upper, row["id"]


def test_whole_cards_and_recorded_limits() -> None:
    for row in [*_of("measured"), *_of("below")]:
        answer, verdict = row["answer"], judge(row)
        used = answer.get("used_gib") or answer.get("reserved_gib")
        limit = used * GIB if used else answer["below_gb"] * 1e9
        assert verdict.lower <= limit, row["id"]
        if used:
            assert limit <= verdict.upper, row["id"]


def test_caches_hold_what_was_measured() -> None:
    for row in _of("kv-batch"):
        engine = engine_of(row)
        tokens = engine_memory(model_of(row), engine, row["card"]["gib"] * GIB)[4]
        measured = row["answer"]["sequences"] * engine.length
        assert tokens[0] < measured + engine.length, row["id"]  # one more did not fit
        assert measured <= tokens[1], row["id"]


def test_logs_of_engines() -> None:
    logged = [row for row in _of("kv-log") if "model" in row and row["answer"]["verdict"] != "disputed"]
    assert any("weights_gib" in row["answer"] for row in logged)
    for row in logged:
        answer = row["answer"]
        parts, _, _, token, tokens, _ = engine_memory(model_of(row), engine_of(row), row["card"]["gib"] * GIB)
        if "weights_gib" in answer:
            lower, upper = parts[0][2:]
            assert lower <= (answer["weights_gib"] + 0.02) * GIB, row["id"]
            assert answer["weights_gib"] * GIB <= upper, row["id"]
        if "kv_tokens" in answer:
            assert tokens[0] <= answer["kv_tokens"] <= tokens[1], row["id"]
        if "kv_gib" in answer and "kv_tokens" in answer:
            # A rank logs its own size, and the tokens are those of the rank with the fewest (vLLM:
            # `unify_kv_cache_configs` of `v1/core/kv_cache_utils.py`): several ranks only bound the bytes of a token.
            logged = answer["kv_gib"] * GIB / answer["kv_tokens"]
            several = row["engine"]["tp"] > 1
            assert token == pytest.approx(logged, rel=0.01) or (several and 0.98 * logged <= token < logged), row["id"]


def test_bytes_of_a_token_with_several_ranks() -> None:
    """SGLang's line for the engine whose vLLM log is row 534 (vllm-project/vllm#21348): 16.46 GiB, 367,404 tokens."""
    row = next(row for row in ROWS if row["id"] == "memory-rows-0534")
    token = engine_memory(model_of(row), engine_of(row), 80 * GIB)[3]
    assert token == pytest.approx(2 * 8.23 * GIB / 367_404, rel=0.001)


def test_the_least_of_the_states_is_near_what_is_steady() -> None:
    """Where all keys of the states are known, the lower bound is at least 0.8 of the measured bytes (median)."""
    ratios = []
    for row in _of("train-peak"):
        if (steady := row["answer"].get("steady_bytes")) is not None:
            parts = training_memory(model_of(row), training_of(row))[-1][0]
            lower = sum(low for _, belongs, low, _ in parts if belongs in ("state", "gradients"))
            ratios.append(lower / steady)
    assert median(ratios) > 0.8


def test_sleeping_engines_keep_what_was_measured() -> None:
    for row in _of("asleep"):
        engine = engine_of({**row, "colocated": True})
        lower, upper = engine_memory(model_of(row), engine, 80 * GIB)[1]
        assert lower <= row["answer"]["resident_gib"] * GIB <= upper, row["id"]


def test_an_engine_that_refused_to_start_does_not_fit() -> None:
    """vllm-project/vllm#10517: Llama-3.1-8B on 23.58 GiB, with a share of 0.9 and requests of 29,000 tokens."""
    model = Model.of("meta-llama/Meta-Llama-3.1-8B")
    starts = {
        (card, length): engine_memory(model, Engine(kind="vllm", share=0.9, length=length), card * GIB)[5]
        for card, length in ((23.58, 29_000), (23.58, 100_000), (80.0, 29_000), (80.0, None))
    }
    assert starts == {(23.58, 29_000): None, (23.58, 100_000): False, (80.0, 29_000): True, (80.0, None): None}
    cached = replace(model, shape=replace(model.shape, cached_layers=4))
    engine = Engine(kind="vllm", share=0.5, length=150_000)
    assert engine_memory(cached, engine, 80 * GIB)[5] is None  # an engine may cache all layers whole


def test_a_quantized_checkpoint_may_keep_attention_and_ends_in_16_bits() -> None:
    """Llama-3.1-405B in 8 bits on 8 cards of 80 GiB: 57.75 GiB of weights on each."""
    engine = Engine(kind="vllm", tp=8, share=0.9, weight=(1.0, 1.0))
    lower, upper = engine_memory(Model.of("meta-llama/Meta-Llama-3.1-405B"), engine, 80 * GIB)[0][0][2:]
    assert lower <= 57.75 * GIB <= upper < 64 * GIB


@pytest.mark.parametrize(
    ("training", "most"),
    [
        (Training(framework="fsdp", slots=8, weight=4.0, sleep="host"), 280),
        (Training(framework="fsdp", slots=8, shard=1, sleep="host"), 2200),
        (Training(framework="deepspeed", slots=8, zero=3, sleep="host"), 280),
        (Training(framework="deepspeed", slots=8, zero=2, sleep="host"), 920),
        (Training(framework="megatron", slots=8, tp=2, distributed=True, sleep="host"), 550),
    ],
)
def test_ranks_keep_their_part_of_the_states_on_the_host(training: Training, most: float) -> None:
    model = Model.of("Qwen/Qwen3-8B")
    node = 8 * training_memory(model, training)[0][2][1]
    assert 24 * model.params <= node <= most * GIB


def _asleep(model: Model, training: Training) -> float:
    """Return what a trainer leaves asleep at most, in GiB."""
    return training_memory(model, training)[0][1][1] / GIB


def _part(model: Model, training: Training, name: str) -> float:
    """Return the upper bound of a part, in GiB."""
    return next(upper for part, _, _, upper in training_memory(model, training)[0][0] if part == name) / GIB


def test_an_emptied_allocator_keeps_nothing_of_a_step() -> None:
    model = Model.of("Qwen/Qwen2.5-7B")
    keeps = Training(framework="fsdp", slots=8, weight=4.0, tokens=16_384, recompute="full", whole_gradients=True)
    empties = replace(keeps, empties_cache=True)
    of_step = sum(_part(model, keeps, name) for name in ("activations", "logits", "gathered"))
    whole = 7 / 8 * _part(model, keeps, "gradients")
    assert _asleep(model, keeps) - _asleep(model, empties) == pytest.approx(of_step + 1.12 * whole, rel=0.001)
    engine = Engine(kind="vllm", share=0.5)
    parts = [dict.fromkeys(("trainer's other states",), 0.0) for _ in range(2)]
    for sizes, training in zip(parts, (keeps, empties), strict=True):
        sizes.update((name, upper / GIB) for name, _, _, upper in switch_memory(model, training, engine, 80 * GIB)[0])
    before, after = (sizes["trainer's other states"] for sizes in parts)
    assert before - after == pytest.approx(whole, rel=0.001)


def test_weights_of_32_bits_have_no_other_copy() -> None:
    """An Adam of PyTorch keeps two moments of the type of the weights, and allocates one for its step."""
    model = Model.of("Qwen/Qwen2.5-7B")
    wide = Training(framework="fsdp", slots=8, weight=4.0, tokens=1, recompute="full")
    shard = 4 * model.params / 8 / GIB
    assert _part(model, wide, "optimizer") == pytest.approx(2 * shard, rel=0.001)
    assert _part(model, replace(wide, weight=2.0), "optimizer") == pytest.approx(3 * shard, rel=0.001)
    assert 0 < _part(model, replace(wide, slots=1), "copies at the step") < 8 * shard
    assert _part(model, replace(wide, tokens=16_384), "copies at the step") == 0


def test_logits_have_bounds_by_how_they_are_computed() -> None:
    model = Model.of("Qwen/Qwen2.5-7B")
    usual = Training(framework="megatron", slots=8, tokens=16_384, recompute="full")
    logit = 16_384 * 152_064 / GIB
    sizes = {
        "usual": (12, usual),
        "wide": (16, replace(usual, wide_logits=True)),
        "chunk": (8 + 48 / 16, replace(usual, logits_chunk=1024)),
        "a chunk of all": (12, replace(usual, logits_chunk=65_536)),
    }
    for name, (bytes_of_logit, training) in sizes.items():
        assert _part(model, training, "logits") == pytest.approx(bytes_of_logit * logit, rel=0.005), name
    assert _part(model, replace(usual, fused_logits=True), "logits") < 5 * logit
    likely = [
        next(size for name, _, size in training_likely(model, training)[0][0] if name == "logits")
        for training in (usual, replace(usual, logits_chunk=1024), replace(usual, fused_logits=True))
    ]
    in_place = replace(usual, framework="fsdp", logits_in_place=True)
    assert _part(model, in_place, "logits") == _part(model, replace(in_place, logits_in_place=False), "logits")
    assert training_likely(model, in_place)[0][0][-1][2] == pytest.approx(4 * 16_384 * 152_064 * 0.85, rel=0.005)
    assert likely == sorted(likely, reverse=True) and likely[0] > 1.2 * likely[1] > 2 * likely[2]


def test_a_component_of_one_slot_has_smaller_buffers() -> None:
    model = Model.of("Qwen/Qwen2.5-7B")
    alone, two = (Training(framework="forward", slots=slots, tokens=1) for slots in (1, 2))
    assert (_part(model, alone, "communication"), _part(model, two, "communication")) == (1, 4)


def test_deepspeeds_documented_estimates_are_not_below_the_lower_bound() -> None:
    for row in _of("estimate"):
        parts = training_memory(model_of(row), training_of(row))[0][0]
        states = sum(low for _, _, low, _ in parts)
        assert states <= (row["answer"]["gpu_gib"] + 0.01) * GIB, row["id"]

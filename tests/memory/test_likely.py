"""The likely value: near measured peaks, and its answers right for published runs and misfits."""

from __future__ import annotations

import re
from collections import Counter
from copy import deepcopy
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest
import rankplan
from rankplan._core import engine_likely, engine_memory, likely_room, training_likely
from rankplan.memory.settings import GIB, Engine, Training
from rankplan.memory.usual import usual_training
from rankplan.plans.model import Model
from support.goldens import lines
from support.memory_answers import Case, case_of_report, case_of_row, reported_answer, verdict_of
from support.memory_rows import model_of, training_of
from support.outcomes import some
from support.row_configs import asked

CORE = Path(__file__).resolve().parents[2] / "crates" / "rankplan-core" / "src" / "memory"
ROWS = lines("memory_rows")
REPORTS = lines("memory_reports")
PEAKS = {
    "megatron": [row for row in ROWS if row["kind"] == "train-peak"],
    "fsdp": lines("fsdp_peaks"),
}
PROVED = ("fits", "refused")


def _errors(rows: list[dict[str, Any]]) -> list[float]:
    errors = []
    for row in some(rows):
        training, _ = usual_training(training_of(row))
        parts, complete, _ = training_likely(model_of(row), training)[-1]
        assert complete, row["id"]
        errors.append(abs(sum(size for _, _, size in parts) / row["answer"]["peak_bytes"] - 1))
    return errors


@pytest.mark.parametrize(("framework", "half", "tenth"), [("megatron", 0.15, 0.30), ("fsdp", 0.25, 0.50)])
def test_the_likely_value_is_near_measured_peaks(framework: str, half: float, tenth: float) -> None:
    errors = _errors(PEAKS[framework])
    assert median(errors) <= half
    assert quantiles(errors, n=10)[-1] <= tenth


def _counted(cases: list[Case]) -> tuple[float, float, list[Case]]:
    """Return the share of cases with an answer, the share of them that is right, and the proved ones that are wrong."""
    answered = [case for case in cases if case.is_answered]
    right = [case for case in answered if case.is_right]
    wrong = [case for case in answered if case.answer in PROVED and not case.is_right]
    return len(answered) / len(cases), len(right) / len(answered), wrong


def test_published_runs_and_misfits_are_answered_and_right() -> None:
    cases = [case_of_row(row) for row in some(row for row in ROWS if verdict_of(row))]
    answered, right, wrong = _counted(cases)
    assert not wrong
    assert answered >= 0.9
    assert right >= 0.95


def test_no_proved_answer_is_wrong_for_a_report(tmp_path: Path) -> None:
    cases = [case_of_report(report, tmp_path) for report in some(report for report in REPORTS if verdict_of(report))]
    answered, right, wrong = _counted(cases)
    assert not wrong, Counter(cases)
    assert answered >= 0.85
    assert right >= 0.9


def test_weights_that_engines_log_are_inside_their_bounds_and_near_the_likely_value() -> None:
    """Experts of 4 bits have scales, and vLLM pads their sizes: gpt-oss-120b takes 64.4 or 66.0 GiB, by its kernels."""
    logged = [report for report in REPORTS if "weights_gib" in report["observed"] and "known" not in report]
    assert {"kv-19", "kv-20"} <= {report["id"] for report in logged}
    for report in logged:
        weights = report["observed"]["weights_gib"] * GIB
        needs = rankplan.check(*asked(report["row"]), memory=True).needs
        assert needs is not None
        need = needs.phases()[("rollout",), "generate"]
        lower, upper = need.parts["weights"]
        assert lower <= weights + 0.02 * GIB and weights <= upper, report["id"]
        assert need.estimate is not None
        assert need.estimate.parts["weights"] == pytest.approx(weights, rel=0.03), report["id"]


@pytest.mark.parametrize(
    "name", ["openai/gpt-oss-20b", "openai/gpt-oss-120b", "Qwen/Qwen3-30B-A3B-AWQ", "Qwen/Qwen3-8B"]
)
def test_likely_weights_of_an_engine_are_inside_their_bounds(name: str) -> None:
    model = Model.of(name)
    for tp, pp, ep in product((1, 2, 4, 8), (1, 2, 8), (1, 4, 16)):
        for weight in {(model.stored, 2.0), (model.stored, model.stored)}:
            engine = Engine(kind="vllm", tp=tp, pp=pp, ep=ep, weight=weight)
            lower, upper = next(
                bounds for part, _, *bounds in engine_memory(model, engine, 80 * GIB)[0] if part == "weights"
            )
            likely = next(size for part, _, size in engine_likely(model, engine, 80 * GIB)[0][0] if part == "weights")
            assert lower <= likely <= upper, (tp, pp, ep, weight)


def test_a_shard_of_an_expert_is_padded_by_mxfp4_only() -> None:
    """An expert of GPTQ has no padding on any number of ranks: 235B take 14.5 GiB on each of 8."""
    model = Model.of("Qwen/Qwen3-235B-A22B-GPTQ-Int4")
    sizes = {}
    for tp in (1, 8):
        parts = engine_likely(model, Engine(kind="vllm", tp=tp, weight=(model.stored, 2.0)), 80 * GIB)[0][0]
        sizes[tp] = next(size for part, _, size in parts if part == "weights")
    assert 8 * sizes[8] == pytest.approx(sizes[1], rel=0.1)


def test_weights_of_deepspeed_stay_where_only_the_optimizer_is_offloaded() -> None:
    """DeepSpeed: `estimate_zero3_model_states_mem_needs` has 2 bytes a parameter, unless parameters go, too."""
    model = Model.of("Qwen/Qwen2.5-7B")
    settings = {"framework": "deepspeed", "zero": 3, "slots": 8, "on_host": 1.0, "weights_on_host": True}
    parts = {name: size for name, _, size in training_likely(model, Training(**settings))[0][0]}
    assert parts["weights"] == pytest.approx(2 * model.params / 8)
    assert parts["gradients"] == parts["optimizer"] == 0


def test_a_sleeper_has_no_bound_but_its_own(tmp_path: Path) -> None:
    """NVIDIA-NeMo/RL#3280: out of memory when the engine wakes, though every phase had an upper bound that fits."""
    reports = [report for report in REPORTS if report["id"].startswith("m2-nemo-3280")]
    assert [reported_answer(report, tmp_path) for report in reports] == ["unknown", "unknown"]


def test_a_version_decides_whether_an_engine_wakes_up(tmp_path: Path) -> None:
    """The recipes of NVIDIA-NeMo/RL#3280 ran again with a cache of 20 GiB, whatever the share is."""
    (report, _) = [report for report in REPORTS if report["id"].startswith("m2-nemo-3280")]
    nodes = "1x8:H100"
    result = rankplan.check(report["config"], nodes, memory=True)
    (warning,) = [one for one in result.warnings if "may not wake up beside `policy`" in one.message]
    assert warning.help == "state the size of its cache: vLLM's kv_cache_memory_bytes"
    assert result.needs is not None
    assert result.needs.phases()[("policy",), "train"].answer == "likely fits"
    config = deepcopy(report["config"])
    config["policy"]["generation"]["vllm_kwargs"] = {"kv_cache_memory_bytes": 20 * GIB}
    mended = rankplan.check(config, nodes, memory=True).needs
    assert mended is not None
    assert mended.phases()[("generation",), "generate"].answer in ("fits", "likely fits")


def test_more_recomputed_or_fewer_tokens_never_need_more() -> None:
    model = Model.of("Qwen/Qwen2.5-7B")

    def likely(**settings: Any) -> float:
        training = Training(**({"framework": "fsdp", "slots": 8, "tokens": 8192, "length": 4096} | settings))
        return sum(size for _, _, size in training_likely(model, training)[0][0])

    kinds = [likely(recompute=kind) for kind in ("full", "selective", "none")]
    assert kinds == sorted(kinds) and kinds[0] < kinds[2]
    tokens = [likely(recompute="full", tokens=count) for count in (4096, 8192, 65536, 524_288)]
    assert tokens == sorted(set(tokens))
    assert likely(recompute="full", slots=16) < likely(recompute="full")


def _parts(model: Model, **settings: Any) -> dict[str, float]:
    training = Training(**({"framework": "megatron", "slots": 8, "tp": 2, "recompute": "full"} | settings))
    return {name: size for name, _, size in training_likely(model, training)[0][0]}


def test_a_step_needs_what_its_largest_moment_needs() -> None:
    """ROLL's forward passes have larger micro-batches than its backward passes."""
    model = Model.of("Qwen/Qwen2.5-7B")
    both = _parts(model, tokens=4 * 6144)
    training = _parts(model, tokens=4 * 6144, trained_tokens=6144)
    assert sum(training.values()) < sum(both.values())
    assert sum(training.values()) >= sum(_parts(model, tokens=6144).values())
    scoring = _parts(model, tokens=64 * 6144, trained_tokens=6144)
    assert "copies at the step" not in scoring and scoring["gradients"] > 0
    assert "logits" in scoring and "activations" not in scoring
    update = _parts(model, tokens=1024, optimizer_in_step=True)
    assert update.keys() == {"weights", "gradients", "optimizer", "copies at the step"}
    backward = _parts(model, tokens=64 * 6144, optimizer_in_step=True)
    assert "optimizer" not in backward and backward["logits"] > 0


def test_a_critic_has_no_logits_of_a_vocabulary() -> None:
    model = Model.of("Qwen/Qwen2.5-7B")
    assert _parts(model, tokens=6144)["logits"] > 0
    assert _parts(model.scoring(), tokens=6144)["logits"] == 0


def test_an_engine_takes_its_share_and_starts_with_room_for_a_request() -> None:
    model = Model.of("meta-llama/Meta-Llama-3.1-8B")
    starts = {}
    for length in (4096, 25_000, 60_000):
        (parts, complete, asleep), likely = engine_likely(
            model, Engine(kind="vllm", share=0.9, length=length), 24 * GIB
        )
        assert complete and asleep == GIB
        assert sum(size for _, _, size in parts) == pytest.approx(0.9 * 24 * GIB)
        starts[length] = likely
    assert starts == {4096: True, 25_000: None, 60_000: False}


@pytest.mark.parametrize(("more", "starts"), [(1.6, True), (1.4, None), (-0.2, None), (-0.3, False)])
def test_an_engine_whose_room_is_close_may_start(more: float, starts: bool | None) -> None:
    model = Model.of("meta-llama/Meta-Llama-3.1-8B")
    (parts, _, _), _ = engine_likely(model, Engine(kind="vllm", share=0.9, length=8192), 80 * GIB)
    sizes = {part: size for part, _, size in parts}
    request = 8192 * 2 * 32 * 1024 * 2  # keys and values of 32 layers with 8 heads of 128
    needed = sizes["weights"] + sizes["activations"] + request
    share = (needed + more * GIB) / (80 * GIB)
    assert engine_likely(model, Engine(kind="vllm", share=share, length=8192), 80 * GIB)[1] is starts


def _step(size: int, **settings: Any) -> float:
    """Return the likely bytes of a step of an engine on a card of so many GiB."""
    engine = Engine(kind="vllm", share=0.9, length=4096, **settings)
    parts = engine_likely(Model.of("Qwen/Qwen3-8B"), engine, size * GIB)[0][0]
    return next(bytes for part, _, bytes in parts if part == "activations")


@pytest.mark.parametrize(
    ("usage", "size", "on_a100", "batch", "sequences"),
    [
        ("llm", 80, False, 16_384, 1024),
        ("llm", 80, True, 8192, 256),
        ("llm", 48, False, 8192, 256),
        ("server", 80, False, 8192, 1024),
        ("server", 80, True, 2048, 256),
        ("server", 48, False, 2048, 256),
        (None, 80, False, 8192, 1024),
        ("engine", 80, False, 2048, 128),
        ("engine", 48, False, 2048, 128),
    ],
)
def test_the_card_and_how_vllm_is_built_decide_its_step(
    usage: str | None, size: int, on_a100: bool, batch: int, sequences: int
) -> None:
    """``EngineArgs.get_batch_defaults``; ``SchedulerConfig`` for an ``AsyncLLM``."""
    usual = _step(size, usage=usage, on_a100=on_a100)
    assert usual == _step(size, batch=batch, sequences=sequences)
    assert _step(size, usage=usage, batch=512, sequences=8) == _step(size, batch=512, sequences=8)
    assert _step(size, usage=usage, batch=64) == _step(size, batch=64, sequences=64)  # no more requests than tokens
    assert _step(size, usage=usage, sequences=1) <= _step(size, batch=4096, sequences=1)  # nor tokens than theirs


def test_an_engine_of_an_unknown_version_may_read_a_request_whole() -> None:
    assert _step(48, sequences=8) == _step(48, batch=4096, sequences=8) > _step(48, usage="server", sequences=8)


@pytest.mark.parametrize(
    ("name", "weight", "tp", "card", "share", "tokens", "requests", "left"),
    [
        ("openai/gpt-oss-120b", 0.5, 1, 79.25, 0.9, 8192, 1024, -2.14),  # vllm-project/vllm#23278
        ("openai/gpt-oss-120b", 0.5, 1, 79.25, 0.95, 1024, 1024, 1.71),  # vllm-project/vllm#27508
        ("Qwen/Qwen3-235B-A22B", 1.0, 4, 79.2, 0.9, 8192, 1024, 8.11),  # vllm-project/vllm#21348
        ("Qwen/Qwen2.5-14B", 2.0, 2, 23.65, 0.98, 2048, 256, 7.46),  # vllm-project/vllm#13061, its rank with less
        ("meta-llama/Meta-Llama-3.1-8B", 2.0, 1, 39.56, 0.9, 512, 256, 19.4),  # `kv-09`
    ],
)
def test_what_vllm_leaves_for_its_cache_is_near_its_logs(
    name: str, weight: float, tp: int, card: float, share: float, tokens: int, requests: int, left: float
) -> None:
    """A step sorts the logits of all requests: with 1,024 of them, that is what it needs most for."""
    engine = Engine(kind="vllm", tp=tp, share=share, weight=(weight, weight), batch=tokens, sequences=requests)
    parts = {part: size / GIB for part, _, size in engine_likely(Model.of(name), engine, card * GIB)[0][0]}
    assert share * card - parts["weights"] - parts["activations"] == pytest.approx(left, abs=0.75)


def test_an_a100_has_the_step_of_a_small_card_in_a_config_too() -> None:
    config = {
        "cluster": {
            "num_nodes": 1,
            "model": "Qwen/Qwen3-8B",
            "component_placement": {"rollout": {"placement": 0, "memory": {"engine": "vllm", "length": 4096}}},
        }
    }
    steps = {}
    for card in ("A100-80GB", "H100"):
        needs = rankplan.check(config, f"1x1:{card}", memory=True).needs
        assert needs is not None
        need = needs.phases()[("rollout",), "generate"]
        assert need.estimate is not None
        steps[card] = need.estimate.parts["activations"]
    assert steps["A100-80GB"] == _step(80, batch=4096, sequences=256) < steps["H100"]


def test_an_engine_without_a_length_serves_that_of_its_model() -> None:
    """vLLM refuses to start without room for one request of full length (``_check_enough_kv_cache_memory``)."""
    model = Model.of("Qwen/Qwen3-8B")
    settings: dict[str, Any] = {"kind": "vllm", "share": 0.9, "graphs": False, "batch": 2048, "sequences": 128}
    starts = {}
    for longest in (None, 40_960, 1_000_000):
        engine = Engine(**settings, longest=longest)
        starts[longest] = engine_memory(model, engine, 80 * GIB)[5], engine_likely(model, engine, 80 * GIB)[1]
    assert starts == {None: (None, True), 40_960: (True, True), 1_000_000: (None, False)}
    stated = Engine(**settings, length=4096, longest=1_000_000)
    assert engine_memory(model, stated, 80 * GIB)[5] is True


def test_an_engine_in_an_expert_group_keeps_buffers_asleep_as_one_in_a_tensor_group() -> None:
    model = Model.of("Qwen/Qwen3-30B-A3B")
    (_, _, alone), (_, _, tensors), (_, _, experts) = (
        engine_likely(model, Engine(kind="vllm", tp=tp, ep=ep), 80 * GIB)[0] for tp, ep in ((1, 1), (8, 1), (1, 8))
    )
    assert alone < tensors == experts


def test_room_has_lost_blocks_and_buffers() -> None:
    assert likely_room(0) == 2 * GIB
    assert likely_room(50 * GIB) == pytest.approx(56 * GIB)


def test_every_number_has_its_source_or_what_it_was_fitted_to() -> None:
    numbers = (CORE / "numbers.rs").read_text()
    stated = re.findall(r"((?:^/// .*\n)+)pub const (\w+)", numbers, re.MULTILINE)
    assert len(stated) == numbers.count("pub const") > 40
    sources = re.compile(r"[Ff]itted|Chosen|[Mm]easured|`|arXiv|[Aa] rank of|The processes of|NVML|vllm-project")
    assert [name for comment, name in stated if not sources.search(comment)] == []


def test_no_number_has_another_home() -> None:
    for file in some(CORE.glob("*.rs")):
        constants = re.findall(r"^\s*(?:pub(?:\(\w+\))? )?const (\w+): f64", file.read_text(), re.MULTILINE)
        assert file.name == "numbers.rs" or constants in ([], ["GIB"]), file.name

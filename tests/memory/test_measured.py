"""Measured needs that a user hands in, and the cards that a plan likely fits on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan.errors import PlacementError
from rankplan.hardware.cards import known_cards
from rankplan.memory.measured import read_measured
from rankplan.memory.settings import GIB
from rankplan.render.memory import memory_lines

CONFIG: dict[str, Any] = {
    "trainer": {"nnodes": 1, "n_gpus_per_node": 8},
    "algorithm": {"adv_estimator": "grpo"},
    "actor_rollout_ref": {
        "model": {"path": "Qwen/Qwen3-8B"},
        "actor": {
            "strategy": "fsdp2",
            "use_dynamic_bsz": True,
            "ppo_max_token_len_per_gpu": 8192,
            "fsdp_config": {"param_offload": True, "optimizer_offload": True},
        },
        "rollout": {"name": "vllm", "tensor_model_parallel_size": 2},
    },
}
LINE = "step:{} - actor/loss:0.1 - perf/max_memory_allocated_gb:{} - perf/max_memory_reserved_gb:90.0\n"


def _train(measured: list[str], nodes: str = "1x8:H100") -> Any:
    needs = rankplan.check(CONFIG, nodes, memory=True, measured=measured).needs
    assert needs is not None
    return needs.phases()[("actor",), "train"]


def test_a_measured_peak_takes_the_place_of_the_likely_value() -> None:
    without, small, large = _train([]), _train(["actor.train=57GiB"]), _train(["actor.train=79 GiB"])
    assert (small.lower, small.upper) == (without.lower, without.upper)
    assert small.likely == pytest.approx(57 * GIB + 4.1 * GIB, rel=0.1)
    assert (small.answer, large.answer) == ("likely fits", "likely exceeds")


def test_the_log_of_verl_has_the_largest_peak(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("starting\n" + LINE.format(1, 40.5) + LINE.format(2, 61.25) + LINE.format(3, 50))
    assert read_measured([str(log)]) == {("actor", "train"): 61.25 * GIB}
    assert read_measured([str(log), "rollout.generate=40 GiB"]).keys() == {("actor", "train"), ("rollout", "generate")}
    log.write_text("{'perf/max_memory_allocated_gb': np.float64(33.5)}")
    assert read_measured([str(log)]) == {("actor", "train"): 33.5 * GIB}


GPUMEM = (
    "[gpumem] tag=train_end rank={} alloc=21.50 max_alloc={} reserved=60.25 max_reserved=61.00 driver_used=65.75 "
    "total=79.11"
)
BEFORE_REFIT = "(DTensorPolicyWorkerV2 pid=7) GPU Memory before optimizer offload: {}GB allocated, {}GB reserved"
MEMORY_USAGE = (
    "[Rank 0] Memory-Usage {}: {{'gpu': '0', 'total_GB': 79.1, 'free_GB': 9.3, 'used_GB': 69.8, 'allocated_GB': 20.11, "
    "'reserved_GB': {}, 'host_total_GB': 1000.0}}"
)


@pytest.mark.parametrize(
    ("lines", "component", "size"),
    [
        # a peak counts before what was reserved, which has the 8 % that an allocator loses
        ([GPUMEM.format(0, 40.5), BEFORE_REFIT.format(1, 70), GPUMEM.format(1, 51.25)], "policy", 51.25),
        ([BEFORE_REFIT.format(21.5, 54.0), BEFORE_REFIT.format(21.5, 52.0)], "policy", 50),
        (
            [MEMORY_USAGE.format("after offload model", 70), MEMORY_USAGE.format("before offload model", 54)],
            "actor",
            50,
        ),
    ],
)
def test_logs_of_other_trainers(lines: list[str], component: str, size: float, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("starting\n" + "\n".join(lines))
    assert read_measured([str(log)]) == {(component, "train"): pytest.approx(size * GIB)}


@pytest.mark.parametrize(
    ("text", "message", "help"),
    [
        (
            "actor.train",
            "'actor.train' is no file, and states no measured size of a phase",
            "write `actor.train=57GiB`",
        ),
        ("verl.log", "'verl.log' is no file, and states no measured size of a phase", "write `actor.train=57GiB`"),
        ("actor.train=57", "'actor.train=57' states no measured size of a phase", "write `actor.train=57GiB`"),
        ("train=57GiB", "'train=57GiB' states no measured size of a phase", "write `actor.train=57GiB`"),
        ("actor.trian=57GiB", "'actor.trian' is no phase of a component", "did you mean `actor.train`?"),
    ],
)
def test_what_is_no_measured_phase_is_a_fault(text: str, message: str, help: str) -> None:
    (fault,) = rankplan.check(CONFIG, "1x8:H100", memory=True, measured=[text]).faults
    assert fault.code == "invalid-value"
    assert fault.message.startswith(message)
    assert fault.help is not None and fault.help.startswith(help)


def test_a_measured_phase_of_an_unknown_model_needs_its_name() -> None:
    config = CONFIG | {"actor_rollout_ref": CONFIG["actor_rollout_ref"] | {"model": {"path": "/path/to/model"}}}
    (fault,) = rankplan.check(config, "1x8:H100", memory=True, measured=["actor.train=57GiB"]).faults
    assert fault.message.endswith("there is none")
    assert fault.help is not None and "--model" in fault.help


def test_a_log_without_a_peak_is_a_fault(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("nothing\n")
    with pytest.raises(PlacementError) as caught:
        read_measured([str(log)])
    message = caught.value.diagnostics[0].message
    assert all(text in message for text in ("perf/max_memory_allocated_gb", "[gpumem] max_alloc=", "Memory-Usage"))


def _line(config: dict[str, Any], nodes: str) -> list[str]:
    needs = rankplan.check(config, nodes, memory=True).needs
    assert needs is not None
    return [line for line in memory_lines(needs) if line.startswith("likely fits")]


def test_without_a_card_the_smallest_one_that_likely_fits_is_named() -> None:
    (line,) = _line(CONFIG, "1x8")
    size = float(line.split(" of ")[1].split(" GiB")[0])
    names = [card.name for card in known_cards() if card.size >= size * GIB]
    assert 20 < size < 80
    assert names[0] in line
    assert _line(CONFIG, "1x8:H100") == []
    needs = rankplan.check(CONFIG, "1x8", memory=True).needs
    assert needs is not None
    fits = {"fits", "likely fits"}
    for card in known_cards():
        answers = {need.answer for need in needs.on_cards_of(card.size).phases().values()}
        assert (answers <= fits) == (card.size >= size * GIB - 0.1 * GIB), card


def test_an_unknown_card_is_one_warning() -> None:
    report = rankplan.check(CONFIG, "1x8", memory=True)
    (warning,) = (warning for warning in report.warnings if warning.code == "memory-unknown")
    assert "in the phase train on accelerator 0 of node 0, whose memory is unknown" in warning.message
    assert warning.help == "name the accelerators: `--nodes 1x8:H100`, or state `accelerator_model` in an inventory"
    assert report.needs is not None
    assert "its numbers are those of an accelerator of 80.0 GiB" in "\n".join(memory_lines(report.needs))


def test_a_job_that_fits_no_card_says_so() -> None:
    large = {
        **CONFIG,
        "actor_rollout_ref": CONFIG["actor_rollout_ref"] | {"model": {"path": "deepseek-ai/DeepSeek-V3"}},
    }
    assert _line(large, "1x8") == ["likely fits no accelerator of up to 287.9 GiB"]


def test_a_log_may_have_the_name_of_a_run(tmp_path: Path) -> None:
    """The folders of Hydra's runs are called like their overrides."""
    folder = tmp_path / "lr=1e-6"
    folder.mkdir()
    (folder / "log.txt").write_text(LINE.format(1, 57.0))
    assert list(read_measured([str(folder / "log.txt")]).values()) == [57.0 * GIB]


def test_a_change_is_not_measured() -> None:
    report = rankplan.check(CONFIG, "1x8:H100", memory=True, measured=["actor.train=95GiB"])
    (fault,) = [one for one in (*report.faults, *report.warnings) if "actor" in one.message and "train" in one.message]
    assert fault.help is not None and "use a smaller model" not in fault.help

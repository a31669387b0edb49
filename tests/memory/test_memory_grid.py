"""What public estimators answer: Megatron-LM, Megatron-Bridge and DeepSpeed.

They are estimates, not measurements. Megatron-LM's leaves context ranks out of the optimizer's shard and of
activations, and both of Megatron's spread layers evenly over the stages, though dense layers come first.
"""

from __future__ import annotations

from collections import Counter
from statistics import median

import pytest
from rankplan._core import training_memory
from rankplan.plans.model import Model
from support.goldens import lines
from support.memory_grid import STATES, bounds, training_of
from support.outcomes import some

ROWS = lines("memory_grid")
EVENLY = 0.04
"""How much less the fullest stage has if dense layers are not the first ones."""


def _megatron(name: str) -> list[dict]:
    return [row for row in ROWS if row["estimator"] == name and (row["cp"] == 1 or name == "megatron-bridge")]


def test_every_row_is_read() -> None:
    found = Counter(row["estimator"] for row in ROWS)
    assert found == {"megatron-lm": 393, "megatron-bridge": 244, "deepspeed-zero2": 58, "deepspeed-zero3": 116}


@pytest.mark.parametrize("name", ["megatron-lm", "megatron-bridge"])
def test_the_least_of_the_states_is_what_megatron_estimates(name: str) -> None:
    ratios = [bounds(row, *STATES)[0] / row["states_bytes"] for row in _megatron(name)]
    assert abs(median(ratios) - 1) < 0.001
    assert all(1 - EVENLY < ratio < 1 + EVENLY for ratio in ratios)


@pytest.mark.parametrize("name", ["megatron-lm", "megatron-bridge"])
def test_what_megatron_estimates_is_below_the_upper_bounds(name: str) -> None:
    for row in some(_megatron(name)):
        assert row["states_bytes"] <= bounds(row, *STATES, "copies at the step")[1], row["id"]
        assert row["activation_bytes"] <= bounds(row, "activations", "logits")[1], row["id"]


def test_context_ranks_are_what_megatron_lm_leaves_out() -> None:
    """Without experts, its states are those of as many fewer data ranks."""
    for row in some(row for row in ROWS if row["estimator"] == "megatron-lm" and row["cp"] > 1):
        shape = Model.of(row["model"]).shape
        fewer = {**row, "accelerators": row["accelerators"] // row["cp"], "cp": 1}
        if shape is not None and shape.experts is None:
            assert bounds(fewer, *STATES)[0] == pytest.approx(row["states_bytes"], rel=EVENLY), row["id"]
        assert bounds(row, *STATES)[0] <= (1 + EVENLY) * row["states_bytes"], row["id"]


@pytest.mark.parametrize("name", ["deepspeed-zero2", "deepspeed-zero3"])
def test_deepspeeds_estimates_are_inside(name: str) -> None:
    """Offloaded weights count as one largest layer, of which the bounds take nothing below."""
    for row in some(row for row in ROWS if row["estimator"] == name):
        parts = training_memory(Model.of(row["model"]), training_of(row))[0][0]
        known = [part for part in parts if part[0] not in ("activations", "logits", "fragments")]
        assert sum(low for _, _, low, _ in known) <= row["gpu_bytes"] <= sum(high for _, _, _, high in known), row["id"]


def test_without_the_optimizer_stage_2_keeps_the_weights() -> None:
    for row in some(row for row in ROWS if row["estimator"] == "deepspeed-zero2" and row["optimizer_offload"]):
        assert bounds(row, *STATES)[0] == row["gpu_bytes"], row["id"]

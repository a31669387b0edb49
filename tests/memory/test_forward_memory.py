"""Models that only compute, ends of pipelines, and engines on accelerators of an unknown size."""

from __future__ import annotations

from typing import Any

import pytest
import rankplan
from rankplan.memory.need import Need
from rankplan.plans.model import Model

MODEL = "Qwen/Qwen2.5-32B"


def need(memory: dict[str, Any], parallel: dict[str, int], **section: Any) -> Need:
    entry = {"placement": "0-7", "parallel": parallel, "memory": memory}
    config = {"cluster": {"num_nodes": 1, "model": MODEL, **section, "component_placement": {"one": entry}}}
    (phases,) = rankplan.plan(config, "1x8").memory().values()
    return next(iter(phases.values()))


@pytest.mark.parametrize(
    ("memory", "parallel", "low", "high"),
    [
        ({"forward": True}, {"tp": 2}, 2, 2),
        ({"forward": "megatron"}, {"tp": 2}, 2, 2),
        ({"forward": "fsdp"}, {"cp": 2}, 8, 8),
        ({"forward": "fsdp"}, {"cp": 2, "fsdp": 2}, 2, 2),
        ({"forward": True}, {"fsdp": 4}, 4, 4),
        ({"forward": "deepspeed", "zero_stage": 3}, {"cp": 2}, 8, 8),
        ({"forward": "deepspeed", "zero_stage": 2}, {"cp": 2}, 1, 1),
        ({"forward": "deepspeed"}, {"cp": 2}, 8, 1),
    ],
)
def test_who_divides_the_weights_of_a_model_that_only_computes(
    memory: dict[str, Any], parallel: dict[str, int], low: int, high: int
) -> None:
    """FSDP and the third stage of DeepSpeed divide weights by their shards; Megatron by tensors and stages only."""
    params = Model.of(MODEL).params
    lower, upper = need(memory, parallel).parts["weights"]
    assert lower == pytest.approx(2 * params / low, rel=0.01)
    assert 4 * params / high <= upper <= 4.1 * params / high


def test_ends_of_a_pipeline_need_a_pipeline() -> None:
    whole = need({"training": "megatron"}, {"tp": 8})
    assert need({"training": "megatron", "first_layers": 4}, {"tp": 8}).parts == whole.parts
    ends = need({"training": "megatron", "first_layers": 4}, {"tp": 4, "pp": 2})
    assert ends.lower > need({"training": "megatron"}, {"tp": 4, "pp": 2}).lower


def test_chunks_keep_more_micro_batches() -> None:
    plain = {"training": "megatron", "tokens": 4096, "sequence_parallel": True}
    one = need(plain, {"tp": 2, "pp": 4})
    two = need({**plain, "chunks": 2}, {"tp": 2, "pp": 4})
    assert one.parts["activations"][1] < two.parts["activations"][1]
    assert one.lower == two.lower


def test_an_engine_is_not_refused_on_an_accelerator_of_unknown_size() -> None:
    engine = {"engine": "vllm", "share": 0.1, "length": 4096}
    assert need(engine, {"tp": 2}).answer == "unknown"
    assert need(engine, {"tp": 2}, accelerator_memory="80 GiB").answer == "refused"


def test_whole_gradients_are_not_divided() -> None:
    plain = need({"training": "fsdp"}, {"cp": 2})
    whole = need({"training": "fsdp", "whole_gradients": True}, {"cp": 2})
    assert whole.lower == plain.lower
    assert whole.parts["gradients"][1] == pytest.approx(8 * plain.parts["gradients"][1], rel=0.01)


def test_a_model_has_no_more_shards_than_slots() -> None:
    """A size of FSDP that is larger than the component leaves the weights of its slots."""
    assert (
        need({"forward": "fsdp", "shards": 64}, {}).parts["weights"] == need({"forward": "fsdp"}, {}).parts["weights"]
    )

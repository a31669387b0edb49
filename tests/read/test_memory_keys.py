"""The key ``memory`` of a component, and the keys of the section beside it: what is accepted, and every fault."""

from __future__ import annotations

from typing import Any

import pytest
import rankplan
from rankplan.errors import PlacementError
from rankplan.memory.settings import GIB


def _config(memory: Any, **section: Any) -> dict[str, Any]:
    placement = {"actor": {"placement": "0-7", "memory": memory}}
    return {"cluster": {"num_nodes": 1, **section, "component_placement": placement}}


def _faults(memory: Any, **section: Any) -> list[tuple[str, str | None, str | None]]:
    with pytest.raises(PlacementError) as caught:
        rankplan.plan(_config(memory, **section), "1x8")
    return [(one.code, one.path, one.help) for one in caught.value.diagnostics]


AT = "cluster.component_placement.actor.memory"


@pytest.mark.parametrize(
    ("memory", "path"),
    [
        ({}, ""),
        ({"training": "fsdp", "engine": "vllm"}, ""),
        ({"training": "fsdp", "share": 0.5}, ".share"),
        ({"engine": "vllm", "recompute": "full"}, ".recompute"),
        ({"resident": "17 GiB", "length": 3}, ".length"),
        ({"training": "fsdp", "params": 7e9, "model": "Qwen/Qwen3-8B"}, ".params"),
        ({"training": "fsdp", "tokens": 1, "micro_batch": 1}, ".micro_batch"),
        ({"training": "jax"}, ".training"),
        ({"forward": "jax"}, ".forward"),
        ({"forward": True, "chunks": 2}, ".chunks"),
        ({"training": "fsdp", "optimizer_on_host": -0.1}, ".optimizer_on_host"),
        ({"training": "fsdp", "optimizer_on_host": 1.1}, ".optimizer_on_host"),
        ({"training": "fsdp", "tokens": 10**30}, ".tokens"),
        ({"training": "fsdp", "tokens": "many"}, ".tokens"),
        ({"training": "fsdp", "params": -1}, ".params"),
        ({"training": "fsdp", "params": float("nan")}, ".params"),
        ({"training": "fsdp", "params": 1e30}, ".params"),
        ({"training": "fsdp", "params": True}, ".params"),
        ({"engine": "vllm", "share": -0.5}, ".share"),
        ({"engine": "vllm", "share": 0}, ".share"),
        ({"engine": "vllm", "share": "half"}, ".share"),
        ({"resident": "17 bananas"}, ".resident"),
        ({"resident": 0}, ".resident"),
        ({"training": "fsdp", "model": 8}, ".model"),
        ({"training": "fsdp", "model": "${model.path}"}, ".model"),
        ({"training": "megatron", "model": "Qwen/Qwen3-8B", "first_layers": 30, "last_layers": 30}, ""),
        ({"training": "megatron", "zero_stage": 3}, ".zero_stage"),
        ({"training": "megatron", "whole_gradients": True}, ".whole_gradients"),
        ({"training": "fsdp", "sequence_parallel": True}, ".sequence_parallel"),
        ({"forward": "fsdp", "zero_stage": 3}, ".zero_stage"),
        ({"resident": 17}, ".resident"),
        ({"resident": {"8": "17 GiB", "x": "3 GiB"}}, ".resident"),
        ("bind", ""),
        (17, ""),
        (["training"], ""),
    ],
)
def test_a_fault_has_a_code_a_place_and_a_help(memory: Any, path: str) -> None:
    ((code, where, help),) = _faults(memory)
    assert (code, where) == ("invalid-value", AT + path)
    assert help


def test_keys_that_contradict_the_model_of_the_section_are_a_fault() -> None:
    memory = {"training": "megatron", "first_layers": 90}
    assert [one[:2] for one in _faults(memory, model="Qwen/Qwen3-8B")] == [("invalid-value", AT)]
    rankplan.plan(_config(memory | {"params": 7e9}, model="Qwen/Qwen3-8B"), "1x8")


def test_messages_name_the_key() -> None:
    for memory, name in (({"engine": "vllm", "share": "60%"}, "share"), ({"resident": "x"}, "resident")):
        with pytest.raises(PlacementError, match=f"`{name}` is "):
            rankplan.plan(_config(memory), "1x8")
    with pytest.raises(PlacementError, match="`accelerator_memory` is 80; it must be a size from 1 MiB"):
        rankplan.plan(_config({"resident": "3 GiB"}, accelerator_memory=80), "1x8")


def test_typos_get_a_suggestion() -> None:
    assert _faults({"trainig": "fsdp"})[0][::2] == ("unknown-key", "did you mean `training`?")
    assert _faults({"engine": "vlm"})[0][2] == "did you mean `vllm`?"
    assert _faults("bind")[0][2] == "write `memory_binding: bind`"
    assert _faults({"training": "fsdp"}, model="Qwn/Qwn3-8B") == [
        ("unknown-model", "cluster.model", "did you mean `Qwen/Qwen3-8B`?")
    ]
    assert _faults({"training": "fsdp"}, accelerator_memory="80 XB")[0][:2] == (
        "invalid-value",
        "cluster.accelerator_memory",
    )


def test_the_model_of_the_section_is_for_components_without_their_own() -> None:
    cluster = _config({"training": "fsdp"}, model="Qwen/Qwen3-8B")["cluster"]
    cluster["component_placement"] |= {
        "judge": {"placement": "0", "memory": {"engine": "sglang", "params": "7e9"}},
        "reward": {"placement": "1", "memory": {"resident": "17 GiB"}},
        "env": "2",
    }
    plan = rankplan.plan({"cluster": cluster}, "1x8")
    memory = {name: one.memory for name, one in plan.items()}
    assert memory["actor"] is not None
    assert memory["actor"].model is not None
    assert memory["actor"].model.name == "Qwen/Qwen3-8B"
    assert memory["judge"] is not None
    assert (memory["judge"].model, memory["judge"].params) == (None, 7e9)
    assert memory["reward"] is not None
    assert memory["reward"].resident == 17 * GIB
    assert memory["env"] is None

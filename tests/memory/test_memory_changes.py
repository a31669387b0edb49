"""The help of a refusal is true: a plan with the changes has the promised bounds and answer. The same for warnings."""

from __future__ import annotations

import math
from typing import Any

import pytest
import rankplan
from hypothesis import example, given
from hypothesis import strategies as st
from rankplan import Plan
from rankplan.errors import PlacementError
from rankplan.memory.changes import Remedy, changes
from rankplan.memory.needs import Needs
from rankplan.memory.settings import GIB, SLEEP
from rankplan.memory.unknown import memory_unknown
from rankplan.memory.verdicts import memory_faults, memory_warnings
from support.outcomes import at_least, outcome

MODELS = st.sampled_from(
    ["Qwen/Qwen2.5-32B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-235B-A22B"]
)
SIZES = st.sampled_from(
    [{}, {"tp": 1, "pp": 2}, {"tp": 2}, {"tp": 4}, {"tp": 2, "pp": 2}, {"tp": 2, "ep": 2}, {"fsdp": 2}]
)
CARDS = st.sampled_from([24, 40, 80, 141])


def _optional(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


TRAINING = _optional(
    gradients=st.sampled_from(["fp32", "bf16"]),
    recompute=st.sampled_from(["full", "none"]),
    tokens=st.sampled_from([1024, 16384]),
    sleep=st.sampled_from(SLEEP),
    precision=st.sampled_from(["fp32", "bf16"]),
)
TRAINERS = st.builds(
    lambda kind, more: kind | more,
    st.sampled_from(
        [
            {"training": "megatron"},
            {"training": "fsdp"},
            {"training": "fsdp", "whole_gradients": True},
            {"training": "fsdp", "whole_gradients": False},
            {"training": "deepspeed", "zero_stage": 1},
        ]
    ),
    TRAINING,
)
ENGINES = st.builds(
    lambda more: {"engine": "vllm"} | more,
    _optional(
        share=st.sampled_from([0.2, 0.5, 0.9]), length=st.sampled_from([4096, 40960]), sleep=st.sampled_from(SLEEP)
    ),
)
OTHERS = st.sampled_from(
    [
        {"resident": "30 GiB", "sleep": "none"},
        {"resident": "70 GiB"},
        {"forward": True, "sleep": "none"},
        {"forward": "fsdp", "sleep": "none"},
        {"forward": "deepspeed", "zero_stage": 1},
    ]
)


def _config(model: str, card: int, components: dict[str, Any]) -> dict[str, Any]:
    section = {"model": model, "accelerator_memory": f"{card} GiB"}
    return {"cluster": section | {"num_nodes": 1, "component_placement": components}}


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    components = {"actor": {"placement": "0-7", "parallel": draw(SIZES), "memory": draw(TRAINERS)}}
    if draw(st.booleans()):
        rollout = {"placement": "0-7", "parallel": {"tp": draw(st.sampled_from([1, 2, 4]))}, "memory": draw(ENGINES)}
        components["rollout"] = rollout
    if draw(st.booleans()):
        components["ref"] = {"placement": "0-7", "memory": draw(OTHERS)}
    return _config(draw(MODELS), draw(CARDS), components)


def _plan(config: dict[str, Any]) -> Plan:
    nodes = config["cluster"]["num_nodes"]
    return rankplan.plan(config, f"{nodes}x8")


def _needs(plan: Plan) -> Needs:
    return Needs(plan.inventory, plan)


def _applied(config: dict[str, Any], change: Remedy) -> dict[str, Any]:
    """Return a config with the changes, as a user would write them."""
    section = config["cluster"]
    entries = {name: {**entry} for name, entry in section["component_placement"].items()}
    nodes = 1
    for one in change.options:
        entry = entries[one.component]
        if one.key == "accelerators":
            entry["placement"], nodes = f"0-{one.value - 1}", max(nodes, one.value // 8)
        else:
            where = "parallel" if one.key in ("tp", "pp", "ep", "fsdp") else "memory"
            entry[where] = {**entry.get(where, {}), one.key: one.value}
    return {"cluster": section | {"num_nodes": nodes, "component_placement": entries}}


@at_least(compared=0.05)
@given(configs())
def test_a_suggested_change_has_the_promised_bounds_and_answer(config: dict[str, Any]) -> None:
    needs = _needs(_plan(config))
    for need in needs.phases().values():
        if need.answer != "refused":
            continue
        for change in changes(needs, need):
            outcome("compared")
            assert change.need.answer != "refused"
            changed = _plan(_applied(config, change))
            found = _needs(changed).phases()[need.components, need.phase]
            promised = change.need
            assert (found.lower, found.upper, found.answer) == (promised.lower, promised.upper, promised.answer)


@at_least(compared=0.05)
@given(configs())
def test_a_smaller_change_does_not_work(config: dict[str, Any]) -> None:
    """The first change that works has the fewest keys: none of its parts works alone."""
    needs = _needs(_plan(config))
    for need in needs.phases().values():
        works = [
            change for change in changes(needs, need) if need.answer == "refused" and "accelerators" not in str(change)
        ]
        least = min((len(change.options) for change in works), default=0)
        for change in works if least > 1 else ():
            for one in change.options:
                try:
                    alone = _plan(_applied(config, Remedy((one,), need)))
                except PlacementError:
                    continue  # sizes that do not divide the slots
                outcome("compared")
                assert _needs(alone).phases()[need.components, need.phase].answer in ("refused", "likely exceeds")


VALUES: dict[str, list[Any]] = {
    "parallel": [{"tp": 2}, {"tp": 1}, {"tp": 4}, {"tp": 8}],
    "recompute": ["full", "none"],
    "tokens": [1, 4096],
    "sequences": [1],
    "graphs": [False],
    "distributed_optimizer": [True, False],
    "sequence_parallel": [True],
    "gradients": ["bf16", "fp32"],
    "zero_stage": [3, 0],
    "share": [0.1, 0.5, 0.9],
    "sleep": ["free", "host", "none"],
}
"""Values of each key, the one that needs the least first."""


def _stated(config: dict[str, Any], values: dict[str, Any]) -> Plan:
    """Return the plan of a config with more keys, each with its component before a dot."""
    entries = {name: {**entry} for name, entry in config["cluster"]["component_placement"].items()}
    for path, value in values.items():
        name, key = path.split(".")
        if key == "parallel":
            entries[name][key] = value
        else:
            assert key not in entries[name]["memory"]
            entries[name]["memory"] = entries[name]["memory"] | {key: value}
    return _plan({"cluster": config["cluster"] | {"component_placement": entries}})


TOGETHER = {
    "actor": {"placement": "0-7", "parallel": {}, "memory": {"training": "megatron"}},
    "rollout": {"placement": "0-7", "parallel": {"tp": 1}, "memory": {"engine": "vllm"}},
}


@at_least(alone=0.02, together=0.001)
@given(configs())
@example(_config("Qwen/Qwen2.5-7B", 80, TOGETHER))
def test_the_keys_that_decide_do(config: dict[str, Any]) -> None:
    """Each alone with one of its values, or all together with the best ones and none of them in vain."""
    for names, phases in _plan(config).memory().items():
        for phase, need in phases.items():

            def is_known(values: dict[str, Any], names: Any = names, phase: str = phase) -> bool:
                return _stated(config, values).memory()[names][phase].answer != "unknown"

            best = {path: VALUES[path.split(".")[1]][0] for path in need.decides}
            if need.together:
                outcome("together")
                assert is_known(best)
                assert not any(is_known({key: best[key] for key in best if key != path}) for path in best)
            else:
                for path in need.decides:
                    outcome("alone")
                    assert any(is_known({path: value}) for value in VALUES[path.split(".")[1]]), path


@given(configs())
def test_every_refusal_has_a_help_and_every_unknown_phase_a_next_step(config: dict[str, Any]) -> None:
    plan = _plan(config)
    assert all(fault.help for _, fault in memory_faults(_needs(plan)))
    for _, warning in memory_unknown(_needs(plan)):
        assert warning.help is not None
        assert warning.help.endswith("measure one step: rankplan run --timings")


ENGINE = {"engine": "vllm", "share": 0.6, "length": 4096}
TRAINER = {"training": "megatron", "gradients": "fp32", "recompute": "full", "tokens": 4096}


def _warned(components: dict[str, Any], **section: Any) -> list[tuple[str, str, str | None]]:
    config = _config("Qwen/Qwen2.5-32B", 80, components)
    config["cluster"] |= section
    plan = _plan(config)
    return [(one.code, one.message, one.help) for _, one in memory_warnings(_needs(plan))]


def test_an_engine_that_takes_its_whole_share_beside_what_stays() -> None:
    ref = {"placement": "0-7", "memory": {"resident": "35 GiB", "sleep": "none"}}
    rollout = {"placement": "0-7:0-1", "memory": ENGINE}
    ((code, message, help),) = _warned({"ref": ref, "rollout": rollout})
    assert code == "memory-shared"
    assert message == (
        "the engine of `rollout` takes 0.6 of 80.0 GiB on accelerator 0 of node 0, where `ref` keeps at least 35.0 GiB"
    )
    assert help == "lower the share to 0.56, or write `sleep: host` for `ref`"
    lower = {"rollout": {**rollout, "memory": ENGINE | {"share": 0.56}}}
    asleep = {"ref": {**ref, "memory": {"resident": "35 GiB", "sleep": "host"}}}
    for better in (lower, asleep):
        assert not _warned({"ref": ref, "rollout": rollout} | better)
    sglang = {**rollout, "memory": ENGINE | {"engine": "sglang"}}
    assert not _warned({"ref": ref, "rollout": sglang})  # its share is of what is free


def test_two_engines_that_stay_share_an_accelerator() -> None:
    both = {name: {"placement": "0-7:0-1", "memory": ENGINE | {"sleep": "none"}} for name in ("rollout", "judge")}
    assert [code for code, _, _ in _warned(both)] == ["memory-shared", "memory-shared"]


def test_a_node_that_may_be_too_small_is_a_warning() -> None:
    actor = {"placement": "0-7", "parallel": {"tp": 8}, "memory": TRAINER | {"optimizer_on_host": 1.0}}
    ((code, message, _),) = _warned({"actor": actor}, host_memory="1000 GiB")
    assert code == "host-memory"
    assert message.startswith("node 0 has 1,000.0 GiB; its ranks keep up to 1,")
    assert not _warned({"actor": actor}, host_memory="2 TiB")
    assert not _warned({"actor": actor})


@pytest.mark.parametrize("stating", ["rollout", "reward", None])
def test_a_node_whose_ranks_state_no_memory_has_no_fault(stating: str | None) -> None:
    """The memory of the node is known, and which of its components states some."""
    components: dict[str, Any] = {"rollout": {"placement": "0"}, "reward": {"placement": "1"}}
    if stating is not None:
        components[stating]["memory"] = {"engine": "vllm"}
    config = _config("Qwen/Qwen2.5-7B", 80, components)
    config["cluster"] |= {"host_memory": "500 GiB", "num_nodes": 2}
    report = rankplan.check(config, "2x1")
    assert report.plan is not None and list(report.plan) == ["rollout", "reward"]
    assert not [one for one in report.diagnostics if one.code == "host-memory"]


def test_other_programs_take_their_part() -> None:
    plan = _plan(_config("Qwen/Qwen2.5-32B", 80, {"rollout": {"placement": "0-7:0-1", "memory": ENGINE}}))
    free, used = (plan.memory(reserve=size)["rollout",]["generate"] for size in (0, 2 * GIB))
    assert used.lower - free.lower == used.upper - free.upper == 2 * GIB
    assert used.parts["other programs"] == (2 * GIB, 2 * GIB)
    assert plan.memory(reserve=70 * GIB)["rollout",]["generate"].answer == "refused"
    (warned,) = (one for _, one in memory_warnings(Needs(plan.inventory, plan, 35 * GIB)))
    assert (warned.code, warned.help) == ("memory-shared", "lower the share to 0.56")


def test_a_size_by_number_of_accelerators() -> None:
    def bounds(placement: str, resident: Any) -> tuple[float, float]:
        plan = _plan(
            _config("Qwen/Qwen2.5-32B", 80, {"ref": {"placement": placement, "memory": {"resident": resident}}})
        )
        need = plan.memory()["ref",]["resident"]
        return need.lower / GIB, need.upper / GIB

    sizes = {2: "30 GiB", 6: "12 GiB"}
    assert bounds("0-1", sizes) == (30, 30)
    assert bounds("0-3", sizes) == (12, 30)
    assert bounds("0-7", sizes) == (0, 12)
    assert bounds("0", sizes) == (30, math.inf)

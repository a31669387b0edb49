"""`Plan.memory`: phases, shared accelerators, and invariance."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import Inventory, Plan
from rankplan.memory.need import ANSWERS
from rankplan.memory.needs import Needs
from rankplan.memory.settings import GIB
from rankplan.memory.verdicts import memory_faults
from support.outcomes import some

TRAINER = {"training": "megatron", "gradients": "fp32", "recompute": "full", "tokens": 4096, "sleep": "host"}
ENGINE = {"engine": "vllm", "share": 0.6, "length": 4096, "sleep": "host"}


def _plan(components: dict[str, Any], nodes: str | Inventory = "1x8", **section: Any) -> Plan:
    cluster = {"num_nodes": 1, "model": "Qwen/Qwen2.5-32B", "accelerator_memory": "80 GiB"} | section
    return rankplan.plan({"cluster": cluster | {"component_placement": components}}, nodes)


def _worked(**changes: Any) -> Plan:
    actor = {"placement": "0-7", "parallel": {"tp": 8}, "memory": TRAINER | {"optimizer_on_host": 1.0}}
    return _plan({"actor": actor, "rollout": {"placement": "0-7:0-1", "memory": ENGINE}}, **changes)


def _faults(plan: Plan) -> Iterator[tuple[str, Any]]:
    return memory_faults(Needs(plan.inventory, plan))


def test_the_worked_example() -> None:
    found = {(names, phase): need for names, phases in _worked().memory().items() for phase, need in phases.items()}
    train, generate = found[("actor",), "train"], found[("rollout",), "generate"]
    switch = found[("actor", "rollout"), "switch"]
    assert [round(need.lower / GIB, 1) for need in (train, generate, switch)] == [22.9, 15.5, 15.3]
    assert [need.answer for need in (train, generate, switch)] == ["likely fits", "likely fits", "fits"]
    assert all(need.likely is not None and need.lower <= need.likely <= need.upper for need in found.values())
    assert generate.likely == pytest.approx(0.6 * 80 * GIB + GIB, rel=0.001)  # its share, and the actor's context
    assert generate.tokens is not None
    assert generate.tokens[1] == 536_463
    assert round(train.host[0] / GIB) == 305  # the moments, and the weights that sleep there


def test_a_refusal_names_changes_that_work() -> None:
    plan = _plan({"actor": {"placement": "0-7", "parallel": {"tp": 2}, "memory": TRAINER}})
    ((name, fault),) = _faults(plan)
    assert (name, fault.code) == ("actor", "memory-exceeded")
    assert "at least 137.3 GiB" in fault.message
    assert fault.help is not None
    assert fault.help == (
        "use tp 4 and `optimizer_on_host: 1.0` (45.8 to 98.0 GiB, likely 47.4: likely fits), "
        "or 16 accelerators and tp 8 (45.8 to 105.3 GiB, likely 53.0: likely fits)"
    )


def test_every_sum_is_exact_and_ordered() -> None:
    for phases in some(_worked().memory().values()):
        for need in some(phases.values()):
            assert need.lower == sum(low for low, _ in need.parts.values())
            assert all(0 <= low <= high for low, high in need.parts.values())
            assert need.lower <= need.upper


def test_the_order_of_components_changes_nothing() -> None:
    components = {
        "actor": {"placement": "0-7", "parallel": {"tp": 4, "pp": 2}, "memory": TRAINER},
        "ref": {"placement": "0-3", "parallel": {"tp": 4}, "memory": {"forward": True, "tokens": 4096}},
        "rollout": {"placement": "0-7:0-1", "memory": ENGINE},
    }
    seen = []
    for order in itertools.permutations(components):
        needs = _plan({name: components[name] for name in order}).memory()
        plain = [(sorted(n.components), n.phase, n.lower, n.upper) for by in needs.values() for n in by.values()]
        seen.append(sorted(plain))
    assert all(one == seen[0] for one in seen)


def test_equal_nodes_and_a_saved_plan_agree(tmp_path: Path) -> None:
    plan = _worked()
    plan.save(tmp_path / "plan.json")
    json.loads((tmp_path / "plan.json").read_text(), parse_constant=pytest.fail)
    saved = Plan.load(tmp_path / "plan.json")
    assert saved == plan
    assert saved.memory() == plan.memory()


def test_a_larger_card_never_worsens_an_answer() -> None:
    order = ANSWERS[::-1]
    before: dict[Any, int] = {}
    for size in (8, 16, 24, 40, 80, 96, 141, 192, 400):
        for names, phases in some(_worked(accelerator_memory=f"{size} GiB").memory().items()):
            for phase, need in some(phases.items()):
                rank = order.index(need.answer)
                assert rank >= before.get((names, phase), 0)
                before[names, phase] = rank


def test_sleep_decides_what_others_leave() -> None:
    def upper(sleep: str | None) -> tuple[float, float]:
        memory = {key: value for key, value in (TRAINER | {"sleep": sleep}).items() if value is not None}
        actor = {"placement": "0-7", "parallel": {"tp": 8}, "memory": memory}
        need = _plan({"actor": actor, "rollout": {"placement": "0-7:0-1", "memory": ENGINE}}).memory()
        generate = need["rollout",]["generate"]
        return generate.parts["actor asleep"]

    none, host, open_ = upper("none"), upper("host"), upper(None)
    assert 53 * GIB < none[0] < 54 * GIB  # weights and the optimizer; gradients may be freed after a step
    assert host == open_ == (0, none[1])  # no other bound holds for a sleeper


def test_processes_on_one_accelerator_are_counted_each() -> None:
    one = _plan({"reward": {"placement": "0:0", "memory": {"resident": "17 GiB"}}}).memory()
    four = _plan({"reward": {"placement": "0:0-3", "memory": {"resident": "17 GiB"}}}).memory()
    assert four["reward",]["resident"].lower == 4 * one["reward",]["resident"].lower == 68 * GIB


def test_a_switch_has_what_both_processes_hold_besides_their_tensors() -> None:
    memory = _worked().memory()
    train, switch = memory["actor",]["train"], memory["actor", "rollout"]["switch"]
    for name, each in (("context", 1), ("communication", 4), ("workspaces", 1.5)):
        assert train.parts[name] == (0, each * GIB)
        assert switch.parts[name] == (0, 2 * each * GIB), name


def test_a_component_of_one_slot_has_no_group_in_a_switch_either() -> None:
    actor = {"placement": "0", "memory": {**TRAINER, "undivided": True}}
    one = _plan({"actor": actor, "rollout": {"placement": "0", "memory": {**ENGINE, "undivided": True}}}, "1x1")
    assert one.memory()["actor", "rollout"]["switch"].parts["communication"] == (0, 2 * GIB)


def test_components_apart_have_no_switch() -> None:
    actor = {"placement": "0-3", "parallel": {"tp": 4}, "memory": TRAINER}
    needs = _plan({"actor": actor, "rollout": {"placement": "4-7:0", "memory": ENGINE}}).memory()
    assert set(needs) == {("actor",), ("rollout",)}
    assert needs["rollout",]["generate"].parts.keys() == {"weights", "cache", "graphs"}


def test_nothing_is_guessed() -> None:
    """What is not stated leaves both readings open: sizes, the card, other components, the length."""
    apart = _plan({"rollout": {"placement": "0-7", "memory": {"engine": "vllm"}}}).memory()
    need = apart["rollout",]["generate"]
    assert need.lower * 8 <= 2 * 32_763_876_352 + 8
    assert need.answer == "likely fits"
    assert need.plain()["assumed"] == {"rollout.share": 0.9, "rollout.length": 4096}
    unknown = _worked(accelerator_memory=None).memory()
    assert {need.answer for phases in unknown.values() for need in phases.values()} == {"unknown"}
    shared = _plan(
        {
            "actor": {"placement": "0-7", "parallel": {"tp": 8}, "memory": TRAINER | {"optimizer_on_host": 1.0}},
            "env": {"placement": "0-7"},
        }
    ).memory()["actor",]["train"]
    assert math.isinf(shared.upper)
    assert "env.memory" in shared.decides


def test_an_engine_likely_starts_with_fewer_requests() -> None:
    """vLLM sorts the logits of all requests before it starts: gpt-oss-120b on an H100 (vllm-project/vllm#27508)."""
    memory = {"engine": "vllm", "model": "openai/gpt-oss-120b", "share": 0.95, "length": 131_072, "tokens": 1024}
    component = {"placement": "0", "memory": memory | {"sequences": 1024}}
    assert _plan({"rollout": component}).memory()["rollout",]["generate"].answer == "likely exceeds"
    cluster = {"num_nodes": 1, "accelerator_memory": "80 GiB", "component_placement": {"rollout": component}}
    report = rankplan.check({"cluster": cluster}, "1x1", memory=True)
    (warning,) = [one for one in report.warnings if one.code == "memory-likely"]
    assert warning.help == "set share to 0.98 or more, or set sequences to 256 or less"
    component["memory"] = memory | {"sequences": 256}
    assert _plan({"rollout": component}).memory()["rollout",]["generate"].answer == "likely fits"


def test_an_engine_that_cannot_start_is_refused() -> None:
    memory = ENGINE | {"share": 0.2, "length": 40960}
    plan = _plan({"rollout": {"placement": "0-7:0-1", "memory": memory}})
    ((_, fault),) = _faults(plan)
    assert fault.code == "engine-share"
    assert fault.help == "set share to 0.23 or more, or set length to 12175 or less"
    for better in ({"share": 0.23}, {"length": 12175}):
        fixed = _plan({"rollout": {"placement": "0-7:0-1", "memory": memory | better}})
        assert not list(_faults(fixed))
    worse = _plan({"rollout": {"placement": "0-7:0-1", "memory": memory | {"length": 12176}}})
    assert list(_faults(worse))


def test_the_memory_of_a_node() -> None:
    ((name, fault),) = _faults(_worked(host_memory="427 GiB"))
    assert (name, fault.code) == ("actor", "host-memory")
    assert not list(_faults(_worked(host_memory="428 GiB")))


def test_the_memory_of_a_node_counts_all_its_accelerators() -> None:
    trainer = {"parallel": {"tp": 4}, "memory": TRAINER | {"optimizer_on_host": 1.0}}
    apart = {"actor": {"placement": "0-3", **trainer}, "critic": {"placement": "4-7", **trainer}}
    lower = [need.host[0] for phases in _plan(apart).memory().values() for need in phases.values()]
    total = sum(lower)
    assert len(lower) == 2 and total == 2 * lower[0]
    (fault,) = (fault for _, fault in _faults(_plan(apart, host_memory=int(total) - 1)))
    assert fault.code == "host-memory"
    assert not list(_faults(_plan(apart, host_memory=int(total) + 1)))


def test_the_memory_of_a_node_is_that_of_its_own() -> None:
    trainer = {"parallel": {"tp": 8}, "memory": TRAINER | {"optimizer_on_host": 1.0}}
    nodes = [{"ranks": rank, "accelerators": 8, "memory": {0: size << 10}} for rank, size in enumerate((2000, 100))]
    plan = _plan({"actor": {"placement": "0-15", **trainer}}, Inventory.from_dict({"nodes": nodes}), num_nodes=2)
    ((_, fault),) = _faults(plan)
    assert fault.message.startswith("node 1 has 100.0 GiB")


def test_the_inventory_wins_over_the_config() -> None:
    node = {"accelerators": [{"id": str(i), "memory": 24 * 1024} for i in range(8)]}
    inventory = Inventory.from_dict({"nodes": [{"ranks": "0", **node}]})
    need = _worked(nodes=inventory).memory()["actor",]["train"]
    assert need.card == (24 * GIB, 24 * GIB)


def test_a_plan_without_memory_has_none() -> None:
    plan = _plan({"actor": {"placement": "0-7"}}, model=None)
    assert plan.memory() == {}
    assert not list(_faults(plan))


def test_many_stages_and_slots() -> None:
    actor = {"placement": "all", "parallel": {"tp": 8, "pp": 32}, "memory": TRAINER}
    need = _plan({"actor": actor}, "4096x8", num_nodes=4096).memory()["actor",]["train"]
    assert need.answer == "fits"


@pytest.mark.parametrize(
    ("length", "code", "how"),
    [
        (25_000, "memory-unknown", "may not start"),
        (29_000, "memory-likely", "likely does not start"),  # vllm-project/vllm#10517 did not
    ],
)
def test_an_engine_that_may_not_start_says_so(length: int, code: str, how: str) -> None:
    memory = {"model": "meta-llama/Meta-Llama-3.1-8B", "engine": "vllm", "share": 0.9, "length": length}
    memory |= {"graphs": False, "undivided": True}
    placement = {"rollout": {"placement": "0-7", "memory": memory}}
    cluster = {"num_nodes": 1, "accelerator_memory": "24145 MiB", "component_placement": placement}
    report = rankplan.check({"cluster": cluster}, "1x8", memory=True)
    (warning,) = [one for one in report.warnings if one.code == code]
    assert f"the engine of `rollout` {how} on accelerator 0 of node 0" in warning.message
    assert f"one request of {length:,} needs" in warning.message


def test_components_of_one_process_count_it_once() -> None:
    fsdp = {"training": "fsdp", "recompute": "full", "tokens": 4096, "sleep": "host", "empties_cache": True}
    uppers = []
    for shares in (False, True):
        memory = fsdp | {"shares_process": shares}
        names = {name: {"placement": "0-7", "memory": memory} for name in ("actor", "critic")}
        parts = _plan(names).memory()["actor",]["train"].parts
        uppers.append((parts["critic asleep"][1], parts["communication"][1]))
    (alone, communication), (together, same) = uppers
    assert alone - together == 5 * GIB  # the context, and the buffers of collectives
    assert communication == same == 4 * GIB

"""The memory of a plan does not depend on the order of nodes and components, and its phases are sums of their parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, Plan
from rankplan.memory.need import ANSWERS, Need

COMPONENTS = {
    "actor": {"training": "megatron", "gradients": "fp32", "recompute": "full", "tokens": 4096},
    "critic": {"training": "fsdp", "tokens": 2048, "optimizer_on_host": 0.5},
    "ref": {"forward": True, "tokens": 4096, "sleep": "host"},
    "rollout": {"engine": "vllm", "share": 0.6, "length": 4096},
    "reward": {"resident": "9 GiB", "sleep": "none"},
}
SIZES = [{}, {"tp": 2}, {"tp": 4}, {"tp": 2, "pp": 2}]
KINDS = [(24, 256), (80, 1024), (80, 2048), (141, 2048)]
"""GiB of an accelerator, and of the node."""


def _inventory(kinds: list[tuple[int, int]]) -> Inventory:
    nodes = [
        {"ranks": rank, "accelerators": [{"memory": card << 10}] * 4, "memory": {0: host << 10}}
        for rank, (card, host) in enumerate(kinds)
    ]
    return Inventory.from_dict({"nodes": nodes})


def _plan(names: list[str], sizes: dict[str, dict[str, int]], kinds: list[tuple[int, int]]) -> Plan:
    components = {name: {"placement": "all", "parallel": sizes[name], "memory": COMPONENTS[name]} for name in names}
    section = {"num_nodes": len(kinds), "model": "Qwen/Qwen2.5-7B", "component_placement": components}
    return rankplan.plan({"cluster": section}, _inventory(kinds))


def _needs(plan: Plan) -> dict[Any, tuple[Any, ...]]:
    found = {(frozenset(names), phase): one for names, by in plan.memory().items() for phase, one in by.items()}
    return {key: (one.lower, one.upper, one.answer, one.card, one.host) for key, one in found.items()}


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[str], dict[str, dict[str, int]], list[tuple[int, int]]]:
    names = draw(st.lists(st.sampled_from(sorted(COMPONENTS)), min_size=1, max_size=4, unique=True))
    sizes = {name: draw(st.sampled_from(SIZES)) for name in names}
    return names, sizes, draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_components_changes_nothing(case: Any, random: Any) -> None:
    names, sizes, kinds = case
    shuffled = random.sample(names, len(names)), sizes, random.sample(kinds, len(kinds))
    assert _needs(_plan(*case)) == _needs(_plan(*shuffled))


@given(cases())
def test_a_phase_is_the_sum_of_its_parts_and_a_saved_plan_agrees(case: Any) -> None:
    plan = _plan(*case)
    needs: list[Need] = [one for by in plan.memory().values() for one in by.values()]
    for need in needs:
        assert need.lower == sum(low for low, _ in need.parts.values())
        assert need.upper == sum(high for _, high in need.parts.values())
        assert all(0 <= low <= high for low, high in need.parts.values())
        assert 0 <= need.host[0] <= need.host[1]
    saved = Plan.from_dict(plan.to_dict())
    assert [one for by in saved.memory().values() for one in by.values()] == needs


@pytest.mark.parametrize("size", [8, 24, 80])
def test_more_memory_of_every_accelerator_never_worsens_an_answer(size: int) -> None:
    order = ANSWERS[::-1]
    names = [name for name in COMPONENTS if name != "reward"]
    sizes = {name: {"tp": 4} for name in names}
    small, large = (_needs(_plan(names, sizes, [(card, 2048)] * 2)) for card in (size, 2 * size))
    assert all(order.index(small[key][2]) <= order.index(large[key][2]) for key in small)


def test_a_file_of_a_plan_keeps_sizes_by_number(tmp_path: Path) -> None:
    entry = {"placement": "0-3", "memory": {"resident": {2: "30 GiB", 4: "17 GiB"}}}
    plan = rankplan.plan({"cluster": {"num_nodes": 1, "component_placement": {"reward": entry}}}, "1x4")
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").memory() == plan.memory()

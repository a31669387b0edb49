"""The memory of accelerators on a map: bars and tooltips in every format, and nothing without a model."""

from __future__ import annotations

import re
from typing import Any

import rankplan
from rankplan import Plan
from rankplan.render.map.model import map_of
from rankplan.render.map.page import page
from rankplan.render.map.svg import svg
from rankplan.render.map.terminal import lines

TRAINER = {"training": "megatron", "gradients": "fp32", "recompute": "full", "tokens": 4096, "sleep": "host"}
ENGINE = {"engine": "vllm", "share": 0.6, "length": 4096, "sleep": "host"}


def _plan(nodes: str = "1x8", *, reward: str = "35 GiB", memory: bool = True) -> Plan:
    components: dict[str, dict[str, Any]] = {
        "actor": {"placement": "all", "parallel": {"tp": 8}, "memory": TRAINER | {"optimizer_on_host": 1.0}},
        "rollout": {"placement": "all", "parallel": {"tp": 4}, "memory": ENGINE},
        "reward": {"placement": "0-1", "memory": {"resident": reward, "sleep": "none"}},
    }
    if not memory:
        components = {name: {"placement": entry["placement"]} for name, entry in components.items()}
    section = {"num_nodes": int(nodes.split("x")[0]), "model": "Qwen/Qwen2.5-32B", "accelerator_memory": "80 GiB"}
    return rankplan.plan({"cluster": section | {"component_placement": components}}, nodes)


def _text(plan: Plan) -> list[str]:
    return [line.plain for line in lines(map_of(plan), 100)]


def test_a_line_for_each_phase_on_a_terminal() -> None:
    text = _text(_plan())
    rows = {line.split()[0]: line.split()[1:] for line in text if "=" in line}
    assert [name for name in rows if name in ("train", "generate", "switch", "resident")] == list(rows)[:4]
    assert rows["train"][7] == "##===="
    assert rows["train"][0] == "####=="  # with 35 GiB of the reward
    assert len(rows["resident"]) == 2
    assert text[-1].strip() == "memory of a phase: # at least, = at most, . free, ! refused"


def test_what_is_refused_is_visible_without_colors() -> None:
    rows = {line.split()[0]: line.split()[1:] for line in _text(_plan(reward="70 GiB")) if "#" in line}
    assert rows["train"] == ["#####!"] * 2 + ["##===="] * 6


def test_bars_and_tooltips_in_a_page_and_a_picture() -> None:
    plan = _plan(reward="70 GiB")
    for text in (page(plan, "x"), svg(plan, "x")):
        assert "at least (strong), at most (pale), or refused (red): train, " in text
        assert text.count('class="memory"') == 8
        assert text.count('class="refused"') >= 2 * 3
        tips = re.findall(r"actor, train: [0-9., a-zGiB]+: [a-z ]+", text)
        assert "actor, train: 22.9 to 114.5 GiB, likely 23.7 of 80.0 GiB: likely fits" in tips
        assert any(one.endswith("of 80.0 GiB: refused") for one in tips)
    assert re.findall(r"--least:([0-9.]+)%;--most:([0-9.]+)%", page(_plan(), "x"))[-3] == ("28.6", "100.0")
    lower, upper = re.findall(r'width="([0-9.]+)" height="5" rx="3" class="(?:most|least)"', svg(_plan()))[:2][::-1]
    assert float(lower) < float(upper)


def test_a_plan_without_memory_is_drawn_as_before() -> None:
    plan = _plan(memory=False)
    assert not map_of(plan).gauges
    assert not any("memory" in line for line in _text(plan))
    assert 'class="memory"' not in page(plan, "x") + svg(plan)


def test_many_nodes_are_folded_with_their_phases() -> None:
    picture = map_of(_plan("64x8"))
    assert len(picture.nodes) == 2
    assert all(len(node.strips[0].gauges) == 8 for node in picture.nodes)
    assert len(picture.gauges) == 4


def test_nothing_is_drawn_for_an_unknown_accelerator() -> None:
    actor = {"placement": "0-7", "memory": {"training": "fsdp", "params": 7e9}}
    plan = rankplan.plan({"cluster": {"num_nodes": 1, "component_placement": {"actor": actor}}}, "1x8")
    assert not map_of(plan).gauges

"""The network on a map: every node is in one row, every format says the same, and any cluster fits on a screen."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, Plan
from rankplan.render.map.domains import EXCLUDED, SPARE, TAKEN, USED, Chart, around, chart_of
from rankplan.render.map.model import map_of
from rankplan.render.map.page import page
from rankplan.render.map.svg import svg
from rankplan.render.map.terminal import lines
from rankplan.render.map.text import names_text
from support.maps import Page, plan_of, rankplan
from support.outcomes import at_least, outcome

STATES = (USED, SPARE, TAKEN, EXCLUDED)


def nodes(count: int, sizes: dict[str, int], states: dict[int, str] | None = None) -> Inventory:
    """Return nodes with labels; ``sizes`` are the nodes of a domain, by level."""
    entries: list[dict[str, Any]] = []
    for node in range(count):
        labels = {level: f"{level[0]}{node // size}" for level, size in sizes.items()}
        entry: dict[str, Any] = {"ranks": node, "accelerators": 8, "hostname": f"gpu-{node}", "labels": labels}
        state = (states or {}).get(node)
        entry |= {"taken": "other"} if state == TAKEN else {"healthy": False} if state == EXCLUDED else {}
        entries.append(entry)
    return Inventory.from_dict({"nodes": entries, **({"levels": list(sizes)} if sizes else {})})


def drawn(plan: Plan, inventory: Inventory | None = None) -> dict[str, str]:
    """Return the map in every format."""
    return {
        "terminal": "\n".join(line.plain for line in lines(map_of(plan, around=inventory), 80)),
        "svg": svg(plan, "map", around=inventory),
        "html": page(plan, "map", around=inventory),
    }


def counted(chart: Chart) -> list[Counter[str]]:
    """Return the nodes of each state that the rows of each level stand for."""
    found: list[Counter[str]] = []
    times: list[int] = []
    for row in chart.rows:
        times[row.depth :] = [row.count * (times[row.depth - 1] if row.depth else 1)]
        found += [Counter()] * (row.depth + 1 - len(found))
        here = Counter({share.state: share.count for share in row.shares})
        found[row.depth] = found[row.depth] + Counter({state: count * times[-1] for state, count in here.items()})
    return found


@at_least(drawn=0.15)
@given(st.lists(st.sampled_from(STATES), min_size=1, max_size=24), st.integers(1, 3), st.data())
def test_every_node_is_in_one_row_of_each_level(states: list[str], depth: int, data: st.DataObject) -> None:
    names = ["spine", "block", "leaf"][:depth]
    labels = [data.draw(st.lists(st.sampled_from("abc"), min_size=depth, max_size=depth)) for _ in states]
    missing = data.draw(st.lists(st.booleans(), min_size=len(states), max_size=len(states)))
    entries = [
        {"ranks": node, "accelerators": 1, "labels": dict(zip(names[: depth - lacks], labels[node], strict=False))}
        | ({"taken": "other"} if state == TAKEN else {"healthy": False} if state == EXCLUDED else {})
        for node, (state, lacks) in enumerate(zip(states, missing, strict=True))
    ]
    used = [node for node, state in enumerate(states) if state == USED]
    if not used or (depth == 1 and all(missing)):
        return
    outcome("drawn")
    whole = Inventory.from_dict({"levels": names[:1] if all(missing) else names, "nodes": entries})
    plan = plan_of({"actor": ",".join(map(str, used))}, whole)
    chart = chart_of(plan)
    assert chart.rows and not chart.more
    assert counted(chart) == [Counter(states)] * len(whole.levels)
    for row in chart.rows:
        assert sum(share.count for share in row.shares) == row.size
        assert len(row.name) > 0 and row.innermost == (row.depth == len(whole.levels) - 1)


def test_every_format_shows_domains_rules_crossings_and_neighbours() -> None:
    whole = nodes(24, {"block": 12, "nvlink": 4}, {19: EXCLUDED, 22: TAKEN, 23: TAKEN})
    topology = {
        "keep": {"actor": {"tp": "node"}},
        "segment": {"rollout": 2},
        "prefer": {"actor": {"world": "block"}},
        "cap": {"nvlink": 4},
        "balance": {"actor": "nvlink"},
    }
    placement = {
        "actor": {"placement": "0-143", "parallel": {"tp": 8, "ep": 16}},
        "rollout": {"placement": "0-15", "parallel": {"tp": 8}},
    }
    plan = plan_of(placement, whole.first(18), topology=topology)
    for name, text in drawn(plan, whole).items():
        flat = " ".join(text.split())
        for wanted in (
            "network: 2 block domains, 6 nvlink domains, 24 nodes",
            "block b0",
            "nvlink n0",
            "4 nodes: actor 2, actor + rollout 2; cap 4",
            "4 nodes: actor; cap 4; 1 more the same: n2",
            "spare 1, excluded 1",
            "of other 2",
            "kept: actor: each tensor group in one node",
            "kept: rollout: segments of 2 nodes, each in one nvlink",
            "preferred, but actor: its 18 nodes span two block domains",
            "balanced: shares of 4 x 4, 2 nodes in 5 nvlink domains",
            "beside: other on nodes 22-23",
        ):
            assert wanted in flat or wanted.replace(" ", "") in flat.replace(" ", ""), (name, wanted)
    kept = plan_of(placement, whole.first(18))
    assert "crossed by expert groups of actor" not in drawn(kept)["html"]
    apart = plan_of({"actor": {"placement": "8-151", "parallel": {"tp": 8, "ep": 16}}}, whole.first(19))
    for text in drawn(apart, whole).values():
        assert "crossed by expert groups of actor" in " ".join(text.split())


def test_a_page_has_frames_and_the_groups_that_cross_them() -> None:
    plan = plan_of({"actor": {"placement": "0-31", "parallel": {"tp": 8, "ep": 32}}}, nodes(4, {"nvlink": 2}))
    opened = Page(page(plan, "map"))
    assert len(opened.of_class("frame")) == 2 and len(opened.of_class("crossing")) == 4
    assert page(plan, "map").count("expert group 0 on nodes 0-3 crosses nvlink domains") == 4


@pytest.mark.parametrize("sizes", [{"leaf": 32}, {"block": 512, "leaf": 32}, {"spine": 2048, "block": 512, "leaf": 32}])
def test_ten_thousand_nodes_in_any_number_of_levels_fit_on_a_screen(sizes: dict[str, int]) -> None:
    whole = nodes(10_016, sizes, dict.fromkeys(range(9_000, 9_100), TAKEN) | {9_990: EXCLUDED})
    plan = plan_of({"actor": "0-65535", "rollout": "65536-71999"}, whole.first(9_000))
    texts = drawn(plan, whole)
    assert "313 leaf domains, 10,016 nodes" in texts["html"]
    assert len(texts["terminal"].splitlines()) < 70
    assert "  nodes, to scale: # in use, . spare, + of another job, x excluded" in texts["terminal"]
    assert len(texts["svg"]) < 60_000 and len(texts["html"]) < 40_000
    assert counted(chart_of(plan, whole))[-1] == Counter({USED: 9_000, SPARE: 915, TAKEN: 100, EXCLUDED: 1})


def test_very_many_different_domains_are_cut() -> None:
    whole = nodes(4_950, {"leaf": 1})
    sizes = [node for leaf in range(99) for node in [leaf] * (leaf + 1)]
    entries = [{"ranks": node, "accelerators": 1, "labels": {"leaf": f"l{leaf}"}} for node, leaf in enumerate(sizes)]
    plan = plan_of({"actor": "all"}, Inventory.from_dict({"nodes": entries, "levels": ["leaf"]}))
    assert chart_of(plan).more == "and 35 more rows of other domains"
    assert len(chart_of(plan_of({"actor": "all"}, whole)).rows) == 1


def test_levels_that_only_the_config_states() -> None:
    entries = nodes(6, {"leaf": 2}).to_dict()["nodes"]
    whole = Inventory.from_dict({"nodes": entries})
    plan = plan_of({"actor": "0-31"}, whole.first(4), topology={"levels": ["leaf"]})
    assert [row.text() for row in chart_of(plan, whole).rows] == [
        "2 nodes: actor; 1 more the same: l1",
        "2 nodes: spare",
    ]


def test_neighbours_without_a_network() -> None:
    plan = plan_of({"actor": "0-7"}, nodes(2, {}))
    assert not chart_of(plan).rows and "network" not in drawn(plan)["terminal"]
    shown = around(plan.inventory, [plan_of({"sft": "8-15"}, nodes(2, {}))])
    (row,) = chart_of(plan, shown).rows
    assert row.text() == "2 nodes: actor 1, of sft 1"
    both = around(plan.inventory, [plan])
    assert chart_of(plan, both).notes == ("beside: actor on node 0", "in use by two jobs: node 0")


def test_show_beside_other_jobs(tmp_path: Path) -> None:
    nodes(6, {"nvlink": 2}).save(tmp_path / "nodes.yaml")
    (tmp_path / "a.yaml").write_text("cluster: {num_nodes: 2, component_placement: {actor: all}}\n")
    (tmp_path / "b.yaml").write_text("cluster: {num_nodes: 6, component_placement: {sft: 32-47}}\n")
    rankplan(tmp_path, "plan", "b.yaml", "--inventory", "nodes.yaml", "--save", "b.json")
    rankplan(tmp_path, "plan", "a.yaml", "--inventory", "nodes.yaml", "--save", "a.json")
    done = rankplan(tmp_path, "show", "a.yaml", "--inventory", "nodes.yaml", "--beside", "b.json")
    network = done.stdout.splitlines()[3:9]
    assert network == [
        "network: 3 nvlink domains, 6 nodes",
        "  nvlink n0  ##  2 nodes: actor",
        "  nvlink n1  ..  2 nodes: spare",
        "  nvlink n2  ++  2 nodes: of sft",
        "  each node: # in use, . spare, + of another job",
        "beside: sft on nodes 4-5",
    ]
    saved = rankplan(tmp_path, "show", "a.json", "--beside", "b.json")
    assert saved.stdout.splitlines()[3:9] == network
    for name in ("map.svg", "map.html"):
        rankplan(tmp_path, "show", "a.yaml", "--inventory", "nodes.yaml", "--beside", "b.json", "-o", name)
        assert "beside: sft on nodes 4-5" in (tmp_path / name).read_text()


def test_names_of_domains_are_escaped() -> None:
    hostile = "<script>alert('x')</script>"
    entries = [{"ranks": "0-1", "accelerators": 1, "labels": {"leaf": hostile}, "taken": None}]
    entries.append({"ranks": 2, "accelerators": 1, "labels": {"leaf": "b"}, "taken": hostile})
    whole = Inventory.from_dict({"nodes": [{k: v for k, v in one.items() if v} for one in entries], "levels": ["leaf"]})
    for text in (svg(plan_of({"actor": "0-1"}, whole)), page(plan_of({"actor": "0-1"}, whole), "map")):
        assert hostile not in text and "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["l1", "l2", "l3"], "l1-l3"),
        (["l09", "l10", "l12"], "l09-l10, l12"),
        (["l9", "m10", "b", "c", "d", "e"], "l9, m10, b, c and 2 more"),
    ],
)
def test_names_that_count_on_are_a_range(names: list[str], text: str) -> None:
    assert names_text(names) == text

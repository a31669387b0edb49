"""The rules of the network: worked examples, laws, other jobs and fixed repairs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import ComponentPlacement, Inventory, Plan, arrange, replan
from rankplan._core import Chunks, RankSet
from rankplan.arranging.replanned import ranks_at
from rankplan.cli import main
from rankplan.errors import PlacementError
from rankplan.plans.component import Component
from rankplan.plans.rules import GROUP_KINDS, NO_RULES, Rules
from rankplan.render.changes import replan_lines
from rankplan.rlinf import with_section
from support.outcomes import at_least, outcome
from support.rules import rules_in

LEVELS = ("block", "nvlink")
PAGE = [("b0", "a")] * 4 + [("b0", "b")] * 3 + [("b1", "c")] * 4 + [("b1", "d")] * 2


def cluster(labels: list[tuple[str, str]], names: list[str] | None = None) -> Inventory:
    entries = [
        {
            "ranks": rank,
            "accelerators": 4,
            "hostname": names[rank] if names else f"n{rank}",
            "labels": dict(zip(LEVELS, pair, strict=True)),
        }
        for rank, pair in enumerate(labels)
    ]
    return Inventory.from_dict({"levels": list(LEVELS), "nodes": entries})


def plan(count: int, nodes: Inventory | None = None, name: str = "actor", rules: Rules = NO_RULES) -> Plan:
    nodes = nodes or Inventory.uniform(count, 4)
    return Plan(nodes, [Component.place(name, nodes, ("cluster",), Chunks(list(range(4 * count)), 1))], rules=rules)


def hosts(found: Inventory, count: int) -> list[int]:
    return [int((found.node(rank).hostname or "n-1")[1:]) for rank in range(count)]


@pytest.mark.parametrize(
    ("count", "rules", "nodes"),
    [
        (8, {"segment": {"actor": {"block": 4, "nvlink": 2}}}, [0, 1, 2, 3, 7, 8, 9, 10]),
        (6, {"keep": {"actor": {"world": "block"}}}, [7, 8, 9, 10, 11, 12]),
        (8, {"prefer": {"actor": {"world": "block"}}}, [0, 1, 2, 3, 7, 8, 9, 10]),
        (6, {"balance": {"actor": "nvlink"}}, [0, 1, 2, 4, 5, 6]),
        (9, {"balance": "nvlink"}, [0, 1, 2, 4, 5, 6, 7, 8, 9]),
        (11, {"cap": {"nvlink": 3}}, [0, 1, 2, 4, 5, 6, 7, 8, 9, 11, 12]),
        (6, {"keep": {"actor": {"world": {"nvlink": 2}}}}, [0, 1, 2, 4, 5, 6]),
    ],
)
def test_worked_examples(count: int, rules: dict[str, Any], nodes: list[int]) -> None:
    found = arrange(plan(count), cluster(PAGE), **rules)
    assert (hosts(found.inventory, count), found.optimal) == (nodes, True)


@pytest.mark.parametrize(
    ("count", "rules", "code", "message"),
    [
        (
            12,
            {"segment": {"actor": {"block": 4, "nvlink": 2}}},
            "segment-incomplete",
            "the plan needs 3 segments of 4 nodes in a block; the block domains hold 2",
        ),
        (
            8,
            {"keep": {"actor": {"world": "block"}}},
            "domain-too-small",
            "actor needs 8 nodes in one block domain; the largest has 7",
        ),
        (
            8,
            {"segment": {"actor": 4}, "cap": {"nvlink": 3}},
            "domain-too-small",
            "a segment of actor needs 4 nodes in one nvlink domain; `cap` allows 3",
        ),
        (
            12,
            {"cap": {"nvlink": 3}},
            "too-few-nodes",
            "the plan needs 12 nodes with 4 NV_GPU; 11 can be used (`cap: {nvlink: 3}` leaves out 2)",
        ),
        (8, {"balance": {"actr": "nvlink"}}, "unknown-component", "unknown component `actr` in balance"),
        (8, {"prefer": {"actor": {"world": "rak"}}}, "unknown-level", "unknown level `rak`"),
        (8, {"cap": {"nvlnk": 3}}, "unknown-level", "unknown level `nvlnk`"),
    ],
)
def test_refusals(count: int, rules: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        arrange(plan(count), cluster(PAGE), **rules)
    assert (refused.value.code, refused.value.message) == (code, message)


def test_every_wrong_name_is_reported_at_once() -> None:
    rules: dict[str, Any] = {"segment": {"actor": {"rak": 2}}, "cap": {"blok": 1}, "keep": {"critic": {"dp": "x"}}}
    with pytest.raises(PlacementError) as refused:
        arrange(plan(8), cluster(PAGE), **rules)
    assert sorted(one.code for one in refused.value.diagnostics) == [
        "unknown-component",
        "unknown-level",
        "unknown-level",
    ]


@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.sampled_from([1, 2]))
def test_a_rule_about_groups_that_a_component_lacks_warns(tp: int, ep: int, pp: int) -> None:
    nodes = with_section(cluster([("x", "a")] * 4), {"num_nodes": 4, "component_placement": {}}).without_groups()
    section = {"placement": "0-15", "parallel": {"tp": tp, "ep": ep, "pp": pp}}
    stated: dict[str, Any] = {"num_nodes": 4, "component_placement": {"actor": section}}
    found = ComponentPlacement({"cluster": stated}, nodes).plan()
    level = nodes.levels[-1]
    for rule in ("keep", "prefer"):
        rules = Rules(**{rule: {"actor": dict.fromkeys(GROUP_KINDS, level) | {"world": level}}})
        warnings = found.placed(found.inventory, found.values(), rules).rule_warnings()
        silent = [kind for kind in GROUP_KINDS if found["actor"].layout.size(kind) == 1]
        assert all(f"(`{kind}`)" in warning.message for kind, warning in zip(silent, warnings, strict=True))
        assert all(warning.warning and f"`{rule}` says nothing" in warning.message for warning in warnings)


def test_shares_are_even() -> None:
    entries = [
        {"ranks": f"{18 * at}-{18 * at + 17}", "accelerators": 4, "labels": {"nvlink": f"r{at}"}} for at in range(8)
    ]
    racks = Inventory.from_dict({"levels": ["nvlink"], "nodes": entries})
    for count, shares in ((128, [16] * 8), (20, [10, 10]), (40, [14, 13, 13])):
        found = arrange(plan(count), racks, balance="nvlink")
        counts = Counter(found.inventory.node(rank).labels["nvlink"] for rank in range(count))
        assert sorted(counts.values(), reverse=True) == shares and found.optimal


_LABELS = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("abc")), min_size=3, max_size=12)


@at_least(kept=0.2, beside=0.2)
@settings(max_examples=60)
@given(st.data())
def test_laws(data: st.DataObject) -> None:
    labels = data.draw(_LABELS)
    nodes, count = cluster(labels), data.draw(st.integers(1, len(labels)))
    level, wanted = data.draw(st.sampled_from(LEVELS)), plan(count)
    usual = hosts(arrange(wanted, nodes).inventory, count)
    # A cap as large as the domains says nothing; nor does a level for a single node.
    assert hosts(arrange(wanted, nodes, cap={level: len(labels)}).inventory, count) == usual
    # Where all of it can be kept within a domain, it is also if that is only preferred.
    try:
        kept = arrange(wanted, nodes, keep={"actor": {"world": level}})
    except PlacementError as refused:
        assert "ended early" not in refused.message
    else:
        outcome("kept")
        preferred = arrange(wanted, nodes, prefer={"actor": {"world": level}})
        depth = LEVELS.index(level) + 1
        assert len({labels[host][:depth] for host in hosts(kept.inventory, count)}) == 1
        assert len({labels[host][:depth] for host in hosts(preferred.inventory, count)}) == 1
    # Beside another job is as without its nodes.
    taken = sorted(data.draw(st.sets(st.sampled_from(range(len(labels))), max_size=len(labels) - 1)))
    left = [index for index in range(len(labels)) if index not in taken]
    if count <= len(left):
        outcome("beside")
        other = [plan(len(taken), nodes.reordered(taken), "other")] if taken else []
        found = arrange(wanted, nodes, beside=other).inventory
        without = arrange(wanted, cluster([labels[index] for index in left], [f"n{index}" for index in left]))
        assert hosts(found, count) == hosts(without.inventory, count)
        assert {host for host in range(len(labels)) if found.node(hosts(found, len(labels)).index(host)).taken} == {
            *taken
        }
        assert hosts(replan(plan(count, found.first(count)), nodes, beside=other).plan.inventory, count) == hosts(
            found, count
        )


def test_caps_count_the_nodes_of_other_jobs() -> None:
    nodes = cluster(PAGE)
    other = plan(2, nodes.first(2), "other")
    assert hosts(arrange(plan(4), nodes, beside=other).inventory, 4) == [7, 8, 9, 10]
    assert hosts(arrange(plan(4), nodes, beside=other, cap={"nvlink": 2}).inventory, 4) == [7, 8, 11, 12]


def test_a_plan_makes_no_room_for_itself() -> None:
    """A glob such as ``--beside plans/*.json`` has the plan, too: all its ranks would move."""
    nodes = cluster(PAGE)
    own, other = plan(2, nodes.first(2)), plan(2, nodes.first(2), "other")
    for beside in (own, [other, own]):
        with pytest.raises(PlacementError) as caught:
            replan(own, nodes, beside=beside)
        assert caught.value.message == "`beside` has the plan itself"
        assert caught.value.diagnostics[0].help == "leave it out: `beside` takes the plans of other jobs"
    found = arrange(own, nodes, beside=own).inventory  # two jobs may have the same config
    assert not {*hosts(found, 2)} & {*hosts(own.inventory, 2)}


def used(rules: dict[str, Any], count: int = 6) -> Plan:
    section = {"num_nodes": count, "component_placement": {}, "topology": rules}
    return plan(count, with_section(cluster(PAGE).first(count), section), rules=rules_in(section))


def test_a_fixed_repair_moves_no_survivor() -> None:
    nodes = cluster(PAGE)
    moved = replan(used({"segment": 2}), nodes, without=["n1", "n4"])
    assert hosts(moved.plan.inventory, 6) == [11, 12, 2, 3, 6, 5] and moved.arrangement.moved == 12
    with pytest.raises(PlacementError) as refused:
        replan(used({"segment": 2}), nodes, without=["n1", "n4"], fixed=True)
    assert (refused.value.code, refused.value.message) == (
        "no-spare",
        "node rank 1 needs a spare in nvlink domain a, where segment 0 is; none is left",
    )
    assert refused.value.help == "without `--fixed`, 1 more node would move"
    assert hosts(replan(used({"segment": 2}), nodes, without=["n4"], fixed=True).plan.inventory, 6) == [
        0,
        1,
        2,
        3,
        6,
        5,
    ]


def test_reasons_look_at_the_processes_of_named_sets_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The looks do not rise with the number of segments that move; every one of them goes through all processes."""
    looks = []

    def counted_look(component: Component, nodes: set[int]) -> RankSet:
        looks.append(nodes)
        return ranks_at(component, nodes)

    monkeypatch.setattr("rankplan.arranging.reasons.ranks_at", counted_look)
    nodes = cluster([("x", f"d{node // 2:02}") for node in range(80)])
    part = Component.place("actor", nodes.first(40), ("cluster",), Chunks(list(range(160)), 1))
    plan = Plan(nodes.first(40), [part], rules=Rules(segment=2))
    repaired = replan(plan, nodes, without=[f"n{node}" for node in range(0, 40, 2)])
    assert repaired.reasons[0] == "80 ranks on 20 healthy nodes move:"
    assert repaired.reasons[8] == "segment 7 (ranks 56-63) has no spare in d07; it moves as a whole to d27"
    assert repaired.reasons[9:] == ("and 12 more sets of nodes that must stay together",)
    assert len(looks) == 9


def test_the_report_says_why_survivors_move() -> None:
    nodes = cluster(PAGE)
    lines = list(replan_lines(replan(used({"segment": 2}), nodes, without=["n1", "n4"])))
    assert lines[1:3] == [
        "4 ranks on 1 healthy node move:",
        "segment 0 (ranks 0-7) has no spare in a; it moves as a whole to d",
    ]
    assert not replan(used({"segment": 2}), nodes, without=["n4"]).reasons
    labels = [("x", "a")] * 2 + [("x", "b")] * 2 + [("x", "c")] * 2 + [("y", "d")] * 2
    rules = {"segment": 2, "keep": {"rollout": {"world": "block"}}}
    placed = with_section(cluster(labels).first(4), {"num_nodes": 4, "component_placement": {}, "topology": rules})
    parts = [
        Component.place(name, placed, ("cluster",), Chunks(list(range(first, first + 8)), 1))
        for name, first in (("actor", 0), ("rollout", 8))
    ]
    assert replan(
        Plan(placed, parts, rules=rules_in({"topology": rules})), cluster(labels), without=["n2", "n4"]
    ).reasons == (
        "4 ranks on 1 healthy node move:",
        "the whole (rollout 0-7) has no spare in x; it moves as a whole to y",
    )


@settings(max_examples=30)
@given(st.lists(st.sampled_from(range(6)), min_size=1, max_size=3, unique=True))
def test_one_repair_moves_at_most_what_several_move(lost: list[int]) -> None:
    """The spares are enough for any three of the six nodes."""
    nodes = cluster(PAGE)
    names = [f"n{node}" for node in lost]
    before = used({"segment": 2})
    together = replan(before, nodes, without=names)
    total, now = 0, before
    for count in range(1, len(names) + 1):
        step = replan(now, nodes, without=names[:count])
        total, now = total + step.arrangement.moved, step.plan
    assert 0 < together.arrangement.moved <= total


def test_flags(tmp_path: Path) -> None:
    nodes, other, mine = tmp_path / "nodes.json", tmp_path / "other.json", tmp_path / "plan.json"
    cluster(PAGE).save(nodes)
    plan(2, cluster(PAGE).first(2), "other").save(other)
    plan(6).save(mine)

    def run(*flags: str) -> list[int]:
        output = tmp_path / "arranged.yaml"
        done = CliRunner().invoke(main, ["arrange", str(mine), "--inventory", str(nodes), *flags, "-o", str(output)])
        assert done.exit_code == 0, done.output
        return hosts(Inventory.load(output), 6)

    assert run("--balance", "actor=nvlink") == run("--balance", "nvlink") == [0, 1, 2, 4, 5, 6]
    assert run("--keep", "actor.world=nvlink:2") == [0, 1, 2, 4, 5, 6]
    assert run("--prefer", "actor.world=block", "--cap", "nvlink=3") == [0, 1, 2, 4, 5, 6]
    assert run("--beside", str(other)) == [7, 8, 9, 10, 11, 12]
    for flag, text in (("--cap", "nvlink"), ("--prefer", "world=a"), ("--balance", "a=")):
        done = CliRunner().invoke(main, ["arrange", str(mine), "--inventory", str(nodes), flag, text])
        assert done.exit_code != 0 and done.stderr
    done = CliRunner().invoke(main, ["arrange", str(mine), "--inventory", str(nodes), "--cap", "nvlink=0"])
    assert done.exit_code == 2 and "is not LEVEL=N with N of 1 or more" in done.stderr
    assert json.loads(other.read_text())["components"]

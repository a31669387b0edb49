"""Arranging: node ranks to nodes, against brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import ComponentPlacement, Inventory, Plan, arrange
from rankplan._core import Chunks, Hierarchy, Problem, RankSet, pack_segments
from rankplan.cli import main
from rankplan.errors import PlacementError
from rankplan.parallel import Parallel
from rankplan.plans.component import Component
from rankplan.plans.rules import GROUP_KINDS
from rankplan.rlinf import with_section
from support.oracle_arrange import CLASSES, Case
from support.outcomes import at_least, outcome

ORDERS = [Parallel.ORDER, "tp-cp-ep-pp-dp", "dp-pp-tp-ep-cp"]


@st.composite
def cases(draw: st.DrawFn, most_ranks: int = 5, most_nodes: int = 7) -> Case:
    """Return nodes in up to three levels, and up to two components on some of their node ranks."""
    ranks = draw(st.integers(2, most_ranks))
    nodes = draw(st.integers(ranks, most_nodes))
    levels = draw(st.integers(1, 3))
    label = st.sampled_from(["a", "b", "c", "a", "b", None])
    labels = [tuple(draw(label) for _ in range(levels)) for _ in range(nodes)]
    two_kinds = draw(st.integers(0, 4)) == 0
    inventory = Inventory.from_dict({"nodes": [{"ranks": f"0-{ranks - 1}", "accelerators": 2}]})
    components = {}
    for name in ["actor", "rollout"][: draw(st.integers(1, 2))]:
        used = draw(st.lists(st.integers(0, ranks - 1), min_size=1, max_size=ranks, unique=True))
        devices = [2 * node + index for node in (sorted(used) if draw(st.booleans()) else used) for index in (0, 1)]
        each = draw(st.sampled_from([1, 1, 2]))
        size = st.sampled_from([1, 1, 2, 3, 4])
        order = draw(st.sampled_from(ORDERS))
        component = Component.place(name, inventory, ("cluster",), Chunks(devices, each))
        for _ in range(8):
            sizes = {kind: draw(size) for kind in ("tp", "cp", "ep", "pp", "fsdp")}
            try:
                component = Component.place(
                    name, inventory, ("cluster",), Chunks(devices, each), parallel=Parallel(**sizes, order=order)
                )
            except PlacementError:
                continue
            break
        components[name] = component
    used_ranks = {row.cluster_node_rank for one in components.values() for row in one}
    kinds = [draw(st.integers(0, 1)) if two_kinds else 0 for _ in range(nodes)]
    needs = [(draw(st.integers(0, 1)) if two_kinds else 0) if rank in used_ranks else None for rank in range(ranks)]
    kept: list[tuple[str, str, int]] = []
    if draw(st.booleans()):
        for name in components:
            kept.append((name, draw(st.sampled_from(GROUP_KINDS)), draw(st.integers(0, levels - 1))))
    segment = draw(st.sampled_from([1, 1, 2, 3]))
    needed = [rank for rank, need in enumerate(needs) if need is not None]
    sets = []
    if segment > 1 and draw(st.booleans()):
        sets = [(levels - 1, needed[at : at + segment]) for at in range(0, len(needed), segment)]
    unfit: dict[int, set[int]] = {}
    if draw(st.booleans()):  # some accelerators of these nodes are broken
        some = st.sets(st.integers(0, ranks - 1), min_size=1)
        unfit = draw(st.dictionaries(st.integers(0, nodes - 1), some, max_size=nodes))
    old: list[int | None] = []
    if draw(st.booleans()):
        places = draw(st.permutations(range(nodes)))
        fits = [
            need is not None and kinds[place] == need and rank not in unfit.get(place, ())
            for rank, (need, place) in enumerate(zip(needs, places, strict=False))
        ]
        old = [place if fit and draw(st.integers(0, 3)) else None for fit, place in zip(fits, places, strict=False)]
    some_ranks = st.lists(st.sampled_from(needed), min_size=1, unique=True).map(sorted)
    rule = st.tuples(st.integers(0, levels - 1), some_ranks)
    preferred = draw(st.lists(rule, max_size=2)) if draw(st.booleans()) else []
    balanced = draw(st.lists(rule, max_size=2)) if draw(st.booleans()) else []
    cap = st.dictionaries(st.integers(0, levels - 1), st.integers(1, 4), max_size=2)
    caps = draw(cap) if draw(st.booleans()) else {}
    return Case(labels, kinds, needs, components, kept, sets, old, segment, unfit, preferred, balanced, caps)


def problem(case: Case) -> Problem:
    """Return the same problem for the core."""
    names = sorted({label for labels in case.labels for label in labels if label is not None})
    columns = [
        [Hierarchy.UNKNOWN if labels[level] is None else names.index(labels[level] or "") for labels in case.labels]
        for level in range(case.levels)
    ]
    kept = [
        (level, ranks, 0) for name, kind, level in case.kept for ranks in case.components[name].layout.node_sets(kind)
    ]
    parts: Any = [(one.rows, one.layout if one.parallel.stated else None) for one in case.components.values()]
    hierarchy = Hierarchy(len(case.labels), columns)
    return Problem(
        hierarchy,
        node_classes=list(case.kinds),
        rank_classes=list(case.needs),
        unfit=[(node, RankSet(ranks)) for node, ranks in case.unfit.items()],
        parts=parts,
        sets=[*kept, *((level, list(ranks), 1) for level, ranks in case.sets)],
        preferred=list(case.preferred),
        balanced=list(case.balanced),
        caps=[(level, [most] * len(hierarchy.sizes(level))) for level, most in case.caps.items()],
        pinned=[None] * len(case.needs),
        old=list(case.old),
        segment=case.segment,
    )


def check(case: Case) -> None:
    """Compare the solver with brute force."""
    best = case.best()
    if best is None:
        with pytest.raises(ValueError):
            problem(case).solve()
        return
    outcome("solved")
    if any(component.parallel.stated for component in case.components.values()):
        outcome("sized")
    found = problem(case).solve()
    assert len({node for node in found.nodes if node is not None}) == sum(need is not None for need in case.needs)
    for node, need in zip(found.nodes, case.needs, strict=True):
        assert (node is None) == (need is None)
        assert node is None or case.kinds[node] == need
    assert all(rank not in case.unfit.get(node, ()) for rank, node in enumerate(found.nodes) if node is not None)
    assert found.cost == case.cost(found.nodes)
    assert found.optimal
    assert found.cost == best[0]
    assert found.allowed == (best[0][0] == 0)
    assert found.nodes == best[1] or not found.allowed


@at_least(solved=0.4, sized=0.1)
@settings(max_examples=100)
@given(cases())
def test_small_instances_are_solved_exactly(case: Case) -> None:
    check(case)


@settings(max_examples=3)
@given(cases(7, 9))
def test_seven_node_ranks_on_nine_nodes(case: Case) -> None:
    check(case)


def node(rank: int, *labels: str | None, **more: Any) -> dict[str, Any]:
    """Return the entry of a node with labels of the levels block and nvlink."""
    stated = {key: label for key, label in zip(("block", "nvlink"), labels, strict=True) if label is not None}
    return {"ranks": rank, "accelerators": 8, "hostname": f"n{rank}", "labels": stated, **more}


def cluster(nodes: list[dict[str, Any]]) -> Inventory:
    return Inventory.from_dict({"levels": ["block", "nvlink"], "nodes": nodes})


def plan(count: int, inventory: Inventory | None = None, **sizes: int) -> Plan:
    """Return a plan of one process per accelerator on nodes with eight."""
    nodes = inventory or Inventory.uniform(count, 8)
    rule = Chunks(list(range(8 * count)), 1)
    return Plan(nodes, [Component.place("actor", nodes, ("cluster",), rule, parallel=Parallel(**sizes))])


def names(inventory: Inventory) -> list[str]:
    return [inventory.node(rank).name for rank in range(inventory.num_nodes)]


MIXED = cluster([node(rank, f"b{rank % 2}", f"d{rank % 4 // 2}") for rank in range(10)])


def test_groups_stay_within_domains_and_spares_come_last() -> None:
    found = arrange(plan(8, tp=8, ep=16), MIXED)
    assert (found.before[1][1], found.after[1][1], found.optimal) == (4, 0, True)
    arranged = found.inventory
    assert sorted(names(arranged)) == sorted(names(MIXED)) and arranged.levels == MIXED.levels
    domains = [tuple(arranged.node(rank).labels.values()) for rank in range(8)]
    assert all(domains[rank] == domains[rank + 1] for rank in range(0, 8, 2))
    # Arranging once more changes nothing.
    assert names(arrange(plan(8, tp=8, ep=16), arranged).inventory) == names(arranged)


@at_least(placed=0.6, kept=0.3)
@settings(max_examples=60)
@given(st.data())
def test_arrange_counts_and_keeps_the_groups_that_check_counts(data: st.DataObject) -> None:
    """Whatever the sizes, also none: the same layout decides for both."""
    labels = [(data.draw(st.sampled_from("ab")), data.draw(st.sampled_from("cd"))) for _ in range(4)]
    nodes = cluster([node(rank, *pair) for rank, pair in enumerate(labels)])
    kinds = data.draw(st.sets(st.sampled_from(["tp", "cp", "ep", "etp", "pp", "fsdp"]), max_size=3))
    sizes = {kind: data.draw(st.sampled_from([1, 2, 4])) for kind in sorted(kinds)}
    try:
        planned = plan(4, nodes, **sizes)
    except PlacementError:
        return
    outcome("placed")
    actor, found = planned["actor"], arrange(planned, nodes)
    for index, level in enumerate(nodes.levels):
        counted = [
            sum(actor.spans(kind, level).crossing for kind in kinds if kind in actor.layout.kinds) for kinds in CLASSES
        ]
        assert found.before[index] == (counted if actor.parallel.stated else [0] * len(CLASSES))
    kind, level = data.draw(st.sampled_from(GROUP_KINDS)), data.draw(st.sampled_from([*nodes.levels, "node"]))
    try:
        arranged = arrange(planned, nodes, keep={"actor": {kind: level}}).inventory
    except PlacementError as refused:
        assert refused.code in ("group-spans", "domain-too-small") and actor.spans(kind, level).crossing
    else:
        outcome("kept")
        assert plan(4, arranged, **sizes)["actor"].spans(kind, level).crossing == 0


def test_keep_counts_for_a_component_without_sizes() -> None:
    nodes = cluster([node(0, "b0", "d"), node(1, "b1", "d"), node(2, "b0", "e"), node(3, "b0", "f")])
    found = arrange(plan(3, tp=1), nodes, keep={"actor": {"dp": "block"}})
    assert names(found.inventory) == ["n0", "n2", "n3", "n1"]
    with pytest.raises(PlacementError, match="actor: dp groups need 4 nodes in one block domain; the largest has 3"):
        arrange(plan(4), nodes, keep={"actor": {"dp": "block"}})
    with pytest.raises(PlacementError, match=r"actor: data group 0 .* spans nodes 0-2"):
        arrange(plan(3), nodes, keep={"actor": {"dp": "node"}})


def test_nodes_without_labels_are_domains_of_their_own() -> None:
    nodes = cluster([node(0, None, None), node(1, None, None), node(2, "b", "d"), node(3, "b", "d")])
    assert names(arrange(plan(2, ep=16), nodes).inventory) == ["n2", "n3", "n0", "n1"]


def test_equal_labels_in_two_blocks_are_two_domains() -> None:
    nodes = cluster([node(0, "b0", "d"), node(1, "b1", "d"), node(2, "b1", "d")])
    assert names(arrange(plan(2, ep=16), nodes).inventory)[:2] == ["n1", "n2"]


def test_excluded_nodes_and_other_hardware_are_not_used() -> None:
    nodes = [node(rank, "b", "d") for rank in range(4)]
    nodes[0]["healthy"], nodes[1]["accelerators"], nodes[2]["accelerator_model"] = False, 4, "H100"
    inventory = cluster(nodes)
    assert names(arrange(plan(2), inventory).inventory)[:2] == ["n2", "n3"]
    with pytest.raises(PlacementError, match="needs 3 nodes with 8 NV_GPU; 2 can be used"):
        arrange(plan(3), inventory)
    models = Inventory.uniform(1, 8, accelerator_model="H100")
    assert names(arrange(plan(1, models), inventory).inventory)[0] == "n2"


def test_node_ranks_with_robots_keep_their_nodes() -> None:
    robot = {
        "label": "arms",
        "node_ranks": 1,
        "hardware": {"type": "Franka", "configs": [{"node_rank": 1, "robot_ip": "10.0.0.1"}]},
    }
    nodes = cluster([node(0, "b0", "d"), node(1, "b1", "d"), node(2, "b1", "e"), node(3, "b1", "d")])
    configured = with_section(nodes, {"num_nodes": 2, "component_placement": {}, "node_groups": [robot]})
    actor = Component.place("actor", configured, ("cluster",), Chunks(list(range(16)), 1), parallel=Parallel(ep=16))
    assert names(arrange(Plan(configured, [actor]), nodes).inventory)[:2] == ["n3", "n1"]


@pytest.mark.parametrize(
    ("count", "sizes", "more", "code", "message"),
    [
        (6, {}, {"segment": 4}, "segment-incomplete", "6 nodes cannot be divided into segments of 4"),
        (
            9,
            {},
            {"segment": 3},
            "segment-incomplete",
            "the plan needs 3 segments of 3 nodes in a nvlink; the nvlink domains hold 2",
        ),
        (2, {}, {"segment": 0}, "invalid-value", "`segment` is 0; it must be a whole number of 1 or more"),
        (
            8,
            {"ep": 64},
            {"keep": {"actor": {"ep": "nvlink"}}},
            "domain-too-small",
            "actor: ep groups need 8 nodes in one nvlink domain; the largest has 3",
        ),
        (
            9,
            {"ep": 24},
            {"keep": {"actor": {"ep": "nvlink"}}},
            "group-spans",
            "actor: no arrangement keeps every ep group within a nvlink domain; "
            "the smallest that crosses one is on nodes 6-8",
        ),
        (2, {}, {"keep": {"actr": {"ep": "block"}}}, "unknown-component", "unknown component `actr` in keep"),
        (2, {}, {"keep": {"actor": {"xp": "block"}}}, "invalid-value", "unknown kind of group `xp`"),
        (2, {}, {"keep": {"actor": {"ep": "rack"}}}, "unknown-level", "unknown level `rack`"),
        (11, {}, {}, "too-few-nodes", "the plan needs 11 nodes with 8 NV_GPU; 10 can be used"),
    ],
)
def test_what_is_refused(count: int, sizes: dict[str, int], more: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        arrange(plan(count, **sizes), MIXED, **more)
    assert (refused.value.code, refused.value.message) == (code, message)


def test_components_have_segments_of_their_own() -> None:
    nodes = cluster([node(rank, "b", "aaabbbbbb"[rank]) for rank in range(9)])
    uniform = Inventory.uniform(7, 8)
    roles = {"train": range(32), "serve": range(32, 56)}
    parts = [Component.place(name, uniform, ("cluster",), Chunks(list(ranks), 1)) for name, ranks in roles.items()]
    both = Plan(uniform, parts)
    found = arrange(both, nodes, segment={"train": 4, "serve": 3}).inventory
    assert [found.node(rank).labels["nvlink"] for rank in range(7)] == [*"bbbbaaa"]
    for sizes, message in (
        ({"train": 4, "serve": 2}, "serve: 3 nodes cannot be divided into segments of 2"),
        ({"trains": 4}, "unknown component `trains` in segment"),
        ({"train": 0}, "`train` is 0; it must be a whole number of 1 or more"),
    ):
        with pytest.raises(PlacementError) as refused:
            arrange(both, nodes, segment=sizes)
        assert refused.value.message == message
    small = cluster([node(rank, "b", "aaabbbcde"[rank]) for rank in range(9)])
    with pytest.raises(PlacementError) as refused:
        arrange(both, small, segment={"train": 2, "serve": 3})
    assert refused.value.code == "segment-incomplete" and refused.value.message == (
        "the plan needs 1 segment of 3 nodes and 2 segments of 2 nodes; the nvlink domains cannot hold all of them"
    )
    # Components on the same nodes may have segments of different sizes.
    shared = Plan(uniform, [parts[0], replace(parts[0], name="serve")])
    found = arrange(shared, nodes, segment={"train, serve": 4, "serve": 2}).inventory
    assert len({found.node(rank).labels["nvlink"] for rank in range(4)}) == 1


def test_only_nodes_with_processes_are_needed() -> None:
    def nodes(*accelerators: int) -> Inventory:
        return Inventory.from_dict({"nodes": [{"ranks": r, "accelerators": n} for r, n in enumerate(accelerators)]})

    config = {"cluster": {"num_nodes": 4, "component_placement": {"actor": "0-7"}}}
    plan = ComponentPlacement(config, nodes(8, 8, 4, 4)).plan()
    assert arrange(plan, nodes(2, 8)).inventory.to_dict() == nodes(8, 2).to_dict()
    with pytest.raises(PlacementError, match="needs 1 node with 8 NV_GPU; 0 can be used"):
        arrange(plan, nodes(4, 4, 2, 2))


def test_segments_need_known_domains() -> None:
    with pytest.raises(PlacementError) as refused:
        arrange(plan(4), Inventory.uniform(4, 8), segment=2)
    assert refused.value.message == "segment is 2, but the nodes have no known domains"


@given(st.lists(st.integers(0, 12), max_size=4), st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), max_size=3))
def test_segments_are_packed_if_and_only_if_they_fit(domains: list[int], wants: list[tuple[int, int]]) -> None:
    sizes = [size for size, count in wants for _ in range(count)]

    def fits(left: tuple[int, ...], sizes: list[int]) -> bool:
        if not sizes:
            return True
        room = {
            tuple(sorted([*left[:at], free - sizes[0], *left[at + 1 :]]))
            for at, free in enumerate(left)
            if free >= sizes[0]
        }
        return any(fits(one, sizes[1:]) for one in room)

    found = pack_segments(domains, wants)
    assert (found is not None) == fits(tuple(domains), sorted(sizes, reverse=True))
    if found is not None:
        left = list(domains)
        for (size, count), places in zip(wants, found, strict=True):
            assert len(places) == count
            for place in places:
                left[place] -= size
        assert min(left, default=0) >= 0
    if len(wants) == 1:
        assert (found is not None) == (sum(domain // wants[0][0] for domain in domains) >= wants[0][1])


def test_four_and_five_nodes_fit_into_domains_of_five_and_four() -> None:
    assert pack_segments([5, 4], [(4, 1), (5, 1)]) == [[1], [0]]
    # Best fit, largest first, fails here.
    assert pack_segments([7, 6], [(3, 3), (4, 1)]) is not None


def test_arrange_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    section = {"num_nodes": 8, "component_placement": {"actor": {"placement": "all", "parallel": {"tp": 8, "ep": 16}}}}
    Path("conf.yaml").write_text(json.dumps({"cluster": section}))
    MIXED.save("all.yaml")
    done = CliRunner().invoke(main, ["arrange", "conf.yaml", "--inventory", "all.yaml", "-o", "nodes.yaml"])
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["nvlink:", "expert", "4", "0"] in lines
    assert done.stdout.splitlines()[-1] == "8 nodes; 2 spares; no arrangement is better"
    assert names(Inventory.load("nodes.yaml")) == names(arrange(plan(8, tp=8, ep=16), MIXED).inventory)
    shown = CliRunner().invoke(main, ["arrange", "conf.yaml", "--inventory", "nodes.yaml", "--keep", "actor.ep=nvlink"])
    assert "  (spare)" in shown.stdout and shown.exit_code == 0
    wrong = CliRunner().invoke(main, ["arrange", "conf.yaml", "--keep", "actor"])
    assert wrong.exit_code == 2 and "is not COMPONENT.KIND=LEVEL" in wrong.stderr
    refused = CliRunner().invoke(main, ["arrange", "conf.yaml", "--inventory", "all.yaml", "--segment", "3"])
    assert refused.exit_code == 1 and "error[segment-incomplete]" in refused.stderr

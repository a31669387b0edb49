"""Plans after a failure: survivors stay, lost nodes get spares, broken accelerators, shrinking, and the report."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import rankplan
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import ComponentPlacement, Inventory, Plan, arrange, diff, replan
from rankplan._core import Chunks, RankMap, RankSet
from rankplan.arranging.exclusion import Exclusion
from rankplan.arranging.replanned import Replanned
from rankplan.arranging.rules import Network
from rankplan.arranging.shrinking import Shrinking
from rankplan.arranging.task import Task
from rankplan.cli import main
from rankplan.errors import PlacementError
from rankplan.parallel import Parallel
from rankplan.plans.component import Component
from rankplan.plans.rules import Rules
from rankplan.render.changes import replan_lines
from rankplan.rlinf import with_section
from support.oracle_arrange import Case


def cluster(count: int, each: int = 8, domain: int = 8, block: int = 16, **more: Any) -> Inventory:
    """Return named nodes in NVLink domains and blocks of these sizes."""
    entries = [
        {
            "ranks": rank,
            "accelerators": each,
            "hostname": f"node-{rank}",
            "labels": {"block": f"b{rank // block}", "nvlink": f"d{rank // domain}"},
            **more,
        }
        for rank in range(count)
    ]
    return Inventory.from_dict({"levels": ["block", "nvlink"], "nodes": entries})


def first(inventory: Inventory, count: int) -> Inventory:
    """Return the first nodes."""
    return with_section(inventory, {"num_nodes": count, "component_placement": {}}).without_groups()


def plan(inventory: Inventory, **components: tuple[str, Parallel]) -> Plan:
    placed = [
        Component.place(name, inventory, ("cluster",), RankMap.parse(text), parallel=parallel)
        for name, (text, parallel) in components.items()
    ]
    return Plan(inventory, placed)


def names(plan: Plan) -> list[str]:
    """Return the names of the nodes of a plan."""
    return [plan.inventory.node(rank).name for rank in range(plan.inventory.num_nodes)]


FULL = cluster(34)
TWO_ROLES = plan(first(FULL, 32), actor=("0-127", Parallel(tp=8)), rollout=("128-255", Parallel(tp=8)))


def report(before: Plan, inventory: Inventory, *without: str, **more: Any) -> list[str]:
    return list(replan_lines(replan(before, inventory, without=without, **more)))


def test_a_lost_node_gets_a_spare_and_all_others_stay() -> None:
    after = replan(TWO_ROLES, FULL, without=["node-3"]).plan
    assert names(after) == [f"node-{32 if rank == 3 else rank}" for rank in range(32)]
    changes = diff(TWO_ROLES, after)
    assert [(move.component, move.rank) for move in changes.moved] == [("actor", rank) for rank in range(24, 32)]
    assert after["actor"].rule == TWO_ROLES["actor"].rule and not (changes.appeared or changes.went)


def test_the_report() -> None:
    spare = cluster(40, domain=10, block=40)
    before = plan(first(spare, 36), actor=("0-71", Parallel(tp=8)), rollout=("72-287", Parallel(tp=8)))
    assert report(before, spare, "node-33") == [
        "8 of 288 ranks move: rollout 192-199, node-33 -> node-36 (spare, same nvlink domain); 280 stay; "
        "no more groups cross a domain than before"
    ]
    assert report(TWO_ROLES, FULL, "node-3", "node-20") == [
        "16 of 256 ranks move: actor 24-31, node-3 -> node-32 (spare, other block domain); rollout 32-39, "
        "node-20 -> node-33 (spare, other block domain); 240 stay; 16 more data groups cross block domains"
    ]
    small = plan(first(cluster(3), 2), actor=("0-15", Parallel(tp=8)))
    assert report(small, cluster(3), "node-0") == [
        "8 of 16 ranks move: actor 0-7, node-0 -> node-2 (spare, same nvlink domain); 8 stay; no group crosses a domain"
    ]
    assert report(TWO_ROLES, FULL) == ["0 of 256 ranks move; 256 stay; no more groups cross a domain than before"]


def test_a_node_that_the_inventory_lacks_is_lost_and_may_be_named() -> None:
    entries = [entry for entry in FULL.to_dict()["nodes"] if entry["hostname"] != "node-3"]
    rest = [{**entry, "ranks": rank} for rank, entry in enumerate(entries)]
    left = Inventory.from_dict({"levels": ["block", "nvlink"], "nodes": rest})
    for without in ([], ["node-3"]):
        assert names(replan(TWO_ROLES, left, without=without).plan)[2:5] == ["node-2", "node-32", "node-4"]


def test_a_whole_expert_group_moves_only_if_a_rule_asks_for_it() -> None:
    full = cluster(8, domain=3, block=8)
    before = plan(first(full, 6), actor=("0-31", Parallel(tp=8, ep=16)), rollout=("32-47", Parallel(tp=8)))
    spread = replan(before, full, without=["node-1", "node-2"])
    assert spread.arrangement.moved == 16 and spread.arrangement.nodes == (0, 6, 7, 3, 4, 5)
    lines = report(before, full, "node-1", "node-2")
    assert "1 more expert group crosses nvlink domains" in lines[0]
    assert (
        lines[-1] == "moving a whole group to one domain would tear fewer groups, but move 24 ranks (`--whole-group`)"
    )
    whole = replan(before, full, without=["node-1", "node-2"], whole_group=True)
    assert whole.arrangement.moved == 24 and len(whole.moves) == 24 and whole.arrangement.as_block is None
    assert whole.arrangement.after[1][1] < spread.arrangement.after[1][1]
    gone = full.without(["node-1", "node-2"])
    old = [None if rank in (1, 2) else rank for rank in range(6)]
    kept = Task(
        gone,
        before.inventory,
        before,
        Network(full.levels, Rules(keep={"actor": {"ep": "nvlink"}})),
        Exclusion(gone.marks),
        old,
    ).solve()
    assert kept.moved == 32 and kept.after[1][1] == 0  # the group that crossed before moves too


def test_idle_accelerators_of_the_node_replace_a_broken_one() -> None:
    nodes = cluster(3)
    before = plan(nodes, actor=("0-5,8-13", Parallel(tp=2)))
    after = replan(before, nodes, without=["node-1/2"]).plan
    assert [row.devices for row in after["actor"]][6:] == [[(1, i)] for i in (0, 1, 6, 3, 4, 5)]
    assert [row.cluster_node_rank for row in after["actor"]] == [row.cluster_node_rank for row in before["actor"]]
    assert report(before, nodes, "node-1/2") == [
        "0 of 12 ranks move; 11 stay; no group crosses a domain",
        "actor rank 8: other accelerators of node 1: 2 -> 6",
    ]
    assert names(replan(before, nodes, without=["node-1/7"]).plan) == names(before)
    assert not any(diff(before, replan(before, nodes, without=["node-1/7"]).plan).moves())


def test_collocated_components_use_the_same_other_accelerator() -> None:
    nodes = cluster(2)
    before = plan(nodes, actor=("0-6", Parallel()), rollout=("0-6:0-6", Parallel()))
    after = replan(before, nodes, without=["node-0/2"]).plan
    assert after["actor"][2].devices == after["rollout"][2].devices == [(0, 7)]


def test_components_that_fit_stay_and_the_others_leave() -> None:
    nodes = cluster(4)
    before = plan(first(nodes, 3), actor=("0-11", Parallel(tp=4)), rollout=("12-23", Parallel(tp=4)))
    found = replan(before, nodes, without=["node-1/6"])
    after = found.plan
    assert names(after) == ["node-0", "node-1", "node-2", "node-3"]
    assert [row.devices for row in after["actor"]] == [row.devices for row in before["actor"]]
    assert [row.devices for row in after["rollout"]] == [[(3, i)] for i in range(4, 8)] + [[(2, i)] for i in range(8)]
    assert next(replan_lines(found)).startswith(
        "4 of 24 ranks move: rollout 0-3, node-1 -> node-3 (spare, same nvlink domain); 20 stay"
    )


def test_other_accelerators_and_fewer_data_groups_leave_the_visibility_alone() -> None:
    before = plan(cluster(3), actor=("0-3", Parallel()), rollout=("8-23", Parallel())).with_visibility("own-first")
    shifted = replan(before, cluster(3), without=["node-0/1"]).plan
    assert shifted["actor"][1].visible_accelerators[0] == "4" and len(shifted["actor"][1].visible_accelerators) == 8
    smaller = replan(before, cluster(3), without=["node-2"], shrink=["rollout"]).plan
    assert [smaller[name].visibility for name in smaller] == ["own-first", "own-first"]


@pytest.mark.parametrize("broken", ["node-0/0", "node-0/1"])
def test_components_that_cannot_all_use_other_accelerators_leave_together_as_they_were(broken: str) -> None:
    before = plan(first(cluster(2), 1), a=("0-2:0-2", Parallel()), b=("0-1:0,2:1", Parallel()), c=("5-6", Parallel()))
    found = replan(before, cluster(2), without=[broken])
    # resource ranks 1,3 and 2 are no rank map, so b cannot use 3 instead of 0
    assert [(move.component, move.rank) for move in found.moves if move.replaced] == [
        *(("a", rank) for rank in range(3)),
        *(("b", rank) for rank in range(2)),
    ]
    assert len(found.moves) == 5 and list(found.successors) == [1]
    assert [row.local_hardware_ranks for row in found.plan["a"]] == [[0], [1], [2]]
    assert [row.cluster_node_rank for row in found.plan["c"]] == [0, 0]


def test_the_only_node_with_a_level_may_be_lost() -> None:
    labels = [{"block": "b"}, {"block": "b", "nvlink": "d"}, {"block": "b"}]
    nodes = [
        {"ranks": rank, "hostname": f"node-{rank}", "accelerators": 8, "labels": each}
        for rank, each in enumerate(labels)
    ]
    inventory = Inventory.from_dict({"nodes": nodes})
    section = {"num_nodes": 2, "topology": {"levels": ["block", "nvlink"]}, "component_placement": {"actor": "0-15"}}
    before = ComponentPlacement({"cluster": section}, inventory).plan()
    after = replan(before, inventory, without=["node-1"]).plan
    assert after.inventory.levels == ("block", "nvlink") and after == after.on(after.inventory)


def test_a_whole_node_rank_leaves_if_all_its_components_use_the_accelerator() -> None:
    nodes = cluster(3)
    before = plan(first(nodes, 2), actor=("0-15", Parallel(tp=8)), rollout=("0-15", Parallel(tp=8)))
    assert names(replan(before, nodes, without=["node-0/6"]).plan) == ["node-2", "node-1"]


def test_without_a_spare_the_last_data_groups_go_and_ranks_keep_their_numbers() -> None:
    before = plan(
        cluster(6), actor=("0-23", Parallel(tp=8)), rollout=("24-47", Parallel(tp=4, order=Parallel.ENGINE_ORDER))
    )
    with pytest.raises(PlacementError) as refused:
        replan(before, before.inventory, without=["node-1"])
    assert refused.value.code == "no-spare"
    assert refused.value.message == "the plan needs 6 nodes with 8 NV_GPU; 5 can be used"
    after = replan(before, before.inventory, without=["node-1"], shrink=["rollout"]).plan
    assert names(after)[:5] == ["node-0", "node-5", "node-2", "node-3", "node-4"]
    assert len(after["rollout"]) == 16 and len(after["actor"]) == 24
    assert report(before, before.inventory, "node-1", shrink=["rollout"]) == [
        "8 of 40 ranks move: actor 8-15, node-1 -> node-5 (spare, same nvlink domain); 32 stay; "
        "no group crosses a domain",
        "rollout shrinks from 6 data groups to 4: 16 of 24 ranks",
    ]


def test_with_renumber_the_groups_on_lost_nodes_go_and_nobody_moves() -> None:
    before = plan(cluster(6), actor=("0-23", Parallel(tp=8)), rollout=("24-47", Parallel(tp=4, pp=2)))
    with pytest.raises(PlacementError) as refused:
        replan(before, before.inventory, without=["node-4"], shrink=["rollout"])
    help = "the last data group of rollout is not its last ranks: allow other numbers (`--renumber`)"
    assert (refused.value.code, refused.value.help) == ("no-spare", help)
    before = plan(cluster(6), actor=("0-23", Parallel(tp=8)), rollout=("24-47", Parallel(tp=8)))
    found = replan(before, before.inventory, without=["node-4"], shrink=["rollout"], renumber=True)
    assert found.moves == () and len(found.plan["rollout"]) == 16
    assert found.plan["rollout"].used_nodes() == RankSet("3,5")
    assert [(move.component, move.rank, move.after) for move in found.losses] == [
        ("rollout", rank, None) for rank in range(8, 16)
    ]
    assert list(replan_lines(found)) == [
        "0 of 40 ranks move; 40 stay; no group crosses a domain",
        "rollout shrinks from 3 data groups to 2: 16 of 24 ranks; ranks 16-23 are renumbered",
    ]


def test_components_on_the_same_nodes_shrink_together() -> None:
    before = plan(cluster(4), actor=("0-31", Parallel(tp=8)), rollout=("0-31", Parallel(tp=4)))
    with pytest.raises(PlacementError) as refused:
        replan(before, before.inventory, without=["node-0"], shrink=["rollout"])
    assert refused.value.help == "shrink more components than rollout, or add spare nodes"
    after = replan(before, before.inventory, without=["node-0"], shrink=["rollout", "actor"]).plan
    assert names(after)[:3] == ["node-3", "node-1", "node-2"]
    assert {name: len(one) for name, one in after.items()} == {"actor": 24, "rollout": 24}


def test_a_stated_data_size_shrinks_too() -> None:
    before = plan(cluster(3), actor=("0-23", Parallel(tp=8, dp=3)))
    assert replan(before, before.inventory, without=["node-2"], shrink=["actor"]).plan["actor"].parallel.dp == 2


@pytest.mark.parametrize(
    ("without", "more", "code", "message"),
    [
        (["node-99"], {}, "invalid-value", "unknown node or accelerator 'node-99'"),
        ([], {"shrink": ["rolout"]}, "unknown-component", "unknown component `rolout` to shrink"),
        (["node-1"], {"shrink": ["actor"]}, "no-spare", "the plan needs 1 node with 8 NV_GPU; 0 can be used"),
    ],
)
def test_what_is_refused(without: list[str], more: dict[str, Any], code: str, message: str) -> None:
    nodes = cluster(2)
    before = plan(nodes, actor=("0-15", Parallel(tp=8)))
    with pytest.raises(PlacementError) as refused:
        replan(before, nodes if code != "no-spare" else nodes.without(["node-0"]), without=without, **more)
    assert (refused.value.code, refused.value.message) == (code, message)


def test_a_plan_of_another_cluster_is_refused() -> None:
    other = Inventory.from_dict(
        {"nodes": [{"ranks": rank, "accelerators": 8, "hostname": f"x{rank}"} for rank in (0, 1)]}
    )
    with pytest.raises(PlacementError) as refused:
        replan(TWO_ROLES, other)
    assert (refused.value.code, refused.value.message) == ("plan-mismatch", "no node of the plan is in the inventory")


def test_a_spare_with_other_hardware_does_not_fit() -> None:
    nodes = [{"ranks": rank, "hostname": f"h{rank}", "accelerators": each} for rank, each in enumerate((8, 4, 8))]
    mixed = Inventory.from_dict({"nodes": nodes})
    before = plan(first(mixed, 2), actor=("0-11", Parallel()))
    after = replan(before, mixed, without=["node-0"]).plan
    assert [after.inventory.node(rank).num_accelerators for rank in (0, 1)] == [8, 4]
    with pytest.raises(PlacementError, match="1 node with 4 NV_GPU; 0 can be used"):
        replan(before, mixed, without=["node-1"])


LEVELS = ("zone", "block", "nvlink")


def test_a_level_that_no_node_has_counts_before_and_after_hardware_is_excluded() -> None:
    nodes = [
        {"ranks": rank, "hostname": f"node-{rank}", "accelerators": 2, "labels": {"zone": "a"}} for rank in range(3)
    ]
    full = Inventory.from_dict({"nodes": nodes}).with_levels(("zone", "nvlink"))
    assert [level.level for level in full.domains] == list(full.without(["node-0"]).levels) == ["zone", "nvlink"]
    found = replan(plan(first(full, 2), actor=("0-3", Parallel())), full, without=["node-0"]).arrangement
    assert len(found.after) == len(found.levels)


@st.composite
def failures(draw: st.DrawFn) -> tuple[Plan, Inventory, list[int], Case]:
    """Return a plan, nodes with spares in three levels, the nodes that failed, and the same case for the oracle."""
    ranks, spares = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    label = st.sampled_from(["a", "b", "c", None])
    labels = [tuple(draw(label) for _ in range(3)) for _ in range(ranks + spares)]
    entries = [
        {
            "ranks": rank,
            "accelerators": 2,
            "hostname": f"n{rank}",
            "labels": {key: value for key, value in zip(LEVELS, one, strict=True) if value is not None},
        }
        for rank, one in enumerate(labels)
    ]
    full = Inventory.from_dict({"nodes": entries}).with_levels(LEVELS)  # some may be on no node
    nodes = first(full, ranks)
    sizes = [Parallel(tp=tp, pp=pp, ep=ep) for tp in (1, 2, 4) for pp in (1, 2) for ep in (1, 2, 4)]
    fitting = [size for size in sizes if 2 * ranks % (size.tp * size.pp) == 0 == 2 * ranks % (size.ep * size.pp)]
    actor = Component.place(
        "actor", nodes, ("cluster",), Chunks(list(range(2 * ranks)), 1), parallel=draw(st.sampled_from(fitting))
    )
    failed = draw(st.lists(st.integers(0, ranks + spares - 1), max_size=spares, unique=True))
    old = [None if rank in failed else rank for rank in range(ranks)]
    kinds = [1 if node in failed else 0 for node in range(ranks + spares)]
    before = Plan(nodes, [actor])
    # The oracle knows no excluded nodes: nobody needs their kind, and they are no domain for spares.
    return before, full, failed, Case(labels, kinds, [0] * ranks, {"actor": actor}, old=old)


@settings(max_examples=40)
@given(failures())
def test_survivors_never_move_and_the_rest_is_the_best_choice(case: tuple[Plan, Inventory, list[int], Case]) -> None:
    before, full, failed, oracle = case
    found = replan(before, full, without=[f"n{node}" for node in failed])
    for rank, node in enumerate(found.arrangement.nodes):
        assert node == rank or rank in failed
        assert node not in failed
    assert found.arrangement.optimal
    best = oracle.best()
    assert best is not None
    # A level that is on no node is left out.
    cost, first = best[0], 3 + oracle.levels
    levels = [
        cost[first + 4 * level : first + 4 * level + 4]
        for level, key in enumerate(LEVELS)
        if key in found.arrangement.levels
    ]
    assert (found.arrangement.moved, found.arrangement.after) == (cost[1], levels)


@st.composite
def roles(draw: st.DrawFn) -> dict[str, Component]:
    """Return two components on 2 to 6 nodes, beside each other or on the same ones, with their parallel sizes."""
    nodes = draw(st.integers(2, 6))
    inventory, accelerators = Inventory.uniform(nodes, 4), 4 * nodes
    found = {}
    for name in ("actor", "rollout"):
        first, last = sorted(draw(st.lists(st.integers(0, accelerators), min_size=2, max_size=2, unique=True)))
        sizes = draw(st.sampled_from([size for size in (1, 2, 4) if (last - first) % size == 0]))
        rule = RankMap.parse(f"{first}-{last - 1}")
        found[name] = Component.place(name, inventory, ("cluster",), rule, parallel=Parallel(tp=sizes))
    return found


@given(roles(), st.integers(1, 5), st.sampled_from([["actor"], ["rollout", "actor"]]))
def test_many_groups_go_as_one_after_the_other(parts: dict[str, Component], usable: int, names: list[str]) -> None:
    def shrunk(together: int) -> tuple[list[list[int]], dict[str, Component]]:
        shrinking = Shrinking(parts, names, set(), together, renumber=False)
        while len(set().union(*(part.used_nodes() for part in shrinking.parts.values()))) > usable:
            if not shrinking.possible():
                break
            shrinking.step()
        return [list(shrinking.kept(name)) for name in parts], shrinking.parts

    assert shrunk(usable) == shrunk(1000)


def test_nodes_that_share_a_hostname_are_told_apart_by_their_addresses() -> None:
    """Several raylets on one machine, as in a simulated cluster."""
    entries = [{"ranks": rank, "accelerators": 8, "hostname": "host", "ip": f"127.0.0.{rank + 2}"} for rank in range(3)]
    nodes = Inventory.from_dict({"nodes": entries})
    section = {"num_nodes": 2, "component_placement": {"actor": "0-15"}}
    before = ComponentPlacement({"cluster": section}, nodes).plan()
    after = replan(before, nodes, without=["127.0.0.3"]).plan
    assert [after.inventory.node(rank).ip for rank in range(2)] == ["127.0.0.2", "127.0.0.4"]
    assert diff(before, after).replaced == {1}
    assert {move.rank for move in diff(before, after).moved} == set(range(8, 16))
    assert not diff(before, replan(before, nodes).plan)


def test_replan_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    TWO_ROLES.save("plan.json")
    FULL.save("nodes.yaml")
    done = CliRunner().invoke(
        main, ["replan", "plan.json", "--without", "node-3", "--inventory", "nodes.yaml", "--save", "plan2.json"]
    )
    assert done.exit_code == 0 and done.stdout.startswith("8 of 256 ranks move: actor 24-31, node-3 -> node-32 (spare")
    assert Plan.load("plan2.json") == replan(TWO_ROLES, FULL, without=["node-3"]).plan
    shown = CliRunner().invoke(main, ["diff", "plan.json", "plan2.json"])
    assert "actor 24-31  node 3: 0-7 (node-3)" in shown.stdout and "node 3: 0-7 (node-32)" in shown.stdout
    refused = CliRunner().invoke(main, ["replan", "plan.json", "--without", "node-3"])
    assert refused.exit_code == 1 and "error[no-spare]: the plan needs 32 nodes" in refused.stderr
    for options, read in ((["--save"], 0), (["--format", "json", "-o"], 1)):
        listed = CliRunner().invoke(main, ["plan", "plan.json", *options, "rows.json"])
        again = CliRunner().invoke(main, ["replan", "rows.json"])
        assert (listed.exit_code, again.exit_code) == (0, read), again.output
        assert read == 0 or "--save" in again.stderr
    wrong = CliRunner().invoke(main, ["replan", "plan.json", "--renumber"])
    assert wrong.exit_code == 2 and "--renumber requires --shrink" in wrong.stderr


def small(count: int, each: int, **more: Any) -> tuple[Plan, Inventory]:
    """Return a plan on all nodes h0, h1, ... and these nodes."""
    nodes = Inventory.from_dict(
        {"nodes": [{"ranks": rank, "accelerators": each, "hostname": f"h{rank}"} for rank in range(count)]}
    )
    section = {"num_nodes": count, **more}
    return ComponentPlacement({"cluster": section}, nodes).plan(), nodes


def test_an_excluded_node_is_no_spare() -> None:
    before, nodes = small(3, 4, exclude=["h1"], component_placement={"actor": "0-3,8-11"})
    assert before.inventory.facts is not None and before.inventory.facts.exclude == ("h1",)
    with pytest.raises(PlacementError, match="needs 2 nodes with 4 NV_GPU; 1 can be used"):
        replan(before, nodes, without=["h2"])


def test_an_excluded_or_healthy_again_accelerator_that_nobody_needs_does_not_matter() -> None:
    before, nodes = small(1, 4, exclude=["h0/3"], component_placement={"actor": "0-2"})
    assert replan(before, nodes).plan == before
    marked = ComponentPlacement({"cluster": {"num_nodes": 1, "component_placement": {"actor": "0-2"}}}, nodes).plan()
    found = replan(marked.on(nodes.without(["h0/3"])), nodes)
    assert not found.moves and not found.plan.inventory.marks


def test_a_component_leaves_for_an_unused_node_of_the_plan() -> None:
    before, nodes = small(2, 2, component_placement={"a": 2, "b": 3})
    found = replan(before, nodes, without=["h1/0"])
    assert [found.plan[name][0].devices for name in ("a", "b")] == [[(0, 0)], [(1, 1)]]
    assert next(replan_lines(found)).startswith("1 of 2 ranks moves: a 0, h1 -> h0 (spare)")
    # b cannot stay, so that all components of the node move
    before, nodes = small(2, 2, component_placement={"a": 2, "b": 3, "c": 1})
    found = replan(before, nodes, without=["h1/0"])
    assert names(found.plan) == ["h1", "h0"] and found.plan["b"].rule == before["b"].rule


@pytest.mark.parametrize("renumber", [False, True])
def test_renumbering_never_fails_where_the_last_groups_suffice(renumber: bool) -> None:
    before, nodes = small(2, 4, component_placement={"actor": 0, "rollout": "1-7"})
    found = replan(before, nodes, without=["h0"], shrink=["rollout"], renumber=renumber)
    assert len(found.plan["rollout"]) == 3 and names(found.plan)[0] == "h1"


def test_a_rule_about_groups_holds_on_nodes_without_its_labels() -> None:
    labels = [{"nvlink": "a"}, {}, {}]
    entries = [
        {"ranks": rank, "hostname": f"node-{rank}", "accelerators": 4, "labels": one} for rank, one in enumerate(labels)
    ]
    nodes = Inventory.from_dict({"nodes": entries, "levels": ["nvlink"]})
    role = {"actor": {"placement": "0-7", "parallel": {"tp": 4}}}
    section = {"num_nodes": 2, "component_placement": role, "topology": {"keep": {"actor": {"tp": "nvlink"}}}}
    after = replan(ComponentPlacement({"cluster": section}, nodes).plan(), nodes, without=["node-0"]).plan
    after.check_keep()
    assert after.inventory.levels == ("nvlink",) and after == after.on(after.inventory) == Plan.from_dict(
        after.to_dict()
    )


def test_a_job_on_one_node_that_is_lost_has_moved() -> None:
    before, _ = small(1, 4, component_placement={"actor": "0-3"})
    spare = Inventory.from_dict(
        {"nodes": [{"ranks": rank, "accelerators": 4, "hostname": f"h{rank}"} for rank in (0, 1)]}
    )
    assert len(diff(before, replan(before, spare, without=["h0"]).plan).moved) == 4


def test_a_lost_robot_has_no_spare() -> None:
    arms = {"type": "Franka", "configs": [{"node_rank": 1, "robot_ip": "10.0.0.1"}]}
    group = {"label": "arms", "node_ranks": 1, "hardware": arms}
    nodes = Inventory.from_dict({"nodes": [{"ranks": "0-2", "accelerators": 4}]})
    entry = {"node_group": "arms", "placement": 0}
    section = {"num_nodes": 2, "node_groups": [group], "component_placement": {"env": entry, "actor": "0-7"}}
    before = ComponentPlacement({"cluster": section}, nodes).plan()
    with pytest.raises(PlacementError, match="env uses the Franka of node 1, which no other node has"):
        replan(before, nodes, without=["node-1"])


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_what_was_named_once_is_never_used_again_until_it_is_brought_back(order: tuple[int, ...]) -> None:
    nodes = cluster(5)
    after = plan(first(nodes, 2), actor=("0-15", Parallel(tp=8)))
    dead: set[str] = set()
    for node in order:
        dead.add(f"node-{node}")
        after = replan(after, nodes, without=[f"node-{node}"]).plan
        after = Plan.from_dict(after.to_dict())
        assert dead.isdisjoint(names(after))
    assert sorted(names(after)) == ["node-3", "node-4"]
    back = replan(after, nodes, without=["node-3"], restore=["node-1"]).plan
    assert sorted(names(back)) == ["node-1", "node-4"]
    with pytest.raises(PlacementError, match="the plan does not exclude 'node-4'"):
        replan(after, nodes, restore=["node-4"])


def test_arrange_uses_what_is_brought_back_and_nothing_else_that_the_plan_excludes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = cluster(4)
    before = replan(plan(first(nodes, 2), actor=("0-15", Parallel(tp=8))), nodes, without=["node-0", "node-2"]).plan
    three = nodes.without(["node-3"])
    with pytest.raises(PlacementError, match="needs 2 nodes with 8 NV_GPU; 1 can be used"):
        arrange(before, three)
    found = arrange(before, three, restore="node-2")
    assert sorted(found.inventory.node(rank).name for rank in range(2)) == ["node-1", "node-2"]
    with pytest.raises(PlacementError, match="the plan does not exclude 'node-3'"):
        arrange(before, three, restore=["node-3"])
    monkeypatch.chdir(tmp_path)
    before.save("plan.json")
    nodes.save("nodes.yaml")
    arguments = ["arrange", "plan.json", "--inventory", "nodes.yaml", "--without", "node-3"]
    assert CliRunner().invoke(main, arguments).exit_code == 1
    assert CliRunner().invoke(main, [*arguments, "--with", "node-2", "-o", "arranged.yaml"]).exit_code == 0
    assert {Inventory.load("arranged.yaml").node(rank).name for rank in range(2)} == {"node-1", "node-2"}


def moved(found: Replanned) -> set[tuple[str, int]]:
    return {(move.component, move.rank) for move in found.moves}


def test_a_broken_accelerator_that_a_smaller_component_leaves_moves_nobody() -> None:
    """The node is lost until the component is smaller, and then gets its own node rank again."""
    nodes = cluster(2, each=4)
    before = plan(nodes, env=("0-7", Parallel(tp=2)))
    found = replan(before, nodes, without=["node-1/3"], shrink=["env"])
    assert len(found.plan["env"]) == 6
    assert moved(found) == {(move.component, move.rank) for move in diff(before, found.plan).moved} == set()
    assert not found.successors
    assert [(move.component, move.rank) for move in found.losses] == [("env", 6), ("env", 7)]


def test_a_process_with_one_of_its_devices_on_a_lost_node_moves() -> None:
    nodes = Inventory.from_dict(
        {"nodes": [{"ranks": rank, "hostname": f"h{rank}", "accelerators": 4} for rank in range(3)]}
    )
    config = {"num_gpus_per_node": 4, "rollout": {"device_mapping": "[3,4]", "num_gpus_per_worker": 2}}
    before = rankplan.plan(config, nodes, dialect="roll")
    found = replan(before, nodes, without=["h1"])
    assert moved(found) == {(move.component, move.rank) for move in diff(before, found.plan).moved} == {("rollout", 0)}
    assert found.successors.keys() <= {0, 1}


def test_a_component_leaves_a_broken_accelerator_and_a_robot_stays() -> None:
    """The node rank that the repair adds is that of the robot's node in the inventory, by chance."""
    nodes = [{"ranks": rank, "hostname": name, "accelerators": 2} for rank, name in enumerate(("h1", "h0"))]
    left = Inventory.from_dict({"nodes": nodes})
    before = Inventory.from_dict({"nodes": [{**nodes[1], "ranks": 0}]})
    robot = {"type": "Franka", "configs": [{"node_rank": 0, "robot_ip": "10.0.0.1"}]}
    components = {"actor": "0", "rollout": "1:0", "env": {"node_group": "arms", "placement": 0}}
    groups = [{"label": "arms", "node_ranks": 0, "hardware": robot}]
    plan = rankplan.plan(
        {"cluster": {"num_nodes": 1, "component_placement": components, "node_groups": groups}}, before
    )
    after = replan(plan, left, without=["h0/0"])
    assert [(move.component, move.rank) for move in after.moves] == [("actor", 0)]
    assert [node.hostname for _, node in after.plan.inventory.stretches()] == ["h0", "h1"]

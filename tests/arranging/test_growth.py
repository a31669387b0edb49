"""Growing and shrinking by a number of data groups: worked examples, faults, laws, and every small instance."""

from __future__ import annotations

from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
import rankplan
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import Chunks, Inventory, Packed, Plan, RankMap, replan
from rankplan.cli import main
from rankplan.errors import PlacementError
from rankplan.parallel import ENGINE_ORDER, Parallel
from rankplan.plans.component import Component
from rankplan.render.changes import replan_lines
from support.oracle_arrange import Case

LEVELS = ("block", "nvlink")
PAGE = [("b0", "a")] * 4 + [("b0", "b")] * 3 + [("b1", "c")] * 4 + [("b1", "d")] * 2


def cluster(labels: list[tuple[str, str]]) -> Inventory:
    entries = [
        {"ranks": rank, "accelerators": 4, "hostname": f"n{rank}", "labels": dict(zip(LEVELS, pair, strict=True))}
        for rank, pair in enumerate(labels)
    ]
    return Inventory.from_dict({"levels": list(LEVELS), "nodes": entries})


NODES = cluster(PAGE)


def job(nodes: list[int], topology: dict[str, Any], inventory: Inventory = NODES, **parts: tuple[str, Any]) -> Plan:
    """Return a plan on these nodes; ``parts`` are placements and sizes."""
    placement = {name: {"placement": text, "parallel": sizes} for name, (text, sizes) in parts.items()}
    section = {"num_nodes": len(nodes), "topology": topology, "component_placement": placement}
    return rankplan.plan({"cluster": section}, inventory.reordered(nodes))


def engines(nodes: list[int], topology: dict[str, Any], tp: int = 8) -> Plan:
    return job(nodes, topology, rollout=(f"0-{4 * len(nodes) - 1}", {"tp": tp}))


def hosts(plan: Plan) -> list[int]:
    found = (plan.inventory.node(rank).hostname for rank in range(plan.inventory.num_nodes))
    return [int((name or "n-1")[1:]) for name in found]


_LABELS = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("abc")), min_size=3, max_size=9)
TWO = [7, 8, 9, 10]
WHOLE = {"segment": 2, "keep": {"rollout": {"world": "block"}}}


@pytest.mark.parametrize(
    ("topology", "grow", "nodes"),
    [
        ({"segment": 2}, 1, [*TWO, 11, 12]),
        ({"segment": 2}, 2, [*TWO, 0, 1, 2, 3]),
        (WHOLE, 1, [*TWO, 11, 12]),
        ({"balance": "nvlink"}, 1, [*TWO, 11, 12]),
        ({"prefer": {"rollout": {"world": "block"}}}, 1, [*TWO, 11, 12]),
        ({"cap": {"nvlink": 4}, "segment": {"rollout": {"block": 4, "nvlink": 2}}}, 2, [*TWO, 0, 1, 2, 3]),
    ],
)
def test_worked_examples(topology: dict[str, Any], grow: int, nodes: list[int]) -> None:
    before = engines(TWO, topology)
    found = replan(before, NODES, grow={"rollout": grow})
    assert hosts(found.plan) == nodes and found.arrangement.optimal and not found.moves
    assert [move.rank for move in found.gains] == list(range(16, 16 + 8 * grow))
    assert found.plan["rollout"].layout.size("dp") == 2 + grow
    assert replan(found.plan, NODES, shrink={"rollout": grow}).plan == before


@pytest.mark.parametrize(
    ("plan", "changes", "code", "message", "help"),
    [
        (
            engines(TWO, WHOLE),
            {"grow": {"rollout": 2}},
            "group-spans",
            "rollout: no 4 more nodes in block b1, where all of it must stay; 2 can be added",
            "add spare nodes there, or grow by 1",
        ),
        (
            engines(TWO, {}, tp=2),
            {"grow": {"rollout": 1}},
            "invalid-value",
            "one data group of rollout uses half a node",
            "grow by 2, 4, ...",
        ),
        (
            engines(TWO, {}, tp=1),
            {"grow": {"rollout": 1}},
            "invalid-value",
            "rollout has no data groups",
            "state its parallel sizes, such as `parallel: {dp: 8}`",
        ),
        (
            engines(TWO, {}),
            {"shrink": {"rollout": 2}},
            "invalid-value",
            "rollout has 2 data groups; at least one must stay",
            "shrink by at most 1",
        ),
        (
            engines(TWO, {}, tp=2),
            {"shrink": {"rollout": 3}},
            "invalid-value",
            "data groups of rollout that stay are on a node of those that go",
            "shrink by 2 or 4",
        ),
        (
            engines(TWO, {}),
            {"grow": {"rollout": 5}},
            "no-spare",
            "rollout: no 10 more nodes with 4 NV_GPU; 8 can be added",
            "add spare nodes to the inventory, or grow by 4",
        ),
        (
            engines([0, 1], {"cap": {"nvlink": 2}}, tp=4),
            {"grow": {"rollout": 8}},
            "no-spare",
            "rollout: no 8 more nodes with `cap: {nvlink: 2}`; 6 can be added",
            "raise the cap, or grow by 6",
        ),
        (
            engines([0, 1, 2, 3], {"segment": {"rollout": {"block": 4, "nvlink": 2}}}, tp=4),
            {"grow": {"rollout": 8}},
            "segment-incomplete",
            "rollout: no 8 more nodes in segments of 4 within a block domain; 4 can be added",
            "add spare nodes there, or grow by 4",
        ),
        (
            engines([0, 1], {"segment": 2}, tp=4),
            {"grow": {"rollout": 1}},
            "segment-incomplete",
            "3 nodes cannot be divided into segments of 2",
            "use 2 or 4 nodes, or another segment",
        ),
        (
            engines([0, 1, 2, 3], {"keep": {"rollout": {"tp": "nvlink"}}}, tp=16),
            {"grow": {"rollout": 2}},
            "group-spans",
            "rollout: no 8 more nodes that keep every tp group of rollout within a nvlink domain; 4 can be added",
            "add spare nodes there, or grow by 1",
        ),
        (
            job(TWO, {}, actor=("0-15", {"tp": 2, "pp": 2})),
            {"grow": {"actor": 1}},
            "invalid-value",
            "the last data group of actor is not its last ranks: pp comes after dp",
            f"use an order with dp last, such as {ENGINE_ORDER}",
        ),
        (
            job(TWO, {}, actor=("0-15", {"tp": 2, "pp": 2})),
            {"shrink": {"actor": 1}},
            "invalid-value",
            "the last data group of actor is not its last ranks: pp comes after dp",
            "allow other numbers (`--renumber`)",
        ),
        (
            job(TWO, {}, actor=("0-15", {"ep": 8})),
            {"shrink": {"actor": 4}},
            "invalid-value",
            "8 data groups of actor go together",
            "shrink by 8",
        ),
        (
            job(TWO, {}, actor=("0-15", {"ep": 16})),
            {"shrink": {"actor": 4}},
            "invalid-value",
            "16 data groups of actor go together",
            "shrink another component",
        ),
        (
            engines(TWO, {}, tp=2),
            {"shrink": {"rollout": 3}, "renumber": True},
            "invalid-value",
            "2 data groups of rollout go together",
            "shrink by 2 or 4",
        ),
        (
            engines(TWO, {}),
            {"grow": ["rollout"]},
            "invalid-value",
            "`grow` is ['rollout']; it must be a mapping",
            'write the number of data groups by component: grow={"rollout": 2}',
        ),
        (
            engines(TWO, {}),
            {"grow": {1: 1}},
            "unknown-component",
            "unknown component `1` to grow",
            "the components are: rollout",
        ),
        (
            job(TWO, {}, actor=("0-15", {"ep": 8})),
            {"grow": {"actor": 4}},
            "invalid-value",
            "8 data groups of actor go together",
            "grow by 8, 16, ...",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_faults(plan: Plan, changes: dict[str, Any], code: str, message: str, help: str) -> None:
    with pytest.raises(PlacementError) as refused:
        replan(plan, NODES, **changes)
    assert (refused.value.code, refused.value.message, refused.value.help) == (code, message, help)


def test_every_fault_at_once() -> None:
    plan = job(TWO, {}, actor=("0-7", {"tp": 8}), rollout=("8-15", {"tp": 2}))
    wrong: dict[str, Any] = {"grow": {"actr": 1, "rollout": 2.5}, "shrink": {"actor": True}}
    with pytest.raises(PlacementError) as refused:
        replan(plan, NODES, **wrong)
    assert [one.message for one in refused.value.diagnostics] == [
        "`actor` is true; it must be a whole number of 1 or more",
        "unknown component `actr` to grow",
        "`rollout` is 2.5; it must be a whole number of 1 or more",
    ]
    with pytest.raises(PlacementError) as refused:
        replan(plan, NODES, shrink={"actor": 1}, grow={"rollout": 1})
    assert [one.message for one in refused.value.diagnostics] == [
        "actor has 1 data group; at least one must stay",
        "one data group of rollout uses half a node",
    ]


def test_repair_then_shrink_then_grow() -> None:
    before = job([0, 1, 4, 5], {}, rollout=("0-7", {"tp": 4}), actor=("8-15", {"tp": 4}))
    found = replan(before, NODES, without=["n5"], shrink={"rollout": 1}, grow={"actor": 1})
    # n6 takes over from n5; node rank 1 has no processes any more, and its node is a spare.
    assert hosts(found.plan)[:1] + hosts(found.plan)[2:4] == [0, 4, 6]
    assert [move.rank for move in found.moves] == [4, 5, 6, 7] and all(move.replaced for move in found.moves)
    assert [(move.component, move.rank) for move in found.losses] == [("rollout", rank) for rank in range(4, 8)]
    assert [(move.component, move.rank) for move in found.gains] == [("actor", rank) for rank in range(8, 12)]
    assert {move.after.cluster_node_rank for move in found.gains if move.after} == {4}
    assert list(replan_lines(found))[1:] == [
        "rollout shrinks from 2 data groups to 1: 4 of 8 ranks",
        f"actor grows from 2 data groups to 3: ranks 8-11 on n{hosts(found.plan)[4]}",
    ]


@pytest.mark.parametrize("count", [4, 5])
def test_node_ranks_without_processes_get_some_where_nodes_lack(count: int) -> None:
    """On a full cluster, the node that one component leaves goes to another; its rank stays where it is."""
    before = job([0, 1, 2, 3], {}, rollout=("0-7", {"tp": 4}), actor=("8-15", {"tp": 4}))
    found = replan(before, NODES.first(count), shrink={"rollout": 1}, grow={"actor": 1})
    assert str(found.plan["actor"].used_nodes()) == ("1-3" if count == 4 else "2-4")
    assert sorted(hosts(found.plan)) == list(range(count)) and not found.moves
    assert_same_rows(before.only("actor"), found.plan)
    with pytest.raises(PlacementError) as refused:
        replan(before, NODES.first(count), shrink={"rollout": 1}, grow={"actor": 3})
    assert refused.value.message == f"actor: no 3 more nodes with 4 NV_GPU; {count - 3} can be added"


def test_a_repair_before_growth_may_move_survivors() -> None:
    before = engines([0, 1, 2, 3, 4, 5], {"segment": 2}, tp=4)
    found = replan(before, NODES, without=["n1", "n4"], grow={"rollout": 2})
    assert hosts(found.plan) == [11, 12, 2, 3, 6, 5, 7, 8]
    with pytest.raises(PlacementError) as refused:
        replan(before, NODES, without=["n1", "n4"], grow={"rollout": 2}, fixed=True)
    assert refused.value.code == "no-spare"


def test_last_node_ranks_without_processes_are_spares() -> None:
    found = replan(engines([0, 1, 2, 3, 4], {}, tp=4), NODES, shrink={"rollout": 2})
    assert hosts(found.plan) == [0, 1, 2] and len(found.arrangement.spares) == 10


def test_without_a_failure_nothing_moves() -> None:
    """A whole in two domains stays there, though one has room for it; growth does not mend a torn segment."""
    labels = [("x", "a"), ("x", "b"), ("x", "a"), ("x", "a")]
    halves = {"keep": {"rollout": {"world": {"nvlink": 2}}}}
    before = job([0, 1], halves, cluster(labels), rollout=("0-7", {"tp": 4}))
    assert replan(before, cluster(labels)).plan == before
    before = engines([0, 1, 2, 3], {"segment": 2})
    relabelled = cluster([("b0", "ab"[rank % 2]) for rank in range(13)])
    with pytest.raises(PlacementError) as refused:
        replan(before, relabelled, grow={"rollout": 1})
    assert refused.value.code == "segment-incomplete"


@settings(max_examples=60)
@given(st.data())
def test_renumber_frees_the_most_domains(data: st.DataObject) -> None:
    """All choices of engines, beside an actor on other nodes, outermost level first."""
    labels = data.draw(_LABELS)
    order = data.draw(st.permutations(range(len(labels))))
    count = data.draw(st.integers(2, len(labels)))
    shrink, others = data.draw(st.integers(1, count - 1)), len(labels) - count
    parts = {"rollout": (f"0-{4 * count - 1}", {"tp": 4})}
    if others:
        parts["actor"] = f"{4 * count}-{4 * len(labels) - 1}", {"tp": 4}
    nodes = cluster(labels)
    before = job(list(order), {}, nodes, **parts)

    def domains(hosts: set[int]) -> list[int]:
        return [len({labels[host][:level] for host in hosts}) for level in (1, 2)]

    rest = set(order[count:])
    least = min(domains({*stay, *rest}) for stay in combinations(order[:count], count - shrink))
    found = replan(before, nodes, shrink={"rollout": shrink}, renumber=True)
    homes = [hosts(found.plan)[row.cluster_node_rank] for row in found.plan["rollout"]][::4]
    assert domains({*homes, *rest}) == least and len(homes) == count - shrink
    assert homes == [host for host in order[:count] if host in homes]  # the others close up


_RULES = st.sampled_from(
    [
        {},
        {"segment": 2},
        {"segment": {"rollout": {"block": 2, "nvlink": 1}}},
        {"keep": {"rollout": {"world": "block"}}},
        {"keep": {"rollout": {"tp": "nvlink"}}},
        {"keep": {"rollout": {"world": {"nvlink": 2}}}},
        {"prefer": {"rollout": {"world": "nvlink"}}},
        {"balance": {"rollout": "nvlink"}},
        {"balance": "block"},
        {"cap": {"nvlink": 2}},
        {"cap": {"block": 4}, "prefer": {"rollout": {"world": "block"}}},
    ]
)


def sets_of(topology: dict[str, Any], nodes: range) -> dict[str, Any]:
    """Return the arguments of a `Case` for the rules of a rollout on these node ranks, engines of 4 accelerators."""
    found: dict[str, Any] = {"sets": [], "preferred": [], "balanced": [], "caps": {}}
    segment = topology.get("segment", 1)
    sizes = segment["rollout"] if isinstance(segment, dict) else {"nvlink": segment}
    for level, size in sizes.items():
        runs = [nodes[at : at + size] for at in range(0, len(nodes), size)]
        found["sets"] += [(LEVELS.index(level), run) for run in runs if size > 1]
    for key, into in (("keep", "sets"), ("prefer", "preferred")):
        for kind, level in topology.get(key, {}).get("rollout", {}).items():
            if kind == "world" and isinstance(level, str):
                found[into].append((LEVELS.index(level), nodes))
    balance = topology.get("balance")
    if balance:
        found["balanced"] = [(LEVELS.index(balance if isinstance(balance, str) else balance["rollout"]), nodes)]
    found["caps"] = {LEVELS.index(level): most for level, most in topology.get("cap", {}).items()}
    return found


def cheapest(case: Case, fixed: list[int], more: int) -> list[int] | None:
    """Return the least cost of all ways to choose more nodes that break nothing."""
    free = [node for node in range(len(case.labels)) if node not in fixed]
    costs = [case.cost([*fixed, *chosen]) for chosen in permutations(free, more)]
    return min((cost for cost in costs if cost[0] == 0), default=None)


@settings(max_examples=120)
@given(st.data())
def test_every_small_instance(data: st.DataObject) -> None:
    """Growth is possible where some choice of nodes is, and costs as little; old rows stay; shrinking undoes it."""
    labels = data.draw(_LABELS)
    nodes, topology = cluster(labels), data.draw(_RULES)
    order = data.draw(st.permutations(range(len(labels))))
    count = data.draw(st.integers(1, len(labels) - 1))
    more = data.draw(st.integers(1, min(4, len(labels) - count + 1)))
    try:
        before = job(list(order[:count]), topology, nodes, rollout=(f"0-{4 * count - 1}", {"tp": 4}))
    except PlacementError:
        return
    whole = Inventory.uniform(count + more, 4)
    rollout = Component.place("rollout", whole, ("cluster",), Chunks(list(range(4 * (count + more))), 1))
    parts = {"rollout": rollout.with_settings(parallel=Parallel(tp=4))}
    case = Case(labels, [0] * len(labels), [0] * (count + more), parts, **sets_of(topology, range(count + more)))
    halves = "keep" in topology and isinstance(topology["keep"]["rollout"].get("world"), dict)
    segment = topology.get("segment", 1)
    uneven = (count + more) % (2 if segment != 1 else 1)
    least = None if count + more > len(labels) or uneven else cheapest(case, hosts(before), more)
    try:
        found = replan(before, nodes, grow={"rollout": more})
    except PlacementError as refused:
        assert "ended early" not in refused.message and (least is None or halves)
        return
    assert least is not None
    after = hosts(found.plan)
    assert after[:count] == hosts(before) and (halves or case.cost(after) == least)
    assert_same_rows(before, found.plan)
    assert replan(found.plan, nodes, shrink={"rollout": more}).plan == before
    assert replan(before, nodes, grow={"rollout": 0}).plan == before


_JOINT = st.sampled_from(
    [
        {"keep": {"rollout+actor": {"world": "block"}}},
        {"prefer": {"rollout+actor": {"world": "nvlink"}}},
        {"cap": {"block": 4}, "balance": {"rollout": "block"}},
        {"balance": "nvlink"},
        {"keep": {"actor": {"world": "nvlink"}}, "segment": {"rollout": {"block": 2}}},
        {},
    ]
)


@settings(max_examples=200)
@given(st.data())
def test_beside_another_component_other_hardware_and_another_job(data: st.DataObject) -> None:
    labels = data.draw(_LABELS)
    everything = range(len(labels))
    kinds = [data.draw(st.sampled_from([0, 0, 1])) for _ in everything]
    entries = [
        {**entry, "accelerators": [4, 2][kind], "ranks": rank}
        for rank, (entry, kind) in enumerate(zip(one_by_one(labels), kinds, strict=True))
    ]
    nodes = Inventory.from_dict({"levels": list(LEVELS), "nodes": entries})
    order = data.draw(st.permutations(everything))
    large, small = ([node for node in order if kinds[node] == kind] for kind in (0, 1))
    taken = [node for node in large[2:] if data.draw(st.booleans())]
    free = [node for node in large if node not in taken]
    if len(free) < 2 or not small:
        return
    count, more, topology = data.draw(st.integers(1, len(free) - 1)), data.draw(st.integers(1, 3)), data.draw(_JOINT)
    mine = [*small[:1], *free[:count]]
    parts = {"actor": ("0-1", {"tp": 2}), "rollout": (f"2-{4 * count + 1}", {"tp": 4})}
    try:
        before = job(mine, topology, nodes, **parts)
    except PlacementError:
        return
    other = job(taken, {}, nodes, other=(f"0-{4 * len(taken) - 1}", {"tp": 4})) if taken else None
    ranks = range(count + more + 1)
    whole = Inventory.from_dict(
        {"nodes": [{"ranks": 0, "accelerators": 2}, {"ranks": f"1-{count + more}", "accelerators": 4}]}
    )
    places = {"actor": range(2), "rollout": range(2, 2 + 4 * (count + more))}
    case = Case(
        labels,
        kinds,
        [1, *[0] * (count + more)],
        {
            name: Component.place(name, whole, ("cluster",), Chunks(list(used), 1), parallel=Parallel(tp=tp))
            for (name, used), tp in zip(places.items(), (2, 4), strict=True)
        },
    )
    level = {name: index for index, name in enumerate(LEVELS)}
    both = "rollout+actor"
    case.sets = [(level[kinds["world"]], ranks) for name, kinds in topology.get("keep", {}).items() if name == both]
    case.preferred = [(level[kinds["world"]], ranks) for kinds in topology.get("prefer", {}).values()]
    balance = topology.get("balance", {})
    if isinstance(balance, str):
        case.balanced = [(level[balance], ranks)]
    elif balance:
        case.balanced = [(level[balance["rollout"]], ranks[1:])]
    if "segment" in topology:
        case.sets = [(0, ranks[at : at + 2]) for at in range(1, len(ranks), 2)]
    case.caps = {level[name]: most for name, most in topology.get("cap", {}).items()}
    uneven = "segment" in topology and (count + more) % 2
    rest = free[count:]
    costs = [counted_cost(case, [*mine, *chosen], taken) for chosen in permutations(rest, more)]
    least = min((cost for cost in costs if cost[0] == 0), default=None) if not uneven else None
    try:
        found = replan(before, nodes, grow={"rollout": more}, beside=[other] if other else [])
    except PlacementError as refused:
        assert least is None and "ended early" not in refused.message
        return
    assert least is not None and counted_cost(case, hosts(found.plan), taken) == least
    assert hosts(found.plan)[: count + 1] == mine
    assert_same_rows(before, found.plan)


def one_by_one(labels: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"hostname": f"n{rank}", "labels": dict(zip(LEVELS, pair, strict=True))} for rank, pair in enumerate(labels)
    ]


def counted_cost(case: Case, nodes: list[int], taken: list[int]) -> list[int]:
    """Return the cost where the nodes of another job are no room, and count for caps only."""
    left = [node for node in range(len(case.labels)) if node not in taken]
    position = {node: index for index, node in enumerate(left)}
    own = Case(
        [case.labels[node] for node in left],
        [case.kinds[node] for node in left],
        case.needs,
        case.components,
        sets=case.sets,
        preferred=case.preferred,
        balanced=case.balanced,
    )
    cost = own.cost([position[node] for node in nodes])
    for level, most in case.caps.items():
        counts = [sum(case.domain(node, level) == one for node in [*nodes, *taken]) for one in used(case, nodes, level)]
        cost[0] += sum(max(0, count - most) for count in counts)
    return cost


def used(case: Case, nodes: list[int], level: int) -> set[tuple[object, ...]]:
    return {case.domain(node, level) for node in nodes}


def assert_same_rows(before: Plan, after: Plan) -> None:
    """No process that stays has another place, other devices or other coordinates."""
    for name, old in before.items():
        new = after[name]
        for rank in range(len(old)):
            one, other = old[rank], new[rank]
            for field in ("cluster_node_rank", "devices", "visible_accelerators", "local_rank", "node_group_label"):
                assert getattr(one, field) == getattr(other, field)
            for slot, same in zip(old.coordinates(rank), new.coordinates(rank), strict=True):
                assert all(same[kind] == slot[kind] for kind in slot.keys() & same.keys())
            assert (
                after.inventory.node(one.cluster_node_rank).hostname
                == before.inventory.node(one.cluster_node_rank).hostname
            )


_SIZE = st.sampled_from([1, 2, 4])


@settings(max_examples=80)
@given(st.data())
def test_sizes_and_rules_of_processes(data: st.DataObject) -> None:
    """Old processes keep everything, new ones fill whole nodes, and it can be undone, whatever the sizes and rules."""
    sizes = {kind: data.draw(_SIZE) for kind in ("tp", "cp", "ep", "etp", "fsdp")}
    order = data.draw(st.sampled_from([ENGINE_ORDER, "tp-cp-ep-dp-pp"]))
    parallel = Parallel(**sizes, pp=data.draw(_SIZE) if order == ENGINE_ORDER else 1, order=order)
    each, count = data.draw(_SIZE), data.draw(st.integers(1, 6))
    inventory, used = Inventory.uniform(40, 4), Inventory.uniform(count, 4)
    total = 4 * count
    rules = [
        Chunks(list(range(total)), each),
        Chunks([*range(total // 2, total), *range(total // 2)], each),
        Packed(0, total - 1, each, 1),
        RankMap.parse(f"0-{total - 1}:0-{total // each - 1}"),
        RankMap.parse(f"0-{total - 1}:0-{total * each - 1}"),
    ]
    if total % (2 * each) == 0:
        rules.append(Packed(0, total - 1, each, 2) if each > 1 else rules[0])
    rule = data.draw(st.sampled_from(rules))
    try:
        component = Component.place("rollout", used, ("cluster",), rule, parallel=parallel)
    except PlacementError:
        return
    before = Plan(used, [component])
    if not parallel.stated:
        return
    for more in range(1, 65):
        try:
            found = replan(before, inventory, grow={"rollout": more})
        except PlacementError as refused:
            assert refused.code in ("invalid-value", "no-spare")
            continue
        after = found.plan["rollout"]
        assert after.layout.size("dp") == component.layout.size("dp") + more
        assert_same_rows(before, found.plan)
        new = [device for move in found.gains if move.after is not None for device in move.after.devices]
        fresh = range(count, found.plan.inventory.num_nodes)
        assert set(new) == {(node, index) for node in fresh for index in range(4)}
        assert replan(found.plan, inventory, shrink={"rollout": more}).plan == before
        break


def test_node_groups_grow_with_their_component() -> None:
    section = {
        "num_nodes": 4,
        "node_groups": [
            {"label": "train", "node_ranks": "0-1"},
            {"label": "infer", "node_ranks": "2-3", "env_configs": [{"node_ranks": "3", "env_vars": [{"A": "1"}]}]},
        ],
        "component_placement": {
            "actor": {"node_group": "train", "placement": "0-7", "parallel": {"tp": 4}},
            "rollout": {"node_group": "infer", "placement": "0-7", "parallel": {"tp": 4}},
        },
    }
    before = rankplan.plan({"cluster": section}, NODES)
    found = replan(before, NODES, grow={"actor": 1, "rollout": 2}).plan
    assert found.section is not None
    groups = {group.label: group for group in found.section.node_groups}
    assert str(groups["train"].node_ranks) == "0-1,4" and str(groups["infer"].node_ranks) == "2-3,5-6"
    assert groups["infer"].environment(6)[0] == {"A": "1"} and groups["infer"].environment(2)[0] == {}
    assert_same_rows(before, found)
    assert found.on(found.inventory) == found
    assert replan(found, NODES, shrink={"actor": 1, "rollout": 2}).plan == before or hosts(found)[:4] == hosts(before)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    NODES.save(tmp_path / "nodes.json")
    engines(TWO, {"segment": 2}).save(tmp_path / "plan.json")
    return tmp_path


def run(folder: Path, *flags: str) -> Result:
    words = ["replan", str(folder / "plan.json"), "--inventory", str(folder / "nodes.json"), *flags]
    return CliRunner().invoke(main, words)


def test_flags(saved: Path) -> None:
    done = run(saved, "--grow", "rollout=1", "-o", str(saved / "more.json"))
    assert done.stdout == (
        "0 of 16 ranks move; 16 stay; 8 more data groups cross nvlink domains\n"
        "rollout grows from 2 data groups to 3: ranks 16-23 on n11, n12\n"
    )
    assert hosts(Plan.load(saved / "more.json")) == [*TWO, 11, 12]
    done = run(saved, "--shrink", "rollout=1")
    assert done.stdout.splitlines()[1] == "rollout shrinks from 2 data groups to 1: 8 of 16 ranks"


@pytest.mark.parametrize("count", ["0", "-1", "2.5", "true", "many"])
def test_numbers_that_are_none(saved: Path, count: str) -> None:
    for flag in ("--grow", "--shrink"):
        done = run(saved, flag, f"rollout={count}")
        shown = f"'{count}'" if count == "many" else count
        assert done.exit_code == 1
        assert f"error[invalid-value]: `rollout` is {shown}; it must be a whole number of 1 or more" in done.stderr


def test_wrong_usage(saved: Path) -> None:
    assert "'rollout' is not COMPONENT=N; write rollout=2" in run(saved, "--grow", "rollout").stderr
    assert "'=2' names no component; write rollout=2" in run(saved, "--grow", "=2").stderr
    for flag, text in (("--grow", "rollout="), ("--shrink", "rollout="), ("--shrink", "rollout=null")):
        assert f"{text!r} has no number; write rollout=1" in run(saved, flag, text).stderr
    assert "rollout has two numbers; state one" in run(saved, "--grow", "rollout=1", "--grow", "rollout=2").stderr

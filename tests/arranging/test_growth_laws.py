"""Laws of growing and shrinking, against every choice of nodes for small instances."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import Chunks, Inventory, Packed, Plan, RankMap, replan
from rankplan.arranging.replanned import Replanned
from rankplan.errors import PlacementError
from rankplan.parallel import Parallel
from rankplan.plans.component import Component
from support.growth import LEVELS, assert_same_rows, cluster, hosts, job
from support.oracle_arrange import Case
from support.outcomes import at_least, outcome

_LABELS = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("abc")), min_size=3, max_size=9)


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


@at_least(placed=0.4, grown=0.2)
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
    outcome("placed")
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
    outcome("grown")
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


@at_least(placed=0.3, grown=0.15)
@settings(max_examples=200)
@given(st.data())
def test_beside_another_component_other_hardware_and_another_job(data: st.DataObject) -> None:
    labels = data.draw(_LABELS)
    everything = range(len(labels))
    kinds = data.draw(st.permutations([1, 0, 0, *(data.draw(st.sampled_from([0, 0, 1])) for _ in everything[3:])]))
    entries = [
        {**entry, "accelerators": [4, 2][kind], "ranks": rank}
        for rank, (entry, kind) in enumerate(zip(one_by_one(labels), kinds, strict=True))
    ]
    nodes = Inventory.from_dict({"levels": list(LEVELS), "nodes": entries})
    order = data.draw(st.permutations(everything))
    large, small = ([node for node in order if kinds[node] == kind] for kind in (0, 1))
    taken = [node for node in large[2:] if data.draw(st.booleans())]
    free = [node for node in large if node not in taken]
    count, more, topology = data.draw(st.integers(1, len(free) - 1)), data.draw(st.integers(1, 3)), data.draw(_JOINT)
    mine = [*small[:1], *free[:count]]
    parts = {"actor": ("0-1", {"tp": 2}), "rollout": (f"2-{4 * count + 1}", {"tp": 4})}
    try:
        before = job(mine, topology, nodes, **parts)
    except PlacementError:
        return
    outcome("placed")
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
    costs = [counted_cost(case, [*mine, *chosen], taken, mine) for chosen in permutations(rest, more)]
    least = min((cost for cost in costs if cost[0] == 0), default=None) if not uneven else None
    try:
        found = replan(before, nodes, grow={"rollout": more}, beside=[other] if other else [])
    except PlacementError as refused:
        assert least is None and "ended early" not in refused.message
        return
    outcome("grown")
    assert least is not None and counted_cost(case, hosts(found.plan), taken, mine) == least
    assert hosts(found.plan)[: count + 1] == mine
    assert_same_rows(before, found.plan)


def one_by_one(labels: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"hostname": f"n{rank}", "labels": dict(zip(LEVELS, pair, strict=True))} for rank, pair in enumerate(labels)
    ]


def counted_cost(case: Case, nodes: list[int], taken: list[int], before: list[int]) -> list[int]:
    """Return the cost where the nodes of another job are no room, and count for caps only.

    The nodes that the plan had ``before`` are left to it, also in a domain that the other job has filled since.
    """
    left = [node for node in range(len(case.labels)) if node not in taken]
    position = {node: index for index, node in enumerate(left)}
    alone = Case(
        [case.labels[node] for node in left],
        [case.kinds[node] for node in left],
        case.needs,
        case.components,
        sets=case.sets,
        preferred=case.preferred,
        balanced=case.balanced,
    )
    cost = alone.cost([position[node] for node in nodes])
    for level, most in case.caps.items():
        for domain in used(case, nodes, level):
            own, others, had = (
                sum(case.domain(node, level) == domain for node in some) for some in (nodes, taken, before)
            )
            cost[0] += max(0, own - max(most - others, had))
    return cost


def used(case: Case, nodes: list[int], level: int) -> set[tuple[object, ...]]:
    return {case.domain(node, level) for node in nodes}


_SIZE = st.sampled_from([1, 2, 4])


@at_least(grown=0.15)
@settings(max_examples=80)
@given(st.data())
def test_sizes_and_rules_of_processes(data: st.DataObject) -> None:
    """Old processes keep everything, new ones fill whole nodes, and it can be undone, whatever the sizes and rules."""
    sizes = {kind: data.draw(_SIZE) for kind in ("tp", "cp", "ep", "etp", "fsdp")}
    order = data.draw(st.sampled_from([Parallel.ENGINE_ORDER, "tp-cp-ep-dp-pp"]))
    parallel = Parallel(**sizes, pp=data.draw(_SIZE) if order == Parallel.ENGINE_ORDER else 1, order=order)
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
    outcome("grown")
    found, more = smallest_growth(before, inventory)
    after = found.plan["rollout"]
    assert after.layout.size("dp") == component.layout.size("dp") + more
    assert_same_rows(before, found.plan)
    new = [device for move in found.gains if move.after is not None for device in move.after.devices]
    fresh = range(count, found.plan.inventory.num_nodes)
    assert set(new) == {(node, index) for node in fresh for index in range(4)}
    assert replan(found.plan, inventory, shrink={"rollout": more}).plan == before


def smallest_growth(before: Plan, inventory: Inventory) -> tuple[Replanned, int]:
    """Return the growth of the rollout by the fewest data groups that fill whole nodes: there always is one."""
    for more in range(1, 65):
        try:
            return replan(before, inventory, grow={"rollout": more}), more
        except PlacementError as refused:
            assert refused.code in ("invalid-value", "no-spare")
    raise AssertionError("no number of data groups is accepted")

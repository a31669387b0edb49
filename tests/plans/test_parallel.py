"""Parallel groups: slots, coordinates, groups, crossings and weight maps against an oracle that expands everything."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rankplan import (
    Chunks,
    Component,
    ComponentPlacement,
    Inventory,
    Parallel,
    PlacementError,
    Plan,
    WeightMap,
    load_config,
)
from rankplan.plans.component import PlacementMode
from rankplan.plans.fitting import fitted
from rankplan.rlinf.dialect import DIALECT as rlinf
from support import oracle_parallel as oracle
from support.cases import Case, planned, valid_cases
from support.goldens import lines, named
from support.outcomes import at_least, outcome, some
from support.rejected.parallel import REFUSED, WARNED

KINDS = ("tp", "cp", "dp", "pp", "etp", "ep", "edp")
SIZES = ("tp", "cp", "ep", "etp", "pp")
ORDERS = ["-".join(order) for order in permutations(Parallel.ORDER.split("-"))]

# ------------------------------------------------------------------------------------------- generated components


@st.composite
def anywhere(draw: st.DrawFn) -> Component:
    """A component with accelerators in any order; some processes share one, and some need two nodes."""
    nodes = draw(st.lists(st.sampled_from([1, 2, 4, 6, 8]), min_size=1, max_size=5))
    inventory = Inventory.from_dict({"nodes": [{"ranks": rank, "accelerators": n} for rank, n in enumerate(nodes)]})
    ranks = list(range(sum(nodes)))
    order = draw(st.sampled_from(["in order", "rotated", "reversed", "any", "twice"]))
    if order == "rotated":
        turn = draw(st.integers(1, len(ranks)))
        ranks = ranks[turn:] + ranks[:turn]
    elif order == "any":
        ranks = draw(st.permutations(ranks))
    ranks = {"reversed": ranks[::-1], "twice": ranks * 2}.get(order, ranks)
    each = draw(st.integers(1, min(4, len(set(ranks)))))
    return Component.place("actor", inventory, ("cluster",), Chunks(ranks[: len(ranks) // each * each], each))


@st.composite
def placed(draw: st.DrawFn) -> Component:
    """A component of a generated config, or one with accelerators in any order."""
    if draw(st.booleans()):
        return draw(anywhere())
    case: Case = draw(valid_cases())
    plan = planned(case)
    return plan[draw(st.sampled_from(plan.components))]


@st.composite
def sized(draw: st.DrawFn) -> Component:
    """A component with sizes that divide its slots."""
    component = draw(placed())
    names = draw(st.permutations(SIZES))[: draw(st.integers(0, len(SIZES)))]
    sizes = {name: draw(st.sampled_from(divisors(component))) for name in names}
    while not divides(component, dict.fromkeys(SIZES, 1) | sizes):
        sizes.popitem()
    order = draw(st.sampled_from(ORDERS))
    if not oracle.has_stages(component.slots, dict.fromkeys(SIZES, 1) | sizes, order):
        order = draw(st.sampled_from([order for order in ORDERS if order.endswith("pp")]))
    return component.with_settings(parallel=Parallel(**sizes, order=order))


def divisors(component: Component) -> list[int]:
    return [size for size in range(1, component.slots + 1) if component.slots % size == 0]


def divides(component: Component, sizes: oracle.Sizes) -> bool:
    return oracle.fits(component.slots, sizes) and not uneven(component, sizes)


def uneven(component: Component, sizes: oracle.Sizes) -> bool:
    """Whether some process has neither a part of a single model nor whole ones."""
    counts = {len(component.layout.slots_of(rank)) for rank in range(len(component))} - {1}
    model = sizes["tp"] * sizes["cp"] * sizes["pp"]
    return any(count % model and model % count for count in counts)


def sizes_of(component: Component) -> oracle.Sizes:
    return {name: getattr(component.parallel, name) for name in SIZES}


def every(component: Component) -> list[dict[str, int]]:
    return oracle.coordinates(component.slots, sizes_of(component), component.parallel.order)


def node_kinds(inventory: Inventory) -> list[tuple[str, int]]:
    specs = map(inventory.node, range(inventory.num_nodes))
    return [(spec.accelerator_type, spec.num_accelerators) for spec in specs]


# -------------------------------------------------------------------------------------------------------- the laws


@given(placed())
def test_slots_are_the_accelerators_of_the_processes(component: Component) -> None:
    wanted, layout = oracle.slots(component), component.layout
    assert component.slots == len(wanted)
    assert [(layout.process_of(slot), *layout.place(slot)) for slot in range(len(wanted))] == wanted
    ranges = [layout.slots_of(rank) for rank in range(len(component))]
    assert [slot for slots in ranges for slot in slots] == list(range(len(wanted)))
    assert all(layout.process_of(slot) == rank for rank, slots in enumerate(ranges) for slot in slots)


@at_least(accepted=0.1, refused=0.2)
@given(placed(), st.data())
def test_sizes_are_refused_unless_they_divide_the_slots(component: Component, data: st.DataObject) -> None:
    size = st.one_of(st.sampled_from(divisors(component)), st.integers(1, 8), st.just(1))
    sizes = {name: data.draw(size) for name in SIZES}
    try:
        component.with_settings(parallel=Parallel(**sizes))
    except PlacementError as refused:
        outcome("refused")
        codes = {fault.code for fault in refused.diagnostics}
        assert codes <= {"parallel-idle", "parallel-not-divisible"}
        assert ("parallel-idle" in codes) == uneven(component, sizes)
        assert not divides(component, sizes)
        assert all(fault.help for fault in refused.diagnostics)
    else:
        outcome("accepted")
        assert divides(component, sizes)


@at_least(accepted=0.2, refused=0.1)
@given(st.tuples(*[st.sampled_from([1, 2])] * 3), st.sampled_from(ORDERS))
def test_an_order_is_refused_if_a_slot_would_have_two_pipeline_stages(drawn: tuple[int, ...], order: str) -> None:
    component, sizes = actor("all", {}), dict(zip(("tp", "cp", "etp"), drawn, strict=True)) | {"ep": 2, "pp": 2}
    try:
        component.with_settings(parallel=Parallel(**sizes, order=order))
    except PlacementError as refused:
        outcome("refused")
        assert (refused.code, refused.help) == ("invalid-value", "use an order that ends in pp")
        assert not oracle.has_stages(component.slots, sizes, order)
    else:
        outcome("accepted")
        assert oracle.has_stages(component.slots, sizes, order)


@given(sized())
def test_coordinates_and_slots_are_inverse(component: Component) -> None:
    found = [component.layout.coordinates(slot) for slot in range(component.slots)]
    wanted, kinds = every(component), component.layout.kinds
    assert found == [{kind: each[kind] for kind in kinds} for each in wanted]
    assert len({tuple(each.items()) for each in found}) == component.slots
    shape, names = component.mesh()
    assert numpy.prod(shape) == component.slots and set(names) <= set(kinds)
    mesh = numpy.arange(component.slots).reshape(shape)
    assert all(mesh[tuple(each[name] for name in names)] == slot for slot, each in enumerate(found))
    columns = component.layout.to_numpy()
    assert {name: column.tolist() for name, column in columns.items()} == {
        "slot_starts": [*(component.layout.slots_of(rank).start for rank in range(len(component))), component.slots],
        **{kind: [each[kind] for each in wanted] for kind in kinds},
    }
    slots = [component.layout.slots_of(rank) for rank in range(len(component))]
    for rank, own in enumerate(slots):
        assert component.coordinates(rank) == [found[slot] for slot in own]


@given(sized(), st.sampled_from(KINDS))
def test_groups_of_a_kind_partition_the_slots(component: Component, kind: str) -> None:
    groups = component.groups(kind)
    assert sorted(map(list, groups)) == oracle.groups(kind, every(component))
    assert sorted(slot for group in groups for slot in group) == list(range(component.slots))
    assert all(groups[groups.of(slot)][every(component)[slot][kind]] == slot for slot in range(component.slots))
    assert [groups.index(group) for group in groups] == list(range(len(groups)))
    assert groups[::-1] == list(groups)[::-1] and groups[-1] in groups and range(0) not in groups


@given(sized(), st.sampled_from(KINDS))
def test_crossings_are_those_of_expanded_groups(component: Component, kind: str) -> None:
    places, spans = oracle.slots(component), component.spans(kind)
    members = [list(group) for group in component.groups(kind)]
    assert spans.crossing == oracle.crossing(members, places)
    assert spans.within + spans.crossing == len(members)
    first = next((index for index, group in enumerate(members) if oracle.crossing([group], places)), None)
    assert spans.first_crossing == first


@given(sized())
def test_warnings_are_those_of_expanded_groups(component: Component) -> None:
    places, wanted = oracle.slots(component), []
    for kind in ("tp", "cp", "etp"):
        wanted += ["group-spans"] * (component.spans(kind).crossing > 0)
    members = oracle.groups("dp", every(component))
    wanted += ["rail-mismatch"] * (oracle.off_rails(members, places, node_kinds(component.inventory)) > 0)
    found = component.parallel_warnings()
    assert [warning.code for warning in found] == (wanted if component.parallel.stated else [])
    assert all(warning.warning and warning.message.startswith(f"{component.name}: ") for warning in found)


# ----------------------------------------------------------------------------------------------------- weight maps


def pair(senders: int, tp: int, receivers: int, receiver_tp: int, first: int = 0, node_size: int = 8) -> Plan:
    """A sender on the accelerators from 0 on, and a receiver on those from ``first`` on."""
    nodes = -(-max(senders, first + receivers) // node_size)
    entries = {
        "actor": {"placement": f"0-{senders - 1}", "parallel": {"tp": tp}},
        "rollout": {"placement": f"{first}-{first + receivers - 1}", "parallel": {"tp": receiver_tp}},
    }
    config = {"cluster": {"num_nodes": nodes, "component_placement": entries}}
    return ComponentPlacement(config, Inventory.uniform(nodes, node_size)).plan()


def rlinfs(world: int, tp: int, _: int, receiver_tp: int) -> Plan:
    """A collocated job of RLinf's, whose rollout has accelerators in RLinf's order."""
    nodes = -(-world // 8)
    config = {
        "cluster": {"num_nodes": nodes, "component_placement": {"actor,rollout": f"0-{world - 1}"}},
        "actor": {"model": {"tensor_model_parallel_size": tp}},
        "rollout": {"tensor_parallel_size": receiver_tp},
    }
    return rlinf.plan(config, Inventory.uniform(nodes, 8))


@pytest.mark.parametrize("line", lines("rlinf_rank_map"), ids=lambda line: line["id"])
def test_weight_maps_agree_with_rlinf(line: dict[str, Any]) -> None:
    """RLinf's map wherever every receiver has a sender in it; elsewhere a complete map, or a refusal."""
    shape = line["actor_world"], line["actor_tp"], line["rollout_world"], line["rollout_tp"]
    senders, tp, receivers, receiver_tp = shape
    collocated = line["mode"] == "COLLOCATED"
    if senders % tp or receivers % receiver_tp:
        with pytest.raises(PlacementError) as refused:
            pair(*shape)
        assert refused.value.code == "parallel-not-divisible"
        return
    plan = pair(*shape, 0 if collocated else senders)
    if tp > 1 and tp % receiver_tp:
        with pytest.raises(PlacementError) as refused:
            plan.weight_map("actor", "rollout")
        assert refused.value.code == "no-weight-sender"
        return
    if collocated and senders == receivers and tp % receiver_tp == 0:
        plan = rlinfs(*shape)
    found = plan.weight_map("actor", "rollout")
    check_weights(found, receivers)
    result = line["result"]
    if "error" in result:
        assert collocated is False and line["quirks"] == []
    elif result["uncovered"]:
        assert "no-sender" in line["quirks"] and named("no-weight-sender")
    elif not collocated or senders == receivers:  # RLinf's collocated components have the same accelerators
        outside = {tuple(one) for one in result["outside"]}
        wanted = [[tuple(one) for one in sent if tuple(one) not in outside] for sent in result["sends"]]
        assert [[divmod(slot, receiver_tp) for slot in sent] for sent in found] == wanted
        assert not outside or named("weights-to-nowhere")


def nearness(plan: Plan, weights: Sequence[Sequence[int]]) -> tuple[int, int]:
    """How many receivers have their sender on their own accelerator, and how many on their own node."""
    senders, receivers = (
        [component.layout.place(slot) for slot in range(component.slots)] for component in plan.values()
    )
    near = [(senders[sender], receivers[slot]) for sender, sent in enumerate(weights) for slot in sent]
    return sum(one == other for one, other in near), sum(one[0] == other[0] for one, other in near)


@pytest.mark.parametrize("node_size", [2, 3, 4, 8])
def test_among_equally_near_maps_rlinfs_is_taken(node_size: int) -> None:
    """On the same accelerators, our map is RLinf's, or has more receivers near their senders."""
    rlinfs_maps, nearer_maps = 0, 0
    for line in lines("rlinf_rank_map"):
        result = line["result"]
        shape = line["actor_world"], line["actor_tp"], line["rollout_world"], line["rollout_tp"]
        if "error" in result or result["uncovered"] or shape[0] % shape[1] or shape[2] % shape[3]:
            continue
        plan = pair(*shape, node_size=node_size)
        outside = {tuple(one) for one in result["outside"]}
        existing = [[tuple(one) for one in sent if tuple(one) not in outside] for sent in result["sends"]]
        wanted = [[engine * shape[3] + part for engine, part in sent] for sent in existing]
        weights = list(plan.weight_map("actor", "rollout"))
        if weights == wanted:
            rlinfs_maps += 1
        else:
            nearer_maps += 1
            assert nearness(plan, weights) > nearness(plan, wanted), line["id"]
    assert rlinfs_maps > 480 and nearer_maps > 0


def test_the_oracle_of_weights_is_rlinfs() -> None:
    for line in some(line for line in lines("rlinf_rank_map") if "sends" in line["result"]):
        shape = line["actor_world"], line["actor_tp"], line["rollout_world"], line["rollout_tp"]
        wanted = [[engine * shape[3] + part for engine, part in sent] for sent in line["result"]["sends"]]
        assert oracle.rlinf_senders(*shape, line["mode"] == "COLLOCATED") == wanted, line["id"]


def check_weights(found: Sequence[Sequence[int]], receivers: int) -> None:
    sent = [slot for each in found for slot in each]
    assert sorted(sent) == list(range(receivers)), "every receiver has one sender"
    loads = {len(each) for each in found}
    assert max(loads) - min(loads) <= 1, "no sender has two receivers more than another"


@at_least(mapped=0.4)
@given(placed(), placed(), st.data())
def test_every_receiver_has_one_sender(sender: Component, receiver: Component, data: st.DataObject) -> None:
    def with_tp(component: Component) -> Component:
        usual = dict.fromkeys(SIZES, 1)
        possible = [size for size in divisors(component) if divides(component, usual | {"tp": size})]
        return component.with_settings(parallel=Parallel(tp=data.draw(st.sampled_from(possible))))

    sender, receiver = with_tp(sender), with_tp(receiver)
    tp, receiver_tp = sender.layout.size("tp"), receiver.layout.size("tp")
    if tp > 1 and tp % receiver_tp:
        with pytest.raises(PlacementError, match="does not divide"):
            WeightMap(sender, receiver)
        return
    outcome("mapped")
    found = WeightMap(sender, receiver)
    check_weights(found, receiver.slots)
    assert len(found) == sender.slots
    for slot, receivers in enumerate(found):
        assert all(found.sender_of(one) == slot for one in receivers)
        share = max(tp // receiver_tp, 1)
        parts = {receiver.layout.coordinates(one).get("tp", 0) for one in receivers}
        assert tp == 1 or parts <= {sender.layout.coordinates(slot)["tp"] // share}


# Numbers of slots for which RLinf has no map.
UNBALANCED = [(senders, receivers) for senders in (2, 3) for receivers in range(senders + 1, 7) if receivers % senders]


@given(st.sampled_from(UNBALANCED), st.integers(0, 20))
@example((1, 3), 5)
def test_the_same_node_comes_first_where_there_is_a_choice(sizes: tuple[int, int], idle: int) -> None:
    """As many receivers have a sender on their node as in the best of all balanced maps."""
    senders, receivers = sizes
    plan = pair(senders, 1, receivers, 1, senders + idle)
    found = plan.weight_map("actor", "rollout")
    nodes = [[row.cluster_node_rank for row in plan[name]] for name in ("actor", "rollout")]
    local = sum(nodes[0][sender] == nodes[1][slot] for sender, sent in enumerate(found) for slot in sent)
    least, extra = divmod(receivers, senders)
    best = 0
    for more in {tuple(sorted(order)) for order in permutations(range(senders), extra)}:
        loads = [nodes[0][sender] for sender in range(senders) for _ in range(least + (sender in more))]
        for order in set(permutations(loads)):
            best = max(best, sum(map(int.__eq__, order, nodes[1])))
    assert local == best


@at_least(compared=0.4)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
)
@example([0, 1, 2, 3], [2, 3])  # they overlap partly
@example([0, 0, 1, 1], [0, 1])  # equal devices, unequal numbers of slots
@example([0, 1], [0, 0, 1, 1])
def test_the_same_device_comes_first_wherever_components_meet(senders: list[int], receivers: list[int]) -> None:
    """As many receivers have a sender on their device as in the best of all balanced maps."""
    nodes = Inventory.uniform(2, 2)
    chunks = [Chunks(sorted(devices), 1) for devices in (senders, receivers)]
    sender, receiver = (
        Component.place(name, nodes, ("cluster",), rule) for name, rule in zip("ar", chunks, strict=True)
    )
    found = WeightMap(sender, receiver)
    check_weights(found, receiver.slots)
    if set(senders).isdisjoint(receivers):
        return  # RLinf's map
    outcome("compared")
    wanted = [receiver.layout.place(slot) for slot in range(receiver.slots)]
    has = [sender.layout.place(slot) for slot in range(sender.slots)]
    same = sum(wanted[slot] == has[one] for one, sent in enumerate(found) for slot in sent)
    least, extra = divmod(receiver.slots, sender.slots)
    best = 0
    for more in combinations(range(sender.slots), extra):
        room = Counter(has[one] for one in range(sender.slots) for _ in range(least + (one in more)))
        best = max(best, sum((room & Counter(wanted)).values()))
    assert same == best


def test_components_that_overlap_partly_send_within_the_devices_they_share() -> None:
    found = pair(16, 1, 8, 1, 8).weight_map("actor", "rollout")
    assert list(found) == [[]] * 8 + [[slot] for slot in range(8)]


def test_the_same_device_comes_first() -> None:
    found = pair(4, 1, 6, 1).weight_map("actor", "rollout")
    assert list(found) == [[0, 4], [1, 5], [2], [3]]
    assert found[-1] == [3] and found[1:3] == [[1, 5], [2]] and found.sender_of(5) == 1
    with pytest.raises(IndexError, match="slot 4 of 4"):
        found[4]
    assert repr(found) == "<WeightMap from 4 slots of actor to 6 of rollout>"


@given(st.sampled_from([(4, 2, 8, 2, 4), (3, 1, 8, 1, 8), (8, 4, 6, 2, 0)]), st.sets(st.integers(0, 5)))
def test_the_map_of_some_ranks_is_their_part_of_the_whole_one(sizes: Any, ranks: set[int]) -> None:
    plan = pair(*sizes)
    whole, part = (plan.weight_map("actor", "rollout", ranks=wanted) for wanted in (None, iter(ranks)))
    slots = {slot for rank in ranks for slot in plan["rollout"].layout.slots_of(rank)}
    assert list(part.receivers) == sorted(slots) and list(whole.receivers) == list(range(sizes[2]))
    assert list(part) == part[:] == [[slot for slot in sent if slot in slots] for sent in whole]
    assert all(part.sender_of(slot) == whole.sender_of(slot) for slot in slots)
    assert repr(part).endswith(f"to {len(slots)} of rollout>")


def test_the_ranks_of_a_map_are_those_of_the_receiver() -> None:
    for rank in (-1, 6):
        with pytest.raises(ValueError, match=f"rollout has no rank {rank}; its ranks are 0 to 5"):
            pair(4, 1, 6, 1).weight_map("actor", "rollout", ranks=[0, rank])


def test_rlinfs_documented_collocated_example() -> None:
    assert list(pair(8, 4, 8, 2).weight_map("actor", "rollout")) == [[0], [2], [1], [3], [4], [6], [5], [7]]


# --------------------------------------------------------------------------------------------------- one component


def actor(placement: Any, parallel: Any, nodes: str = "2x8", **entry: Any) -> Component:
    inventory = Inventory.parse(nodes)
    placed = {"actor": {"placement": placement, "parallel": parallel, **entry}}
    config = {"cluster": {"num_nodes": inventory.num_nodes, "component_placement": placed}}
    return ComponentPlacement(config, inventory).plan()["actor"]


def test_megatrons_order() -> None:
    one = actor("all", {"tp": 4, "pp": 2})
    assert one.coordinates(6) == [{"tp": 2, "dp": 1, "pp": 0}] and one.coordinates(-1) == [{"tp": 3, "dp": 1, "pp": 1}]
    assert list(one.groups("tp")) == [range(4), range(4, 8), range(8, 12), range(12, 16)]
    assert one.groups("dp")[1] == range(1, 8, 4) and one.groups("pp")[7] == range(7, 16, 8)
    assert one.mesh() == ((2, 2, 4), ("pp", "dp", "tp"))
    assert repr(one.groups("pp")) == "<Groups: 8 of 2 slots, step 8>"
    assert [one.spans(kind).crossing for kind in ("tp", "dp", "pp", "cp")] == [0, 0, 8, 0]


def test_experts_divide_the_same_slots() -> None:
    one = actor("all", {"tp": 4, "ep": 4, "etp": 2})
    assert one.coordinates(7) == [{"tp": 3, "dp": 1, "etp": 1, "ep": 3, "edp": 0}]
    assert one.groups("ep")[0] == range(0, 8, 2) and one.groups("edp")[0] == range(0, 16, 8)
    assert one.mesh() == ((4, 4), ("dp", "tp"))


def test_without_experts_their_data_groups_are_the_data_groups() -> None:
    one = actor("0-7", {"tp": 2, "pp": 2, "order": Parallel.ENGINE_ORDER})
    assert list(one.groups("edp")) == list(one.groups("dp")) and len(one.groups("ep")) == 8


def test_engines_have_consecutive_slots() -> None:
    one = actor("all:0-3", {"tp": 2, "pp": 2, "order": Parallel.ENGINE_ORDER})
    assert one.slots == 16 and one.mesh() == ((4, 2, 2), ("dp", "pp", "tp"))
    assert one.coordinates(1) == [{"tp": t, "dp": 1, "pp": p} for p in range(2) for t in range(2)]


def test_shards_and_replicas_of_data_groups() -> None:
    one = actor("all", {"tp": 2, "fsdp": 4})
    assert one.mesh() == ((2, 4, 2), ("replica", "fsdp", "tp"))
    assert one.groups("fsdp")[0] == range(0, 8, 2) and one.groups("replica")[0] == range(0, 16, 8)
    assert one.coordinates(13) == [{"tp": 1, "dp": 6, "fsdp": 2, "replica": 1}]
    assert actor("all", {"fsdp": 16}).mesh() == ((16,), ("fsdp",))


def test_without_sizes_all_slots_are_one_data_group() -> None:
    one = actor("all", {})
    assert one.parallel == Parallel() and not one.parallel.stated
    assert one.mesh() == ((16,), ("dp",)) and list(one.groups("dp")) == [range(16)]
    assert one.parallel_warnings() == []


def test_processes_that_share_an_accelerator_are_slots() -> None:
    assert actor("0-1:0-7", {"tp": 2}).slots == 8
    assert actor("0-3:0-1", {"tp": 4}).slots == 4
    assert actor("all", {"tp": 2}, node_group="node").slots == 2


@pytest.mark.parametrize("kind", ["xp", "", "TP"])
def test_an_unknown_kind(kind: str) -> None:
    with pytest.raises(ValueError, match=f"unknown kind of group '{kind}'; the kinds are tp, cp, dp, "):
        actor("all", {}).groups(kind)


@pytest.mark.parametrize("rank", [16, -17])
def test_an_unknown_rank(rank: int) -> None:
    with pytest.raises((IndexError, OverflowError)):
        actor("all", {}).coordinates(rank)


# ------------------------------------------------------------------------------------------------------- the value


def test_sizes_are_a_value() -> None:
    one = Parallel(tp=4, pp=2, order=Parallel.ENGINE_ORDER)
    assert pickle.loads(pickle.dumps(one)) == one and hash(one) == hash(replace(one)) and one != Parallel(tp=4)
    assert repr(one) == "Parallel(tp=4, pp=2, order='tp-cp-ep-pp-dp')" and repr(Parallel()) == "Parallel()"
    assert Parallel(tp=numpy.int64(4)) == Parallel(tp=4)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("d4t2p1", {"dp": 4, "tp": 2}),
        ("t2", {"tp": 2}),
        (" p2 t4 ", {"pp": 2, "tp": 4}),
        ("d2 t 4e8c2", {"dp": 2, "tp": 4, "ep": 8, "cp": 2}),
        ("d1", {"dp": 1}),
    ],
)
def test_compact_text(text: str, sizes: dict[str, int]) -> None:
    assert Parallel.parse(text) == Parallel(**sizes)


REFUSED_SIZES = [
    ({"tp": 0}, "`tp` is 0; it must be a whole number of 1 or more"),
    ({"pp": -2}, "`pp` is -2; it must be a whole number of 1 or more"),
    ({"cp": "2"}, "`cp` is '2'; it must be a whole number of 1 or more"),
    ({"ep": True}, "`ep` is true; it must be a whole number of 1 or more"),
    ({"etp": 1.5}, "`etp` is 1.5; it must be a whole number of 1 or more"),
    ({"fsdp": None}, "`fsdp` is null; it must be a whole number of 1 or more"),
    ({"dp": 1 << 25}, "`dp` is 33554432; it must be a whole number of 1 or more"),
    ({"order": "tp-dp"}, "`order` is 'tp-dp'; it must name tp, cp, ep, dp and pp once each, fastest first"),
    ({"order": 1}, "`order` is 1; it must name tp, cp, ep, dp and pp once each, fastest first"),
]


@pytest.mark.parametrize(("sizes", "message"), REFUSED_SIZES, ids=str)
def test_sizes_that_are_none(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        Parallel(**sizes)
    assert (refused.value.code, refused.value.message) == ("invalid-value", message)


def test_every_fault_of_sizes_is_reported() -> None:
    with pytest.raises(PlacementError) as refused:
        Parallel(tp=0, cp=0, order="x")
    assert len(refused.value.diagnostics) == 3


# ----------------------------------------------------------------------------------------- messages, from a config

TEXT = """\
cluster:
  num_nodes: 2
  component_placement:
    actor:
      placement: {placement}
      parallel: {parallel}
"""


@pytest.mark.parametrize(("placement", "parallel", "place", "message", "help"), REFUSED, ids=lambda text: text[:40])
def test_faults_of_sizes_in_a_file(
    placement: str, parallel: str, place: str, message: str, help: str, tmp_path: Path
) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(TEXT.format(placement=placement, parallel=parallel))
    with pytest.raises(PlacementError) as refused:
        ComponentPlacement(load_config(path), Inventory.uniform(2, 8))
    found = refused.value
    assert f"{found.line}:{found.column}" == place
    assert (f"{found.code}: {found.message}", found.help) == (message, help)


def test_a_collocated_rollout_of_rlinf_gets_its_weights_in_place() -> None:
    config = {
        "cluster": {"num_nodes": 2, "component_placement": {"actor,rollout": "all"}},
        "actor": {"model": {"tensor_model_parallel_size": 4}},
        "rollout": {"tensor_parallel_size": 2},
    }
    plan = rlinf.plan(config, Inventory.uniform(2, 8))
    assert plan.mode is PlacementMode.COLLOCATED and len(plan["rollout"]) == 8
    weights, (actor, rollout) = plan.weight_map("actor", "rollout"), (one.layout for one in plan.values())
    assert all(rollout.place(receiver) == actor.place(slot) for slot, sent in enumerate(weights) for receiver in sent)


def test_every_component_of_a_key_has_the_sizes() -> None:
    config = {"cluster": {"num_nodes": 1, "component_placement": {"actor,ref": {"placement": "0-7", "parallel": "t4"}}}}
    plan = ComponentPlacement(config, Inventory.uniform(1, 8)).plan()
    assert plan["actor"].parallel == plan["ref"].parallel == Parallel(tp=4)


@pytest.mark.parametrize(("placement", "sizes", "nodes", "message", "help"), WARNED, ids=str)
def test_warnings(placement: str, sizes: dict[str, Any], nodes: str, message: str, help: str) -> None:
    found = actor(placement, sizes, nodes).parallel_warnings()
    assert (f"{found[0].code}: {found[0].message}", found[0].help) == (message, help)
    assert len(found) == 1


SENDERLESS = [
    # sender (slots, tp), receiver (slots, tp), help
    ((8, 2), (8, 4), "use rollout tensor size 1 or 2, or actor tensor size 4"),
    ((8, 4), (6, 3), "use rollout tensor size 1 or 2"),
    ((24, 4), (6, 3), "use rollout tensor size 1 or 2, or actor tensor size 6"),
    ((8, 4), (8, 8), "use rollout tensor size 1, 2 or 4, or actor tensor size 8"),
]


@pytest.mark.parametrize(("sender", "receiver", "help"), SENDERLESS, ids=str)
def test_weights_without_a_sender(sender: tuple[int, int], receiver: tuple[int, int], help: str) -> None:
    with pytest.raises(PlacementError) as refused:
        pair(*sender, *receiver).weight_map("actor", "rollout")
    message = (
        f"rollout tensor size {receiver[1]} does not divide actor tensor size {sender[1]}: no actor rank holds the "
        "weights of a rollout slot"
    )
    found = refused.value
    assert (found.code, found.message, found.help) == ("no-weight-sender", message, help)
    with pytest.raises(KeyError, match="unknown component 'critic'"):
        pair(8, 2, 8, 2).weight_map("actor", "critic")


# ------------------------------------------------------------------------------------------- other nodes, and files


@given(sized())
def test_a_saved_plan_keeps_sizes_and_order(component: Component) -> None:
    plan = Plan(component.inventory, [component])
    assert pickle.loads(pickle.dumps(plan))[component.name].parallel == component.parallel


def test_a_plan_file_has_the_sizes_that_are_stated(tmp_path: Path) -> None:
    one = actor("all", {"tp": 2, "dp": 4, "pp": 2, "order": Parallel.ORDER})
    (path := tmp_path / "plan.json").write_text("")
    Plan(one.inventory, [one]).save(path)
    assert '"parallel": {"tp": 2, "pp": 2, "dp": 4}' in path.read_text()
    loaded = Plan.load(path)
    assert loaded["actor"] == one and loaded["actor"].mesh() == one.mesh()
    Plan(one.inventory, [one.with_settings(parallel=Parallel())]).save(path)
    assert "parallel" not in path.read_text()


@pytest.mark.parametrize(
    ("parallel", "message"),
    [
        ('{"tp": 3}', "components.actor.parallel: 16 processes are not a multiple of tp 3"),
        ('{"tp": 0}', "components.actor.parallel.tp: `tp` is 0; it must be 1 or more"),
        ('{"tq": 3}', "components.actor.parallel.tq: unknown key `tq`"),
        (
            '{"order": "tp"}',
            "components.actor.parallel.order: `order` is 'tp'; it must name tp, cp, ep, dp and pp once",
        ),
    ],
)
def test_a_plan_file_with_other_sizes(parallel: str, message: str, tmp_path: Path) -> None:
    one = actor("all", {"tp": 2})
    Plan(one.inventory, [one]).save(path := tmp_path / "plan.json")
    path.write_text(path.read_text().replace('{"tp": 2}', parallel))
    with pytest.raises(PlacementError) as refused:
        Plan.load(path)
    found = refused.value
    assert found.code == "invalid-plan" and f"{found.path}: {found.message}".startswith(message)


def test_sizes_are_checked_on_other_nodes() -> None:
    one = actor("all", {"tp": 8})
    assert one.on(Inventory.uniform(4, 4)).spans("tp").crossing == 2
    assert fitted([one], Inventory.uniform(2, 8))[0].layout.spans("tp").crossing == 0

"""The requests of a program and those of a plan: which takes which, in any order and from several processes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Request, plan
from rankplan_hook import claims as hook_claims
from rankplan_hook.pins import Asked, NotPlanned, Pins, Slot
from support.claims import Memory, Process, asked, pins_of
from support.goldens import lines
from support.recorded_trainers import cluster, config

LINES = [line for line in lines("trainer_requests") if "plan_in_order" in line]
NAMES = [None, "poolverl_group_2:0", "poolverl_group_2:1", "CLUSTER-node0"]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing changes while a test waits."""
    monkeypatch.setattr(hook_claims, "AGAIN", 0.0)


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    """The requests of a plan: groups with and without names, and actors without groups."""
    found = []
    for index in range(draw(st.integers(1, 5))):
        sizes = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
        nodes = tuple(draw(st.lists(st.integers(0, 3), min_size=len(sizes), max_size=len(sizes))))
        name = draw(st.sampled_from(NAMES))
        strategy = draw(st.sampled_from(["PACK", "SPREAD", None] if name is None else ["PACK"]))
        found.append(Request(f"part{index}", None if name is None else re.escape(name), sizes, nodes, strategy))
    return found


def all_asked(planned: list[Request]) -> list[Asked]:
    """What the program asks for, in the order of the plan."""
    found = []
    for index, one in enumerate(planned):
        found += asked(one, re.sub(r"\\(.)", r"\1", one.name or ""), f"Class{index}")
    return found


@given(requests())
def test_in_the_order_of_the_plan_every_request_takes_its_own(planned: list[Request]) -> None:
    pins = pins_of(planned)
    process = Process(pins, Memory(pins.ids))
    taken = [process.ask(one)[0] for one in all_asked(planned)]
    assert sorted(claim.slot or Slot(-1) for claim in taken) == sorted(pins.all_slots())
    for claim, one in zip(taken, all_asked(planned), strict=True):
        assert claim.slot is not None
        own = planned[claim.slot.number]
        sizes = own.accelerators if claim.slot.entry < 0 else own.accelerators[claim.slot.entry :][:1]
        assert sizes == one.sizes
        assert claim.nodes == tuple(pins.ids[node] for node in pins.nodes(claim.slot))
    alike = [(one.sizes, one.name) for one in all_asked(planned) if one.actor is None]
    if len(set(alike)) == len(alike) and not any(one.name is None for one in planned):
        assert [claim.slot for claim in taken if claim.slot and claim.slot.entry < 0] == [
            Slot(index) for index, one in enumerate(planned) if one.strategy is not None
        ]


@given(requests(), st.randoms(use_true_random=False), st.integers(1, 3))
def test_in_any_order_and_from_several_processes_no_place_is_given_twice(
    planned: list[Request], random: Any, processes: int
) -> None:
    planned = [one for one in planned if one.name is None and one.strategy is not None]
    pins = pins_of(planned)
    store = Memory(pins.ids)
    several = [Process(pins, store) for _ in range(processes)]
    wanted = all_asked(planned)
    random.shuffle(wanted)
    taken = [random.choice(several).ask(one)[0].slot for one in wanted]
    assert sorted(slot for slot in taken if slot) == sorted(pins.all_slots())


@given(requests(), st.data())
def test_another_size_is_refused_by_name_and_number(planned: list[Request], data: st.DataObject) -> None:
    pins = pins_of(planned)
    store = Memory(pins.ids)
    process = Process(pins, store)
    own = data.draw(st.sampled_from(planned))
    sizes = (*own.accelerators[:-1], own.accelerators[-1] + 5)
    with pytest.raises(NotPlanned) as caught:
        process.ask(Asked(sizes, "mine"))
    assert caught.value.code == "plan-mismatch" and not store.values
    text = str(caught.value)
    assert (
        text.startswith("error[plan-mismatch]: placement group `mine` asks for ") and "the plan has left: part" in text
    )
    with pytest.raises(NotPlanned, match="an actor of class `Engine` asks for 9 accelerators without"):
        process.ask(Asked((9,), actor="Engine"))


@pytest.mark.parametrize(
    ("pattern", "shown"), [(re.escape("CLUSTER-node0"), "CLUSTER-node0"), (r"pool_\d+:0", r"pool_\d+:0")]
)
def test_another_name_is_refused_with_the_planned_one(pattern: str, shown: str) -> None:
    process = Process(pins := pins_of([Request("policy", pattern, (2,), (0,))]), Memory(pins.ids))
    with pytest.raises(NotPlanned) as caught:
        process.ask(Asked((2,), "mine"))
    assert caught.value.help == f"the plan names a group of this size `{shown}`: pass the same overrides to both"
    process.ask(Asked((2,), shown.replace(r"\d+", "7")))


def test_an_actor_of_another_class_is_told_whose_places_are_left() -> None:
    process = Process(pins := pins_of([Request("actor", None, (1, 1), (0, 0), None)]), Memory(pins.ids))
    process.ask(Asked((1,), actor="Policy"))
    with pytest.raises(NotPlanned) as caught:
        process.ask(Asked((1,), actor="Critic"))
    assert caught.value.help.startswith("the places that are left are for actors of class `Policy`, or let Ray place")


def test_a_spread_group_is_told_how_to_fit_the_plan() -> None:
    process = Process(pins := pins_of([Request("actor", None, (1, 1), (0, 0))]), Memory(pins.ids))
    with pytest.raises(NotPlanned) as caught:
        process.ask(Asked((1, 1), strategy="STRICT_SPREAD"))
    assert caught.value.help == "ask for PACK, or use a plan that has a node for each of them"


THREE = [(3, None, ())] * 8


def test_more_cpus_than_a_node_has_are_refused_at_the_call() -> None:
    eight = (1,) * 8
    pins = pins_of([Request("actor", None, eight, (0,) * 4 + (1,) * 4, amounts=THREE)], cpus=(16, 12))
    pins = Pins.decoded(pins.encoded())
    store = Memory(pins.ids)
    with pytest.raises(NotPlanned) as caught:
        Process(pins, store).ask(Asked(eight, "mine", cpus=(4,) * 8))
    assert caught.value.code == "plan-mismatch" and not store.values
    assert caught.value.message == (
        "placement group `mine` asks for 8 bundles of 1 accelerator and 16 CPUs on node 1 of the plan, which has 12; "
        "the plan has 24 CPUs (8 bundles of 3)"
    )
    Process(pins, store).ask(Asked(eight, "mine", cpus=(4,) * 4 + (3,) * 4))
    unknown = pins_of([Request("actor", None, eight, (0,) * 8, amounts=THREE)])
    Process(unknown, Memory(unknown.ids)).ask(Asked(eight, "mine", cpus=(400,) * 8))
    alone = pins_of([Request("actor", None, (1, 1), (0, 1), None, amounts=THREE[:2])], cpus=(2, 16))
    with pytest.raises(
        NotPlanned, match=r"an actor of class `A` asks for .* and 3 CPUs on node 0 of the plan, which has 2"
    ):
        Process(alone, Memory(alone.ids)).ask(Asked((1,), actor="A", cpus=(3,)))


def test_other_cpus_than_planned_are_noted_in_the_claim() -> None:
    request = Request("actor", None, (1,) * 8, (0,) * 8, amounts=THREE)
    for cpus, note in (
        ((3,) * 8, None),
        ((), None),
        (
            (10,) * 8,
            "actor asks for 80 CPUs (8 bundles of 10) with its accelerators; the plan has 24 CPUs (8 bundles of 3)",
        ),
    ):
        process = Process(pins := pins_of([request], cpus=(96,)), Memory(pins.ids))
        claim, _ = process.ask(Asked((1,) * 8, "mine", cpus=cpus))
        assert claim.content.get("note") == note
    planless = pins_of([Request("actor", None, (1,), (0,))])
    assert "note" not in Process(planless, Memory(planless.ids)).ask(Asked((1,), cpus=(9,)))[0].content


@given(requests(), st.randoms(use_true_random=False), st.booleans())
def test_the_place_of_a_removed_group_is_free_again(planned: list[Request], random: Any, same: bool) -> None:
    pins = pins_of(planned)
    store = Memory(pins.ids)
    first = Process(pins, store)
    made = [(one, *first.ask(one)) for one in all_asked(planned)]
    for _ in range(3):
        one, claim, group = made.pop(random.randrange(len(made)))
        store.groups.discard(group)
        if same:
            first.claims.removed(group)
        again = first if same else Process(pins, store)
        found = again.ask(one)
        assert found[0].slot == claim.slot and found[0].key != claim.key
        made.append((one, *found))


def test_a_retry_gets_the_same_places_though_later_ones_are_free() -> None:
    """NeMo-RL asks again after it has removed those that came: two of four equal ones here."""
    pins = pins_of([Request("policy", None, (2,), (node,)) for node in range(4)])
    store = Memory(pins.ids)
    process = Process(pins, store)
    groups = [process.ask(Asked((2,)))[1] for _ in range(2)]
    for group in groups:
        store.groups.discard(group)
        process.claims.removed(group)
    assert [process.ask(Asked((2,)))[0].nodes for _ in range(4)] == [("id0",), ("id1",), ("id2",), ("id3",)]


def test_a_request_that_ray_refuses_is_free_again() -> None:
    pins = pins_of([Request("actor", None, (1,), (0,))])
    store = Memory(pins.ids)
    process = Process(pins, store)
    process.claims.void(process.claims.take(Asked((1,))))
    assert Process(pins, store).ask(Asked((1,)))[0].nodes == ("id0",)
    with pytest.raises(NotPlanned, match=r"asks for 1 bundle of 1 accelerator; the plan has left: nothing"):
        process.ask(Asked((1,)))


def test_an_optional_request_comes_last_and_is_not_bound() -> None:
    """SkyRL tries two accelerators before it asks for its policy, with a bundle of the same size."""
    pins = pins_of([Request("", None, (2,), (), optional=True), Request("policy", None, (2,), (1,))])
    store = Memory(pins.ids)
    process = Process(pins, store)
    assert process.ask(Asked((2,)))[0].nodes == ("id1",)
    claim, _ = process.ask(Asked((2,)))
    assert claim.slot == Slot(0) and claim.nodes == ()
    assert list(pins.all_slots()) == [Slot(1)]


def test_groups_and_actors_without_accelerators_are_not_bound() -> None:
    """ms-swift asks for a group of CPUs on each node; Ray places it."""
    requests = [
        Request("", None, (0,), (0,)),
        Request("train", None, (4,), (0,)),
        Request("ref", None, (0, 1), (0, 1), None),
    ]
    pins = pins_of(requests)
    assert list(pins.all_slots()) == [Slot(1), Slot(2, 1)]
    assert pins.left(lambda slot: slot == Slot(1)) == "ref an actor with 1 accelerator"


def test_actors_of_two_classes_do_not_share_a_request() -> None:
    pins = pins_of([Request("policy", None, (1, 1), (0, 1), None), Request("ref", None, (1, 1), (2, 3), None)])
    process = Process(pins, Memory(pins.ids))
    asks = [Asked((1,), actor=name) for name in ("Policy", "Ref", "Policy", "Ref")]
    assert [process.ask(one)[0].nodes for one in asks] == [("id0",), ("id2",), ("id1",), ("id3",)]


@pytest.mark.parametrize(
    ("strategy", "nodes", "message"),
    [
        ("STRICT_PACK", (0, 1), "is STRICT_PACK, but the plan has its bundles on 2 nodes"),
        ("STRICT_SPREAD", (1, 1), "is STRICT_SPREAD, but the plan has several of its bundles on one node"),
    ],
)
def test_strategies_that_contradict_the_plan_are_refused(strategy: str, nodes: tuple[int, ...], message: str) -> None:
    pins = pins_of([Request("actor", None, (1, 1), nodes)])
    with pytest.raises(NotPlanned, match=message):
        Process(pins, Memory(pins.ids)).ask(Asked((1, 1), strategy=strategy))


def test_a_node_that_has_left_is_refused_at_once() -> None:
    pins = pins_of([Request("actor", None, (1,), (1,))])
    store = Memory(pins.ids)
    store.alive["id1"] = False
    with pytest.raises(NotPlanned, match=r"error\[node-lost\]: node 1 \(10.0.0.1\) of the plan has left the cluster"):
        Process(pins, store).ask(Asked((1,)))
    assert not store.values


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([0.5, 1, 2, 3]), min_size=1, max_size=3),
            st.sampled_from(["PACK", "STRICT_PACK", "STRICT_SPREAD", "SPREAD"]),
        ),
        max_size=6,
    ),
)
def test_what_the_plan_lacks_goes_to_what_it_leaves_free(
    free: list[int], wanted: list[tuple[list[float], str]]
) -> None:
    pins = pins_of([Request("actor", None, (7,) * len(free), tuple(range(len(free))))], free, lenient=True)
    process = Process(pins, Memory(pins.ids))
    used = [0.0] * len(free)
    for sizes, strategy in wanted:
        try:
            claim, _ = process.ask(Asked(tuple(sizes), strategy=strategy))
        except NotPlanned:
            continue
        nodes = [int(node.removeprefix("id")) for node in claim.nodes]
        assert len(nodes) == len(sizes)
        assert strategy != "STRICT_PACK" or len(set(nodes)) == 1
        assert strategy != "STRICT_SPREAD" or len(set(nodes)) == len(nodes)
        for node, size in zip(nodes, sizes, strict=True):
            used[node] += size
    assert all(here <= room for here, room in zip(used, free, strict=True))


@given(requests(), st.booleans())
def test_pins_are_read_as_they_were_written(planned: list[Request], lenient: bool) -> None:
    pins = pins_of(planned, lenient=lenient)
    assert Pins.decoded(pins.encoded()) == pins


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-4],
        lambda data: b"",
        lambda data: b"{}",
        lambda data: data[:20] + bytes(20) + data[40:],
    ],
)
def test_damaged_pins_are_refused(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="it is damaged"):
        Pins.decoded(damage(pins_of([Request("actor", None, (1,), (0,))]).encoded()))


def recorded(line: dict[str, Any]) -> list[Asked]:
    """What the trainer asked for: groups in order; those without accelerators are passed through."""
    found = []
    for one in line["alone"]["requests"]:
        sizes = tuple(int(bundle.get("GPU", 0)) for times, bundle in one["bundles"] for _ in range(times))
        if any(sizes):
            alone = one["strategy"] is None
            found += (
                [Asked((size,), actor="Actor") for size in sizes]
                if alone
                else [Asked(sizes, one["name"], one["strategy"])]
            )
    return found


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_every_recorded_request_takes_one_of_its_plan(line: dict[str, Any], tmp_path: Path) -> None:
    planned = plan(config(line, tmp_path), cluster(line), dialect=line["trainer"], pinned=True)
    pins = pins_of(planned.requests)
    process = Process(pins, Memory(pins.ids))
    taken = [process.ask(one)[0].slot for one in recorded(line)]
    assert all(taken)
    if "error" not in line["alone"]:
        assert {*pins.all_slots()} <= {*taken}
    if line["trainer"] != "areal":  # recorded with the rollout first, which its trainer starts last
        numbers = [slot.number for slot in taken if slot and slot.entry < 0]
        assert numbers == sorted(numbers)


def test_a_thousand_requests_take_little_time() -> None:
    """Each is one look and one entry: none reads the tables of the head."""
    pins = pins_of([Request("actor", f"group{index}", (8,), (index,)) for index in range(1024)])
    store = Memory(pins.ids)
    process = Process(pins, store)
    store.living = None  # type: ignore[assignment]
    for index in range(1024):
        process.ask(Asked((8,), f"group{index}"))
    assert all("group" in json.loads(value) for value in store.values.values())

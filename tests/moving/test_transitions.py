"""Slots, names, bytes, senders and steps of transitions: known cases, laws, and random pairs against an oracle.

``RANKPLAN_ROUNDS`` multiplies the random pairs; a round has 16 with an oracle, and 32 in all orders of their steps.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from rankplan import Inventory, PlacementError, Plan, plan, replan, transition
from rankplan.moving.names import Gain, best_numbers
from rankplan.moving.ordering import Group
from rankplan.moving.schema import transition_schema
from rankplan.moving.senders import Distances, Sender
from rankplan.moving.sides import Slot
from rankplan.moving.simulate import verify
from rankplan.moving.transition import PlannedStep, Transition
from rankplan.render.map.moving import _cells
from support.outcomes import some
from support.transition_oracle import best
from support.transitions import EXPERTS, MODEL, hosts, planned, tight_pair, trainer, trainer_pair

ROUNDS = int(os.environ.get("RANKPLAN_ROUNDS", "1"))

QWEN = "Qwen/Qwen3-8B"
ACTOR = {"parallel": {"tp": 4}, "memory": {"training": "megatron", "model": QWEN}}
ENGINE = {"engine": "vllm", "model": QWEN, "share": 0.6, "length": 8192}


def trainers(*placements: str, nodes: int = 2) -> list[Plan]:
    return [planned({"actor": {"placement": where, **ACTOR}}, nodes, 8, "80 GiB") for where in placements]


def engines(
    placement: str, count: int, *, model: Any = QWEN, tp: int = 2, each: int = 8, **memory: Any
) -> dict[str, Any]:
    """Return an entry of engines."""
    settings = {**ENGINE, "model": model, **memory}
    return {"placement": f"{placement}:0-{count - 1}", "parallel": {"tp": tp}, "memory": settings}


def states(found: Transition) -> dict[str, int]:
    sums: dict[str, int] = {}
    for move in found.moves:
        sums[move.state] = sums.get(move.state, 0) + (move.bytes or 0)
    return sums


def kinds(found: Transition) -> dict[str, int]:
    counts: dict[str, int] = {}
    for slot in found.slots:
        counts[slot.kind] = counts.get(slot.kind, 0) + 1
    return counts


def ids(found: Transition) -> list[str]:
    return [step.id for step in found.steps]


# ------------------------------------------------------------------------------------------------------- bytes, names


def test_a_trainer_that_grows_moves_its_optimizer_even_where_its_weights_stay() -> None:
    """Qwen3-8B in Megatron, tp 4, from 8 to 16 accelerators and back."""
    small, large = trainers("0-7", "0-15")
    grown, shrunk = transition(small, large), transition(large, small)
    assert states(grown) == {"weights": 32_766_640_128, "optimizer": 49_149_960_192}
    assert states(shrunk) == {"optimizer": 73_724_940_288}
    assert grown.names["actor"] == (0, 2, 1, 3)
    assert sum(transition(small, large, names="as planned").by_level.values()) > (grown.total or 0)
    assert grown.after["actor"].rows.accelerators() == large["actor"].rows.accelerators()


@pytest.mark.parametrize("seed", range(16 * ROUNDS))
def test_bytes_and_names_are_those_of_an_oracle_that_tries_all(seed: int) -> None:
    rng = random.Random(seed)
    settings: dict[str, dict[str, Any]] = {
        "megatron": {"training": "megatron"},
        "whole": {"training": "megatron", "distributed_optimizer": False},
        "fsdp": {"training": "fsdp"},
        "engine": {"engine": "vllm", "share": 0.3, "length": 512},
    }
    kind, model = rng.choice(list(settings)), rng.choice([MODEL, EXPERTS])

    def component() -> dict[str, Any]:
        entry = trainer(rng, 8) or {}
        first, last = map(int, entry["placement"].split("-"))
        size = last - first + 1
        if model is EXPERTS:
            sizes = entry["parallel"]
            sizes["ep"] = rng.choice([ep for ep in (1, 2, 4) if size % (ep * sizes["pp"]) == 0])
        if rng.random() < 0.5:
            entry["placement"] = ",".join(map(str, sorted(rng.sample(range(8), size))))
        return {**entry, "memory": {**settings[kind], "model": model}}

    nodes, each = rng.choice([(1, 8), (2, 4)])
    plans = [planned({"actor": component()}, nodes, each, "80 GiB") for _ in range(2)]
    total, stay, order = best(plans[0]["actor"], plans[1]["actor"], model, kind)
    found = transition(*plans)
    assert found.total == pytest.approx(total, abs=len(found.moves) + 2)
    assert found.stay["actor"] == stay
    assert found.names.get("actor", tuple(range(len(order)))) == order
    assert found.optimal


def test_engines_keep_their_ranks_where_no_bytes_depend_on_them() -> None:
    before = planned({"rollout": engines("0-7", 4)}, 2, 8, "80 GiB")
    after = planned({"rollout": engines("2-9", 4)}, 2, 8, "80 GiB")
    found = transition(before, after)
    assert found.names["rollout"] == (1, 2, 3, 0)
    assert found.stay["rollout"] == 6 and kinds(found) == {"move": 2}


@pytest.mark.parametrize(("speed", "names"), [("1", (1, 0)), ("2", (0, 1))])
def test_a_process_that_restarts_has_no_number_to_keep(speed: str, names: tuple[int, int]) -> None:
    def placed(where: str, speed: str) -> Plan:
        variables = [{"node_ranks": "1", "env_vars": [{"SPEED": speed}]}]
        groups = [{"label": "all", "node_ranks": "0-1", "env_configs": variables}]
        rollout = {"placement": where, "node_group": "all", "memory": {**ENGINE, "model": MODEL}}
        cluster = {"num_nodes": 2, "node_groups": groups, "component_placement": {"rollout": rollout}}
        return plan({"cluster": cluster}, hosts(2, 4))

    assert transition(placed("0,4", "1"), placed("4-5", speed)).names == {"rollout": names}


def test_the_best_numbers_are_those_of_all_orders() -> None:
    from itertools import permutations

    rng = random.Random(0)
    for _ in range(200):
        count = rng.randint(2, 5)
        gains = []
        for index in range(count):
            numbers = rng.sample(range(count), rng.randint(1, count))
            mine = {number: Gain(rng.randint(0, 2), rng.randint(0, 2), int(number == index)) for number in numbers}
            gains.append({index: Gain(0, 0, 1)} | mine)  # type: ignore[arg-type]

        def value(order: tuple[int, ...], gains: Any = gains) -> tuple[int, int, int]:
            each = [gains[at].get(number, (0, 0, int(at == number))) for at, number in enumerate(order)]
            return tuple(sum(column) for column in zip(*each, strict=True))  # type: ignore[return-value]

        orders = sorted(permutations(range(count)))
        expected = max(orders, key=lambda order: (value(order), [-number for number in order]))
        assert best_numbers(gains).numbers == list(expected), gains  # type: ignore[arg-type]


def test_many_sets_with_conflicting_wishes_are_marked_as_not_optimal() -> None:
    gains = [{0: Gain(index + 1, 0, int(index == 0)), index: Gain(0, 0, 1)} for index in range(80)]  # type: ignore[arg-type]
    naming = best_numbers(gains)  # type: ignore[arg-type]
    assert sorted(naming.numbers) == list(range(80)) and not naming.optimal


def test_a_new_rank_alone_moves_nothing() -> None:
    """With pp outside dp, every later stage is renumbered if dp changes."""
    sizes = {"parallel": {"pp": 2}, "memory": {"forward": True, "model": MODEL}}
    before = planned({"ref": {"placement": "0-3", **sizes}}, 1, 8)
    after = planned({"ref": {"placement": "0-1,2-3,6-7", **sizes}}, 1, 8)
    found = transition(before, after)
    assert (
        kinds(found)["start"] == 2
        and found.stay["ref"] + kinds(found).get("rename", 0) + kinds(found).get("reshape", 0) == 4
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, {}),
        ({}, {"parallel": {"tp": 1}}, {"reshape": 2}),
        ({}, {"placement": "2-3"}, {"move": 2}),
        ({}, {"placement": "0-3"}, {"start": 2}),
        ({"placement": "0-3"}, {}, {"stop": 2}),
        ({}, {"node_group": "other"}, {"restart": 2}),
    ],
)
def test_what_becomes_of_slots(before: dict[str, Any], after: dict[str, Any], expected: dict[str, int]) -> None:
    entry = {
        "placement": "0-1",
        "parallel": {"tp": 2},
        "memory": {"forward": True, "model": MODEL},
        "node_group": "train",
    }
    groups = [{"label": label, "node_ranks": "0"} for label in ("train", "other")]

    def plan(changes: dict[str, Any]) -> Plan:
        from rankplan import plan as plan_of

        return plan_of(
            {"cluster": {"num_nodes": 1, "node_groups": groups, "component_placement": {"ref": {**entry, **changes}}}},
            "1x4",
        )

    assert kinds(transition(plan(before), plan(after), names="as planned")) == expected


def test_what_restarts_sends_nothing() -> None:
    groups = [{"label": label, "node_ranks": "0"} for label in ("train", "other")]

    def placed(group: str) -> Plan:
        ref = {"placement": "0-3", "node_group": group, "memory": {"forward": True, "model": MODEL}}
        return plan({"cluster": {"num_nodes": 1, "node_groups": groups, "component_placement": {"ref": ref}}}, "1x4")

    found = transition(placed("train"), placed("other"))
    assert kinds(found) == {"restart": 4} and {move.sender for move in found.moves} == {None}


def test_a_robot_is_free_before_its_next_owner_loads() -> None:
    arm = {"type": "Franka", "configs": [{"node_rank": 0, "robot_ip": "10.0.0.1"}]}

    def placed(speed: str) -> Plan:
        variables = [{"node_ranks": "0", "env_vars": [{"SPEED": speed}]}]
        groups = [{"label": "arms", "node_ranks": "0", "hardware": arm, "env_configs": variables}]
        components = {"env": {"placement": "0", "node_group": "arms"}}
        return plan({"cluster": {"num_nodes": 1, "node_groups": groups, "component_placement": components}}, "1x4")

    found = transition(placed("1"), placed("2"))
    assert kinds(found) == {"restart": 1} and verify(found).breaches == ()
    assert next(step for step in found.steps if step.do == "load").needs == ["free env/0"]
    at_once = [step._replace(needs=[]) if step.do == "load" else step for step in found.steps]
    assert 7 in {breach.invariant for breach in verify(replace(found, steps=tuple(at_once))).breaches}


def test_a_robot_sends_its_states_to_nobody() -> None:
    arms = [{"node_rank": 0, "robot_ip": f"10.0.0.{number}"} for number in (1, 2)]

    def placed(where: str) -> Plan:
        groups = [{"label": "arms", "node_ranks": "0", "hardware": {"type": "Franka", "configs": arms}}]
        components = {"env": {"placement": where, "node_group": "arms"}}
        return plan({"cluster": {"num_nodes": 1, "node_groups": groups, "component_placement": components}}, "1x4")

    found = transition(placed("0"), placed("0-1"))
    assert kinds(found) == {"start": 1} and [move.sender for move in found.moves] == [None]


@pytest.mark.parametrize(("model", "senders"), [(MODEL, {"actor"}), (EXPERTS, {None})])
def test_only_a_component_of_the_same_model_sends_weights(model: Any, senders: set[str | None]) -> None:
    actor = {"placement": "0-3", "memory": {"training": "fsdp", "model": MODEL}}
    before = planned({"actor": actor}, 1, 8, "80 GiB")
    after = planned({"actor": actor, "rollout": engines("4-5", 1, model=model, share=0.3)}, 1, 8, "80 GiB")
    found = transition(before, after, costs={"sync": {"from": "actor", "to": "rollout"}})
    assert {move.sender and move.sender.component for move in found.moves} == senders


def test_each_rank_of_a_sharded_trainer_sends_its_part() -> None:
    actor = {"placement": "0-3", "memory": {"training": "fsdp", "model": MODEL}}
    before = planned({"actor": actor}, 1, 8, "80 GiB")
    after = planned({"actor": actor, "rollout": engines("4-5", 1, model=MODEL, share=0.3)}, 1, 8, "80 GiB")
    found = transition(before, after, costs={"sync": {"from": "actor", "to": "rollout"}})
    assert {move.sender for move in found.moves} == {("actor", rank) for rank in range(4)}
    assert {move.converts for move in found.moves} == {True}


def test_an_engine_comes_from_the_nearest_slot_that_stays_and_else_from_the_trainer() -> None:
    actor = {"placement": "0-7", **ACTOR}
    one = planned({"actor": actor, "rollout": engines("8-9", 1)}, 3, 8, "80 GiB")
    two = planned({"actor": actor, "rollout": engines("8-11", 2)}, 3, 8, "80 GiB")
    none = planned({"actor": actor}, 3, 8, "80 GiB")
    costs = {"sync": {"from": "actor", "to": "rollout"}}
    assert {(move.sender or ("", 0))[0] for move in transition(one, two, costs=costs).moves} == {"rollout"}
    assert transition(one, two).by_level == {"node": 16_382_087_168} or transition(one, two).by_level.keys() == {"node"}
    found = transition(none, two, costs=costs)
    assert {(move.sender or ("", 0))[0] for move in found.moves} == {"actor"} and found.by_level.keys() == {"network"}
    assert transition(none, two).by_level.keys() == {"storage"}


def test_equally_near_senders_share_the_load() -> None:
    before = planned({"rollout": engines("0-7", 4)}, 2, 8, "80 GiB")
    after = planned({"rollout": engines("0-15", 8)}, 2, 8, "80 GiB")
    sent: dict[int, int] = {}
    for move in transition(before, after).moves:
        assert move.sender is not None
        sent[move.sender.slot] = sent.get(move.sender.slot, 0) + (move.bytes or 0)
    assert len(sent) == 8 and max(sent.values()) < 2 * min(sent.values())


def searched_senders(found: Transition, racks: str) -> dict[tuple[int, int], float]:
    """Return the bytes that each slot of the rollout gets from each sender, by a search through all slots."""
    changes = found.parts["rollout"].changes
    before, after = changes.before, changes.after
    assert before is not None and after is not None
    loads = [0.0] * before.count
    sent: dict[tuple[int, int], float] = {}
    for change in changes.receiving:
        assert change.after is not None
        slot, (node, _, local, _) = change.after, change.after.place

        def distance(old: Slot, node: int = node, local: tuple[int, ...] = local) -> int:
            is_near = (old.place.node, old.place.local) == (node, local), old.place.node == node
            return [*is_near, racks[old.place.node] == racks[node], True].index(True)

        for piece, box in after.holding(slot).items():
            holders = [old for old in before.slots if before.holding(old).get(piece) == box]
            staying = [old for old in holders if changes.keeps(old.number)]
            sender = min(staying or holders, key=lambda old: (distance(old), loads[old.number], old.number)).number
            size = float(after.keeper.bytes(piece, box))
            loads[sender] += size
            sent[slot.number, sender] = sent.get((slot.number, sender), 0.0) + size
    return sent


@pytest.mark.parametrize("seed", range(12))
def test_senders_are_those_of_a_search_through_all_slots(seed: int) -> None:
    rng = random.Random(seed)
    names = "".join(sorted(rng.choices("abc", k=6)))
    nodes = racks(*(f"{rack}{index}" for index, rack in enumerate(names)))

    def placed() -> Plan:
        pairs = sorted(rng.sample(range(24), rng.randint(3, 10)))
        where = ",".join(f"{2 * pair}-{2 * pair + 1}" for pair in pairs)
        return on(nodes, rollout=engines(where, len(pairs), model=MODEL))

    found = transition(placed(), placed(), names="as planned")
    sent: dict[tuple[int, int], float] = {}
    for move in found.moves:
        assert move.sender is not None and move.bytes is not None
        sent[move.slot, move.sender.slot] = sent.get((move.slot, move.sender.slot), 0.0) + move.bytes
    assert sent == searched_senders(found, names) != {}


# -------------------------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("seed", range(0, 30, 3))
def test_nothing_is_to_be_done_between_equal_plans(seed: int) -> None:
    for pair in (tight_pair, trainer_pair):
        before, _, _ = pair(random.Random(seed))
        found = transition(before, before)
        assert not found and not found.moves and not found.slots and found.total in (0, None)
        assert found.answer == "fits" and found.names.get("actor", (0,)) == found.names.get("actor", (0,))


def test_growing_starts_only_what_is_new_and_shrinking_moves_nothing() -> None:
    plan = planned({"rollout": engines("0-15", 8)}, 4, 8, "80 GiB")
    grown = replan(plan, hosts(4, 8), grow={"rollout": 4}).plan
    found = transition(plan, grown)
    assert kinds(found) == {"start": 8} and found.stay["rollout"] == 16
    assert {step.instance for step in found.steps} == {8, 9, 10, 11}
    shrunk = transition(grown, plan)
    assert not shrunk.moves and kinds(shrunk) == {"stop": 8}
    assert {step.do for step in shrunk.steps} == {"stop-routing", "drain", "free"}


def test_only_slots_on_nodes_where_something_changes_are_read() -> None:
    """Most of a large job stays: the time of a transition is that of what changes."""
    nodes = 256
    actor, rollout = {"placement": "0-1023", **ACTOR}, engines("1024-2039", 508)
    small = planned({"actor": actor, "rollout": rollout}, nodes, 8, "80 GiB")
    large = planned({"actor": actor, "rollout": engines("1024-2047", 512)}, nodes, 8, "80 GiB")
    for before, after, kind in ((small, large, "start"), (large, small, "stop")):
        found = transition(before, after, costs={"sync": {"from": "actor", "to": "rollout"}})
        assert kinds(found) == {kind: 8} and found.stay == {"actor": 1024, "rollout": 1016}
        for part in found.parts.values():
            for side in (part.before, part.after):
                assert side is not None and len(side._on_node) < 8 and "slots" not in vars(side)


def test_nothing_depends_on_the_order_of_nodes_or_components() -> None:
    rng = random.Random(5)
    for _ in range(5):
        before, after, options = tight_pair(rng)
        turned = [Plan(plan.inventory, reversed(list(plan.values())), rules=plan.rules) for plan in (before, after)]
        try:
            found = transition(before, after, **options)
        except PlacementError as error:
            with pytest.raises(PlacementError, match=error.diagnostics[0].message[:24]):
                transition(turned[0], turned[1], **options)
            continue
        other = transition(turned[0], turned[1], **options)
        assert dict(found.names) == dict(other.names) and found.total == other.total
        assert found.answer == other.answer


# ------------------------------------------------------------------------------------------------------- every order


@pytest.mark.parametrize("seed", range(32 * ROUNDS))
def test_all_invariants_hold_for_random_pairs(seed: int) -> None:
    rng = random.Random(1000 + seed)
    before, after, options = rng.choice([tight_pair, trainer_pair])(rng)
    try:
        found = transition(before, after, **options)
    except PlacementError as error:
        assert [fault.code for fault in error.diagnostics] == ["transition-stuck"]
        return
    checked = verify(found, seed=seed, states=1024)
    assert checked.breaches == () and checked.states > 0
    jsonschema.validate(found.to_dict(), transition_schema())
    order = ids(found)
    assert all(order.index(need) < order.index(step.id) for step in found.steps for need in step.needs)
    if checked.every_order:
        peaks = peaks_of_all_states(found)
        assert {peak.accelerator: (peak.most, peak.least) for peak in found.peaks} == {
            peak.accelerator: pytest.approx(peaks[peak.accelerator]) for peak in found.peaks
        }


def peaks_of_all_states(found: Transition) -> dict[tuple[int, int], tuple[float, float]]:
    """Return the most that each accelerator may hold, at most and at least, from every state that the steps allow."""
    needs = {step.id: frozenset(step.needs) for step in found.steps}
    sleeps = {step.id for step in found.steps if step.do == "sleep"}
    peaks: dict[tuple[int, int], tuple[float, float]] = {}
    seen, left = {frozenset[str]()}, [frozenset[str]()]
    while left:
        done = left.pop()
        ready = {step for step in needs if step not in done and needs[step] <= done}
        sums: dict[tuple[int, int], tuple[float, float]] = {}
        for hold in found.holds:
            begun = done if hold.taken_by in sleeps else done | ready  # who falls asleep is awake until the end
            if (hold.taken_by is None or hold.taken_by in begun) and hold.given_by not in done:
                high, low = sums.get(hold.accelerator, (0.0, 0.0))
                sums[hold.accelerator] = high + hold.amount.high, low + hold.amount.low
        for place, (high, low) in sums.items():
            most, least = peaks.get(place, (0.0, 0.0))
            peaks[place] = max(most, high), max(least, low)
        for after in (done | {step} for step in ready):
            if after not in seen:
                seen.add(after)
                left.append(after)
    return peaks


def test_slots_of_an_instance_load_while_others_get_new_ranks() -> None:
    """With pp outside dp, the second stage of a trainer that grows is renumbered."""
    memory = {"training": "megatron", "model": MODEL, "distributed_optimizer": False}
    entry = {"parallel": {"pp": 2}, "memory": memory}
    before = planned({"actor": {"placement": "0-3", **entry}}, 1, 8, "80 GiB")
    after = planned({"actor": {"placement": "0-5", **entry}}, 1, 8, "80 GiB")
    found = transition(before, after, names="as planned")
    assert {"load actor/0", "rename actor/0"} <= {*ids(found)}
    assert verify(found).breaches == ()
    regroup = next(step for step in found.steps if step.do == "regroup")
    assert {*regroup.needs} == {"load actor/0", "rename actor/0"}
    alone = [step._replace(needs=["load actor/0"]) if step.do == "regroup" else step for step in found.steps]
    assert {breach.invariant for breach in verify(replace(found, steps=tuple(alone))).breaches} == {4}


def crossing() -> Transition:
    """Return a transition in which engines swap places with a trainer's, all of them tight."""
    sized = {"resident": "40 GiB", "sleep": "host"}
    before = planned(
        {"a": {"placement": "0", "memory": sized}, "b": {"placement": "1", "memory": sized}}, 1, 2, "60 GiB"
    )
    after = planned(
        {"a": {"placement": "1", "memory": sized}, "b": {"placement": "0", "memory": sized}}, 1, 2, "60 GiB"
    )
    return transition(before, after)


def broken(found: Transition, *, without: tuple[str, str]) -> Transition:
    """Return a transition in which one step does not wait for another."""
    step, need = without
    steps = [
        one._replace(needs=[other for other in one.needs if other != need]) if one.id == step else one
        for one in found.steps
    ]
    assert steps != list(found.steps), ids(found)
    return replace(found, steps=tuple(steps))


def without_frees(step: PlannedStep) -> PlannedStep:
    return step._replace(needs=[need for need in step.needs if not need.startswith("free")])


def test_each_edge_of_a_tight_transition_is_needed() -> None:
    found = crossing()
    assert verify(found).breaches == () and found.offload == 40 << 30
    edges = [(step.id, need) for step in found.steps for need in step.needs]
    unnoticed = [edge for edge in edges if not verify(broken(found, without=edge)).breaches]
    # Both follow from others: b loads when a is asleep, and a gets its place when b has gone.
    assert unnoticed == [("sync a/0", "sleep a/0"), ("free a/0", "sleep a/0")]


def test_a_sender_is_read_where_it_has_its_states() -> None:
    """Instance a sleeps and sends from its host: not while it falls asleep, and not from its accelerator."""
    found = crossing()
    assert {move.level for move in found.moves if move.sender == ("a", 0)} == {"host"}
    at_once = tuple(step._replace(needs=[]) if step.id == "sync a/0" else step for step in found.steps)
    breaches = {breach.text for breach in verify(replace(found, steps=at_once)).breaches if breach.invariant == 2}
    assert breaches == {
        "a/0 sends to a/0 while it falls asleep",
        "a/0 sends to a/0 from where it does not have them",
    }
    awake = tuple(replace(move, level="node") for move in found.moves)
    assert "a/0 sends to a/0 from where it does not have them" in {
        breach.text for breach in verify(replace(found, moves=awake)).breaches
    }


@pytest.mark.parametrize(
    ("change", "invariant"),
    [
        (lambda steps: [step._replace(slots=step.slots[:1]) if step.do == "load" else step for step in steps], 4),
        (lambda steps: [without_frees(step) for step in steps if step.do != "free"], 4),
        (lambda steps: [step._replace(needs=[]) if step.do == "free" else step for step in steps], 3),
        (lambda steps: [step._replace(needs=[]) if step.do == "route" else step for step in steps], 6),
        (lambda steps: [step._replace(needs=[]) if step.do == "verify" else step for step in steps], 5),
        (lambda steps: [step._replace(needs=[]) if step.do == "drain" else step for step in steps], 6),
    ],
)
def test_a_broken_order_is_noticed(change: Any, invariant: int) -> None:
    before = planned({"rollout": engines("0-3", 2)}, 1, 8, "80 GiB")
    after = planned({"rollout": engines("1-2,4-5", 2)}, 1, 8, "80 GiB")
    found = transition(before, after, serving=1, names="as planned")
    assert verify(found).breaches == ()
    wrong = verify(replace(found, steps=tuple(change(list(found.steps)))))
    assert invariant in {breach.invariant for breach in wrong.breaches}, wrong


def test_bytes_that_are_counted_twice_are_noticed() -> None:
    before, after = trainers("0-7", "0-15")
    found = transition(before, after)
    assert verify(found).breaches == ()
    twice = replace(found, moves=(*found.moves, found.moves[0]))
    assert [breach.invariant for breach in verify(twice).breaches] == [9]
    lost = replace(found, moves=found.moves[1:])
    assert 9 in {breach.invariant for breach in verify(lost).breaches}


def test_each_pair_fits_but_not_all_three() -> None:
    """30 and 30 GiB leave an accelerator of 82, and 40 come."""

    def entry(size: int, where: str) -> dict[str, Any]:
        return {"placement": where, "memory": {"resident": f"{size} GiB"}}

    before = planned({"a": entry(30, "0"), "b": entry(30, "0"), "c": entry(40, "1")}, 1, 2, "82 GiB")
    after = planned({"c": entry(40, "0"), "a": entry(30, "1")}, 1, 2, "82 GiB")
    found = transition(before, after)
    load = next(step for step in found.steps if step.id == "load c/0")
    assert any(need.startswith("free") for need in load.needs)
    assert verify(found).breaches == ()
    assert verify(
        replace(
            found,
            steps=tuple(
                step._replace(needs=[n for n in step.needs if not n.startswith("free")]) for step in found.steps
            ),
        )
    ).breaches
    peak = next(peak for peak in found.peaks if peak.accelerator == (0, 0))
    assert peak.most == peak.least == 70 << 30


def test_what_comes_counts_what_came_before_it() -> None:
    """20 GiB each: a and d are there when c comes, so b must have gone, also if it was no burden to a."""

    def placed(**places: str) -> Plan:
        memory = {"resident": "20 GiB"}
        return planned({name: {"placement": where, "memory": memory} for name, where in places.items()}, 1, 4, "64 GiB")

    found = transition(placed(a="1", b="0", c="2", d="0"), placed(a="0", b="3", c="0", d="0"))
    assert [step for step in ids(found) if step.startswith("load")] == ["load a/0", "load b/0", "load c/0"]
    assert next(step.needs for step in found.steps if step.id == "load c/0") == ["free b/0"]
    assert verify(found).breaches == ()


def test_what_is_alone_on_an_accelerator_fits_as_it_did_before() -> None:
    before, after = (
        planned({"a": {"placement": where, "memory": {"resident": "79 GiB"}}}, 1, 2, "80 GiB") for where in "01"
    )
    assert kinds(transition(before, after)) == {"move": 1} and transition(before, after).answer == "fits"


# ------------------------------------------------------------------------------------------------------- stuck, or not


def test_a_cycle_without_sleep_is_stuck_with_the_bytes_that_lack() -> None:
    sized = {"resident": "40 GiB", "sleep": "none"}
    before = planned(
        {"a": {"placement": "0", "memory": sized}, "b": {"placement": "1", "memory": sized}}, 1, 2, "60 GiB"
    )
    after = planned(
        {"a": {"placement": "1", "memory": sized}, "b": {"placement": "0", "memory": sized}}, 1, 2, "60 GiB"
    )
    with pytest.raises(PlacementError) as caught:
        transition(before, after)
    (fault,) = caught.value.diagnostics
    assert fault.code == "transition-stuck"
    assert "has 60.0 GiB" in fault.message and "80.0 GiB together, 20.0 GiB more" in fault.message
    assert "sleep: host" in (fault.help or "")


def test_a_fault_names_only_what_would_be_there_together() -> None:
    """Two components swap places. What moves away beside one of them is gone by then, and is no part of the fault."""

    def placed(**places: str) -> Plan:
        sizes = {"a": "40 GiB", "b": "45 GiB", "leaving": "5 GiB", "staying": "5 GiB"}
        entries = {
            name: {"placement": where, "memory": {"resident": sizes[name], "sleep": "none"}}
            for name, where in places.items()
        }
        return planned(entries, 1, 4, "50 GiB")

    before = placed(a="0", b="1", leaving="1", staying="0")
    after = placed(a="1", b="0", leaving="2", staying="0")
    with pytest.raises(PlacementError) as caught:
        transition(before, after)
    assert caught.value.diagnostics[0].message == (
        "no order is safe: accelerator 1 of h0 has 50.0 GiB, but b/0 before and a/0 after need at least 85.0 GiB"
        " together, 35.0 GiB more"
    )


def test_a_cycle_is_broken_by_the_fewest_bytes_that_sleep() -> None:
    small = {"resident": "30 GiB", "sleep": "host"}
    large = {"resident": "40 GiB", "sleep": "host"}
    before = planned(
        {"a": {"placement": "0", "memory": large}, "b": {"placement": "1", "memory": small}}, 1, 2, "60 GiB"
    )
    after = planned(
        {"a": {"placement": "1", "memory": large}, "b": {"placement": "0", "memory": small}}, 1, 2, "60 GiB"
    )
    found = transition(before, after)
    assert [step for step in ids(found) if step.startswith("sleep")] == ["sleep b/0"]
    assert found.offload == 30 << 30 and found.answer == "fits" and found.optimal
    assert {move.level for move in found.moves if move.sender and move.sender.component == "b"} == {"host"}
    assert verify(found).breaches == ()


def test_what_an_engine_leaves_asleep_counts_until_it_is_freed() -> None:
    def placed(a: str, b: str) -> Plan:
        memory = {"engine": "vllm", "params": 8e9, "share": 0.8, "length": 2048, "sleep": "host"}
        return planned(
            {name: {"placement": where, "memory": memory} for name, where in (("a", a), ("b", b))}, 1, 2, "24 GiB"
        )

    found = transition(placed("0", "1"), placed("1", "0"))
    asleep = {hold.taken_by: hold for hold in found.holds if (hold.taken_by or "").startswith("sleep")}
    assert asleep and verify(found).breaches == ()
    for step, hold in asleep.items():
        assert hold.given_by == (step or "").replace("sleep", "free") and hold.amount.high > 0


def test_a_cycle_is_broken_by_another_sender_first() -> None:
    """The engine that must leave before another one loads does not send to it, if a second one leaves as well."""
    sized = {"resident": "40 GiB", "sleep": "host"}

    def entry(where: str) -> dict[str, Any]:
        return {"placement": where, "parallel": {"dp": len(where.split(","))}, "memory": sized}

    before = planned({"a": entry("0,2"), "b": entry("1")}, 1, 4, "60 GiB")
    after = planned({"a": entry("1"), "b": entry("0")}, 1, 4, "60 GiB")
    found = transition(before, after)
    assert found.offload == 0 and found.answer == "fits" and verify(found).breaches == ()
    assert {move.sender.slot for move in found.moves if move.sender and move.component == "a"} == {1}


def test_no_order_that_keeps_engines_serving_is_sought_where_none_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tries show that a trainer does not fit; with the engines that should serve, there were 20,000 a search."""
    tries = []
    order = Group.order

    def counted(group: Group) -> Any:
        actions = order(group)
        tries.append(group._tries)
        return actions

    monkeypatch.setattr(Group, "order", counted)
    memory = {"training": "megatron", "model": EXPERTS}
    engine = {"engine": "vllm", "model": EXPERTS, "share": 0.3, "length": 1024}
    before = {
        "actor": {"placement": "7-14", "parallel": {"pp": 4}, "memory": memory},
        "rollout": {"placement": "8-15", "memory": engine},
    }
    after = {
        "actor": {"placement": "12-15", "parallel": {"tp": 4, "ep": 4}, "memory": memory},
        "rollout": {"placement": "0-7", "parallel": {"tp": 2}, "memory": engine},
    }
    costs = {"sync": {"from": "actor", "to": "rollout"}}
    found = transition(*(planned(components, 2, 8, "80 GiB") for components in (before, after)), costs=costs)
    assert found.answer == "unknown" and verify(found, states=64).breaches == ()
    assert sum(tries) < 5_000, tries


def test_between_the_bounds_the_answer_is_unknown_with_the_accelerator() -> None:
    actor = {"placement": "0-7", **ACTOR}
    found = transition(
        planned({"actor": actor}, 2, 8, "80 GiB"), planned({"actor": {**actor, "placement": "0-15"}}, 2, 8, "80 GiB")
    )
    assert found.answer == "unknown" and ("h0", 0) in found.unknown and verify(found).breaches == ()
    claimed = verify(replace(found, answer="fits")).breaches
    assert (1, "accelerator 0 of h0 may be exceeded") in claimed and {breach.invariant for breach in claimed} == {1}


def test_instances_keep_serving() -> None:
    before = planned({"rollout": engines("0-7", 4)}, 2, 8, "80 GiB")
    after = planned({"rollout": engines("8-15", 4)}, 2, 8, "80 GiB")
    for serving, first in ((4, "load"), (0, "stop-routing")):
        found = transition(before, after, serving=serving)
        assert verify(found).breaches == () and found.steps[0].do == first
    found = transition(before, after, serving=4)
    at_once = [step._replace(needs=[]) if step.do == "stop-routing" else step for step in found.steps]
    assert {breach.invariant for breach in verify(replace(found, steps=tuple(at_once))).breaches} == {8}
    early = [step._replace(needs=[]) if step.id == "stop-routing rollout/0" else step for step in found.steps]
    assert [*verify(replace(found, steps=tuple(early))).breaches] == [(8, "3 of rollout")]
    last = [step for step in transition(before, after).steps if step.do == "stop-routing"][-1]
    assert any(need.startswith("route") for need in last.needs)
    in_place = planned({"rollout": engines("0-7", 2, tp=4)}, 2, 8, "80 GiB")
    with pytest.raises(PlacementError, match="no order keeps 2 instances of rollout serving"):
        transition(before, in_place, serving=2)


# ---------------------------------------------------------------------------------------------------------- dead nodes


def test_what_is_dead_sends_nothing_and_gets_no_step() -> None:
    inventory = hosts(3, 8)
    before = planned({"rollout": engines("0-15", 8)}, 3, 8, "80 GiB")
    after = replan(before, inventory, without="h1").plan
    found = transition(before, after, without="h1")
    assert kinds(found) == {"lost": 8, "move": 8}
    assert {move.sender.slot for move in found.moves if move.sender is not None} <= set(range(8))
    assert all(step.side == "after" for step in found.steps) and verify(found).breaches == ()
    from_dead = tuple(replace(move, sender=Sender("rollout", 15)) for move in found.moves)
    assert any("but is lost" in breach.text for breach in verify(replace(found, moves=from_dead)).breaches)


def test_a_trainer_whose_states_are_gone_loads_its_checkpoint_as_a_whole() -> None:
    before = trainers("0-7", nodes=2)[0]
    lost = replan(before, hosts(2, 8), without="h0").plan
    found = transition(before, lost, without="h0")
    assert found.rollback == ("actor",)
    assert {move.sender for move in found.moves} == {None} and {slot.kind for slot in found.slots} == {"move", "lost"}
    copies = trainers("0-15", nodes=3)[0]
    half = replan(copies, hosts(3, 8), without="h1").plan
    assert transition(copies, half, without="h1").rollback == ("actor",)  # the optimizer of the lost ranks is gone
    weights = {"placement": "0-15", "parallel": {"tp": 4}, "memory": {"forward": True, "model": QWEN}}
    ref = planned({"ref": weights}, 3, 8, "80 GiB")
    assert not transition(ref, replan(ref, hosts(3, 8), without="h1").plan, without="h1").rollback


def racks(*names: str, level: str = "rack") -> Inventory:
    """Return nodes of 8 accelerators; the first letter of a name is its rack."""
    records = [{"ranks": rank, "hostname": name, "labels": {level: name[0]}} for rank, name in enumerate(names)]
    return Inventory.from_dict({"levels": [level], "nodes": [{**record, "accelerators": 8} for record in records]})


def on(inventory: Inventory, **components: dict[str, Any]) -> Plan:
    """Return the plan of components on these nodes."""
    cluster = {"num_nodes": inventory.num_nodes, "accelerator_memory": "80 GiB", "component_placement": components}
    return plan({"cluster": cluster}, inventory)


def test_what_leaves_with_the_nodes_that_replan_frees_drains() -> None:
    """The plan of a smaller job has only the nodes that it needs; the others are alive until their engines end."""
    nodes = hosts(3, 8)
    before = on(nodes, actor={"placement": "0-7", **ACTOR}, rollout=engines("8-23", 8))
    after = replan(before, nodes, shrink={"rollout": 4}).plan
    assert after.inventory.num_nodes == 2
    found = transition(before, after)
    assert kinds(found) == {"stop": 8} and found.stay["rollout"] == 8 and found.answer == "fits"
    assert ids(found) == [
        f"{do} rollout/{number}" for number in range(4, 8) for do in ("stop-routing", "drain", "free")
    ]
    assert verify(found).breaches == () and not found.moves
    named = transition(before, after, without="h2")
    assert kinds(named) == {"lost": 8} and not named.steps


def test_a_trainer_that_leaves_a_node_reads_its_states_from_there() -> None:
    nodes = racks("a0", "a1", "b0")
    before = on(nodes, actor={"placement": "0-23", **ACTOR})
    after = replan(before, nodes, shrink={"actor": 4}).plan
    assert after.inventory.num_nodes == 1
    found = transition(before, after)
    assert not found.rollback and found.by_level.keys() == {"node", "rack", "network"}
    levels = {"rack": range(8, 16), "network": range(16, 24)}
    sent = {
        level: {move.sender.slot for move in found.moves if move.sender and move.level == level} for level in levels
    }
    assert all(sent[level] <= set(slots) and sent[level] for level, slots in levels.items())
    assert found.answer == "unknown" and ("a0", 0) in found.unknown
    assert verify(found).breaches == ()


@pytest.mark.parametrize("level", ["device", "network", "host", "storage"])
def test_the_name_of_a_level_decides_nothing(level: str) -> None:
    def senders(name: str, **places: tuple[dict[str, Any], dict[str, Any]]) -> list[tuple[Any, ...]]:
        nodes = racks("a0", "a1", "b0", "b1", "c0", "c1", level=name)
        before, after = (on(nodes, **{one: both[side] for one, both in places.items()}) for side in (0, 1))
        return [(move.state, move.bytes, move.sender) for move in transition(before, after).moves]

    actors = {"placement": "0-15", **ACTOR}, {"placement": "0-7,24-31", **ACTOR}
    rollouts = engines("0-7,16-23", 8), engines("0-7,16-31", 12)
    assert senders(level, actor=actors) == senders("rack", actor=actors) != []
    assert senders(level, rollout=rollouts) == senders("rack", rollout=rollouts) != []


def test_nodes_with_one_name_stay_themselves() -> None:
    def nodes(rack: str) -> Inventory:
        names = enumerate(("l", "l", "m"))
        entries = [{"ranks": rank, "hostname": name, "accelerators": 4, "labels": {"r": rack}} for rank, name in names]
        return Inventory.from_dict({"nodes": entries})

    entry = {"placement": "0-11", **ACTOR}
    found = transition(on(nodes("x"), actor=entry), on(nodes("y"), actor=entry))
    assert not found.moves and found.stay["actor"] == 12


def test_a_node_without_a_label_shares_no_rack_with_others_that_lack_it() -> None:
    before, after = (
        Inventory.from_dict(
            {
                "levels": ["rack"],
                "nodes": [
                    {"ranks": 0, "hostname": "h0", "accelerators": 8, "labels": {"rack": "a"}},
                    {"ranks": 1, "hostname": name, "accelerators": 8},
                ],
            }
        )
        for name in ("h1", "h2")
    )
    distances = Distances.of(after).with_freed(before, after, [-2])
    assert len({distances.domain(0, node) for node in (0, 1, -2)}) == 3


def test_a_node_that_the_plan_after_lacks_is_dead_if_its_processes_are_elsewhere() -> None:
    before = on(racks("a0", "a1"), rollout=engines("0-15", 8))
    after = replan(before, racks("a0", "b0")).plan
    found = transition(before, after)
    assert kinds(found) == {"lost": 8, "move": 8} and all(step.side == "after" for step in found.steps)


def test_a_node_that_the_plan_after_excludes_is_dead() -> None:
    before = on(racks("a0", "a1"), rollout=engines("0-15", 8))
    after = replan(before, racks("a0", "a1"), without="a1", shrink=["rollout"]).plan
    found = transition(before, Plan.from_dict(after.to_dict()))
    assert kinds(found) == {"lost": 8} and not found.steps


def test_a_node_that_a_smaller_plan_excludes_is_dead() -> None:
    """The plan after lacks the node, and its config names it as excluded."""
    before = on(hosts(3, 8), rollout=engines("0-23", 12))
    cluster = {"num_nodes": 2, "exclude": ["h2"], "accelerator_memory": "80 GiB"}
    components = {"rollout": engines("0-15", 8)}
    after = plan({"cluster": {**cluster, "component_placement": components}}, hosts(3, 8))
    found = transition(before, after)
    assert kinds(found) == {"lost": 8} and not found.steps


@pytest.mark.parametrize(("each", "expected"), [("", {"lost": 1, "stop": 1}), (":0-3", {"lost": 2})])
def test_a_process_on_a_dead_accelerator_is_lost(each: str, expected: dict[str, int]) -> None:
    """Of an engine of two processes, the other one is freed."""
    memory = {"parallel": {"tp": 2}, "memory": {**ENGINE, "model": MODEL}}
    before = planned({"rollout": {"placement": f"0-7{each}", **memory}}, 1, 8, "80 GiB")
    after = planned({"rollout": {"placement": f"0-5{each.replace('3', '2')}", **memory}}, 1, 8, "80 GiB")
    found = transition(before, after, without="h0/7")
    assert kinds(found) == expected and ids(found) == ["free rollout/3"] * ("stop" in expected)
    assert verify(found).breaches == ()


@pytest.mark.parametrize("serving", [1, 2])
def test_a_lost_engine_is_not_counted_among_those_that_serve(serving: int) -> None:
    memory = {"parallel": {"tp": 2}, "memory": {**ENGINE, "model": MODEL}}
    before = planned({"rollout": {"placement": "0-5", **memory}}, 1, 12, "80 GiB")
    after = planned({"rollout": {"placement": "6-9", **memory}}, 1, 12, "80 GiB")
    found = transition(before, after, without="h0/5", serving=serving)
    assert kinds(found) == {"move": 4, "lost": 1, "stop": 1} and verify(found).breaches == ()
    stops = {step.id: step.needs for step in found.steps if step.do == "stop-routing"}
    assert list(stops) == ["stop-routing rollout/0", "stop-routing rollout/1"]
    assert sum(need.startswith("route") for need in stops["stop-routing rollout/1"]) == serving


def test_a_node_that_renumbered_processes_leave_behind_is_alive() -> None:
    """Its engine ends; that another one, on its own devices, now has the same number means nothing."""
    before = on(hosts(3, 8), rollout=engines("0-1,8-9,16-17", 3))
    nodes = [{"ranks": rank, "hostname": name, "accelerators": 8} for rank, name in enumerate(("h0", "h2"))]
    after = on(Inventory.from_dict({"nodes": nodes}), rollout=engines("0-1,8-9", 2))
    assert kinds(transition(before, after, names="as planned")) == {"rename": 2, "stop": 2}


def test_processes_that_share_an_accelerator_are_told_apart() -> None:
    def placed(count: int) -> Plan:
        return planned({"a": {"placement": f"0:0-{count - 1}", "memory": {"resident": "10 GiB"}}}, 1, 4, "80 GiB")

    found = transition(placed(2), placed(3))
    assert kinds(found) == {"start": 1} and found.stay["a"] == 2 and verify(found).breaches == ()


@pytest.mark.parametrize("turned", [False, True])
def test_components_of_one_plan_only_start_and_end(turned: bool) -> None:
    actor = {"placement": "0-3", **ACTOR}
    small = planned({"actor": actor}, 2, 8, "80 GiB")
    large = planned({"actor": actor, "rollout": engines("8-11", 2), "env": {"placement": "12-13"}}, 2, 8, "80 GiB")
    before, after = (large, small) if turned else (small, large)
    found = transition(before, after, costs={"sync": {"from": "actor", "to": "rollout"}})
    assert kinds(found) == {"stop" if turned else "start": 6} and found.stay["actor"] == 4
    assert {step.component for step in found.steps} == {"rollout", "env"}
    assert (
        {"free rollout/1", "free env/1"} <= {*ids(found)}
        if turned
        else {"route rollout/1", "route env/1"} <= {*ids(found)}
    )
    assert verify(found).breaches == ()


# -------------------------------------------------------------------------------------------------------------- seconds


def test_seconds_are_those_of_the_longest_path() -> None:
    before = planned({"rollout": engines("0-1", 1)}, 2, 8, "80 GiB")
    after = planned({"rollout": engines("0-1,8-9", 2)}, 2, 8, "80 GiB")
    steps = {"load": 30, "cache": 5, "verify": 1}
    costs = {
        "bandwidth_of": "accelerator",
        "bandwidth": {"network": 1e9},
        "latency": 2,
        "components": {"rollout": steps},
    }
    found = transition(before, after, costs=costs)
    sent: dict[int, int] = {}
    for move in found.moves:
        sent[move.sender.slot if move.sender else -1] = sent.get(move.sender.slot if move.sender else -1, 0) + (
            move.bytes or 0
        )
    most = max(*sent.values(), *(slot.bytes or 0 for slot in found.slots))
    assert found.missing == () and found.seconds.low == pytest.approx(30 + 2 + most / 1e9 + 5 + 1)
    assert found.seconds.high == pytest.approx(found.seconds.low)
    unknown = transition(before, after, costs={"components": {"rollout": steps}})
    assert unknown.seconds == (36, None) and unknown.missing == ("bandwidth.network", "latency")
    two = planned({"rollout": engines("0-1,8-11", 3)}, 2, 8, "80 GiB")
    crowded = transition(before, two, costs=costs).seconds
    assert crowded.high is not None and crowded.high > crowded.low  # both read the same slots


def test_loading_takes_the_bytes_from_storage_besides_its_own_seconds() -> None:
    actor = {"placement": "0-3", **ACTOR}
    before = planned({"actor": actor}, 1, 8, "80 GiB")
    after = planned({"actor": actor, "rollout": engines("4-5", 1)}, 1, 8, "80 GiB")
    bandwidth = {"bandwidth_of": "accelerator", "bandwidth": {"storage": 1e9}}
    found = transition(before, after, costs={**bandwidth, "components": {"rollout": {"load": 30}}})
    most = max(slot.bytes or 0 for slot in found.slots)
    assert found.seconds.low == pytest.approx(30 + most / 1e9) and most > 5e9


def test_no_more_instances_must_serve_than_there_will_be() -> None:
    before = planned({"rollout": engines("0-7", 4)}, 2, 8, "80 GiB")
    after = planned({"rollout": engines("8-9", 1)}, 2, 8, "80 GiB")
    found = transition(before, after, serving=2)
    assert found.answer == "fits" and verify(found).breaches == ()


def test_ranks_beside_each_other_hold_different_shards() -> None:
    """FSDP with 2 shards: ranks 0 and 2 have copies, so that half of the ranks have all."""
    memory = {"training": "fsdp", "shards": 2, "model": MODEL}
    before, after = (planned({"actor": {"placement": where, "memory": memory}}, 1, 8) for where in ("0-3", "0-1"))
    assert not transition(before, after).moves


def test_engines_abort_if_only_that_has_a_cost() -> None:
    before = planned({"rollout": engines("0-3", 2)}, 1, 8, "80 GiB")
    after = planned({"rollout": engines("0-1", 1)}, 1, 8, "80 GiB")
    for steps, do, seconds in (({"abort": 2}, "abort", 2), ({"abort": 2, "drain": 9}, "drain", 9), ({}, "drain", 0)):
        found = transition(before, after, costs={"components": {"rollout": steps}})
        assert ids(found) == ["stop-routing rollout/1", f"{do} rollout/1", "free rollout/1"]
        assert found.seconds.low == seconds and verify(found).breaches == ()


def test_a_node_that_only_the_plan_after_has_may_be_dead() -> None:
    before = planned({"rollout": engines("0-3", 2)}, 1, 8, "80 GiB")
    after = planned({"rollout": engines("0-3", 2)}, 3, 8, "80 GiB")
    assert not transition(before, after, without="h2")
    with pytest.raises(PlacementError, match="rollout rank 2 on h1, which is out of use"):
        transition(before, planned({"rollout": engines("0-3,8-9", 3)}, 3, 8, "80 GiB"), without=["h1"])
    with pytest.raises(PlacementError) as unknown:
        transition(before, after, without=["h7", "h2", "h8"])
    assert len(unknown.value.diagnostics) == 2


def test_without_memory_parts_are_given() -> None:
    before = planned({"a": {"placement": "0-1", "parallel": {"tp": 2}}}, 1, 4)
    after = planned({"a": {"placement": "0-3", "parallel": {"tp": 2}}}, 1, 4)
    found = transition(before, after)
    assert found.total is None and [move.part for move in found.moves] == [0.5, 0.5]
    assert {slot.bytes for slot in found.slots} == {None} and found.to_dict()["bytes"]["total"] is None


# -------------------------------------------------------------------------------------------------------------- lending


def test_lending_is_sleep_and_wake_alone() -> None:
    actor = {"placement": "0-7", "parallel": {"tp": 4}, "memory": {"resident": "60 GiB", "sleep": "host"}}
    rollout = engines("0-15", 8, sleep="host")
    stays = planned({"actor": actor, "rollout": rollout}, 2, 8, "80 GiB")
    found = transition(stays, stays, asleep=(["rollout/0-3"], ["actor"]))
    assert {step.do for step in found.steps} == {"sleep", "wake"} and len(found.steps) == 2 + 4
    wake = next(step for step in found.steps if step.id == "wake rollout/0")
    assert wake.needs == ["sleep actor/0"]
    assert found.answer == "fits" and verify(found).breaches == ()
    back = transition(stays, stays, asleep=(["actor"], ["rollout/0-3"]))
    assert verify(back).breaches == () and {step.do for step in back.steps} == {"sleep", "wake"}
    actor["memory"] = {"resident": "76 GiB", "sleep": "host"}
    tight = planned({"actor": actor, "rollout": rollout}, 2, 8, "80 GiB")
    with pytest.raises(PlacementError) as caught:
        transition(tight, tight, asleep=(["actor"], []))
    assert caught.value.diagnostics[0].code == "transition-stuck"
    jsonschema.validate(found.to_dict(), transition_schema())


# -------------------------------------------------------------------------------------------------------------- refused


ONE = planned({"actor": {"placement": "0-3", **ACTOR}}, 2, 8, "80 GiB")
REFUSED: list[tuple[Plan, dict[str, Any], str, str]] = [
    (
        planned({"env": {"placement": "0"}}, 2, 8),
        {},
        "other-job",
        "the plans have no component in common: actor, and env",
    ),
    (
        planned(
            {"actor": {"placement": "0-3", "parallel": {"tp": 4}, "memory": {"training": "fsdp", "model": QWEN}}}, 2, 8
        ),
        {},
        "other-job",
        "`actor` is training: megatron in the plan before, but training: fsdp in the plan after",
    ),
    (
        planned(
            {"actor": {"placement": "0-3", "parallel": {"tp": 4}, "memory": {"training": "megatron", "params": 1e9}}},
            2,
            8,
        ),
        {},
        "other-job",
        "`actor` is Qwen/Qwen3-8B in the plan before, but 1e+09 parameters in the plan after",
    ),
    (planned({"actor": {"placement": "0-3"}}, 2, 8), {}, "other-job", "but of unknown memory in the plan after"),
    (
        planned({"actor": {"placement": "0-3", **ACTOR}}, 2, 4),
        {},
        "plan-mismatch",
        "node h0 has 8 accelerators (NV_GPU)",
    ),
    (ONE, {"without": "h9"}, "invalid-value", "unknown node or accelerator"),
    (
        ONE,
        {"without": ["h0"]},
        "excluded-resource",
        "the plan after places actor rank 0 on h0, which is out of use",
    ),
    (ONE, {"serving": -1}, "invalid-value", "`serving` is -1; it must be a whole number of 0 or more"),
    (ONE, {"serving": "two"}, "invalid-value", "`serving` is 'two'"),
    (ONE, {"names": "best"}, "invalid-value", "`names` is 'best'; it must be free or as planned"),
    (ONE, {"asleep": (["rollout"], [])}, "unknown-component", "unknown instances 'rollout'"),
    (ONE, {"asleep": (["actor/1"], [])}, "unknown-component", "unknown instances 'actor/1'"),
    (trainers("4-7")[0], {"asleep": ([], ["actor"])}, "invalid-value", "`asleep` is for one plan"),
    (ONE, {"costs": {"components": {"actr": {"load": 1}}}}, "unknown-component", "unknown component `actr`"),
    (ONE, {"costs": {"components": {"actor": {"lod": 1}}}}, "unknown-key", "unknown key `lod`"),
    (
        ONE,
        {"costs": {"components": {"actor": {"load": -1}}}},
        "invalid-value",
        "load is -1; it must be a number of 0 or more",
    ),
    (ONE, {"costs": {"components": 3}}, "invalid-value", "`components` is 3"),
    (ONE, {"costs": {"latencies": 1}}, "unknown-key", "unknown key `latencies`"),
    (ONE, {"costs": {"latency": "1 s"}}, "invalid-value", "latency is '1 s'"),
    (ONE, {"costs": {"bandwidth": {"node": 1e9}}}, "missing-key", "`bandwidth` needs `bandwidth_of: accelerator`"),
    (ONE, {"costs": {"bandwidth_of": "node", "bandwidth": {"node": 1}}}, "invalid-value", "bandwidth_of is 'node'"),
    (
        ONE,
        {"costs": {"bandwidth_of": "accelerator", "bandwidth": {"rack": 1}}},
        "unknown-level",
        "unknown level `rack`",
    ),
    (ONE, {"costs": {"bandwidth_of": "accelerator", "bandwidth": {"node": 0}}}, "invalid-value", "node is 0"),
    (ONE, {"costs": {"sync": {"from": "actor", "to": "roll"}}}, "unknown-component", "unknown component `roll`"),
    (ONE, {"costs": {"sync": 3}}, "invalid-value", "sync is 3; it must be a list of mappings"),
    (ONE, {"costs": {"sync": {"from": "actor", "to": "actor"}}}, "invalid-value", "`sync` is from `actor` to itself"),
    (
        planned(
            {"actor": {"placement": "0-3", **ACTOR}, "ref": {"placement": "4"}, "rollout": {"placement": "5"}}, 2, 8
        ),
        {"costs": {"sync": [{"from": name, "to": "rollout"} for name in ("actor", "ref")]}},
        "invalid-value",
        "`sync` has two senders for `rollout`: `actor` and `ref`; it must have one",
    ),
]
CODES = {"other-job", "transition-stuck"}


@pytest.mark.parametrize(("after", "options", "code", "message"), REFUSED)
def test_bad_input_is_refused(after: Plan, options: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(PlacementError) as caught:
        transition(ONE, after, **options)
    fault = caught.value.diagnostics[0]
    assert fault.code == code and message in fault.message and fault.help


@pytest.mark.parametrize(
    ("before", "after", "is_refused"),
    [
        ("A100 80GB", "H100", True),
        ("A100 40GB", "NVIDIA A100-SXM4-80GB", True),
        ("A100", "NVIDIA A100-SXM4-80GB", False),
        ("H100", "NVIDIA H100 NVL", True),
        ("h100", "NVIDIA H100 80GB HBM3", False),
        ("TPU v5", "another TPU", False),
        ("80 GiB", "H200", True),
        (None, "H100", False),
    ],
)
def test_a_node_has_one_model_of_accelerators(before: str | None, after: str, is_refused: bool) -> None:
    def placed(model: str | None) -> Plan:
        node = {"ranks": 0, "hostname": "h0", "accelerators": 8, "accelerator_model": model}
        return on(Inventory.from_dict({"nodes": [node]}), actor={"placement": "0-3", **ACTOR})

    plans = placed(before), placed(after)
    if not is_refused:
        assert not transition(*plans)
        return
    with pytest.raises(PlacementError, match=f"node h0 has accelerators of model {before} .* but {after} in") as caught:
        transition(*plans)
    assert caught.value.code == "plan-mismatch" and "another hostname" in (caught.value.diagnostics[0].help or "")


def test_moves_are_a_sequence_of_rows() -> None:
    found = transition(*trainers("0-7", "0-15"))
    rows = tuple(found.moves)
    assert found.moves == rows and found.moves[1:3] == rows[1:3] and found.moves[-1] == rows[-1]
    assert len(found.moves) == len(rows) > 2 and repr(found.moves) == repr(rows)
    assert found.moves != rows[1:] and found.moves != 3
    assert not transition(found.before, found.before).moves


def test_something_that_is_no_plan_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="before is"):
        transition("a.json", ONE)  # type: ignore[arg-type]
    assert some(REFUSED)


def beside_actor(rollout: str, other: str | None = None) -> Plan:
    """Return an actor beside a rollout with two processes on each of eight accelerators of 80 GiB."""

    def entry(resident: str, **more: Any) -> dict[str, Any]:
        return {"placement": "0-7", "memory": {"resident": resident, "sleep": "host"}, **more}

    components = {"actor": entry("30 GiB"), "rollout": entry(rollout, placement="0-7:0-15", parallel={"tp": 2})}
    return planned(components | ({} if other is None else {"other": entry(other)}), 1, 8, "80 GiB")


def test_slots_of_one_step_that_share_an_accelerator_count_together() -> None:
    stays = beside_actor("30 GiB")
    found = transition(stays, stays, asleep=(["rollout"], ["actor"]))
    assert found.answer == "fits" and verify(found).breaches == ()
    with pytest.raises(PlacementError) as stuck:  # two slots of 30 GiB beside one of 30 that stays
        both = beside_actor("30 GiB", other="30 GiB")
        transition(both, both, asleep=(["rollout"], []))
    assert stuck.value.code == "transition-stuck"


def test_whoever_wakes_waits_for_who_sleeps_also_where_no_bound_is_known() -> None:
    plan = planned({"actor": {"placement": "0-1"}, "rollout": {"placement": "0-1"}}, 1, 4)
    found = transition(plan, plan, asleep=(["rollout"], ["actor"]))
    assert found.answer == "unknown"
    assert {step.id: step.needs for step in found.steps if step.needs} == {
        f"wake rollout/{number}": [f"sleep actor/{number}"] for number in (0, 1)
    }


def test_an_engine_whose_memory_is_free_while_it_sleeps_sends_nothing() -> None:
    def engines_of(rollout: str, sleep: str) -> Plan:
        memory = {"engine": "vllm", "model": QWEN, "share": 0.3, "length": 512, "sleep": sleep}
        actor = {"placement": "0-7", "parallel": {"tp": 2}, "memory": {**ACTOR["memory"], "sleep": "host"}}
        return planned(
            {"actor": actor, "rollout": {"placement": rollout, "parallel": {"tp": 2}, "memory": memory}}, 1, 8, "80 GiB"
        )

    costs = {"sync": {"from": "actor", "to": "rollout"}}
    senders = {}
    for sleep in ("host", "free"):
        found = transition(engines_of("0-3:0-1", sleep), engines_of("0-7:0-3", sleep), costs=costs)
        senders[sleep] = {move.sender.component for move in found.moves if move.sender is not None}
    assert senders["free"] == {"actor"} and "rollout" in senders["host"]


@pytest.mark.parametrize(("sleep", "senders"), [("host", {"ref"}), ("free", {None})])
def test_a_sender_whose_memory_is_free_while_it_sleeps_sends_nothing(sleep: str, senders: set[str | None]) -> None:
    weights = {"forward": True, "model": MODEL, "sleep": sleep}
    ref = {"placement": "0-3", "parallel": {"tp": 2}, "memory": weights}
    other = {"placement": "0-3", "memory": {"resident": "1 GiB"}}
    before = planned({"ref": ref, "other": other}, 1, 8, "80 GiB")
    after = planned({"ref": ref, "other": other, "rollout": engines("4-5", 1, model=MODEL)}, 1, 8, "80 GiB")
    found = transition(before, after, costs={"sync": {"from": "ref", "to": "rollout"}})
    assert {move.sender and move.sender.component for move in found.moves} == senders


def test_a_process_that_sees_other_devices_restarts() -> None:
    before, after = (planned({"a": {"placement": f"{where}:0"}}, 1, 4) for where in ("0-1", "0,2"))
    assert kinds(transition(before, after)) == {"restart": 1, "move": 1}


@pytest.mark.parametrize("asleep", ["rollout", ["rollout"], (["a"], ["b"], ["c"])])
def test_what_sleeps_is_two_lists(asleep: Any) -> None:
    stays = beside_actor("20 GiB")
    with pytest.raises(PlacementError, match="it must be two lists: what sleeps before, and what sleeps after"):
        transition(stays, stays, asleep=asleep)


def test_a_plan_that_stays_has_no_dead_hardware() -> None:
    stays = beside_actor("20 GiB")
    with pytest.raises(PlacementError, match="`without` names dead hardware"):
        transition(stays, stays, asleep=(["rollout"], ["actor"]), without=["node-0"])


def test_a_dead_node_is_drawn_as_lost() -> None:
    section = {"num_nodes": 2, "component_placement": {"actor": {"placement": "0-7", **ACTOR}}}
    before = plan({"cluster": {**section, "accelerator_memory": "80 GiB"}}, hosts(3, 4))
    after = replan(before, hosts(3, 4), without=["h1"]).plan
    cells, _ = _cells(transition(before, after, without=["h1"]))
    drawn = {accelerator: [slot.kind for slot in slots] for accelerator, slots in cells.items()}
    assert [drawn[0, index] for index in range(4)] == [["stay"]] * 4
    assert sorted(kind for (node, _), kinds in drawn.items() if node != 0 for kind in kinds) == ["lost"] * 4

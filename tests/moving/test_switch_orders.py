"""The orders in which verl and ROLL lend and take back accelerators, replayed: no invariant breaks in them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from rankplan import transition
from rankplan.moving.simulate import verify
from rankplan.moving.transition import PlannedStep, Transition
from support.outcomes import some
from support.paths import TESTS
from support.transitions import planned

SYSTEMS = json.loads((TESTS / "golden" / "switch_orders.json").read_text())
ENGINE = {"engine": "vllm", "model": "Qwen/Qwen3-8B", "share": 0.6, "length": 8192, "sleep": "host"}

Calls = list[tuple[str, list[str]]]


def engines(placement: str, count: int) -> dict[str, Any]:
    return {"placement": f"{placement}:0-{count - 1}", "parallel": {"tp": 2}, "memory": ENGINE}


def resized(before: tuple[str, int], after: tuple[str, int]) -> Transition:
    """Return the transition of a rollout that gets other engines, beside a trainer that sends it weights."""
    plans = []
    for placement, count in (before, after):
        actor = {
            "placement": "8-15",
            "parallel": {"tp": 4},
            "memory": {"training": "megatron", "model": ENGINE["model"]},
        }
        plans.append(planned({"actor": actor, "rollout": engines(placement, count)}, 2, 8, "80 GiB"))
    return transition(*plans, costs={"sync": {"from": "actor", "to": "rollout"}})


def replayed(found: Transition, calls: Calls) -> Transition:
    """Return a transition whose steps follow each other as a trainer calls them: a call is for all instances.

    Within a call, the steps of an instance are in their own order.
    """
    steps: list[PlannedStep] = []
    left, last = {step.id for step in found.steps}, list[str]()
    for _, does in calls:
        called = [step for step in found.steps if step.do in does]
        for number, step in enumerate(called):
            left.remove(step.id)
            earlier = [other.id for other in called[:number] if other.instance == step.instance]
            steps.append(step._replace(needs=[*last, *earlier]))
        last = [step.id for step in called] or last
    assert not left, left
    return replace(found, steps=tuple(steps))


@pytest.mark.parametrize("system", SYSTEMS)
def test_engines_leave_and_arrive_in_the_order_of_the_system(system: str) -> None:
    leaves, arrives = resized(("0-7", 4), ("0-3", 2)), resized(("0-3", 2), ("0-7", 4))
    assert {step.do for step in leaves.steps} == {"stop-routing", "drain", "free"}
    assert {step.do for step in arrives.steps} == {"load", "regroup", "sync", "cache", "verify", "route"}
    for found, calls in ((leaves, SYSTEMS[system]["leave"]), (arrives, SYSTEMS[system]["arrive"])):
        assert verify(replayed(found, calls)).breaches == ()


@pytest.mark.parametrize("system", SYSTEMS)
def test_any_other_order_of_its_calls_breaks_an_invariant(system: str) -> None:
    for found, key in ((resized(("0-7", 4), ("0-3", 2)), "leave"), (resized(("0-3", 2), ("0-7", 4)), "arrive")):
        calls = [call for call in SYSTEMS[system][key] if {step.do for step in found.steps} & set(call[1])]
        others = [order for order in permutations(calls) if list(order) != calls]
        for order in some(others):
            assert verify(replayed(found, list(order))).breaches, order


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_trainer_lends_and_takes_back_in_the_order_of_the_system(system: str) -> None:
    """The trainer is on the host before engines wake on its accelerators, and back only when they sleep."""
    actor = {"placement": "0-7", "parallel": {"tp": 4}, "memory": {"resident": "60 GiB", "sleep": "host"}}
    plan = planned({"actor": actor, "rollout": engines("0-15", 8)}, 2, 8, "80 GiB")
    back = transition(plan, plan, asleep=(["actor"], ["rollout/0-3"]))
    lent = transition(plan, plan, asleep=(["rollout/0-3"], ["actor"]))
    for found in (back, lent):
        sleeps = [call for call in SYSTEMS[system]["leave"] if "sleep" in call[1]]
        wakes = [call for call in SYSTEMS[system]["arrive"] if "wake" in call[1]]
        assert verify(replayed(found, [*sleeps, *wakes])).breaches == ()
        wrong = verify(replayed(found, [*wakes, *sleeps]))
        assert {breach.invariant for breach in wrong.breaches} == {1}

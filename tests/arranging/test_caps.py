"""`cap` in plans that have nodes already: it holds after every replan, and other jobs make no survivor move."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import PlacementError, Plan, replan
from rankplan.plans.rules import Rules
from support.growth import LEVELS, cluster, hosts, job
from support.outcomes import at_least, outcome

SIX = [("x", "a")] * 3 + [("x", "b")] * 3


def engines_on(order: list[int], labels: list[tuple[str, str]]) -> Plan:
    """Return a rollout, an engine on each of these nodes."""
    return job(order, {}, cluster(labels), rollout=(f"0-{4 * len(order) - 1}", {"tp": 4}))


def with_rules(plan: Plan, rules: Rules) -> Plan:
    return plan.placed(plan.inventory, plan.values(), rules)


@at_least(kept=0.2, moved=0.02, refused=0.1)
@settings(max_examples=200)
@given(st.data())
def test_a_repair_never_exceeds_a_cap_and_moves_the_fewest(data: st.DataObject) -> None:
    """Against every choice of nodes: the plan may break the cap before, and other jobs may be on nodes."""
    labels = [({"c": "y"}.get(one, "x"), one) for one in data.draw(st.sampled_from(["aaabbc", "aabcc", "aaabbb"]))]
    every = list(range(len(labels)))
    order = list(data.draw(st.just(every) | st.permutations(every)))
    count = data.draw(st.integers(2, len(order) - 1))
    level, most = data.draw(st.sampled_from(LEVELS)), data.draw(st.integers(1, 3))
    others = data.draw(st.sets(st.sampled_from(order[count:]), max_size=1))
    lost = data.draw(st.none() | st.integers(0, count - 1))
    fixed = data.draw(st.integers(0, 3)) == 0
    nodes = cluster(labels)
    before = engines_on(order[:count], labels)
    domain = [pair[: LEVELS.index(level) + 1] for pair in labels]
    stays = [rank for rank in range(count) if rank != lost]
    had = Counter(domain[order[rank]] for rank in stays)
    taken = Counter(domain[node] for node in others)
    left = {one: max(most - taken[one], min(had[one], most)) for one in set(domain)}
    free = [node for node in order if node not in others and (lost is None or node != order[lost])]
    moves = []
    for chosen in permutations(free, count):
        used = Counter(domain[node] for node in chosen)
        if all(used[one] <= left[one] for one in used):
            moves.append(sum(chosen[rank] != order[rank] for rank in stays))
    if fixed:
        moves = [each for each in moves if not each]
    beside = [engines_on(sorted(others), labels)] if others else []
    without = [] if lost is None else [f"n{order[lost]}"]
    try:
        found = replan(before, nodes, without=without, cap={level: most}, fixed=fixed, beside=beside)
    except PlacementError as refused:
        outcome("refused")
        assert not moves and "ended early" not in refused.message
        return
    after = hosts(found.plan)[:count]
    outcome("moved" if any(after[rank] != order[rank] for rank in stays) else "kept")
    used = Counter(domain[node] for node in after)
    assert all(used[one] <= left[one] for one in used)
    assert sum(after[rank] != order[rank] for rank in stays) == min(moves)
    assert not found.plan.rule_faults()


MOVE_FIRST = "let survivors move first: `rankplan replan PLAN`"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"shrink": {"rollout": 1}}, "3 nodes of nvlink domain x/a are in use; `cap` allows 2"),
        ({"grow": {"rollout": 1}}, "3 nodes of nvlink domain x/a are in use; `cap` allows 2"),
        ({"fixed": True}, "3 nodes of nvlink domain x/a are in use; `cap` allows 2"),
        ({"fixed": True, "without": ["n0"]}, None),
        ({"shrink": {"rollout": 2}}, None),
    ],
)
def test_nodes_that_must_stay_above_a_cap(changes: dict[str, Any], fault: str | None) -> None:
    before = with_rules(engines_on([0, 1, 2, 3], SIX), Rules(cap={"nvlink": 2}))
    if fault is None:
        assert not replan(before, cluster(SIX), **changes).plan.rule_faults()
        return
    with pytest.raises(PlacementError) as refused:
        replan(before, cluster(SIX), **changes)
    assert (refused.value.message, refused.value.help) == (fault, MOVE_FIRST)


def test_a_component_that_breaks_a_rule_even_when_it_is_smaller() -> None:
    before = with_rules(engines_on([0, 3, 1], SIX), Rules(keep={"rollout": {"world": "nvlink"}}))
    with pytest.raises(PlacementError) as refused:
        replan(before, cluster(SIX), shrink={"rollout": 1})
    assert refused.value.message == "nodes 0-1 must stay together, and are in 2 nvlink domains already"
    assert refused.value.help == MOVE_FIRST

"""Peaks of accelerators, by trying every state that the steps can reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from rankplan.moving.cards import Amount
from rankplan.moving.instances import Instance
from rankplan.moving.peaks import peaks_of
from rankplan.moving.steps import Hold, Step

CARD = (0, 0)
ENGINE = Instance("rollout", 0)


def step(name: str, needs: Set[str]) -> Step:
    return Step(name, "load", ENGINE, "after", [0], set(needs))


def every_state(needs: Mapping[str, Set[str]]) -> Iterator[tuple[Set[str], Set[str]]]:
    """Yield the steps that have ended, and those that run or have run, wherever all that could run do."""
    open_sets: list[frozenset[str]] = [frozenset()]
    seen = set(open_sets)
    while open_sets:
        ended = open_sets.pop()
        ready = {name for name in needs if name not in ended and needs[name] <= ended}
        yield ended, ended | ready
        for name in ready:
            if (after := ended | {name}) not in seen:
                seen.add(after)
                open_sets.append(after)


def most_held(needs: Mapping[str, Set[str]], holds: Sequence[Hold]) -> float:
    """Return the most bytes that are held at once. A step that takes and gives exchanges the one for the other."""
    exchanging = {hold.taken_by for hold in holds} & {hold.given_by for hold in holds}
    most = 0.0
    for ended, begun in every_state(needs):
        for count in range(len((begun - ended) & exchanging) + 1):
            for exchanged in combinations(sorted((begun - ended) & exchanging), count):
                changed = ended | {*exchanged}
                taken = (begun - exchanging) | changed
                present = [hold for hold in holds if hold.taken_by in {None, *taken} and hold.given_by not in changed]
                most = max(most, sum(hold.amount.high for hold in present))
    return most


@st.composite
def jobs(draw: st.DrawFn) -> tuple[dict[str, Set[str]], list[Hold]]:
    """Up to seven steps, each after some of the earlier ones, and holds that are given back after they are taken."""
    names = [f"step-{number}" for number in range(draw(st.integers(2, 7)))]
    needs: dict[str, Set[str]] = {}
    before: dict[str, Set[str]] = {}
    for number, name in enumerate(names):
        needs[name] = draw(st.sets(st.sampled_from(names[:number]), max_size=2)) if number else set()
        before[name] = needs[name].union(*(before[need] for need in needs[name]))
    holds = [Hold(CARD, Amount(1.0, 1.0), names[0], None)]
    for size in draw(st.lists(st.integers(1, 40), min_size=1, max_size=5)):
        given_by = draw(st.none() | st.sampled_from(names))
        earlier = names if given_by is None else sorted(before[given_by])
        taken_by = draw(st.none() | st.sampled_from(earlier)) if earlier else None
        holds.append(Hold(CARD, Amount(float(size), float(size)), taken_by, given_by))
    return needs, holds


@given(jobs())
def test_a_peak_is_the_most_of_every_state(job: tuple[dict[str, Set[str]], list[Hold]]) -> None:
    needs, holds = job
    (peak,) = peaks_of([step(name, each) for name, each in needs.items()], holds)
    assert peak.accelerator == CARD
    assert peak.most == peak.least == most_held(needs, holds)


def test_what_comes_long_after_the_leaving_never_meets_it() -> None:
    """The cache waits for the weights, and these for the engine that leaves: 70 + 5, then 5 + 60."""
    needs = {"free": set[str](), "load": {"free"}, "cache": {"load"}}
    leaving = Hold(CARD, Amount(70.0, 70.0), None, "free")
    weights = Hold(CARD, Amount(5.0, 5.0), "load", None)
    cache = Hold(CARD, Amount(60.0, 60.0), "cache", None)
    (peak,) = peaks_of([step(name, each) for name, each in needs.items()], [leaving, weights, cache])
    assert peak.most == 70.0

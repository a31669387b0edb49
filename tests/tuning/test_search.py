"""The search for the best schedule, against an exhaustive one, and the laws that it obeys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rankplan._core import best_schedule
from support import oracle_tune
from support.oracle_tune import Component, Problem

SHAPES = ["collocated", "disaggregated", "hybrid"]


def solved(problem: Problem, shape: str) -> tuple[float, int, Any] | None:
    components = [
        ([(size, *one.sizes[size]) for size in sorted(one.sizes)], one.switch, sum(1 << task for task in one.after))
        for one in problem.components
    ]
    return best_schedule(
        components,
        problem.accelerators,
        problem.batches,
        problem.stale,
        problem.capacity,
        list(problem.transfers),
        shape,
    )


def plain(tree: tuple[Any, ...], sizes: dict[int, int]) -> Any:
    """Return a schedule as the oracle writes it, and fill in the sizes."""
    if tree[0] == "leaf":
        sizes[tree[1]] = tree[2]
        return tree[1]
    return (tree[0], tuple(plain(child, sizes) for child in tree[1]))


@st.composite
def problems(draw: st.DrawFn, most: int = 4, most_sizes: int = 4) -> Problem:
    count = draw(st.integers(1, most))
    accelerators = draw(st.integers(1, 24))
    limited = draw(st.sampled_from([False, False, True]))
    components = []
    for index in range(count):
        sizes = draw(st.sets(st.integers(1, accelerators), min_size=1, max_size=most_sizes if count < 4 else 3))
        times = draw(st.lists(st.integers(1, 60), min_size=len(sizes), max_size=len(sizes)))
        memory = draw(st.lists(st.integers(0, 8), min_size=len(sizes), max_size=len(sizes)))
        after = draw(st.sets(st.integers(0, index - 1))) if index else set()
        components.append(
            Component(
                {size: (time / 2, float(need)) for size, time, need in zip(sorted(sizes), times, memory, strict=True)},
                float(draw(st.integers(0, 6))) if limited else 0.0,
                frozenset(after),
            )
        )
    transfers = []
    if count > 1 and draw(st.booleans()):
        pair = draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=2, unique=True))
        transfers.append(((pair[0], pair[1]), float(draw(st.integers(0, 9))), float(draw(st.integers(0, 3)))))
    return Problem(
        components,
        accelerators,
        draw(st.sampled_from([1, 2, 3, 4, 8, 16, 512])),
        draw(st.booleans()),
        10.0 if limited else None,
        transfers,
    )


def check(problem: Problem) -> None:
    """Compare the search with brute force: the least seconds, and the fewest accelerators of schedules as fast."""
    for shape in SHAPES:
        expected, found = oracle_tune.best(problem, shape), solved(problem, shape)
        if len(problem.components) == 1 and shape == "hybrid":
            assert found is None
            continue
        assert (found is None) == (expected is None), shape
        if found is not None and expected is not None:
            assert found[0] == pytest.approx(expected[0], rel=1e-9)
            sizes: dict[int, int] = {}
            tree = plain(found[2], sizes)
            assert oracle_tune.shape(tree) in (shape, "any")
            assert oracle_tune.price(problem, tree, sizes) == (pytest.approx(found[0], rel=1e-9), found[1])
            assert found[1] == expected[1]


@settings(max_examples=150)
@given(problems())
def test_the_search_finds_what_trying_everything_finds(problem: Problem) -> None:
    check(problem)


@st.composite
def curves(draw: st.DrawFn) -> Problem:
    """Return components in a row with any size: their times are convex, so that the bounds are tightest."""
    accelerators = draw(st.integers(4, 8))
    times = [(draw(st.integers(0, 9)), draw(st.integers(1, 99))) for _ in range(3)]
    components = [
        Component({size: (a + b / size, 0.0) for size in range(1, accelerators + 1)}, 0.0, frozenset(range(index)[-1:]))
        for index, (a, b) in enumerate(times)
    ]
    return Problem(components, accelerators, draw(st.sampled_from([1, 2, 3, 4, 8, 64])))


@settings(max_examples=25)
@given(curves())
def test_all_sizes_of_components_in_a_row(problem: Problem) -> None:
    check(problem)


def test_equally_fast_schedules_differ_by_rounding_only() -> None:
    """0.1 + 0.2 is more than 0.3: of three schedules of 7.3 seconds, the one with fewer accelerators is best."""
    sizes = {1: (7.300000000000001, 0.0), 2: (7.3, 0.0)}
    found = solved(Problem([Component(sizes, 0.0, frozenset())], 2, 1), "collocated")
    assert found is not None and found[1] == 1
    parts = [Component({1: (one, 0.0), 2: (one - 1e-16, 0.0)}, 0.0, frozenset()) for one in (0.1, 0.2, 7.0)]
    for shape, fewest in (("collocated", 1), ("disaggregated", 3), ("hybrid", 2)):
        found = solved(Problem(parts, 6, 3), shape)
        assert found is not None and found[1] == fewest, shape


# Switching in a pipeline costs seconds for every micro-batch, which a bound once left out.
SWITCHED = Problem(
    [
        Component({1: (1.5, 6.0)}, 0.0, frozenset()),
        Component({1: (3.0, 0.0)}, 0.0, frozenset()),
        Component({2: (1.5, 5.0)}, 1.0, frozenset()),
    ],
    accelerators=2,
    batches=16,
    capacity=10.0,
)


@example(SWITCHED, 1)
@given(problems(most=6, most_sizes=6), st.integers(0, 12))
def test_more_accelerators_never_make_the_optimum_worse(problem: Problem, more: int) -> None:
    larger = Problem(
        problem.components,
        problem.accelerators + more,
        problem.batches,
        problem.stale,
        problem.capacity,
        problem.transfers,
    )
    for shape in SHAPES:
        before, after = solved(problem, shape), solved(larger, shape)
        assert before is None or (after is not None and after[0] <= before[0] * (1 + 1e-12))

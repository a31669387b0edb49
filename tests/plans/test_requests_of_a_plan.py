"""The requests of a plan: a sequence of the core, equal to any other sequence of equal requests."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, Plan, Request
from rankplan._core import Requests, Taken
from support.jobs import altered

NAMES = st.one_of(
    st.none(),
    st.builds("{}{}".format, st.sampled_from(["pool_8:", "p", "x1:", "a|b"]), st.integers(0, 12)),
    st.builds("p{}v:{}".format, st.integers(8, 11), st.integers(0, 1)),
)
AMOUNTS: list[Any] = [(None, None, []), (1, None, []), (0.5, 32 << 10, []), (0, 0, [("license", 0.25), ("b", 2)])]
"""What a bundle reserves besides, by its number of accelerators."""
SIZES = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    sizes = draw(SIZES)
    optional = draw(st.booleans())
    nodes = () if optional else tuple(draw(st.integers(0, 3)) for _ in sizes)
    strategy = draw(st.sampled_from(["PACK", "STRICT_PACK", None]))
    order = draw(st.sampled_from([None, "text", "id", "rank"]))
    component = draw(st.sampled_from(["", "actor", "ref"]))
    amounts = draw(st.sampled_from([[], [*map(AMOUNTS.__getitem__, sizes)]]))
    return Request(component, draw(NAMES), sizes, nodes, strategy, optional, order, amounts=amounts)


SEQUENCES = st.lists(requests(), max_size=8).flatmap(
    lambda drawn: st.lists(st.sampled_from(drawn), max_size=20) if drawn else st.just([])
)


@given(SEQUENCES, st.data())
def test_it_is_the_sequence_that_it_was_made_of(several: list[Request], data: st.DataObject) -> None:
    found = Requests(several)
    assert isinstance(found, Sequence) and len(found) == len(several)
    assert list(found) == several and [found[index] for index in range(len(several))] == several
    assert found == several and several == found and found == tuple(several)
    assert found == Requests(iter(several)) == Requests(map(altered, several))
    assert found == Requests.of_rows(found.rows) == pickle.loads(pickle.dumps(found))
    bounds = st.none() | st.integers(-25, 25)
    part = slice(data.draw(bounds), data.draw(bounds), data.draw(st.sampled_from([None, 1, 2, -1])))
    assert list(found[part]) == several[part] and found[part] == Requests(several[part])
    cut = data.draw(st.integers(0, len(several)))
    assert found[:cut] + found[cut:] == found
    if several:
        number = data.draw(st.integers(0, len(several) - 1))
        changed = altered(several[number], component="other")
        others = [*several[:number], changed, *several[number + 1 :]]
        assert found != others and found != Requests(others) and found != several[:-1]
        assert found[-1] == several[-1] and several[number] in found and changed not in found


def pools(several: Sequence[Request]) -> list[tuple[str, list[int]]]:
    """The pools by the rule of `Requests.pools`, from the requests one by one."""

    def key(pair: tuple[int, Request]) -> Any:
        number, request = pair
        if request.order == "rank":
            return ()
        alike: Any = number
        if request.name is not None:
            alike = request.name.rstrip("0123456789")
        elif request.strategy == "STRICT_PACK":
            alike = ""
        return request.component, request.order, alike

    ordered = [(number, one) for number, one in enumerate(several) if one.order is not None and one.nodes]
    return [
        (str(alike[0][1].order), [number for number, _ in alike])
        for alike in (list(run) for _, run in groupby(ordered, key))
    ]


@given(SEQUENCES)
def test_neighbours_that_are_sorted_together_are_a_pool(several: list[Request]) -> None:
    """By their numbers: of equal requests without a name only those that must be on one node each are a pool."""
    assert [(order, list(numbers)) for order, numbers in Requests(several).pools()] == pools(several)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=5),
    st.lists(st.integers(1, 3), min_size=1, max_size=2),
    st.none() | st.integers(1, 6),
    st.sampled_from([None, "one", "x1:"]),
    st.booleans(),
)
def test_groups_are_cut_from_what_was_taken(
    counts: list[int], bundles: list[int], per_group: int | None, name: str | None, pooled: bool
) -> None:
    nodes = [{"ranks": rank, "accelerators": count} for rank, count in enumerate(counts)]
    core = Inventory.from_dict({"nodes": nodes}).core
    total = sum(counts)
    taken = Taken([(0, total - 1)] if total else [])
    in_pools = ("v:", 2) if pooled and per_group is not None else None
    found = Requests.of(
        core, "actor", taken, bundles, per_group, name=name, pools=in_pools, strategy="PACK", order="text"
    )
    owners = [node for node, count in enumerate(counts) for _ in range(count)]
    each = per_group or total or 1
    expected = []
    for number, start in enumerate(range(0, total - each + 1, each)):
        own, sizes, on = owners[start : start + each], list[int](), list[int]()
        while sum(sizes) < len(own):
            on.append(own[sum(sizes)])
            sizes.append(min(bundles[len(sizes) % len(bundles)], len(own) - sum(sizes)))
        full = name
        if name is not None and in_pools is not None:
            full = f"{name}{number // 2}v:{number % 2}"
        elif name is not None and per_group is not None:
            full = f"{name}{number}"
        expected.append(Request("actor", full, tuple(sizes), tuple(on), "PACK", order="text"))
    assert found == expected == list(found)


def test_a_plan_takes_any_iterable() -> None:
    inventory = Inventory.parse("2x8")
    several = [Request("actor", re.escape(f"pool:{node}"), (8,), (node,), order="text") for node in range(2)]
    plans = [
        Plan(inventory, (), None, "verl", made) for made in (several, tuple(several), iter(several), Requests(several))
    ]
    assert all(one == plans[0] and one.requests == several for one in plans)
    assert repr(plans[0].requests) == "<Requests: 2 groups in 1 row>"
    assert plans[0] != Plan(inventory, (), None, "verl", several[:1])


def test_many_equal_groups_are_one_row() -> None:
    core = Inventory.uniform(10_000, 8).core
    found = Requests.of(core, "actor", Taken([(0, 79_999)]), [1], 8, name="pool_8:", strategy="STRICT_PACK")
    row = (
        "actor",
        "STRICT_PACK",
        False,
        None,
        [(8, 1, (None, None, []))],
        ("pool_8:", 0, ""),
        10_000,
        [(0, 10_000, 8)],
    )
    assert found.rows == [row] and len(found) == 10_000
    assert found[9_999] == Request("actor", "pool_8:9999", (1,) * 8, (9_999,) * 8, "STRICT_PACK")
    assert len(pickle.dumps(found)) < 300


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Requests([Request("a", None, (1,), (0,), order="name")]), ValueError, "unknown order of nodes"),  # type: ignore[arg-type]
        (lambda: Requests([Request("a", None, (-1,), (0,))]), OverflowError, "out of range"),
        (lambda: Requests([1]), TypeError, "Request"),  # type: ignore[list-item]
        (lambda: Requests([])[0], IndexError, "index 0 is out of range for 0 requests"),
        (
            lambda: Requests.of_rows([("a", None, False, None, [(1 << 20, 1, (None, None, []))], None, 1 << 20, [])]),
            ValueError,
            "more bundles than a plan",
        ),
        (
            lambda: Requests.of_rows(
                [("a", None, False, None, [(1, 1, (None, None, []))], None, 1, [(1 << 30, 1, 1)])]
            ),
            ValueError,
            "node 1073741824 is out of range",
        ),
    ],
)
def test_what_is_no_request_is_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()

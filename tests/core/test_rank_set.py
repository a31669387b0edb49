"""Laws of ``RankSet``, each compared with Python's own sets."""

from __future__ import annotations

import pickle
from collections.abc import Sequence, Set
from operator import and_, eq, ge, gt, le, lt, ne, or_, sub, xor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import PlacementError, RankSet
from rankplan.testing import rank_sets
from support import oracle

LARGEST = oracle.LARGEST_RANK

ranks = st.integers(0, 63) | st.integers(LARGEST - 63, LARGEST)


@given(rank_sets())
def test_parse_inverts_display(rank_set: RankSet) -> None:
    assert RankSet(str(rank_set)) == rank_set
    assert str(rank_set) == oracle.rank_text(rank_set)
    assert repr(rank_set) == f"RankSet({str(rank_set)!r})"


@given(st.lists(st.tuples(ranks, st.integers(0, 9)), min_size=1, max_size=10))
def test_text_is_the_union_of_its_ranges_in_any_order(ranges: list[tuple[int, int]]) -> None:
    ranges = [(first, min(first + length, LARGEST)) for first, length in ranges]
    text = ",".join(f"{first}-{last}" for first, last in ranges)
    assert set(RankSet(text)) == {rank for first, last in ranges for rank in range(first, last + 1)}


@given(st.lists(ranks, max_size=40))
def test_iteration_is_ascending_and_without_repeats(members: list[int]) -> None:
    assert list(RankSet(members)) == sorted(set(members))
    assert len(RankSet(members)) == len(set(members))


@given(rank_sets())
def test_nth_inverts_position(rank_set: RankSet) -> None:
    members = sorted(set(rank_set))
    assert len(rank_set) == len(members)
    for position, rank in enumerate(members):
        assert rank_set[position] == rank == rank_set[position - len(members)]
        assert rank_set.index(rank) == position


@given(rank_sets(), ranks)
def test_membership_is_that_of_sets(rank_set: RankSet, rank: int) -> None:
    assert (rank in rank_set) == (rank in set(rank_set))
    with pytest.raises(ValueError):
        (rank_set - RankSet([rank])).index(rank)


@given(rank_sets(), st.integers(0, 50))
def test_nth_outside_is_an_index_error(rank_set: RankSet, beyond: int) -> None:
    for position in (len(rank_set) + beyond, -len(rank_set) - 1 - beyond):
        with pytest.raises(IndexError):
            rank_set[position]


@given(rank_sets(), rank_sets())
def test_operators_are_those_of_sets(left: RankSet, right: RankSet) -> None:
    for operator in (or_, and_, sub, xor):
        found = operator(left, right)
        assert found == RankSet(operator(set(left), set(right)))
        assert RankSet(str(found)) == found, "its ranges ascend and have gaps between them"
    assert left.isdisjoint(right) == set(left).isdisjoint(right)


@given(rank_sets(), rank_sets())
def test_order_is_that_of_sets(left: RankSet, right: RankSet) -> None:
    for one, other in [(left, right), (left & right, right), (left, left | right), (left, RankSet(set(left)))]:
        for operator in (eq, ne, le, lt, ge, gt):
            assert operator(one, other) == operator(set(one), set(other))


@given(st.lists(rank_sets(), min_size=1, max_size=6))
def test_union_of_many_is_that_of_sets(sets: list[RankSet]) -> None:
    assert set(RankSet.union(*sets)) == set(RankSet().union(*sets)) == set().union(*sets)


@given(rank_sets(), st.none() | st.integers(-90, 90), st.none() | st.integers(-90, 90))
def test_slices_are_those_of_the_sorted_ranks(rank_set: RankSet, start: int | None, stop: int | None) -> None:
    assert list(rank_set[start:stop]) == sorted(rank_set)[start:stop]


@given(rank_sets())
def test_equal_however_it_was_made(rank_set: RankSet) -> None:
    for again in (RankSet(sorted(rank_set, reverse=True)), RankSet(rank_set), pickle.loads(pickle.dumps(rank_set))):
        assert again == rank_set and hash(again) == hash(rank_set)


def test_a_huge_range_is_never_expanded() -> None:
    everything = RankSet(f"0-{LARGEST}")
    assert len(everything) == LARGEST + 1
    assert everything[-1] == everything.index(LARGEST) == LARGEST
    assert LARGEST in everything and LARGEST + 1 not in everything
    assert str(everything - RankSet("7")) == f"0-6,8-{LARGEST}"
    assert everything[7:] == everything ^ RankSet("0-6") < everything[:] == everything
    assert everything[:-1].isdisjoint(everything[-1:])


@pytest.mark.parametrize(("text", "code"), [("3-1", "reversed-range"), ("1-", "syntax"), ("0:0", "syntax")])
def test_refuses_what_is_not_ranges(text: str, code: str) -> None:
    with pytest.raises(PlacementError) as refused:
        RankSet(text)
    assert refused.value.code == code


@pytest.mark.parametrize("members", [[-1], [LARGEST + 1], [2**64]])
def test_refuses_numbers_that_are_not_ranks(members: list[int]) -> None:
    with pytest.raises((ValueError, OverflowError)):
        RankSet(members)


def test_is_a_set_whose_operators_take_only_its_own_kind() -> None:
    assert isinstance(RankSet(), Set) and not isinstance(RankSet(), Sequence)
    for operator in (or_, and_, sub, xor, le, lt, ge, gt, RankSet.union, RankSet.isdisjoint):
        for other in ({1}, [1], "1", 1):
            with pytest.raises(TypeError):
                operator(RankSet("1"), other)
    assert RankSet("1") != {1}


@pytest.mark.parametrize("step", [-1, 2])
def test_a_slice_has_step_1(step: int) -> None:
    with pytest.raises(ValueError, match="step 1"):
        RankSet("0-7")[::step]

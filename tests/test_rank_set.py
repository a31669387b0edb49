"""Laws of ``RankSet``, each compared with Python's own sets."""

from __future__ import annotations

import pickle

import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import PlacementError, RankSet

LARGEST = oracle.LARGEST_RANK

ranks = st.integers(0, 60) | st.integers(LARGEST - 60, LARGEST)
sets = st.sets(ranks, max_size=40)


@given(sets)
def test_parse_inverts_display(members: set[int]) -> None:
    rank_set = RankSet(members)
    assert RankSet(str(rank_set)) == rank_set
    assert str(rank_set) == oracle.rank_text(members)


@given(sets)
def test_repr_is_python_that_makes_the_set_again(members: set[int]) -> None:
    rank_set = RankSet(members)
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


@given(sets)
def test_nth_inverts_position(members: set[int]) -> None:
    rank_set = RankSet(members)
    for position, rank in enumerate(sorted(members)):
        assert rank_set[position] == rank == rank_set[position - len(members)]
        assert rank_set.index(rank) == position


@given(sets, ranks)
def test_position_of_a_rank_that_is_not_there_is_a_value_error(members: set[int], rank: int) -> None:
    members.discard(rank)
    with pytest.raises(ValueError):
        RankSet(members).index(rank)


@given(sets, st.integers(0, 50))
def test_nth_outside_is_an_index_error(members: set[int], beyond: int) -> None:
    for position in (len(members) + beyond, -len(members) - 1 - beyond):
        with pytest.raises(IndexError):
            RankSet(members)[position]


@given(sets, sets)
def test_union_intersection_and_difference_are_those_of_sets(left: set[int], right: set[int]) -> None:
    assert set(RankSet(left) | RankSet(right)) == left | right
    assert set(RankSet(left) & RankSet(right)) == left & right
    assert set(RankSet(left) - RankSet(right)) == left - right


@given(sets, ranks)
def test_membership_is_that_of_sets(members: set[int], rank: int) -> None:
    assert (rank in RankSet(members)) == (rank in members)


@given(sets, sets)
def test_equal_exactly_when_the_members_are(left: set[int], right: set[int]) -> None:
    assert (RankSet(left) == RankSet(right)) == (left == right)
    assert RankSet(left) == RankSet(sorted(left, reverse=True))
    assert hash(RankSet(left)) == hash(RankSet(sorted(left, reverse=True)))


@given(sets)
def test_pickle_keeps_the_set(members: set[int]) -> None:
    assert pickle.loads(pickle.dumps(RankSet(members))) == RankSet(members)


def test_a_huge_range_is_never_expanded() -> None:
    everything = RankSet(f"0-{LARGEST}")
    assert len(everything) == LARGEST + 1
    assert everything[-1] == everything.index(LARGEST) == LARGEST
    assert LARGEST in everything and LARGEST + 1 not in everything
    assert str(everything - RankSet("7")) == f"0-6,8-{LARGEST}"


@pytest.mark.parametrize(("text", "code"), [("3-1", "reversed-range"), ("1-", "syntax"), ("0:0", "syntax")])
def test_refuses_what_is_not_ranges(text: str, code: str) -> None:
    with pytest.raises(PlacementError) as refused:
        RankSet(text)
    assert refused.value.code == code


@pytest.mark.parametrize("members", [[-1], [LARGEST + 1], [2**64]])
def test_refuses_numbers_that_are_not_ranks(members: list[int]) -> None:
    with pytest.raises((ValueError, OverflowError)):
        RankSet(members)

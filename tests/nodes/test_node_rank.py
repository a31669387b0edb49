"""The node rank that a launcher sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import PlacementError, RankSet
from rankplan._core import MAX_RANK
from rankplan.nodes.node_rank import node_ranks

SUMS = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=3), min_size=1, max_size=4)


@given(SUMS)
def test_a_sum_of_products_is_its_value(terms: list[list[int]]) -> None:
    text = "+".join("*".join(map(str, term)) for term in terms)
    assert list(node_ranks(text, "X")) == [eval(text)]


@given(st.integers(0, MAX_RANK), st.integers(0, MAX_RANK))
def test_a_range_is_one_of_its_ranks(first: int, last: int) -> None:
    if first <= last:
        assert node_ranks(f"{first}-{last}", "X") == RankSet(f"{first}-{last}")
    else:
        with pytest.raises(PlacementError, match="node ranks go from 0"):
            node_ranks(f"{first}-{last}", "X")


def test_none_is_outside_the_plan() -> None:
    assert node_ranks("none", "X") == RankSet()


@pytest.mark.parametrize(
    ("text", "message", "help"),
    [
        ("4+", "RANKPLAN_NODE_RANK is '4+', which lacks a number", "KubeRay fills in the index of a pod from 1.6 on"),
        ("0+4*+1", "which lacks a number", "LeaderWorkerSet fills in the index of a group"),
        ("", "which is empty", "write a node rank (2), a sum of products (4+2*1), a range (0-3), or none"),
        ("4+$(RANKPLAN_INDEX)", "which still has $(RANKPLAN_INDEX)", "define RANKPLAN_INDEX before RANKPLAN_NODE_RANK"),
        ("3-0", "is not a node rank", "ranges ascend"),
        ("9" * 10, "is not a node rank", "node ranks go from 0 to 4294967294"),
        ("9" * 5000, "is not a node rank", "write a node rank"),
        ("02", "is not a node rank", "write a node rank"),
        ("-2", "is not a node rank", "write a node rank"),
        ("4 + 2", "is not a node rank", "write a node rank"),
        ("4+2-5", "is not a node rank", "write a node rank"),
        ("None", "is not a node rank", "write a node rank"),
        ("\u0661", "is not a node rank", "write a node rank"),
    ],
)
def test_anything_else_is_reported(text: str, message: str, help: str) -> None:
    with pytest.raises(PlacementError) as caught:
        node_ranks(text, "RANKPLAN_NODE_RANK")
    assert caught.value.code == "bad-node-rank"
    assert message in caught.value.message and help in str(caught.value.help)

"""Rules at several levels: an arrangement is refused only if none exists, and it is in the fewest domains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import Inventory, Plan, arrange
from rankplan._core import Chunks
from rankplan.errors import PlacementError
from rankplan.parallel import Parallel
from rankplan.plans.component import Component

LEVELS = ("spine", "block", "nvlink")


@dataclass
class Asked:
    """Leaves with their path and number of nodes, and components with their nodes and segments by level."""

    leaves: list[tuple[tuple[str, ...], int]]
    nodes: list[int]
    segment: dict[str, dict[str, int]]
    keep: dict[str, dict[str, str]]

    @property
    def levels(self) -> tuple[str, ...]:
        return LEVELS[-len(self.leaves[0][0]) :]

    def sets(self) -> Iterator[tuple[int, range]]:
        """Yield the level and the node ranks of each set that must be in one domain."""
        first = 0
        for index, count in enumerate(self.nodes):
            ranks = range(first, first + count)
            first += count
            for level in self.keep.get(f"c{index}", {}).values():
                yield self.levels.index(level), ranks
            for level, size in self.segment.get(f"c{index}", {}).items():
                yield from ((self.levels.index(level), ranks[at : at + size]) for at in range(0, count, size))

    def possible(self) -> Iterator[list[int]]:
        """Yield, for every way to keep all sets together, the number of domains by level: leaf after leaf is tried."""
        total = sum(self.nodes)
        bound = [[(level, ranks[0]) for level, ranks in self.sets() if rank in ranks[1:]] for rank in range(total)]
        free = [count for _, count in self.leaves]
        at: list[int] = []

        def domain(leaf: int, level: int) -> tuple[str, ...]:
            return self.leaves[leaf][0][: level + 1]

        def go() -> Iterator[list[int]]:
            if len(at) == total:
                yield [len({domain(leaf, level) for leaf in at}) for level in range(len(self.levels))]
                return
            for leaf in range(len(free)):
                together = (domain(leaf, level) == domain(at[first], level) for level, first in bound[len(at)])
                if free[leaf] and all(together):
                    free[leaf] -= 1
                    at.append(leaf)
                    yield from go()
                    at.pop()
                    free[leaf] += 1

        return go()

    def plan(self) -> Plan:
        nodes = Inventory.uniform(sum(self.nodes), 1)
        parts, first = [], 0
        for index, count in enumerate(self.nodes):
            rule = Chunks(list(range(first, first + count)), 1)
            parts.append(Component.place(f"c{index}", nodes, ("cluster",), rule))
            first += count
        return Plan(nodes, parts)

    def inventory(self) -> Inventory:
        return cluster(self.levels, self.leaves)


def cluster(levels: tuple[str, ...], leaves: list[tuple[tuple[str, ...], int]]) -> Inventory:
    paths = [path for path, count in leaves for _ in range(count)]
    entries = [
        {"ranks": rank, "accelerators": 1, "hostname": f"n{rank}", "labels": dict(zip(levels, path, strict=True))}
        for rank, path in enumerate(paths)
    ]
    return Inventory.from_dict({"levels": list(levels), "nodes": entries})


@st.composite
def questions(draw: st.DrawFn, most_nodes: int) -> Asked:
    depth = draw(st.integers(1, 3))
    path = st.tuples(*[st.sampled_from("ab")] * (depth - 1), st.sampled_from("abc"))
    paths = draw(st.lists(path, min_size=1, max_size=5, unique=True))
    leaves = [(path, draw(st.integers(1, 5))) for path in sorted(paths)]
    nodes, segment, keep = [], {}, {}
    for index in range(draw(st.integers(1, 2))):
        name = f"c{index}"
        sizes, size = {}, 1
        for level in reversed(LEVELS[-depth:]):
            if draw(st.booleans()):
                size *= draw(st.sampled_from([1, 2, 2, 3]))
                sizes[level] = size
        most = max(1, (most_nodes - sum(nodes)) // size)
        nodes.append(size * draw(st.integers(1, most)))
        if sizes:
            segment[name] = sizes
        if draw(st.integers(0, 2)) == 0:
            keep[name] = {"dp": draw(st.sampled_from(LEVELS[-depth:]))}
    return Asked(leaves, nodes, segment, keep)


def asked(case: Asked, *, fewest: bool) -> None:
    if sum(case.nodes) > sum(count for _, count in case.leaves):
        with pytest.raises(PlacementError):
            arrange(case.plan(), case.inventory(), segment=case.segment, keep=case.keep)
        return
    best = min(case.possible(), default=None) if fewest else next(case.possible(), None)
    if best is None:
        with pytest.raises(PlacementError, match=r"^(?!.*ended early)"):
            arrange(case.plan(), case.inventory(), segment=case.segment, keep=case.keep)
        return
    found = arrange(case.plan(), case.inventory(), segment=case.segment, keep=case.keep)
    nodes = [found.inventory.node(rank).labels for rank in range(sum(case.nodes))]
    paths = [tuple(labels[level] for level in case.levels) for labels in nodes]
    for level, ranks in case.sets():
        assert len({paths[rank][: level + 1] for rank in ranks}) == 1
    used = [len({path[: level + 1] for path in paths}) for level in range(len(case.levels))]
    if fewest and (found.optimal or len(case.nodes) == 1):
        assert used == best


@settings(max_examples=60)
@given(questions(6))
def test_a_few_nodes_are_in_the_fewest_domains(case: Asked) -> None:
    asked(case, fewest=True)


@settings(max_examples=60)
@given(questions(12))
def test_a_refusal_is_true_and_proved(case: Asked) -> None:
    asked(case, fewest=False)


PAGE = [(("b0", "a"), 4), (("b0", "b"), 3), (("b1", "c"), 4), (("b1", "d"), 2)]


def test_segments_of_two_levels() -> None:
    rules: Any = {"segment": {"c0": {"block": 4, "nvlink": 2}}}
    found = arrange(Asked(PAGE, [8], {}, {}).plan(), cluster(LEVELS[1:], PAGE), **rules)
    names = [found.inventory.node(rank).hostname for rank in range(13)]
    assert sorted([names[:4], names[4:8]]) == [["n0", "n1", "n2", "n3"], ["n7", "n8", "n9", "n10"]]
    assert found.optimal
    with pytest.raises(PlacementError) as refused:  # 12 of 13 nodes, and yet impossible
        arrange(Asked(PAGE, [12], {}, {}).plan(), cluster(LEVELS[1:], PAGE), **rules)
    assert refused.value.message == "the plan needs 3 segments of 4 nodes in a block; the block domains hold 2"


def test_inner_domains_count_before_unused_nodes() -> None:
    # b0 has one unused node less, in two inner domains.
    leaves = [(("b0", "a"), 3), (("b0", "b"), 3), (("b1", "c"), 5), (("b1", "d"), 2)]
    found = arrange(Asked(leaves, [5], {}, {}).plan(), cluster(LEVELS[1:], leaves))
    assert {found.inventory.node(rank).labels["nvlink"] for rank in range(5)} == {"c"} and found.optimal


def test_sizes_of_one_are_kept_together_too() -> None:
    leaves = [(("a",), 2), (("b",), 3)]
    nodes = Inventory.uniform(3, 1)
    part = Component.place("c0", nodes, ("cluster",), Chunks([0, 1, 2], 1), parallel=Parallel(tp=1))
    found = arrange(Plan(nodes, [part]), cluster(("nvlink",), leaves), keep={"c0": {"dp": "nvlink"}})
    assert {found.inventory.node(rank).labels["nvlink"] for rank in range(3)} == {"b"}


@pytest.mark.parametrize(
    ("sizes", "messages"),
    [
        ({"block": 16, "nvlink": 6}, ["segment of c0: 16 nodes in a block cannot be divided into segments of 6"]),
        ({"block": 4, "nvlink": 8}, ["segment of c0: nvlink is inside block but its segment is larger"]),
        ({"blok": 4, "nvlin": 8}, ["unknown level `blok`", "unknown level `nvlin`"]),
        ({"block": 3}, ["c0: 4 nodes cannot be divided into segments of 3"]),
        ({"block": 0}, ["`block` is 0; it must be a whole number of 1 or more"]),
    ],
)
def test_wrong_sizes_are_all_named(sizes: dict[str, int], messages: list[str]) -> None:
    with pytest.raises(PlacementError) as refused:
        arrange(Asked(PAGE, [4], {}, {}).plan(), cluster(LEVELS[1:], PAGE), segment={"c0": sizes})
    assert [one.message for one in refused.value.diagnostics] == messages

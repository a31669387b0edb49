"""Strategies for rank sets and valid placements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from hypothesis import strategies as st

from rankplan._core import MAX_RANK, RankSet
from rankplan.nodes.inventory import Inventory


def rank_sets(max_rank: int = MAX_RANK) -> st.SearchStrategy[RankSet]:
    """Generate sets of up to about 80 ranks near 0 and near ``max_rank``: zero or more ranges, which may touch."""
    firsts = st.integers(0, min(63, max_rank)) | st.integers(max(0, max_rank - 63), max_rank)
    ranges = st.lists(st.tuples(firsts, st.integers(0, 9)), max_size=8)
    return ranges.map(lambda drawn: RankSet(_ranks(drawn, max_rank)))


def _ranks(ranges: Iterable[tuple[int, int]], max_rank: int) -> list[int]:
    return [rank for first, more in ranges for rank in range(first, min(first + more, max_rank) + 1)]


class _Segment(NamedTuple):
    """Ranges of resources, the number of processes on them, and whether the text states the process ranks."""

    ranges: list[tuple[int, int]]
    processes: int
    explicit: bool


def placements(where: int | Inventory) -> st.SearchStrategy[str]:
    """Generate valid placements in every form of the language.

    ``where`` is a number of resources on one node, or an inventory; the placements use its accelerators, or its nodes
    if none has an accelerator. Raises ``ValueError`` for less than one resource.
    """
    if isinstance(where, Inventory):
        counts = [where.node(rank).num_accelerators for rank in range(where.num_nodes)]
        return texts([count for count in counts if count] or [1] * where.num_nodes)
    if where < 1:
        raise ValueError(f"no placement is valid on {where} resources")
    return texts([where])


@st.composite
def texts(draw: st.DrawFn, blocks: Sequence[int]) -> str:
    """Draw a placement in which the resources of each process are in one block: on one node, of one kind."""
    if draw(st.integers(0, 7)) == 7:
        return draw(_everything(blocks))
    return draw_joined(draw, draw_parts(draw, draw_segments(draw, blocks)))


@st.composite
def _everything(draw: st.DrawFn, blocks: Sequence[int]) -> str:
    total, ends = sum(blocks), list(accumulate(blocks))
    word = draw(st.sampled_from(["all", "ALL", "All", "aLl", " all "]))
    held = [size for size in range(1, min(blocks) + 1) if not any(end % size for end in ends)]
    worlds = [total * times for times in (1, 2, 3)] + [total // size for size in held]
    return draw(st.sampled_from([word, *(f"{word}:{range_text(0, world - 1)}" for world in worlds)]))


def draw_segments(draw: st.DrawFn, blocks: Sequence[int], start: int = 0) -> list[_Segment]:
    """Draw one to five segments on resources from ``start`` on."""
    ends = list(accumulate(blocks))
    total = ends[-1]
    resource = start + draw(st.integers(0, min(2, total - start - 1)))
    segments: list[_Segment] = []
    while resource < total and len(segments) < 5 and (not segments or draw(st.booleans())):
        if draw(st.booleans()):
            each = draw(st.integers(1, next(end for end in ends if end > resource) - resource))
            ranges = _held(draw, ends, resource, each)
            processes = sum(last - first + 1 for first, last in ranges) // each
            processes *= draw(st.integers(1, 3)) if each == 1 else 1
            segments.append(_Segment(ranges, processes, explicit=True))
        else:
            last = draw(st.integers(resource, min(total - 1, resource + 4095)))
            segments.append(_Segment([(resource, last)], last - resource + 1, explicit=draw(st.booleans())))
        resource = segments[-1].ranges[-1][1] + 1 + draw(st.sampled_from([0, 0, 0, 1, 2]))
    return segments


def _held(draw: st.DrawFn, ends: Sequence[int], at: int, each: int) -> list[tuple[int, int]]:
    """Draw the ranges of one to four processes with ``each`` resources of one block; ranges may be joined."""
    ranges: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(1, 4))):
        at = next((start for start in (at, *ends) if start >= at and _fits(start, each, ends)), ends[-1])
        if at == ends[-1]:
            break
        if ranges and ranges[-1][1] + 1 == at and draw(st.booleans()):
            ranges[-1] = (ranges[-1][0], at + each - 1)
        else:
            ranges.append((at, at + each - 1))
        at += each + draw(st.sampled_from([0, 0, 1]))
    return ranges


def _fits(start: int, each: int, ends: Sequence[int]) -> bool:
    return start + each <= next((end for end in ends if end > start), 0)


def draw_parts(draw: st.DrawFn, segments: Iterable[_Segment]) -> list[str]:
    """Draw the text of each part between commas."""
    parts: list[str] = []
    process = 0
    for segment in segments:
        parts += [range_text(first, last, both_ends=draw(st.integers(0, 9)) == 9) for first, last in segment.ranges]
        if segment.explicit:
            parts[-1] += f":{range_text(process, process + segment.processes - 1)}"
        process += segment.processes
    return parts


def range_text(first: int, last: int, *, both_ends: bool = False) -> str:
    """Return the text of a range; that of one rank has one number, or ``both_ends``."""
    return str(first) if first == last and not both_ends else f"{first}-{last}"


def draw_joined(draw: st.DrawFn, parts: Sequence[str]) -> str:
    """Draw a text of these parts, with blanks and empty parts."""
    comma = draw(st.sampled_from([",", ", ", "\t,", ",\n  ", ",,", ", ,\r\n"]))
    before, after = draw(st.sampled_from([("", ""), ("", ""), ("", ","), (" , ", " "), ("\n", "\f")]))
    text = before + comma.join(parts) + after
    return draw(st.sampled_from([text, text, text.replace(":", " : "), text.replace("-", " -\t")]))

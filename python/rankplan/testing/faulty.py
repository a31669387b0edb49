"""Invalid placements, each with the code that it is rejected with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from hypothesis import strategies as st

from rankplan._core import CLUSTER, MAX_PROCESSES, MAX_RANK
from rankplan.nodes.inventory import Inventory
from rankplan.testing.strategies import draw_joined, draw_parts, draw_segments, range_text, texts

PLACEMENT_CODES = (
    *("syntax", "reversed-range", "empty-placement", "resource-out-of-range", "duplicate-resource", "resource-order"),
    *("process-start", "process-gap", "all-processes", "not-multiple", "spans-nodes", "mixed-hardware"),
    *("too-many-processes", "no-resources"),
)
"""Every code that the text of a placement can be rejected with."""


class InvalidPlacement(NamedTuple):
    """An invalid placement and its code.

    ``config`` contains ``text`` as the placement of ``actor``; planning it on ``inventory`` raises `PlacementError`,
    and all faults have this ``code``.
    """

    text: str
    code: str
    config: dict[str, Any]
    inventory: Inventory


_NO_GRAMMAR = (
    *("x", "-", ":", "-1", "+1", "0-", "1:", ":1", "0:0:0", "0-1-2", "0..3", "0;1", "0 1", "0/1", "[0]"),
    *("1.0", "1e3", "0x3", "007", "0_1", "4294967295", "0:0-4294967295", "alle", "all 0", "0-all", "all-0", "None"),
    *("\u0663", "\uff10-1", "0\u20131", "0\u00a0", "0\u200b", "\0", "\U0001f600"),
)


def invalid_placements(codes: Collection[str] = PLACEMENT_CODES) -> st.SearchStrategy[InvalidPlacement]:
    """Generate invalid placements that are rejected with one of these codes.

    Raises ``ValueError`` for a code that the text of a placement is never rejected with.
    """
    if unknown := [code for code in codes if code not in PLACEMENT_CODES]:
        raise ValueError(f"no placement is rejected with {unknown[0]!r}; the codes are {', '.join(PLACEMENT_CODES)}")
    return st.sampled_from(list(codes)).flatmap(_invalid)


@st.composite
def _invalid(draw: st.DrawFn, code: str) -> InvalidPlacement:
    blocks = draw(st.lists(st.integers(2, 5), min_size=2 if code == "spans-nodes" else 1, max_size=3))
    section: dict[str, Any] = {"num_nodes": len(blocks), "component_placement": {}}
    inventory = Inventory.from_dict({"nodes": [{"ranks": node, "accelerators": n} for node, n in enumerate(blocks)]})
    groups: str | None = None
    if code in ("no-resources", "mixed-hardware"):
        robots = [] if code == "no-resources" else [{"node_rank": len(blocks) - 1}]
        groups = "arms" if code == "no-resources" else f"{CLUSTER}, arms"
        hardware = {"type": "Arm", "configs": robots}
        section["node_groups"] = [{"label": "arms", "node_ranks": len(blocks) - 1, "hardware": hardware}]
    text = draw(_faulty(code, blocks))
    section["component_placement"]["actor"] = {"node_group": groups, "placement": text} if groups else text
    return InvalidPlacement(text, code, {"cluster": section}, inventory)


@st.composite
def _faulty(draw: st.DrawFn, code: str, blocks: Sequence[int]) -> str:
    """Draw a text whose faults all have this code; if possible, valid segments come before the fault."""
    last = sum(blocks) - 1
    match code:
        case "empty-placement":
            return draw(st.text(alphabet=" ,\t\n\r\f", max_size=8))
        case "no-resources":
            return draw(texts(blocks))
        case "syntax":
            parts, _ = _start(draw, blocks, last + 1)
            at = draw(st.integers(0, len(parts)))
            return draw_joined(draw, [*parts[:at], draw(st.sampled_from(_NO_GRAMMAR)), *parts[at:]])
        case "reversed-range":
            parts, _ = _start(draw, blocks, last)
            first = draw(st.integers(0, last + 3))
            backwards = f"{first + draw(st.integers(1, 9))}-{first}"
            return draw_joined(draw, [*parts, draw(st.sampled_from([backwards, f"{last}:{backwards}"]))])
        case "resource-out-of-range":
            parts, _ = _start(draw, blocks, last + 1)
            first = draw(st.sampled_from([*range(last + 1, last + 9), MAX_RANK]))
            return draw_joined(draw, [*parts, range_text(first, min(first + draw(st.integers(0, 3)), MAX_RANK))])
        case "duplicate-resource":
            segments = draw_segments(draw, blocks)
            used = [rank for segment in segments for first, end in segment.ranges for rank in range(first, end + 1)]
            return draw_joined(draw, [*draw_parts(draw, segments), str(draw(st.sampled_from(used)))])
        case "resource-order":
            start = draw(st.integers(1, last))
            parts = draw_parts(draw, draw_segments(draw, blocks, start))
            return draw_joined(draw, [*parts, str(draw(st.integers(0, start - 1)))])
        case "process-start":
            end, first = draw(st.integers(0, last)), draw(st.integers(1, 9))
            processes = (end + 1) * draw(st.integers(1, 3))
            rest = [str(last)] if end < last and draw(st.booleans()) else []
            return draw_joined(draw, [f"{range_text(0, end)}:{range_text(first, first + processes - 1)}", *rest])
        case "process-gap":
            segments = draw_segments(draw, _up_to(blocks, last))
            process = sum(segment.processes for segment in segments)
            first = draw(st.integers(process + 1, process + 9))
            if segments[-1].explicit and draw(st.booleans()):
                first = draw(st.integers(0, process - 1))
            shared = range_text(first, first + draw(st.integers(0, 2)))
            return draw_joined(draw, [*draw_parts(draw, segments), f"{last}:{shared}"])
        case "all-processes":
            parts, _ = _start(draw, blocks, last)
            word = draw(st.sampled_from(["all", "ALL", "All"]))
            return draw(st.sampled_from([draw_joined(draw, [*parts, f"{last}:{word}"]), f"all:{word}"]))
        case "not-multiple":
            first = draw(st.integers(0, last - 1))
            parts, process = _start(draw, blocks, first)
            end = draw(st.integers(first + 1, last))
            size = end - first + 1
            worlds = [world for world in range(2, 2 * size + 2) if size % world and world % size]
            shared = range_text(process, process + draw(st.sampled_from(worlds)) - 1)
            return draw_joined(draw, [*parts, f"{range_text(first, end)}:{shared}"])
        case "too-many-processes":
            parts, process = _start(draw, blocks, last)
            more = draw(st.sampled_from([0, 1, MAX_RANK - MAX_PROCESSES - process]))
            return draw_joined(draw, [*parts, f"{last}:{range_text(process, process + MAX_PROCESSES + more)}"])
        case _:  # one process across the end of a node, or across the last node and the robots
            end = blocks[0] if code == "spans-nodes" else last + 1
            first = draw(st.integers(0, end - 1)) if code == "spans-nodes" else last
            parts, process = _start(draw, blocks, first)
            return draw_joined(draw, [*parts, f"{range_text(first, end)}:{process}"])


def _start(draw: st.DrawFn, blocks: Sequence[int], end: int) -> tuple[list[str], int]:
    """Draw zero or more valid segments before resource ``end``: their texts, and the next process rank."""
    segments = draw_segments(draw, _up_to(blocks, end)) if end and draw(st.booleans()) else []
    return draw_parts(draw, segments), sum(segment.processes for segment in segments)


def _up_to(blocks: Sequence[int], end: int) -> list[int]:
    """Return the blocks of the resources before ``end``."""
    ends = [min(block_end, end) for block_end in (0, *accumulate(blocks))]
    return [after - before for before, after in pairwise(ends) if after > before]

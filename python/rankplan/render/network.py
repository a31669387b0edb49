"""Arranged and repaired plans in words: what moves, and which groups cross a domain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from rich.table import Table

from rankplan.arranging.physical import Record, Rules
from rankplan.arranging.replanning import Replacement, Replanned
from rankplan.arranging.task import KINDS, Solution
from rankplan.render.tables import table
from rankplan.words import counted

_MOST_MOVES = 8


def crossings_table(solution: Solution, levels: Sequence[str]) -> Table | None:
    """Return a table of the groups that cross a domain before and after; ``None`` if no group ever does."""
    result = table("groups that cross", "before", "after")
    found = False
    for level, before, after in zip(levels, solution.before, solution.after, strict=True):
        for kind, old, new in zip(KINDS, before, after, strict=True):
            if old or new:
                found = True
                result.add_row(f"{level}: {kind}", f"{old:,}", f"{new:,}")
    return result if found else None


def proof(solution: Solution) -> str:
    """Return whether a better arrangement can exist, in words."""
    return "no arrangement is better" if solution.optimal else "not proved: a better arrangement may exist"


def replan_lines(found: Replanned) -> list[str]:
    """Return what a repair changes, the summary first.

    ``8 of 256 ranks move: actor 24-31, node-3 -> node-33 (spare, same nvlink domain); 248 stay; no group crosses a
    domain``.
    """
    total = sum(len(component) for component in found.components)
    moved = sum(len(ranks) for move in found.moves for ranks in move.ranks.values())
    shifted = sum(len(shift.ranks) for shift in found.shifts)
    parts = [f"{moved:,} of {counted(total, 'rank')} {'moves' if moved == 1 else 'move'}"]
    if found.moves:
        shown = [_move(move, found.rules) for move in islice(found.moves, _MOST_MOVES)]
        more = len(found.moves) - len(shown)
        parts[0] += ": " + "; ".join(shown + ([f"and {counted(more, 'more node')}"] if more else []))
    parts += [f"{total - moved - shifted:,} stay", _crossings(found.solution, found.rules)]
    lines = ["; ".join(part for part in parts if part)]
    for shift in found.shifts:
        local = ", ".join(f"{old} -> {new}" for old, new in shift.local.items())
        ranks = f"{'rank' if len(shift.ranks) == 1 else 'ranks'} {shift.ranks}"
        lines.append(f"{shift.component} {ranks}: other accelerators of node {shift.node}: {local}")
    lines += [str(loss) for loss in found.losses]
    if (block := found.solution.as_block) is not None:
        lines.append(f"moving a whole group to one domain would tear fewer groups, but move {counted(block, 'rank')}")
    return lines


def _move(move: Replacement, rules: Rules) -> str:
    who = ", ".join(f"{component} {ranks}" for component, ranks in move.ranks.items())
    where = _distance(move.before, move.after, rules.levels)
    return f"{who}, {move.before.name} -> {move.after.name} (spare{where})"


def _distance(before: Record, after: Record, levels: Sequence[str]) -> str:
    """Return the innermost domain that two nodes share, in words."""
    same = 0
    for level in levels:
        labels = before.labels.get(level), after.labels.get(level)
        if labels[0] is None or labels[0] != labels[1]:
            break
        same += 1
    if not levels:
        return ""
    if same == len(levels):
        return f", same {levels[-1]} domain"
    return f", other {levels[same]} domain" + (f", same {levels[same - 1]} domain" if same else "")


def _crossings(solution: Solution, rules: Rules) -> str:
    """Return the groups that cross more domains than before, in words."""
    if not rules.levels:
        return ""
    if not any(map(any, solution.after)):
        return "no group crosses a domain"
    more = []
    outer = [0] * len(KINDS)
    for level, before, after in zip(rules.levels, solution.before, solution.after, strict=True):
        changes = [new - old for old, new in zip(before, after, strict=True)]
        # A group that crosses a domain crosses the inner ones too.
        for kind, change, known in zip(KINDS, changes, outer, strict=True):
            if change > known:
                verb = "crosses" if change - known == 1 else "cross"
                more.append(f"{counted(change - known, f'more {kind} group')} {verb} {level} domains")
        outer = [max(pair) for pair in zip(changes, outer, strict=True)]
    return ", ".join(more) or "no more groups cross a domain than before"

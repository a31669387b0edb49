"""Lines about arrangements and repaired plans: the moves, and the groups that cross a domain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from rich.table import Table

from rankplan._core import RankSet
from rankplan.arranging.arrange import KINDS, Arrangement
from rankplan.arranging.repair import data_groups
from rankplan.arranging.replan import Replanned
from rankplan.nodes.node import NodeSpec
from rankplan.render.tables import table
from rankplan.words import counted

_MOST_MOVES = 8
_MOST_NODES = 64


def crossings_table(found: Arrangement) -> Table | None:
    """Return a table of the groups that cross a domain before and after; ``None`` if no group ever does."""
    result = table("groups that cross", "before", "after")
    for level, before, after in zip(found.levels, found.before, found.after, strict=True):
        for kind, old, new in zip(KINDS, before, after, strict=True):
            if old or new:
                result.add_row(f"{level}: {kind}", f"{old:,}", f"{new:,}")
    return result if result.rows else None


def arrangement_line(found: Arrangement) -> str:
    """Return the number of nodes and of spares, and whether a better arrangement can exist."""
    spare = f"; {counted(len(found.spares), 'spare')}" if found.spares else ""
    return f"{counted(len(found.nodes), 'node')}{spare}; {_proof(found)}"


def node_lines(found: Arrangement) -> Iterator[str]:
    """Yield the names of the nodes in their new order."""
    order = [*found.nodes, *found.spares]
    for rank, old in enumerate(order[:_MOST_NODES]):
        spare = "  (spare)" if rank >= len(found.nodes) else ""
        yield f"{rank:>6}  {found.present.node(old).name}{spare}"
    if len(order) > _MOST_NODES:
        yield f"and {len(order) - _MOST_NODES:,} more; write them to a file with -o"


def replan_lines(found: Replanned) -> Iterator[str]:
    """Yield the changes of a repair, the summary first.

    ``8 of 256 ranks move: actor 24-31, node-3 -> node-33 (spare, same nvlink domain); 248 stay; no group crosses a
    domain``.
    """
    arrangement = found.arrangement
    total = sum(map(len, found.plan.values()))
    moved = sum(move.replaced for move in found.moves)
    parts = [f"{moved:,} of {counted(total, 'rank')} {'moves' if moved == 1 else 'move'}"]
    if found.successors:
        shown = list(islice(_moves(found), _MOST_MOVES))
        more = len(found.successors) - len(shown)
        parts[0] += ": " + "; ".join(shown + ([f"and {counted(more, 'more node')}"] if more else []))
    parts += [f"{total - len(found.moves):,} stay", _crossings(arrangement)]
    yield "; ".join(part for part in parts if part)
    yield from _shifts(found)
    yield from _losses(found)
    if arrangement.as_block is not None:
        ranks = counted(arrangement.as_block, "rank")
        yield f"moving a whole group to one domain would tear fewer groups, but move {ranks}"
    if not arrangement.optimal:
        yield _proof(arrangement)


def _proof(found: Arrangement) -> str:
    return "no arrangement is better" if found.optimal else "not proved: a better arrangement may exist"


def _moves(found: Replanned) -> Iterator[str]:
    """Yield the processes that each spare takes over."""
    ranks: dict[int, dict[str, list[int]]] = {node: {} for node in found.successors}
    for move in found.moves:
        if move.replaced and move.after is not None:
            ranks[move.after.cluster_node_rank].setdefault(move.component, []).append(move.rank)
    for node, (before, after) in found.successors.items():
        who = ", ".join(f"{component} {RankSet(here)}" for component, here in ranks[node].items())
        where = _distance(before, after, found.arrangement.levels)
        yield f"{who}, {before.name} -> {after.name} (spare{where})"


def _shifts(found: Replanned) -> Iterator[str]:
    """Yield the processes that use other accelerators of their node."""
    shifts: dict[tuple[int, str], tuple[set[int], dict[int, int]]] = {}
    for move in found.moves:
        if not move.replaced and move.before is not None and move.after is not None:
            for (_, old), (node, new) in zip(move.before.devices, move.after.devices, strict=True):
                if old != new:
                    ranks, local = shifts.setdefault((node, move.component), (set(), {}))
                    ranks.add(move.rank)
                    local[old] = new
    for (node, component), (ranks, local) in sorted(shifts.items(), key=lambda shift: shift[0][0]):
        accelerators = ", ".join(f"{old} -> {new}" for old, new in sorted(local.items()))
        who = f"{component} {'rank' if len(ranks) == 1 else 'ranks'} {RankSet(ranks)}"
        yield f"{who}: other accelerators of node {node}: {accelerators}"


def _losses(found: Replanned) -> Iterator[str]:
    """Yield the components that shrank."""
    for name in dict.fromkeys(move.component for move in found.losses):
        before, after = found.before[name], found.plan[name]
        groups, left = (max(data_groups(component)) + 1 for component in (before, after))
        text = f"{name} shrinks from {counted(groups, 'data group')} to {left}: {len(after)} of {len(before)} ranks"
        kept = RankSet(range(len(before))) - RankSet(move.rank for move in found.losses if move.component == name)
        renumbered = RankSet(rank for new, rank in enumerate(kept) if new != rank)
        yield f"{text}; ranks {renumbered} are renumbered" if renumbered else text


def _distance(before: NodeSpec, after: NodeSpec, levels: Sequence[str]) -> str:
    """Name the innermost domain that two nodes share."""
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


def _crossings(found: Arrangement) -> str:
    """Count the groups that cross more domains than before."""
    if not found.levels:
        return ""
    if not any(map(any, found.after)):
        return "no group crosses a domain"
    more = []
    outer = [0] * len(KINDS)
    for level, before, after in zip(found.levels, found.before, found.after, strict=True):
        changes = [new - old for old, new in zip(before, after, strict=True)]
        # A group that crosses a domain crosses the inner ones too.
        for kind, change, known in zip(KINDS, changes, outer, strict=True):
            if change > known:
                verb = "crosses" if change - known == 1 else "cross"
                more.append(f"{counted(change - known, f'more {kind} group')} {verb} {level} domains")
        outer = [max(pair) for pair in zip(changes, outer, strict=True)]
    return ", ".join(more) or "no more groups cross a domain than before"

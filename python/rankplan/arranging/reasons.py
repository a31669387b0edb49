"""Why survivors of a failure move: the rules that hold them together with what was lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankplan._core import RankSet
from rankplan.arranging.replanned import ranks_at
from rankplan.arranging.task import Task
from rankplan.arranging.trainer_order import Answer
from rankplan.plans.rules import TOGETHER, WORLD
from rankplan.plans.topology import SEGMENT, NodeRule
from rankplan.words import counted, nodes_text

_MOST = 8
"""The reasons that are given at most."""


def reasons(answer: Answer, dialect: str | None) -> Iterator[str]:
    """Yield how many processes leave healthy nodes and why, set by set, those of the outermost level first.

    ``segment 0 (ranks 0-7) has no spare in a; it moves as a whole to d``.
    """
    task, nodes = answer.task, answer.arrangement.nodes
    moved = RankSet(rank for rank in task.needed if task.old[rank] not in (None, nodes[rank]))
    if not moved:
        return
    processes = sum(len(ranks_at(part, set(moved))) for part in task.parts.values())
    verb = "moves" if processes == 1 else "move"
    yield f"{counted(processes, 'rank')} on {counted(len(moved), 'healthy node')} {verb}:"
    in_order = moved & answer.moved
    if in_order:
        yield f"{nodes_text(in_order)}: in the order in which {dialect or 'the trainer'} sorts its nodes"
    unexplained = set(moved - answer.moved)
    yield from _reasons_of_sets(task, nodes, unexplained)
    if unexplained:
        why = "with their group (`--whole-group`)" if task.whole_group else "to make room for others"
        yield f"{nodes_text(RankSet(unexplained))}: {why}"


def _reasons_of_sets(task: Task, nodes: Sequence[int], unexplained: set[int]) -> Iterator[str]:
    """Yield why sets of nodes move to another domain, and take their node ranks out of those that are unexplained.

    Only the first sets get a text: that looks at all processes of a component.
    """
    moved_sets = 0
    for rule in sorted(task.rules.kept, key=lambda rule: rule.level or 0):
        for index, ranks in enumerate(rule.sets()):
            if unexplained.isdisjoint(ranks):
                continue
            before, after = _domains(task, rule, ranks, nodes)
            if len(before) != 1 or before == after:
                continue
            unexplained.difference_update(ranks)
            moved_sets += 1
            if moved_sets <= _MOST:
                yield _reason(task, rule, index, ranks, before, after)
    if moved_sets > _MOST:
        yield f"and {counted(moved_sets - _MOST, 'more set')} of nodes that must stay together"


def _domains(task: Task, rule: NodeRule, ranks: Sequence[int], nodes: Sequence[int]) -> tuple[set[int], set[int]]:
    """Return the domains of a set before, without those of lost nodes, and after."""
    ids = task.domains[rule.level or 0].ids
    nodes_before = [task.old[rank] for rank in ranks]
    before = {ids[node] for node in nodes_before if node is not None}
    return before, {ids[nodes[rank]] for rank in ranks}


def _reason(task: Task, rule: NodeRule, index: int, ranks: Sequence[int], before: set[int], after: set[int]) -> str:
    """Return why a set leaves its domain."""
    domains = task.domains[rule.level or 0]
    left, reached = (" and ".join(str(domains.names[one][-1]) for one in sorted(ids)) for ids in (before, after))
    lost = any(task.old[rank] is None for rank in ranks)
    why = f"has no spare in {left}" if lost else f"leaves {left} to others"
    where = f"it moves as a whole to {reached}" if len(after) == 1 else f"it is divided between {reached}"
    return f"{_named(task, rule, index, ranks)} {why}; {where}"


def _named(task: Task, rule: NodeRule, index: int, ranks: Sequence[int]) -> str:
    names = [name for name in task.parts if name in rule.who.split(f" {TOGETHER} ")] or list(task.parts)
    found = ((name, ranks_at(task.parts[name], set(ranks))) for name in names)
    who = "ranks" if len(task.parts) == 1 else ""
    texts = [f"{who or name} {processes}" for name, processes in found if processes]
    what = {SEGMENT: f"segment {index}", WORLD: "the whole"}.get(rule.kind, f"the {rule.kind} group")
    return f"{what} ({', '.join(texts)})"

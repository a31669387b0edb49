"""The cost of schedules and the exhaustive search for the best one, in plain Python.

A schedule is a component's index, or ``("then", children)`` or ``("pipe", children)``. ``prices`` yields the cost of
every choice of sizes; the search tries every schedule with every choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

Tree = Any
SAME = 1e-9
"""Seconds that differ by this share or less are equal."""


@dataclass(frozen=True)
class Component:
    sizes: dict[int, tuple[float, float]]
    """By number of accelerators: seconds of an iteration, memory."""
    switch: float
    after: frozenset[int]


@dataclass(frozen=True)
class Problem:
    components: Sequence[Component]
    accelerators: int
    batches: int
    stale: bool = False
    capacity: float | None = None
    transfers: Sequence[tuple[tuple[int, int], float, float]] = ()


@dataclass(frozen=True)
class Cost:
    accelerators: int
    warmup: float
    period: float
    memory: float
    switch: float
    once: float


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for index, block in enumerate(smaller):
            yield [*smaller[:index], [first, *block], *smaller[index + 1 :]]


def ordered(problem: Problem, blocks: list[list[int]]) -> list[list[int]] | None:
    """Return the blocks in an order in which each follows those that it depends on, ``None`` if there is none."""
    left, done = list(blocks), []
    while left:
        free = [
            block
            for block in left
            if not any(
                set(other) & problem.components[task].after for task in block for other in left if other is not block
            )
        ]
        if not free:
            return None
        done.append(free[0])
        left.remove(free[0])
    return done


def trees(problem: Problem, tasks: list[int], above: str = "") -> Iterator[Tree]:
    """Yield every schedule of some components; a node and its parent differ in kind."""
    if len(tasks) == 1:
        yield tasks[0]
        return
    for blocks in partitions(tasks):
        if len(blocks) > 1 and (order := ordered(problem, blocks)) is not None:
            for kind in ("then", "pipe"):
                if kind != above:
                    for children in product(*(list(trees(problem, block, kind)) for block in order)):
                        yield (kind, children)


def leaves(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else [leaf for child in tree[1] for leaf in leaves(child)]


def shape(tree: Tree) -> str:
    kinds = {word for word in ("then", "pipe") if word in str(tree)}
    return {("then",): "collocated", ("pipe",): "disaggregated"}.get(tuple(sorted(kinds)), "hybrid" if kinds else "any")


def costs(problem: Problem, tree: Tree, sizes: dict[int, int], root: bool) -> Iterator[Cost]:
    """Yield the cost of a schedule with sizes, for each way to keep components in memory or to switch them."""
    batches = problem.batches
    if isinstance(tree, int):
        seconds, memory = problem.components[tree].sizes[sizes[tree]]
        limited = problem.capacity is not None
        one = seconds / batches
        yield Cost(sizes[tree], one, one, memory * limited, problem.components[tree].switch * limited, 0)
        return
    kind, children = tree
    apart = sum(
        far if kind == "pipe" else near
        for (one, other), far, near in problem.transfers
        if any(one in leaves(child) for child in children)
        and any(other in leaves(child) for child in children)
        and not any({one, other} <= set(leaves(child)) for child in children)
    )
    for parts in product(*(list(costs(problem, child, sizes, False)) for child in children)):
        once = sum(part.once for part in parts) + apart
        if kind == "pipe":
            done: list[float] = []
            for index, child in enumerate(children):
                needed = {task for leaf in leaves(child) for task in problem.components[leaf].after}
                before = [done[j] for j in range(index) if needed & set(leaves(children[j]))]
                done.append(max(before, default=0) + parts[index].warmup)
            yield Cost(
                sum(part.accelerators for part in parts),
                max(done),
                max(part.period for part in parts),
                max(part.memory for part in parts),
                max(part.switch for part in parts),
                once,
            )
            continue
        for switching in (False, True) if problem.capacity is not None else (False,):
            add = [part.switch * switching for part in parts]
            memory = max(part.memory for part in parts) if switching else sum(part.memory for part in parts)
            if root:  # the children run for the whole iteration
                seconds = [total(problem, part) for part in parts]
                warmup = sum(seconds) + sum(add)
                period = 0.0
            else:
                warmup = sum(part.warmup for part in parts) + sum(add)
                period = sum(part.period for part in parts) + sum(add)
            if problem.capacity is None or memory <= problem.capacity:
                switch = 0.0 if switching else sum(part.switch for part in parts)
                yield Cost(max(part.accelerators for part in parts), warmup, period, memory, switch, once)


def total(problem: Problem, cost: Cost) -> float:
    if problem.stale:
        return cost.period * problem.batches
    return cost.warmup + (problem.batches - 1) * cost.period


def price(problem: Problem, tree: Tree, sizes: dict[int, int]) -> tuple[float, int] | None:
    """Return seconds and accelerators of a schedule with sizes, ``None`` if it does not fit."""
    found = []
    for cost in costs(problem, tree, sizes, True):
        fits = problem.capacity is None or cost.memory <= problem.capacity
        if cost.accelerators <= problem.accelerators and fits:
            turns = not isinstance(tree, int) and tree[0] == "then"
            found.append(((cost.warmup if turns else total(problem, cost)) + cost.once, cost.accelerators))
    return min(found, default=None)


def best(problem: Problem, wanted: str | None = None) -> tuple[float, int] | None:
    """Return the least seconds, of a shape if one is wanted, and the fewest accelerators with which that is reached."""
    found = []
    for tree in trees(problem, list(range(len(problem.components)))):
        if wanted in (None, shape(tree)) or shape(tree) == "any":
            for sizes in product(*(component.sizes for component in problem.components)):
                here = price(problem, tree, dict(enumerate(sizes)))
                found += [] if here is None else [here]
    if not found:
        return None
    least = min(seconds for seconds, _ in found)
    return least, min(accelerators for seconds, accelerators in found if seconds <= least * (1 + SAME))

"""Arranging: node ranks to nodes, against brute force."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_arrange import Case
from rankplan import Inventory
from rankplan._core import Chunks, Hierarchy, Problem
from rankplan.component import Component
from rankplan.errors import PlacementError
from rankplan.parallel import ORDER, Parallel

ORDERS = [ORDER, "tp-cp-ep-pp-dp", "dp-pp-tp-ep-cp"]


@st.composite
def cases(draw: st.DrawFn, most_ranks: int = 5, most_nodes: int = 7) -> Case:
    """Return nodes in up to three levels, and up to two components on some of their node ranks."""
    ranks = draw(st.integers(2, most_ranks))
    nodes = draw(st.integers(ranks, most_nodes))
    levels = draw(st.integers(1, 3))
    label = st.sampled_from(["a", "b", "c", "a", "b", None])
    labels = [tuple(draw(label) for _ in range(levels)) for _ in range(nodes)]
    two_kinds = draw(st.integers(0, 4)) == 0
    inventory = Inventory.from_dict({"nodes": [{"ranks": f"0-{ranks - 1}", "accelerators": 2}]})
    components = {}
    for name in ["actor", "rollout"][: draw(st.integers(1, 2))]:
        used = draw(st.lists(st.integers(0, ranks - 1), min_size=1, max_size=ranks, unique=True))
        devices = [2 * node + index for node in (sorted(used) if draw(st.booleans()) else used) for index in (0, 1)]
        each = draw(st.sampled_from([1, 1, 2]))
        size = st.sampled_from([1, 1, 2, 3, 4])
        order = draw(st.sampled_from(ORDERS))
        component = Component.place(name, inventory, ("cluster",), Chunks(devices, each))
        for _ in range(8):
            sizes = {kind: draw(size) for kind in ("tp", "cp", "ep", "pp")}
            try:
                component = Component.place(
                    name, inventory, ("cluster",), Chunks(devices, each), parallel=Parallel(**sizes, order=order)
                )
            except PlacementError:
                continue
            break
        components[name] = component
    used_ranks = {row.cluster_node_rank for one in components.values() for row in one}
    kinds = [draw(st.integers(0, 1)) if two_kinds else 0 for _ in range(nodes)]
    needs = [(draw(st.integers(0, 1)) if two_kinds else 0) if rank in used_ranks else None for rank in range(ranks)]
    kept: list[tuple[str, str, int]] = []
    if draw(st.booleans()):
        stated = [name for name, one in components.items() if one.parallel.stated]
        for name in stated:
            kept.append((name, draw(st.sampled_from(["tp", "ep", "pp"])), draw(st.integers(0, levels - 1))))
    segment = draw(st.sampled_from([1, 1, 2, 3]))
    needed = [rank for rank, need in enumerate(needs) if need is not None]
    sets = []
    if segment > 1 and draw(st.booleans()):
        sets = [(levels - 1, needed[at : at + segment]) for at in range(0, len(needed), segment)]
    old: list[int | None] = []
    if draw(st.booleans()):
        places = draw(st.permutations(range(nodes)))
        fits = [need is not None and kinds[place] == need for need, place in zip(needs, places, strict=False)]
        old = [place if fit and draw(st.integers(0, 3)) else None for fit, place in zip(fits, places, strict=False)]
    return Case(labels, kinds, needs, components, kept, sets, old, segment)


def problem(case: Case) -> Problem:
    """Return the same problem for the core."""
    names = sorted({label for labels in case.labels for label in labels if label is not None})
    columns = [
        [Hierarchy.UNKNOWN if labels[level] is None else names.index(labels[level] or "") for labels in case.labels]
        for level in range(case.levels)
    ]
    parts: Any = [(one.rows, one.layout if one.parallel.stated else None) for one in case.components.values()]
    index = list(case.components)
    return Problem(
        Hierarchy(len(case.labels), columns),
        node_classes=list(case.kinds),
        rank_classes=list(case.needs),
        parts=parts,
        kept=[(index.index(name), kind, level) for name, kind, level in case.kept],
        sets=[(level, list(ranks)) for level, ranks in case.sets],
        pinned=[None] * len(case.needs),
        old=list(case.old),
        segment=case.segment,
    )


def check(case: Case) -> None:
    """Compare the solver with brute force."""
    best = case.best()
    if best is None:
        with pytest.raises(ValueError):
            problem(case).solve()
        return
    found = problem(case).solve()
    assert len({node for node in found.nodes if node is not None}) == sum(need is not None for need in case.needs)
    for node, need in zip(found.nodes, case.needs, strict=True):
        assert (node is None) == (need is None)
        assert node is None or case.kinds[node] == need
    assert found.cost == case.cost(found.nodes)
    assert found.optimal
    assert found.cost == best


@settings(max_examples=300)
@given(cases())
def test_small_instances_are_solved_exactly(case: Case) -> None:
    check(case)


@settings(max_examples=6)
@given(cases(7, 9))
def test_seven_node_ranks_on_nine_nodes(case: Case) -> None:
    check(case)

"""Arrangements beside the recorded answers of NeMo-RL: feasible wherever a choice exists, and never more crossings."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, groupby, pairwise
from typing import Any

import pytest
from rankplan import Inventory, Plan, arrange
from rankplan._core import Chunks
from rankplan.errors import PlacementError
from rankplan.parallel import Parallel
from rankplan.plans.component import Component
from support import goldens
from support.outcomes import some

LINES = goldens.lines("nemo_rl_segments")
SELECT = [line for line in LINES if line["kind"] == "select" and line["num_nodes"]]
SORT = [line for line in LINES if line["kind"] == "sort" and line["result"]["order"]]
ROLES = [line for line in LINES if line["kind"] == "roles" and "wants" in line]
PREPARE = [line for line in LINES if line["kind"] == "prepare" and line["segment_size"]]
PREPARED = [line for line in PREPARE if line["result"].get("constraints") is not None]


def inventory(nodes: list[Any], each: int = 1) -> Inventory:
    """Return the nodes ``[id, domain or null, topo_rank or null]`` with their domains."""
    labels = [{} if domain is None else {"nvlink": domain} for _, domain, *_ in nodes]
    entries = [
        {"ranks": rank, "accelerators": each, "hostname": node[0], "labels": label}
        for rank, (node, label) in enumerate(zip(nodes, labels, strict=True))
    ]
    return Inventory.from_dict({"nodes": entries}).with_levels(["nvlink"])


def plan(count: int, each: int = 1, tp: int = 1) -> Plan:
    """Return a plan of one process per accelerator on nodes without names."""
    nodes = Inventory.uniform(count, each)
    rule = Chunks(list(range(count * each)), 1)
    return Plan(nodes, [Component.place("actor", nodes, ("cluster",), rule, parallel=Parallel(tp=tp))])


def domains(found: Inventory, count: int) -> list[str]:
    """Return the domain of each of the first nodes; a node without one is alone."""
    return [found.node(rank).labels.get("nvlink", f"alone {rank}") for rank in range(count)]


def whole(found: list[str], segment: int) -> bool:
    return all(len(set(found[at : at + segment])) == 1 for at in range(0, len(found), segment))


@pytest.mark.parametrize("line", SELECT, ids=lambda line: line["id"])
def test_segments_are_found_wherever_they_exist(line: dict[str, Any]) -> None:
    nodes, segment, count = inventory(line["nodes"]), line["segment_size"], line["num_nodes"]
    sizes = Counter(domain for _, domain, _ in line["nodes"] if domain is not None)
    alone = sum(domain is None for _, domain, _ in line["nodes"]) if segment == 1 else 0
    possible = count % segment == 0 and sum(size // segment for size in sizes.values()) + alone >= count // segment
    assert possible or not line.get("possible")
    if not possible:
        with pytest.raises(PlacementError) as refused:
            arrange(plan(count), nodes, segment=segment)
        assert refused.value.code in ("segment-incomplete", "too-few-nodes")
        return
    found = domains(arrange(plan(count), nodes, segment=segment).inventory, count)
    assert whole(found, segment)
    if line["fewest_domains"] is not None:
        assert len(set(found)) == line["fewest_domains"] <= line.get("domains_used", len(found))


@pytest.mark.parametrize("line", PREPARED, ids=lambda line: line["id"])
def test_prepared_segments_stay_within_domains(line: dict[str, Any]) -> None:
    nodes, segment, count = inventory(line["nodes"]), line["segment_size"], line["num_nodes"]
    assert whole(domains(arrange(plan(count), nodes, segment=segment).inventory, count), segment)


@pytest.mark.parametrize("line", ROLES, ids=lambda line: line["id"])
def test_roles_share_domains_wherever_they_can(line: dict[str, Any]) -> None:
    starts = [0, *accumulate(count * size for count, size in line["wants"])]
    nodes, planned = inventory(line["nodes"]), Inventory.uniform(starts[-1], 1)
    roles = [
        Component.place(f"role {index}", planned, ("cluster",), Chunks(list(range(*ends)), 1))
        for index, ends in enumerate(pairwise(starts))
    ]
    segments = {role.name: size for role, (_, size) in zip(roles, line["wants"], strict=True)}
    try:
        found = domains(arrange(Plan(planned, roles), nodes, segment=segments).inventory, starts[-1])
    except PlacementError as error:
        assert error.code in ("segment-incomplete", "too-few-nodes") and not line["possible"]
        assert "search" not in str(error)
        return
    for (_, size), ends in zip(line["wants"], pairwise(starts), strict=True):
        assert whole(found[slice(*ends)], size)
    alone = sum(domain is None for _, domain, _ in line["nodes"])
    assert line["possible"] or (alone and 1 in segments.values())


def group_sizes(line: dict[str, Any]) -> list[int]:
    """The sizes of tensor groups, of whole nodes, that the order of a line divides into."""
    each, count = largest_node(line), len(line["result"]["order"])
    sizes = {size * each for size in (1, line["segment_size"] or 1, 2, 4)}
    return sorted(size for size in sizes if size > 1 and count % size == 0)


def largest_node(line: dict[str, Any]) -> int:
    return max(Counter(node for *_, node in line["bundles"]).values())


GROUPED = [line for line in SORT if group_sizes(line)]


@pytest.mark.parametrize("line", GROUPED, ids=lambda line: line["id"])
def test_no_more_crossings_than_its_sort(line: dict[str, Any]) -> None:
    bundles, each = line["bundles"], largest_node(line)
    order = [bundles[index] for index in line["result"]["order"]]
    listed: dict[str, Any] = {}
    for _, domain, rank, node in bundles:
        listed.setdefault(node, [node, domain, rank])
    if sum(1 for _ in groupby(node for *_, node in order)) > len(listed):
        goldens.named("nemo-rl-interleaved")
    nodes = inventory(list(listed.values()), each)
    for tp in some(group_sizes(line)):
        theirs = [order[at : at + tp] for at in range(0, len(order), tp)]
        alone = [{one[1] or one[3] for one in group} for group in theirs]
        crossing, spanning = sum(len(group) > 1 for group in alone), [{one[3] for one in group} for group in theirs]
        ours = plan(len(order) // each, each, tp)
        assert arrange(ours, nodes).after[0][0] <= crossing
        layout = ours["actor"].layout
        assert layout.size("tp") == tp
        within = max(len({layout.place(slot)[0] for slot in group}) for group in layout.groups("tp"))
        assert within == tp // each <= max(map(len, spanning))

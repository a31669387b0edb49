"""Strategies for rank sets, valid placements, inventories and cluster sections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from hypothesis import strategies as st

from rankplan._core import ACCELERATOR, CLUSTER, MAX_RANK, NODE, WHOLE_NODE, RankSet
from rankplan.accelerators import VENDORS
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


@st.composite
def inventories(draw: st.DrawFn, max_nodes: int = 5, max_accelerators: int = 8) -> Inventory:
    """Generate clusters of one to ``max_nodes`` nodes with up to ``max_accelerators`` accelerators each.

    The nodes are uneven and of several types; some have ids, addresses and labels.
    """
    entries: list[dict[str, Any]] = []
    node = 0
    while node < max_nodes and (not entries or draw(st.booleans())):
        count = draw(st.integers(1, min(2, max_nodes - node)))
        entries.append({"ranks": range_text(node, node + count - 1), **draw(_equipment(node, max_accelerators))})
        if draw(st.booleans()) and count == 1:
            entries[-1] |= {"ip": f"10.0.0.{node + 1}", "hostname": f"node-{node}", "labels": {"rack": str(node)}}
        node += count
    return Inventory.from_dict({"nodes": entries})


@st.composite
def _equipment(draw: st.DrawFn, node: int, max_accelerators: int) -> dict[str, Any]:
    count = draw(st.integers(0, max_accelerators))
    if not count:
        return {}
    entry: dict[str, Any] = {"accelerators": count}
    kind = draw(st.sampled_from([None, *(row.accelerator_type for row in VENDORS)]))
    entry |= {"accelerator_type": kind, "accelerator_model": f"{kind} 90"} if kind else {}
    first = draw(st.integers(0, 4))
    ids = [None, [str(first + index) for index in range(count)], [f"GPU-{node}-{index}" for index in range(count)]]
    chosen = draw(st.sampled_from(ids))
    return entry | ({"accelerator_ids": chosen} if chosen else {})


_LABELS = ("a800", "4090", "edge")
_NAMES = (["actor"], ["rollout", "reward"], ["env"], ["critic", "reference"])


@st.composite
def cluster_sections(draw: st.DrawFn, inventory: Inventory) -> dict[str, Any]:
    """Generate valid ``cluster`` sections for an inventory.

    They have one to four component entries and up to three node groups, some with environments, with configured
    hardware, or with ``ignore_hardware``.
    """
    num_nodes = draw(st.sampled_from([inventory.num_nodes, inventory.num_nodes, (inventory.num_nodes + 1) // 2]))
    labels = _LABELS[: draw(st.integers(0, 3))]
    groups = [draw(_node_groups(label, num_nodes)) for label in labels]
    everywhere = list(range(num_nodes))
    counted: dict[str, dict[str, Any]] = {CLUSTER: {"nodes": everywhere}, NODE: {"nodes": everywhere, "ignore": True}}
    counted |= {str(group["label"]): known for group, known in groups}
    section: dict[str, Any] = {"num_nodes": num_nodes, "component_placement": {}}
    for names in _NAMES[: draw(st.integers(1, len(_NAMES)))]:
        selected, blocks = draw(_selections(inventory, counted))
        text = draw(texts(blocks))
        placement = int(text) if text.isdecimal() and draw(st.booleans()) else text
        entry: Any = {"node_group": selected, "placement": placement}
        if selected == CLUSTER:
            entry = draw(st.sampled_from([placement, {"placement": placement}, entry]))
        section["component_placement"][draw(st.sampled_from([",", " , "])).join(names)] = entry
    return section | ({"node_groups": [group for group, _ in groups]} if groups else {})


@st.composite
def _node_groups(draw: st.DrawFn, label: str, num_nodes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw a node group, and its contents: ``nodes``, ``robots`` by node, and whether it ``ignore``s hardware."""
    nodes = sorted(draw(st.sets(st.integers(0, num_nodes - 1), min_size=1)))
    written = [nodes, str(RankSet(nodes)), *(["all"] if len(nodes) == num_nodes else [])]
    group: dict[str, Any] = {
        "label": int(label) if label.isdecimal() and draw(st.booleans()) else label,
        "node_ranks": draw(st.sampled_from([*written, nodes[0]] if len(nodes) == 1 else written)),
    }
    if draw(st.booleans()):
        cut = draw(st.integers(0, len(nodes) - 1))
        parts = [part for part in (nodes[:cut], nodes[cut:]) if part]
        group["env_configs"] = [
            {"node_ranks": part, "env_vars": [{"PART": f"{label} {index}"}, {"CORES": 4}]}
            | ({"python_interpreter_path": f"/opt/{label}/bin/python"} if draw(st.booleans()) else {})
            for index, part in enumerate(parts)
        ]
    kind = draw(st.sampled_from(["plain", "plain", "ignoring", "robots"]))
    if kind == "ignoring":
        return group | {"ignore_hardware": True}, {"nodes": nodes, "ignore": True}
    if kind == "plain":
        return group, {"nodes": nodes}
    robots = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=6))
    # Each group has its own type: two groups must not configure the same type on one node.
    configs = [{"node_rank": node, "name": f"{label} {index}"} for index, node in enumerate(robots)]
    hardware = {"type": f"Arm of {label}", "configs": configs}
    return group | {"hardware": hardware}, {"nodes": nodes, "robots": Counter(robots), "type": hardware["type"]}


@st.composite
def _selections(draw: st.DrawFn, inventory: Inventory, groups: dict[str, dict[str, Any]]) -> tuple[Any, list[int]]:
    """Draw the node groups of a component, and the number of resources of each node and kind in turn."""
    first, second = draw(st.tuples(st.sampled_from(list(groups)), st.sampled_from([None, *groups])))
    resources = _resources(inventory, [groups[first]])
    if second is not None:
        both = _resources(inventory, [groups[first], groups[second]])
        if len({place[:2] for place in both}) == len(both):  # otherwise both groups count the same resources
            several = draw(st.sampled_from([[first, second], f"{first},{second}", f"{first} , {second}"]))
            return several, [count for _, _, count in both]
    return draw(st.sampled_from([first, [first]])), [count for _, _, count in resources]


def _resources(inventory: Inventory, groups: Sequence[dict[str, Any]]) -> list[tuple[int, str, int]]:
    """Return the resources of these groups: node, kind and number."""
    accelerators = {node: inventory.node(node).num_accelerators for group in groups for node in group["nodes"]}

    def counts_nodes(group: dict[str, Any]) -> bool:
        return "ignore" in group or not ("robots" in group or any(accelerators[node] for node in group["nodes"]))

    if any(map(counts_nodes, groups)):
        return [(node, WHOLE_NODE, 1) for group in groups for node in group["nodes"]]
    found = [
        (node, group.get("type", ACCELERATOR), group.get("robots", accelerators)[node])
        for group in groups
        for node in group["nodes"]
    ]
    return [place for place in found if place[2]]

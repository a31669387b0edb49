"""The oracle: the rules of the placement language and of assignment in plain, slow, obvious Python.

Tests and benchmarks compare the core with it. It shares no code and no data structures with the core, and turns ranges
into lists as soon as they are known to be in bounds.

A placement goes through ``parse`` (text -> parts), ``read`` (parts -> segments and faults) and ``place`` (segments ->
one dict per process, with the fields of a row); ``topology`` maps resource ranks to resources.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

LARGEST_RANK = 4294967294
LARGEST_WORLD = 16_777_216

BLANKS = " \t\r\n\f"
BLANK = f"[{BLANKS}]*"
RANK = r"(?:0|[1-9][0-9]*)"
RANGE = rf"(?i:all)|{RANK}(?:{BLANK}-{BLANK}{RANK})?"
PART = re.compile(rf"{BLANK}(?P<resources>{RANGE})(?:{BLANK}:{BLANK}(?P<processes>{RANGE}))?{BLANK}")

Row = dict[str, Any]
FIELDS = (
    "rank",
    "world_size",
    "cluster_node_rank",
    "placement_node_rank",
    "local_rank",
    "local_world_size",
    "local_hardware_ranks",
    "accelerator_type",
    "visible_accelerators",
    "local_accelerator_rank",
    "devices",
    "isolate_accelerator",
    "node_group_label",
)


class Refused(Exception):
    """A placement is invalid; ``codes`` are the codes of all its faults, in any order."""

    def __init__(self, *codes: str) -> None:
        super().__init__(", ".join(codes))
        self.codes = list(codes)


class Range(NamedTuple):
    """Ranks ``first`` to ``last``, both included.

    An ``all`` gets its ranks when the number of resources is known; until then its size is, like that of a reversed
    range, nothing that can be counted with.
    """

    first: int
    last: int
    is_all: bool = False

    @property
    def reversed(self) -> bool:
        return self.last < self.first

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class Segment(NamedTuple):
    """Ranges of resource ranks, and the range of process ranks on them (``None`` if unknown)."""

    resources: list[Range]
    processes: Range | None

    @property
    def num_resources(self) -> int:
        return sum(part.size for part in self.resources)


class Resource(NamedTuple):
    """A resource in the group ``label``: a node (``local`` is ``None``) or something on a node."""

    node: int
    local: int | None
    kind: str
    label: str


class Topology(NamedTuple):
    """The resource of each rank, and the physical ids and type of the accelerators of each node."""

    resources: list[Resource]
    by_node: bool
    accelerators: list[list[str]]
    types: list[str]


# --------------------------------------------------------------------------------------------------- the language


def parse(text: str) -> list[tuple[Range, Range | None]]:
    """Return the parts between the commas as (resources, processes); raise ``Refused`` for invalid syntax."""
    parts = []
    for part in text.split(","):
        if not part.strip(BLANKS):
            continue
        match = PART.fullmatch(part)
        if match is None:
            raise Refused("syntax")
        parts.append((_range(match["resources"]), _range(match["processes"]) if match["processes"] else None))
    if not parts:
        raise Refused("empty-placement")
    return parts


def _range(text: str) -> Range:
    if text.lower() == "all":
        return Range(0, -1, is_all=True)
    ends = [end.strip(BLANKS) for end in text.split("-")]
    if any(len(end) > 10 or int(end) > LARGEST_RANK for end in ends):
        raise Refused("syntax")
    return Range(int(ends[0]), int(ends[-1]))


def read(text: str, count: int | None) -> tuple[list[Segment], list[str]]:
    """Return the segments of a text on ``count`` resources (``None``: unknown), and the codes of its faults."""
    parts = parse(text)
    if count == 0:
        raise Refused("no-resources")
    if count is None:
        count = LARGEST_RANK + 1
    else:
        parts = [(Range(0, count - 1) if resources.is_all else resources, processes) for resources, processes in parts]
    segments, faults = _segments(parts)
    faults += _resource_faults([resources for resources, _ in parts], count)
    present = [segment for segment in segments if segment.processes and _in_bounds(segment, count)]
    if sum(segment.processes.size for segment in present) > LARGEST_WORLD:
        faults.append("too-many-processes")
    for segment in segments:
        # Out of bounds, only what the fix of that fault leaves must fit.
        existing = sum(max(min(part.last, count - 1) - part.first + 1, 0) for part in segment.resources)
        if _of_known_sizes(segment) and not any(_shares_evenly(m, segment) for m in (segment.num_resources, existing)):
            faults.append("not-multiple")
    return segments, faults


def _segments(parts: list[tuple[Range, Range | None]]) -> tuple[list[Segment], list[str]]:
    """Return which ranges belong to which process ranks, and the faults of the process ranks."""
    segments: list[Segment] = []
    faults: list[str] = []
    expected: int | None = 0  # the next process rank; None if unknown
    run: list[Range] = []  # bare ranges without a colon so far

    def take_implicitly(resources: Range) -> None:
        nonlocal expected
        if resources.reversed:
            expected = None
        if expected is None:
            segments.append(Segment([resources], None))
        else:
            segments.append(Segment([resources], Range(expected, expected + resources.size - 1)))
            expected += resources.size

    for resources, processes in parts:
        run.append(resources)
        if resources.reversed:
            faults.append("no-resources" if resources.is_all else "reversed-range")
        if processes is None:
            continue
        alone = len(run) - 1
        if processes.is_all or processes.reversed:
            faults.append("all-processes" if processes.is_all else "reversed-range")
            split = alone
        else:
            split, reached = 0, expected
            while split < alone and reached is not None and reached != processes.first:
                reached = None if run[split].reversed else reached + run[split].size
                split += 1
            if reached is None:
                split = alone
            elif reached != processes.first:
                faults.append("process-gap" if segments or alone else "process-start")
        for bare in run[:split]:
            take_implicitly(bare)
        known = None if processes.is_all or processes.reversed else processes
        segments.append(Segment(run[split:], known))
        expected = known.last + 1 if known else None
        run = []
    for bare in run:
        take_implicitly(bare)
    return segments, faults


def _resource_faults(ranges: list[Range], count: int) -> list[str]:
    faults: list[str] = []
    named: list[Range] = []
    highest = -1
    for part in ranges:
        if part.reversed:
            continue
        if part.last >= count:
            faults.append("resource-out-of-range")
        if part.first <= highest:
            twice = any(part.first <= other.last and other.first <= part.last for other in named)
            faults.append("duplicate-resource" if twice else "resource-order")
        named.append(part)
        highest = max(highest, part.last)
    return faults


def _in_bounds(segment: Segment, count: int) -> bool:
    return all(part.last < count for part in segment.resources if not part.reversed)


def _of_known_sizes(segment: Segment) -> bool:
    """Whether both sizes are known: not for reversed ranges, nor for a list longer than the number of ranks."""
    whole = not any(part.reversed for part in segment.resources) and segment.num_resources <= LARGEST_RANK + 1
    return whole and segment.processes is not None


def _shares_evenly(m: int, segment: Segment) -> bool:
    k = segment.processes.size
    return m % k == 0 or k % m == 0


def canonical(segments: list[Segment]) -> str:
    """Return the canonical text of a valid rank map: every segment with its processes, ranges merged."""
    texts = []
    for resources, processes in segments:
        resource_text = _merged([(part.first, part.last) for part in resources])
        texts.append(f"{resource_text}:{_text(processes.first, processes.last)}")
    return ",".join(texts)


def rank_text(ranks: Iterable[int]) -> str:
    """Return ranks as ascending, merged ranges."""
    return _merged([(rank, rank) for rank in ranks])


def _merged(ranges: list[tuple[int, int]]) -> str:
    runs: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], max(runs[-1][1], last))
        else:
            runs.append((first, last))
    return ",".join(_text(first, last) for first, last in runs)


def _text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _ranks(part: Range) -> range:
    return range(part.first, part.last + 1)


# ------------------------------------------------------------------------------------------------- what ranks mean


def topology(inventory: dict[str, Any], cluster: dict[str, Any], labels: list[str]) -> Topology:
    """Return the resources of these groups; both mappings are as a user writes them."""
    accelerators: dict[int, list[str]] = {}
    types: dict[int, str] = {}
    for entry in inventory["nodes"]:
        for node in ranks_of(entry["ranks"]):
            if node >= cluster.get("num_nodes", node + 1):
                continue
            ids = entry.get("accelerator_ids")
            accelerators[node] = [str(i) for i in range(entry.get("accelerators", 0))] if ids is None else list(ids)
            types[node] = entry.get("accelerator_type", "NV_GPU") if accelerators[node] else "NO_ACCEL"
    num_nodes = len(accelerators)
    groups = {label: {"node_ranks": list(range(num_nodes))} for label in ("cluster", "node")}
    groups["node"]["ignore_hardware"] = True
    groups |= {str(group["label"]): group for group in cluster.get("node_groups", [])}

    if any(label not in groups for label in labels):
        raise Refused("unknown-node-group")
    nodes_of = {label: sorted(ranks_of(groups[label]["node_ranks"], num_nodes)) for label in labels}

    def what_it_counts(label: str) -> str:
        if groups[label].get("ignore_hardware"):
            return "nodes"
        if "hardware" in groups[label]:
            return "hardware"
        return "accelerators" if any(accelerators[node] for node in nodes_of[label]) else "nodes"

    by_node = any(what_it_counts(label) == "nodes" for label in labels)
    resources: list[Resource] = []
    taken: Counter[tuple[int, str]] = Counter()  # (node, kind of resource) -> number of groups that count it
    for label in labels:
        counts = "nodes" if by_node else what_it_counts(label)
        hardware = groups[label].get("hardware", {"type": "", "configs": []})
        pieces = Counter(config["node_rank"] for config in hardware["configs"])
        for node in nodes_of[label]:
            if counts == "nodes":
                kind, number = "node", 1
            elif counts == "hardware":
                kind, number = hardware["type"], pieces[node]
            else:
                kind, number = types[node], len(accelerators[node])
            resources += [Resource(node, None if by_node else local, kind, label) for local in range(number)]
            taken[node, kind] += number > 0
    if any(times > 1 for times in taken.values()):
        raise Refused("overlapping-groups")
    in_order = sorted(accelerators)
    return Topology(resources, by_node, [accelerators[node] for node in in_order], [types[node] for node in in_order])


def ranks_of(written: int | str | list[int], count: int = 0) -> list[int]:
    """Return the node ranks of a range text, an int or a list."""
    if isinstance(written, int):
        return [written]
    if isinstance(written, list):
        return written
    parts = [Range(0, count - 1) if part.is_all else part for part, _ in parse(written)]
    return [rank for part in parts for rank in _ranks(part)]


# ------------------------------------------------------------------------------------------------------ assignment


def place(text: str, where: Topology, isolate: bool = True) -> list[Row]:
    """Return the rows of a placement, or raise ``Refused`` with every fault."""
    segments, faults = read(text, len(where.resources))
    if "too-many-processes" in faults:
        raise Refused(*faults)
    held: list[list[int]] = []  # process rank -> resource ranks
    for segment in segments:
        if not (
            _in_bounds(segment, len(where.resources))
            and _of_known_sizes(segment)
            and _shares_evenly(segment.num_resources, segment)
        ):
            continue
        shares = _shares([rank for part in segment.resources for rank in _ranks(part)], segment.processes.size)
        faults += _process_faults(shares, where)
        held += shares
    if faults:
        raise Refused(*faults)
    return _rows(held, where, isolate)


def flexible(ranks_of_processes: list[list[int]], where: Topology, isolate: bool = True) -> list[Row]:
    """Return the rows of processes from the resource ranks of each."""
    held = sorted((sorted(ranks) for ranks in ranks_of_processes), key=lambda ranks: ranks[0])
    if any(len(set(ranks)) < len(ranks) for ranks in held):
        raise Refused("duplicate-resource")
    _require_hardware(where)
    return _checked_rows(held, where, isolate)


def by_node(node_ranks: list[int], where: Topology, isolate: bool = True) -> list[Row]:
    """Return the rows of one process on each of these nodes of the group."""
    return _checked_rows([[rank] for rank in sorted(node_ranks)], where, isolate)


def packed(start: int, end: int, per_process: int, stride: int, where: Topology, isolate: bool = True) -> list[Row]:
    """Return the rows of windows of ``per_process * stride`` ranks; a process takes every ``stride``-th rank."""
    window = per_process * stride
    if start < 0 or end < 0 or per_process < 1 or stride < 1:
        raise Refused("invalid-value")
    if end < start:
        raise Refused("reversed-range")
    if (end - start + 1) % window:
        raise Refused("not-multiple")
    _require_hardware(where)
    if end >= len(where.resources):
        raise Refused("resource-out-of-range")
    held = []
    for first in range(start, end + 1, window):
        held += [list(range(first + j, first + window, stride)) for j in range(stride)]
    return _checked_rows(held, where, isolate)


def _require_hardware(where: Topology) -> None:
    if where.by_node or not where.resources:
        raise Refused("no-resources")


def _checked_rows(held: list[list[int]], where: Topology, isolate: bool) -> list[Row]:
    if any(not 0 <= rank < len(where.resources) for ranks in held for rank in ranks):
        raise Refused("resource-out-of-range")
    faults = _process_faults(held, where)
    if faults:
        raise Refused(*faults)
    return _rows(held, where, isolate)


def _shares(ranks: list[int], num_processes: int) -> list[list[int]]:
    m, k = len(ranks), num_processes
    if m >= k:
        return [ranks[i * (m // k) : (i + 1) * (m // k)] for i in range(k)]
    return [[ranks[i // (k // m)]] for i in range(k)]


def _process_faults(held: list[list[int]], where: Topology) -> list[str]:
    faults = []
    for code, field in (("spans-nodes", "node"), ("mixed-hardware", "kind")):
        if any(len({getattr(where.resources[rank], field) for rank in ranks}) > 1 for ranks in held):
            faults.append(code)
    return faults


def _rows(held: list[list[int]], where: Topology, isolate: bool) -> list[Row]:
    nodes = [where.resources[ranks[0]].node for ranks in held]
    in_order_of_use = {node: index for index, node in enumerate(dict.fromkeys(nodes))}
    on_node = Counter(nodes)
    seen: Counter[int] = Counter()
    rows = []
    for rank, (ranks, node) in enumerate(zip(held, nodes, strict=True)):
        resources = [where.resources[resource] for resource in ranks]
        every_id, kind = where.accelerators[node], where.types[node]
        own = [each.local for each in resources] if resources[0].kind == kind else []
        rows.append(
            {
                "rank": rank,
                "world_size": len(held),
                "cluster_node_rank": node,
                "placement_node_rank": in_order_of_use[node],
                "local_rank": seen[node],
                "local_world_size": on_node[node],
                "local_hardware_ranks": [] if where.by_node else [each.local for each in resources],
                "accelerator_type": kind,
                "visible_accelerators": [every_id[local] for local in own] if own and isolate else every_id,
                "local_accelerator_rank": own[0] if own else 0 if every_id else -1,
                "devices": [] if where.by_node else [(each.node, each.local) for each in resources],
                "isolate_accelerator": isolate,
                "node_group_label": resources[0].label,
            }
        )
        seen[node] += 1
    return rows


def plan(cluster: dict[str, Any], inventory: dict[str, Any], isolate: bool = True) -> dict[str, list[Row]]:
    """Return the rows of every component of a cluster section, or raise ``Refused`` with the faults of all."""
    plans: dict[str, list[Row]] = {}
    codes: list[str] = []
    for names, entry in cluster["component_placement"].items():
        if not isinstance(entry, dict):
            entry = {"placement": entry}
        groups = entry.get("node_group", "cluster")
        labels = groups if isinstance(groups, list) else str(groups).split(",")
        text = str(entry["placement"])
        try:
            where = topology(inventory, cluster, [str(label).strip() for label in labels])
        except Refused as refused:
            codes += [*refused.codes, *_faults_of_the_text_alone(text)]
            continue
        try:
            rows = place(text, where, isolate)
        except Refused as refused:
            codes += refused.codes
        else:
            plans |= {name.strip(): rows for name in names.split(",")}
    if codes:
        raise Refused(*codes)
    return plans


def _faults_of_the_text_alone(text: str) -> list[str]:
    try:
        faults = read(text, None)[1]
    except Refused as refused:
        faults = refused.codes
    return [code for code in faults if code != "no-resources"]

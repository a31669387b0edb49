"""For tests that use rankplan: Hypothesis strategies for what it reads, and what holds for every plan.

It needs Hypothesis, which comes with ``pip install 'rankplan[testing]'``::

    @given(st.data())
    def test_my_launcher(data):
        inventory = data.draw(inventories())
        section = data.draw(cluster_sections(inventory))
        plan = ComponentPlacement({"cluster": section}, inventory).plan()
        check_plan(plan)
        ...

What is drawn shrinks towards few nodes, components and processes; nothing is filtered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from rankplan._core import Placement, RankSet
from rankplan.accelerators import VENDORS
from rankplan.config.models import CLUSTER, LARGEST_RANK, MOST_PROCESSES, NODE
from rankplan.inventory import Inventory, NodeSpec
from rankplan.plan import Plan

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError("rankplan.testing needs Hypothesis: pip install 'rankplan[testing]'") from error

__all__ = [
    "PLACEMENT_CODES",
    "InvalidPlacement",
    "check_plan",
    "cluster_sections",
    "invalid_placements",
    "inventories",
    "placements",
    "rank_sets",
]

PLACEMENT_CODES = (
    "syntax",
    "reversed-range",
    "empty-placement",
    "resource-out-of-range",
    "duplicate-resource",
    "resource-order",
    "process-start",
    "process-gap",
    "all-processes",
    "not-multiple",
    "spans-nodes",
    "mixed-hardware",
    "too-many-processes",
    "no-resources",
)
"""Every code that the text of a placement can be refused with."""


class InvalidPlacement(NamedTuple):
    """A placement text that is refused, and with what.

    ``config`` has it as the placement of ``actor``; planned on ``inventory`` it raises `PlacementError`, and all its
    faults have this ``code``.
    """

    text: str
    code: str
    config: dict[str, Any]
    inventory: Inventory


# ------------------------------------------------------------------------------------------------------- rank sets


def rank_sets(max_rank: int = LARGEST_RANK) -> st.SearchStrategy[RankSet]:
    """Sets of up to some 80 ranks, near 0 and near ``max_rank``, from none to several ranges that may touch."""
    firsts = st.integers(0, min(63, max_rank)) | st.integers(max(0, max_rank - 63), max_rank)
    ranges = st.lists(st.tuples(firsts, st.integers(0, 9)), max_size=8)
    return ranges.map(lambda drawn: RankSet(_ranks(drawn, max_rank)))


def _ranks(ranges: Iterable[tuple[int, int]], max_rank: int) -> list[int]:
    return [rank for first, more in ranges for rank in range(first, min(first + more, max_rank) + 1)]


# --------------------------------------------------------------------------------------------------- valid placements


class _Segment(NamedTuple):
    """Ranges of resources, the number of processes that share them, and whether these are written."""

    ranges: list[tuple[int, int]]
    processes: int
    explicit: bool


def placements(where: int | Inventory) -> st.SearchStrategy[str]:
    """Texts that are valid placements, in all the ways that one can be written.

    ``where`` is what they are placed on: a number of resources on one node, or an inventory, whose accelerators they
    take node by node (its nodes, if none has an accelerator). Raises ``ValueError`` for less than one resource.
    """
    if isinstance(where, Inventory):
        counts = [where.node(rank).accelerators for rank in range(where.num_nodes)]
        return _texts([count for count in counts if count] or [1] * where.num_nodes)
    if where < 1:
        raise ValueError(f"there is no valid placement on {where} resources")
    return _texts([where])


@st.composite
def _texts(draw: st.DrawFn, blocks: Sequence[int]) -> str:
    """A process has its resources from one block: they are on one node and of one kind."""
    if draw(st.integers(0, 7)) == 7:
        return draw(_everything(blocks))
    return _joined(draw, _written(draw, _segments(draw, blocks)))


@st.composite
def _everything(draw: st.DrawFn, blocks: Sequence[int]) -> str:
    total, ends = sum(blocks), list(accumulate(blocks))
    word = draw(st.sampled_from(["all", "ALL", "All", "aLl", " all "]))
    held = [size for size in range(1, min(blocks) + 1) if not any(end % size for end in ends)]
    worlds = [total * times for times in (1, 2, 3)] + [total // size for size in held]
    return draw(st.sampled_from([word, *(f"{word}:{_range(0, world - 1)}" for world in worlds)]))


def _segments(draw: st.DrawFn, blocks: Sequence[int], start: int = 0) -> list[_Segment]:
    """Draw one to five segments over resources from ``start`` on."""
    ends = list(accumulate(blocks))
    total = ends[-1]
    resource = start + draw(st.integers(0, min(2, total - start - 1)))
    segments: list[_Segment] = []
    while resource < total and len(segments) < 5 and (not segments or draw(st.booleans())):
        if draw(st.booleans()):
            each = draw(st.integers(1, next(end for end in ends if end > resource) - resource))
            ranges = _held(draw, ends, resource, each)
            processes = sum(last - first + 1 for first, last in ranges) // each
            segments.append(_Segment(ranges, processes * (draw(st.integers(1, 3)) if each == 1 else 1), True))
        else:
            last = draw(st.integers(resource, min(total - 1, resource + 4095)))
            segments.append(_Segment([(resource, last)], last - resource + 1, draw(st.booleans())))
        resource = segments[-1].ranges[-1][1] + 1 + draw(st.sampled_from([0, 0, 0, 1, 2]))
    return segments


def _held(draw: st.DrawFn, ends: Sequence[int], at: int, each: int) -> list[tuple[int, int]]:
    """Draw the ranges of one to four processes that have ``each`` resources of one block; two may be written as one."""
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


def _written(draw: st.DrawFn, segments: Iterable[_Segment]) -> list[str]:
    """Draw the texts between the commas."""
    parts: list[str] = []
    process = 0
    for segment in segments:
        parts += [_range(first, last, draw(st.integers(0, 9)) == 9) for first, last in segment.ranges]
        if segment.explicit:
            parts[-1] += f":{_range(process, process + segment.processes - 1)}"
        process += segment.processes
    return parts


def _range(first: int, last: int, both_ends: bool = False) -> str:
    return str(first) if first == last and not both_ends else f"{first}-{last}"


def _joined(draw: st.DrawFn, parts: Sequence[str]) -> str:
    """Draw one text of these parts, with blanks and empty parts."""
    comma = draw(st.sampled_from([",", ", ", "\t,", ",\n  ", ",,", ", ,\r\n"]))
    before, after = draw(st.sampled_from([("", ""), ("", ""), ("", ","), (" , ", " "), ("\n", "\f")]))
    text = before + comma.join(parts) + after
    return draw(st.sampled_from([text, text, text.replace(":", " : "), text.replace("-", " -\t")]))


# ------------------------------------------------------------------------------------------------- invalid placements

_NO_GRAMMAR = (
    *("x", "-", ":", "-1", "+1", "0-", "1:", ":1", "0:0:0", "0-1-2", "0..3", "0;1", "0 1", "0/1", "[0]"),
    *("1.0", "1e3", "0x3", "007", "0_1", "4294967295", "0:0-4294967295", "alle", "all 0", "0-all", "all-0", "None"),
    *("\u0663", "\uff10-1", "0\u20131", "0\u00a0", "0\u200b", "\0", "\U0001f600"),
)


def invalid_placements(codes: Collection[str] = PLACEMENT_CODES) -> st.SearchStrategy[InvalidPlacement]:
    """Placements that are refused, with the code that each is refused with; ``codes`` are those to choose from.

    Raises ``ValueError`` for a code that the text of a placement is never refused with.
    """
    if unknown := [code for code in codes if code not in PLACEMENT_CODES]:
        raise ValueError(f"no placement is refused with {unknown[0]!r}; the codes are {', '.join(PLACEMENT_CODES)}")
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
    """Draw a text whose faults all have this code: where it can be, a fault comes after what is valid."""
    last = sum(blocks) - 1
    match code:
        case "empty-placement":
            return draw(st.text(alphabet=" ,\t\n\r\f", max_size=8))
        case "no-resources":
            return draw(_texts(blocks))
        case "syntax":
            parts, _ = _start(draw, blocks, last + 1)
            at = draw(st.integers(0, len(parts)))
            return _joined(draw, [*parts[:at], draw(st.sampled_from(_NO_GRAMMAR)), *parts[at:]])
        case "reversed-range":
            parts, _ = _start(draw, blocks, last)
            first = draw(st.integers(0, last + 3))
            backwards = f"{first + draw(st.integers(1, 9))}-{first}"
            return _joined(draw, [*parts, draw(st.sampled_from([backwards, f"{last}:{backwards}"]))])
        case "resource-out-of-range":
            parts, _ = _start(draw, blocks, last + 1)
            first = draw(st.sampled_from([*range(last + 1, last + 9), LARGEST_RANK]))
            return _joined(draw, [*parts, _range(first, min(first + draw(st.integers(0, 3)), LARGEST_RANK))])
        case "duplicate-resource":
            segments = _segments(draw, blocks)
            used = [rank for segment in segments for first, end in segment.ranges for rank in range(first, end + 1)]
            return _joined(draw, [*_written(draw, segments), str(draw(st.sampled_from(used)))])
        case "resource-order":
            start = draw(st.integers(1, last))
            parts = _written(draw, _segments(draw, blocks, start))
            return _joined(draw, [*parts, str(draw(st.integers(0, start - 1)))])
        case "process-start":
            end, first = draw(st.integers(0, last)), draw(st.integers(1, 9))
            processes = (end + 1) * draw(st.integers(1, 3))
            rest = [str(last)] if end < last and draw(st.booleans()) else []
            return _joined(draw, [f"{_range(0, end)}:{_range(first, first + processes - 1)}", *rest])
        case "process-gap":
            segments = _segments(draw, _up_to(blocks, last))
            process = sum(segment.processes for segment in segments)
            first = draw(st.integers(process + 1, process + 9))
            if segments[-1].explicit and draw(st.booleans()):
                first = draw(st.integers(0, process - 1))
            shared = _range(first, first + draw(st.integers(0, 2)))
            return _joined(draw, [*_written(draw, segments), f"{last}:{shared}"])
        case "all-processes":
            parts, _ = _start(draw, blocks, last)
            word = draw(st.sampled_from(["all", "ALL", "All"]))
            return draw(st.sampled_from([_joined(draw, [*parts, f"{last}:{word}"]), f"all:{word}"]))
        case "not-multiple":
            first = draw(st.integers(0, last - 1))
            parts, process = _start(draw, blocks, first)
            end = draw(st.integers(first + 1, last))
            size = end - first + 1
            worlds = [world for world in range(2, 2 * size + 2) if size % world and world % size]
            shared = _range(process, process + draw(st.sampled_from(worlds)) - 1)
            return _joined(draw, [*parts, f"{_range(first, end)}:{shared}"])
        case "too-many-processes":
            parts, process = _start(draw, blocks, last)
            more = draw(st.sampled_from([0, 1, LARGEST_RANK - MOST_PROCESSES - process]))
            return _joined(draw, [*parts, f"{last}:{_range(process, process + MOST_PROCESSES + more)}"])
        case _:  # one process on both sides of the end of a node, or of the last one and the robots
            end = blocks[0] if code == "spans-nodes" else last + 1
            first = draw(st.integers(0, end - 1)) if code == "spans-nodes" else last
            parts, process = _start(draw, blocks, first)
            return _joined(draw, [*parts, f"{_range(first, end)}:{process}"])


def _start(draw: st.DrawFn, blocks: Sequence[int], end: int) -> tuple[list[str], int]:
    """Draw no segment or valid ones over the resources before ``end``: their texts, and the next process rank."""
    segments = _segments(draw, _up_to(blocks, end)) if end and draw(st.booleans()) else []
    return _written(draw, segments), sum(segment.processes for segment in segments)


def _up_to(blocks: Sequence[int], end: int) -> list[int]:
    """Return the blocks of the resources before ``end``."""
    ends = [min(block_end, end) for block_end in (0, *accumulate(blocks))]
    return [after - before for before, after in pairwise(ends) if after > before]


# ------------------------------------------------------------------------------------- inventories, cluster sections


@st.composite
def inventories(draw: st.DrawFn, max_nodes: int = 5, max_accelerators: int = 8) -> Inventory:
    """Clusters of one to ``max_nodes`` nodes, uneven and of several types, some with ids, addresses and labels."""
    entries: list[dict[str, Any]] = []
    node = 0
    while node < max_nodes and (not entries or draw(st.booleans())):
        count = draw(st.integers(1, min(2, max_nodes - node)))
        entries.append({"ranks": _range(node, node + count - 1), **draw(_equipment(node, max_accelerators))})
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
    """Valid ``cluster`` sections for an inventory: the mapping that stands under ``cluster:`` in a config.

    They have one to four entries of components and up to three node groups, among them such with environments, with
    configured hardware, or that ignore theirs.
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
        text = draw(_texts(blocks))
        placement = int(text) if text.isdecimal() and draw(st.booleans()) else text
        entry: Any = {"node_group": selected, "placement": placement}
        if selected == CLUSTER:
            entry = draw(st.sampled_from([placement, {"placement": placement}, entry]))
        section["component_placement"][draw(st.sampled_from([",", " , "])).join(names)] = entry
    return section | ({"node_groups": [group for group, _ in groups]} if groups else {})


@st.composite
def _node_groups(draw: st.DrawFn, label: str, num_nodes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A node group, and what it has: ``nodes``, and ``robots`` by node or whether it is to ``ignore`` its hardware."""
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
    # A type of its own: the robots of one type on one node are configured in one group.
    configs = [{"node_rank": node, "name": f"{label} {index}"} for index, node in enumerate(robots)]
    hardware = {"type": f"Arm of {label}", "configs": configs}
    return group | {"hardware": hardware}, {"nodes": nodes, "robots": Counter(robots), "type": hardware["type"]}


@st.composite
def _selections(draw: st.DrawFn, inventory: Inventory, groups: dict[str, dict[str, Any]]) -> tuple[Any, list[int]]:
    """Node groups as a component names them, and the numbers of resources of one node and one kind in turn."""
    first, second = draw(st.tuples(st.sampled_from(list(groups)), st.sampled_from([None, *groups])))
    resources = _resources(inventory, [groups[first]])
    if second is not None:
        both = _resources(inventory, [groups[first], groups[second]])
        if len({place[:2] for place in both}) == len(both):  # else both groups count the same
            several = draw(st.sampled_from([[first, second], f"{first},{second}", f"{first} , {second}"]))
            return several, [count for _, _, count in both]
    return draw(st.sampled_from([first, [first]])), [count for _, _, count in resources]


def _resources(inventory: Inventory, groups: Sequence[dict[str, Any]]) -> list[tuple[int, str, int]]:
    """Return what these groups count: node, kind, and how many there are of it."""
    accelerators = {node: inventory.node(node).accelerators for group in groups for node in group["nodes"]}

    def counts_nodes(group: dict[str, Any]) -> bool:
        return "ignore" in group or not ("robots" in group or any(accelerators[node] for node in group["nodes"]))

    if any(map(counts_nodes, groups)):
        return [(node, "node", 1) for group in groups for node in group["nodes"]]
    found = [
        (node, group.get("type", "accelerator"), group.get("robots", accelerators)[node])
        for group in groups
        for node in group["nodes"]
    ]
    return [place for place in found if place[2]]


# ----------------------------------------------------------------------------------------------- what holds of a plan


def check_plan(plan: Plan, sharing: Iterable[tuple[str, str]] | None = None) -> None:
    """Check what must hold for every plan, whichever dialect or file it came from.

    Every rank is there once, in order; nodes, node groups and devices exist and belong to each other; node and local
    ranks are dense, in the order of the rows; a process sees the ids of its node, those of its own devices when it is
    isolated.

    A plan does not tell which sharing was asked for, so ``sharing`` does: pairs of components that may have processes
    on the same accelerator (or robot), ``("actor", "actor")`` for several processes of one component; ``()`` when none
    may. Without it, whatever is shared counts as asked for.

    Raises ``AssertionError`` naming component, rank and what is wrong, and ``ValueError`` for ``sharing`` that is not
    pairs. Its cost is linear in rows and nodes.
    """
    allowed = None if sharing is None else set(map(_pair, sharing))
    users: dict[tuple[str, int, int], dict[str, int]] = {}
    known = _Known(plan.inventory)
    for component, rows in plan.items():
        if not len(rows):
            raise AssertionError(f"component {component!r} has no processes")
        before: Counter[int] = Counter()
        on_node = Counter(row.cluster_node_rank for row in rows)
        order = {node: index for index, node in enumerate(on_node)}
        for rank, row in enumerate(rows):
            who, home = f"component {component!r}, rank {rank}", row.cluster_node_rank
            if fault := known.misplaced(row):
                raise AssertionError(f"{who}: {fault}")
            expected = {
                "rank": rank,
                "world_size": len(rows),
                "placement_node_rank": order[home],
                "local_rank": before[home],
                "local_world_size": on_node[home],
                "isolate_accelerator": rows.isolate_accelerator,
                **_seen(row, known.node(home)),
            }
            for name, value in expected.items():
                if (found := getattr(row, name)) != value:
                    raise AssertionError(f"{who}: {name} is {found!r}; it must be {value!r}")
            before[home] += 1
            if allowed is None:
                continue
            for device in row.devices:
                here = users.setdefault((row.resource_type, *device), {})
                for other, its_rank in here.items():
                    if frozenset((component, other)) not in allowed:
                        what = f"{row.resource_type} {device[1]} of node {device[0]}"
                        raise AssertionError(f"{who}: it may not share {what} with rank {its_rank} of {other!r}")
                here.setdefault(component, rank)


def _pair(names: tuple[str, str]) -> frozenset[str]:
    """Return what is asked to share, and refuse a pair that was given for a list of pairs."""
    if isinstance(names, str) or len(names) != 2:
        raise ValueError(f"sharing is pairs of components, e.g. [('actor', 'rollout')]; {names!r} is no pair")
    return frozenset(names)


class _Known:
    """An inventory, asked for every row."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.nodes = range(inventory.num_nodes)
        self.node = cache(inventory.node)
        self.labels = frozenset(inventory.group_labels)
        self.kind_and_counts = cache(self._kind_and_counts)

    def _kind_and_counts(self, label: str) -> tuple[str, dict[int, int]]:
        """Return what a node group counts, and how many of it its nodes have (robots; accelerators are the node's)."""
        group = self.inventory.group(label)
        if label == NODE or (group and group.ignore_hardware):
            return "node", {}
        hardware = group and group.hardware
        return (hardware.type, dict(hardware.counts())) if hardware else ("accelerator", {})

    def misplaced(self, row: Placement) -> str | None:
        """Return what is wrong with where a process is and what it has, if anything."""
        home, label, devices = row.cluster_node_rank, row.node_group_label, row.devices
        nodes = {home, *(node for node, _ in devices)}
        if strange := {node for node in nodes if node not in self.nodes}:
            return f"node {min(strange)} is not there; the cluster has {self.inventory.num_nodes}"
        if label not in self.labels:
            return f"node group {label!r} is not there"
        group = self.inventory.group(label)
        if group and (strange := {node for node in nodes if node not in group.node_ranks}):
            return f"node {min(strange)} is not in node group {label!r}, which has {group.node_ranks}"
        if row.resource_type == "node":
            return f"it is placed by node and has devices {devices}" if devices else None
        kind, counts = self.kind_and_counts(label)
        if row.resource_type != kind:
            return f"it is placed by {row.resource_type} in node group {label!r}, which counts {kind}"
        if not devices or devices[0][0] != home or len(set(devices)) < len(devices):
            return f"its devices are {devices}; it must have some, each once, the first on its own node {home}"
        for node, index in devices:
            count = self.node(node).accelerators if kind == "accelerator" else counts.get(node, 0)
            if index not in range(count):
                return f"{kind} {index} of node {node} is not there; the node has {count}"
        return None


def _seen(row: Placement, node: NodeSpec) -> dict[str, Any]:
    """Return what a process on this node must be told of its devices."""
    own = [index for home, index in row.devices if home == node.rank]
    has_its_own = row.resource_type == "accelerator"
    shown = own if has_its_own and row.isolate_accelerator else range(node.accelerators)
    return {
        "local_hardware_ranks": own,
        "num_accelerators": len(row.devices) if has_its_own else 0,
        "accelerator_type": node.accelerator_type,
        "visible_accelerators": [node.accelerator_ids[index] for index in shown],
        "local_accelerator_rank": (own[0] if has_its_own else 0) if node.accelerators else -1,
    }

"""Which groups cross the domains of a level, as warnings, and as faults where a config forbids it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rankplan._core import Layout, RankSet, Spans
from rankplan.config.network import NODE_LEVEL, USUAL_TOPOLOGY
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.topology import Domains
from rankplan.words import nodes_text, unknown

WORDS = {
    "tp": "tensor",
    "cp": "context",
    "dp": "data",
    "fsdp": "shard",
    "replica": "replica",
    "pp": "pipeline",
    "etp": "expert-tensor",
    "ep": "expert",
    "edp": "expert-data",
}
"""The kinds of groups, and the words for them in messages."""

_NEAR = ("tp", "cp", "etp", "ep")
"""The kinds of groups that communicate so much that they should stay within a domain."""

_NUMBERS = {2: "two", 3: "three", 4: "four"}
_MOST_DOMAINS = 4


def spans_of(layout: Layout, inventory: Inventory, kind: str, level: str) -> Spans:
    """Return which groups of a kind cross a domain of a level; ``node`` is the innermost level."""
    domains = inventory.domains_of(level)
    return layout.spans(kind, None if domains is None else domains.column)


def level_warnings(name: str, layout: Layout, inventory: Inventory) -> Iterator[Diagnostic]:
    """Yield a warning for each level, and each kind of group that should not cross it but does."""
    for domains in inventory.domains:
        for kind in _NEAR:
            if layout.size(kind) > 1 and (found := crossing(name, layout, inventory, kind, domains)) is not None:
                yield Diagnostic("group-spans", *found, warning=True)


def topology_faults(
    components: Mapping[str, Layout], inventory: Inventory, *, labelled: bool = True, complete: bool = True
) -> Iterator[tuple[tuple[str, ...], Diagnostic]]:
    """Yield the faults of ``keep`` and ``segment`` in ``cluster.topology``, each with its path there.

    ``labelled``: whether the labels of the nodes are known; otherwise only known levels are checked. ``complete``:
    whether these are all components; otherwise the rules may name others.
    """
    topology = inventory.section.topology if inventory.section is not None else USUAL_TOPOLOGY
    keep = topology.keep
    segments = topology.segment if isinstance(topology.segment, Mapping) else {}
    stated = [("segment", key) for key in segments] + [("keep", key) for key in keep]
    for path in stated if complete else ():
        for name in map(str.strip, path[1].split(",")):
            if name not in components:
                yield path, unknown("component", name, components, "the components are")
    by_level = {domains.level: domains for domains in inventory.domains} if keep else {}
    for key, kinds in keep.items():
        names = set(map(str.strip, key.split(",")))
        for kind, level in kinds.items():
            if level != NODE_LEVEL and level not in by_level:
                # A group on one node is within every domain, also of a level whose nodes a repaired plan has lost.
                known = level in (topology.levels or ())
                within = known and not any(
                    name in names and layout.spans(kind, None).crossing for name, layout in components.items()
                )
                if labelled and not within:
                    levels = [*by_level, NODE_LEVEL]
                    yield ("keep", key, kind), unknown("level", level, levels, "the levels are")
                continue
            for name, layout in components.items():
                if name in names and (found := crossing(name, layout, inventory, kind, by_level.get(level))):
                    yield ("keep", key, kind), Diagnostic("group-spans", *found)


def check_keep(
    components: Mapping[str, Layout], inventory: Inventory, *, labelled: bool = True, complete: bool = True
) -> None:
    """Raise `PlacementError` with the faults of `topology_faults`, each with the path of its rule."""
    found = topology_faults(components, inventory, labelled=labelled, complete=complete)
    if faults := [replace(one, path=".".join(("cluster.topology", *keys))) for keys, one in found]:
        raise PlacementError(faults)


def crossing(
    name: str, layout: Layout, inventory: Inventory, kind: str, domains: Domains | None
) -> tuple[str, str] | None:
    """Return in words which groups of a kind cross a domain, with the help; ``None`` if no group crosses one.

    Without ``domains``, the level is that of the nodes.
    """
    level = NODE_LEVEL if domains is None else domains.level
    spans = spans_of(layout, inventory, kind, level)
    if (index := spans.first_crossing) is None:
        return None
    nodes = RankSet(layout.place(slot)[0] for slot in layout.groups(kind)[index])
    group = f"group {index} ({layout.named(kind, index)})"
    total, word = spans.within + spans.crossing, WORDS[kind]
    if domains is None:
        where, one, units = nodes_text(nodes), nodes_text(nodes), "nodes"
    else:
        where, count = _places(nodes, domains)
        one, units = f"{_NUMBERS.get(count, count)} {level} domains: {where}", f"{level} domains"
    if spans.crossing == 1:
        found = f"{word} {group} spans {one}"
    else:
        found = f"{spans.crossing:,} of {total:,} {word} groups span {units}; the first is {group}: {where}"
    return f"{name}: {found}", _help(layout, inventory, kind, domains)


def _places(nodes: RankSet, domains: Domains) -> tuple[str, int]:
    """Return the nodes of a group by domain, and the number of domains: ``node 2 (a), node 3 (b)``, 2."""
    found: dict[int, list[int]] = {}
    for node in nodes:
        found.setdefault(domains.ids[node], []).append(node)
    short = {index: domains.names[index][-1] or "no label" for index in found}
    unique = len({domains.names[index][-1] for index in found}) == len(found)
    names = short if unique else {index: domains.text(index) for index in found}
    texts = [f"{nodes_text(RankSet(ranks))} ({names[index]})" for index, ranks in found.items()]
    if len(texts) > _MOST_DOMAINS:
        texts[_MOST_DOMAINS:] = [f"and {len(texts) - _MOST_DOMAINS} more"]
    return ", ".join(texts), len(found)


def _help(layout: Layout, inventory: Inventory, kind: str, domains: Domains | None) -> str:
    """Return the help: a smaller size if no domain has room for a group, else another order of the nodes."""
    if domains is None:
        return "place the group on one node, or use a smaller size"
    capacity = [0] * len(domains)
    for nodes, record in inventory.stretches():
        for node in nodes:
            capacity[domains.ids[node]] += record.num_accelerators or 1
    size, most = layout.size(kind), max(capacity)
    if size > most:
        return f"use {kind} {most} or less: {domains.level} domains have at most {most} {layout.noun(2)}"
    return "`rankplan arrange` looks for an order of the nodes with fewer crossings"

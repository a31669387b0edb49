"""Which groups cross the nodes, or the domains of a level, as warnings and in words."""

from __future__ import annotations

from collections.abc import Iterator

from rankplan._core import Layout, RankSet, Spans
from rankplan.errors import Diagnostic
from rankplan.nodes.facts import NODE_LEVEL
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.topology import Domains
from rankplan.words import listed, nodes_text

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

NEAR = ("tp", "cp", "etp", "ep")
"""The kinds of groups that communicate so much that they should stay within a domain."""

_NUMBERS = {2: "two", 3: "three", 4: "four"}
_MOST_DOMAINS = 4


def spans_of(layout: Layout, inventory: Inventory, kind: str, level: str) -> Spans:
    """Return which groups of a kind cross a domain of a level; ``node`` is the innermost level."""
    domains = inventory.domains_of(level)
    return layout.spans(kind, None if domains is None else domains.column)


def torn_groups(layout: Layout) -> int:
    """Return the number of groups of the kinds in `NEAR` that are on several nodes."""
    sized = [kind for kind in NEAR if layout.size(kind) > 1]
    return sum(layout.spans(kind, None).crossing for kind in sized)


def level_warnings(name: str, layout: Layout, inventory: Inventory) -> Iterator[Diagnostic]:
    """Yield a warning for each level and kind of group that should not cross it but does; those on a node do not."""
    apart = [kind for kind in NEAR if layout.size(kind) > 1 and layout.spans(kind, None).crossing]
    for domains in inventory.domains if apart else ():
        for kind in apart:
            if (found := crossing(name, layout, inventory, kind, domains)) is not None:
                yield Diagnostic("group-spans", *found, warning=True)


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
        where, count = places_text(nodes, domains)
        one, units = f"{few(count)} {level} domains: {where}", f"{level} domains"
    if spans.crossing == 1:
        found = f"{word} {group} spans {one}"
    else:
        found = f"{spans.crossing:,} of {total:,} {word} groups span {units}; the first is {group}: {where}"
    return f"{name}: {found}", _help(layout, inventory, kind, domains)


def few(count: int) -> str:
    """Return a small number as a word: ``two``."""
    return _NUMBERS.get(count, str(count))


def places_text(nodes: RankSet, domains: Domains) -> tuple[str, int]:
    """Return the nodes of a group by domain, and the number of domains: ``node 2 (a), node 3 (b)``, 2."""
    found: dict[int, list[int]] = {}
    for node in nodes:
        found.setdefault(domains.ids[node], []).append(node)
    short = {index: domains.names[index][-1] or "no label" for index in found}
    unique = len({domains.names[index][-1] for index in found}) == len(found)
    names = short if unique else {index: domains.text(index) for index in found}
    texts = [f"{nodes_text(RankSet(ranks))} ({names[index]})" for index, ranks in found.items()]
    return listed(texts, _MOST_DOMAINS), len(found)


def _help(layout: Layout, inventory: Inventory, kind: str, domains: Domains | None) -> str:
    """Return the help: a smaller size if no domain has room for a group, else another order of the nodes."""
    if domains is None:
        return "place the group on one node, or use a smaller size"
    size, capacity = layout.size(kind), [0] * len(domains)
    for accelerators, nodes in inventory.core.nodes_by_size().items():
        for node in nodes:
            domain = domains.ids[node]
            capacity[domain] += accelerators or 1
            if capacity[domain] >= size:
                return "`rankplan arrange` looks for an order of the nodes with fewer crossings"
    most = max(capacity)
    return f"use {kind} {most} or less: {domains.level} domains have at most {most} {layout.noun(2)}"

"""The rules about nodes on the components of a plan: which node ranks they mean, and whether they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.facts import NODE_LEVEL
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.topology import Domains
from rankplan.plans import faults
from rankplan.plans.component import Component, used_nodes
from rankplan.plans.crossings import WORDS, crossing, few, places_text
from rankplan.plans.rules import ALL, TOGETHER, WORLD, Rules, component_names
from rankplan.plans.segments import Segment, cut, level_sizes
from rankplan.words import counted, nodes_text, unknown

Sets: TypeAlias = list[tuple[int, ...]]
"""Node ranks that belong together, ascending."""

Fault: TypeAlias = tuple[tuple[str, ...], Diagnostic]
"""A path in the rules, and what is wrong there."""

SEGMENT = "segment"


@frozen
class NodeRule:
    """Node ranks that must, or should, be together.

    ``path`` leads to it in the rules. ``who`` names its components, ``""`` all of them. ``kind`` is ``segment``,
    ``world`` or a kind of groups. ``level`` is an index, ``None`` for a node. Each set may be divided into equal parts
    for at most ``most`` domains. ``sets`` finds them.
    """

    path: tuple[str, ...]
    who: str
    kind: str
    level: int | None
    most: int
    sets: Callable[[], Sets]

    def divisions(self) -> list[int]:
        """Return the numbers of parts that sets may be divided into, ascending."""
        sizes = {len(one) for one in self.sets()} if self.most > 1 else set()
        return [1, *(parts for parts in range(2, self.most + 1) if any(size % parts == 0 for size in sizes))]

    def divided(self, parts: int) -> Sets:
        """Return the sets, each cut into equal runs: as many as divide it, at most ``parts``."""
        if parts == 1:
            return self.sets()
        divided: Sets = []
        for ranks in self.sets():
            size = len(ranks) // max(count for count in range(1, parts + 1) if len(ranks) % count == 0)
            divided += (ranks[start : start + size] for start in range(0, len(ranks), size))
        return divided


@dataclass(slots=True)
class NodeRules:
    """What rules state about components: by ``levels``, outermost first.

    ``kept`` must hold, ``preferred`` should. ``balanced`` are levels with the node ranks that are spread evenly there;
    ``caps`` the most nodes in use of a domain, by level. ``faults`` are names and sizes that cannot be.
    """

    levels: Sequence[str]
    kept: list[NodeRule] = field(default_factory=list)
    preferred: list[NodeRule] = field(default_factory=list)
    balanced: list[tuple[int, RankSet]] = field(default_factory=list)
    caps: dict[int, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        rules: Rules,
        parts: Mapping[str, Component],
        levels: Sequence[str],
        *,
        labelled: bool = True,
        complete: bool = True,
        arranging: bool = False,
        unplaced: Collection[str] = (),
        lost: Sequence[str] = (),
    ) -> NodeRules:
        """Return what rules mean on these components.

        ``labelled``: whether the labels of the nodes are known; otherwise only what concerns nodes is a rule.
        ``complete``: whether these are all components; otherwise the rules may name others. ``arranging``: whether
        nodes are looked for, so that a segment requires levels; otherwise it says nothing about nodes without any.
        ``unplaced`` are names of components whose nodes are not known, ``lost`` levels that are known by name only.
        """
        found = cls(levels)
        find = _Finder(
            found, parts, labelled=labelled, complete=complete, arranging=arranging, lost=lost, unplaced=unplaced
        )
        find.segments(rules.segment)
        find.together(rules.keep, "keep", found.kept)
        find.together(rules.prefer, "prefer", found.preferred)
        balance = {ALL: rules.balance} if isinstance(rules.balance, str) else rules.balance
        for name, level in balance.items():
            path: tuple[str, ...] = ("balance", name) if isinstance(rules.balance, Mapping) else ("balance",)
            for one in component_names(name):
                nodes = find.nodes(one, path)
                if (index := find.level(level, path)) is not None and nodes is not None:
                    found.balanced.append((index, nodes))
        for level, most in rules.cap.items():
            if (index := find.level(level, ("cap", level))) is not None:
                found.caps[index] = most
        return found


@dataclass(slots=True)
class _Finder:
    """Adds what rules mean, and their faults, to ``rules``."""

    rules: NodeRules
    parts: Mapping[str, Component]
    labelled: bool
    complete: bool
    arranging: bool
    lost: Sequence[str]
    """Levels that a config names; the nodes of a repaired plan may have lost their labels."""
    unplaced: Collection[str]

    def segments(self, stated: int | Mapping[str, Any] | None) -> None:
        """Add the segments of components, or of all nodes, each of which must be within a domain, and their faults.

        Where the labels of the nodes are unknown, they say nothing. Nor do plain sizes without levels, unless nodes are
        chosen for them.
        """
        sizes = {ALL: stated} if isinstance(stated, int) else stated or {}
        is_for_all = isinstance(stated, int)

        def path(*below: str) -> tuple[str, ...]:
            """Return where a size is stated; that of all nodes stands alone, without a name."""
            return (SEGMENT,) if is_for_all else (SEGMENT, *below)

        nodes = self._nodes_by_name(sizes, path)
        needs_domains = bool(self.rules.levels) or not all(isinstance(size, int) for size in sizes.values())
        if not self.labelled or not (needs_domains or self.arranging):
            return
        placed = {key: size for key, size in sizes.items() if all(name in nodes for name in component_names(key))}
        segments, size_faults = cut(placed, nodes, self.rules.levels)
        for key, size in sizes.items():
            if key not in placed and isinstance(size, Mapping) and self.complete:
                size_faults += level_sizes(key, size, self.rules.levels)[1]
        self.rules.faults += ((path(*below), fault) for below, fault in size_faults)
        self._keep_segments(segments, path)

    def _nodes_by_name(self, keys: Iterable[str], path: Callable[[str], tuple[str, ...]]) -> dict[str, RankSet]:
        """Return the nodes of the components that keys name, where they are known; an unknown name is a fault."""
        by_name: dict[str, RankSet] = {}
        for key in keys:
            for name in component_names(key):
                nodes = self.nodes(name, path(key))
                if nodes is not None:
                    by_name[name] = nodes
        return by_name

    def _keep_segments(self, segments: Iterable[Segment], path: Callable[..., tuple[str, ...]]) -> None:
        """Add a rule for all segments of a component and a level that are stated together."""
        by_rule: dict[tuple[tuple[str, ...], str, int], Sets] = {}
        for below, name, level, ranks in segments:
            by_rule.setdefault((path(*below), name, level), []).append(ranks)
        for (stated_at, name, level), sets in by_rule.items():
            who = "" if name == ALL else name
            self.rules.kept.append(NodeRule(stated_at, who, SEGMENT, level, 1, partial(list, sets)))

    def together(self, stated: Mapping[str, Mapping[str, Any]], key: str, rules: list[NodeRule]) -> None:
        for names, kinds in stated.items():
            joined = [[one.strip() for one in name.split(TOGETHER)] for name in component_names(names)]
            unknown_ones = [one for name in joined for one in name if not self._known(one, (key, names))]
            if unknown_ones:
                continue
            for kind, levels in kinds.items():
                counts = {levels: 1} if isinstance(levels, str) else levels
                for level, most in counts.items():
                    path = (key, names, kind) if isinstance(levels, str) else (key, names, kind, level)
                    for name in joined:
                        self._add(rules, path, name, kind, level, most)

    def _add(
        self, rules: list[NodeRule], path: tuple[str, ...], names: list[str], kind: str, level: str, most: int
    ) -> None:
        if not all(name in self.parts for name in names):
            if level != NODE_LEVEL and level not in self.lost:
                self.level(level, path)
            return
        if kind == WORLD:
            nodes = tuple(used_nodes(self.parts[name] for name in names))
            sets = partial(list[tuple[int, ...]], [nodes] if len(nodes) > 1 else [])
        else:
            sets = partial(self._groups, names[0], kind)
        index = None
        if level != NODE_LEVEL:
            gone = level in self.lost and level not in self.rules.levels
            # Sets on one node are within every domain, also of a level whose nodes a repaired plan has lost.
            if (gone and not sets()) or (index := self.level(level, path)) is None:
                return
        rules.append(NodeRule(path, f" {TOGETHER} ".join(names), kind, index, most, sets))

    def _groups(self, name: str, kind: str) -> Sets:
        return [tuple(one) for one in self.parts[name].layout.node_sets(kind)]

    def level(self, level: str, path: tuple[str, ...]) -> int | None:
        """Return the index of a level; an unknown one is a fault, if the labels are known.

        On nodes that have lost all labels, ``keep`` cannot hold; the other rules say nothing.
        """
        levels = self.rules.levels
        if level in levels:
            return levels.index(level)
        if self.labelled and (path[0] == "keep" or level not in self.lost):
            known = [*levels, NODE_LEVEL] if path[0] in ("keep", "prefer") else levels
            self.rules.faults.append((path, unknown("level", level, known, "the levels are")))
        return None

    def nodes(self, name: str, path: tuple[str, ...]) -> RankSet | None:
        """Return the node ranks of a component, or of all; ``None`` if they are not known."""
        if name == ALL:
            if ALL in self.parts:
                self.rules.faults.append((path, faults.component_named_all()))
            elif self.complete and not self.unplaced:
                return used_nodes(self.parts.values())
            return None
        return self.parts[name].used_nodes() if self._known(name, path) and name in self.parts else None

    def _known(self, name: str, path: tuple[str, ...]) -> bool:
        if name not in self.parts and name not in self.unplaced and self.complete:
            names = [*self.parts, *self.unplaced]
            self.rules.faults.append((path, unknown("component", name, names, "the components are")))
            return False
        return True


def topology_faults(
    stated: Rules,
    parts: Mapping[str, Component],
    inventory: Inventory,
    *,
    labelled: bool = True,
    complete: bool = True,
    cluster: Inventory | None = None,
) -> Iterator[Fault]:
    """Yield the faults of ``keep``, ``segment`` and ``cap``, and of the names and sizes of all rules, with their paths.

    ``cluster`` has the nodes of the plan and others, which other jobs may have taken. See `NodeRules.of` for the other
    arguments.
    """
    if not stated.about_nodes:
        return
    lost = stated_levels(inventory)
    rules = NodeRules.of(stated, parts, inventory.levels, labelled=labelled, complete=complete, lost=lost)
    yield from rules.faults
    for rule in rules.kept:
        if breach := broken(rule, parts, inventory):
            yield rule.path, Diagnostic("segment-incomplete" if rule.kind == SEGMENT else "group-spans", *breach)
    for level, most in rules.caps.items():
        domains = inventory.domains[level]
        counts = _nodes_in_use(parts, inventory, inventory if cluster is None else cluster, level)
        if fault := crowded(domains, counts, most):
            yield ("cap", domains.level), fault


def crowded(domains: Domains, counts: Mapping[int, int], most: int) -> Diagnostic | None:
    """Return the fault of domains with more nodes in use than a cap allows; ``counts`` has these nodes by domain."""
    above = sorted(domain for domain, count in counts.items() if count > most)
    if not above:
        return None
    first, more = above[0], len(above) - 1
    return faults.crowded_domains(domains.level, domains.text(first), counts[first], more, most)


def _nodes_in_use(parts: Mapping[str, Component], inventory: Inventory, cluster: Inventory, level: int) -> Counter[int]:
    """Return how many nodes of each domain that components use are in use, also by other jobs of the cluster."""
    domains = inventory.domains[level]
    counts = Counter(domains.ids[node] for node in used_nodes(parts.values()))
    if not (taken := cluster.taken):
        return counts
    elsewhere = cluster.domains_at(inventory.levels)[level]
    # A node that lacks a label, also one of an outer level, is a domain of its own.
    index = {name: number for number, name in enumerate(domains.names) if None not in name}
    for node in taken:
        number = index.get(elsewhere.names[elsewhere.ids[node]])
        if number is not None and number in counts:
            counts[number] += 1
    return counts


def topology_warnings(stated: Rules, parts: Mapping[str, Component], inventory: Inventory) -> Iterator[Fault]:
    """Yield a warning for each rule of ``prefer`` that does not hold, and for each that is about no groups at all."""
    if not stated.prefer and not stated.keep:
        return
    lost = stated_levels(inventory)
    rules = NodeRules.of(stated, parts, inventory.levels, lost=lost)
    for rule in (*rules.kept, *rules.preferred):
        if rule.kind in WORDS and rule.who in parts and parts[rule.who].layout.size(rule.kind) == 1:
            yield rule.path, faults.no_such_groups(rule.path[0], rule.who, rule.kind, WORDS[rule.kind])
    for rule in rules.preferred:
        if breach := broken(rule, parts, inventory):
            yield rule.path, Diagnostic("group-spans", *breach, warning=True)


def stated_levels(inventory: Inventory) -> tuple[str, ...]:
    """Return the levels that a config states of nodes, whatever their labels."""
    return (inventory.facts.levels if inventory.facts is not None else None) or ()


def check_topology(
    stated: Rules, parts: Mapping[str, Component], inventory: Inventory, *, labelled: bool = True, complete: bool = True
) -> None:
    """Raise `PlacementError` with the faults of `topology_faults`, each at its rule."""
    found = topology_faults(stated, parts, inventory, labelled=labelled, complete=complete)
    located = [stated.where(*path).locate(fault) for path, fault in found]
    if located:
        raise PlacementError(located)


_LOOK = "`rankplan arrange` looks for an order of the nodes that keeps them together"


def broken(rule: NodeRule, parts: Mapping[str, Component], inventory: Inventory) -> tuple[str, str] | None:
    """Return in words what breaks a rule, with the help; ``None`` if it holds."""
    domains = None if rule.level is None else inventory.domains[rule.level]
    if rule.kind in WORDS and rule.most == 1:
        return crossing(rule.who, parts[rule.who].layout, inventory, rule.kind, domains)
    ids: Sequence[int] = range(inventory.num_nodes) if domains is None else domains.ids

    def apart(sets: Sets) -> Sets:
        return [ranks for ranks in sets if len({ids[rank] for rank in ranks}) > 1]

    if not all(apart(rule.divided(count)) for count in rule.divisions()):
        return None
    sets = rule.sets()
    wrong = apart(sets)
    return _spread(rule, sets, wrong, domains), _LOOK


def _spread(rule: NodeRule, sets: Sets, wrong: Sets, domains: Domains | None) -> str:
    """Return in words which sets are in too many domains."""
    level = NODE_LEVEL if domains is None else domains.level
    ranks = RankSet(wrong[0])
    where, count = (nodes_text(ranks), len(ranks)) if domains is None else places_text(ranks, domains)
    units = "nodes" if domains is None else f"{level} domains"
    which = f"{rule.who}: " if rule.who else ""
    if rule.kind == SEGMENT:
        first, all_of_them = f"segment {sets.index(wrong[0])} ({nodes_text(ranks)})", "segments"
    elif rule.kind == WORLD:
        first, all_of_them = f"its {counted(len(ranks), 'node')}" if TOGETHER not in rule.who else "their nodes", ""
    else:
        first, all_of_them = f"the {WORDS[rule.kind]} group on {nodes_text(ranks)}", f"{WORDS[rule.kind]} groups"
    if rule.most > 1:
        return f"{which}{first} cannot be divided into at most {rule.most} equal parts, each within a {level}: {where}"
    verb = "span" if first.endswith("s") else "spans"
    if len(wrong) == 1:
        return f"{which}{first} {verb} {few(count)} {units}: {where}"
    return f"{which}{len(wrong):,} of {len(sets):,} {all_of_them} span {units}; the first is {first}: {where}"

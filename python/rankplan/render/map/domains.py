"""The domains of the network on a map: who uses their nodes, which groups cross them, and the rules about them.

Equal domains are one row, so that the network of any cluster fits on a screen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rankplan._core import RankSet
from rankplan.frozen import frozen
from rankplan.nodes.facts import NODE_LEVEL
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component, used_nodes
from rankplan.plans.crossings import NEAR, WORDS, crossing
from rankplan.plans.diff import same_nodes
from rankplan.plans.plan import Plan
from rankplan.plans.topology import SEGMENT, NodeRule, NodeRules, broken, stated_levels
from rankplan.render.map.text import clean, names_text, short
from rankplan.words import counted, listed, nodes_text

USED, SPARE, TAKEN, EXCLUDED = "used", "spare", "taken", "excluded"
"""What a node is on a map: in use by the plan, free, in use by another job, or not to be used."""

MOST_ROWS = 64
_MOST_NOTES, _MOST_NAMED = 16, 3


@frozen
class Share:
    """So many nodes of a domain in one state. ``components`` are the indices of those on them."""

    state: str
    count: int
    text: str
    components: tuple[int, ...] = ()


@frozen
class Row:
    """A domain, or ``count`` equal ones: the nodes and shares of the first, and in ``same`` the names of the others.

    ``innermost`` domains have a bar of their nodes.
    """

    depth: int
    name: str
    count: int
    nodes: RankSet
    shares: tuple[Share, ...]
    facts: tuple[str, ...]
    same: str
    innermost: bool

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.nodes)

    def widths(self, most: int) -> list[int]:
        """Return the units of each share in a bar of at most ``most``, at least one each."""
        scale = min(1.0, most / max(self.size, 1))
        return [max(round(share.count * scale), 1) for share in self.shares]

    def text(self) -> str:
        """Return what is on the nodes: ``4 nodes: actor 3, spare 1; cap 3; 2 more the same: b-c``."""
        whole = len(self.shares) == 1
        shares = ", ".join(share.text if whole else f"{share.text} {share.count:,}" for share in self.shares)
        return "; ".join([f"{counted(self.size, 'node')}: {shares}", *self.facts, *filter(None, [self.same])])


@frozen
class Chart:
    """The rows of the domains, outermost first, each before those inside it, and what else is known of the network.

    Without rows, nothing is known. ``notes`` are the rules, the crossings and the neighbours, and ``more`` counts rows
    that are left out.
    """

    summary: str = ""
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    more: str = ""

    @property
    def states(self) -> dict[str, str]:
        """What the bars mean, by state, for those that occur."""
        occurring = {share.state for row in self.rows for share in row.shares}
        return {state: text for state, text in _MEANINGS.items() if state in occurring}

    @property
    def widest(self) -> int:
        """The most nodes of an innermost domain."""
        return max((row.size for row in self.rows if row.innermost), default=1)


_MEANINGS = {USED: "in use", SPARE: "spare", TAKEN: "of another job", EXCLUDED: "excluded"}
NO_CHART = Chart()


def around(inventory: Inventory, others: Sequence[Plan]) -> Inventory:
    """Return the nodes to show around a plan: ``others`` are plans of other jobs, and their nodes belong to them.

    Their nodes that the inventory lacks come last.
    """
    if not others:
        return inventory
    places = [same_nodes(other.inventory, inventory) for other in others]
    records = [inventory.node(rank) for rank in range(inventory.num_nodes)]
    for other, place in zip(others, places, strict=True):
        job = ", ".join(other)
        for rank in used_nodes(other.values()):
            index = place[rank]
            if index is None:
                index = len(records)
                records.append(other.inventory.node(rank))
            records[index] = records[index].changed(taken=job).at(RankSet([index]))
    return Inventory(records, inventory.facts, inventory.levels or None)


def chart_of(plan: Plan, inventory: Inventory | None = None) -> Chart:
    """Return the chart of a plan, with the other nodes of an inventory around it; empty if no network is known."""
    everything = plan.inventory if inventory is None else inventory
    levels = plan.inventory.levels
    if levels and everything.levels != levels:  # the config states them
        everything = everything.with_levels(levels)
    if not everything.domains and not everything.taken:
        return NO_CHART
    chart = _Charting(plan, everything)
    rows = tuple(chart.rows())
    more = f"and {counted(len(rows) - MOST_ROWS, 'more row')} of other domains" if len(rows) > MOST_ROWS else ""
    counts = [f"{len(level):,} {level.level} domain{'s' if len(level) > 1 else ''}" for level in everything.domains]
    summary = f"network: {', '.join([*counts, counted(everything.num_nodes, 'node')])}"
    return Chart(summary, rows[:MOST_ROWS], tuple(chart.notes()), more)


class _Charting:
    """Finds the rows and the notes of a chart."""

    def __init__(self, plan: Plan, everything: Inventory) -> None:
        self.plan, self.everything = plan, everything
        self.domains = self.everything.domains
        lost = stated_levels(self.plan.inventory)
        self.rules = NodeRules.of(self.plan.rules, self.plan, self.everything.levels, lost=lost)
        same = self.everything is self.plan.inventory
        nodes = range(self.everything.num_nodes)
        self.places: Sequence[int | None] = nodes if same else same_nodes(self.plan.inventory, self.everything)
        self.names = [clean(name) for name in self.plan]
        self.states = self._states()
        self.crossed = [self._crossed(level.ids) for level in self.domains]
        """By level and domain: the groups that cross it."""
        self._profiles: list[list[object]] = []
        self._nodes = self.domains[-1].nodes() if self.domains else []
        self._inside: list[list[list[int]]] = []
        for depth, level in enumerate(self.domains[1:]):
            inside: list[list[int]] = [[] for _ in self.domains[depth].names]
            for index, parent in enumerate(level.parents):
                inside[parent].append(index)
            self._inside.append(inside)

    def _states(self) -> list[tuple[str, tuple[int, ...], str]]:
        """Return the state of each node, the components on it, and the job that has it."""
        components: dict[int, list[int]] = {}
        for index, component in enumerate(self.plan.values()):
            for rank in component.used_nodes():
                place = self.places[rank]
                if place is not None:
                    components.setdefault(place, []).append(index)
        facts = self.plan.inventory.facts
        marks = self.everything.excluding(() if facts is None else facts.exclude).marks
        jobs = {node: spec.taken for nodes, spec in self.everything.stretches() if spec.taken for node in nodes}
        states: list[tuple[str, tuple[int, ...], str]] = []
        for node in range(self.everything.num_nodes):
            job = jobs.get(node) or ""
            if node in components:
                states.append((USED, tuple(components[node]), job))
            elif node in jobs:
                states.append((TAKEN, (), job))
            elif marks.get(node, ()) is None:
                states.append((EXCLUDED, (), ""))
            else:
                states.append((SPARE, (), ""))
        return states

    def _crossed(self, ids: Sequence[int]) -> dict[int, dict[str, None]]:
        """Return, for each domain of a level, what crosses it: in words, each once."""
        crossed: dict[int, dict[str, None]] = {}
        for name, component, kind in self._groups():
            text = f"crossed by {WORDS[kind]} groups of {clean(name)}"
            for ranks in component.layout.node_sets(kind):
                places = (self.places[rank] for rank in ranks)
                domains = {ids[place] for place in places if place is not None}
                if len(domains) > 1:
                    for domain in domains:
                        crossed.setdefault(domain, {})[text] = None
        return crossed

    def _groups(self) -> Iterator[tuple[str, Component, str]]:
        """Yield the kinds of groups of each component, those of more than one slot that should be near each other."""
        for name, component in self.plan.items():
            if component.parallel.stated:
                for kind in NEAR:
                    if component.layout.size(kind) > 1:
                        yield name, component, kind

    def rows(self) -> Iterator[Row]:
        """Yield the rows; equal domains of one parent are one."""
        if not self.domains:
            nodes = RankSet(range(self.everything.num_nodes))
            yield Row(0, "nodes", 1, nodes, self._shares(nodes), (), "", innermost=True)
            return
        self._find_profiles()
        yield from self._below(0, range(len(self.domains[0])))

    def _find_profiles(self) -> None:
        """Give each domain a value that equal domains share, innermost first."""
        of_nodes = [frozenset(Counter(map(self.states.__getitem__, nodes)).items()) for nodes in self._nodes]
        inner: list[object] = list(of_nodes)
        self._profiles = [[]] * len(self.domains)
        for depth in reversed(range(len(self.domains))):
            if depth < len(self._inside):
                inner = [self._counted(inner, inside) for inside in self._inside[depth]]
            names = self.domains[depth].names
            first_of: dict[object, int] = {}
            profiles: list[object] = []
            for index, content in enumerate(inner):
                is_unlabelled = names[index][-1] is None
                key = content, tuple(self.crossed[depth].get(index, ())), is_unlabelled
                profiles.append(first_of.setdefault(key, index))
            self._profiles[depth] = inner = profiles

    @staticmethod
    def _counted(profiles: Sequence[object], domains: Iterable[int]) -> object:
        """Return how many of some domains have each profile."""
        return frozenset(Counter(profiles[domain] for domain in domains).items())

    def _below(self, depth: int, domains: Iterable[int]) -> Iterator[Row]:
        alike: dict[object, list[int]] = {}
        for index in domains:
            alike.setdefault(self._profiles[depth][index], []).append(index)
        for first, *others in alike.values():
            yield self._row(depth, first, others)
            if depth < len(self._inside):
                yield from self._below(depth + 1, self._inside[depth][first])

    def _row(self, depth: int, index: int, others: Sequence[int]) -> Row:
        level = self.domains[depth]
        label = level.names[index][-1]
        nodes = RankSet(self._nodes_of(depth, index))
        same = ""
        if others:
            same = f"{len(others):,} more the same"
            names = "" if label is None else names_text([clean(level.names[other][-1] or "") for other in others])
            if names:
                same += f": {names}"
        facts = list(self.crossed[depth].get(index, ()))
        if (cap := self.rules.caps.get(depth)) is not None and label is not None:
            facts.insert(0, f"cap {cap:,}")
        name = f"no {level.level}" if label is None else f"{level.level} {label}"
        innermost = depth + 1 == len(self.domains)
        return Row(depth, short(name), len(others) + 1, nodes, self._shares(nodes), tuple(facts), same, innermost)

    def _nodes_of(self, depth: int, index: int) -> Iterator[int]:
        if depth == len(self._inside):
            yield from self._nodes[index]
            return
        for domain in self._inside[depth][index]:
            yield from self._nodes_of(depth + 1, domain)

    def _shares(self, nodes: Iterable[int]) -> tuple[Share, ...]:
        counts = Counter(map(self.states.__getitem__, nodes))
        order = list(_MEANINGS)
        shares = []
        for state, components, job in sorted(counts, key=lambda state: (order.index(state[0]), state[1:])):
            text = self._named(state, components, job)
            shares.append(Share(state, counts[state, components, job], text, components))
        return tuple(shares)

    def _named(self, state: str, components: Sequence[int], job: str) -> str:
        if state == TAKEN:
            return f"of {short(job)}"
        if state != USED:
            return state
        text = listed([self.names[index] for index in components], _MOST_NAMED, by=" + ")
        return f"{text} (also of {short(job)})" if job else text

    def notes(self) -> Iterator[str]:
        """Yield the rules with whether they hold, the crossings of each level, and the neighbours."""
        lines = [*self._rules(), *self._crossings(), *self._neighbours()]
        yield from lines[:_MOST_NOTES]
        if len(lines) > _MOST_NOTES:
            yield f"and {counted(len(lines) - _MOST_NOTES, 'more line')}"

    def _rules(self) -> Iterator[str]:
        yield from self._texts_of("kept", self.rules.kept)
        yield from self._texts_of("preferred", self.rules.preferred)
        for level, nodes in self.rules.balanced:
            yield self._balanced(level, nodes)

    def _texts_of(self, word: str, rules: Iterable[NodeRule]) -> Iterator[str]:
        """Yield rules as text, each text once; instead of rules that do not hold, what breaks the first of them."""
        inventory = self.plan.inventory
        is_labelled = inventory.levels == self.everything.levels
        alike: dict[str, list[NodeRule]] = {}
        for rule in rules:
            alike.setdefault(self._rule(rule), []).append(rule)
        for text, several in alike.items():
            breaches = [broken(rule, self.plan, inventory) for rule in several] if is_labelled else []
            messages = [breach[0] for breach in breaches if breach]
            yield clean(f"{word}, but {messages[0]}" if messages else f"{word}: {text}")

    def _balanced(self, level: int, nodes: Iterable[int]) -> str:
        """Return how many nodes of a rule are in each domain of a level, the largest shares first."""
        ids = self.domains[level].ids
        counts: Counter[int] = Counter()
        for rank in nodes:
            place = self.places[rank]
            if place is not None:
                counts[ids[place]] += 1
        shares = sorted(Counter(counts.values()).items(), reverse=True)
        sizes = ", ".join(f"{count} x {size}" if count > 1 else str(size) for size, count in shares)
        return f"balanced: shares of {sizes} nodes in {counted(len(counts), f'{self.domains[level].level} domain')}"

    def _rule(self, rule: NodeRule) -> str:
        level = NODE_LEVEL if rule.level is None else self.everything.levels[rule.level]
        who = f"{rule.who}: " if rule.who else ""
        if rule.kind == SEGMENT:
            sizes = {len(ranks) for ranks in rule.sets()}
            return f"{who}segments of {', '.join(map(str, sorted(sizes)))} nodes, each in one {level}"
        what = "all nodes" if rule.kind not in WORDS else f"each {WORDS[rule.kind]} group"
        where = f"one {level}" if rule.most == 1 else f"at most {rule.most} {level} domains, with equal shares"
        return f"{who}{what} in {where}"

    def _crossings(self) -> Iterator[str]:
        inventory = self.plan.inventory
        for domains in inventory.domains:
            for name, component, kind in self._groups():
                message = crossing(clean(name), component.layout, inventory, kind, domains)
                if message is not None:
                    yield clean(message[0])

    def _neighbours(self) -> Iterator[str]:
        jobs: dict[str, list[int]] = {}
        both: list[int] = []
        for node, (state, _, job) in enumerate(self.states):
            if job:
                jobs.setdefault(job, []).append(node)
                if state == USED:
                    both.append(node)
        for job, nodes in jobs.items():
            yield f"beside: {short(job)} on {nodes_text(RankSet(nodes))}"
        if both:
            yield f"in use by two jobs: {nodes_text(RankSet(both))}"

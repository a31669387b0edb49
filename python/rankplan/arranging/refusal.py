"""Why no arrangement follows the rules, in words: what was asked, what the network has, and what helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from rankplan._core import Arrangement, Hierarchy, Problem, RankSet, pack_segments
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.topology import Domains
from rankplan.plans.rules import TOGETHER, WORLD, Rules
from rankplan.plans.topology import SEGMENT, NodeRule, NodeRules, crowded
from rankplan.words import counted, nodes_text

_CAP: KeyPath = ("cap",)


class Asked(Protocol):
    """What was to be arranged, see `rankplan.arranging.task.Task`."""

    @property
    def pinned(self) -> Sequence[int | None]:
        """By node rank, the node that it must keep; empty if all may move."""

    @property
    def needed(self) -> RankSet:
        """The node ranks with processes."""

    @property
    def usable(self) -> Sequence[int]:
        """The nodes that can be used."""

    @property
    def hierarchy(self) -> Hierarchy:
        """Their domains."""

    @property
    def domains(self) -> Sequence[Domains]:
        """The domains of all nodes, by level."""

    @property
    def hardware(self) -> tuple[Sequence[int], Sequence[int], object]:
        """The kind of hardware of each node rank and of each node."""

    def equipment(self, kind: int) -> str:
        """Return the accelerators of a kind of hardware in words."""

    def unfixed_moves(self) -> int | None:
        """Return the survivors that move if they may."""


@frozen
class Refusal:
    """An arrangement that breaks rules, though none is known that breaks fewer.

    ``parts`` divides the sets of each rule. ``proved``: every arrangement breaks some.
    """

    task: Asked
    rules: NodeRules
    problem: Problem
    found: Arrangement
    parts: Sequence[int]
    proved: bool

    def error(self, rules: Rules) -> PlacementError:
        """Return the fault of the rule that cannot be kept, where it is stated, as an error."""
        return PlacementError([rules.located(*self._faulty())])

    def _faulty(self) -> tuple[KeyPath, Diagnostic]:
        """Return the path of the rule that cannot be kept, and its fault.

        It is that of the smallest set that must be within a domain and is not, else that of the caps.
        """
        unproved = "" if self.proved else " (the search ended early)"
        if (short := self._crowded() or self._capped()) is not None:
            return _CAP, short
        if (large := self._too_large()) is not None:
            return large
        wrong = self.problem.broken(self.found)
        if not wrong:
            return _CAP, self._above_caps(unproved)
        kept = self.rules.kept
        source, ranks = min(wrong, key=lambda one: (kept[one[0]].kind == SEGMENT, len(one[1]), one[1]))
        rule = kept[source]
        if self.task.pinned and (fault := self._spareless(rule, ranks)) is not None:
            return rule.path, fault
        return rule.path, self._broken(rule, ranks, unproved)

    def _broken(self, rule: NodeRule, ranks: Sequence[int], unproved: str) -> Diagnostic:
        """Return the fault of a set of node ranks that no arrangement keeps within a domain."""
        level = rule.level or 0
        name = self.rules.levels[level]
        if rule.kind == SEGMENT:
            return self._incomplete(level, unproved)
        what = "all of it" if rule.kind == WORLD else f"every {rule.kind} group"
        where = f"a {name} domain" if rule.most == 1 else f"{rule.most} {name} domains with equal shares"
        message = f"{rule.who}: no arrangement keeps {what} within {where}{unproved}"
        size = ""
        if rule.kind != WORLD:
            message += f"; the smallest that crosses one is on {nodes_text(RankSet(ranks))}"
            size = f"a smaller {rule.kind} size, "
        return Diagnostic("group-spans", message, f"use more nodes, {size}or remove `{rule.kind}: {name}` from `keep`")

    def of_growth(self, name: str, more: str, possible: str, help: str) -> Diagnostic:
        """Return the fault of a component that cannot grow: no ``more`` nodes are where its rules want them."""
        unproved = "" if self.proved else " (the search ended early)"
        wrong = [(self.rules.kept[source], ranks) for source, ranks in self.problem.broken(self.found)]
        if not wrong:
            message = f"{name}: no {more} with `cap: {self._caps()}`; {possible}{unproved}"
            return Diagnostic("no-spare", message, f"raise the cap, or {help}")
        rule, ranks = min(wrong, key=lambda one: (one[0].kind == SEGMENT, one[0].kind != WORLD, len(one[1]), one[1]))
        level, pinned = rule.level or 0, [node for rank in ranks if (node := self.task.pinned[rank]) is not None]
        where, domains = f"a {self.rules.levels[level]} domain", self.task.domains[level]
        if len({domains.ids[node] for node in pinned}) == 1:
            where = f"{domains.level} {domains.names[domains.ids[pinned[0]]][-1]}"
        if rule.kind == SEGMENT:
            place = f"in segments of {len(ranks)} within {where}"
        elif rule.kind == WORLD and rule.most == 1:
            place = f"in {where}, where all of {'them' if TOGETHER in rule.who else 'it'} must stay"
        elif rule.kind == WORLD:
            place = f"that leave all of it in {rule.most} {domains.level} domains with equal shares"
        else:
            place = f"that keep every {rule.kind} group of {rule.who} within {where}"
        code = "segment-incomplete" if rule.kind == SEGMENT else "group-spans"
        return Diagnostic(code, f"{name}: no {more} {place}; {possible}{unproved}", f"add spare nodes there, or {help}")

    def _too_large(self) -> tuple[KeyPath, Diagnostic] | None:
        """Return the rule, and the fault, of sets that are larger than any domain, or than what a cap allows."""
        for rule, parts in zip(self.rules.kept, self.parts, strict=True):
            level = rule.level or 0
            name, largest = self.rules.levels[level], max(self.task.hierarchy.sizes(level), default=0)
            size, cap = max(map(len, rule.divided(parts)), default=0), self.rules.caps.get(level, largest)
            if size <= min(largest, cap) or (rule.kind == SEGMENT and size > largest):
                continue
            each = f"in one {name} domain"
            if parts > 1:
                each = f"in each of {counted(parts, f'{name} domain')}"
            need = f"{_who(rule)} {counted(size, 'node')} {each}"
            if size <= largest:
                return rule.path, _above_cap(need, cap)
            return rule.path, _above_largest(rule, need, largest)
        return None

    def _above_caps(self, unproved: str) -> Diagnostic:
        """Return the fault of a plan whose caps allow no arrangement."""
        message = f"no arrangement uses at most the nodes that `cap: {self._caps()}` allows{unproved}"
        return Diagnostic("domain-too-small", message, _RAISE_CAP)

    def _caps(self) -> str:
        stated = (f"{self.rules.levels[level]}: {most}" for level, most in self.rules.caps.items())
        return f"{{{', '.join(stated)}}}"

    def _crowded(self) -> Diagnostic | None:
        """Return the fault of a domain in which more nodes must stay than its cap allows."""
        pinned = self.task.pinned
        stays = [node for rank in self.task.needed if pinned and (node := pinned[rank]) is not None]
        for level, most in self.rules.caps.items():
            domains = self.task.domains[level]
            counts = Counter(domains.ids[node] for node in stays)
            if fault := crowded(domains, counts, most):
                return replace(fault, help=_MOVE_FIRST)
        return None

    def _capped(self) -> Diagnostic | None:
        """Return the fault of caps that leave out too many nodes."""
        needs, present, _ = self.task.hardware
        kinds = {needs[rank] for rank in self.task.needed}
        if not self.rules.caps or len(kinds) > 1:
            return None
        (kind,), needed = kinds, len(self.task.needed)
        usable, room = sum(present[node] == kind for node in self.task.usable), sum(self.problem.room(whole=False)[0])
        if room >= needed:
            return None
        what = f"the plan needs {counted(needed, 'node')} with {self.task.equipment(kind)}; {room} can be used"
        message = f"{what} (`cap: {self._caps()}` leaves out {usable - room})"
        return Diagnostic("too-few-nodes", message, _RAISE_CAP)

    def _spareless(self, rule: NodeRule, ranks: Sequence[int]) -> Diagnostic | None:
        """Return the fault of a lost node without a spare where the others of its set are, or of a torn set."""
        lost = [rank for rank in ranks if self.task.pinned[rank] is None]
        stays = [node for rank in ranks if (node := self.task.pinned[rank]) is not None]
        domains = self.task.domains[rule.level or 0]
        if not lost:
            count = counted(len({domains.ids[node] for node in stays}), f"{domains.level} domain")
            message = f"{nodes_text(RankSet(ranks))} must stay together, and are in {count} already"
            code = "segment-incomplete" if rule.kind == SEGMENT else "group-spans"
            return Diagnostic(code, message, _MOVE_FIRST)
        if not stays:
            return None
        what = "all of it" if rule.kind == WORLD else f"its {rule.kind} group"
        if rule.kind == SEGMENT:
            what = f"segment {rule.sets().index(tuple(ranks))}"
        where = f"{domains.level} domain {domains.names[domains.ids[stays[0]]][-1]}, where {what} is"
        message = f"node rank {lost[0]} needs a spare in {where}; none is left"
        more = self.task.unfixed_moves()
        help = (
            "add spare nodes there" if more is None else f"without `--fixed`, {counted(more, 'more node')} would move"
        )
        return Diagnostic("no-spare", message, help)

    def _incomplete(self, level: int, unproved: str) -> Diagnostic:
        """Return the fault of segments of which not all are within domains of a level."""
        name = self.rules.levels[level]
        rules = [rule for rule in self.rules.kept if rule.kind == SEGMENT and rule.level == level]
        segments = sorted({one for rule in rules for one in rule.sets()})
        wants = _counted(segments)
        texts = [f"{counted(count, 'segment')} of {counted(size, 'node')}" for size, count in wants]
        taken: set[int] = set()
        apart = []
        for ranks in sorted(segments, key=len, reverse=True):
            if taken.isdisjoint(ranks):  # others share nodes with larger ones
                taken.update(ranks)
                apart.append(ranks)
        room = self.problem.room(whole=len(wants) == 1)[level]
        try:
            fits = pack_segments(room, _counted(apart)) is not None
        except ValueError:  # the search ended early
            fits = True
        if fits:
            message = f"found no place for {' and '.join(texts)}{unproved}"
            help = "use smaller segments, or keep fewer groups together"
        elif len(wants) == 1:
            whole = sum(count // wants[0][0] for count in room)
            message = f"the plan needs {texts[0]} in a {name}; the {name} domains hold {whole}"
            help = f"use {whole * wants[0][0]} nodes or less, or a smaller segment"
        else:
            message = f"the plan needs {' and '.join(texts)}; the {name} domains cannot hold all of them"
            help = "use fewer nodes, smaller segments, or a larger cluster"
        return Diagnostic("segment-incomplete", message, help)


def _who(rule: NodeRule) -> str:
    if rule.kind == SEGMENT:
        return f"a segment of {rule.who} needs" if rule.who else "a segment needs"
    if rule.kind == WORLD:
        return f"{rule.who} need{'' if TOGETHER in rule.who else 's'}"
    return f"{rule.who}: {rule.kind} groups need"


def _counted(segments: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the sizes of segments, the largest first, and how many there are of each."""
    return sorted(Counter(map(len, segments)).items(), reverse=True)


_MOVE_FIRST = "let survivors move first: `rankplan replan PLAN`"
_RAISE_CAP = "raise the cap, or use fewer nodes"


def _above_cap(need: str, cap: int) -> Diagnostic:
    """Return the fault of a set that is larger than what a cap allows; ``need`` says what it needs."""
    return Diagnostic("domain-too-small", f"{need}; `cap` allows {cap}", _RAISE_CAP)


def _above_largest(rule: NodeRule, need: str, largest: int) -> Diagnostic:
    """Return the fault of a set that is larger than any domain; ``need`` says what it needs."""
    help = "use `prefer`, or fewer nodes"
    if rule.kind != WORLD:
        help = f"use a smaller {rule.kind} size, or keep the groups within an outer level"
    return Diagnostic("domain-too-small", f"{need}; the largest has {largest}", help)

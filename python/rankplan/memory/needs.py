"""How much memory the components of a plan need, by phase, and whether it fits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, TypeAlias

from rankplan._core import ACCELERATOR, USABLE_MEMORY, Pattern, host_store
from rankplan.frozen import frozen
from rankplan.hardware.cards import card_of
from rankplan.memory.peaks import MEASURED, Peaks
from rankplan.memory.slots import Bounds, Evaluation, Parts, Slot
from rankplan.memory.spelling import Spelling
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.plans.component import Component

Answer: TypeAlias = Literal["refused", "fits", "unknown"]
ANSWERS: tuple[Answer, ...] = ("fits", "unknown", "refused")
"""From the best to the worst."""

SWITCH = "switch"
RESERVED = "other programs"
_PHASES = {"training": "train", "forward": "forward", "engine": "generate", "resident": "resident"}
_UNKNOWN_CARD = 80.0 * (1 << 30)


@frozen
class Need:
    """What a phase needs on the accelerator of its components that needs the most, in bytes.

    ``parts`` add up to ``lower`` and ``upper``; infinite: no upper bound is known. ``card`` is the memory of the
    accelerator, at least and at most (an A100 has 40 or 80 GiB), ``None`` if it is unknown. ``where`` is a node rank
    and a local index. ``decides`` are the keys that are not stated and could decide an unknown answer: each
    alone, or all ``together``. ``tokens`` bounds what the cache of an engine holds, and ``starts`` tells whether the
    engine starts with its share (``None``: uncertain). ``host`` is what the ranks on that node take of its memory.
    ``others`` sleep on the accelerator. ``measured``: a run of these settings decides the bounds.
    """

    components: tuple[str, ...]
    phase: str
    parts: Parts
    where: tuple[int, int]
    card: Bounds | None = None
    decides: tuple[str, ...] = ()
    tokens: Bounds | None = None
    starts: bool | None = True
    host: Bounds = (0.0, 0.0)
    others: tuple[str, ...] = ()
    measured: bool = False
    together: bool = False

    @property
    def lower(self) -> float:
        """At least these bytes."""
        return sum(lower for lower, _ in self.parts.values())

    @property
    def upper(self) -> float:
        """At most these bytes; infinite if no bound is known."""
        return sum(upper for _, upper in self.parts.values())

    @property
    def answer(self) -> Answer:
        """``refused`` if the lower bound exceeds the accelerator, ``fits`` if the upper one does not, else unknown.

        An engine that may not start fits nothing.
        """
        if self.starts is False or (self.card is not None and self.lower > self.card[1]):
            return "refused"
        return "fits" if self.starts and self.has_room else "unknown"

    @property
    def has_room(self) -> bool:
        """Whether the upper bound is surely on the accelerator."""
        return self.card is not None and self.upper <= USABLE_MEMORY * self.card[0]

    def plain(self) -> dict[str, Any]:
        """Return the need as plain values; ``None``: no upper bound, or an unknown accelerator."""
        return {
            "components": list(self.components),
            "phase": self.phase,
            "memory_lower": int(self.lower),
            "memory_upper": whole(self.upper),
            "parts": {name: [int(low), whole(high)] for name, (low, high) in self.parts.items()},
            "of": None if self.card is None else int(self.card[1]),
            "answer": self.answer,
            "decides": list(self.decides),
            "host": [int(self.host[0]), whole(self.host[1])],
            "measured": self.measured,
        }


def whole(size: float) -> int | None:
    """Return bytes as an int, ``None`` for no bound."""
    return None if math.isinf(size) else int(size)


@frozen
class Crowd:
    """Accelerators with the same number of processes of each component, on nodes with the same: one, and its memory.

    ``on_node`` are the processes of each component on its node, by accelerator, and ``host`` is the node's memory.
    """

    users: dict[str, int]
    where: tuple[int, int]
    card: Bounds | None
    on_node: dict[str, int]
    host: float | None

    @property
    def size(self) -> float:
        """The bytes of the accelerator, at most; as many as are usual if that is unknown."""
        return _UNKNOWN_CARD if self.card is None else self.card[1]


Stays: TypeAlias = Counter[tuple[str, Pattern]]
"""Components on a node with their patterns, and how often each is there."""


def stretches(inventory: Inventory, components: Mapping[str, Component]) -> Iterator[tuple[range, Stays]]:
    """Yield consecutive nodes of equal hardware with the same components, in node order, without unused nodes."""
    # What starts and ends at a node: runs of components, and nodes of other hardware.
    changes: dict[int, list[tuple[int, tuple[str, Pattern] | None]]] = {}
    for name, component in components.items():
        for run in component.rows.runs():
            if run.pattern.resource_type == ACCELERATOR:
                changes.setdefault(run.node, []).append((1, (name, run.pattern)))
                changes.setdefault(run.node + run.nodes, []).append((-1, (name, run.pattern)))
    for nodes, _ in inventory.stretches():
        changes.setdefault(nodes[0], []).append((0, None))
    active: Stays = Counter()
    ordered = sorted(changes)
    for node, end in zip(ordered, [*ordered[1:], inventory.num_nodes], strict=True):
        for step, stay in changes[node]:
            if stay is not None:
                active[stay] += step
                if not active[stay]:
                    del active[stay]
        if active:
            yield range(node, end), active


def crowds(inventory: Inventory, components: Mapping[str, Component]) -> Iterator[Crowd]:
    """Yield the crowds of a plan, in node order. Takes time by runs of equal nodes, not by nodes."""
    stated = stated_memory(inventory)
    seen: set[Any] = set()
    states: set[Any] = set()
    for nodes, active in stretches(inventory, components):
        spec = inventory.node(nodes[0])
        if (state := _state(active, spec)) not in states:
            states.add(state)
            for crowd in _on_node(nodes[0], active, spec, stated):
                key = (tuple(sorted(crowd.users.items())), crowd.card, tuple(sorted(crowd.on_node.items())), crowd.host)
                if key not in seen:
                    seen.add(key)
                    yield crowd


def _state(active: Stays, spec: NodeSpec) -> Any:
    """Return what the needs on a node depend on."""
    memory = tuple(one.memory for one in spec.devices), tuple(spec.memory.values())
    return frozenset(active.items()), spec.accelerator_model, memory


def stated_memory(inventory: Inventory) -> tuple[int | None, int | None]:
    """Return what a config says of the memory of all accelerators and of all nodes."""
    facts = inventory.facts
    return (None, None) if facts is None else (facts.accelerator_memory, facts.host_memory)


def _on_node(
    node: int, stays: Counter[tuple[str, Pattern]], spec: NodeSpec, stated: tuple[int | None, int | None]
) -> Iterator[Crowd]:
    """Yield a crowd for each accelerator of a node that is used. ``stated``: what a config says of all nodes."""
    host = sum(spec.memory.values()) << 20 if spec.memory else stated[1]
    users: dict[int, Counter[str]] = {}
    on_node: Counter[str] = Counter()
    for (name, pattern), times in stays.items():
        for index in chain.from_iterable(pattern.devices):
            users.setdefault(index, Counter())[name] += times
            on_node[name] += times
    for index in sorted(users):
        yield Crowd(dict(users[index]), (node, index), card_at(spec, index, stated[0]), dict(on_node), host)


def card_at(spec: NodeSpec, index: int, stated: int | None) -> Bounds | None:
    """Return the memory of an accelerator: of the inventory, as a config states it, or of its type."""
    facts = spec.devices[index] if index < len(spec.devices) else None
    if facts is not None and facts.memory:
        size = float(facts.memory << 20)
        return size, size
    if stated is not None:
        return float(stated), float(stated)
    model = (facts.model if facts is not None else None) or spec.accelerator_model
    return card_of(model) if model else None


class Needs:
    """The phases of a plan with their memory.

    ``reserve`` are bytes of each accelerator that other programs use. ``spellings``: how the config of a trainer states
    the memory of its components; that of the others is stated by the keys of ``memory``.
    """

    def __init__(
        self,
        inventory: Inventory,
        components: Mapping[str, Component],
        reserve: float = 0.0,
        peaks: Peaks | None = None,
        spellings: Mapping[str, Spelling] | None = None,
    ) -> None:
        found = {name: Evaluation(one, one.memory) for name, one in components.items() if one.memory is not None}
        self.evaluations = {name: one for name, one in found.items() if one.known}
        self.crowds = list(crowds(inventory, components)) if self.evaluations else []
        self.reserve, self.peaks, self._spellings = reserve, peaks or {}, spellings or {}
        self._inventory, self._components = inventory, components
        self.widest = max((spec.num_accelerators for _, spec in inventory.stretches()), default=1)
        kinds = {(frozenset(crowd.users.items()), crowd.card) for crowd in self.crowds}
        self._counts = Counter(name for users, _ in kinds for name, _ in users)

    def changed(self, evaluations: Mapping[str, Evaluation], extended: Collection[str] = ()) -> Needs:
        """Return the needs with other evaluations of some components, ``extended`` ones on more of the accelerators."""
        other = copy(self)
        other.evaluations = {**self.evaluations, **evaluations}
        alone = {name for name in extended if any(crowd.users.keys() > {name} for crowd in self.crowds)}
        other._counts = self._counts + Counter(alone)  # the accelerators that are added have no others
        return other

    def written(
        self, name: str, settings: Mapping[str, Any], sizes: Mapping[str, int] | None = None, *, others: bool = False
    ) -> str | None:
        """Return what to write for settings and parallel sizes of a component, as text for a help.

        ``None`` if the keys of its trainer cannot state them. ``others``: the help is about another component.
        """
        if (spelling := self._spellings.get(name)) is not None:
            return spelling.written(settings, sizes or {})
        texts = [*(f"{kind} {size}" for kind, size in (sizes or {}).items())]
        texts += [f"`{key}: {value}`" for key, value in settings.items()]
        return " and ".join(f"{text} of `{name}`" if others else text for text in texts)

    def spelled(self, name: str) -> bool:
        """Whether the keys of a trainer state the memory of a component."""
        return name in self._spellings

    def named(self, name: str, setting: str) -> str | None:
        """Return the keys that state a missing setting; ``None`` if the trainer has no key for it."""
        if (spelling := self._spellings.get(name)) is not None:
            return spelling.named(setting)
        trainer = self._spellings.keys() >= self.evaluations.keys() and self._spellings
        return None if trainer else f"`{name}.{setting}`"

    @property
    def silent(self) -> list[str]:
        """The components on accelerators that state nothing about their memory."""
        return [name for name, one in self._components.items() if one.memory is None and one.rows.accelerators()]

    def phases(self) -> dict[tuple[tuple[str, ...], str], Need]:
        """Return the need of each phase of components; of several accelerators, that of the worst one."""
        worst: dict[tuple[tuple[str, ...], str], Need] = {}
        for crowd in self.crowds:
            for need in self.of_crowd(crowd):
                key = (need.components, need.phase)
                if key not in worst or rank_of(need) > rank_of(worst[key]):
                    worst[key] = need
        return dict(sorted(worst.items(), key=lambda item: self._order(item[0][0])))

    def _order(self, names: tuple[str, ...]) -> tuple[int, list[int]]:
        order = list(self.evaluations)
        return len(names), [order.index(name) for name in names]

    def of_crowd(self, crowd: Crowd) -> Iterator[Need]:
        """Yield the needs on one accelerator."""
        here = [name for name in self.evaluations if name in crowd.users]
        for name in here:
            yield self.need(crowd, (name,))
        trainers = [name for name in here if self.evaluations[name].entry.kind == "training"]
        engines = [name for name in here if self.evaluations[name].entry.kind == "engine"]
        for trainer in trainers:
            for engine in engines:
                if self.evaluations[trainer].model == self.evaluations[engine].model:
                    yield self.need(crowd, (trainer, engine))

    def of_node(self, node: int, stays: Iterable[tuple[str, Pattern]]) -> dict[int, list[Need]]:
        """Return the needs on each accelerator of a node where components stay like this, by local index."""
        if not self.evaluations:
            return {}
        here = Counter((name, pattern) for name, pattern in stays if pattern.resource_type == ACCELERATOR)
        found = _on_node(node, here, self._inventory.node(node), stated_memory(self._inventory))
        return {crowd.where[1]: list(self.of_crowd(crowd)) for crowd in found}

    def by_nodes(self) -> Iterator[tuple[range, dict[int, list[Need]]]]:
        """Yield consecutive nodes with the same needs on each accelerator, by local index; equal ones share them."""
        found: dict[Any, dict[int, list[Need]]] = {}
        for nodes, active in stretches(self._inventory, self._components) if self.evaluations else ():
            state = _state(active, self._inventory.node(nodes[0]))
            if state not in found:
                found[state] = self.of_node(nodes[0], active.elements())
            yield nodes, found[state]

    def need(self, crowd: Crowd, names: tuple[str, ...]) -> Need:
        """Return what a component needs on an accelerator, or two in their switch, with the others on it asleep."""
        evaluation, size = self.evaluations[names[0]], crowd.size
        if len(names) > 1:
            parts = evaluation.switch(self.evaluations[names[1]], size)
            slot = Slot(parts, (0.0, 0.0), stages=evaluation.parallel.pp)
            return self._need(crowd, names, SWITCH, slot, 1)
        need = self._need(crowd, names, _PHASES[evaluation.entry.kind], evaluation.slot(size), crowd.users[names[0]])
        return self._measured(crowd, need)

    def _need(self, crowd: Crowd, names: tuple[str, ...], phase: str, slot: Slot, times: int) -> Need:
        # The fullest stage of a component on several kinds of accelerators need not be on this one.
        anywhere = slot.stages > 1 and any(self._counts[name] > 1 for name in names)
        parts = {name: (low * times, high * times) for name, (low, high) in slot.parts.items()}
        for other, count in crowd.users.items():
            if other in names:
                continue
            if other not in self.evaluations:
                parts[other] = (0.0, math.inf)
                continue
            asleep = self.evaluations[other].slot(crowd.size).asleep
            parts[f"{other} asleep"] = (0.0 if anywhere else asleep[0] * count, asleep[1] * count)
        if self.reserve:
            parts[RESERVED] = (self.reserve, self.reserve)
        host_low, host_high = slot.host
        if phase == "generate" and len(crowd.users) == 1:
            host_low = 0.0  # nothing puts it to sleep
        on_node = crowd.on_node.get(names[0], 0)
        store = host_store()[1] if host_high else 0.0
        host = (host_low * on_node, host_high * on_node + store)
        others = tuple(other for other in crowd.users if other not in names)
        starts = True if crowd.card is None else slot.starts
        return Need(names, phase, parts, crowd.where, crowd.card, (), slot.tokens, starts, host, others)

    def _measured(self, crowd: Crowd, need: Need) -> Need:
        """Return a need with measured bounds, if it was measured; a longer sequence gives only an upper bound."""
        name = need.components[0]
        evaluation = self.evaluations[name]
        computed = need.parts  # several peaks may cover it
        for peak in self.peaks.get(name, ()):
            if peak.covers(evaluation, crowd.card):
                others = {other: count for other, count in crowd.users.items() if other != name}
                own = {part: computed[part] for part in evaluation.slot(crowd.size).parts}
                asleep = {part: bounds for part, bounds in computed.items() if part not in own}
                found = peak.parts(own, asleep, others)
                if found is not None and peak.length == evaluation.entry.length:
                    return replace(need, parts=found, measured=True)
                upper = math.inf if found is None else sum(most for _, most in found.values())
                if upper < need.upper:
                    parts = {MEASURED: (min(need.lower, upper), upper)}
                    need = replace(need, parts=parts, measured=True)
        return need


def rank_of(need: Need) -> tuple[int, float, float, float]:
    """Return what orders accelerators from the one with the most room for a phase to the worst one."""
    card = 0.0 if need.card is None else need.card[1]
    return ANSWERS.index(need.answer), need.upper - card, need.lower - card, need.upper

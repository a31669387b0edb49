"""How much memory the components of a plan need, by phase, and whether it fits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, TypeAlias

from rankplan._core import ACCELERATOR, USABLE_MEMORY, Pattern, host_store
from rankplan.memory.cards import card_of
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.plans.component import Component
from rankplan.plans.slot_memory import Bounds, Evaluation, Parts, Slot

Answer: TypeAlias = Literal["refused", "fits", "unknown"]

SWITCH = "switch"
_PHASES = {"training": "train", "forward": "forward", "engine": "generate", "resident": "resident"}
_DECIDING = {
    "training": ("recompute", "distributed_optimizer", "sequence_parallel", "sleep"),
    "forward": ("sleep",),
    "engine": ("share", "length", "sleep"),
    "resident": ("sleep",),
}
"""Keys of each kind that narrow the bounds where they are stated."""
_UNKNOWN_CARD = 80.0 * (1 << 30)
_RANKING = ("fits", "unknown", "refused")


@dataclass(frozen=True, slots=True)
class Need:
    """What a phase needs on the accelerator of its components that needs the most, in bytes.

    ``parts`` add up to ``lower`` and ``upper``; infinite: no upper bound is known. ``card`` is the memory of the
    accelerator, at least and at most (an A100 has 40 or 80 GiB), ``None`` if it is unknown. ``where`` is a node rank
    and a local index. ``decides`` are the keys that are not stated and could decide an unknown answer. ``tokens``
    bounds what the cache of an engine holds, and ``starts`` tells whether the engine can start with its share. ``host``
    is what the ranks on that node take of its memory.
    """

    components: tuple[str, ...]
    phase: str
    parts: Parts
    where: tuple[int, int]
    card: Bounds | None = None
    decides: tuple[str, ...] = ()
    tokens: Bounds | None = None
    starts: bool = True
    host: Bounds = (0.0, 0.0)

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
        """``refused`` if the lower bound exceeds the accelerator, ``fits`` if the upper one does not, else unknown."""
        if not self.starts or (self.card is not None and self.lower > self.card[1]):
            return "refused"
        return "fits" if self.card is not None and self.upper <= USABLE_MEMORY * self.card[0] else "unknown"

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
        }


def whole(size: float) -> int | None:
    """Return bytes as an int, ``None`` for no bound."""
    return None if math.isinf(size) else int(size)


@dataclass(frozen=True, slots=True)
class Crowd:
    """Accelerators with the same number of processes of each component, on nodes with the same: one, and its memory.

    ``on_node`` are the processes of each component on its node, by accelerator, and ``host`` is the node's memory.
    """

    users: dict[str, int]
    where: tuple[int, int]
    card: Bounds | None
    on_node: dict[str, int]
    host: float | None


def crowds(inventory: Inventory, components: Mapping[str, Component]) -> Iterator[Crowd]:
    """Yield the crowds of a plan, in node order. Takes time by runs of equal nodes, not by nodes."""
    section = inventory.section
    stated = (None, None) if section is None else (section.accelerator_memory, section.host_memory)
    # What starts and ends at a node: runs of components, and nodes of other hardware.
    changes: dict[int, list[tuple[int, tuple[str, Pattern] | None]]] = {}
    for name, component in components.items():
        for run in component.rows.runs():
            if run.pattern.resource_type == ACCELERATOR:
                changes.setdefault(run.node, []).append((1, (name, run.pattern)))
                changes.setdefault(run.node + run.nodes, []).append((-1, (name, run.pattern)))
    for nodes, _ in inventory.stretches():
        changes.setdefault(nodes[0], []).append((0, None))
    active: Counter[tuple[str, Pattern]] = Counter()
    seen: set[Any] = set()
    states: set[Any] = set()
    for node in sorted(changes):
        for step, stay in changes[node]:
            if stay is not None:
                active[stay] += step
                if not active[stay]:
                    del active[stay]
        if not active:
            continue
        spec = inventory.node(node)
        memory = tuple(one.memory for one in spec.devices), tuple(spec.memory.values())
        state = (frozenset(active.items()), spec.accelerator_model, memory)
        if state not in states:
            states.add(state)
            for crowd in _on_node(node, active, spec, stated):
                key = (tuple(sorted(crowd.users.items())), crowd.card, tuple(sorted(crowd.on_node.items())), crowd.host)
                if key not in seen:
                    seen.add(key)
                    yield crowd


def _on_node(
    node: int, stays: Counter[tuple[str, Pattern]], spec: NodeSpec, stated: tuple[int | None, int | None]
) -> Iterator[Crowd]:
    """Yield a crowd for each accelerator of a node that is used. ``stated``: what the section says of all nodes."""
    host = sum(spec.memory.values()) << 20 if spec.memory else stated[1]
    users: dict[int, Counter[str]] = {}
    on_node: Counter[str] = Counter()
    for (name, pattern), times in stays.items():
        for index in chain.from_iterable(pattern.devices):
            users.setdefault(index, Counter())[name] += times
            on_node[name] += times
    for index in sorted(users):
        yield Crowd(dict(users[index]), (node, index), _card(spec, index, stated[0]), dict(on_node), host)


def _card(spec: NodeSpec, index: int, stated: int | None) -> Bounds | None:
    """Return the memory of an accelerator: of the inventory, as the section states it, or of its type."""
    facts = spec.devices[index] if index < len(spec.devices) else None
    if facts is not None and facts.memory:
        size = float(facts.memory << 20)
        return size, size
    if stated is not None:
        return float(stated), float(stated)
    model = (facts.model if facts is not None else None) or spec.accelerator_model
    return card_of(model) if model else None


class Needs:
    """The phases of a plan with their memory."""

    def __init__(self, inventory: Inventory, components: Mapping[str, Component]) -> None:
        found = {name: Evaluation(one, one.memory) for name, one in components.items() if one.memory is not None}
        self.evaluations = {name: one for name, one in found.items() if one.known}
        self.crowds = list(crowds(inventory, components)) if self.evaluations else []
        kinds = {(frozenset(crowd.users.items()), crowd.card) for crowd in self.crowds}
        self._counts = Counter(name for users, _ in kinds for name, _ in users)

    def phases(self) -> dict[tuple[str, ...], dict[str, Need]]:
        """Return the need of each phase, by its components; of several accelerators, that of the worst one."""
        worst: dict[tuple[tuple[str, ...], str], Need] = {}
        for crowd in self.crowds:
            for need in self.of_crowd(crowd):
                key = (need.components, need.phase)
                if key not in worst or _rank(need) > _rank(worst[key]):
                    worst[key] = need
        result: dict[tuple[str, ...], dict[str, Need]] = {}
        for (names, phase), need in sorted(worst.items(), key=lambda item: self._order(item[0][0])):
            result.setdefault(names, {})[phase] = need
        return result

    def _order(self, names: tuple[str, ...]) -> tuple[int, list[int]]:
        order = list(self.evaluations)
        return len(names), [order.index(name) for name in names]

    def of_crowd(self, crowd: Crowd) -> Iterator[Need]:
        """Yield the needs on one accelerator."""
        here = [name for name in self.evaluations if name in crowd.users]
        for name in here:
            yield self.need(crowd, name)
        trainers = [name for name in here if self.evaluations[name].entry.kind == "training"]
        engines = [name for name in here if self.evaluations[name].entry.kind == "engine"]
        for trainer in trainers:
            for engine in engines:
                first, second = self.evaluations[trainer], self.evaluations[engine]
                if first.model == second.model:
                    parts = first.switch(second, self._size(crowd))
                    slot = Slot(parts, (0.0, 0.0), stages=first.component.parallel.pp)
                    yield self._need(crowd, (trainer, engine), SWITCH, slot, 1)

    def need(self, crowd: Crowd, name: str, evaluation: Evaluation | None = None) -> Need:
        """Return what a component needs on an accelerator, with the others on it asleep."""
        evaluation = evaluation or self.evaluations[name]
        slot = evaluation.slot(self._size(crowd))
        return self._need(crowd, (name,), _PHASES[evaluation.entry.kind], slot, crowd.users[name])

    @staticmethod
    def _size(crowd: Crowd) -> float:
        return _UNKNOWN_CARD if crowd.card is None else crowd.card[1]

    def _need(self, crowd: Crowd, names: tuple[str, ...], phase: str, slot: Slot, times: int) -> Need:
        # The fullest stage of a component on several kinds of accelerators need not be on this one.
        anywhere = slot.stages > 1 and any(self._counts[name] > 1 for name in names)
        parts = {name: (low * times, high * times) for name, (low, high) in slot.parts.items()}
        missing = []
        for other, count in crowd.users.items():
            if other in names:
                continue
            if other not in self.evaluations:
                parts[other], asleep = (0.0, math.inf), None
                missing.append(f"{other}.memory")
                continue
            asleep = self.evaluations[other].slot(self._size(crowd)).asleep
            parts[f"{other} asleep"] = (0.0 if anywhere else asleep[0] * count, asleep[1] * count)
        host_low, host_high = slot.host
        if phase == "generate" and len(crowd.users) == 1:
            host_low = 0.0  # nothing puts it to sleep
        on_node = crowd.on_node.get(names[0], 0)
        store = host_store()[1] if host_high else 0.0
        return Need(
            names,
            phase,
            parts,
            crowd.where,
            crowd.card,
            (*self._deciding(names, crowd), *missing),
            slot.tokens,
            slot.starts or crowd.card is None,
            (host_low * on_node, host_high * on_node + store),
        )

    def _deciding(self, names: tuple[str, ...], crowd: Crowd) -> Iterator[str]:
        for name in self.evaluations:
            if name not in crowd.users:
                continue
            entry = self.evaluations[name].entry
            keys = _DECIDING[entry.kind] if name in names else ("sleep",)
            keys = keys if len(crowd.users) > 1 else tuple(key for key in keys if key != "sleep")
            yield from (f"{name}.{key}" for key in keys if getattr(entry, key) is None)
            if name in names and entry.kind in ("training", "forward") and not (entry.tokens or entry.micro_batch):
                yield f"{name}.tokens"


def _rank(need: Need) -> tuple[int, float, float]:
    return _RANKING.index(need.answer), need.upper, need.lower

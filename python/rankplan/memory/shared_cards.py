"""The accelerators of a plan by who uses them: equal ones are looked at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from rankplan._core import ACCELERATOR, Pattern
from rankplan.frozen import frozen
from rankplan.hardware.cards import card_of
from rankplan.memory.slots import Bounds
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.plans.component import Component

USUAL_CARD = 80.0 * (1 << 30)


@frozen
class SharedCard:
    """Accelerators with the same number of processes of each component, on nodes with the same: one, and its memory.

    ``on_node`` are the processes of each component on its node, by accelerator, and ``host`` is the node's memory.
    ``is_a100``: vLLM takes smaller steps on it.
    """

    users: dict[str, int]
    where: tuple[int, int]
    card: Bounds | None
    on_node: dict[str, int]
    host: float | None
    is_a100: bool = False

    @property
    def size(self) -> float:
        """The bytes of the accelerator, at most; as many as are usual if that is unknown."""
        return USUAL_CARD if self.card is None else self.card[1]


Stays: TypeAlias = Counter[tuple[str, Pattern]]
"""Components on a node with their patterns, and how often each is there."""


class Stretch(NamedTuple):
    """Consecutive nodes of equal hardware with the same components."""

    nodes: range
    stays: Stays


class Stated(NamedTuple):
    """The memory of all accelerators and of all nodes, as a config states it."""

    accelerator: int | None
    host: int | None


def stretches(inventory: Inventory, components: Mapping[str, Component]) -> Iterator[Stretch]:
    """Yield the stretches of a plan in node order, without unused nodes."""
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
            yield Stretch(range(node, end), active)


def shared_cards(inventory: Inventory, components: Mapping[str, Component]) -> Iterator[SharedCard]:
    """Yield the accelerators of a plan, in node order. Takes time by runs of equal nodes, not by nodes."""
    stated = stated_memory(inventory)
    seen: set[Any] = set()
    states: set[Any] = set()
    for nodes, active in stretches(inventory, components):
        spec = inventory.node(nodes[0])
        state = state_of(active, spec)
        if state in states:
            continue
        states.add(state)
        for shared in cards_on_node(nodes[0], active, spec, stated):
            users, on_node = (tuple(sorted(counts.items())) for counts in (shared.users, shared.on_node))
            key = (users, shared.card, on_node, shared.host, shared.is_a100)
            if key not in seen:
                seen.add(key)
                yield shared


def state_of(active: Stays, spec: NodeSpec) -> Any:
    """Return what the needs on a node depend on."""
    memory = tuple((device.memory, device.model) for device in spec.devices), tuple(spec.memory.values())
    return frozenset(active.items()), spec.accelerator_model, memory


def stated_memory(inventory: Inventory) -> Stated:
    """Return what a config says of the memory of all accelerators and of all nodes."""
    facts = inventory.facts
    return Stated(None, None) if facts is None else Stated(facts.accelerator_memory, facts.host_memory)


def cards_on_node(node: int, stays: Stays, spec: NodeSpec, stated: Stated) -> Iterator[SharedCard]:
    """Yield each accelerator of a node that is used."""
    host = sum(spec.memory.values()) << 20 if spec.memory else stated.host
    users: dict[int, Counter[str]] = {}
    on_node: Counter[str] = Counter()
    for (name, pattern), times in stays.items():
        for index in chain.from_iterable(pattern.devices):
            users.setdefault(index, Counter())[name] += times
            on_node[name] += times
    for index in sorted(users):
        card, model = card_at(spec, index, stated.accelerator), model_at(spec, index) or ""
        yield SharedCard(dict(users[index]), (node, index), card, dict(on_node), host, "a100" in model.lower())


def card_at(spec: NodeSpec, index: int, stated: int | None) -> Bounds | None:
    """Return the memory of an accelerator: of the inventory, as a config states it, or of its type."""
    device = spec.devices[index] if index < len(spec.devices) else None
    if device is not None and device.memory:
        size = float(device.memory << 20)
        return size, size
    if stated is not None:
        return float(stated), float(stated)
    model = model_at(spec, index)
    return card_of(model) if model else None


def model_at(spec: NodeSpec, index: int) -> str | None:
    """Return the model of an accelerator, if the inventory names it."""
    device = spec.devices[index] if index < len(spec.devices) else None
    return (device.model if device is not None else None) or spec.accelerator_model

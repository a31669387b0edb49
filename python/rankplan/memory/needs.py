"""How much memory the components of a plan need, by phase, and whether it fits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rankplan._core import ACCELERATOR, Pattern, host_store, likely_room
from rankplan.errors import PlacementError
from rankplan.memory import faults, likely
from rankplan.memory.likely import LikelySlot
from rankplan.memory.need import RESERVED, SWITCH, Assumed, Likely, Measured, Need, Phase, rank_of
from rankplan.memory.shared_cards import (
    SharedCard,
    cards_on_node,
    shared_cards,
    state_of,
    stated_memory,
    stretches,
)
from rankplan.memory.slots import Bounds, Evaluation, Parts, Slot, asleep_beside
from rankplan.memory.spelling import Spelling
from rankplan.memory.usual import RESIDENT, SLEEP, Usual
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component

if TYPE_CHECKING:
    from rankplan.memory.peaks import Peak, Peaks

_PHASES = {"training": "train", "forward": "forward", "engine": "generate", "resident": "resident"}


class _Asleep(NamedTuple):
    """What others are measured to leave on an accelerator, by component, and the room it takes, in bytes.

    ``complete``: it is known of all of them.
    """

    left: dict[str, float]
    room: float
    complete: bool
    assumed: tuple[Assumed, ...]


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
        measured: Measured | None = None,
        uncounted: Mapping[str, Sequence[str]] | None = None,
        state_instead: str | None = None,
    ) -> None:
        """``measured`` takes the place of what phases likely need. Raises `PlacementError` for an unknown phase.

        ``uncounted`` are keys of components of which nothing is said, since the effect of the keys is unknown.
        ``state_instead`` is the help of a job of whose models no sizes are known.
        """
        self._inventory = inventory
        self._components = components
        self.evaluations = _evaluations(components)
        self.cards = list(shared_cards(inventory, components)) if self.evaluations else []
        self.reserve = reserve
        self.peaks = peaks or {}
        self._spellings = spellings or {}
        self.uncounted = uncounted or {}
        self.state_instead = state_instead
        self.widest = max((spec.num_accelerators for _, spec in inventory.stretches()), default=1)
        self._card_kinds = _card_kinds(self.cards)
        self._sizes = measured or {}
        self._check_measured()

    def _check_measured(self) -> None:
        """Raise `PlacementError` for a measured size of a phase that the plan does not have."""
        phases = [Phase(name, _PHASES[evaluation.entry.kind]) for name, evaluation in self.evaluations.items()]
        for phase in self._sizes:
            if phase not in phases:
                raise PlacementError([faults.no_such_phase(str(phase), list(map(str, phases)))])

    def on_cards_of(self, size: float) -> Needs:
        """Return the needs if every accelerator had so many bytes."""
        other = copy(self)
        other.cards = [replace(shared, card=(size, size), is_a100=False) for shared in self.cards]
        return other

    def changed(self, evaluations: Mapping[str, Evaluation], extended: Collection[str] = ()) -> Needs:
        """Return the needs with other evaluations of some components, ``extended`` ones on more of the accelerators."""
        other = copy(self)
        other.evaluations = {**self.evaluations, **evaluations}
        # What was measured is about the settings with which it was measured.
        other._sizes = {phase: size for phase, size in self._sizes.items() if phase.component not in evaluations}
        alone = {name for name in extended if any(shared.users.keys() > {name} for shared in self.cards)}
        other._card_kinds = self._card_kinds + Counter(alone)  # the accelerators that are added have no others
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

    def sleeps(self, name: str) -> tuple[str, ...]:
        """Return where a component may go while others have their turn, the simplest way first.

        Trainers drop their engines, mostly with one key; a copy on the host may need a second one.
        """
        if self.spelled(name) and self.evaluations[name].entry.kind == "engine":
            return "free", "host"
        return ("host",)

    @property
    def of_trainer(self) -> bool:
        """Whether the keys of a trainer state the memory of all components."""
        return bool(self._spellings) and self._spellings.keys() >= self.evaluations.keys()

    def named(self, name: str, setting: str) -> str | None:
        """Return the keys that state a missing setting; ``None`` if the trainer has no key for it."""
        if (spelling := self._spellings.get(name)) is not None:
            return spelling.named(setting)
        return None if self.of_trainer else f"`{name}.{setting}`"

    @property
    def silent(self) -> list[str]:
        """The components on accelerators that state nothing about their memory."""
        return [
            name
            for name, component in self._components.items()
            if component.memory is None and component.rows.accelerators()
        ]

    def phases(self) -> dict[tuple[tuple[str, ...], str], Need]:
        """Return the need of each phase of components; of several accelerators, that of the worst one."""
        worst: dict[tuple[tuple[str, ...], str], Need] = {}
        for shared in self.cards:
            for need in self.on_card(shared):
                key = (need.components, need.phase)
                if key not in worst or rank_of(need) > rank_of(worst[key]):
                    worst[key] = need
        return dict(sorted(worst.items(), key=lambda item: self._order(item[0][0])))

    def _order(self, names: tuple[str, ...]) -> tuple[int, list[int]]:
        order = list(self.evaluations)
        return len(names), [order.index(name) for name in names]

    def on_card(self, shared: SharedCard) -> Iterator[Need]:
        """Yield the needs on one accelerator: of each component, and of each switch from a trainer to its engine."""
        users = {name: evaluation for name, evaluation in self.evaluations.items() if name in shared.users}
        for name in users:
            yield self.need(shared, (name,))
        for trainer, training in users.items():
            for engine, serving in users.items():
                kinds = (training.entry.kind, serving.entry.kind)
                if kinds == ("training", "engine") and training.model == serving.model:
                    yield self.need(shared, (trainer, engine))

    def of_node(self, node: int, stays: Iterable[tuple[str, Pattern]]) -> dict[int, list[Need]]:
        """Return the needs on each accelerator of a node where components stay like this, by local index."""
        if not self.evaluations:
            return {}
        on_accelerators = Counter((name, pattern) for name, pattern in stays if pattern.resource_type == ACCELERATOR)
        cards = cards_on_node(node, on_accelerators, self._inventory.node(node), stated_memory(self._inventory))
        return {shared.where[1]: list(self.on_card(shared)) for shared in cards}

    def by_nodes(self) -> Iterator[tuple[range, dict[int, list[Need]]]]:
        """Yield consecutive nodes with the same needs on each accelerator, by local index; equal ones share them."""
        if not self.evaluations:
            return
        by_state: dict[Any, dict[int, list[Need]]] = {}
        for nodes, active in stretches(self._inventory, self._components):
            state = state_of(active, self._inventory.node(nodes[0]))
            if state not in by_state:
                by_state[state] = self.of_node(nodes[0], active.elements())
            yield nodes, by_state[state]

    def need(self, shared: SharedCard, names: tuple[str, ...]) -> Need:
        """Return what a component needs on an accelerator, or two in their switch, with the others on it asleep."""
        evaluation, size = self.evaluations[names[0]], shared.size
        if len(names) > 1:
            engine = self.evaluations[names[1]]
            slot = Slot(evaluation.switch(engine, size), (0.0, 0.0), stages=evaluation.parallel.pp)
            need = self._need(shared, names, SWITCH, slot, 1)
        else:
            phase = _PHASES[evaluation.entry.kind]
            need = self._need(shared, names, phase, evaluation.slot(size), shared.users[names[0]])
        return self._measured(shared, replace(need, estimate=self._likely(shared, names)))

    def _need(self, shared: SharedCard, names: tuple[str, ...], phase: str, slot: Slot, times: int) -> Need:
        """Return the bounds of a phase, whose slot is so many ``times`` on the accelerator."""
        parts = {name: (low * times, high * times) for name, (low, high) in slot.parts.items()}
        parts |= self._parts_asleep(shared, names, slot)
        if self.reserve:
            parts[RESERVED] = (self.reserve, self.reserve)
        is_alone = phase == "generate" and len(shared.users) == 1  # nothing puts it to sleep
        host = _host_of(slot.host, shared.on_node.get(names[0], 0), sleeps=not is_alone)
        others = tuple(other for other in shared.users if other not in names)
        starts = True if shared.card is None else slot.starts
        return Need(names, phase, parts, shared.where, shared.card, (), slot.tokens, starts, host, others)

    def _parts_asleep(self, shared: SharedCard, names: tuple[str, ...], slot: Slot) -> dict[str, Bounds]:
        """Return what other components leave on an accelerator, without bounds if they state nothing."""
        # The fullest stage of a component on several kinds of accelerators need not be on this one.
        is_anywhere = slot.stages > 1 and any(self._card_kinds[name] > 1 for name in names)
        parts: dict[str, Bounds] = {}
        for other, count in shared.users.items():
            if other in names:
                continue
            if other not in self.evaluations:
                parts[other] = (0.0, math.inf)
                continue
            sleeper = self.evaluations[other].slot(shared.size)
            low, high = asleep_beside(sleeper, in_one_process=self._in_one_process(names[0], other))
            parts[f"{other} asleep"] = (0.0 if is_anywhere else low * count, high * count)
        return parts

    def _likely(self, shared: SharedCard, names: tuple[str, ...]) -> Likely | None:
        """Return what a phase is measured to need, with the others asleep; ``None`` if nothing is known of it.

        An allocator loses blocks of what it holds; an engine has counted them in its share.
        """
        asleep = self._asleep(shared, names)
        slot = self._likely_slot(shared, names, asleep)
        if slot is None:
            return None
        times = shared.users[names[0]] if len(names) == 1 else 1
        own = {name: size * times for name, size in slot.parts.items()}
        room, least = sum(own.values()), slot.least * times
        if not slot.is_engine:
            room, least = likely_room(room), likely_room(least)
        # What an engine leaves while it sleeps takes room, but no log of a trainer counts it.
        for name, size in asleep.left.items():
            if slot.counts(sleeper_is_engine=self._is_engine(name)):
                own[f"{name} asleep"] = size
        if self.reserve:
            own[RESERVED] = self.reserve
        assumed = (*(Assumed(names[0], usual) for usual in slot.assumed), *asleep.assumed)
        complete = slot.complete and asleep.complete
        return Likely(own, room + asleep.room, least + asleep.room, complete, slot.starts, assumed)

    def _likely_slot(self, shared: SharedCard, names: tuple[str, ...], asleep: _Asleep) -> LikelySlot | None:
        """Return what one slot of a phase is measured to need, by a user or else by the numbers of its framework."""
        name = names[0]
        evaluation = self.evaluations[name]
        if len(names) > 1:
            return evaluation.likely_switch(self.evaluations[names[1]], shared.size)
        measured = self._sizes.get(Phase(name, _PHASES[evaluation.entry.kind]))
        if measured is not None:
            slot: LikelySlot | None = likely.of_measured(
                measured / shared.users[name], is_engine=evaluation.entry.kind == "engine"
            )
        else:
            taken = asleep.room if evaluation.takes_free else 0.0
            slot = evaluation.likely(max(shared.size - taken, 0.0), on_a100=shared.is_a100)
        if slot is None or not slot.starts:
            return slot
        wakes_uncertainly = evaluation.entry.uncertain_wake and bool(self._trainers_beside(shared, name))
        return replace(slot, starts=None) if wakes_uncertainly else slot

    def _asleep(self, shared: SharedCard, names: tuple[str, ...]) -> _Asleep:
        """Return what other components are measured to leave on an accelerator, and what other programs use."""
        takes_turns = any(self._is_engine(name) for name in shared.users)
        left: dict[str, float] = {}
        assumed: list[Assumed] = []
        complete = True
        for other, count in shared.users.items():
            if other in names:
                continue
            evaluation = self.evaluations.get(other)
            sleeper = None if evaluation is None else evaluation.likely(shared.size, on_a100=shared.is_a100)
            if evaluation is None or sleeper is None:
                complete = False
                continue
            sleep = evaluation.entry.sleep
            if sleep is None:
                sleep = SLEEP if takes_turns else RESIDENT
                assumed.append(Assumed(other, Usual("sleep", sleep)))
            left[other] = count * (sleeper.resident if sleep == RESIDENT else sleeper.asleep)
        return _Asleep(left, sum(left.values()) + self.reserve, complete, tuple(assumed))

    def _trainers_beside(self, shared: SharedCard, name: str) -> list[str]:
        """Return the trainers that sleep on an accelerator while a component has its turn."""
        others = [other for other in shared.users if other != name and other in self.evaluations]
        return [other for other in others if self.evaluations[other].entry.kind == "training"]

    def _in_one_process(self, name: str, other: str) -> bool:
        return all(self.evaluations[each].entry.shares_process for each in (name, other))

    def _is_engine(self, name: str) -> bool:
        evaluation = self.evaluations.get(name)
        return evaluation is not None and evaluation.entry.kind == "engine"

    def _measured(self, shared: SharedCard, need: Need) -> Need:
        """Return a need with measured bounds, if it was measured.

        A longer sequence, or a whole run, gives only an upper bound. Of a switch, only whole runs tell something.
        """
        name = need.components[0]
        if name not in self.peaks:
            return need
        from rankplan.memory.peaks import MEASURED  # most components have none

        evaluation = self.evaluations[name]
        computed = need.parts  # several peaks may cover it
        for peak in self.peaks[name]:
            counts = need.phase != SWITCH or peak.whole_run
            if not counts or not peak.covers(evaluation, shared.card):
                continue
            parts = self._parts_of(peak, shared, name, computed)
            is_exact = peak.length == evaluation.entry.length and not peak.whole_run
            if parts is not None and is_exact:
                return replace(need, parts=parts, measured=True)
            upper = math.inf if parts is None else sum(most for _, most in parts.values())
            if upper < need.upper:
                need = replace(need, parts={MEASURED: (min(need.lower, upper), upper)}, measured=True)
        return need

    def _parts_of(self, peak: Peak, shared: SharedCard, name: str, computed: Parts) -> Parts | None:
        """Return the parts of a phase by a measured peak of its component; ``None`` if it says nothing here."""
        slot = self.evaluations[name].slot(shared.size)
        others = {other: count for other, count in shared.users.items() if other != name}
        of_process = {part: bounds for part, bounds in computed.items() if part in slot.of_process}
        asleep = {part: bounds for part, bounds in computed.items() if part not in slot.parts}
        return peak.parts(of_process, asleep, others)


def _evaluations(components: Mapping[str, Component]) -> dict[str, Evaluation]:
    """Return the evaluation of each component of whose memory anything can be said."""
    evaluations: dict[str, Evaluation] = {}
    for name, component in components.items():
        if component.memory is None:
            continue
        evaluation = Evaluation(component, component.memory)
        if evaluation.known:
            evaluations[name] = evaluation
    return evaluations


def _card_kinds(cards: Iterable[SharedCard]) -> Counter[str]:
    """Return on how many kinds of accelerators each component is: by their memory, and by who shares them."""
    kinds = {(frozenset(shared.users.items()), shared.card) for shared in cards}
    return Counter(name for users, _ in kinds for name, _ in users)


def _host_of(host: Bounds, ranks: int, *, sleeps: bool) -> Bounds:
    """Return what so many ranks take of the memory of their node, with the object store of the node at most."""
    low, high = host
    store = host_store()[1] if high else 0.0
    return (low * ranks if sleeps else 0.0), high * ranks + store

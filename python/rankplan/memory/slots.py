"""What a slot of a component needs, from its sizes and its ``memory``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from rankplan._core import engine_memory, switch_memory, training_memory
from rankplan.frozen import frozen
from rankplan.memory import likely
from rankplan.memory.likely import LikelySlot
from rankplan.memory.settings import DIVIDED_BY_DATA, PRECISIONS, Engine, Training
from rankplan.memory.usual import UNREAD, Usual
from rankplan.parallel import Parallel
from rankplan.plans.component import Component
from rankplan.plans.memory_settings import MemorySettings
from rankplan.plans.model import Model

Bounds: TypeAlias = tuple[float, float]
"""At least and at most, in bytes; infinite: no upper bound."""
Parts: TypeAlias = dict[str, Bounds]
_CoreParts: TypeAlias = Sequence[tuple[str, str, float, float]]
"""The parts of a slot as the core returns them: the name, what it belongs to, at least and at most."""


@frozen
class Slot:
    """What a component needs on an accelerator: awake, asleep, and on the host.

    ``parts`` are those of the fullest pipeline stage, of which there are ``stages``; ``of_process`` are the names of
    those that no allocator counts, which ``asleep`` has, too. ``tokens`` bounds the cache of an engine, and ``starts``
    tells whether the engine starts with its share; ``None``: that is uncertain.
    """

    parts: Parts
    asleep: Bounds
    of_process: frozenset[str] = frozenset()
    host: Bounds = (0.0, 0.0)
    stages: int = 1
    tokens: Bounds | None = None
    starts: bool | None = True


def asleep_beside(sleeper: Slot, *, in_one_process: bool) -> Bounds:
    """Return what a component leaves asleep; its process is that of what is awake if they are ``in_one_process``."""
    low, high = sleeper.asleep
    if not in_one_process:
        return low, high
    around = sum(sleeper.parts[name][1] for name in sleeper.of_process)
    return low, max(low, high - around)


def unbounded(slot: Slot) -> Slot:
    """Return what a slot needs if something decides that is not counted: nothing is certain."""
    anything = (0.0, math.inf)
    host = (0.0, slot.host[1])
    return replace(
        slot, parts=dict.fromkeys(slot.parts, anything), asleep=anything, host=host, tokens=None, starts=None
    )


def fullest(low: Sequence[_CoreParts], high: Sequence[_CoreParts]) -> Parts:
    """Return the lower bounds of the stage that needs the most at least, and the upper bounds of the one at most."""
    least = max(low, key=lambda parts: sum(lower for _, _, lower, _ in parts))
    most = max(high, key=lambda parts: sum(upper for _, _, _, upper in parts))
    lower = {name: bound for name, _, bound, _ in least}
    return {name: (lower[name], max(lower[name], bound)) for name, _, _, bound in most}


def _of_process(parts: _CoreParts) -> frozenset[str]:
    return frozenset(name for name, belongs, _, _ in parts if belongs == "process")


def _most_devices(component: Component) -> int:
    """Return the most accelerators of a process."""
    patterns = [run.pattern for run in component.rows.runs()]
    return max((len(devices) for pattern in patterns for devices in pattern.devices), default=1) or 1


class _EngineMemory(NamedTuple):
    """What the core returns of an engine on an accelerator."""

    parts: _CoreParts
    asleep: Bounds
    host: Bounds
    token: float
    tokens: Bounds
    starts: bool | None


class _StageMemory(NamedTuple):
    """What the core returns of a pipeline stage of a trainer."""

    parts: _CoreParts
    asleep: Bounds
    host: Bounds


class Evaluation:
    """The slots of a component that states its ``memory``."""

    def __init__(self, component: Component, entry: MemorySettings) -> None:
        self.component = component
        self.entry = entry
        self.parallel = component.parallel
        self.slots = component.slots
        self.model = entry.model or (Model.sized(entry.params) if entry.params else None)
        # A process whose accelerators others of its component use too is one slot, with a part on each of them.
        self.spread = _most_devices(component) if component.slots == len(component) else 1
        self._slots: dict[float, Slot] = {}
        self._likely: dict[tuple[float, bool], LikelySlot | None] = {}

    def changed(self, entry: MemorySettings, parallel: Parallel, slots: int) -> Evaluation:
        """Return the evaluation with another memory, other sizes and another number of slots."""
        other = copy(self)
        other.entry = entry
        other.parallel = parallel
        other.slots = slots
        other._slots = {}
        other._likely = {}
        return other

    @property
    def known(self) -> bool:
        """Whether anything can be said: of a model, or of a stated size."""
        return self.model is not None or self.entry.kind == "resident"

    @property
    def sized(self) -> bool:
        """Whether the parallel sizes are known; otherwise they may divide the model by all slots, or not at all."""
        return self.parallel.stated or self.entry.undivided

    def slot(self, card: float) -> Slot:
        """Return what a slot needs on accelerators of so many bytes."""
        if card not in self._slots:
            slot = self._slot(card)
            self._slots[card] = slot if self.entry.unread is None else unbounded(slot)
        return self._slots[card]

    def likely(self, card: float, *, on_a100: bool = False) -> LikelySlot | None:
        """Return what a slot is measured to need; ``None`` if the sizes that divide the model are unknown."""
        if (key := (card, on_a100)) not in self._likely:
            slot = self._likely_slot(card, on_a100=on_a100)
            unread = self.entry.unread
            if slot is not None and unread is not None:
                slot = replace(slot, assumed=(*slot.assumed, Usual(UNREAD, unread)))
            self._likely[key] = slot
        return self._likely[key]

    def _likely_slot(self, card: float, *, on_a100: bool) -> LikelySlot | None:
        entry = self.entry
        if entry.kind == "resident":
            slot = self.slot(card)
            return likely.of_resident(slot.parts["resident"], slot.asleep)
        if self.model is None or not self._divided:
            return None
        if entry.kind == "engine":
            return likely.of_engine(self.model, replace(self.engines()[1], on_a100=on_a100), card)
        return likely.of_training(self.model, self._usually_filled())

    def _usually_filled(self) -> Training:
        """Return the settings of the trainer, with micro-batches of the tokens that they are filled up to."""
        training = self.trainings()[1]
        if training.tokens is not None:
            return training
        return replace(training, tokens=self.entry.target_tokens or training.trained_tokens)

    def likely_switch(self, engine: Evaluation, card: float) -> LikelySlot | None:
        """Return what is measured while the weights of this trainer go to an engine on the same accelerators."""
        if self.model is None or not (self._divided and engine._divided):
            return None
        return likely.of_switch(self.model, self.trainings()[1], engine.engines()[1], card)

    @property
    def takes_free(self) -> bool:
        """Whether it is an engine whose share is of what others leave: all but vLLM's."""
        return self.entry.engine in ("sglang", "trtllm")

    @property
    def _divided(self) -> bool:
        """Whether it is known how the slots divide the model: FSDP and DeepSpeed do so without stated sizes."""
        by_data = {self.entry.training, self.entry.forward} & DIVIDED_BY_DATA
        return self.spread == 1 and (self.sized or self.slots == 1 or bool(by_data) or self.entry.kind == "engine")

    def _slot(self, card: float) -> Slot:
        if self.entry.kind == "resident":
            return self._resident_slot()
        if self.entry.kind == "engine":
            return self._engine_slot(card)
        return self._training_slot()

    def _resident_slot(self) -> Slot:
        """Return a stated size. Asleep, all of it may stay or go, unless that is stated."""
        least, most = self._resident(self.entry.resident or 0)
        sleep = self.entry.sleep
        surely_stays, may_stay = sleep == "none", sleep in (None, "none")
        return Slot({"resident": (least, most)}, (least if surely_stays else 0.0, most if may_stay else 0.0))

    def _engine_slot(self, card: float) -> Slot:
        """Return the least and the most of an engine. Where it needs the most, its cache holds the fewest tokens."""
        low, high = (_EngineMemory(*engine_memory(self.model, engine, card)) for engine in self.engines())
        return Slot(
            fullest([low.parts], [high.parts]),
            (low.asleep[0], high.asleep[1]),
            _of_process(high.parts),
            (low.host[0], high.host[1]),
            tokens=(high.tokens[0], low.tokens[1]),
            starts=False if low.starts is False else high.starts,
        )

    def _training_slot(self) -> Slot:
        """Return the least and the most of the pipeline stages of a trainer, or of a model that only computes."""
        low, high = (
            [_StageMemory(*stage) for stage in training_memory(self.model, training)] for training in self.trainings()
        )
        return Slot(
            fullest([stage.parts for stage in low], [stage.parts for stage in high]),
            (min(stage.asleep[0] for stage in low), max(stage.asleep[1] for stage in high)),
            _of_process(high[0].parts),
            (min(stage.host[0] for stage in low), max(stage.host[1] for stage in high)),
            stages=len(high),
        )

    def _resident(self, sizes: int | Mapping[int, int]) -> Bounds:
        """Return a stated size; by number of accelerators, more of them never need more memory on each."""
        if not isinstance(sizes, Mapping):
            return float(sizes), float(sizes)
        accelerators = max(self.slots * self.spread, 1)
        low = max((size for number, size in sizes.items() if number >= accelerators), default=0)
        high = min((size for number, size in sizes.items() if number <= accelerators), default=math.inf)
        return float(low), max(float(high), float(low))

    def switch(self, engine: Evaluation, card: float) -> Parts:
        """Return the parts while the weights of this trainer go to an engine on the same accelerators."""
        (least, most), (low, high) = self.trainings(), engine.engines()
        parts = fullest(switch_memory(self.model, least, low, card), switch_memory(self.model, most, high, card))
        is_counted = self.entry.unread is None and engine.entry.unread is None
        return parts if is_counted else dict.fromkeys(parts, (0.0, math.inf))

    def trainings(self) -> tuple[Training, Training]:
        """Return the settings with the least and the most memory: sizes that are not stated divide all, or nothing."""
        entry = self.entry
        sizes = self.parallel
        tokens = entry.tokens
        if entry.micro_batch is not None and entry.length is not None:
            tokens = entry.micro_batch * entry.length
        divided, undivided = self._shards()
        most = Training(
            framework=entry.training or "forward",
            slots=self.slots,
            tp=sizes.tp,
            cp=sizes.cp,
            pp=sizes.pp,
            ep=sizes.ep,
            etp=sizes.etp,
            first_layers=entry.first_layers if sizes.pp > 1 else None,
            last_layers=entry.last_layers if sizes.pp > 1 else None,
            chunks=entry.chunks,
            whole_gradients=entry.whole_gradients,
            shard=undivided,
            zero=entry.zero_stage,
            weight=PRECISIONS[entry.precision or "bf16"],
            gradient=None if entry.gradients is None else PRECISIONS[entry.gradients],
            optimizer=entry.optimizer,
            on_host=entry.optimizer_on_host,
            weights_on_host=entry.optimizer_on_host == 1 and entry.training == "deepspeed",
            distributed=entry.distributed_optimizer,
            sequence_parallel=entry.sequence_parallel,
            recompute=entry.recompute,
            tokens=tokens,
            trained_tokens=entry.trained_tokens,
            optimizer_in_step=entry.optimizer_in_step,
            length=entry.length,
            lora=entry.lora is not None,
            wide_logits=entry.wide_logits,
            fused_logits=entry.fused_logits,
            logits_in_place=entry.logits_in_place,
            logits_chunk=entry.logits_chunk,
            empties_cache=entry.empties_cache,
            sleep=entry.sleep,
        )
        if self.sized and self.spread == 1:
            return replace(most, shard=divided), most
        everything = self.slots * self.spread
        return replace(most, slots=everything, tp=everything, cp=1, pp=1, ep=1, etp=everything, shard=None), most

    def _shards(self) -> tuple[int | None, int | None]:
        """Return how many slots share states, at most and at least; a model that only computes has only weights."""
        entry = self.entry
        sizes = self.parallel
        group = sizes.fsdp if sizes.fsdp > 1 else None
        if entry.shards is not None:
            group = min(entry.shards, self.slots)
        if entry.forward not in DIVIDED_BY_DATA:
            return group, group
        data_ranks = group or max(self.slots // (sizes.tp * sizes.pp), 1)
        if entry.forward == "fsdp" or entry.zero_stage == 3:
            return data_ranks, data_ranks
        may_divide_weights = entry.zero_stage is None
        return (data_ranks if may_divide_weights else None), None

    def engines(self) -> tuple[Engine, Engine]:
        """Return the settings with the least and the most memory."""
        entry = self.entry
        sizes = self.parallel
        stored = self.model.stored if self.model is not None else 2.0
        weight = (stored, 2.0) if entry.precision is None else (PRECISIONS[entry.precision],) * 2
        slots_of_process = max(self.component.slots // max(len(self.component), 1), 1)
        slots_of_engine = slots_of_process * self.component.engines
        most = Engine(
            kind=entry.engine or "vllm",
            tp=sizes.tp if sizes.stated else slots_of_engine,
            pp=sizes.pp,
            ep=sizes.ep,
            share=entry.share,
            length=entry.length,
            longest=self.model.longest if self.model is not None else None,
            weight=weight,
            cache=PRECISIONS[entry.cache_precision],
            sequences=entry.sequences,
            batch=entry.tokens,
            graphs=entry.graphs is not False,
            cache_size=entry.cache_size,
            usage=entry.usage,
            sleep=entry.sleep,
        )
        if self.spread == 1 and (self.sized or slots_of_engine > 1):
            return most, most
        return replace(most, tp=self.slots * self.spread), most

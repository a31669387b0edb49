"""What would decide a phase that is unknown: keys that its config does not state, or a measurement.

Each missing key is tried with some values. Those that alone give an answer are named. If there are none, all are tried
together, and then left out one by one as long as there is still an answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rankplan.memory import faults
from rankplan.memory.need import Need
from rankplan.memory.needs import Needs
from rankplan.memory.options import POWERS, Option, is_unstated, need_with
from rankplan.memory.peaks import HasPeaks
from rankplan.memory.settings import DIVIDED_BY_DATA, SLEEP
from rankplan.memory.slots import Evaluation
from rankplan.plans.memory_settings import MemorySettings
from rankplan.plans.plan import Plan

_CARD = "accelerator_memory"
"""The key that decides if the accelerator is unknown; trainers have no such key, but every inventory has its model."""
_PARALLEL = "parallel"
"""Stands for all parallel sizes, of which the tensor size is tried."""
_OF_MEGATRON: dict[str, Sequence[Any]] = {
    "distributed_optimizer": [True, False],
    "sequence_parallel": [True],
    "gradients": ["bf16", "fp32"],
}
_OF_ENGINES: dict[str, Sequence[Any]] = {
    "share": [0.1, 0.5, 0.9],
    "sequences": [1],
    "tokens": [1],
    "graphs": [False],
}


class _Missing(NamedTuple):
    """A key that a component does not state, and values to try, the one that needs the least first."""

    component: str
    key: str
    values: Sequence[Any]

    @property
    def path(self) -> str:
        """The key with its component: ``actor.recompute``."""
        return f"{self.component}.{self.key}"

    def option(self, value: Any) -> Option:
        """Return the option of a value."""
        return Option(self.component, "tp" if self.key == _PARALLEL else self.key, value)


def explained(needs: Needs) -> Iterator[Need]:
    """Yield the need of each phase; unknown ones name the keys that would decide."""
    for need in needs.phases().values():
        if need.answer == "unknown" and not need.measured:
            keys, together = deciding(needs, need)
            yield replace(need, decides=tuple(keys), together=together)
        else:
            yield need


def memory_of(plan: Plan, costs: HasPeaks | None = None, reserve: float = 0) -> dict[tuple[str, ...], dict[str, Need]]:
    """Return what each phase of the components of a plan needs, by components, then by phase; see `Plan.memory`."""
    return by_components(Needs(plan.inventory, plan, reserve, None if costs is None else costs.peaks))


def by_components(needs: Needs) -> dict[tuple[str, ...], dict[str, Need]]:
    """Return the need of each phase as `explained`, by its components, then by phase."""
    result: dict[tuple[str, ...], dict[str, Need]] = {}
    for need in explained(needs):
        result.setdefault(need.components, {})[need.phase] = need
    return result


def deciding(needs: Needs, need: Need) -> tuple[list[str], bool]:
    """Return the keys that are not stated and would decide an unknown phase, and whether only together.

    If none does alone, they are those without which a part has no bound, or as few as can decide it. Empty if only a
    measurement does.
    """
    if need.card is None:
        return [_CARD], False
    missing = list(_missing(needs, need))
    alone = [key.path for key in missing if _decides(needs, need, key)]
    if alone:
        return alone, False
    unbounded = [*_silent(need), *_without_shape(needs, need)]
    if unbounded:
        return [path for path in unbounded if _named(needs, path) is not None], True
    fewest = _fewest(needs, need, missing)
    return fewest, bool(fewest)


def _silent(need: Need) -> Iterator[str]:
    """Yield the keys of components on the accelerator that state nothing about their memory."""
    for name, (_, upper) in need.parts.items():
        if upper == math.inf and name in need.others:
            yield f"{name}.memory"


def _without_shape(needs: Needs, need: Need) -> Iterator[str]:
    """Yield the keys of models of which only the number of parameters is known."""
    for name in (*need.components, *need.others):
        evaluation = needs.evaluations.get(name)
        if evaluation is not None and evaluation.model is not None and evaluation.model.shape is None:
            yield f"{name}.model"


def _fewest(needs: Needs, need: Need, missing: Sequence[_Missing]) -> list[str]:
    """Return as few keys as decide a phase together, empty if all of them do not."""
    chosen = list(missing)
    if not _known_with(needs, need, chosen):
        return []
    for key in missing:
        fewer = [other for other in chosen if other is not key]
        if _known_with(needs, need, fewer):
            chosen = fewer
    return [key.path for key in chosen]


def _decides(needs: Needs, need: Need, key: _Missing) -> bool:
    """Whether a value of a key alone gives an answer."""
    return any(_is_known(needs, need, [key.option(value)]) for value in key.values)


def _known_with(needs: Needs, need: Need, keys: Sequence[_Missing]) -> bool:
    """Whether keys with the values that need the least give an answer."""
    return bool(keys) and _is_known(needs, need, [key.option(key.values[0]) for key in keys])


def _is_known(needs: Needs, need: Need, options: Sequence[Option]) -> bool:
    changed = need_with(needs, need, options)
    return changed is not None and changed.answer != "unknown"


def _missing(needs: Needs, need: Need) -> Iterator[_Missing]:
    """Yield each key that is not stated and may decide, if the config has a name for it."""
    for name, evaluation in needs.evaluations.items():
        tried: dict[str, Sequence[Any]] = {}
        if name in need.components:
            tried |= _of_component(evaluation)
        is_in_switch = name in need.components and len(need.components) > 1
        if name in need.others or is_in_switch:
            tried["sleep"] = SLEEP[::-1]
        for key, values in tried.items():
            if is_unstated(needs, name, key) and needs.named(name, key) is not None:
                yield _Missing(name, key, values)


def _of_component(evaluation: Evaluation) -> dict[str, Sequence[Any]]:
    """Return the keys that may decide a phase of a component, with values to try."""
    entry = evaluation.entry
    if entry.kind == "engine":
        return _OF_ENGINES
    tried: dict[str, Sequence[Any]] = {}
    if entry.kind in ("training", "forward"):
        tried["length" if entry.micro_batch else "tokens"] = [1]
        if not evaluation.sized and entry.training not in DIVIDED_BY_DATA:
            tried[_PARALLEL] = [2**power for power in POWERS]
    return tried | _of_training(entry)


def _of_training(entry: MemorySettings) -> dict[str, Sequence[Any]]:
    tried: dict[str, Sequence[Any]] = {}
    if entry.kind == "training":
        tried["recompute"] = ["full", "none"]
    if entry.training == "megatron":
        tried |= _OF_MEGATRON
    if entry.training == "deepspeed":
        tried["zero_stage"] = [3, 0]
    return tried


def has_unknown_card(need: Need) -> bool:
    """Whether a phase is unknown because its accelerator is."""
    return need.decides == (_CARD,)


def keys_text(needs: Needs, need: Need) -> str:
    """Return what to do about an unknown phase: state the keys that decide, or measure one step."""
    if has_unknown_card(need):
        return faults.unnamed_card("" if needs.of_trainer else f"`{_CARD}` in the `cluster` section")
    measure = _measure(needs, need)
    if not need.decides:
        uncounted = [faults.uncounted(name, needs.uncounted[name]) for name in need.others if name in needs.uncounted]
        return "; ".join([*uncounted, measure])
    named = (_named(needs, path) for path in need.decides)
    keys = dict.fromkeys(filter(None, named))
    return f"state {(' and ' if need.together else ' or ').join(keys)}; or {measure}"


def _measure(needs: Needs, need: Need) -> str:
    """Return how to measure a phase. `rankplan run` starts no program of a trainer, but its log has the peak."""
    if not needs.of_trainer:
        return "measure one step: rankplan run --timings"
    if need.phase in ("train", "forward"):
        phase = f"{need.components[0]}.{need.phase}"
        return f"measure one step, and pass the peak of the trainer's log: rankplan check --measured {phase}=SIZE"
    return "measure a run with rankplan pin --peaks costs.yaml, and pass --costs costs.yaml"


def _named(needs: Needs, path: str) -> str | None:
    """Return a key that decides, such as ``actor.recompute``, as the config states it."""
    name, _, setting = path.rpartition(".")
    return needs.named(name, setting)

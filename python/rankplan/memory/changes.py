"""What would decide a phase that is unknown, and the smallest changes with which one that is refused can work.

Both are found by evaluating the phase with other settings, on the same accelerators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.memory import faults
from rankplan.memory.need import Need
from rankplan.memory.needs import Needs
from rankplan.memory.peaks import HasPeaks
from rankplan.memory.settings import GIB, SLEEP
from rankplan.memory.slots import Evaluation
from rankplan.parallel import Parallel
from rankplan.plans.plan import Plan

_SIZES = ("tp", "pp", "ep", "fsdp")
_ACCELERATORS = "accelerators"
_POWERS = range(1, 7)
_FITS = ("fits", "likely fits")
_EXCEEDS = ("refused", "likely exceeds")
_MOST_KEYS = 3
_MOST_TRIED = 600
"""Combinations of changes that are evaluated, the smallest first."""


@frozen
class Option:
    """Another value of a key of a component: of its ``parallel``, of its ``memory``, or its number of accelerators."""

    component: str
    key: str
    value: Any
    factor: float = 2.0


@frozen
class Remedy:
    """Changes that go together, and what the phase needs with them."""

    options: tuple[Option, ...]
    need: Need

    def text(self, needs: Needs, component: str) -> str:
        """Return the changes as they are written, with the bounds and the answer."""
        texts = [f"{one.value} accelerators" for one in self.options if one.key == _ACCELERATORS]
        for name in dict.fromkeys(one.component for one in self.options):
            written = needs.written(name, *_stated(self.options, name), others=name != component)
            texts += [written] if written else []
        return f"{' and '.join(texts)} ({bounds_text(self.need)}: {self.need.answer})"


def _stated(options: Iterable[Option], name: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the settings and the parallel sizes of a component."""
    own = {one.key: one.value for one in options if one.component == name and one.key != _ACCELERATORS}
    sizes = {key: own.pop(key) for key in _SIZES if key in own}
    return own, sizes


def bounds_text(need: Need) -> str:
    """Return the bounds of a need: ``22.9 to 68.1 GiB``, with its likely value: ``22.9 to 68.1 GiB, likely 31.0``.

    Without bounds, the likely value is all that is known: ``about 31.0 GiB``.
    """
    likely = "" if need.likely is None or need.measured else f", likely {need.likely / GIB:,.1f}"
    if math.isinf(need.upper) and not need.lower and need.likely is not None:
        return f"about {need.likely / GIB:,.1f} GiB"
    if math.isinf(need.upper):
        return f"{need.lower / GIB:,.1f} GiB or more{likely}"
    return f"{need.lower / GIB:,.1f} to {need.upper / GIB:,.1f} GiB{likely}"


def changes(needs: Needs, need: Need) -> list[Remedy]:
    """Return the smallest changes after which a phase that exceeds its accelerator fits, or may fit.

    The first one likely fits, the second is the smallest after which it does not exceed, the third the fewest
    accelerators.

    The bounds of each are those of the phase in a plan with these changes, on the worst accelerator.
    """
    options = [one for one in _options(needs, need) if _written(needs, [one])]
    found: dict[str, Remedy] = {}
    for chosen in _combined(options):
        if (change := _tried(needs, need, chosen)) is not None:
            found.setdefault("works", change)
            if change.need.answer in _FITS:
                found["fits"] = change
                break
    if found.get("works") is not None and "fits" not in found:
        # What is recomputed refuses nothing, but may be what is missing.
        more = [Option(name, "recompute", "full") for name in need.components if _open(needs, name, "recompute")]
        for one in more:
            change = _tried(needs, need, (*found["works"].options, one))
            if change is not None and change.need.answer in _FITS:
                found["fits"] = change
    if (more_of := _more_accelerators(needs, need, options)) is not None:
        found[_ACCELERATORS] = more_of
    kept = (found[key] for key in ("fits", "works", _ACCELERATORS) if key in found)
    return list({change.options: change for change in kept}.values())


def _combined(options: Sequence[Option]) -> Iterator[tuple[Option, ...]]:
    """Yield combinations with one value of each key, the fewest keys first, then the smallest factors."""
    tried = 0
    for count in range(1, _MOST_KEYS + 1):
        chosen = [one for one in combinations(options, count) if len({(o.component, o.key) for o in one}) == count]
        for one in sorted(chosen, key=lambda parts: math.prod(part.factor for part in parts)):
            tried += 1
            if tried > _MOST_TRIED:
                return
            yield one


def _options(needs: Needs, need: Need) -> Iterator[Option]:
    """Yield other values of keys that can lower the least that a phase needs."""
    for name, evaluation in needs.evaluations.items():
        if name not in need.components:
            if need.parts.get(f"{name} asleep", (0.0, 0.0))[0] > 0:
                yield from _sleeping(needs, name)
            continue
        yield from _larger_sizes(needs, name, evaluation)
        entry = evaluation.entry
        if len(need.components) > 1 and entry.sleep == "none":
            yield from _sleeping(needs, name)
        if entry.kind in ("training", "forward") and entry.optimizer_on_host < 1:
            yield Option(name, "optimizer_on_host", 1.0, 1.5)
        if entry.shards is not None:
            shards = (entry.shards * 2**power for power in _POWERS)
            yield from (Option(name, "shards", number) for number in shards if evaluation.slots % number == 0)
        if "deepspeed" in (entry.training, entry.forward) and entry.zero_stage is not None:
            yield from (Option(name, "zero_stage", stage) for stage in range(entry.zero_stage + 1, 4))


def _sleeping(needs: Needs, name: str) -> Iterator[Option]:
    """Yield where a component may go while others have their turn: the keys of a trainer may drop an engine."""
    for place in needs.sleeps(name):
        yield Option(name, "sleep", place, 1.0)


def _larger_sizes(needs: Needs, name: str, evaluation: Evaluation) -> Iterator[Option]:
    sizes, shape = evaluation.parallel, evaluation.model.shape if evaluation.model is not None else None
    if not evaluation.sized:
        return  # the least is that of a model that all accelerators divide
    entry = evaluation.entry
    ends = entry.first_layers or entry.last_layers
    for key in _SIZES:
        for power in _POWERS:
            size = getattr(sizes, key) * 2**power
            if key == "tp":
                allowed = size <= needs.widest and (shape is None or shape.heads % size == 0)
            elif key == "pp":
                allowed = shape is not None and shape.layers % size == 0 and not ends
            elif key == "ep":
                allowed = shape is not None and shape.experts is not None and shape.experts.count % size == 0
            else:
                allowed = sizes.fsdp > 1 and entry.shards is None
            if {entry.training, entry.forward} & {"fsdp", "deepspeed"}:
                allowed = allowed and key == "fsdp"
            if allowed:
                # A pipeline waits for its first and last stages: the other sizes come first.
                yield Option(name, key, size, 2.0**power * (1.2 if key == "pp" else 1.0))


def _more_accelerators(needs: Needs, need: Need, options: Sequence[Option]) -> Remedy | None:
    """Return the change to the fewest accelerators that works, alone or else with one of these sizes."""
    name = need.components[0]
    now = len(needs.evaluations[name].component.rows.accelerators())
    more = [Option(name, _ACCELERATORS, now * 2**power, 2.0**power) for power in _POWERS] if now else []
    sizes = [one for one in options if one.component == name and one.key in _SIZES]
    for chosen in ([(one,) for one in more], [(one, size) for one in more for size in sizes]):
        for each in chosen:
            if (change := _tried(needs, need, each)) is not None:
                return change
    return None


def _tried(needs: Needs, need: Need, options: Iterable[Option]) -> Remedy | None:
    """Return the change if it is possible and the phase does not exceed its accelerator with it."""
    chosen = tuple(options)
    changed = _changed(needs, chosen)
    found = None if changed is None else changed.phases()[need.components, need.phase]
    if found is None or found.answer in _EXCEEDS or not _written(needs, chosen):
        return None
    return Remedy(chosen, found)


def _written(needs: Needs, options: Sequence[Option]) -> bool:
    """Whether the config can state these values: a trainer may have no key for a setting."""
    return all(
        needs.written(name, _stated(options, name)[0]) is not None for name in {one.component for one in options}
    )


def _changed(needs: Needs, options: Sequence[Option]) -> Needs | None:
    """Return the needs with these values; ``None`` if the sizes do not divide the slots."""
    found = {}
    for name in {one.component for one in options}:
        evaluation = needs.evaluations[name]
        values = {one.key: one.value for one in options if one.component == name}
        stated = {key: values.pop(key) for key in _SIZES if key in values}
        slots = evaluation.slots
        if (accelerators := values.pop(_ACCELERATORS, None)) is not None:
            slots = slots * accelerators // len(evaluation.component.rows.accelerators())
        parallel = replace(evaluation.parallel, dp=None, **stated) if stated else evaluation.parallel
        parallel = replace(parallel, dp=None) if accelerators is not None else parallel
        if not _possible(evaluation, parallel, slots):
            return None
        found[name] = evaluation.changed(replace(evaluation.entry, **values), parallel, slots)
    return needs.changed(found, {one.component for one in options if one.key == _ACCELERATORS})


def _possible(evaluation: Evaluation, parallel: Parallel, slots: int) -> bool:
    if slots != evaluation.slots:
        return parallel.breaking(slots) is None and (slots // parallel.dense) % parallel.fsdp == 0
    try:
        evaluation.component.with_settings(parallel=parallel)
    except PlacementError:
        return False
    return True


_CARD = "accelerator_memory"
"""The key that decides if the accelerator is unknown; trainers have no such key, but every inventory has its model."""


def explained(needs: Needs) -> Iterator[Need]:
    """Yield the need of each phase; unknown ones name the keys that would decide."""
    for need in needs.phases().values():
        decides, together = ([], False) if need.answer != "unknown" or need.measured else deciding(needs, need)
        yield replace(need, decides=tuple(decides), together=together)


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
    keys = list(_unstated(needs, need))
    alone = [f"{name}.{key}" for name, key, values in keys if any(_decides(needs, need, name, key, values))]
    if alone:
        return alone, False
    missing = [f"{name}.memory" for name in need.parts if need.parts[name][1] == math.inf and name in need.others]
    for name in (*need.components, *need.others):
        evaluation = needs.evaluations.get(name)
        if evaluation is not None and evaluation.model is not None and evaluation.model.shape is None:
            missing.append(f"{name}.model")
    if missing:
        return [key for key in missing if _named(needs, key) is not None], True
    best = [Option(name, "tp" if key == "parallel" else key, values[0]) for name, key, values in keys]
    if not _known_with(needs, need, best):
        return [], False
    for one in list(best):
        fewer = [other for other in best if other is not one]
        best = fewer if _known_with(needs, need, fewer) else best
    return [f"{one.component}.{'parallel' if one.key == 'tp' else one.key}" for one in best], True


def _decides(needs: Needs, need: Need, name: str, key: str, values: Iterable[Any]) -> Iterator[bool]:
    for value in values:
        yield _known_with(needs, need, [Option(name, "tp" if key == "parallel" else key, value)])


def _known_with(needs: Needs, need: Need, options: Sequence[Option]) -> bool:
    """Whether a phase is not unknown with these values."""
    changed = _changed(needs, options) if options else None
    return changed is not None and changed.phases()[need.components, need.phase].answer != "unknown"


def _unstated(needs: Needs, need: Need) -> Iterator[tuple[str, str, Sequence[Any]]]:
    """Yield each key that is not stated, with values to try, the one that needs the least first."""
    for name, evaluation in needs.evaluations.items():
        entry, mine = evaluation.entry, name in need.components
        found: dict[str, Sequence[Any]] = {}
        if mine and entry.kind in ("training", "forward"):
            tokens = "length" if entry.micro_batch else "tokens"
            found[tokens] = [1]
            if not evaluation.sized and entry.training not in ("fsdp", "deepspeed"):
                found["parallel"] = [2**power for power in _POWERS]
        if mine and entry.kind == "training":
            found["recompute"] = ["full", "none"]
        if mine and entry.training == "megatron":
            found |= {
                "distributed_optimizer": [True, False],
                "sequence_parallel": [True],
                "gradients": ["bf16", "fp32"],
            }
        if mine and entry.training == "deepspeed":
            found["zero_stage"] = [3, 0]
        if mine and entry.kind == "engine":
            found |= {"share": [0.1, 0.5, 0.9], "sequences": [1], "tokens": [1], "graphs": [False]}
        if (mine and len(need.components) > 1) or name in need.others:
            found["sleep"] = SLEEP[::-1]
        for key, values in found.items():
            if _open(needs, name, key) and needs.named(name, key) is not None:
                yield name, key, values


def _open(needs: Needs, name: str, key: str) -> bool:
    """Whether a component does not state a key that belongs to it."""
    entry = needs.evaluations[name].entry
    if key == "recompute" and entry.kind != "training":
        return False
    return key == "parallel" or getattr(entry, key) is None


def has_unknown_card(need: Need) -> bool:
    """Whether a phase is unknown because its accelerator is."""
    return need.decides == (_CARD,)


def keys_text(needs: Needs, need: Need) -> str:
    """Return what to do about an unknown phase: state the keys that decide, or measure one step."""
    measure = _measure(needs, need)
    if not need.decides:
        uncounted = [faults.uncounted(name, needs.uncounted[name]) for name in need.others if name in needs.uncounted]
        return "; ".join([*uncounted, measure])
    if has_unknown_card(need):
        return faults.unnamed_card("" if needs.of_trainer else f"`{_CARD}` in the `cluster` section")
    stated = dict.fromkeys(filter(None, (_named(needs, key) for key in need.decides)))
    return f"state {(' and ' if need.together else ' or ').join(stated)}; or {measure}"


def _measure(needs: Needs, need: Need) -> str:
    """Return how to measure a phase. `rankplan run` starts no program of a trainer, but its log has the peak."""
    if not needs.of_trainer:
        return "measure one step: rankplan run --timings"
    if need.phase in ("train", "forward"):
        phase = f"{need.components[0]}.{need.phase}"
        return f"measure one step, and pass the peak of the trainer's log: rankplan check --measured {phase}=SIZE"
    return "measure a run with rankplan pin --peaks costs.yaml, and pass --costs costs.yaml"


def _named(needs: Needs, key: str) -> str | None:
    """Return a key that decides, such as ``actor.recompute``, as the config states it."""
    name, _, setting = key.rpartition(".")
    return needs.named(name, setting)

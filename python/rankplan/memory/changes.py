"""The smallest changes with which a phase that exceeds its accelerator can work.

They are found by evaluating the phase with other settings, on the same accelerators. Each change has a factor: by how
much it may lower a part, or how much it costs. Combinations of few keys come first, and of these the ones with the
smallest product of factors. The search ends at the first one that likely fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, product

from rankplan.frozen import frozen
from rankplan.memory.need import Need
from rankplan.memory.needs import Needs
from rankplan.memory.options import (
    ACCELERATORS,
    POWERS,
    SIZES,
    Option,
    components_of,
    is_unstated,
    need_with,
    values_of,
)
from rankplan.memory.settings import DIVIDED_BY_DATA, GIB
from rankplan.memory.slots import Evaluation
from rankplan.plans.model import Model
from rankplan.plans.shape import Shape

_FITS = ("fits", "likely fits")
_EXCEEDS = ("refused", "likely exceeds")
_FEWER_REQUESTS = (512, 256, 128, 64, 32)
_MOST_KEYS = 3
_MOST_TRIED = 600
"""Combinations of changes that are evaluated, the smallest first."""
_PIPELINE = 1.2
"""A pipeline waits for its first and last stages: other sizes of the same factor come first."""


@frozen
class Remedy:
    """Changes that go together, and what the phase needs with them."""

    options: tuple[Option, ...]
    need: Need

    def text(self, needs: Needs, component: str) -> str:
        """Return the changes as they are written, with the bounds and the answer."""
        texts = [f"{option.value} accelerators" for option in self.options if option.key == ACCELERATORS]
        for name in components_of(self.options):
            values = values_of(self.options, name)
            written = needs.written(name, values.settings, values.sizes, others=name != component)
            if written:
                texts.append(written)
        return f"{' and '.join(texts)} ({bounds_text(self.need)}: {self.need.answer})"


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
    accelerators. The bounds of each are those of the phase in a plan with these changes, on the worst accelerator.
    """
    options = [option for option in _options(needs, need) if _is_written(needs, [option])]
    fitting, working = _smallest(needs, need, options)
    if working is not None and fitting is None:
        fitting = _recomputed(needs, need, working)
    remedies = [fitting, working, _more_accelerators(needs, need, options)]
    return list({remedy.options: remedy for remedy in remedies if remedy is not None}.values())


def fewer_requests(needs: Needs, need: Need) -> int | None:
    """Return how many requests an engine may serve at once so that it likely starts; ``None`` if they do not decide.

    Before vLLM starts, it samples for all of them.
    """
    name = need.components[0]
    entry = needs.evaluations[name].entry
    if need.answer != "likely exceeds" or entry.engine != "vllm":
        return None
    for requests in _FEWER_REQUESTS:
        if entry.sequences is None or requests < entry.sequences:
            changed = need_with(needs, need, [Option(name, "sequences", requests)])
            if changed is not None and changed.answer in _FITS:
                return requests
    return None


def _smallest(needs: Needs, need: Need, options: Sequence[Option]) -> tuple[Remedy | None, Remedy | None]:
    """Return the smallest change after which a phase likely fits, and the smallest after which it does not exceed."""
    working: Remedy | None = None
    for combination in _combined(options):
        remedy = _remedy(needs, need, combination)
        if remedy is None:
            continue
        working = working or remedy
        if remedy.need.answer in _FITS:
            return remedy, working
    return None, working


def _combined(options: Sequence[Option]) -> Iterator[tuple[Option, ...]]:
    """Yield combinations with one value of each key, the fewest keys first, then the smallest factors."""
    tried = 0
    for count in range(1, _MOST_KEYS + 1):
        possible = [combination for combination in combinations(options, count) if _are_of_different_keys(combination)]
        for combination in sorted(possible, key=_factor):
            tried += 1
            if tried > _MOST_TRIED:
                return
            yield combination


def _are_of_different_keys(options: Sequence[Option]) -> bool:
    return len({(option.component, option.key) for option in options}) == len(options)


def _factor(options: Sequence[Option]) -> float:
    return math.prod(option.factor for option in options)


def _recomputed(needs: Needs, need: Need, remedy: Remedy) -> Remedy | None:
    """Return a change with everything recomputed, if the phase likely fits then: that refuses nothing, but may help."""
    fitting: Remedy | None = None
    for name in need.components:
        if not is_unstated(needs, name, "recompute"):
            continue
        recomputed = _remedy(needs, need, (*remedy.options, Option(name, "recompute", "full")))
        if recomputed is not None and recomputed.need.answer in _FITS:
            fitting = recomputed
    return fitting


def _options(needs: Needs, need: Need) -> Iterator[Option]:
    """Yield other values of keys that can lower the least that a phase needs."""
    for name, evaluation in needs.evaluations.items():
        if name in need.components:
            yield from _larger_sizes(needs, name, evaluation)
            if len(need.components) > 1 and evaluation.entry.sleep == "none":
                yield from _sleeping(needs, name)
            yield from _smaller_states(name, evaluation)
        elif need.parts.get(f"{name} asleep", (0.0, 0.0))[0] > 0:
            yield from _sleeping(needs, name)


def _sleeping(needs: Needs, name: str) -> Iterator[Option]:
    """Yield where a component may go while others have their turn: the keys of a trainer may drop an engine."""
    for place in needs.sleeps(name):
        yield Option(name, "sleep", place, 1.0)


def _smaller_states(name: str, evaluation: Evaluation) -> Iterator[Option]:
    """Yield settings of a trainer with which it has fewer of its states on an accelerator."""
    entry = evaluation.entry
    if entry.kind in ("training", "forward") and entry.optimizer_on_host < 1:
        yield Option(name, "optimizer_on_host", 1.0, 1.5)
    if entry.shards is not None:
        for power in POWERS:
            shards = entry.shards * 2**power
            if evaluation.slots % shards == 0:
                yield Option(name, "shards", shards)
    if "deepspeed" in (entry.training, entry.forward) and entry.zero_stage is not None:
        for stage in range(entry.zero_stage + 1, 4):
            yield Option(name, "zero_stage", stage)


def _larger_sizes(needs: Needs, name: str, evaluation: Evaluation) -> Iterator[Option]:
    """Yield larger sizes of the groups that divide a model. Without stated ones, all accelerators divide it already."""
    if not evaluation.sized:
        return
    for key, power in product(SIZES, POWERS):
        size = getattr(evaluation.parallel, key) * 2**power
        if _is_allowed(needs, evaluation, key, size):
            yield Option(name, key, size, 2.0**power * (_PIPELINE if key == "pp" else 1.0))


def _is_allowed(needs: Needs, evaluation: Evaluation, key: str, size: int) -> bool:
    """Whether a component can have a size: FSDP and DeepSpeed divide by data groups, a node holds a tensor group."""
    entry, shape = evaluation.entry, _shape_of(evaluation.model)
    if key == "fsdp":
        return evaluation.parallel.fsdp > 1 and entry.shards is None
    if not DIVIDED_BY_DATA.isdisjoint({entry.training, entry.forward}):
        return False
    if key == "tp":
        return size <= needs.widest and (shape is None or shape.heads % size == 0)
    if shape is None:
        return False
    if key == "pp":
        has_ends = bool(entry.first_layers or entry.last_layers)
        return shape.layers % size == 0 and not has_ends
    return shape.experts is not None and shape.experts.count % size == 0


def _shape_of(model: Model | None) -> Shape | None:
    return None if model is None else model.shape


def _more_accelerators(needs: Needs, need: Need, options: Sequence[Option]) -> Remedy | None:
    """Return the change to the fewest accelerators that works, alone or else with one of these sizes."""
    name = need.components[0]
    present = len(needs.evaluations[name].component.rows.accelerators())
    if not present:
        return None
    more = [Option(name, ACCELERATORS, present * 2**power, 2.0**power) for power in POWERS]
    sizes = [option for option in options if option.component == name and option.key in SIZES]
    alone = ((option,) for option in more)
    for combination in chain(alone, product(more, sizes)):
        remedy = _remedy(needs, need, combination)
        if remedy is not None:
            return remedy
    return None


def _remedy(needs: Needs, need: Need, options: Sequence[Option]) -> Remedy | None:
    """Return the change if it is possible and the phase does not exceed its accelerator with it."""
    changed = need_with(needs, need, options)
    if changed is None or changed.answer in _EXCEEDS or not _is_written(needs, options):
        return None
    return Remedy(tuple(options), changed)


def _is_written(needs: Needs, options: Sequence[Option]) -> bool:
    """Whether the config can state these values: a trainer may have no key for a setting."""
    return all(needs.written(name, values_of(options, name).settings) is not None for name in components_of(options))

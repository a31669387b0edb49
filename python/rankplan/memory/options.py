"""Other values of the keys of components, and the needs of a plan with them, on the same accelerators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.memory.need import Need
from rankplan.memory.needs import Needs
from rankplan.memory.slots import Evaluation
from rankplan.parallel import Parallel

SIZES = ("tp", "pp", "ep", "fsdp")
ACCELERATORS = "accelerators"
POWERS = range(1, 7)
"""Sizes are tried in multiples of powers of two."""


@frozen
class Option:
    """Another value of a key of a component: of its ``parallel``, of its ``memory``, or its number of accelerators.

    Of several options, that with the smallest ``factor`` is tried first.
    """

    component: str
    key: str
    value: Any
    factor: float = 2.0


class Values(NamedTuple):
    """The values of options of one component, by what they are about."""

    settings: dict[str, Any]
    sizes: dict[str, int]
    accelerators: int | None


def values_of(options: Iterable[Option], component: str) -> Values:
    """Return the values that options have for a component."""
    settings = {option.key: option.value for option in options if option.component == component}
    sizes = {key: settings.pop(key) for key in SIZES if key in settings}
    return Values(settings, sizes, settings.pop(ACCELERATORS, None))


def components_of(options: Iterable[Option]) -> list[str]:
    """Return the components that options are about, each once."""
    return list(dict.fromkeys(option.component for option in options))


def need_with(needs: Needs, need: Need, options: Sequence[Option]) -> Need | None:
    """Return the same phase with other values, ``None`` if its sizes do not divide the slots."""
    changed = _needs_with(needs, options)
    return None if changed is None else changed.phases()[need.components, need.phase]


def is_unstated(needs: Needs, name: str, key: str) -> bool:
    """Whether a component does not state a key that belongs to it."""
    entry = needs.evaluations[name].entry
    if key == "recompute" and entry.kind != "training":
        return False
    return key == "parallel" or getattr(entry, key) is None


def _needs_with(needs: Needs, options: Sequence[Option]) -> Needs | None:
    evaluations: dict[str, Evaluation] = {}
    extended: set[str] = set()
    for name in components_of(options):
        values = values_of(options, name)
        evaluation = _evaluation_with(needs.evaluations[name], values)
        if evaluation is None:
            return None
        evaluations[name] = evaluation
        if values.accelerators is not None:
            extended.add(name)
    return needs.changed(evaluations, extended)


def _evaluation_with(evaluation: Evaluation, values: Values) -> Evaluation | None:
    slots = evaluation.slots
    if values.accelerators is not None:
        slots = slots * values.accelerators // len(evaluation.component.rows.accelerators())
    parallel = _parallel_with(evaluation.parallel, values.sizes, is_extended=values.accelerators is not None)
    if not _is_possible(evaluation, parallel, slots):
        return None
    return evaluation.changed(replace(evaluation.entry, **values.settings), parallel, slots)


def _parallel_with(parallel: Parallel, sizes: Mapping[str, Any], *, is_extended: bool) -> Parallel:
    """Return parallel sizes with some others; the size of a data group then follows from them."""
    if not sizes and not is_extended:
        return parallel
    return replace(parallel, dp=None, **sizes)


def _is_possible(evaluation: Evaluation, parallel: Parallel, slots: int) -> bool:
    """Whether sizes divide the slots: those of the plan in groups that it can have, others evenly."""
    if slots != evaluation.slots:
        return parallel.breaking(slots) is None and (slots // parallel.dense) % parallel.fsdp == 0
    try:
        evaluation.component.with_settings(parallel=parallel)
    except PlacementError:
        return False
    return True

"""A transition as tables and lines, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rankplan.moving.changes import LOST, MOVE, RENAME, RESHAPE, RESTART, START, STOP
from rankplan.moving.peaks import Seconds
from rankplan.moving.simulate import Verified
from rankplan.moving.transition import PlannedStep, Transition
from rankplan.render.tables import table
from rankplan.words import counted, listed

if TYPE_CHECKING:
    from rich.table import Table

KINDS = (RENAME, RESHAPE, RESTART, MOVE, START, STOP, LOST)
"""The kinds of slots that change, in the order of the columns."""

_MOST_STEPS = 48
_GIB = 1 << 30


def slots_table(transition: Transition) -> Table:
    """Return the slots of each component before and after, by what becomes of them, and the bytes that they get."""
    kinds = [kind for kind in KINDS if any(slot.kind == kind for slot in transition.slots)]
    result = table("component", "slots#", "stay#", *(f"{kind}#" for kind in kinds), "gets#")
    for name, (old, new) in transition.sizes.items():
        slots = [slot for slot in transition.slots if slot.component == name]
        counts = Counter(slot.kind for slot in slots)
        numbers = [str(counts[kind] or "") for kind in kinds]
        size = f"{old} -> {new}" if old != new else str(new)
        gets = _bytes_text([slot.bytes for slot in slots if slot.slot is not None])
        result.add_row(name, size, str(transition.stay[name]), *numbers, gets)
    return result


def _bytes_text(sizes: Sequence[int | None]) -> str:
    """Return the sum of bytes as text; it is unknown if one of them is."""
    known = [size for size in sizes if size is not None]
    return gigabytes(sum(known)) if len(known) == len(sizes) else "unknown"


def gigabytes(size: int) -> str:
    """Return bytes as people read them: ``32.8 GB``."""
    if size == 0:
        return ""
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e6:.3g} MB"


def summary_lines(transition: Transition) -> Iterator[str]:
    """Yield what moves over which levels, the answer, and what is unknown."""
    yield from _moved_bytes(transition)
    for name, numbers in transition.names.items():
        if list(numbers) != sorted(numbers):
            order = " ".join(map(str, numbers))
            yield f"{name}: its sets of data groups get the numbers {order}, so that less moves"
    for name in transition.rollback:
        yield f"{name} loads its last checkpoint: no slot that is left has all of its states"
    converted = sorted({move.component for move in transition.moves if move.converts})
    if converted:
        yield f"{', '.join(converted)}: the senders have another precision"
    if transition.offload:
        yield f"{gigabytes(transition.offload)} sleep on their hosts on the way"
    yield answer_line(transition)
    if not transition.optimal:
        yield "the search was bounded: other names or sleepers may move less"


def _moved_bytes(transition: Transition) -> Iterator[str]:
    """Yield the bytes that move, if any do, by the level that they cross; and those that stay."""
    total = transition.total
    if total is None:
        yield f"{counted(len(transition.moves), 'move')} of unknown bytes: state `memory` of the components"
    elif total:
        levels = ", ".join(f"{gigabytes(size)} {level}" for level, size in transition.by_level.items() if size)
        stays = f"; {gigabytes(transition.kept)} stay where they are" if transition.kept else ""
        yield f"{gigabytes(total)} move ({levels}){stays}"


def answer_line(transition: Transition) -> str:
    """Return whether the steps fit."""
    if not transition.steps:
        return "nothing to do"
    if transition.answer == "fits":
        return "fits: no order of the steps exceeds an accelerator"
    places = listed([f"{node}/{index}" for node, index in dict.fromkeys(transition.unknown)], 4)
    if not places:
        return "unknown: an upper bound is missing"
    return f"unknown: by the upper bounds, accelerators may be exceeded on the way: {places}"


def seconds_lines(transition: Transition) -> Iterator[str]:
    """Yield the seconds of the whole transition, and the costs that they lack."""
    if not transition.steps:
        return
    low, high = transition.seconds
    if high is None:
        yield f"at least {low:.3g} s" if low else "seconds: unknown"
        yield f"missing in --costs: {listed(list(transition.missing), 6)}"
    else:
        ends = dict.fromkeys([f"{low:.3g}", f"{high:.3g}"])
        yield f"{' to '.join(ends)} s"


def steps_table(transition: Transition) -> Table:
    """Return the steps in a safe order, with what each waits for."""
    result = table("step", "slots", "after", "seconds#")
    for step in transition.steps[:_MOST_STEPS]:
        result.add_row(step.id, _slots_text(step), _needs_text(step), _seconds_text(step.seconds))
    return result


def steps_more(transition: Transition) -> str | None:
    """Return the number of steps that the table leaves out, if there are any."""
    more = len(transition.steps) - _MOST_STEPS
    return f"and {counted(more, 'step')} more: --format json has all" if more > 0 else None


def _slots_text(step: PlannedStep) -> str:
    if not step.slots:
        return ""
    first, last = step.slots[0], step.slots[-1]
    if len(step.slots) == 1:
        return str(first)
    return f"{first}-{last}" if last - first + 1 == len(step.slots) else listed(list(map(str, step.slots)), 4)


def _needs_text(step: PlannedStep) -> str:
    return listed(step.needs, 3)


def _seconds_text(seconds: Seconds) -> str:
    low, high = seconds
    if high is None:
        return f"{low:.3g}-?" if low else "?"
    if not high:
        return ""
    return "-".join(dict.fromkeys([f"{low:.3g}", f"{high:.3g}"]))


def verified_lines(verified: Verified) -> Iterator[str]:
    """Yield the breaches of the invariants, or that there are none."""
    orders = "in every order" if verified.every_order else "in random orders"
    if not verified.breaches:
        yield f"verified: all nine invariants hold {orders} ({counted(verified.states, 'state')})"
    for breach in verified.breaches:
        yield f"breach {breach}"


def transition_json(transition: Transition) -> str:
    """Return the transition as JSON; its schema is `rankplan.moving.schema.transition_schema`."""
    return json.dumps(transition.to_dict(), indent=2) + "\n"

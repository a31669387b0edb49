"""What each phase of a plan needs, as lines and as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rankplan.hardware.cards import known_cards, size_text
from rankplan.memory.deciding import explained, keys_text
from rankplan.memory.need import SWITCH, Need
from rankplan.memory.needs import Needs
from rankplan.memory.settings import GIB
from rankplan.memory.shared_cards import USUAL_CARD
from rankplan.memory.verdicts import assumed_text
from rankplan.words import listed

_HEADER = ("component", "phase", "at least", "likely", "at most", "of", "answer", "host of a node")
_STATE_MODEL = (
    "state `model` and, for each component, `memory`: {training: megatron}, {engine: vllm}, ...; in the config of a "
    "trainer, name a model that rankplan knows"
)
_NUMBERS = ("at least", "likely", "at most", "of", "host of a node")


def plain_needs(needs: Needs) -> list[dict[str, Any]]:
    """Return the need of each phase, for JSON."""
    return [need.plain() for need in explained(needs)]


def memory_lines(needs: Needs) -> list[str]:
    """Return a table of the phases of a plan, and what caches hold."""
    phases = list(needs.phases().values())
    if not phases:
        help = needs.state_instead or _STATE_MODEL
        nothing = [] if needs.uncounted else [f"memory: no component says what it keeps; {help}"]
        return [*nothing, *_silent(needs)]
    reserved = [f"other programs: {size_text(needs.reserve)} of each accelerator"] if needs.reserve else []
    table = _table([_cells(need) for need in phases])
    lines = [*table, *reserved, *_caches(needs, phases), *_assumptions(needs, phases), *_silent(needs)]
    return [*lines, *_fitting_cards(needs, phases)]


def unknown_lines(needs: Needs) -> Iterator[str]:
    """Yield what decides each phase that is unknown."""
    for need in explained(needs):
        if need.answer == "unknown":
            yield f"{' and '.join(need.components)}, {need.phase}: unknown; {keys_text(needs, need)}"


def need_cells(need: Need | None) -> list[str]:
    """Return the cells of the columns ``needs`` and ``of``."""
    return ["", ""] if need is None else [_range(need.lower, need.upper), _card(need)]


def _card(need: Need) -> str:
    return size_text(need.card[1]) if need.card else "unknown"


def _cells(need: Need) -> tuple[str, ...]:
    name = need.components[0] if len(need.components) == 1 else " and ".join(need.components)
    host = _range(*need.host) if need.host[1] else ""
    answer = f"{need.answer}, measured" if need.measured else need.answer
    return name, need.phase, _size(need.lower), _size(need.likely), _size(need.upper), _card(need), answer, host


def _size(size: float | None) -> str:
    return "?" if size is None or math.isinf(size) else size_text(size)


def _range(lower: float, upper: float) -> str:
    if lower == upper:
        return size_text(lower)
    most = "" if math.isinf(upper) else f" - {upper / GIB:,.1f}"
    return f"{lower / GIB:,.1f}{most} GiB" + (" or more" if math.isinf(upper) else "")


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    rows = [_HEADER, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    for row in rows:
        cells = (
            cell.rjust(width) if name in _NUMBERS else cell.ljust(width)
            for name, cell, width in zip(_HEADER, row, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _caches(needs: Needs, phases: list[Need]) -> Iterator[str]:
    for need in phases:
        if need.tokens is None or math.isinf(need.tokens[1]) or need.phase == SWITCH:
            continue
        low, high = map(int, need.tokens)
        length = needs.evaluations[need.components[0]].entry.length
        requests = f", {_between(low // length, high // length)} requests of {length:,}" if length else ""
        yield f"{need.components[0]}: {_between(low, high)} tokens of cache on an engine{requests}"


def _assumptions(needs: Needs, phases: list[Need]) -> Iterator[str]:
    for need in phases:
        assumed = assumed_text(needs, need)
        if assumed and need.answer.startswith("likely"):
            yield f"{' and '.join(need.components)}, {need.phase}: {assumed}"


def _fitting_cards(needs: Needs, phases: list[Need]) -> Iterator[str]:
    """Yield the cards that all phases likely fit on, if the accelerators of the plan are unknown.

    A larger card never worsens an answer, so the smallest one decides.
    """
    if all(need.card is not None for need in phases):
        return
    if any(need.card is None and need.phase == "generate" for need in phases):
        yield f"an engine takes a share: its numbers are those of an accelerator of {size_text(USUAL_CARD)}"
    cards = known_cards()
    for index, card in enumerate(cards):
        if index and cards[index - 1].size == card.size:
            continue
        answers = {need.answer for need in needs.on_cards_of(card.size).phases().values()}
        if answers <= {"fits", "likely fits"}:
            names = listed([other.name for other in cards[index:]], 8, noun="card")
            yield f"likely fits accelerators of {size_text(card.size)} or more: {names}"
            return
    if "unknown" not in answers:
        yield f"likely fits no accelerator of up to {size_text(cards[-1].size)}"


def _between(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _silent(needs: Needs) -> Iterator[str]:
    """Yield the components that are not counted, by the reason."""
    by_keys: dict[tuple[str, ...], list[str]] = {}
    for name, keys in needs.uncounted.items():
        by_keys.setdefault(tuple(keys), []).append(name)
    for keys, names in by_keys.items():
        texts = ", ".join(f"`{key}`" for key in keys)
        yield f"not counted, since the effect of {texts} is unknown: {', '.join(names)}"
    others = [name for name in needs.silent if name not in needs.uncounted]
    if others and needs.evaluations:
        yield f"not counted, since they state no `memory`: {', '.join(others)}"

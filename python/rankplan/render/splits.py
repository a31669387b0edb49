"""The splits of an asynchronous run as a table, as sentences and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rankplan.render.tables import table
from rankplan.tuning.schedule import seconds_text
from rankplan.tuning.splits import AsyncTuning, Known, SplitTime, Verdict
from rankplan.words import counted

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = ("split", "staleness#", "step#", "range#", "trainer waits#", "rollout idle#", "gain#", "known by")


def splits_table(tuning: AsyncTuning) -> Table:
    """Return a row for each split. An ``*`` marks times that are far from every measured size."""
    result = table(*_COLUMNS)
    for row in tuning.rows:
        gain = tuning.gain(row)
        result.add_row(
            f"{split_text(row)}{'*' if row.far else ''}",
            "-" if row.staleness is None else f"{row.staleness:g}",
            seconds_text(row.seconds),
            "" if row.known is Known.MEASURED else _range_text(row),
            _optional(row.wait),
            _optional(row.idle),
            "" if gain is None else f"{gain[0]:.1f}x",
            row.known.value,
        )
    return result


def split_text(row: SplitTime) -> str:
    """Return a split as people write it: ``32:32``, ``2:1 lend`` or ``colocated``."""
    if row.split is None:
        return "colocated" if row.known is Known.MEASURED else "colocated, in turns"
    trainer, rollout = row.split
    return f"{trainer}:{rollout}{' lend' if row.lends else ''}"


def splits_lines(tuning: AsyncTuning) -> Iterator[str]:
    """Yield what the ranges tell apart, which run would tell more, and what nobody knows before the run."""
    yield from _against_colocated(tuning)
    yield from _sure_rows(tuning)
    yield from _undecided(tuning)
    if any(row.far for row in tuning.rows):
        yield "*: far from the accelerators of every run"
    if tuning.left_out:
        splits = counted(tuning.left_out, "split")
        yield f"left out: {splits} with far fewer or more accelerators than every run; --extrapolate shows them"
    terms = tuning.terms
    yield f"a split is {terms.trainer}:{terms.rollout}; the staleness that a run reaches is at most the one stated"
    yield "unknown: rewards, other lengths of responses, other parallel sizes or precision, checkpoints, environments"


def _against_colocated(tuning: AsyncTuning) -> Iterator[str]:
    """Yield which rows are faster or slower than the colocated run, and which are not told apart from it."""
    if tuning.baseline is None:
        yield f"no colocated run on {counted(tuning.accelerators, 'accelerator')} was measured, so no gain is known"
        return
    others = [row for row in tuning.rows if row is not tuning.baseline]
    yield from _told_apart(tuning, tuning.baseline, others)
    if undecided := tuning.against_baseline(Verdict.UNDECIDED):
        seconds = seconds_text(tuning.baseline.seconds)
        yield f"undecided: {_names(undecided, tuning)} against colocated: {seconds} is inside the range"


def _told_apart(tuning: AsyncTuning, reference: SplitTime, rows: Sequence[SplitTime]) -> Iterator[str]:
    """Yield which rows are faster or slower than another one."""
    seconds = f"{seconds_text(reference.low)}"
    if reference.high > reference.low:
        seconds = f"{_range_text(reference)}"
    for verdict, side in ((Verdict.FASTER, "below"), (Verdict.SLOWER, "above")):
        if chosen := [row for row in rows if row.against(reference) is verdict]:
            verb, whole = (
                ("is", "its whole range is") if len(_groups(chosen)) == 1 else ("are", "their whole ranges are")
            )
            name = "colocated" if reference.split is None else _name(reference, tuning)
            yield f"{_names(chosen, tuning)} {verb} {verdict.value} than {name}: {whole} {side} {seconds}"


def _sure_rows(tuning: AsyncTuning) -> Iterator[str]:
    """Yield which rows are not told apart from the fastest one of their kind, and which guesses are."""
    for known in (Known.MEASURED, Known.NEAR):
        rows = [row for row in tuning.separate if row.known is known]
        undecided = [row for row in rows[1:] if row.against(rows[0]) is Verdict.UNDECIDED]
        if undecided:
            yield f"undecided: {_names(undecided, tuning)} against {_name(rows[0], tuning)}: their ranges overlap"
    first = next((row for row in tuning.separate if row.known is not Known.GUESS), None)
    if first is not None:
        yield from _told_apart(tuning, first, [row for row in tuning.separate if row.known is Known.GUESS])


def _undecided(tuning: AsyncTuning) -> Iterator[str]:
    """Yield which splits only another measurement tells apart."""
    if tuning.measure is None:
        return
    run = f"measure one step of {_name(tuning.measure, tuning)}"
    if tuning.measure.split is not None:
        run += ", with `wait` and `train`"
    if others := tuning.undecided:
        split = split_text(tuning.measure)
        verb = "is" if len(_groups(others)) == 1 else "are"
        yield f"undecided: {_names(others, tuning)} {verb} not told apart from {split}: {run}"
    else:
        yield f"to know more, {run}"


def _groups(rows: Sequence[SplitTime]) -> dict[str, list[SplitTime]]:
    """Return the rows by split."""
    groups: dict[str, list[SplitTime]] = {}
    for row in rows:
        groups.setdefault(split_text(row), []).append(row)
    return groups


def _names(rows: Sequence[SplitTime], tuning: AsyncTuning) -> str:
    """Return the splits of some rows, with their staleness unless all rows of the split are among them."""
    texts = []
    for split, members in _groups(rows).items():
        others = [row for row in tuning.rows if split_text(row) == split and row not in members]
        levels = [f"{row.staleness:g}" for row in members if row.staleness is not None]
        texts.append(f"{split} (staleness {', '.join(levels)})" if others and levels else split)
    return ", ".join(texts)


def _name(row: SplitTime, tuning: AsyncTuning) -> str:
    """Return the split of a row, with its staleness if there are several."""
    levels = {other.staleness for other in tuning.rows if other.split == row.split}
    if row.staleness is None or len(levels) == 1:
        return split_text(row)
    return f"{split_text(row)} with staleness {row.staleness:g}"


def _range_text(row: SplitTime) -> str:
    low, high = seconds_text(row.low), seconds_text(row.high)
    return f"{low.removesuffix(' s')}-{high}"


def _optional(seconds: float | None) -> str:
    return "" if seconds is None else seconds_text(seconds)


def splits_json(tuning: AsyncTuning) -> str:
    """Return the rows as JSON; its schema is `rankplan.tuning.schema.splits_schema`."""
    terms = tuning.terms
    measure = tuning.measure
    content = {
        "mode": "async",
        "rule": terms.rule.value,
        "trainer": terms.trainer,
        "rollout": terms.rollout,
        "accelerators": tuning.accelerators,
        "rows": [_row(row, tuning) for row in tuning.rows],
        "undecided": [_reference(row) for row in tuning.undecided],
        "measure": None if measure is None else _reference(measure),
        "left_out": tuning.left_out,
        "warnings": [{"code": warning.code, "message": warning.message} for warning in tuning.warnings],
    }
    return json.dumps(content, indent=2) + "\n"


def _reference(row: SplitTime) -> dict[str, Any]:
    """Return a row by its split and its staleness."""
    split = None if row.split is None else {"trainer": row.split[0], "rollout": row.split[1]}
    return {"split": split, "staleness": row.staleness, "lend": row.lends}


def _row(row: SplitTime, tuning: AsyncTuning) -> dict[str, Any]:
    gain = tuning.gain(row)
    return _reference(row) | {
        "seconds": row.seconds,
        "low": row.low,
        "high": row.high,
        "train": row.training,
        "generate": row.generation,
        "wait": row.wait,
        "idle": row.idle,
        "pace": _pace(row, tuning),
        "gain": None if gain is None else dict(zip(("usual", "low", "high"), gain, strict=True)),
        "known": row.known.value,
        "against_colocated": _verdict(row, tuning),
        "extrapolated": row.far,
    }


def _pace(row: SplitTime, tuning: AsyncTuning) -> str | None:
    """Return the component whose part of a step is the longer one, ``None`` if one of them is unknown."""
    if row.training is None or row.generation is None:
        return None
    terms = tuning.terms
    return terms.trainer if row.training >= row.generation else terms.rollout


def _verdict(row: SplitTime, tuning: AsyncTuning) -> str | None:
    if tuning.baseline is None or row is tuning.baseline:
        return None
    return row.against(tuning.baseline).value

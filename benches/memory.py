"""Compare the bounds of memory with published runs and public estimators, and time them at scale.

``python benches/memory.py`` prints one table: rows by kind, how many were refused, fit or are unknown, how many
measured values are inside the bounds, and the bounds as parts of them: the least, the median and the most.
``--answers`` prints how often each answer is right, by system. ``--likely`` prints the error of the likely value
against measured peaks: as it is, and with numbers that are fitted again to the other rows.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import numpy
import rankplan
from rankplan._core import engine_memory, training_likely, training_memory
from rankplan.memory.settings import GIB
from rankplan.memory.usual import usual_training
from support import memory_grid
from support.goldens import lines
from support.memory_answers import Case, case_of_report, case_of_row, verdict_of
from support.memory_rows import engine_of, judge, model_of, peak, training_of

Row = dict[str, Any]
WIDTHS = (26, 6, 9, 6, 9, 8, 20, 20)
HEADER = ("", "rows", "refused", "fits", "unknown", "inside", "lower", "upper")


def line(*cells: object) -> str:
    """Return a row of the table."""
    first, *others = (str(cell) for cell in cells)
    numbers = (text.rjust(width) for text, width in zip(others, WIDTHS[1:], strict=False))
    return "".join([first.ljust(WIDTHS[0]), *numbers]).rstrip()


def spread(parts: Sequence[float]) -> str:
    """Return the least, the median and the most of some parts."""
    known = [part for part in parts if math.isfinite(part)]
    return f"{min(known):.2f} {median(known):.2f} {max(known):.2f}" if known else "-"


def compared(name: str, found: Sequence[tuple[float, float, float]]) -> str:
    """Return the row of values that are measured, with their bounds."""
    inside = sum(low <= size <= high for size, low, high in found)
    lower, upper = ([one[at] / one[0] for one in found] for at in (1, 2))
    return line(name, len(found), "", "", "", inside, spread(lower), spread(upper))


def answers(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a row for the runs, and one for the misfits."""
    judged = [row for row in rows if "model" in row]
    for words, name in ((("fits",), "ran"), (("misfit", "misfit-assumed"), "did not fit")):
        chosen = [row for row in judged if row["answer"].get("verdict") in words]
        found = Counter(judge(row).answer for row in chosen)
        yield line(name, len(chosen), found["refused"], found["fits"], found["unknown"])


def trained(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rows of measured trainers: peaks, states, whole cards and limits."""
    peaks = [(row["answer"]["peak_bytes"], *peak(row)) for row in rows if row["kind"] == "train-peak"]
    yield compared("measured peaks", peaks)
    yield compared("  above 8 GiB", [one for one in peaks if one[0] > 8 * GIB])
    measured = [(row["answer"]["peak_bytes"], *peak(row)) for row in lines("fsdp_peaks")]
    yield compared("  of FSDP on one card", measured)
    steady = []
    for row in (row for row in rows if row["answer"].get("steady_bytes")):
        parts = training_memory(model_of(row), training_of(row))[-1][0]
        lower = sum(low for name, _, low, _ in parts if name in memory_grid.STATES)
        upper = sum(high for name, _, _, high in parts if name not in ("activations", "logits"))
        steady.append((row["answer"]["steady_bytes"], lower, upper))
    yield compared("measured steady states", steady)
    whole = [row for row in rows if row["kind"] == "measured"]
    sizes = [(row["answer"].get("used_gib") or row["answer"]["reserved_gib"]) * GIB for row in whole]
    yield compared("measured cards", [(size, *_bounds(row)) for size, row in zip(sizes, whole, strict=True)])
    limits = [row for row in rows if row["kind"] == "below"]
    yield compared(
        "recorded limits (lower)", [(row["answer"]["below_gb"] * 1e9, _bounds(row)[0], math.inf) for row in limits]
    )


def _bounds(row: Row) -> tuple[float, float]:
    verdict = judge(row)
    return verdict.lower, verdict.upper


def served(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rows of measured engines: caches, weights, and bytes of a token."""
    caches, weights, tokens, asleep = [], [], [], []
    for row in rows:
        engine, answer = engine_of(row) if "model" in row and row.get("engine") else None, row["answer"]
        if engine is None:
            continue
        parts, slept, _, token, held, _ = engine_memory(model_of(row), engine, row["card"]["gib"] * GIB)
        if row["kind"] == "kv-batch" and engine.length is not None:
            caches.append((answer["sequences"] * engine.length, held[0] - engine.length, held[1]))
        if "weights_gib" in answer:
            weights.append((answer["weights_gib"] * GIB, parts[0][2] - 0.02 * GIB, parts[0][3]))
        if {"kv_gib", "kv_tokens"} <= answer.keys() and engine.tp == 1:
            tokens.append((answer["kv_gib"] * GIB / answer["kv_tokens"], 0.99 * token, 1.01 * token))
        if row["kind"] == "asleep":
            asleep.append((answer["resident_gib"] * GIB, *slept))
    yield compared("measured caches", caches)
    yield compared("weights in logs", weights)
    yield compared("bytes of a token, 1 %", tokens)
    yield compared("sleeping engines", asleep)


def estimated() -> Iterator[str]:
    """Yield the rows of public estimators: the least of the states as a part of what they answer."""
    rows = lines("memory_grid")
    for name in dict.fromkeys(row["estimator"] for row in rows):
        chosen = [row for row in rows if row["estimator"] == name]
        key = "gpu_bytes" if name.startswith("deepspeed") else "states_bytes"
        names = (*memory_grid.STATES, "gathered", "copies at the step")
        found = [(row[key], *memory_grid.bounds(row, *names)) for row in chosen]
        lower, upper = ([one[at] / one[0] for one in found] for at in (1, 2))
        yield line(name, len(found), "", "", "", "", spread(lower), spread(upper))


def scale(nodes: int) -> str:
    """Return the time of a plan with 32 stages, and of its memory."""
    memory = {"training": "megatron", "tokens": 4096, "recompute": "full"}
    entry = {"placement": "all", "parallel": {"tp": 8, "pp": 32}, "memory": memory}
    cluster = {"num_nodes": nodes, "model": "Qwen/Qwen2.5-32B", "accelerator_memory": "80 GiB"}
    start = perf_counter()
    plan = rankplan.plan({"cluster": cluster | {"component_placement": {"actor": entry}}}, f"{nodes}x8")
    between = perf_counter()
    plan.memory()
    end = perf_counter()
    slots = f"{nodes * 8:,} slots, 32 stages"
    return f"{slots:<34}plan {1e3 * (between - start):.0f} ms, memory {1e3 * (end - between):.0f} ms"


class Peak(NamedTuple):
    """A measured peak, and what the likely value of its last rank consists of, in bytes.

    ``fixed`` are the parts without a fitted number, ``fitted`` those with one.
    """

    model: str
    size: float
    fixed: float
    fitted: tuple[float, ...]


FITTED = ("activations", "logits", "copies at the step")


def measured_peaks(rows: Sequence[Row]) -> list[Peak]:
    """Return the peaks of some rows."""
    peaks = []
    for row in rows:
        training, _ = usual_training(training_of(row))
        parts = {name: size for name, _, size in training_likely(model_of(row), training)[-1][0]}
        fitted = tuple(parts.pop(name, 0.0) for name in FITTED)
        peaks.append(Peak(str(row["model"]), row["answer"]["peak_bytes"], sum(parts.values()), fitted))
    return peaks


def refitted(peaks: Sequence[Peak]) -> numpy.ndarray:
    """Return by what the fitted numbers would be multiplied, with the least squares of relative errors."""
    sizes = numpy.array([peak.size for peak in peaks])
    matrix = numpy.array([peak.fitted for peak in peaks]) / sizes[:, None]
    rest = (sizes - [peak.fixed for peak in peaks]) / sizes
    return numpy.linalg.lstsq(matrix, rest, rcond=None)[0]


def errors(peaks: Sequence[Peak], factors: numpy.ndarray) -> list[float]:
    """Return the relative errors of the likely values with other numbers."""
    return [abs((peak.fixed + numpy.dot(peak.fitted, factors)) / peak.size - 1) for peak in peaks]


def likely(name: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the errors of a framework: as it is, without each row, and without the rows of each model."""
    peaks = measured_peaks(rows)
    without_row, without_model = [], []
    for index, measured in enumerate(peaks):
        without_row += errors([measured], refitted([*peaks[:index], *peaks[index + 1 :]]))
        others = [other for other in peaks if other.model != measured.model]
        without_model += errors([measured], refitted(others))
    for text, found in (
        ("", errors(peaks, numpy.ones(len(FITTED)))),
        (", without the row", without_row),
        (", without its model", without_model),
    ):
        tenth, half = (100 * numpy.percentile(found, part) for part in (90, 50))
        yield f"| {name}{text} | {len(peaks)} | {half:.0f} % | {tenth:.0f} % |"


def likely_table() -> Iterator[str]:
    """Yield the table of the errors of likely values."""
    yield "| | peaks | median error | 90 % are below |"
    yield "|---|--:|--:|--:|"
    yield from likely("Megatron", [row for row in lines("memory_rows") if row["kind"] == "train-peak"])
    yield from likely("FSDP2 on one card", lines("fsdp_peaks"))


def right(name: str, cases: Sequence[Case]) -> str:
    """Return the row of a system's cases: how many, how many are answered, and how many of these are right."""
    answered = [case for case in cases if case.is_answered]
    return line(name, len(cases), len(answered), sum(case.is_right for case in answered))


def answer_table() -> Iterator[str]:
    """Yield a table of answers about published runs, and about reports, by system."""
    rows = [case_of_row(row) for row in lines("memory_rows") if verdict_of(row)]
    with TemporaryDirectory() as folder:
        reports = [case_of_report(row, Path(folder)) for row in lines("memory_reports") if verdict_of(row)]
    for name, cases in (("runs", rows), ("reports", reports)):
        yield line(name, "cases", "answered", "right")
        for system in sorted({case.system for case in cases}):
            yield right(f"  {system}", [case for case in cases if case.system == system])
        yield right("  all", cases)


def main() -> None:
    """Print the table."""
    if "--answers" in sys.argv[1:]:
        print("\n".join(answer_table()))
        return
    if "--likely" in sys.argv[1:]:
        print("\n".join(likely_table()))
        return
    rows = lines("memory_rows")
    print(line(*HEADER))
    for text in (*answers(rows), *trained(rows), *served(rows), *estimated(), "", scale(8192), scale(131_072)):
        print(text)


if __name__ == "__main__":
    main()

"""Compare the bounds of memory with published runs, and time them at scale.

``python benches/memory.py`` prints one table: rows by kind, how many were refused, fit or are unknown, how many
measured values are inside the bounds, and how near the bounds are.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import rankplan
from rankplan._core import engine_memory
from rankplan.memory.settings import GIB
from support.goldens import lines
from support.memory_rows import engine_of, judge, model_of, peak

COLUMNS = f"{'':<34}{'rows':>6}{'refused':>9}{'fits':>6}{'unknown':>9}"


def answers(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for the runs, and one for the misfits."""
    judged = [row for row in rows if "model" in row]
    for words, name in ((("fits",), "ran"), (("misfit", "misfit-assumed"), "did not fit")):
        chosen = [row for row in judged if row["answer"].get("verdict") in words]
        found = Counter(judge(row).answer for row in chosen)
        yield f"{name:<34}{len(chosen):>6}{found['refused']:>9}{found['fits']:>6}{found['unknown']:>9}"


def peaks(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how many measured peaks are inside the bounds, and the bounds as parts of them."""
    chosen = [(row["answer"]["peak_bytes"], *peak(row)) for row in rows if row["kind"] == "train-peak"]
    for name, least in (("measured peaks", 0), ("of them above 8 GiB", 8 * GIB)):
        some = [(low / size, high / size) for size, low, high in chosen if size > least]
        inside = sum(low <= 1 <= high for low, high in some)
        lower, upper = zip(*some, strict=True)
        low, high = (f"{min(part):.2f} to {max(part):.2f}, median {median(part):.2f}" for part in (lower, upper))
        yield f"{name:<34}{len(some):>6}  inside {inside}; lower {low}; upper {high}"


def caches(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how many measured caches are inside the bounds."""
    inside, low, high = 0, [], []
    chosen = [row for row in rows if row["kind"] == "kv-batch"]
    for row in chosen:
        engine = engine_of(row)
        if engine is None or engine.length is None:
            continue
        tokens = engine_memory(model_of(row), engine, row["card"]["gib"] * GIB)[4]
        measured = row["answer"]["sequences"] * engine.length
        inside += tokens[0] < measured + engine.length and measured <= tokens[1]
        low.append(tokens[0] / measured)
        high.append(tokens[1] / measured)
    bounds = f"lower {min(low):.2f} to {max(low):.2f}; upper {min(high):.2f} to {max(high):.2f}"
    yield f"{'measured caches':<34}{len(chosen):>6}  inside {inside}; {bounds}"


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


def main() -> None:
    """Print the table."""
    rows = lines("memory_rows")
    print(COLUMNS)
    for line in (*answers(rows), *peaks(rows), *caches(rows), scale(8192), scale(131_072)):
        print(line)


if __name__ == "__main__":
    main()

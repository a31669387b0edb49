"""The whole path from Python: config to rows, beside the oracle of the tests (a plain reading of the same rules).

``python benches/whole_path.py`` prints one table; every ratio is taken within this one run.
"""

from __future__ import annotations

import contextlib
import gc
import math
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import oracle
from rankplan import ComponentPlacement, Inventory, PlacementError


def best(work: Callable[[], Any], seconds: float = 1.0) -> float:
    """Return the shortest time of one call, in seconds, out of as many as fit in ``seconds`` (at least three)."""
    times: list[float] = []
    start = time.perf_counter()
    gc.disable()
    while len(times) < 3 or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        work()
        times.append(time.perf_counter() - before)
    gc.enable()
    return min(times)


def config(nodes: int, text: str) -> dict[str, Any]:
    """Return a config of one component."""
    return {"cluster": {"num_nodes": nodes, "component_placement": {"actor": text}}}


def plan_rows(content: dict[str, Any], inventory: Inventory) -> Any:
    """Do what a trainer does before it launches."""
    return ComponentPlacement(content, inventory).get_strategy("actor").get_placement(inventory)


def oracle_rows(content: dict[str, Any], nodes: int) -> Any:
    """Do the same in plain Python."""
    return oracle.plan(content["cluster"], {"nodes": [{"ranks": f"0-{nodes - 1}", "accelerators": 8}]})


def line(name: str, seconds: float, reference: float | None = None, note: str = "") -> None:
    """Print a row of the table."""
    ratio = f"{reference / seconds:>10,.0f}x" if reference else " " * 11
    print(f"{name:<46}{1000 * seconds:>12.3f} ms{ratio}  {note}")


def main() -> None:
    """Print the table."""
    print(f"{'':<46}{'time':>15}{'oracle is':>12} slower")
    nodes = 1024
    inventory = Inventory.uniform(nodes, 8)
    for name, text in (
        ("one process each", "all"),
        ("4 processes each", f"all:0-{4 * 8 * nodes - 1}"),
        ("8 each process", f"all:0-{nodes - 1}"),
        ("8,192 segments", ",".join(map(str, range(8 * nodes)))),
    ):
        content = config(nodes, text)
        plain = best(lambda content=content: oracle_rows(content, nodes), 0)
        # A fresh inventory each time would measure its making too, which a trainer does once.
        line(f"8,192 accelerators, {name}", best(lambda content=content: plan_rows(content, inventory)), plain)

    times = []
    for size in (1_250, 12_500, 125_000):
        inventory = Inventory.uniform(size, 8)
        content = config(size, "all")
        times.append(best(lambda content=content, inventory=inventory: plan_rows(content, inventory)))
        line(f"{8 * size:,} accelerators, one process each", times[-1])
    exponent = math.log10(times[-1] / times[0]) / 2
    print(f"{'growth from 10^4 to 10^6':<46}{exponent:>12.2f} (exponent; 1 is linear)")

    faulty = []
    for size in (1_250, 125_000):
        inventory = Inventory.uniform(size, 8)
        content = config(size, ",".join(str(8 * size - 1 - rank) for rank in range(8 * size)))

        def refuse(content: dict[str, Any] = content, inventory: Inventory = inventory) -> None:
            with contextlib.suppress(PlacementError):
                plan_rows(content, inventory)

        faulty.append(best(refuse))
        line(f"{8 * size:,} segments in descending order, refused", faulty[-1])
    print(f"{'growth from 10^4 to 10^6, refused':<46}{math.log10(faulty[-1] / faulty[0]) / 2:>12.2f}")

    inventory = Inventory.uniform(131_072, 8)
    content = config(131_072, "all")
    tracemalloc.start()
    rows = plan_rows(content, inventory)
    python_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    start = time.perf_counter()
    oracle_rows(content, 131_072)
    plain = time.perf_counter() - start
    line("1,048,576 processes on 131,072 nodes", best(lambda: plan_rows(content, inventory)), plain)
    reading = best(lambda: [row.local_rank for row in rows])
    line("reading a field of every row", reading, note=f"{1e9 * reading / len(rows):.0f} ns a row")
    print(f"{'memory':<46}{rows.nbytes / len(rows):>12.1f} bytes a row, {python_bytes:,} bytes of Python objects")

    command = "import sys, rankplan; sys.exit('ray' in sys.modules)"
    imported = best(lambda: subprocess.run([sys.executable, "-c", command], check=True), 2)
    bare = best(lambda: subprocess.run([sys.executable, "-c", "import sys"], check=True), 2)
    line("import rankplan (Ray not imported)", imported - bare)


if __name__ == "__main__":
    main()

"""Time plans for 8 to 1,048,576 accelerators, valid and faulty, and compare with the oracle of the tests.

``python benches/large_cluster.py`` prints the tables; every ratio comes from this one run. ``--largest N`` skips larger
sizes, and ``--write`` (requires matplotlib) writes docs/scale.md and docs/scale.svg.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import math
import platform
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from rankplan import ComponentPlacement, Inventory, PackedPlacementStrategy, PlacementError, Plan
from support import oracle
from timing import best, first

DOCS = Path(__file__).resolve().parent.parent / "docs"
SIZES = (8, 1_024, 8_192, 131_072, 1_048_576)
EACH = 8  # accelerators per node
LARGEST_OF_ORACLE = 131_072  # its rows are dicts of 1.3 KiB
PATIENCE = 20.0  # seconds for one answer of the oracle, whose time grows with the square of the size for some faults

Work = Callable[[Inventory], Any]
"""A measured call: it plans on an inventory and returns the plan or the rows."""


@dataclass(frozen=True)
class Case:
    """A named placement on ``size`` accelerators, for rankplan and for the oracle."""

    name: str
    ours: Callable[[int], Work]
    plain: Callable[[int], Callable[[], Any]]
    smallest: int = EACH


@dataclass
class Measured:
    """Seconds by size for rankplan and the oracle, seconds of a first call at the largest size, and bytes per row."""

    case: Case
    ours: dict[int, float] = field(default_factory=dict)
    plain: dict[int, float] = field(default_factory=dict)
    first: float = 0.0
    bytes_per_row: float | None = None

    @property
    def exponent(self) -> float | None:
        """Growth from the third size to the largest: 1 is linear."""
        first, last = SIZES[2], max(self.ours)
        return math.log(self.ours[last] / self.ours[first]) / math.log(last / first) if last > first else None


def of_text(name: str, section: Callable[[int], dict[str, Any]], smallest: int = EACH) -> Case:
    """Return the case of a config with these components (and node groups)."""

    def cluster(size: int) -> dict[str, Any]:
        found = section(size)
        found = found if "component_placement" in found else {"component_placement": found}
        return {"num_nodes": size // EACH, **found}

    def ours(size: int) -> Work:
        config = {"cluster": cluster(size)}
        return lambda inventory: ComponentPlacement(config, inventory).plan()

    def plain(size: int) -> Callable[[], Any]:
        config, inventory = cluster(size), {"nodes": [{"ranks": f"0-{size // EACH - 1}", "accelerators": EACH}]}
        return lambda: oracle.plan(config, inventory)

    return Case(name, ours, plain, smallest)


def of_packed(name: str, ranks: Callable[[int], tuple[int, int]], smallest: int = EACH) -> Case:
    """Return the case of a packed strategy from the first to the last rank, two per process with a stride of two."""

    def ours(size: int) -> Work:
        first, last = ranks(size)
        return lambda inventory: PackedPlacementStrategy(first, last, 2, 2).get_placement(inventory)

    def plain(size: int) -> Callable[[], Any]:
        inventory = {"nodes": [{"ranks": f"0-{size // EACH - 1}", "accelerators": EACH}]}
        section = {"num_nodes": size // EACH, "component_placement": {}}
        return lambda: oracle.packed(*ranks(size), 2, 2, oracle.topology(inventory, section, ["cluster"]))

    return Case(name, ours, plain, smallest)


def by_node(size: int, past: int = 0) -> dict[str, Any]:
    """Return a component placed by node, one process per accelerator, on ``past`` more nodes than the cluster has."""
    return {"agent": {"node_group": "node", "placement": f"0-{size // EACH - 1 + past}:0-{size + past * EACH - 1}"}}


def ten_components(size: int, placement: str = "all") -> dict[str, Any]:
    """Return ten components on four node groups."""
    nodes = size // EACH
    firsts = [index * nodes // 4 for index in range(5)]
    groups = [
        {"label": f"g{index}", "node_ranks": f"{firsts[index]}-{max(firsts[index + 1] - 1, firsts[index])}"}
        for index in range(4)
    ]
    components = {f"c{index}": {"node_group": f"g{index % 4}", "placement": placement} for index in range(10)}
    return {"node_groups": groups, "component_placement": components}


VALID = [
    of_text("all, 1 process per accelerator", lambda size: {"actor": "all"}),
    of_text("8 accelerators per process", lambda size: {"actor": f"all:0-{size // 8 - 1}"}),
    of_text("4 processes per accelerator", lambda size: {"actor": f"all:0-{4 * size - 1}"}),
    of_text("by node, 8 processes per node", by_node),
    of_text("1 segment per accelerator", lambda size: {"actor": ",".join(map(str, range(size)))}),
    of_packed("packed, 2 per process, stride 2", lambda size: (0, size - 1)),
    of_text("10 components over 4 groups", ten_components),
]
REFUSED = [
    of_text("all, 1 process too many", lambda size: {"actor": f"all:0-{size}"}),
    of_text(
        "8 accelerators per process, from mid-node", lambda size: {"actor": f"4-{size - 5}:0-{size // 8 - 2}"}, 1_024
    ),
    of_text("4 processes per accelerator, from rank 1", lambda size: {"actor": f"all:1-{4 * size}"}),
    of_text("by node, 1 node too many", lambda size: by_node(size, past=1)),
    of_text("1 segment per accelerator, descending", lambda size: {"actor": ",".join(map(str, reversed(range(size))))}),
    of_packed("packed, 2 per process, stride 2, from mid-node", lambda size: (2, size - 3), 1_024),
    of_text("10 components, all out of range", lambda size: ten_components(size, f"0-{size}")),
]


def rows_of(answer: Any) -> list[Any]:
    """Return the tables of an answer."""
    return [component.rows for component in answer.values()] if isinstance(answer, Plan) else [answer]


def refusing(work: Callable[[], Any]) -> None:
    """Call what must be refused."""
    with contextlib.suppress(PlacementError, oracle.Refused):
        work()
        raise RuntimeError("a faulty placement was planned")


def prepared(name: str, size: int) -> Callable[[], Any]:
    """Return the call of a case, after one at the smallest size: imports and models do not count."""
    case = next(case for case in VALID + REFUSED if case.name == name)
    calls = []
    for each in (case.smallest, size):
        work, inventory = case.ours(each), Inventory.uniform(each // EACH, EACH)
        call = partial(work, inventory)
        calls.append(partial(refusing, call) if case in REFUSED else call)
    calls[0]()
    return calls[1]


def measure(case: Case, sizes: list[int], seconds: float, *, refused: bool) -> Measured:
    """Measure one case at all sizes, each for this many seconds."""
    found = Measured(case)
    for size in (size for size in sizes if size >= case.smallest):
        inventory = Inventory.uniform(size // EACH, EACH)
        ours, plain = case.ours(size), case.plain(size)
        if refused:
            found.ours[size] = best(lambda ours=ours, inventory=inventory: refusing(lambda: ours(inventory)), seconds)
        else:
            tables = rows_of(ours(inventory))
            found.bytes_per_row = sum(rows.nbytes for rows in tables) / sum(len(rows) for rows in tables)
            del tables
            found.ours[size] = best(lambda ours=ours, inventory=inventory: ours(inventory), seconds)
        before, seconds_before = list(found.plain.items())[-1] if found.plain else (size, 0.0)
        if size <= LARGEST_OF_ORACLE and seconds_before * size / before < PATIENCE:
            started = time.perf_counter()
            refusing(plain) if refused else plain()
            found.plain[size] = time.perf_counter() - started
    found.first = first(prepared, case.name, sizes[-1])
    return found


def duration(seconds: float) -> str:
    """Return a time with three significant digits."""
    value, unit = next(
        (seconds * scale, unit)
        for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs"))
        if seconds * scale >= 1 or scale > 1e3
    )
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def table(results: list[Measured], sizes: list[int], *, with_bytes: bool) -> list[list[str]]:
    """Return the cells of a table: time at each size, of a first call, of the oracle, then growth and bytes per row."""
    head = ["", *(f"{size:,}" for size in sizes), "first call", "oracle time", "growth"]
    rows = [head + (["bytes per row"] if with_bytes else [])]
    for found in results:
        times = [duration(found.ours[size]) if size in found.ours else "" for size in sizes]
        size, plain = list(found.plain.items())[-1]
        ratio = f"{plain / found.ours[size]:,.0f}x at {size:,}"
        fresh = f"{duration(found.first)}, {found.first / found.ours[sizes[-1]]:.1f}x"
        growth = f"{found.exponent:.2f}" if found.exponent is not None else ""
        last = [f"{found.bytes_per_row:.1f}"] if found.bytes_per_row is not None and with_bytes else []
        rows.append([found.case.name, *times, fresh, ratio, growth, *last])
    return rows


def shown(rows: list[list[str]]) -> str:
    """Return a table for a terminal."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    cells = [
        [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        for row in rows
    ]
    return "\n".join("  ".join(line).rstrip() for line in cells)


def markdown(rows: list[list[str]]) -> str:
    """Return a table for a page."""
    head, *body = rows
    lines = [head, [":--", *("--:" for _ in head[1:])], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def beside_planning(size: int, seconds: float) -> list[list[str]]:
    """Measure the steps before and after planning: reading rows, NumPy, files, start-up."""
    nodes = size // EACH
    inventory = Inventory.uniform(nodes, EACH)
    config = {"cluster": {"num_nodes": nodes, "component_placement": {"actor": "all"}}}
    tracemalloc.start()
    plan = ComponentPlacement(config, inventory).plan()
    python_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    rows = plan["actor"].rows
    reading = best(lambda: [row.local_rank for row in rows], seconds)
    columns = rows.to_numpy()
    copying = best(lambda: [column.copy() for column in columns.values()], seconds)

    def ran(*command: str) -> float:
        return best(lambda: subprocess.run([sys.executable, *command], check=True, capture_output=True), 4 * seconds)

    bare = ran("-c", "")
    with tempfile.TemporaryDirectory() as folder:
        config_file, plan_file = Path(folder, "config.yaml"), Path(folder, "plan.json")
        config_file.write_text("cluster:\n  num_nodes: 2\n  component_placement:\n    actor: 0-7\n    rollout: 8-15\n")
        check = ran("-m", "rankplan", "check", str(config_file))
        saving = best(lambda: plan.save(plan_file), 0)
        loading = best(lambda: Plan.load(plan_file), 0)
    return [
        ["", "time", ""],
        ["creating the inventory", duration(best(lambda: Inventory.uniform(nodes, EACH), seconds)), ""],
        ["reading one field of every row", duration(reading), f"{1e9 * reading / len(rows):.0f} ns per row"],
        [
            "all columns as NumPy arrays",
            duration(best(rows.to_numpy, seconds)),
            f"copying the arrays takes {duration(copying)}",
        ],
        ["finding idle accelerators", duration(best(plan.idle, seconds)), ""],
        ["saving the plan", duration(saving), ""],
        ["loading the plan", duration(loading), ""],
        ["Python objects of the whole plan", "", f"{python_bytes:,} bytes"],
        [
            "`import rankplan`",
            duration(ran("-c", "import rankplan") - bare),
            f"an empty interpreter takes {duration(bare)}",
        ],
        ["`rankplan check` of a small file", duration(check), "including the interpreter"],
    ]


def machine() -> str:
    """Describe this machine."""
    info = Path("/proc/cpuinfo")
    models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    cpu = f"{len(models)} cores ({models[0]})" if models else platform.machine()
    return f"{cpu}, {platform.system()}, CPython {platform.python_version()}"


def plot(valid: list[Measured], refused: list[Measured], path: Path) -> None:
    """Plot time against size."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("svg")
    grey = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "#808080")
    style = {"svg.fonttype": "none", "svg.hashsalt": "rankplan", "font.size": 9, "savefig.transparent": True}
    matplotlib.rcParams.update({**style, **grey})  # readable on light and on dark
    figure, axes = pyplot.subplots(1, 2, figsize=(9.5, 5.2), sharey=True, layout="constrained")
    for axis, results, title in zip(axes, (valid, refused), ("planned", "rejected"), strict=True):
        for index, found in enumerate(results):
            color = f"C{index}"
            axis.plot(
                list(found.ours),
                [1e3 * s for s in found.ours.values()],
                "o-",
                ms=3,
                lw=1.2,
                c=color,
                label=found.case.name,
            )
            axis.plot(list(found.plain), [1e3 * s for s in found.plain.values()], ":", lw=0.9, c=color)
        axis.set(xscale="log", yscale="log", xlabel="accelerators", title=title)
        axis.grid(visible=True, which="major", lw=0.4, alpha=0.5)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2}
        axis.legend(fontsize=7, frameon=False, title="dotted: oracle", title_fontsize=7, **below)
    axes[0].set_ylabel("milliseconds")
    figure.savefig(path, metadata={"Date": None})
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text().splitlines()))


PAGE = """\
# Planning time

Measured on {date} on {machine}, in one run of `python benches/large_cluster.py --write`, which
generates this page. Every node has {each} accelerators. Each time is the shortest of several runs. It covers everything
from a config in memory to the rows of all components, or to the exception with all errors. The columns of sizes repeat
a call in one process. A first call at the largest size runs in a new process, so it includes the page faults of new
memory; the table has its time and its ratio to a repeated call. The oracle is a plain Python implementation of the same
rules (`tests/support/oracle.py`). Growth is the exponent of time over size, from 8,192 accelerators to the largest
size; 1 is linear.

![Time against size, for plans and rejected configs, with the oracle](scale.svg)

## Valid configs

{valid}

## Rejected configs

{refused}

## Before and after planning

For {largest:,} processes, one per accelerator:

{beside}
"""


def main() -> None:
    """Measure, print the tables and, with ``--write``, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="skip larger sizes")
    parser.add_argument("--seconds", type=float, default=0.4, help="how long to repeat each call (at least 3 times)")
    parser.add_argument("--write", action="store_true", help="write docs/scale.md and docs/scale.svg")
    arguments = parser.parse_args()
    sizes = [size for size in SIZES if size <= arguments.largest]
    seconds = arguments.seconds
    valid = [measure(case, sizes, seconds, refused=False) for case in VALID]
    refused = [measure(case, sizes, seconds, refused=True) for case in REFUSED]
    tables = [
        table(valid, sizes, with_bytes=True),
        table(refused, sizes, with_bytes=False),
        beside_planning(sizes[-1], seconds),
    ]
    for name, rows in zip(("planned", "rejected", f"before and after, {sizes[-1]:,}"), tables, strict=True):
        print(f"{name}\n{shown(rows)}\n")
    if arguments.write:
        page = PAGE.format(
            date=datetime.datetime.now(datetime.UTC).date(),
            machine=machine(),
            each=EACH,
            largest=sizes[-1],
            **dict(zip(("valid", "refused", "beside"), map(markdown, tables), strict=True)),
        )
        (DOCS / "scale.md").write_text(page)
        plot(valid, refused, DOCS / "scale.svg")


if __name__ == "__main__":
    main()

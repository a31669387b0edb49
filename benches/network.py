"""Time `arrange` and `replan` on named nodes in three levels, from Python.

``python benches/network.py`` prints one table. Nodes are shuffled, four pipeline stages of 8 accelerators form a
replica, 64 nodes are spares, and two nodes are lost; other tasks arrange a quarter of the nodes by rules, or beside ten
jobs of a sixteenth each. ``grow`` adds 1,024 engines of a node, ``lost`` repairs 1,000 lost nodes with 2,000 spares.
A first call, in a new process, finds the domains of the nodes.
``cargo bench -p rankplan-core --bench arrange`` times the solver alone, beside NeMo-RL's order.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rankplan import Component, Inventory, Parallel, Plan, RankMap, arrange, replan
from timing import best, first

SPARES = {"grow": 2048, "lost": 2000, "lost, fixed": 2000}
"""The spares of a task, 64 for others."""

LOST = ["node-3", "node-5000"]
MANY = 1000
ENGINES = 1024


def inventory(count: int, *, shuffled: bool) -> Inventory:
    """Return nodes with 8 accelerators in NVLink domains of 8, blocks of 256 and spines of 4,096 nodes."""
    order = list(range(count))
    if shuffled:
        random.Random(0).shuffle(order)
    sizes = {"spine": 4096, "block": 256, "nvlink": 8}
    nodes = [
        {
            "ranks": rank,
            "accelerators": 8,
            "hostname": f"node-{node}",
            "labels": {level: f"{level[0]}{node // size}" for level, size in sizes.items()},
        }
        for rank, node in enumerate(order)
    ]
    return Inventory.from_dict({"levels": list(sizes), "nodes": nodes})


TASKS: dict[str, dict[str, Any]] = {
    "arrange": {},
    "segments": {"segment": {"actor": {"spine": 1024, "block": 256, "nvlink": 4}}},
    "balance": {"balance": "nvlink", "cap": {"nvlink": 6}},
    "prefer": {"prefer": {"actor": {"world": "spine"}}},
    "beside": {},
}
"""The rules of each task; all but the first one arrange a quarter of the nodes."""


CHANGES = ("replan", "fixed", "grow", "lost", "lost, fixed")
"""The tasks that change a plan."""


def planned(used: Inventory, stages: int = 4) -> Plan:
    rule = RankMap.parse(f"0-{8 * used.num_nodes - 1}")
    return Plan(used, [Component.place("actor", used, ("cluster",), rule, parallel=Parallel(tp=8, pp=stages))])


def prepared(count: int, task: str) -> Callable[[], Any]:
    """Return the call for a number of nodes."""
    nodes = inventory(count, shuffled=task in TASKS)
    if task not in TASKS:
        used = nodes.first(count - SPARES.get(task, 64))
        if task == "grow":
            engines = planned(used, stages=1)
            return lambda: replan(engines, nodes, grow={"actor": ENGINES})
        plan, fixed = planned(used), task.endswith("fixed")
        many = random.Random(1).sample(range(used.num_nodes), MANY)
        lost = [f"node-{node}" for node in many] if task.startswith("lost") else LOST
        return lambda: replan(plan, nodes, without=lost, fixed=fixed)
    plan = planned(nodes.first(count - SPARES.get(task, 64) if task == "arrange" else count // 4))
    jobs = range(10) if task == "beside" else ()
    others = [planned(nodes.reordered(range(job * count // 16, (job + 1) * count // 16))) for job in jobs]
    return lambda: arrange(plan, nodes, **TASKS[task], beside=others).inventory


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="8192,131072", help="numbers of nodes, ascending")
    sizes = [int(size) for size in parser.parse_args().sizes.split(",")]
    print(f"{'':>11}" + "".join(f"{size:>12,}" for size in sizes) + f"{'growth':>9}{'first call':>13}")
    for task in (*TASKS, *CHANGES):
        times = [best(prepared(size, task)) for size in sizes]
        growth = math.log(times[-1] / times[0]) / math.log(sizes[-1] / sizes[0]) if len(sizes) > 1 else math.nan
        fresh = first(prepared, sizes[-1], task)
        cells = "".join(f"{1000 * seconds:>9.1f} ms" for seconds in times)
        print(f"{task:>11}{cells}{growth:>9.2f}{1000 * fresh:>10.1f} ms", flush=True)


if __name__ == "__main__":
    main()

"""Time `transition` for engines that come and go beside a trainer: 1 % of the instances change.

``python benches/moving.py`` prints a row for each number of nodes with 8 accelerators, and the time a node against that
of the row before. ``--largest 131072`` goes up to a million slots.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rankplan import Inventory, Plan, plan, transition
from timing import best, line

MODEL = "Qwen/Qwen3-8B"
COSTS = {"sync": {"from": "actor", "to": "rollout"}}


def inventory(nodes: int) -> Inventory:
    """Return named nodes with 8 accelerators."""
    return Inventory.from_dict(
        {"nodes": [{"ranks": rank, "accelerators": 8, "hostname": f"node-{rank}"} for rank in range(nodes)]}
    )


def planned(nodes: Inventory, end: int) -> Plan:
    """Return a trainer on a quarter of the accelerators, and engines of two on those from there to ``end``."""
    start = 2 * nodes.num_nodes
    engines = {"engine": "vllm", "model": MODEL, "share": 0.6, "length": 8192}
    components = {
        "actor": {
            "placement": f"0-{start - 1}",
            "parallel": {"tp": 8},
            "memory": {"training": "megatron", "model": MODEL},
        },
        "rollout": {
            "placement": f"{start}-{end - 1}:0-{(end - start) // 2 - 1}",
            "parallel": {"tp": 2},
            "memory": engines,
        },
    }
    cluster = {"num_nodes": nodes.num_nodes, "accelerator_memory": "80 GiB", "component_placement": components}
    return plan({"cluster": cluster}, nodes)


def changes(nodes: int) -> dict[str, Callable[[], Any]]:
    """Return the calls for a number of nodes: engines that arrive, and engines that leave."""
    cluster = inventory(nodes)
    fewer = 8 * nodes - 2 * max(1, round(0.03 * nodes))
    small, large = planned(cluster, fewer), planned(cluster, 8 * nodes)
    return {
        "arrive": lambda: transition(small, large, costs=COSTS),
        "leave": lambda: transition(large, small, costs=COSTS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--largest", type=int, default=1024, help="the most nodes")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of each row")
    options = parser.parse_args()
    nodes = 16
    before: dict[str, float] = {}
    while nodes <= options.largest:
        for name, work in changes(nodes).items():
            seconds = best(work, options.seconds)
            line(f"{name}, {8 * nodes:,} accelerators", seconds)
            if name in before:
                print(f"  {seconds / nodes / before[name]:.2f} times as long a node as the row before")
            before[name] = seconds / nodes
        nodes *= 8


if __name__ == "__main__":
    main()

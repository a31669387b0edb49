"""Time ROLL and slime configs at scale, and compare with a plain Python implementation of the same rules.

``python benches/dialects.py`` prints one table; every ratio comes from this one run.
"""

from __future__ import annotations

import ipaddress
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rankplan import Inventory
from rankplan.dialects import roll, slime
from timing import best, first, line

SIZE = 65_536
NODES = SIZE // 8


def plain_roll(mapping: str, per_worker: int) -> list[dict[str, Any]]:
    """Return a row for each worker."""
    devices = list(range(*(int(part) for part in mapping.removeprefix("list(range(").removesuffix("))").split(","))))
    rows, here = [], [0] * NODES
    for rank, start in enumerate(range(0, len(devices), per_worker)):
        places = [divmod(device, 8) for device in devices[start : start + per_worker]]
        node = places[0][0]
        ids = [str(index) for found, index in places if found == node]
        rows.append({"rank": rank, "node": node, "local_rank": here[node], "devices": places, "visible": ids})
        here[node] += 1
    return rows


def plain_order(bundles: list[tuple[int, str, int]]) -> list[int]:
    """Return the order of bundles."""
    found = sorted(bundles, key=lambda bundle: (int(ipaddress.ip_address(bundle[1])), bundle[2]))
    return [index for index, _, _ in found]


def planning(dialect: str, config: dict[str, Any]) -> Callable[[], Any]:
    """Return a call that plans this config."""
    plan, inventory = {"roll": roll.plan, "slime": slime.plan}[dialect], Inventory.uniform(NODES, 8)
    return lambda: plan(config, inventory)


def main() -> None:
    """Print the table."""
    print(f"{'':<46}{'time':>15}{'plain':>13}{'first call':>13}")
    for per_worker in (1, 4, 12):
        count = SIZE // per_worker * per_worker
        mapping = f"list(range(0,{count}))"
        config = {"actor": {"device_mapping": mapping, "num_gpus_per_worker": per_worker}}
        plain = best(lambda mapping=mapping, each=per_worker: plain_roll(mapping, each))
        fresh = first(planning, "roll", config)
        line(f"ROLL, {count // per_worker:,} workers, {per_worker} each", best(planning("roll", config)), plain, fresh)

    bundles = [(index, f"10.{index // 8 // 250}.{index // 8 % 250}.7", index % 8) for index in range(SIZE)]
    for name in ("shuffled", "in order"):
        if name != "in order":
            random.Random(1).shuffle(bundles)
        else:
            bundles.sort()
        seconds = best(lambda: slime.bundle_order(bundles))
        line(f"slime, {SIZE:,} bundles {name}", seconds, best(lambda: plain_order(bundles)))
    flags = {"actor_num_nodes": NODES // 2, "actor_num_gpus_per_node": 8, "rollout_num_gpus": SIZE // 2}
    line(f"slime, plan of {SIZE:,} GPUs", best(planning("slime", flags)), fresh=first(planning, "slime", flags))


if __name__ == "__main__":
    main()

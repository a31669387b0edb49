"""The cost of a launch, compared with a bare loop that creates the same actors with the same options.

``python benches/launch.py --sizes 16,32,64 --repetitions 5`` prints one table; both are timed alternately, in one run.
The ratio means something only on a quiet machine: the table shows the load that other programs made before each size.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import ray
from rankplan import Cluster, NodePlacementStrategy, PlacementStrategy
from rankplan.runtime.group.worker import RollCall
from rankplan.runtime.nodes.nodes import pinned
from rankplan.runtime.rank.host import HostActor

QUIET_SECONDS = 2.0


class Plain:
    """An actor that does not import rankplan."""

    def __init__(self, name: str) -> None: ...


def created(actor: Any, cluster: Cluster, strategy: PlacementStrategy) -> Callable[[], None]:
    """Create an actor for each row in a plain loop; return a function that ends them."""
    hosts = [
        actor.options(scheduling_strategy=pinned(cluster.node_ids[row.cluster_node_rank])).remote(f"bare:{row.rank}")
        for row in strategy.get_placement(cluster)
    ]
    ray.get([host.__ray_ready__.remote() for host in hosts])

    def end() -> None:
        for host in hosts:
            ray.kill(host)

    return end


def launched(cluster: Cluster, strategy: PlacementStrategy) -> Callable[[], None]:
    """Launch a group; return a function that ends it."""
    return RollCall.create_group().launch(cluster, strategy, name="launch", timeout=3600).shutdown


def workers(cluster: Cluster) -> dict[int, bool]:
    """Return the process ids of Ray's workers on the simulated cluster, and whether each is idle."""
    assert cluster._raylets is not None
    found = {}
    for process in cluster._raylets.processes():
        try:
            command = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if command[0].startswith(b"ray::IDLE"):
            found[process.pid] = True
        elif command[0].startswith(b"ray::Host") or any(part.endswith(b"default_worker.py") for part in command[:3]):
            found[process.pid] = False
    return found


def settle(cluster: Cluster) -> None:
    """Wait until only idle workers are left, and no worker starts or ends for a while."""
    before, since = workers(cluster), time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        time.sleep(0.1)
        now = workers(cluster)
        if now != before or not all(now.values()):
            before, since = now, time.monotonic()


def busy(seconds: float = 2.0) -> float:
    """Return the part of the machine's processor time that is in use, while nothing of this program runs."""
    return float(psutil.cpu_percent(seconds)) / 100


def spread(values: Sequence[float], unit: str = "") -> str:
    """Return the median, the smallest and the largest value as text."""
    return f"{statistics.median(values):.2f}{unit} [{min(values):.2f}, {max(values):.2f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="16,32,64", help="numbers of actors, such as 16,32,64,128,256")
    parser.add_argument("--repetitions", type=int, default=5, help="rounds of each kind and size")
    parser.add_argument("--nodes", type=int, default=4, help="raylets of the simulated cluster")
    parser.add_argument("--plain", action="store_true", help="time actors of an empty class as well")
    options = parser.parse_args()
    kinds: dict[str, Callable[[Cluster, PlacementStrategy], Callable[[], None]]] = {
        "bare": partial(created, HostActor),
        "launch": launched,
    }
    if options.plain:
        kinds["plain"] = partial(created, ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(Plain))
    with Cluster.simulate(f"{options.nodes}x0") as cluster:
        print(
            f"Ray {ray.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, "
            f"{options.nodes} raylets; median of {options.repetitions}, least and most in brackets"
        )
        print(f"{'n':>4}" + "".join(f"{kind:>28}" for kind in [*kinds, "launch/bare"]) + f"{'others':>8}")
        for size in map(int, options.sizes.split(",")):
            strategy = NodePlacementStrategy([rank * options.nodes // size for rank in range(size)])
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            settle(cluster)
            before = busy()
            # the first round is not counted: it loads files that the others find in memory
            for turn in range(-1, options.repetitions):
                for kind in kinds if turn % 2 else reversed(kinds):
                    settle(cluster)
                    start = time.perf_counter()
                    end = kinds[kind](cluster, strategy)
                    seconds = time.perf_counter() - start
                    end()
                    if turn >= 0:
                        times[kind].append(seconds)
            ratios = [ours / theirs for ours, theirs in zip(times["launch"], times["bare"], strict=True)]
            cells = [*(spread(some, " s") for some in times.values()), spread(ratios)]
            print(f"{size:>4}" + "".join(f"{cell:>28}" for cell in cells) + f"{before:>8.0%}", flush=True)


if __name__ == "__main__":
    main()

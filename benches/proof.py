"""The cost of the driver's proof: launches with ``prove="devices"`` and ``prove="environment"``, timed in turn.

``python benches/proof.py --sizes 8,16 --repetitions 5 --driver 0.3`` prints one table. The driver is the small library
of the tests, whose start takes ``--driver`` seconds; CUDA's takes 0.1 to 0.5 s.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from launch import settle, spread
from rankplan import Cluster, ComponentPlacement, Inventory
from rankplan.runtime.group.worker import RollCall
from support.drivers import CUDA, uuid
from support.libraries import compiled

CARDS = 8
_STARTING = "int cuInit(unsigned flags) {"


def seconds(cluster: Cluster, size: int, prove: str) -> float:
    """Return how long a launch of this many ranks takes."""
    section = {"num_nodes": 1, "component_placement": {"actor": f"0-{CARDS - 1}:0-{size - 1}"}}
    actor = ComponentPlacement({"cluster": section}, cluster).get_strategy("actor")
    settle(cluster)
    start = time.perf_counter()
    group = RollCall.create_group().launch(cluster, actor, prove=prove, timeout=3600)  # type: ignore[arg-type]
    found = time.perf_counter() - start
    assert {report.proof for report in group.verify()} == {prove}
    group.shutdown()
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="8,16", help=f"numbers of ranks, multiples of {CARDS}")
    parser.add_argument("--repetitions", type=int, default=5, help="rounds of each kind and size")
    parser.add_argument("--driver", type=float, default=0.3, help="seconds that the driver takes to start")
    options = parser.parse_args()
    waiting = f"#include <unistd.h>\n{CUDA}".replace(_STARTING, f"{_STARTING} usleep({options.driver * 1e6:.0f});")
    folder = compiled(Path(tempfile.mkdtemp()), "libcuda.so.1", waiting)
    os.environ.update(LD_LIBRARY_PATH=str(folder), FAKE_CARDS="".join(map(str, range(CARDS))))
    cards = [{"id": str(card), "uuid": f"GPU-{uuid(card)}"} for card in range(CARDS)]
    with Cluster.simulate(Inventory.from_dict({"nodes": [{"ranks": 0, "accelerators": cards}]})) as cluster:
        kinds = "environment", "devices"
        print(f"{os.cpu_count()} cores; median of {options.repetitions}, least and most in brackets")
        print(f"{'n':>4}" + "".join(f"{kind:>28}" for kind in [*kinds, "devices/environment"]))
        for size in map(int, options.sizes.split(",")):
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            # the first round is not counted: it loads files that the others find in memory
            for turn in range(-1, options.repetitions):
                for kind in kinds if turn % 2 else reversed(kinds):
                    found = seconds(cluster, size, kind)
                    if turn >= 0:
                        times[kind].append(found)
            ratios = [asked / plain for plain, asked in zip(*times.values(), strict=True)]
            cells = [*(spread(some, " s") for some in times.values()), spread(ratios)]
            print(f"{size:>4}" + "".join(f"{cell:>28}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()

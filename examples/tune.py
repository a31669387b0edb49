"""Measure three components, find the fastest placement and run it, on a simulated cluster of four accelerators.

The components sleep instead of computing: the more ranks, the shorter. Run it with ``python examples/tune.py``.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event, Lock

import rankplan
from rankplan import Cluster, Worker

BATCHES = 4
AFTER = {"reward": ["rollout"], "actor": ["reward"]}
SECONDS = {"rollout": (0.0, 4.0), "reward": (0.2, 0.2), "actor": (0.6, 0.6)}  # a + b / ranks for an iteration


class Part(Worker):
    def __init__(self, fixed, shared):
        super().__init__()
        self.seconds = fixed + shared / self.world_size

    def run(self, batches=BATCHES):
        time.sleep(self.seconds * batches / BATCHES)


def launched(cluster, placement):
    """Launch the components of a placement and return their groups by name, each after a first, empty call."""
    config = {"cluster": {"num_nodes": cluster.inventory.num_nodes, "component_placement": placement}}
    plan = rankplan.plan(config, cluster)
    groups = {name: Part.create_group(*SECONDS[name]).launch(cluster, plan[name]) for name in placement}
    for group in groups.values():
        group.run(0).wait()
    return groups


def measured(cluster, sizes):
    """Return the seconds of an iteration of each component by number of accelerators, measured one after the other.

    An iteration is the calls of all its micro-batches, so it includes the way to the ranks and back, as in a placement.
    """
    seconds = {name: {} for name in SECONDS}
    for size in sizes:
        for name, group in launched(cluster, dict.fromkeys(SECONDS, f"0-{size - 1}")).items():
            for _ in range(BATCHES):
                group.run(1).wait()
            calls = sorted(group.timings(), key=lambda call: call.started)[size:]  # without the first call of each rank
            seconds[name][size] = max(call.started + call.seconds for call in calls) - calls[0].started
            group.shutdown()
    return seconds


def period(cluster, best):
    """Run one iteration in a placement and return its seconds.

    Micro-batches flow from component to component; those on one accelerator take turns.
    """
    groups = launched(cluster, {name: str(ranks) for name, ranks in best.accelerators.items()})
    done = {name: [Event() for _ in range(BATCHES)] for name in groups}
    busy = [Lock() for _ in cluster.inventory.core.accelerators()]

    def flow(name):
        for batch in range(BATCHES):
            for before in AFTER.get(name, ()):
                done[before][batch].wait()
            with ExitStack() as held:
                for accelerator in best.accelerators[name]:
                    held.enter_context(busy[accelerator])
                groups[name].run(1).wait()
            done[name][batch].set()

    started = time.perf_counter()
    with ThreadPoolExecutor(len(groups)) as threads:
        list(threads.map(flow, groups))
    return time.perf_counter() - started


def main():
    with Cluster.simulate("1x4") as cluster:
        seconds = measured(cluster, sizes=(1, 2))
        costs = {
            "batches": BATCHES,
            "after": AFTER,
            "components": {name: {"seconds": seconds[name]} for name in seconds},
        }
        tuning = rankplan.tune(costs, cluster.inventory)
        for rank, one in enumerate(tuning.ranking, 1):
            places = ", ".join(f"{name} {ranks}" for name, ranks in one.accelerators.items())
            print(f"{rank}: {one.seconds:.2f} s, {one.sharing}: {places}")
        found = period(cluster, tuning.best)
        print(f"predicted {tuning.best.seconds:.2f} s, measured {found:.2f} s ({found / tuning.best.seconds - 1:+.0%})")


if __name__ == "__main__":
    main()

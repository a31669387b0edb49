"""Another job on the cluster: it holds as many accelerators as the second argument says, of the node at the first."""

from __future__ import annotations

import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote
class Holder:
    def ready(self) -> None:
        pass


address, count = sys.argv[1], int(sys.argv[2])
ray.init()
node = next(entry["NodeID"] for entry in ray.nodes() if entry["NodeManagerAddress"] == address)
options = {"num_gpus": 1, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
holders = [Holder.options(**options).remote() for _ in range(count)]
ray.get([holder.ready.remote() for holder in holders])
print("holding", flush=True)
sys.stdin.read()

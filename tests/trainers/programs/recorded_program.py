"""A trainer whose requests were recorded: it asks for the same groups, and sorts their accelerators as it does.

The argument is the list of requests in order; see ``tests/golden/README.md``. ``order``: what a group is sorted by.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ray
from placed import FILE, watch, write
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ORDERS: dict[str | None, Any] = {
    None: lambda found: 0,
    "number": lambda found: (list(map(int, found[1].split("."))), found[2]),  # slime: `sort_key`
    "id": lambda found: (found[0], found[2]),  # NeMo-RL: `_sort_bundle_indices_by_topology`
}


@ray.remote(num_cpus=0)
def where() -> tuple[str, str, list[int]]:
    context = ray.get_runtime_context()
    return context.get_node_id(), ray.util.get_node_ip_address(), sorted(map(int, ray.get_gpu_ids()))


watch()
ray.init()
requests = json.loads(sys.argv[1])
groups = []
for one in requests:
    one["bundles"] = [bundle for times, bundle in one["bundles"] for _ in range(times)]
    groups.append(ray.util.placement_group(one["bundles"], one["strategy"], one["name"]))
ray.get([group.ready() for group in groups])
rank = 0
for one, group in zip(requests, groups, strict=True):
    tasks = []
    for index, bundle in enumerate(one["bundles"]):
        strategy = PlacementGroupSchedulingStrategy(group, index)
        tasks.append(where.options(num_gpus=bundle["GPU"], scheduling_strategy=strategy).remote())
    for node, _, gpus in sorted(ray.get(tasks), key=ORDERS[one["order"]]):
        write(FILE, component="", rank=rank, index=0, node=node, gpus=gpus)
        rank += 1

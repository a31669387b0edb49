"""ms-swift's older way on Ray: its ``RayHelper`` with its groups and workers, which only say where they are.

The argument is the text of ``device_groups`` as JSON. Each group has one class of workers, of the name of the group.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial

import ray
from placed import ENVIRONMENT, FILE, watch, write

watch()
ray.init = partial(ray.init, runtime_env={"env_vars": ENVIRONMENT}, log_to_driver=False)

from swift.ray_utils import RayHelper  # noqa: E402

FIELDS = ("nproc_per_node", "nnodes")


def worker_of(group: str) -> type:
    """Return the class of the workers of a group."""

    class Worker:
        def __init__(self) -> None:
            node = ray.get_runtime_context().get_node_id()
            gpus = [int(gpu) for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
            write(FILE, component=group, rank=int(os.environ["RANK"]), index=0, node=node, gpus=gpus)

        def wait(self) -> None:
            pass

    decorated: type = RayHelper.worker(group=[group])(Worker)
    return decorated


groups = json.loads(sys.argv[1])
RayHelper.initialize(groups)
for group in groups:
    if group not in FIELDS:
        worker_of(group)
        RayHelper._create_workers(group)
        ray.get([worker.wait.remote() for worker in RayHelper.worker_instance[group]])

"""What the trivial workers of the trainers say: each appends a line to a file, and so does each placement group."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

FILE = os.environ.get("PLACED", "")
"""The file; only the driver's environment has it, so that everything else is told."""

ENVIRONMENT = {name: os.environ[name] for name in ("PLACED", "PYTHONPATH") if name in os.environ}
"""For ``ray.init`` of a program whose workers import the trainer."""


def write(file: str, **line: Any) -> None:
    """Append a line, in one piece."""
    with Path(file).open("a") as out:
        out.write(json.dumps(line) + "\n")


def note(file: str, component: str, rank: int, index: int = 0) -> None:
    """Say where this process is: its node and accelerators. ``index`` counts processes of one rank."""
    node = ray.get_runtime_context().get_node_id()
    write(file, component=component, rank=rank, index=index, node=node, gpus=[int(one) for one in ray.get_gpu_ids()])


def note_engine(file: str, component: str, rank: int, bundles: Sequence[int], share: float) -> None:
    """Say where the accelerators of an engine are: a task in each of these bundles of the engine's own group."""
    task = ray.remote(num_cpus=0, num_gpus=share)(note)
    group = ray.util.get_current_placement_group()
    strategies = [PlacementGroupSchedulingStrategy(group, bundle) for bundle in bundles]
    options = [task.options(scheduling_strategy=strategy) for strategy in strategies]
    ray.get([each.remote(file, component, rank, index) for index, each in enumerate(options)])


def watch(file: str = FILE) -> None:
    """Say what this process asks Ray for; before the trainer is imported."""

    def telling(asked: Callable[..., Any]) -> Callable[..., Any]:
        def placement_group(
            bundles: list[dict[str, float]], strategy: str = "PACK", name: str = "", **options: Any
        ) -> Any:
            write(file, name=name, strategy=strategy, bundles=[bundle.get("GPU", 0) for bundle in bundles])
            return asked(bundles, strategy, name, **options)

        return placement_group

    module: Any = sys.modules["ray.util.placement_group"]  # `ray.util` has the function of this name
    module.placement_group = telling(module.placement_group)
    ray.util.placement_group = telling(ray.util.placement_group)

"""Writes measured times into a costs file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rankplan.config.parallel import ParallelEntry
from rankplan.config.text.files import write_whole
from rankplan.config.text.load import load_config
from rankplan.parallel import Parallel
from rankplan.tuning.costs import Costs


@dataclass(frozen=True)
class Measurement:
    """Seconds of one iteration of a component on a number of accelerators."""

    accelerators: int
    seconds: float
    parallel: Parallel


def add_measurements(path: Path, found: Mapping[str, Measurement]) -> None:
    """Add measured times to a costs file, which is created if it does not exist; comments in it are lost.

    A number that was measured before is replaced. Raises `PlacementError` if the file has faults, ``OSError``.
    """
    content: dict[str, Any] = {"components": {}}
    if path.exists():
        Costs.load(path)
        content = load_config(path).to_dict()
    components = content.setdefault("components", {})
    for name, one in found.items():
        entry = components.setdefault(name, {})
        points = {int(size): seconds for size, seconds in entry.get("seconds", {}).items()}
        points[one.accelerators] = float(f"{one.seconds:.4g}")
        entry["seconds"] = dict(sorted(points.items()))
        if one.parallel.stated:
            sizes = ParallelEntry.plain(one.parallel)
            entry.setdefault("parallel", {key: size for key, size in sizes.items() if key != "dp"})
    write_whole(path, yaml.safe_dump(content, sort_keys=False, default_flow_style=None))

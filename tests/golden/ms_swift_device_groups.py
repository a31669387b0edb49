"""Records ``ms_swift_device_groups.jsonl.gz``: what ms-swift's own ``ResourceManager`` asks Ray for, and gives ranks.

``python tests/golden/ms_swift_device_groups.py CHECKOUT`` needs a checkout of ms-swift at 3602360, whose
`swift/ray_utils/resource_manager.py` runs alone. Ray is a stand-in that fills nodes first fit in the order in which
they joined. What would wait for ever ends the run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import runpy
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
LINES = HERE / "ms_swift_device_groups.jsonl.gz"
COUNT, SEED = 150, 41
CLUSTERS = {
    "eights": [("10.0.0.3", 8, 64), ("10.0.0.1", 8, 64), ("10.0.0.2", 8, 64)],
    "fours": [("10.0.0.2", 4, 32), ("10.0.0.1", 4, 32), ("10.0.0.3", 4, 33), ("10.0.0.4", 4, 30)],
    "uneven": [("10.0.0.2", 4, 32), ("10.0.0.1", 8, 64), ("10.0.0.3", 2, 16)],
    "few-cpus": [("10.0.0.2", 4, 4), ("10.0.0.1", 4, 3), ("10.0.0.3", 4, 5)],
}


class Waits(BaseException):
    """Ray never gives what is asked for."""


class Ray:
    """The stand-in: its nodes, and what was asked for."""

    def __init__(self, nodes: list[tuple[str, int, int]]) -> None:
        self.joined = nodes
        self.free = {address: [gpus, cpus] for address, gpus, cpus in nodes}
        self.requests: list[list[Any]] = []
        self.util = SimpleNamespace(placement_group=self.reserve, remove_placement_group=lambda group: None)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": address, "Resources": {"GPU": gpus, "CPU": cpus}} for address, gpus, cpus in self.joined]

    def reserve(self, bundles: list[dict[str, int]], strategy: str = "PACK") -> Any:
        (bundle,) = bundles
        gpus, cpus = bundle.get("GPU", 0), bundle["CPU"]
        address = next((one for one, (own, left) in self.free.items() if own >= gpus and left >= cpus), None)
        self.requests.append([strategy, gpus, cpus, address])
        if address is None:
            raise Waits(f"a bundle of {gpus} GPUs and {cpus} CPUs")
        self.free[address] = [self.free[address][0] - gpus, self.free[address][1] - cpus]
        return SimpleNamespace(address=address, ready=lambda: None)

    def get(self, value: Any) -> Any:
        return value

    def remote(self, function: Any) -> Any:
        return SimpleNamespace(options=lambda placement_group: SimpleNamespace(remote=function))

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="")


def answer(manager: Any, groups: dict[str, Any], nodes: list[tuple[str, int, int]]) -> dict[str, Any]:
    """Return what the manager does with groups."""
    ray = Ray(nodes)
    for name in ("ray", "ray.util", "ray.util.placement_group"):
        module = sys.modules[name] = ModuleType(name)
        module.__dict__.update(PlacementGroup=object, __path__=[])
    for name in ("nodes", "util", "get", "remote", "get_runtime_context"):
        setattr(sys.modules["ray"], name, getattr(ray, name))
    try:
        made = manager(deepcopy(groups))
    except Waits as waits:
        return {"waits": str(waits), "requests": ray.requests}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "requests": ray.requests}
    ends = {}
    for name, group in groups.items():
        if isinstance(group, dict):
            processes = made.device_groups[group["workers"][0]]
            ends[name] = [[one["placement_group"].address, one.get("gpu_rank", [])] for one in processes]
    return {"requests": ray.requests, "ends": ends}


def drawn(source: random.Random) -> dict[str, Any]:
    """Return groups; most of them can be placed."""
    per_node = source.choice([2, 4, 4, 8])
    groups: dict[str, Any] = {"nproc_per_node": per_node}
    if source.random() < 0.2:
        groups["nnodes"] = 1
    first = 0
    for number in range(source.choice([1, 1, 2, 3])):
        count = source.choice([1, 2, per_node, 2 * per_node])
        forms: list[Any] = [
            count,
            str(count),
            f"list(range({first}, {first + count}))",
            list(range(first, first + count)),
        ]
        forms.append(f"range({first}, {first + count})")
        forms.append(f"[{first}] + list(range({first + 1}, {first + count}))")
        if source.random() < 0.15:
            first += source.choice([-1, 1, per_node])
            forms = [f"list(range({first}, {first + count}))"]
        groups[f"group{number}"] = {
            "device": source.choice(["GPU", "GPU", "gpu"]),
            "ranks": source.choice(forms),
            "workers": [f"worker{number}"],
        }
        first += count
    if source.random() < 0.15:
        groups["cpus"] = {"device": "CPU", "ranks": source.choice([1, 2, 5]), "workers": ["sampler"]}
    return groups


def lines(manager: Any) -> Iterator[dict[str, Any]]:
    """Yield the lines: the groups that ms-swift ships, then drawn ones."""
    shipped = {"nproc_per_node": 4, "default": {"device": "GPU", "ranks": "list(range(0, 4))", "workers": ["default"]}}
    source = random.Random(SEED)
    for number in range(COUNT):
        name = source.choice(list(CLUSTERS))
        groups = drawn(source) if number else shipped
        line = {
            "id": f"swift-g{number:03}-{name}",
            "groups": groups,
            "cluster": {"name": name, "joined": CLUSTERS[name]},
        }
        yield line | answer(manager, groups, CLUSTERS[name])


def main() -> None:
    """Record the lines with the code of a checkout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    file = parser.parse_args().checkout / "swift" / "ray_utils" / "resource_manager.py"
    manager = runpy.run_path(str(file))["ResourceManager"]
    text = "".join(json.dumps(line) + "\n" for line in lines(manager))
    LINES.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()

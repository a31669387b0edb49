"""What a pinned plan refuses of the recorded questions: only what no placement in whole steps could satisfy."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from ipaddress import ip_address
from itertools import accumulate
from pathlib import Path
from typing import Any

from rankplan import PlacementError, Plan, plan
from support.goldens import lines
from support.recorded_trainers import cluster, config

LINES = lines("trainer_requests")

REFUSED = {
    ("areal", "spans-nodes"): 2,
    ("nemo_rl", "resource-out-of-range"): 12,
    ("openrlhf", "resource-out-of-range"): 2,
    ("roll", "invalid-value"): 14,
    ("roll", "resource-out-of-range"): 5,
    ("skyrl", "resource-out-of-range"): 5,
    ("slime", "resource-out-of-range"): 2,
    ("slime", "spans-nodes"): 1,
    ("verl", "resource-out-of-range"): 13,
}
"""The refused lines by trainer and code."""

RUN_ALONE = {"nemo_rl": 12, "roll": 10, "slime": 1}
"""Those that the trainer runs alone: NeMo-RL with the group of a node on several, slime with an engine on two, and
ROLL's ``ResourceManager`` with less than a node has, which its configs never give it: they count the node's GPUs."""

CURED = {"nemo_rl": 8, "roll": 11, "slime": 1}
"""The lines for which the help names values that the cluster has room for."""


def planned(line: dict[str, Any], content: Any) -> Plan:
    return plan(content, cluster(line), dialect=line["trainer"], pinned=True)


def rooms(line: dict[str, Any]) -> list[tuple[str, int, int]]:
    """The address, the accelerators and the free accelerators of each node."""
    held = dict(line["cluster"]["held"])
    return [(address, gpus, gpus - len(held.get(address, ()))) for address, gpus, _ in line["cluster"]["joined"]]


@cache
def fit(units: tuple[int, ...], free: tuple[int, ...]) -> bool:
    """Whether each unit can be on one node, in any order; the largest unit is first."""
    if not units or units[0] == 1:
        return sum(free) >= len(units)
    return any(
        fit(units[1:], tuple(sorted((*free[:node], room - units[0], *free[node + 1 :]))))
        for node, room in enumerate(free)
        if room >= units[0]
    )


def together(line: dict[str, Any]) -> tuple[int, ...]:
    """What one node must have whole: a group of verl or of NeMo-RL's node, an engine of SkyRL, else a bundle."""
    found: list[int] = []
    asked = line["alone"]["requests"]
    tensor = re.search(r"tensor_parallel_size=(\d+)", str(line["question"])) if line["trainer"] == "skyrl" else None
    for one in asked:
        sizes = [int(bundle["GPU"]) for times, bundle in one["bundles"] for _ in range(times)]
        if one["strategy"] == "STRICT_PACK" or "-node" in one["name"]:
            sizes = [sum(sizes)]
        elif tensor is not None and one is asked[0]:
            sizes = [int(tensor[1])] * (len(sizes) // int(tensor[1]))
        found += sizes
    return tuple(sorted(found, reverse=True))


def possible(line: dict[str, Any]) -> bool:
    """Whether the requests, as far as the trainer made them, can be placed in whole steps."""
    asked, nodes = line["question"], rooms(line)
    if line["trainer"] == "roll":
        needed: int = asked["num_nodes"]
        return sum(gpus == free == asked["per_node"] for _, gpus, free in nodes) >= needed
    if line["trainer"] == "slime" and not asked["flags"]["colocate"]:
        flags = asked["flags"]
        engine, training = flags["rollout_num_gpus"], flags["actor_num_nodes"] * flags["actor_num_gpus_per_node"]
        assert engine == flags["rollout_num_gpus_per_engine"], "one engine, on the nodes after those of the training"
        free = [room for _, _, room in sorted(nodes, key=lambda node: ip_address(node[0]))]
        return any(
            room >= engine and before - engine >= training for room, before in zip(free, accumulate(free), strict=True)
        )
    return fit(together(line), tuple(sorted(free for _, _, free in nodes)))


def cured(line: dict[str, Any], help: str, content: Any) -> Any:
    """The config with the values that a help names; ``None`` if it names none."""
    if line["trainer"] == "roll":
        return content | {"num_gpus_per_node": int(found[1])} if (found := re.match(r"write (\d+)", help)) else None
    if line["trainer"] == "slime":
        return content | {found[1]: int(found[2])} if (found := re.match(r"set (\w+) to (\d+)", help)) else None
    pairs = re.findall(r"([\w.]+) to (\d+)", help)
    for path, value in pairs:
        *sections, key = path.split(".")
        inner = content
        for section in sections:
            inner = inner[section]
        inner[key] = int(value)
    return content if pairs else None


def test_only_what_cannot_be_placed_whole_is_refused_and_the_cure_works(tmp_path: Path) -> None:
    refused, alone, cures = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    for line in LINES:
        trainer = line["trainer"]
        try:
            planned(line, config(line, tmp_path))
            continue
        except PlacementError as error:
            found = error
        refused[trainer, found.code] += 1
        alone.update([trainer] if "error" not in line["alone"] else [])
        assert not possible(line), f"{line['id']} can be placed: {found}"
        alike = len({one.code for one in found.diagnostics}) == 1  # else there is no room for the cure of the first one
        if trainer in CURED and alike:
            content = cured(line, found.diagnostics[0].help or "", config(line, tmp_path))
            if content is not None:
                planned(line, content)
                cures[trainer] += 1
    assert (refused, alone, cures) == (REFUSED, RUN_ALONE, CURED)

"""prime-rl's own code, and rankplan: the same processes on the same devices, and the same configs refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import PlacementError, Plan
from support.goldens import check_verdict, lines

LINES = lines("prime_rl")


def processes(plan: Plan) -> list[list[Any]]:
    """Return what a plan starts as the lines have it: the component, its node, its processes, and their devices.

    Processes of the trainer on a node, and those without devices, are one entry; each server has its own.
    """
    entries: list[list[Any]] = []
    for name, component in plan.items():
        on_node: dict[int, list[list[int]]] = {}
        for row in component:
            own = [device for _, device in row.devices]
            on_node.setdefault(row.cluster_node_rank, []).append(own)
        for node, rows in on_node.items():
            if name == "trainer":
                entries.append([name, node, len(rows), [device for own in rows for device in own]])
            else:
                entries += [[name, node, 1, own] for own in rows]
    return sorted(entries)


def differences(line: dict[str, Any]) -> list[str]:
    """Return why rankplan refuses a config that prime-rl starts: servers without GPUs, or GPUs without a server."""
    words = dict(zip(line["words"][::2], line["words"][1::2], strict=False))
    tensor = int(words.get("--inference.vllm.tensor-parallel-size", 1))
    per_node = int(words.get("--deployment.gpus-per-node", 8))
    if line["config"].get("deployment", {}).get("type") != "multi_node":
        return ["prime-rl-no-gpu"] if words.get("--deployment.num-infer-gpus") == "0" else []
    if tensor > per_node:
        return ["prime-rl-no-server"]
    return ["prime-rl-idle-gpus"] if per_node % tensor else []


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_the_processes_are_those_that_prime_rl_starts(tmp_path: Path, line: dict[str, Any]) -> None:
    (tmp_path / "rl.json").write_text(json.dumps(line["config"]))
    (tmp_path / "run.sh").write_text(f"rl @ rl.json {shlex.join(line['words'])}\n")
    try:
        plan = rankplan.plan(tmp_path / "run.sh")
    except PlacementError:
        only_ours = [] if "error" in line["result"] else differences(line)
        check_verdict(line["id"], only_ours)
        assert only_ours or "error" in line["result"]
        return
    assert "error" not in line["result"], line["result"]
    assert processes(plan) == sorted(line["result"]["started"])

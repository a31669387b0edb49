"""prime-rl's own code, and rankplan: the same processes on the same devices, and the same configs refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import PlacementError, Plan
from rankplan.launchers.node_processes import node_processes
from support.goldens import check_verdict, lines

LINES = lines("prime_rl")
COMMANDS = lines("prime_rl_commands")
# What only shows or keeps output, and what the rendezvous of prime-rl has in other words.
UNUSED = {"rdzv-id", "log-dir", "tee", "redirects", "log-level", "master-port", "vllm"}


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


def flags(words: list[str]) -> dict[str, list[str]]:
    """Return the values of flags by their names, those of all others at an empty name."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in words:
        if not word.startswith("--"):
            found[name].append(word.replace("outputs/r/configs", "CONFIGS"))
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")
        found[name] = [value] if equals else []
        if equals:
            name = ""
    return found


def of_prime_rl(note: dict[str, Any]) -> dict[str, list[str]]:
    """Return the words of a program of prime-rl in the form of rankplan's."""
    words = note["words"] if note["words"][0] == "uv" else ["uv", "run", *note["words"]]
    found = flags(words)
    found |= {f"vllm.{name.replace('_', '-')}": [str(value)] for name, value in note["overrides"].items()}
    if "vllm.data-parallel-address" in found and found["vllm.data-parallel-address"] == ["10.0.0.1"]:
        found["vllm.data-parallel-address"] = [f"h{note['node']}"]  # as the first node calls itself
    if "rdzv-endpoint" in found:
        found["master-addr"] = [found.pop("rdzv-endpoint")[0].partition(":")[0]]
    return {name: values for name, values in found.items() if name not in UNUSED}


@pytest.mark.parametrize("line", COMMANDS, ids=[line["id"] for line in COMMANDS])
def test_the_commands_are_those_of_the_script_of_prime_rl(tmp_path: Path, line: dict[str, Any]) -> None:
    (tmp_path / "rl.json").write_text(json.dumps(line["config"]))
    (tmp_path / "run.sh").write_text(f"uv run rl @ rl.json {shlex.join(line['words'])}\n")
    size = rankplan.plan(tmp_path / "run.sh").inventory
    nodes = [
        {"ranks": rank, "accelerators": size.node(rank).num_accelerators, "hostname": f"h{rank}"}
        for rank in range(size.num_nodes)
    ]
    plan = rankplan.plan(tmp_path / "run.sh", rankplan.Inventory.from_dict({"nodes": nodes}))
    missing = []
    for node in range(size.num_nodes):
        notes = [note for note in line["started"] if note["node"] == node]
        left = [(of_prime_rl(note), note["environment"]) for note in notes]
        for process, words in node_processes(plan, node, {}, {}):
            own = flags(list(words))
            own.pop("master-port", None)
            if own.get("master-addr") == ["127.0.0.1"]:
                own["master-addr"] = [f"h{node}"]
            environment = next(environment for theirs, environment in left if theirs == own)
            left.remove((own, environment))
            variables = {name: value for name, value in process.environment.items() if not name.startswith("RAY_")}
            shown = variables.pop("CUDA_VISIBLE_DEVICES", None)
            assert process.component != "inference" or shown == environment["CUDA_VISIBLE_DEVICES"]
            assert variables.items() <= environment.items()
        missing += left
    assert missing == []

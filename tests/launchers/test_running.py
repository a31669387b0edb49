"""The commands in files without Ray, run as the kubelet would: every rank starts once, with the facts of the plan."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import EmitOptions
from support.launchers import object_of

CONFIG = {"cluster": {"num_nodes": 3, "component_placement": {"actor": "0-3", "rollout": "2-4:0-2"}}}
NODES = {"nodes": [{"ranks": "0-1", "accelerators": 2}, {"ranks": 2, "accelerators": 1}]}
PROGRAM = """\
import json, os, sys
names = ("RANK", "WORLD_SIZE", "CLUSTER_NODE_RANK", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT")
with open(f"{sys.argv[2]}/{sys.argv[1]}-{os.environ['RANK']}", "x") as file:
    json.dump([os.environ[name] for name in names], file)
"""


def pods(started: dict[str, Any]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the command of each pod, and the variables that only the cluster knows."""
    spec = started["spec"]
    if started["kind"] == "JobSet":
        for job in spec["replicatedJobs"]:
            inner = job["template"]["spec"]
            for index in range(inner["completions"]):
                yield filled(inner["template"], {"RANKPLAN_INDEX": str(index)})
    else:
        template = spec["leaderWorkerTemplate"]
        for group in range(spec["replicas"]):
            for index in range(template["size"]):
                given = {"RANKPLAN_GROUP": str(group), "RANKPLAN_INDEX": str(index)}
                yield filled(template["workerTemplate"], given)


def filled(template: dict[str, Any], fields: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a pod as the kubelet fills them: each $(NAME) of a variable before."""
    (container,) = template["spec"]["containers"]
    environment: dict[str, str] = {}
    for one in container["env"]:
        value = one.get("value", fields.get(one["name"], ""))
        environment[one["name"]] = expanded(value, environment)
    return [expanded(word, environment) for word in container["command"]], environment


def expanded(text: str, environment: dict[str, str]) -> str:
    """Kubernetes: ``expansion.Expand``."""
    return re.sub(r"\$(\$|\((\w+)\))", lambda m: "$" if m[1] == "$" else environment.get(m[2], m[0]), text)


@pytest.mark.parametrize("target", ["jobset", "lws"])
def test_every_rank_is_started_once_with_the_facts_of_the_plan(target: str, tmp_path: Path) -> None:
    config, nodes = CONFIG, NODES
    if target == "lws":
        config = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-3", "rollout": "0-3:0-1"}}}
        nodes = {"nodes": [{"ranks": "0-1", "accelerators": 2}]}
    plan = rankplan.plan(config, rankplan.Inventory.from_dict(nodes))
    program = tmp_path / "it's $(HOME) $$ $5.py"
    program.write_text(PROGRAM)
    (out := tmp_path / "out").mkdir()
    command = f'{sys.executable} "{program}" {{}} {out}'
    text = rankplan.emit(plan, target, EmitOptions(command=command, image="train:1", port=1234))
    (file := tmp_path / "plan.json").write_text(object_of(text, "ConfigMap")["data"]["plan.json"])
    kind = {"jobset": "JobSet", "lws": "LeaderWorkerSet"}[target]
    for words, _ in pods(object_of(text, kind)):
        assert words[:3] == ["rankplan", "exec", "/etc/rankplan/plan.json"]
        done = subprocess.run([sys.executable, "-m", "rankplan", "exec", str(file), *words[3:]], timeout=120)
        assert done.returncode == 0
    found = {path.name: json.loads(path.read_text()) for path in out.iterdir()}
    expected = {}
    for index, (name, component) in enumerate(plan.items()):
        for row in component:
            mask = ",".join(row.visible_accelerators)
            node = str(row.cluster_node_rank)
            expected[f"{name}-{row.rank}"] = [str(row.rank), str(len(component)), node, mask, str(1234 + index)]
    assert {name: [*rows[:4], rows[5]] for name, rows in found.items()} == expected
    masters = {name.partition("-")[0]: rows[4] for name, rows in found.items()}
    first = {"jobset": ["train-actor-0-0.train", "train-actor-rollout-0-0.train"], "lws": ["train-0.train"] * 2}
    assert [masters[name] for name in plan] == first[target]

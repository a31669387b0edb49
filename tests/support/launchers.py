"""Files of launchers in tests: recorded facts, and the check of Kubernetes objects against their definitions."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import rankplan
import yaml

from support.goldens import lines
from support.schemas.validate import Loader, faults

CASES: dict[str, dict[str, Any]] = {line["id"]: line for line in lines("targets")}
"""Configs on inventories, and what the file of each launcher must show of their plans."""

INCOMPLETE = "v16"
"""Its config is refused before there is a plan, because of the segment; a saved plan may still have it."""

OPTIONS: dict[str, dict[str, Any]] = {"kuberay": {"entrypoint": "python train.py"}, "kueue": {}}
WITHOUT_RAY: dict[str, Any] = {"command": "python {}.py"}


def planned(case: str) -> rankplan.Plan:
    """Return the plan of a case."""
    line = CASES[case]
    inventory = rankplan.Inventory.from_dict(line["inventory"])
    if case != INCOMPLETE:
        return rankplan.plan(line["config"], inventory)
    section = {key: value for key, value in line["config"]["cluster"].items() if key != "topology"}
    content = rankplan.plan({"cluster": section}, inventory).to_dict()
    content["cluster"]["topology"] = line["config"]["cluster"]["topology"]
    return rankplan.Plan.from_dict(content)


def options(case: str, target: str) -> dict[str, Any]:
    """Return the options of a case for a target."""
    stated = CASES[case]["options"]
    found: dict[str, Any] = {"queue": stated.get("queue"), "levels": stated.get("level_key", {})}
    return {**found, **OPTIONS.get(target, WITHOUT_RAY)}


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects of a file, as Kubernetes reads it, after checking each against its definition."""
    found = list(yaml.load_all(text, Loader=Loader))
    for document in found:
        assert faults(document)[1] == [], document["kind"]
    return found


def object_of(text: str, kind: str) -> dict[str, Any]:
    """Return the only object of a kind in a file."""
    (found,) = [one for one in documents(text) if one["kind"] == kind]
    return found


def again(text: str, target: str) -> tuple[rankplan.Plan, str]:
    """Return the plan of a file, and the file that is emitted from it."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "train.yaml")
        file.write_text(text, encoding="utf-8")
        return rankplan.plan(file), rankplan.emit(file, target)


def places(plan: rankplan.Plan) -> dict[str, Any]:
    """Return where the processes of a plan are, and what they see."""
    return {
        name: [
            (row.rank, row.cluster_node_rank, row.local_hardware_ranks, row.resource_type, row.node_group_label)
            for row in component
        ]
        + [component.settings]
        for name, component in plan.items()
    }

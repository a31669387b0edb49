"""A job file to edit: every key as a comment, with an example of this very job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rankplan.errors import PlacementError
from rankplan.files import write_whole
from rankplan.frozen import frozen
from rankplan.jobs import faults
from rankplan.jobs.keys import KEYS, OF_PROCESSES
from rankplan.jobs.recognising import JOB
from rankplan.nodes.facts import NODE_LEVEL
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component, used_nodes
from rankplan.plans.plan import Plan
from rankplan.read.text.load import SCRIPTS

SCHEMA = "https://www.schemastore.org/rankplan.json"
"""Where SchemaStore serves the schema of configs and job files."""

_KINDS = ("tp", "ep", "cp", "pp", "fsdp", "dp")
"""The kinds of groups that an example may name, those that communicate most first."""


@frozen
class Draft:
    """What an example needs to know of a job.

    ``file`` is the path of its config or its saved plan, ``nodes`` the size or the path of its nodes, if one is given.
    Paths are relative to the folder of the job file. ``is_plan``: the file is a saved plan. ``owns_processes``:
    rankplan starts the processes.
    """

    file: str
    plan: Plan
    inventory: Inventory
    nodes: str | None
    is_plan: bool
    owns_processes: bool

    def text(self) -> str:
        """Return the content of the job file."""
        lines = [f"# yaml-language-server: $schema={SCHEMA}", f"{JOB}: {_scalar(self.file)}", ""]
        lines.append("# Remove `# ` from a line, and from the key above it, to state it.")
        for key, example in self._examples().items():
            lines += ["", f"# {KEYS[key].decides}"]
            lines += [f"# {line}" for line in _lines(key, example)]
        return "\n".join([*lines, ""])

    def _examples(self) -> dict[str, Any]:
        """Return a value of each key that the job takes."""
        examples: dict[str, Any] = {
            "overrides": ["key=value"],
            "nodes": self.nodes or _size(self.inventory),
            "exclude": [self.inventory.node(self.inventory.num_nodes - 1).name],
            "topology": self._topology(),
            "node_groups": [{"label": "first", "node_ranks": 0}],
            "pools": [{"name": "all", "components": list(self.plan), "max_accelerators": self._accelerators()}],
            "beside": ["other-plan.json"],
            "memory": {"accelerator": "H100", "reserve": "2 GiB"},
            "visibility": "own",
            "binding": "node",
            "cpus_per_process": 4,
            "host_memory_per_process": 32_768,
            "environment": {"NCCL_DEBUG": "INFO"},
            "command": _command(self.file),
            "emit": {"to": "kuberay", "image": "me/trainer:1"},
        }
        left_out = set() if self.owns_processes else set(OF_PROCESSES)
        if self.is_plan:
            left_out |= {key for key in examples if not KEYS[key].of_plan}
        return {key: value for key, value in examples.items() if key not in left_out}

    def _topology(self) -> dict[str, Any]:
        """Return rules about the components of this job, on the levels of its inventory."""
        levels = self.inventory.levels
        inner = levels[-1] if levels else NODE_LEVEL
        kept = {name: dict.fromkeys(_kinds(one), NODE_LEVEL) for name, one in self.plan.items() if _kinds(one)}
        first = next(iter(self.plan), "actor")
        rules: dict[str, Any] = {"keep": kept or {first: {"world": inner}}, "prefer": {first: {"world": inner}}}
        if levels:
            segment = len(self.plan[first].used_nodes()) if first in self.plan else 1
            in_use = len(used_nodes(self.plan.values())) or 1
            rules |= {"segment": {first: segment}, "balance": {first: inner}, "cap": {inner: in_use}}
            rules["levels"] = list(levels)
        return rules

    def _accelerators(self) -> int:
        return len(self.inventory.core.accelerators()) or 1


def write_draft(path: Path, draft: Draft) -> None:
    """Write a job file. Raises `PlacementError` (``exists``) for a file that exists, ``OSError``."""
    if os.path.lexists(path):
        raise PlacementError([faults.exists(str(path))])
    write_whole(path, draft.text())


def usual_name(file: str) -> Path:
    """Return the usual path of the job file of a config: ``run.job.yaml`` beside ``run.sh``."""
    path = Path(file)
    return path.with_name(f"{path.stem}.job.yaml")


def from_folder_of(path: Path, file: str) -> str:
    """Return the path of a file relative to the folder of another one; an absolute path stays."""
    if Path(file).is_absolute():
        return file
    return os.path.relpath(file, path.parent)


def _kinds(component: Component) -> list[str]:
    """Return the kinds of groups of two or more slots that a component states; the first one is enough."""
    if not component.parallel.stated:
        return []
    return [kind for kind in _KINDS if kind in component.layout.kinds and component.layout.size(kind) > 1][:1]


def _size(inventory: Inventory) -> str:
    """Return a size like that of an inventory."""
    return f"{inventory.num_nodes}x{inventory.node(0).num_accelerators}"


def _command(file: str) -> str:
    """Return the command of a script; for a config, a place to write it."""
    return f"bash {file}" if file.endswith(SCRIPTS) else "python3 train.py"


def _lines(key: str, value: Any) -> Iterator[str]:
    """Yield the lines of a key: a mapping has a line for each of its keys."""
    if isinstance(value, Mapping):
        yield f"{key}:"
        for inner, item in value.items():
            yield f"  {inner}: {_flow(item)}"
    else:
        yield f"{key}: {_flow(value)}"


def _flow(value: Any) -> str:
    """Return a value as YAML in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(str(key))}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value) if isinstance(value, str) else str(value)


def _scalar(text: str) -> str:
    """Return a text as YAML, quoted if it must be."""
    import yaml  # only for drafts

    return str(yaml.safe_dump(text, default_flow_style=True, width=10_000)).removesuffix("\n").removesuffix("\n...")

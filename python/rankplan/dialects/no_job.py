"""Files that are no config of a job: one sentence that says what the file is, and what to pass instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankplan.files import read_text
from rankplan.kinds import CONFIG, COSTS, INVENTORY, SLURM_NODES, kind_of, object_of_kubernetes
from rankplan.read.text.other_trainers import PASS_A_JOB, trainer_of_config
from rankplan.words import nearest

_OWN = ("cluster", "component_placement", "rankplan")
"""Keys of RLinf's configs and of saved plans."""
_FILES = {
    INVENTORY.name: "pass a config, and this file with --inventory",
    COSTS.name: "pass it to `rankplan tune` with --costs",
    SLURM_NODES.name: "make an inventory of them with `rankplan inventory --slurm`, and pass it with --inventory",
}
"""How to pass the other files of rankplan."""
_MOST_FILES = 500
_LARGEST = 1 << 20
"""Bytes."""


def description(config: Mapping[str, Any], file: str | None) -> tuple[str, str] | None:
    """Return what a config without the keys of a system is, and what to pass instead.

    ``None``: it may be the config of a job.
    """
    if (found := object_of_kubernetes(config)) is not None:
        help = "pass the config or the script of the trainer; describe the nodes with --nodes or --inventory"
        return f"this is {found}, not {CONFIG.name}", help
    if isinstance(config.get("run"), str) and any(key in config for key in ("resources", "file_mounts", "workdir")):
        return "this is a task of SkyPilot, not the config of a job", "pass the config that the command in `run` reads"
    if any(key in config for key in _OWN) or nearest("cluster", [str(key) for key in config], 0.8) is not None:
        return None
    if (found := kind_of(config)) in _FILES and (message := CONFIG.instead(config)) is not None:
        return message, _FILES[found]
    if (trainer := trainer_of_config(config)) is not None:
        return f"this is a config of {trainer}, whose processes are all alike: it has no placement to check", PASS_A_JOB
    if (option := _option(file)) is not None:
        group, name, user = option
        return f"this is the option `{name}` of the config group `{group}`, not the config of a job", f"pass {user}"
    if names := _bases(config.get("defaults")):
        message = f"this is part of a config, not that of a whole job: `defaults` adds {', '.join(names)}"
        return message, "pass the config that Hydra has composed: python TRAINER --cfg job --resolve > job.yaml"
    message = "this is part of a config, not the config of a job: it has no key of a system that rankplan reads"
    return message, "pass the config that includes it, or name its system with --dialect"


def _bases(defaults: Any) -> list[str]:
    """Return the configs that Hydra's list of defaults names."""
    listed = [defaults] if isinstance(defaults, str) else defaults if isinstance(defaults, list) else []
    names = [one if isinstance(one, str) else "/".join(map(str, next(iter(one.items())))) for one in listed if one]
    return [f"`{name}`" for name in names if name != "_self_"]


def _option(file: str | None) -> tuple[str, str, str] | None:
    """Return the group and the name of an option of Hydra, and a config that uses it; ``None`` for another file.

    Options are in the folder of their group, beside the configs that name them: ``defaults: [model: cnn]``.
    """
    if file is None:
        return None
    path = Path(file).absolute()
    group, name = path.parent.name, path.stem
    used = re.compile(rf"^\s*-\s*(?:override\s+)?/?{re.escape(group)}(?:@[\w.]+)?\s*:\s*{re.escape(name)}\s*$", re.M)
    for other in _configs(path.parent.parent):
        with suppress(OSError, ValueError):
            if used.search(read_text(other, _LARGEST)):
                return group, name, str(Path(file).parent.parent / other.name)
    return None


def _configs(folder: Path) -> Iterator[Path]:
    found: list[Path] = []
    with suppress(OSError):
        found = sorted(one for one in folder.iterdir() if one.suffix in (".yaml", ".yml") and one.is_file())
    return iter(found[:_MOST_FILES])

"""The command that `rankplan.pin` runs: what it must not do, and the environment that it gets."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from rankplan_hook.names import METADATA, VARIABLE, job_environment, site

from rankplan.errors import Diagnostic, PlacementError
from rankplan.read.text.ray_commands import commands_changing_ray
from rankplan.runtime.live.faults import changes_cluster, open_hook_folder, other_hook

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray's variable with the settings of the job that a program becomes."""

_LARGEST = 1 << 20
_WRITABLE_BY_OTHERS = 0o002


def check_command(command: Sequence[str]) -> None:
    """Raise ``OSError`` for a command that cannot be found, `PlacementError` for a script that ends or starts Ray."""
    if shutil.which(command[0]) is None:
        code = errno.EACCES if Path(command[0]).is_file() else errno.ENOENT
        raise OSError(code, os.strerror(code), command[0])
    faults = [fault for word in command[:2] for fault in _ending_lines(Path(word))]
    if faults:
        raise PlacementError(faults)


def _ending_lines(path: Path) -> list[Diagnostic]:
    """Return the faults of a shell script with lines that end the cluster which the plan is for, or start another."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return []
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        return []
    first = text.partition("\n")[0]
    if path.suffix not in (".sh", ".bash") and not (first.startswith("#!") and "sh" in first):
        return []
    return [command.place.of(changes_cluster(command.text)) for command in commands_changing_ray(str(path), text)]


def check_hook_folder() -> None:
    """Raise `PlacementError` if every user may write to the folder that each Python of the command loads."""
    for folder in (Path(site()), Path(site()).parent):
        mode = folder.stat().st_mode
        if mode & _WRITABLE_BY_OTHERS and not mode & 0o1000:
            raise PlacementError([open_hook_folder(folder)])


def command_environment(given: Mapping[str, str], run: str, address: str) -> dict[str, str]:
    """Return the environment of the command: the given one, the hook, the cluster, and the settings of its job.

    Raises `PlacementError` if the given settings of a job (`ray job submit` sets them) have a hook of their own.
    """
    try:
        config = json.loads(given.get(JOB_CONFIG) or "{}")
        config["runtime_env"] = job_environment(config.get("runtime_env") or {}, run)
        config["metadata"] = {**(config.get("metadata") or {}), METADATA: run}
    except (ValueError, TypeError, AttributeError) as error:
        raise PlacementError([other_hook(JOB_CONFIG, str(error))]) from None
    path = os.pathsep.join(filter(None, [site(), given.get("PYTHONPATH")]))
    own = {VARIABLE: run, "PYTHONPATH": path, "RAY_ADDRESS": address, JOB_CONFIG: json.dumps(config)}
    return {**given, **own}

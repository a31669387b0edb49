"""A trainer that starts its processes itself, in the file of a launcher: Ray on every node, and its command once.

Such a trainer asks Ray for placement groups. `rankplan pin` runs it, unchanged, with these groups bound to the nodes of
the plan. So its command is the driver of a job on Ray, and never the command of a rank.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from rankplan.errors import PlacementError
from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.launcher import Launcher, Starts
from rankplan.launchers.options import CLUSTER, DEFAULT, Options
from rankplan.launchers.scripts import Verbatim, quoted, shell_words
from rankplan.launchers.table import LAUNCHERS
from rankplan.plans.plan import Plan

_PLAIN = re.compile(r"[\w@%+:,./-][\w@%+=:,./-]*(?:[ \t]+[\w@%+=:,./-]+)*", re.ASCII)
"""A command that a shell only splits into words."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_BUILTINS = frozenset(
    (".", "builtin", "cd", "command", "eval", "exec", "export", "set", "source", "time", "ulimit", "umask")
)
"""First words that only a shell understands."""
_PIN = re.compile(r"\brankplan\s+pin\b")
_FILES = (".sh", ".bash", ".py", ".yaml", ".yml", ".json")


def starts_itself(plan: Plan) -> bool:
    """Whether the trainer of a plan starts its processes itself, on Ray: its plan names its dialect."""
    return plan.dialect is not None


def has_driver(draft: Draft) -> bool:
    """Whether the file starts Ray and a driver, and no command of a component."""
    return draft.options.entrypoint is not None or starts_itself(draft.plan)


def command_words(command: str) -> list[str]:
    """Return the words that start a command; one that needs a shell runs in bash."""
    text = command.strip()
    if _PLAIN.fullmatch(text) and not _ASSIGNMENT.match(text) and text.split()[0] not in _BUILTINS:
        return text.split()
    return ["bash", "-c", text]


def with_trainer(options: Options, plan: Plan, launcher: Launcher, *, is_written: bool) -> Options:
    """Return the options of a file for a trainer that starts itself: its command, if it is known, is the entrypoint.

    The command is that of the options, or else the one that the plan keeps; ``is_written``: the options are those of a
    file that has one already, which may be the user's. Raises `PlacementError`: ``emit-ray`` for a
    launcher that starts a process for each rank, ``emit-command`` for a job without a command. Raises ``ValueError``
    for a command that cannot be that of the trainer.
    """
    if launcher.starts is Starts.NOTHING:
        return options
    if Starts.DRIVER not in launcher.starts:
        others = [name for name in LAUNCHERS.builtin if Starts.DRIVER in LAUNCHERS[name].starts]
        raise PlacementError([faults.needs_ray(launcher.name, str(plan.dialect), others)])
    stated = _stated_command(options, plan)
    if options.kind == CLUSTER:
        return options
    if stated is None and plan.job is not None and not is_written:
        stated = plan.job.command
    if stated is None and options.base is None:
        raise PlacementError([faults.no_command(str(plan.dialect))])
    return replace(options, entrypoint=stated, commands={})


def _stated_command(options: Options, plan: Plan) -> str | None:
    """Return the command of the trainer that the options state."""
    commands = [
        command if name == DEFAULT else f"{name}={command}"  # the command may start with a variable
        for name, command in options.commands.items()
    ]
    if any(name in plan for name in options.commands) or len(commands) > 1:
        raise ValueError(f"{plan.dialect} starts its components itself; pass one --command, without COMPONENT=")
    if commands and options.entrypoint is not None:
        raise ValueError("--entrypoint and --command both state the command of the trainer; use one of them")
    stated = commands[0] if commands else options.entrypoint
    if stated is not None and not stated.strip():
        raise ValueError("the command of the trainer is empty")
    if stated is not None and not isinstance(stated, Verbatim) and _PIN.search(stated):
        raise ValueError("state the trainer's own command: the file runs it under `rankplan pin`")
    return stated


def driver(draft: Draft, plan_path: str, quote: Callable[[str], str] = quoted) -> str:
    """Return the command of the driver, in the words of a shell: for a trainer that starts itself, under `pin`.

    ``plan_path`` is the path of the plan as the shell reads it; ``quote`` quotes a word.
    """
    entrypoint = draft.options.entrypoint or ""
    if not starts_itself(draft.plan):
        return shell_words(entrypoint)
    if isinstance(entrypoint, Verbatim):
        words: str = entrypoint
    else:
        words = " ".join(map(quote, command_words(entrypoint)))
    return f"{pinning(plan_path)}{words}"


def pinning(plan_path: str) -> str:
    """Return what stands before the trainer's command."""
    return f"rankplan pin {plan_path} -- "


def driver_read(plan: Plan, text: str, plan_path: str) -> Verbatim | None:
    """Return the entrypoint that the text of a driver states; ``None`` for a trainer without `pin`."""
    if not starts_itself(plan):
        return Verbatim(text)
    before = pinning(plan_path)
    return Verbatim(text.removeprefix(before)) if text.startswith(before) else None


def is_pinned(text: str) -> bool:
    """Whether a command runs `rankplan pin`."""
    return _PIN.search(text) is not None


def note_command(draft: Draft, *, place: str) -> None:
    """Note what the file runs, and what must be there: ``place`` is where, in words."""
    entrypoint = draft.options.entrypoint
    if entrypoint is None or not starts_itself(draft.plan):
        return
    needed = ["rankplan", "Ray", *_files(entrypoint)]
    listed = f"{', '.join(needed[:-1])} and {needed[-1]}"
    draft.notes.append(f"the job runs `{entrypoint}` under `rankplan pin`; {place} must have {listed}")


def _files(command: str) -> Sequence[str]:
    """Return the words of a command that name files."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ()
    return [word for word in words if PurePosixPath(word).suffix in _FILES and "=" not in word and "$" not in word]

"""The output of ``$(...)`` where it is the path of a file of the script: ``$(cd "$(dirname "$0")/.." && pwd)``.

So is ``$(echo "$FOLDER/run.sh" | sed 's#scripts#configs#')``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import NamedTuple

from rankplan.read.text.shell.parse import Block, Chain, Group, Simple, Statement
from rankplan.read.text.shell.words import Word

_REPLACEMENT = re.compile(r"s([#,|/])([\w/ -]+)\1([\w/. -]*)\1(g?)")
"""A command of sed that replaces a text without special characters."""


def output(commands: Block, value: Callable[[Word], str | None], folder: str) -> str | None:
    """Return what commands print, ``None`` if it is no path or unknown.

    ``value`` returns the text of a word. Paths are relative to the folder in which the script runs, and so is
    ``folder``, the one that it has changed to.
    """
    statements = _statements(commands)
    if not statements:
        return None
    *changes, last = statements
    if not changes and isinstance(last, Group):
        return _piped(last, value, folder)
    for change in changes:
        target = _folder_of_cd(change, value)
        if target is None:
            return None
        folder = posixpath.join(folder, target)
    command = _command(last, value)
    return None if command is None else _printed(command, folder)


def _statements(commands: Block) -> list[Statement]:
    """Return commands in their order, those that ``&&`` joins among them."""
    statements: list[Statement] = []
    for statement in commands:
        if isinstance(statement, Chain) and all(operator == "&&" for operator, _ in statement.commands):
            statements += [inner for _, inner in statement.commands]
        else:
            statements.append(statement)
    return statements


class _Command(NamedTuple):
    """A command with its arguments, without its options; ``None`` is a text that is unknown."""

    name: str | None
    arguments: list[str | None]


def _command(statement: Statement, value: Callable[[Word], str | None]) -> _Command | None:
    """Return a command without assignments; ``None`` for anything else."""
    if not isinstance(statement, Simple) or statement.assignments or not statement.words:
        return None
    name, *texts = [value(word) for word in statement.words]
    return _Command(name, [text for text in texts if text is None or not text.startswith("-")])


def _folder_of_cd(statement: Statement, value: Callable[[Word], str | None]) -> str | None:
    """Return the folder that ``cd`` changes to, ``None`` if it is unknown, and for any other command."""
    match _command(statement, value):
        case _Command("cd", [str() as target]) if target:
            return target
    return None


def _piped(pipeline: Group, value: Callable[[Word], str | None], folder: str) -> str | None:
    """Return what ``... | sed 's/a/b/'`` prints."""
    if len(pipeline.body) != 2:
        return None
    first, last = (part.body if isinstance(part, Group) else () for part in pipeline.body)
    if len(last) != 1 or not isinstance(last[0], Simple):
        return None
    texts = [value(word) for word in last[0].words]
    if len(texts) != 2 or texts[0] != "sed":
        return None
    replacement = _REPLACEMENT.fullmatch(texts[1] or "")
    if replacement is None:
        return None
    _, old, new, every = replacement.groups()
    printed = output(first, value, folder)
    return None if printed is None else printed.replace(old, new, -1 if every else 1)


def _printed(command: _Command, folder: str) -> str | None:
    """Return the path that a command prints in a folder."""
    match [command.name, *command.arguments]:
        case ["pwd"]:
            return posixpath.normpath(folder)
        case ["basename", str() as path, str() as suffix] if path:
            return posixpath.basename(path.rstrip("/")).removesuffix(suffix)
        case ["basename", str() as path] if path and _has_name(path):
            return posixpath.basename(path.rstrip("/"))
        case ["dirname", str() as path] if path and _has_name(path):
            return posixpath.dirname(path.rstrip("/")) or "."
        case ["dirname", str() as path] if path:
            return posixpath.normpath(posixpath.join(path, ".."))
        case ["realpath" | "readlink", str() as path] if path:
            return posixpath.normpath(posixpath.join(folder, path))
        case ["echo", str() as path] if path:
            return path
    return None


def _has_name(path: str) -> bool:
    """Return whether the last part of a path is a name, and not the present folder or the one above."""
    return posixpath.basename(path.rstrip("/")) not in (".", "..")

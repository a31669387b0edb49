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
    statements: list[Statement] = []
    for statement in commands:
        if isinstance(statement, Chain) and all(operator == "&&" for operator, _ in statement.commands):
            statements += [inner for _, inner in statement.commands]
        else:
            statements.append(statement)
    if not statements:
        return None
    *changes, last = statements
    if not changes and isinstance(last, Group):
        return _piped(last, value, folder)
    for change in changes:
        command = _command(change, value)
        if command is None or command.name != "cd" or len(command.arguments) != 1 or not command.arguments[0]:
            return None
        folder = posixpath.join(folder, command.arguments[0])
    command = _command(last, value)
    return None if command is None else _printed(command, folder)


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
    printed = None if replacement is None else output(first, value, folder)
    if replacement is None or printed is None:
        return None
    return printed.replace(replacement[2], replacement[3], -1 if replacement[4] else 1)


def _printed(command: _Command, folder: str) -> str | None:
    """Return the path that a command prints in a folder."""
    name, arguments = command
    if name == "pwd" and not arguments:
        return posixpath.normpath(folder)
    path = arguments[0] if arguments else None
    if not path:
        return None
    stem = path.rstrip("/")
    if len(arguments) > 1:
        suffix = arguments[1]
        is_cut = name == "basename" and len(arguments) == 2 and suffix is not None
        return posixpath.basename(stem).removesuffix(suffix or "") if is_cut else None
    has_name = posixpath.basename(stem) not in (".", "..")
    match name:
        case "dirname" if has_name:
            return posixpath.dirname(stem) or "."
        case "dirname":
            return posixpath.normpath(posixpath.join(path, ".."))
        case "basename":
            return posixpath.basename(stem) if has_name else None
        case "realpath" | "readlink":
            return posixpath.normpath(posixpath.join(folder, path))
        case "echo":
            return path
    return None

"""The output of ``$(...)`` where it is the path of a file of the script: ``$(cd "$(dirname "$0")/.." && pwd)``.

So is ``$(echo "$FOLDER/run.sh" | sed 's#scripts#configs#')``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence

from rankplan.read.text.shell.parse import Block, Chain, Group, Simple, Statement
from rankplan.read.text.shell.words import Word

_REPLACEMENT = re.compile(r"s([#,|/])([\w/ -]+)\1([\w/. -]*)\1(g?)")
"""A command of sed that replaces a text without special characters."""


def output(commands: Block, value: Callable[[Word], str | None], folder: str) -> str | None:
    """Return what commands print, ``None`` if it is no path or unknown.

    ``value`` returns the text of a word. Paths are relative to the folder in which the script runs, and so is
    ``folder``, the one that it has changed to.
    """
    listed: list[Statement] = []
    for one in commands:
        if isinstance(one, Chain) and all(operator == "&&" for operator, _ in one.commands):
            listed += [statement for _, statement in one.commands]
        else:
            listed.append(one)
    for index, one in enumerate(listed):
        if isinstance(one, Group) and len(listed) == 1:
            return _piped(one, value, folder)
        if not isinstance(one, Simple) or one.assignments or not one.words:
            return None
        texts = [value(word) for word in one.words]
        name, arguments = texts[0], [text for text in texts[1:] if text is None or not text.startswith("-")]
        last = index == len(listed) - 1
        if name == "cd" and not last and len(arguments) == 1 and arguments[0]:
            folder = posixpath.join(folder, arguments[0])
        elif last:
            return _printed(name, arguments, folder)
        else:
            return None
    return None


def _piped(pipeline: Group, value: Callable[[Word], str | None], folder: str) -> str | None:
    """Return what ``... | sed 's/a/b/'`` prints."""
    if len(pipeline.body) != 2:
        return None
    first, last = (one.body if isinstance(one, Group) else () for one in pipeline.body)
    words = last[0].words if len(last) == 1 and isinstance(last[0], Simple) else ()
    texts = [value(word) for word in words]
    found = _REPLACEMENT.fullmatch(texts[1] or "") if texts[:1] == ["sed"] and len(texts) == 2 else None
    printed = None if found is None else output(first, value, folder)
    if found is None or printed is None:
        return None
    return printed.replace(found[2], found[3], -1 if found[4] else 1)


def _printed(name: str | None, arguments: Sequence[str | None], folder: str) -> str | None:
    path = arguments[0] if arguments else None
    if name == "basename" and path and len(arguments) == 2 and arguments[1] is not None:
        return posixpath.basename(path.rstrip("/")).removesuffix(arguments[1])
    if len(arguments) > 1:
        return None
    if name == "pwd" and not arguments:
        return posixpath.normpath(folder)
    if not path:
        return None
    if posixpath.basename(path.rstrip("/")) in (".", ".."):  # a folder without its name
        if name == "dirname":
            return posixpath.normpath(posixpath.join(path, ".."))
        if name == "basename":
            return None
    if name == "dirname":
        return posixpath.dirname(path.rstrip("/")) or "."
    if name == "basename":
        return posixpath.basename(path.rstrip("/"))
    if name in ("realpath", "readlink"):
        return posixpath.normpath(posixpath.join(folder, path))
    return path if name == "echo" else None

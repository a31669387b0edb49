"""Config files after ``@`` in the words of a command, and the flags beside them, as pydantic-config reads them.

``rl @ a.toml @ b.toml --x.y z``: a later file changes an earlier one. A file after a flag (``--trainer @ t.toml``) is
the section that the flag names, and changes all whole files; the last one of a section counts alone. Flags change all
files.

Source: ``_process_args`` and ``cli`` in pydantic_config/cli.py (prime-pydantic-config 0.4.3). A file right after the
sign (``@a.toml``) is accepted also where pydantic-config wants a blank.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rankplan.read.text.shell.expand import Field

SIGN = "@"

_SECTION = re.compile(r"--([A-Za-z][\w.-]*)")
_NEGATED = re.compile(r"no[-_]")


class NamedFile(NamedTuple):
    """A word that names a config file: its number, where the name starts in it, and the path of its section."""

    word: int
    start: int
    section: tuple[str, ...]


class AtWords(NamedTuple):
    """The words of a command: those that name files, and all others."""

    files: list[NamedFile]
    others: list[Field]


def divided(fields: Sequence[Field]) -> AtWords:
    """Divide the words of a command into the files after ``@``, with the flags that they belong to, and the others."""
    files: list[NamedFile] = []
    others: list[Field] = []
    section: tuple[str, ...] = ()
    index = 0
    while index < len(fields):
        text = fields[index].text or ""
        following = (fields[index + 1].text or "") if index + 1 < len(fields) else ""
        flag = _SECTION.fullmatch(text)
        if text == SIGN and index + 1 < len(fields):
            files.append(NamedFile(index + 1, 0, section))
            section = ()
            index += 2
            continue
        if text.startswith(SIGN) and len(text) > 1:
            files.append(NamedFile(index, 1, section))
            section = ()
        elif flag is not None and following.startswith(SIGN):
            section = tuple(flag[1].replace("-", "_").split("."))
        else:
            others.append(fields[index])
        index += 1
    return AtWords(files, others)


def ordered(files: Sequence[NamedFile]) -> list[NamedFile]:
    """Return the files of a command, the least important one first: of a section, only the last one counts."""
    whole = [file for file in files if not file.section]
    of_sections = {file.section: file for file in files if file.section}
    return [*whole, *of_sections.values()]


def negated(key: str) -> str | None:
    """Return the key that a flag without a value turns off (``no_x.y``), ``None`` for another flag."""
    start = _NEGATED.match(key)
    return None if start is None else key[start.end() :]

"""A checkout of a trainer that is newer than the versions that its dialect was tried with.

No trainer's config states a version. A launch script may start a program of a checkout, whose files do.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from rankplan.dialects import Dialect
from rankplan.dialects.interface.tried import Tried
from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import read_text
from rankplan.front import faults
from rankplan.read.text.nearby import folders_above, is_file
from rankplan.read.text.places import Text

_LARGEST = 1 << 18
"""The most bytes of a file of a project that are read."""
_NUMBER = "[0-9]{1,9}(?![0-9])"
_VERSION = re.compile(
    rf"""^[ \t]*(?:(?:__)?version(?:__)?[ \t]*=[ \t]*)?["']?"""
    rf"""(v?{_NUMBER}\.{_NUMBER}[\w.+-]{{0,80}})["']?,?[ \t\r]*$""",
    re.MULTILINE,
)
_PARTS = re.compile(rf"^MAJOR = ({_NUMBER})[ \t\r]*\n[ \t]*MINOR = ({_NUMBER})", re.MULTILINE)


def newer_version(dialect: Dialect, program: str) -> Diagnostic | None:
    """Return the warning of a checkout with a newer major version than was tried; ``None`` for any other program.

    ``program`` is the file of the program that a launch script starts. The folder of the checkout is that of the
    program or one above it, up to the root of the repository. Before 1.0, a minor version counts as a major one:
    trainers rename their keys and flags in those.
    """
    tried = dialect.tried
    if tried is None or not program:
        return None
    for folder in folders_above(program):
        file = folder / tried.file
        text = _text(file)
        if text is None or not _is_of_system(tried, folder, text):
            continue
        return _warning(dialect.system, tried, Text(os.fspath(file), text))
    return None


def _warning(system: str, tried: Tried, text: Text) -> Diagnostic | None:
    """Return the warning of the version that a file states, ``None`` unless it is newer than what was tried."""
    content = "\n".join(text.lines)
    whole, parts = _VERSION.search(content), _PARTS.search(content)
    if whole is not None:
        version, (start, end) = whole[1], whole.span(1)
    elif parts is not None:
        version, (start, end) = f"{parts[1]}.{parts[2]}", parts.span()
    else:
        return None
    if _major(version) <= _major(tried.version):
        return None
    return text.place(start, end).of(faults.newer_version(system, version, tried.version))


def _is_of_system(tried: Tried, folder: Path, text: str) -> bool:
    """Return whether a folder with the file of a version is a checkout of the system, and of no other project."""
    if not tried.named:
        return True
    project = _text(folder / tried.project) if tried.project else text
    return project is not None and re.search(tried.named, project) is not None


def _major(version: str) -> tuple[int, ...]:
    """Return the part of a version that changes with its rules: the major number, and before 1.0 the minor one too."""
    numbers = [int(number) for number in re.findall(_NUMBER, version)[:2]]
    return tuple(numbers) if numbers[:1] == [0] else tuple(numbers[:1])


def _text(file: Path) -> str | None:
    """Return the text of a file, ``None`` if there is no such file that can be read."""
    if not is_file(file):
        return None
    try:
        return read_text(file, _LARGEST)
    except (OSError, PlacementError):
        return None

"""Files that a script names. Where the check runs does not say where the script runs: they are looked up from it.

A relative name is looked up beside the script, then in each folder above it up to the root of its repository, and in
the present folder last. So an answer does not change with the present folder while a file is in one of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

_MOST_ABOVE = 10
"""Folders above a script that are looked into, if no repository ends the way."""


def nearest_file(name: str, script: str, folder: str = "") -> Path | None:
    """Return the file with a name that a script has changed to a ``folder`` for; ``None`` if it is nowhere."""
    found = next(filter(is_file, _candidates(name, script, folder)), None)
    return None if found is None else plain_path(found)


def plain_path(path: Path) -> Path:
    """Return the path of a file without ``..`` in it, as far as that is the same file: a link may lead elsewhere."""
    plain = Path(os.path.normpath(path))
    try:
        return plain if plain.samefile(path) else path
    except (OSError, ValueError):
        return path


def folders_above(file: str) -> Iterator[Path]:
    """Yield the folder of a file, and those above it up to the root of its repository, the nearest one first.

    They are relative to the present folder if the file is.
    """
    path = Path(file)
    own = Path(os.path.normpath(path.absolute())).parent
    for above in islice((own, *own.parents), _MOST_ABOVE):
        yield above if path.is_absolute() else Path(os.path.relpath(above))
        if (above / ".git").exists():
            return


def is_file(path: Path) -> bool:
    """Return whether a path is that of a file; no system has files with certain names."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _candidates(name: str, script: str, folder: str) -> Iterator[Path]:
    if Path(name).is_absolute():
        yield Path(name)
        return
    if folder:
        yield Path(folder, name)
    for above in folders_above(script):
        if folder:
            yield above / folder / name
        yield above / name
    yield Path(name)

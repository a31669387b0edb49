"""Reads the kernel's files below a root. Missing, unreadable and damaged files give ``None``, never an error."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rankplan._core import RankSet, cpu_list

_LONGEST = 1 << 16


class Sysfs:
    """The files below ``root``, addressed from it: ``sys/devices/system/node``."""

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self.root = Path(root)

    def text(self, path: str) -> str | None:
        """Return the content of a file without blanks at its ends; only its first 64 KiB are read."""
        try:
            with (self.root / path).open("rb") as file:
                return file.read(_LONGEST).decode("utf-8", "replace").strip()
        except (OSError, ValueError):
            return None

    def number(self, path: str) -> int | None:
        """Return the decimal number in a file; it may be negative."""
        text = self.text(path)
        return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII) else None

    def cpus(self, path: str) -> RankSet | None:
        """Return the list of CPUs or nodes in a file."""
        text = self.text(path)
        return None if text is None else cpu_list(text)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; an empty list if it cannot be read."""
        try:
            return sorted(entry.name for entry in (self.root / path).iterdir())
        except (OSError, ValueError):
            return []

    def exists(self, path: str) -> bool:
        """Whether a file, folder or link exists."""
        return os.path.lexists(self.root / path)

    def real(self, path: str) -> str | None:
        """Return the path that links lead to, from the root; ``None`` if it does not exist or leaves the root."""
        try:
            found = (self.root / path).resolve(strict=True)
            return "/" + str(found.relative_to(self.root.resolve()))
        except (OSError, ValueError, RuntimeError):
            return None

    def status(self, key: str) -> RankSet | None:
        """Return a list of ``/proc/self/status``, such as ``Cpus_allowed_list``."""
        found = re.search(rf"^{key}:[ \t]*(.*)$", self.text("proc/self/status") or "", re.MULTILINE)
        return cpu_list(found[1]) if found else None

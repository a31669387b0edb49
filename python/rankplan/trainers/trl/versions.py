"""The version of TRL that a repository pins: a hint for what has no stated value."""

from __future__ import annotations

import re
from typing import NamedTuple

from rankplan.sdk import Config

_FILES = ("setup.py", "pyproject.toml", "requirements.txt", "setup.cfg", "environment.yml")
_PIN = re.compile(r"\btrl(?:\[[\w, -]*\])?\s*(==|~=|>=|<=|<|>)\s*v?(\d+(?:\.\d+)*)", re.ASCII)
_LARGEST = 1 << 20
_COLOCATE_SINCE = 1
"""The first major version in which ``vllm_mode`` is ``colocate`` by default."""


class Pin(NamedTuple):
    """A version that a file asks for, as it is written there."""

    text: str
    operator: str
    version: tuple[int, ...]

    @property
    def is_before_1(self) -> bool | None:
        """Return whether the version is older than 1.0; ``None`` if the file allows both."""
        is_old = self.version[0] < _COLOCATE_SINCE
        if self.operator in ("==", "~="):
            return is_old
        if self.operator in ("<", "<="):
            is_first = self.operator == "<" and not any(self.version[1:]) and self.version[0] == _COLOCATE_SINCE
            return True if is_old or is_first else None
        return None if is_old else False


def pinned(config: Config) -> Pin | None:
    """Return the version that the repository of a config pins, ``None`` if it pins none."""
    for name in _FILES:
        file = config.file_near(name)
        try:
            if file is None or file.stat().st_size > _LARGEST:
                continue
            pin = _PIN.search(file.read_text())
        except (OSError, ValueError):
            continue
        if pin is not None:
            return Pin(f"trl{pin[1]}{pin[2]}", pin[1], tuple(map(int, pin[2].split("."))))
    return None

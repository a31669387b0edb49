"""The version of TRL that a repository pins: a hint for what has no stated value."""

from __future__ import annotations

import re
from typing import NamedTuple

from rankplan.sdk import Config

_FILES = ("setup.py", "pyproject.toml", "requirements.txt", "setup.cfg", "environment.yml")
_BOUND = r"\s*(==|~=|>=|<=|<|>)\s*v?(\d+(?:\.\d+)*)"
_PIN = re.compile(rf"\btrl(?:\[[\w, -]*\])?({_BOUND}(?:\s*,{_BOUND})*)", re.ASCII)
_LARGEST = 1 << 20
_COLOCATE_SINCE = 1
"""The first major version in which ``vllm_mode`` is ``colocate`` by default."""


class Pin(NamedTuple):
    """The versions that a file asks for, as they are written there."""

    text: str

    @property
    def is_before_1(self) -> bool | None:
        """Return whether the version is older than 1.0; ``None`` if the file allows both."""
        bounds = [_is_before_1(*bound) for bound in re.findall(_BOUND, self.text, re.ASCII)]
        return next((bound for bound in bounds if bound is not None), None)


def _is_before_1(operator: str, version: str) -> bool | None:
    """Return whether the versions of a bound are older than 1.0; ``None`` if it allows both."""
    major, *rest = map(int, version.split("."))
    is_old = major < _COLOCATE_SINCE
    if operator in ("==", "~="):
        return is_old
    if operator in ("<", "<="):
        is_first = operator == "<" and major == _COLOCATE_SINCE and not any(rest)
        return True if is_old or is_first else None
    return None if is_old else False


def pinned(config: Config) -> Pin | None:
    """Return the versions that the repository of a config pins, ``None`` if it pins none."""
    for name in _FILES:
        file = config.file_near(name)
        try:
            if file is None or file.stat().st_size > _LARGEST:
                continue
            pin = _PIN.search(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if pin is not None:
            return Pin("trl" + re.sub(r"\s", "", pin[1]))
    return None

"""Calls with arguments of wrong types, which rankplan must refuse itself."""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rankplan

VALUES: list[Any] = [5, 1.5, float("nan"), True, "no such", b"x", [3], ["x"], [[1]], [object()], (1, 2), {"a": 1}, None]
VALUES += [{3: [1]}, {"actor": object()}, object()]


def refused_by_python(function: Callable[..., Any], given: dict[str, Any]) -> list[str]:
    """Call a function with each value for each parameter; return the errors that no ``raise`` of rankplan has raised.

    A file may be missing.
    """
    bare = []
    for name in inspect.signature(function).parameters:
        for value in VALUES:
            try:
                function(**{**given, name: value})
            except OSError:
                pass
            except Exception as error:
                if not _is_own(error):
                    bare.append(f"{name}={value!r}: {error!r}")
    return bare


def _is_own(error: Exception) -> bool:
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return last.filename.startswith(str(Path(rankplan.__file__).parent)) and line.startswith("raise ")

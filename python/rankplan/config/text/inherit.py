"""Configs that extend other files: ``defaults: base.yaml``, relative to the file that names it.

Follows NeMo-RL's ``load_config_with_inheritance``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankplan.config.text.document import Section, Source
from rankplan.config.text.load import load_config
from rankplan.config.text.places import relocated
from rankplan.errors import Diagnostic, PlacementError

_DEEPEST = 20


class _Layered:
    """Values of a file; those that it lacks come from the file that it extends."""

    def __init__(self, own: Section, base: Section) -> None:
        self._own, self._base = own, base
        self.warnings: list[Diagnostic] = own.document.warnings

    def locate(self, path: Sequence[str | int], fault: Diagnostic) -> Diagnostic:
        """Return the fault in the file that has the longest part of ``path``; the extending file if both have."""
        own = _depth(self._own, path) >= _depth(self._base, path)
        return (self._own if own else self._base).document.locate(path, fault)


def _depth(value: Any, path: Sequence[str | int]) -> int:
    for depth, part in enumerate(path):
        if not isinstance(value, dict) or part not in value:
            return depth
        value = value[part]
    return len(path)


def inherited(section: Section, depth: int = 0) -> Section:
    """Return a config merged onto the files that its ``defaults`` names, the last one first.

    Raises `PlacementError` for a file that extends itself or cannot be read.
    """
    names = section.get("defaults")
    listed = [names] if isinstance(names, str) else names if isinstance(names, list) else []
    file = getattr(section.document, "file", None)
    config = section
    for name in reversed([name for name in listed if isinstance(name, str) and name.endswith((".yaml", ".yml"))]):
        path = (Path(file).parent if file else Path()) / name
        try:
            if depth > _DEEPEST:
                raise OSError(0, "it extends itself")
            base = inherited(load_config(path), depth + 1)
        except OSError as error:
            message = f"`defaults` names {name}, which cannot be read: {error.strerror}"
            fault = Diagnostic("invalid-value", message, "correct the path; it is relative to this file")
            raise PlacementError([section.document.locate(("defaults",), fault)]) from None
        config = _merged(config, base)
    return config


def _merged(own: Section, base: Section) -> Section:
    source: Source = _Layered(own, base)
    merged: Section = relocated(_over(base, own), source)
    return merged


def _over(base: Any, own: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    return {**base, **{key: _over(base.get(key), value) for key, value in own.items()}}

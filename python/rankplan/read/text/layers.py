"""Files merged into one config: each value is that of the first file which has it, and so is its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankplan.errors import Diagnostic
from rankplan.read.text.document import Section

Package = tuple[str, ...]
"""The keys under which a config has the content of a file."""

_MISSING = "???"
"""OmegaConf: a value that another file or the command line gives."""


class Layers:
    """The files of a config, the most important first, each with its package."""

    def __init__(self, layers: Sequence[tuple[Package, Section]]) -> None:
        self._layers = layers
        main = layers[0][1].document
        self.file, self.warnings = main.file, main.warnings

    def locate(self, path: Sequence[str | int], fault: Diagnostic) -> Diagnostic:
        """Return the fault in the first file that has the longest part of ``path``."""
        package, section = max(self._layers, key=lambda layer: _depth(layer[0], layer[1], path))
        return section.document.locate(path[len(package) :], fault)


def _depth(package: Package, section: Section, path: Sequence[str | int]) -> int:
    if tuple(path[: len(package)]) != package:
        return next((depth for depth, (a, b) in enumerate(zip(path, package, strict=False)) if a != b), 0)
    value: Any = section
    for depth, part in enumerate(path[len(package) :], len(package)):
        if not isinstance(value, dict) or part not in value:
            return depth
        value = value[part]
    return len(path)


def over(base: Any, own: Any) -> Any:
    """Return a value merged onto another one, as ``OmegaConf.merge`` does: mappings key by key, and ``???`` is open."""
    if isinstance(base, dict) and isinstance(own, dict):
        return {**base, **{key: over(base.get(key), value) for key, value in own.items()}}
    return base if own == _MISSING and base is not None else own

"""NeMo-RL's ``defaults``: a file that extends others, which it names by their paths."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, cast

from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import folder_of
from rankplan.read.text.document import Section
from rankplan.read.text.layers import Layers, over
from rankplan.read.text.nearby import plain_path
from rankplan.read.text.places import relocated


def extended(section: Section, load: Callable[[str, tuple[str, ...]], Section], above: tuple[str, ...]) -> Section:
    """Return the content of a file merged onto the files that its ``defaults`` names, the last one first.

    ``load`` reads a file; ``above`` are the files that this one is read for, and itself. Paths are relative to the file
    that names them. A section with ``_override_: true`` replaces those of the files (NeMo-RL 7ea279a:
    ``load_config_with_inheritance``, ``merge_with_override``). Hydra's config groups are not read.
    Raises `PlacementError` for a file that extends itself or cannot be read.
    """
    names = section.get("defaults")
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list) or not names or not all(map(_is_path, names)):
        return section
    layers = [section]
    for name in reversed(names):
        try:
            path = os.fspath(plain_path(folder_of(above[-1]) / name))
            if any(os.path.realpath(path) == os.path.realpath(file) for file in above):
                raise OSError(0, "it extends itself")
            layers.append(load(path, above))
        except OSError as error:
            fault = _unreadable(name, error)
            raise PlacementError([section.document.locate(("defaults",), fault)]) from None
    merged: dict[Any, Any] = {}
    for layer in reversed(layers):
        for key, value in layer.items():
            if isinstance(value, dict) and value.get("_override_") is True:
                merged[key] = {inner: item for inner, item in value.items() if inner != "_override_"}
            else:
                merged[key] = over(merged.get(key), value)
    del merged["defaults"]
    return cast("Section", relocated(merged, Layers([((), layer) for layer in layers])))


def _is_path(name: Any) -> bool:
    return isinstance(name, str) and name.endswith((".yaml", ".yml"))


def _unreadable(name: str, error: OSError) -> Diagnostic:
    message = f"`defaults` names {name}, which cannot be read: {error.strerror}"
    return Diagnostic("invalid-value", message, "correct the path; it is relative to this file")

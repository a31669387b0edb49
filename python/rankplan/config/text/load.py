"""Reads a config file: YAML, or the script that launches a job; and the files that a config extends."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from rankplan.config.text.document import Document, Section
from rankplan.config.text.files import read_whole
from rankplan.config.text.places import relocated
from rankplan.errors import Diagnostic, PlacementError
from rankplan.words import shown

_DEEPEST = 20
_MISSING = "???"
"""OmegaConf: a value that another file or the command line gives."""
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_SHEBANG = re.compile(r"#![^\n]*\b(?:ba|da|z|k)?sh\b")


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Section:
    """Read a config file and return its mapping; later faults point into the file.

    YAML is read by YAML 1.2's core rules. A shell script (``.sh``, ``.bash``, ``.slurm``, ``.sbatch``, or a first line
    such as ``#!/bin/bash``) gives the ``key=value`` words or the flags of the command that starts the job; it is never
    executed. ``defaults: base.yaml`` extends other files, as in NeMo-RL; config groups in Hydra's ``defaults`` are not
    read. ``overrides`` change values as on Hydra's command line: ``key=value``, ``+key=value``, ``++key=value``,
    ``~key``.

    Raises `PlacementError` if the file cannot be parsed, repeats a key, is not a mapping, or an override does not fit
    it; ``OSError`` if it cannot be read.
    """
    if not overrides:
        return _load(os.fspath(path))
    from rankplan.config.text.overrides import overridden, parse_overrides  # as the readers below

    changes = parse_overrides(overrides)
    return overridden(_load(os.fspath(path)), changes)


def _load(file: str, depth: int = 0) -> Section:
    try:
        text = read_whole(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the file is not UTF-8: invalid byte at position {error.start}"
        raise PlacementError([Diagnostic("invalid-yaml", message, "save the file as UTF-8", file=file)]) from None
    # Most programs read YAML only: import the readers of other formats where they are used.
    if file.endswith(_SCRIPTS) or _SHEBANG.match(text):
        from rankplan.config.text.script import parse_script

        return parse_script(file, text, _load)
    document = Document(file, text)
    value = document.value()
    if not isinstance(value, Section):
        found = "the file is empty" if value is None else f"the file contains {shown(value)}"
        message = f"{found}; it must be a mapping"
        help = "write keys and values: `cluster:` in a config, `nodes:` in an inventory"
        raise PlacementError([document.refuse(message, code="invalid-value", help=help)])
    return _extended(value, file, depth)


class _Layers:
    """Files, each of which extends the later ones."""

    def __init__(self, layers: Sequence[Section]) -> None:
        self._layers = layers
        self.warnings: list[Diagnostic] = layers[0].document.warnings

    def locate(self, path: Sequence[str | int], fault: Diagnostic) -> Diagnostic:
        """Return the fault in the first file that has the longest part of ``path``."""
        return max(self._layers, key=lambda layer: _depth(layer, path)).document.locate(path, fault)


def _depth(value: Any, path: Sequence[str | int]) -> int:
    for depth, part in enumerate(path):
        if not isinstance(value, dict) or part not in value:
            return depth
        value = value[part]
    return len(path)


def _extended(section: Section, file: str, depth: int) -> Section:
    """Return the content of a file merged onto the files that its ``defaults`` names, the last one first.

    Paths are relative to the file that names them. A section with ``_override_: true`` replaces those of the files
    (NeMo-RL 7ea279a: ``load_config_with_inheritance``, ``merge_with_override``). Hydra's config groups are not read.
    Raises `PlacementError` for a file that extends itself or cannot be read.
    """
    names = section.get("defaults")
    listed = [names] if isinstance(names, str) else names if isinstance(names, list) else []
    if not listed or not all(isinstance(name, str) and name.endswith((".yaml", ".yml")) for name in listed):
        return section
    layers = [section]
    for name in reversed(listed):
        try:
            if depth > _DEEPEST:
                raise OSError(0, "it extends itself")
            layers.append(_load(os.fspath(Path(file).parent / name), depth + 1))
        except OSError as error:
            message = f"`defaults` names {name}, which cannot be read: {error.strerror}"
            fault = Diagnostic("invalid-value", message, "correct the path; it is relative to this file")
            raise PlacementError([section.document.locate(("defaults",), fault)]) from None
    merged: dict[Any, Any] = {}
    for layer in reversed(layers):
        for key, value in layer.items():
            if isinstance(value, dict) and value.get("_override_") is True:
                merged[key] = {inner: item for inner, item in value.items() if inner != "_override_"}
            else:
                merged[key] = _over(merged.get(key), value)
    del merged["defaults"]
    return cast("Section", relocated(merged, _Layers(layers)))


def _over(base: Any, own: Any) -> Any:
    if isinstance(base, dict) and isinstance(own, dict):
        return {**base, **{key: _over(base.get(key), value) for key, value in own.items()}}
    return base if own == _MISSING and base is not None else own

"""Reads a config file: YAML, or the script that launches a job; and the files that a config extends."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankplan.config.text.document import Document, Section, Source
from rankplan.config.text.files import read_whole
from rankplan.config.text.places import relocated
from rankplan.errors import Diagnostic, PlacementError
from rankplan.words import shown

_DEEPEST = 20
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_SHEBANG = re.compile(r"#![^\n]*\b(?:ba|da|z|k)?sh\b")


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Section:
    """Read a config file and return its mapping; later faults point into the file.

    YAML is read by YAML 1.2's core rules. A shell script (``.sh``, ``.bash``, ``.slurm``, ``.sbatch``, or a first line
    such as ``#!/bin/bash``) gives the ``key=value`` words or the flags of the command that starts the job; it is never
    executed. ``overrides`` change values as on Hydra's command line: ``key=value``, ``+key=value``, ``++key=value``,
    ``~key``.

    Raises `PlacementError` if the file cannot be parsed, repeats a key, is not a mapping, or an override does not fit
    it; ``OSError`` if it cannot be read.
    """
    if not overrides:
        return _load(os.fspath(path))
    from rankplan.config.text.overrides import overridden, parse_overrides  # as the readers below

    changes = parse_overrides(overrides)
    return overridden(_load(os.fspath(path)), changes)


def _load(file: str) -> Section:
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
    return value


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

    Paths are relative to the file that names them (NeMo-RL: ``load_config_with_inheritance``).
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
        source: Source = _Layered(config, base)
        config = relocated(_over(base, config), source)
    return config


def _over(base: Any, own: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    return {**base, **{key: _over(base.get(key), value) for key, value in own.items()}}

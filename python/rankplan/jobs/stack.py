"""The files of a job: a job file, those below it, and their sum, in which every value keeps its place.

``job`` of a job file may name another one, on which it lies. The keys of the upper file replace those of the lower one;
`KEYS` tells which sections are joined key by key, and which lists are added. A path is relative to its file. Each file
is read as YAML; what its values mean, `reader` reads from the sum.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from rankplan import files
from rankplan.errors import Diagnostic, KeyPath, PlacementError, Where
from rankplan.jobs import faults
from rankplan.jobs.keys import KEYS, Joining
from rankplan.jobs.recognising import JOB, is_job_file
from rankplan.read.text.document import Section, Source
from rankplan.read.text.load import load_config
from rankplan.read.text.places import relocated

MOST = 8
"""The most job files that lie on each other."""


class _NoFile:
    """Where the values of a mapping are that comes from no file."""

    file = None

    def __init__(self) -> None:
        self.warnings: list[Diagnostic] = []

    def locate(self, path: Sequence[str | int], fault: Diagnostic) -> Diagnostic:
        """Return the fault without a place."""
        return fault


class Stack:
    """The files of a job, the upper one first. It locates the values of their sum.

    ``job`` is the path of what the lowest one names: no job file any more; ``None`` for a value that is no path.
    """

    def __init__(self, layers: Sequence[Section], job: str | None) -> None:
        self.layers = layers
        self.job = job
        self.file = layers[0].document.file
        self.warnings: list[Diagnostic] = []

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files, the upper one first."""
        files = (layer.document.file for layer in self.layers)
        return tuple(file for file in files if file is not None)

    def locate(self, path: Sequence[str | int], fault: Diagnostic) -> Diagnostic:
        """Return the fault in the file that states the value at a path."""
        layer, inner = self._stating(tuple(path))
        return layer.document.locate(inner, fault)

    def folder(self, path: KeyPath) -> Path:
        """Return the folder of the file that states the value at a path."""
        return folder_of(self._stating(path)[0])

    def _stating(self, path: KeyPath) -> tuple[Section, KeyPath]:
        """Return the file that states a value of the sum, and the path of the value there."""
        top = self.layers[0]
        if len(self.layers) == 1:
            return top, path
        key = str(path[0]) if path else JOB
        if key == JOB:
            return self.layers[-1], path
        stating = [layer for layer in self.layers if key in layer] or [top]
        joining = KEYS[key].joining if key in KEYS else Joining.REPLACES
        if len(path) > 1 and joining is Joining.ADDS and _are_lists(stating, key):
            return _stating_item(stating, key, path)
        if len(path) > 1 and joining is Joining.KEY_BY_KEY:
            for layer in stating:
                if isinstance(layer.get(key), dict) and path[1] in layer[key]:
                    return layer, path
        return stating[0], path


def _stating_item(stating: Sequence[Section], key: str, path: KeyPath) -> tuple[Section, KeyPath]:
    """Return the file that states an item of a sum of lists, and its path there: the items of lower files are first."""
    index = int(path[1])
    for layer in reversed(stating):
        if index < len(layer[key]):
            return layer, (key, index, *path[2:])
        index -= len(layer[key])
    return stating[0], path


def job_section(config: str | os.PathLike[str] | Mapping[str, Any]) -> Section | None:
    """Return the content of what may be a job file, see `is_job_file`; ``None`` if it is none.

    Raises `PlacementError` for a job file that is no valid YAML, ``OSError`` for a file that cannot be read.
    """
    if isinstance(config, Section):
        return config
    if isinstance(config, Mapping):
        return cast("Section", relocated(_plain(config), _NoFile()))
    try:
        section = load_config(config)
    except PlacementError:
        return None  # whoever reads it as a config reports what is wrong
    return section if JOB in section else None


def stacked(top: Section) -> Section:
    """Return the sum of a job file and those below it. Its document is a `Stack`.

    Raises `PlacementError` for files in a circle, or for one that cannot be read.
    """
    layers = [top]
    identities = [_identity(top.document.file)]
    file = _named(top)
    while file is not None:
        try:
            file = files.read_pipe(file) if files.is_pipe(file) else file
            identity = _identity(file)
            if identity in identities:
                members = layers[identities.index(identity) :]
                raise _at_job(layers[-1], faults.circle(map(_job_place, members)))
            below = job_section(file) if is_job_file(file) else None
        except OSError as error:
            name = str(layers[-1][JOB])
            raise _at_job(layers[-1], faults.no_file(JOB, name, error.strerror or str(error))) from None
        if below is None:
            break
        if len(layers) == MOST:
            raise _at_job(layers[-1], faults.too_many(MOST))
        layers.append(below)
        identities.append(identity)
        file = _named(below)
    return cast("Section", relocated(_sum(layers), cast("Source", Stack(layers, file))))


def _named(layer: Section) -> str | None:
    """Return the path that ``job`` of a file names; ``None`` for a value that is no path."""
    name = layer[JOB]
    if not isinstance(name, str) or not name.strip() or "$" in name or not is_plain(name):
        return None
    return str(folder_of(layer) / name)


def is_plain(text: str) -> bool:
    """Whether a text can be a path and an argument: it has no NUL and no lone surrogates."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def folder_of(layer: Section) -> Path:
    """Return the folder of a file, to which its paths are relative."""
    return files.folder_of(layer.document.file or "")


def _identity(file: str | None) -> object:
    """Return what tells whether two paths are the same file, also through links."""
    if file is None:
        return None
    path = Path(file)
    try:
        state = path.stat()
    except OSError:
        return path.resolve()
    return state.st_dev, state.st_ino


def _at_job(layer: Section, fault: Diagnostic) -> PlacementError:
    return PlacementError([_job_place(layer).locate(fault)])


def _job_place(layer: Section) -> Where:
    return Where.at(layer.document.locate((JOB,), Diagnostic("", "", path=JOB)))


def _sum(layers: Sequence[Section]) -> dict[str, Any]:
    """Return the keys of all files, joined as `KEYS` says. ``job`` is that of the lowest file."""
    joined: dict[str, Any] = {}
    for layer in reversed(layers):
        for key, value in layer.items():
            joining = KEYS[key].joining if key in KEYS else Joining.REPLACES
            below = joined.get(key)
            if key == JOB and key in joined:
                continue
            if joining is Joining.KEY_BY_KEY and isinstance(value, dict) and isinstance(below, dict):
                joined[key] = {**below, **value}
            elif joining is Joining.ADDS and isinstance(value, list) and isinstance(below, list):
                joined[key] = [*below, *value]
            else:
                joined[key] = value
    return {key: joined[key] for layer in layers for key in layer}


def _are_lists(layers: Sequence[Section], key: str) -> bool:
    return all(isinstance(layer.get(key), list) for layer in layers)


def _plain(value: Any) -> Any:
    """Return nested mappings and lists of any type as those of a file."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value

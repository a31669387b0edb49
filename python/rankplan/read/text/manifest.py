"""Objects of Kubernetes in a file, with the place of every field."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.files import read_text
from rankplan.frozen import frozen
from rankplan.read.text.document import Document
from rankplan.words import path_text, shown

_TRUE = frozenset(["yes", "Yes", "YES", "on", "On", "ON"])
_FALSE = frozenset(["no", "No", "NO", "off", "Off", "OFF"])


class _Manifest(Document):
    """A document as Kubernetes reads it, whose YAML has more words for booleans."""

    def _scalar(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.ScalarNode) and not node.style and node.value in _TRUE | _FALSE:
            return node.value in _TRUE
        return super()._scalar(node)


@frozen
class Object:
    """An object of a file: its fields without those that are null, and where they are."""

    document: Document
    value: dict[str, Any]

    @property
    def kind(self) -> str:
        """Its ``kind``, empty if it states none."""
        return str(self.value.get("kind", ""))

    @property
    def name(self) -> str | None:
        """Its name, if it has one."""
        name = self.at("metadata", "name")
        return name if isinstance(name, str) else None

    def at(self, *path: str | int) -> Any:
        """Return the value of a field, ``None`` if there is none."""
        found: Any = self.value
        for part in path:
            if isinstance(found, Mapping):
                found = found.get(part)
            elif isinstance(found, Sequence) and isinstance(part, int) and part < len(found):
                found = found[part]
            else:
                return None
        return found

    def located(self, path: KeyPath, fault: Diagnostic) -> Diagnostic:
        """Return a fault at a field, or at the nearest field around it; labels of another text are left out."""
        return self.document.locate(path, Diagnostic(fault.code, fault.message, fault.help, path=path_text(path)))


def read_objects(file: str | os.PathLike[str], text: str | None = None) -> list[Object]:
    """Return the objects of a file. Raises `PlacementError` if it is not YAML, ``OSError`` if it cannot be read."""
    name = os.fspath(file)
    text = read_text(name) if text is None else text
    found = []
    for document in _Manifest.each(name, text):
        value = _without_nulls(document.value())
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            fault = document.locate((), _no_object(value))
            raise PlacementError([replace(fault, file=name)])
        found.append(Object(document, value))
    return found


def _no_object(value: object) -> Diagnostic:
    message = f"the file contains {shown(value)}; it must be an object of Kubernetes"
    return Diagnostic("invalid-value", message, "write apiVersion, kind, metadata and spec")


def _without_nulls(value: Any) -> Any:
    """Return a value as plain mappings and lists; a field that is null is as good as absent."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value

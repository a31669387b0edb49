"""Commands inside YAML: the ``entrypoint`` of a RayJob."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.read.text.document import Document, Section
from rankplan.read.text.places import Place


@frozen
class Entrypoint:
    """The text of a command in a file; its lines are found in the lines of the file from ``line`` (from 0) on."""

    file: str
    text: str
    lines: tuple[str, ...]
    line: int
    environment: Mapping[str, str]

    def place(self, start: int, end: int) -> Place:
        """Return the place of characters ``start`` to ``end`` of the text, or of the line of the key."""
        before = self.text[:start]
        row, column = before.count("\n"), start - (before.rfind("\n") + 1)
        written = self.text.split("\n")[row]
        for index in (self.line + row, self.line + row + 1):  # `|` is on the line of the key, the text below
            source = self.lines[index] if index < len(self.lines) else ""
            if written and (found := source.find(written)) >= 0:
                return Place(
                    self.file, index + 1, found + column, min(found + column + end - start, len(source)), source
                )
        source = self.lines[self.line]
        return Place(self.file, self.line + 1, 0, len(source), source)


def entrypoint(config: Section) -> Entrypoint | None:
    """Return the command of a RayJob (KubeRay: ``RayJobSpec.Entrypoint``), ``None`` for another file."""
    spec, document = config.get("spec"), config.document
    command = spec.get("entrypoint") if isinstance(spec, Mapping) else None
    if config.get("kind") != "RayJob" or not isinstance(command, str) or not isinstance(document, Document):
        return None
    found = document.locate(("spec", "entrypoint"), Diagnostic("", ""))
    environment = {str(key): str(value) for key, value in _environment(spec).items()}
    return Entrypoint(document.file, command, tuple(document.lines), (found.line or 1) - 1, environment)


def _environment(spec: Any) -> Mapping[str, Any]:
    try:
        runtime = Document("", spec.get("runtimeEnvYAML") or "").value()
    except (PlacementError, TypeError):
        return {}
    found = runtime.get("env_vars") if isinstance(runtime, Mapping) else None
    return found if isinstance(found, Mapping) else {}

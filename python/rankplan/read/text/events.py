"""The content of a YAML file from the events of its parser: several times as fast as from nodes, but without places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import yaml

from rankplan.read.text.scalars import Composer, plain_scalar

DEEPEST = 200
"""The most levels of a file."""
LARGEST = 2_000_000
"""The most values of a file, with aliases expanded."""

Path: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""


class NodesNeeded(Exception):
    """The events do not tell the content: the file has anchors, tags, merge keys, several documents, or a fault."""


class Events:
    """A file as events; ``mapping`` makes an empty mapping at a path."""

    def __init__(self, text: str, mapping: Callable[[Path], dict[str, Any]]) -> None:
        self._next: Callable[[], Any] = Composer(text).get_event
        self._mapping = mapping
        self._scalars: dict[str, Any] = {}
        self._count = 0

    def content(self) -> Any:
        """Return what the nodes of the file stand for. Raises `NodesNeeded`, ``yaml.YAMLError``."""
        self._next()  # the start of the stream
        if type(self._next()) is not yaml.DocumentStartEvent:
            raise NodesNeeded
        value = self._value(self._next(), (), 0)
        self._next()  # the end of the document
        if type(self._next()) is not yaml.StreamEndEvent or self._count > LARGEST:
            raise NodesNeeded
        return value

    def _value(self, event: Any, path: Path, depth: int) -> Any:
        if type(event) is yaml.ScalarEvent:
            return self._scalar(event)
        self._count += 1
        if type(event) is yaml.AliasEvent or event.anchor or event.tag or depth == DEEPEST:
            raise NodesNeeded
        if type(event) is yaml.MappingStartEvent:
            return self._pairs(path, depth)
        items: list[Any] = []
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            items.append(self._value(event, (*path, len(items)), depth + 1))
        return items

    def _pairs(self, path: Path, depth: int) -> dict[str, Any]:
        found = self._mapping(path)
        while type(event := self._next()) is not yaml.MappingEndEvent:
            if type(event) is not yaml.ScalarEvent:
                raise NodesNeeded
            self._scalar(event)  # a merge key or a tag ends the reading
            key = event.value
            if key in found:
                raise NodesNeeded
            event = self._next()
            # most values are scalars, which need no path
            scalar = type(event) is yaml.ScalarEvent
            found[key] = self._scalar(event) if scalar else self._value(event, (*path, key), depth + 1)
        return found

    def _scalar(self, event: Any) -> Any:
        self._count += 1
        if event.anchor or event.tag:
            raise NodesNeeded
        text = event.value
        if not event.implicit[0]:  # quoted
            return text
        value = self._scalars.get(text, self)
        if value is self:
            if text == "<<":
                raise NodesNeeded
            value = self._scalars[text] = plain_scalar(text)
        return value

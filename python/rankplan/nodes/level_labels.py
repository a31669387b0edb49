"""Levels of an inventory that state the node label which a cluster has for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rankplan.errors import Diagnostic, KeyPath
from rankplan.words import must_be, shown, unknown

_KEYS = ("name", "label")
_HELP = "write {name: rack, label: example.com/rack}"


class LabelledLevel(str):
    """The name of a level, with the key of its node label in a cluster, such as ``example.com/rack``."""

    label: str

    def __new__(cls, name: str, label: str) -> LabelledLevel:
        level = super().__new__(cls, name)
        level.label = label
        return level

    def __reduce__(self) -> tuple[Any, ...]:
        return LabelledLevel, (str(self), self.label)


def labelled_levels(content: Mapping[str, Any]) -> tuple[dict[str, LabelledLevel], list[tuple[KeyPath, Diagnostic]]]:
    """Return the levels of an inventory that state their label, by name, and the faults of such entries."""
    levels = content.get("levels")
    found: dict[str, LabelledLevel] = {}
    faults: list[tuple[KeyPath, Diagnostic]] = []
    for index, entry in enumerate(levels if isinstance(levels, list) else ()):
        if not isinstance(entry, Mapping):
            continue
        faults += (
            (("levels", index, str(key)), unknown("key", str(key), _KEYS, "the keys of a level are"))
            for key in entry
            if key not in _KEYS
        )
        texts = {}
        for key in _KEYS:
            value = entry.get(key)
            if isinstance(value, str) and value.strip():
                texts[key] = value
            elif key in entry:
                faults.append((("levels", index, key), must_be(f"`{key}` of a level", value, "a text", _HELP)))
            else:
                faults.append((("levels", index), _missing(key)))
        if len(texts) == len(_KEYS):
            found[texts["name"]] = LabelledLevel(**texts)
    used: dict[str, str] = {}
    for level in found.values():
        if level.label in used:
            faults.append((("levels",), _label_twice(used[level.label], level)))
        used[level.label] = level
    return found, faults


def _missing(key: str) -> Diagnostic:
    return Diagnostic("missing-key", f"the level has no `{key}`", _HELP)


def _label_twice(first: str, second: LabelledLevel) -> Diagnostic:
    message = f"levels {first} and {second} have the same label {shown(second.label)}"
    return Diagnostic("invalid-value", message, "give each level a label of its own")


def with_level_names(content: Mapping[str, Any], levels: Mapping[str, LabelledLevel]) -> dict[str, Any]:
    """Return an inventory whose levels are names, and whose nodes have labels by these names.

    A node may have the label of a level by its name, or as the cluster has it.
    """
    names = [entry["name"] if isinstance(entry, Mapping) else entry for entry in content["levels"]]
    nodes = content.get("nodes")
    if isinstance(nodes, list):
        nodes = [_with_names(entry, levels.values()) for entry in nodes]
    return {**content, "levels": names, "nodes": nodes}


def _with_names(entry: Any, levels: Iterable[LabelledLevel]) -> Any:
    labels = entry.get("labels") if isinstance(entry, Mapping) else None
    if not isinstance(labels, Mapping):
        return entry
    added = {str(level): labels[level.label] for level in levels if level.label in labels and level not in labels}
    return {**entry, "labels": {**labels, **added}} if added else entry

"""Kueue's ``Topology`` object: an ordered list of the keys of node labels, of which the last stands for the node."""

from __future__ import annotations

import os

from rankplan.config.network import NODE_LEVEL
from rankplan.config.text.document import Section
from rankplan.config.text.load import load_config
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.topology.sources import HOSTNAME
from rankplan.words import path_text, shown


def read_kueue(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the levels of a ``Topology`` object, outermost first, without the level of the node.

    Raises `PlacementError` for any other file, ``OSError`` if it cannot be read.
    """
    content = load_config(path)
    spec = content.get("spec")
    rows = spec.get("levels") if isinstance(spec, Section) else None
    if content.get("kind") != "Topology" or not isinstance(rows, list) or not rows:
        help = "pass a file with `kind: Topology` and `spec: {levels: [{nodeLabel: ...}, ...]}`"
        raise PlacementError([_fault(content, (), "the file is not a Topology object of Kueue", help)])
    levels = []
    for index, row in enumerate(rows):
        key = row.get("nodeLabel") if isinstance(row, Section) else None
        if not isinstance(key, str) or not key.strip() or not key.isprintable() or key == NODE_LEVEL:
            message = f"`nodeLabel` is {shown(key)}; it must be the key of a label"
            raise PlacementError([_fault(content, ("spec", "levels", index), message, "write nodeLabel: KEY")])
        if key in levels:
            message = f"level `{key}` is listed twice"
            raise PlacementError([_fault(content, ("spec", "levels", index), message, "list each level once")])
        levels.append(key)
    return tuple(levels[:-1] if levels[-1] == HOSTNAME else levels)


def _fault(content: Section, path: tuple[str | int, ...], message: str, help: str) -> Diagnostic:
    return content.document.locate(path, Diagnostic("invalid-value", message, help, path=path_text(path)))

"""Inventory files: reading with every fault, and writing so that any YAML reader gets the same values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rankplan._core import MAX_NODES, RankSet, read_inventory
from rankplan._core import Inventory as Core
from rankplan.config.text.files import write_whole
from rankplan.config.text.kinds import INVENTORY
from rankplan.config.text.reader import Reader, not_a_mapping
from rankplan.errors import Diagnostic, PlacementError
from rankplan.words import as_int, nearest, shown


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes text that some YAML reader could take for a number."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _quoted)


def read(content: object) -> tuple[Core, tuple[str, ...] | None]:
    """Return the nodes and the levels of an inventory file. Raises `PlacementError` with every fault."""
    if not isinstance(content, Mapping):
        raise PlacementError([not_a_mapping("the inventory", content, "write `nodes:` with a list of nodes")])
    reader = Reader(content)
    if (message := INVENTORY.instead(content)) is not None:
        reader.add((), Diagnostic(INVENTORY.code, message, INVENTORY.help))
        raise reader.refusal()
    if "nodes" not in content:
        near = nearest("nodes", map(str, content))
        help = INVENTORY.help if near is None else f"rename `{near}` to `nodes`"
        reader.add((), Diagnostic("missing-key", "the inventory has no `nodes`", help))
        raise reader.refusal()
    inventory, levels, faults = read_inventory(content)
    for path, fault in faults:
        reader.add(path, fault)
    if inventory is None:
        raise reader.refusal()
    return inventory, None if levels is None else tuple(levels)


def write(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write an inventory file atomically. Raises ``OSError`` if it cannot be written."""
    write_whole(Path(path), yaml.dump(content, Dumper=_Dumper, sort_keys=False))


def equal_nodes(num_nodes: int, num_accelerators: int) -> dict[str, Any]:
    """Return the entry of equal nodes. Raises `PlacementError` for an invalid number."""
    count, each = as_int(num_nodes), as_int(num_accelerators)
    if count is None or not 0 < count <= MAX_NODES:
        message = f"{shown(num_nodes)} is not a number of nodes"
        raise PlacementError([Diagnostic("invalid-value", message, f"use a whole number from 1 to {MAX_NODES:,}")])
    if each is None:
        message = f"{shown(num_accelerators)} is not a number of accelerators"
        raise PlacementError([Diagnostic("invalid-value", message, "use a whole number; 0 means none")])
    return {"ranks": RankSet(f"0-{count - 1}"), "accelerators": each}


def size(text: str) -> tuple[int, int]:
    """Return the numbers of a size such as ``2x8``. Raises `PlacementError` for any other text."""
    found = re.fullmatch(r"([1-9][0-9]{0,8})x([0-9]{1,6})", text.strip(), re.ASCII)
    if found is None:
        help = "write 2x8 for 2 nodes with 8 accelerators each"
        raise PlacementError([Diagnostic("invalid-value", f"{shown(text)} is not nodes x accelerators", help)])
    return int(found[1]), int(found[2])

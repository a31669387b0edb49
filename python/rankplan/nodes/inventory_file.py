"""Inventories as plain values: the nodes and the levels of one, with every fault, and sizes as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from rankplan._core import MAX_NODES, RankSet, read_inventory
from rankplan._core import Inventory as Core
from rankplan.errors import Diagnostic, KeyPath, PlacementError, Source, refusal
from rankplan.kinds import INVENTORY
from rankplan.words import as_int, must_be, nearest, path_text, shown


def read(content: object) -> tuple[Core, tuple[str, ...] | None]:
    """Return the nodes and the levels of an inventory. Raises `PlacementError` with every fault."""
    if not isinstance(content, Mapping):
        help = "write `nodes:` with a list of nodes"
        raise PlacementError([must_be("the inventory", content, "a mapping", help)])
    if (message := INVENTORY.instead(content)) is not None:
        raise _refused(content, [((), Diagnostic(INVENTORY.code, message, INVENTORY.advice(content)))])
    if "nodes" not in content:
        raise _refused(content, [((), _without_nodes(content))])
    labelled: Mapping[str, str] = {}
    stated: Mapping[str, Any] = content
    if any(isinstance(level, Mapping) for level in _list(content.get("levels"))):
        from rankplan.nodes.level_labels import labelled_levels, with_level_names  # most levels state no label

        labelled, wrong = labelled_levels(content)
        if wrong:
            raise _refused(content, wrong)
        stated = with_level_names(content, labelled)
    inventory, levels, faults = read_inventory(stated)
    if inventory is None:
        raise _refused(content, faults)
    return inventory, None if levels is None else tuple(labelled.get(level, level) for level in levels)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _refused(content: Any, faults: Iterable[tuple[KeyPath, Diagnostic]]) -> PlacementError:
    """Return the exception for these faults (at least one) of a content, given their paths in it.

    If the content knows where it is written, as the mappings of a file do, they are in the order of the file.
    """
    source: Source | None = getattr(content, "document", None)
    prefix: KeyPath = () if source is None else content.path
    found = []
    for path, fault in faults:
        whole = (*prefix, *path)
        placed = replace(fault, path=path_text(whole))
        found.append(placed if source is None else source.locate(whole, placed))
    found.sort(key=lambda fault: (fault.line or 0, fault.column or 0))
    return refusal(list(dict.fromkeys(found)))


def equal_nodes(num_nodes: int, num_accelerators: int) -> dict[str, Any]:
    """Return the entry of equal nodes. Raises `PlacementError` for an invalid number."""
    count, each = as_int(num_nodes), as_int(num_accelerators)
    if count is None or not 0 < count <= MAX_NODES:
        raise PlacementError([_no_number_of_nodes(num_nodes)])
    if each is None:
        raise PlacementError([_no_number_of_accelerators(num_accelerators)])
    return {"ranks": RankSet(f"0-{count - 1}"), "accelerators": each}


_SIZE = re.compile(r"[0-9]+x[0-9]+(?::.*)?", re.ASCII | re.DOTALL)
_PARTS = re.compile(r"([1-9][0-9]{0,8})x([0-9]{1,6})(?::(.+))?", re.ASCII)


class Size(NamedTuple):
    """Equal nodes: their number, the accelerators of each, and the model of these, if it is stated."""

    nodes: int
    accelerators: int
    model: str | None


def is_size(text: str) -> bool:
    """Whether a text means a size such as ``2x8`` or ``4x8:H100``, right or wrong, and not a path."""
    return _SIZE.fullmatch(text.strip()) is not None


def size(text: str) -> Size:
    """Return the size that a text means: ``2x8``, ``2x8:H100``, ``2x4:A100-40GB``, ``2x8:80GiB``.

    Raises `PlacementError` for any other text, and for an unknown accelerator.
    """
    parts = _PARTS.fullmatch(text.strip())
    if parts is None:
        raise PlacementError([_no_size(text)])
    model = parts[3]
    if model is not None:
        from rankplan.hardware.cards import card_of, unknown_card  # most sizes state no model

        if card_of(model) is None:
            raise PlacementError([unknown_card(model)])
    return Size(int(parts[1]), int(parts[2]), model)


def neither(text: str) -> Diagnostic:
    """Return the fault of a text that is neither a size nor the path of an inventory."""
    help = "write 2x8, 4x8:H100, or the path of an inventory file"
    return Diagnostic("invalid-value", f"{shown(text)} is neither a size nor an inventory file", help)


def _without_nodes(content: Mapping[Any, Any]) -> Diagnostic:
    near = nearest("nodes", map(str, content))
    help = INVENTORY.help if near is None else f"rename `{near}` to `nodes`"
    return Diagnostic("missing-key", "the inventory has no `nodes`", help)


def _no_number_of_nodes(found: object) -> Diagnostic:
    help = f"use a whole number from 1 to {MAX_NODES:,}"
    return Diagnostic("invalid-value", f"{shown(found)} is not a number of nodes", help)


def _no_number_of_accelerators(found: object) -> Diagnostic:
    help = "use a whole number; 0 means none"
    return Diagnostic("invalid-value", f"{shown(found)} is not a number of accelerators", help)


def _no_size(text: str) -> Diagnostic:
    help = "write 2x8 for 2 nodes with 8 accelerators each"
    return Diagnostic("invalid-value", f"{shown(text)} is not nodes x accelerators", help)

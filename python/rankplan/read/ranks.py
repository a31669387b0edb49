"""Values that several keys of the cluster section share: numbers, labels, and sets of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from rankplan._core import CLUSTER, NODE, RankSet, read_ranks
from rankplan.errors import Diagnostic
from rankplan.read.text.faults import as_pydantic, number
from rankplan.words import shown

RESERVED_LABELS = {CLUSTER: "all nodes", NODE: "all nodes, counted as nodes"}
"""Labels that mean the same in every config."""


def with_all(value: Any, every: Any) -> Any:
    """Return a mapping with ``all`` in its ``node_ranks`` replaced by these ranks; any other value unchanged."""
    ranks = value.get("node_ranks") if isinstance(value, Mapping) else None
    return {**value, "node_ranks": every} if isinstance(ranks, str) and ranks.strip().lower() == "all" else value


def label_fault(value: Any) -> Diagnostic | None:
    """Return the fault of a value that is no label: neither text nor a number, which is taken as text."""
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isprintable()):
        return None
    help = "write a name, e.g. a800; quote it if it looks like a number"
    return Diagnostic("invalid-value", f"{shown(value)} is not a label", help)


def _label(value: Any) -> Any:
    if (found := label_fault(value)) is not None:
        raise as_pydantic(found)
    return str(value) if isinstance(value, int) else value


TEXT_OR_NUMBER = {"type": ["string", "integer"]}
"""For editors: a text, or a number that is taken as one."""

Count = Annotated[int, BeforeValidator(number)]
Label = Annotated[str, BeforeValidator(_label), WithJsonSchema(TEXT_OR_NUMBER)]
Ranks = Annotated[
    RankSet,
    BeforeValidator(read_ranks),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {"type": ["string", "integer", "array"], "items": {"type": "integer"}, "examples": ["0-7", 0, [0, 1]]}
    ),
]

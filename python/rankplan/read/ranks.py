"""Values that several keys of the cluster section share: numbers, labels, and sets of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from rankplan._core import RankSet, read_ranks
from rankplan.read.text.faults import fault, number
from rankplan.words import shown


def with_all(value: Any, every: Any) -> Any:
    """Return a mapping with ``all`` in its ``node_ranks`` replaced by these ranks; any other value unchanged."""
    ranks = value.get("node_ranks") if isinstance(value, Mapping) else None
    return {**value, "node_ranks": every} if isinstance(ranks, str) and ranks.strip().lower() == "all" else value


def _label(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.isprintable():
        help = "write a name, e.g. a800; quote it if it looks like a number"
        raise fault("invalid-value", f"{shown(value)} is not a label", help)
    return value


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

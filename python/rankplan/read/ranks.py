"""Numbers, labels, and sets of ranks as types of pydantic."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from rankplan._core import RankSet, read_ranks
from rankplan.read.simple import label_fault
from rankplan.read.text.faults import as_pydantic, number


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

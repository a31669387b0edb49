"""Sizes of memory, and language models by name: values that several keys of the cluster section share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from rankplan.memory.cards import LARGEST_SIZE, SMALLEST_SIZE, size_of
from rankplan.plans.model import Model as LanguageModel
from rankplan.read.text.invalid import THIS, invalid, unlike
from rankplan.read.text.unresolved import unresolved
from rankplan.words import as_int


def size_in(value: Any) -> int:
    """Return the bytes of a size with its unit. Raises `Invalid`."""
    size = as_int(value)
    size = size_of(value) if isinstance(value, str) else size
    if size is None or not SMALLEST_SIZE <= size <= LARGEST_SIZE:
        raise invalid(unlike(THIS, value, "a size from 1 MiB to 1 EiB", "write a number and a unit, such as 80 GiB"))
    return size


def _model(value: Any) -> Any:
    if isinstance(value, LanguageModel):
        return value
    if not isinstance(value, (str, Mapping)) or unresolved(value):
        help = "write a name such as Qwen/Qwen3-8B, or the path of a config.json"
        raise invalid(unlike("`model`", value, "the name of a model", help))
    return LanguageModel.of(value)


_SIZE_SCHEMA = {"type": ["string", "integer"], "examples": ["80 GiB"]}
Bytes = Annotated[int, BeforeValidator(size_in), WithJsonSchema(_SIZE_SCHEMA)]
ModelName = Annotated[
    LanguageModel,
    BeforeValidator(_model),
    PlainSerializer(LanguageModel.plain, return_type=dict[str, Any]),
    WithJsonSchema({"type": "string", "examples": ["Qwen/Qwen3-8B", "/models/mine/config.json"]}),
]

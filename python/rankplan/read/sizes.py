"""Sizes of memory, and language models by name, as types of pydantic."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from rankplan.plans.model import Model as LanguageModel
from rankplan.read.simple import model_of, size_in

_SIZE_SCHEMA = {"type": ["string", "integer"], "examples": ["80 GiB"]}
Bytes = Annotated[int, BeforeValidator(size_in), WithJsonSchema(_SIZE_SCHEMA)]
ModelName = Annotated[
    LanguageModel,
    BeforeValidator(model_of),
    PlainSerializer(LanguageModel.plain, return_type=dict[str, Any]),
    WithJsonSchema({"type": "string", "examples": ["Qwen/Qwen3-8B", "/models/mine/config.json"]}),
]

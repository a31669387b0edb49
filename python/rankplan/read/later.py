"""Values of keys that most configs do not have: their models are built when a config has the key.

Building a model takes as long as reading a small config. A field whose type is ``Annotated[Any, Later(model)]`` is
validated, and described in the JSON schema, as one whose type is the model itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class Later:
    """Reads a value with a model that a function imports."""

    def __init__(self, model: Callable[[], type[BaseModel]]) -> None:
        self._model = model

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        model = self._model()
        name = f"{model.__module__}.{model.__qualname__}:{id(model)}"
        definition: Any = {**model.__pydantic_core_schema__, "ref": name}
        return handler(core_schema.definitions_schema(core_schema.definition_reference_schema(name), [definition]))

    def _read(self, value: Any) -> BaseModel:
        return self._model().model_validate(value)

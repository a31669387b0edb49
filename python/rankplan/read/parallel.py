"""The parallel sizes of a component entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rankplan._core import MAX_PROCESSES
from rankplan.parallel import ORDER, Parallel, order_fault
from rankplan.read.base import Model
from rankplan.read.text.faults import as_pydantic, number
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.words import must_be

_Size = Annotated[int, Field(ge=1, le=MAX_PROCESSES), BeforeValidator(number)]


class ParallelEntry(Model):
    """Sizes of parallel groups, as a mapping or as text such as d4t2p1."""

    tp: _Size = Field(default=1, description="Slots that divide the tensors of a layer.")
    cp: _Size = Field(default=1, description="Slots that divide the tokens of a sequence.")
    ep: _Size = Field(default=1, description="Slots that divide the experts of a layer.")
    etp: _Size = Field(default=1, description="Slots that divide the tensors of an expert.")
    pp: _Size = Field(default=1, description="Slots that divide the layers of a model.")
    dp: _Size | None = Field(default=None, description="Slots that divide the samples; follows from the other sizes.")
    fsdp: _Size = Field(default=1, description="Consecutive slots of a data group that shard the parameters.")
    order: str = Field(default=ORDER, description="The order in which slots are numbered, fastest first.")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Allow the compact text."""
        described = handler.resolve_ref_schema(handler(schema))
        return {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*([dtpce]\s*[1-9][0-9]*\s*)+$", "examples": ["d4t2p1"]},
                described,
            ]
        }

    @model_validator(mode="before")
    @classmethod
    def _compact(cls, value: Any) -> Any:
        if isinstance(value, str) and not unresolved(value):
            sizes = Parallel.parse(value)
            return {name: size for name in cls.model_fields if (size := getattr(sizes, name)) is not None}
        if not isinstance(value, (Mapping, ParallelEntry)):
            help = RESOLVE if unresolved(value) else "write {tp: 4, pp: 2}, or text such as d4t2p1"
            raise as_pydantic(must_be("`parallel`", value, "a mapping of sizes", help))
        return value

    @field_validator("order", mode="before")
    @classmethod
    def _permutation(cls, value: Any) -> Any:
        if (found := order_fault(value)) is not None:
            raise as_pydantic(found)
        return value

    def value(self) -> Parallel:
        """Return the sizes."""
        return Parallel(**self.model_dump())

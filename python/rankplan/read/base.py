"""The base of the models that read configs, and the settings of a process: each one of a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue

from rankplan.hardware.policies import MEMORY_POLICIES, NIC_POLICIES, POLICIES, VISIBILITIES
from rankplan.read.text.faults import as_pydantic
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.words import did_you_mean, must_be


class Model(BaseModel):
    """A frozen model that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


def or_nothing(schema: JsonSchemaValue) -> None:
    """Allow a key without a value, in the JSON schema of its field."""
    schema["type"] = [schema["type"], "null"]


def one_of(key: str, allowed: Sequence[str]) -> BeforeValidator:
    """Return the check that the value of a key is one of these words."""

    def check(value: Any) -> Any:
        if value not in allowed:
            words = ", ".join(allowed[:-1]) + f" or {allowed[-1]}"
            help = RESOLVE if unresolved(value) else did_you_mean(str(value), allowed, "use one of")
            raise as_pydantic(must_be((key,), value, words, help))
        return value

    return BeforeValidator(check)


def enum_of(allowed: Sequence[str]) -> WithJsonSchema:
    """Return the JSON schema of a key whose value is one of these words."""
    return WithJsonSchema({"type": "string", "enum": list(allowed)})


VisibilityWord = Annotated[str, one_of("visibility", VISIBILITIES), enum_of(VISIBILITIES)]
BindingWord = Annotated[str, one_of("binding", POLICIES), enum_of(POLICIES)]
MemoryWord = Annotated[str, one_of("memory_binding", MEMORY_POLICIES), enum_of(MEMORY_POLICIES)]
NicsWord = Annotated[str, one_of("nics", NIC_POLICIES), enum_of(NIC_POLICIES)]

DESCRIPTIONS = {
    "visibility": "What a process sees: own, node, or own-first (all of its node, its own first).",
    "binding": "The CPUs of a process: near its accelerators (node, socket, exclusive, core-complex), or any (none).",
    "memory_binding": "Where its memory comes from: preferably (preferred) or only (bind) nearby, or anywhere (none).",
    "nics": "Whether nearby network cards are only reported (check) or used (set).",
    "egl": "Whether its processes render with EGL.",
}

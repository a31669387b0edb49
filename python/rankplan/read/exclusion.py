"""``cluster.exclude``: hardware that must not be used."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from rankplan.read.text.faults import as_pydantic, fault
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.words import must_be, shown


def _names(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)):
        help = RESOLVE if unresolved(value) else 'write a list of names: [node-3, "node-5/2"]'
        raise as_pydantic(must_be("`exclude`", value, "a list", help))
    for index, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            help = "write the name of a node (node-3), an accelerator (node-5/2, or its id), or a domain (nvlink=b)"
            raise fault("invalid-value", f"{shown(name)} is not a name", help, (index,))
    return [name.strip() for name in names]


Excluded = Annotated[
    tuple[str, ...],
    BeforeValidator(_names),
    WithJsonSchema({"type": ["array", "string"], "items": {"type": "string"}}),
]
"""Names of nodes, accelerators and domains."""

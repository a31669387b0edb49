"""``cluster.exclude``: hardware that must not be used."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from rankplan.errors import Diagnostic
from rankplan.read.text.invalid import invalid, unlike
from rankplan.words import shown


def excluded_names(value: Any) -> tuple[str, ...]:
    """Return the names in a list, or a text that is one. Raises `Invalid`."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)):
        raise invalid(unlike("`exclude`", value, "a list", 'write a list of names: [node-3, "node-5/2"]'))
    for index, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            help = "write the name of a node (node-3), an accelerator (node-5/2, or its id), or a domain (nvlink=b)"
            raise invalid(Diagnostic("invalid-value", f"{shown(name)} is not a name", help), (index,))
    return tuple(name.strip() for name in names)


Excluded = Annotated[
    tuple[str, ...],
    BeforeValidator(excluded_names),
    WithJsonSchema({"type": ["array", "string"], "items": {"type": "string"}}),
]
"""Names of nodes, accelerators and domains."""

"""``cluster.topology`` and ``cluster.exclude``: the levels of the network, and hardware that must not be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from rankplan._core import MAX_NODES
from rankplan.config.base import Model
from rankplan.config.text.faults import RESOLVE, as_pydantic, fault, unresolved
from rankplan.words import did_you_mean, must_be, shown, unknown, whole_number

NODE_LEVEL = "node"
"""The innermost level of every cluster; it needs no label."""

BY_ADDRESS, BY_TOPOLOGY = "address", "topology"
ORDERS = (BY_ADDRESS, BY_TOPOLOGY)
AS_RLINF_ORDER = "rlinf"
NODE_ORDERS = (*ORDERS, AS_RLINF_ORDER)
"""The orders that a program may choose; a config chooses among the first two."""


GROUP_KINDS = ("tp", "cp", "dp", "fsdp", "replica", "pp", "etp", "ep", "edp")
"""The kinds of parallel groups that ``keep`` accepts."""


def level_keys(value: Any) -> Any:
    """Reject anything but a list of different label keys, outermost first."""
    if not isinstance(value, (list, tuple)):
        help = RESOLVE if unresolved(value) else "write a list of label keys, outermost first: [block, nvlink]"
        raise as_pydantic(must_be("`levels`", value, "a list", help))
    for index, key in enumerate(value):
        if not isinstance(key, str) or not key.strip() or not key.isprintable():
            raise fault("invalid-value", f"{shown(key)} is not a level", "write the key of a node label", (index,))
        if key == NODE_LEVEL:
            help = "remove it, or rename the label"
            raise fault("invalid-value", "the level `node` is always the innermost one", help, (index,))
    twice = next((key for key, count in Counter(value).items() if count > 1), None)
    if twice is not None:
        raise fault("invalid-value", f"level `{twice}` is listed twice", "list each level once, outermost first")
    return value


Levels = Annotated[
    tuple[str, ...], BeforeValidator(level_keys), WithJsonSchema({"type": "array", "items": {"type": "string"}})
]


def _segment_sizes(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _segment_size(value, ())
    found: dict[str, Any] = {}
    for name, size in value.items():
        path = (str(name),)
        if isinstance(size, Mapping) and size:
            found[path[0]] = {str(level): _segment_size(one, (*path, str(level))) for level, one in size.items()}
        else:
            found[path[0]] = _segment_size(size, path)
    return found


def _segment_size(value: Any, path: tuple[str, ...]) -> int:
    size = whole_number(value)
    if size is None or not 1 <= size <= MAX_NODES:
        help = RESOLVE if unresolved(value) else "write the number of nodes of a segment, by component, or by level too"
        raise as_pydantic(must_be(path[-1:] or ("segment",), value, "a whole number of 1 or more", help), path)
    return size


_SIZE = {"type": "integer", "minimum": 1, "maximum": MAX_NODES}
_BY_LEVEL = {"type": "object", "additionalProperties": _SIZE, "minProperties": 1}
_BY_COMPONENT = {"type": "object", "additionalProperties": {"anyOf": [_SIZE, _BY_LEVEL]}}
Segments = int | dict[str, int | dict[str, int]]
"""The number of nodes that must be in one domain together: of the innermost level, or by level; by component."""
Segment = Annotated[
    Segments,
    BeforeValidator(_segment_sizes),
    WithJsonSchema({"anyOf": [_SIZE, _BY_COMPONENT]}),
]
ALL = "all"
"""Takes the place of a component in ``segment``: all nodes of the plan."""


class Topology(Model):
    """The network of a cluster, as far as a config decides about it."""

    levels: Levels | None = Field(
        default=None, description="Keys of node labels, outermost first, e.g. [block, nvlink]; detected by default."
    )
    order: str = Field(
        default=BY_ADDRESS,
        description="How nodes without ranks are ordered: address, or topology for domain after domain.",
        json_schema_extra={"enum": list(ORDERS)},
    )
    keep: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="Levels that groups must stay within, by component and kind: {actor: {tp: node, ep: nvlink}}.",
    )
    segment: Segment | None = Field(
        default=None,
        description="Number of nodes that must be in one domain together; by component: {policy: 4, generation: 2}; "
        "by level too: {policy: {block: 16, nvlink: 8}}.",
    )

    @field_validator("order", mode="before")
    @classmethod
    def _known_order(cls, value: Any) -> Any:
        if value not in ORDERS:
            help = RESOLVE if unresolved(value) else did_you_mean(str(value), ORDERS)
            raise as_pydantic(must_be("`order`", value, "address or topology", help))
        return value

    @field_validator("keep", mode="before")
    @classmethod
    def _kinds_and_levels(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        for name, kinds in value.items():
            if not isinstance(kinds, Mapping):
                allowed, help = "a mapping of kinds of groups to levels", "write {tp: node}, for example"
                raise as_pydantic(must_be((name,), kinds, allowed, help), (name,))
            for kind in kinds:
                if kind not in GROUP_KINDS:
                    found = unknown("kind of group", kind, GROUP_KINDS, code="unknown-key")
                    raise as_pydantic(found, (name, str(kind)))
        return value


USUAL_TOPOLOGY = Topology()
"""The network of a section that states nothing about it. Shared: pydantic would copy a default for each section."""


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

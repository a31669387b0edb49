"""``cluster.topology`` and ``cluster.exclude``: the levels of the network, and hardware that must not be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema, field_validator
from pydantic_core import InitErrorDetails

from rankplan._core import MAX_NODES, level_faults
from rankplan.errors import Diagnostic
from rankplan.nodes.facts import BY_ADDRESS, ORDERS
from rankplan.plans.rules import KEPT_KINDS, TOGETHER, WORLD
from rankplan.read.base import Model
from rankplan.read.text.faults import as_pydantic
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.words import did_you_mean, must_be, unknown, whole_number


def level_keys(value: Any) -> Any:
    """Reject anything but a list of different label keys, outermost first."""
    for path, found in level_faults(value):
        raise as_pydantic(found, path)
    return value


Levels = Annotated[
    tuple[str, ...], BeforeValidator(level_keys), WithJsonSchema({"type": "array", "items": {"type": "string"}})
]


class _Faults:
    """The faults of the values below a key, each with its path there."""

    def __init__(self) -> None:
        self._found: list[InitErrorDetails] = []

    def add(self, value: Any, path: tuple[str, ...], found: Diagnostic) -> None:
        help = RESOLVE if unresolved(value) else found.help
        error = as_pydantic(replace(found, help=help), path)
        self._found.append(InitErrorDetails(type=error, loc=(), input=value))

    def size(self, name: str, value: Any, path: tuple[str, ...], help: str) -> int:
        """Return a number of nodes or domains."""
        size = whole_number(value)
        if size is None or not 1 <= size <= MAX_NODES:
            self.add(value, path, must_be((name,), value, "a whole number of 1 or more", help))
            return 1
        return size

    def level(self, name: str, value: Any, path: tuple[str, ...], help: str) -> str:
        """Return the name of a level; whether the cluster has it, its nodes say."""
        if not isinstance(value, str) or not value.strip() or unresolved(value):
            self.add(value, path, must_be((name,), value, "a level", help))
        return str(value)

    def reject(self) -> None:
        """Raise all of them as one error."""
        if self._found:
            raise ValidationError.from_exception_data("topology", self._found)


def _segment_sizes(value: Any) -> Any:
    faults, help = _Faults(), "write the number of nodes of a segment, by component, or by level too"
    if not isinstance(value, Mapping):
        found: Any = faults.size("segment", value, (), help)
    else:
        found = {}
        for name, size in value.items():
            path = (str(name),)
            if isinstance(size, Mapping) and size:
                sizes = ((str(level), one) for level, one in size.items())
                found[path[0]] = {level: faults.size(level, one, (*path, level), help) for level, one in sizes}
            else:
                found[path[0]] = faults.size(path[0], size, path, help)
    faults.reject()
    return found


def _kept_levels(value: Any, *, counts: bool) -> Any:
    """Return levels by component and kind; with ``counts``, a level may have a most number of domains."""
    if not isinstance(value, Mapping):
        return value  # pydantic reports it
    faults, found = _Faults(), dict[str, dict[str, Any]]()
    for name, kinds in value.items():
        if not isinstance(kinds, Mapping):
            allowed = "a mapping of kinds of groups to levels"
            faults.add(kinds, (str(name),), must_be((str(name),), kinds, allowed, "write {tp: node}, for example"))
            continue
        for kind, level in kinds.items():
            path = (str(name), str(kind))
            if kind not in KEPT_KINDS:
                faults.add(kind, path, unknown("kind of group", kind, KEPT_KINDS, code="unknown-key"))
            elif TOGETHER in path[0] and kind != WORLD:
                message = f"`{TOGETHER}` joins components for `{WORLD}` only, not for {kind}"
                faults.add(kind, path, Diagnostic("invalid-value", message, f"write `{WORLD}`, or name one component"))
            elif counts and isinstance(level, Mapping) and level:
                most = ((str(one), count) for one, count in level.items())
                help = "write the most domains that each group may be divided over: {nvlink: 2}"
                kept = {one: faults.size(one, count, (*path, one), help) for one, count in most}
                found.setdefault(path[0], {})[path[1]] = kept
            else:
                help = "write a level: nvlink" + (", or {nvlink: 2} for two domains" if counts else "")
                found.setdefault(path[0], {})[path[1]] = faults.level(path[1], level, path, help)
    faults.reject()
    return found


def _balanced(value: Any) -> Any:
    faults, help = _Faults(), "write a level: nvlink, or by component: {actor: nvlink}"
    if isinstance(value, Mapping):
        found: Any = {str(name): faults.level(str(name), level, (str(name),), help) for name, level in value.items()}
    else:
        found = faults.level("balance", value, (), help)
    faults.reject()
    return found


def _caps(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    faults, help = _Faults(), "write the most nodes in use of a domain: {nvlink: 16}"
    found = {str(level): faults.size(str(level), most, (str(level),), help) for level, most in value.items()}
    faults.reject()
    return found


_SIZE = {"type": "integer", "minimum": 1, "maximum": MAX_NODES}
_SIZES = {"type": "object", "additionalProperties": _SIZE, "minProperties": 1}
_LEVEL = {"type": "string"}


def _by(what: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": what}


def _by_kind(what: dict[str, Any]) -> WithJsonSchema:
    kinds = {"type": "object", "propertyNames": {"enum": list(KEPT_KINDS)}, "additionalProperties": what}
    return WithJsonSchema(_by(kinds))


Segment = Annotated[
    int | dict[str, int | dict[str, int]],
    BeforeValidator(_segment_sizes),
    WithJsonSchema({"anyOf": [_SIZE, _by({"anyOf": [_SIZE, _SIZES]})]}),
]
Keep = Annotated[
    dict[str, dict[str, str | dict[str, int]]],
    BeforeValidator(partial(_kept_levels, counts=True)),
    _by_kind({"anyOf": [_LEVEL, _SIZES]}),
]
Prefer = Annotated[dict[str, dict[str, str]], BeforeValidator(partial(_kept_levels, counts=False)), _by_kind(_LEVEL)]
Balance = Annotated[str | dict[str, str], BeforeValidator(_balanced), WithJsonSchema({"anyOf": [_LEVEL, _by(_LEVEL)]})]
Cap = Annotated[dict[str, int], BeforeValidator(_caps), WithJsonSchema(_by(_SIZE))]


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
    keep: Keep = Field(
        default_factory=dict,
        description="Levels that groups must stay within, by component and kind: {actor: {tp: node, ep: nvlink}}; "
        "world means all nodes of a component, {nvlink: 2} two domains with equal shares.",
    )
    segment: Segment | None = Field(
        default=None,
        description="Number of nodes that must be in one domain together; by component: {policy: 4, generation: 2}; "
        "by level too: {policy: {block: 16, nvlink: 8}}.",
    )
    prefer: Prefer = Field(
        default_factory=dict,
        description="Levels that groups should stay within, as in keep; never refuses: {actor: {world: nvlink}}.",
    )
    balance: Balance = Field(
        default_factory=dict,
        description="Level whose domains in use get shares as equal as possible, for all or by component.",
    )
    cap: Cap = Field(
        default_factory=dict, description="Most nodes of a domain that may be in use, by level: {nvlink: 16}."
    )

    @field_validator("order", mode="before")
    @classmethod
    def _known_order(cls, value: Any) -> Any:
        if value not in ORDERS:
            help = RESOLVE if unresolved(value) else did_you_mean(str(value), ORDERS)
            raise as_pydantic(must_be("`order`", value, "address or topology", help))
        return value

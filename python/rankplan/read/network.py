"""``cluster.topology``: the levels of the network, and what must stay within them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any

from rankplan._core import MAX_NODES, level_faults
from rankplan.errors import Diagnostic
from rankplan.frozen import frozen
from rankplan.nodes.facts import BY_ADDRESS, ORDERS
from rankplan.plans.rules import KEPT_KINDS, TOGETHER, TOPOLOGY_RULES, WORLD, Balance, Cap, Keep, Prefer, Segments
from rankplan.read.record import Field, Record, one_of
from rankplan.read.text.invalid import THIS, Invalid, Located, invalid, unlike, wrong_type
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.words import did_you_mean, must_be, unknown, whole_number


def _level_keys(value: Any) -> tuple[str, ...]:
    """Return different label keys, outermost first."""
    for path, fault in level_faults(value):
        raise invalid(fault, path)
    return tuple(value)


def _order(value: Any) -> str:
    if value not in ORDERS:
        raise invalid(unlike("`order`", value, "address or topology", did_you_mean(str(value), ORDERS)))
    return str(value)


class _Values:
    """Reads values below a key, and collects their faults, each with its path there."""

    def __init__(self) -> None:
        self._faults: list[Located] = []

    def add(self, value: Any, path: tuple[str, ...], fault: Diagnostic) -> None:
        """Record the fault of a value; an interpolation that is left must be resolved first."""
        self._faults.append((path, replace(fault, help=RESOLVE) if unresolved(value) else fault))

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
        """Raise `Invalid` with all of them."""
        if self._faults:
            raise Invalid(self._faults)


def _segment_sizes(value: Any) -> Segments:
    faults, help = _Values(), "write the number of nodes of a segment, by component, or by level too"
    if not isinstance(value, Mapping):
        found: Segments = faults.size("segment", value, (), help)
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
        raise invalid(wrong_type(THIS, value, "dict"))
    faults, found = _Values(), dict[str, dict[str, Any]]()
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
    faults, help = _Values(), "write a level: nvlink, or by component: {actor: nvlink}"
    if isinstance(value, Mapping):
        found: Any = {str(name): faults.level(str(name), level, (str(name),), help) for name, level in value.items()}
    else:
        found = faults.level("balance", value, (), help)
    faults.reject()
    return found


def _caps(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise invalid(wrong_type(THIS, value, "dict"))
    faults, help = _Values(), "write the most nodes in use of a domain: {nvlink: 16}"
    found = {str(level): faults.size(str(level), most, (str(level),), help) for level, most in value.items()}
    faults.reject()
    return found


_SIZE = {"type": "integer", "minimum": 1, "maximum": MAX_NODES}
_SIZES = {"type": "object", "additionalProperties": _SIZE, "minProperties": 1}
_LEVEL = {"type": "string"}


def _by(what: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": what}


def _by_kind(what: dict[str, Any]) -> dict[str, Any]:
    return _by({"type": "object", "propertyNames": {"enum": list(KEPT_KINDS)}, "additionalProperties": what})


TOPOLOGY = Record(
    "Topology",
    "The network of a cluster, as far as a config decides about it.",
    {
        "levels": Field(
            _level_keys,
            "Keys of node labels, outermost first, e.g. [block, nvlink]; detected by default.",
            {"type": "array", "items": _LEVEL},
            optional=True,
        ),
        "order": Field(
            _order,
            "How nodes without ranks are ordered: address, or topology for domain after domain.",
            one_of(ORDERS, default=BY_ADDRESS),
        ),
        "keep": Field(
            partial(_kept_levels, counts=True),
            "Levels that groups must stay within, by component and kind: {actor: {tp: node, ep: nvlink}}; "
            "world means all nodes of a component, {nvlink: 2} two domains with equal shares.",
            _by_kind({"anyOf": [_LEVEL, _SIZES]}),
        ),
        "segment": Field(
            _segment_sizes,
            "Number of nodes that must be in one domain together; by component: {policy: 4, generation: 2}; "
            "by level too: {policy: {block: 16, nvlink: 8}}.",
            {"anyOf": [_SIZE, _by({"anyOf": [_SIZE, _SIZES]})]},
            optional=True,
        ),
        "prefer": Field(
            partial(_kept_levels, counts=False),
            "Levels that groups should stay within, as in keep; never refuses: {actor: {world: nvlink}}.",
            _by_kind(_LEVEL),
        ),
        "balance": Field(
            _balanced,
            "Level whose domains in use get shares as equal as possible, for all or by component.",
            {"anyOf": [_LEVEL, _by(_LEVEL)]},
        ),
        "cap": Field(_caps, "Most nodes of a domain that may be in use, by level: {nvlink: 16}.", _by(_SIZE)),
    },
)


@frozen
class Topology:
    """The network of a cluster, as far as a config decides about it; see `TOPOLOGY`."""

    levels: tuple[str, ...] | None = None
    order: str = BY_ADDRESS
    keep: Keep = field(default_factory=dict)
    segment: Segments | None = None
    prefer: Prefer = field(default_factory=dict)
    balance: Balance = field(default_factory=dict)
    cap: Cap = field(default_factory=dict)

    def rules(self) -> dict[str, Any]:
        """Return what it states about the components, by the names of `Rules`."""
        return {key: getattr(self, key) for key in TOPOLOGY_RULES}


def read_topology(stated: Any) -> Topology:
    """Return what a config decides about the network. Raises `Invalid`."""
    return Topology(**TOPOLOGY.read(stated))

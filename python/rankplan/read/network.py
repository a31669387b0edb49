"""``cluster.topology``: the levels of the network, and what must stay within them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any, cast

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

    def sizes(self, by_level: Mapping[Any, Any], path: tuple[str, ...], help: str) -> dict[str, int]:
        """Return numbers of nodes or domains by level."""
        stated = {str(level): size for level, size in by_level.items()}
        return {level: self.size(level, size, (*path, level), help) for level, size in stated.items()}

    def kept(self, level: Any, path: tuple[str, ...], *, counts: bool) -> str | dict[str, int]:
        """Return a level; with ``counts``, it may have the most domains that a group may be divided over."""
        if counts and isinstance(level, Mapping) and level:
            return self.sizes(level, path, "write the most domains that each group may be divided over: {nvlink: 2}")
        help = "write a level: nvlink" + (", or {nvlink: 2} for two domains" if counts else "")
        return self.level(path[-1], level, path, help)

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
    values, help = _Values(), "write the number of nodes of a segment, by component, or by level too"
    if not isinstance(value, Mapping):
        size = values.size("segment", value, (), help)
        values.reject()
        return size
    segments: dict[str, int | dict[str, int]] = {}
    for component, size_or_levels in value.items():
        name = str(component)
        if isinstance(size_or_levels, Mapping) and size_or_levels:
            segments[name] = values.sizes(size_or_levels, (name,), help)
        else:
            segments[name] = values.size(name, size_or_levels, (name,), help)
    values.reject()
    return segments


def _kept_levels(value: Any, *, counts: bool) -> Keep:
    """Return levels by component and kind; with ``counts``, a level may have a most number of domains."""
    if not isinstance(value, Mapping):
        raise invalid(wrong_type(THIS, value, "dict"))
    values, levels = _Values(), dict[str, dict[str, str | Mapping[str, int]]]()
    for component, kinds in value.items():
        name = str(component)
        if not isinstance(kinds, Mapping):
            allowed = "a mapping of kinds of groups to levels"
            values.add(kinds, (name,), must_be((name,), kinds, allowed, "write {tp: node}, for example"))
            continue
        for kind, level in kinds.items():
            fault = _kind_fault(name, kind)
            if fault is None:
                levels.setdefault(name, {})[str(kind)] = values.kept(level, (name, str(kind)), counts=counts)
            else:
                values.add(kind, (name, str(kind)), fault)
    values.reject()
    return levels


def _kind_fault(component: str, kind: Any) -> Diagnostic | None:
    """Return the fault of a kind of groups that a component cannot have."""
    if kind not in KEPT_KINDS:
        return unknown("kind of group", kind, KEPT_KINDS, code="unknown-key")
    if TOGETHER in component and kind != WORLD:
        message = f"`{TOGETHER}` joins components for `{WORLD}` only, not for {kind}"
        return Diagnostic("invalid-value", message, f"write `{WORLD}`, or name one component")
    return None


def _preferred_levels(value: Any) -> Prefer:
    """Return levels by component and kind."""
    return cast(Prefer, _kept_levels(value, counts=False))


def _balanced(value: Any) -> Balance:
    values, help = _Values(), "write a level: nvlink, or by component: {actor: nvlink}"
    balance: Balance
    if isinstance(value, Mapping):
        balance = {str(name): values.level(str(name), level, (str(name),), help) for name, level in value.items()}
    else:
        balance = values.level("balance", value, (), help)
    values.reject()
    return balance


def _caps(value: Any) -> Cap:
    if not isinstance(value, Mapping):
        raise invalid(wrong_type(THIS, value, "dict"))
    values = _Values()
    caps = values.sizes(value, (), "write the most nodes in use of a domain: {nvlink: 16}")
    values.reject()
    return caps


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
            _preferred_levels,
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

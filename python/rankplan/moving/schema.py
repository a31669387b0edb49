"""The JSON schema of a transition."""

from __future__ import annotations

from typing import Any

from rankplan.moving.changes import LOST, MOVE, RENAME, RESHAPE, RESTART, START, STOP
from rankplan.moving.holdings import ADAPTERS, OPTIMIZER, PARTS, RESIDENT, STATES, WEIGHTS

SCHEMA = "https://rankplan.readthedocs.io/schema/transition-1.json"

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_SIZE = {"type": ["integer", "null"], "minimum": 0}
_SECONDS = {
    "type": "array",
    "items": [{"type": "number", "minimum": 0}, {"type": ["number", "null"], "minimum": 0}],
    "minItems": 2,
    "maxItems": 2,
    "description": "at least, and at most; null: something that it depends on is not stated",
}
_DO = (
    *("stop-routing", "drain", "abort", "sleep", "free"),
    *("load", "rename", "regroup", "sync", "cache", "verify", "route", "wake"),
)


def _slot_of(side: str) -> dict[str, Any]:
    items = [_TEXT, {"const": side}, _COUNT]
    return {"type": "array", "items": items, "minItems": 3, "maxItems": 3}


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [key for key in properties if key not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _by_name(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def transition_schema() -> dict[str, Any]:
    """Return the JSON schema of what `Transition.to_dict` gives."""
    pair = {"type": "array", "items": [_TEXT, {"type": ["integer", "null"]}], "minItems": 2, "maxItems": 2}
    slot = {
        "component": _TEXT,
        "slot": {**_SIZE, "description": "its number in the plan after; null if it ends"},
        "kind": {"enum": [RENAME, RESHAPE, RESTART, MOVE, START, STOP, LOST]},
        "was": {**_SIZE, "description": "in the plan before; null: it starts"},
        "to": {"anyOf": [pair, {"type": "null"}], "description": "node, and local index of the accelerator"},
        "bytes": {**_SIZE, "description": "that it gets; null: unknown"},
        "of": {**_SIZE, "description": "all bytes that it holds"},
    }
    move = {
        "to": _slot_of("after"),
        "from": {"anyOf": [_slot_of("before"), {"const": "storage"}]},
        "state": {"enum": [WEIGHTS, OPTIMIZER, STATES, ADAPTERS, RESIDENT, PARTS]},
        "bytes": _SIZE,
        "level": {**_TEXT, "description": "device, node, a level of the inventory, network, host or storage"},
        "part": {"type": "number", "description": "of all weights of the component, where no bytes are known"},
        "converts": {"type": "boolean", "description": "the sender has another precision"},
    }
    step = {
        "id": _TEXT,
        "do": {"enum": list(_DO)},
        "component": _TEXT,
        "side": {"enum": ["before", "after"]},
        "instance": _COUNT,
        "slots": _list(_COUNT),
        "needs": {**_list(_TEXT), "description": "ids of steps, which are earlier in the list"},
        "seconds": _SECONDS,
    }
    sizes = _object({"total": _SIZE, "kept": _SIZE, "offload": _COUNT, "by_level": _by_name(_COUNT)})
    components = _by_name(
        _object(
            {"slots": {**_list(_COUNT), "minItems": 2, "maxItems": 2, "description": "before, after"}, "stay": _COUNT}
        )
    )
    peak = {
        "node": _TEXT,
        "accelerator": _COUNT,
        "bytes": {**_SIZE, "description": "the most that it may hold in any order; null: no bound is known"},
        "least": {**_SIZE, "description": "by lower bounds"},
    }
    properties = {
        "version": {"const": 1},
        "components": components,
        "names": {**_by_name(_list(_COUNT)), "description": "the number that each set of data groups gets"},
        "slots": _list(_object(slot)),
        "moves": _list(_object(move, ("part", "converts"))),
        "bytes": sizes,
        "steps": _list(_object(step)),
        "peak": _list(_object(peak)),
        "seconds": _SECONDS,
        "missing": _list(_TEXT),
        "answer": {"enum": ["fits", "unknown"]},
        "optimal": {"type": "boolean"},
        "rollback": {**_list(_TEXT), "description": "trainers that load their last checkpoint"},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": SCHEMA,
        "title": "A transition of rankplan",
        **_object(properties),
    }

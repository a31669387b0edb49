"""The JSON schema of what ``rankplan tune --format json`` prints for an asynchronous run."""

from __future__ import annotations

from typing import Any

from rankplan.tuning.async_terms import Rule
from rankplan.tuning.splits import Known, Verdict

SCHEMA = "https://rankplan.readthedocs.io/schema/tune-async-1.json"

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_SIZE = {"type": "integer", "minimum": 1}
_SECONDS = {"type": "number", "minimum": 0}
_MAYBE = {"type": ["number", "null"], "minimum": 0, "description": "null: unknown"}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _or_null(schema: dict[str, Any], meaning: str) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}], "description": meaning}


def splits_schema() -> dict[str, Any]:
    """Return the schema, draft 7."""
    row = {
        "split": _or_null(_object({"trainer": _SIZE, "rollout": _SIZE}), "null: colocated"),
        "staleness": {**_MAYBE, "description": "null: the rule has no staleness"},
        "lend": {"type": "boolean", "description": "the trainer lends its accelerators while it waits"},
    }
    gain = _object({"usual": _SECONDS, "low": _SECONDS, "high": _SECONDS})
    times = {
        "seconds": _SECONDS,
        "low": _SECONDS,
        "high": _SECONDS,
        "train": {**_MAYBE, "description": "seconds of the training of a batch; null: unknown"},
        "generate": {**_MAYBE, "description": "the pace of generation, in seconds of a batch; null: unknown"},
        "wait": _MAYBE,
        "idle": _MAYBE,
        "pace": {"type": ["string", "null"], "description": "the component whose part is the longer one"},
        "gain": _or_null(gain, "measured seconds of the colocated run, divided by those of the row"),
        "known": {"enum": [known.value for known in Known]},
        "against_colocated": {"enum": [*(verdict.value for verdict in Verdict), None]},
        "extrapolated": {"type": "boolean"},
    }
    warning = _object({"code": _TEXT, "message": _TEXT})
    content = {
        "mode": {"const": "async"},
        "rule": {"enum": [rule.value for rule in Rule]},
        "trainer": _TEXT,
        "rollout": _TEXT,
        "accelerators": _SIZE,
        "rows": {"type": "array", "items": _object(row | times)},
        "undecided": {"type": "array", "items": _object(row), "description": "not told apart from `measure`"},
        "measure": _or_null(_object(row), "the run that would tell them apart"),
        "left_out": {**_COUNT, "description": "splits with far fewer or more accelerators than every run"},
        "warnings": {"type": "array", "items": warning},
    }
    return {"$schema": "http://json-schema.org/draft-07/schema#", "$id": SCHEMA, **_object(content)}

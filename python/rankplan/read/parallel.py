"""The parallel sizes of a component, as a mapping or as text such as d4t2p1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan._core import MAX_PROCESSES
from rankplan.parallel import Parallel, order_fault
from rankplan.read.record import Field, Record
from rankplan.read.simple import whole_number
from rankplan.read.text.invalid import invalid, unlike
from rankplan.read.text.unresolved import unresolved

_TEXT = {"type": "string", "pattern": r"^\s*([dtpce]\s*[1-9][0-9]*\s*)+$", "examples": ["d4t2p1"]}
_SIZE = {"type": "integer", "minimum": 1, "maximum": MAX_PROCESSES}
_ORDER = {"type": "string", "default": Parallel.ORDER}
_read_size = whole_number(1, MAX_PROCESSES)


def _order(value: Any) -> str:
    fault = order_fault(value)
    if fault is not None:
        raise invalid(fault)
    return str(value)


def _size(description: str) -> Field:
    return Field(_read_size, description, {**_SIZE, "default": 1})


PARALLEL = Record(
    "ParallelEntry",
    "Sizes of parallel groups, as a mapping or as text such as d4t2p1.",
    {
        "tp": _size("Slots that divide the tensors of a layer."),
        "cp": _size("Slots that divide the tokens of a sequence."),
        "ep": _size("Slots that divide the experts of a layer."),
        "etp": _size("Slots that divide the tensors of an expert."),
        "pp": _size("Slots that divide the layers of a model."),
        "dp": Field(_read_size, "Slots that divide the samples; follows from the other sizes.", _SIZE, optional=True),
        "fsdp": _size("Consecutive slots of a data group that shard the parameters."),
        "order": Field(_order, "The order in which slots are numbered, fastest first.", _ORDER),
    },
)


def read_parallel(stated: Any) -> Parallel:
    """Return the parallel sizes in a mapping or a text. Raises `Invalid`, or `PlacementError` for a faulty text."""
    if isinstance(stated, str) and not unresolved(stated):
        sizes = Parallel.parse(stated)
        stated = {name: size for name in PARALLEL.fields if (size := getattr(sizes, name)) is not None}
    if not isinstance(stated, Mapping):
        raise invalid(
            unlike("`parallel`", stated, "a mapping of sizes", "write {tp: 4, pp: 2}, or text such as d4t2p1")
        )
    return Parallel(**PARALLEL.read(stated))


def schema() -> dict[str, Any]:
    """Return the JSON schema of the sizes."""
    return {"anyOf": [_TEXT, PARALLEL.schema()]}

"""Pools in a cluster section: bounds on growing and shrinking, and nodes reserved for some components."""

from __future__ import annotations

from typing import Any

from rankplan._core import read_ranks
from rankplan.plans.rules import Pool
from rankplan.read.record import Field, Record, list_of
from rankplan.read.simple import LABEL, NODE_RANKS, label, whole_number

_SIZE = {"type": "integer", "minimum": 1}
_LABELS = {"type": "array", "items": LABEL, "default": []}
_read_size = whole_number(1)

POOL = Record(
    "PoolEntry",
    "A pool with components, or a reserve: nodes without processes, for the components of the pools it protects.",
    {
        "name": Field(label, "Name of the pool; `protects` of a reserve refers to it.", LABEL, needed=True),
        "components": Field(list_of(label), "Components of the pool.", _LABELS),
        "min_accelerators": Field(_read_size, "Fewest accelerators of the components.", _SIZE, optional=True),
        "max_accelerators": Field(_read_size, "Most accelerators of the components.", _SIZE, optional=True),
        "node_ranks": Field(read_ranks, "Nodes of a reserve: a range such as 4-5.", NODE_RANKS),
        "protects": Field(list_of(label), "Pools whose components may use the nodes of a reserve.", _LABELS),
    },
)


def read_pool(stated: Any) -> Pool:
    """Return a pool. Raises `Invalid`."""
    return Pool(**POOL.read(stated))

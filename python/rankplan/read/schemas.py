"""The JSON schemas of the shared keys, and of the records and models in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.read.hardware import Hardware
from rankplan.read.memory import MEMORY
from rankplan.read.network import TOPOLOGY
from rankplan.read.node_groups import ENVIRONMENT, GROUP
from rankplan.read.parallel import schema as parallel_schema
from rankplan.read.pools import POOL

_SIZE = {"anyOf": [{"type": ["string", "integer"], "examples": ["80 GiB"]}, {"type": "null"}], "default": None}

SHARED: Mapping[str, dict[str, Any]] = {
    "node_groups": {
        "title": "Node Groups",
        "type": ["array", "null"],
        "items": {"$ref": "#/$defs/NodeGroup"},
        "description": "Labelled sets of nodes.",
    },
    "topology": {
        "$ref": "#/$defs/Topology",
        "description": "Levels of the network, and what must stay within them.",
    },
    "exclude": {
        "title": "Exclude",
        "type": ["array", "string"],
        "items": {"type": "string"},
        "default": [],
        "description": "Nodes, accelerators and domains that no component may use.",
    },
    "pools": {
        "title": "Pools",
        "type": "array",
        "items": {"$ref": "#/$defs/PoolEntry"},
        "default": [],
        "description": "Bounds on growing and shrinking, and nodes reserved for some components.",
    },
    "accelerator_memory": {
        "title": "Accelerator Memory",
        **_SIZE,
        "description": "Memory of each accelerator: 80 GiB.",
    },
    "host_memory": {"title": "Host Memory", **_SIZE, "description": "Memory of each node: 2 TiB."},
}
"""The schema of each of `SHARED_KEYS`."""


def definitions() -> dict[str, Any]:
    """Return the schemas that those of the keys refer to, by their names."""
    hardware = Hardware.model_json_schema(ref_template="#/$defs/{model}")
    records = {record.title: record.schema() for record in (GROUP, ENVIRONMENT, TOPOLOGY, POOL, MEMORY)}
    return {**records, "ParallelEntry": parallel_schema(), **hardware.pop("$defs"), "Hardware": hardware}

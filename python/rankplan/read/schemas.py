"""The JSON schemas of the shared keys, and of the records and models in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan._core import MAX_NODES
from rankplan.nodes.facts import BY_ADDRESS, ORDERS
from rankplan.nodes.groups import PATH_MODES, PREPEND
from rankplan.plans.rules import KEPT_KINDS
from rankplan.read.hardware import HardwareConfig
from rankplan.read.memory import MEMORY
from rankplan.read.parallel import schema as parallel_schema
from rankplan.read.record import Key, one_of, record_schema
from rankplan.read.simple import LABEL, NODE_RANKS

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


_ADDITIONAL = {"additionalProperties": {"type": ["string", "number"]}}
_ONE_VARIABLE = {"type": "object", **_ADDITIONAL, "minProperties": 1, "maxProperties": 1}
_VARIABLES = {"type": ["array", "object", "null"], "items": _ONE_VARIABLE, **_ADDITIONAL}
_INTERPRETER = {"type": "string", "minLength": 1}
_ENVIRONMENTS = {"type": ["array", "null"], "items": {"$ref": "#/$defs/EnvConfig"}}

GROUP = record_schema(
    "NodeGroup",
    "A labelled set of nodes.",
    {
        "label": Key("Name that components select the group by.", LABEL, needed=True),
        "node_ranks": Key("Nodes of the group: a range such as 0-7, or all.", NODE_RANKS, needed=True),
        "env_configs": Key("Variables and interpreters of the nodes.", _ENVIRONMENTS),
        "hardware": Key("Hardware to count in place of accelerators.", {"$ref": "#/$defs/Hardware"}, optional=True),
        "ignore_hardware": Key("Count nodes, whatever hardware they have.", {"type": "boolean", "default": False}),
    },
)

ENVIRONMENT = record_schema(
    "EnvConfig",
    "Variables and interpreter of some nodes of a group.",
    {
        "node_ranks": Key("Nodes of the group: a range such as 0-7, or all.", NODE_RANKS, needed=True),
        "env_vars": Key('Environment variables, one per line: - NAME: "value".', _VARIABLES),
        "python_interpreter_path": Key("Absolute path of the interpreter on these nodes.", _INTERPRETER, optional=True),
        "path_env": Key(
            "Whether PATH and other lists of folders are added to the node's, or replace it.",
            one_of(PATH_MODES, default=PREPEND),
        ),
    },
)

_NODES = {"type": "integer", "minimum": 1, "maximum": MAX_NODES}
_NODES_BY_LEVEL = {"type": "object", "additionalProperties": _NODES, "minProperties": 1}
_LEVEL = {"type": "string"}


def _by(what: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": what}


def _by_kind(what: dict[str, Any]) -> dict[str, Any]:
    return _by({"type": "object", "propertyNames": {"enum": list(KEPT_KINDS)}, "additionalProperties": what})


TOPOLOGY = record_schema(
    "Topology",
    "The network of a cluster, as far as a config decides about it.",
    {
        "levels": Key(
            "Keys of node labels, outermost first, e.g. [block, nvlink]; detected by default.",
            {"type": "array", "items": _LEVEL},
            optional=True,
        ),
        "order": Key(
            "How nodes without ranks are ordered: address, or topology for domain after domain.",
            one_of(ORDERS, default=BY_ADDRESS),
        ),
        "keep": Key(
            "Levels that groups must stay within, by component and kind: {actor: {tp: node, ep: nvlink}}; "
            "world means all nodes of a component, {nvlink: 2} two domains with equal shares.",
            _by_kind({"anyOf": [_LEVEL, _NODES_BY_LEVEL]}),
        ),
        "segment": Key(
            "Number of nodes that must be in one domain together; by component: {policy: 4, generation: 2}; "
            "by level too: {policy: {block: 16, nvlink: 8}}.",
            {"anyOf": [_NODES, _by({"anyOf": [_NODES, _NODES_BY_LEVEL]})]},
            optional=True,
        ),
        "prefer": Key(
            "Levels that groups should stay within, as in keep; never refuses: {actor: {world: nvlink}}.",
            _by_kind(_LEVEL),
        ),
        "balance": Key(
            "Level whose domains in use get shares as equal as possible, for all or by component.",
            {"anyOf": [_LEVEL, _by(_LEVEL)]},
        ),
        "cap": Key("Most nodes of a domain that may be in use, by level: {nvlink: 16}.", _by(_NODES)),
    },
)

_ACCELERATORS = {"type": "integer", "minimum": 1}
_LABELS = {"type": "array", "items": LABEL, "default": []}

POOL = record_schema(
    "PoolEntry",
    "A pool with components, or a reserve: nodes without processes, for the components of the pools it protects.",
    {
        "name": Key("Name of the pool; `protects` of a reserve refers to it.", LABEL, needed=True),
        "components": Key("Components of the pool.", _LABELS),
        "min_accelerators": Key("Fewest accelerators of the components.", _ACCELERATORS, optional=True),
        "max_accelerators": Key("Most accelerators of the components.", _ACCELERATORS, optional=True),
        "node_ranks": Key("Nodes of a reserve: a range such as 4-5.", NODE_RANKS),
        "protects": Key("Pools whose components may use the nodes of a reserve.", _LABELS),
    },
)

HARDWARE: Mapping[str, Any] = {
    "additionalProperties": False,
    "description": "Hardware other than accelerators, such as robots: a type, and one config per piece.",
    "properties": {
        "type": {"description": "Hardware type, e.g. Franka.", "title": "Type", "type": "string"},
        "configs": {
            "anyOf": [{"items": {"$ref": "#/$defs/HardwareConfig"}, "type": "array"}, {"type": "null"}],
            "default": None,
            "description": "One entry per piece, with its node_rank (default: as many as the inventory states).",
            "title": "Configs",
        },
    },
    "required": ["type"],
    "title": "Hardware",
    "type": "object",
}
"""The schema of the hardware of a node group. Its pieces have the model of their type."""


def definitions() -> dict[str, Any]:
    """Return the schemas that those of the keys refer to, by their names."""
    records = {record["title"]: record for record in (GROUP, ENVIRONMENT, TOPOLOGY, POOL, MEMORY.schema())}
    piece = HardwareConfig.model_json_schema()
    others = {"ParallelEntry": parallel_schema(), "HardwareConfig": piece, "Hardware": dict(HARDWARE)}
    return records | others

"""The keys by which RLinf places (0.3.0: ``scheduler/cluster``, ``utils/placement.py``), and those of rankplan's own.

The section ``cluster`` has keys of its own, and those of `SHARED_KEYS`, which a job file has, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankplan._core import CLUSTER, MAX_NODES
from rankplan.dialects.keys.key import ANY_ROLE, Key, anything, size, text, value
from rankplan.dialects.keys.table import KeyTable
from rankplan.hardware.policies import MEMORY_POLICIES, NIC_POLICIES, POLICIES, VISIBILITIES
from rankplan.parallel import MEGATRON, NO_SIZES
from rankplan.read.simple import (
    CPUS_SCHEMA,
    HOST_MEMORY_SCHEMA,
    MOST_CPUS,
    MOST_HOST_MEMORY,
    model_of,
    number_of,
    switch,
    whole_number,
    word,
)
from rankplan.rlinf.entry_values import node_group_labels, placement_text, read_memory, read_parallel

SECTION = "cluster"
"""The section of the nodes, and of the placement of each component."""

_CLUSTER = (SECTION,)
_ENTRY = (f"{SECTION}.component_placement.{ANY_ROLE}",)


_TEXT_OR_NUMBER = ["string", "integer"]
_BINDING = "The CPUs of a process: near its accelerators (node, socket, exclusive, core-complex), or any (none)."
_MEMORY_BINDING = "Where its memory comes from: preferably (preferred) or only (bind) nearby, or anywhere (none)."
_NICS = "Whether nearby network cards are only reported (check) or used (set)."


def _words(allowed: Sequence[str], description: str) -> dict[str, Any]:
    """Return the JSON schema of a key that takes one of these words, or none."""
    words = {"type": "string", "enum": list(allowed)}
    return {"anyOf": [words, {"type": "null"}], "default": None, "description": description}


NUM_NODES = value(
    "@.num_nodes",
    whole_number(1, MAX_NODES),
    "the nodes of the job",
    default=1,
    at=_CLUSTER,
    schema={
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": MAX_NODES},
            {"type": "string", "pattern": r"^[0-9]+$|\$\{"},  # filled in by an editor's user, or by the trainer
        ],
        "description": "Number of nodes of the job.",
    },
)
COMPONENTS = anything(
    "@.component_placement",
    "the placement of each component",
    at=_CLUSTER,
    tells="others",
    schema={
        "type": ["object", "null"],
        "additionalProperties": {"$ref": "#/$defs/ComponentEntry"},
        "description": "Placement of each component; a key may name several components.",
    },
)
_UNLESS_STATED = "for components that do not state it"
BINDING = value(
    "@.binding",
    word("binding", POLICIES),
    f"the CPUs of a process, {_UNLESS_STATED}",
    at=_CLUSTER,
    schema=_words(POLICIES, _BINDING),
)
MEMORY_BINDING = value(
    "@.memory_binding",
    word("memory_binding", MEMORY_POLICIES),
    f"where the memory of a process comes from, {_UNLESS_STATED}",
    at=_CLUSTER,
    schema=_words(MEMORY_POLICIES, _MEMORY_BINDING),
)
NICS = value(
    "@.nics",
    word("nics", NIC_POLICIES),
    f"the network cards of a process, {_UNLESS_STATED}",
    at=_CLUSTER,
    schema=_words(NIC_POLICIES, _NICS),
)
MODEL = value(
    "@.model",
    model_of,
    "the model of every `memory`",
    at=_CLUSTER,
    schema={
        "anyOf": [
            {"type": "string", "examples": ["Qwen/Qwen3-8B", "/models/mine/config.json"]},
            {"type": "null"},
        ],
        "default": None,
        "description": "The model of every `memory`: its name, or the path of its config.json.",
    },
)
AUTO_SCHEDULER = anything("@.auto_scheduler", "whether a scheduler moves accelerators between roles", at=_CLUSTER)
PRE_PROCESS = anything(
    "@.use_pre_process_policy", "whether the rollout starts on the actor's accelerators, too", at=_CLUSTER
)

NODE_GROUP = value(
    "@.node_group",
    node_group_labels,
    "the node groups of an entry",
    default=(CLUSTER,),
    at=_ENTRY,
    schema={
        "type": [*_TEXT_OR_NUMBER, "array"],
        "items": {"type": _TEXT_OR_NUMBER},
        "default": [CLUSTER],
        "description": "Label of the node group, or several: a list, or separated by commas.",
    },
)
PLACEMENT = value(
    "@.placement",
    placement_text,
    "the resources of each process",
    at=_ENTRY,
    schema={
        "type": _TEXT_OR_NUMBER,
        "examples": ["all", "0-7", "0-1:0-3", "0-7:0-1,8"],
        "description": "resources[:processes], ...: resource ranks and the process ranks that use them.",
    },
)
PARALLEL = value(
    "@.parallel",
    read_parallel,
    "the parallel sizes of an entry",
    at=_ENTRY,
    schema={
        "$ref": "#/$defs/ParallelEntry",
        "default": {name: getattr(NO_SIZES, name) for name in ("tp", "cp", "ep", "etp", "pp", "dp", "fsdp", "order")},
        "description": "Sizes of the parallel groups.",
    },
)
VISIBILITY = value(
    "@.visibility",
    word("visibility", VISIBILITIES),
    "what a process sees",
    default="own",
    at=_ENTRY,
    schema={
        "type": "string",
        "enum": list(VISIBILITIES),
        "default": "own",
        "description": "What a process sees: own, node, or own-first (all of its node, its own first).",
    },
)
ENTRY_BINDING = value(
    "@.binding", word("binding", POLICIES), "the CPUs of a process", at=_ENTRY, schema=_words(POLICIES, _BINDING)
)
ENTRY_MEMORY_BINDING = value(
    "@.memory_binding",
    word("memory_binding", MEMORY_POLICIES),
    "where the memory of a process comes from",
    at=_ENTRY,
    schema=_words(MEMORY_POLICIES, _MEMORY_BINDING),
)
ENTRY_NICS = value(
    "@.nics",
    word("nics", NIC_POLICIES),
    "the network cards of a process",
    at=_ENTRY,
    schema=_words(NIC_POLICIES, _NICS),
)
EGL = value(
    "@.egl",
    switch,
    "whether the processes render with EGL",
    default=False,
    at=_ENTRY,
    schema={"type": "boolean", "default": False, "description": "Whether its processes render with EGL."},
)
CPUS_PER_PROCESS = value(
    "@.cpus_per_process",
    number_of(MOST_CPUS),
    "the CPUs that each process reserves",
    at=_ENTRY,
    schema={**CPUS_SCHEMA, "description": "CPUs that each process reserves with Ray."},
)
HOST_MEMORY_PER_PROCESS = value(
    "@.host_memory_per_process",
    whole_number(0, MOST_HOST_MEMORY),
    "the host memory that each process reserves",
    at=_ENTRY,
    schema={**HOST_MEMORY_SCHEMA, "description": "MiB of host memory that each process reserves with Ray."},
)
MEMORY = value(
    "@.memory",
    read_memory,
    "what a component keeps in memory",
    at=_ENTRY,
    schema={
        "anyOf": [{"$ref": "#/$defs/MemoryEntry"}, {"type": "null"}],
        "default": None,
        "description": "What it keeps in memory.",
    },
)

TASK = text("runner.task_type", "the mode, and what may be placed")
ROLLOUT_BACKEND = text("rollout.rollout_backend", "whether the rollout has engines")
FIXED_WORKER = anything("rollout.use_fixed_worker", "whether there may be several rollouts")
RECOMPUTE = anything("algorithm.recompute_logprobs", "whether inference has anything to compute")
ROLLOUT_BATCH = size("data.rollout_batch_size", "the data sizes that `auto_scheduler` may use", most=None)
GROUP_SIZE = size("algorithm.group_size", "the same", most=None)
MINIBATCHES = size("algorithm.n_minibatches", "the same", most=None)
DATA_SIZE = size("@.dp_size", "the engines of a further rollout", most=None, at=(ANY_ROLE,))

_OF_TRAINING = "the sizes of a model that is trained, or computes"
_MODEL_OF_ROLE = (f"{ANY_ROLE}.model",)
TRAINING: dict[str, Key[int | None]] = {
    kind: size(f"@.{names[0]}", _OF_TRAINING, most=None, at=_MODEL_OF_ROLE) for kind, names in MEGATRON.items()
}
"""The keys of a model that is trained, by the kind of groups."""

FORWARD = {kind: TRAINING[kind] for kind in ("tp", "pp")}
"""The keys of a model that only computes log probabilities or values."""

_OF_ENGINE = "the size of an engine"
ENGINE: dict[str, Key[int | None]] = {
    "tp": size("@.tensor_parallel_size", _OF_ENGINE, most=None, at=(ANY_ROLE,)),
    "pp": size("@.pipeline_parallel_size", _OF_ENGINE, most=None, at=(ANY_ROLE,)),
}
"""The keys of an inference engine."""

SECTION_KEYS: Mapping[str, Key[Any]] = {
    key.name: key for key in (NUM_NODES, COMPONENTS, BINDING, MEMORY_BINDING, NICS, MODEL)
}
"""The section's own keys by name. Other keys, but for shared ones, are those of the trainer."""

ENTRY_KEYS: Mapping[str, Key[Any]] = {
    key.name: key
    for key in (
        NODE_GROUP,
        PLACEMENT,
        PARALLEL,
        VISIBILITY,
        ENTRY_BINDING,
        ENTRY_MEMORY_BINDING,
        ENTRY_NICS,
        EGL,
        MEMORY,
        CPUS_PER_PROCESS,
        HOST_MEMORY_PER_PROCESS,
    )
}
"""The keys of an entry of ``component_placement`` by name; it has no others."""

KEYS = KeyTable(Key.among(globals()), "rankplan.rlinf.memory:RLINF", never="", finds_typos=False)

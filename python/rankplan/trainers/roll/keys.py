"""The keys by which ROLL places (8eb27cc: `pipeline/*_config.py`, `configs/worker_config.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.dialects.keys.key import Key, Kind, anything, size, switch, text
from rankplan.dialects.keys.table import KeyTable, keys_in
from rankplan.trainers.roll.roles import ROLE, roles


def has_roles(config: Mapping[Any, Any]) -> bool:
    """Return whether a config has a section that may be a role."""
    return next(roles(config), None) is not None


NUM_NODES = size("num_nodes", "the nodes of the job")
GPUS_PER_NODE = size("num_gpus_per_node", "GPUs of each node", tells="tells")
USUAL_ROLES = tuple(
    anything(name, "usual roles; a role may have any name", tells="others") for name in ("actor_train", "actor_infer")
)
MORE_ROLES = tuple(anything(name, "usual roles, too") for name in ("reference", "critic"))
ENABLE_REFERENCE = switch("enable_reference", "whether there is a reference model")
USE_KL_LOSS = switch("use_kl_loss", "whether there is a reference model")
INITIAL_KL = anything("init_kl_coef", "the same, if above 0")
TEACHERS_REFER = switch("use_opd", "whether teachers are the reference model")
ADVANTAGE = text("adv_estimator", "whether there is a critic")
DEVICES = Key[Any]("@.device_mapping", Kind.DEVICES, "the accelerators of a role", at=(ROLE,))
GPUS_PER_WORKER = size("@.num_gpus_per_worker", "accelerators of a worker; workers without accelerators", at=(ROLE,))
WORLD_SIZE = size("@.world_size", "accelerators of a worker; workers without accelerators", at=(ROLE,))
STRATEGY_SECTION = anything("@.strategy_args", "the engine of a role, and its sizes", at=(ROLE,))
STRATEGY_NAME = text("@.strategy_args.strategy_name", "the engine of a role", at=(ROLE,))
WORKER_SIZES = tuple(
    anything(f"@.strategy_args.strategy_config.{name}", "the size of an engine of vLLM", at=(ROLE,))
    for name in ("tensor_parallel_size", "pipeline_parallel_size")
)

KEYS = KeyTable(keys_in(globals()), "rankplan.trainers.roll.memory:ROLES", tells=has_roles)

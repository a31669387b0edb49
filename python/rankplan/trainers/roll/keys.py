"""The keys by which ROLL places, and the sections that have them (8eb27cc: `configs/worker_config.py`, `pipeline`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rankplan.sdk import Key, KeyTable, anything, number, size, switch, text
from rankplan.sdk.keys import megatron_sizes
from rankplan.sdk.words import misspelt

ROLE = ("*",)
"""Any role, which may have any name."""
STRATEGY_OF_ROLE = "*.strategy_args"
CONFIG_OF_STRATEGY = (f"{STRATEGY_OF_ROLE}.strategy_config",)

NUM_NODES = size("num_nodes", "the nodes of the job", most=None)
GPUS_PER_NODE = size("num_gpus_per_node", "GPUs of each node", least=0, most=None, tells="tells")
USUAL_ROLES = tuple(
    anything(name, "usual roles; a role may have any name", tells="others") for name in ("actor_train", "actor_infer")
)
REFERENCE = anything("reference", "usual roles, too")
CRITIC = anything("critic", "usual roles, too")
ENVIRONMENTS = anything("train_env_manager", "whether the agentic pipeline runs, which had a reference always")
_IS_COMPARED = "whether there is a reference model"
ENABLE_REFERENCE = switch("enable_reference", _IS_COMPARED)
USE_KL_LOSS = switch("use_kl_loss", _IS_COMPARED)
KL_COEFFICIENT = number("init_kl_coef", f"{_IS_COMPARED}, if above 0", default=0.2)
TEACHERS_ARE_REFERENCE = switch("use_opd", "whether teachers are the reference model")
ADVANTAGE_ESTIMATOR = text("adv_estimator", "whether there is a critic", default="gae")
ADAPTER = anything(
    "@.model_args.lora_target", "an adapter of the policy, which needs no reference model", at=("actor_train",)
)

DEVICES = anything(
    "@.device_mapping", "the accelerators of a role", at=ROLE, schema={"type": ["string", "array", "null"]}
)
GPUS_PER_WORKER = size("@.num_gpus_per_worker", "accelerators of a worker", default=1, most=None, at=ROLE)
WORLD_SIZE = size("@.world_size", "workers without accelerators", most=None, at=ROLE)
STRATEGY = anything("@.strategy_args", "the engine of a role, and its sizes", at=ROLE)
STRATEGY_NAME = text("@.strategy_args.strategy_name", "the engine of a role", at=ROLE)
STRATEGY_CONFIG = anything("@.strategy_args.strategy_config", "the sizes of an engine, or of training", at=ROLE)

_OF_ENGINE = "the size of an engine of vLLM or SGLang"
TENSOR = size("@.tensor_parallel_size", _OF_ENGINE, at=CONFIG_OF_STRATEGY)
PIPELINE = size("@.pipeline_parallel_size", _OF_ENGINE, at=CONFIG_OF_STRATEGY)
_OF_SGLANG = "the size of an engine of SGLang"
SGLANG_TENSOR = size("@.tp_size", _OF_SGLANG, at=CONFIG_OF_STRATEGY)
SGLANG_PIPELINE = size("@.pp_size", _OF_SGLANG, at=CONFIG_OF_STRATEGY)
VLLM_SIZES = {"tp": TENSOR, "pp": PIPELINE}
SGLANG_SIZES = {"tp": (TENSOR, SGLANG_TENSOR), "pp": (PIPELINE, SGLANG_PIPELINE)}
"""Of two keys with a value, SGLang takes the second one."""
MEGATRON_SIZES = megatron_sizes("sizes of training with Megatron", *CONFIG_OF_STRATEGY)

_DEEPEST = 50
"""Sections inside each other, in which roles are looked for."""


def roles(
    section: Mapping[Any, Any], path: tuple[str | int, ...] = (), *, is_in_role: bool = False
) -> Iterator[tuple[tuple[str | int, ...], Mapping[Any, Any]]]:
    """Yield the sections of a ROLL config that may be roles, with their paths.

    Such a section has a ``device_mapping``, perhaps misspelt, or, outside another role, a ``world_size``. In a list its
    name is an index, which ROLL does not accept.
    """
    for key in section:
        inner_path = (*path, str(key))
        try:
            value = section[key]
            items = list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else []
        except Exception:  # a key of the trainer, which need not be readable here
            continue
        for index, item in enumerate(items):
            if isinstance(item, Mapping) and DEVICES.name in item:
                yield (*inner_path, index), item
        if not isinstance(value, Mapping) or len(path) >= _DEEPEST:
            continue
        has_devices = DEVICES.name in value or any(misspelt(str(name), (DEVICES.name,)) for name in value)
        if has_devices or (WORLD_SIZE.name in value and not is_in_role):
            yield inner_path, value
        yield from roles(value, inner_path, is_in_role=is_in_role or is_role(value))


def is_role(section: Mapping[Any, Any]) -> bool:
    """Return whether a section is a role of ROLL."""
    try:
        return any(section.get(key.name) is not None for key in (DEVICES, WORLD_SIZE))
    except Exception:  # the key exists, but cannot be read
        return True


def has_roles(config: Mapping[Any, Any]) -> bool:
    """Return whether a config has a section that may be a role."""
    return next(roles(config), None) is not None


KEYS = KeyTable(Key.among(globals()), "rankplan.trainers.roll.memory:ROLES", tells=has_roles, finds_typos=False)

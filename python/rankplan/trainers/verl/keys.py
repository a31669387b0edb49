"""The keys by which verl places (1dda039: `trainer/config`), and what a fork of it may state otherwise."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rankplan.sdk import Key, KeyTable, anything, fact, size, switch, text
from rankplan.sdk.keys import megatron_sizes

ACTOR_ROLLOUT_REF = "actor_rollout_ref"
MODEL = f"{ACTOR_ROLLOUT_REF}.model"
ACTOR = f"{ACTOR_ROLLOUT_REF}.actor"
REFERENCE = f"{ACTOR_ROLLOUT_REF}.ref"
ROLLOUT = f"{ACTOR_ROLLOUT_REF}.rollout"
CRITIC = "critic"
REWARD = "reward.reward_model"
OLDER_REWARD = "reward_model"
"""The reward model before verl 0.7.1."""
REWARD_ENGINE = f"{REWARD}.rollout"
TRAINER = "trainer"
OWN_ROLLOUT = "rollout"
"""The nodes of the rollout of an asynchronous trainer."""
TEACHERS = "distillation"
TOPOLOGY = "topology"

TRAINED = (ACTOR, REFERENCE, CRITIC)
"""The sections of roles with a process per GPU."""
ENGINES = (ROLLOUT, REWARD_ENGINE)
"""The sections of engines; those of teachers have any name."""


_FSDP_CONFIGS = ("ppo_trainer", "fully_async_ppo_trainer", "one_step_off_ppo_trainer")
_MEGATRON_CONFIGS = tuple(name.replace("trainer", "megatron_trainer") for name in _FSDP_CONFIGS)
OWN_CONFIGS = (*_FSDP_CONFIGS, *_MEGATRON_CONFIGS)
"""The configs of verl's own programs, whose values are the defaults of its keys."""


class PoolKeys(NamedTuple):
    """The keys of a pool: its nodes, and its GPUs of each."""

    nodes: Key[int | None]
    gpus: Key[int | None]


def _pool(section: str, decides: str, *, tells: Literal["", "tells"] = "") -> PoolKeys:
    return PoolKeys(*(size(f"@.{name}", decides, at=(section,), tells=tells) for name in ("nnodes", "n_gpus_per_node")))


TOPOLOGY_LISTS = CLUSTERS, DEVICE_POOLS, MODELS = tuple(
    anything(f"{TOPOLOGY}.{name}", "the placement, in a draft of verl's", tells="tells")
    for name in ("clusters", "device_pools", "models")
)
ROLES_SECTION = anything(ACTOR_ROLLOUT_REF, "actor, rollout and reference model", tells="alone")
TRAINER_POOL = _pool(TRAINER, "the pool of the training", tells="tells")
ROLLOUT_POOL = _pool(ROLLOUT, "the pool of a separate rollout; GPUs of each server")
OWN_ROLLOUT_POOL = _pool(OWN_ROLLOUT, "the pool of an asynchronous rollout")
REWARD_POOL = _pool(REWARD, "the pool of the reward model")
TEACHER_POOL = _pool(TEACHERS, "the pool of the teachers")

USE_V1 = switch("trainer.use_v1", "whether `trainer.v1` counts", default=True)
TRAINER_MODE = text("trainer.v1.trainer_mode", "`separate_async`: whether the rollout has a pool, too")
TRAINER_GENERATES = tuple(
    switch(f"async_training.{name}", "whether the trainer generates, too")
    for name in ("use_trainer_do_validate", "use_dynamic_resource_scheduling")
)

_SPLIT = "the parts of shared nodes of an asynchronous training and its rollout"
PARTITIONED = switch("async_training.hybrid_res_pool", f"whether `partition` has {_SPLIT}")
PARTITION = text(f"{ACTOR_ROLLOUT_REF}.partition", _SPLIT)

_ADAPTER = "an adapter, which needs no reference model"
LORA_RANK = size(f"{MODEL}.lora_rank", _ADAPTER, least=0, fallbacks=(f"{MODEL}.lora.rank",))
LORA_SECTION_RANK = size(f"{MODEL}.lora.rank", _ADAPTER, least=0)
LORA_ADAPTER = anything(f"{MODEL}.lora_adapter_path", _ADAPTER)
_HAS_REFERENCE = "whether there is a reference model"
USE_KL_LOSS = switch(f"{ACTOR}.use_kl_loss", _HAS_REFERENCE)
USE_KL_IN_REWARD = switch("algorithm.use_kl_in_reward", _HAS_REFERENCE)
CRITIC_ENABLED = switch("critic.enable", "whether there is a critic")
ESTIMATOR = anything("algorithm.adv_estimator", "whether there is a critic")

_ENGINE = "the size of an engine"
ENGINE_SIZES = {
    "tp": size("@.tensor_model_parallel_size", _ENGINE, default=2, at=ENGINES),
    "dp": size("@.data_parallel_size", _ENGINE, default=1, at=ENGINES),
    "pp": size("@.pipeline_model_parallel_size", _ENGINE, default=1, at=ENGINES),
}
"""The sizes of an engine (verl: ``RolloutConfig``)."""
ENGINE_EXPERTS = size("@.expert_parallel_size", _ENGINE, default=1, at=ENGINES)
ENGINE_NAME = text("@.name", "which sizes an engine may have", at=ENGINES)
DISAGGREGATED = switch("@.disaggregation.enabled", "whether other engines prefill", at=ENGINES)
_PREFILL = "the size of an engine whose prefill is apart"
PREFILL_REPLICAS = size("@.disaggregation.prefill_replicas", _PREFILL, default=1, at=ENGINES)
DECODE_REPLICAS = size("@.disaggregation.decode_replicas", _PREFILL, default=1, at=ENGINES)
DECODE_TENSOR = size("@.disaggregation.decode_tensor_model_parallel_size", _PREFILL, at=ENGINES)

MODEL_ENGINE = anything("model_engine", "the engine of the training")
STRATEGY = text("@.strategy", "the engine of the training", at=TRAINED)
_FSDP = "sizes of training with FSDP"
ULYSSES = size("@.ulysses_sequence_parallel_size", _FSDP, default=1, at=TRAINED)
FSDP_SIZE = size("@.fsdp_config.fsdp_size", _FSDP, default=-1, least=-1, at=TRAINED)
FSDP_ULYSSES = size("@.fsdp_config.ulysses_sequence_parallel_size", _FSDP, default=1, at=TRAINED)
_TURBO = "sizes of training with FSDP-Turbo"
TURBO_SIZE = size(
    "@.fsdp_config.turbo_config.distributed.fully_shard_parallel_size", _TURBO, default=-1, least=-1, at=TRAINED
)
TURBO_ULYSSES = size("@.fsdp_config.turbo_config.distributed.ulysses_parallel_size", _TURBO, default=1, at=TRAINED)


def _inside(section: str) -> tuple[str, ...]:
    """Return a section inside that of each role with a process per GPU."""
    return tuple(f"{role}.{section}" for role in TRAINED)


_MEGATRON = "sizes of training with Megatron"
MEGATRON = {
    **megatron_sizes(_MEGATRON, *_inside("megatron")),
    "etp": size("@.expert_tensor_parallel_size", _MEGATRON, at=_inside("megatron"), absent=("None",)),
}
"""verl's own config of the reference model has the text ``None`` (0.5: `ref/megatron_ref.yaml`)."""
MEGATRON_LITE = {
    kind: size(f"@.{kind}", "sizes of training with Megatron Lite", at=_inside("engine")) for kind in MEGATRON
}
TORCHTITAN = {
    kind: size(f"@.{name}_parallel_size", "sizes of training with TorchTitan", at=_inside("torchtitan"))
    for kind, name in (("tp", "tensor"), ("cp", "context"), ("ep", "expert"), ("pp", "pipeline"))
}
_VEOMNI = "sizes of training with VeOmni"
VEOMNI = {
    kind: size(f"@.{name}_parallel_size", _VEOMNI, at=_inside("veomni"))
    for kind, name in (("cp", "ulysses"), ("ep", "expert"))
}
VEOMNI_FSDP_SIZE = size("@.fsdp_size", _VEOMNI, default=-1, least=-1, at=_inside("veomni"))

REWARD_ENABLED = switch("@.enable", "whether there is a reward model", at=(REWARD,))
REWARD_HAS_POOL = switch("@.enable_resource_pool", "whether the reward model has its own pool", at=(REWARD,))

_REWARD_WORKERS = "actors of a remote reward manager, which hold CPUs"
REWARD_MANAGER = anything("reward.reward_manager.name", _REWARD_WORKERS, fallbacks=(f"{OLDER_REWARD}.reward_manager",))
REWARD_WORKERS = size("reward.num_workers", _REWARD_WORKERS, default=8, fallbacks=(f"{OLDER_REWARD}.num_workers",))

TEACHERS_ENABLED = switch(f"{TEACHERS}.enabled", "whether there are teachers")
TEACHER_MODELS = anything(f"{TEACHERS}.teacher_models", "the teachers and the sizes of their engines")
NUM_REPLICAS = size("@.num_replicas", "the number of engines of a teacher", least=0)
"""A teacher may have any name."""

ENTRY_NAME = anything("@.name", "the name of an entry of a topology")
ENTRY_POOL = PoolKeys(
    size("@.nnodes", "the nodes of a cluster or a pool"),
    size("@.n_gpus_per_node", "the GPUs of each"),
)
POOL_CLUSTER = anything("@.cluster", "the cluster of a pool")
POOL_ATTRIBUTES = anything("@.attributes", "the attributes of a pool")
STANDBY = switch("@.standby", "whether a pool stays free")
ELASTIC = switch("@.elastic", "whether a pool may grow and shrink")
FAULT_TOLERANT = switch("@.fault_tolerant", "whether a pool outlives a failure, which places nothing")
LEAST_GPUS = size("@.min_gpus", "the fewest GPUs of a pool")
MOST_GPUS = size("@.max_gpus", "the most GPUs of a pool")
PROTECTS = anything("@.protects", "the pools that a reserve is for")
WORKER = anything("@.worker", "what a model is")
CONFIG_KEY = anything("@.config_key", "the section with the sizes of a model")
RESOURCE_POOL = anything("@.resource_pool", "the pool of a model")
"""Keys of the entries of a topology, which stand in lists."""

CRITIC_ESTIMATORS = fact(
    "critic_estimators", "the estimators that need a critic, if no key says whether there is one", default=(None, "gae")
)
HAS_REFERENCE = fact(
    "has_reference", "whether there is a reference model; nothing if verl's own keys and programs tell"
)
POOL_CPUS = fact("pool_cpus", "the CPUs of a bundle of a pool that several roles share; nothing if unknown", default=3)
REWARD_SECTION = fact(
    "reward_section", "the section of the engines of a reward model with a pool as large as the training's", default=""
)
SEPARATE_ROLLOUT = fact(
    "separate_rollout", "whether the rollout has the pool in `rollout`; nothing if verl's own keys and programs tell"
)
"""What a fork of verl may state otherwise."""

KEYS = KeyTable(Key.among(globals()), "rankplan.trainers.verl.memory:ROLES")

"""The keys by which verl places (1dda039: `trainer/config`), and those of EasyR1, a fork (b44b311)."""

from __future__ import annotations

from rankplan.dialects.keys.key import anything, size, switch, text
from rankplan.dialects.keys.megatron import megatron_sizes
from rankplan.dialects.keys.table import KeyTable, keys_in

ACTOR_ROLLOUT_REF = "actor_rollout_ref"
ACTOR = f"{ACTOR_ROLLOUT_REF}.actor"
REFERENCE = f"{ACTOR_ROLLOUT_REF}.ref"
ROLLOUT = f"{ACTOR_ROLLOUT_REF}.rollout"
MODEL = f"{ACTOR_ROLLOUT_REF}.model"
CRITIC = "critic"
REWARD = "reward.reward_model"
REWARD_ENGINE = f"{REWARD}.rollout"
TEACHERS = "distillation"
TRAINED = (ACTOR, REFERENCE, CRITIC)
ENGINES = (ROLLOUT, REWARD_ENGINE)

TOPOLOGY = tuple(
    anything(f"topology.{name}", "the placement, in a draft of verl's", tells="tells")
    for name in ("clusters", "device_pools", "models")
)
ACTOR_ROLLOUT_REF_SECTION = anything(ACTOR_ROLLOUT_REF, "actor, rollout and reference model", tells="alone")
USE_KL_IN_REWARD = switch("algorithm.use_kl_in_reward", "whether there is a reference model")
MODEL_ENGINE = anything("model_engine", "the engine of the training")
TRAINER_NODES, TRAINER_GPUS = (
    size(f"trainer.{name}", "the pool of the training", tells="tells") for name in ("nnodes", "n_gpus_per_node")
)
USE_V1 = switch("trainer.use_v1", "whether `trainer.v1` counts", default=True)
TRAINER_MODE = text("trainer.v1.trainer_mode", "`separate_async`: whether the rollout has a pool, too")
OWN_POOL = tuple(
    size(f"rollout.{name}", "the pool of an asynchronous rollout") for name in ("nnodes", "n_gpus_per_node")
)
HYBRID = tuple(
    switch(f"async_training.{name}", "whether the trainer generates, too")
    for name in ("use_trainer_do_validate", "use_dynamic_resource_scheduling")
)
_ADAPTER = "an adapter, which needs no reference model"
LORA_RANK = size(f"{MODEL}.lora_rank", _ADAPTER, fallbacks=(f"{MODEL}.lora.rank",))
LORA_ADAPTER = anything(f"{MODEL}.lora_adapter_path", _ADAPTER)
ROLLOUT_POOL = tuple(
    size(f"{ROLLOUT}.{name}", "the pool of a separate rollout; GPUs of each server")
    for name in ("nnodes", "n_gpus_per_node")
)
ENGINE_SIZES = {
    kind: size(f"@.{name}", "the size of an engine", at=ENGINES)
    for kind, name in (
        ("tp", "tensor_model_parallel_size"),
        ("dp", "data_parallel_size"),
        ("pp", "pipeline_model_parallel_size"),
        ("ep", "expert_parallel_size"),
    )
}
DISAGGREGATED = switch("@.disaggregation.enabled", "whether other engines prefill", at=ENGINES)
USE_KL_LOSS = switch(f"{ACTOR}.use_kl_loss", "whether there is a reference model")
_FSDP = "sizes of training with FSDP"
ULYSSES = size("@.ulysses_sequence_parallel_size", _FSDP, at=TRAINED)
FSDP_SIZE = size("@.fsdp_config.fsdp_size", _FSDP, at=TRAINED)
FSDP_ULYSSES = size("@.fsdp_config.ulysses_sequence_parallel_size", _FSDP, at=TRAINED)
TURBO_SHARDS, TURBO_ULYSSES = (
    size(f"@.fsdp_config.turbo_config.distributed.{name}", "sizes of training with FSDP-Turbo", at=TRAINED)
    for name in ("fully_shard_parallel_size", "ulysses_parallel_size")
)
MEGATRON = megatron_sizes("sizes of training with Megatron", *(f"{section}.megatron" for section in TRAINED))
MEGATRON_LITE = {
    kind: size(
        f"@.{kind}",
        "sizes of training with Megatron Lite",
        at=tuple(f"{section}.engine" for section in TRAINED),
    )
    for kind in MEGATRON
}
CRITIC_ENABLED = switch(f"{CRITIC}.enable", "whether there is a critic")
REWARD_POOL = tuple(size(f"{REWARD}.{name}", "the pool of the reward model") for name in ("nnodes", "n_gpus_per_node"))
REWARD_ENABLED = switch(f"{REWARD}.enable", "whether there is a reward model")
REWARD_APART = switch(f"{REWARD}.enable_resource_pool", "whether the reward model has its own pool")
TEACHER_POOL = tuple(size(f"{TEACHERS}.{name}", "the pool of the teachers") for name in ("nnodes", "n_gpus_per_node"))
TEACHERS_ENABLED = switch(f"{TEACHERS}.enabled", "whether there are teachers")
TEACHER_MODELS = anything(f"{TEACHERS}.teacher_models", "the teachers and the sizes of their engines")

EASY_TENSOR = size("worker.rollout.tensor_parallel_size", "the size of an engine, in EasyR1")
EASY_ULYSSES = tuple(
    size(f"worker.{role}.{name}", "sizes of training, in EasyR1")
    for role in ("actor", "critic")
    for name in ("ulysses_size", "ulysses_sequence_parallel_size")
)
EASY_SHARDS = tuple(size(f"worker.{role}.fsdp.fsdp_size", "the same") for role in ("actor", "critic"))
EASY_LORA = size("worker.actor.model.lora.rank", f"{_ADAPTER}, in EasyR1")
DISABLE_KL = switch("algorithm.disable_kl", "whether there is no reference model, in EasyR1")

_EASY = {
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "worker.rollout.tensor_parallel_size",
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size": "worker.actor.ulysses_size",
    "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size": "worker.actor.ulysses_sequence_parallel_size",
    "actor_rollout_ref.actor.fsdp_config.fsdp_size": "worker.actor.fsdp.fsdp_size",
    "actor_rollout_ref.model.lora.rank": "worker.actor.model.lora.rank",
    "critic.ulysses_sequence_parallel_size": "worker.critic.ulysses_size",
    "critic.fsdp_config.fsdp_size": "worker.critic.fsdp.fsdp_size",
}
"""The keys of EasyR1 by verl's."""

KEYS = KeyTable(
    keys_in(globals()),
    "rankplan.trainers.verl.memory:ROLES",
    older={tuple(path.split(".")): tuple(own.split(".")) for path, own in _EASY.items()},
)

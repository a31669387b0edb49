"""EasyR1 as a dialect: like verl, with its keys in ``worker`` (b44b311: ``verl/trainer/config.py``).

There is a critic only with the estimator gae, and a reference model unless ``algorithm.disable_kl`` is set
(``RayPPOTrainer.__init__``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.sdk import Dialect, Key, Program, fact, size, switch

_TRAINING = "sizes of training with FSDP"

TENSOR = size(
    "worker.rollout.tensor_parallel_size",
    "the size of an engine",
    default=2,
    like="actor_rollout_ref.rollout.tensor_model_parallel_size",
)
LORA_RANK = size(
    "worker.actor.model.lora.rank",
    "an adapter, which needs no reference model",
    least=0,
    like="actor_rollout_ref.model.lora.rank",
)
ULYSSES = tuple(
    size(
        f"worker.{role}.ulysses_size",
        _TRAINING,
        default=1,
        fallbacks=(f"worker.{role}.ulysses_sequence_parallel_size",),
        like=f"{section}.ulysses_sequence_parallel_size",
    )
    for role, section in (("actor", "actor_rollout_ref.actor"), ("critic", "critic"))
)
FSDP_SIZE = tuple(
    size(f"worker.{role}.fsdp.fsdp_size", _TRAINING, default=-1, least=-1, like=f"{section}.fsdp_config.fsdp_size")
    for role, section in (("actor", "actor_rollout_ref.actor"), ("critic", "critic"))
)
DISABLE_KL = switch("algorithm.disable_kl", "whether there is no reference model")

CRITIC_ESTIMATORS = fact("critic_estimators", "only `gae` has a critic", default=("gae",))
HAS_REFERENCE = fact(
    "has_reference", "there is one unless the KL divergence is disabled", default=lambda config: not config[DISABLE_KL]
)
POOL_CPUS = fact("pool_cpus", "the CPUs of a bundle of EasyR1 are unknown")


def _has_its_sections(config: Mapping[Any, Any]) -> bool:
    """Return whether a config has the pool of verl's training, and its roles in ``worker``."""
    trainer = config.get("trainer")
    has_pool = isinstance(trainer, Mapping) and ("nnodes" in trainer or "n_gpus_per_node" in trainer)
    return has_pool and "worker" in config and "actor_rollout_ref" not in config


DIALECT = Dialect.like(
    "verl",
    name="easyr1",
    system="EasyR1",
    keys=Key.among(globals()),
    lacks=(
        *("actor_rollout_ref", "critic", "reward", "reward_model", "rollout", "distillation", "topology"),
        *("async_training", "model_engine", "algorithm.use_kl_in_reward", "trainer.use_v1", "trainer.v1"),
    ),
    tells=_has_its_sections,
    memory=(),
    programs=(Program(r"verl\.trainer\.main"),),
    trainer="verl.trainer.main",
    unplaced=None,
)

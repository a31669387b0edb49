"""The keys of each dialect but RLinf's, one table a dialect: where a key is, its type, and what it decides.

Recognition, the detection of typos, ``rankplan schema`` and the tables of the guide use these tables. A config may have
any other key: it belongs to the trainer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rankplan.dialects.keys.key import SECTION, Key, Kind, Recognition
from rankplan.dialects.keys.table import KeyTable
from rankplan.parallel import MEGATRON
from rankplan.trainers.areal.keys import KEYS as AREAL
from rankplan.trainers.nemo_rl.keys import KEYS as NEMO_RL
from rankplan.trainers.openrlhf.keys import KEYS as OPENRLHF
from rankplan.trainers.roll.keys import KEYS as ROLL
from rankplan.trainers.skyrl.keys import KEYS as SKYRL
from rankplan.trainers.slime.keys import KEYS as SLIME

TELLS: Final = "tells"
ALONE: Final = "alone"
OTHERS: Final = "others"
"""A key by which the dialect is recognised; one that also no config of another dialect may have; only the latter."""

_MEGATRON = " ".join(key for keys in MEGATRON.values() for key in keys)
_INFERENCE = "tensor_model_parallel_size data_parallel_size pipeline_model_parallel_size expert_parallel_size"
_WORKER = "tensor_parallel_size pipeline_parallel_size"
_ENGINE = f"{_WORKER} data_parallel_size expert_parallel_size"


@dataclass(frozen=True, slots=True)
class Row:
    """Keys of some sections: dotted paths separated by blanks, or an empty text for the top of a config.

    ``kind`` is the type of their values, the value of a `Kind`.
    """

    sections: str
    kind: str
    keys: str
    decides: str
    tells: Recognition = ""

    def values(self) -> Iterator[Key[Any]]:
        """Yield its keys."""
        sections = tuple(self.sections.split())
        for name in self.keys.split():
            path = f"{SECTION}.{name}" if sections else name
            yield Key(path, Kind(self.kind), self.decides, at=sections, tells=self.tells)


def _table(*rows: Row, memory: str, **more: Any) -> KeyTable:
    """Return the table of a dialect by the keys of its rows, and by those of the memory of a system."""
    keys = tuple(key for row in rows for key in row.values())
    return KeyTable(keys, f"rankplan.dialects.memory.{memory}:{memory.upper()}", **more)


def _inside(sections: str, inner: str) -> str:
    return " ".join(f"{section}.{inner}" for section in sections.split())


_POOL = "nnodes n_gpus_per_node"
_ROLLOUTS = "actor_rollout_ref.rollout reward.reward_model.rollout"
_MODELS = "actor_rollout_ref.actor actor_rollout_ref.ref critic"
_HYBRID = "use_trainer_do_validate use_dynamic_resource_scheduling"
_ULYSSES = "ulysses_sequence_parallel_size"
_TURBO = "fsdp_config.turbo_config.distributed"
_TURBO_SIZES = "fully_shard_parallel_size ulysses_parallel_size"
_MLITE = "tp cp ep etp pp"
_EASY = {
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "worker.rollout.tensor_parallel_size",
    f"actor_rollout_ref.actor.{_ULYSSES}": "worker.actor.ulysses_size",
    f"actor_rollout_ref.actor.fsdp_config.{_ULYSSES}": f"worker.actor.{_ULYSSES}",
    "actor_rollout_ref.actor.fsdp_config.fsdp_size": "worker.actor.fsdp.fsdp_size",
    "actor_rollout_ref.model.lora.rank": "worker.actor.model.lora.rank",
    f"critic.{_ULYSSES}": "worker.critic.ulysses_size",
    "critic.fsdp_config.fsdp_size": "worker.critic.fsdp.fsdp_size",
}
"""The keys of EasyR1, a fork of verl, by verl's (b44b311)."""
VERL = _table(
    Row("topology", "any", "clusters device_pools models", "the placement, in a draft of verl's", TELLS),
    Row("", "any", "actor_rollout_ref", "actor, rollout and reference model", ALONE),
    Row("algorithm", "switch", "use_kl_in_reward", "whether there is a reference model"),
    Row("", "any", "model_engine", "the engine of the training"),
    Row("trainer", "size", _POOL, "the pool of the training", TELLS),
    Row("trainer", "switch", "use_v1", "whether `trainer.v1` counts"),
    Row("trainer.v1", "text", "trainer_mode", "`separate_async`: whether the rollout has a pool, too"),
    Row("rollout", "size", _POOL, "the pool of an asynchronous rollout"),
    Row("async_training", "switch", _HYBRID, "whether the trainer generates, too"),
    Row("actor_rollout_ref.model", "size", "lora_rank", "an adapter, which needs no reference model"),
    Row("actor_rollout_ref.model.lora", "size", "rank", "an adapter, which needs no reference model"),
    Row("actor_rollout_ref.rollout", "size", _POOL, "the pool of a separate rollout; GPUs of each server"),
    Row(_ROLLOUTS, "size", _INFERENCE, "the size of an engine"),
    Row(_inside(_ROLLOUTS, "disaggregation"), "switch", "enabled", "whether other engines prefill"),
    Row("actor_rollout_ref.actor", "switch", "use_kl_loss", "whether there is a reference model"),
    Row(_MODELS, "size", _ULYSSES, "sizes of training with FSDP"),
    Row(_inside(_MODELS, "fsdp_config"), "size", f"fsdp_size {_ULYSSES}", "sizes of training with FSDP"),
    Row(_inside(_MODELS, _TURBO), "size", _TURBO_SIZES, "sizes of training with FSDP-Turbo"),
    Row(_inside(_MODELS, "megatron"), "size", _MEGATRON, "sizes of training with Megatron"),
    Row(_inside(_MODELS, "engine"), "size", _MLITE, "sizes of training with Megatron Lite"),
    Row("critic", "switch", "enable", "whether there is a critic"),
    Row("reward.reward_model", "size", _POOL, "the pool of the reward model"),
    Row("reward.reward_model", "switch", "enable", "whether there is a reward model"),
    Row("reward.reward_model", "switch", "enable_resource_pool", "whether the reward model has its own pool"),
    Row("distillation", "size", _POOL, "the pool of the teachers"),
    Row("distillation", "switch", "enabled", "whether there are teachers"),
    Row("distillation", "any", "teacher_models", "the teachers and the sizes of their engines"),
    Row("worker.rollout", "size", "tensor_parallel_size", "the size of an engine, in EasyR1"),
    Row("worker.actor worker.critic", "size", f"ulysses_size {_ULYSSES}", "sizes of training, in EasyR1"),
    Row("worker.actor.fsdp worker.critic.fsdp", "size", "fsdp_size", "the same"),
    Row("worker.actor.model.lora", "size", "rank", "an adapter, which needs no reference model, in EasyR1"),
    Row("algorithm", "switch", "disable_kl", "whether there is no reference model, in EasyR1"),
    memory="verl",
    older={tuple(path.split(".")): tuple(own.split(".")) for path, own in _EASY.items()},
)


TABLES: dict[str, KeyTable] = {
    "nemo_rl": NEMO_RL,
    "areal": AREAL,
    "skyrl": SKYRL,
    "verl": VERL,
    "openrlhf": OPENRLHF,
    "slime": SLIME,
    "roll": ROLL,
}
"""The table of each dialect but RLinf, whose keys are the models of `rankplan.read`; the first that recognises a
config is used."""

"""The reward model of verl: where its section is, in which version, and what it becomes.

Since verl 0.9 it is in ``reward.reward_model`` and has engines, on the accelerators of the training or on a pool of its
own. Before 0.7.1, and in some recipes, it is in ``reward_model`` and has one process per accelerator of the training.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from rankplan.sdk import Config
from rankplan.trainers.verl import faults, keys
from rankplan.trainers.verl.engines import SECTIONS, Engines, read_engines
from rankplan.trainers.verl.pools import USUAL_GPUS, Pool, read_pool
from rankplan.trainers.verl.programs import OlderReward
from rankplan.trainers.verl.rollout import Trainer

_KEYS_OF_WORKERS = {
    "strategy",
    "micro_batch_size",
    "micro_batch_size_per_gpu",
    "use_dynamic_bsz",
    "megatron",
    "param_offload",
}
_MODEL_KEYS_OF_WORKERS = {"fsdp_config", "use_remove_padding", "input_tokenizer"}
"""Keys of a reward model with a process per accelerator, in its section and in its ``model``: before verl 0.7.1."""


class Form(Enum):
    """What a reward model has."""

    NONE = auto()
    WORKERS = auto()
    """One process per accelerator of the training."""
    ENGINES = auto()


class RewardModel(NamedTuple):
    """A reward model. Its engines share the accelerators of the training unless they have a pool."""

    form: Form = Form.NONE
    pool: Pool | None = None
    engines: Engines | None = None
    prefix: str = "reward_pool"
    """The start of the name of its pool."""


def read_reward_model(config: Config, trainer: Trainer, older: OlderReward, training: Pool) -> RewardModel:
    """Return the reward model that a trainer starts; ``older`` is what the program makes of ``reward_model``.

    ``training`` is the pool of the training.
    """
    own_section: str = config[keys.REWARD_SECTION]
    if own_section:
        engines = read_engines(config.under(own_section))
        return RewardModel(Form.ENGINES, training, engines, f"{own_section.partition('.')[0]}_pool")
    has_workers = _has_workers(config, older)
    older_section = config.under(keys.OLDER_REWARD)
    is_moved = older is OlderReward.MOVED and older_section.stated(keys.REWARD_ENABLED)
    section = older_section if has_workers or is_moved else config.under(keys.REWARD)
    is_usual = has_workers and older is OlderReward.USUAL_WORKERS
    is_enabled = section.get(keys.REWARD_ENABLED, is_usual)
    has_pool = section[keys.REWARD_HAS_POOL]
    if not is_enabled:
        _warn_of_disabled(config, section, has_pool=has_pool)
        return RewardModel()
    never_pauses = trainer is Trainer.SEPARATE or older is OlderReward.MOVED
    if never_pauses and not has_pool:
        fault = faults.reward_model_without_pool(section.name)
        config.faults.add(section.where(keys.REWARD_ENABLED), fault)
    if has_workers:
        return RewardModel(Form.WORKERS)
    if trainer is Trainer.ASYNCHRONOUS and not has_pool:
        return RewardModel()
    pool = read_pool(section, keys.REWARD_POOL) if has_pool else None
    return RewardModel(Form.ENGINES, pool, read_engines(section.inner(SECTIONS["reward"])))


def _has_workers(config: Config, older: OlderReward) -> bool:
    """Return whether the reward model has one process per accelerator: the program or the keys of its section tell."""
    section = config.under(keys.OLDER_REWARD)
    has_keys = not _KEYS_OF_WORKERS.isdisjoint(section.section)
    if not has_keys:
        has_keys = not _MODEL_KEYS_OF_WORKERS.isdisjoint(section.inner("model").section)
    has_program = older in (OlderReward.WORKERS, OlderReward.USUAL_WORKERS)
    return (has_keys or has_program) and not config.under(keys.REWARD).section


def _warn_of_disabled(config: Config, section: Config, *, has_pool: bool) -> None:
    """Warn of a reward model that is enabled elsewhere, and of a pool that verl makes for one that is disabled."""
    older_section = config.under(keys.OLDER_REWARD)
    if section.name == keys.REWARD and older_section.raw(keys.REWARD_ENABLED) is True:
        config.faults.warn(older_section.where(keys.REWARD_ENABLED), faults.moved_reward_model())
    if has_pool:
        nodes = section.get(keys.REWARD_POOL.nodes, 0, least=0)
        if nodes:
            gpus = section.get(keys.REWARD_POOL.gpus, USUAL_GPUS)
            fault = faults.pool_of_disabled_reward_model(nodes, gpus)
            config.faults.warn(section.where(keys.REWARD_HAS_POOL), fault)

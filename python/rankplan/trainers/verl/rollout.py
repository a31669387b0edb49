"""Which trainer of verl runs, and where it has the engines of the rollout."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from rankplan.sdk import Config
from rankplan.trainers.verl import keys
from rankplan.trainers.verl.engines import Engines, read_engines
from rankplan.trainers.verl.pools import Pool, read_pool
from rankplan.trainers.verl.programs import Program, config_name

_ONE_STEP = "one_step_off"
_ASYNCHRONOUS_CONFIGS = ("fully_async", _ONE_STEP)
"""Parts of the names of verl's configs whose rollout has nodes of its own."""


class Trainer(Enum):
    """A trainer of verl, by where it has the rollout."""

    SYNCHRONOUS = auto()
    """On the accelerators of the training."""
    SEPARATE = auto()
    """There, and on the pool of ``actor_rollout_ref.rollout``: ``separate_async`` of ``trainer.v1``."""
    ASYNCHRONOUS = auto()
    """On the pool of ``rollout``: ``fully_async`` and ``one_step_off``."""


def read_trainer(config: Config, program: Program) -> Trainer:
    """Return the trainer that runs: the program tells, else the keys and the name of the config."""
    has_modes = config[keys.USE_V1]
    if _is_asynchronous(config, program):
        return Trainer.ASYNCHRONOUS
    if config[keys.TRAINER_MODE] == "separate_async" and has_modes:
        return Trainer.SEPARATE
    return Trainer.SYNCHRONOUS


def _is_asynchronous(config: Config, program: Program) -> bool:
    if program.is_asynchronous is not None:
        return program.is_asynchronous
    is_separate = config[keys.SEPARATE_ROLLOUT]
    if is_separate is not None:
        return bool(is_separate)
    own_rollout = config.under(keys.OWN_ROLLOUT).section
    has_pool = any(key.name in own_rollout for key in keys.OWN_ROLLOUT_POOL)
    has_section = any(map(config.has, keys.TRAINER_GENERATES))
    name = config_name(config)
    return has_pool or has_section or any(part in name for part in _ASYNCHRONOUS_CONFIGS)


def has_own_share(config: Config, trainer: Trainer, program: Program) -> bool:
    """Return whether engines on nodes of their own may have a share of theirs (``FullyAsyncLLMServerManager``)."""
    is_asynchronous = trainer is Trainer.ASYNCHRONOUS
    return is_asynchronous and program.has_own_share and _ONE_STEP not in config_name(config)


class Rollout(NamedTuple):
    """The engines of the rollout.

    ``gpus_per_server`` is the most accelerators of a process on those of the training; ``None`` for no engines there.
    ``pool`` is for engines with nodes of their own, if there are any.
    """

    engines: Engines
    gpus_per_server: int | None
    pool: Pool | None


def read_rollout(config: Config, trainer: Trainer, training: Pool) -> Rollout:
    """Return the rollout of a trainer."""
    section = config.under(keys.ROLLOUT)
    generates = [config[key] for key in keys.TRAINER_GENERATES]
    pool: Pool | None = None
    gpus: int | None
    if trainer is Trainer.SYNCHRONOUS:
        gpus = section.get(keys.ROLLOUT_POOL.gpus, training.gpus_per_node)
    elif trainer is Trainer.SEPARATE:
        pool = read_pool(section, keys.ROLLOUT_POOL, usual_gpus=training.gpus_per_node)
        gpus = pool.gpus_per_node
    else:
        own_rollout = config.under(keys.OWN_ROLLOUT)
        least = 0 if any(generates) else 1
        pool = read_pool(own_rollout, keys.OWN_ROLLOUT_POOL, usual_nodes=1, least_nodes=least)
        gpus = pool.gpus_per_node if any(generates) else None
    has_pool = pool is not None and pool.nodes > 0
    return Rollout(read_engines(section), gpus, pool if has_pool else None)

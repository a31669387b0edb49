"""What actors outside verl's pools hold: those of asynchronous trainers, and the workers of a remote reward manager."""

from __future__ import annotations

from rankplan import Actors
from rankplan.sdk import Config
from rankplan.trainers.verl import keys
from rankplan.trainers.verl.programs import config_name
from rankplan.trainers.verl.rollout import Trainer

_FULLY_ASYNC = (("runner", 1), ("rollouter", 10), ("trainer", 10), ("message queue", 2))
"""The actors of ``fully_async_policy``, and the CPUs that each holds."""

_ONE_STEP_OFF = (("runner", 10),)
"""Likewise of ``one_step_off_policy``."""

_REMOTE = "remote"
"""The reward manager whose workers are actors with a CPU each."""


def read_actors(config: Config, trainer: Trainer) -> list[Actors]:
    """Return the actors of a trainer that hold CPUs; none for an asynchronous trainer of a recipe, which is unknown.

    Older versions, with the key ``reward_model.reward_manager``, have one worker unless it is stated.
    """
    actors = [Actors(name, cpus=cpus) for name, cpus in _of_trainer(config, trainer)]
    if config[keys.REWARD_MANAGER] == _REMOTE:
        is_older = config.path(keys.REWARD_MANAGER)[0] == keys.OLDER_REWARD
        workers = config.get(keys.REWARD_WORKERS, 1) if is_older else config[keys.REWARD_WORKERS]
        # Each worker of the reward loop makes a manager, which has as many workers again.
        actors.append(Actors("worker of the remote reward manager", workers * workers, cpus=1))
    return actors


def _of_trainer(config: Config, trainer: Trainer) -> tuple[tuple[str, int], ...]:
    if trainer is not Trainer.ASYNCHRONOUS:
        return ()
    names = f"{config.program} {config_name(config)}"
    if "fully_async" in names:
        return _FULLY_ASYNC
    return _ONE_STEP_OFF if "one_step_off" in names else ()

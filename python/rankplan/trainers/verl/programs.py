"""The programs of verl and of its recipes, as far as they start other roles than ``verl.trainer.main_ppo``."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from rankplan.sdk import Config, anything
from rankplan.trainers.verl.keys import OWN_CONFIGS


class OlderReward(Enum):
    """What a program does with the section ``reward_model``."""

    IGNORED = auto()
    MOVED = auto()
    """It takes it for ``reward.reward_model``."""
    WORKERS = auto()
    """The reward model there has one process per accelerator of the training."""
    USUAL_WORKERS = auto()
    """So, and the program's own config enables it."""


class Program(NamedTuple):
    """What a program starts; ``None`` where the config decides.

    ``is_asynchronous``: the rollout has nodes of its own. ``engine`` is the engine of the training in the program's own
    config. ``is_split``: the critic and the reward model have a pool of their own. ``unread`` is the key by which the
    program places processes, if that is not verl's way. ``has_own_share``: engines on nodes of their own may have a
    share of memory of theirs, if the rollout has some.
    """

    is_asynchronous: bool | None = None
    critic: bool | None = None
    reference: bool | None = None
    engine: str | None = None
    older_reward: OlderReward = OlderReward.IGNORED
    is_split: bool = False
    unread: str = ""
    has_own_share: bool = True


_SYNCHRONOUS = Program(is_asynchronous=False)
_WITH_WORKERS = Program(is_asynchronous=False, older_reward=OlderReward.WORKERS)
_FULLY_ASYNC = Program(is_asynchronous=True, older_reward=OlderReward.MOVED)
PROGRAMS = {
    # verl (1dda039): the ``main`` of each module
    "trainer.main_ppo": _SYNCHRONOUS,
    "trainer.main_ppo_v0": _SYNCHRONOUS,
    "trainer.main_ppo_sync": _SYNCHRONOUS,
    "fully_async_policy.fully_async_main": _FULLY_ASYNC,
    "one_step_off_policy.main_ppo": Program(is_asynchronous=True, has_own_share=False),
    # verl-recipe (48ea0a7): ``TaskRunner.run`` or ``main_task`` of each module
    "grpo_main": Program(unread="async_resources"),
    "main_atropos": Program(is_asynchronous=False, critic=False),
    # examples/split_placement of verl before 0.5
    "main_ppo_split": Program(is_asynchronous=False, older_reward=OlderReward.WORKERS, is_split=True),
    "dapo.main_dapo": _SYNCHRONOUS,
    "dapo_transfer_queue.main_dapo": Program(
        is_asynchronous=False, engine="megatron", older_reward=OlderReward.WORKERS
    ),
    "main_dance": _WITH_WORKERS,
    "main_entropy": _WITH_WORKERS,
    "main_flowrl": _WITH_WORKERS,
    "main_gkd": Program(is_asynchronous=True, critic=False, reference=False, engine="megatron", has_own_share=False),
    "gvpo_main_ppo": _WITH_WORKERS,
    "histoSpec.main_ppo": _WITH_WORKERS,
    "partial_rollout.main_ppo": _SYNCHRONOUS,
    "main_prime": Program(is_asynchronous=False, critic=False, older_reward=OlderReward.USUAL_WORKERS),
    "main_rep_exp": _WITH_WORKERS,
    "reward_queue.main": _FULLY_ASYNC,
    "main_spin": Program(is_asynchronous=False, critic=False, reference=True, older_reward=OlderReward.WORKERS),
    "spo_main_ppo": _WITH_WORKERS,
    "main_sppo": Program(is_asynchronous=False, critic=False, older_reward=OlderReward.WORKERS),
}
"""The programs by the end of their modules; any other program starts what the config says."""

_UNKNOWN = Program()
"""What a program starts that is not in the table: what its config says."""
_RELEASED = r"verl\.trainer\.main_ppo\w*|verl\.experimental\..*"
"""The modules of verl itself."""

_CONFIG_NAME = anything("hydra.job.config_name", "the config with the defaults")
_CHOICES = anything("hydra.runtime.choices", "the files of config groups")


def program_of(module: str) -> Program:
    """Return what a module starts."""
    parts = module.split(".")
    for start in range(len(parts)):
        program = PROGRAMS.get(".".join(parts[start:]))
        if program is not None:
            return program
    return _UNKNOWN


def is_foreign(config: Config) -> bool:
    """Return whether verl does not bring the program of a config, so that only its file tells which roles it starts.

    A fork says so of its own programs.
    """
    module = config.program
    if not module or config.starts_program_of_fork or program_of(module) is not _UNKNOWN:
        return False
    return re.fullmatch(_RELEASED, module) is None


def config_name(config: Config) -> str:
    """Return the name of the config that the command line chooses, empty if it chooses none.

    Its defaults are Megatron's, or those of an asynchronous trainer.
    """
    return str(config[_CONFIG_NAME] or "").removesuffix(".yaml")


def has_own_defaults(config: Config) -> bool:
    """Return whether a config has verl's own defaults, as far as the command line tells."""
    return config_name(config) in ("", *OWN_CONFIGS)


def usual_engine(config: Config) -> str | None:
    """Return the engine of the training that the chosen config or the program has by default, if it tells."""
    name = config_name(config)
    if "megatron" in name:
        return "megatron"
    if name in OWN_CONFIGS or (not name and config.program.startswith("verl.")):
        return "fsdp"
    return None


def chosen_engine(config: Config, role: str) -> str | None:
    """Return the engine of the file that the command line chooses for a role: ``actor@actor_rollout_ref.actor=...``."""
    name = role.rpartition(".")[2]
    chosen = config.entry(_CHOICES, config.section_at(_CHOICES).section, f"{name}@{role}")
    return str(chosen or "").removesuffix(f"_{name}") or None

"""The programs of verl and of its recipes, as far as they start other roles than ``verl.trainer.main_ppo``."""

from __future__ import annotations

from rankplan.frozen import frozen


@frozen
class Program:
    """What a program starts; ``None`` where the config decides.

    ``apart`` is whether the rollout has nodes of its own, ``engine`` the engine of the training in its own config.
    """

    apart: bool | None = None
    critic: bool | None = None
    reference: bool | None = None
    engine: str | None = None
    reward_workers: bool = False
    """Whether the reward model has one process per accelerator of the training, enabled in ``reward_model``."""
    rewarded: bool = False
    """Whether the reward model is enabled in the program's own config."""
    moves_reward: bool = False
    """Whether the program takes the section ``reward_model`` for ``reward.reward_model``."""

    unread: str = ""
    """The key by which the program places processes, if that is not verl's way."""


_SHARED, _OWN_ROLES = Program(apart=False), Program(apart=False, reward_workers=True)
_FULLY_ASYNC = Program(apart=True, moves_reward=True)
PROGRAMS = {
    # verl (1dda039): the ``main`` of each module
    "trainer.main_ppo": _SHARED,
    "trainer.main_ppo_v0": _SHARED,
    "trainer.main_ppo_sync": _SHARED,
    "fully_async_policy.fully_async_main": _FULLY_ASYNC,
    "one_step_off_policy.main_ppo": Program(apart=True),
    # verl-recipe (48ea0a7): ``TaskRunner.run`` or ``main_task`` of each module
    "grpo_main": Program(unread="async_resources"),
    "main_atropos": Program(apart=False, critic=False),
    "dapo.main_dapo": _SHARED,
    "dapo_transfer_queue.main_dapo": Program(apart=False, engine="megatron", reward_workers=True),
    "main_dance": _OWN_ROLES,
    "main_entropy": _OWN_ROLES,
    "main_flowrl": _OWN_ROLES,
    "main_gkd": Program(apart=True, critic=False, reference=False, engine="megatron"),
    "gvpo_main_ppo": _OWN_ROLES,
    "histoSpec.main_ppo": _OWN_ROLES,
    "partial_rollout.main_ppo": _SHARED,
    "main_prime": Program(apart=False, critic=False, reward_workers=True, rewarded=True),
    "main_rep_exp": _OWN_ROLES,
    "reward_queue.main": _FULLY_ASYNC,
    "main_spin": Program(apart=False, critic=False, reference=True, reward_workers=True),
    "spo_main_ppo": _OWN_ROLES,
    "main_sppo": Program(apart=False, critic=False, reward_workers=True),
}
"""The programs by the end of their modules; any other program starts what the config says."""


def program_of(module: str) -> Program:
    """Return what a module starts."""
    parts = module.split(".")
    ends = (".".join(parts[start:]) for start in range(len(parts)))
    return next((PROGRAMS[end] for end in ends if end in PROGRAMS), Program())

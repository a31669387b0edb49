"""The programs of verl and of its recipes, as far as they start other roles than ``verl.trainer.main_ppo``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
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
    "async_flow.grpo_main": Program(apart=False, critic=False),
    "atropos.main_atropos": Program(apart=False, critic=False),
    "dapo.main_dapo": _SHARED,
    "dapo_transfer_queue.main_dapo": Program(apart=False, engine="megatron", reward_workers=True),
    "entropy.main_entropy": _OWN_ROLES,
    "flowrl.main_flowrl": _OWN_ROLES,
    "gkd.megatron.main_gkd": Program(apart=True, critic=False, reference=False, engine="megatron"),
    "gvpo.gvpo_main_ppo": _OWN_ROLES,
    "partial_rollout.main_ppo": _SHARED,
    "prime.main_prime": Program(apart=False, critic=False, reward_workers=True, rewarded=True),
    "rep_exp.main_rep_exp": _OWN_ROLES,
    "reward_queue.main": _FULLY_ASYNC,
    "spin.main_spin": Program(apart=False, critic=False, reference=True, reward_workers=True),
    "spo.spo_main_ppo": _OWN_ROLES,
    "sppo.main_sppo": Program(apart=False, critic=False, reward_workers=True),
}
"""The programs by the end of their modules; any other program starts what the config says."""


def program_of(module: str) -> Program:
    """Return what a module starts."""
    parts = module.split(".")
    ends = (".".join(parts[start:]) for start in range(len(parts)))
    return next((PROGRAMS[end] for end in ends if end in PROGRAMS), Program())

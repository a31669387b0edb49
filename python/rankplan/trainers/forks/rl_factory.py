"""RL-Factory as a dialect: like verl, with engines of a reward model on a pool as large as the training's.

Follows ``main_ppo.py`` of RL-Factory.
"""

from __future__ import annotations

from rankplan.sdk import Dialect, Key, fact, size, switch, text

_ENGINE = "the size of an engine"

ENABLED = switch(
    "reward_rollout.if_use_reward_rollout",
    "whether a reward model has a pool as large as the training's",
    tells="tells",
)
TENSOR = size("reward_rollout.rollout.tensor_model_parallel_size", _ENGINE, default=2)
DATA = size("reward_rollout.rollout.data_parallel_size", _ENGINE, default=1)
PIPELINE = size("reward_rollout.rollout.pipeline_model_parallel_size", _ENGINE, default=1)
EXPERTS = size("reward_rollout.rollout.expert_parallel_size", _ENGINE, default=1)
ENGINE = text("reward_rollout.rollout.name", "which sizes an engine may have")
REWARD_SECTION = fact(
    "reward_section",
    "the section of the engines of the reward model, if it is enabled",
    default=lambda config: "reward_rollout.rollout" if config[ENABLED] else "",
)

DIALECT = Dialect.like("verl", name="rl_factory", system="RL-Factory", keys=Key.among(globals()))

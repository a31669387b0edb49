"""Configs of verl that are of no RL job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def fine_tuning(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what a config with verl's `trainer` is if it is no job: that of ``verl.trainer.sft_trainer``."""
    if "actor_rollout_ref" in config or not all(isinstance(config.get(key), Mapping) for key in ("engine", "optim")):
        return None
    message = "this is a config of supervised fine-tuning (SFT), not of an RL job: there is no component to place"
    return message, "pass a config of `verl.trainer.main_ppo`"

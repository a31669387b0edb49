"""Configs of verl that are of no RL job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OF_JOBS = ("actor_rollout_ref", "algorithm", "topology")
"""Sections that configs of an RL job have, and no others."""


def other_task(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what a config with verl's `trainer` is if it is no job.

    Those of ``verl.trainer.sft_trainer`` have an optimizer at the top, those of ``main_generation`` a model and a
    rollout (``sft_trainer.yaml``, ``generation.yaml``).
    """
    if any(key in config for key in _OF_JOBS):
        return None
    sections = {key for key in ("engine", "optim", "model", "rollout") if isinstance(config.get(key), Mapping)}
    if "optim" in sections and not sections.isdisjoint({"engine", "model"}):
        task = "supervised fine-tuning (SFT)"
    elif {"model", "rollout"} <= sections:
        task = "generation only"
    else:
        return None
    message = f"this is a config of {task}, not of an RL job: there is no component to place"
    return message, "pass a config of `verl.trainer.main_ppo`"

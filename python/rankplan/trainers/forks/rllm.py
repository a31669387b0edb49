"""rLLM as a dialect: its unified trainer is like verl, with a switch of its own for the nodes of the rollout.

Its config states the pool of a separate rollout always, and the trainer starts no critic, whatever the estimator is
(9beb6e0: ``VerlTaskRunner.run`` of rllm/trainer/verl/verl_launcher.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.sdk import Dialect, Key, fact, switch

SEPARATED = switch("rllm.async_training.enable", "whether the rollout has the nodes in `rollout`")

CRITIC_ESTIMATORS = fact("critic_estimators", "no estimator has a critic", default=())
SEPARATE_ROLLOUT = fact(
    "separate_rollout", "whether the rollout has nodes of its own", default=lambda config: config[SEPARATED]
)


def _has_its_sections(config: Mapping[Any, Any]) -> bool:
    """Return whether a config has the section of the unified trainer, or chooses a file of its config group."""
    own = config.get("rllm")
    choices: Any = config
    for name in ("hydra", "runtime", "choices"):
        choices = choices.get(name) if isinstance(choices, Mapping) else {}
    is_chosen = isinstance(choices, Mapping) and "rllm/backend" in choices
    return is_chosen or (isinstance(own, Mapping) and "async_training" in own)


DIALECT = Dialect.like(
    "verl", name="rllm", system="rLLM", keys=Key.among(globals()), lacks=("critic.enable",), tells=_has_its_sections
)

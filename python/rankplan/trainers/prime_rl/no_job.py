"""Configs of prime-rl that are of no RL job: those of its other programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OF_CHART = ("autoStart", "command", "gpu", "replicas")
"""Keys of a component in the values of its Helm chart (``k8s/prime-rl/values.yaml``), which no config has."""
_HELP = "pass a config of `rl`: it has the sections `orchestrator` and `trainer`"


def other_task(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what a config with keys of prime-rl is if it is no job of ``rl``.

    A config of ``rl`` has an ``orchestrator`` or a ``trainer`` (``RLConfig``). One of ``sft`` trains by keys at the
    top, one of ``inference`` serves by them (``SFTConfig``, ``InferenceConfig``).
    """
    of_job = [config[name] for name in ("orchestrator", "trainer") if name in config]
    if any(key in section for section in of_job if isinstance(section, Mapping) for key in _OF_CHART):
        task = "the values of a Helm chart"
        help = "pass the config of `rl`; rankplan does not read components that Kubernetes starts one by one"
        return f"these are {task}, not the config of an RL job: there is no component to place", help
    if of_job:
        return None
    if "data" in config or "optim" in config:
        task = "supervised fine-tuning (SFT)"
    elif "vllm" in config or "router" in config:
        task = "serving of a model"
    else:
        return None
    return f"this is a config of {task}, not of an RL job: there is no component to place", _HELP

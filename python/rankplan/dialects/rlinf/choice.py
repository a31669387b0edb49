"""The kind of job that a config describes: the class that RLinf's entry script for it uses."""

from __future__ import annotations

from typing import Any

from rankplan.config.models import component_names
from rankplan.config.section import Reading
from rankplan.dialects.rlinf.job import HybridJob, Job
from rankplan.dialects.rlinf.model_parallel import ModelParallelEvalJob, ModelParallelJob
from rankplan.dialects.rlinf.multi_agent import MultiAgentModelParallelEvalJob, MultiAgentModelParallelJob
from rankplan.dialects.rlinf.sizes import ENGINE, TRAINING, section
from rankplan.nodes.inventory import Inventory

_ENGINE_KEYS = {*ENGINE.values(), "rollout_backend"}
_MODEL_KEYS = {*TRAINING.values()}
_FURTHER = "rollout_"
"""How the names of further rollouts, and of their sections, start."""


def job_class(reading: Reading) -> type[Job]:
    """Return the class for a config: by ``runner.task_type``, else by its sections.

    A rollout with parallel sizes is model-parallel, for evaluation if there is no ``actor`` section; an ``env`` is
    hybrid. Further rollouts, or the choice to have two, are for several agents. Other configs have no mode.
    """
    config = reading.config
    if config is None:
        return Job
    probe = reading.fork()  # faults are recorded by the class
    task = probe.value(section(probe, ("runner",)) or {}, "task_type", ("runner",))
    rollout = section(probe, ("rollout",)) or {}
    if isinstance(task, str):
        engines, evaluates = task.startswith("reasoning") or task == "coding_online_rl", task.endswith("_eval")
    else:
        model = section(probe, ("actor", "model")) or {}
        sized = not _ENGINE_KEYS.isdisjoint(rollout) or ("rollout" in config and not _MODEL_KEYS.isdisjoint(model))
        engines, evaluates = sized and "env" not in config, "actor" not in config
    if not engines:
        return HybridJob if isinstance(task, str) or "env" in config else Job
    names: list[Any] = [*config, *(name for key in reading.keys for name in component_names(key))]
    several = "use_fixed_worker" in rollout or any(str(name).startswith(_FURTHER) for name in names)
    if evaluates:
        return MultiAgentModelParallelEvalJob if several else ModelParallelEvalJob
    return MultiAgentModelParallelJob if several else ModelParallelJob


def job_of(reading: Reading, inventory: Inventory) -> Job:
    """Return the job of a config on an inventory, with the parallel sizes that its sections state.

    Raises `PlacementError` with every fault.
    """
    job = job_class(reading)(reading, inventory)
    job.take_sizes(reading)
    return job

"""The kind of roles in a config: those of the class that RLinf's entry script for it uses."""

from __future__ import annotations

from typing import Any

from rankplan.config.models import component_names
from rankplan.config.section import Reading
from rankplan.dialects.rlinf.model_parallel import ModelParallelEvalRoles, ModelParallelRoles
from rankplan.dialects.rlinf.multi_agent import MultiAgentModelParallelEvalRoles, MultiAgentModelParallelRoles
from rankplan.dialects.rlinf.roles import HybridRoles, Roles
from rankplan.dialects.rlinf.sizes import ENGINE, TRAINING, section
from rankplan.nodes.inventory import Inventory

_ENGINE_KEYS = {*ENGINE.values(), "rollout_backend"}
_MODEL_KEYS = {*TRAINING.values()}
_FURTHER = "rollout_"
"""How the names of further rollouts, and of their sections, start."""


def roles_class(reading: Reading) -> type[Roles]:
    """Return the class for a config: by ``runner.task_type``, else by its sections.

    A rollout with parallel sizes is model-parallel, for evaluation if there is no ``actor`` section; an ``env`` is
    hybrid. Further rollouts, or the choice to have two, are for several agents. Other configs have no mode.
    """
    config = reading.config
    if config is None:
        return Roles
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
        return HybridRoles if isinstance(task, str) or "env" in config else Roles
    names: list[Any] = [*config, *(name for key in reading.keys for name in component_names(key))]
    several = "use_fixed_worker" in rollout or any(str(name).startswith(_FURTHER) for name in names)
    if evaluates:
        return MultiAgentModelParallelEvalRoles if several else ModelParallelEvalRoles
    return MultiAgentModelParallelRoles if several else ModelParallelRoles


def roles_of(reading: Reading, inventory: Inventory) -> Roles:
    """Return the roles of a config on an inventory, with the parallel sizes that its sections state.

    Raises `PlacementError` with every fault.
    """
    roles = roles_class(reading)(reading, inventory)
    roles.take_sizes(reading)
    return roles

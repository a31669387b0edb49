"""RLinf's jobs: the roles of a config, by its task and its sections, and where they go."""

from __future__ import annotations

from rankplan.dialects.interface.job import Job
from rankplan.dialects.keys.config import Config
from rankplan.dialects.placing.placer import Placer
from rankplan.nodes.inventory import Inventory
from rankplan.read.cluster import StatedCluster
from rankplan.read.components import ASSUMED
from rankplan.rlinf import keys
from rankplan.rlinf.model_parallel import (
    ModelParallelRoles,
    MultiAgentModelParallelEvalRoles,
    MultiAgentModelParallelRoles,
)
from rankplan.rlinf.roles import HybridRoles, Roles, has_other_sections
from rankplan.rlinf.section import Section, read_section
from rankplan.rlinf.sized import ModelParallelEvalRoles

_ENGINE_NAMES = {*(key.name for key in keys.ENGINE.values()), keys.ROLLOUT_BACKEND.name}
_MODEL_NAMES = {key.name for key in keys.TRAINING.values()}
_FURTHER = "rollout_"
"""How the names of further rollouts start (``_validate_collocated_placement``); a section may be of anything."""


class RlinfJob(Job):
    """The components that a ``cluster`` section places.

    They have the parallel sizes of their entries, else those of their sections (``actor.model``, ``rollout``). RLinf
    places its processes itself: a pinned plan is the same.
    """

    finds_all = True

    def __init__(self, config: Config) -> None:
        """Raise `PlacementError` if the config has no section that could be read."""
        self.section = read_section(config)
        self.states_memory = has_other_sections(self.section)
        self.model = self.section.model
        self.undivided = False

    def size(self) -> tuple[int, int]:
        """Return the nodes of the section, with 8 accelerators each."""
        return self.section.num_nodes, ASSUMED

    def assumed(self) -> Inventory:
        """Return the nodes of `size`: of as many as there may be, not only those of which a plan can be made."""
        return Inventory.uniform(*self.size())

    def cluster(self) -> StatedCluster:
        """Return what the section states."""
        return self.section.cluster()

    def place(self, placer: Placer) -> None:
        """Place the roles. Raises `PlacementError` with every fault."""
        section = self.section.reporting(placer.faults)
        roles = roles_class(section)(section, placer.inventory)
        roles.take_sizes(section)
        placer.use(roles.inventory)
        placer.mode = roles.mode
        placer.rules = roles.rules
        placer.sizes |= roles.sources.sizes
        placer.memory |= roles.sources.memory
        placer.entries |= roles.sources.entries
        placer.facts |= roles.facts
        for name, strategy in roles.strategies().items():
            component = strategy.on(roles.inventory, name, isolate_accelerator=placer.isolates)
            placer.components.append(component)
            group = placer.groups.get(name)
            if group is not None and component.node_groups != (group.label,):
                from rankplan.dialects.placing.faults import group_not_selected  # few jobs have one

                selected = ",".join(component.node_groups)
                placer.reject(group.where, group_not_selected(name, group.label, selected, "RLinf"))


def roles_class(section: Section) -> type[Roles]:
    """Return the class for a config: by ``runner.task_type``, else by its sections.

    A rollout with parallel sizes is model-parallel, for evaluation if there is no ``actor`` section; an ``env`` is
    hybrid. Further rollouts, or the choice to have two, are for several agents. Other configs have no mode.
    """
    probe = section.config.fork()  # faults are recorded by the class
    names, rollout = probe.section.keys(), probe.under("rollout").section.keys()
    task = probe.raw(keys.TASK)
    if isinstance(task, str):
        has_engines, evaluates = task.startswith("reasoning") or task == "coding_online_rl", task.endswith("_eval")
    else:
        model = probe.under("actor.model").section.keys()
        is_sized = not _ENGINE_NAMES.isdisjoint(rollout)
        is_sized |= "rollout" in names and not _MODEL_NAMES.isdisjoint(model)
        has_engines, evaluates = is_sized and "env" not in names, "actor" not in names
    if not has_engines:
        return HybridRoles if isinstance(task, str) or "env" in names else Roles
    several = keys.FIXED_WORKER.name in rollout or any(name.startswith(_FURTHER) for name in section.components)
    if evaluates:
        return MultiAgentModelParallelEvalRoles if several else ModelParallelEvalRoles
    return MultiAgentModelParallelRoles if several else ModelParallelRoles


def roles_of(section: Section, inventory: Inventory) -> Roles:
    """Return the roles of a config on an inventory, with the sizes and the memory that its sections state.

    Raises `PlacementError` with every fault.
    """
    roles = roles_class(section)(section, inventory)
    roles.take_sizes(section)
    roles.take_memory(section)
    return roles

"""RLinf's placement classes: each kind of roles with the attributes that RLinf's workers and scripts use."""

from __future__ import annotations

from typing import ClassVar

from rankplan.dialects.interface.cluster import AnyCluster
from rankplan.errors import PlacementError
from rankplan.plans.component import PlacementMode
from rankplan.read.read_config import ReadConfig
from rankplan.read.text.reader import Config
from rankplan.rlinf import placement
from rankplan.rlinf.model_parallel import (
    ModelParallelRoles,
    MultiAgentModelParallelEvalRoles,
    MultiAgentModelParallelRoles,
    RolloutSyncMode,
)
from rankplan.rlinf.roles import HybridRoles, Roles
from rankplan.rlinf.sized import ModelParallelEvalRoles
from rankplan.rlinf.strategies import PackedPlacementStrategy, PlacementStrategy, as_assertion
from rankplan.words import must_be


def _size(role: str, size: str) -> property:
    """Return the property of a role's size. It raises ``AttributeError`` if the config has no section for the role."""

    def read(self: RolePlacement) -> int:
        count: int = getattr(self, f"_{role}_num_gpus")
        if size == "world":
            return count
        sizes = self._roles.sizes.get(role)
        if sizes is None:
            raise AttributeError(f"the sizes of the {role} are unknown: the config has no section for them")
        return count // sizes.dense if size == "dp" else int(getattr(sizes.parallel, size))

    return property(read, doc=f"The {'number of accelerators' if size == 'world' else f'{size} size'} of the {role}.")


def _sizes(role: str) -> tuple[property, ...]:
    """Return the properties of a role's sizes: world, data, tensor and pipeline."""
    return tuple(_size(role, size) for size in ("world", "dp", "tp", "pp"))


def _ranks(role: str) -> property:
    """Return the property of a role's resource ranks: a list, ``None`` if it is not placed."""
    return property(lambda self: None if (ranks := self._roles.ranks.get(role)) is None else list(ranks))


class ComponentPlacement(placement.ComponentPlacement):
    """A placement that follows only the ``cluster`` section, as in RLinf: by default, a process per resource.

    `rankplan.ComponentPlacement` follows the other sections too.
    """

    _kind: ClassVar[type[Roles] | None] = Roles


class HybridComponentPlacement(ComponentPlacement):
    """A placement that lets every component run on any accelerators."""

    _kind: ClassVar[type[Roles] | None] = HybridRoles
    _placement_mode: PlacementMode

    @property
    def placement_mode(self) -> PlacementMode:
        """How the roles share accelerators."""
        return self._placement_mode

    @property
    def _components(self) -> list[str]:
        return self.components

    @property
    def _cluster_num_gpus(self) -> int:
        return len(self._inventory.core.accelerators())


class RolePlacement(HybridComponentPlacement):
    """A placement of roles whose sections have their sizes.

    The names that start with ``_`` are those that RLinf's workers and scripts use.
    """

    _roles: ModelParallelEvalRoles

    rollout_world_size, rollout_dp_size, rollout_tp_size, rollout_pp_size = _sizes("rollout")
    reward_world_size = _size("reward", "world")

    _rollout_gpus = _ranks("rollout")
    _reward_gpus = _ranks("reward")

    def __init__(self, config: Config | ReadConfig, cluster: AnyCluster) -> None:
        super().__init__(config, cluster)
        for role in self._roles.known:
            setattr(self, f"_{role}_num_gpus", len(self._roles.ranks.get(role, ())))

    @as_assertion
    def get_strategy(self, component: str) -> PlacementStrategy:
        """Return the strategy of a component; ``inference`` and ``actor_inference`` are the same one.

        Raises `PlacementError` (``unknown-component``) for an unknown component.
        """
        if component in ("inference", "actor_inference") and component not in self._placements:
            component = self._roles.names.get("inference", component)
        return super().get_strategy(component)

    def get_world_size(self, component: str) -> int:
        """Return the number of processes that the config states: by default the number of accelerators.

        The strategy of an engine has fewer. Raises like `get_strategy`.
        """
        stated = self._roles.stated.get(component)
        return super().get_world_size(component) if stated is None else len(stated)

    def get_hardware_ranks(self, component: str) -> list[int]:
        """Return the resource ranks that the config states, ascending. Raises like `get_strategy`."""
        stated = self._roles.stated.get(component)
        return super().get_hardware_ranks(component) if stated is None else list(stated.rule.resources)

    @property
    def is_collocated(self) -> bool:
        """Whether actor and rollout have the same accelerators."""
        return self._placement_mode is PlacementMode.COLLOCATED

    @property
    def is_disaggregated(self) -> bool:
        """Whether actor, rollout and inference have accelerators of their own."""
        return self._placement_mode is PlacementMode.DISAGGREGATED

    @property
    def is_auto(self) -> bool:
        """Whether a scheduler moves accelerators between the roles."""
        return self._placement_mode is PlacementMode.AUTO

    @property
    def is_pipeline(self) -> bool:
        """Whether the roles work at the same time."""
        return self.is_disaggregated or self.is_auto

    @property
    def has_dedicated_inference(self) -> bool:
        """Whether inference has accelerators of its own."""
        return self.is_pipeline and "inference" in self._roles.parts


class ModelParallelEvalComponentPlacement(RolePlacement):
    """A placement of a rollout and, optionally, a reward for evaluation: collocated, without an actor."""

    _kind = ModelParallelEvalRoles


class ModelParallelComponentPlacement(RolePlacement):
    """A placement of an actor and a rollout, with optional inference, critic and reward.

    In collocated mode, the rollout's engines take accelerators whose distance lets the actor hand over its weights in
    place. See `PlacementMode`.
    """

    _kind = ModelParallelRoles
    _roles: ModelParallelRoles

    actor_world_size, actor_dp_size, actor_tp_size, actor_pp_size = _sizes("actor")
    critic_world_size, critic_dp_size, critic_tp_size, critic_pp_size = _sizes("critic")
    inference_world_size, inference_dp_size, inference_tp_size, inference_pp_size = _sizes("inference")
    critic_inference_world_size = _size("critic_inference", "world")
    critic_inference_dp_size = _size("critic_inference", "dp")
    critic_inference_tp_size = _size("critic_inference", "tp")
    critic_inference_pp_size = _size("critic_inference", "pp")

    _actor_gpus = _ranks("actor")
    _critic_gpus = _ranks("critic")
    _inference_gpus = _ranks("inference")
    _critic_inference_gpus = _ranks("critic_inference")

    has_dedicated_actor_inference = RolePlacement.has_dedicated_inference

    @property
    def has_dedicated_critic_inference(self) -> bool:
        """Whether the critic's inference has accelerators of its own."""
        return self.is_pipeline and "critic_inference" in self._roles.parts

    @property
    def rollout_sync_mode(self) -> RolloutSyncMode:
        """How the rollout gets the actor's weights."""
        return self._roles.sync_mode

    _rollout_sync_mode = rollout_sync_mode

    @as_assertion
    def has_dedicated_inference_for_role(self, role: str) -> bool:
        """Return whether the actor or the critic has accelerators for inference alone.

        Raises `PlacementError` (``invalid-value``) for another role.
        """
        if role not in ("actor", "critic"):
            raise PlacementError([must_be("the role", role, "actor or critic", "pass actor or critic")])
        found: bool = self.has_dedicated_actor_inference if role == "actor" else self.has_dedicated_critic_inference
        return found


class _SeveralRollouts(RolePlacement):
    """A placement whose further rollouts have strategies for their engines."""

    _roles: MultiAgentModelParallelEvalRoles

    @as_assertion
    def get_strategy(
        self, component: str, placement_strategy: type[PlacementStrategy] | None = None
    ) -> PlacementStrategy:
        """Return the strategy of a component; with `PackedPlacementStrategy`, that of its engines.

        Engines have the tensor and pipeline size of the section with the component's name; a size that it leaves out is
        that of the rollout. Actor, rollout, reward and inference have one strategy.

        Raises `PlacementError`: ``unknown-component``; ``invalid-value`` for another strategy; ``missing-key`` if the
        component has no section; ``parallel-not-divisible``.
        """
        strategy = super().get_strategy(component)
        if placement_strategy is None or component not in self._roles.engines:
            return strategy
        if placement_strategy is not PackedPlacementStrategy:
            only = "PackedPlacementStrategy"
            raise PlacementError([must_be("placement_strategy", placement_strategy, only, f"pass {only}")])
        found = self._roles.engines[component]
        if isinstance(found, PlacementError):
            raise PlacementError(found.diagnostics)
        return found


class MultiAgentModelParallelEvalComponentPlacement(_SeveralRollouts, ModelParallelEvalComponentPlacement):
    """A placement of several rollouts for evaluation."""

    _kind = MultiAgentModelParallelEvalRoles


class MultiAgentModelParallelComponentPlacement(_SeveralRollouts, ModelParallelComponentPlacement):
    """A placement of an actor and several rollouts on its accelerators: always collocated.

    The names of further rollouts start with ``rollout``. Other components share no accelerator with each other.
    """

    _kind = MultiAgentModelParallelRoles
    _roles: MultiAgentModelParallelRoles

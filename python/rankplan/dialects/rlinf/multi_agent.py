"""The roles of a job with several rollouts, such as a planner's and a judge's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from rankplan.config.section import Reading
from rankplan.dialects.rlinf.model_parallel import ModelParallelEvalRoles, ModelParallelRoles
from rankplan.dialects.rlinf.modes import PlacementMode, RolloutSyncMode, accelerators
from rankplan.dialects.rlinf.rules import engines
from rankplan.dialects.rlinf.sized import SizedRoles, uneven
from rankplan.dialects.rlinf.sizes import ENGINE, missing_section, section, sizes_at
from rankplan.dialects.rlinf.strategies import PlacementStrategy, strategy_of
from rankplan.errors import Diagnostic, PlacementError
from rankplan.plans.component import Component

_SHARED = ("actor", "rollout", "reward", "inference")


class SeveralRollouts(SizedRoles):
    """Adds the strategies of the engines of further rollouts, or why they have none: ``engines``."""

    def _arrange(self, reading: Reading) -> None:
        super()._arrange(reading)
        self.engines: dict[str, PlacementStrategy | PlacementError] = {}
        if reading.faults:
            return
        for name, stated in self.stated.items():
            if name not in _SHARED:
                reader = reading.fork()
                try:
                    self.engines[name] = strategy_of(self._with_engines(reader, stated))
                except PlacementError as error:
                    self.engines[name] = error

    def _with_engines(self, reading: Reading, stated: Component) -> Component:
        """Return a component with a process per engine. Raises `PlacementError` with every fault."""
        name, resources = stated.name, stated.rule.resources
        rollout = self.sizes["rollout"].parallel
        holder = section(reading, (name,))
        sizes = sizes_at(reading, (name,), ENGINE, tp=rollout.tp, pp=rollout.pp)
        if holder is None or sizes is None:
            reading.add_in_config((name,), missing_section((name,), name, reading.config))
            raise reading.refusal()
        for path, fault in sizes.undivided(f"`{name}`", len(resources)):
            reading.add_in_config((name,) if path is None else path, fault)
        if (value := reading.value(holder, "dp_size", (name,))) is not None:
            dp = reading.number(value, (name, "dp_size"), 1)
            if dp is not None and len(resources) % dp:
                message = f"`{name}` has {len(resources)} accelerators, which is not a multiple of dp_size {dp}"
                help = "set dp_size to a divisor of the number of accelerators, or remove it"
                reading.add_in_config((name, "dp_size"), Diagnostic("parallel-not-divisible", message, help))
        stride = self.rollout_stride if sizes.dense == self.sizes["rollout"].dense else 1
        if not reading.faults and len(resources) % (sizes.dense * stride):
            fault = uneven(name, len(resources), sizes.dense, stride)
            reading.add(("component_placement", self._keys[name], "placement"), fault)
        reading.finish()
        rule = engines(resources, sizes.dense, stride)
        place = name, self.inventory, stated.node_groups, rule
        return Component.place(*place, stated.settings, parallel=sizes.parallel)


class MultiAgentModelParallelEvalRoles(SeveralRollouts, ModelParallelEvalRoles):
    """Several rollouts for evaluation."""


class MultiAgentModelParallelRoles(SeveralRollouts, ModelParallelRoles):
    """An actor and several rollouts on its accelerators: always collocated.

    The names of further rollouts start with ``rollout``. Other components share no accelerator with each other.
    """

    def _decided(self, reading: Reading) -> PlacementMode | None:
        if self._switch(reading, ("cluster", "auto_scheduler")):
            message, help = "auto_scheduler is set, but it cannot schedule several rollouts", "set it to false"
            reading.add(("auto_scheduler",), Diagnostic("mode-unclear", message, help))
        faults = list(self._misplaced())
        for name, fault in faults:
            reading.add(("component_placement", self._keys[name]), fault)
        return None if faults else self._collocated(reading)

    def _misplaced(self) -> Iterator[tuple[str, Diagnostic]]:
        """Yield the components that are not where several rollouts need them, and the faults."""
        actor = self._used["actor"]
        used = {name: stated.rows.accelerators() for name, stated in self.stated.items()}
        if (reward := used.get("reward")) is not None and reward != actor:
            message = f"`reward` uses {accelerators(reward)}, but `actor` uses {actor}"
            yield "reward", Diagnostic("mode-unclear", message, "give both the same accelerators")
        for name, ranks in used.items():
            if name.startswith("rollout") and (beyond := ranks - actor):
                message = f"`{name}` uses {accelerators(beyond)}, which `actor` does not use"
                yield name, Diagnostic("mode-unclear", message, "place every rollout on accelerators of the actor")
        own = {name: ranks for name, ranks in used.items() if name not in _SHARED}
        for first, second in combinations(own, 2):
            if both := own[first] & own[second]:
                message = f"`{first}` and `{second}` share {accelerators(both)} of the cluster"
                yield second, Diagnostic("mode-unclear", message, "give each accelerators of its own")

    def _sync_mode(self, mode: PlacementMode) -> RolloutSyncMode:
        alone = self._used["actor"] == self._used["rollout"]
        return RolloutSyncMode.COLLOCATED if alone else RolloutSyncMode.DISAGGREGATED

"""The roles of RLinf's jobs with engines: training or evaluation, with one rollout or several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto
from itertools import combinations
from math import lcm
from typing import Any

from rankplan._core import CLUSTER, Packed, RankSet
from rankplan.dialects.keys.config import Config
from rankplan.dialects.keys.key import Key
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.parallel import NO_SIZES
from rankplan.plans.component import Component, PlacementMode
from rankplan.read.text.reader import misspelt_key
from rankplan.rlinf import faults
from rankplan.rlinf.keys import (
    AUTO_SCHEDULER,
    COMPONENTS,
    DATA_SIZE,
    ENGINE,
    FORWARD,
    GROUP_SIZE,
    MINIBATCHES,
    PLACEMENT,
    PRE_PROCESS,
    RECOMPUTE,
    ROLLOUT_BATCH,
    SECTION,
    TRAINING,
)
from rankplan.rlinf.section import Section
from rankplan.rlinf.sized import ModelParallelEvalRoles, engines
from rankplan.rlinf.sizes import RoleSizes, missing_section, sizes_at
from rankplan.rlinf.strategies import PlacementStrategy, strategy_of
from rankplan.words import misspelt, must_be

_SHARED = ("actor", "rollout", "reward", "inference")

_APART = (
    ("actor", "rollout"),
    ("actor", "inference"),
    ("rollout", "inference"),
    ("critic", "actor"),
    ("critic", "rollout"),
    ("critic", "critic_inference"),
    ("rollout", "critic_inference"),
)
"""The roles that share no accelerator in disaggregated mode."""


class RolloutSyncMode(Enum):
    """How the rollout gets the actor's weights: within each accelerator, or from other accelerators."""

    COLLOCATED = auto()
    DISAGGREGATED = auto()


class ModelParallelRoles(ModelParallelEvalRoles):
    """An actor and a rollout, with optional inference, critic and reward.

    In collocated mode, the rollout's engines take accelerators whose distance lets the actor hand over its weights in
    place. See `PlacementMode`.
    """

    known = ("actor", "rollout", "inference", "critic", "critic_inference", "reward")
    _required = ("actor", "rollout")

    def _read_sizes(self, section: Section) -> Iterator[tuple[str, RoleSizes | None]]:
        yield from super()._read_sizes(section)
        actor = self._role_sizes(section, "actor", ("actor", "model"), TRAINING)
        critic = self._role_sizes(section, "critic", ("critic", "model"), TRAINING)
        yield from (("actor", actor), ("critic", critic))
        probe = section.config.fork()
        named = [name for name in ("inference", "actor_inference") if probe.under(name).exists]
        if named:
            pp = actor.parallel.pp if actor is not None else 1
            yield "inference", self._role_sizes(section, "inference", (named[0], "model"), FORWARD, pp=pp)
        elif actor is not None:
            yield "inference", RoleSizes(replace(actor.parallel, cp=1, ep=1, etp=1), actor.paths)
        yield "critic_inference", self._critic_inference(section, critic)

    def _critic_inference(self, section: Section, critic: RoleSizes | None) -> RoleSizes | None:
        """Return its own sizes; those that it does not state are the critic's (``critic_inference_tp_size``)."""
        own_section = section.config.fork().under(("critic_inference", "model"))
        if critic is None and not own_section.stated(FORWARD["tp"]):
            return None
        size = NO_SIZES if critic is None else critic.parallel
        path: KeyPath = own_section.section_path if own_section.exists else ("critic", "model")
        return self._role_sizes(section, "critic_inference", path, FORWARD, tp=size.tp, pp=size.pp)

    def _arrange_roles(self, section: Section) -> None:
        mode = self._decided(section)
        if mode is None:
            return
        self.mode = mode
        actor = len(self.parts["actor"].rule.resources)
        if mode is PlacementMode.AUTO:
            self._arrange_auto(section, actor)
            self._place_each(section, "inference", "reward")
            return
        if "critic_inference" in self.parts and "critic_inference" not in self.sizes and not section.faults:
            self._add_missing(section, "critic_inference", ("critic", "model"))
        before = len(section.faults)
        self._place_each(section, "actor")
        collocated = mode is PlacementMode.COLLOCATED and len(section.faults) == before
        self._place_each(section, "critic", "inference", "critic_inference", "reward")
        stride = self._stride(section) if collocated else 1
        if stride is not None:
            self._place_engines(section, stride)

    @property
    def sync_mode(self) -> RolloutSyncMode:
        """How the rollout gets the actor's weights."""
        together = self._used["actor"] == self._used["rollout"]
        return RolloutSyncMode.COLLOCATED if together else RolloutSyncMode.DISAGGREGATED

    def _decided(self, section: Section) -> PlacementMode | None:
        """Return the mode, or record why none fits."""
        automatic = self._switch(section.config.under(SECTION), AUTO_SCHEDULER)
        if automatic is not False:
            return self._auto(section) if automatic else None
        if self._used["actor"] == self._used["rollout"]:
            return self._collocated(section)
        before = len(section.faults)
        self._check_apart(section)
        unchanged = len(section.faults) == before
        if "inference" in self.parts and unchanged and self._switch(section.config, RECOMPUTE) is False:
            section.config.reject(section.config.path(RECOMPUTE), faults.idle_inference(self.names["inference"]))
            return None
        return PlacementMode.DISAGGREGATED if unchanged else None

    def _check_apart(self, section: Section) -> None:
        """Record each role that shares accelerators with another although neither mode lets it."""
        for first, second in _APART:
            used, others = (self._used.get(role, RankSet()) for role in (first, second))
            if shared := used & others:
                one, other = self.names[first], self.names[second]
                if (first, second) == ("actor", "rollout"):
                    fault = faults.partly_shared(one, other, shared, used, others)
                else:
                    fault = faults.shared_apart(one, other, shared)
                section.reject(self._path(second), fault)

    def _collocated(self, section: Section) -> PlacementMode | None:
        found = [role for role in ("inference", "critic_inference") if role in self.parts]
        for role in found:
            section.reject(self._path(role), faults.inference_of_collocated(self.names[role]))
        return None if found else PlacementMode.COLLOCATED

    def _auto(self, section: Section) -> PlacementMode | None:
        """Return the mode if actor, rollout and inference follow each other from accelerator 0 to the last one."""
        if "critic" in self.parts:
            section.reject((AUTO_SCHEDULER.name,), faults.scheduled_critic())
            return None
        total, end, role = len(self.inventory.core.accelerators()), 0, "actor"
        roles = [role for role in ("actor", "rollout", "inference") if role in self._used]
        names = [self.names[role] for role in roles]
        for role in roles:
            used = self._used[role]
            if len(used.ranges) > 1 or used[0] != end:
                fault = faults.not_consecutive(self.names[role], used, end, names, total)
                break
            end = used[-1] + 1
        else:
            if end == total:
                return PlacementMode.AUTO
            fault = faults.not_all(self.names[role], end, names, total)
        section.reject(self._path(role), fault)
        return None

    def _switch(self, config: Config, key: Key[Any]) -> bool | None:
        """Return a boolean of the config: false if it is missing or null, ``None`` if it is invalid."""
        path = config.path(key)
        value = config.at(path)
        if value is None:
            for name in map(str, config.under(path[:-1]).section):
                if misspelt(name, (key.name,)) is not None:
                    config.reject((*path[:-1], name), misspelt_key(name, key.name))
        if value is None or isinstance(value, bool):
            return bool(value)
        config.reject(path, must_be(path, value, "true or false", "write true or false"))
        return None

    def _stride(self, section: Section) -> int | None:
        """Return the distance between two accelerators of a collocated engine."""
        if "actor" not in self.sizes or "rollout" not in self.sizes:
            return None
        actor, rollout = self.sizes["actor"].parallel.tp, self.sizes["rollout"].parallel.tp
        if actor <= rollout:
            return 1
        if actor % rollout == 0:
            return actor // rollout
        fitting = [size for size in range(1, actor + 1) if actor % size == 0]
        below, above = max(s for s in fitting if s < rollout), min(s for s in fitting if s > rollout)
        fault = faults.no_sender(rollout, actor, below, above)
        section.config.reject(self.sizes["rollout"].paths.get("tp", ("rollout",)), fault)
        return None

    def _arrange_auto(self, section: Section, actor: int) -> None:
        """Place the actor on all accelerators, and the rollout on its own or, before them, the actor's too."""
        total = len(self.inventory.core.accelerators())
        if self._divides(section, "actor", actor):
            what = "`actor` (auto_scheduler starts it on all accelerators)"
            if self._divides(section, "actor", total, what) and self._check_auto_dp(section, actor, total):
                self._put(section, "actor", Packed(0, total - 1, 1, 1), (CLUSTER,))
        sizes = self.sizes.get("rollout")
        if sizes is None or not self._switch(section.config.under(SECTION), PRE_PROCESS):
            self._place_engines(section, 1)
            return
        rollout = RankSet(f"0-{self._used['rollout'][-1]}")
        self.ranks["rollout"] = rollout
        shared = "`actor` (use_pre_process_policy gives its accelerators to `rollout`, too)"
        both = "`rollout` with the accelerators of the actor (use_pre_process_policy)"
        if self._divides(section, "rollout", actor, shared) and self._divides(section, "rollout", len(rollout), both):
            self._put(section, "rollout", engines(rollout, sizes.dense, 1), (CLUSTER,))

    def _check_auto_dp(self, section: Section, actor: int, total: int) -> bool:
        """Record a data size of the actor that does not divide a minibatch, if the config says how large that is."""
        numbers = [section.config[key] for key in (ROLLOUT_BATCH, GROUP_SIZE, MINIBATCHES)]
        if None in numbers:
            return True
        batch, group, minibatches = (number or 1 for number in numbers)
        each, rest = divmod(batch * group, minibatches)
        replica = self.sizes["actor"].dense
        valid = [] if rest else [size for size in range(1, total // replica + 1) if each % (size * group) == 0]
        for count in (actor, total):
            if (size := count // replica) not in valid:
                multiple = lcm(actor // replica, total // replica) * minibatches
                fault = faults.uneven_batch(size, count, batch, minibatches, valid, multiple)
                section.config.reject(section.config.path(ROLLOUT_BATCH), fault)
                return False
        return True


class MultiAgentModelParallelEvalRoles(ModelParallelEvalRoles):
    """Several rollouts for evaluation: with ``engines``, the strategies of further rollouts, or why they have none."""

    def _arrange(self, section: Section) -> None:
        super()._arrange(section)
        self.engines: dict[str, PlacementStrategy | PlacementError] = {}
        if section.faults:
            return
        for name, stated in self.stated.items():
            if name not in _SHARED:
                try:
                    self.engines[name] = strategy_of(self._with_engines(section.fork(), stated))
                except PlacementError as error:
                    self.engines[name] = error

    def _with_engines(self, section: Section, stated: Component) -> Component:
        """Return a component with a process per engine. Raises `PlacementError` with every fault."""
        name, resources = stated.name, stated.rule.resources
        own_section = section.config.under((name,))
        rollout = self.sizes["rollout"].parallel
        sizes = sizes_at(own_section, ENGINE, tp=rollout.tp, pp=rollout.pp)
        if sizes is None:
            section.config.reject((name,), missing_section((name,), name, section))
            raise section.faults.refusal()
        undivided = sizes.undivided(f"`{name}`", len(resources))
        if undivided is not None:
            path, fault = undivided
            section.config.reject(path or (name,), fault)
        dp = own_section[DATA_SIZE]
        if dp is not None and len(resources) % dp:
            section.config.reject(own_section.path(DATA_SIZE), faults.uneven_data(name, len(resources), dp))
        stride = self.rollout_stride if sizes.dense == self.sizes["rollout"].dense else 1
        if not section.faults and len(resources) % (sizes.dense * stride):
            fault = faults.uneven_engines(name, len(resources), sizes.dense, stride)
            section.reject((COMPONENTS.name, self._keys[name], PLACEMENT.name), fault)
        section.faults.finish()
        rule = engines(resources, sizes.dense, stride)
        place = name, self.inventory, stated.node_groups, rule
        return Component.place(*place, stated.settings, parallel=sizes.parallel)


class MultiAgentModelParallelRoles(MultiAgentModelParallelEvalRoles, ModelParallelRoles):
    """An actor and several rollouts on its accelerators: always collocated.

    The names of further rollouts start with ``rollout``. Other components share no accelerator with each other.
    """

    def _decided(self, section: Section) -> PlacementMode | None:
        if self._switch(section.config.under(SECTION), AUTO_SCHEDULER):
            section.reject((AUTO_SCHEDULER.name,), faults.scheduled_rollouts())
        misplaced = list(self._misplaced())
        for name, fault in misplaced:
            section.reject((COMPONENTS.name, self._keys[name]), fault)
        return None if misplaced else self._collocated(section)

    def _misplaced(self) -> Iterator[tuple[str, Diagnostic]]:
        """Yield the components that are not where several rollouts need them, each with its fault."""
        actor = self._used["actor"]
        used = {name: stated.rows.accelerators() for name, stated in self.stated.items()}
        if (reward := used.get("reward")) is not None and reward != actor:
            yield "reward", faults.reward_elsewhere(reward, actor)
        for name, ranks in used.items():
            if name.startswith("rollout") and (beyond := ranks - actor):
                yield name, faults.rollout_beyond_actor(name, beyond)
        own = {name: ranks for name, ranks in used.items() if name not in _SHARED}
        for first, second in combinations(own, 2):
            if both := own[first] & own[second]:
                yield second, faults.shared_by_others(first, second, both)

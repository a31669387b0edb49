"""The roles of RLinf's jobs with engines: training or evaluation, with one rollout or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum, auto
from itertools import combinations
from math import lcm
from typing import Any

from rankplan._core import CLUSTER, Packed, RankSet
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.parallel import NO_SIZES
from rankplan.plans.component import Component, PlacementMode
from rankplan.read.section import Reading
from rankplan.read.text.reader import misspelt_key
from rankplan.rlinf import faults
from rankplan.rlinf.sized import ModelParallelEvalRoles, engines
from rankplan.rlinf.sizes import ENGINE, FORWARD, TRAINING, RoleSizes, missing_section, sizes_at, states
from rankplan.rlinf.strategies import PlacementStrategy, strategy_of
from rankplan.words import misspelt, must_be

_AUTO = ("cluster", "auto_scheduler")
_BATCH: tuple[KeyPath, ...] = (
    ("data", "rollout_batch_size"),
    ("algorithm", "group_size"),
    ("algorithm", "n_minibatches"),
)
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

    def _read_sizes(self, reading: Reading) -> Iterator[tuple[str, RoleSizes | None]]:
        yield from super()._read_sizes(reading)
        actor = self._role_sizes(reading, "actor", ("actor", "model"), TRAINING)
        critic = self._role_sizes(reading, "critic", ("critic", "model"), TRAINING)
        yield from (("actor", actor), ("critic", critic))
        named = [name for name in ("inference", "actor_inference") if states(reading.fork(), (name,))]
        if named:
            pp = actor.parallel.pp if actor is not None else 1
            yield "inference", self._role_sizes(reading, "inference", (named[0], "model"), FORWARD, pp=pp)
        elif actor is not None:
            yield "inference", RoleSizes(replace(actor.parallel, cp=1, ep=1, etp=1), actor.paths)
        yield "critic_inference", self._critic_inference(reading, critic)

    def _critic_inference(self, reading: Reading, critic: RoleSizes | None) -> RoleSizes | None:
        """Return its own sizes; those that it does not state are the critic's (``critic_inference_tp_size``)."""
        own: KeyPath = ("critic_inference", "model")
        if critic is None and not states(reading.fork(), (*own, FORWARD["tp"])):
            return None
        size = NO_SIZES if critic is None else critic.parallel
        path = own if states(reading.fork(), own) else ("critic", "model")
        return self._role_sizes(reading, "critic_inference", path, FORWARD, tp=size.tp, pp=size.pp)

    def _arrange_roles(self, reading: Reading) -> None:
        mode = self._decided(reading)
        if mode is None:
            return
        self.mode = mode
        actor = len(self.parts["actor"].rule.resources)
        if mode is PlacementMode.AUTO:
            self._arrange_auto(reading, actor)
            self._place_each(reading, "inference", "reward")
            return
        if "critic_inference" in self.parts and "critic_inference" not in self.sizes and not reading.faults:
            self._add_missing(reading, "critic_inference", ("critic", "model"))
        before = len(reading.faults)
        self._place_each(reading, "actor")
        collocated = mode is PlacementMode.COLLOCATED and len(reading.faults) == before
        self._place_each(reading, "critic", "inference", "critic_inference", "reward")
        stride = self._stride(reading) if collocated else 1
        if stride is not None:
            self._place_engines(reading, stride)

    @property
    def sync_mode(self) -> RolloutSyncMode:
        """How the rollout gets the actor's weights."""
        together = self._used["actor"] == self._used["rollout"]
        return RolloutSyncMode.COLLOCATED if together else RolloutSyncMode.DISAGGREGATED

    def _decided(self, reading: Reading) -> PlacementMode | None:
        """Return the mode, or record why none fits."""
        automatic = self._switch(reading, _AUTO)
        if automatic is not False:
            return self._auto(reading) if automatic else None
        if self._used["actor"] == self._used["rollout"]:
            return self._collocated(reading)
        before = len(reading.faults)
        self._check_apart(reading)
        recompute = ("algorithm", "recompute_logprobs")
        unchanged = len(reading.faults) == before
        if "inference" in self.parts and unchanged and self._switch(reading, recompute) is False:
            reading.add_in_config(recompute, faults.idle_inference(self.names["inference"]))
            return None
        return PlacementMode.DISAGGREGATED if unchanged else None

    def _check_apart(self, reading: Reading) -> None:
        """Record each role that shares accelerators with another although neither mode lets it."""
        for first, second in _APART:
            used, others = (self._used.get(role, RankSet()) for role in (first, second))
            if shared := used & others:
                one, other = self.names[first], self.names[second]
                if (first, second) == ("actor", "rollout"):
                    fault = faults.partly_shared(one, other, shared, used, others)
                else:
                    fault = faults.shared_apart(one, other, shared)
                reading.add(self._path(second), fault)

    def _collocated(self, reading: Reading) -> PlacementMode | None:
        found = [role for role in ("inference", "critic_inference") if role in self.parts]
        for role in found:
            reading.add(self._path(role), faults.inference_of_collocated(self.names[role]))
        return None if found else PlacementMode.COLLOCATED

    def _auto(self, reading: Reading) -> PlacementMode | None:
        """Return the mode if actor, rollout and inference follow each other from accelerator 0 to the last one."""
        if "critic" in self.parts:
            reading.add_in_config(_AUTO, faults.scheduled_critic())
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
        reading.add(self._path(role), fault)
        return None

    def _switch(self, reading: Reading, path: tuple[str, str]) -> bool | None:
        """Return a boolean of the config: false if it is missing or null, ``None`` if it is invalid."""
        mapping: Mapping[Any, Any] = reading.content if path[0] == "cluster" else reading.section_at(path[:1])
        value = reading.value(mapping, path[1], path[:1])
        for key in mapping if value is None else ():
            if misspelt(str(key), path[1:]) is not None:
                reading.add_in_config((path[0], str(key)), misspelt_key(key, path[1]))
        if value is None or isinstance(value, bool):
            return bool(value)
        reading.add_in_config(path, must_be(path, value, "true or false", "write true or false"))
        return None

    def _stride(self, reading: Reading) -> int | None:
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
        reading.add_in_config(self.sizes["rollout"].paths.get("tp", ("rollout",)), fault)
        return None

    def _arrange_auto(self, reading: Reading, actor: int) -> None:
        """Place the actor on all accelerators, and the rollout on its own or, before them, the actor's too."""
        total = len(self.inventory.core.accelerators())
        if self._divides(reading, "actor", actor):
            what = "`actor` (auto_scheduler starts it on all accelerators)"
            if self._divides(reading, "actor", total, what) and self._check_auto_dp(reading, actor, total):
                self._put(reading, "actor", Packed(0, total - 1, 1, 1), (CLUSTER,))
        sizes = self.sizes.get("rollout")
        if sizes is None or not self._switch(reading, ("cluster", "use_pre_process_policy")):
            self._place_engines(reading, 1)
            return
        rollout = RankSet(f"0-{self._used['rollout'][-1]}")
        self.ranks["rollout"] = rollout
        shared = "`actor` (use_pre_process_policy gives its accelerators to `rollout`, too)"
        both = "`rollout` with the accelerators of the actor (use_pre_process_policy)"
        if self._divides(reading, "rollout", actor, shared) and self._divides(reading, "rollout", len(rollout), both):
            self._put(reading, "rollout", engines(rollout, sizes.dense, 1), (CLUSTER,))

    def _check_auto_dp(self, reading: Reading, actor: int, total: int) -> bool:
        """Record a data size of the actor that does not divide a minibatch, if the config says how large that is."""
        found = [self._whole_number(reading, path) for path in _BATCH]
        if None in found:
            return True
        batch, group, minibatches = (number or 1 for number in found)
        each, rest = divmod(batch * group, minibatches)
        replica = self.sizes["actor"].dense
        valid = [] if rest else [size for size in range(1, total // replica + 1) if each % (size * group) == 0]
        for count in (actor, total):
            if (size := count // replica) not in valid:
                multiple = lcm(actor // replica, total // replica) * minibatches
                fault = faults.uneven_batch(size, count, batch, minibatches, valid, multiple)
                reading.add_in_config(_BATCH[0], fault)
                return False
        return True

    def _whole_number(self, reading: Reading, path: KeyPath) -> int | None:
        """Return a number of the config, ``None`` if it is missing or invalid, which is recorded."""
        value = reading.value(reading.section_at(path[:-1]), path[-1], path[:-1])
        return None if value is None else reading.number(value, path, 1)


class MultiAgentModelParallelEvalRoles(ModelParallelEvalRoles):
    """Several rollouts for evaluation: with ``engines``, the strategies of further rollouts, or why they have none."""

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
        sizes = sizes_at(reading, (name,), ENGINE, tp=rollout.tp, pp=rollout.pp)
        if sizes is None:
            reading.add_in_config((name,), missing_section((name,), name, reading.config))
            raise reading.refusal()
        if (found := sizes.undivided(f"`{name}`", len(resources))) is not None:
            reading.add_in_config(found[0] or (name,), found[1])
        if (value := reading.value(reading.section_at((name,)), "dp_size", (name,))) is not None:
            dp = reading.number(value, (name, "dp_size"), 1)
            if dp is not None and len(resources) % dp:
                reading.add_in_config((name, "dp_size"), faults.uneven_data(name, len(resources), dp))
        stride = self.rollout_stride if sizes.dense == self.sizes["rollout"].dense else 1
        if not reading.faults and len(resources) % (sizes.dense * stride):
            fault = faults.uneven_engines(name, len(resources), sizes.dense, stride)
            reading.add(("component_placement", self._keys[name], "placement"), fault)
        reading.finish()
        rule = engines(resources, sizes.dense, stride)
        place = name, self.inventory, stated.node_groups, rule
        return Component.place(*place, stated.settings, parallel=sizes.parallel)


class MultiAgentModelParallelRoles(MultiAgentModelParallelEvalRoles, ModelParallelRoles):
    """An actor and several rollouts on its accelerators: always collocated.

    The names of further rollouts start with ``rollout``. Other components share no accelerator with each other.
    """

    def _decided(self, reading: Reading) -> PlacementMode | None:
        if self._switch(reading, ("cluster", "auto_scheduler")):
            reading.add(("auto_scheduler",), faults.scheduled_rollouts())
        misplaced = list(self._misplaced())
        for name, fault in misplaced:
            reading.add(("component_placement", self._keys[name]), fault)
        return None if misplaced else self._collocated(reading)

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

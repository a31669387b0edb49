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
from rankplan.rlinf.sized import ModelParallelEvalRoles, engines, uneven
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
            message = f"`{self.names['inference']}` is placed, but `algorithm.recompute_logprobs` is not true"
            help = f"set it to true, or remove `{self.names['inference']}`: it would have nothing to compute"
            reading.add_in_config(recompute, Diagnostic("mode-unclear", message, help))
            return None
        return PlacementMode.DISAGGREGATED if unchanged else None

    def _check_apart(self, reading: Reading) -> None:
        """Record each role that shares accelerators with another although neither mode lets it."""
        for first, second in _APART:
            used, others = (self._used.get(role, RankSet()) for role in (first, second))
            if shared := used & others:
                one, other = self.names[first], self.names[second]
                message = f"`{one}` and `{other}` share {accelerators(shared)} of the cluster"
                if (first, second) == ("actor", "rollout"):
                    message += f", but `{one}` uses {used} and `{other}` uses {others}"
                    help = "give both the same accelerators (collocated) or no common ones (disaggregated)"
                else:
                    message += ", which disaggregated mode does not allow"
                    help = "give each accelerators of its own"
                reading.add(self._path(second), Diagnostic("mode-unclear", message, help))

    def _collocated(self, reading: Reading) -> PlacementMode | None:
        found = [role for role in ("inference", "critic_inference") if role in self.parts]
        for role in found:
            message = f"`{self.names[role]}` is placed, but collocated actor and rollout need no other inference"
            help = "remove it, or give actor and rollout accelerators of their own (disaggregated)"
            reading.add(self._path(role), Diagnostic("mode-unclear", message, help))
        return None if found else PlacementMode.COLLOCATED

    def _auto(self, reading: Reading) -> PlacementMode | None:
        """Return the mode if actor, rollout and inference follow each other from accelerator 0 to the last one."""
        if "critic" in self.parts:
            message = "auto_scheduler is set, but it cannot schedule `critic`"
            help = "remove `critic`, or set auto_scheduler to false"
            reading.add_in_config(_AUTO, Diagnostic("mode-unclear", message, help))
            return None
        total, end, role = len(self.inventory.core.accelerators()), 0, "actor"
        roles = [role for role in ("actor", "rollout", "inference") if role in self._used]
        for role in roles:
            used = self._used[role]
            if len(used.ranges) > 1 or used[0] != end:
                message = f"uses {used}, but auto_scheduler needs it on consecutive accelerators from {end}"
                break
            end = used[-1] + 1
        else:
            if end == total:
                return PlacementMode.AUTO
            message = f"ends at accelerator {end - 1}, but auto_scheduler needs all {total} of the cluster"
        names = ", then ".join(f"`{self.names[role]}`" for role in roles)
        help = f"place {names}, without gaps, on accelerators 0-{total - 1}"
        reading.add(self._path(role), Diagnostic("auto-order", f"`{self.names[role]}` {message}", help))
        return None

    def _switch(self, reading: Reading, path: tuple[str, str]) -> bool | None:
        """Return a boolean of the config: false if it is missing or null, ``None`` if it is invalid."""
        mapping: Mapping[Any, Any] = reading.content if path[0] == "cluster" else reading.section_at(path[:1])
        value = reading.value(mapping, path[1], path[:1])
        for key in mapping if value is None else ():
            if misspelt(str(key), path[1:]) is not None:
                fault = Diagnostic("unknown-key", f"unknown key `{key}`", f"did you mean `{path[1]}`?")
                reading.add_in_config((path[0], str(key)), fault)
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
        message = (
            f"rollout tensor size {rollout} does not divide actor tensor size {actor}: no actor rank holds the weights "
            f"of a rollout slot"
        )
        fault = Diagnostic("no-weight-sender", message, f"use rollout tensor size {below} or {above}")
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
                allowed = ", ".join(map(str, valid)) or "none"
                message = (
                    f"auto_scheduler needs data size {size} for `actor` on {count} accelerators, but "
                    f"rollout_batch_size {batch} in {minibatches} minibatches allows {allowed}"
                )
                both = lcm(actor // replica, total // replica) * minibatches
                help = f"use a rollout_batch_size that is a multiple of {both}, or other accelerators"
                reading.add_in_config(_BATCH[0], Diagnostic("auto-dp", message, help))
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


class MultiAgentModelParallelRoles(MultiAgentModelParallelEvalRoles, ModelParallelRoles):
    """An actor and several rollouts on its accelerators: always collocated.

    The names of further rollouts start with ``rollout``. Other components share no accelerator with each other.
    """

    def _decided(self, reading: Reading) -> PlacementMode | None:
        if self._switch(reading, ("cluster", "auto_scheduler")):
            message, help = "auto_scheduler is set, but it cannot schedule several rollouts", "set it to false"
            reading.add(("auto_scheduler",), Diagnostic("mode-unclear", message, help))
        faults = list(self._misplaced())
        for name, message, help in faults:
            reading.add(("component_placement", self._keys[name]), Diagnostic("mode-unclear", message, help))
        return None if faults else self._collocated(reading)

    def _misplaced(self) -> Iterator[tuple[str, str, str]]:
        """Yield the components that are not where several rollouts need them, with a message and a help."""
        actor = self._used["actor"]
        used = {name: stated.rows.accelerators() for name, stated in self.stated.items()}
        if (reward := used.get("reward")) is not None and reward != actor:
            message = f"`reward` uses {accelerators(reward)}, but `actor` uses {actor}"
            yield "reward", message, "give both the same accelerators"
        for name, ranks in used.items():
            if name.startswith("rollout") and (beyond := ranks - actor):
                message = f"`{name}` uses {accelerators(beyond)}, which `actor` does not use"
                yield name, message, "place every rollout on accelerators of the actor"
        own = {name: ranks for name, ranks in used.items() if name not in _SHARED}
        for first, second in combinations(own, 2):
            if both := own[first] & own[second]:
                message = f"`{first}` and `{second}` share {accelerators(both)} of the cluster"
                yield second, message, "give each accelerators of its own"


def accelerators(ranks: RankSet) -> str:
    """Return accelerators as messages name them."""
    return f"accelerator{'s' if len(ranks) > 1 else ''} {ranks}"

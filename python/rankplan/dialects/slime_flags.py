"""slime's flags by name, written in any form, and the sides of a job that they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Reader
from rankplan.dialects.keys import SLIME, flag_name
from rankplan.errors import Diagnostic
from rankplan.parallel import ENGINE_ORDER, MEGATRON, NO_SIZES, ORDER, Parallel
from rankplan.words import must_be

_IMPLYING = frozenset(
    {"advantage_estimator", "load_debug_rollout_data", "megatron_config_path", "rollout_external_engine_addrs"}
)
"""Other flags, from which slime derives some of the placing ones."""

ENGINE = {
    "pp": ("sglang_pipeline_parallel_size", "sglang_pp_size"),
    "ep": ("sglang_expert_parallel_size", "sglang_ep_size"),
}
"""Flags of the sizes of an engine."""

_SIZES = frozenset(flag for flags in (*MEGATRON.values(), *ENGINE.values()) for flag in flags)
_PLACING = frozenset(SLIME.known[()]) - _SIZES


@dataclass(frozen=True, slots=True)
class Sides:
    """Numbers of GPUs: 0 for a side that does not run here; ``per_node`` is 0 if unspecified."""

    actor: int
    critic: int
    critic_shares: bool
    rollout: int
    per_engine: int
    per_node: int
    num_gpus: int
    rollout_offset: int

    @property
    def colocated(self) -> bool:
        """Whether the rollout starts at the first GPU of the training."""
        return bool((self.actor or self.critic) and self.rollout) and self.rollout_offset == 0


class Job:
    """The sides that slime's flags describe, and the parallel sizes of the training and of an engine."""

    def __init__(self, reader: Reader) -> None:
        self._written: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self._doubtful = False
        others: list[str] = []
        for written in reader.content:
            key = str(written)
            flag = flag_name(key)
            if flag not in _PLACING | _IMPLYING | _SIZES:
                others.append(key)
            elif flag in self._written:
                message = f"`{key}` and `{self._written[flag]}` are the same flag"
                reader.add((key,), Diagnostic("duplicate-key", message, "remove one of them"))
            else:
                self._written[flag] = key
                before = len(reader.faults)
                value = reader.value(reader.content, written, ())
                if len(reader.faults) == before:
                    self._values[flag] = value
                else:
                    self._doubtful = True
        missing = sorted(_PLACING - self._written.keys())
        for key in others:  # slime ignores a typo silently
            self._doubtful |= reader.reject_misspelt(flag_name(key), missing, (key,))
        self.sides = self._sides(reader)
        self.training = self._sizes(reader, MEGATRON, ORDER) or NO_SIZES
        self.engine = self._engine_sizes(reader)

    @property
    def contradicts(self) -> bool:
        """Whether neither side would run."""
        return bool(self._values.get("debug_train_only") and self._values.get("debug_rollout_only"))

    def path(self, flag: str) -> KeyPath:
        """Return the path of a flag, under the name that it is written with."""
        return (self._written.get(flag, flag),)

    def path_of_sizes(self, parallel: Parallel) -> KeyPath:
        """Return the path of the flag of the largest size."""
        flags = {"tp": ("rollout_num_gpus_per_engine",), **ENGINE} if parallel is self.engine else MEGATRON
        given = {name: flag for name, each in flags.items() for flag in each if self._has(flag)}
        largest = max(given, key=lambda name: getattr(parallel, name), default=None)
        return () if largest is None else self.path(given[largest])

    def _sizes(self, reader: Reader, flags: Mapping[str, Sequence[str]], order: str) -> Parallel | None:
        """Return the sizes that flags state, ``None`` if any is invalid, which is recorded."""
        given = {name: [self._written[flag] for flag in each if self._has(flag)] for name, each in flags.items()}
        values = {key: self._values[flag_name(key)] for keys in given.values() for key in keys}
        return reader.sizes_in(values, given, (), order)

    def _engine_sizes(self, reader: Reader) -> Parallel:
        """Return the sizes of an engine; its tensor size follows from its GPUs (slime: ``_compute_server_args``)."""
        stated, gpus = self._sizes(reader, ENGINE, ENGINE_ORDER), self.sides.per_engine
        if stated is None:
            return NO_SIZES
        tensor, stages, experts = gpus // stated.pp, stated.pp, stated.ep
        for name, size, whole in (("pp", stages, gpus), ("ep", experts, tensor)):
            if whole % size or not whole:
                near = [str(n) for n in range(1, whole + 1) if whole % n == 0][-4:]
                word = "pipeline stages" if name == "pp" else "expert groups"
                message = f"an engine of {whole} GPUs cannot be divided into {size} {word}"
                help = f"use {' or '.join([', '.join(near[:-1]), near[-1]] if near[1:] else near)}"
                flag = next(flag for flag in ENGINE[name] if self._has(flag))
                reader.add(self.path(flag), Diagnostic("parallel-not-divisible", message, help))
                return NO_SIZES
        etp = tensor // experts if experts > 1 else 1
        return Parallel(tp=tensor, pp=stages, ep=experts, etp=etp, order=ENGINE_ORDER)

    def _switch(self, reader: Reader, flag: str, *, implied: bool = False) -> bool:
        """Return whether a flag is on; ``implied`` if it is missing or invalid, which is recorded."""
        value = self._values.get(flag, implied)
        if isinstance(value, bool):
            return value
        reader.add(self.path(flag), must_be(self.path(flag), value, "true or false", "write true or false"))
        self._values[flag], self._doubtful = implied, True
        return implied

    def _sides(self, reader: Reader) -> Sides:
        """Return the number of GPUs of each side, and record the faults of the flags.

        Follows slime's ``create_placement_groups``.
        """
        train_only = self._switch(reader, "debug_train_only", implied=self._has("load_debug_rollout_data"))
        rollout_only = self._switch(reader, "debug_rollout_only") and not train_only
        colocate = self._switch(reader, "colocate")
        external = self._switch(reader, "rollout_external", implied=self._has("rollout_external_engine_addrs"))
        nodes = self._number(reader, "actor_num_nodes", 1, 0)
        each = self._number(reader, "actor_num_gpus_per_node", 8, 0)
        actor, critic, critic_shares = nodes * each, 0, not self._has_separate_critic()
        if self._switch(reader, "use_critic", implied=self._values.get("advantage_estimator") == "ppo"):
            if not critic_shares:
                nodes = self._number(reader, "critic_num_nodes", nodes, 0)
                each = self._number(reader, "critic_num_gpus_per_node", each, 0)
            critic = nodes * each
        training = actor if critic_shares else actor + critic
        rollout = 0
        if not train_only and not external:
            rollout = self._number(reader, "rollout_num_gpus", training, 0)
            if not (self._has("rollout_num_gpus") or colocate or self._doubtful):
                message = "`rollout_num_gpus` is missing; only a colocated rollout defaults to the training's GPUs"
                help = "add it, or set colocate, debug_train_only or rollout_external"
                reader.add((), Diagnostic("missing-key", message, help))
        if rollout_only:
            num_gpus, offset, actor, critic = training if external else rollout, 0, 0, 0
        elif train_only or (colocate and not external):
            num_gpus, offset = max(training, rollout), 0
        else:
            num_gpus, offset = training + rollout, training
        per_engine = self._number(reader, "rollout_num_gpus_per_engine", 1, 1)
        per_node = self._number(reader, "num_gpus_per_node", 0, 1)
        return Sides(actor, critic, critic_shares, rollout, per_engine, per_node, num_gpus, offset)

    def _has_separate_critic(self) -> bool:
        # A slime whose critic shares the actor's GPUs sets these flags too, to the actor's sizes; it also has
        # `megatron_config_path`.
        given = self._has("critic_num_nodes") or self._has("critic_num_gpus_per_node")
        return given and "megatron_config_path" not in self._written

    def _has(self, flag: str) -> bool:
        return self._values.get(flag) is not None

    def _number(self, reader: Reader, flag: str, default: int, least: int) -> int:
        """Return a whole number; the default if it is missing or invalid, which is recorded."""
        number = reader.number(self._values[flag], self.path(flag), least) if self._has(flag) else None
        return default if number is None else number

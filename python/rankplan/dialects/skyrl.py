"""SkyRL: a number of nodes and of GPUs per node for each model, and inference engines.

With ``trainer.placement.colocate_all``, every model is on the engines' GPUs, and has a fifth of each. Otherwise the
engines take GPUs first, of one node if one has enough, and each model takes whole parts of nodes after them; the
reference model shares the policy's (``colocate_policy_ref``), with a quarter of each. A data-parallel rank of an engine
is a process of tensor x pipeline size GPUs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from rankplan.config.section import Config
from rankplan.config.text.faults import KeyPath
from rankplan.dialects.pools import Pools, engine_sizes
from rankplan.dialects.reading import MEGATRON, KeyReader, SizeReader
from rankplan.errors import Diagnostic
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import Parallel
from rankplan.plans.configured import ASSUMED
from rankplan.plans.plan import Plan

__all__ = ["assumed_inventory", "plan", "read", "recognised"]

_MODELS = ("policy", "ref", "critic")
_PLACEMENT: KeyPath = ("trainer", "placement")
_ENGINE: KeyPath = ("generator", "inference_engine")
_SIZES = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size"}
_SHARED = 5
_KEYS = tuple(f"{name}_num_{what}" for name in _MODELS for what in ("nodes", "gpus_per_node"))


class _Reading(SizeReader):
    """A SkyRL config: its models, its engines and their sizes."""

    known: ClassVar[Mapping[KeyPath, Collection[str]]] = {
        _PLACEMENT: (*_KEYS, "colocate_all", "colocate_policy_ref"),
        _ENGINE: ("num_engines", "expert_parallel_size", "run_engines_locally", *_SIZES.values()),
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        for key in self.section(_PLACEMENT):
            if key not in self.known[_PLACEMENT] and not any(
                fault.path == f"trainer.placement.{key}" for fault in self.faults
            ):
                help = f"the keys are {', '.join(self.known[_PLACEMENT])}"
                self.add((*_PLACEMENT, str(key)), Diagnostic("unknown-key", f"unknown key `{key}`", help))
        losses = (
            self.switch(("trainer", "algorithm", "use_kl_loss"), True),
            self.switch(("trainer", "algorithm", "use_kl_in_reward")),
        )
        present = {
            "policy": True,
            "ref": any(losses),
            "critic": self.at(("trainer", "critic", "model", "path")) is not None,
        }
        self.models = {
            name: (
                self.size((*_PLACEMENT, f"{name}_num_nodes"), 1),
                self.size((*_PLACEMENT, f"{name}_num_gpus_per_node"), 1),
            )
            for name in _MODELS
            if present[name]
        }
        self.all = self.switch((*_PLACEMENT, "colocate_all"), True)
        self.pair = not self.all and "ref" in self.models and self.switch((*_PLACEMENT, "colocate_policy_ref"), True)
        local = self.switch((*_ENGINE, "run_engines_locally"), True)
        self.tp, self.pp, self.dp = (self.size((*_ENGINE, key), 1) for key in _SIZES.values())
        self.engines = self.size((*_ENGINE, "num_engines"), 1) * self.dp if local else 0
        self._check()

    def _check(self) -> None:
        policy = self.models["policy"]
        total, generating = policy[0] * policy[1], self.engines * self.tp * self.pp
        if self.all and self.engines and total != generating:
            message = f"colocate_all: the policy has {total} GPUs, but the engines have {generating}"
            message += f" ({self.engines // self.dp} engines x {self.tp * self.pp * self.dp})"
            help = "make policy_num_nodes x policy_num_gpus_per_node equal to it, or set colocate_all: false"
            self.add_in_config((*_ENGINE, "num_engines"), Diagnostic("invalid-value", message, help))
        for name, size in self.models.items():
            if (self.all or (self.pair and name == "ref")) and size != policy:
                sizes = f"{size[0]} x {size[1]} instead of {policy[0]} x {policy[1]}"
                message = f"{name} shares the GPUs of the policy, but has {sizes}"
                help = f"give it the policy's {name}_num_nodes and {name}_num_gpus_per_node, or do not colocate it"
                key = next(
                    (key for key in _KEYS if key.startswith(name) and self.at((*_PLACEMENT, key)) is not None), None
                )
                path = (*_PLACEMENT, key) if key else _PLACEMENT
                self.add_in_config(path, Diagnostic("invalid-value", message, help))
        experts = self.size((*_ENGINE, "expert_parallel_size"), 1)
        if experts not in (1, self.tp * self.dp):
            whole = self.tp * self.dp
            message = (
                f"`expert_parallel_size` is {experts}; SkyRL accepts 1, or tensor size x data size, which is {whole}"
            )
            fault = Diagnostic("invalid-value", message, f"use 1 or {whole}")
            self.add_in_config((*_ENGINE, "expert_parallel_size"), fault)
        self.experts = experts if experts == self.tp * self.dp else 1


def recognised(config: Mapping[Any, Any]) -> bool:
    """Return whether a config is written for SkyRL: it has ``trainer.placement`` or ``generator.inference_engine``."""
    pairs = (_PLACEMENT, _ENGINE)
    return any(isinstance(config.get(first), Mapping) and second in config[first] for first, second in pairs)


def read(config: Config | KeyReader) -> _Reading:
    """Read a config; one that is already read is returned. Raises `PlacementError` if it is not a mapping."""
    return _Reading.of(config)


def plan(config: Config | KeyReader, inventory: Inventory, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of a SkyRL config: ``policy``, ``ref``, ``critic``, and the servers of the ``generator``.

    Raises `PlacementError` with every fault.
    """
    reading = read(config).for_inventory(inventory)
    pools = Pools(reading, inventory, isolate_accelerator)
    each = reading.tp * reading.pp
    policy = reading.models["policy"]
    count = reading.engines * each or (policy[0] * policy[1] if reading.all else 0)
    engines = pools.packed(count, "generator", (*_ENGINE, "num_engines")) if count else []
    shared: dict[str, list[int]] = {}
    for name, (nodes, per_node) in reading.models.items():
        path: KeyPath = (*_PLACEMENT, f"{name}_num_nodes")
        if reading.all:
            taken, share = engines, pools.share(_SHARED)
        elif reading.pair and name == "ref":
            taken, share = shared["policy"], 0.25
        else:
            taken, share = pools.nodes(nodes, per_node, name, path), 0.75 if reading.pair and name == "policy" else 1.0
        shared[name] = taken
        sizes, where = _training(reading, name)
        pools.place(name, taken, where, parallel=sizes, share=share)
    if reading.engines:
        sizes = engine_sizes(reading.tp, reading.pp, reading.experts)
        share = pools.share(_SHARED) if reading.all else 1.0
        where = (*_ENGINE, _SIZES["tp"])
        pools.place("generator", engines, where, each, parallel=sizes, share=share, engines=reading.dp)
    reading.finish()
    return Plan(inventory, pools.components)


def _training(reading: _Reading, name: str) -> tuple[Parallel, KeyPath]:
    """Return the sizes of a model: Megatron's, or the sequence size."""
    path: KeyPath = ("trainer", name)
    if reading.at(("trainer", "strategy")) == "megatron":
        return reading.sizes((*path, "megatron_config"), MEGATRON), (*path, "megatron_config")
    return Parallel(cp=reading.size((*path, "sequence_parallel_size"), 1)), (*path, "sequence_parallel_size")


def assumed_inventory(config: Config | KeyReader) -> Inventory:
    """Return as many nodes of 8 GPUs, or of the largest model's GPUs per node, as the config needs."""
    reading = read(config)
    reading.finish()
    each = max(ASSUMED, *(per_node for _, per_node in reading.models.values()))
    nodes = -(-reading.engines * reading.tp * reading.pp // each)
    if not reading.all:
        apart = [size for name, size in reading.models.items() if not (reading.pair and name == "ref")]
        nodes += sum(count for count, _ in apart)
    return reading.fork().assumed(max(nodes, 1), each)

"""AReaL: for each engine, its backend with its parallel sizes (``sglang:d4t2``), which give its number of GPUs.

Engines take consecutive GPUs in the order written, unless ``scheduling_strategy`` puts one on those of another. An
instance of an inference engine (sglang, vllm) is a process of tensor x pipeline size GPUs; training has one process per
GPU. The older ``allocation_mode`` names all engines: ``+`` puts them apart, ``|`` together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from rankplan.config.section import Config
from rankplan.config.text.faults import KeyPath
from rankplan.dialects.areal_text import Allocation, parse_allocation, parse_mode
from rankplan.dialects.pools import Pools
from rankplan.dialects.reading import KeyReader, SizeReader
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.configured import ASSUMED
from rankplan.plans.plan import Plan
from rankplan.words import shown

__all__ = ["assumed_inventory", "parse_allocation", "parse_mode", "plan", "read", "recognised"]

_ENGINES = ("rollout", "gen", "actor", "critic", "ref", "teacher")
_CLUSTER: KeyPath = ("cluster",)
_MODE = "allocation_mode"


class _Reading(SizeReader):
    """An AReaL config: the allocation of each engine, and the one whose GPUs it shares."""

    known: ClassVar[Mapping[KeyPath, Collection[str]]] = {
        _CLUSTER: ("n_nodes", "n_gpus_per_node"),
        **{(name,): ("backend",) for name in _ENGINES},
        **{(name, "scheduling_strategy"): ("type", "target") for name in _ENGINES},
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.nodes = self.size((*_CLUSTER, "n_nodes"), 1)
        self.each = self.size((*_CLUSTER, "n_gpus_per_node"), ASSUMED)
        self.engines: dict[str, tuple[Allocation, str | None, KeyPath]] = {}
        for name in self.content:
            section = self.content[name] if name in _ENGINES else None
            if isinstance(section, Mapping) and self.at((name, "backend")):
                self._read_engine(name)
        mode = self.at((_MODE,))
        if mode and not self.engines:
            self._read_mode(mode)
        if not self.engines and not self.faults:
            message = "no engine has a `backend`, and there is no `allocation_mode`"
            self.add((), Diagnostic("missing-key", message, "add backends: `actor: {backend: 'fsdp:d4'}`"))

    def _read_engine(self, name: str) -> None:
        path: KeyPath = (name, "backend")
        text, strategy = self.at(path), (name, "scheduling_strategy")
        together = self.at((*strategy, "type")) == "colocation"
        target = self.at((*strategy, "target")) if together else None
        if not isinstance(text, str):
            message = f"`backend` is {shown(text)}; it must be text"
            self.add(path, Diagnostic("invalid-value", message, "write a backend such as fsdp:d4"))
            return
        try:
            allocation = parse_allocation(text)
        except PlacementError as error:
            self.add_all(path, error)
            return
        if target is not None and target not in self.content:
            help = "name an engine of this config"
            self.add((*strategy, "target"), Diagnostic("invalid-value", f"unknown engine {shown(target)}", help))
            return
        self.engines[name] = allocation, target, path

    def _read_mode(self, mode: Any) -> None:
        try:
            for name, allocation, target in parse_mode(str(mode)):
                self.engines[name] = allocation, target, (_MODE,)
        except PlacementError as error:
            self.add_all((_MODE,), error)


def recognised(config: Mapping[Any, Any]) -> bool:
    """Return whether a config is written for AReaL: ``allocation_mode``, or an engine with a ``backend``."""
    engines = [config.get(name) for name in _ENGINES]
    cluster = config.get("cluster")
    return (
        _MODE in config
        or (isinstance(cluster, Mapping) and "n_gpus_per_node" in cluster)
        or any(isinstance(engine, Mapping) and ":" in str(engine.get("backend")) for engine in engines)
    )


def read(config: Config | KeyReader) -> _Reading:
    """Read a config; one that is already read is returned. Raises `PlacementError` if it is not a mapping."""
    return _Reading.of(config)


def plan(config: Config | KeyReader, inventory: Inventory, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of an AReaL config on an inventory: a component for each engine.

    Raises `PlacementError` with every fault.
    """
    reading = read(config).for_inventory(inventory)
    pools = Pools(reading, inventory, isolate_accelerator)
    present, start = pools.free.left, 0
    resources: dict[str, range] = {}
    targets = {name: target for name, (_, target, _) in reading.engines.items()}
    for name in sorted(reading.engines, key=lambda name: targets[name] is not None):
        allocation, target, path = reading.engines[name]
        if target is not None and target in resources:
            resources[name] = resources[target][: allocation.world]
            if len(resources[target]) != allocation.world:
                message = f"{name} shares the {len(resources[target])} GPUs of {target}, but has {allocation.world}"
                reading.add(path, Diagnostic("invalid-value", message, "give both the same number of GPUs"))
            continue
        resources[name] = range(start, start + allocation.world)
        start += allocation.world
        if start > present:
            reading.add(
                path, pools.too_many(name, allocation.world, present - start + allocation.world, "what is left")
            )
    reading.finish()
    for name, (allocation, _, path) in reading.engines.items():
        share = pools.share(sum(resources[name][0] in taken for taken in resources.values()))
        pools.place(name, resources[name], path, allocation.each, parallel=allocation.parallel, share=share)
    reading.finish()
    return Plan(inventory, pools.components)


def assumed_inventory(config: Config | KeyReader) -> Inventory:
    """Return ``cluster.n_nodes`` nodes with ``cluster.n_gpus_per_node`` accelerators each."""
    reading = read(config)
    reading.finish()
    return reading.fork().assumed(reading.nodes, reading.each)

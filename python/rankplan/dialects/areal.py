"""AReaL: for each engine, its backend with its parallel sizes (``sglang:d4t2``), which give its number of GPUs.

Engines take consecutive GPUs in the order written, unless ``scheduling_strategy`` puts one on those of another. An
instance of an inference engine (sglang, vllm) is a process of tensor x pipeline size GPUs; training has one process per
GPU. The older ``allocation_mode`` names all engines: ``+`` puts them apart, ``|`` together.

Follows AReaL's ``AllocationMode.from_str``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Config, Reader
from rankplan.dialects.areal_text import Allocation, parse_allocation, parse_mode
from rankplan.dialects.keys import AREAL, AREAL_ENGINES
from rankplan.dialects.pools import Pools
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.configured import ASSUMED, assumed, for_inventory
from rankplan.plans.plan import Plan
from rankplan.words import must_be, shown

__all__ = ["assumed_inventory", "parse_allocation", "parse_mode", "plan", "read", "recognised"]

_CLUSTER: KeyPath = ("cluster",)
_MODE = "allocation_mode"


class _Job:
    """The nodes of an AReaL config, the allocation of each engine, and the engine whose GPUs it shares."""

    def __init__(self, reader: Reader) -> None:
        self.nodes = reader.size((*_CLUSTER, "n_nodes"), 1)
        self.each = reader.size((*_CLUSTER, "n_gpus_per_node"), ASSUMED)
        self.engines: dict[str, tuple[Allocation, str | None, KeyPath]] = {}
        for name in reader.content:
            section = reader.content[name] if name in AREAL_ENGINES else None
            if isinstance(section, Mapping) and reader.at((name, "backend")):
                self._read_engine(reader, name)
        mode = reader.at((_MODE,))
        if mode and not self.engines:
            self._read_mode(reader, mode)
        if not self.engines and not reader.faults:
            message = "no engine has a `backend`, and there is no `allocation_mode`"
            reader.add((), Diagnostic("missing-key", message, "add backends: `actor: {backend: 'fsdp:d4'}`"))

    def _read_engine(self, reader: Reader, name: str) -> None:
        path: KeyPath = (name, "backend")
        text, strategy = reader.at(path), (name, "scheduling_strategy")
        together = reader.at((*strategy, "type")) == "colocation"
        target = reader.at((*strategy, "target")) if together else None
        if not isinstance(text, str):
            reader.add(path, must_be(path, text, "text", "write a backend such as fsdp:d4"))
            return
        try:
            allocation = parse_allocation(text)
        except PlacementError as error:
            reader.add_all(path, error)
            return
        if target is not None and target not in reader.content:
            help = "name an engine of this config"
            reader.add((*strategy, "target"), Diagnostic("invalid-value", f"unknown engine {shown(target)}", help))
            return
        self.engines[name] = allocation, target, path

    def _read_mode(self, reader: Reader, mode: Any) -> None:
        try:
            for name, allocation, target in parse_mode(str(mode)):
                self.engines[name] = allocation, target, (_MODE,)
        except PlacementError as error:
            reader.add_all((_MODE,), error)


def recognised(config: Mapping[Any, Any]) -> bool:
    """Return whether a config is written for AReaL: ``allocation_mode``, or an engine with a ``backend``."""
    engines = [config.get(name) for name in AREAL_ENGINES]
    return AREAL.recognises(config) or any(
        isinstance(engine, Mapping) and ":" in str(engine.get("backend")) for engine in engines
    )


read = partial(AREAL.read, state=_Job)


def plan(config: Config | Reader, inventory: Inventory, *, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of an AReaL config on an inventory: a component for each engine.

    Raises `PlacementError` with every fault.
    """
    reader = for_inventory(read(config), inventory)
    job: _Job = reader.state
    pools = Pools(reader, inventory, isolate=isolate_accelerator)
    present, start = pools.free.left, 0
    resources: dict[str, range] = {}
    targets = {name: target for name, (_, target, _) in job.engines.items()}
    for name in sorted(job.engines, key=lambda name: targets[name] is not None):
        allocation, target, path = job.engines[name]
        if target is not None and target in resources:
            resources[name] = resources[target][: allocation.world]
            if len(resources[target]) != allocation.world:
                message = f"{name} shares the {len(resources[target])} GPUs of {target}, but has {allocation.world}"
                reader.add(path, Diagnostic("invalid-value", message, "give both the same number of GPUs"))
            continue
        resources[name] = range(start, start + allocation.world)
        start += allocation.world
        if start > present:
            reader.add(path, pools.too_many(name, allocation.world, present - start + allocation.world, "what is left"))
    reader.finish()
    for name, (allocation, _, path) in job.engines.items():
        share = pools.share(sum(resources[name][0] in taken for taken in resources.values()))
        pools.place(name, resources[name], path, allocation.each, parallel=allocation.parallel, share=share)
    reader.finish()
    return Plan(inventory, pools.components)


def assumed_inventory(config: Config | Reader) -> Inventory:
    """Return ``cluster.n_nodes`` nodes with ``cluster.n_gpus_per_node`` accelerators each."""
    reader = read(config)
    reader.finish()
    job: _Job = reader.state
    return assumed(reader, job.nodes, job.each)

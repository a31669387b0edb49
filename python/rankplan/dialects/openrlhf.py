"""OpenRLHF: a number of nodes and of GPUs per node for each model, and engines of vLLM.

Each model, and all engines together, take GPUs of one node if one has enough, else node by node. ``train.colocate_all``
puts everything on the actor's GPUs, ``train.colocate_actor_ref`` and ``train.colocate_critic_reward`` put two models on
the same; each then has a fifth of a GPU. An engine has ``vllm.tensor_parallel_size`` consecutive GPUs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from rankplan.config.section import Config
from rankplan.config.text.faults import KeyPath
from rankplan.dialects.pools import Pools, engine_sizes
from rankplan.dialects.reading import KeyReader, SizeReader
from rankplan.errors import Diagnostic
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import Parallel
from rankplan.plans.configured import ASSUMED
from rankplan.plans.plan import Plan

__all__ = ["assumed_inventory", "plan", "read", "recognised"]

_MODELS = ("actor", "ref", "critic", "reward")
_SIZE = ("num_nodes", "num_gpus_per_node")
_SHARED = 5
"""Users of a shared GPU: four models and an engine."""


class _Reading(SizeReader):
    """OpenRLHF's flags: the models that it trains with, and their sizes."""

    known: ClassVar[Mapping[KeyPath, Collection[str]]] = {
        **{(name,): _SIZE for name in _MODELS},
        ("vllm",): ("num_engines", "tensor_parallel_size"),
        ("train",): ("colocate_all", "colocate_actor_ref", "colocate_critic_reward", "async_enable"),
        ("ds",): ("tensor_parallel_size", "ring_attn_size"),
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        estimator = self.at(("algo", "advantage", "estimator"))
        rewarded = self.at(("reward", "model_name_or_path")) is not None and self.at(("reward", "remote_url")) is None
        present = {
            "actor": True,
            "ref": self.at(("algo", "kl", "init_coef")) not in (0, 0.0),
            "critic": estimator in (None, "gae"),
            "reward": rewarded and self.at(("train", "agent_func_path")) is None,
        }
        self.models = {
            name: (self.size((name, "num_nodes"), 1), self.size((name, "num_gpus_per_node"), ASSUMED))
            for name in _MODELS
            if present[name]
        }
        self.everything, self.apart = self.switch(("train", "colocate_all")), self.switch(("train", "async_enable"))
        self.all = self.everything and not self.apart  # asynchronous engines generate while the models train
        self.engines = self.size(("vllm", "num_engines"), 0, 0)
        self.tensor = self.size(("vllm", "tensor_parallel_size"), 1)
        self.together: list[tuple[str, str]] = []
        self.shared: set[str] = set()
        for pair in (("actor", "ref"), ("critic", "reward")):
            asked = self.all or self.switch(("train", f"colocate_{'_'.join(pair)}"))
            asked = asked or (self.everything and pair[0] == "actor")
            self.shared |= set(pair) if asked and pair[0] in self.models else set()
            if asked and pair[1] in self.models and pair[0] in self.models:
                self.together.append(pair)
                self._compare(*pair)
        actor = self.models["actor"][0] * self.models["actor"][1]
        if self.all and self.engines and actor != self.engines * self.tensor:
            message = f"colocate_all: the actor has {actor} GPUs, but {self.engines} engines of {self.tensor} have "
            message += f"{self.engines * self.tensor}"
            fault = Diagnostic("invalid-value", message, "make actor.num_nodes x actor.num_gpus_per_node equal to it")
            self.add(("vllm", "num_engines"), fault)

    def _compare(self, first: str, second: str) -> None:
        if self.models[first] != self.models[second]:
            sizes = [" x ".join(map(str, self.models[name])) for name in (first, second)]
            message = f"{second} shares the GPUs of {first}, but has {sizes[1]} GPUs instead of {sizes[0]}"
            help = f"give them the same num_nodes and num_gpus_per_node, or remove colocate_{first}_{second}"
            key = next((key for key in _SIZE if self.at((second, key)) is not None), None)
            self.add((second, key) if key else (second,), Diagnostic("invalid-value", message, help))


def recognised(config: Mapping[Any, Any]) -> bool:
    """Return whether a config is written for OpenRLHF: a model has ``num_gpus_per_node``, or ``vllm`` engines."""
    if "cluster" in config:
        return False
    sections = [config.get(name) for name in (*_MODELS, "vllm")]
    keys = {*_SIZE, "num_engines"}
    return any(isinstance(section, Mapping) and keys & set(section) for section in sections)


def read(config: Config | KeyReader) -> _Reading:
    """Read a config; one that is already read is returned. Raises `PlacementError` if it is not a mapping."""
    return _Reading.of(config)


def plan(config: Config | KeyReader, inventory: Inventory, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of OpenRLHF's flags on an inventory: the models, and ``vllm``, whose processes are engines.

    Raises `PlacementError` with every fault.
    """
    reading = read(config).for_inventory(inventory)
    pools = Pools(reading, inventory, isolate_accelerator)
    sizes = Parallel(tp=reading.size(("ds", "tensor_parallel_size"), 1), cp=reading.size(("ds", "ring_attn_size"), 1))
    second = {later: earlier for earlier, later in reading.together}
    if reading.everything:
        apart = {"critic", "reward"} if not reading.all and ("critic", "reward") in reading.together else set()
        second |= {name: "actor" for name in reading.models if name != "actor" and name not in apart}
    taken: dict[str, list[int]] = {}

    def take(name: str) -> None:
        nodes, each = reading.models[name]
        taken[name] = taken[second[name]] if name in second else pools.packed(nodes * each, name, (name,))

    if "actor" in reading.shared:
        take("actor")
    engines = reading.engines * reading.tensor
    generating = (pools.packed(engines, "vllm", ("vllm",)) if not reading.all else taken["actor"]) if engines else []
    for name in reading.models:
        if name not in taken:
            take(name)
        count = reading.models[name][0] * reading.models[name][1]
        if count > len(taken[name]) > 0:
            reading.add((name,), pools.too_many(name, count, len(taken[name]), "the actor's GPUs"))
            continue
        share = pools.share(_SHARED) if reading.everything or name in reading.shared else 1.0
        path: KeyPath = ("ds", "tensor_parallel_size" if sizes.tp > 1 else "ring_attn_size")
        pools.place(name, taken[name][:count], path, parallel=sizes, share=share)
    if generating:
        path = ("vllm", "tensor_parallel_size")
        engine = engine_sizes(reading.tensor, 1, 1)
        share = pools.share(_SHARED) if reading.all else 1.0
        pools.place("vllm", generating, path, reading.tensor, parallel=engine, share=share)
    reading.finish()
    return Plan(inventory, pools.components)


def assumed_inventory(config: Config | KeyReader) -> Inventory:
    """Return as many nodes of 8 GPUs, or of the largest model's GPUs per node, as the flags need."""
    reading = read(config)
    reading.finish()
    each = max(ASSUMED, *(per_node for _, per_node in reading.models.values()))
    shared = {later for _, later in reading.together} | (
        set(reading.models) - {"actor"} if reading.everything else set()
    )
    nodes = sum(
        -(-count * per_node // each) for name, (count, per_node) in reading.models.items() if name not in shared
    )
    if not reading.all:
        nodes += -(-reading.engines * reading.tensor // each)
    return reading.fork().assumed(nodes, each)

"""OpenRLHF: a number of nodes and of GPUs per node for each model, and engines of vLLM.

Each model, and all engines together, take GPUs of one node if one has enough, else node by node. ``train.colocate_all``
puts everything on the actor's GPUs, ``train.colocate_actor_ref`` and ``train.colocate_critic_reward`` put two models on
the same; each then has a fifth of a GPU. An engine has ``vllm.tensor_parallel_size`` consecutive GPUs.

Follows ``train`` of OpenRLHF's ``train_ppo_ray.py``, ``RayActorGroup`` and ``create_vllm_engines``.
"""

from __future__ import annotations

from functools import partial

from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Config, Reader
from rankplan.dialects.keys import OPENRLHF, OPENRLHF_MODELS
from rankplan.dialects.pools import Pools, engine_sizes
from rankplan.errors import Diagnostic
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import Parallel
from rankplan.plans.configured import ASSUMED, assumed, for_inventory
from rankplan.plans.plan import Plan

__all__ = ["assumed_inventory", "plan", "read", "recognised"]

_SIZE = ("num_nodes", "num_gpus_per_node")
_SHARED = 5
"""Users of a shared GPU: four models and an engine."""


class _Job:
    """The models that OpenRLHF's flags train with, their sizes, and which of them share GPUs."""

    def __init__(self, reader: Reader) -> None:
        estimator = reader.at(("algo", "advantage", "estimator"))
        rewarded = (
            reader.at(("reward", "model_name_or_path")) is not None and reader.at(("reward", "remote_url")) is None
        )
        present = {
            "actor": True,
            "ref": reader.at(("algo", "kl", "init_coef")) not in (0, 0.0),
            "critic": estimator in (None, "gae"),
            "reward": rewarded and reader.at(("train", "agent_func_path")) is None,
        }
        self.models = {
            name: (reader.size((name, "num_nodes"), 1), reader.size((name, "num_gpus_per_node"), ASSUMED))
            for name in OPENRLHF_MODELS
            if present[name]
        }
        self.everything, self.apart = reader.switch(("train", "colocate_all")), reader.switch(("train", "async_enable"))
        self.all = self.everything and not self.apart  # asynchronous engines generate while the models train
        self.engines = reader.size(("vllm", "num_engines"), 0, 0)
        self.tensor = reader.size(("vllm", "tensor_parallel_size"), 1)
        self.together: list[tuple[str, str]] = []
        self.shared: set[str] = set()
        for pair in (("actor", "ref"), ("critic", "reward")):
            asked = self.all or reader.switch(("train", f"colocate_{'_'.join(pair)}"))
            asked = asked or (self.everything and pair[0] == "actor")
            self.shared |= set(pair) if asked and pair[0] in self.models else set()
            if asked and pair[1] in self.models and pair[0] in self.models:
                self.together.append(pair)
                self._compare(reader, *pair)
        actor = self.models["actor"][0] * self.models["actor"][1]
        if self.all and self.engines and actor != self.engines * self.tensor:
            message = f"colocate_all: the actor has {actor} GPUs, but {self.engines} engines of {self.tensor} have "
            message += f"{self.engines * self.tensor}"
            fault = Diagnostic("invalid-value", message, "make actor.num_nodes x actor.num_gpus_per_node equal to it")
            reader.add(("vllm", "num_engines"), fault)

    def _compare(self, reader: Reader, first: str, second: str) -> None:
        if self.models[first] != self.models[second]:
            sizes = [" x ".join(map(str, self.models[name])) for name in (first, second)]
            message = f"{second} shares the GPUs of {first}, but has {sizes[1]} GPUs instead of {sizes[0]}"
            help = f"give them the same num_nodes and num_gpus_per_node, or remove colocate_{first}_{second}"
            key = next((key for key in _SIZE if reader.at((second, key)) is not None), None)
            reader.add((second, key) if key else (second,), Diagnostic("invalid-value", message, help))


recognised = OPENRLHF.recognises
read = partial(OPENRLHF.read, state=_Job)


def plan(config: Config | Reader, inventory: Inventory, *, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of OpenRLHF's flags on an inventory: the models, and ``vllm``, whose processes are engines.

    Raises `PlacementError` with every fault.
    """
    reader = for_inventory(read(config), inventory)
    job: _Job = reader.state
    pools = Pools(reader, inventory, isolate=isolate_accelerator)
    sizes = Parallel(tp=reader.size(("ds", "tensor_parallel_size"), 1), cp=reader.size(("ds", "ring_attn_size"), 1))
    second = {later: earlier for earlier, later in job.together}
    if job.everything:
        apart = {"critic", "reward"} if not job.all and ("critic", "reward") in job.together else set()
        second |= {name: "actor" for name in job.models if name != "actor" and name not in apart}
    taken: dict[str, list[int]] = {}

    def take(name: str) -> None:
        nodes, each = job.models[name]
        taken[name] = taken[second[name]] if name in second else pools.packed(nodes * each, name, (name,))

    if "actor" in job.shared:
        take("actor")
    engines = job.engines * job.tensor
    generating = (pools.packed(engines, "vllm", ("vllm",)) if not job.all else taken["actor"]) if engines else []
    for name in job.models:
        if name not in taken:
            take(name)
        count = job.models[name][0] * job.models[name][1]
        if count > len(taken[name]) > 0:
            reader.add((name,), pools.too_many(name, count, len(taken[name]), "the actor's GPUs"))
            continue
        share = pools.share(_SHARED) if job.everything or name in job.shared else 1.0
        path: KeyPath = ("ds", "tensor_parallel_size" if sizes.tp > 1 else "ring_attn_size")
        pools.place(name, taken[name][:count], path, parallel=sizes, share=share)
    if generating:
        path = ("vllm", "tensor_parallel_size")
        engine = engine_sizes(job.tensor, 1, 1)
        share = pools.share(_SHARED) if job.all else 1.0
        pools.place("vllm", generating, path, job.tensor, parallel=engine, share=share)
    reader.finish()
    return Plan(inventory, pools.components)


def assumed_inventory(config: Config | Reader) -> Inventory:
    """Return as many nodes of 8 GPUs, or of the largest model's GPUs per node, as the flags need."""
    reader = read(config)
    reader.finish()
    job: _Job = reader.state
    each = max(ASSUMED, *(per_node for _, per_node in job.models.values()))
    shared = {later for _, later in job.together} | (set(job.models) - {"actor"} if job.everything else set())
    nodes = sum(-(-count * per_node // each) for name, (count, per_node) in job.models.items() if name not in shared)
    if not job.all:
        nodes += -(-job.engines * job.tensor // each)
    return assumed(reader, nodes, each)

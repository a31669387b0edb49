"""OpenRLHF: a number of nodes and of GPUs per node for each model, and engines of vLLM.

Each model, and all engines together, take GPUs of one node if one has enough, else node by node. ``train.colocate_all``
puts everything on the actor's GPUs, ``train.colocate_actor_ref`` and ``train.colocate_critic_reward`` put two models on
the same; each then has a fifth of a GPU. An engine has ``vllm.tensor_parallel_size`` consecutive GPUs.

Follows ``train`` of OpenRLHF's ``train_ppo_ray.py``, ``RayActorGroup`` and ``create_vllm_engines`` (3c3be62).
"""

from __future__ import annotations

from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Reader
from rankplan.dialects.keys import OPENRLHF, OPENRLHF_MODELS
from rankplan.dialects.pools import Job, Pools, engine_sizes
from rankplan.errors import Diagnostic
from rankplan.parallel import Parallel
from rankplan.plans.configured import ASSUMED

__all__ = ["assumed_inventory", "plan", "read"]

_SIZE = ("num_nodes", "num_gpus_per_node")
_SHARED = 5
"""Users of a shared GPU: four models and an engine."""


class _Job(Job):
    """The models that OpenRLHF's flags train with, their sizes, and which of them share GPUs."""

    keys = OPENRLHF

    def __init__(self, reader: Reader) -> None:
        elsewhere = [reader.at(path) for path in (("reward", "remote_url"), ("train", "agent_func_path"))]
        present = {
            "actor": True,
            "ref": reader.at(("algo", "kl", "init_coef")) not in (0, 0.0),
            "critic": reader.at(("algo", "advantage", "estimator")) in (None, "gae"),
            "reward": reader.at(("reward", "model_name_or_path")) is not None and elsewhere == [None, None],
        }
        self.models = {
            name: (reader.size((name, "num_nodes"), 1), reader.size((name, "num_gpus_per_node"), ASSUMED))
            for name in OPENRLHF_MODELS
            if present[name]
        }
        self.everything = reader.switch(("train", "colocate_all"))
        # Asynchronous engines generate while the models train.
        self.all = not reader.switch(("train", "async_enable")) and self.everything
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

    def size(self) -> tuple[int, int]:
        """Return as many nodes of 8 GPUs, or of the largest model's GPUs per node, as the flags need."""
        each = max(ASSUMED, *(per_node for _, per_node in self.models.values()))
        shared = {later for _, later in self.together} | (set(self.models) - {"actor"} if self.everything else set())
        apart = [size for name, size in self.models.items() if name not in shared]
        nodes = sum(-(-count * per_node // each) for count, per_node in apart)
        return nodes + (0 if self.all else -(-self.engines * self.tensor // each)), each

    def place(self, pools: Pools) -> None:
        """Place the models, and ``vllm``, whose processes are engines."""
        reader = pools.reader
        sizes = Parallel(tp=reader.size(("ds", "tensor_parallel_size"), 1), cp=reader.size(("ds", "ring_attn_size"), 1))
        second = {later: earlier for earlier, later in self.together}
        if self.everything:
            apart = {"critic", "reward"} if not self.all and ("critic", "reward") in self.together else set()
            second |= {name: "actor" for name in self.models if name != "actor" and name not in apart}
        taken: dict[str, list[int]] = {}

        def take(name: str) -> None:
            nodes, each = self.models[name]
            taken[name] = taken[second[name]] if name in second else pools.packed(nodes * each, name, (name,))

        if "actor" in self.shared:
            take("actor")
        engines = self.engines * self.tensor
        generating = (taken["actor"] if self.all else pools.packed(engines, "vllm", ("vllm",))) if engines else []
        for name, (nodes, each) in self.models.items():
            if name not in taken:
                take(name)
            if nodes * each > len(taken[name]) > 0:
                pools.too_many((name,), name, nodes * each, len(taken[name]), "the actor's GPUs")
                continue
            share = pools.share(_SHARED) if self.everything or name in self.shared else 1.0
            path: KeyPath = ("ds", "tensor_parallel_size" if sizes.tp > 1 else "ring_attn_size")
            pools.place(name, taken[name][: nodes * each], path, parallel=sizes, share=share)
        engine, share = engine_sizes(self.tensor, 1, 1), pools.share(_SHARED) if self.all else 1.0
        path = ("vllm", "tensor_parallel_size")
        pools.place("vllm", generating, path, self.tensor, parallel=engine, share=share)


read, plan, assumed_inventory = _Job.read, _Job.plan, _Job.assumed_inventory

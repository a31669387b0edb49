"""OpenRLHF: a number of nodes and of GPUs per node for each model, and engines of vLLM.

Each model, and all engines together, take GPUs of one node if one has enough, else node by node. ``train.colocate_all``
puts everything on the actor's GPUs, ``train.colocate_actor_ref`` and ``train.colocate_critic_reward`` put two models on
the same; each then has a fifth of a GPU. An engine has ``vllm.tensor_parallel_size`` consecutive GPUs.

Follows ``train`` of OpenRLHF's ``train_ppo_ray.py`` with what it changes in its arguments, ``RayActorGroup`` and
``create_vllm_engines`` (3c3be62).
"""

from __future__ import annotations

from rankplan._core import Taken
from rankplan.dialects.placing.engines import engine_sizes
from rankplan.dialects.placing.job import Job, differing
from rankplan.dialects.placing.placer import Placer
from rankplan.dialects.tables import OPENRLHF, OPENRLHF_MODELS
from rankplan.errors import Diagnostic, KeyPath
from rankplan.parallel import Parallel
from rankplan.read.components import ASSUMED
from rankplan.read.text.reader import Reader
from rankplan.words import path_text

__all__ = ["assumed_inventory", "node_order", "plan", "read"]

_SIZE = ("num_nodes", "num_gpus_per_node")
_AGENTS = ("agents",)
_SHARED = 5
"""Users of a shared GPU: four models and an engine."""


class _Job(Job):
    """The models that OpenRLHF's flags train with, their sizes, and which of them share GPUs."""

    name, keys = "openrlhf", OPENRLHF

    def __init__(self, reader: Reader) -> None:
        if reader.at(_AGENTS) is not None or "multi_agent" in reader.program:
            message = "`agents` starts models of its own for each agent (MARTI), which rankplan does not read"
            reader.add(_AGENTS, Diagnostic("unknown-key", message, "check a job of openrlhf.cli.train_ppo_ray"))
        elsewhere = reader.at(("reward", "remote_url")) or reader.at(("train", "agent_func_path"))
        present = {
            "actor": True,
            "ref": reader.at(("algo", "kl", "init_coef")) not in (0, 0.0),
            "critic": reader.at(("algo", "advantage", "estimator")) in (None, "gae"),
            "reward": reader.at(("reward", "model_name_or_path")) is not None and not elsewhere,
        }
        sizes: dict[str, tuple[int, int]] = {}
        for name in OPENRLHF_MODELS:
            least = int(present[name])  # the sizes of a model that does not start may be 0
            count, each = (name, _SIZE[0]), (name, _SIZE[1])
            sizes[name] = reader.size(count, 1, least), reader.size(each, ASSUMED, least)
        self.models = {name: size for name, size in sizes.items() if present[name]}
        everything = reader.switch(("train", "colocate_all"))
        # Asynchronous engines generate while the models train.
        self.all = everything and not reader.switch(("train", "async_enable"))
        self.engines = reader.size(("vllm", "num_engines"), 0, 0)
        self.tensor = reader.size(("vllm", "tensor_parallel_size"), 1)
        self.on = dict.fromkeys(self.models, "actor") if everything else {}
        """The model whose GPUs a model shares; that model is on its own."""
        for first, second in (("actor", "ref"), ("critic", "reward")):
            asked = reader.switch(("train", f"colocate_{first}_{second}"))
            if present[first] and (asked or (everything and first == "actor")):
                self.on |= {name: first for name in (first, second) if present[name]}
                # OpenRLHF compares the critic with the flags of the reward model, even if it starts none.
                if (present[second] or first == "critic") and sizes[first] != sizes[second]:
                    key = ("train", f"colocate_{first}_{second}" if asked else "colocate_all")
                    paths = {name: ((name, _SIZE[0]), (name, _SIZE[1])) for name in (first, second)}
                    differing(reader, "OpenRLHF", {name: sizes[name] for name in paths}, paths, key)
        actor, engines = self.models["actor"][0] * self.models["actor"][1], self.engines * self.tensor
        if self.all and engines and actor != engines:
            message = f"colocate_all: the actor has {actor} GPUs, but {self.engines} engines of {self.tensor} have "
            help = "make actor.num_nodes x actor.num_gpus_per_node equal to it"
            reader.add(("vllm", "num_engines"), Diagnostic("invalid-value", f"{message}{engines}", help))

    def _largest(self, reader: Reader, name: str) -> KeyPath:
        """Return the path of the larger size of a model, or of the one that the config states."""
        paths = [(name, key) for _, key in sorted(zip(self.models[name], _SIZE, strict=True), reverse=True)]
        return next((path for path in paths if reader.at(path) is not None), paths[0])

    def size(self) -> tuple[int, int]:
        """Return as many nodes of 8 GPUs, or of the largest model's GPUs per node, as the flags need."""
        each = max(ASSUMED, *(per_node for _, per_node in self.models.values()))
        apart = [size for name, size in self.models.items() if self.on.get(name, name) == name]
        nodes = sum(-(-count * per_node // each) for count, per_node in apart)
        return nodes + (0 if self.all else -(-self.engines * self.tensor // each)), each

    def place(self, placer: Placer) -> None:
        """Place the models, and ``vllm``, whose processes are engines."""
        reader = placer.reader
        tensor, ring = (("ds", key) for key in ("tensor_parallel_size", "ring_attn_size"))
        sizes = Parallel(tp=reader.size(tensor, 1), cp=reader.size(ring, 1))
        taken: dict[str, Taken] = {}
        if "actor" in self.on:
            taken["actor"] = self._take(placer, "actor", sizes)
        generating = Taken()
        if self.engines and self.all:
            generating = taken["actor"]
        elif self.engines:
            count = self.engines * self.tensor
            generating = placer.take(count, "vllm", ("vllm", "num_engines"), whole={self.tensor})
            placer.ask("vllm", generating)
        for name, (nodes, each) in self.models.items():
            host = self.on.get(name, name)
            if host not in taken:
                taken[host] = self._take(placer, name, sizes)
            count = nodes * each
            if count > len(taken[host]) > 0:
                placer.too_many(self._largest(reader, name), name, count, len(taken[host]), f"the {host}'s GPUs")
                continue
            share = placer.share(_SHARED) if name in self.on else 1.0
            where = tensor if count % sizes.tp else ring
            placer.component(name, taken[host].slice(0, count), where, sizes=sizes, share=share)
        engine, share = engine_sizes(self.tensor, 1, 1), placer.share(_SHARED) if self.all else 1.0
        path = ("vllm", "tensor_parallel_size")
        placer.component("vllm", generating, path, self.tensor, sizes=engine, share=share)

    def _take(self, placer: Placer, name: str, sizes: Parallel) -> Taken:
        """Take the accelerators of a model, and record its request."""
        nodes, each = self.models[name]
        path = (name, "num_gpus_per_node")
        default = "" if placer.reader.at(path) is not None else f" ({path_text(path)} is {each} by default)"
        steps = {sizes.tp, sizes.tp * sizes.cp}
        if self.all and name == "actor":
            steps.add(self.tensor)
        taken = placer.take(nodes * each, f"{name}{default}", self._largest(placer.reader, name), whole=steps)
        # Without a group, actors with one GPU per node ask for themselves.
        placer.ask(name, taken, strategy="PACK" if each > 1 or name in self.on else None)
        return taken


read, plan, assumed_inventory, node_order = _Job.read, _Job.plan, _Job.assumed_inventory, _Job.order

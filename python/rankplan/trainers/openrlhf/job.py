"""OpenRLHF: a number of nodes and of GPUs per node for each model, and engines of vLLM.

Each model, and all engines together, take GPUs of one node if one has enough, else node by node. ``train.colocate_all``
puts everything on the actor's GPUs, ``train.colocate_actor_ref`` and ``train.colocate_critic_reward`` put two models on
the same; each then has a fifth of a GPU. An engine has ``vllm.tensor_parallel_size`` consecutive GPUs.

Follows ``train`` of OpenRLHF's ``train_ppo_ray.py`` with what it changes in its arguments, ``RayActorGroup`` and
``create_vllm_engines`` (3c3be62).
"""

from __future__ import annotations

from rankplan import Diagnostic
from rankplan.sdk import Config, Job, Placer, Sizes, Taken, Where
from rankplan.sdk.placing import engine_sizes
from rankplan.sdk.sharing import ModelNodes, reject_other_nodes
from rankplan.sdk.words import path_text
from rankplan.trainers.openrlhf import keys
from rankplan.trainers.openrlhf.vendored import always_starts_reference

_ENGINES = "vllm"
"""The component of the engines."""

_SHARED = 5
"""Users of a shared GPU: four models and an engine."""


class OpenrlhfJob(Job):
    """The models that OpenRLHF's flags train with, their sizes, and which of them share GPUs."""

    def __init__(self, config: Config) -> None:
        self._read_models(config)
        self._read_engines(config)
        self._read_shared(config)
        self._check_engines(config)

    def _read_models(self, config: Config) -> None:
        """Read the nodes of every model, and which of them start."""
        present = _present(config)
        self.configured = {name: _nodes(config, name, starts=name in present) for name in keys.MODELS}
        self.models = {name: nodes for name, nodes in self.configured.items() if name in present}
        self.largest = {name: _largest(config, model) for name, model in self.models.items()}
        self.named = {name: _named(config, model) for name, model in self.models.items()}
        self.parallel = config.parallel({"tp": keys.TENSOR, "cp": keys.RING}, at=keys.TENSOR)

    def _read_engines(self, config: Config) -> None:
        self.colocated = config[keys.COLOCATE_ALL]
        # Asynchronous engines generate while the models train.
        self.all = self.colocated and not config[keys.ASYNCHRONOUS]
        self.num_engines = config[keys.NUM_ENGINES]
        self.engines_at = config.where(keys.NUM_ENGINES)
        self.tensor = config[keys.ENGINE_TENSOR]
        self.engine_sizes = Sizes(engine_sizes(self.tensor, 1, 1), config.where(keys.ENGINE_TENSOR))

    def _read_shared(self, config: Config) -> None:
        """Read which models share the GPUs of another one, which then is on its own."""
        self.on = dict.fromkeys(self.models, "actor") if self.colocated else {}
        for first, second in (("actor", "ref"), ("critic", "reward")):
            flag = keys.COLOCATE[first]
            is_asked = config[flag]
            is_implied = self.colocated and first == "actor"
            if first not in self.models or not (is_asked or is_implied):
                continue
            self.on |= {name: first for name in (first, second) if name in self.models}
            # OpenRLHF compares the critic with the flags of the reward model, even if it starts none.
            is_compared = second in self.models or first == "critic"
            if is_compared and self.configured[first].size != self.configured[second].size:
                deciding = flag if is_asked else keys.COLOCATE_ALL
                reject_other_nodes(config, self.configured[first], self.configured[second], deciding)

    def _check_engines(self, config: Config) -> None:
        """Record engines that share the actor's GPUs, and have another number."""
        actor, engines = self.models["actor"].gpus, self.num_engines * self.tensor
        if self.all and engines and actor != engines:
            config.faults.add(self.engines_at, _other_number(actor, self.num_engines, self.tensor))

    def size(self) -> tuple[int, int]:
        """Return as many nodes of 8 GPUs, or of the largest model's GPUs per node, as the flags need."""
        each = max(self.usual_accelerators, *(model.gpus_per_node for model in self.models.values()))
        apart = [model for name, model in self.models.items() if self.on.get(name, name) == name]
        nodes = sum(-(-model.gpus // each) for model in apart)
        return nodes + (0 if self.all else -(-self.num_engines * self.tensor // each)), each

    def largest_node(self) -> int:
        """Return the accelerators of the nodes of `size`: flags state those of each model, not how many nodes exist."""
        return self.size()[1]

    def place(self, placer: Placer) -> None:
        """Place the models, and ``vllm``, whose processes are engines."""
        steps = {name: self._steps(name) for name in self._hosts()}
        taken = {name: self._take(placer, name) for name in placer.in_turn(steps)}
        for name in steps:
            self._ask(placer, name, taken[name])
        for name, model in self.models.items():
            host = self.on.get(name, name)
            if model.gpus > len(taken[host]) > 0:
                of = f"the {host}'s GPUs"
                placer.too_many(self.largest[name], name, model.gpus, len(taken[host]), of)
                continue
            share = placer.share(_SHARED) if name in self.on else 1.0
            own = taken[host].slice(0, model.gpus)
            placer.component(name, own, self.parallel.where, sizes=self.parallel, share=share)
        if self.num_engines:
            generating = taken["actor" if self.all else _ENGINES]
            share = placer.share(_SHARED) if self.all else 1.0
            sizes = self.engine_sizes
            placer.component(_ENGINES, generating, sizes.where, self.tensor, sizes=sizes, share=share)

    def _hosts(self) -> list[str]:
        """Return the models and engines with GPUs of their own, in the order in which OpenRLHF makes their groups."""
        hosts = [self.on.get(name, name) for name in self.models]
        shared = ["actor"] if "actor" in self.on else []
        engines = [_ENGINES] if self.num_engines and not self.all else []
        return list(dict.fromkeys([*shared, *engines, *hosts]))

    def _steps(self, name: str) -> set[int]:
        """Return the sizes of the groups of a model, and of the engines on its GPUs; or of an engine."""
        if name == _ENGINES:
            return {self.tensor}
        sizes = self.parallel.parallel
        steps = {sizes.tp, sizes.tp * sizes.cp}
        if self.all and name == "actor":
            steps.add(self.tensor)
        return steps

    def _take(self, placer: Placer, name: str) -> Taken:
        """Take the accelerators of a model, or of the engines."""
        steps = self._steps(name)
        if name == _ENGINES:
            return placer.take(self.num_engines * self.tensor, name, self.engines_at, whole=steps)
        users = [model for model in self.models if self.on.get(model, model) == name]
        if self.all and self.num_engines and name == "actor":
            users.append(_ENGINES)
        return placer.take(self.models[name].gpus, self.named[name], self.largest[name], whole=steps, users=users)

    def _ask(self, placer: Placer, name: str, taken: Taken) -> None:
        """Record the request of a model, or of the engines."""
        # Without a group, actors with one GPU per node ask for themselves.
        together = name == _ENGINES or self.models[name].gpus_per_node > 1 or name in self.on
        placer.ask(name, taken, strategy="PACK" if together else None, cpus=1)


def _present(config: Config) -> set[str]:
    """Return the models that the program starts."""
    present = {"actor"}
    has_reference = config[keys.HAS_REFERENCE]
    if has_reference is None:
        has_reference = config[keys.KL_COEFFICIENT] > 0 or always_starts_reference(config.program_file)
    if has_reference:
        present.add("ref")
    if config[keys.ESTIMATOR] in (None, "gae"):
        present.add("critic")
    has_reward = config[keys.HAS_REWARD]
    if has_reward is None:
        has_reward = not (config[keys.REWARD_URL] or config[keys.AGENT])  # its group is made even if no model is named
    if has_reward:
        present.add("reward")
    return present


def _nodes(config: Config, name: str, *, starts: bool) -> ModelNodes:
    """Return the nodes of a model; the sizes of one that does not start may be 0."""
    nodes, gpus = keys.NODES[name], keys.GPUS_PER_NODE[name]
    least = int(starts)
    return ModelNodes(name, config.get(nodes, least=least), config.get(gpus, least=least), (nodes, gpus))


def _largest(config: Config, model: ModelNodes) -> Where:
    """Return the place of the larger size of a model, or of the one that the config states."""
    nodes, gpus = model.keys
    return config.where(nodes, gpus) if model.nodes > model.gpus_per_node else config.where(gpus, nodes)


def _named(config: Config, model: ModelNodes) -> str:
    """Return the name of a model, with its GPUs of a node if they are the default."""
    _, gpus = model.keys
    if config.stated(gpus):
        return model.name
    return f"{model.name} ({path_text(config.path(gpus))} is {model.gpus_per_node} by default)"


def _other_number(actor: int, engines: int, tensor: int) -> Diagnostic:
    """Return the fault of engines that share the actor's GPUs, and have another number of them."""
    message = f"colocate_all: the actor has {actor} GPUs, but {engines} engines of {tensor} have {engines * tensor}"
    return Diagnostic("invalid-value", message, "make actor.num_nodes x actor.num_gpus_per_node equal to it")

"""SkyRL: a number of nodes and of GPUs per node for each model, and inference engines.

With ``trainer.placement.colocate_all``, every model is on the engines' GPUs, and has a fifth of each. Otherwise the
engines take GPUs first, of one node if one has enough, and each model takes parts of nodes after them; the
reference model shares the policy's (``colocate_policy_ref``), with a quarter of each. A data-parallel rank of an engine
is a process of tensor x pipeline size GPUs.

Before version 0.3.0 the keys of the engines are in ``generator`` itself, and a model and an engine have 4 GPUs by
default (``ppo_base_config.yaml``).

Follows SkyRL's ``validate_cfg``, ``RayPPOTrainer.build_models``, ``PPORayActorGroup``, ``build_new_inference_client``
and ``create_inference_servers`` (a956457), and ``translate_legacy_config`` (skyrl-v0.2.0).
"""

from __future__ import annotations

from rankplan import Parallel, Request, Requests
from rankplan.sdk import Config, Job, NodeOrder, Placer, Sizes, Taken
from rankplan.sdk.placing import engine_sizes
from rankplan.sdk.sharing import ModelNodes, reject_other_nodes
from rankplan.trainers.skyrl import faults, keys

_ENGINES = "generator"
"""The component of the engines."""

_ARCTIC = "integrations.arctic_rl.entrypoint"
"""The program of an integration, which shares GPUs by a key of its own (``_setup_trainer``)."""
_SHARED = 5
_REMOVED = {"colocate_critic_reward", "reward_num_nodes", "reward_num_gpus_per_node"}
"""Keys of ``trainer.placement`` before 0.3.0, for a reward model that has left SkyRL."""
_PEER_ACCESS = Request("", None, (2,), (), optional=True, amounts=[(1, None, ())])
"""From a head without GPUs, SkyRL asks two of a node whether they reach each other (``peer_access_supported``)."""


class SkyrlJob(Job):
    """The models of a SkyRL config, its engines and their sizes."""

    def __init__(self, config: Config) -> None:
        program = config[keys.OVERRIDE_ENTRYPOINT]
        if program not in (None, _ARCTIC):
            config.faults.warn(config.where(keys.OVERRIDE_ENTRYPOINT), faults.other_program(program))
        _reject_unknown(config)
        self._read_models(config)
        self._read_engines(config)
        self._check_shared(config)
        self._check_engines(config)

    def _read_models(self, config: Config) -> None:
        """Read which models there are, their nodes and sizes."""
        absent = set()
        if not (config[keys.USE_KL_LOSS] or config[keys.USE_KL_IN_REWARD]):
            absent.add("ref")
        if not config.stated(keys.CRITIC):
            absent.add("critic")
        names = [name for name in keys.MODELS if name not in absent]
        self.models = {
            name: ModelNodes(
                name,
                config[keys.NODES[name]],
                config[keys.GPUS_PER_NODE[name]],
                (keys.NODES[name], keys.GPUS_PER_NODE[name]),
            )
            for name in names
        }
        self.places = {name: config.where(keys.NODES[name]) for name in names}
        self.parallel = {name: _training(config, name) for name in names}
        self.all = config[keys.COLOCATE_ALL] or config[keys.ARCTIC_COLOCATES]
        self.pair = not self.all and "ref" in names and config[keys.COLOCATE_POLICY_REF]

    def _read_engines(self, config: Config) -> None:
        """Read the engines that the job starts."""
        self.tensor = config[keys.TENSOR]
        self.pipeline = config[keys.PIPELINE]
        self.data = config[keys.DATA]
        is_external = config.stated(keys.PROXY_URL) or config.stated(keys.SERVER_URLS)
        self.num_engines = 0
        if not is_external and config[keys.RUN_LOCALLY]:
            self.num_engines = config[keys.NUM_ENGINES]
        self.num_prefill = 0
        if self.num_engines and config[keys.ENABLE_PD]:
            self.num_prefill = config[keys.NUM_PREFILL]
            if not 0 < self.num_prefill < self.num_engines:
                fault = faults.no_engine_decodes(self.num_prefill, self.num_engines)
                config.faults.add(config.where(keys.NUM_PREFILL), fault)
        self.engines_at = config.where(keys.NUM_ENGINES)
        self.engine_sizes = Sizes(
            engine_sizes(self.tensor, self.pipeline, self._experts(config)), config.where(keys.TENSOR)
        )

    def _experts(self, config: Config) -> int:
        """Return the expert size of an engine: 1, or as many as its tensor and data groups together."""
        experts, whole = config[keys.EXPERT], self.tensor * self.data
        if experts in (1, whole):
            return experts
        config.faults.add(config.where(keys.EXPERT), faults.other_expert_size(experts, whole))
        return 1

    def _check_shared(self, config: Config) -> None:
        """Record models that share GPUs with the policy, and have other nodes."""
        policy = self.models["policy"]
        flag = keys.COLOCATE_ALL if self.all else keys.COLOCATE_POLICY_REF
        for name, model in self.models.items():
            if self.all:
                differs = model.gpus != policy.gpus  # SkyRL compares the numbers of GPUs only
            else:
                differs = self.pair and name == "ref" and model.size != policy.size
            if differs:
                reject_other_nodes(config, policy, model, flag)

    def _check_engines(self, config: Config) -> None:
        """Record engines that do not fit the GPUs of the policy, which they share."""
        if not self.all:
            return
        policy = self.models["policy"]
        generating = self.servers * self.each
        if self.num_engines and policy.gpus != generating:
            engines = f"{generating} ({self.num_engines} engines x {self.each * self.data})"
            is_default = not config.stated(keys.COLOCATE_ALL)
            fault = faults.other_engines(policy, engines, by_default=is_default)
            config.faults.add(self.engines_at, fault)
        if self.each > policy.gpus_per_node and config[keys.BACKEND_OF_VLLM] == "mp":
            largest = keys.TENSOR if self.tensor >= self.pipeline else keys.PIPELINE
            config.faults.add(config.where(largest), faults.engine_on_one_node(self.each, policy.gpus_per_node))

    @property
    def each(self) -> int:
        """The GPUs of a data-parallel rank of an engine."""
        return self.tensor * self.pipeline

    @property
    def servers(self) -> int:
        """The data-parallel ranks of all engines."""
        return self.num_engines * self.data

    def node_order(self) -> NodeOrder:
        """Return Ray node ids, by which bundles of one GPU are sorted (``ResolvedPlacementGroup``)."""
        return "id"

    def size(self) -> tuple[int, int]:
        """Return as many nodes of 8 GPUs, or of the largest model's GPUs per node, as the config needs."""
        each = max(self.usual_accelerators, *(model.gpus_per_node for model in self.models.values()))
        apart = 0
        for name, model in self.models.items():
            if not self.all and not (self.pair and name == "ref"):
                apart += model.nodes
        return max(1, apart - (-self.servers * self.each // each)), each

    def largest_node(self) -> int:
        """Return the accelerators of the nodes of `size`: flags state those of each model, not how many nodes exist."""
        return self.size()[1]

    def place(self, placer: Placer) -> None:
        """Place ``policy``, ``ref``, ``critic``, and the servers of the ``generator``."""
        if max(model.gpus_per_node for model in self.models.values()) > 1:
            placer.requests += Requests([_PEER_ACCESS])
        taken = self._take_all(placer)
        engines = taken[_ENGINES]
        self._ask_for_engines(placer, engines)
        for name, model in self.models.items():
            if self.all:
                own, share = engines, placer.share(_SHARED)
            elif self.pair and name == "ref":
                own, share = taken["policy"], 0.25
            else:
                own, share = taken[name], 1.0
                self._ask_for_model(placer, model, own)
                if self.pair and name == "policy":
                    share = 0.75
            sizes = self.parallel[name]
            placer.component(name, own, sizes.where, sizes=sizes, share=share)
            self._check_first_ranks(placer, model, own)
        if self.num_engines:
            share = placer.share(_SHARED) if self.all else 1.0
            sizes = self.engine_sizes
            placer.component(_ENGINES, engines, sizes.where, self.each, sizes=sizes, share=share, engines=self.data)

    def _check_first_ranks(self, placer: Placer, model: ModelNodes, own: Taken) -> None:
        """Warn of a node without a process that is the first of its node by its number.

        Only these make the folders of checkpoints, and download the model (``PPORayActorGroup._initiate_actors`` in
        skyrl/backends/skyrl_train/workers/worker.py, ``save_checkpoint`` and ``init_model``, a956457).
        """
        core, each = placer.inventory.core, model.gpus_per_node
        lacking = own.used_nodes(core) - own.starting_nodes(core, each)
        if lacking:
            placer.faults.warn(self.places[model.name], faults.no_first_rank(model.name, each, lacking))

    def _take_all(self, placer: Placer) -> dict[str, Taken]:
        """Take the accelerators of the engines, and of the models that share none."""
        steps = {_ENGINES: self._steps()}
        if not self.all:
            steps |= {name: {model.gpus_per_node} for name, model in self.models.items()}
            if self.pair:
                del steps["ref"]
        taken = {}
        for name in placer.in_turn(steps):
            if name == _ENGINES:
                taken[name] = self._take_engines(placer)
            else:
                model = self.models[name]
                users = [name, "ref"] if self.pair and name == "policy" else [name]
                taken[name] = placer.nodes(model.nodes, model.gpus_per_node, name, self.places[name], users=users)
        return taken

    def _take_engines(self, placer: Placer) -> Taken:
        """Take the accelerators of the engines, part by part."""
        taken = Taken()
        users = [*self.models, _ENGINES] if self.all else [_ENGINES]
        for count in self._parts():
            if count:
                taken += placer.take(count, _ENGINES, self.engines_at, whole=self._steps(), users=users)
        return taken

    def _ask_for_model(self, placer: Placer, model: ModelNodes, taken: Taken) -> None:
        """Record the request of a model with accelerators of its own."""
        # Without a group, actors with one GPU per node ask for themselves.
        together = model.gpus_per_node > 1 or (self.pair and model.name == "policy")
        order: NodeOrder | None = "id" if together and model.gpus_per_node == 1 else None
        strategy = "PACK" if together else None
        placer.ask(model.name, taken, bundles=[model.gpus_per_node], strategy=strategy, order=order, cpus=1)

    def _parts(self) -> tuple[int, int]:
        """Return the accelerators of the engines, or of all models if they share them, in two parts.

        Alone, the engines that prefill are packed by themselves: the first part.
        """
        count = self.servers * self.each
        if self.all and not count:
            count = self.models["policy"].gpus
        ahead = 0 if self.all else self.num_prefill * self.data * self.each
        return ahead, count - ahead

    def _steps(self) -> set[int]:
        """Return the sizes of the groups of the engines, and of the models that share their accelerators."""
        steps = {self.each}
        if self.all:
            steps |= {sizes.parallel.tp * sizes.parallel.cp for sizes in self.parallel.values()}
        return steps

    def _ask_for_engines(self, placer: Placer, engines: Taken) -> None:
        """Record a request for each part of the accelerators of the engines."""
        ahead, _ = self._parts()
        for part in (engines.slice(0, ahead), engines.slice(ahead, len(engines))):
            placer.ask(_ENGINES if self.num_engines else "policy", part, order="id", cpus=1)


def _reject_unknown(config: Config) -> None:
    """Record keys of ``trainer.placement`` that SkyRL does not have, as it does, unless they look like typos."""
    placement = config.under(keys.PLACEMENT)
    known = keys.KEYS.known[tuple(keys.PLACEMENT.split("."))]
    typos = {fault.path for fault in config.faults}
    for name in map(str, placement.section):
        was_known = name in _REMOVED and keys.is_older(config)
        if name not in known and not was_known and f"{keys.PLACEMENT}.{name}" not in typos:
            config.faults.add(placement.named(name), faults.unknown_placement_key(name, known))


def _training(config: Config, name: str) -> Sizes:
    """Return the sizes of a model: Megatron's, or the sequence size."""
    if config[keys.STRATEGY] == "megatron":
        return config.under(f"trainer.{name}.megatron_config").parallel(keys.MEGATRON)
    model = config.under(f"trainer.{name}")
    return Sizes(Parallel(cp=model[keys.SEQUENCE]), model.where(keys.SEQUENCE))

"""NeMo-RL: whole nodes for the reward model, for teachers and for inference, and the other nodes for training.

With ``policy.generation.colocated.enabled``, the policy and its engines share all nodes that the others leave.
Otherwise the engines have ``colocated.resources.num_nodes`` nodes of their own; where one node is left for both, they
have ``resources.gpus_per_node`` of its GPUs, and the training has the first ones.

Follows, at 7ea279a, ``setup`` of ``algorithms/grpo.py``, ``ppo.py``, ``distillation.py`` and
``xtoken_off_policy_distillation.py``, ``single_controller_utils.setup._build_clusters``, ``VllmGeneration``,
``SGLangGeneration``, ``TrtllmGeneration``, ``MegatronGeneration``, ``create_teacher_configs_from_opd_config`` and
``RayVirtualCluster``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from rankplan import Actors, Faults, Inventory
from rankplan.sdk import Config, Engine, Job, Key, NodeOrder, Placer, Sizes, Taken, Where
from rankplan.sdk.nodes import first_nodes
from rankplan.sdk.placing import Free, check_addresses, engine_sizes
from rankplan.trainers.nemo_rl import faults, keys

_TRAINING = "(.*_)?(policy|train|dpo|rm|sft|distillation)_cluster"
_INFERENCE = "(.*_)?(generation|inference)_cluster"
_REWARD = "(.*_)?reward_model_cluster"
"""The names of the clusters of nodes; each algorithm puts its own before them."""

_BUILDER = "builder of environments"
"""It takes a CPU of every node where a virtual environment is missing (``create_local_venv_on_each_node``)."""

_BACKENDS = {
    "grpo": ("vllm, sglang, megatron or trtllm", "vllm, megatron, trtllm or dynamo"),
    "async_rl": ("vllm or sglang", "vllm or sglang"),
    "ppo": ("vllm or sglang", "vllm"),
    "distillation": ("vllm or megatron", "vllm"),
}
"""What an algorithm generates with on the nodes of the training, and on nodes of its own."""


class _Nodes(NamedTuple):
    """A number of nodes, and the GPUs that are used of each."""

    number: int = 0
    gpus: int = 0


class _Teacher(NamedTuple):
    """A teacher on nodes of its own: its component, its nodes and sizes, and where its config states them."""

    name: str
    nodes: _Nodes
    sizes: Sizes
    count_at: Where
    gpus_at: Where


class NemoRlJob(Job):
    """The nodes of training, of inference, of the teachers and of the reward model in a NeMo-RL config."""

    def __init__(self, config: Config) -> None:
        self._read_cluster(config)
        self._read_generation(config)
        self._check_backend(config)
        self._read_reward_model(config)
        self.teachers = _teachers(config) if self.algorithm in ("", "grpo") else []
        self._divide_nodes(config)
        self.engine = self._engine(config) if self.generates and self.backend != "megatron" else None
        if not config.faults:
            self._check_segments(config)
            self._check_gpus(config)
        self._read_sizes(config)

    def _read_cluster(self, config: Config) -> None:
        """Read the nodes of the job, and the algorithm that it runs on them."""
        self.num_nodes = config[keys.NUM_NODES]
        self.num_nodes_at = config.where(keys.NUM_NODES)
        self.gpus_per_node = config[keys.GPUS_PER_NODE]
        self.gpus_per_node_at = config.where(keys.GPUS_PER_NODE)
        self.segment = config[keys.SEGMENT_SIZE]
        self.segment_at = config.where(keys.SEGMENT_SIZE)
        self.algorithm = next((name for name in keys.ALGORITHMS if name in config.section), "")

    def _read_generation(self, config: Config) -> None:
        """Read whether the job generates, with what, and whether on the nodes of the training."""
        # In cross-tokenizer distillation, every teacher is on every GPU, and nothing generates.
        teachers = config[keys.CROSS_TEACHERS]
        is_list = isinstance(teachers, Sequence) and not isinstance(teachers, str)
        self.num_cross_teachers = len(teachers) if is_list else 0
        trains_only = self.num_cross_teachers or self.algorithm in ("dpo", "rm", "sft")
        has_generation = not trains_only and bool(config.under(keys.GENERATION).section)
        self.backend = ""
        self.colocated = True
        if has_generation:
            self.backend = config[keys.BACKEND] or "vllm"
            self.colocated = config[keys.IS_COLOCATED]
        policy_generates = self.backend == "megatron" and self.colocated
        self.generates = has_generation and not policy_generates
        self.inference_at = config.under(keys.RESOURCES).place
        self.server_gpus = config[keys.SERVER_GPUS] if self.backend == "sglang" else None
        self.server_gpus_at = config.where(keys.SERVER_GPUS)

    def _check_backend(self, config: Config) -> None:
        """Record a backend that the algorithm does not generate with."""
        shared, apart = _BACKENDS.get(self.algorithm, ("", ""))
        allowed = shared if self.colocated else apart
        if not self.backend or not allowed or self.backend in allowed.replace(",", "").split():
            return
        fault = faults.other_backend(self.backend, allowed, self.algorithm, colocated=self.colocated)
        config.faults.add(config.where(keys.BACKEND), fault)

    def _read_reward_model(self, config: Config) -> None:
        """Read the nodes of the reward model, if there is one."""
        self.reward = _Nodes()
        self.reward_at = config.under(keys.REWARD_RESOURCES).place
        self.reward_gpus_at = config.where(keys.REWARD_GPUS)
        if self.algorithm in ("", "grpo", "ppo") and self.backend and _has_reward_model(config):
            self.reward = _Nodes(config[keys.REWARD_NODES], config[keys.REWARD_GPUS])

    def _divide_nodes(self, config: Config) -> None:
        """Divide the nodes: what the teachers, the reward model and inference leave is for training."""
        count = self.num_nodes - sum(teacher.nodes.number for teacher in self.teachers)
        gpus = self.gpus_per_node
        if self.num_nodes == 1 and self.reward.number:
            gpus -= self.reward.gpus  # the reward model is on the only node, too
        else:
            count -= self.reward.number
        self.training = _Nodes(count, gpus)
        self.inference = _Nodes()
        if not self._is_left(config) or self.colocated:
            return
        if count == 1:
            self._divide_node(config)
        elif self.algorithm == "async_rl":
            self._take_parts_of_nodes(config)
        else:
            self._take_whole_nodes(config)
        self._is_left(config)

    def _divide_node(self, config: Config) -> None:
        """Take GPUs of the only node for inference."""
        gpus = self.training.gpus
        wanted = self._required(config, keys.INFERENCE_GPUS, f"of the {gpus} GPUs of the node, how many generate")
        count = config[keys.INFERENCE_NODES]
        if count not in (None, 1):
            config.faults.add(config.where(keys.INFERENCE_NODES), faults.shares_one_node(count))
        self.inference = _Nodes(1, wanted)
        self.training = _Nodes(1, gpus - wanted)

    def _take_parts_of_nodes(self, config: Config) -> None:
        """Take nodes for inference, which need not use all their GPUs."""
        gpus = self._required(config, keys.INFERENCE_GPUS, "how many GPUs of a node generate")
        count = config[keys.INFERENCE_NODES] or 1
        self.inference = _Nodes(count, gpus)
        self.training = _Nodes(self.training.number - count, self.training.gpus)

    def _take_whole_nodes(self, config: Config) -> None:
        """Take nodes for inference, with all their GPUs."""
        whole = self.gpus_per_node
        left = self.training
        count = self._required(config, keys.INFERENCE_NODES, f"of {left.number} nodes, how many generate")
        gpus = self._required(config, keys.INFERENCE_GPUS, f"it must be {whole}, as cluster.gpus_per_node")
        if gpus not in (0, whole):
            config.faults.add(config.where(keys.INFERENCE_GPUS), faults.not_whole_nodes(gpus, whole))
        self.inference = _Nodes(count, left.gpus)
        self.training = _Nodes(left.number - count, left.gpus)

    def _required(self, config: Config, key: Key[int | None], what: str) -> int:
        """Return a size of inference, 0 if it is missing, which is a fault."""
        if config.stated(key):
            return config[key] or 0  # a value of another type is a fault already
        unknown = [str(fault.path) for fault in config.faults if fault.code == "unknown-key"]
        if any(path.startswith(keys.COLOCATED) for path in unknown):
            return 0  # it, or its section, is misspelt
        has_resources = bool(config.under(keys.RESOURCES).section)
        section = config.under(keys.RESOURCES if has_resources else keys.COLOCATED)
        config.faults.add(section.place, faults.no_size(key, what))
        return 0

    def _is_left(self, config: Config) -> bool:
        """Return whether nodes, and GPUs of each, are left for training; that none are is a fault."""
        if self.training.number < 1:
            counts = {"inference": self.inference.number, "the reward model": self.reward.number}
            counts |= {teacher.name: teacher.nodes.number for teacher in self.teachers}
            config.faults.add(self.num_nodes_at, faults.no_nodes_left(counts, self.num_nodes))
            return False
        if self.training.gpus < 1:
            counts = {"inference": self.inference.gpus, "the reward model": self.reward.gpus}
            config.faults.add(self.gpus_per_node_at, faults.no_gpus_left(counts, self.gpus_per_node))
            return False
        return True

    def _engine(self, config: Config) -> Engine:
        """Return the engines of vLLM, which Dynamo starts, too, or those of SGLang or TensorRT-LLM."""
        section, sizes = keys.ENGINES.get(self.backend, keys.ENGINES["vllm"])
        engine = config.under(section)
        tensor, pipeline, experts = (engine[sizes[kind]] for kind in ("tp", "pp", "ep"))
        tensor_key: Key[Any] = sizes["tp"]
        if self.backend == "sglang" and not engine.stated(tensor_key) and config.stated(keys.GPUS_PER_SERVER):
            tensor_key = keys.GPUS_PER_SERVER
            tensor = config[tensor_key] or 1
        total = tensor * pipeline
        text = f"{tensor_key.name} {tensor}"
        if pipeline > 1:
            text += f" x {sizes['pp'].name} {pipeline}"
        largest = engine.where(tensor_key if tensor >= pipeline else sizes["pp"])
        if self.backend == "sglang":
            stated = config[keys.SERVER_GPUS_PER_ENGINE]
            if stated not in (None, total):
                fault = faults.other_engine_size(stated, total)
                config.faults.add(config.where(keys.SERVER_GPUS_PER_ENGINE), fault)
        if self.backend == "trtllm" and pipeline > 1:
            config.faults.add(engine.where(sizes["pp"]), faults.trtllm_pipeline(sizes["pp"].name, pipeline))
        is_on_one_node = self.backend == "dynamo" or (self.backend == "trtllm" and self.colocated)
        per_node = self._generating.gpus
        if is_on_one_node and total > per_node > 0:
            config.faults.add(largest, faults.engine_on_one_node(total, text, self.backend, per_node))
        return Engine(total, text, engine_sizes(tensor, pipeline, experts), largest, engine.place)

    @property
    def _generating(self) -> _Nodes:
        """The nodes that generate."""
        return self.training if self.colocated else self.inference

    def _check_segments(self, config: Config) -> None:
        """Record a size of segments that does not divide the nodes of the training."""
        count = self.training.number
        if self.segment is not None and count % self.segment:
            config.faults.add(self.segment_at, faults.torn_segments(count, self.segment))

    def _check_gpus(self, config: Config) -> None:
        """Record teachers and a reward model that need more GPUs of a node than it has."""
        users = [("the reward model", self.reward.gpus, self.reward_gpus_at)]
        users += [(teacher.name, teacher.nodes.gpus, teacher.gpus_at) for teacher in self.teachers]
        for name, gpus, where in users:
            if gpus > self.gpus_per_node:
                config.faults.add(where, faults.too_many_gpus(name, gpus, self.gpus_per_node))

    def _read_sizes(self, config: Config) -> None:
        """Read the sizes of the models that train, of the reward model, and of a second policy that generates."""
        trained = ("policy", "value") if self.algorithm == "ppo" else ("policy",)
        self.trained_sizes = {name: _model_sizes(config, name) for name in trained}
        self.reward_sizes = _model_sizes(config, keys.REWARD) if self.reward.number else Sizes()
        self.mcore_sizes = Sizes()
        if self.generates and self.backend == "megatron":
            self.mcore_sizes = config.under(keys.MCORE).parallel(keys.MCORE_SIZES)

    def size(self) -> tuple[int, int]:
        """Return ``cluster.num_nodes`` and ``cluster.gpus_per_node``."""
        return self.num_nodes, self.gpus_per_node

    def inventory(self, inventory: Inventory, collector: Faults, *, pinned: bool) -> Inventory:
        """Return the nodes of the config, if it states segments of them."""
        if self.segment is None or self.num_nodes > inventory.num_nodes:
            return inventory
        return first_nodes(inventory, self.num_nodes)

    def node_order(self) -> NodeOrder | None:
        """Return ranks in the network: for segments, and for the nodes of one group, or else their Ray node ids."""
        if self._is_unified:
            return "topology-id"
        return None if self.segment is None else "topology"

    @property
    def _is_unified(self) -> bool:
        """Whether the engines' nodes are one group: SGLang's always, others if an engine needs several nodes."""
        if self.engine is None:
            return False
        return self.backend == "sglang" or self.engine.size > self._generating.gpus

    @property
    def _training_users(self) -> int:
        """The worker groups on each GPU of the training (``max_colocated_worker_groups``)."""
        if self.num_cross_teachers:
            return self.num_cross_teachers + 1
        if self.colocated and self.generates:
            return 3 if self.algorithm in ("ppo", "distillation") else 2
        if self.algorithm == "ppo":
            return 2
        return 3 if self.algorithm == "distillation" and not self.colocated else 1

    @property
    def _generating_users(self) -> int:
        """The worker groups on each GPU that generates."""
        if self.colocated:
            return self._training_users
        return 3 if self.algorithm == "distillation" else 1

    def place(self, placer: Placer) -> None:
        """Place ``policy``, ``generation``, ``value`` (PPO), ``teacher.NAME`` and ``reward_model``.

        Training has the first nodes, then inference, the teachers and the reward model.
        """
        self._state_segments(placer)
        cure = partial(self._smaller_nodes, placer.inventory)
        users = [*self.trained_sizes, "generation"] if self.colocated else list(self.trained_sizes)
        count, gpus = self.training.number, self.training.gpus
        training = placer.nodes(count, gpus, "training", self.num_nodes_at, cure=cure, users=users)
        is_unified = self.colocated and self._is_unified
        cpus = self._training_users
        self._ask(placer, "policy", training, self.training, _TRAINING, cpus, unified=is_unified)
        generating = training
        if not self.colocated:
            inference = self.inference
            generating = placer.nodes(
                inference.number, inference.gpus, "inference", self.inference_at, cure=cure, users=["generation"]
            )
            cpus = self._generating_users
            self._ask(placer, "generation", generating, inference, _INFERENCE, cpus, unified=self._is_unified)
        for name, sizes in self.trained_sizes.items():
            placer.component(name, training, sizes.where, sizes=sizes, share=placer.share(self._training_users))
        if self.generates:
            self._place_generation(placer, generating)
        for teacher in self.teachers:
            self._place_teacher(placer, teacher)
        if self.reward.number:
            self._place_reward_model(placer)
        placer.hold(Actors(_BUILDER, cpus=1, each_node=True, brief=True))

    def _state_segments(self, placer: Placer) -> None:
        """State the segments that must be in one domain: each teacher and engine is one, too."""
        if self.segment is None:
            return
        segments = {"policy": self.segment}
        segments |= {teacher.name: teacher.nodes.number for teacher in self.teachers}
        if self.inference.number and self.engine is not None:
            nodes_of_engine = -(-self.engine.size // self.inference.gpus)
            if nodes_of_engine > 1 and self.inference.number % nodes_of_engine == 0:
                segments["generation"] = nodes_of_engine
        placer.require(segment=segments, places={("segment",): self.segment_at})

    def _place_generation(self, placer: Placer, taken: Taken) -> None:
        """Place ``generation``: engines, or with Megatron a second policy."""
        share = placer.share(self._generating_users)
        if self.engine is None:
            sizes = self.mcore_sizes
            placer.component("generation", taken, sizes.where, sizes=sizes, share=share)
            return
        count = len(taken) if self.server_gpus is None else self.server_gpus
        if count > len(taken) > 0:
            placer.too_many(self.server_gpus_at, "sglang", count, len(taken), "the nodes of inference have")
            return
        engines = taken.slice(0, count)
        placer.engines("generation", engines, self._generating.gpus, self.engine, share)
        if self.backend == "sglang" and engines and not placer.faults:
            self._check_addresses(placer, engines, self.engine)

    def _check_addresses(self, placer: Placer, engines: Taken, engine: Engine) -> None:
        """Warn of an engine of SGLang that gets the address of another node, or the ports of another process."""
        gpus = self._generating.gpus
        each, together = min(engine.size, gpus), max(1, gpus // engine.size)
        help = "set cluster.gpus_per_node to the GPUs of a node"
        check_addresses(placer, "NeMo-RL", engines, each, together, gpus, engine.path, help)

    def _place_teacher(self, placer: Placer, teacher: _Teacher) -> None:
        """Place a teacher on nodes of its own."""
        taken = placer.nodes(teacher.nodes.number, teacher.nodes.gpus, teacher.name, teacher.count_at)
        self._ask(placer, teacher.name, taken, teacher.nodes, re.escape(teacher.name.replace(".", "_", 1)), 1)
        placer.component(teacher.name, taken, teacher.sizes.where, sizes=teacher.sizes, share=1.0)

    def _place_reward_model(self, placer: Placer) -> None:
        """Place the reward model on nodes of its own."""
        nodes = self.reward
        taken = placer.nodes(nodes.number, nodes.gpus, "the reward model", self.reward_at, users=["reward_model"])
        self._ask(placer, "reward_model", taken, self.reward, _REWARD, 1)
        sizes = self.reward_sizes
        placer.component("reward_model", taken, sizes.where, sizes=sizes, share=1.0)

    def _ask(
        self,
        placer: Placer,
        component: str,
        taken: Taken,
        nodes: _Nodes,
        cluster: str,
        cpus: int,
        *,
        unified: bool = False,
    ) -> None:
        """Record the requests for a cluster: a group a node, or one of all nodes (``RayVirtualCluster``).

        Each bundle has a CPU for each worker group that the cluster is made for.

        With segments, each group of a node asks for the domain of a certain rank in the network.
        """
        if unified:
            placer.ask(component, taken, name=f"{cluster}-unified", order="topology-id", cpus=cpus)
            return
        order: NodeOrder | None = None if self.segment is None else "topology"
        placer.ask(component, taken, per_group=nodes.gpus, name=f"{cluster}-node", order=order, cpus=cpus)

    def _smaller_nodes(self, inventory: Inventory) -> str | None:
        """Return how to write as many GPUs with fewer per node, if the cluster has them and engines stay whole."""
        if not self._uses_all_nodes or self.segment is not None or self.backend == "dynamo":
            return None
        engine = 1 if self.engine is None else self.engine.size
        largest = max(inventory.core.nodes_by_size())
        free = Free(inventory.core, inventory.excluded_accelerators)
        for gpus in range(self.gpus_per_node - 1, 0, -1):
            if self.gpus_per_node % gpus:
                continue
            times = self.gpus_per_node // gpus
            spans_nodes = engine % gpus == 0 and engine > largest
            engines_stay_whole = gpus % engine == 0 or spans_nodes
            if engines_stay_whole and free.bundles(gpus) >= self.num_nodes * times:
                return f"as many GPUs are free with {gpus} per node: set {self._written(gpus, times)}"
        return None

    @property
    def _uses_all_nodes(self) -> bool:
        """Whether training and inference alone have all nodes, with all their GPUs."""
        gpus = {self.training.gpus, self.inference.gpus or self.gpus_per_node}
        count = self.training.number + self.inference.number
        return gpus == {self.gpus_per_node} and count == self.num_nodes

    def _written(self, gpus: int, times: int) -> str:
        """Return what to write for ``times`` as many nodes with so many GPUs of each."""
        counts = {keys.CLUSTER: self.num_nodes}
        if not self.colocated:
            counts[keys.RESOURCES] = self.inference.number
        values = [f"{section}.num_nodes to {count * times}" for section, count in counts.items()]
        values += [f"{section}.gpus_per_node to {gpus}" for section in counts]
        return ", ".join(values)


def _has_reward_model(config: Config) -> bool:
    """Return whether a reward model is started: the data name it, or, without any name, it has a section.

    NeMo-RL: ``extract_necessary_env_names``.
    """
    environments = _environments(config)
    if not config.under(keys.REWARD).section or not config[keys.REWARD_ENABLED]:
        return False
    return "reward_model" in environments or not environments


def _environments(config: Config) -> set[str]:
    """Return the environments that the data sets name."""
    names = set()
    for key in keys.DATA:
        value = config[key]
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        for data_set in value if is_list else [value]:
            if isinstance(data_set, Mapping) and "env_name" in data_set:
                names.add(str(data_set["env_name"]))
    return names


def _teachers(config: Config) -> list[_Teacher]:
    """Return the teachers that have nodes of their own; agents with the same checkpoint share one."""
    if not (config[keys.TEACHERS_ENABLED] and config[keys.TEACHERS_APART]):
        return []
    is_shared = config[keys.SHARE_CHECKPOINTS]
    teachers: dict[str, _Teacher] = {}
    for agent, checkpoint in config.under(keys.CHECKPOINTS.path).section.items():
        shared_name = str(checkpoint) if is_shared else str(agent)
        if shared_name not in teachers:
            teachers[shared_name] = _teacher(config, str(agent))
    return list(teachers.values())


def _teacher(config: Config, agent: str) -> _Teacher:
    """Return the teacher of an agent: its own settings count first, and Megatron's in a section of their own."""
    own = config.under(keys.TEACHER_OVERRIDES.path).inner(agent)
    usual = config.under(keys.TEACHER)
    overrides = [own.inner(keys.MEGATRON_OVERRIDES), own, usual.inner(keys.MEGATRON_OVERRIDES)]
    teacher = config.under(keys.TEACHER, overrides=[part.section_path for part in overrides if part.section])
    return _Teacher(
        f"teacher.{agent}",
        _Nodes(teacher[keys.TEACHER_NODES], teacher[keys.TEACHER_GPUS]),
        teacher.parallel(keys.TEACHER_SIZES),
        teacher.where(keys.TEACHER_NODES),
        teacher.where(keys.TEACHER_GPUS),
    )


def _model_sizes(config: Config, section: str) -> Sizes:
    """Return the sizes of a model that Megatron or DTensor trains, as its section says."""
    model = config.under(section)
    if model[keys.MEGATRON_ENABLED] and model[keys.DTENSOR_ENABLED] and section != keys.REWARD:
        config.faults.add(model.where(keys.DTENSOR_ENABLED), faults.two_trainings(section))
    if model[keys.MEGATRON_ENABLED]:
        return config.under(f"{section}.megatron_cfg").parallel(keys.MEGATRON)
    if model[keys.DTENSOR_ENABLED]:
        return config.under(f"{section}.dtensor_cfg").parallel(keys.DTENSOR)
    return Sizes(where=model.place)

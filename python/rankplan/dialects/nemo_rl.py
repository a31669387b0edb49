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
from dataclasses import dataclass
from functools import partial

from rankplan._core import Free, Taken
from rankplan.dialects.placing.engines import Engine, engine_sizes
from rankplan.dialects.placing.job import Job
from rankplan.dialects.placing.placer import Placer
from rankplan.dialects.tables import NEMO_RL
from rankplan.errors import Diagnostic, KeyPath
from rankplan.nodes.facts import NO_FACTS
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import MEGATRON, NO_SIZES, Parallel
from rankplan.plans.requests import NodeOrder
from rankplan.plans.rules import NO_RULES, Rules
from rankplan.read.components import ASSUMED
from rankplan.read.text.reader import Reader
from rankplan.words import counted, must_be, path_text

__all__ = ["assumed_inventory", "node_order", "plan", "read"]

_CLUSTER: KeyPath = ("cluster",)
_GENERATION: KeyPath = ("policy", "generation")
_COLOCATED: KeyPath = (*_GENERATION, "colocated")
_PREFIX = path_text(_COLOCATED)
_RESOURCES: KeyPath = (*_COLOCATED, "resources")
_MCORE: KeyPath = (*_GENERATION, "mcore_generation_config")
_SGLANG: KeyPath = (*_GENERATION, "sglang_cfg")
_SERVER: KeyPath = (*_SGLANG, "sglang_server_config")
_REWARD: KeyPath = ("env", "reward_model")
_OPD: KeyPath = ("on_policy_distillation",)
_APART: KeyPath = (*_OPD, "non_colocated_teachers")
_STUDENT: KeyPath = ("policy", "megatron_cfg")
_KEYS = tuple(key for keys in MEGATRON.values() for key in keys)
_DTENSOR = {"tp": ("tensor_parallel_size",), "cp": ("context_parallel_size",)}

_TRAINING = "(.*_)?(policy|train|dpo|rm|sft|distillation)_cluster"
_INFERENCE = "(.*_)?(generation|inference)_cluster"
"""The names of the clusters of nodes; each algorithm puts its own before them."""

_ALGORITHMS = ("async_rl", "ppo", "distillation", "grpo", "dpo", "rm", "sft")
"""The sections that name an algorithm; of several, the first counts."""
_BACKENDS = {
    "grpo": ("vllm, sglang, megatron or trtllm", "vllm, megatron, trtllm or dynamo"),
    "async_rl": ("vllm or sglang", "vllm or sglang"),
    "ppo": ("vllm or sglang", "vllm"),
    "distillation": ("vllm or megatron", "vllm"),
}
"""What an algorithm generates with on the nodes of the training, and on nodes of its own."""


@dataclass(frozen=True, slots=True)
class _Teacher:
    """A teacher on nodes of its own: its component, nodes, GPUs of each node, and sizes with their path."""

    name: str
    nodes: int
    each: int
    sizes: Parallel
    path: KeyPath


class _Job(Job):
    """The nodes of training, of inference, of the teachers and of the reward model in a NeMo-RL config."""

    name, keys = "nemo_rl", NEMO_RL

    def __init__(self, reader: Reader) -> None:
        self.nodes, self.each = reader.size((*_CLUSTER, "num_nodes"), 1), reader.size((*_CLUSTER, "gpus_per_node"), 1)
        self.segmented = reader.at((*_CLUSTER, "segment_size")) is not None
        self.algorithm = next((name for name in _ALGORITHMS if name in reader.content), "")
        students = reader.content.get("teachers")  # cross-tokenizer distillation: every teacher is on every GPU
        self.students = len(students) if isinstance(students, Sequence) and not isinstance(students, str) else 0
        trains_only = self.students or self.algorithm in ("dpo", "rm", "sft")
        generation = {} if trains_only else reader.section_at(_GENERATION)
        self.backend = str(reader.at((*_GENERATION, "backend")) or "vllm") if generation else ""
        self.colocated = not generation or reader.switch((*_COLOCATED, "enabled"), default=True)
        self.generating = bool(generation) and not (self.backend == "megatron" and self.colocated)  # the policy does
        self._check_backend(reader)
        self.reward, self.teachers = (0, 0), _teachers(reader) if self.algorithm in ("", "grpo") else []
        if self.algorithm in ("", "grpo", "ppo") and generation and _rewarded(reader):
            nodes = reader.size((*_REWARD, "resources", "num_nodes"), 1)
            self.reward = nodes, reader.size((*_REWARD, "resources", "gpus_per_node"), self.each)
        left = self.nodes - sum(teacher.nodes for teacher in self.teachers)
        alone = self.nodes == 1 and self.reward[0] > 0
        self.training, self.inference = (left - (0 if alone else self.reward[0]), self.each), (0, 0)
        if alone:
            self.training = (left, self.each - self.reward[1])
        if self._is_left(reader) and not self.colocated:
            self._divide(reader)
            self._is_left(reader)
        self.engine = self._engine(reader) if self.generating and self.backend != "megatron" else None
        self._check(reader)

    def _check_backend(self, reader: Reader) -> None:
        allowed = _BACKENDS.get(self.algorithm, ("", ""))[not self.colocated]
        if self.backend and allowed and self.backend not in allowed.replace(",", "").split():
            where = "on the nodes of the training" if self.colocated else "on nodes of its own"
            allowed = f"{allowed}: {self.algorithm} generates with nothing else {where}"
            reader.add((*_GENERATION, "backend"), must_be(("backend",), self.backend, allowed, "change the backend"))

    def _divide(self, reader: Reader) -> None:
        """Divide nodes between training and inference; of a single one, the GPUs."""
        nodes, each = self.training
        if nodes == 1:
            wanted = self._required(reader, "gpus_per_node", f"of the {each} GPUs of the node, how many generate")
            if reader.at((*_RESOURCES, "num_nodes")) not in (None, 1):
                rule = "must be 1 or null: training and inference share one node"
                self._refuse(reader, "num_nodes", rule, "write null")
            self.inference, self.training = (1, wanted), (1, each - wanted)
        elif self.algorithm == "async_rl":
            gpus = self._required(reader, "gpus_per_node", "how many GPUs of a node generate")
            self.inference = reader.size((*_RESOURCES, "num_nodes"), 1), gpus
            self.training = nodes - self.inference[0], each
        else:
            wanted = self._required(reader, "num_nodes", f"of {nodes} nodes, how many generate")
            gpus = self._required(reader, "gpus_per_node", f"it must be {self.each}, as cluster.gpus_per_node")
            if gpus not in (0, self.each):
                rule = f"must be cluster.gpus_per_node, which is {self.each}"
                self._refuse(reader, "gpus_per_node", rule, f"write {self.each}")
            self.inference, self.training = (wanted, each), (nodes - wanted, each)

    def _required(self, reader: Reader, key: str, what: str) -> int:
        if reader.at((*_RESOURCES, key)) is None:
            if any(fault.code == "unknown-key" and str(fault.path).startswith(_PREFIX) for fault in reader.faults):
                return 0  # it, or its section, is misspelt
            help = f"add {path_text(_RESOURCES)}.{key}"
            fault = Diagnostic("missing-key", f"`{key}` is missing: {what}", help)
            reader.add(_RESOURCES if reader.section_at(_RESOURCES) else _COLOCATED, fault)
            return 0
        return reader.size((*_RESOURCES, key), 0)

    def _refuse(self, reader: Reader, key: str, message: str, help: str) -> None:
        value = reader.at((*_RESOURCES, key))
        reader.add((*_RESOURCES, key), Diagnostic("invalid-value", f"`{key}` is {value}; it {message}", help))

    def _is_left(self, reader: Reader) -> bool:
        """Return whether nodes, and GPUs of each, are left for training; that none are is a fault."""
        nodes, each = self.training
        if nodes >= 1 and each >= 1:
            return True
        key, what = ("num_nodes", "nodes") if nodes < 1 else ("gpus_per_node", "GPUs of the node")
        total, index = (self.nodes, 0) if nodes < 1 else (self.each, 1)
        parts = {"inference": self.inference[index], "the reward model": self.reward[index]}
        if nodes < 1:
            parts |= {teacher.name: teacher.nodes for teacher in self.teachers}
        taken = " and ".join(f"{name} takes {count}" for name, count in parts.items() if count)
        message = f"no {what} are left for training: {taken} of {total}"
        fault = Diagnostic("empty-placement", message, f"raise {key}, or lower those of the others")
        reader.add((*_CLUSTER, key), fault)
        return False

    def _check(self, reader: Reader) -> None:
        if reader.faults:
            return
        (nodes, _), segment = self.training, reader.size((*_CLUSTER, "segment_size"), 1)
        if nodes % segment:
            message = f"training has {counted(nodes, 'node')}, which cannot be divided into segments of {segment}"
            reader.add((*_CLUSTER, "segment_size"), Diagnostic("not-multiple", message, f"use a divisor of {nodes}"))
        needs = [("the reward model", self.reward[1], (*_REWARD, "resources", "gpus_per_node"))]
        needs += [(one.name, one.each, _given(reader, _sections(one.name), "gpus_per_node")) for one in self.teachers]
        for name, gpus, path in needs:
            if gpus > self.each:
                message = f"{name} needs {gpus} GPUs of a node, but cluster.gpus_per_node is {self.each}"
                reader.add(path, Diagnostic("resource-out-of-range", message, f"use at most {self.each}"))

    def size(self) -> tuple[int, int]:
        """Return ``cluster.num_nodes`` and ``cluster.gpus_per_node``."""
        return self.nodes, self.each

    def inventory(self, reader: Reader, inventory: Inventory) -> Inventory:
        """Return the nodes of the config, if it states segments of them."""
        if not self.segmented or self.nodes > inventory.num_nodes:
            return inventory
        return inventory.with_facts(NO_FACTS, self.nodes)

    def _rules(self, reader: Reader) -> Rules:
        """Return the segments that must be in one domain: each teacher and engine is one, too."""
        if not self.segmented:
            return NO_RULES
        segments = {"policy": reader.size((*_CLUSTER, "segment_size"), 1)}
        segments |= {teacher.name: teacher.nodes for teacher in self.teachers}
        if self.inference[0] and self.engine is not None:
            nodes = -(-self.engine.size // self.inference[1])
            segments |= {"generation": nodes} if nodes > 1 and self.inference[0] % nodes == 0 else {}
        return Rules(segment=segments, places={("segment",): reader.where((*_CLUSTER, "segment_size"))})

    def place(self, placer: Placer) -> None:
        """Place ``policy``, ``generation``, ``value`` (PPO), ``teacher.NAME`` and ``reward_model``.

        Training has the first nodes, then inference, the teachers and the reward model.
        """
        reader = placer.reader
        placer.rules = self._rules(reader)
        smaller = partial(self._smaller, placer.inventory)
        nodes, per_node = self.training
        training = placer.nodes(nodes, per_node, "training", (*_CLUSTER, "num_nodes"), cure=smaller)
        self._ask(placer, "policy", training, per_node, _TRAINING, unified=self.colocated and self._unified)
        if self.colocated:
            generating = training
        else:
            nodes, per_node = self.inference
            generating = placer.nodes(nodes, per_node, "inference", _RESOURCES, cure=smaller)
            self._ask(placer, "generation", generating, per_node, _INFERENCE, unified=self._unified)
        trained, generated = self._users
        for name in ("policy", "value") if self.algorithm == "ppo" else ("policy",):
            sizes, path = _training(reader, (name,))
            placer.component(name, training, path, sizes=sizes, share=placer.share(trained))
        if self.generating:
            self._generate(placer, generating, per_node, placer.share(trained if self.colocated else generated))
        for one in self.teachers:
            where = _given(reader, _sections(one.name), "num_nodes")
            taken = placer.nodes(one.nodes, one.each, one.name, where)
            self._ask(placer, one.name, taken, one.each, re.escape(one.name.replace(".", "_", 1)))
            placer.component(one.name, taken, one.path, sizes=one.sizes, share=1.0)
        if self.reward[0]:
            nodes, per_node = self.reward
            taken = placer.nodes(nodes, per_node, "the reward model", (*_REWARD, "resources"))
            self._ask(placer, "reward_model", taken, per_node, "(.*_)?reward_model_cluster")
            placer.component("reward_model", taken, _REWARD, sizes=_training(reader, _REWARD)[0], share=1.0)

    def _ask(
        self, placer: Placer, component: str, taken: Taken, per_node: int, cluster: str, *, unified: bool = False
    ) -> None:
        """Record the requests for a cluster: a group a node, or one of all nodes (``RayVirtualCluster``).

        With segments, each group of a node asks for the domain of a certain rank in the network.
        """
        if unified:
            placer.ask(component, taken, name=f"{cluster}-unified", order="topology-id")
            return
        order: NodeOrder | None = "topology" if self.segmented else None
        placer.ask(component, taken, per_group=per_node, name=f"{cluster}-node", order=order)

    def _smaller(self, inventory: Inventory) -> str | None:
        """Return how to write as many GPUs with fewer per node, if the cluster has them and engines stay whole."""
        nodes, gpus = self.training[0] + self.inference[0], {self.training[1], self.inference[1] or self.each}
        engine = 1 if self.engine is None else self.engine.size
        free = Free(inventory.core, inventory.excluded_accelerators)
        largest = max(inventory.core.nodes_by_size())
        if gpus != {self.each} or nodes != self.nodes or self.segmented or self.backend == "dynamo":
            return None
        for each in (size for size in range(self.each - 1, 0, -1) if self.each % size == 0):
            times = self.each // each
            whole = each % engine == 0 or (engine % each == 0 and engine > largest)
            if whole and free.bundles(each) >= nodes * times:
                keys = {_CLUSTER: nodes} if self.colocated else {_CLUSTER: nodes, _RESOURCES: self.inference[0]}
                written = [f"{path_text(path)}.num_nodes to {count * times}" for path, count in keys.items()]
                written += [f"{path_text(path)}.gpus_per_node to {each}" for path in keys]
                return f"as many GPUs are free with {each} per node: set {', '.join(written)}"
        return None

    @property
    def _unified(self) -> bool:
        """Whether the engines' nodes are one group: SGLang's always, others if an engine needs several nodes."""
        per_node = self.training[1] if self.colocated else self.inference[1]
        return self.engine is not None and (self.backend == "sglang" or self.engine.size > per_node)

    def node_order(self) -> NodeOrder | None:
        """Return ranks in the network: for segments, and for the nodes of one group, or else their Ray node ids."""
        return "topology-id" if self._unified else "topology" if self.segmented else None

    @property
    def _users(self) -> tuple[int, int]:
        """The worker groups on each GPU of the training, and of inference alone (``max_colocated_worker_groups``)."""
        if self.students:
            return self.students + 1, 0
        if self.colocated and self.generating:
            return {"ppo": 3, "distillation": 3}.get(self.algorithm, 2), 0
        alone = {"ppo": 2, "distillation": 1 if self.colocated else 3}.get(self.algorithm, 1)
        return alone, 3 if self.algorithm == "distillation" else 1

    def _generate(self, placer: Placer, taken: Taken, per_node: int, share: float) -> None:
        """Place ``generation``: engines, or with Megatron a second policy."""
        reader = placer.reader
        if self.backend == "megatron":
            parallel, path = _merged(reader, (_MCORE,), _KEYS)
            placer.component("generation", taken, path, sizes=parallel, share=share)
        elif self.engine is not None:
            count = len(taken)
            if self.backend == "sglang" and (count := reader.size((*_SERVER, "num_gpus"), count)) > len(taken) > 0:
                placer.too_many((*_SERVER, "num_gpus"), "sglang", count, len(taken), "the nodes of inference have")
            else:
                placer.engines("generation", taken.slice(0, count), per_node, self.engine, share)

    def _engine(self, reader: Reader) -> Engine:
        """Return the engines of vLLM, which Dynamo starts, too, or those of SGLang or TensorRT-LLM."""
        section: KeyPath = (*_GENERATION, "trtllm_cfg" if self.backend == "trtllm" else "vllm_cfg")
        names = ["tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size"]
        if self.backend == "sglang":
            section, names = _SGLANG, ["tp_size", "pp_size", "ep_size"]
        elif self.backend == "trtllm":
            names[2] = "moe_expert_parallel_size"
        tp, pp, experts = (reader.size((*section, name), 1) for name in names)
        keys = f"{names[0]} {tp}" + (f" x {names[1]} {pp}" if pp > 1 else "")
        path = (*section, names[0] if tp >= pp else names[1])
        if self.backend == "sglang":
            engine: KeyPath = (*_SERVER, "num_gpus_per_engine")
            if (size := reader.size(engine, tp * pp)) != tp * pp:
                reader.add(engine, must_be(engine, size, f"tp_size x pp_size, which is {tp * pp}", f"write {tp * pp}"))
        if self.backend == "trtllm" and pp > 1:
            reader.add((*section, names[1]), must_be((names[1],), pp, "1 with trtllm", "write 1"))
        per_node = self.training[1] if self.colocated else self.inference[1]
        if tp * pp > per_node > 0 and (self.backend == "dynamo" or (self.backend == "trtllm" and self.colocated)):
            message = f"an engine of {tp * pp} GPUs ({keys}) needs several nodes, but {self.backend} starts it on one"
            reader.add(path, Diagnostic("spans-nodes", message, f"use at most {per_node}"))
        return Engine(tp * pp, keys, engine_sizes(tp, pp, experts), path, section)


read, plan, assumed_inventory, node_order = _Job.read, _Job.plan, _Job.assumed_inventory, _Job.order


def _rewarded(reader: Reader) -> bool:
    """Return whether a reward model is started: the data name it, or, without any name, it has a section.

    NeMo-RL: ``extract_necessary_env_names``.
    """
    named: set[str] = set()
    for key in ("train", "validation", "default"):
        value = reader.at(("data", key))
        parts = [value] if isinstance(value, Mapping | str) or not isinstance(value, Sequence) else value
        named |= {str(part["env_name"]) for part in parts if isinstance(part, Mapping) and "env_name" in part}
    if not reader.section_at(_REWARD) or not reader.switch((*_REWARD, "enabled"), default=True):
        return False
    return "reward_model" in named or not named


def _teachers(reader: Reader) -> list[_Teacher]:
    """Return the teachers that have nodes of their own; agents with the same checkpoint share one."""
    if not (reader.switch((*_OPD, "enabled")) and reader.switch((*_APART, "enabled"))):
        return []
    shared = reader.switch((*_OPD, "deduplicate_shared_teacher_checkpoints"), default=True)
    found: dict[str, _Teacher] = {}
    for agent, checkpoint in reader.section_at((*_OPD, "teacher_model_by_agent_name")).items():
        if shared and str(checkpoint) in found:
            continue
        name = f"teacher.{agent}"
        sections = _sections(name)
        nodes = reader.size(_given(reader, sections, "num_nodes"), 1)
        each = reader.size(_given(reader, sections, "gpus_per_node"), ASSUMED)
        sizes, path = _merged(reader, sections, ("expert_tensor_parallel_size",))
        found[str(checkpoint) if shared else name] = _Teacher(name, nodes, each, sizes, path)
    return list(found.values())


def _sections(teacher: str) -> tuple[KeyPath, ...]:
    """Return the sections with the settings of a teacher, the ones that count first."""
    own: KeyPath = (*_APART, "teacher_overrides", teacher.removeprefix("teacher."))
    default: KeyPath = (*_APART, "default_teacher_cfg")
    return tuple(path for section in (own, default) for path in ((*section, "megatron_cfg_overrides"), section))


def _given(reader: Reader, sections: Sequence[KeyPath], key: str) -> KeyPath:
    """Return the path of a key in the first section that has it, else in the last one."""
    return next(((*one, key) for one in sections if reader.at((*one, key)) is not None), (*sections[-1], key))


def _merged(reader: Reader, sections: Sequence[KeyPath], inherited: Sequence[str]) -> tuple[Parallel, KeyPath]:
    """Return sizes, each of the first section that states it, and the first section of one.

    The ``inherited`` keys may be those of the policy.
    """
    paths = [_given(reader, (*sections, _STUDENT) if key in inherited else sections, key) for key in _KEYS]
    values = {str(path[-1]): reader.at(path) for path in paths}
    where = next((path[:-1] for path in paths if values[str(path[-1])] is not None), sections[-1])
    return reader.sizes_in(values, MEGATRON, where) or NO_SIZES, where


def _training(reader: Reader, path: KeyPath) -> tuple[Parallel, KeyPath]:
    for name, keys in (("megatron_cfg", MEGATRON), ("dtensor_cfg", _DTENSOR)):
        if reader.section_at((*path, name)) and reader.switch((*path, name, "enabled")):
            return reader.sizes((*path, name), keys), (*path, name)
    return NO_SIZES, path

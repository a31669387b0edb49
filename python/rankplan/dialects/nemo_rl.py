"""NeMo-RL: whole nodes for the reward model and for inference, and the other nodes for training.

With ``policy.generation.colocated.enabled``, the policy and its engines share all nodes that the reward model leaves.
Otherwise the engines have ``colocated.resources.num_nodes`` nodes of their own; where one node is left for both, they
have ``resources.gpus_per_node`` of its GPUs, and the training has the first ones. ``defaults`` names a file to extend.

Follows ``setup`` of NeMo-RL's ``algorithms/grpo.py``, and ``RayVirtualCluster`` (7ea279a).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from rankplan.config.text.document import Section
from rankplan.config.text.faults import KeyPath
from rankplan.config.text.load import inherited, load_config
from rankplan.config.text.reader import Config, Reader
from rankplan.dialects.keys import NEMO_RL
from rankplan.dialects.pools import Engine, Job, Pools, engine_sizes
from rankplan.errors import Diagnostic
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import MEGATRON, NO_SIZES, Parallel
from rankplan.words import counted, path_text

__all__ = ["assumed_inventory", "plan", "read"]

_CLUSTER: KeyPath = ("cluster",)
_COLOCATED: KeyPath = ("policy", "generation", "colocated")
_PREFIX = path_text(_COLOCATED)
_RESOURCES: KeyPath = (*_COLOCATED, "resources")
_ENGINE: KeyPath = ("policy", "generation", "vllm_cfg")
_MCORE: KeyPath = ("policy", "generation", "mcore_generation_config")
_REWARD: KeyPath = ("env", "reward_model")
_TEACHERS: KeyPath = ("on_policy_distillation", "non_colocated_teachers")
_DTENSOR = {"tp": ("tensor_parallel_size",), "cp": ("context_parallel_size",)}
_GROUPS = {"ppo": 3, "distillation": 3}
"""Worker groups on a colocated node by algorithm: 2 for the others, and 1 without engines."""


class _Job(Job):
    """The nodes of training, of inference and of the reward model in a NeMo-RL config."""

    keys = NEMO_RL

    def __init__(self, reader: Reader) -> None:
        self.nodes, self.each = reader.size((*_CLUSTER, "num_nodes"), 1), reader.size((*_CLUSTER, "gpus_per_node"), 1)
        self.algorithm = next((name for name in _GROUPS if name in reader.content), "")
        generation = reader.section_at(("policy", "generation"))
        self.megatron = reader.at(("policy", "generation", "backend")) == "megatron"
        self.colocated = not generation or reader.switch((*_COLOCATED, "enabled"), default=True)
        self.generating = bool(generation) and not (self.megatron and self.colocated)  # there, the policy generates
        rewarded = bool(reader.section_at(_REWARD)) and reader.switch((*_REWARD, "enabled"), default=True)
        self.reward = (0, 0)
        if rewarded:
            nodes = reader.size((*_REWARD, "resources", "num_nodes"), 1)
            self.reward = nodes, reader.size((*_REWARD, "resources", "gpus_per_node"), self.each)
        self.training, self.inference = (self.nodes - self.reward[0], self.each), (0, 0)
        if self.nodes == 1 and rewarded:
            self.training = (1, self.each - self.reward[1])
        if not self.colocated:
            self._divide(reader)
        if reader.switch((*_TEACHERS[:1], "enabled")) and reader.switch((*_TEACHERS, "enabled")):
            message = "teachers of on-policy distillation have nodes of their own, which rankplan does not plan"
            help = "set `enabled: false` here and leave their nodes out of `cluster.num_nodes` to plan the other roles"
            reader.add((*_TEACHERS, "enabled"), Diagnostic("invalid-value", message, help))
        self._check(reader)

    def _divide(self, reader: Reader) -> None:
        """Divide nodes between training and inference; of a single one, the GPUs."""
        nodes, each = self.training
        if nodes == 1:
            wanted = self._required(reader, "gpus_per_node", f"of the {each} GPUs of the node, how many generate")
            if reader.at((*_RESOURCES, "num_nodes")) not in (None, 1):
                rule = "must be 1 or null: training and inference share one node"
                self._refuse(reader, "num_nodes", rule, "write null")
            self.inference, self.training = (1, wanted), (1, each - wanted)
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

    def _check(self, reader: Reader) -> None:
        if reader.faults:
            return
        (nodes, each), segment = self.training, reader.size((*_CLUSTER, "segment_size"), 1)
        if nodes < 1 or each < 1:
            key, what = ("num_nodes", "nodes") if nodes < 1 else ("gpus_per_node", "GPUs of the node")
            total = self.nodes if nodes < 1 else self.each
            parts = {"inference": self.inference[nodes >= 1], "the reward model": self.reward[nodes >= 1]}
            taken = " and ".join(f"{name} takes {count}" for name, count in parts.items() if count)
            message = f"no {what} are left for training: {taken} of {total}"
            fault = Diagnostic("empty-placement", message, f"raise {key}, or lower those of the others")
            reader.add((*_CLUSTER, key), fault)
        elif nodes % segment:
            message = f"training has {counted(nodes, 'node')}, which cannot be divided into segments of {segment}"
            reader.add((*_CLUSTER, "segment_size"), Diagnostic("not-multiple", message, f"use a divisor of {nodes}"))
        if self.reward[1] > self.each:
            needs = f"the reward model needs {self.reward[1]} GPUs of a node"
            message = f"{needs}, but cluster.gpus_per_node is {self.each}"
            fault = Diagnostic("resource-out-of-range", message, f"use at most {self.each}")
            reader.add((*_REWARD, "resources", "gpus_per_node"), fault)

    def size(self) -> tuple[int, int]:
        """Return ``cluster.num_nodes`` and ``cluster.gpus_per_node``."""
        return self.nodes, self.each

    @classmethod
    def read(cls, config: Config | Reader) -> Reader:
        """Read a config and the files that it extends; one that is already read is returned.

        Raises `PlacementError` if it is not a mapping, or a file cannot be read.
        """
        content = config if isinstance(config, Mapping | Reader) else load_config(config)
        return super().read(inherited(content) if isinstance(content, Section) else content)

    def inventory(self, reader: Reader, inventory: Inventory) -> Inventory:
        """Return the nodes with the segments that must be in one domain: an engine on several nodes is one, too."""
        if reader.at((*_CLUSTER, "segment_size")) is None or self.nodes > inventory.num_nodes:
            return inventory
        segments = {"policy": reader.size((*_CLUSTER, "segment_size"), 1)}
        if self.inference[0] and self.generating:
            section, end = self._engine_keys
            size = prod(reader.size((*section, f"{kind}_{end}"), 1) for kind in ("tensor", "pipeline"))
            nodes = -(-size // self.inference[1])
            segments |= {"generation": nodes} if nodes > 1 and self.inference[0] % nodes == 0 else {}
        topology = {"segment": segments}
        return inventory.with_config({"num_nodes": self.nodes, "component_placement": {}, "topology": topology})

    def place(self, pools: Pools) -> None:
        """Place ``policy``, ``generation``, ``value`` (PPO) and ``reward_model``.

        Training has the first nodes, then inference, then the reward model.
        """
        reader = pools.reader
        training = pools.nodes(*self.training, "training", (*_CLUSTER, "num_nodes"))
        inference = [] if self.colocated else pools.nodes(*self.inference, "inference", _RESOURCES)
        reward = pools.nodes(*self.reward, "the reward model", (*_REWARD, "resources")) if self.reward[0] else []
        groups = {"ppo": 2, "distillation": 3 - 2 * self.megatron}.get(self.algorithm, 1)
        if self.colocated and self.generating:
            groups = _GROUPS.get(self.algorithm, 2)
        for name in ("policy", "value") if self.algorithm == "ppo" else ("policy",):
            sizes, path = _training(reader, (name,))
            pools.place(name, training, path, parallel=sizes, share=pools.share(groups))
        if self.generating and (inference or training):
            alone = 3 if self.algorithm == "distillation" else 1
            taken, per_node = (training, self.training[1]) if self.colocated else (inference, self.inference[1])
            share = pools.share(groups if self.colocated else alone)
            pools.engines("generation", taken, per_node, self._engine(reader), share)
        pools.place("reward_model", reward, _REWARD, parallel=_training(reader, _REWARD)[0], share=1.0)

    @property
    def _engine_keys(self) -> tuple[KeyPath, str]:
        """The section with the sizes of an engine, and the end of their keys."""
        return (_MCORE, "model_parallel_size") if self.megatron else (_ENGINE, "parallel_size")

    def _engine(self, reader: Reader) -> Engine:
        section, end = self._engine_keys
        tp, pp, experts = (reader.size((*section, f"{kind}_{end}"), 1) for kind in ("tensor", "pipeline", "expert"))
        keys = f"tensor_{end} {tp}" + (f" x pipeline_{end} {pp}" if pp > 1 else "")
        path = (*section, f"tensor_{end}" if tp >= pp else f"pipeline_{end}")
        return Engine(tp * pp, keys, engine_sizes(tp, pp, experts), path, section)


read, plan, assumed_inventory = _Job.read, _Job.plan, _Job.assumed_inventory


def _training(reader: Reader, path: KeyPath) -> tuple[Parallel, KeyPath]:
    for name, keys in (("megatron_cfg", MEGATRON), ("dtensor_cfg", _DTENSOR)):
        if reader.section_at((*path, name)) and reader.switch((*path, name, "enabled")):
            return reader.sizes((*path, name), keys), (*path, name)
    return NO_SIZES, path

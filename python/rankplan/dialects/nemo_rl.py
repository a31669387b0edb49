"""NeMo-RL: whole nodes for the reward model and for inference, and the other nodes for training.

With ``policy.generation.colocated.enabled``, the policy and its engines share all nodes that the reward model leaves.
Otherwise the engines have ``colocated.resources.num_nodes`` nodes of their own; where one node is left for both, they
have ``resources.gpus_per_node`` of its GPUs, and the training has the first ones. ``defaults`` names a file to extend.

Follows ``setup`` of NeMo-RL's ``algorithms/grpo.py``, and ``RayVirtualCluster``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from rankplan.config.text.document import Section
from rankplan.config.text.faults import KeyPath
from rankplan.config.text.inherit import inherited
from rankplan.config.text.load import load_config
from rankplan.config.text.reader import Config, Reader
from rankplan.dialects.keys import NEMO_RL
from rankplan.dialects.pools import Pools, engine_faults, engine_sizes
from rankplan.errors import Diagnostic
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import MEGATRON, NO_SIZES, Parallel
from rankplan.plans.configured import assumed, for_inventory
from rankplan.plans.plan import Plan
from rankplan.words import counted, path_text

__all__ = ["assumed_inventory", "plan", "read", "recognised"]

_CLUSTER: KeyPath = ("cluster",)
_COLOCATED: KeyPath = ("policy", "generation", "colocated")
_PREFIX = path_text(_COLOCATED)
_RESOURCES: KeyPath = (*_COLOCATED, "resources")
_ENGINE: KeyPath = ("policy", "generation", "vllm_cfg")
_MCORE: KeyPath = ("policy", "generation", "mcore_generation_config")
_REWARD: KeyPath = ("env", "reward_model")
_TEACHERS: KeyPath = ("on_policy_distillation", "non_colocated_teachers")
_SIZE = ("num_nodes", "gpus_per_node")
_DTENSOR = {"tp": ("tensor_parallel_size",), "cp": ("context_parallel_size",)}
_GROUPS = {"ppo": 3, "distillation": 3}
"""Worker groups on a colocated node by algorithm: 2 for the others, and 1 without engines."""


class _Job:
    """The nodes of training, of inference and of the reward model in a NeMo-RL config."""

    def __init__(self, reader: Reader) -> None:
        self.nodes, self.each = reader.size((*_CLUSTER, "num_nodes"), 1), reader.size((*_CLUSTER, "gpus_per_node"), 1)
        self.algorithm = next((name for name in _GROUPS if name in reader.content), "")
        generation = reader.section_at(("policy", "generation"))
        self.megatron = reader.at(("policy", "generation", "backend")) == "megatron"
        self.colocated = not generation or reader.switch((*_COLOCATED, "enabled"), default=True)
        self.generating = bool(generation) and not (self.megatron and self.colocated)  # there, the policy generates
        rewarded = bool(reader.section_at(_REWARD)) and reader.switch((*_REWARD, "enabled"), default=True)
        self.reward = self._resources(reader, (*_REWARD, "resources"), 1, self.each) if rewarded else (0, 0)
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

    def _resources(self, reader: Reader, path: KeyPath, nodes: int, each: int) -> tuple[int, int]:
        return reader.size((*path, "num_nodes"), nodes), reader.size((*path, "gpus_per_node"), each)

    def _divide(self, reader: Reader) -> None:
        """Divide nodes between training and inference; of a single one, the GPUs."""
        nodes, each = self.training
        stated = {key: reader.at((*_RESOURCES, key)) for key in _SIZE}
        if nodes == 1:
            wanted = self._required(reader, "gpus_per_node", f"of the {each} GPUs of the node, how many generate")
            if stated["num_nodes"] not in (None, 1):
                self._refuse(
                    reader, "num_nodes", "must be 1 or null: training and inference share one node", "write null"
                )
            self.inference, self.training = (1, wanted), (1, each - wanted)
        else:
            wanted = self._required(reader, "num_nodes", f"of {nodes} nodes, how many generate")
            if self._required(reader, "gpus_per_node", f"it must be {self.each}, as cluster.gpus_per_node") not in (
                0,
                self.each,
            ):
                self._refuse(
                    reader,
                    "gpus_per_node",
                    f"must be cluster.gpus_per_node, which is {self.each}",
                    f"write {self.each}",
                )
            self.inference, self.training = (wanted, each), (nodes - wanted, each)

    def _required(self, reader: Reader, key: str, what: str) -> int:
        if reader.at((*_RESOURCES, key)) is None:
            if any(fault.code == "unknown-key" and str(fault.path).startswith(_PREFIX) for fault in reader.faults):
                return 0  # it, or its section, is misspelt
            fault = Diagnostic(
                "missing-key", f"`{key}` is missing: {what}", f"add policy.generation.colocated.resources.{key}"
            )
            reader.add(_RESOURCES if reader.section_at(_RESOURCES) else _COLOCATED, fault)
            return 0
        return reader.size((*_RESOURCES, key), 0)

    def _refuse(self, reader: Reader, key: str, message: str, help: str) -> None:
        value = reader.at((*_RESOURCES, key))
        reader.add((*_RESOURCES, key), Diagnostic("invalid-value", f"`{key}` is {value}; it {message}", help))

    @property
    def engine(self) -> tuple[KeyPath, str]:
        """The section with the sizes of an engine, and the end of their keys."""
        return (_MCORE, "model_parallel_size") if self.megatron else (_ENGINE, "parallel_size")

    def segments(self, reader: Reader) -> dict[str, int]:
        """Return the nodes that must be in one domain, by component; an engine on several nodes is a segment too."""
        if reader.faults or reader.at((*_CLUSTER, "segment_size")) is None:
            return {}
        sizes = {"policy": reader.size((*_CLUSTER, "segment_size"), 1)}
        if self.inference[0] and self.generating:
            section, middle = self.engine
            size = prod(reader.size((*section, f"{kind}_{middle}"), 1) for kind in ("tensor", "pipeline"))
            nodes = -(-size // self.inference[1])
            sizes |= {"generation": nodes} if nodes > 1 and self.inference[0] % nodes == 0 else {}
        return sizes

    def _check(self, reader: Reader) -> None:
        if reader.faults:
            return
        path: KeyPath = _CLUSTER
        (nodes, each), segment = self.training, reader.size((*_CLUSTER, "segment_size"), 1)
        if nodes < 1 or each < 1:
            key, what = ("num_nodes", "nodes") if nodes < 1 else ("gpus_per_node", "GPUs of the node")
            total = self.nodes if nodes < 1 else self.each
            parts = {"inference": self.inference[nodes >= 1], "the reward model": self.reward[nodes >= 1]}
            taken = " and ".join(f"{name} takes {count}" for name, count in parts.items() if count)
            message = f"no {what} are left for training: {taken} of {total}"
            reader.add(
                (*path, key), Diagnostic("empty-placement", message, f"raise {key}, or lower those of the others")
            )
        elif nodes % segment:
            message = f"training has {counted(nodes, 'node')}, which cannot be divided into segments of {segment}"
            reader.add((*path, "segment_size"), Diagnostic("not-multiple", message, f"use a divisor of {nodes}"))
        if self.reward[1] > self.each:
            message = (
                f"the reward model needs {self.reward[1]} GPUs of a node, but cluster.gpus_per_node is {self.each}"
            )
            fault = Diagnostic("resource-out-of-range", message, f"use at most {self.each}")
            reader.add((*_REWARD, "resources", "gpus_per_node"), fault)


recognised = NEMO_RL.recognises


def read(config: Config | Reader) -> Reader:
    """Read a config and the files that it extends; one that is already read is returned.

    Raises `PlacementError` if it is not a mapping, or a file cannot be read.
    """
    if isinstance(config, Reader):
        return config
    content = config if isinstance(config, Mapping) else load_config(config)
    return NEMO_RL.read(inherited(content) if isinstance(content, Section) else content, _Job)


def plan(config: Config | Reader, inventory: Inventory, *, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of a NeMo-RL config: ``policy``, ``generation``, ``value`` (PPO) and ``reward_model``.

    Training has the first nodes, then inference, then the reward model. Raises `PlacementError` with every fault.
    """
    reader = for_inventory(read(config), inventory)
    job: _Job = reader.state
    if (segments := job.segments(reader)) and job.nodes <= inventory.num_nodes:
        section = {"num_nodes": job.nodes, "component_placement": {}, "topology": {"segment": segments}}
        inventory = inventory.with_config(section)
    pools = Pools(reader, inventory, isolate=isolate_accelerator)
    training = pools.nodes(*job.training, "training", (*_CLUSTER, "num_nodes"))
    inference = [] if job.colocated else pools.nodes(*job.inference, "inference", _RESOURCES)
    reward = pools.nodes(*job.reward, "the reward model", (*_REWARD, "resources")) if job.reward[0] else []
    apart = not job.colocated or not job.generating
    groups = {"ppo": 2, "distillation": 3 - 2 * job.megatron}.get(job.algorithm, 1)
    groups = groups if apart else _GROUPS.get(job.algorithm, 2)
    sizes, path = _training(reader, ("policy",))
    pools.place("policy", training, path, parallel=sizes, share=pools.share(groups))
    if job.algorithm == "ppo":
        sizes, path = _training(reader, ("value",))
        pools.place("value", training, path, parallel=sizes, share=pools.share(groups))
    if job.generating and (inference or training):
        alone = 3 if job.algorithm == "distillation" else 1
        share = pools.share(groups if job.colocated else alone)
        _engines(reader, job, pools, training if job.colocated else inference, share)
    pools.place("reward_model", reward, _REWARD, parallel=_training(reader, _REWARD)[0], share=1.0)
    reader.finish()
    return Plan(inventory, pools.components)


def _engines(reader: Reader, job: _Job, pools: Pools, taken: list[int], share: float) -> None:
    section, middle = job.engine
    tp, pp, experts = (reader.size((*section, f"{kind}_{middle}"), 1) for kind in ("tensor", "pipeline", "expert"))
    per_node = (job.training if job.colocated else job.inference)[1]
    each = min(per_node, tp * pp)
    keys = f"tensor_{middle} {tp}" + (f" x pipeline_{middle} {pp}" if pp > 1 else "")
    path = (*section, f"tensor_{middle}" if tp >= pp else f"pipeline_{middle}")
    faults = engine_faults("generation", tp * pp, each, pools.free.node_of(taken), keys)
    for fault in faults:
        reader.add(path, fault)
    sizes = engine_sizes(tp, pp, experts)
    if not faults:
        pools.place("generation", taken, section, each, parallel=sizes, share=share, engines=tp * pp // each)


def _training(reader: Reader, path: KeyPath) -> tuple[Parallel, KeyPath]:
    for name, keys in (("megatron_cfg", MEGATRON), ("dtensor_cfg", _DTENSOR)):
        if reader.section_at((*path, name)) and reader.switch((*path, name, "enabled")):
            return reader.sizes((*path, name), keys), (*path, name)
    return NO_SIZES, path


def assumed_inventory(config: Config | Reader) -> Inventory:
    """Return ``cluster.num_nodes`` nodes with ``cluster.gpus_per_node`` accelerators each."""
    reader = read(config)
    reader.finish()
    job: _Job = reader.state
    return assumed(reader, job.nodes, job.each)

"""A job of prime-rl on several nodes, which Slurm starts: replicas of the inference first, then the trainer.

A replica has nodes with servers; or nodes with servers that prefill, and then those with servers that decode. Each node
has as many servers as its GPUs have room for. The nodes are those of Slurm's list, in its order.

Follows ``MultiNodeDeploymentConfig``, ``DisaggregatedInferenceDeploymentConfig``, ``RLConfig.auto_setup_infer_nodes``,
``validate_deployment`` and ``auto_setup_deployment``, and ``multi_node_rl.sbatch.j2`` (559b447).
"""

from __future__ import annotations

from typing import NamedTuple

from rankplan import RankSet
from rankplan.sdk import Config, Placer, Taken, must_be
from rankplan.trainers.prime_rl import faults, keys
from rankplan.trainers.prime_rl.components import Placed, Servers, place_servers
from rankplan.trainers.prime_rl.sections import is_off, is_on

_IN_MEMORY = ("nccl", "nixl")
"""Transfers of weights that count the GPUs of the inference."""


class Role(NamedTuple):
    """Nodes of a replica with servers of one component; the servers of ``together`` nodes are one engine of vLLM."""

    name: str
    nodes: int
    together: int


class SeveralNodes:
    """The nodes of the servers and of the trainer."""

    def __init__(self, config: Config, inference: Config, *, serves: bool, transfer: str) -> None:
        """``transfer`` is how new weights reach the servers."""
        self.at = config.where(keys.DEPLOYMENT)
        self.gpus_per_node = config[keys.GPUS_PER_NODE]
        self.serves = serves
        self.transfer = transfer
        self.tensor = inference[keys.TENSOR]
        self.tensor_at = inference.where(keys.TENSOR)
        self.infer_at = config.where(keys.INFER_NODES, keys.INFER_REPLICAS)
        self.replicas = config[keys.INFER_REPLICAS]
        self.on_inference = config[keys.ORCHESTRATOR_ON_INFERENCE]
        if not is_on(config.raw(keys.SLURM)):
            config.faults.add(self.at, faults.not_slurm("a job on several nodes"))
        self._read_trainer(config)
        self._read_inference(config, inference)
        shares = inference[keys.EXPERT_PARALLEL]
        self.shares_experts = self.is_disaggregated if shares is None else shares
        if serves:
            self._check_servers(config, inference)

    def _read_trainer(self, config: Config) -> None:
        """Read the nodes of the trainer, and how many copies of the weights they have."""
        nodes = config[keys.TRAIN_NODES]
        self.train_at = config.where(keys.TRAIN_NODES)
        if nodes is None and not config.stated(keys.TRAIN_NODES):
            config.faults.add(self.at, faults.no_train_nodes())
        self.train_nodes = nodes or 1
        self.world = self.train_nodes * self.gpus_per_node
        self.copies: int | None = None
        island = config[keys.NODES_PER_FSDP_GROUP]
        if island is None or nodes is None:
            return
        if self.train_nodes % island:
            at = config.where(keys.NODES_PER_FSDP_GROUP)
            config.faults.add(at, faults.uneven_islands(self.train_nodes, island))
        self.copies = max(self.train_nodes // island, 1)

    def _read_inference(self, config: Config, inference: Config) -> None:
        """Read the nodes of a replica; a number that contradicts those of its servers is a fault."""
        kind = inference[keys.INFERENCE_DEPLOYMENT]
        self.is_disaggregated = kind == keys.DISAGGREGATED
        derived, why = 1, ""
        if self.is_disaggregated:
            self.roles = [
                _role("prefill", inference[keys.PREFILL_NODES], inference[keys.PREFILL_REPLICAS]),
                _role("decode", inference[keys.DECODE_NODES], inference[keys.DECODE_REPLICAS]),
            ]
            prefill, decode = (role.nodes for role in self.roles)
            derived = prefill + decode
            why = f"{prefill} to prefill, {decode} to decode"
        elif kind == keys.MULTI_NODE:
            derived = inference[keys.INFERENCE_NODES]
            why = keys.INFERENCE_NODES.path
        elif kind != keys.SINGLE_NODE:
            allowed = f"{keys.SINGLE_NODE}, {keys.MULTI_NODE} or {keys.DISAGGREGATED}"
            fault = must_be(("type",), kind, allowed, f'write type = "{keys.MULTI_NODE}"')
            config.faults.add(inference.where(keys.INFERENCE_DEPLOYMENT), fault)
        stated = config[keys.INFER_NODES]
        self.nodes_per_replica = derived if stated is None else stated
        if not self.serves:
            self.nodes_per_replica = 0
        if why and stated is not None and stated != derived:
            config.faults.add(config.where(keys.INFER_NODES), faults.other_nodes(stated, derived, why))
        if not self.is_disaggregated:
            self.roles = [Role("inference", self.nodes_per_replica, self.nodes_per_replica)]
        self._check_data(config, stated)

    def _check_data(self, config: Config, stated: int | None) -> None:
        """Record nodes without servers, servers without nodes, and a trainer that gets no data."""
        at = config.where(keys.INFER_NODES)
        if self.serves and not self.nodes_per_replica:
            config.faults.add(at, faults.no_nodes_to_serve())
        elif not self.serves and stated:
            config.faults.add(at, faults.no_servers(stated))
        elif not self.serves and not is_on(config.raw(keys.FAKE_DATA)):
            config.faults.add(self.at, faults.needs_fake_data())

    def _check_servers(self, config: Config, inference: Config) -> None:
        """Record servers that do not fill the GPUs of a node, and sizes that contradict them."""
        counts_gpus = self.transfer in _IN_MEMORY
        if is_off(inference, keys.ROUTER):
            config.faults.add(inference.where(keys.ROUTER), faults.no_router())
        if self.tensor > self.gpus_per_node:
            config.faults.add(self.tensor_at, faults.no_room(self.tensor, self.gpus_per_node))
            return
        shares = self.shares_experts and not self.is_disaggregated
        if self.gpus_per_node % self.tensor:
            fault = faults.left_over(self.tensor, self.gpus_per_node, waits=counts_gpus, shared=shares)
            if counts_gpus or shares:
                config.faults.add(self.tensor_at, fault)
            else:
                config.faults.warn(self.tensor_at, fault)
            return
        if not shares:
            return
        gpus = self.nodes_per_replica * self.gpus_per_node
        data = inference[keys.DATA]
        if data * self.tensor != gpus:
            config.faults.add(inference.where(keys.DATA), faults.other_world(data, self.tensor, gpus))
        local = inference[keys.DATA_LOCAL]
        if local is not None and local != self.servers_per_node:
            config.faults.add(inference.where(keys.DATA_LOCAL), faults.other_local(local, self.servers_per_node))

    @property
    def servers_per_node(self) -> int:
        """The servers of a node; GPUs that they leave are idle."""
        return self.gpus_per_node // self.tensor

    @property
    def infer_nodes(self) -> int:
        """The nodes of all replicas."""
        return self.nodes_per_replica * self.replicas

    def size(self) -> tuple[int, int]:
        """Return all nodes, and the GPUs of each."""
        return self.infer_nodes + self.train_nodes, self.gpus_per_node

    def place(self, placer: Placer) -> Placed:
        """Place the servers, and return the accelerators of the trainer."""
        each = self.gpus_per_node
        infer = placer.nodes(self.infer_nodes, each, "inference", self.infer_at) if self.infer_nodes else Taken()
        train = placer.nodes(self.train_nodes, each, "trainer", self.train_at)
        if not train or (self.infer_nodes and not infer):
            return Placed(Taken(), None)
        for first, role in zip(self._first_nodes(), self.roles, strict=True):
            self._place_role(placer, infer, first, role)
        if not self.infer_nodes:
            return Placed(train, None)
        nodes = infer.nodes(placer.inventory.core)
        placer.without_accelerators("router", 1, self.infer_at, RankSet([nodes[0]]))
        if self.on_inference:
            return Placed(train, nodes[-1])
        return Placed(train, train.nodes(placer.inventory.core)[0])

    def _first_nodes(self) -> list[int]:
        """Return, for each role, its first node in a replica."""
        first = [0]
        for role in self.roles[:-1]:
            first.append(first[-1] + role.nodes)
        return first

    def _place_role(self, placer: Placer, infer: Taken, first: int, role: Role) -> None:
        """Place the servers of a role in every replica, node by node."""
        used = self.servers_per_node * self.tensor
        taken = Taken()
        for replica in range(self.replicas):
            for node in range(role.nodes):
                start = (replica * self.nodes_per_replica + first + node) * self.gpus_per_node
                taken += infer.slice(start, start + used)
        alone = not (self.shares_experts or self.is_disaggregated)
        group = 1 if alone else role.together * self.servers_per_node
        servers = Servers(role.name, self.tensor, self.tensor, group, shares_experts=self.shares_experts)
        place_servers(placer, servers, taken, self.tensor_at)


def _role(name: str, nodes: int, groups: int) -> Role:
    return Role(name, nodes * groups, nodes)

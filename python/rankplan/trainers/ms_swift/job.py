"""ms-swift: Megatron on Ray, with as many GPUs on each node for each of its roles.

The roles are ``train`` (a process per GPU), ``rollout`` and ``teacher`` (engines of vLLM, of tensor x data size GPUs
each). Roles of ``colocate_groups`` share their GPUs. Each pool is ``nnodes`` placement groups without a name, each on
one node, of bundles with one GPU and as many CPUs as roles use it; ms-swift sorts them by the address of their node as
text. A worker of the training holds one CPU of its bundle, a server of an engine one CPU outside, on its node.

Follows ms-swift's ``MegatronRayPipeline``, ``ResourcePool``, ``WorkerGroup.from_pool`` and
``RolloutReplica.create_replicas`` (3602360).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import gcd

from rankplan import Actors, Parallel
from rankplan.sdk import Config, Job, NodeOrder, Placer, Sizes, Taken, Where
from rankplan.trainers.ms_swift import faults, keys
from rankplan.trainers.ms_swift.pools import Pool, read_pools, training_sizes

_MEGATRON_ON_RAY = "megatron rlhf"
"""The program that reads a file of roles with `--use_ray`."""
_PIPELINE = "swift.ray.megatron.pipeline"


@dataclass(frozen=True)
class _Replicas:
    """The engines of a role: the GPUs of each, its sizes, and the place of what decides the number."""

    size: int
    text: str
    sizes: Sizes
    where: Where


class PoolsJob(Job):
    """The pools and the roles of a file of ``megatron rlhf --use_ray``."""

    def __init__(self, config: Config) -> None:
        fault = faults.unknown_algorithm(config[keys.RLHF_TYPE])
        if fault is not None:
            config.faults.add(config.where(keys.RLHF_TYPE), fault)
        if config.program == _MEGATRON_ON_RAY and not config[keys.USE_RAY]:
            config.faults.add(config.where(keys.USE_RAY), faults.not_started_on_ray())
        self.pools = read_pools(config)
        self.training = training_sizes(config)
        self.replicas = {role: _replicas(config, role) for role in keys.ENGINES if config[keys.GPUS[role]]}

    def node_order(self) -> NodeOrder:
        """Return addresses as text (``sort_pgs_by_node_ip``)."""
        return "text"

    def size(self) -> tuple[int, int]:
        """Return the nodes that the groups fill one after the other.

        If a node of the usual size has room for a group of each pool, there are ``nnodes`` of these.
        """
        together = sum(pool.gpus for pool in self.pools)
        nodes = max((pool.nodes for pool in self.pools), default=1)
        if together <= self.usual_accelerators:
            return nodes, max(together, 1)
        each = max(self.usual_accelerators, *(pool.gpus for pool in self.pools))
        free: list[int] = []
        for pool in self.pools:
            for _ in range(pool.nodes):
                node = next((index for index, left in enumerate(free) if left >= pool.gpus), None)
                if node is None:
                    free.append(each - pool.gpus)
                else:
                    free[node] -= pool.gpus
        return len(free), each

    def place(self, placer: Placer) -> None:
        """Place the roles on their pools, and record the groups and the servers."""
        for pool in self.pools:
            name = " and ".join(pool.roles)
            taken = placer.nodes(pool.nodes, pool.gpus, name, pool.where, users=pool.roles)
            placer.ask(
                pool.name,
                taken,
                per_group=pool.gpus,
                strategy="STRICT_PACK",
                order="text",
                cpus=len(pool.roles),
            )
            for role in pool.roles:
                share = placer.share(len(pool.roles)) if len(pool.roles) > 1 else None
                if role == keys.TRAIN:
                    placer.component(
                        role, taken, self.training.where, sizes=self.training, share=share, facts=pool.facts
                    )
                elif taken:
                    self._place_engines(placer, role, pool, taken, share)

    def _place_engines(self, placer: Placer, role: str, pool: Pool, taken: Taken, share: float | None) -> None:
        """Place the engines of a role: a server for the GPUs of an engine on a node."""
        replicas = self.replicas[role]
        if len(taken) % replicas.size:
            key = keys.GPUS[role].path
            placer.reject(pool.where, faults.undivided_engines(key, len(taken), replicas.size, replicas.text))
            return
        each = _part(placer, role, pool, taken, replicas)
        if each is None:
            return
        placer.component(
            role,
            taken,
            replicas.where,
            each,
            sizes=replicas.sizes,
            share=share,
            engines=replicas.size // each,
            facts=pool.facts,
        )
        placer.hold(Actors(f"{role} server", cpus=1, component=role))


def _part(placer: Placer, role: str, pool: Pool, taken: Taken, replicas: _Replicas) -> int | None:
    """Return how many GPUs of a replica are on each of its nodes; a fault, and ``None``, if that differs.

    ms-swift counts the nodes of each replica, and expects as many of its GPUs on each (``create_replicas``).
    """
    step = gcd(pool.gpus, replicas.size)
    nodes = taken.nodes(placer.inventory.core, step)
    steps = replicas.size // step
    parts: set[int] = set()
    for replica in range(len(nodes) // steps):
        counts = Counter(nodes[replica * steps : (replica + 1) * steps])
        sizes = {node: count * step for node, count in counts.items()}
        if len(set(sizes.values())) > 1:
            placer.reject(replicas.where, faults.unequal_parts(role, replica, sizes, replicas.text))
            return None
        parts.update(sizes.values())
    if len(parts) > 1:
        placer.reject(replicas.where, faults.unlike_replicas(role, sorted(parts), replicas.text))
        return None
    return next(iter(parts), None)


def _replicas(config: Config, role: str) -> _Replicas:
    """Return the engines of a role by its sizes."""
    section = config.under(role)
    tensor, data = section[keys.TENSOR], section[keys.DATA]
    texts = [f"{keys.TENSOR.name} {tensor}"]
    if data > 1:
        texts.append(f"{keys.DATA.name} {data}")
    places = {"tp": section.where(keys.TENSOR)} if section.stated(keys.TENSOR) else {}
    paths = {"tp": section.path(keys.TENSOR)}
    sizes = Sizes(Parallel(tp=tensor, order=Parallel.ENGINE_ORDER), section.place, places, paths)
    return _Replicas(tensor * data, " x ".join(texts), sizes, section.where(keys.TENSOR))


def job_of(config: Config) -> Job:
    """Return the job of a config: that of its groups, of its roles, or one of torchrun."""
    if config.stated(keys.DEVICE_GROUPS):
        from rankplan.trainers.ms_swift.device_groups import GroupsJob  # few jobs have groups with ranks

        return GroupsJob(config)
    if keys.is_on_pools(config) or config[keys.USE_RAY] or config.program == _PIPELINE:
        return PoolsJob(config)
    from rankplan.trainers.ms_swift.torchrun import TorchrunJob  # a job on Ray needs no launchers

    return TorchrunJob(config)

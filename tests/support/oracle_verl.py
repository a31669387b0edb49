"""Where verl places a job, in plain Python: placement groups on the first node with room, engines cut from pools."""

from __future__ import annotations

from dataclasses import dataclass

Device = tuple[int, int]


class Refused(Exception):
    """The job does not fit, an engine would get devices of two nodes, or accelerators would stay idle."""


@dataclass(frozen=True)
class Model:
    """An engine's sizes, and the nodes and accelerators per node of its own pool, if it has one."""

    tensor: int
    data: int = 1
    pool: tuple[int, int] | None = None


@dataclass(frozen=True)
class Case:
    """A job of verl: the pool of the training, its engines, and the GPUs of each node."""

    cluster: tuple[int, ...]
    trainer: tuple[int, int]
    rollout: Model
    per_server: int | None = None
    reward: Model | None = None

    @property
    def words(self) -> list[str]:
        """The overrides that make this job."""
        nodes, each = self.trainer
        rollout = "actor_rollout_ref.rollout"
        words = ["algorithm.adv_estimator=grpo", f"trainer.nnodes={nodes}", f"trainer.n_gpus_per_node={each}"]
        words += _sizes(rollout, self.rollout)
        if self.rollout.pool is not None:
            words += ["trainer.v1.trainer_mode=separate_async"]
        elif self.per_server is not None:
            words += [f"{rollout}.n_gpus_per_node={self.per_server}"]
        if self.reward is not None:
            section = "reward.reward_model"
            words += [f"{section}.enable=true", *_sizes(f"{section}.rollout", self.reward, section)]
            words += [f"{section}.enable_resource_pool=true"] * (self.reward.pool is not None)
        return words


def _sizes(path: str, model: Model, pool: str | None = None) -> list[str]:
    words = [f"{path}.tensor_model_parallel_size={model.tensor}", f"{path}.data_parallel_size={model.data}"]
    if model.pool is not None:
        words += [f"{pool or path}.nnodes={model.pool[0]}", f"{pool or path}.n_gpus_per_node={model.pool[1]}"]
    return words


class _Cluster:
    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts, self.used = counts, [0] * len(counts)

    def group(self, size: int) -> list[Device]:
        """A placement group on one node (STRICT_PACK)."""
        for node, count in enumerate(self.counts):
            if count - self.used[node] >= size:
                self.used[node] += size
                return [(node, self.used[node] - size + index) for index in range(size)]
        raise Refused("no node has room")

    def pool(self, nodes: int, each: int) -> list[Device]:
        return [device for _ in range(nodes) for device in self.group(each)]


def _servers(devices: list[Device], model: Model, per_node: int) -> list[list[Device]]:
    """The devices of each server of the engines that are cut from a pool."""
    world = model.tensor * model.data
    each = min(per_node, world)
    if world % each or len(devices) % world or not devices:
        raise Refused("not a multiple")
    if each % model.tensor and model.tensor % each:
        raise Refused("a tensor group that does not fill servers")
    servers = [devices[start : start + each] for start in range(0, len(devices), each)]
    if any(len({node for node, _ in server}) > 1 for server in servers):
        raise Refused("a server over two nodes")
    return servers


def placed(case: Case) -> dict[str, list[list[Device]]]:
    """Return the devices of each process of each component. Raises `Refused`."""
    cluster = _Cluster(case.cluster)
    nodes, each = case.trainer
    trainer = cluster.pool(nodes, each)
    found = {"actor": [[device] for device in trainer]}
    own = case.reward.pool if case.reward is not None else None
    reward = cluster.pool(*own) if own is not None else trainer
    per_server = case.rollout.pool[1] if case.rollout.pool is not None else case.per_server or each
    found["rollout"] = _servers(trainer, case.rollout, per_server)
    if case.reward is not None:
        if own is None and case.rollout.pool is not None:
            raise Refused("the standalone rollout never pauses")
        found["reward"] = _servers(reward, case.reward, own[1] if own is not None else each)
    if case.rollout.pool is not None:
        count, per_node = case.rollout.pool
        world, total = case.rollout.tensor * case.rollout.data, count * per_node
        size = min(per_node, world)
        if world % size or total % world:
            raise Refused("not a multiple")
        found["rollout_standalone"] = [cluster.group(size) for _ in range(total // size)]
    return found

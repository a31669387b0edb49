"""The faults of verl's configs: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rankplan import Diagnostic, RankSet
from rankplan.sdk import must_be
from rankplan.sdk.words import counted, nodes_text, shown, unknown

# Why a component cannot be written

NEEDS_ACTOR = "verl needs an actor"
NO_ROLE = "verl has no such role"
NO_WORKER = "verl's draft has no such worker"
ON_ACTOR = "verl places it on the actor's accelerators"
SEVERAL_GPUS = "its processes do not have one accelerator each"
SEVERAL_MACHINE_TYPES = "its nodes are of several machine types"
UNEVEN_NODES = "its accelerators are not as many on each node, in order"
UNEVEN_PROCESSES = "its processes have different numbers of accelerators"


def part_of(other: str) -> str:
    """Return the reason for a component with some of the accelerators of another one."""
    return f"it has a part of the accelerators of {other}"


# Programs


def unread_placement(program: str, key: str) -> Diagnostic:
    """Return the fault of a program that places its processes by a key of its own."""
    message = f"`{program}` places its processes by `{key}`, which rankplan does not read"
    help = "write the placement as a `cluster` section, or start verl.trainer.main_ppo"
    return Diagnostic("unknown-key", message, help)


def roles_not_checked(program: str, file: str) -> Diagnostic:
    """Return the warning of a program whose file decides by a condition that is not read."""
    message = f"whether `{program}` starts a reference model is not read in {file}: verl's own rule is used"
    return Diagnostic("not-read", message, "compare the components with those that the program starts", warning=True)


def program_not_found(program: str) -> Diagnostic:
    """Return the warning of a program that verl does not bring, and whose file is missing."""
    message = f"`{program}` is not verl's own, and its file is not here: the roles that verl starts are planned"
    help = "run the check in its repository, or compare the components with those that it starts"
    return Diagnostic("not-read", message, help, warning=True)


def nothing_to_split(program: str) -> Diagnostic:
    """Return the fault of a pool that cannot be divided between the actor and the critic."""
    message = f"`{program}` divides the pool between the actor and the critic, but it has a single GPU"
    return Diagnostic("invalid-value", message, "use at least 2 GPUs, or 2 nodes")


# Pools and roles


def empty_size(name: str) -> Diagnostic:
    """Return the fault of a size of a pool that is written without a value."""
    return must_be((name,), None, "a whole number", "write a number such as 1")


def missing_nodes(pool: str) -> Diagnostic:
    """Return the fault of a pool whose nodes are not stated."""
    return Diagnostic("missing-key", f"`nnodes` is missing: {pool} has a pool of its own", "add `nnodes: 1`")


def moved_reward_model() -> Diagnostic:
    """Return the warning of a reward model that is enabled where verl does not look for it."""
    message = "no reward model is placed: verl 0.9 takes it from `reward.reward_model`, not from `reward_model`"
    help = "write reward.reward_model.enable=true, and its pool and its rollout there"
    return Diagnostic("not-run", message, help)


def reward_model_without_pool(section: str) -> Diagnostic:
    """Return the fault of a reward model on the accelerators of a rollout that never pauses."""
    message = "the reward model has no pool of its own; verl needs one if the rollout never pauses"
    help = f"add {section}.enable_resource_pool=true, with nnodes and n_gpus_per_node"
    return Diagnostic("invalid-value", message, help)


def pool_of_disabled_reward_model(nodes: int, gpus: int) -> Diagnostic:
    """Return the warning of a pool that verl makes for a reward model that it does not start."""
    pool = f"{counted(nodes, 'node')} with {gpus} accelerators"
    message = f"verl also counts the pool of the reward model, {pool}, although it is disabled"
    return Diagnostic("idle-accelerators", message, "remove this key")


def asynchronous_critic(*, by_default: bool) -> Diagnostic:
    """Return the fault of a critic that the trainer fails to create."""
    reason = " (verl's default estimator is gae)" if by_default else ""
    message = f"this trainer has no critic: verl fails when it creates one{reason}"
    help = "use an estimator without critic, such as algorithm.adv_estimator=grpo, and critic.enable=false"
    return Diagnostic("invalid-value", message, help)


def size_of_teachers(needed: int, present: int) -> Diagnostic:
    """Return the fault of teachers that need more or fewer accelerators than their pool has."""
    message = f"the teachers need {needed} accelerators, but their pool has {present}"
    help = "change num_replicas, their sizes, or nnodes and n_gpus_per_node of distillation"
    code = "parallel-idle" if needed < present else "resource-out-of-range"
    return Diagnostic(code, message, help)


# Partitions


def missing_partition() -> Diagnostic:
    """Return the fault of shared nodes whose parts are not stated."""
    message = "`actor_rollout_ref.partition` is missing: hybrid_res_pool divides nodes by it"
    return Diagnostic("missing-key", message, "add +actor_rollout_ref.partition=8_4-4, or remove hybrid_res_pool")


def malformed_partition(text: str) -> Diagnostic:
    """Return the fault of a partition that is not two sides of numbers."""
    message = f"`partition` is {shown(text)}; it must be the parts of the training and those of the rollout"
    return Diagnostic(
        "invalid-value", message, "write numbers of accelerators, such as 8_4-4: 8 and 4 train, 4 generate"
    )


def partition_of_other_nodes(text: str, training: tuple[int, int], rollout: int) -> Diagnostic:
    """Return the fault of a partition of more or fewer accelerators than those that are stated."""
    nodes, each = training
    message = f"the parts of `partition` {text} are neither the {nodes} x {each} accelerators of trainer, nor, side by "
    message += f"side on as many nodes, those and the {rollout} of rollout"
    help = f"write parts that add up to {nodes * each}, or change nnodes and n_gpus_per_node of trainer or rollout"
    return Diagnostic("invalid-value", message, help)


def partition_wider_than_nodes(text: str, part: int, gpus_per_node: int) -> Diagnostic:
    """Return the fault of a part that no node has."""
    message = f"`partition` {text} has a part of {part} accelerators, but a node has {gpus_per_node}"
    return Diagnostic("resource-out-of-range", message, f"use parts of at most {gpus_per_node}")


# Engines


def experts_of_engine(experts: int, whole: int) -> Diagnostic:
    """Return the fault of an expert size that verl refuses; ``whole`` is the only one besides 1."""
    message = f"`expert_parallel_size` is {experts}; verl accepts 1, or tensor size x data size, which is {whole}"
    return Diagnostic("invalid-value", message, f"use 1 or {whole}")


def torn_engine(engine: int, component: str, gpus: int, keys: str, free: int) -> Diagnostic:
    """Return the fault of a process of an engine for which no node has enough accelerators left."""
    message = f"engine {engine} of the {component} needs {gpus} accelerators ({keys}) on one node; "
    message += f"{free} are free, but no node has that many"
    return Diagnostic("spans-nodes", message, "use smaller engines, or nodes with more accelerators")


def shared_sockets(component: str, engine: int, node: int, each: int) -> Diagnostic:
    """Return the warning of an engine with two groups of ``each`` accelerators on a node."""
    message = f"verl gives processes of engine {engine} of the {component} on node {node} the same sockets: it numbers "
    message += f"them in each group of {each} accelerators, and expects a group on each node"
    help = f"set n_gpus_per_node to the accelerators of a node, or use engines of at most {each}"
    return Diagnostic("engine-address", message, help, warning=True)


# Topologies


def missing_list(name: str, known: Sequence[str]) -> Diagnostic:
    """Return the fault of a topology without a list of its entries."""
    return Diagnostic("missing-key", f"`{name}` is missing", _write_list(known))


def no_list(name: str, known: Sequence[str]) -> Diagnostic:
    """Return the fault of a value that must be a list of entries."""
    return Diagnostic("invalid-value", f"`{name}` must be a list with at least one entry", _write_list(known))


def _write_list(known: Sequence[str]) -> str:
    return f"write a list of {_entry(known)}"


def _entry(known: Sequence[str]) -> str:
    return f"{{{', '.join(known[:4])}}}"


def no_entry(path: tuple[str | int, ...], value: object, known: Sequence[str]) -> Diagnostic:
    """Return the fault of an entry of a list that is no mapping."""
    return must_be(path, value, "a mapping", f"write {_entry(known)}")


def double_name(key: str, name: str) -> Diagnostic:
    """Return the fault of the second entry with a name."""
    return Diagnostic("duplicate-key", f"`{key}` has two entries named `{name}`", "choose another name")


def extra_key(name: str, known: Sequence[str]) -> Diagnostic:
    """Return the warning of a key that the draft does not have."""
    message = f"`{name}` is not a key of verl's draft: it is carried through, and places nothing"
    return Diagnostic("unknown-key", message, f"known: {', '.join(known)}")


def missing_key(name: str, value: str = "") -> Diagnostic:
    """Return the fault of an entry without a key."""
    return Diagnostic("missing-key", f"`{name}` is missing", f"add `{name}{value}`")


def no_name(name: str, value: object) -> Diagnostic:
    """Return the fault of a value that must be the name of something."""
    return must_be((name,), value, "a text", "write a name")


def no_names(name: str, value: object) -> Diagnostic:
    """Return the fault of a value that must be a list of pools."""
    return must_be((name,), value, "a list", "write the names of pools in brackets")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> Diagnostic:
    """Return the fault of a cluster, a pool or a worker that is not in the topology."""
    return unknown(kind, name, known, f"the {kind}s are", code="invalid-value")


def pool_wider_than_nodes(pool: str, gpus: int, cluster: str, gpus_per_node: int) -> Diagnostic:
    """Return the fault of a pool that takes more accelerators of a node than its cluster has."""
    message = f"pool `{pool}` takes {gpus} accelerators of a node, but nodes of cluster `{cluster}` have "
    message += str(gpus_per_node)
    return Diagnostic("resource-out-of-range", message, f"use {gpus_per_node}, and more nodes")


def bounds_of_reserve(key: str) -> Diagnostic:
    """Return the fault of a bound of a pool without models."""
    message = f"`{key}` has no effect: the pool is standby, and bounds are about its models"
    return Diagnostic("invalid-value", message, f"remove {key}, or standby")


def bounds_of_rigid_pool(key: str) -> Diagnostic:
    """Return the fault of a bound of a pool that is not elastic."""
    message = f"`{key}` has no effect: the pool is not elastic"
    return Diagnostic("invalid-value", message, f"add `elastic: true`, or remove {key}")


def crossed_bounds(least: int, most: int) -> Diagnostic:
    """Return the fault of a lower bound above the upper one."""
    message = f"min_gpus {least} is more than max_gpus {most}"
    return Diagnostic("invalid-value", message, f"use at most {most}, or a larger max_gpus")


def pool_out_of_bounds(gpus: int, key: str, bound: int) -> Diagnostic:
    """Return the fault of a pool with fewer or more accelerators than its bound at a key."""
    word = "less" if gpus < bound else "more"
    message = f"the pool has {gpus} accelerators, {word} than {key} {bound}"
    return Diagnostic("invalid-value", message, f"use {gpus}, or change nnodes or n_gpus_per_node")


def model_on_reserve(model: str, pool: str, others: Sequence[str]) -> Diagnostic:
    """Return the fault of a model on a pool that stays free; ``others`` are pools for models."""
    message = f"model `{model}` is on pool `{pool}`, which is standby: it is a reserve without models"
    help = f"use {' or '.join(others) or 'another pool'}, or remove standby"
    return Diagnostic("invalid-value", message, help)


def own_reserve(pool: str, others: Sequence[str]) -> Diagnostic:
    """Return the fault of a reserve that protects itself."""
    return Diagnostic("invalid-value", f"pool `{pool}` protects itself", _name_pools(others))


def reserve_of_reserve(pool: str, others: Sequence[str]) -> Diagnostic:
    """Return the fault of a reserve for another reserve."""
    message = f"pool `{pool}` is standby: it has no models to protect"
    return Diagnostic("invalid-value", message, _name_pools(others))


def _name_pools(pools: Sequence[str]) -> str:
    return f"name pools with models: {', '.join(pools)}" if pools else "add a pool with models"


def no_reserve(pool: str) -> Diagnostic:
    """Return the fault of a pool that protects others although it is for models."""
    message = f"pool `{pool}` protects others, but is no reserve"
    return Diagnostic("invalid-value", message, "add `standby: true`")


def unused_pool(pool: str, gpus: int) -> Diagnostic:
    """Return the warning of a pool without models."""
    message = f"no model is on pool `{pool}`: its {gpus} accelerators stay idle"
    return Diagnostic("idle-accelerators", message, "remove the pool, or add `attributes: {standby: true}`")


def missing_nodes_of_cluster(cluster: str, nodes: range, gpus: int, present: int) -> Diagnostic:
    """Return the fault of a cluster that needs more nodes than exist."""
    return _cluster_fault(cluster, nodes, gpus, f"{present} nodes exist")


def small_node_of_cluster(cluster: str, nodes: range, gpus: int, node: int, present: int) -> Diagnostic:
    """Return the fault of a cluster with a node that has too few accelerators."""
    return _cluster_fault(cluster, nodes, gpus, f"node {node} has {present}")


def _cluster_fault(cluster: str, nodes: range, gpus: int, present: str) -> Diagnostic:
    message = f"cluster `{cluster}` needs nodes {nodes.start}-{nodes.stop - 1} with {gpus} accelerators, but {present}"
    help = "use a larger cluster, or fewer nodes or accelerators per node"
    return Diagnostic("resource-out-of-range", message, help)


def small_cluster(pool: str, nodes: int, gpus: int, cluster: str, room: int, left: int) -> Diagnostic:
    """Return the fault of a pool that its cluster has no room for."""
    message = f"pool `{pool}` needs {counted(nodes, 'node')} with {gpus} free accelerators each; "
    message += f"cluster `{cluster}` has room for {room}; {counted(left, 'accelerator')} left"
    help = "use fewer nodes or accelerators per node, or more nodes in the cluster"
    return Diagnostic("resource-out-of-range", message, help)


def shared_reserve(pool: str, nodes: RankSet) -> Diagnostic:
    """Return the warning of a reserve of a part of some nodes."""
    message = f"pool `{pool}` reserves a part of {nodes_text(nodes)}: replan takes only whole nodes"
    return Diagnostic("idle-accelerators", message, "give the pool nodes of its own")

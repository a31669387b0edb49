"""The faults and warnings of ms-swift's configs: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan import Diagnostic
from rankplan.sdk import must_be
from rankplan.sdk.words import counted, did_you_mean, listed
from rankplan.trainers.ms_swift import keys

_MASKS = "give each command its own devices: CUDA_VISIBLE_DEVICES=0 swift rollout ..."

_ALGORITHMS = ("grpo", "gkd")
"""What ms-swift runs with Megatron on Ray (``_TRAINER_REGISTRY``)."""


def unknown_algorithm(name: Any) -> Diagnostic | None:
    """Return the fault of an algorithm that ms-swift does not run on Ray, ``None`` for one that it does."""
    if name in _ALGORITHMS:
        return None
    return must_be(("rlhf_type",), name, "grpo or gkd on Ray", "use one of them, or torchrun without use_ray")


def not_started_on_ray() -> Diagnostic:
    """Return the fault of a command with a config of roles that does not ask for Ray."""
    message = "`megatron rlhf` reads a file with roles only with `--use_ray true`, which this command lacks"
    return Diagnostic("missing-key", message, "add --use_ray true")


def no_training() -> Diagnostic:
    """Return the fault of a job whose training has no GPUs."""
    message = "`train.gpus` is missing or 0: ms-swift trains on no GPU"
    return Diagnostic("missing-key", message, "give train.gpus the GPUs of the training, on all nodes together")


def uneven_nodes(key: str, gpus: int, nodes: int) -> Diagnostic:
    """Return the fault of GPUs that cannot be divided equally among the nodes of a pool."""
    below = gpus // nodes * nodes
    fitting = " or ".join(str(count) for count in (below, below + nodes) if count)
    message = f"`{key}` is {gpus}, which is no multiple of the {counted(nodes, 'node')} of `nnodes`: "
    message += "each of them has the same number of GPUs of a role"
    return Diagnostic("not-multiple", message, f"use {fitting}, or another nnodes")


def not_groups(value: Any) -> Diagnostic:
    """Return the fault of roles that are no list of lists."""
    allowed = "a list of lists of roles"
    return must_be(("colocate_groups",), value, allowed, "write colocate_groups: [[train, rollout]]")


def not_roles(index: int, value: Any) -> Diagnostic:
    """Return the fault of an entry that is no list of two roles or more."""
    help = "write colocate_groups: [[train, rollout]], or leave the key out"
    return must_be(f"`colocate_groups[{index}]`", value, "a list of 2 roles or more", help)


def unknown_role(index: int, role: str) -> Diagnostic:
    """Return the fault of a name that is no role."""
    message = f"unknown role `{role}` in `colocate_groups[{index}]`"
    return Diagnostic("invalid-value", message, did_you_mean(role, keys.ROLES, "the roles are"))


def role_twice(role: str) -> Diagnostic:
    """Return the fault of a role in two places of ``colocate_groups``."""
    message = f"`{role}` is twice in `colocate_groups`"
    return Diagnostic("invalid-value", message, "a role shares one set of GPUs: name it once")


def role_without_gpus(index: int, role: str) -> Diagnostic:
    """Return the fault of a role that shares GPUs but states no number of GPUs."""
    message = f"`{role}` is in `colocate_groups[{index}]`, but `{role}.gpus` is missing or 0"
    return Diagnostic("missing-key", message, f"give {role}.gpus the number of the roles beside it")


def other_sizes(sizes: Mapping[str, int]) -> Diagnostic:
    """Return the fault of roles that are to share GPUs, and ask for different numbers."""
    numbers = [f"{role}.gpus {count}" for role, count in sizes.items()]
    message = f"roles of `colocate_groups` have the same GPUs, but ask for different numbers: {listed(numbers)}"
    return Diagnostic("invalid-value", message, "give them the same number, or take them out of colocate_groups")


def undivided_engines(key: str, gpus: int, size: int, sizes: str) -> Diagnostic:
    """Return the fault of GPUs that are no multiple of the size of a replica."""
    below = gpus // size * size
    fitting = " or ".join(str(count) for count in (below, below + size) if count)
    message = f"`{key}` is {gpus}, which is no multiple of the {size} GPUs of a replica ({sizes})"
    return Diagnostic("not-multiple", message, f"use {fitting}, or other sizes of vLLM")


def unequal_parts(name: str, replica: int, parts: Mapping[int, int], sizes: str) -> Diagnostic:
    """Return the fault of a replica on nodes of which each has another number of its GPUs.

    ``parts`` has the number of GPUs by node.
    """
    on_nodes = [f"{count} on node {node}" for node, count in parts.items()]
    message = f"replica {replica} of the {name} would have {' and '.join(on_nodes)} ({sizes}): "
    message += "ms-swift expects the same number on each of its nodes"
    help = "choose sizes of vLLM of which whole replicas fit on a node, or whole nodes make one"
    return Diagnostic("spans-nodes", message, help)


def unlike_replicas(name: str, parts: list[int], sizes: str) -> Diagnostic:
    """Return the fault of replicas some of which are on more nodes than others."""
    message = f"replicas of the {name} ({sizes}) would have {' and '.join(map(str, parts))} GPUs on a node: "
    message += "some of them are on more nodes than others"
    help = "choose sizes of vLLM of which whole replicas fit on a node, or whole nodes make one"
    return Diagnostic("spans-nodes", message, help)


_TASKS = {"rm": "the training of a reward model"}
"""What algorithms do that are not preference training."""


def several_servers(count: int) -> Diagnostic:
    """Return the fault of several servers, for the files of launchers."""
    message = f"{count} servers are started: a file of a launcher has the command of one"
    return Diagnostic("emit-command", message, "use one server with --vllm_data_parallel_size")


def not_online(algorithm: str) -> Diagnostic:
    """Return the fault of an algorithm that generates nothing."""
    task = _TASKS.get(algorithm, "preference training (DPO)")
    message = f"`rlhf_type` {algorithm} is {task}, not an RL job: there is no component to place"
    return Diagnostic("no-components", message, "rankplan reads the jobs of grpo, gkd and ppo")


def wrong_mode(mode: str) -> Diagnostic:
    """Return the fault of an unknown ``vllm_mode``."""
    help = did_you_mean(mode, keys.MODES) or "write server or colocate"
    return must_be(("vllm_mode",), mode, "server or colocate", help)


def mode_without_vllm(mode: str) -> Diagnostic:
    """Return the fault of a mode of vLLM without vLLM, which ms-swift refuses."""
    message = f"`vllm_mode` is {mode}, but `use_vllm` is not true: ms-swift refuses the command"
    return Diagnostic("invalid-value", message, "add --use_vllm true, or remove vllm_mode")


def no_mode() -> Diagnostic:
    """Return the fault of vLLM without a mode, which ms-swift refuses."""
    message = "`use_vllm` is true, but `vllm_mode` is missing: ms-swift has no default"
    return Diagnostic("missing-key", message, "add --vllm_mode colocate, or server with --vllm_server_host")


def no_host() -> Diagnostic:
    """Return the fault of a server whose address is not stated."""
    message = "`vllm_mode` is server, but neither `vllm_server_host` nor `vllm_server_base_url` is stated"
    return Diagnostic("missing-key", message, "add --vllm_server_host with the node of `swift rollout`")


def no_server() -> Diagnostic:
    """Return the warning of a server that this script does not start."""
    message = "`vllm_mode` is server, but no command here is `swift rollout`: its devices are not in the plan"
    return Diagnostic("not-read", message, "put the command of the server into the script", warning=True)


def idle_server(mode: str) -> Diagnostic:
    """Return the warning of a server that the trainer does not use."""
    reason = f"`vllm_mode` is {mode}" if mode else "`use_vllm` is not true"
    message = f"the server of vLLM is idle: {reason}"
    return Diagnostic("parallel-idle", message, "set vllm_mode: server, or start no server", warning=True)


def several_trainers(count: int) -> Diagnostic:
    """Return the warning of commands of which each is a job of its own."""
    message = f"{count} commands start a trainer on one node: only one of them is planned"
    help = "split the script, or set NNODES and a NODE_RANK for each command if they are one job"
    return Diagnostic("not-read", message, help, warning=True)


def rank_twice(rank: int) -> Diagnostic:
    """Return the fault of two commands with the same number of their node."""
    return Diagnostic("bad-node-rank", f"two commands have NODE_RANK {rank}", "number the nodes from 0")


def more_than_visible(what: str, count: int, visible: int, node: int, stated: str) -> Diagnostic:
    """Return the fault of more processes or engines than the devices that a command sees."""
    message = f"{what} needs {counted(count, 'device')} of node {node}, but sees {visible} ({stated})"
    return Diagnostic("resource-out-of-range", message, "make more devices visible, or use smaller numbers")


def uneven_devices(visible: int, processes: int, node: int) -> Diagnostic:
    """Return the fault of visible devices that the processes of a node cannot share equally."""
    message = f"the {counted(visible, 'visible device')} of node {node} cannot be divided among "
    message += f"{counted(processes, 'process', 'processes')}: ms-swift ends with an AssertionError"
    return Diagnostic("not-multiple", message, f"set CUDA_VISIBLE_DEVICES to {processes} devices, or NPROC_PER_NODE")


def sharded_model(visible: int, processes: int, user: str) -> Diagnostic:
    """Return the fault of a process with several devices, on which its model would be sharded."""
    message = f"{counted(processes, 'process', 'processes')} would shard the model over {visible} visible devices "
    message += f"(device_map), which ms-swift refuses with {user}"
    help = f"set NPROC_PER_NODE={visible}, or CUDA_VISIBLE_DEVICES to {counted(processes, 'device')}"
    return Diagnostic("invalid-value", message, help)


def undivided_world(tensor: int, world: int) -> Diagnostic:
    """Return the fault of engines that the processes of the trainer cannot form."""
    fitting = [size for size in range(1, min(tensor, world) + 1) if world % size == 0]
    message = f"engines of {tensor} processes do not divide the {world} of the trainer"
    return Diagnostic("parallel-not-divisible", message, f"use {fitting[-1]}, or another number of processes")


def torn_engine(engine: int, tensor: int, first: int, last: int) -> Diagnostic:
    """Return the fault of an engine whose processes are on two nodes."""
    message = f"engine {engine} of the rollout, of {tensor} processes, is on nodes {first} and {last}"
    return Diagnostic("spans-nodes", message, "use a size that divides the processes of a node")


def device_twice(node: int, device: int, rank: int) -> Diagnostic:
    """Return the fault of a device of a server that a process of the trainer has, too."""
    message = f"device {device} of node {node} has rank {rank} of the trainer and a server of vLLM: "
    message += "the group that sends the weights has it twice" if rank == 0 else "both keep their weights there"
    return Diagnostic("duplicate-resource", message, _MASKS)


def servers_share(first: int, second: int, node: int) -> Diagnostic:
    """Return the fault of two servers with the same device."""
    message = f"servers {first} and {second} share devices of node {node}"
    return Diagnostic("duplicate-resource", message, _MASKS)


def same_port(port: int, node: int) -> Diagnostic:
    """Return the fault of two servers with one port of a node."""
    return Diagnostic("invalid-value", f"two servers of node {node} have port {port}", "give each a --port of its own")

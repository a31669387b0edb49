"""The faults of prime-rl's configs: what was found, what is allowed, and what to write instead.

Those that prime-rl finds itself name the validator (``configs/rl.py``, ``configs/inference.py``) or the function.
"""

from __future__ import annotations

from rankplan import Diagnostic
from rankplan.sdk import must_be

_SEVERAL = 'deployment.type = "multi_node"'
_ONE = 'deployment.type = "single_node"'


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


# Sections


def no_section(name: str) -> Diagnostic:
    """Return the fault of a job without a section that prime-rl demands (``RLConfig``)."""
    return Diagnostic("missing-key", f"`{name}` is missing: prime-rl starts no job without it", f"add a line [{name}]")


def moved_sizes() -> Diagnostic:
    """Return the fault of sizes where they were before prime-rl passed vLLM's own names on."""
    message = "prime-rl has no `inference.parallel`: it refuses the config"
    help = "write tensor_parallel_size and data_parallel_size in [inference.vllm]"
    return Diagnostic("unknown-key", message, help)


def of_other_deployment(name: str, *, several: bool) -> Diagnostic:
    """Return the fault of a key that the other type of deployment has (``DeploymentConfig``)."""
    mine, other = (_ONE, _SEVERAL) if several else (_SEVERAL, _ONE)
    message = f"`{name}` is a key of {mine}, but this is {other}: prime-rl refuses it"
    return Diagnostic("unknown-key", message, f"remove it, or set {mine}")


def not_slurm(kind: str) -> Diagnostic:
    """Return the fault of several nodes without Slurm (``validate_deployment``)."""
    return Diagnostic("missing-key", f"{kind} needs Slurm: prime-rl starts several nodes only with it", "add [slurm]")


# One node


def too_many(train: int, infer: int, per_node: int, *, serves: bool) -> Diagnostic:
    """Return the fault of more GPUs than a node has (``validate_gpu_count``)."""
    message = f"the trainer has {train} GPUs and the inference {infer}, more than the {per_node} of a node"
    message += " (gpus_per_node)"
    help = f"use at most {per_node} together, or {_SEVERAL}"
    if not serves:
        help = "set num_infer_gpus = 0: without [inference] they stay idle, but prime-rl counts them"
    return Diagnostic("resource-out-of-range", message, help)


def undivided_servers(gpus: int, tensor: int) -> Diagnostic:
    """Return the fault of GPUs that cannot be divided into servers (``auto_setup_deployment``)."""
    fitting = ", ".join(str(size) for size in range(1, gpus + 1) if gpus % size == 0)
    message = f"{gpus} GPUs of the inference cannot be divided into servers of {tensor} (tensor_parallel_size)"
    return Diagnostic(
        "not-multiple", message, f"use a tensor_parallel_size of {fitting}, or a multiple of {tensor} GPUs"
    )


def small_mask(train: int, infer: int, stated: str, visible: int) -> Diagnostic:
    """Return the fault of a command that sees fewer GPUs than the job has (``partition_gpus``)."""
    message = f"the job needs {train + infer} GPUs (num_train_gpus {train}"
    message += f", num_infer_gpus {infer})" if infer else ")"
    message += f", but its command sees {visible} ({stated}): prime-rl does not start it"
    help = f"make {train + infer} GPUs visible, or use at most {visible} together"
    return Diagnostic("resource-out-of-range", message, help)


def no_numbers(stated: str) -> Diagnostic:
    """Return the fault of a mask that prime-rl cannot read (``get_physical_gpu_ids``)."""
    message = f"prime-rl reads {stated} as numbers, and ends with an error"
    return Diagnostic("invalid-value", message, "list the numbers of the GPUs: CUDA_VISIBLE_DEVICES=0,1,2,3")


def no_device(device: int, present: int, stated: str) -> Diagnostic:
    """Return the fault of a mask with a GPU that the node lacks."""
    message = f"the node has GPUs 0-{present - 1}, and not {device} ({stated})"
    return Diagnostic("resource-out-of-range", message, "list GPUs of the node, or pass a larger one with --nodes")


def unplanned_program(name: str) -> Diagnostic:
    """Return the fault of a program beside the job, for the files of launchers: no plan has its GPUs."""
    message = f"the script also starts `{name}`, whose GPUs no plan has"
    return Diagnostic("emit-command", message, "start it elsewhere, and leave it out of the script")


def no_gpus_to_serve() -> Diagnostic:
    """Return the fault of an inference on no GPU."""
    return must_be(("num_infer_gpus",), 0, "1 or more", "use 1 GPU or more, or remove [inference]")


def one_gpu() -> Diagnostic:
    """Return the fault of a broadcast to itself (``validate_enough_devices_for_nccl``)."""
    message = "the NCCL broadcast of weights needs 2 GPUs or more: the trainer and the inference have one together"
    return Diagnostic("resource-out-of-range", message, 'use more GPUs, or weight_broadcast.type = "filesystem"')


def replaced_size(stated: int, used: int) -> Diagnostic:
    """Return the warning of a data size that prime-rl replaces (``auto_setup_deployment``)."""
    message = f"prime-rl replaces data_parallel_size {stated} by {used}: as many servers as num_infer_gpus has room for"
    return Diagnostic("parallel-conflict", message, f"use {used}, or other num_infer_gpus", warning=True)


def unused_deployment(kind: str) -> Diagnostic:
    """Return the warning of an inference of several nodes in a job of one (``write_subconfigs`` drops the key)."""
    message = f'inference.deployment.type = "{kind}" has no effect: this job has one node'
    return Diagnostic("not-read", message, f"remove it, or set {_SEVERAL}", warning=True)


def wrong_port(client: int | None, server: int) -> Diagnostic:
    """Return the fault of an orchestrator that asks another port (``rl_local``)."""
    stated = "no port" if client is None else f"port {client}"
    message = f"the orchestrator asks {stated}, but the inference listens on port {server}"
    help = f'set orchestrator.model.client.base_url = "http://localhost:{server}/v1", or another inference.server.port'
    return Diagnostic("invalid-value", message, help)


# Several nodes


def no_train_nodes() -> Diagnostic:
    """Return the fault of a job on several nodes without those of the trainer (``MultiNodeDeploymentConfig``)."""
    return Diagnostic("missing-key", "`num_train_nodes` is missing", "add num_train_nodes = 1")


def no_servers(nodes: int) -> Diagnostic:
    """Return the fault of nodes for an inference that is not configured (``validate_deployment``)."""
    message = f"{_nodes(nodes)} for the inference, but no [inference]: nothing would start there"
    return Diagnostic("missing-key", message, "add [inference]")


def no_nodes_to_serve() -> Diagnostic:
    """Return the fault of an inference without nodes (``validate_deployment``)."""
    return must_be(("num_infer_nodes",), 0, "1 or more", "use 1 node or more, or remove [inference]")


def needs_fake_data() -> Diagnostic:
    """Return the fault of a trainer that gets no data (``validate_deployment``)."""
    message = "without nodes for the inference there is no orchestrator, and the trainer gets no data"
    return Diagnostic("missing-key", message, "add [trainer.data.fake], or [inference] and num_infer_nodes")


def other_nodes(stated: int, derived: int, why: str) -> Diagnostic:
    """Return the fault of nodes that contradict those of the inference (``auto_setup_infer_nodes``)."""
    message = f"num_infer_nodes is {stated}, but the inference has {_nodes(derived)} a replica ({why})"
    return Diagnostic("invalid-value", message, f"use {derived}, or leave num_infer_nodes out")


def no_router() -> Diagnostic:
    """Return the fault of several servers without a router (``validate_multi_node_requires_router``)."""
    message = "servers on several nodes need a router before them, but `inference.router` is off"
    return Diagnostic("invalid-value", message, "remove the key: prime-rl starts a router itself")


def no_room(tensor: int, per_node: int) -> Diagnostic:
    """Return the fault of servers larger than a node: the script of Slurm divides, and starts none."""
    message = f"a server of {tensor} GPUs (tensor_parallel_size) does not fit on a node of {per_node}: none would start"
    return Diagnostic("parallel-idle", message, f"use at most {per_node}")


def left_over(tensor: int, per_node: int, *, waits: bool, shared: bool) -> Diagnostic:
    """Return the fault of servers that leave GPUs of each node idle (``multi_node_rl.sbatch.j2``).

    ``waits``: the transfer of weights counts every GPU, and waits for ranks that nobody starts. ``shared``: experts are
    shared, and prime-rl refuses it (``auto_setup_deployment``).
    """
    rest = per_node % tensor
    message = f"servers of {tensor} GPUs (tensor_parallel_size) leave {rest} of {per_node} GPUs of each node idle"
    if shared:
        message += "; with enable_expert_parallel, prime-rl refuses that"
    elif waits:
        message += ", and the transfer of weights waits for ranks there that nobody starts"
    fitting = max(size for size in range(1, tensor + 1) if per_node % size == 0)
    return Diagnostic(
        "parallel-idle", message, f"use a tensor_parallel_size that divides {per_node}, such as {fitting}"
    )


def other_world(data: int, tensor: int, gpus: int) -> Diagnostic:
    """Return the fault of servers that share experts, and are not as many as the GPUs (``auto_setup_deployment``)."""
    message = f"data_parallel_size {data} x tensor_parallel_size {tensor} is {data * tensor}, but a replica of the "
    message += f"inference has {gpus} GPUs; with enable_expert_parallel they must be equal"
    help = f"use data_parallel_size = {gpus // tensor}" if gpus % tensor == 0 else f"use sizes with the product {gpus}"
    return Diagnostic("invalid-value", message, help)


def other_local(stated: int, local: int) -> Diagnostic:
    """Return the fault of another number of servers on a node (``auto_setup_deployment``)."""
    allowed = f"{local}, which is gpus_per_node / tensor_parallel_size"
    return must_be(("data_parallel_size_local",), stated, allowed, f"use {local}, or leave it out")


def uneven_islands(nodes: int, island: int) -> Diagnostic:
    """Return the fault of nodes that cannot be divided into FSDP islands (``auto_setup_deployment``)."""
    fitting = ", ".join(str(size) for size in range(1, nodes + 1) if nodes % size == 0)
    message = f"{_nodes(nodes)} of the trainer cannot be divided into FSDP groups of {island}"
    return Diagnostic("not-multiple", message, f"use nodes_per_fsdp_group of {fitting}")


# The commands of a job on several nodes


def only_own_script(what: str, key: str) -> Diagnostic:
    """Return the fault of a job that needs what only prime-rl's own script of Slurm starts or sets up."""
    message = f"prime-rl's own script of Slurm alone starts {what} (`{key}`): it sets up their network on each node"
    return Diagnostic("emit-command", message, "submit the job with `rl`, or pass --command for each component")


def written_first(folder: str, command: str) -> Diagnostic:
    """Return the warning of files that the commands of a job read (``write_subconfigs``)."""
    message = f"the commands of the job read {folder}, which `rl` writes"
    return Diagnostic("emit-command", message, f"run `{command}` before the job starts", warning=True)


def of_own_script(key: str) -> Diagnostic:
    """Return the warning of a key that only prime-rl's own script of Slurm uses."""
    message = f"`{key}` has no effect here: only prime-rl's own script of Slurm uses it"
    return Diagnostic("not-read", message, "write its commands into the head of the file", warning=True)


def unnamed_source() -> Diagnostic:
    """Return the fault of a source without a name that the file of its environment server could have."""
    message = "the environment server of this source has no name: nobody knows its file"
    return Diagnostic("emit-command", message, 'add a name without "/": name = "math"')


# The trainer


def no_expert_size(value: object) -> Diagnostic:
    """Return the fault of an expert size that is neither a number nor ``auto``."""
    return must_be(("ep",), value, 'a whole number of 1 or more, or "auto"', 'write a number such as 8, or "auto"')


def undivided_ranks(world: int, replicate: int, context: int) -> Diagnostic:
    """Return the fault of a trainer whose copies and context groups do not divide its ranks (``ParallelDims``)."""
    message = f"{world} ranks of the trainer cannot be divided by dp_replicate {replicate} x cp {context}"
    return Diagnostic("parallel-not-divisible", message, f"use sizes whose product divides {world}")


def undivided_experts(expert: int, context: int, shards: int) -> Diagnostic:
    """Return the fault of expert groups that do not fit the other groups (``ParallelDims._validate``)."""
    message = f"ep {expert} must be a multiple of cp {context}, and divide the {shards} ranks of a copy of the weights"
    fitting = [size for size in range(context, shards + 1, context) if shards % size == 0]
    return Diagnostic("parallel-not-divisible", message, f"use ep of {', '.join(map(str, fitting[:8]))}")


# Models that the job does not start


def nobody_starts_policy(url: str) -> Diagnostic:
    """Return the warning of a job without [inference], whose orchestrator asks a server (``rl_local``)."""
    message = f"the job starts no [inference]: the orchestrator waits until a server answers at {url}"
    return Diagnostic("not-read", message, "add [inference], or start `inference` before the job", warning=True)


def nobody_starts_teacher(name: str, url: str) -> Diagnostic:
    """Return the warning of a frozen model on this machine that nothing here starts (``rl_local``)."""
    message = f"nobody starts {name} at {url}: prime-rl asks frozen models, and never starts them"
    help = "start `inference` with this port before the job, on GPUs that the job does not use"
    return Diagnostic("not-read", message, help, warning=True)

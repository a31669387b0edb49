"""The faults and warnings of TRL's jobs, each without its place."""

from __future__ import annotations

from rankplan import Diagnostic
from rankplan.sdk.words import counted, did_you_mean

_MASKS = "give each command its own devices: CUDA_VISIBLE_DEVICES=0 trl vllm-serve ..."


def device_twice(node: int, device: int, rank: int) -> Diagnostic:
    """Return the fault of a device of the server that a rank of the trainer has, too."""
    message = f"device {device} of node {node} has rank {rank} of the trainer and the server of vLLM"
    if rank == 0:
        message += ": the group that sends the weights has it twice, and is refused after 300 s"
    else:
        message += ": both keep their weights there"
    return Diagnostic("duplicate-resource", message, _MASKS)


def servers_share(node: int, device: int) -> Diagnostic:
    """Return the fault of a device that two servers have."""
    message = f"device {device} of node {node} has engines of two servers: both keep their weights there"
    return Diagnostic("duplicate-resource", message, _MASKS)


def more_than_visible(what: str, count: int, visible: int, node: int, stated: str) -> Diagnostic:
    """Return the fault of more processes than the devices that a command sees."""
    message = f"{what} needs {counted(count, 'device')} of node {node}, but sees {visible} ({stated})"
    help = "make more devices visible, or start fewer processes"
    return Diagnostic("resource-out-of-range", message, help)


def large_server(tensor: int, data: int, devices: int) -> Diagnostic:
    """Return the fault of a server whose engines do not fit on its node."""
    message = f"the server needs {tensor * data} devices ({data} engines of {tensor}), but its node has {devices}"
    help = "use smaller sizes, or --distributed_executor_backend ray for an engine over several nodes"
    return Diagnostic("spans-nodes", message, help)


def undivided(tensor: int, world: int) -> Diagnostic:
    """Return the fault of engines in the trainer that its processes cannot form."""
    fitting = [size for size in range(1, min(tensor, world) + 1) if world % size == 0]
    message = f"engines of {tensor} processes do not divide the {world} of the trainer"
    return Diagnostic("parallel-not-divisible", message, f"use {fitting[-1]}, or another number of processes")


def torn_engine(engine: int, tensor: int, first: int, last: int) -> Diagnostic:
    """Return the fault of an engine whose processes are on two nodes."""
    message = f"engine {engine} of the rollout, of {tensor} processes, is on nodes {first} and {last}"
    return Diagnostic("spans-nodes", message, "use a size that divides the processes of a node")


def wrong_batch(batch: int, terms: str, generations: int, processes: int | None) -> Diagnostic:
    """Return the fault of a batch that has parts of a group of generations; so many processes would have none."""
    message = f"a batch of {batch} ({terms}) is no multiple of num_generations, which is {generations}"
    help = "change one of them"
    if processes is not None:
        help += f", or use {counted(processes, 'process', 'processes')}"
    return Diagnostic("not-multiple", message, help)


def wrong_mode(mode: str) -> Diagnostic:
    """Return the fault of an unknown ``vllm_mode``."""
    message = f"`vllm_mode` is {mode!r}; it must be server or colocate"
    return Diagnostic(
        "invalid-value", message, did_you_mean(mode, ("server", "colocate")) or "write server or colocate"
    )


def idle_server(reason: str) -> Diagnostic:
    """Return the warning of a server that the trainer does not use."""
    help = "set vllm_mode: server and use_vllm: true, or start no server"
    return Diagnostic("parallel-idle", f"the server of vLLM is idle: {reason}", help, warning=True)


def server_by_pin(pin: str) -> Diagnostic:
    """Return the warning of a server that is used only by the default of an old version."""
    message = f"vllm_mode is not stated: server, the default of {pin}; with TRL 1.0 or later it is colocate"
    message += ", and the server idle"
    return Diagnostic("not-read", message, "add vllm_mode: server", warning=True)


def default_mode(mode: str, pin: str | None) -> Diagnostic:
    """Return the warning of a mode that nothing states."""
    since = "the default of TRL 1.0 and later; before, it was server" if pin is None else f"the default of {pin}"
    return Diagnostic("not-read", f"vllm_mode is not stated: {mode}, {since}", f"add vllm_mode: {mode}", warning=True)


def no_server(address: str) -> Diagnostic:
    """Return the warning of a trainer that waits for a server which no command starts."""
    message = f"no command here starts the server of vLLM: the trainer waits for {address}, and ends after 240 s"
    return Diagnostic("not-read", message, "add the command of the server: trl vllm-serve --model ...", warning=True)


def unknown_mode(program: str, reason: str) -> Diagnostic:
    """Return the warning of a program whose config in Python is not known."""
    message = f"whether and how `{program}` uses vLLM is unknown: {reason}"
    help = "run the check where the program is, or write its keys as literals: GRPOConfig(use_vllm=True, ...)"
    return Diagnostic("not-read", message, help, warning=True)


def unknown_key(key: str, names: tuple[str, ...], pin: str | None) -> Diagnostic:
    """Return the fault of a key that TRL does not have, a warning for a version that ignores it."""
    message = f"unknown key `{key}`: TRL refuses it"
    if pin is not None:
        message = f"unknown key `{key}`: {pin} ignores it, and TRL 1.0 refuses it"
    help = did_you_mean(key, names) or "remove it"
    return Diagnostic("unknown-key", message, help, warning=pin is not None)


def switch_in_file(key: str) -> Diagnostic:
    """Return the fault of a switch of accelerate in the YAML of ``trl --config``."""
    message = f"`{key}` becomes `--{key} True`, and accelerate takes `True` for the program"
    return Diagnostic("invalid-value", message, f"pass --{key} on the command line, or use --accelerate_config")


def unknown_config(name: str, known: tuple[str, ...]) -> Diagnostic:
    """Return the fault of a config of accelerate that is no file and no name of TRL."""
    message = f"`{name}` is no file here, and no config of accelerate that TRL brings"
    return Diagnostic("invalid-value", message, did_you_mean(name, known) or f"the names are {', '.join(known)}")


def no_launcher() -> Diagnostic:
    """Return the warning of a config of the trainer without a command that starts it."""
    message = "no command starts this config: it is read like `trl grpo --config`, which starts a process for each "
    message += "device of a node"
    return Diagnostic("not-read", message, "pass the script that starts the trainer", warning=True)


def same_port(port: int, node: int) -> Diagnostic:
    """Return the fault of two servers on a node with one port."""
    message = f"two servers on node {node} have port {port}: the second one cannot start"
    return Diagnostic("invalid-value", message, "give each its own --port, and its trainer --vllm_server_port")


def two_jobs(count: int) -> Diagnostic:
    """Return the warning of several trainers in one script, of which one is read."""
    message = f"the script starts {count} trainers: each is checked like one that runs alone"
    return Diagnostic("not-run", message, "check a script with one of them", warning=True)


def asynchronous_ranks(world: int) -> Diagnostic:
    """Return the fault of asynchronous GRPO with FSDP2 on several ranks."""
    message = f"AsyncGRPO with FSDP2 on {world} ranks waits for ever when it sends the weights"
    return Diagnostic("invalid-value", message, "use one rank, or DeepSpeed")


def short_timeout(parameters: str) -> Diagnostic:
    """Return the warning of a server that takes longer to start than the trainer waits."""
    message = f"the trainer waits 240 s for the server, which loads {parameters}"
    return Diagnostic("not-run", message, "set vllm_server_timeout: 1800", warning=True)


def no_nodes_left(program: str) -> Diagnostic:
    """Return the fault of a trainer on no node."""
    message = f"`{program}` runs on no node: the number of its nodes is 0"
    return Diagnostic("too-few-nodes", message, "submit the job with more nodes: one of them is the server's")


def unequal_step(nodes: int, machines: int) -> Diagnostic:
    """Return the fault of a step with another number of nodes than its launcher expects."""
    message = f"the step of Slurm has {counted(nodes, 'node')}, but the launcher waits for {machines}"
    return Diagnostic("too-few-nodes", message, f"use --nodes={machines}, or num_machines {nodes}")


def rank_twice(rank: int) -> Diagnostic:
    """Return the fault of two nodes with one rank."""
    message = f"two nodes have rank {rank}: the processes wait for each other for ever"
    return Diagnostic("bad-node-rank", message, "give each node its own --machine_rank, from 0 on")


def half_idle(devices: int, nodes: int) -> Diagnostic:
    """Return the warning of processes that are the devices of one node, divided between several."""
    message = f"without num_processes, accelerate starts the {devices} devices of one node on {nodes} nodes: "
    message += f"{devices // nodes} on each"
    return Diagnostic("parallel-idle", message, f"pass --num_processes {devices * nodes}", warning=True)


def spread_server() -> Diagnostic:
    """Return the fault of a server on several nodes, for the files of launchers: vLLM starts it on a cluster of Ray."""
    message = "Ray spreads this server over several nodes: one command does not start it"
    return Diagnostic("emit-command", message, "start the server by hand, and leave it out of the script")


def mask_of_file() -> Diagnostic:
    """Return the fault of devices in a YAML file, which would count more than those of a plan."""
    message = "`env` of this file sets CUDA_VISIBLE_DEVICES: it would replace the devices of the plan"
    return Diagnostic("emit-command", message, "set CUDA_VISIBLE_DEVICES before the command, and not in the file")


def fixed_host() -> Diagnostic:
    """Return the fault of a program that cannot be told where its server is."""
    message = "the program takes no flags, so nothing can pass it the address of its server"
    help = "read the config with TrlParser((GRPOConfig, ...)): --vllm_server_host is passed then"
    return Diagnostic("emit-command", message, help)


def several_servers(count: int) -> Diagnostic:
    """Return the fault of several servers, of which a trainer uses one."""
    message = f"{count} servers are started, and a trainer of TRL uses one"
    help = "use one server with --data_parallel_size, or one script for each trainer"
    return Diagnostic("emit-command", message, help)

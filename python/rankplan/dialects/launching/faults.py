"""The faults and warnings of launchers, each without its place."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan.errors import Diagnostic
from rankplan.words import counted, did_you_mean

_SEVERAL = "pass one of them only"


def unknown_key(key: str, known: Sequence[str]) -> Diagnostic:
    """Return the fault of a key of accelerate's file that it does not have; accelerate refuses the file."""
    help = did_you_mean(key, known) or "remove it: accelerate refuses a file with unknown keys"
    return Diagnostic("unknown-key", f"unknown key `{key}` of a config of accelerate", help)


def no_type() -> Diagnostic:
    """Return the fault of a file of accelerate without ``distributed_type``."""
    message = "a config of accelerate must have a `distributed_type`"
    return Diagnostic("missing-key", message, "write distributed_type: MULTI_GPU, DEEPSPEED, FSDP or 'NO'")


def no_count(file: str) -> Diagnostic:
    """Return the fault of a file of accelerate without ``num_processes``, if no flag states them either."""
    message = f"nothing states the number of processes: {file} has no `num_processes`"
    return Diagnostic("missing-key", message, "add num_processes to the file, or pass --num_processes")


def several_types(names: Sequence[str]) -> Diagnostic:
    """Return the fault of flags that exclude each other."""
    listed = " and ".join(f"`--{name}`" for name in names)
    return Diagnostic("invalid-value", f"accelerate refuses {listed} together", _SEVERAL)


def one_process_only(total: int) -> Diagnostic:
    """Return the fault of ``--multi_gpu`` with a single process."""
    message = f"`--multi_gpu` needs at least 2 processes, but num_processes is {total}"
    return Diagnostic("invalid-value", message, "remove --multi_gpu, or use 2 processes or more")


def few_ids(ids: str) -> Diagnostic:
    """Return the fault of one device for the processes of several."""
    message = f"`gpu_ids` is {ids}: several processes need at least two devices"
    return Diagnostic("invalid-value", message, "list the devices of a node (0,1), or use gpu_ids: all")


def not_parallel(total: int, stated: str) -> Diagnostic:
    """Return the warning of a type that starts one process, whatever number is stated."""
    message = f"accelerate starts 1 process, not {total}: {stated} ignores num_processes"
    help = "use distributed_type: MULTI_GPU, DEEPSPEED or FSDP, or num_processes: 1"
    return Diagnostic("parallel-idle", message, help, warning=True)


def lost_processes(total: int, nodes: int) -> Diagnostic:
    """Return the warning of processes that no node starts, because the nodes start equal numbers."""
    each = total // nodes
    message = f"{total} processes on {nodes} nodes: {each * nodes} start, {each} on each node"
    return Diagnostic("parallel-idle", message, f"use {each * nodes} or {(each + 1) * nodes} processes", warning=True)


def too_few_processes(total: int, nodes: int) -> Diagnostic:
    """Return the fault of fewer processes than nodes: none starts."""
    message = f"{counted(total, 'process', 'processes')} on {nodes} nodes: each node would start none"
    return Diagnostic("invalid-value", message, f"use {nodes} processes or more, or fewer nodes")


def no_rank() -> Diagnostic:
    """Return the fault of several nodes without a number for each: accelerate refuses the command."""
    message = "several nodes, but nothing states the `machine_rank` of each: accelerate ends with an error"
    return Diagnostic("bad-node-rank", message, "pass --machine_rank on each node, or a config file")


def no_type_of_several(nodes: int) -> Diagnostic:
    """Return the fault of several nodes with the type of a single process."""
    message = f"{nodes} nodes, but a single process on each: `distributed_type` is NO, or nothing states several"
    return Diagnostic("invalid-value", message, "use distributed_type: MULTI_GPU, DEEPSPEED or FSDP, or one node")


def default_file() -> Diagnostic:
    """Return the warning of a command without a config file, which reads one that the job does not have."""
    message = "without --config_file, accelerate reads default_config.yaml in the home of the machine, if it exists"
    help = "pass --config_file, so that the job decides how many processes start"
    return Diagnostic("not-read", message, help, warning=True)


def unused_rendezvous(key: str, value: str) -> Diagnostic:
    """Return the warning of a key of the file that accelerate never uses."""
    message = f"`{key}: {value}` has no effect: accelerate takes it from its flag only"
    return Diagnostic("not-read", message, f"pass --{key} {value}, or remove the key", warning=True)


def by_hostfile(launcher: str) -> Diagnostic:
    """Return the warning of DeepSpeed's own launcher on several nodes, which reads a hostfile."""
    message = (
        f"with deepspeed_multinode_launcher: {launcher}, DeepSpeed starts the processes on the hosts of a hostfile"
    )
    help = "use deepspeed_multinode_launcher: standard, and run the command on each node"
    return Diagnostic("not-read", message, help, warning=True)


def other_devices(framework: str) -> Diagnostic:
    """Return the fault of processes on other devices than accelerators that a plan has."""
    message = f"processes on {framework} are not placed"
    return Diagnostic("invalid-value", message, "use the GPUs of the nodes: MULTI_GPU, DEEPSPEED or FSDP")


def known_when_run(name: str, cause: str) -> Diagnostic:
    """Return the warning of a number of a launcher that only a run knows."""
    message = f"`{name}` is known only when the script runs: it depends on {cause}"
    help = f"give its value: rankplan check SCRIPT -- {cause}=VALUE" if cause.isidentifier() else "write its value"
    return Diagnostic("not-run", message, help, warning=True)


def no_launcher_file(name: str) -> Diagnostic:
    """Return the fault of a config file of accelerate that is missing."""
    message = f"the config of accelerate `{name}` is not here: the number of processes is unknown"
    help = "run the check in the folder that the script runs in, or pass --num_processes"
    return Diagnostic("not-read", message, help, warning=True)


def same_rank(flag: str) -> Diagnostic:
    """Return the fault of nodes that all are node 0."""
    message = f"all nodes of the step have the same `--{flag}`: the processes wait for each other for ever"
    help = f"expand it on the node: srun ... bash -c 'accelerate launch --{flag} $SLURM_PROCID ...'"
    return Diagnostic("bad-node-rank", message, help)


def expanded_early(flag: str, variable: str) -> Diagnostic:
    """Return the fault of a rank that the batch script expands, where it is 0."""
    message = f"the batch script expands ${variable}, which is 0 there: `--{flag}` is 0 on every node"
    help = f"write it between single quotes: srun ... bash -c 'accelerate launch --{flag} ${variable} ...'"
    return Diagnostic("bad-node-rank", message, help)


def order_of_rendezvous() -> Diagnostic:
    """Return the warning of ranks that the rendezvous gives to nodes, in any order."""
    message = "the rendezvous numbers the nodes in the order in which they join, not in that of the list"
    help = "use the static rendezvous, and --machine_rank on each node"
    return Diagnostic("order-not-kept", message, help, warning=True)


def several_words(flag: str) -> Diagnostic:
    """Return the fault of a list of nodes that bash splits into several words."""
    message = (
        f"the list is a word for each node: srun takes the first one for --{flag}, and the second one for the command"
    )
    help = 'join the nodes with commas: $(IFS=,; echo "${NODES[*]}")'
    return Diagnostic("syntax", message, help)


def unknown_word(shown: str, variable: str) -> Diagnostic:
    """Return the fault of a word of a command that no file can have; ``variable`` decides it, if anything is known."""
    reason = f"{variable} decides it" if variable else "a command or a variable of the run decides it"
    message = f"the word `{shown}` of this command is known only when the script runs: {reason}"
    help = (
        f"set {variable} in the script, or pass it: {variable}=VALUE rankplan emit ..."
        if variable
        else "write its text"
    )
    return Diagnostic("emit-command", message, help)


def variable_left_out(name: str, *, is_known: bool) -> Diagnostic:
    """Return the warning of a variable of a command that no file gets: only a run knows it, or it may be a secret."""
    reason = "may be a secret" if is_known else "is known only when the script runs"
    help = f"export {name} where you submit the file: its processes inherit it"
    return Diagnostic("emit-command", f"{name} {reason}: it is not written", help, warning=True)


def unknown_mask(name: str, variable: str) -> Diagnostic:
    """Return the warning of a mask that only a run knows."""
    message = f"which devices the command sees is known only when the script runs: it depends on {variable}"
    return Diagnostic("not-run", message, f"write {name} with numbers", warning=True)

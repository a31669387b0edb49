"""The faults and warnings of AReaL's configs: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankplan import Diagnostic
from rankplan.sdk.placing import Short
from rankplan.sdk.words import counted, shown

# Engines


def no_engines() -> Diagnostic:
    """Return the fault of a config without an engine that could be placed."""
    message = "no engine has a `backend`, and there is no `allocation_mode`"
    return Diagnostic("missing-key", message, "add backends: `actor: {backend: 'fsdp:d4'}`")


def no_backend(engine: str) -> Diagnostic:
    """Return the fault of an engine that starts, but states no backend."""
    return Diagnostic("missing-key", f"`{engine}` has no `backend`", "add one, such as fsdp:d4 or sglang:d4")


def wrong_backend(engine: str, backend: str, allowed: Sequence[str]) -> Diagnostic:
    """Return the fault of an engine that infers with a backend of training, or trains with one of inference."""
    message = f"the backend of `{engine}` is {backend}; it must be {' or '.join(allowed)}"
    return Diagnostic("invalid-value", message, f"write one such as {allowed[-1]}:d4")


# Engines that share GPUs


def unknown_host(host: Any) -> Diagnostic:
    """Return the fault of an engine that shares the GPUs of an engine that does not start."""
    return Diagnostic("invalid-value", f"unknown engine {shown(host)}", "name an engine of this config that starts")


def host_starts_later(engine: str, host: str) -> Diagnostic:
    """Return the fault of an engine whose host has no workers yet when it starts."""
    message = f"`{engine}` shares the GPUs of `{host}`, which starts after it"
    return Diagnostic("invalid-value", message, f"remove it here, and set it for `{host}` with the target {engine}")


def other_processes(engine: str, processes: int, host: str, host_processes: int) -> Diagnostic:
    """Return the fault of an engine that has not as many processes as its host."""
    own = counted(processes, "process", "processes")
    hosted = counted(host_processes, "process", "processes")
    message = f"`{engine}` has {own}, but shares the GPUs of the {hosted} of `{host}`"
    return Diagnostic("invalid-value", message, "give both the same number of processes")


# Nodes


def part_of_node(engine: str, gpus: int, per_node: int) -> Diagnostic:
    """Return the fault of GPUs that are no whole nodes, where Slurm allocates those."""
    below = gpus // per_node * per_node
    message = f"`{engine}` has {counted(gpus, 'GPU')}, but Slurm allocates whole nodes of {per_node}"
    help = f"use {below} or {below + per_node}" if below else f"use {per_node}"
    return Diagnostic("not-multiple", message, help)


def no_node_for_process(engine: str, short: Short) -> Diagnostic:
    """Return the fault of a process that needs more GPUs of one node than any has free."""
    message = f"a process of `{engine}` needs {short.size} GPUs of one node; "
    message += f"{short.free} are free, but no node has that many"
    return Diagnostic("spans-nodes", message, "use a smaller tensor or pipeline size, or nodes with more GPUs")


def own_scheduler(scheduler: str) -> Diagnostic:
    """Return the warning of a scheduler that starts the engines without Ray."""
    message = f"`scheduler.type` is {scheduler}: AReaL starts its engines without Ray, "
    message += "wherever this scheduler puts them"
    return Diagnostic("not-pinned", message, "set `scheduler.type: ray` to run it on the nodes of a plan", warning=True)


# Older versions


def first_areal() -> Diagnostic:
    """Return the fault of a config of the first AReaL."""
    message = "this is a config of AReaL before 0.3.1 (`realhf`), which rankplan does not read"
    help = "write the sections of AReaL's PPOTrainer: rollout, actor and ref, each with a `backend`"
    return Diagnostic("unknown-key", message, help)


def mode_not_read() -> Diagnostic:
    """Return the fault of an ``allocation_mode`` beside a key of versions that do not read it."""
    message = "with `scheduler.type`, AReaL 1.0.3 and later read the `backend` of each engine, not this"
    help = "write `rollout: {backend: ...}` and `actor: {backend: ...}`; for an older AReaL, remove scheduler.type"
    return Diagnostic("missing-key", message, help)

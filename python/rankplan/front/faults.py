"""The faults and warnings of the front door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.words import by_nodes, counted, shown


def no_components(help: str) -> Diagnostic:
    """Return the fault of a config that places nothing."""
    return Diagnostic("no-components", "the config places no component", help)


def not_a_config(file: str) -> Diagnostic:
    """Return the fault of a saved plan where a config is tuned."""
    help = "pass the config of the job; --from takes a plan"
    return Diagnostic("invalid-value", "this is a saved plan, not a config", help, file=file)


def idle_nodes(used: int, nodes: int, file: str, *, states_nodes: bool) -> Diagnostic:
    """Return the warning of nodes that a config does not use; ``states_nodes``: it has RLinf's ``num_nodes``."""
    message = f"the config uses {counted(used, 'node')} of {nodes}"
    if states_nodes:
        help = f"set num_nodes to {nodes}, place components on the other nodes, or ignore this warning"
    else:
        help = "let the config use the other nodes, or keep them as spares for `rankplan replan`"
    return Diagnostic("idle-nodes", message, help, file=file, warning=True)


def idle_accelerators(idle: Mapping[int, RankSet], usable: int, file: str) -> Diagnostic:
    """Return the warning of accelerators that no component uses, by node."""
    unused = sum(map(len, idle.values()))
    message = f"no component uses {unused} of {usable} accelerators: {by_nodes(idle)}"
    return Diagnostic("idle-accelerators", message, file=file, warning=True)


def job_changed(present: str, plan: str) -> Diagnostic:
    """Return the warning of a trainer's file that has changed since its plan was saved."""
    message = f"{present} has changed since this plan was made from it"
    help = f"plan the job again, and save it: rankplan plan JOB --save {plan}"
    return Diagnostic("job-changed", message, help, file=plan, warning=True)


def newer_version(system: str, version: str, tried: str) -> Diagnostic:
    """Return the warning of a checkout of a trainer that is newer than every version that was tried."""
    message = f"{system} {version} is newer than {tried}, the newest version that rankplan was tried with"
    help = "update rankplan, or compare the plan with a running job: rankplan live"
    return Diagnostic("newer-version", message, help, warning=True)


def starts_processes(name: str, system: str) -> Diagnostic:
    """Return the fault of a job without Ray, for commands that bind or start ranks on Ray."""
    message = f"{name} is a job of {system}, which starts its processes without Ray"
    help = "start its components with `rankplan exec`, or write a file that does: `rankplan emit --to slurm`"
    return Diagnostic("plan-mismatch", message, help)


def overridden_commands(name: str, overrides: Sequence[str]) -> Diagnostic:
    """Return the fault of overrides of a job whose own commands start its processes: these do not get them."""
    message = f"the commands in {name} do not get {' '.join(overrides)}"
    return Diagnostic("emit-command", message, "change the commands in the file instead of passing overrides")


def size_not_read(path: str, count: Any, system: str) -> Diagnostic:
    """Return the warning of a number of nodes or GPUs that a system does not know: a part of a fork's own."""
    message = f"`{path}` is {shown(count)}, but {system} does not know it: what has these nodes or GPUs is not planned"
    help = "leave room for it: pass the nodes that it leaves, or exclude those that it takes"
    return Diagnostic("not-read", message, help, warning=True)


def no_groups(name: str, help: str) -> Diagnostic:
    """Return the fault of a job whose dialect asks Ray for no placement groups; ``help`` is the dialect's."""
    return Diagnostic("plan-mismatch", f"{name} asks Ray for no placement groups", help)


def unknown_dialect(dialect: str, known: str) -> Diagnostic:
    """Return the fault of a plan of a dialect that this installation lacks; ``known`` lists those that it has."""
    message = f"the plan is of the unknown dialect {shown(dialect)}; the dialects are {known}"
    return Diagnostic("plan-mismatch", message, "plan the trainer's config again with this version")


def no_requests(reason: str) -> Diagnostic:
    """Return the fault of a plan without requests; ``reason`` says which plans have none."""
    message = "the plan does not know what its trainer asks Ray for"
    help = f"plan the trainer's config again, and save it with this version; {reason}"
    return Diagnostic("plan-mismatch", message, help)

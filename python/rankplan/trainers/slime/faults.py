"""The faults and warnings of slime's flags: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan import Diagnostic
from rankplan.trainers.slime import keys

# Flags


def misspelt_flag(written: str, near: str) -> Diagnostic:
    """Return the fault of a flag that slime does not have, and that is likely another one."""
    return Diagnostic("unknown-key", f"unknown key `{written}`", f"did you mean `{near}`?")


def same_flag(first: str, second: str) -> Diagnostic:
    """Return the fault of a flag that is written in two ways."""
    return Diagnostic("duplicate-key", f"`{first}` and `{second}` are the same flag", "remove one of them")


def both_only() -> Diagnostic:
    """Return the fault of a job that only trains, and only generates."""
    message = "`debug_train_only` and `debug_rollout_only` are both set"
    return Diagnostic("invalid-value", message, "remove one of them")


def colocated_async() -> Diagnostic:
    """Return the fault of a colocated job that the asynchronous program starts."""
    message = "`train_async` refuses `colocate`: it trains while the engines generate, on GPUs of their own"
    help = "remove colocate and set rollout_num_gpus, or start train.py"
    return Diagnostic("invalid-value", message, help)


# Sizes


def no_gpus() -> Diagnostic:
    """Return the fault of flags by which nothing has a GPU."""
    message = "these flags give GPUs neither to the training nor to the rollout"
    return Diagnostic("empty-placement", message, "give one of them some")


def no_rollout_gpus() -> Diagnostic:
    """Return the fault of a rollout with GPUs of its own whose number is missing."""
    message = "`rollout_num_gpus` is missing; only a colocated rollout defaults to the training's GPUs"
    return Diagnostic("missing-key", message, "add it, or set colocate, debug_train_only or rollout_external")


def too_few_gpus(gpus: int, needed: Sequence[str], present: int, defaults_of: str | None) -> Diagnostic:
    """Return the fault of a cluster with too few GPUs; ``needed`` says what each side needs.

    ``defaults_of`` is the system whose default gives the actor its GPUs of a node, ``None`` if the flags state them.
    """
    message = f"the flags need {gpus} GPUs ({', '.join(needed)}), but the cluster has {present}"
    if defaults_of is not None:
        message += f"; {keys.ACTOR_GPUS.default} GPUs per node is {defaults_of}'s default actor_num_gpus_per_node"
    return Diagnostic("resource-out-of-range", message, "use a larger cluster, or fewer GPUs")


# Engines


def undivided_engine(gpus: int, size: int, kind: str) -> Diagnostic:
    """Return the fault of GPUs of an engine that its pipeline (``pp``) or expert (``ep``) size does not divide."""
    parts = "pipeline stages" if kind == "pp" else "expert groups"
    message = f"an engine of {gpus} GPUs cannot be divided into {size} {parts}"
    return Diagnostic("parallel-not-divisible", message, f"use {_divisors(gpus)}")


def _divisors(whole: int) -> str:
    """Return the largest sizes by which a number of GPUs can be divided."""
    *others, largest = [str(size) for size in range(1, whole + 1) if whole % size == 0][-4:]
    return f"{', '.join(others)} or {largest}" if others else largest


def uneven_processes(engine: int, each: int) -> Diagnostic:
    """Return the fault of an engine of several nodes that does not use all GPUs of each."""
    message = f"an engine of {engine} GPUs cannot be divided into processes of {each}, the GPUs of a node"
    return Diagnostic("not-multiple", message, f"use a multiple of {each}, or fewer than {each}")


def uneven_engines(gpus: int, engine: int) -> Diagnostic:
    """Return the fault of GPUs of the rollout that are no whole engines."""
    below = gpus // engine * engine
    counts = " or ".join(str(count) for count in (below, below + engine) if count)
    message = f"{gpus} GPUs cannot be divided into engines of {engine}"
    return Diagnostic("not-multiple", message, f"use {counts} GPUs, or change rollout_num_gpus_per_engine")


def torn_process(torn: tuple[int, int, int], gpus: int, help: str, *, before: int) -> Diagnostic:
    """Return the fault of a process with GPUs of two nodes; ``torn`` is its rank and its first and last node.

    ``before`` is the number of GPUs before the rollout, if its first node has some of them, else 0.
    """
    process, first, last = torn
    message = f"process {process} of the rollout would need {gpus} GPUs on nodes {first} and {last}"
    if before:
        help += f", or let the {before} GPUs before the rollout fill whole nodes"
    return Diagnostic("spans-nodes", message, help)


# Nodes


def whole_nodes(gpus: int) -> str:
    """Return the help for engines that slime expects on nodes with so many GPUs."""
    return f"give the training a multiple of {gpus} GPUs, and set num_gpus_per_node to the GPUs of a node"


def order_of_groups(system: str, sides: tuple[str, str], addresses: tuple[str, str]) -> Diagnostic:
    """Return the fault of two sides in node groups that the order of the nodes contradicts.

    ``addresses`` are those of a node of the first side, and of one of the second, which comes before it.
    """
    first, second = sides
    before, after = addresses[1], addresses[0]
    message = (
        f"{system} sorts the nodes of its only placement group by addresses as numbers: {before}, on which `{second}` "
        f"would be, comes before {after} of `{first}`, but `{first}` has the first accelerators"
    )
    help = f"exchange the nodes of the two groups, or give those of `{first}` lower addresses"
    return Diagnostic("order-not-kept", message, help)

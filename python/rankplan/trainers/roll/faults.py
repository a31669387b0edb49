"""The faults of ROLL's configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rankplan import Diagnostic, RankSet
from rankplan.sdk import Where, must_be
from rankplan.sdk.placing import MAX_PROCESSES, MAX_RANK
from rankplan.sdk.words import RESOLVE, counted, nodes_text, shown, unresolved

WRITE_DEVICES = "write list(range(0,8)), [0,1,2,3], or several of these with +"
_EVALUATED = (
    "use numbers and lists with + - * / // % **, slices, loops with conditions, and list, tuple, range, sorted, "
    "reversed, int, len, sum, min, max, abs, zip and enumerate"
)
_CLOSE = "close it, and quote it inside YAML braces, where a comma ends the text"


class Stated(NamedTuple):
    """A key and its value, as the config states it, and its place."""

    key: str
    value: Any
    where: Where


def no_roles() -> Diagnostic:
    """Return the fault of a config without roles."""
    message = "no role has a `device_mapping` or a `world_size`"
    return Diagnostic("missing-key", message, "add roles such as actor_train: {device_mapping: ...}")


def roles_in_list(name: str) -> Diagnostic:
    """Return the fault of roles that are the items of a list with a name."""
    message = f"`{name}` is a list; roles must be keys of a mapping"
    return Diagnostic("invalid-value", message, "write `name: {device_mapping: ...}` for each role")


def empty_role_name(name: str) -> Diagnostic:
    """Return the fault of a dotted name with an empty part."""
    return Diagnostic("empty-name", f"the role name {shown(name)} has an empty part", "name the role")


def unprintable_role_name(name: str) -> Diagnostic:
    """Return the fault of a name with control characters."""
    return Diagnostic("invalid-value", f"{shown(name)} is not a valid role name", "rename the role")


def two_roles(name: str) -> Diagnostic:
    """Return the fault of two roles with the same name."""
    return Diagnostic("duplicate-component", f"two roles are named `{name}`", "rename one of them")


def too_many_workers(count: int) -> Diagnostic:
    """Return the fault of a role with more workers than a component may have processes."""
    message = f"{count:,} workers; a component has at most {MAX_PROCESSES:,}"
    return Diagnostic("too-many-processes", message, "split the role")


def unknown_devices(mapping: Any) -> Diagnostic:
    """Return the fault of accelerators that only a run knows."""
    return Diagnostic("syntax", f"{shown(mapping)} contains an unresolved interpolation", RESOLVE)


def no_devices() -> Diagnostic:
    """Return the fault of an empty list of accelerators."""
    return Diagnostic("empty-placement", "the role has no accelerators", "list some, or remove the role")


def no_strategy_name(value: Any) -> Diagnostic:
    """Return the fault of a strategy whose name is no text, or is unknown before the run."""
    help = RESOLVE if unresolved(value) else "write a name such as vllm"
    return must_be("`strategy_name`", value, "text", help)


def undivided(count: int, each: int, sizes: Sequence[Stated]) -> Diagnostic:
    """Return the fault of accelerators that are not a multiple of those of a worker, which these sizes decide."""
    below = count // each * each
    counts = " or ".join(str(total) for total in (below, below + each) if total)
    given = " x ".join(f"{size.key} {size.value}" for size in sizes)
    message = f"{count} accelerators cannot be divided into workers of {each} ({given})"
    keys = " or ".join(size.key for size in sizes)
    return Diagnostic("not-multiple", message, f"list {counts} accelerators, or change {keys}")


def reference_beside_teachers() -> Diagnostic:
    """Return the fault of a reference model where a teacher is it."""
    message = "with use_opd, the teacher is the reference model"
    return Diagnostic("invalid-value", message, "remove `reference`")


def other_gpus_per_node(stated: int, node: int, present: int, *, fitting: int | None) -> Diagnostic:
    """Return the fault of a number of accelerators of a node that is not the one that a node has.

    ``fitting`` is a number that all nodes have which the config would use with it, if there is one.
    """
    message = f"num_gpus_per_node is {stated}, but node {node} has {counted(present, 'accelerator')}"
    help = "remove the key, since the nodes differ, or use another cluster"
    if fitting is not None:
        help = f"write {fitting}, remove the key if nodes differ, or use another cluster"
    return Diagnostic("invalid-value", message, help)


def no_cpu_for_downloads(nodes: RankSet, cpus: float) -> Diagnostic:
    """Return the fault of nodes with so few CPUs that the task which downloads the models never starts there."""
    message = (
        f"{nodes_text(nodes)}: ROLL has 1 of {cpus:g} CPUs of a node, of which its workers hold a part, so that the "
        "task that downloads the models, with a CPU of its own, never starts"
    )
    help = "give Ray 3 CPUs or more on each node (`ray start --num-cpus`, Slurm's --cpus-per-task, the limits of pods)"
    return Diagnostic("never-reserved", message, help)


def nodes_not_free(num_nodes: int, each: int, free_nodes: int, *, states_devices: bool) -> Diagnostic:
    """Return the fault of nodes with ``each`` accelerators, of which only some have all of them free.

    ``states_devices``: the accelerators of the roles decide how many nodes ROLL takes.
    """
    message = f"ROLL takes all {each} accelerators of {counted(num_nodes, 'node')}, but "
    if free_nodes:
        verb = "has" if free_nodes == 1 else "have"
        message += f"only {counted(free_nodes, 'node')} of the cluster {verb} all of them free"
    else:
        message += "no node has all of them free"
    help = "use a larger cluster, or wait for other jobs"
    if free_nodes and states_devices:
        help = f"use accelerators up to {free_nodes * each - 1}, or a larger cluster, or wait for other jobs"
    return Diagnostic("resource-out-of-range", message, help)


def engine_off_its_nodes(role: str, worker: int, nodes: RankSet, expected: RankSet) -> Diagnostic:
    """Return the warning of an engine of SGLang on other nodes than ROLL expects by the number of its worker."""
    message = (
        f"worker {worker} of {role}, on {nodes_text(nodes)}, lacks accelerator 0 of {nodes_text(expected)}: there, "
    )
    message += "by the number of the worker, ROLL starts the other processes of its engine of SGLang"
    help = "give it whole nodes from node 0 on, worker after worker, or engines that fit on a node"
    return Diagnostic("assumed-nodes", message, help, warning=True)


def uneven_nodes(sizes: Sequence[int]) -> Diagnostic:
    """Return the warning of nodes with several numbers of accelerators, of which ROLL knows one."""
    counts = " or ".join(map(str, sizes))
    message = f"these nodes have {counts} accelerators: ROLL takes as many of each as the driver's node has"
    return Diagnostic("assumed-nodes", message, "use nodes with equally many accelerators", warning=True)


def not_devices(mapping: Any) -> Diagnostic:
    """Return the fault of a ``device_mapping`` that is neither a text nor a list."""
    allowed = must_be("device_mapping", mapping, "text or a list", WRITE_DEVICES)
    return Diagnostic("syntax", allowed.message, allowed.help)


def not_a_device(value: Any) -> Diagnostic:
    """Return the fault of an item of a list that is no whole number."""
    return Diagnostic("syntax", f"{shown(value)} is not an accelerator", "write whole numbers")


def no_such_device(device: int) -> Diagnostic:
    """Return the fault of an accelerator with a number that no cluster has."""
    return Diagnostic("resource-out-of-range", f"accelerator {device} is out of range", f"use 0 to {MAX_RANK}")


def too_many_devices(count: int) -> Diagnostic:
    """Return the fault of more accelerators than a component may have processes."""
    message = f"{count:,} accelerators; a component can have at most {MAX_PROCESSES:,} processes"
    return Diagnostic("too-many-processes", message, "split the component")


def empty_text() -> Diagnostic:
    """Return the fault of a text without characters."""
    return Diagnostic("syntax", "the text is empty", WRITE_DEVICES)


def not_numbers(expression: str | None = None) -> Diagnostic:
    """Return the fault of a text, or of an expression in it, that is no list of numbers."""
    name = "this" if expression is None else f"`{expression}`"
    return Diagnostic("syntax", f"{name} is not a list of numbers", WRITE_DEVICES)


def no_python(reason: str) -> Diagnostic:
    """Return the fault of a text that Python cannot parse, for a reason in its words."""
    help = _CLOSE if "never closed" in reason else WRITE_DEVICES
    return Diagnostic("syntax", f"this is not a list of numbers: {reason}", help)


def too_complex() -> Diagnostic:
    """Return the fault of an expression that takes too much memory or too many calls to read."""
    message = "the expression is too long or too deeply nested"
    return Diagnostic("syntax", message, "write one list: [0, 1, 2]")


def step_of_zero() -> Diagnostic:
    """Return the fault of a range without progress."""
    return Diagnostic("syntax", "a range cannot have a step of 0", "use a step of 1 or more")


def range_added(expression: str) -> Diagnostic:
    """Return the fault of a range as a part of a sum, which Python does not add."""
    return Diagnostic("syntax", "a range cannot be added", f"write list({expression})")


def range_repeated(expression: str) -> Diagnostic:
    """Return the fault of a range as a factor, which Python does not repeat."""
    return Diagnostic("syntax", "a range cannot be repeated", f"write list({expression})")


def too_many_steps(most: int) -> Diagnostic:
    """Return the fault of an expression that takes more steps than are evaluated."""
    return Diagnostic("syntax", f"this takes more than {most:,} steps", "write list(range(start, stop, step))")


def not_evaluated(expression: str) -> Diagnostic:
    """Return the fault of an expression that rankplan does not evaluate, though Python may."""
    return Diagnostic("syntax", f"`{expression}` is not evaluated", _EVALUATED)


def division_by_zero() -> Diagnostic:
    """Return the fault of a division that Python refuses."""
    return Diagnostic("syntax", "this divides by 0", "divide by another number")


def no_such_item(index: int, length: int) -> Diagnostic:
    """Return the fault of an index past the ends of a sequence."""
    message = f"index {index} is out of range: this has {counted(length, 'item')}"
    return Diagnostic("syntax", message, f"use {-length} to {length - 1}" if length else "add items")


def nothing_compared() -> Diagnostic:
    """Return the fault of the least or the largest of no numbers."""
    return Diagnostic("syntax", "this compares no numbers", "pass one or more")


def not_a_number(expression: str) -> Diagnostic:
    """Return the fault of an expression that is no whole number."""
    return Diagnostic("syntax", f"`{expression}` is not a whole number", WRITE_DEVICES)


def too_large() -> Diagnostic:
    """Return the fault of a number far above every accelerator."""
    return Diagnostic("syntax", "this number is too large", f"use numbers up to {MAX_RANK}")

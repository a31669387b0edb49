"""The faults of job files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, Where
from rankplan.jobs.keys import KEYS
from rankplan.nodes.inventory import Inventory
from rankplan.words import counted, did_you_mean, listed, must_be, nodes_text, shown, unknown

CONFLICT = "job-conflict"
COMMAND = "emit-command"

_URL = re.compile(r"(?:^|/)[a-z][a-z0-9+.-]*:/")


def unknown_key(key: str, near: str | None) -> Diagnostic:
    """Return the fault of a key that no job file has."""
    help = f"did you mean `{near}`?" if near is not None else f"the keys of a job file are: {listed(list(KEYS), 20)}"
    return Diagnostic("unknown-key", f"unknown key `{key}`", help)


def trainers_key(key: str) -> Diagnostic:
    """Return the fault of a key of a trainer in a job file, at that key."""
    message = f"`{key}` is a key of a trainer's config, but the key `job` makes this file a job file"
    help = "keep it in the trainer's config, and name that file in `job`"
    return Diagnostic(CONFLICT, message, help)


def beside_trainers_keys(keys: Sequence[str]) -> Diagnostic:
    """Return the fault of ``job`` beside keys of a trainer, at ``job``."""
    names = listed([f"`{key}`" for key in keys])
    message = f"`job` makes this file a job file, but it has keys of a trainer: {names}"
    help = "move them to the trainer's config, and name that file in `job`; or remove `job`"
    return Diagnostic(CONFLICT, message, help)


def missing_job() -> Diagnostic:
    """Return the fault of a file with keys of a job file, but without ``job``."""
    help = "write `job: run.sh` with the path of the trainer's config or script"
    return Diagnostic("missing-key", "`job` is missing, and all keys are those of a job file", help)


def not_literal(text: str) -> Diagnostic:
    """Return the fault of a value with ``$``."""
    message = f"{shown(text)} contains `$`, but the values of a job file are literal"
    return Diagnostic("invalid-value", message, "write the value itself: no variable and no interpolation is resolved")


def not_plain(text: str) -> Diagnostic:
    """Return the fault of a text that cannot be a path or an argument."""
    return Diagnostic("invalid-value", f"{shown(text)} contains a NUL byte or a lone surrogate", "write plain text")


def no_file(key: str, name: str, reason: str) -> Diagnostic:
    """Return the fault of a path that names no readable file."""
    help = "correct the path; it is relative to this file"
    if name.startswith("~"):
        help = "write the path itself, without `~`; it is relative to this file"
    elif _URL.search(name):
        help = "write the path of a file on this machine; URLs are not read"
    return Diagnostic("invalid-value", f"`{key}` names {name}, which cannot be read: {reason}", help)


def no_command(file: str, system: str, example: str) -> Diagnostic:
    """Return the fault of a config, which does not say what starts its trainer; ``example`` is what usually does."""
    message = f"a config does not say what starts {system}"
    program = f"python3 {'' if example.endswith('.py') else '-m '}{example} ..." if example else "python3 train.py"
    help = f'state it: --command "{program}", or `command: {program}` in a job file'
    return Diagnostic(COMMAND, message, help, file=file)


def starts_ray(command: str, submitted: str | None, example: str) -> Diagnostic:
    """Return the fault of a script with a command that starts, stops or submits to Ray.

    ``submitted`` are the words that it passes to ``ray job submit``; ``example`` is what usually starts the trainer.
    """
    message = f"`{command}`: inside the job, Ray runs already, so this script cannot be its command"
    words = submitted or f"the words that start {example or 'the trainer'}"
    return Diagnostic(
        COMMAND, message, f"state the trainer's own command, with --command or as `command` of a job file: {words}"
    )


def takes_no_overrides(file: str, overrides: Sequence[str]) -> Diagnostic:
    """Return the fault of a script that passes no words on, with overrides that its trainer must get."""
    message = f"the script does not pass on its arguments, but the plan has overrides: {listed(overrides)}"
    help = 'write them in the script, or "$@" behind its trainer; or state the whole command with --command'
    return Diagnostic(COMMAND, message, help, file=file)


def other_launchers_option(option: str, to: str, takers: Sequence[str]) -> Diagnostic:
    """Return the fault of an option of ``emit`` that its launcher does not take; ``takers`` are those that do."""
    help = f"remove it; {listed(takers)} {'takes' if len(takers) == 1 else 'take'} it"
    return Diagnostic("unknown-key", f"{to} does not take `{option}`", help)


def circle(places: Iterable[Where]) -> Diagnostic:
    """Return the fault of job files that lie on each other in a circle: the place of ``job`` in each of them."""
    files = [f"{place.file}:{place.line}" for place in places]
    message = f"job files name each other in a circle: {' -> '.join([*files, files[0]])}"
    if len(files) == 1:
        message = f"the job file names itself: {files[0]}"
    return Diagnostic("invalid-value", message, "name the trainer's config or script in one of them")


def too_many(most: int) -> Diagnostic:
    """Return the fault of too many job files that lie on each other."""
    message = f"more than {most} job files lie on each other"
    return Diagnostic("invalid-value", message, f"use at most {most} files: join some of them")


def wrong_job(value: object) -> Diagnostic:
    """Return the fault of ``job`` without a path."""
    allowed = "the path of the trainer's config or script, of a saved plan, or of a job file"
    return must_be("`job`", value, allowed, "write `job: run.sh`")


def wrong_text(key: str, value: object, help: str) -> Diagnostic:
    """Return the fault of a value that must be a text."""
    return must_be(f"`{key}`", value, "text", help)


def wrong_list(key: str, value: object, example: str) -> Diagnostic:
    """Return the fault of a value that must be a list of texts."""
    return must_be(f"`{key}`", value, "a list of texts", f"write {example}")


def wrong_mapping(key: str, value: object, example: str) -> Diagnostic:
    """Return the fault of a value that must be a mapping."""
    return must_be(f"`{key}`", value, "a mapping", f"write {example}")


def wrong_nodes(value: object) -> Diagnostic:
    """Return the fault of ``nodes`` of a wrong type."""
    allowed = "a size, the path of an inventory, or {ray: ADDRESS}"
    return must_be("`nodes`", value, allowed, "write 4x8, cluster.yaml or {ray: auto}")


def unknown_dialect(name: str, dialects: Iterable[str]) -> Diagnostic:
    """Return the fault of a dialect that does not exist."""
    return Diagnostic("invalid-value", f"unknown dialect `{name}`", did_you_mean(name, dialects, "the dialects are"))


def unknown_inner_key(key: str, section: str, known: Iterable[str]) -> Diagnostic:
    """Return the fault of a key in a section of a job file."""
    return unknown("key", key, known, f"the keys of `{section}` are")


def wrong_reserve(value: object) -> Diagnostic:
    """Return the fault of a reserve that is no size."""
    return must_be("`reserve`", value, "a size", "write a number and a unit, such as 2 GiB")


def wrong_word(key: str, value: object, allowed: Sequence[str]) -> Diagnostic:
    """Return the fault of a value that is not one of the allowed words."""
    return must_be(f"`{key}`", value, f"{', '.join(allowed[:-1])} or {allowed[-1]}", did_you_mean(str(value), allowed))


def of_saved_plan(key: str, plan: str) -> Diagnostic:
    """Return the fault of a key that a saved plan does not take."""
    help = f"remove it: the plan has its own; `rankplan replan {plan}` changes it"
    return Diagnostic(CONFLICT, f"`{key}` is stated, but `job` is a saved plan", help)


def of_started_processes(key: str, system: str) -> Diagnostic:
    """Return the fault of a key about processes that the trainer starts itself."""
    message = f"`{key}` is about processes that rankplan starts, but {system} starts its own"
    return Diagnostic("invalid-value", message, "remove it, and state it in the trainer's config")


def two_values(path: str, value: object, other: object, place: Where) -> Diagnostic:
    """Return the fault of a value that another file contradicts."""
    there = place.path if place.file is None else f"{Path(place.file).name}:{place.line}"
    message = f"`{path}` is {shown(value)} here, but {shown(other)} in {there}"
    return Diagnostic(CONFLICT, message, "state it once, or the same value twice")


def two_node_groups(name: str, label: str, other: str) -> Diagnostic:
    """Return the fault of a component in two node groups."""
    message = f"`{name}` is in node group `{label}` already, not only in `{other}`"
    return Diagnostic("invalid-value", message, "put it in one group; a group may have the nodes of both")


def unknown_grouped(name: str, components: Iterable[str]) -> Diagnostic:
    """Return the fault of a component of a node group that the job does not have."""
    return unknown("component", name, components, "the components are")


def tuned_groups(name: str, label: str) -> Diagnostic:
    """Return the fault of a component in a node group, in a job that is tuned."""
    message = f"`{name}` is in node group `{label}`, but `rankplan tune` places components on any nodes"
    help = "tune without `components` in `node_groups`, on an inventory of one kind of nodes; or state `pools`"
    return Diagnostic(CONFLICT, message, help)


def other_group(label: str, nodes: RankSet, others: RankSet) -> Diagnostic:
    """Return the fault of a node group that the trainer's config states otherwise."""
    message = f"node group `{label}` has other values in the trainer's config"
    if nodes != others:
        message = f"node group `{label}` is {nodes_text(nodes)} here, but {nodes_text(others)} in the trainer's config"
    return Diagnostic(CONFLICT, message, "state it once, or give it another label")


def other_nodes(nodes: int, stated: int) -> Diagnostic:
    """Return the fault of nodes that a batch script does not ask for."""
    message = f"`nodes` has {counted(nodes, 'node')}, but the script asks Slurm for {stated}"
    return Diagnostic(CONFLICT, message, f"write {stated} nodes, or change the option of the script")


def other_size(nodes: int, stated: int) -> Diagnostic:
    """Return the fault of a batch script that asks for another number of nodes than the job file states."""
    message = f"the script asks Slurm for {counted(stated, 'node')}, but `nodes` of the job file has {nodes}"
    return Diagnostic(CONFLICT, message, f"ask for {nodes} nodes, or change the job file")


def reserved_variable(name: str) -> Diagnostic:
    """Return the fault of a variable that the plan sets."""
    message = f"variable `{name}` is set by the plan"
    return Diagnostic("reserved-env-var", message, "remove it: placements decide ranks and devices")


def other_card(stated: str, present: str) -> Diagnostic:
    """Return the fault of accelerators that the inventory contradicts."""
    message = f"`memory.accelerator` is {stated}, but the inventory has {present}"
    return Diagnostic(CONFLICT, message, "remove it: the inventory counts; or correct the inventory")


def exists(file: str) -> Diagnostic:
    """Return the fault of a file that would be lost."""
    return Diagnostic("exists", f"{file} exists already", "edit it, or write another file with -o PATH")


def rules_not_read(system: str, section: str, lines: Sequence[str]) -> Diagnostic:
    """Return the warning of rules in a config whose system does not know them; ``lines`` are those of a job file."""
    message = f"`{section}` states rules of the network, but {system} does not know it: rankplan reads none of them"
    return Diagnostic("rules-not-read", message, in_job_file(section, lines), warning=True)


def in_job_file(section: str, lines: Sequence[str]) -> str:
    """Return the help for a section with rules that belong in a job file."""
    return f"remove `{section}`, and pass a job file with these lines: {', '.join(f'`{line}`' for line in lines)}"


def no_such_nodes(cluster: Inventory) -> Diagnostic:
    """Return the fault of a job whose nodes the cluster does not have."""
    names = listed([cluster.node(rank).name for rank in range(cluster.num_nodes)], 8)
    message = f"none of the `nodes` is in the cluster, which has {names}"
    return Diagnostic("plan-mismatch", message, "name the hostnames or addresses that Ray has, or remove `nodes`")

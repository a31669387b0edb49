"""Options that contradict each other, the plan or the launcher."""

from __future__ import annotations

import re

from rankplan.launchers.launcher import Launcher, Starts
from rankplan.launchers.node_commands import has_node_commands, node_commands, uncovered
from rankplan.launchers.options import CLUSTER, DEFAULT, JOB, KINDS, Options
from rankplan.launchers.scripts import shell_words
from rankplan.launchers.table import LAUNCHERS
from rankplan.plans.plan import Plan
from rankplan.words import did_you_mean

LAST_PORT = 65535
_QUANTITY = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE])?")
"""Kubernetes: apimachinery resource.ParseQuantity, without signs."""


def wrong_options(plan: Plan, launcher: Launcher, options: Options) -> str | None:
    """Return what is wrong with the options of a launcher, ``None`` if nothing is."""
    return (
        _wrong_node_commands(plan, launcher, options)
        or _wrong_way_to_start(launcher, options)
        or _wrong_kind(launcher, options)
        or _wrong_amount(options)
        or _wrong_port(plan, launcher, options)
        or _wrong_commands(plan, launcher, options)
        or (None if plan else "the plan has no components")
    )


def _wrong_way_to_start(launcher: Launcher, options: Options) -> str | None:
    """A launcher takes an entrypoint, a command for each component, or neither; a file has at most one of the two."""
    if launcher.starts is Starts.NOTHING:
        return _needless_way_to_start(launcher, options)
    if options.entrypoint is not None and Starts.DRIVER not in launcher.starts:
        return f"{launcher.name} starts a command per component; use --command, not --entrypoint"
    if options.commands and Starts.COMMANDS not in launcher.starts:
        return f"{launcher.name} starts one driver; use --entrypoint, not --command"
    if options.entrypoint is not None and options.commands:
        return "use --entrypoint for a driver on Ray, or --command for components without Ray"
    return None


def _needless_way_to_start(launcher: Launcher, options: Options) -> str | None:
    stated = {"--entrypoint": options.entrypoint is not None, "--command": bool(options.commands)}
    needless = " and ".join(flag for flag, is_stated in stated.items() if is_stated)
    return f"{launcher.name} starts no job; remove {needless}" if needless else None


def _wrong_node_commands(plan: Plan, launcher: Launcher, options: Options) -> str | None:
    """The commands of a job that start their processes themselves need a launcher that starts one on each node."""
    if not has_node_commands(plan, options) or launcher.starts is Starts.NOTHING or options.kind == CLUSTER:
        return None
    if Starts.NODE_COMMANDS not in launcher.starts:
        others = [name for name in LAUNCHERS.builtin if Starts.NODE_COMMANDS in LAUNCHERS[name].starts]
        words = " ".join(node_commands(plan)[-1].words[:2])
        return f"`{words}` starts its processes itself, once on each node; use --to {' or '.join(others)}"
    component = uncovered(plan)
    return None if component is None else f"no command of the job starts {component}; pass --command for each component"


def _wrong_kind(launcher: Launcher, options: Options) -> str | None:
    """A job needs an entrypoint, a cluster takes none, and only some launchers write clusters."""
    if options.kind not in KINDS:
        return f"unknown kind {options.kind!r}; it must be {' or '.join(KINDS)}"
    if options.kind != JOB and not launcher.kinds:
        return f"only {', '.join(name for name in LAUNCHERS.builtin if LAUNCHERS[name].kinds)} takes --kind"
    if options.kind == CLUSTER and options.entrypoint is not None:
        return "a RayCluster has no entrypoint; use --kind job"
    if launcher.kinds and options.kind == JOB and options.entrypoint is None and options.base is None:
        return f"{launcher.name} needs --entrypoint COMMAND, or --kind cluster"
    return None


def _wrong_amount(options: Options) -> str | None:
    """CPUs and memory are positive quantities of Kubernetes."""
    for option, size, example in (("--cpus", options.cpus, "32"), ("--memory", options.memory, "512Gi")):
        if size is None:
            continue
        if _QUANTITY.fullmatch(size) is None or not size.strip("0."):
            return f"{option} {size} is not an amount of Kubernetes; write one such as {example}"
    return None


def _wrong_port(plan: Plan, launcher: Launcher, options: Options) -> str | None:
    """Without a driver, each component has its rendezvous at a port of its own."""
    last = options.port + len(plan) - 1
    if Starts.COMMANDS not in launcher.starts or options.entrypoint is not None or last <= LAST_PORT:
        return None
    return (
        f"with --port {options.port}, each component has a port of its own: the last is {last}, and ports end at "
        f"{LAST_PORT}"
    )


def _wrong_commands(plan: Plan, launcher: Launcher, options: Options) -> str | None:
    """A job needs an entrypoint, or a command for each component; a shell must be able to split it into words."""
    for component in options.commands:
        if component != DEFAULT and component not in plan:
            return f"unknown component {component!r}; {did_you_mean(component, plan, 'the components are')}"
    if Starts.COMMANDS not in launcher.starts:
        return None
    if options.entrypoint is not None:
        return _not_words("the entrypoint", options.entrypoint)
    if has_node_commands(plan, options):
        return None
    commands = {component: options.command(component) or "" for component in plan}
    for component, command in commands.items():
        if not command.strip():
            return f"{component} has no command; pass --command '{component}=COMMAND'"
    faults = (_not_words(f"the command of {component}", command) for component, command in commands.items())
    return next(filter(None, faults), None)


def _not_words(what: str, command: str) -> str | None:
    try:
        shell_words(command)
    except ValueError as error:
        return f"{what} cannot be split into words: {error}"
    return None

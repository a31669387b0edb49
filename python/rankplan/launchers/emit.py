"""A plan as the file of a launcher: `emit`."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import read_text
from rankplan.frozen import frozen
from rankplan.launchers import jobset, kuberay, kubernetes, kueue, lws
from rankplan.launchers.options import AGAIN, CLUSTER, DEFAULT, JOB, KINDS, Draft, EmitOptions, Emitted, Options
from rankplan.launchers.script import shell_words
from rankplan.launchers.script_file import MPIRUN, SLURM, TORCHRUN, Kind, reader, writer, wrote
from rankplan.plans.plan import Plan
from rankplan.words import did_you_mean, wrong_type

notes = logging.getLogger("rankplan.notes")
"""Tells what a file leaves open."""


@frozen
class Target:
    """A launcher: ``write`` returns its file, or records every fact that it cannot hold in the draft.

    ``wrote`` tells whether a text is such a file, and ``read`` returns what it says; it takes the path and the text,
    and raises `PlacementError` (``emit-changed``) with everything that contradicts the plan. Without them, a file has
    no plan. ``driver``: the launcher takes an entrypoint; ``commands``: it takes a command for each component;
    ``kinds``: it writes a job or a cluster.
    """

    write: Callable[[Draft], str]
    wrote: Callable[[str], bool] | None = None
    read: Callable[[str, str], Emitted] | None = None
    driver: bool = False
    commands: bool = True
    kinds: bool = False


def _kubernetes(
    name: str, writer: kubernetes.Writer, kinds: Mapping[str, str], *, driver: bool = False, commands: bool = True
) -> Target:
    """Return a target of Kubernetes; ``kinds`` are the kinds of its object, with the value of the option for each."""
    by_option = {option: kind for kind, option in kinds.items()}
    started = re.compile(rf"^kind: ['\"]?({'|'.join(kinds)})\b", re.MULTILINE)
    return Target(
        lambda draft: kubernetes.write(draft, writer, by_option[draft.options.kind]),
        lambda text: started.search(text) is not None,
        lambda file, text: kubernetes.read(file, text, name, writer, kinds),
        driver=driver,
        commands=commands,
        kinds=len(kinds) > 1,
    )


def _script(kind: Kind, *, driver: bool = False) -> Target:
    return Target(writer(kind), wrote(kind), reader(kind), driver=driver)


_RAY = {"RayJob": JOB, "RayCluster": CLUSTER}

TARGETS: dict[str, Target] = {
    "kuberay": _kubernetes("kuberay", kuberay.write, _RAY, driver=True, commands=False),
    "jobset": _kubernetes("jobset", jobset.write, {"JobSet": JOB}),
    "lws": _kubernetes("lws", lws.write, {"LeaderWorkerSet": JOB}),
    "kueue": Target(kueue.write, commands=False),
    "slurm": _script(SLURM, driver=True),
    "torchrun": _script(TORCHRUN),
    "mpirun": _script(MPIRUN),
}
"""The launchers by name."""

_LAST_PORT = 65535
_QUANTITY = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE])?")
"""Kubernetes: apimachinery resource.ParseQuantity, without signs."""


def read_emitted(file: str | os.PathLike[str]) -> Emitted:
    """Return the plan in a file that rankplan has written for a launcher, and the options that give the file again.

    Raises `PlacementError`: ``emit-changed`` for everything in it that contradicts the plan. ``OSError`` if the file
    cannot be read.
    """
    name = os.fspath(file)
    text = read_text(name)
    for target in TARGETS.values():
        if target.wrote is not None and target.read is not None and target.wrote(text):
            return target.read(name, text)
    message = "rankplan wrote this file, but the part that starts the job is missing"
    help = f"{AGAIN}; the targets are {', '.join(TARGETS)}"
    raise PlacementError([Diagnostic("emit-changed", message, help, file=name)])


@contextmanager
def silenced() -> Iterator[None]:
    """Tell nothing about what files leave open."""

    def nothing(_: logging.LogRecord) -> bool:
        return False

    notes.addFilter(nothing)
    try:
        yield
    finally:
        notes.removeFilter(nothing)


def emit(plan: Plan | str | os.PathLike[str], to: str, options: EmitOptions | None = None) -> str:
    """Return a plan as the file of a launcher, as ``rankplan emit`` does.

    ``plan`` may be the path of a file that was written for a launcher: options that are not given are then those of the
    file, if ``to`` is its launcher. ``to`` is one of ``kuberay``, ``jobset``, ``lws``, ``kueue``, ``slurm``,
    ``torchrun`` and ``mpirun``. Equal plans and options give equal texts.

    Raises `PlacementError` with every fact that the launcher cannot hold, ``ValueError`` for an unknown target, or
    options that the target does not take, ``TypeError`` for an argument of a wrong type, ``OSError`` for a file that
    cannot be read.
    """
    stated = EmitOptions() if options is None else options
    if not isinstance(to, str):
        raise wrong_type("to", to, "a text")
    if not isinstance(stated, EmitOptions):
        raise wrong_type("options", stated, "a rankplan.EmitOptions")
    known = Options()
    if not isinstance(plan, Plan):
        if not isinstance(plan, str | os.PathLike):
            raise wrong_type("plan", plan, "a rankplan.Plan, or the path of a file that was written for a launcher")
        emitted = read_emitted(plan)
        plan, known = emitted.plan, emitted.options if emitted.target == to else known
    if to in TARGETS and (unused := stated.unused(to)):
        raise ValueError(f"{to} does not take {' and '.join(unused)}")
    written = stated.over(known)
    if (wrong := wrong_options(plan, to, written)) is not None:
        raise ValueError(wrong)
    draft = Draft(plan, written)
    text = TARGETS[to].write(draft)
    draft.finish()
    for note in draft.notes:
        notes.warning("%s", note)
    return text


def wrong_options(plan: Plan, to: str, options: Options) -> str | None:
    """Return what is wrong with the options of a target, ``None`` if nothing is."""
    if to not in TARGETS:
        return f"unknown target {to!r}; {did_you_mean(str(to), TARGETS, 'the targets are')}"
    target = TARGETS[to]
    return (
        _wrong_way_to_start(to, target, options)
        or _wrong_kind(to, target, options)
        or _wrong_amount(options)
        or _wrong_port(plan, target, options)
        or _wrong_commands(plan, target, options)
        or (None if plan else "the plan has no components")
    )


def _wrong_way_to_start(to: str, target: Target, options: Options) -> str | None:
    """A launcher takes an entrypoint, or a command for each component; a file has one of the two."""
    if options.entrypoint is not None and not target.driver:
        return f"{to} starts a command per component; use --command, not --entrypoint"
    if options.commands and not target.commands:
        return f"{to} starts one driver; use --entrypoint, not --command"
    if options.entrypoint is not None and options.commands:
        return "use --entrypoint for a driver on Ray, or --command for components without Ray"
    return None


def _wrong_kind(to: str, target: Target, options: Options) -> str | None:
    """A job has an entrypoint, a cluster has none; only some launchers write clusters."""
    if options.kind not in KINDS:
        return f"unknown kind {options.kind!r}; it must be {' or '.join(KINDS)}"
    if options.kind != JOB and not target.kinds:
        return f"only {', '.join(name for name, one in TARGETS.items() if one.kinds)} takes --kind"
    if options.kind == CLUSTER and options.entrypoint is not None:
        return "a RayCluster has no entrypoint; use --kind job"
    if target.kinds and options.kind == JOB and options.entrypoint is None and options.base is None:
        return f"{to} needs --entrypoint COMMAND, or --kind cluster"
    return None


def _wrong_amount(options: Options) -> str | None:
    """CPUs and memory are positive quantities of Kubernetes."""
    for option, size, example in (("--cpus", options.cpus, "32"), ("--memory", options.memory, "512Gi")):
        if size is None:
            continue
        if _QUANTITY.fullmatch(size) is None or not size.strip("0."):
            return f"{option} {size} is not an amount of Kubernetes; write one such as {example}"
    return None


def _wrong_port(plan: Plan, target: Target, options: Options) -> str | None:
    """Without a driver, each component meets on a port of its own."""
    last = options.port + len(plan) - 1
    if not target.commands or options.entrypoint is not None or last <= _LAST_PORT:
        return None
    return (
        f"with --port {options.port}, each component has a port of its own: the last is {last}, and ports end at "
        f"{_LAST_PORT}"
    )


def _wrong_commands(plan: Plan, target: Target, options: Options) -> str | None:
    """The entrypoint, or else the command of each component, is there and can be split into words."""
    for component in options.commands:
        if component != DEFAULT and component not in plan:
            return f"unknown component {component!r}; {did_you_mean(component, plan, 'the components are')}"
    if not target.commands:
        return None
    if options.entrypoint is not None:
        return _not_words("the entrypoint", options.entrypoint)
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

"""A plan as the file of a launcher: `emit`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rankplan.plans.plan import Plan
from rankplan.targets import jobset
from rankplan.targets.embedded import plan_text, portable
from rankplan.targets.merge import merged
from rankplan.targets.options import DEFAULT, JOB, Draft, Options
from rankplan.targets.pods import check_hardware, check_options, plan_map
from rankplan.targets.script_file import MPIRUN, SLURM, TORCHRUN, Kind, reader, writer, wrote
from rankplan.targets.yaml_text import documents_text
from rankplan.words import did_you_mean

notes = logging.getLogger("rankplan.notes")
"""Tells what a file leaves open."""


@dataclass(frozen=True, slots=True)
class Target:
    """A launcher: ``write`` returns its file, or records every fact that it cannot hold in the draft.

    ``wrote`` tells whether a text is such a file, and ``read`` returns its plan; it takes the path and the text, and
    raises `PlacementError` (``emit-changed``) with everything that contradicts the plan. ``driver``: the launcher takes
    an entrypoint; ``commands``: it takes a command for each component.
    """

    write: Callable[[Draft], str]
    wrote: Callable[[str], bool] | None = None
    read: Callable[[str, str], Plan] | None = None
    driver: bool = False
    commands: bool = True


def _kubernetes(write: Callable[[Draft, str], dict[str, Any]]) -> Callable[[Draft], str]:
    """Return the writer of a file with a ConfigMap and the object that ``write`` returns."""

    def written(draft: Draft) -> str:
        check_options(draft)
        check_hardware(draft)
        text = plan_text(portable(draft.plan))
        ours = [plan_map(draft, text), write(draft, text)]
        draft.finish()
        found = [merged(one, {}) for one in ours]
        _without_image(draft, found)
        return documents_text(found)

    return written


def _without_image(draft: Draft, value: Any) -> None:
    """Write a placeholder where no image is stated, and tell it."""


def _script(kind: Kind, *, driver: bool = False) -> Target:
    return Target(writer(kind), wrote(kind), reader(kind), driver=driver)


TARGETS: dict[str, Target] = {
    "jobset": Target(_kubernetes(jobset.write)),
    "slurm": _script(SLURM, driver=True),
    "torchrun": _script(TORCHRUN),
    "mpirun": _script(MPIRUN),
}
"""The launchers by name."""


def emit(
    plan: Plan,
    to: str,
    *,
    name: str = "train",
    entrypoint: str | None = None,
    command: str | Mapping[str, str] | None = None,
    base: str | os.PathLike[str] | None = None,
    image: str | None = None,
    cpus: str | int | None = None,
    memory: str | int | None = None,
    namespace: str | None = None,
    queue: str | None = None,
    levels: Mapping[str, str] | None = None,
    resource_keys: Mapping[str, str] | None = None,
    pin: bool = False,
    kind: str = JOB,
    slurm_release: str | None = None,
    segment_level: str | None = None,
    port: int = 29500,
) -> str:
    """Return a plan as the file of a launcher, as ``rankplan emit`` does; `Options` has the meaning of the options.

    ``to`` is one of `TARGETS`. ``command`` is the command of each component, by name, or one for all in which ``{}`` is
    the name. Equal plans and options give equal texts.

    Raises `PlacementError` with every fact that the launcher cannot hold, ``ValueError`` for an unknown target, or
    options that the target does not take.
    """
    options = Options(
        name=name,
        entrypoint=entrypoint,
        commands={DEFAULT: command} if isinstance(command, str) else command or {},
        base=None if base is None else os.fspath(base),
        image=image,
        cpus=None if cpus is None else str(cpus),
        memory=None if memory is None else str(memory),
        namespace=namespace,
        queue=queue,
        levels=levels or {},
        resource_keys=resource_keys or {},
        pin=pin,
        kind=kind,
        slurm_release=slurm_release,
        segment_level=segment_level,
        port=port,
    )
    if (wrong := wrong_options(plan, to, options)) is not None:
        raise ValueError(wrong)
    draft = Draft(plan, options)
    text = TARGETS[to].write(draft)
    draft.finish()
    for note in draft.notes:
        notes.warning("%s", note)
    return text


def wrong_options(plan: Plan, to: str, options: Options) -> str | None:
    """Return what is wrong with the options of a target, ``None`` if nothing is."""
    if to not in TARGETS:
        return f"unknown target {to!r}; {did_you_mean(to, TARGETS, 'the targets are')}"
    target = TARGETS[to]
    if options.entrypoint is not None and not target.driver:
        return f"{to} starts a command per component; use --command, not --entrypoint"
    if options.commands and not target.commands:
        return f"{to} starts one driver; use --entrypoint, not --command"
    if options.entrypoint is not None and options.commands:
        return "use --entrypoint for a driver on Ray, or --command for components without Ray"
    for component in options.commands:
        if component != DEFAULT and component not in plan:
            return f"unknown component {component!r}; {did_you_mean(component, plan, 'the components are')}"
    if target.commands and options.entrypoint is None:
        for component in plan:
            if not (options.command(component) or "").strip():
                return f"{component} has no command; pass --command '{component}=COMMAND'"
    if not plan:
        return "the plan has no components"
    return None

"""A plan as the file of a launcher, and back: `emit` and `read_emitted`."""

from __future__ import annotations

import logging
import os
import re
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

from rankplan.errors import PlacementError
from rankplan.files import read_text
from rankplan.guests.doors import Guest, GuestError
from rankplan.launchers import faults
from rankplan.launchers.checks import LAST_PORT, wrong_options
from rankplan.launchers.draft import Draft, Emitted
from rankplan.launchers.launcher import Launcher, Reader
from rankplan.launchers.options import EmitOptions, Options, check_values, kept_options
from rankplan.launchers.table import LAUNCHERS
from rankplan.launchers.trainer import note_command, starts_itself, with_trainer
from rankplan.plans.plan import Plan
from rankplan.read.text.places import Text
from rankplan.words import did_you_mean, wrong_type

notes = logging.getLogger("rankplan.notes")
"""Tells what a file leaves open."""


class Written(NamedTuple):
    """A file that rankplan has written: the name of its launcher, and what it says."""

    launcher: str
    emitted: Emitted


def read_emitted(file: str | os.PathLike[str]) -> Written:
    """Return the plan in a file that rankplan has written for a launcher, and the options that give the file again.

    Launchers of other packages are asked only if no built-in one recognises the file.

    Raises `PlacementError`: ``emit-changed`` for everything in it that contradicts the plan, ``guest-failed`` for a
    guest that fails. Raises ``OSError`` if the file cannot be read.
    """
    name = os.fspath(file)
    text = read_text(name)
    for built_in in LAUNCHERS.builtin:
        launcher = LAUNCHERS[built_in]
        if launcher.recognises is not None and launcher.read is not None and launcher.recognises(text):
            emitted = launcher.read(name, text)
            _check_ports(emitted, name, text)
            return Written(built_in, emitted)
    return _read_by_guest(name, text)


def _check_ports(emitted: Emitted, file: str, text: str) -> None:
    """Refuse a file with a rendezvous outside the range of ports.

    Written again with the port that it states, such a file is the same, so no comparison finds it.
    """
    for index, component in enumerate(emitted.plan):
        port = emitted.options.port + index
        if 1 <= port <= LAST_PORT:
            continue
        fault = faults.no_port(port, component, LAST_PORT)
        stated = re.search(rf"--master[^\n]*\n?[^\n]*?[:=]({port})(?!\d)", text)
        if stated is None:
            raise PlacementError([replace(fault, file=file)])
        raise PlacementError([Text(file, text).place(*stated.span(1)).of(fault)])


def _read_by_guest(file: str, text: str) -> Written:
    """Return what a file says that no built-in launcher recognises. A guest that fails is left out, with a warning."""
    loaded = LAUNCHERS.loaded()
    readers: dict[Guest, Reader] = {}
    for guest, launcher in loaded.guests.items():
        try:
            with guest.running():
                if launcher.recognises is not None and launcher.read is not None and launcher.recognises(text):
                    readers[guest] = launcher.read
        except GuestError as error:
            loaded.warnings.append(error.warning)
    if len(readers) > 1:
        raise PlacementError([faults.several_launchers([str(guest) for guest in readers], file)])
    for guest, read in readers.items():
        with guest.running():
            return Written(guest.name, read(file, text))
    raise PlacementError([faults.no_start(list(LAUNCHERS), file), *loaded.warnings])


def emit(plan: Plan | str | os.PathLike[str], to: str, options: EmitOptions | None = None) -> str:
    """Return a plan as the file of a launcher, as ``rankplan emit`` does.

    ``plan`` may be the path of a file that was written for a launcher: options that are not given are then those of the
    file, if ``to`` is its launcher. ``to`` is one of ``kuberay``, ``jobset``, ``lws``, ``kueue``, ``slurm``,
    ``torchrun`` and ``mpirun``, or a launcher of another package. Options that are not given are those that the plan
    keeps of its job file. Equal plans and options give equal texts.

    A trainer that starts itself runs under `rankplan pin`, with the command that the options or the plan state.

    Raises `PlacementError` with every fact that the launcher cannot hold, ``ValueError`` for an unknown target, or
    options that the target does not take, ``TypeError`` for an argument of a wrong type, ``OSError`` for a file that
    cannot be read.
    """
    stated = EmitOptions() if options is None else options
    if not isinstance(to, str):
        raise wrong_type("to", to, "a text")
    if not isinstance(stated, EmitOptions):
        raise wrong_type("options", stated, "a rankplan.EmitOptions")
    plan, of_file = _plan_and_options(plan, to)
    launcher = LAUNCHERS.get(to)
    if launcher is None:
        raise ValueError(f"unknown target {to!r}; {did_you_mean(to, LAUNCHERS, 'the targets are')}")
    complete = _complete_options(plan, to, launcher, stated, of_file)
    draft = Draft(plan, complete)
    guest = LAUNCHERS.guest(to)
    with nullcontext() if guest is None else guest.running():
        text = launcher.write(draft)
    draft.finish()
    note_command(draft, place="the image" if "image" in launcher.options else "every node")
    for note in draft.notes:
        notes.warning("%s", note)
    return text


def _plan_and_options(plan: Plan | str | os.PathLike[str], to: str) -> tuple[Plan, Options | None]:
    """Return a plan, or that of a file; and the options of the file, if it is one of this launcher."""
    if isinstance(plan, Plan):
        return plan, None
    if not isinstance(plan, str | os.PathLike):
        raise wrong_type("plan", plan, "a rankplan.Plan, or the path of a file that was written for a launcher")
    written = read_emitted(plan)
    return written.emitted.plan, written.emitted.options if written.launcher == to else None


def _complete_options(plan: Plan, to: str, launcher: Launcher, stated: EmitOptions, of_file: Options | None) -> Options:
    """Return the stated options over those of the file, or else of the job. Raises ``ValueError`` for wrong ones."""
    if plan.job is not None and of_file is None:
        stated = stated.besides(kept_options(plan.job.emit, to, launcher.options, launcher.own))
    unused = stated.unused(launcher.options, launcher.own)
    if unused:
        raise ValueError(f"{to} does not take {' and '.join(unused)}")
    check_values(stated.own or {}, launcher.own)
    complete = stated.over(Options() if of_file is None else of_file)
    if starts_itself(plan):
        complete = with_trainer(complete, plan, launcher, is_written=of_file is not None)
    wrong = wrong_options(plan, launcher, complete)
    if wrong is not None:
        raise ValueError(wrong)
    return complete

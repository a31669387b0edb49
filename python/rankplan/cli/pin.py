"""``rankplan pin``: run a Ray program with its placement groups bound to the nodes of a plan."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankplan.cli import signals
from rankplan.cli.common import (
    InputFile,
    Seconds,
    cluster_option,
    dialect_option,
    format_option,
    isolate_option,
    output_option,
    overrides,
    set_option,
    without_option,
)
from rankplan.cli.output import cannot_start, colored, faults_end_it, note
from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import write_whole
from rankplan.front.command import command_of
from rankplan.front.job import Config, is_saved, job_file_of, name_of, opened, saved_plan, unplaced_job
from rankplan.launchers.trainer import command_words
from rankplan.nodes.facts import NODE_ORDERS
from rankplan.read.text.load import SCRIPTS

if TYPE_CHECKING:
    from rankplan.runtime.live.pinned import Ran


@click.command()
@click.argument("file", metavar="FILE", type=InputFile())
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@cluster_option
@dialect_option
@set_option
@without_option
@isolate_option
@click.option(
    "--node-order", type=click.Choice(NODE_ORDERS), help="Order of the nodes, if the trainer does not sort them."
)
@click.option(
    "--others",
    type=click.Choice(["refuse", "pass"]),
    default="refuse",
    show_default=True,
    help="Requests that the plan lacks: refuse them, or place them on resources that it leaves free.",
)
@click.option(
    "--devices",
    type=click.Choice(["warn", "require"]),
    default="warn",
    show_default=True,
    help="Ranks on the right node with other accelerators than planned: warn, or count them as a fault.",
)
@click.option(
    "--timeout",
    type=Seconds(),
    default=600.0,
    show_default=True,
    help="Report missing ranks this long after the first group.",
)
@format_option("table", "json")
@output_option("Write the report to this file at the end.")
@click.option("--save", metavar="PLAN", type=click.Path(), help="Save the plan as it runs, with its nodes.")
@click.option(
    "--peaks",
    metavar="COSTS",
    type=click.Path(),
    help="Add the most memory of each component, as NVML counts it, to this file, for check --costs and tune.",
)
@click.option("--verbose", is_flag=True, help="Show what is wrapped in the program, and the nodes of each request.")
def pin(
    *,
    file: str,
    command: tuple[str, ...],
    ray: str | None,
    dialect_name: str | None,
    without: tuple[str, ...],
    isolate: bool | None,
    node_order: str | None,
    others: str,
    devices: str,
    timeout: float,
    form: str,
    output: str | None,
    save: str | None,
    peaks: str | None,
    verbose: bool,
) -> None:
    """Run a Ray program, unchanged, with its placement groups bound to the nodes of a plan.

    FILE is a trainer's config, its launch script (read, not run), a job file or a saved plan. COMMAND is any program
    that asks Ray for placement groups: python, python -m, a console script, bash, ray job submit. It must use the sizes
    of FILE. Without COMMAND, the command of the job is run: the one that it states, or its script.

    The report goes to stderr once all ranks are up; faults are reported at once. The exit code is that of COMMAND, 1 if
    it succeeded but the plan was not kept, and 128 + the number of the signal that ended it.
    """
    if file.endswith(".py"):
        raise click.UsageError(f"{file} is a program; FILE is its config or launch script, or a saved plan")
    with faults_end_it():
        config = opened(file)
        stated = job_file_of(config)
        if stated is not None and ray is None:
            ray = stated.ray
        command = command or _own_words(config, dialect_name)
        if not command:
            raise click.UsageError(f"write the command after --: rankplan pin {file} -- python3 train.py")
        if is_saved(config) and (dialect_name is not None or overrides() or node_order is not None):
            raise click.UsageError(f"{file} is a saved plan; remove --dialect, --set and --node-order")
        for path in (output, save, peaks):
            if path is not None:
                _check_writable(path)
    with faults_end_it(), signals.raised():
        with signals.at_once():
            from rankplan.runtime.live.pinned import pin as run

        printer = _ReportPrinter(form)
        try:
            ran = run(
                config,
                command,
                ray=ray,
                others=others,  # type: ignore[arg-type]  # click has checked it
                devices=devices,  # type: ignore[arg-type]
                timeout=timeout,
                dialect=dialect_name,
                overrides=overrides(),
                without=without,
                isolate=isolate,
                node_order=node_order,
                verbose=verbose,
                save=save,
                peaks=peaks,
                tell=_tell,
                report=printer.print if output is None and form == "table" else None,
            )
        except OSError as error:
            if error.filename != command[0]:
                raise
            cannot_start(error, command[0])
        if output is None:
            printer.print(ran)
        else:
            write_whole(Path(output), "\n".join([*printer.lines(ran), ""]))
    sys.exit(ran.returncode)


class _ReportPrinter:
    """Prints the report of a run once all ranks are up, and at the end what has been added since."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._printed: list[str] = []

    def lines(self, ran: Ran) -> list[str]:
        """Return the lines of a report."""
        return [json.dumps(ran.to_dict(), indent=2)] if self._form == "json" else ran.lines()

    def print(self, ran: Ran) -> None:
        """Print a report; of one that continues the last one, only the rest."""
        lines = self.lines(ran)
        count = len(self._printed)
        continues = lines[:count] == self._printed
        for line in lines[count:] if continues else lines:
            if self._form == "table":
                note(line)
            else:
                click.echo(line, err=True)
        self._printed = lines


def _own_words(config: Config, dialect_name: str | None) -> tuple[str, ...]:
    """Return the words that start the trainer of a job: those that it states, or its script; none if it has neither.

    Raises `PlacementError` for a script that starts Ray itself.
    """
    stated = job_file_of(config)
    saved = saved_plan(config)
    if saved is not None:
        command = None if saved.job is None else saved.job.command
    elif stated is not None and stated.command is not None:
        command = stated.command
    else:
        file = name_of(config) if stated is None else stated.job
        if not file.endswith(SCRIPTS):
            return ()
        dialect = unplaced_job(config, dialect=dialect_name, overrides=overrides()).dialect
        own = command_of(config, dialect, overrides(), is_here=True)
        if own.error is not None:
            raise own.error
        command = own.text
    return () if command is None else tuple(command_words(command))


def _check_writable(path: str) -> None:
    """Raise ``OSError`` now if a file could not be written later."""
    folder = Path(path).absolute().parent
    if not os.access(folder, os.W_OK):
        code = errno.EACCES if folder.exists() else errno.ENOENT
        raise OSError(code, os.strerror(code), path)


def _tell(told: Diagnostic | str) -> None:
    """Print a fault, or a note."""
    if isinstance(told, str):
        note(told)
    else:
        click.echo(PlacementError([told]).render(color=colored(sys.stderr)), err=True)

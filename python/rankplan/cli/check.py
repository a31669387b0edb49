"""``rankplan check``: every fault of every file."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankplan.cli.common import (
    Choice,
    InputFile,
    config_arguments,
    config_options,
    format_option,
    memory_options,
    overrides,
    refuse_other_nodes,
)
from rankplan.cli.output import EXPECTED, colored, faults_end_it, note, print_table, show_error, silent
from rankplan.errors import KeyPath, PlacementError, printable
from rankplan.files import unreadable
from rankplan.front.api import check as check_config
from rankplan.front.job import is_saved, job_file_of, opened, saved_plan
from rankplan.hardware.cards import size_text
from rankplan.render.report import Report
from rankplan.words import counted

if TYPE_CHECKING:
    from rankplan.jobs.reader import JobFile

_INTERVAL = 0.3
"""Seconds between two looks at the files: below what a person notices, far above what a look costs."""


@click.command()
@click.argument("paths", metavar="FILE...", type=InputFile(), nargs=-1, required=True)
@config_options
@format_option("text", "json", "sarif", "github")
@click.option("--memory", is_flag=True, help="Also show what each phase needs on an accelerator, and whether it fits.")
@click.option(
    "--measured",
    metavar="PHASE=SIZE",
    multiple=True,
    help="Use a measured peak for a phase: actor.train=57GiB, or the log of verl, NeMo-RL or slime. Repeatable.",
)
@memory_options
@click.option(
    "--verbose",
    is_flag=True,
    help="Report all values that are known only at run time; of a job file, what holds and where it is stated.",
)
@click.option(
    "--exclude",
    "excluded",
    metavar="PATTERN",
    multiple=True,
    help="Leave out files and folders with this name or path, such as `templates` or `*_test.yaml`. Repeatable.",
)
@click.option("--watch", "watched", is_flag=True, help="Check again whenever a file changes, until Ctrl-C.")
def check(
    paths: tuple[str, ...],
    choice: Choice,
    form: str,
    *,
    memory: bool,
    model: str | None,
    reserve: float | None,
    costs: str | None,
    measured: tuple[str, ...],
    verbose: bool,
    excluded: tuple[str, ...],
    watched: bool,
) -> None:
    """Report every fault in config files, with location and fix.

    Without an inventory, every node has as many accelerators as the config states, or 8. The exit code is 1 if a file
    has a fault. Values that are known only at run time are reported if they decide the placement. json is a list with
    one report per file, sarif is for code scanning, github annotates the lines of a pull request.

    The report goes to stdout, notes on the assumed nodes to stderr.

    In a folder, rankplan checks YAML files and scripts, counts those that are no job, and leaves out hidden folders. A
    file that cannot be parsed and has no key of a job is no job. A file that a job file names is checked once, under
    the job file. A table ends the report.
    """
    options = {"memory": memory, "model": model, "reserve": reserve, "costs": costs, "measured": measured}
    options["verbose"] = verbose
    if watched:
        with faults_end_it():
            watch(paths, lambda: _check_all(paths, excluded, choice, form, **options), excluded)
    sys.exit(0 if _check_all(paths, excluded, choice, form, **options) else 1)


def files_to_check(files: Sequence[str], named: Collection[str]) -> list[str]:
    """Return files without those of folders that a job file names: they are checked under it.

    A file that the user has named is checked in any case.
    """
    below: set[str] = set()
    for file in files:
        with suppress(*EXPECTED):  # whoever checks the file reports what is wrong
            stated = job_file_of(file)
            if stated is not None:
                below.update(os.path.realpath(one) for one in (stated.job, *stated.files[1:]))
    return [file for file in dict.fromkeys(files) if file in named or os.path.realpath(file) not in below]


def _check_all(paths: tuple[str, ...], excluded: tuple[str, ...], choice: Choice, form: str, **options: Any) -> bool:
    """Check files and print the result; return whether all are fine."""
    checks = _Checks(paths, choice, form, options)
    with faults_end_it():
        files = list(paths)
        if checks.has_folder:
            from rankplan.cli.folders import files_in  # most checks are of files

            files = files_to_check([file for path in paths for file in files_in(path, excluded)], paths)
    for file in files:
        checks.check(file)
    checks.finish()
    return all(checks.reports)


class _Checks:
    """Checks of files. Texts are printed file by file; a table, or one document of JSON or SARIF, ends the report."""

    def __init__(self, paths: tuple[str, ...], choice: Choice, form: str, options: dict[str, Any]) -> None:
        self._paths, self._choice, self._form, self._options = paths, choice, form, options
        self.has_folder = any(Path(path).is_dir() for path in paths)
        self.reports: list[Report] = []
        self._unreadable: dict[str, str] = {}
        self._skipped = 0

    def check(self, file: str) -> None:
        """Check a file. One of a folder that is no job is only counted."""
        with faults_end_it(), silent() if self.has_folder else nullcontext():
            try:
                config = opened(file)
                refuse_other_nodes(config, self._choice)
                report = check_config(config, self._choice.given, **config_arguments(self._choice), **self._options)
                if self._is_of_no_job(file, report):
                    self._skipped += 1
                    return
                self._print(report, config)
            except BrokenPipeError:
                raise
            except PlacementError as error:  # of a job file
                report = Report(file, None, error.diagnostics)
                self._print(report, None)
            except EXPECTED as error:
                report = self._without_answer(file, error)
        self.reports.append(report)

    def _is_of_no_job(self, file: str, report: Report) -> bool:
        """Return whether a file of a folder, which nobody has named, is no job."""
        if not self.has_folder or file in self._paths:
            return False
        from rankplan.cli.folders import is_of_no_job  # most checks are of files

        return is_of_no_job(report)

    def _print(self, report: Report, config: Any) -> None:
        """Print a report as text; in a folder, only one with faults."""
        if self._form != "text" or (self.has_folder and report):
            return
        click.echo(report.render(color=colored(sys.stdout)))
        stated = job_file_of(config) if self._options["verbose"] else None
        if stated is not None:
            _print_stated(stated, report, self._choice, self._options)

    def _without_answer(self, file: str, error: Exception) -> Report:
        """Return the report of a file that cannot be read."""
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self._unreadable[file] = reason
        if self._form == "text":
            show_error(error, sys.stdout)
        return Report(file, None, (unreadable(file, reason),))

    def finish(self) -> None:
        """Print what ends the report."""
        if self._skipped:
            note(f"skipped {counted(self._skipped, 'file that is no job', 'files that are no jobs')}")
        if self._form == "json":
            click.echo(json.dumps([self._plain(report) for report in self.reports], indent=2))
        elif self._form in ("sarif", "github"):
            _print_annotations(self.reports, self._form)
        elif self.has_folder and self.reports:
            _print_summary(self.reports)

    def _plain(self, report: Report) -> dict[str, Any]:
        """Return a report as a mapping of JSON."""
        plain = report.plain()
        reason = self._unreadable.get(plain["file"])
        return plain if reason is None else plain | {"faults": [], "error": reason}


def _print_annotations(reports: Sequence[Report], form: str) -> None:
    """Print the diagnostics for code scanning, or as annotations of a pull request."""
    from rankplan.render.annotations import github, sarif

    found = [one for report in reports for one in report.diagnostics]
    if form == "sarif":
        click.echo(json.dumps(sarif(found), indent=2))
        return
    for one in found:
        click.echo(github(one))


def _print_stated(stated: JobFile, report: Report, choice: Choice, options: Mapping[str, Any]) -> None:
    """Print what holds for a job, and where it comes from."""
    from rankplan.jobs.holding import Option, holding  # printed for people who ask
    from rankplan.render.tables import table

    replaced: dict[KeyPath, Option] = {}
    if choice.stated_nodes is not None:
        replaced[("nodes",)] = Option(*choice.stated_nodes)
    if choice.dialect is not None:
        replaced[("dialect",)] = Option(choice.dialect, "--dialect")
    if options["reserve"] is not None:
        replaced["memory", "reserve"] = Option(size_text(options["reserve"]), "--reserve")
    for name in ("model", "costs"):
        if options[name] is not None:
            replaced["memory", name] = Option(options[name], f"--{name}")
    added = {
        "exclude": [Option(name, "--without") for name in choice.without],
        "overrides": [Option(words, "--") for words in overrides()],
    }
    plan = report.plan
    if plan is None and is_saved(stated):
        with suppress(PlacementError):  # the report has it
            plan = saved_plan(stated)
    result = table("stated", "value", "where")
    for one in holding(stated, plan, is_plan=is_saved(stated), replaced=replaced, added=added):
        result.add_row(*map(printable, one.texts()))
    click.echo()
    print_table(result)


def _print_summary(reports: Sequence[Report]) -> None:
    """Print a table with a line per file."""
    from rankplan.render.tables import table

    result = table("file", "processes#", "nodes#", "faults#", "warnings#")
    for one in reports:
        sizes = ["", ""]
        if one.plan is not None:
            sizes = [str(sum(map(len, one.plan.values()))), str(one.plan.inventory.num_nodes)]
        counts = [str(len(found) or "") for found in (one.faults, one.warnings)]
        result.add_row(printable(one.file), *sizes, *counts)
    print_table(result)


def watch(
    paths: Sequence[str], command: Callable[[], object], excluded: Collection[str] = (), rounds: int | None = None
) -> None:
    """Run a command, and again after each change of a file, until it is interrupted, or for some ``rounds``."""
    while True:
        before = _states(paths, excluded)
        if sys.stdout.isatty():
            click.clear()
        command()
        rounds = None if rounds is None else rounds - 1
        if rounds == 0:
            return
        click.echo(f"watching {', '.join(map(printable, paths))}; Ctrl-C ends it", err=True)
        while _states(paths, excluded) == before:
            time.sleep(_INTERVAL)


def _states(paths: Sequence[str], excluded: Collection[str]) -> dict[str, tuple[int, int] | None]:
    """Return numbers that change when a file is written, replaced, added or removed."""
    from rankplan.cli.folders import files_in  # most checks do not watch

    states: dict[str, tuple[int, int] | None] = dict.fromkeys(paths)
    for path in paths:
        with suppress(OSError):  # a folder may change meanwhile
            for file in files_in(path, excluded):
                state = Path(file).stat()
                states[file] = state.st_mtime_ns, state.st_ino
    return states

"""``rankplan check``: every fault of every file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from rankplan.cli.common import EXPECTED, Choice, colored, config_arguments, config_options, faults_end_it, show_error
from rankplan.errors import Diagnostic, printable
from rankplan.front import Report
from rankplan.front import check as check_config
from rankplan.render.annotations import github, sarif

_FORMATS = ("text", "json", "sarif", "github")
_INTERVAL = 0.3
"""Seconds between two looks at the files: below what a person notices, far above what a look costs."""


@click.command()
@click.argument("files", metavar="FILE...", type=click.Path(), nargs=-1, required=True)
@config_options
@click.option("--format", "form", type=click.Choice(_FORMATS), default="text", show_default=True, help="Output format.")
@click.option("--memory", is_flag=True, help="Also tell what each phase needs, and whether it fits.")
@click.option("--watch", "watched", is_flag=True, help="Check again whenever a file changes, until Ctrl-C.")
def check(files: tuple[str, ...], choice: Choice, form: str, *, memory: bool, watched: bool) -> None:
    """Report every fault in config files, with location and fix.

    Without an inventory, every node has as many accelerators as the config states, or 8. The exit code is 1 if a file
    has a fault. json is a list with one report per file, sarif is for code scanning, github annotates the lines of a
    pull request.
    """
    if watched:
        with faults_end_it():
            watch(files, lambda: _check_all(files, choice, form, memory=memory))
    sys.exit(0 if _check_all(files, choice, form, memory=memory) else 1)


def _check_all(files: tuple[str, ...], choice: Choice, form: str, *, memory: bool) -> bool:
    """Check files and print the result; return whether all are fine."""
    reports, unread = [], dict[str, str]()
    for file in files:
        with faults_end_it():
            try:
                report = check_config(file, choice.given, memory=memory, **config_arguments(choice))
                if form == "text":
                    click.echo(report.render(color=colored(sys.stdout if report else sys.stderr)), err=not report)
            except BrokenPipeError:
                raise
            except EXPECTED as error:
                unread[file] = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                report = Report(file, None, (Diagnostic("unreadable", unread[file], file=file),))
                if form == "text":
                    show_error(error)
        reports.append(report)
    found = [one for report in reports for one in report.diagnostics]
    if form == "json":
        plain = [report.plain() for report in reports]
        plain = [one | {"faults": [], "error": unread[one["file"]]} if one["file"] in unread else one for one in plain]
        click.echo(json.dumps(plain, indent=2))
    elif form == "sarif":
        click.echo(json.dumps(sarif(found), indent=2))
    elif form == "github":
        for one in found:
            click.echo(github(one))
    return all(reports)


def watch(files: Sequence[str], command: Callable[[], object], rounds: int | None = None) -> None:
    """Run a command, and again after each change of a file, until it is interrupted, or for some ``rounds``."""
    while True:
        before = _states(files)
        if sys.stdout.isatty():
            click.clear()
        command()
        rounds = None if rounds is None else rounds - 1
        if rounds == 0:
            return
        click.echo(f"watching {', '.join(map(printable, files))}; Ctrl-C ends it", err=True)
        while _states(files) == before:
            time.sleep(_INTERVAL)


def _states(files: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return numbers that change when a file is written, replaced or removed."""
    states: list[tuple[int, int] | None] = []
    for file in files:
        try:
            state = Path(file).stat()
            states.append((state.st_mtime_ns, state.st_ino))
        except OSError:
            states.append(None)
    return states

"""``rankplan check``: every fault of every file."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import click

from rankplan.cli.common import (
    EXPECTED,
    InventoryChoice,
    colored,
    dialect_option,
    faults_end_it,
    inventory_options,
    overrides,
    show_error,
)
from rankplan.cli.watch import watch
from rankplan.errors import Diagnostic
from rankplan.front import Report
from rankplan.front import check as check_config
from rankplan.render.annotations import github, sarif

_FORMATS = ("text", "json", "sarif", "github")


@click.command()
@click.argument("files", metavar="FILE...", type=click.Path(), nargs=-1, required=True)
@inventory_options
@dialect_option
@click.option("--format", "form", type=click.Choice(_FORMATS), default="text", show_default=True, help="Output format.")
@click.option("--watch", "watched", is_flag=True, help="Check again whenever a file changes, until Ctrl-C.")
def check(
    *, files: tuple[str, ...], choice: InventoryChoice, dialect_name: str | None, form: str, watched: bool
) -> None:
    """Report every fault in config files, with location and fix.

    Without an inventory, every node has as many accelerators as the config states, or 8. The exit code is 1 if a file
    has a fault. json is a list with one report per file, sarif is for code scanning, github annotates the lines of a
    pull request.
    """
    if watched:
        with faults_end_it():
            watch(files, lambda: _check_all(files, choice, dialect_name, form))
    sys.exit(1 if _check_all(files, choice, dialect_name, form) else 0)


def _check_all(files: tuple[str, ...], choice: InventoryChoice, dialect: str | None, form: str) -> bool:
    """Check files and print what was found; return whether any has a fault."""
    reports = []
    for file in files:
        with faults_end_it():
            report = _checked(file, choice, dialect)
            if form != "text":
                pass
            elif isinstance(report, _Unread):
                show_error(report.error)
            else:
                click.echo(report.render(color=colored(sys.stdout if report else sys.stderr)), err=not report)
        reports.append(report)
    found = [one for report in reports for one in report.diagnostics]
    if form == "json":
        click.echo(json.dumps([report.plain() for report in reports], indent=2))
    elif form == "sarif":
        click.echo(json.dumps(sarif(found), indent=2))
    elif form == "github":
        for one in found:
            click.echo(github(one))
    return not all(reports)


@dataclass(frozen=True, slots=True)
class _Unread:
    """The report of a file that cannot be read, or whose nodes cannot."""

    file: str
    error: Exception

    def __bool__(self) -> bool:
        return False

    @property
    def message(self) -> str:
        """The reason."""
        return self.error.strerror if isinstance(self.error, OSError) and self.error.strerror else str(self.error)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The reason as a diagnostic."""
        return (Diagnostic("unreadable", self.message, file=self.file),)

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values, like `Report.plain`."""
        return Report(self.file, None, ()).plain() | {"error": self.message}


def _checked(file: str, choice: InventoryChoice, dialect: str | None) -> Report | _Unread:
    try:
        return check_config(file, choice.given, dialect=dialect, overrides=overrides(), without=choice.without)
    except BrokenPipeError:
        raise
    except EXPECTED as error:
        return _Unread(file, error)

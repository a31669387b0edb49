"""What the commands print: tables, notes and errors."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from rankplan.cli import signals
from rankplan.errors import PlacementError, RankplanError, printable, printable_lines
from rankplan.front.job import notes
from rankplan.render.report import faults_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EXPECTED = (RankplanError, OSError)
"""Errors that input or a cluster can cause; any other error is a bug of rankplan and keeps its traceback."""


def text_console(width: int | None = None) -> Console:
    """Return a console of rich for stdout. Names come from configs: a bracket in a name is not markup."""
    from rich.console import Console  # most commands print plain lines

    console = Console(highlight=False, markup=False, soft_wrap=True, width=width)
    if console.width < 1:  # COLUMNS=0 would print nothing
        console.width = 80
    return console


def keep_words(table: Table, width: int) -> None:
    """Divide the width among the columns so that no word is broken; of words that do not fit, the longest are."""
    from rich.cells import cell_len

    texts = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    whole = [max(map(cell_len, column)) for column in texts]
    words = [max((cell_len(word) for text in column for word in text.split()), default=0) for column in texts]
    gaps = len(whole) - 1
    if sum(words) + table.padding[1] * gaps > width:
        table.padding = (0, 1, 0, 0)
    room = width - table.padding[1] * gaps
    most = max(whole, default=0)
    least = most
    while most > 1 and sum(max(min(most, one), word) for one, word in zip(whole, words, strict=True)) > room:
        most -= 1
    while least > 1 and sum(min(least, word) for word in words) > room:
        least -= 1
    for column, one, word in zip(table.columns, whole, words, strict=True):
        column.width = max(min(most, one), min(least, word))


def table_lines(table: Table) -> list[str]:
    """Return a table as lines, as wide as the terminal if there is one, else as wide as it needs."""
    console = text_console(None if sys.stdout.isatty() else 10_000)
    keep_words(table, console.width)
    with console.capture() as capture:
        console.print(table, soft_wrap=False)
    return [line.rstrip() for line in capture.get().splitlines()]


def print_table(table: Table) -> None:
    """Print a table; see `table_lines`."""
    click.echo("\n".join(table_lines(table)))


def print_lines(lines: Sequence[str]) -> None:
    """Print lines after a blank one, if there are any."""
    if lines:
        click.echo("\n".join(["", *lines]))


def colored(stream: TextIO) -> bool:
    """Whether to print colors to this stream."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def note(text: str, color: str | None = None) -> None:
    """Print a note, one line, on stderr, dim unless it has a color."""
    click.secho(printable(text), fg=color, dim=color is None, err=True, color=None if colored(sys.stderr) else False)


def _noted(record: logging.LogRecord) -> bool:
    """Print a note with its hint on stderr. Return False: logging then drops the record."""
    hint = getattr(record, "hint", None)
    note(record.getMessage() + (f"; {hint}" if hint else ""))
    return False


def show_error(error: Exception, stream: TextIO | None = None) -> None:
    """Print an expected error on a stream, stderr by default: every fault with its location, or one message."""
    stream = stream or sys.stderr
    color = colored(stream)
    if isinstance(error, PlacementError):
        click.echo(f"{error.render(color=color)}\n\n{faults_line(error.diagnostics)}", stream)
        return
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    if isinstance(error, OSError) and error.filename:
        hint = "; write overrides after --" if "=" in str(error.filename) else ""
        text = f"{printable(str(error.filename))}: {error.strerror}{hint}"
    title = click.style("error:", fg="red", bold=True)
    click.echo(f"{title} {printable_lines(text)}", stream, color=None if color else False)


def cannot_start(error: OSError, program: str) -> NoReturn:
    """End like a shell that cannot run a program: 127 if it is missing, else 126."""
    hint = "; override the config with --set" if "=" in program else ""
    show_error(OSError(f"{program}: {error.strerror}{hint}"))
    sys.exit(127 if error.errno == errno.ENOENT else 126)


@contextmanager
def faults_end_it(code: int = 1) -> Iterator[None]:
    """Turn expected errors into a message and an exit code, without a traceback."""
    notes.addFilter(_noted)
    try:
        yield
    except BrokenPipeError:
        # The reader of stdout has closed it; the interpreter must not write at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except EXPECTED as error:
        show_error(error)
        sys.exit(code)
    except KeyboardInterrupt:
        with suppress(OSError):  # its terminal may be closed
            click.echo("interrupted", err=True)
        sys.exit(signals.exit_code())
    finally:
        notes.removeFilter(_noted)


@contextmanager
def silent() -> Iterator[None]:
    """Drop the notes on assumed nodes and on what emitted files leave open: those of many files bury the faults."""
    notes.disabled = True
    try:
        yield
    finally:
        notes.disabled = False

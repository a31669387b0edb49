"""What the commands print: tables, notes and errors."""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
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

_BREAK = re.compile(r"(?<=,) | (?!\d)")
"""A blank that ends a line of a cell: none between a noun and its number."""


def text_console(width: int | None = None) -> Console:
    """Return a console of rich for stdout. Names come from configs: a bracket in a name is not markup."""
    from rich.console import Console  # most commands print plain lines

    console = Console(highlight=False, markup=False, soft_wrap=True, width=width)
    if console.width < 1:  # COLUMNS=0 would print nothing
        console.width = 80
    return console


def keep_words(table: Table, width: int) -> Table:
    """Return a table with the width divided among its columns so that no word is broken.

    Of words that do not fit, the longest are. In the columns that have room, a number stays with its noun: from the
    first column on, each for which the table then still fits. Columns stand closer if the words do not fit otherwise.
    """
    from rich.cells import cell_len

    from rankplan.render.tables import table as empty_table

    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    texts = [max(map(cell_len, column)) for column in columns]
    words = _longest(columns, str.split)
    numbered = _longest(columns, _BREAK.split)
    gaps = len(columns) - 1
    for index, numbered_width in enumerate(numbered):
        if sum(words) - words[index] + numbered_width + gaps <= width:
            words[index] = numbered_width
    keeps_numbers = [word == numbered_width for word, numbered_width in zip(words, numbered, strict=True)]
    padding = table.padding[1]
    if sum(words) + padding * gaps > width:
        padding = 1
    result = empty_table()
    result.title = table.title
    result.show_header = table.show_header
    result.padding = (0, padding, 0, 0)
    result.columns = [column.copy() for column in table.columns]
    widths = _column_widths(texts, words, width - padding * gaps)
    for column, column_width in zip(result.columns, widths, strict=True):
        column.width = column_width
    for row in zip(*[column.cells for column in table.columns], strict=True):
        cells = []
        for cell, column_width, keeps in zip(row, widths, keeps_numbers, strict=True):
            cells.append(_wrapped(str(cell), column_width) if keeps else cell)
        result.add_row(*cells)
    return result


def _column_widths(texts: Sequence[int], words: Sequence[int], room: int) -> list[int]:
    """Divide a width among columns, of which the longest texts and the longest words are known.

    A limit for all columns is lowered from the longest text until they fit. No column is narrower than its word; if the
    words alone do not fit, it is they that have the limit.
    """
    limit = max(texts, default=0)
    if sum(words) > room:
        while limit > 1 and sum(min(limit, word) for word in words) > room:
            limit -= 1
        return [max(min(1, text), min(limit, word)) for text, word in zip(texts, words, strict=True)]
    widths = list(texts)
    while limit > 1 and sum(widths) > room:
        limit -= 1
        widths = [max(min(limit, text), word) for text, word in zip(texts, words, strict=True)]
    return widths


def _longest(texts: Sequence[Sequence[str]], pieces_of: Callable[[str], list[str]]) -> list[int]:
    """Return the width of the longest piece of each column."""
    from rich.cells import cell_len

    return [max((cell_len(piece) for text in column for piece in pieces_of(text)), default=0) for column in texts]


def _wrapped(text: str, width: int) -> str:
    """Return a text in lines of this width, with no line between a noun and its number."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text
    lines: list[str] = []
    for piece in _BREAK.split(text):
        if lines and cell_len(f"{lines[-1]} {piece}") <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return "\n".join(lines)


def fits(table: Table, width: int) -> bool:
    """Return whether a table of this width keeps each number with its noun."""
    texts = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    return sum(_longest(texts, _BREAK.split)) + len(texts) - 1 <= width


def table_lines(table: Table, narrower: Table | None = None) -> list[str]:
    """Return a table as lines, as wide as the terminal if there is one, else as wide as it needs.

    ``narrower`` replaces a table that is too wide.
    """
    console = text_console(None if sys.stdout.isatty() else 10_000)
    if narrower is not None and not fits(table, console.width):
        table = narrower
    with console.capture() as capture:
        console.print(keep_words(table, console.width), soft_wrap=False)
    return [line.rstrip() for line in capture.get().splitlines()]


def print_table(table: Table, narrower: Table | None = None) -> None:
    """Print a table; see `table_lines`."""
    click.echo("\n".join(table_lines(table, narrower)))


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
        sys.exit(1)  # the reader of stdout has closed it
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

"""Tables of nodes: CSV files with a header, a row for each node."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import read_text
from rankplan.read.text.document import Section
from rankplan.read.text.scalars import plain_scalar
from rankplan.words import counted, misspelt, shown

SUFFIXES = (".csv", ".tsv")
_TEXTS = ("hostname", "ip", "accelerator_model", "accelerator_type", "taken")
_OTHERS = ("ranks", "accelerators", "accelerator_ids", "healthy", "unhealthy", "cpus", "reservable_memory")
_COLUMNS = (*_TEXTS, *_OTHERS)


class _Table:
    """Where the nodes of a table are: ``rows`` has the line of each."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.rows: list[int] = []
        self.warnings: list[Diagnostic] = []

    def locate(self, path: Sequence[str | int], fault: Diagnostic) -> Diagnostic:
        """Return the fault with the line of the node that a path leads to."""
        node = path[1] if len(path) > 1 else None
        return replace(fault, file=self.file, line=self.rows[node] if isinstance(node, int) else 1)

    def fault(self, message: str, help: str, line: int, code: str = "invalid-inventory") -> Diagnostic:
        """Return a fault of a line."""
        return Diagnostic(code, message, help, file=self.file, line=line)


def read_table(path: str | os.PathLike[str]) -> Section | None:
    """Return an inventory with a node for each row of a ``.csv`` or ``.tsv`` file; ``None`` for any other file.

    The header names the keys of an entry (``hostname``, ``ip``, ``accelerators``, ...); other columns are labels. An
    empty cell states nothing. Without ``ranks``, nodes are numbered row by row. Raises `PlacementError` with every
    fault and its line, ``OSError`` if the file cannot be read.
    """
    table = _Table(os.fspath(path))
    if not table.file.lower().endswith(SUFFIXES):
        return None
    delimiter = "\t" if table.file.lower().endswith(".tsv") else ","
    rows = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    try:
        listed = [(rows.line_num, row) for row in rows if any(map(str.strip, row))]
    except csv.Error as error:
        fault = table.fault(f"the row cannot be read: {error}", "close the quotes of each cell", rows.line_num)
        raise PlacementError([fault]) from None
    if len(listed) < 2:
        message = "the table has a header and no rows" if listed else "the file is empty: it describes no nodes"
        help = "write a header such as `hostname,accelerators`, and a row for each node"
        raise PlacementError([table.fault(message, help, 1)])
    (line, head), *body = listed
    columns = [name.strip() for name in head]
    faults = [table.fault(message, help, line, code) for code, message, help in _wrong_columns(columns)]
    nodes: list[dict[str, Any]] = []
    for number, row in body:
        if len(row) != len(columns):
            message = f"the row has {counted(len(row), 'cell')}, the header {len(columns)}"
            faults.append(table.fault(message, "write a cell for each column", number))
        nodes.append(_entry(columns, row, len(nodes)))
        table.rows.append(number)
    if faults:
        raise PlacementError(faults)
    content = Section(table, ())
    content["nodes"] = nodes
    return content


def _wrong_columns(columns: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield code, message and help of each fault of a header."""
    known = f"the columns are {', '.join(_COLUMNS)}; others are labels"
    for index, name in enumerate(columns):
        if not name or not name.isprintable():
            yield "invalid-inventory", f"column {index + 1} has the name {shown(name)}", "give each column a name"
        elif name in columns[:index]:
            yield "invalid-inventory", f"two columns are named `{name}`", "give each column its own name"
        elif name not in _COLUMNS and (near := misspelt(name, _COLUMNS)) is not None:
            yield "unknown-key", f"unknown column `{name}`", f"did you mean `{near}`?"
    if "accelerators" not in columns and "accelerator_ids" not in columns:
        yield "missing-key", "no column has the accelerators of the nodes", f"add `accelerators`: {known}"


def _entry(columns: Sequence[str], row: Sequence[str], rank: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"ranks": rank}
    labels: dict[str, str] = {}
    for name, cell in zip(columns, map(str.strip, row), strict=False):
        if not cell:
            continue
        if name not in _COLUMNS:
            labels[name] = cell
        elif name in _TEXTS or name == "ranks":
            entry[name] = cell
        elif name == "accelerator_ids":
            entry[name] = re.split(r"[;\s]+", cell)
        else:
            entry[name] = plain_scalar(cell.lower() if name == "healthy" else cell)
    return entry | ({"labels": labels} if labels else {})

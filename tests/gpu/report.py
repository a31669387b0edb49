"""The table of what was tried on a machine, and the folder of what it printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any


class Verdict(Enum):
    """What became of a check. Its value is the word in the table."""

    RIGHT = "right"
    WRONG = "wrong"
    NOT_THERE = "not there"
    """The machine lacks what the check is about."""
    NOT_TRIED = "not tried"
    """The machine has it, but this command does not check it."""


@dataclass(frozen=True)
class Row:
    """A line of the table: the part of the command, what was checked, and what was seen."""

    part: str
    subject: str
    verdict: Verdict
    seen: str


@dataclass
class Report:
    """What was checked so far. ``folder`` gets the recorded answers, ``None`` to keep none."""

    folder: Path | None = None
    rows: list[Row] = field(default_factory=list)
    recorded: dict[str, Any] = field(default_factory=dict)

    def right(self, part: str, subject: str, seen: object) -> None:
        """Record a check that agrees."""
        self._add(part, subject, Verdict.RIGHT, seen)

    def wrong(self, part: str, subject: str, seen: object) -> None:
        """Record a check that disagrees."""
        self._add(part, subject, Verdict.WRONG, seen)

    def not_there(self, part: str, subject: str, seen: object) -> None:
        """Record what this machine lacks."""
        self._add(part, subject, Verdict.NOT_THERE, seen)

    def not_tried(self, part: str, subject: str, seen: object) -> None:
        """Record what this command does not check."""
        self._add(part, subject, Verdict.NOT_TRIED, seen)

    def compare(self, part: str, subject: str, ours: object, theirs: object) -> None:
        """Record whether rankplan's answer is that of the reference."""
        if ours == theirs:
            self.right(part, subject, ours)
        else:
            self.wrong(part, subject, f"{ours}, expected {theirs}")

    def record(self, name: str, value: Any) -> None:
        """Keep an answer of this machine, as JSON."""
        self.recorded[name] = value

    @contextmanager
    def guarded(self, part: str) -> Iterator[None]:
        """Turn whatever a part raises into a wrong row, so that the other parts run."""
        try:
            yield
        except Exception as error:
            self.wrong(part, "the part itself", f"{type(error).__name__}: {' '.join(str(error).split())}")

    def table(self) -> str:
        """Return the rows as a table, and a line with their number."""
        lines = _columns([("part", "check", "", "seen"), *map(_cells, self.rows)])
        counts = [f"{sum(row.verdict is verdict for row in self.rows)} {verdict.value}" for verdict in Verdict]
        return "\n".join([*lines, "", ", ".join(counts)])

    @property
    def is_right(self) -> bool:
        """Whether something was tried and nothing is wrong."""
        verdicts = [row.verdict for row in self.rows]
        return Verdict.RIGHT in verdicts and Verdict.WRONG not in verdicts

    def write(self) -> None:
        """Write the table and the recorded answers into the folder."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "table.txt").write_text(self.table() + "\n")
        (self.folder / "recorded.json").write_text(json.dumps(self.recorded, indent=1) + "\n")

    def _add(self, part: str, subject: str, verdict: Verdict, seen: object) -> None:
        row = Row(part, subject, verdict, str(seen))
        self.rows.append(row)
        print(f"  {row.verdict.value:9}  {row.subject}: {row.seen}", flush=True)


def _cells(row: Row) -> tuple[str, str, str, str]:
    return row.part, row.subject, row.verdict.value, row.seen


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]

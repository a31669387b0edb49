"""The page of deliberate differences from the peers: it is complete, and tests call a difference by its row there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "differences.md"
LANDSCAPE = ROOT.parent / "shared" / "landscape.md"


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of the tables in a Markdown text, without their heads."""
    for table in re.findall(r"^\|[-:|]+\|\n((?:\|.*\|\n)+)", text, re.MULTILINE):
        yield from ([cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines())


def _names() -> Iterator[str]:
    """What RLinf or, after its name, another peer does: a row of the page, or a part of one between semicolons."""
    for does, *_ in rows(PAGE.read_text()):
        yield does
        peer = re.match(r"ROLL: |slime: |", does)[0]  # type: ignore[index]
        yield from (peer + part.strip() for part in does.removeprefix(peer).split(";"))


NAMES = frozenset(_names())


def named(name: str) -> str:
    """The name of a difference, which must be on the page."""
    assert name in NAMES, f"{name!r} is not a row of {PAGE.name}"
    return name


@pytest.mark.skipif(not LANDSCAPE.exists(), reason="the table (../shared/landscape.md) is not here")
def test_the_page_has_every_row_of_the_table_of_deliberate_differences() -> None:
    _, _, table = LANDSCAPE.read_text().partition("## Where rankplan answers differently from RLinf, on purpose")
    decided = [does for does, *_ in rows(table)]
    assert len(decided) > 15
    assert [does for does in decided if does not in NAMES] == []


def test_every_row_of_the_page_has_an_example() -> None:
    """The programs of the page are run by test_documents.py; what they print starts with the number of the row."""
    page = PAGE.read_text()
    printed = re.findall(r"^(\d+) (.*)", "".join(re.findall(r"```output\n(.*?)```", page, re.DOTALL)), re.MULTILINE)
    numbers = [row[-1] for row in rows(page)]
    assert numbers == [str(number + 1) for number in range(len(numbers))]
    assert sorted((number for number, _ in printed), key=int) == numbers
    for _, ours, number in rows(page):
        if code := re.fullmatch(r"`([a-z-]+)`", ours):
            assert dict(printed)[number].startswith(f"{code[1]}: "), f"row {number} is refused with another code"

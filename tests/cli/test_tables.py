"""Tables in a narrow terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from rankplan.cli.output import keep_words, text_console
from rankplan.front.api import plan
from rankplan.render.tables import plan_table, table

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(str(file.relative_to(EXAMPLES)) for file in EXAMPLES.glob("*.*") if file.suffix in (".yaml", ".sh"))


def printed(given: object, width: int) -> list[str]:
    console = text_console(width)
    with console.capture() as capture:
        keep_words(given, width)  # type: ignore[arg-type]
        console.print(given, soft_wrap=False)
    return capture.get().splitlines()


@pytest.mark.parametrize("file", FILES)
def test_no_word_of_a_plan_is_broken_at_80_columns(file: str) -> None:
    wanted = plan_table(plan(EXAMPLES / file))
    words = {word for column in wanted.columns for cell in column.cells for word in str(cell).split()}
    lines = printed(wanted, 80)
    assert all(len(line.rstrip()) <= 80 for line in lines)
    words |= {word for column in wanted.columns for word in str(column.header).split()}
    assert {word for line in lines for word in line.split()} == words


def test_only_words_that_cannot_fit_are_broken() -> None:
    wanted = table("file", "faults#")
    wanted.add_row("a/" * 60, "1")
    lines = printed(wanted, 40)
    assert (
        all(len(line.rstrip()) <= 40 for line in lines) and "".join(line.split()[0] for line in lines[1:]) == "a/" * 60
    )
    assert any(line.split()[-1] == "faults" for line in lines)

"""Tables in a narrow terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from rankplan.cli.output import fits, keep_words, text_console
from rankplan.front.api import plan
from rankplan.render.tables import plan_table, table
from rich.table import Table

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(str(file.relative_to(EXAMPLES)) for file in EXAMPLES.glob("*.*") if file.suffix in (".yaml", ".sh"))


def printed(given: Table, width: int) -> list[str]:
    console = text_console(width)
    with console.capture() as capture:
        console.print(keep_words(given, width), soft_wrap=False)
    return capture.get().splitlines()


@pytest.mark.parametrize("file", FILES)
def test_no_word_of_a_plan_is_broken_at_80_columns(file: str) -> None:
    wanted = plan_table(plan(EXAMPLES / file))
    words = {word for column in wanted.columns for cell in column.cells for word in str(cell).split()}
    lines = printed(wanted, 80)
    assert all(len(line.rstrip()) <= 80 for line in lines)
    words |= {word for column in wanted.columns for word in str(column.header).split()}
    assert {word for line in lines for word in line.split()} == words


def test_a_number_stays_with_its_noun_where_all_of_them_fit() -> None:
    roll = plan(EXAMPLES / "roll.yaml")
    assert fits(plan_table(roll), 100) and not fits(plan_table(roll), 80)
    lines = printed(plan_table(roll, is_narrow=True), 80)
    assert all(len(line.rstrip()) <= 80 for line in lines)
    continued = [line.split() for line in lines[2:] if line.startswith(" ")]
    assert continued and not any(words[0][0].isdigit() for words in continued)
    text = "\n".join(lines)
    assert all(words in text for words in ("accelerator 0 ", "accelerators 0-1 ", "NV_GPU 0-1 "))
    assert "cluster" not in text
    # With less room, the first columns keep their numbers, and no word is broken.
    wide = "\n".join(printed(plan_table(roll), 80))
    assert "accelerators 0-1 " in wide and "NV_GPU 0-1 " not in wide


def test_a_narrow_table_keeps_the_groups_of_nodes_that_differ() -> None:
    mixed = plan(EXAMPLES / "mixed" / "conf.yaml", EXAMPLES / "mixed" / "nodes.yaml")
    headers = [column.header for column in plan_table(mixed, is_narrow=True).columns]
    assert headers == [column.header for column in plan_table(mixed).columns] and "node group" in headers


def test_only_words_that_cannot_fit_are_broken() -> None:
    wanted = table("file", "faults#")
    wanted.add_row("a/" * 60, "1")
    lines = printed(wanted, 40)
    assert (
        all(len(line.rstrip()) <= 40 for line in lines) and "".join(line.split()[0] for line in lines[1:]) == "a/" * 60
    )
    assert any(line.split()[-1] == "faults" for line in lines)

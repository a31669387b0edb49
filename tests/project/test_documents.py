"""Run the configs, commands and programs of the README and the guides, and compare their outputs with the pages.

If an output has changed on purpose, run ``python docs/generate.py --outputs``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from rankplan.cli import main
from support.documents import BLOCKS, Block, command_output, commands, in_folder, program_output, programs, run

KINDS = {"sh", "bash", "yaml", "toml", "console", "python", "output", "text"}
READ_FIRST = ("README.md", "tutorial.md")
"""The pages whose tests are not ``long``."""


def location(value: Block | str | None) -> str:
    """Name a test by the location of its block."""
    return str(value) if isinstance(value, Block) else ""


def _marks(block: Block) -> list[pytest.MarkDecorator]:
    """Return the mark of commands and programs on most pages, and of programs that start a cluster on the tutorial."""
    starts_cluster = "simulate(" in block.text and block.document.name != "README.md"
    return [pytest.mark.long] if starts_cluster or block.document.name not in READ_FIRST else []


@pytest.mark.parametrize(
    ("block", "command", "output"), [pytest.param(*row, marks=_marks(row[0])) for row in commands()], ids=location
)
def test_commands_print_the_output_on_the_page(block: Block, command: str, output: str) -> None:
    assert command_output(block, command).strip() == output.strip()


@pytest.mark.parametrize(
    ("block", "output"), [pytest.param(*row, marks=_marks(row[0])) for row in programs()], ids=location
)
def test_programs_run_and_print_the_output_on_the_page(block: Block, output: str | None) -> None:
    printed = program_output(block)
    assert output is None or printed.strip() == output.strip()


def test_the_commands_that_repair_a_plan_follow_each_other(tmp_path: Path) -> None:
    (block,) = (one for one in BLOCKS if one.kind == "sh" and "rankplan replan" in one.text)
    folder = in_folder(block.document, tmp_path)
    done = [run(folder, "-m", *line.split()) for line in block.text.splitlines()]
    assert [one.returncode for one in done] == [0, 0, 1], [one.stderr for one in done]
    assert done[1].stdout.startswith("3 of 7 ranks move: rollout 0-2, n1 -> n3") and "rollout 0-2" in done[2].stdout


def words_in_text() -> Iterator[tuple[Block, str]]:
    """Yield each command of rankplan that needs a cluster, and so cannot run here."""
    for block in BLOCKS:
        if block.kind == "text":
            lines = block.text.replace("\\\n", "").splitlines()
            yield from ((block, line) for line in lines if re.match(r"rankplan [a-z]+ ", line))


@pytest.mark.parametrize(("block", "line"), list(words_in_text()), ids=location)
def test_commands_that_need_a_cluster_have_options_that_exist(block: Block, line: str) -> None:
    _, name, *words = shlex.split(line)
    command = main.get_command(click.Context(main), name)
    assert command is not None
    own = words[: words.index("--")] if "--" in words else words
    known = {option for one in command.get_params(click.Context(command)) for option in one.opts}
    assert {word.partition("=")[0] for word in own if word.startswith("-")} <= known


def test_every_block_is_run_or_is_plain_text() -> None:
    assert {block.kind for block in BLOCKS} <= KINDS
    assert all(block.file_name for block in BLOCKS if block.kind == "yaml"), "a YAML block starts with its file name"

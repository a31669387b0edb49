"""The README and the guides are true: their configs, commands, outputs and programs are run as they stand there.

A block whose first line is ``# name.yaml`` or ``# name.py`` is a file of its document. Every ``python`` block is a
program; the ``output`` block after it is what it prints. A ``console`` block has commands and what they print.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
KINDS = {"sh", "yaml", "console", "python", "output", "text"}


@dataclass(frozen=True)
class Block:
    document: Path
    line: int
    kind: str
    text: str

    @property
    def file_name(self) -> str | None:
        name = re.match(r"# (\S+\.(?:py|yaml))\n", self.text)
        return name and name[1]

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"


def blocks(document: Path) -> list[Block]:
    text = document.read_text()
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(document, text.count("\n", 0, block.start()) + 1, block[1], block[2]) for block in found]


BLOCKS = [block for document in DOCUMENTS for block in blocks(document)]


def commands() -> Iterator[tuple[Block, str, str]]:
    """Each command, and the output that is shown for it."""
    for block in BLOCKS:
        if block.kind == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield block, command, output


def programs() -> Iterator[tuple[Block, str | None]]:
    """Each program, and the output that is shown for it, if any."""
    for block, after in pairwise([*BLOCKS, Block(ROOT, 0, "end", "")]):
        if block.kind == "python":
            yield block, after.text if after.kind == "output" else None


def in_folder(document: Path, folder: Path) -> Path:
    """The folder with the document's files, and the repository's examples."""
    for block in blocks(document):
        if block.kind in ("yaml", "python") and block.file_name is not None:
            (folder / block.file_name).write_text(block.text)
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "COLUMNS": "120"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, env=environment, timeout=120)


def named(value: Block | str | None) -> str:
    """Tests are called by where their block stands."""
    return str(value) if isinstance(value, Block) else ""


@pytest.mark.parametrize(("block", "command", "output"), list(commands()), ids=named)
def test_commands_print_what_is_shown(block: Block, command: str, output: str, tmp_path: Path) -> None:
    program, *arguments = command.split()
    assert program == "rankplan"
    done = run(in_folder(block.document, tmp_path), "-m", "rankplan", *arguments)
    assert (done.stderr + done.stdout).strip() == output.strip()


@pytest.mark.parametrize(("block", "output"), list(programs()), ids=named)
def test_programs_run(block: Block, output: str | None, tmp_path: Path) -> None:
    folder = in_folder(block.document, tmp_path)
    (folder / "program.py").write_text(block.text)
    done = run(folder, "-W", "error", "program.py")
    assert done.returncode == 0, done.stderr
    if output is not None:
        assert done.stdout.strip() == output.strip(), done.stderr


def test_every_block_is_of_a_kind_that_is_run_or_is_plain_text() -> None:
    assert {block.kind for block in BLOCKS} <= KINDS
    assert all(block.file_name for block in BLOCKS if block.kind == "yaml"), "a YAML block starts with its file name"

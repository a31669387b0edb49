"""The configs, commands and programs of the README and the guides.

A block whose first line is ``# name.yaml``, ``# name.py`` or ``# name.sh`` is a file of its document. Every ``python``
block is a program; the ``output`` block after it has its output. A ``console`` block has commands and their outputs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from support.paths import DOCS, EXAMPLES, ROOT

DOCUMENTS = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    document: Path
    line: int
    kind: str
    text: str

    @property
    def file_name(self) -> str | None:
        name = re.match(r"# (\S+\.(?:py|yaml|sh|toml))\n", self.text)
        return name and name[1]

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"


def blocks(document: Path) -> list[Block]:
    text = document.read_text()
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(document, text.count("\n", 0, block.start()) + 1, block[1], block[2]) for block in found]


BLOCKS = [block for document in DOCUMENTS for block in blocks(document)]


def commands() -> Iterator[tuple[Block, str, str]]:
    """Yield each command with its output on the page."""
    for block in BLOCKS:
        if block.kind == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield block, command, output


def programs() -> Iterator[tuple[Block, str | None]]:
    """Yield each program with its output on the page, if any."""
    for block, after in pairwise([*BLOCKS, Block(ROOT, 0, "end", "")]):
        if block.kind == "python":
            yield block, after.text if after.kind == "output" else None


def in_folder(document: Path, folder: Path) -> Path:
    """Write the files of the document and link the examples of the repository; return the folder."""
    for block in blocks(document):
        if block.kind in ("yaml", "python", "sh", "bash", "toml") and block.file_name is not None:
            (folder / block.file_name).write_text(block.text)
    (folder / "examples").symlink_to(EXAMPLES)
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "COLUMNS": "120"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, env=environment, timeout=120)


def command_output(block: Block, command: str) -> str:
    """Run a command in a folder with the files of its document, after those of its block that write a file.

    Return its output.
    """
    before = re.findall(r"^\$ (.* (?:-o|--save) .*)$", block.text.partition(f"$ {command}\n")[0], re.MULTILINE)
    with TemporaryDirectory() as name:
        folder = in_folder(block.document, Path(name))
        for line in (*before, command):
            program, *arguments = shlex.split(line)
            assert program == "rankplan"
            done = run(folder, "-m", "rankplan", *arguments)
    return done.stderr + done.stdout


def program_output(block: Block) -> str:
    """Run a program in a folder with the files of its document and return its output."""
    with TemporaryDirectory() as name:
        folder = in_folder(block.document, Path(name))
        (folder / "program.py").write_text(block.text)
        done = run(folder, "-W", "error", "program.py")
    assert done.returncode == 0, done.stderr
    return done.stdout

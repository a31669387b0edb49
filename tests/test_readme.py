"""The README is true: its configs, commands, outputs and programs are run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


def blocks(kind: str) -> list[str]:
    return [text for name, text in BLOCKS if name == kind]


def commands() -> Iterator[tuple[str, str]]:
    """Each command, and the output that the README shows for it."""
    for text in blocks("console"):
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the README's files."""
    for text in blocks("yaml"):
        name = re.match(r"# (\S+)\n", text)
        assert name is not None, "a YAML block starts with its file name"
        (tmp_path / name[1]).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("command", "output"), list(commands()))
def test_commands_print_what_is_shown(command: str, output: str, folder: Path) -> None:
    program, *arguments = command.split()
    assert program == "rankplan"
    done = subprocess.run(
        [sys.executable, "-m", "rankplan", *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.stdout.strip() == output.strip()


@pytest.mark.parametrize("program", blocks("python"))
def test_programs_run(program: str, folder: Path) -> None:
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-W", "error", "program.py"],
        cwd=folder,
        text=True,
        capture_output=True,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr

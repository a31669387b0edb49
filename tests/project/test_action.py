"""The GitHub action keeps the code of other packages out unless it installs some."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from support.paths import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


@pytest.mark.parametrize(
    ("guests", "arguments", "words"),
    [
        ("", "--nodes 4x8", "check --format github --no-guests --nodes 4x8 a.yaml *.yaml"),
        ("", "", "check --format github --no-guests a.yaml *.yaml"),
        ("rankplan-trl other", "--nodes 4x8", "check --format github --nodes 4x8 a.yaml *.yaml"),
    ],
)
def test_the_words_of_the_command(guests: str, arguments: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (program := tmp_path / "bin" / "rankplan").write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    (step,) = [step for step in ACTION["runs"]["steps"] if step["name"] == "Check"]
    given = {"FILES": "a.yaml *.yaml", "ARGUMENTS": arguments, "GUESTS": guests, "SARIF": "", "TOOLS": str(tmp_path)}
    assert given.keys() == step["env"].keys()
    words_run = ["bash", "-e", "-c", step["run"]]
    done = subprocess.run(words_run, cwd=tmp_path, env={**os.environ, **given}, text=True, capture_output=True)
    assert (done.stdout, done.stderr) == (f"{words}\n", "")

"""The weekly table of what the newest releases of trainers ship."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from support.paths import EXAMPLES, ROOT

DRIFT = ROOT / ".ci" / "drift"


@pytest.fixture
def drift() -> dict[str, Any]:
    return run_path(str(DRIFT))


def test_a_table_tells_how_the_files_of_a_release_are_read(tmp_path: Path) -> None:
    jobs = tmp_path / "scripts"
    jobs.mkdir()
    (jobs / "run.yaml").write_text((EXAMPLES / "slime.yaml").read_text())
    (jobs / "other.yaml").write_text((EXAMPLES / "quickstart.yaml").read_text())
    (jobs / "broken.yaml").write_text("actor_num_nodes: 1\nrollout_num_gpus: 8\nrollout_num_gpus_per_engine: 3\n")
    (jobs / "values.yaml").write_text("lr: 1\n")
    (jobs / "README.md").write_text("actor_num_nodes: 1\n")
    done = subprocess.run([sys.executable, str(DRIFT), f"slime={tmp_path}"], capture_output=True, text=True)
    header, _, row, *rest = done.stdout.splitlines()
    assert header == "| trainer | version | read | as another one | with a fault | no job |"
    assert row == "| slime | local | 1 | 1 | 1 | 1 |"
    assert rest[1:3] == ["### Faults of slime", ""] and rest[3].startswith("- scripts/broken.yaml: ")
    assert (done.returncode, done.stderr) == (1, ""), "one of three jobs is too few"


def test_the_newest_release_is_cloned(drift: dict[str, Any], tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", "-C", str(repository), *who, *arguments], check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "--message", "a")
    assert drift["newest_tag"](str(repository)) is None
    assert len(drift["cloned"](f"file://{repository}", tmp_path / "head")) >= 7
    for tag in ("v0.9.0", "v0.10.0", "v0.11.0rc1", "models-2"):
        git("commit", "--allow-empty", "--message", tag)
        git("tag", tag)
    assert drift["cloned"](f"file://{repository}", tmp_path / "release") == "v0.10.0"
    subject = subprocess.run(
        ["git", "-C", str(tmp_path / "release"), "log", "--format=%s"], capture_output=True, text=True
    )
    assert subject.stdout == "v0.10.0\n"

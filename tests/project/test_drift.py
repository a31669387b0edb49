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
    command = [sys.executable, str(DRIFT), f"slime={tmp_path}", "--pinned", str(tmp_path / "nothing")]
    done = subprocess.run(command, capture_output=True, text=True)
    header, _, row, *rest = done.stdout.splitlines()
    assert header == "| trainer | version | read | as another one | with a fault | no job | pinned |"
    assert row == "| slime | local | 1 | 1 | 1 | 1 | not run |"
    assert rest[1:3] == ["### Faults of slime", ""] and rest[3].startswith("- scripts/broken.yaml: ")
    assert (done.returncode, done.stderr) == (1, ""), "one of three jobs is too few"


def test_commands_in_documents_are_jobs_of_trl(drift: dict[str, Any], tmp_path: Path) -> None:
    """They lie beside their document while they are read, so that they find the files that they name."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 4\n")
    command = "accelerate launch --config_file one.yaml -m trl.scripts.grpo\n"
    (tmp_path / "docs" / "page.md").write_text(f"```bash\n{command}```\n\n```python\nimport trl\n```\n")
    (tmp_path / "docs" / "grpo.py").write_text(f'"""\n```\npip install trl\n```\n\n```sh\n{command}```\n"""\n')
    reading = drift["read"]("trl", "1.0", tmp_path, ["docs"])
    assert dict(reading.files) == {"own": 2, "no job": 2}, reading.faults
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["grpo.py", "one.yaml", "page.md"]


REPORT = """\
<testsuites><testsuite>
<testcase name="test_alone_a_trainer_asks_for_what_is_planned[verl]"><failure/></testcase>
<testcase name="test_pinned_every_rank_is_where_it_is_planned[verl]"/>
<testcase name="test_pinned_every_rank_is_where_it_is_planned[ms_swift]"><failure/></testcase>
<testcase name="test_pinned_every_rank_is_where_it_is_planned[ms_swift_groups]"/>
<testcase name="test_pinned_every_rank_is_where_it_is_planned[open_instruct]"/>
<testcase name="test_pinned_every_rank_is_where_it_is_planned[open_instruct_groups]"><failure/></testcase>
<testcase name="test_pinned_every_rank_is_where_it_is_planned[areal]"><skipped/></testcase>
<testcase name="test_pinned_every_rank_is_where_it_is_planned[roll]"/>
</testsuite></testsuites>
"""


def test_a_table_tells_which_version_was_pinned(drift: dict[str, Any], tmp_path: Path) -> None:
    assert drift["pinned"](tmp_path) == {}
    (tmp_path / "report.xml").write_text(REPORT)
    for folder, wheel in (("verl", "verl-0.9.2-py3-none-any.whl"), ("ms-swift", "ms_swift-5.0.0-py3-none-any.whl")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / wheel).touch()
    expected = {"verl": "0.9.2", "ms_swift": "5.0.0, failed", "roll": "recorded requests"}
    expected["open_instruct"] = "recorded requests, failed"
    assert drift["pinned"](tmp_path) == expected


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

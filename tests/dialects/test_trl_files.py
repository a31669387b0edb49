"""Every YAML file of TRL and of open-r1's recipes: what the commands that use it start, or that it is no job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from rankplan import PlacementError
from support.goldens import lines

LINES = lines("trl_files")


def answer(path: Path) -> dict[str, Any]:
    """Return the components of a job, each with its processes and their devices, or the code of the refusal."""
    try:
        plan = rankplan.plan(path)
    except PlacementError as error:
        return {"refused": error.code}
    return {"components": {name: [len(rows), len(rows[0].devices)] for name, rows in plan.items()}}


@pytest.mark.parametrize("line", LINES, ids=[f"{line['path']}-{number}" for number, line in enumerate(LINES)])
def test_a_shipped_file_is_read_right_or_refused(line: dict[str, Any], tmp_path: Path) -> None:
    for name, config in line["files"].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(config))
    if line["repository"] == "open-r1":
        (tmp_path / "setup.py").write_text('deps = ["trl[vllm]==0.18.0"]\n')
    if "script" not in line:
        assert answer(tmp_path / line["path"]) == {"refused": line["refused"]}
        return
    (tmp_path / "run.sh").write_text(line["script"])
    assert answer(tmp_path / "run.sh") == {key: line[key] for key in ("components", "refused") if key in line}
    if "distributed_type" in line["files"][line["path"]]:  # alone, it is the file of a launcher
        assert answer(tmp_path / line["path"]) == {"refused": "no-components"}


def test_all_shipped_files_are_recorded() -> None:
    paths = {(line["repository"], line["path"]) for line in LINES}
    assert sum(repository == "trl" for repository, _ in paths) == 17
    assert sum(repository == "open-r1" for repository, _ in paths) == 15
    assert sum("use_vllm" in line["files"][line["path"]] for line in LINES) == 10

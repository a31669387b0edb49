"""Every command of an online trainer in the documents and examples of TRL and open-r1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from rankplan import PlacementError
from support.goldens import lines

LINES = lines("trl_commands")


@pytest.mark.parametrize("line", LINES, ids=[line["files"][0] for line in LINES])
def test_a_shipped_command_starts_what_its_system_starts(line: dict[str, Any], tmp_path: Path) -> None:
    for name, config in line["accelerate"].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(config))
    script = tmp_path / "run.sh"
    script.write_text(line["script"])
    try:
        plan = rankplan.plan(script, "1x8")
    except PlacementError as error:
        assert line.get("refused") == error.code
        return
    found = {name: [len(rows), len(rows[0].devices)] for name, rows in plan.items() if name != "env"}
    assert found == line.get("components")


def test_the_recording_has_plans_and_refusals() -> None:
    assert sum("components" in line for line in LINES) >= 15
    assert sum("refused" in line for line in LINES) >= 5

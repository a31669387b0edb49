"""The placing keys of files that trainers ship: their plans have the processes that the systems start."""

from __future__ import annotations

from typing import Any

import pytest
from golden.real_jobs import answer, config_of
from support.goldens import lines

LINES = lines("real_jobs")


@pytest.mark.parametrize("line", LINES, ids=[line["files"][0] for line in LINES])
def test_a_shipped_file_is_read_as_its_system_reads_it(line: dict[str, Any]) -> None:
    expected = {key: line[key] for key in ("components", "nodes", "refused") if key in line}
    assert answer(config_of(line), line.get("on")) == expected

"""The placing keys of configs that AReaL and ROLL ship: their plans have the processes that the systems start."""

from __future__ import annotations

from typing import Any

import pytest
from rankplan.dialects import DIALECTS, name_of
from support.goldens import lines

LINES = lines("real_jobs")


@pytest.mark.parametrize("line", LINES, ids=[f"{line['system']}-{index}" for index, line in enumerate(LINES)])
def test_a_shipped_config_has_the_processes_that_its_system_starts(line: dict[str, Any]) -> None:
    config, expected = line["config"], line["components"]
    assert name_of(config) == line["system"]
    dialect = DIALECTS[line["system"]]
    plan = dialect.plan(config, dialect.assumed_inventory(config))
    found = {name: [len(rows), rows[0].num_accelerators] for name, rows in plan.items()}
    assert {name: sizes for name, sizes in found.items() if sizes[1] or name in expected} == expected
    assert len({node for rows in plan.values() for row in rows for node, _ in row.devices}) == line["nodes"]

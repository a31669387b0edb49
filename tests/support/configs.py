"""Configs: one with most keys, those of other systems from overrides, and clusters of given sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rankplan import Inventory, PlacementError
from rankplan.read.text.document import Section
from rankplan.read.text.overrides import overridden, parse_overrides
from rankplan.read.text.places import Places

FULL = """\
cluster:
  num_nodes: 2
  trainer_setting: left alone
  component_placement:
    actor,critic: 0-3
    rollout: {node_group: 4090, placement: 0}
    env: {node_group: "4090, arms", placement: all}
  node_groups:
    - label: 4090
      node_ranks: 1
    - label: arms
      node_ranks: 0
      hardware: {type: Arm, configs: [{node_rank: 0, name: right}, {node_rank: 0, name: left}]}
      env_configs:
        - {node_ranks: 0, env_vars: [{A: 1}, {B: two}], python_interpreter_path: /opt/python}
"""


def from_overrides(words: Sequence[str]) -> Section:
    """Return the config that words such as ``a.b=1`` make."""
    return overridden(Section(Places(None), ()), parse_overrides(words), strict=False)


def nodes(counts: Sequence[int]) -> Inventory:
    """Return an inventory of nodes with these numbers of accelerators."""
    return Inventory.from_dict({"nodes": [{"ranks": rank, "accelerators": count} for rank, count in enumerate(counts)]})


def refused(dialect: Any, text: str, folder: Path, inventory: Inventory) -> list[str]:
    """Return the faults of a file: line, column, code and message. Each has a help."""
    path = folder / "conf.yaml"
    path.write_text(text)
    with pytest.raises(PlacementError) as caught:
        dialect.plan(path, inventory)
    assert all(fault.help for fault in caught.value.diagnostics)
    return [f"{fault.line}:{fault.column} {fault.code}: {fault.message}" for fault in caught.value.diagnostics]

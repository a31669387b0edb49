"""Every wrong size, value and name of the network keys is reported at once, whatever else is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, check, plan

NODES = [
    {"ranks": "0-1", "accelerators": 4, "labels": {"block": "b0", "nvlink": "a"}},
    {"ranks": "2-3", "accelerators": 4, "labels": {"block": "b0", "nvlink": "b"}},
]
INVENTORY = Inventory.from_dict({"levels": ["block", "nvlink"], "nodes": NODES})

FAULTS: list[tuple[tuple[str, ...], Any, str]] = [
    (("segment", "actor"), {"block": 4, "nvlink": 0}, "`nvlink` is 0; it must be a whole number of 1 or more"),
    (("segment", "critic"), {"rack": 2}, "unknown component `critic`"),
    (("segment", "rollout"), {"block": 4, "rak": 2}, "unknown level `rak`"),
    (("segment", "reward"), {"block": 2, "nvlink": 4}, "segment of reward: nvlink is inside block but"),
    (("keep", "actor", "tpp"), "node", "unknown kind of group `tpp`"),
    (("keep", "actor", "ep"), "blok", "unknown level `blok`"),
    (("keep", "actor", "tp"), 3, "`tp` is 3; it must be a level"),
    (("keep", "actor", "cp"), {"nvlink": 2.5}, "`nvlink` is 2.5; it must be a whole number of 1 or more"),
    (("keep", "nobody"), {"tp": "node"}, "unknown component `nobody`"),
    (("keep", "rollout"), "node", "`rollout` is 'node'; it must be a mapping"),
    (("prefer", "actor", "world"), "racks", "unknown level `racks`"),
    (("prefer", "actor", "dp"), True, "`dp` is true; it must be a level"),
    (("balance", "actor"), "nvlnk", "unknown level `nvlnk`"),
    (("balance", "rolout"), "nvlink", "unknown component `rolout`"),
    (("cap", "nvlink"), 0, "`nvlink` is 0; it must be a whole number of 1 or more"),
    (("cap", "blck"), 3, "unknown level `blck`"),
    (("order",), "random", "`order` is 'random'; it must be address or topology"),
]


def config(faults: list[tuple[tuple[str, ...], Any, str]], *, broken: bool) -> dict[str, Any]:
    """Return a config with these faults, and without others; ``broken``: rollout has no valid placement."""
    topology: dict[str, Any] = {}
    for path, value, _ in faults:
        here = topology
        for key in path[:-1]:
            here = here.setdefault(key, {})
        here[path[-1]] = value
    actor = {"placement": "0-15", "parallel": {"tp": 4, "ep": 4}}
    placement = {"actor": actor, "rollout": "0-15:3-18" if broken else "0-15", "reward": "0-15"}
    return {"cluster": {"num_nodes": 4, "topology": topology, "component_placement": placement}}


@given(st.sets(st.integers(0, len(FAULTS) - 1), min_size=1), st.booleans())
def test_any_faults_are_reported_together(chosen: set[int], broken: bool) -> None:
    faults = [FAULTS[index] for index in sorted(chosen)]
    found = [str(one.message) for one in check(config(faults, broken=broken), INVENTORY).faults]
    missing = [message for _, _, message in faults if not any(message in text for text in found)]
    assert not missing, found
    assert len(found) <= len(faults) + broken + len(chosen & {1})  # that one has two


@pytest.mark.parametrize("fault", FAULTS, ids=[".".join(path) for path, _, _ in FAULTS])
def test_each_fault_is_reported_alone(fault: tuple[tuple[str, ...], Any, str]) -> None:
    with pytest.raises(PlacementError) as refused:
        plan(config([fault], broken=False), INVENTORY)
    assert fault[2] in str(refused.value)


def test_a_broken_placement_does_not_hide_a_wrong_level() -> None:
    faults = check(config([(("keep", "rollout", "tp"), "rack", "")], broken=True), INVENTORY).faults
    assert len(faults) == 2 and "unknown level `rack`" in [one.message for one in faults]

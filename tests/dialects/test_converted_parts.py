"""A part of a plan, written as a config, is a config that plans the part again."""

from __future__ import annotations

from typing import Any

import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory

_NODES = Inventory.from_dict(
    {
        "levels": ["rack"],
        "nodes": [{"ranks": rank, "accelerators": 4, "labels": {"rack": "ab"[rank // 2]}} for rank in range(4)],
    }
)
_NAMES = ("actor", "ref", "rollout")
_RULES: list[dict[str, Any]] = [
    {},
    {"keep": {"actor": {"tp": "node"}, "actor + ref": {"world": "rack"}}},
    {"prefer": {"ref": {"world": "rack"}, "rollout": {"world": "rack"}}},
    {"prefer": {"actor, ref": {"world": "rack"}}},
    {"balance": {"rollout": "rack", "actor": "rack"}},
    {"balance": {"actor, rollout": "rack"}},
    {"segment": {"actor": 1, "ref": 1}},
    {"segment": {"actor, rollout": 1}},
    {"cap": {"rack": 2}},
]


@given(
    st.sampled_from(_RULES),
    st.tuples(st.integers(0, 8), st.integers(8, 12)),
    st.tuples(st.integers(0, 4), st.integers(4, 12)),
    st.sampled_from(["4-7", "0-3"]),
    st.sets(st.sampled_from(_NAMES), min_size=1),
)
def test_what_a_part_breaks_is_not_written(
    topology: dict[str, Any], training: tuple[int, int], engines: tuple[int, int], ref: str, names: set[str]
) -> None:
    bounds = {"min_accelerators": training[0] or 1, "max_accelerators": training[1]}
    if ref == "0-3":
        bounds["min_accelerators"] = min(4, bounds["min_accelerators"])
    of_engines = {"min_accelerators": engines[0] or 1, "max_accelerators": engines[1]}
    pools = [
        {"name": "train", "components": ["actor", "ref"], **bounds},
        {"name": "infer", "components": ["rollout"], **of_engines},
    ]
    section = {
        "num_nodes": 4,
        "pools": pools,
        "topology": topology,
        "component_placement": {
            "actor": {"placement": "0-3", "parallel": {"tp": 4}},
            "ref": {"placement": ref, "parallel": {"tp": 4}},
            "rollout": {"placement": "8-11", "parallel": {"tp": 2}},
        },
    }
    part = rankplan.plan({"cluster": section}, _NODES).only(*(name for name in _NAMES if name in names))
    again = rankplan.plan(rankplan.convert(part, to="rlinf").config, _NODES)
    assert {name: [row.devices for row in one] for name, one in again.items()} == {
        name: [row.devices for row in one] for name, one in part.items()
    }

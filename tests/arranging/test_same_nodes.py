"""The nodes that a job gets: those that come first in its inventory, whatever its trainer sorts them by."""

from __future__ import annotations

from typing import Any

import pytest
import rankplan
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import Inventory, Plan
from support.oracle_order import sort_key
from support.paths import ROOT

CONFIGS = ["areal.yaml", "conf.yaml", "nemo_rl.yaml", "openrlhf.sh", "roll.yaml", "skyrl.sh", "slime.yaml"]
CONFIGS += ["slime-colocated.yaml", "verl.sh", "verl.yaml"]
"""Jobs of all eight trainers."""


@st.composite
def clusters(draw: st.DrawFn, count: int, each: int) -> Inventory:
    """Nodes in racks, whose addresses know nothing of the racks."""
    last = draw(st.lists(st.integers(1, 120), min_size=count, max_size=count, unique=True))
    entries: list[dict[str, Any]] = []
    for rank in range(count):
        labels = {"rack": draw(st.sampled_from("abc")), "NODE_RANK": str(rank + 1)}
        entries.append({"ranks": rank, "hostname": f"h{rank}", "ip": f"10.0.0.{last[rank]}", "labels": labels})
        entries[-1]["accelerators"] = each
    return Inventory.from_dict({"levels": ["rack"], "nodes": entries})


def used(plan: Plan) -> set[str]:
    return {str(plan.inventory.node(node).hostname) for part in plan.values() for node in part.used_nodes()}


@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=25)
@given(st.data())
def test_arrange_and_plan_use_the_same_nodes(config: str, data: st.DataObject) -> None:
    path = ROOT / "examples" / config
    assumed = rankplan.plan(path).inventory
    nodes = data.draw(clusters(assumed.num_nodes + 3, assumed.node(0).num_accelerators))
    predicted = rankplan.plan(path, nodes)
    arranged = rankplan.arrange(predicted, nodes)
    chosen = {
        str(nodes.node(arranged.nodes[node]).hostname) for part in predicted.values() for node in part.used_nodes()
    }
    for inventory, wanted in ((nodes, used(predicted)), (arranged.inventory, chosen)):
        assert used(rankplan.plan(path, inventory)) == wanted
        pinned = rankplan.plan(path, inventory, pinned=True)
        assert used(pinned) == wanted
        for order, numbers in pinned.requests.pools():
            pool = [node for number in numbers for node in pinned.requests[number].nodes]
            key = sort_key(pinned.inventory, order, [], set(pool))
            assert key is None or pool == sorted(pool, key=key)

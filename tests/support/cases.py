"""Generated cases: a cluster section, an inventory, and whether processes are isolated."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from rankplan import ComponentPlacement, Inventory, Plan
from rankplan.testing import cluster_sections, inventories

Case = tuple[dict[str, Any], dict[str, Any], bool]  # cluster section, inventory, isolate


@st.composite
def valid_cases(draw: st.DrawFn) -> Case:
    inventory = draw(inventories())
    return draw(cluster_sections(inventory)), inventory.to_dict(), draw(st.booleans())


def planned(case: Case) -> Plan:
    cluster, inventory, isolate = case
    placement = ComponentPlacement({"cluster": cluster}, Inventory.from_dict(inventory))
    return placement.plan(isolate_accelerator=isolate)

"""The nodes of a plan in another inventory: each at most once, by what tells most."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import Inventory, Plan, RankMap, replan
from rankplan.parallel import Parallel
from rankplan.plans.component import Component
from rankplan.plans.diff import same_nodes

Names = tuple[str | None, str | None]
"""The hostname and the address of a node."""

H, A, B = "h", "10.0.0.1", "10.0.0.2"


def nodes(names: list[Names]) -> Inventory:
    entries = []
    for rank, (hostname, ip) in enumerate(names):
        own = {key: name for key, name in (("hostname", hostname), ("ip", ip)) if name is not None}
        entries.append({"ranks": rank, "accelerators": 2, **own})
    return Inventory.from_dict({"nodes": entries})


@pytest.mark.parametrize(
    ("planned", "present", "found"),
    [
        ([(H, None), (H, None)], [(H, None), (H, None), (H, None)], [0, 1]),
        ([(H, None), (H, None)], [(H, A), (H, B)], [0, 1]),
        ([(H, None), (H, A)], [(H, A), ("x", None)], [None, 0]),
        ([(H, A), (H, B)], [(H, B), (H, A)], [1, 0]),
        ([(H, A), ("x", A)], [("x", A), ("y", None)], [None, 0]),
        ([(None, None), ("a", None)], [("a", None), (None, None)], [None, 0]),
        ([(H, A), (H, A), (None, None)], [(H, A), ("x", None), (H, A)], [0, 2, None]),
        ([(None, A), ("a", A)], [("a", A), ("b", B)], [None, 0]),
    ],
)
def test_nodes_with_shared_names(planned: list[Names], present: list[Names], found: list[int | None]) -> None:
    assert same_nodes(nodes(planned), nodes(present)) == found


_NAMES = st.lists(
    st.tuples(st.sampled_from([None, H, "g", "f"]), st.sampled_from([None, A, B, "10.0.0.3"])), min_size=1, max_size=5
)


@settings(max_examples=300)
@given(planned=_NAMES, present=_NAMES)
def test_no_node_is_found_twice_and_each_is_itself(planned: list[Names], present: list[Names]) -> None:
    found = [place for place in same_nodes(nodes(planned), nodes(present)) if place is not None]
    assert len(set(found)) == len(found)
    own = same_nodes(nodes(present), nodes(present))
    assert [present[rank] for rank in own if rank is not None] == present


def test_a_repair_moves_nothing_of_a_plan_on_nodes_with_one_hostname() -> None:
    both = nodes([(H, None), (H, None)])
    rollout = Component.place("rollout", both, ("cluster",), RankMap.parse("0-3"), parallel=Parallel(tp=2))
    assert not replan(Plan(both, [rollout]), nodes([(H, None)] * 3)).moves

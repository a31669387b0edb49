"""What `replan` refuses to grow or shrink, with its help."""

from __future__ import annotations

from typing import Any

import pytest
from rankplan import Plan, replan
from rankplan.errors import PlacementError
from rankplan.parallel import Parallel
from support.growth import NODES, TWO, WHOLE, engines, job


@pytest.mark.parametrize(
    ("plan", "changes", "code", "message", "help"),
    [
        (
            engines(TWO, WHOLE),
            {"grow": {"rollout": 2}},
            "group-spans",
            "rollout: no 4 more nodes in block b1, where all of it must stay; 2 can be added",
            "add spare nodes there, or grow by 1",
        ),
        (
            engines(TWO, {}, tp=2),
            {"grow": {"rollout": 1}},
            "invalid-value",
            "one data group of rollout uses half a node",
            "grow by 2, 4, ...",
        ),
        (
            engines(TWO, {}, tp=1),
            {"grow": {"rollout": 1}},
            "invalid-value",
            "the number of data groups of rollout is unknown: no parallel size above 1 is stated",
            "state it: `parallel: {dp: 16}` if each process is a data group",
        ),
        (
            engines(TWO, {}),
            {"shrink": {"rollout": 2}},
            "invalid-value",
            "rollout has 2 data groups; at least one must stay",
            "shrink by at most 1",
        ),
        (
            engines(TWO, {}, tp=2),
            {"shrink": {"rollout": 3}},
            "invalid-value",
            "data groups of rollout that stay are on a node of those that go",
            "shrink by 2 or 4",
        ),
        (
            engines(TWO, {}),
            {"grow": {"rollout": 5}},
            "no-spare",
            "rollout: no 10 more nodes with 4 NV_GPU; 8 can be added",
            "add spare nodes to the inventory, or grow by 4",
        ),
        (
            engines([0, 1], {"cap": {"nvlink": 2}}, tp=4),
            {"grow": {"rollout": 8}},
            "no-spare",
            "rollout: no 8 more nodes with `cap: {nvlink: 2}`; 6 can be added",
            "raise the cap, or grow by 6",
        ),
        (
            engines([0, 1, 2, 3], {"segment": {"rollout": {"block": 4, "nvlink": 2}}}, tp=4),
            {"grow": {"rollout": 8}},
            "segment-incomplete",
            "rollout: no 8 more nodes in segments of 4 within a block domain; 4 can be added",
            "add spare nodes there, or grow by 4",
        ),
        (
            engines([0, 1], {"segment": 2}, tp=4),
            {"grow": {"rollout": 1}},
            "segment-incomplete",
            "3 nodes cannot be divided into segments of 2",
            "use 2 or 4 nodes, or another segment",
        ),
        (
            engines([0, 1, 2, 3], {"keep": {"rollout": {"tp": "nvlink"}}}, tp=16),
            {"grow": {"rollout": 2}},
            "group-spans",
            "rollout: no 8 more nodes that keep every tp group of rollout within a nvlink domain; 4 can be added",
            "add spare nodes there, or grow by 1",
        ),
        (
            job(TWO, {}, actor=("0-15", {"tp": 2, "pp": 2})),
            {"grow": {"actor": 1}},
            "invalid-value",
            "the last data group of actor is not its last ranks: pp comes after dp",
            f"use an order with dp last, such as {Parallel.ENGINE_ORDER}",
        ),
        (
            job(TWO, {}, actor=("0-15", {"tp": 2, "pp": 2})),
            {"shrink": {"actor": 1}},
            "invalid-value",
            "the last data group of actor is not its last ranks: pp comes after dp",
            "allow other numbers (`--renumber`)",
        ),
        (
            job(TWO, {}, actor=("0-15", {"ep": 8})),
            {"shrink": {"actor": 4}},
            "invalid-value",
            "8 data groups of actor go together",
            "shrink by 8",
        ),
        (
            job(TWO, {}, actor=("0-15", {"ep": 16})),
            {"shrink": {"actor": 4}},
            "invalid-value",
            "16 data groups of actor go together",
            "shrink another component",
        ),
        (
            engines(TWO, {}, tp=2),
            {"shrink": {"rollout": 3}, "renumber": True},
            "invalid-value",
            "2 data groups of rollout go together",
            "shrink by 2 or 4",
        ),
        (
            engines(TWO, {}),
            {"grow": ["rollout"]},
            "invalid-value",
            "`grow` is ['rollout']; it must be a mapping",
            'write the number of data groups by component: grow={"rollout": 2}',
        ),
        (
            engines(TWO, {}),
            {"grow": {1: 1}},
            "unknown-component",
            "unknown component `1` to grow",
            "the components are: rollout",
        ),
        (
            job(TWO, {}, actor=("0-15", {"ep": 8})),
            {"grow": {"actor": 4}},
            "invalid-value",
            "8 data groups of actor go together",
            "grow by 8, 16, ...",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_faults(plan: Plan, changes: dict[str, Any], code: str, message: str, help: str) -> None:
    with pytest.raises(PlacementError) as refused:
        replan(plan, NODES, **changes)
    assert (refused.value.code, refused.value.message, refused.value.help) == (code, message, help)


def test_every_fault_at_once() -> None:
    plan = job(TWO, {}, actor=("0-7", {"tp": 8}), rollout=("8-15", {"tp": 2}))
    wrong: dict[str, Any] = {"grow": {"actr": 1, "rollout": 2.5}, "shrink": {"actor": True}}
    with pytest.raises(PlacementError) as refused:
        replan(plan, NODES, **wrong)
    assert [one.message for one in refused.value.diagnostics] == [
        "`actor` is true; it must be a whole number of 1 or more",
        "unknown component `actr` to grow",
        "`rollout` is 2.5; it must be a whole number of 1 or more",
    ]
    with pytest.raises(PlacementError) as refused:
        replan(plan, NODES, shrink={"actor": 1}, grow={"rollout": 1})
    assert [one.message for one in refused.value.diagnostics] == [
        "actor has 1 data group; at least one must stay",
        "one data group of rollout uses half a node",
    ]

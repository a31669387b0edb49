"""The laws of files that rankplan writes for launchers, on random plans."""

from __future__ import annotations

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import EmitOptions, Inventory, PlacementError, Plan
from support.jobs import jobs
from support.launchers import CASES, OPTIONS, WITHOUT_RAY, again, documents, options, places, planned
from support.outcomes import at_least, outcome

TARGETS = ("kuberay", "jobset", "lws")
REFUSALS = {"emit-hardware", "emit-topology"}
KEYS = {kind: f"example.com/{kind.lower().replace('_', '-')}" for kind in ("MUSA_GPU", "KUNLUN_XPU", "METAX_GPU")}
KEYS |= {kind: f"example.com/{kind.lower()}" for kind in ("RBLN", "FURIOSA", "MBLT", "TTNPU")}


@at_least(written=0.1)
@given(jobs().filter(len), st.sampled_from(TARGETS), st.booleans())
def test_a_file_has_the_plan_or_the_launcher_refuses_it(plan: Plan, target: str, pin: bool) -> None:
    given_options = {"image": "train:1", **OPTIONS.get(target, WITHOUT_RAY), "resource_keys": KEYS, "pin": pin}
    try:
        text = rankplan.emit(plan, target, EmitOptions(**given_options))
    except PlacementError as error:
        refused = {found.code for found in error.diagnostics}
        assert "emit-uneven" not in refused or target == "lws"
        assert "emit-no-address" not in refused or pin
        assert refused <= REFUSALS | {"emit-uneven", "emit-no-address"}
        return
    outcome("written")
    documents(text)
    assert rankplan.emit(plan, target, EmitOptions(**given_options)) == text
    found, same = again(text, target)
    assert places(found) == places(plan)
    assert same == text
    if pin:
        assert [found.inventory.node(rank).hostname for rank in used(plan)] == [
            plan.inventory.node(rank).hostname for rank in used(plan)
        ]


def used(plan: Plan) -> list[int]:
    return sorted({row.cluster_node_rank for component in plan.values() for row in component})


WRITTEN = [(case, target) for case in CASES for target in TARGETS if "refused" not in CASES[case]["targets"][target]]


@pytest.mark.parametrize(("case", "target"), WRITTEN)
def test_the_recorded_plans_come_back(case: str, target: str) -> None:
    plan = planned(case)
    text = rankplan.emit(plan, target, EmitOptions(**options(case, target)))
    found, same = again(text, target)
    assert places(found) == places(plan) and same == text
    assert {name: one.parallel for name, one in found.items()} == {name: one.parallel for name, one in plan.items()}


def test_ten_thousand_nodes_are_written_by_their_groups() -> None:
    inventory = Inventory.uniform(10_000, 8)
    plan = rankplan.plan({"cluster": {"num_nodes": 10_000, "component_placement": {"actor": "all"}}}, inventory)
    text = rankplan.emit(plan, "jobset", EmitOptions(command="python train.py", image="train:1"))
    assert len(text) < 4000 and "completions: 10000" in text

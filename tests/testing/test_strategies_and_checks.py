"""``rankplan.testing``: the strategies generate what they promise, and ``check_plan`` finds faults."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import ComponentPlacement, Inventory, PlacementError, Plan, parse_placement
from rankplan.cli.explain import rules
from rankplan.plans.rules import Rules
from rankplan.testing import (
    PLACEMENT_CODES,
    check_plan,
    cluster_sections,
    invalid_placements,
    inventories,
    placements,
    rank_sets,
)
from rankplan.trainers.roll.dialect import DIALECT as roll
from rankplan.trainers.slime.dialect import DIALECT as slime
from support import oracle

# ------------------------------------------------------------------------------------------------ what is drawn


@given(st.data())
def test_valid_placements_are_valid(data: st.DataObject) -> None:
    where = data.draw(st.integers(1, 40) | inventories())
    text = data.draw(placements(where))
    if isinstance(where, int):
        parse_placement(text, where)
        where = Inventory.uniform(num_nodes=1, num_accelerators=where)
    section = {"num_nodes": where.num_nodes, "component_placement": {"actor": text}}
    check_plan(ComponentPlacement({"cluster": section}, where).plan())


def test_every_rule_of_the_language_can_be_broken() -> None:
    assert list(PLACEMENT_CODES) == [rule.code for rule in rules().values() if rule.part == "The placement language"]


@pytest.mark.parametrize("code", PLACEMENT_CODES)
def test_invalid_placements_have_only_their_code(code: str) -> None:
    @given(invalid_placements([code]))
    def refused_with_it(case: Any) -> None:
        with pytest.raises(PlacementError) as refused:
            ComponentPlacement(case.config, case.inventory)
        assert {fault.code for fault in refused.value.diagnostics} == {code} == {case.code}

    refused_with_it()


@given(st.data(), st.booleans())
def test_valid_sections_plan_and_sharing_is_checked(data: st.DataObject, isolate: bool) -> None:
    inventory = data.draw(inventories())
    section = data.draw(cluster_sections(inventory))
    planned = oracle.plan(section, inventory.to_dict())
    held = {name: [device for row in rows for device in _devices(row, section)] for name, rows in planned.items()}
    asked = {(one, two) for one in held for two in held if one != two and {*held[one]} & {*held[two]}}
    asked |= {(name, name) for name, devices in held.items() if len(set(devices)) < len(devices)}
    plan = ComponentPlacement({"cluster": section}, inventory).plan(isolate_accelerator=isolate)
    check_plan(plan, sharing=asked)
    for pair in asked:
        with pytest.raises(AssertionError, match="must not share"):
            check_plan(plan, sharing=asked - {pair, pair[::-1]})


def _devices(row: oracle.Row, section: dict[str, Any]) -> list[Any]:
    """Return the resource of a row of the oracle; robots belong to their group."""
    robots = {str(group["label"]) for group in section.get("node_groups", ()) if "hardware" in group}
    return [(row["node_group_label"] in robots and row["node_group_label"], *device) for device in row["devices"]]


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="no placement is valid on 0 resources"):
        placements(0)
    with pytest.raises(ValueError, match="no placement is rejected with 'invalid-plan'; the codes are syntax"):
        invalid_placements(["syntax", "invalid-plan"])
    rank_sets(max_rank=0).validate()


# -------------------------------------------------------------------------------------------- the check of a plan

NODES = [{"ranks": 0, "accelerator_ids": ["4", "5", "6", "7"]}, {"ranks": "1-2", "accelerators": 4}]
INVENTORY = Inventory.from_dict({"nodes": NODES})
ARMS = {"type": "Arm", "configs": [{"node_rank": 1}]}
SECTION = {
    "num_nodes": 3,
    "component_placement": {
        "actor": {"node_group": "front", "placement": "0-3:0-1,4:2-3"},
        "env": {"node_group": "arms", "placement": 0},
        "agent": {"node_group": "node", "placement": 2},
    },
    "node_groups": [{"label": "front", "node_ranks": "0-1"}, {"label": "arms", "node_ranks": 1, "hardware": ARMS}],
}
PLAN = ComponentPlacement({"cluster": SECTION}, INVENTORY).plan()
SHARED = {("actor", "actor")}

# A change of a row (no file or planner can create such a row), and the message about it.
TAMPERED: list[tuple[str, int, dict[str, Any], str]] = [
    ("actor", 1, {"rank": 2}, "rank is 2; it must be 1"),
    ("actor", 1, {"world_size": 5}, "world_size is 5; it must be 4"),
    ("actor", 0, {"cluster_node_rank": 3}, "node 3 does not exist; the cluster has 3 nodes"),
    ("actor", 3, {"placement_node_rank": 0}, "placement_node_rank is 0; it must be 1"),
    ("actor", 3, {"local_rank": 0}, "local_rank is 0; it must be 1"),
    ("actor", 3, {"local_world_size": 4}, "local_world_size is 4; it must be 2"),
    ("actor", 0, {"node_group_label": "back"}, "unknown node group 'back'"),
    ("actor", 0, {"node_group_label": "arms"}, "node 0 is not in node group 'arms', which has 1"),
    ("actor", 3, {"node_group_label": "arms"}, "placed by accelerator in node group 'arms', which counts Arm"),
    ("actor", 0, {"node_group_label": "node"}, "placed by accelerator in node group 'node', which counts node"),
    ("actor", 0, {"resource_type": "node"}, r"placed by node, but has devices \[\(0, 0\), \(0, 1\)\]"),
    ("actor", 0, {"devices": []}, r"devices are \[\]; there must be one or more"),
    ("actor", 0, {"devices": [(0, 1), (0, 1)]}, r"devices are \[\(0, 1\), \(0, 1\)\]; .* each once"),
    ("actor", 0, {"devices": [(1, 0), (0, 0)]}, "the first on node 0"),
    ("actor", 0, {"devices": [(0, 0), (9, 0)]}, "node 9 does not exist"),
    ("actor", 0, {"devices": [(0, 0), (2, 0)]}, "node 2 is not in node group 'front', which has 0-1"),
    ("actor", 0, {"devices": [(0, 0), (0, 4)]}, "accelerator 4 of node 0 does not exist; the node has 4"),
    ("env", 0, {"devices": [(1, 1)]}, "Arm 1 of node 1 does not exist; the node has 1"),
    ("actor", 0, {"local_hardware_ranks": [0]}, r"local_hardware_ranks is \[0\]; it must be \[0, 1\]"),
    ("actor", 0, {"num_accelerators": 1}, "num_accelerators is 1; it must be 2"),
    ("actor", 0, {"accelerator_type": "NPU"}, "accelerator_type is 'NPU'; it must be 'NV_GPU'"),
    ("actor", 0, {"visible_accelerators": ["0", "1"]}, r"visible_accelerators is .* it must be \['4', '5'\]"),
    ("actor", 0, {"visible_accelerators": ["5", "4"]}, r"visible_accelerators is .* it must be \['4', '5'\]"),
    ("env", 0, {"visible_accelerators": []}, r"visible_accelerators is \[\]; it must be \['0', '1', '2', '3'\]"),
    ("actor", 1, {"local_accelerator_rank": 0}, "local_accelerator_rank is 0; it must be 2"),
    ("agent", 0, {"local_accelerator_rank": "0"}, "local_accelerator_rank is '0'; it must be 0"),
    ("actor", 1, {"isolate_accelerator": False}, "isolate_accelerator is False; it must be True"),
    ("actor", 2, {"devices": [(1, 1)]}, "local_hardware_ranks"),
]


class Rows(list[Any]):
    """Rows in the shape of a `Component`."""

    inventory = PLAN.inventory
    visibility = "own"
    binding = "none"

    def __init__(self, name: str, rows: Iterable[Any] = ()) -> None:
        super().__init__(rows)
        self.name = name

    def under(self, rules: Rules) -> Rows:
        return self


def with_rows(rows: Rows) -> Plan:
    return Plan(PLAN.inventory, [rows if one.name == rows.name else one for one in PLAN.values()])  # type: ignore[misc]


def test_the_plan_is_valid_before_it_is_changed() -> None:
    check_plan(PLAN, sharing=SHARED)


@pytest.mark.parametrize(("component", "rank", "change", "message"), TAMPERED)
def test_a_wrong_row_is_named(component: str, rank: int, change: dict[str, Any], message: str) -> None:
    fields = (*oracle.FIELDS, "resource_type", "num_accelerators")
    own = (SimpleNamespace(**{field: getattr(row, field) for field in fields}) for row in PLAN[component])
    rows = Rows(component, own)
    check_plan(with_rows(rows))
    rows[rank] = SimpleNamespace(**{**vars(rows[rank]), **change})
    with pytest.raises(AssertionError, match=f"^component '{component}', rank {rank}: .*{message}"):
        check_plan(with_rows(rows))


def test_a_component_without_processes_is_named() -> None:
    with pytest.raises(AssertionError, match="component 'actor' has no processes"):
        check_plan(with_rows(Rows("actor")))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([NODES[0]], "rank 2: node 1 does not exist; the cluster has 1 node"),
        ([{"ranks": "0-2", "accelerators": 1}], "rank 0: accelerator 1 of node 0 does not exist; the node has 1"),
        (
            [{"ranks": "0-2", "accelerators": 4}],
            r"rank 0: visible_accelerators is \['4', '5'\]; it must be \['0', '1'\]",
        ),
        ([{"ranks": "0-2", "accelerators": 4, "accelerator_type": "NPU"}], "accelerator_type is 'NV_GPU'; it must be"),
    ],
)
def test_a_plan_for_another_cluster_is_wrong(nodes: Any, message: str) -> None:
    section = {"num_nodes": 3, "component_placement": {"actor": "0-3:0-1,4:2-3"}}
    actor, other = (
        ComponentPlacement({"cluster": section}, INVENTORY).plan()["actor"],
        Inventory.from_dict({"nodes": nodes}),
    )
    with pytest.raises(AssertionError, match=message):
        check_plan(Plan(other, [replace(actor, inventory=other)]))


def test_unexpected_sharing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    section = {"num_nodes": 3, "component_placement": {"actor": "0-3", "rollout": "4-7"}}
    ComponentPlacement({"cluster": section}, INVENTORY).plan().save(path)
    check_plan(Plan.load(path), sharing=())
    content = json.loads(path.read_text())
    content["components"]["rollout"]["rule"]["map"] = "1,5-7:0-3"
    path.write_text(json.dumps(content))
    plan = Plan.load(path)
    with pytest.raises(
        AssertionError, match="'rollout', rank 0: must not share accelerator 1 of node 0 with rank 1 of 'actor'"
    ):
        check_plan(plan, sharing=[("actor", "reward")])
    check_plan(plan, sharing=[("rollout", "actor")])
    with pytest.raises(
        AssertionError, match="'actor', rank 3: must not share accelerator 0 of node 1 with rank 2 of 'actor'"
    ):
        check_plan(PLAN, sharing=())


def test_a_pair_in_place_of_pairs_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"sharing must be pairs of components, .*; 'actor' is not a pair"):
        check_plan(PLAN, sharing=("actor", "actor"))  # type: ignore[arg-type]


def test_a_plan_of_many_nodes_is_checked_quickly() -> None:
    """Every row is checked without a list of all nodes per row."""
    many = 30_000
    section = {"num_nodes": many, "component_placement": {"actor": "all"}}
    plan = ComponentPlacement({"cluster": section}, Inventory.uniform(num_nodes=many, num_accelerators=1)).plan()
    started = time.perf_counter()
    check_plan(plan, sharing=())
    assert time.perf_counter() - started < 10


def test_plans_of_other_dialects() -> None:
    inventory = Inventory.uniform(num_nodes=2, num_accelerators=4)
    workers = {"a": {"device_mapping": "[3, 4, 0, 5]", "num_gpus_per_worker": 2}, "b": {"world_size": 3}}
    check_plan(roll.plan(workers, inventory), sharing=())
    check_plan(roll.plan(workers, inventory, isolate_accelerator=False), sharing=())
    flags = {"colocate": True, "actor_num_gpus_per_node": 4, "rollout_num_gpus": 8, "rollout_num_gpus_per_engine": 8}
    check_plan(slime.plan(flags, inventory), sharing=[("actor", "rollout")])


def test_importing_without_hypothesis_tells_what_to_install() -> None:
    program = "import sys; sys.modules['hypothesis'] = None; import rankplan.testing"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.endswith("ImportError: rankplan.testing requires Hypothesis; run pip install hypothesis\n")

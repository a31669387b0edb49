"""What a process sees: own, node or own-first; rows, environments, tables and files agree."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rankplan import ComponentPlacement, Inventory, PlacementError, Plan
from rankplan.accelerators import VENDORS
from rankplan.cli import main
from rankplan.environment import planned_environment
from rankplan.testing import check_plan
from support.outcomes import some

MASKED = {"nodes": [{"ranks": "0-1", "accelerator_ids": ["4", "5", "6", "7"]}]}


def plan(entry: dict[str, Any], inventory: Inventory | None = None, **more: Any) -> Plan:
    inventory = inventory or Inventory.from_dict(MASKED)
    config = {"cluster": {"num_nodes": inventory.num_nodes, "component_placement": {"actor": entry}}}
    return ComponentPlacement(config, inventory).plan(**more)


def test_own_first_lists_the_own_accelerators_before_the_others() -> None:
    rows = plan({"placement": "0-7:0-3", "visibility": "own-first"})
    check_plan(rows)
    seen = [row.visible_accelerators for row in rows["actor"]]
    assert seen[:2] == [["4", "5", "6", "7"], ["6", "7", "4", "5"]]
    row = rows["actor"][1]
    assert (row.visibility, row.isolate_accelerator, row.local_accelerator_rank) == ("own-first", False, 2)
    environment = planned_environment(row)
    assert environment["CUDA_VISIBLE_DEVICES"] == "6,7,4,5"
    assert (environment["LOCAL_RANK"], environment["LOCAL_WORLD_SIZE"]) == ("0", "1")
    assert (environment["NODE_LOCAL_RANK"], environment["NODE_LOCAL_WORLD_SIZE"]) == ("1", "2")


@pytest.mark.parametrize("visibility", ["own", "node", "own-first"])
def test_local_rank_is_the_index_of_the_first_own_device(visibility: str) -> None:
    for row in some(plan({"placement": "0-7", "visibility": visibility})["actor"]):
        environment = planned_environment(row)
        seen = environment["CUDA_VISIBLE_DEVICES"].split(",")
        assert seen[int(environment["LOCAL_RANK"])] == ["4", "5", "6", "7"][row.local_accelerator_rank]


def test_a_process_without_accelerators_of_its_own_sees_its_node() -> None:
    rows = plan({"placement": "0-1", "node_group": "node", "visibility": "own-first"})
    assert [row.visible_accelerators for row in rows["actor"]] == [["4", "5", "6", "7"]] * 2
    assert planned_environment(rows["actor"][1])["LOCAL_RANK"] == "0"


def test_the_config_decides_before_the_argument() -> None:
    assert plan({"placement": "0-7", "visibility": "own-first"}, isolate_accelerator=False)["actor"].visibility == (
        "own-first"
    )
    assert plan({"placement": "0-7", "visibility": "node"})["actor"].visibility == "node"
    assert plan({"placement": "0-7"}, isolate_accelerator=False)["actor"].visibility == "node"


def test_a_visibility_survives_files_pickles_and_other_inventories(tmp_path: Path) -> None:
    made = plan({"placement": "0-7", "visibility": "own-first"})
    made.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again == made and again["actor"].visibility == "own-first"
    assert pickle.loads(pickle.dumps(made["actor"].rows)) == made["actor"].rows
    assert pickle.loads(pickle.dumps(made["actor"][1])) == made["actor"][1]
    assert made.on(Inventory.uniform(2, 4))["actor"][1].visible_accelerators == ["1", "0", "2", "3"]
    assert made["actor"].rows != made.with_visibility("node")["actor"].rows
    assert made.with_visibility("own")["actor"][1].visible_accelerators == ["5"]


@pytest.mark.parametrize("row", VENDORS, ids=lambda row: row.accelerator_type)
def test_own_first_needs_a_mask_with_an_order(row: Any) -> None:
    inventory = Inventory.uniform(1, 4, row.accelerator_type)
    entry = {"placement": "0-3", "visibility": "own-first"}
    if not row.unordered:
        assert plan(entry, inventory)["actor"][3].visible_accelerators == ["3", "0", "1", "2"]
        return
    with pytest.raises(PlacementError) as caught:
        plan(entry, inventory)
    assert (caught.value.code, caught.value.path) == (
        "visibility-order",
        "cluster.component_placement.actor.visibility",
    )
    assert row.unordered in caught.value.message


def test_only_the_used_nodes_need_an_ordered_mask() -> None:
    nodes = [{"ranks": 0, "accelerators": 4}, {"ranks": 1, "accelerators": 4, "accelerator_type": "NPU"}]
    inventory = Inventory.from_dict({"nodes": nodes})
    assert plan({"placement": "0-3", "visibility": "own-first"}, inventory)["actor"].visibility == "own-first"
    with pytest.raises(PlacementError, match="Ascend"):
        plan({"placement": "4-7", "visibility": "own-first"}, inventory)


def test_an_unknown_visibility_is_a_fault() -> None:
    with pytest.raises(PlacementError) as caught:
        plan({"placement": "0-7", "visibility": "own_first"})
    assert caught.value.message == "`visibility` is 'own_first'; it must be own, node or own-first"
    assert caught.value.help == "did you mean `own-first`?"


def test_the_commands_agree(tmp_path: Path) -> None:
    conf, nodes = tmp_path / "conf.yaml", tmp_path / "nodes.yaml"
    conf.write_text(
        "cluster:\n  num_nodes: 2\n  component_placement:\n    actor: {placement: 0-7, visibility: own-first}\n"
    )
    nodes.write_text("nodes:\n  - {ranks: 0-1, accelerator_ids: [4, 5, 6, 7]}\n")
    given = [str(conf), "--inventory", str(nodes)]
    table = CliRunner().invoke(main, ["plan", *given]).stdout
    assert "NV_GPU 5,4,6,7" in table
    rows = json.loads(CliRunner().invoke(main, ["plan", *given, "--format", "json"]).stdout)
    shown = CliRunner().invoke(main, ["env", *given, "--rank", "1"]).stdout
    assert rows[1]["visible_accelerators"] == ["5", "4", "6", "7"]
    assert "CUDA_VISIBLE_DEVICES=5,4,6,7\n" in shown and "LOCAL_RANK=0\n" in shown
    conf.write_text(conf.read_text().replace("0-7,", "0-799:0-799,").replace("num_nodes: 2", "num_nodes: 200"))
    nodes.write_text("nodes:\n  - {ranks: 0-199, accelerators: 4}\n")
    folded = CliRunner().invoke(main, ["plan", *given]).stdout
    assert "NV_GPU 0-3, each rank its own first" in folded

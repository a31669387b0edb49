"""The plan: kept in files, compared, and asked who shares what."""

from __future__ import annotations

import json
import os
import pickle
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import answers
import pytest
from hypothesis import given
from rankplan import ComponentPlacement, Inventory, PlacementError, Plan, RankSet
from rankplan.plan import Move
from test_assignment import Case, planned, valid_cases


def plan_of(placements: dict[str, Any], inventory: Inventory | None = None, **cluster: Any) -> Plan:
    inventory = inventory or Inventory.uniform(num_nodes=2, accelerators=4)
    section = {"num_nodes": inventory.num_nodes, "component_placement": placements, **cluster}
    return ComponentPlacement({"cluster": section}, inventory).plan()


# -------------------------------------------------------------------------------------------------------- files


@given(valid_cases())
def test_a_loaded_plan_equals_the_saved_one_byte_for_byte(case: Case) -> None:
    plan = planned(case)
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first.json"), Path(folder, "second.json")
        plan.save(first)
        loaded = Plan.load(first)
        loaded.save(second)
        assert loaded == plan
        assert {name: answers.as_dicts(loaded[name]) for name in loaded.components} == {
            name: answers.as_dicts(plan[name]) for name in plan.components
        }
        assert first.read_bytes() == second.read_bytes()
        assert sorted(Path(folder).iterdir()) == [first, second], "something else was left"


@given(valid_cases())
def test_pickle_keeps_the_plan(case: Case) -> None:
    plan = planned(case)
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert again.inventory == plan.inventory


def test_a_saved_plan_keeps_groups_environment_and_robots(tmp_path: Path) -> None:
    groups = [
        {"label": "a", "node_ranks": 0, "env_configs": [{"node_ranks": 0, "env_vars": [{"A": "1"}]}]},
        {"label": "r", "node_ranks": 1, "hardware": {"type": "Arm", "configs": [{"node_rank": 1, "name": "left"}]}},
    ]
    placements = {"actor": {"node_group": "a", "placement": "all"}, "env": {"node_group": "r", "placement": 0}}
    plan_of(placements, node_groups=groups).save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert loaded.inventory.environment(0, "a") == ({"A": "1"}, None)
    assert [robot.name for robot in loaded.inventory.hardware(loaded["env"][0])] == ["left"]


def damaged(text: str, change: Any) -> str:
    content = json.loads(text)
    change(content)
    return json.dumps(content)


DAMAGES = {
    "another version": lambda plan: plan.update(rankplan=99),
    "no version": lambda plan: plan.pop("rankplan"),
    "no inventory": lambda plan: plan.pop("inventory"),
    "components of another kind": lambda plan: plan.update(components=[1]),
    "a component of another kind": lambda plan: plan["components"].update(actor=3),
    "a node that is not there": lambda plan: plan["components"]["actor"]["cluster_node_rank"].__setitem__(0, 7),
    "a device that is not there": lambda plan: plan["components"]["actor"]["devices"].__setitem__(0, 77),
    "a device that is no number": lambda plan: plan["components"]["actor"]["devices"].__setitem__(0, "x"),
    "a negative device": lambda plan: plan["components"]["actor"]["devices"].__setitem__(0, -1),
    "a huge device": lambda plan: plan["components"]["actor"]["devices"].__setitem__(0, 2**70),
    "a column that is too short": lambda plan: plan["components"]["actor"]["device_starts"].pop(),
    "a column that is too long": lambda plan: plan["components"]["actor"]["cluster_node_rank"].append(0),
    "a column that goes back": lambda plan: plan["components"]["actor"]["device_starts"].reverse(),
    "an empty column": lambda plan: plan["components"]["actor"]["cluster_node_rank"].clear(),
    "a faulty inventory": lambda plan: plan["inventory"]["nodes"][0].update(accelerators=-1),
    "no group": lambda plan: plan["components"]["actor"]["node_groups"].clear(),
    "a name that is a colour": lambda plan: plan["components"].update({"\x1b[31m": plan["components"].pop("actor")}),
    "no rows": lambda plan: [plan["components"]["actor"][key].clear() for key in COLUMNS],
    "a node outside of the group": lambda plan: plan["components"]["front"]["cluster_node_rank"].__setitem__(0, 1),
    "a device outside of the group": lambda plan: plan["components"]["front"].update(elsewhere=[[1, 1]]),
    "a robot that is not there": lambda plan: plan["components"]["env"]["devices"].__setitem__(0, 1),
}
COLUMNS = ("cluster_node_rank", "group_starts", "device_starts", "devices")


@pytest.mark.parametrize("change", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_plan_is_refused(change: Any, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    arms = {"type": "Arm", "configs": [{"node_rank": 1}]}
    groups = [{"label": "g", "node_ranks": 0}, {"label": "arms", "node_ranks": 1, "hardware": arms}]
    front, env = ({"node_group": label, "placement": text} for label, text in (("g", "0-1:0"), ("arms", 0)))
    placements = {"actor": "0-3", "rollout": "4-7:0-1", "front": front, "env": env}
    plan_of(placements, node_groups=groups).save(path)
    path.write_text(damaged(path.read_text(), change))
    with pytest.raises(PlacementError) as refused:
        Plan.load(path)
    assert refused.value.code == "invalid-plan"
    if "inventory" not in json.loads(path.read_text()):
        assert refused.value.message == "the file is not a plan: 'inventory' is missing in its content"
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"rankplan": 1}', b"[" * 100_000])
def test_a_file_that_is_no_plan_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(PlacementError) as refused:
        Plan.load(path)
    assert refused.value.code == "invalid-plan"


def test_of_a_plan_that_was_cut_off_the_place_is_said(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan_of({"actor": "0-3"}).save(path)
    path.write_text(path.read_text()[:60])
    with pytest.raises(PlacementError, match="its JSON breaks off or is wrong at line 3, column"):
        Plan.load(path)


def test_who_may_read_a_plan_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A new file is as the user's mask has it, which is left alone: other threads write files too.
    monkeypatch.delattr(os, "umask")
    path, new = tmp_path / "plan.json", tmp_path / ("p" * 250 + ".json")
    path.touch(0o600)
    for file in (path, new):
        plan_of({"actor": "0-3"}).save(file)
    (tmp_path / "other").touch()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert new.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_plan_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Plan.load(tmp_path / "plan.json")


# -------------------------------------------------------------------------------------------------- as a mapping


def test_a_plan_is_a_mapping_of_its_components() -> None:
    plan = plan_of({"actor,critic": "0-3", "env": {"node_group": "node", "placement": "0-1:0-3"}})
    assert plan.components == list(plan) == ["actor", "critic", "env"]
    assert "env" in plan and "reward" not in plan and len(plan) == 3
    with pytest.raises(KeyError, match=r"actr.*did you mean.*actor"):
        plan["actr"]


def test_plans_are_equal_when_inventory_and_rows_are() -> None:
    plan = plan_of({"actor": "0-3"})
    assert plan == plan_of({"actor": "0-3:0-3"})
    assert plan != plan_of({"actor": "0-3:0-1"})
    assert plan != plan_of({"rollout": "0-3"})
    assert plan != plan_of({"actor": "0-3"}, Inventory.uniform(num_nodes=2, accelerators=8))


# ---------------------------------------------------------------------------------------------- who shares what

# (kind, component placements, what each pair shares: local indices by node)
SHARING = [
    ("collocated", {"actor": "all", "rollout": "all:0-3"}, {("actor", "rollout"): {0: "0-3", 1: "0-3"}}),
    ("disaggregated", {"actor": "0-3", "rollout": "4-7", "env": {"node_group": "node", "placement": 0}}, {}),
    ("hybrid", {"actor": "0-4", "rollout": "3-7"}, {("actor", "rollout"): {0: "3", 1: "0"}}),
    (
        "hybrid",
        {"actor": "0-3", "rollout": "4-7", "reward": "2-5"},
        {("actor", "reward"): {0: "2-3"}, ("rollout", "reward"): {1: "0-1"}},
    ),
]


@pytest.mark.parametrize(("kind", "placements", "pairs"), SHARING)
def test_sharing_says_who_uses_the_same_accelerators(kind: str, placements: Any, pairs: Any) -> None:
    sharing = plan_of(placements).sharing()
    assert sharing.kind == kind
    assert {pair: {node: str(held) for node, held in shared.items()} for pair, shared in sharing.pairs.items()} == pairs


def test_idle_are_the_accelerators_that_no_component_uses() -> None:
    plan = plan_of({"actor": "0,2-4", "env": {"node_group": "node", "placement": "0-1"}})
    assert plan.idle() == {0: RankSet("1"), 1: RankSet("1-3")}
    assert plan_of({"actor": "all:0-1"}).idle() == {}


@given(valid_cases())
def test_an_accelerator_is_either_idle_or_used(case: Case) -> None:
    plan, (cluster, _, _) = planned(case), case
    robots = {str(group["label"]) for group in cluster.get("node_groups", ()) if "hardware" in group}
    rows = [row for name in plan.components for row in plan[name] if row.node_group_label not in robots]
    used = {device for row in rows for device in row.devices}
    nodes = [(rank, plan.inventory.node(rank)) for rank in range(plan.inventory.num_nodes)]
    everything = {(rank, local) for rank, node in nodes for local in range(node.accelerators)}
    assert {(rank, local) for rank, held in plan.idle().items() for local in held} == everything - used


# -------------------------------------------------------------------------------------------------------- diff


def test_diff_names_moved_new_and_gone_processes() -> None:
    before = plan_of({"actor": "0-3", "rollout": "4-7"})
    after = plan_of({"actor": "0-2,7", "rollout": "4-5", "reward": "6"})
    diff = before.diff(after)
    assert [(move.component, move.rank) for move in diff.moved] == [("actor", 3)]
    assert [move.after.devices for move in diff.moved] == [[(1, 3)]]
    assert [(move.component, move.rank) for move in diff.went] == [("rollout", 2), ("rollout", 3)]
    assert [(move.component, move.rank) for move in diff.appeared] == [("reward", 0)]
    assert {move.after for move in diff.went} == {move.before for move in diff.appeared} == {None}
    assert diff and not before.diff(before)


def test_what_is_said_of_very_many_processes_is_short() -> None:
    inventory = Inventory.uniform(1_000, 8)
    plan, other = (plan_of({"actor": text, "critic": "0-7999"}, inventory) for text in ("0-7999", "0-7999:0-3999"))
    assert repr(plan.diff(other)) == "<PlanDiff: 4000 moved, 0 appeared, 4000 went>"
    assert repr(plan.sharing()) == "<Sharing: collocated, pairs: 1>"


@given(valid_cases(), valid_cases())
def test_diff_back_is_the_diff_the_other_way_round(one: Case, other: Case) -> None:
    here, there = planned(one), planned(other)
    forth, back = here.diff(there), there.diff(here)

    def turned(moves: Sequence[Move]) -> list[Move]:
        return [Move(move.component, move.rank, move.after, move.before) for move in moves]

    assert sorted(turned(forth.moved), key=place) == sorted(back.moved, key=place)
    assert sorted(turned(forth.went), key=place) == sorted(back.appeared, key=place)


def place(move: Move) -> tuple[str, int]:
    return move.component, move.rank

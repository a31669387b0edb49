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

import pytest
from hypothesis import given
from rankplan import ComponentPlacement, Inventory, PlacementError, Plan, RankSet, diff
from rankplan.plans.diff import Move
from rankplan.runtime.rank.hardware import hardware_of
from support import answers
from support.cases import Case, planned, valid_cases


def plan_of(placements: dict[str, Any], inventory: Inventory | None = None, **cluster: Any) -> Plan:
    inventory = inventory or Inventory.uniform(num_nodes=2, num_accelerators=4)
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
    assert [robot.name for robot in hardware_of(loaded.inventory, loaded["env"][0])] == ["left"]


def damaged(text: str, change: Any) -> str:
    content = json.loads(text)
    change(content)
    return json.dumps(content)


def _actor(**changes: Any) -> Any:
    return lambda plan: plan["components"]["actor"].update(changes)


DAMAGES: dict[str, tuple[Any, str]] = {
    "another version": (lambda plan: plan.update(rankplan=99), "the file is not a plan of version 3, but of"),
    "no version": (lambda plan: plan.pop("rankplan"), "the file is not a plan of version 3"),
    "no inventory": (lambda plan: plan.pop("inventory"), "the file is not a plan: `inventory` is missing"),
    "components of another type": (
        lambda plan: plan.update(components=[1]),
        "components: `components` is [1]; it",
    ),
    "a component of another type": (
        lambda plan: plan["components"].update(actor=3),
        "components.actor: `actor` is 3",
    ),
    "no rule": (lambda plan: plan["components"]["actor"].pop("rule"), "components.actor: `rule` is missing"),
    "an unknown key": (_actor(rules={}), "components.actor.rules: unknown key `rules`"),
    "two rules": (_actor(rule={"map": "0-3", "chunks": "0"}), "components.actor.rule: a rule must have one of"),
    "a rule of another type": (_actor(rule={"map": 3}), "components.actor.rule.map: `map` is 3; it must be text"),
    "a faulty map": (_actor(rule={"map": "0-1:1-2"}), "components.actor.rule: process ranks start at 1"),
    "a map past the cluster": (_actor(rule={"map": "0-8"}), "components.actor.rule: resource rank"),
    "a process on two nodes": (_actor(rule={"map": "3-4:0"}), "components.actor.rule: process 0 would need"),
    "faulty chunks": (_actor(rule={"chunks": "0-2", "per_process": 2}), "components.actor.rule: 3 resources cannot be"),
    "chunks of nothing": (_actor(rule={"chunks": "0-2", "per_process": 0}), "components.actor.rule.per_process: "),
    "a faulty packed rule": (_actor(rule={"packed": [0, 3, 1, 0]}), "components.actor.rule: stride is 0"),
    "an unknown visibility": (_actor(visibility="all"), "components.actor.visibility: `visibility` is 'all'"),
    "a share above 1": (_actor(share=1.5), "components.actor.share: `share` is 1.5; it must be 1"),
    "a size of 0": (_actor(parallel={"tp": 0}), "components.actor.parallel.tp: `tp` is 0; it must be 1 or more"),
    "engines of text": (_actor(engines="x"), "components.actor.engines: 'x' is not a whole number"),
    "a faulty inventory": (
        lambda plan: plan["inventory"]["nodes"][0].update(accelerators=-1),
        "inventory.nodes[0].accelerators: `accelerators` is -1; it must be 0 or more",
    ),
    "a faulty section": (
        lambda plan: plan["cluster"].update(num_nodes="x"),
        "cluster.num_nodes: 'x' is not a whole number",
    ),
    "an unknown mode": (
        lambda plan: plan.update(mode="MIXED"),
        "mode: `mode` is 'MIXED'; it must be COLLOCATED, DISAGGREGATED, HYBRID or AUTO",
    ),
    "no group": (_actor(node_groups=[]), "components.actor.node_groups: `node_groups` is empty"),
    "an unknown group": (_actor(node_groups=["nod"]), "components.actor.rule: unknown node group `nod`"),
    "a name that is a colour": (
        lambda plan: plan["components"].update({"\x1b[31m": plan["components"].pop("actor")}),
        "components: the component name '\\x1b[31m' contains unprintable characters",
    ),
}


@pytest.mark.parametrize(("change", "found"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_plan_is_refused_with_the_wrong_key(change: Any, found: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan_of({"actor": "0-3", "rollout": "4-7:0-1"}).save(path)
    path.write_text(damaged(path.read_text(), change))
    with pytest.raises(PlacementError) as refused:
        Plan.load(path)
    (fault,) = refused.value.diagnostics
    assert fault.code == "invalid-plan" and fault.file == str(path) and fault.help
    assert f"{fault.path}: {fault.message}".removeprefix(": ").startswith(found)


def test_all_faults_of_a_damaged_plan_are_found(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan_of({"actor": "0-3", "rollout": "4-7:0-1"}).save(path)
    path.write_text(path.read_text().replace('"0-3:0-3"', '"0-30:0-30"').replace('"4-7:0-1"', '"4-7:0-"'))
    with pytest.raises(PlacementError) as refused:
        Plan.load(path)
    assert [fault.path for fault in refused.value.diagnostics] == ["components.actor.rule", "components.rollout.rule"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"rankplan": 1}', b"[" * 100_000])
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
    with pytest.raises(PlacementError, match="invalid JSON at line 3, column"):
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
    assert plan != plan_of({"actor": "0-3"}, Inventory.uniform(num_nodes=2, num_accelerators=8))


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
    everything = {(rank, local) for rank, node in nodes for local in range(node.num_accelerators)}
    assert {(rank, local) for rank, held in plan.idle().items() for local in held} == everything - used


# -------------------------------------------------------------------------------------------------------- diff


def test_diff_names_moved_new_and_gone_processes() -> None:
    before = plan_of({"actor": "0-3", "rollout": "4-7"})
    after = plan_of({"actor": "0-2,7", "rollout": "4-5", "reward": "6"})
    changes = diff(before, after)
    assert [(move.component, move.rank) for move in changes.moved] == [("actor", 3)]
    assert [move.after.devices for move in changes.moved] == [[(1, 3)]]
    assert [(move.component, move.rank) for move in changes.went] == [("rollout", 2), ("rollout", 3)]
    assert [(move.component, move.rank) for move in changes.appeared] == [("reward", 0)]
    assert {move.after for move in changes.went} == {move.before for move in changes.appeared} == {None}
    assert changes and not diff(before, before)


def test_what_is_said_of_very_many_processes_is_short() -> None:
    inventory = Inventory.uniform(1_000, 8)
    plan, other = (plan_of({"actor": text, "critic": "0-7999"}, inventory) for text in ("0-7999", "0-7999:0-3999"))
    assert repr(diff(plan, other)) == "<PlanDiff: 4000 moved, 0 appeared, 4000 went, 0 renumbered>"
    assert repr(plan.sharing()) == "<Sharing: collocated, pairs: 1>"


@given(valid_cases(), valid_cases())
def test_diff_back_is_the_diff_the_other_way_round(one: Case, other: Case) -> None:
    here, there = planned(one), planned(other)
    forth, back = diff(here, there), diff(there, here)

    def turned(moves: Sequence[Move]) -> list[Move]:
        return [Move(move.component, move.rank, move.after, move.before) for move in moves]

    assert sorted(turned(forth.moved), key=place) == sorted(back.moved, key=place)
    assert sorted(turned(forth.went), key=place) == sorted(back.appeared, key=place)


def place(move: Move) -> tuple[str, int]:
    return move.component, move.rank

"""The cluster section: every rule with its words and its place in a YAML file, and the ways of writing one thing."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any, Literal

import pytest
from omegaconf import OmegaConf
from pydantic import ConfigDict, field_validator
from rankplan import (
    ComponentPlacement,
    FlexiblePlacementStrategy,
    HardwareConfig,
    Inventory,
    NodePlacementStrategy,
    PlacementError,
    Plan,
    load_config,
    register_hardware,
)
from rankplan.rlinf.dialect import DIALECT as rlinf
from rankplan.runtime.rank.hardware import hardware_of
from support.configs import FULL
from support.rejected.config import ARMS, FRANKA, INVENTORIES, REFUSED, group, placements

TWO_BY_FOUR = Inventory.uniform(num_nodes=2, num_accelerators=4)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(text: str) -> ComponentPlacement:
    Path("conf.yaml").write_text(text)
    return ComponentPlacement(load_config("conf.yaml"), TWO_BY_FOUR)


# ------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(("text", "found", "help"), REFUSED)
def test_refusal_says_where_and_what_was_found_and_what_to_write(text: str, found: str, help: str | None) -> None:
    with pytest.raises(PlacementError) as refused:
        loaded(text)
    assert [f"{fault.line}:{fault.column} {fault.code}: {fault.message}" for fault in refused.value.diagnostics] == [
        found
    ]
    assert refused.value.help == help
    assert refused.value.render().splitlines()[1].strip().startswith(f"--> conf.yaml:{found.split()[0]}")


@pytest.mark.parametrize(
    "groups", ["node_groups: {label: g, node_ranks: 0}", "node_group: [{label: g, node_ranks: 0}]"]
)
def test_who_selects_a_group_is_not_blamed_where_no_group_could_be_read(groups: str) -> None:
    text = placements("a: {node_group: g, placement: 7-0}\nb: {node_group: nod, placement: 0}\nc: 99") + f"  {groups}\n"
    with pytest.raises(PlacementError) as refused:
        loaded(text)
    assert [(fault.line, fault.code) for fault in refused.value.diagnostics][:2] == [
        (4, "reversed-range"),
        (6, "resource-out-of-range"),
    ]
    assert len(refused.value.diagnostics) == 3


def test_a_number_that_is_read_as_another_text_is_shown_as_it_is_written() -> None:
    with pytest.raises(PlacementError) as refused:
        loaded(placements("a: 0x7F"))
    assert refused.value.render().splitlines()[3:5] == ["4 |     a: 0x7F", "  |        ^^^^"]


def test_nothing_is_assumed_of_a_number_of_nodes_that_cannot_be_read() -> None:
    with pytest.raises(PlacementError) as refused:
        rlinf.assumed_inventory({"cluster": {"num_nodes": "two", "component_placement": {"a": "7-0"}}})
    assert [fault.code for fault in refused.value.diagnostics] == ["invalid-value", "reversed-range"]


def test_all_faults_of_a_file_are_reported_together_and_in_its_order() -> None:
    with pytest.raises(PlacementError) as refused:
        loaded(
            placements("a: 7-3\nb: {node_group: g, placement: x}\nc: 0-1:0-2,9")
            + "  node_groups:\n    - {label: cluster, node_ranks: 0}\n    - {label: h, node_rank: 1}\n"
        )
    found = [(fault.line, fault.code) for fault in refused.value.diagnostics]
    assert found == sorted(found, key=lambda fault: fault[0])
    assert set(found) == {
        *((4, "reversed-range"), (5, "unknown-node-group"), (5, "syntax")),
        *((6, "not-multiple"), (6, "resource-out-of-range")),
        *((8, "reserved-label"), (9, "unknown-key")),
    }


def test_a_fault_in_a_node_group_hides_no_other_of_it() -> None:
    """Its robots are not counted then; its nodes are, where the fault is in an environment only."""
    rest = "node_ranks: 0-1\nenv_configs:\n  - {node_ranks: 0, env_vars: A=1}\n  - {node_ranks: 0-2, env_var: []}\n"
    faulty = group(rest).replace("{a: 0}", "{a: {node_group: g, placement: 0-9}, b: {node_group: h, placement: 7}}")
    robots = "{node_rank: 9}, {node_rank: 0}, {node_rank: 0}"
    faulty += f"    - {{label: h, node_ranks: 0, ignore: 1, hardware: {{type: Arm, configs: [{robots}]}}}}\n"
    with pytest.raises(PlacementError) as refused:
        loaded(faulty)
    assert [(fault.line, fault.code) for fault in refused.value.diagnostics] == [
        (3, "resource-out-of-range"),
        *((8, "invalid-value"), (9, "node-out-of-range"), (9, "overlapping-env"), (9, "unknown-key")),
        *((10, "unknown-key"), (10, "node-out-of-range"), (10, "duplicate-hardware")),
    ]


def test_an_empty_name_is_no_name() -> None:
    inventory = Inventory.from_dict({"nodes": [{"ranks": 0, "hostname": "", "ip": "", "accelerator_model": ""}]})
    assert inventory.to_dict() == {"nodes": [{"ranks": "0"}]} and inventory == Inventory.uniform(1, 0)


@pytest.mark.parametrize(("nodes", "code"), INVENTORIES)
def test_faulty_inventory_is_refused(nodes: list[Any], code: str) -> None:
    with pytest.raises(PlacementError) as refused:
        Inventory.from_dict({"nodes": nodes})
    assert refused.value.code == code
    assert refused.value.help


NODES = "write `nodes:` with a list: - {ranks: 0-7, accelerators: 8}"


@pytest.mark.parametrize(
    ("content", "help"),
    [
        ({"machines": {}}, NODES),
        ({"node": [{"ranks": 0}]}, "rename `node` to `nodes`"),
    ],
)
def test_what_is_no_inventory_is_told_how_one_looks(content: Any, help: str) -> None:
    with pytest.raises(PlacementError, match="the inventory has no `nodes`") as refused:
        Inventory.from_dict(content)
    assert (refused.value.code, refused.value.help) == ("missing-key", help)


def test_an_inventory_without_nodes_is_refused_in_our_words() -> None:
    with pytest.raises(PlacementError, match="`nodes` is empty") as refused:
        Inventory.from_dict({"nodes": []})
    assert refused.value.help == "list at least one"


def test_component_that_is_not_there_is_refused_with_a_guess() -> None:
    placement = loaded(placements("actor: 0"))
    for ask in (placement.get_strategy, placement.get_world_size, placement.get_hardware_ranks):
        with pytest.raises(PlacementError) as refused:
            ask("actr")
        assert (refused.value.code, refused.value.help) == ("unknown-component", "did you mean `actor`?")


# ------------------------------------------------------------------------------------- one thing in many writings


def test_a_file_a_dict_and_an_omegaconf_object_give_one_plan() -> None:
    from_file = loaded(FULL).plan()
    assert ComponentPlacement("conf.yaml", TWO_BY_FOUR).plan() == from_file
    assert ComponentPlacement(OmegaConf.load("conf.yaml"), TWO_BY_FOUR).plan() == from_file
    assert ComponentPlacement({"cluster": dict(load_config("conf.yaml")["cluster"])}, TWO_BY_FOUR).plan() == from_file
    assert list(from_file.components) == ["actor", "critic", "rollout", "env"]
    assert [row.devices for row in from_file["env"]] == [*([(1, gpu)] for gpu in range(4)), [(0, 0)], [(0, 1)]]


def test_components_of_one_key_share_one_strategy_object() -> None:
    placement = loaded(FULL)
    assert placement.get_strategy("actor") is placement.get_strategy("critic")
    assert placement.get_strategy("actor") is not placement.get_strategy("rollout")
    assert (placement.get_world_size("env"), placement.get_hardware_ranks("actor")) == (6, [0, 1, 2, 3])


@pytest.mark.parametrize("written", ["0-1", "0,1", "1,0", "[0, 1]", "[1, 0]", "all", "' 0 - 1 '"])
def test_node_ranks_may_be_text_or_a_list_in_any_order(written: str) -> None:
    plan = loaded(group(f"node_ranks: {written}").replace("{a: 0}", "{a: {node_group: g, placement: all}}")).plan()
    assert [row.devices for row in plan["a"]] == [[(node, gpu)] for node in range(2) for gpu in range(4)]


def test_labels_keep_their_case_and_ints_become_text() -> None:
    text = placements("a: {node_group: G, placement: 0}\nb: {node_group: 4090, placement: 0}")
    text += "  node_groups: [{label: g, node_ranks: 0}, {label: G, node_ranks: 1}, {label: 4090, node_ranks: 1}]\n"
    plan = loaded(text).plan()
    assert [plan[name][0].cluster_node_rank for name in "ab"] == [1, 1]
    assert [plan[name][0].node_group_label for name in "ab"] == ["G", "4090"]


def test_environment_is_that_of_the_node_in_the_group() -> None:
    environments = ["{node_ranks: 0, env_vars: [{A: 1}]}", "{node_ranks: 1, env_vars: [{A: 2}]}"]
    known = loaded(group(f"node_ranks: 0-1\nenv_configs: [{', '.join(environments)}]")).plan().inventory
    assert known.environment(0, "g") == ({"A": "1"}, None)
    assert known.environment(1, "g") == ({"A": "2"}, None)
    assert known.environment(1, "cluster") == ({}, None)
    with pytest.raises(PlacementError) as refused:
        known.environment(1, "G")
    assert (refused.value.code, refused.value.help) == ("unknown-node-group", "did you mean `g`?")


def test_robots_are_ordered_by_node_and_then_as_written_and_are_the_registered_model() -> None:
    class Gripper(HardwareConfig):
        name: str

    register_hardware("Gripper of this test", Gripper)
    robots = ["{node_rank: 1, name: c}", "{node_rank: 0, name: b}", "{node_rank: 0, name: a}"]
    text = group(f"node_ranks: 0-1\nhardware: {{type: Gripper of this test, configs: [{', '.join(robots)}]}}")
    plan = loaded(text.replace("{a: 0}", "{a: {node_group: g, placement: 'all:0-2'}}")).plan()
    held = [hardware_of(plan.inventory, row) for row in plan["a"]]
    assert [[(type(robot), robot.node_rank, robot.name) for robot in robots] for robots in held] == [
        [(Gripper, 0, "b")],
        [(Gripper, 0, "a")],
        [(Gripper, 1, "c")],
    ]


def test_rules_of_a_registered_model_are_those_of_the_config() -> None:
    class Camera(HardwareConfig):
        model_config = ConfigDict(extra="forbid")
        port: int
        kind: Literal["zed", "realsense"] = "zed"

        @field_validator("port")
        @classmethod
        def _free(cls, value: int) -> int:
            if value < 1024:
                raise ValueError("Ports below 1024 are the system's")
            return value

    register_hardware("Camera of this test", Camera)
    cameras = ["{node_rank: 0, port: 80}", "{node_rank: 0, port: 8080, kind: sony}", "{node_rank: 0, port: 1, prot: 2}"]
    configs = "".join(f"    - {camera}\n" for camera in cameras)
    with pytest.raises(PlacementError) as refused:
        loaded(group(ARMS.replace("Arm", "Camera of this test") + configs))
    assert [f"{fault.line}:{fault.column} {fault.message}; {fault.help}" for fault in refused.value.diagnostics] == [
        "10:34 `port` is 80, which is invalid; ports below 1024 are the system's",
        "11:46 `kind` is 'sony', which is invalid; input should be 'zed' or 'realsense'",
        "12:34 `port` is 1, which is invalid; ports below 1024 are the system's",
        "12:37 unknown key `prot`; did you mean `port`?",
    ]
    with pytest.raises(TypeError, match=r"is not a subclass of rankplan.HardwareConfig"):
        register_hardware("Camera of this test", dict)  # type: ignore[arg-type]


def test_a_model_that_is_registered_after_the_config_was_read_has_its_say() -> None:
    plan = loaded(group(ARMS.replace("Arm", "Lamp of this test") + "    - {node_rank: 0, watts: many}")).plan()
    (row,) = NodePlacementStrategy([0]).get_placement(plan.inventory)
    assert hardware_of(plan.inventory, row) == []
    (row,) = FlexiblePlacementStrategy([[0]], "g").get_placement(plan.inventory)
    assert [lamp.watts for lamp in hardware_of(plan.inventory, row)] == ["many"]  # type: ignore[attr-defined]

    class Lamp(HardwareConfig):
        watts: int

    register_hardware("Lamp of this test", Lamp)
    with pytest.raises(PlacementError, match="'many'; it must be a whole number"):
        hardware_of(Inventory.from_dict(plan.inventory.to_dict()).with_facts(plan.inventory.facts), row)


def test_texts_of_robots_are_saved_as_they_were_written() -> None:
    text = group(FRANKA + "    - {node_rank: 0, robot_ip: 10.10, camera_serials: [0322, 1e3]}")
    plan = loaded(text.replace("{a: 0}", "{a: {node_group: g, placement: 0}}")).plan()
    plan.save("plan.json")
    for known in (plan, Plan.load("plan.json"), pickle.loads(pickle.dumps(plan))):
        (robot,) = hardware_of(known.inventory, known["a"][0])
        assert (robot.robot_ip, robot.camera_serials) == ("10.10", ("0322", "1e3"))  # type: ignore[attr-defined]


def test_many_robots_groups_and_components_are_not_dumped() -> None:
    many = 2000
    arms = {"type": "Arm", "configs": [{"node_rank": 0, "name": str(i)} for i in range(10 * many)]}
    labels = [f"g{rank}" for rank in range(many)]
    groups = [{"label": label, "node_ranks": rank} for rank, label in enumerate(labels)]
    components = {f"c{i}": 0 for i in range(many)}
    components["env"] = {"node_group": "arms", "placement": "all"}
    components["actor"] = {"node_group": labels, "placement": "all"}
    section = {"num_nodes": many, "component_placement": components, "node_groups": groups}
    section["node_groups"].append({"label": "arms", "node_ranks": 0, "hardware": arms})
    plan = ComponentPlacement({"cluster": section}, Inventory.uniform(num_nodes=many, num_accelerators=8)).plan()
    assert (len(plan["env"]), len(plan["actor"])) == (10 * many, 8 * many)
    assert len(repr(plan)) < 300 and len(repr(plan["actor"])) < 300


def test_each_fault_of_many_finds_its_place_at_once() -> None:
    texts = {f"c{index}": "99" for index in range(30_000)}
    file = load_config(_written(placements("\n".join(f"{name}: {text}" for name, text in texts.items()))))
    started = time.process_time()
    for config in (file, {"cluster": {"num_nodes": 1, "component_placement": texts}}):
        with pytest.raises(PlacementError) as refused:
            ComponentPlacement(config, TWO_BY_FOUR)
        assert [str(fault.path).rpartition(".")[2] for fault in refused.value.diagnostics] == list(texts)
    assert time.process_time() - started < 10


def test_plain_numbers_of_a_file_are_read_as_yaml_1_2_reads_them() -> None:
    config = load_config(_written("a: 1:0\nb: 12:5\nc: 0-7\nd: 010\ne: yes\nf: 0o10\ng: 1_0\nh: '3'\n"))
    assert dict(config) == {"a": "1:0", "b": "12:5", "c": "0-7", "d": 10, "e": "yes", "f": 8, "g": "1_0", "h": "3"}


def _written(text: str) -> Path:
    path = Path("written.yaml")
    path.write_text(text)
    return path

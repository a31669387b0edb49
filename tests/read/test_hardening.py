"""Odd values, and whatever else can be in a config or a file: refused in words, or taken for what it says."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from rankplan import (
    ComponentPlacement,
    FlexiblePlacementStrategy,
    Inventory,
    PackedPlacementStrategy,
    PlacementError,
    Plan,
    RankMap,
    RankSet,
    error_codes,
    load_config,
    parse_placement,
    replan,
)
from rankplan.testing import check_plan, cluster_sections, inventories
from rankplan.trainers.roll.dialect import DIALECT as roll
from rankplan.trainers.slime.dialect import DIALECT as slime
from support.outcomes import at_least, outcome

INVENTORY = Inventory.uniform(2, 8)


def section(**keys: Any) -> dict[str, Any]:
    return {"cluster": {"num_nodes": 2, **keys}}


def assert_can_be_shown(refused: PlacementError) -> None:
    assert {fault.code for fault in refused.diagnostics} <= set(error_codes())
    assert refused.render() and refused.render(color=True) and str(refused)
    assert pickle.loads(pickle.dumps(refused)).diagnostics == refused.diagnostics


LOOP: dict[str, Any] = {}
LOOP["again"] = LOOP


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (section(component_placement={"a": {1, 2}}), "invalid-value"),
        (section(component_placement={"a": np.arange(3)}), "invalid-value"),
        (section(component_placement={None: "0"}), "invalid-value"),
        (section(component_placement={1.5: "0", True: "1"}), "invalid-value"),
        (section(component_placement={5: "0", "5": "1"}), "duplicate-key"),
        (section(component_placement={"a": LOOP}), "invalid-value"),
        (section(component_placement={"\ud800": "0"}), "invalid-value"),
        (section(component_placement={"a": {"node_group": "\ud800", "placement": 0}}), "invalid-value"),
        (section(node_groups=[{"label": "g", "node_ranks": "all", "x": 1}], num_nodes="9" * 5000), "invalid-value"),
        (section(node_groups=[{"label": "g", "node_ranks": [2**40]}]), "invalid-value"),
        (OmegaConf.create({"cluster": "${nope}"}), "invalid-value"),
        ({"cluster": None}, "invalid-value"),
        (7, "invalid-value"),
    ],
)
def test_odd_configs_are_refused_and_can_be_shown(config: Any, code: str) -> None:
    with pytest.raises(PlacementError) as refused:
        ComponentPlacement(config, INVENTORY)
    assert code in {fault.code for fault in refused.value.diagnostics}
    assert_can_be_shown(refused.value)


@pytest.mark.parametrize(
    "variable", [{"A=B": "1"}, {"": "1"}, {"A": "x\0y"}, {"A": "\ud800"}, {"A": True}, {"A": None}, {"A": 1, "B": 2}]
)
def test_variables_that_no_process_could_have_are_refused(variable: dict[str, Any]) -> None:
    group = {"label": "g", "node_ranks": 0, "env_configs": [{"node_ranks": 0, "env_vars": [variable]}]}
    with pytest.raises(PlacementError):
        ComponentPlacement(section(node_groups=[group]), INVENTORY)


@pytest.mark.parametrize("index", [-(10**30), -9, 8, 2**31, 2**32, 2**63, 10**30])
def test_an_index_that_does_not_exist_is_an_index_error(index: int) -> None:
    config = section(component_placement={"actor": {"placement": "0-7", "parallel": {"tp": 4}}})
    plan = ComponentPlacement(config, INVENTORY).plan()
    actor, weights = plan["actor"], plan.weight_map("actor", "actor")
    for look in (actor.__getitem__, actor.coordinates, actor.cpus, actor.layout.place, actor.layout.process_of):
        with pytest.raises(IndexError):
            look(index)
    groups = actor.groups("tp")
    for ask in (groups.__getitem__, groups.of, weights.__getitem__, weights.sender_of, RankSet("0-7").__getitem__):
        with pytest.raises(IndexError):
            ask(index)
    with pytest.raises(IndexError, match="the node ranks are 0-1"):
        INVENTORY.reordered([index])
    with pytest.raises(ValueError, match="the inventory has 2 nodes"):
        INVENTORY.first(index)


def test_an_inventory_without_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one node"):
        INVENTORY.reordered([])


def test_a_single_name_is_not_taken_for_its_letters() -> None:
    assert INVENTORY.without("node-1") == INVENTORY.without(["node-1"])
    nodes = [{"ranks": rank, "hostname": f"h{rank}", "accelerators": 8} for rank in range(2)]
    named = Inventory.from_dict({"nodes": nodes})
    before = ComponentPlacement({"cluster": {"num_nodes": 1, "component_placement": {"a": "all"}}}, named).plan()
    assert replan(before, named, without="h0").plan == replan(before, named, without=["h0"]).plan
    with pytest.raises(PlacementError, match="unknown component `rollout` to shrink"):
        replan(before, named, shrink="rollout")
    with pytest.raises(PlacementError, match="3 is not a name"):
        INVENTORY.without([3])  # type: ignore[list-item]


def test_text_in_a_file_arrives_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text(
        "cluster:\n"
        "  num_nodes: 1\n"
        "  component_placement: {a: {node_group: 007, placement: 0}}\n"
        "  node_groups:\n"
        "    - label: 007\n"
        "      node_ranks: 0\n"
        "      env_configs: [{node_ranks: 0, env_vars: [{A: 12.10}, {B: 0010}, {C: 0x1F}, {D: 1e5}, {E: on}]}]\n"
    )
    placement = ComponentPlacement(tmp_path / "conf.yaml", Inventory.uniform(1, 1))
    variables, _ = placement.inventory.environment(0, "007")
    assert variables == {"A": "12.10", "B": "0010", "C": "0x1F", "D": "1e5", "E": "on"}
    assert OmegaConf.create(load_config(tmp_path / "conf.yaml").to_dict()).cluster.num_nodes == 1


def test_what_is_written_beside_a_merge_wins_and_is_pointed_at(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text(
        "base: &base {placement: 0-3}\ncluster:\n  num_nodes: 1\n  component_placement:\n"
        "    a:\n      <<: *base\n      placement: 0-99\n    b:\n      <<: *base\n"
    )
    with pytest.raises(PlacementError) as refused:
        ComponentPlacement(tmp_path / "conf.yaml", Inventory.uniform(1, 4))
    assert [(fault.line, fault.column) for fault in refused.value.diagnostics] == [(7, 18)]


def test_a_folded_text_is_shown_without_the_number_of_a_line_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text(
        "cluster:\n  num_nodes: 1\n  component_placement:\n    actor: >-\n      0-3,\n      5-:3\n"
    )
    with pytest.raises(PlacementError) as refused:
        ComponentPlacement(tmp_path / "conf.yaml", Inventory.uniform(1, 8))
    shown = refused.value.render()
    assert "conf.yaml:4:12" in shown and "4 |" not in shown and "0-3, 5-:3" in shown


def test_faults_of_a_mapping_come_in_its_order() -> None:
    with pytest.raises(PlacementError) as refused:
        ComponentPlacement(section(component_placement={"a": "99", "b": {"plcement": "0"}, "c": "7-0"}), INVENTORY)
    paths = [fault.path for fault in refused.value.diagnostics]
    assert [path.split(".")[2] for path in paths if path] == ["a", "b", "c"]


def test_numpy_numbers_are_numbers() -> None:
    inventory = Inventory.uniform(np.int64(2), np.int32(8))
    config = section(component_placement={"a": {"node_group": "g", "placement": np.int64(3)}})
    config["cluster"]["node_groups"] = [{"label": "g", "node_ranks": [np.int64(1)]}]
    (row,) = ComponentPlacement(config, inventory).plan()["a"]
    assert row.devices == [(1, 3)]
    assert PackedPlacementStrategy(np.int64(0), np.uint8(3)).world_size == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: RankMap.from_lists([[2**32 - 1], [0]]),
        lambda: FlexiblePlacementStrategy(5),  # type: ignore[arg-type]
        lambda: parse_placement("0", -1),
        lambda: Inventory.uniform(10**9, 8),
        lambda: Inventory.from_dict({"nodes": [{"ranks": 0, "accelerator_ids": ["4,5", ""]}]}),
        lambda: Inventory.from_dict({"nodes": [{"ranks": 0, "accelerator_ids": [True]}]}),
        lambda: Inventory.from_dict({"nodes": [{"ranks": "0-99999999", "accelerators": 8}]}),
        lambda: Inventory.from_dict([]),  # type: ignore[arg-type]
    ],
)
def test_careless_arguments_are_refused(make: Any) -> None:
    with pytest.raises(PlacementError) as refused:
        make()
    assert all(fault.help for fault in refused.value.diagnostics)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Inventory.uniform("2", 8), "'2' is not a number of nodes"),  # type: ignore[arg-type]
        (lambda: Inventory.uniform(2, "8"), "'8' is not a number of accelerators"),  # type: ignore[arg-type]
        (lambda: parse_placement([0]), r"the placement is \[0\]; it must be text"),  # type: ignore[arg-type]
        (lambda: parse_placement(True), "the placement is true; it must be text"),
    ],
)
def test_a_careless_argument_is_named_as_it_was_given(make: Any, message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        make()


@pytest.mark.parametrize("ranks", [[-1], [2**33], [2**32 - 1]])
def test_a_set_of_what_is_no_rank_is_a_value_error(ranks: list[int]) -> None:
    with pytest.raises(ValueError, match="is not a rank; ranks are 0 to 4294967294"):
        RankSet(ranks)
    with pytest.raises(ValueError):
        RankSet("0-3").index(-1)
    assert str(parse_placement(3, 8)) == "3:0"


def test_inventories_are_equal_when_they_say_the_same_and_survive_their_file(tmp_path: Path) -> None:
    apart = Inventory.from_dict({"nodes": [{"ranks": 1, "accelerators": 8}, {"ranks": [0], "accelerators": 8}]})
    assert apart == INVENTORY == Inventory.uniform(2, 8, "NV_GPU")
    node = {"ranks": 0, "accelerator_ids": ["GPU-5c89", "0010"], "hostname": "123456789e12", "labels": {"zone": "1e3"}}
    odd = Inventory.from_dict({"nodes": [node]})
    odd.save(tmp_path / "inventory.yaml")
    assert Inventory.load(tmp_path / "inventory.yaml") == odd


def test_a_plan_is_not_made_of_slices() -> None:
    plan = ComponentPlacement(section(component_placement={"a": "all"}), INVENTORY).plan()
    part = plan["a"][2:4]
    assert str(part.accelerators()) == "2-3" and "2 processes on 1 node of" in repr(part)
    with pytest.raises(ValueError, match="a slice"):
        replace(plan["a"], rows=part)


def test_strategies_keep_the_node_groups_they_were_checked_with() -> None:
    def made(node: int) -> ComponentPlacement:
        group = {"label": "g", "node_ranks": node}
        components = {"a": {"node_group": "g", "placement": 0}}
        return ComponentPlacement(section(component_placement=components, node_groups=[group]), INVENTORY)

    first, second = made(0), made(1)
    assert first.get_strategy("a") != second.get_strategy("a")
    assert first.get_strategy("a") == made(0).get_strategy("a")
    rows = first.get_strategy("a").get_placement(second.inventory)
    assert rows == first.plan()["a"] and rows[0].cluster_node_rank == 0


def test_sharing_of_many_components_is_found_in_no_time() -> None:
    components = {f"c{index}": "all" for index in range(300)}
    plan = ComponentPlacement(section(component_placement=components), INVENTORY).plan()
    sharing = plan.sharing()
    assert sharing.kind == "collocated" and len(sharing.pairs) == 300 * 299 // 2


# ------------------------------------------------------------------------- whatever is changed in what is valid

ODD = [
    *(None, True, -1, 0, 1, 7, 1.5, 2**40, float("nan"), "", " ", "0-7", "7-0", "0:0-1", "all", "cluster", "node"),
    *("${a}", "\ud800", "\0", "9" * 50, [], {}, [[]], [0, 0], {"a": 1}, {"node_ranks": 0}),
]
PIECES = [
    "\n",
    "  ",
    "\t",
    ": ",
    "- ",
    ",",
    ":",
    "-",
    "{",
    "}",
    "[",
    "]",
    "'",
    '"',
    "#",
    "&a ",
    "*a",
    "<<",
    "!",
    "~",
    "|",
    "\0",
]


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """The value with one to three changes somewhere inside: something else, something more, less, or from elsewhere."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        holders = [holder for holder in inside(value) if len(holder)]
        if not holders:
            break
        holder = draw(st.sampled_from(holders))
        key = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
        siblings = list(holder.values()) if isinstance(holder, dict) else holder
        other = copy.deepcopy(draw(st.sampled_from(siblings) | st.sampled_from(ODD) | st.sampled_from(holders)))
        change = draw(st.sampled_from(["replace", "drop", "add", "rename"]))
        if change == "drop":
            del holder[key]
        elif change == "replace":
            holder[key] = other
        elif isinstance(holder, list):
            holder.insert(key, holder[key] if change == "add" else other)
        else:
            keys = st.sampled_from(["label", "node_ranks", "placement", f"{key}s", f"{key},", 5, None, "\ud800"])
            holder[draw(keys)] = holder.pop(key) if change == "rename" else other
    return value


def inside(value: Any) -> list[Any]:
    """The lists and mappings in a value, itself included."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [] if parts is None else [value, *(deeper for part in parts for deeper in inside(part))]


@st.composite
def edited(draw: st.DrawFn, text: str) -> bytes:
    """The text with one to four cuts and pieces put in."""
    for _ in range(draw(st.sampled_from([1, 1, 2, 4]))):
        at = draw(st.integers(0, len(text)))
        piece = draw(
            st.sampled_from([*"0123456789", *text.split(), ""]) | st.sampled_from(PIECES) | st.text(max_size=4)
        )
        text = text[:at] + piece + text[at + draw(st.sampled_from([0, 0, 1, 1, 2, 9])) :]
    return text.encode("utf-8", "surrogatepass")


def holds(ask: Callable[[], Plan]) -> None:
    """What must be true of anything that was asked for: a plan that is right, or a refusal that can be shown."""
    try:
        plan = ask()
    except PlacementError as refused:
        assert_can_be_shown(refused)
    else:
        outcome("planned")
        assert plan.sharing() and plan.idle() is not None and repr(plan)
        if sum(map(len, plan.values())) < 10_000:  # it takes some 10 microseconds a row
            check_plan(plan)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("changed") / "file"


@at_least(planned=0.05)
@given(st.data())
def test_a_changed_section_or_inventory_is_planned_or_refused(data: st.DataObject) -> None:
    inventory = data.draw(inventories())
    section, nodes = data.draw(cluster_sections(inventory)), inventory.to_dict()
    if data.draw(st.booleans()):
        section = data.draw(changed(section))
    else:
        nodes = data.draw(changed(nodes))
    holds(lambda: ComponentPlacement({"cluster": section}, Inventory.from_dict(nodes)).plan())


@pytest.mark.long
@at_least(planned=0.02)
@settings(max_examples=max(300, settings().max_examples))  # of 100, one or three may be planned
@given(data=st.data())
def test_a_changed_file_is_planned_or_refused(data: st.DataObject, file: Path) -> None:
    inventory = data.draw(inventories())
    section = {"cluster": data.draw(cluster_sections(inventory))}
    style = data.draw(st.sampled_from([None, False, True]))
    file.write_bytes(data.draw(edited(yaml.safe_dump(section, default_flow_style=style, sort_keys=False))))
    holds(lambda: ComponentPlacement(file, inventory).plan())
    file.write_bytes(data.draw(edited(yaml.safe_dump(inventory.to_dict()))))
    holds(lambda: ComponentPlacement(section, Inventory.load(file)).plan())


@at_least(planned=0.02)
@given(data=st.data())
def test_a_changed_plan_file_is_loaded_or_refused(data: st.DataObject, file: Path) -> None:
    inventory = data.draw(inventories())
    ComponentPlacement({"cluster": data.draw(cluster_sections(inventory))}, inventory).plan().save(file)
    text = file.read_text()
    if data.draw(st.booleans()):
        file.write_bytes(data.draw(edited(text)))
    else:
        file.write_text(json.dumps(data.draw(changed(json.loads(text)))))
    holds(lambda: Plan.load(file))


ROLES = {
    "num_gpus_per_node": 4,
    "actor": {"device_mapping": "list(range(0,8))", "strategy_args": {"strategy_name": "fsdp2_train"}},
    "infer": {"device_mapping": [0, 1, 4, 5], "num_gpus_per_worker": 2},
    "vllm": {"device_mapping": "[0, 1] + [2 * i for i in range(1, 3)]", "strategy_args": {"strategy_name": "vllm"}},
    "rewards": {"math": {"world_size": 3}},
}
FLAGS = {"actor_num_nodes": 1, "actor_num_gpus_per_node": 4, "rollout_num_gpus": 4, "rollout_num_gpus_per_engine": 2}


@pytest.mark.parametrize(
    ("dialect", "config"), [(roll, ROLES), (slime, FLAGS | {"colocate": True})], ids=["roll", "slime"]
)
def test_a_changed_config_of_another_dialect_is_planned_or_refused(dialect: Any, config: Any, file: Path) -> None:
    inventory = Inventory.uniform(2, 4)

    @at_least(planned=0.1)
    @given(changed(config), edited(yaml.safe_dump(config)))
    def planned_or_refused(value: Any, text: bytes) -> None:
        holds(lambda: dialect.plan(value, inventory))
        file.write_bytes(text)
        holds(lambda: dialect.plan(file, inventory))

    planned_or_refused()

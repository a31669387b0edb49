"""The components of a plan: their decisions, the same rules on other nodes, and the clusters that a plan fits."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from rankplan import (
    Chunks,
    ComponentPlacement,
    HardwareConfig,
    Inventory,
    NodePlacementStrategy,
    Packed,
    PackedPlacementStrategy,
    PlacementError,
    Plan,
    RankMap,
    SupportsInventory,
    arrange,
    register_hardware,
    replan,
)
from rankplan.dialects import DIALECTS
from rankplan.plans.component import Component, Parallel
from rankplan.rlinf import with_section
from support.cases import Case, planned, valid_cases
from support.paths import EXAMPLES

TWO_BY_FOUR = Inventory.uniform(num_nodes=2, num_accelerators=4)


def plan_of(placements: dict[str, Any], inventory: Inventory = TWO_BY_FOUR, **cluster: Any) -> Plan:
    section = {"num_nodes": inventory.num_nodes, "component_placement": placements, **cluster}
    return ComponentPlacement({"cluster": section}, inventory).plan()


def nodes(*entries: Mapping[str, Any]) -> Inventory:
    return Inventory.from_dict({"nodes": [{"ranks": rank, **entry} for rank, entry in enumerate(entries)]})


# ------------------------------------------------------------------------------------------------------- decisions


def test_a_component_keeps_its_decisions() -> None:
    plan = plan_of({"actor,ref": "0-3:0-7", "agent": {"node_group": "node", "placement": "all"}})
    actor, agent = plan["actor"], plan["agent"]
    assert (actor.name, actor.node_groups, actor.visibility) == ("actor", ("cluster",), "own")
    assert (actor.share, actor.engines, actor.parallel) == (None, 1, Parallel())
    assert actor.rule == RankMap.parse("0-3:0-7") and agent.rule == RankMap.parse("0-1")
    assert actor == plan["ref"] and plan["ref"].name == "ref" and actor != agent
    assert actor.inventory is plan.inventory
    assert repr(actor) == "<Component actor: 8 processes, rule RankMap('0-3:0-7')>"


def test_a_component_is_a_sequence_of_its_rows() -> None:
    actor = plan_of({"actor": "all"})["actor"]
    assert len(actor) == 8 and actor[-1] == list(actor)[7] and actor[1:3] == actor.rows[1:3]
    assert actor == actor.rows and actor[5] in actor and actor.index(actor[5]) == 5
    with pytest.raises(ValueError, match="needs all its rows, not a slice"):
        replace(actor, rows=actor[1:])


def test_a_plan_refuses_strangers() -> None:
    actor = plan_of({"actor": "all"})["actor"]
    with pytest.raises(ValueError, match="two components are named 'actor'"):
        Plan(actor.inventory, [actor, actor])
    with pytest.raises(ValueError, match="component 'actor' is placed on another inventory"):
        Plan(Inventory.uniform(2, 8), [actor])


def test_visibility_is_decided_by_component() -> None:
    plan = plan_of({"actor": "0-3:0-1"})
    seen = plan.with_visibility("node")["actor"]
    assert seen.visibility == "node" and seen[0].visible_accelerators == ["0", "1", "2", "3"]
    assert seen.with_settings(visibility="own") == plan["actor"]
    assert ComponentPlacement(
        {"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-3:0-1"}}}, TWO_BY_FOUR
    ).plan(isolate_accelerator=False) == plan.with_visibility("node")


def test_only_keeps_some_components() -> None:
    plan = plan_of({"actor": "0-3", "rollout": "4-7"})
    assert plan.only("rollout").components == ["rollout"] and plan.only("rollout").inventory is plan.inventory
    with pytest.raises(KeyError, match="did you mean `actor`"):
        plan.only("actr")


# ------------------------------------------------------------------------------------------- rules on other nodes


@given(valid_cases())
def test_on_the_same_inventory_gives_the_same_plan(case: Case) -> None:
    plan = planned(case)
    assert plan.on(plan.inventory) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_on_another_inventory_applies_the_rules_again() -> None:
    plan = plan_of({"actor": "0-3:0-1", "rollout": "4-7"})
    on = plan.on(Inventory.uniform(num_nodes=2, num_accelerators=8))
    assert [row.devices for row in on["actor"]] == [[(0, 0), (0, 1)], [(0, 2), (0, 3)]]
    assert [row.devices for row in on["rollout"]] == [[(0, 4)], [(0, 5)], [(0, 6)], [(0, 7)]]
    assert on["actor"].rule == plan["actor"].rule and on.inventory.num_nodes == 2


def test_on_reports_the_faults_of_every_component() -> None:
    plan = plan_of({"actor": "0-3:0-1", "rollout": "4-7", "agent": {"node_group": "node", "placement": 0}})
    with pytest.raises(PlacementError) as refused:
        plan.on(Inventory.uniform(num_nodes=2, num_accelerators=3))
    found = [(fault.path, fault.code) for fault in refused.value.diagnostics]
    assert found == [("actor", "spans-nodes"), ("rollout", "resource-out-of-range")]
    with pytest.raises(PlacementError, match="num_nodes is 2, but the cluster has 1 node"):
        plan.on(Inventory.uniform(num_nodes=1, num_accelerators=8))


@pytest.mark.parametrize("rule", [RankMap.parse("0-7:0-3"), Packed(0, 7, 2, 2), Chunks([4, 5, 0, 1], 2)])
def test_every_rule_places_and_pickles(rule: RankMap | Packed | Chunks, tmp_path: Path) -> None:
    more: dict[str, Any] = {"share": 0.25, "engines": 2, "parallel": Parallel(tp=2)}
    component = Component.place("x", TWO_BY_FOUR, ("cluster",), rule, visibility="node", **more)
    assert pickle.loads(pickle.dumps(component)) == component
    assert len(component) == rule.world_size and component.visibility == "node"
    plan = Plan(TWO_BY_FOUR, [component])
    plan.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert loaded == plan and loaded["x"].parallel == Parallel(tp=2)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()


def test_a_strategy_of_a_config_is_placed_once() -> None:
    section = {"num_nodes": 2, "component_placement": {"actor": "all"}}
    placement = ComponentPlacement({"cluster": section}, TWO_BY_FOUR)
    strategy = placement.get_strategy("actor")
    assert strategy.get_placement(TWO_BY_FOUR).nbytes == placement.plan()["actor"].rows.nbytes
    larger = strategy.get_placement(Inventory.uniform(num_nodes=3, num_accelerators=8))
    assert [row.cluster_node_rank for row in larger] == [0] * 8, "the rule is that of 8 resources"
    assert pickle.loads(pickle.dumps(strategy)) == strategy


def test_a_strategy_of_packed_windows_is_a_rule_too() -> None:
    rows = PackedPlacementStrategy(0, 7, 2, 2).get_placement(TWO_BY_FOUR)
    assert rows == Component.place("x", TWO_BY_FOUR, ("cluster",), Packed(0, 7, 2, 2)).rows


# --------------------------------------------------------------------------------------------- clusters that fit


@given(valid_cases())
def test_a_plan_fits_its_own_inventory(case: Case) -> None:
    plan = planned(case)
    assert plan.fitted(plan.inventory) == plan


def test_a_plan_takes_what_it_leaves_open_from_the_cluster() -> None:
    plan = plan_of({"actor": "0-3:0-1", "rollout": "4-7"})
    ids = [["4", "5", "6", "7"], ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]]
    cluster = nodes(
        {"accelerator_ids": ids[0], "hostname": "a", "ip": "10.0.0.1", "accelerator_model": "H100"},
        {"accelerator_ids": ids[1], "hostname": "b", "ip": "10.0.0.2"},
        {"accelerators": 1},
    )
    fitted = plan.fitted(cluster)
    assert [row.visible_accelerators for row in fitted["actor"]] == [["4", "5"], ["6", "7"]]
    assert [row.visible_accelerators for row in fitted["rollout"]] == [[name] for name in ids[1]]
    assert [row.devices for one in fitted.values() for row in one] == [
        row.devices for one in plan.values() for row in one
    ]
    assert fitted.inventory.num_nodes == 2 and fitted.inventory.node(1).hostname == "b"


def test_only_used_nodes_must_fit() -> None:
    plan = Plan(TWO_BY_FOUR, [Component.place("x", TWO_BY_FOUR, ("cluster",), Chunks([5, 6], 1))])
    fitted = plan.fitted(nodes({"accelerators": 1}, {"accelerators": 4}))
    assert [row.devices for row in fitted["x"]] == [[(1, 1)], [(1, 2)]], "the places stay"


@pytest.mark.parametrize(
    ("rule", "moved"),
    [
        (Chunks([4, 5, 6, 7], 2), Chunks([1, 2, 3, 4], 2)),
        (RankMap.parse("4-5:0,6:1-2"), RankMap.from_lists([[1, 2], [3], [3]])),
    ],
)
def test_the_rule_of_a_fitted_plan_counts_the_accelerators_of_the_cluster(
    rule: Chunks | RankMap, moved: Chunks | RankMap
) -> None:
    plan = Plan(TWO_BY_FOUR, [Component.place("x", TWO_BY_FOUR, ("cluster",), rule)])
    cluster = nodes({"accelerators": 1}, {"accelerators": 4}, {"accelerators": 2})
    assert plan.fitted(cluster)["x"].rule == moved
    assert plan.fitted(Inventory.uniform(3, 4))["x"].rule == rule


def test_a_plan_without_components_fits_every_cluster() -> None:
    cluster = Inventory.uniform(1, 1)
    assert Plan(TWO_BY_FOUR, []).fitted(cluster) == Plan(cluster, [])


STATED = nodes(
    {"accelerator_ids": ["0", "1", "2", "3"], "hostname": "a", "ip": "10.0.0.1"},
    {"accelerator_ids": ["4", "5", "6", "7"], "hostname": "b", "ip": "10.0.0.2"},
)
MISFITS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "other ids": (
        [{}, {"accelerator_ids": ["0", "1", "2", "3"]}],
        ["node 1 (b): the plan has accelerator ids 4,5,6,7, the cluster has 0,1,2,3"],
    ),
    "another vendor": (
        [{"accelerator_type": "NPU"}, {"accelerator_type": "NPU"}],
        ["nodes 0-1: the plan has 4 NV_GPU, the cluster has 4 NPU"],
    ),
    "fewer accelerators": (
        [{}, {"accelerator_ids": ["4", "5", "6"]}],
        ["node 1 (b): the plan has 4 NV_GPU, the cluster has 3 NV_GPU"],
    ),
    "no accelerators": (
        [{"accelerator_ids": []}, {}],
        ["node 0 (a): the plan has 4 NV_GPU, the cluster has no accelerators"],
    ),
    "another order": (
        [{"hostname": "b", "ip": "10.0.0.2"}, {"hostname": "a", "ip": "10.0.0.1"}],
        [
            "node 0 (b): the plan has hostname a, the cluster has b",
            "node 0 (b): the plan has ip 10.0.0.1, the cluster has 10.0.0.2",
            "node 1 (a): the plan has hostname b, the cluster has a",
            "node 1 (a): the plan has ip 10.0.0.2, the cluster has 10.0.0.1",
        ],
    ),
    "no names": ([{"hostname": None}, {}], ["node 0: the plan has hostname a, the cluster has none"]),
}


@pytest.mark.parametrize(("changes", "found"), MISFITS.values(), ids=MISFITS.keys())
def test_a_plan_for_other_hardware_is_refused_node_by_node(changes: list[dict[str, Any]], found: list[str]) -> None:
    plan = plan_of({"actor": "all"}, STATED)
    entries = [{**entry, **change} for entry, change in zip(STATED.to_dict()["nodes"], changes, strict=True)]
    cluster = nodes(
        *({key: value for key, value in entry.items() if key not in ("ranks", "accelerators")} for entry in entries)
    )
    with pytest.raises(PlacementError) as refused:
        plan.fitted(cluster)
    assert [fault.message for fault in refused.value.diagnostics] == found
    assert {fault.code for fault in refused.value.diagnostics} == {"plan-mismatch"}
    assert all(str(fault.help).startswith("plan on this cluster") for fault in refused.value.diagnostics)
    assert not any("not shown" in str(fault.help) for fault in refused.value.diagnostics)


def test_a_cluster_with_fewer_nodes_does_not_fit() -> None:
    plan = Plan(TWO_BY_FOUR, [Component.place("x", TWO_BY_FOUR, ("cluster",), Chunks([0, 5], 1))])
    with pytest.raises(PlacementError, match="node 1: the cluster has fewer nodes"):
        plan.fitted(Inventory.uniform(1, 4))


def test_very_many_mismatches_are_cut() -> None:
    many = nodes(*({"accelerator_ids": [f"GPU-{rank}"]} for rank in range(100)))
    plan = plan_of({"actor": "all"}, many)
    with pytest.raises(PlacementError) as refused:
        plan.fitted(Inventory.uniform(100, 1))
    assert len(refused.value.diagnostics) == 20
    assert str(refused.value.diagnostics[-1].help).endswith("(80 more mismatches not shown)")


# -------------------------------------------------------------------------------------------------------- shares


def shared(**shares: tuple[str, float | None]) -> Plan:
    return Plan(
        TWO_BY_FOUR,
        [
            Component.place(name, TWO_BY_FOUR, ("cluster",), RankMap.parse(text), share=share)
            for name, (text, share) in shares.items()
        ],
    )


def test_shares_that_add_up_to_one_fit() -> None:
    shared(actor=("0-7", 0.8), rollout=("0-7:0-3", 0.2)).check_shares()
    shared(actor=("0-3:0-15", 1.0), rollout=("4-7", 1.0)).check_shares()
    shared(actor=("0-7", 1.0), rollout=("0-7", None)).check_shares()
    shared(**{f"c{index}": ("0-7", 0.1) for index in range(10)}).check_shares()


def test_shares_that_overflow_are_a_fault_of_the_plan() -> None:
    plan = shared(actor=("0-7", 0.8), rollout=("2-5", 0.3), judge=("0", 0.2001), free=("0-7", None))
    with pytest.raises(PlacementError) as refused:
        plan.check_shares()
    assert [(fault.code, fault.message) for fault in refused.value.diagnostics] == [
        (
            "share-overflow",
            "accelerator 0 of node 0: the shares add up to 1.0001 (actor 0.8 + judge 0.2001); at most 1",
        ),
        (
            "share-overflow",
            "accelerators 2-3 of node 0 and 1 more node: the shares add up to 1.1 (actor 0.8 + rollout 0.3); at most 1",
        ),
    ]
    plan.only("actor", "free").check_shares()


# ---------------------------------------------------------------------------------------------- validated once


def test_a_section_is_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Arm(HardwareConfig):
        name: str

        def __init__(self, **values: Any) -> None:
            super().__init__(**values)

    section = {
        "num_nodes": 2,
        "component_placement": {"env": {"node_group": "arms", "placement": 0}, "actor": "0-3"},
        "node_groups": [
            {"label": "arms", "node_ranks": 0, "hardware": {"type": "Arm1", "configs": [{"node_rank": 0, "name": "x"}]}}
        ],
    }
    register_hardware("Arm1", Arm)
    from rankplan.read import shared
    from rankplan.rlinf import section as reading

    def counted(function: Any, name: str) -> Any:
        return lambda *arguments, **values: seen.append(name) or function(*arguments, **values)

    monkeypatch.setattr(shared, "read_cluster", counted(shared.read_cluster, "cluster"))
    monkeypatch.setattr(reading, "Entry", counted(reading.Entry, "Entry"))
    dialect = DIALECTS["rlinf"]
    read = dialect.read({"cluster": section})
    inventory = dialect.assumed_inventory(read)
    plan = dialect.plan(read, inventory)
    plan.fitted(inventory)
    plan.on(inventory)
    with_section(with_section(inventory, read.cluster), read.cluster)
    ComponentPlacement(read, inventory).get_strategy("actor").get_placement(inventory)
    assert sorted(seen) == ["Entry", "Entry", "cluster"]


def test_a_reading_can_be_planned_again_after_a_fault() -> None:
    read = DIALECTS["rlinf"].read({"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-7"}}})
    with pytest.raises(PlacementError):
        ComponentPlacement(read, Inventory.uniform(2, 2))
    assert len(ComponentPlacement(read, TWO_BY_FOUR).plan()["actor"]) == 8


def test_a_faulty_part_leaves_the_rest_of_its_group() -> None:
    group = {
        "label": "g",
        "node_ranks": 0,
        "env_configs": [{"node_ranks": 0, "env_vars": [{"A": None}, {"RANK": "1"}], "python_interpreter_path": "x"}],
    }
    section = {
        "num_nodes": 2,
        "component_placement": {"a": {"node_group": "g", "placement": "0-9"}},
        "node_groups": [group],
    }
    with pytest.raises(PlacementError) as refused:
        ComponentPlacement({"cluster": section}, TWO_BY_FOUR)
    assert [fault.code for fault in refused.value.diagnostics] == [
        "resource-out-of-range",
        "invalid-value",
        "reserved-env-var",
        "invalid-value",
    ]


# ------------------------------------------------------------------------------------------ strategies by hand


def test_a_component_gets_another_strategy() -> None:
    section = {
        "num_nodes": 2,
        "component_placement": {"actor,ref": "0-3", "agent": {"node_group": "node", "placement": 1}},
    }
    placement = ComponentPlacement({"cluster": section}, TWO_BY_FOUR)
    packed, by_node = PackedPlacementStrategy(0, 7, 2, 2), NodePlacementStrategy([1, 0, 1], "cluster")
    changed = placement.with_strategy("ref", packed).with_strategy("judge", by_node)
    assert changed.components == ["actor", "ref", "agent", "judge"] and placement.components == [
        "actor",
        "ref",
        "agent",
    ]
    plan = changed.plan()
    assert plan["ref"] == packed.get_placement(TWO_BY_FOUR) and plan["actor"] == placement.plan()["actor"]
    assert [row.cluster_node_rank for row in plan["judge"]] == [0, 1, 1] and plan["judge"].by_node
    assert all(row.resource_type == "node" for row in plan["judge"])
    assert plan.on(Inventory.uniform(2, 8))["judge"][2].visible_accelerators == [str(index) for index in range(8)]
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert (packed.start_hardware_rank, packed.end_hardware_rank) == (0, 7)
    assert (packed.num_hardware_per_process, packed.stride, by_node.node_ranks) == (2, 2, [0, 1, 1])
    shared = ComponentPlacement(
        {"cluster": {"num_nodes": 2, "component_placement": {"agent": {"node_group": "node", "placement": "0-1:0-3"}}}},
        TWO_BY_FOUR,
    ).get_strategy("agent")
    assert isinstance(shared, NodePlacementStrategy) and shared.node_ranks == [0, 0, 1, 1]


def test_the_example_program_runs_on_a_machine_without_accelerators() -> None:
    config = EXAMPLES / "conf.yaml"
    for accelerators, processes in ((0, 1), (4, 4)):
        plan = ComponentPlacement(config, Inventory.uniform(1, accelerators)).plan()
        assert len(plan["greeter"]) == processes


def test_anything_with_an_inventory_is_placed_on() -> None:
    class Allocation:
        inventory = TWO_BY_FOUR

    class Broken:
        inventory = "2x4"

    allocation: SupportsInventory = Allocation()
    config = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "all"}}}
    assert ComponentPlacement(config, allocation).plan() == ComponentPlacement(config, TWO_BY_FOUR).plan()
    for strategy in (PackedPlacementStrategy(0, 7, 2), NodePlacementStrategy([0, 1])):
        assert strategy.get_placement(allocation) == strategy.get_placement(TWO_BY_FOUR)
    plan = ComponentPlacement(config, TWO_BY_FOUR).plan()
    assert plan.on(allocation) == plan.fitted(allocation) == replan(plan, allocation).plan == plan
    for wrong, found in ((Broken(), "Broken, whose inventory is a str"), ("2x4", "str")):
        for take in (
            PackedPlacementStrategy(0, 7).get_placement,
            plan.on,
            plan.fitted,
            partial(replan, plan),
            partial(arrange, plan),
        ):
            with pytest.raises(
                TypeError, match=f"expected a rankplan.Inventory or .* such as a Cluster, found {found}$"
            ):
                take(wrong)  # type: ignore[operator]


def test_a_subclass_that_replaces_strategies_changes_the_plan(tmp_path: Path) -> None:
    class Mine(ComponentPlacement):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._placements["actor"] = PackedPlacementStrategy(0, 7, 4)

    plan = Mine({"cluster": {"num_nodes": 2, "component_placement": {"actor": "all"}}}, TWO_BY_FOUR).plan()
    assert len(plan["actor"]) == 2
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan

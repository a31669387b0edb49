"""verl's draft of a placement block: its scenarios, and broken variants of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Component, Inventory, PlacementError, Plan, replan
from rankplan._core import Chunks
from rankplan.dialects.convert import convert
from rankplan.trainers.verl.dialect import DIALECT as verl
from support.configs import from_overrides, nodes
from support.outcomes import at_least, outcome
from support.paths import ROOT, TESTS

EXAMPLES = ROOT / "examples" / "verl-topology"
BROKEN: list[dict[str, Any]] = yaml.safe_load((TESTS / "dialects" / "verl_topology.yaml").read_text())
SCENARIOS: list[tuple[str, dict[str, tuple[int, str]]]] = [
    ("sft", {"actor": (16, "0-1")}),
    ("colocated", {"actor": (16, "0-1"), "ref": (16, "0-1"), "rollout": (4, "0-1")}),
    ("separate", {"actor": (16, "0-1"), "critic": (16, "0-1"), "rollout": (3, "2-4"), "reward": (2, "5")}),
    ("spare", {"actor": (16, "0-1"), "rollout": (4, "2-3")}),
]


@pytest.mark.parametrize(("name", "expected"), SCENARIOS, ids=[name for name, _ in SCENARIOS])
def test_each_scenario_of_the_draft_is_an_example(name: str, expected: dict[str, tuple[int, str]]) -> None:
    read = verl.read(EXAMPLES / f"{name}.yaml")
    plan = verl.plan(read, verl.assumed_inventory(read))
    assert {one: (len(component), str(component.used_nodes())) for one, component in plan.items()} == expected
    assert not read.reader.warnings


@pytest.mark.parametrize("row", BROKEN, ids=[f"{row['example']}-{row['other'][:30]}" for row in BROKEN])
def test_each_broken_variant_of_the_draft_is_a_fault(row: dict[str, Any], tmp_path: Path) -> None:
    text = (EXAMPLES / f"{row['example']}.yaml").read_text()
    assert row["part"] in text
    path = tmp_path / "conf.yaml"
    path.write_text(text.replace(row["part"], row["other"]))
    with pytest.raises(PlacementError) as caught:
        read = verl.read(path)
        verl.plan(read, verl.assumed_inventory(read))
    assert [f"{one.line} {one.code}: {one.message} | {one.help}" for one in caught.value.diagnostics] == row["faults"]


WARNED = [
    (
        "attributes: {elastic: true, ",
        "attributes: {color: red, elastic: true, ",
        "`color` is not a key of verl's draft",
    ),
    (
        ", nnodes: 1, n_gpus_per_node: 4}",
        ", nnodes: 1, n_gpus_per_node: 4, note: x}",
        "`note` is not a key of verl's draft",
    ),
    (
        "worker: reward, config_key: reward.reward_model, resource_pool: reward_pool",
        None,
        "no model is on pool `reward_pool`",
    ),
    (
        "{name: reward_pool, cluster: h20, nnodes: 1, n_gpus_per_node: 4}",
        "{name: reward_pool, cluster: h20, nnodes: 1, n_gpus_per_node: 2}\n"
        "    - {name: spare, cluster: h20, nnodes: 1, n_gpus_per_node: 2, "
        "attributes: {standby: true, protects: [infer_pool]}}",
        "pool `spare` reserves a part of node 5: replan takes only whole nodes",
    ),
]


@pytest.mark.parametrize(("part", "other", "message"), WARNED, ids=[one[2] for one in WARNED])
def test_what_the_draft_carries_through_is_a_warning(
    part: str, other: str | None, message: str, tmp_path: Path
) -> None:
    lines = (EXAMPLES / "separate.yaml").read_text().splitlines()
    kept = [line.replace(part, other or part) for line in lines if other is not None or part not in line]
    path = tmp_path / "conf.yaml"
    path.write_text("\n".join(kept))
    read = verl.read(path)
    verl.plan(read, verl.assumed_inventory(read))
    (found,) = read.reader.warnings
    assert found.warning and found.line and found.message.startswith(message)


def test_a_smaller_cluster_than_the_draft_states_is_a_fault() -> None:
    path = EXAMPLES / "separate.yaml"
    for counts, message in (
        ([8, 8, 4, 4], "cluster `h20` needs nodes 2-5 with 4 accelerators, but 4 nodes exist"),
        ([8, 4, 4, 4, 4, 4], "cluster `h100` needs nodes 0-1 with 8 accelerators, but node 1 has 4"),
    ):
        with pytest.raises(PlacementError, match=message):
            verl.plan(path, nodes(counts))


@pytest.mark.parametrize("name", [name for name, _ in SCENARIOS])
def test_a_written_topology_plans_the_same(name: str) -> None:
    read = verl.read(EXAMPLES / f"{name}.yaml")
    plan = verl.plan(read, verl.assumed_inventory(read))
    conversion = convert(plan, "verl", topology=True)
    assert conversion.omitted == ()
    again = verl.plan(conversion.config, plan.inventory)
    assert {name: (list(one), one.parallel, one.share) for name, one in plan.items()} == {
        name: (list(one), one.parallel, one.share) for name, one in again.items()
    }


WORKERS = ["actor", "critic", "rollout", "reward", "ref"]


@st.composite
def topologies(draw: st.DrawFn) -> dict[str, Any]:
    """Return a topology; pools may not fit, or have parts of nodes, and states of attributes may contradict."""
    clusters = [
        {"name": f"cluster{index}", "nnodes": draw(st.integers(1, 5)), "n_gpus_per_node": each}
        for index, each in enumerate(draw(st.lists(st.sampled_from([4, 8]), min_size=1, max_size=2)))
    ]
    pools: list[dict[str, Any]] = []
    for index in range(draw(st.integers(1, 5))):
        cluster = draw(st.sampled_from(clusters))
        each = draw(st.sampled_from([cluster["n_gpus_per_node"]] * 2 + [2, 4]))
        nodes = draw(st.integers(1, 2 if each == cluster["n_gpus_per_node"] else 1))
        pool = {"name": f"p{index}", "cluster": cluster["name"], "nnodes": nodes, "n_gpus_per_node": each}
        pools.append(pool)
    models = []
    for name in draw(st.permutations(WORKERS))[: draw(st.integers(1, 4))]:
        pool = draw(st.sampled_from(pools))
        models.append({"name": name, "worker": name, "config_key": f"my_{name}", "resource_pool": pool["name"]})
    used = {model["resource_pool"] for model in models}
    for pool in pools:
        total = pool["nnodes"] * pool["n_gpus_per_node"]
        if pool["name"] not in used:
            protects = draw(st.lists(st.sampled_from(sorted(used)), max_size=2, unique=True))
            pool["attributes"] = {"standby": True} | ({"protects": protects} if protects else {})
        elif draw(st.booleans()):
            pool["attributes"] = {"elastic": True, "min_gpus": draw(st.integers(1, total)), "max_gpus": total + 8}
    engines = {f"my_{name}": {"rollout": {"tensor_model_parallel_size": 2}} for name in ("rollout", "reward")}
    return {"topology": {"clusters": clusters, "device_pools": pools, "models": models}, **engines}


@at_least(planned=0.15)
@given(topologies(), st.integers(0, 2))
def test_a_plan_of_a_topology_is_the_same_when_written_and_read(config: dict[str, Any], more: int) -> None:
    try:
        known = verl.assumed_inventory(verl.read(config)).to_dict()["nodes"]
        count = sum(cluster["nnodes"] for cluster in config["topology"]["clusters"])
        inventory = Inventory.from_dict({"nodes": [*known, *({"ranks": count + at} for at in range(more))]})
        plan = rankplan.plan(config, inventory)
    except PlacementError as error:
        assert error.code == "resource-out-of-range"
        return
    outcome("planned")
    assert not plan.rule_faults()
    conversion = convert(plan, "verl", topology=True)
    assert conversion.omitted == conversion.added == ()
    assert rankplan.plan(conversion.config, inventory) == plan
    assert not any("pools" in line for line in convert(plan, "rlinf").omitted)


def test_what_verl_cannot_say_of_pools_is_named() -> None:
    """A pool of verl has every model on its accelerators, and a reserve is of one machine type."""
    nodes = [{"ranks": "0-2", "accelerators": 8}, {"ranks": "3", "accelerators": 4}]
    pools = [
        {"name": "all", "components": ["actor", "rollout"], "max_accelerators": 24},
        {"name": "infer", "components": ["rollout"], "min_accelerators": 8},
        {"name": "part", "components": ["ref"], "max_accelerators": 8},
        {"name": "spare", "node_ranks": "2-3", "protects": ["infer", "all"]},
    ]
    placed = {"actor": "0-7", "ref": "0-7", "rollout": {"placement": "8-15", "parallel": {"tp": 4}}}
    section = {"num_nodes": 4, "component_placement": placed, "pools": pools}
    plan = rankplan.plan({"cluster": section}, Inventory.from_dict({"nodes": nodes}))
    conversion = convert(plan, "verl", topology=True)
    assert [line for line in conversion.omitted if "pools" in line] == ["`cluster.pools`, all, part, spare"]
    written = conversion.config["topology"]["device_pools"]
    assert [pool for pool in written if pool["name"] == "infer"] == [
        {
            "name": "infer",
            "cluster": "cluster0",
            "nnodes": 1,
            "n_gpus_per_node": 8,
            "attributes": {"elastic": True, "min_gpus": 8},
        }
    ]
    for to, lost in (("verl", "all, infer, part, spare"), ("slime", "all, infer, spare")):  # slime has no ref
        assert f"`cluster.pools`, {lost}" in convert(plan, to).omitted
    assert not any("pools" in line for line in convert(plan, "rlinf").omitted)


def test_what_must_stay_idle_is_written_as_standby() -> None:
    """The actor is on node 1, and on half of node 2; nothing is on node 0 and the first half of node 2."""
    section = {"num_nodes": 4, "component_placement": {"actor": "8-15", "rollout": {"placement": "20-23:0"}}}
    plan = rankplan.plan({"cluster": section}, nodes([8] * 4))
    conversion = convert(plan, "verl", topology=True)
    assert [(pool["name"], pool["nnodes"]) for pool in conversion.config["topology"]["device_pools"]] == [
        ("idle_pool0", 1),
        ("actor_pool", 1),
        ("idle_pool2", 1),
        ("rollout_pool", 1),
    ]
    again = rankplan.plan(conversion.config, plan.inventory)
    assert {name: [row.devices for row in one] for name, one in again.items()} == {
        name: [row.devices for row in one] for name, one in plan.items()
    }


def test_a_topology_of_todays_keys_has_the_same_pools() -> None:
    words = [
        "trainer.nnodes=1",
        "algorithm.adv_estimator=gae",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=4",
    ]
    words += [f"reward.reward_model.{one}" for one in ("enable=true", "enable_resource_pool=true", "nnodes=1")]
    plan = verl.plan(from_overrides(words), nodes([8, 8]))
    conversion = convert(plan, "verl", topology=True)
    assert conversion.omitted == ()
    assert [pool["name"] for pool in conversion.config["topology"]["device_pools"]] == ["actor_pool", "reward_pool"]
    again = verl.plan(conversion.config, plan.inventory)
    assert {name: list(one) for name, one in again.items()} == {name: list(one) for name, one in plan.items()}


def test_what_a_topology_cannot_express_is_named() -> None:
    plan = verl.plan(from_overrides(["trainer.nnodes=1", "algorithm.adv_estimator=grpo"]), nodes([8]))
    part = Component.place("critic", plan.inventory, ("cluster",), Chunks([0, 1], 1))
    env = Component.place("env", plan.inventory, ("cluster",), plan["actor"].rule)
    conversion = convert(Plan(plan.inventory, [*plan.values(), part, env]), "verl", topology=True)
    assert conversion.omitted == (
        "critic: it has a part of the accelerators of actor",
        "env: verl's draft has no such worker",
    )
    with pytest.raises(ValueError, match="only verl has a topology section"):
        convert(plan, "roll", topology=True)


def topology(**attributes: Any) -> Plan:
    """Return a job of two pools of two nodes and a standby pool of one, in this order: train, spare, infer."""
    pools = [
        {"name": "train", "cluster": "all", "nnodes": 2, "n_gpus_per_node": 8},
        {"name": "spare", "cluster": "all", "nnodes": 1, "n_gpus_per_node": 8, "attributes": {"standby": True}},
        {"name": "infer", "cluster": "all", "nnodes": 2, "n_gpus_per_node": 8},
    ]
    for pool in pools:
        pool["attributes"] = {**pool.get("attributes", {}), **attributes.get(pool["name"], {})}
    models = [
        {"name": name, "worker": name, "config_key": "actor_rollout_ref", "resource_pool": pool}
        for name, pool in (("actor", "train"), ("rollout", "infer"))
    ]
    clusters = [{"name": "all", "nnodes": 5, "n_gpus_per_node": 8}]
    section = {"clusters": clusters, "device_pools": pools, "models": models}
    config = {"topology": section, "actor_rollout_ref": {"rollout": {"tensor_model_parallel_size": 8}}}
    return rankplan.plan(config, CLUSTER.first(5))


CLUSTER = Inventory.from_dict(
    {"nodes": [{"ranks": rank, "accelerators": 8, "hostname": f"n{rank}"} for rank in range(9)]}
)


def hosts(plan: Plan, component: str) -> list[str]:
    return [plan.inventory.node(rank).name for rank in plan[component].used_nodes()]


def test_a_reserve_is_for_the_pools_that_it_protects() -> None:
    plan = topology(spare={"protects": ["train"]})
    five = CLUSTER.first(5)
    assert hosts(replan(plan, five, without=["n0"]).plan, "actor") == ["n2", "n1"]
    with pytest.raises(PlacementError) as refused:
        replan(plan, five, without=["n3"])
    assert refused.value.code == "no-spare"
    # Other spares are for everybody; if both pools lose a node, each gets one that it may use.
    assert hosts(replan(plan, CLUSTER.first(6), without=["n3"]).plan, "rollout") == ["n5", "n4"]
    both = replan(plan, CLUSTER.first(6), without=["n0", "n3"]).plan
    assert (hosts(both, "actor"), hosts(both, "rollout")) == (["n2", "n1"], ["n5", "n4"])
    loaded = Plan.from_dict(plan.to_dict())
    assert loaded == plan
    with pytest.raises(PlacementError):
        replan(loaded, five, without=["n4"])
    assert (
        hosts(replan(topology(spare={"protects": ["train", "infer"]}), five, without=["n3"]).plan, "rollout")[0] == "n2"
    )


def test_a_broken_accelerator_moves_nothing_to_a_strange_reserve() -> None:
    plan = topology(spare={"protects": ["train"]})
    with pytest.raises(PlacementError) as refused:
        replan(plan, CLUSTER.first(5), without=["n3/0"])
    assert refused.value.code == "no-spare"


def test_a_reserve_is_used_for_growth_of_the_pools_that_it_protects() -> None:
    plan, five = topology(spare={"protects": ["infer"]}), CLUSTER.first(5)
    found = replan(plan, five, grow={"rollout": 1}).plan
    assert hosts(found, "rollout") == ["n2", "n3", "n4"] and hosts(found, "actor") == ["n0", "n1"]
    assert not any(pool.node_ranks for pool in found.rules.pools)
    other = topology(spare={"protects": ["train"]})
    with pytest.raises(PlacementError) as refused:
        replan(other, five, grow={"rollout": 1})
    assert refused.value.message == "rollout: no 1 more node with 8 NV_GPU; none can be added"


def test_bounds_hold_for_growing_and_shrinking() -> None:
    plan = topology(infer={"elastic": True, "min_gpus": 16, "max_gpus": 24}, spare={"protects": ["train"]})
    assert hosts(replan(plan, CLUSTER, grow={"rollout": 1}).plan, "rollout") == ["n3", "n4", "n5"]
    with pytest.raises(PlacementError) as refused:
        replan(plan, CLUSTER, grow={"rollout": 2})
    assert refused.value.message == "pool `infer` would have 32 accelerators; at most 24 are allowed"
    assert refused.value.help == "grow by less, or plan again with other bounds of the pool"
    with pytest.raises(PlacementError) as refused:
        replan(plan, CLUSTER, shrink={"rollout": 1})
    assert refused.value.message == "pool `infer` would have 8 accelerators; at least 16 must stay"
    with pytest.raises(PlacementError) as refused:
        replan(plan, CLUSTER.first(5), without=["n3"], shrink="rollout")
    assert refused.value.help is not None and "at least 16 must stay" in refused.value.help


def test_pools_of_a_cluster_section() -> None:
    """Any config can state reserves and bounds; wrong names and sizes are faults."""
    entry = {"placement": "0-15", "parallel": {"tp": 8}}
    section: dict[str, Any] = {"num_nodes": 3, "component_placement": {"actor": entry}}
    good = [{"name": "train", "components": ["actor"]}, {"name": "spare", "node_ranks": 2, "protects": ["train"]}]
    plan = rankplan.plan({"cluster": {**section, "pools": good}}, CLUSTER.first(3))
    assert hosts(replan(plan, CLUSTER.first(3), without=["n0"]).plan, "actor") == ["n2", "n1"]
    wrong = [
        {"name": "train", "components": ["actr"], "min_accelerators": 8},
        {"name": "spare", "node_ranks": "2-3", "protects": ["train"]},
    ]
    with pytest.raises(PlacementError) as refused:
        rankplan.plan({"cluster": {**section, "pools": wrong}}, CLUSTER.first(3))
    assert [(one.path, one.code) for one in refused.value.diagnostics] == [
        ("cluster.pools[0].components[0]", "unknown-component"),
        ("cluster.pools[1].node_ranks", "node-out-of-range"),
    ]

"""Which CPUs the processes of a plan get: per component, shared and spare ones, and what contradicts the facts."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from rankplan import ComponentPlacement, Inventory, PlacementError, Plan, RankSet
from rankplan.cli import main
from rankplan.render.map.model import map_of, tip
from rankplan.render.rows import csv_rows

# Two sockets of 8 cores with two threads, four accelerators each; the second node has no facts.
NODE = {
    "accelerators": [{"id": str(index), "numa": index // 4} for index in range(8)],
    "numa": {0: "0-7,16-23", 1: "8-15,24-31"},
    "memory": {0: 1000, 1: 1000},
    "sockets": ["0", "1"],
    "cores": ["0,16 x16"],
    "caches": ["0-3,16-19 x4 +4"],
}
NODES = {"nodes": [{"ranks": 0, **NODE}, {"ranks": 1, "accelerators": 8}]}


def planned(components: dict[str, Any], inventory: dict[str, Any] = NODES, **cluster: Any) -> Plan:
    known = Inventory.from_dict(inventory)
    section = {"num_nodes": known.num_nodes, "component_placement": components, **cluster}
    return ComponentPlacement({"cluster": section}, known).plan()


@pytest.mark.parametrize(
    ("policy", "first", "last"),
    [
        ("node", "0-7,16-23", "8-15,24-31"),
        ("socket", "0-7,16-23", "8-15,24-31"),
        ("exclusive", "0-1,16-17", "14-15,30-31"),
        ("core-complex", "0-3,16-19", "12-15,28-31"),
    ],
)
def test_the_policies(policy: str, first: str, last: str) -> None:
    actor = planned({"actor": {"placement": "0-15", "binding": policy}})["actor"]
    assert [str(actor.cpus(rank)) for rank in (0, 7)] == [first, last]
    assert actor.cpus(8) is None  # nothing is known of its node
    with pytest.raises(IndexError):
        actor.cpus(16)


def test_several_accelerators_give_the_union() -> None:
    actor = planned({"actor": {"placement": "0-7:0-0", "binding": "node"}})["actor"]
    assert str(actor.cpus(0)) == "0-31"
    two = planned({"actor": {"placement": "0-7:0-3", "binding": "exclusive"}})["actor"]
    assert [str(two.cpus(rank)) for rank in (1, 2)] == ["4-7,20-23", "8-11,24-27"]


def test_processes_on_one_accelerator_share_its_cores() -> None:
    plan = planned({"actor": {"placement": "0-1:0-3"}, "rollout": "0-1"}, binding="exclusive")
    assert [str(plan["actor"].cpus(rank)) for rank in range(4)] == ["0-1,16-17"] * 2 + ["2-3,18-19"] * 2
    assert plan["rollout"].cpus(1) == plan["actor"].cpus(2)


def test_an_entry_decides_before_the_cluster() -> None:
    plan = planned({"actor": {"placement": "0-1", "binding": "none"}, "rollout": "0-1"}, binding="node")
    assert plan["actor"].cpus(0) is None and str(plan["rollout"].cpus(0)) == "0-7,16-23"


def test_components_without_accelerators_get_the_cores_that_are_left() -> None:
    components = {"actor": "0-5", "agent": {"placement": "0-1", "node_group": "node"}}
    plan = planned(components, binding="exclusive")
    assert str(plan["agent"].cpus(0)) == "12-15,28-31"
    assert planned({**components, "actor": "0-7"}, binding="exclusive")["agent"].cpus(0) is None
    assert planned(components, binding="node")["agent"].cpus(0) is None
    assert plan.only("actor")["actor"].cpus(5) == plan["actor"].cpus(5)


def test_the_memory_follows_the_cores() -> None:
    actor = planned({"actor": {"placement": "0-7", "binding": "node", "memory_binding": "bind"}})["actor"]
    bound = [actor.bound(rank) for rank in (0, 7)]
    assert [(found.memory, str(found.memory_nodes)) for found in bound] == [("bind", "0"), ("bind", "1")]
    unbound = planned({"actor": {"placement": "0-7", "memory_binding": "preferred"}})["actor"].bound(7)
    assert (str(unbound.cpus), str(unbound.memory_nodes)) == ("", "1")


def test_known_facts_that_contradict_a_binding_are_faults() -> None:
    few = {"nodes": [{"ranks": "0-1", **NODE, "numa": {0: "0-2", 1: "8-15"}, "memory": {1: 1000}}]}
    with pytest.raises(PlacementError) as caught:
        planned({"actor": {"placement": "0-15", "binding": "exclusive"}}, few)
    found = caught.value
    assert (found.code, found.path) == ("binding-unmet", "cluster.component_placement.actor.binding")
    assert found.message == (
        "actor: binding exclusive is not possible on accelerators 0-3 of node 0 and 1 more node: NUMA node 0 has 3 "
        "usable cores for 4 accelerators"
    )
    with pytest.raises(PlacementError, match=r"memory_binding bind is not possible on node 0.*NUMA nodes of its CPUs"):
        planned({"actor": {"placement": "0", "binding": "node", "memory_binding": "bind"}}, few)


def test_a_fault_of_a_later_node_is_found() -> None:
    few = {"nodes": [{"ranks": 0, **NODE}, {"ranks": 1, **NODE, "numa": {0: "0-2", 1: "8-15"}}]}
    with pytest.raises(PlacementError, match="on accelerators 0-3 of node 1: NUMA node 0 has 3 usable cores"):
        planned({"actor": {"placement": "0-15", "binding": "exclusive"}}, few)
    # Equal nodes, of which the first uses only accelerators near enough cores.
    few = {"nodes": [{"ranks": "0-1", **NODE, "numa": {0: "0-2", 1: "8-15"}}]}
    planned({"actor": {"placement": "4-7", "binding": "exclusive"}}, few)
    with pytest.raises(PlacementError, match="on accelerators 0-1 of node 1: NUMA node 0 has 3 usable cores"):
        planned({"actor": {"placement": "4-9", "binding": "exclusive"}}, few)


def test_missing_facts_are_no_faults() -> None:
    unknown = {"nodes": [{"ranks": 0, "accelerators": 8, "numa": NODE["numa"]}]}
    for policy in ("node", "socket", "exclusive", "core-complex"):
        plan = planned({"actor": {"placement": "0-7", "binding": policy}}, unknown)
        assert plan["actor"].cpus(0) is None


def test_a_binding_survives_files_and_pickles(tmp_path: Path) -> None:
    entry = {"placement": "0-7", "memory_binding": "preferred", "egl": True, "nics": "set"}
    plan = planned({"actor": entry}, binding="exclusive")
    plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again == plan and again["actor"].cpus(7) == plan["actor"].cpus(7)
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()
    assert pickle.loads(pickle.dumps(plan)) == plan
    other = planned({"actor": entry}, binding="node")
    assert other["actor"] != plan["actor"] and other["actor"].rows == plan["actor"].rows


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"binding": "numa"}, "`binding` is 'numa'; it must be none, node, socket, exclusive or core-complex"),
        ({"memory_binding": "strict"}, "`memory_binding` is 'strict'; it must be none, preferred or bind"),
        ({"nics": True}, "`nics` is true; it must be check or set"),
        ({"egl": "maybe"}, "`egl` is 'maybe'; it must be true or false"),
    ],
)
def test_unknown_words_are_faults(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(PlacementError) as caught:
        planned({"actor": {"placement": "0", **entry}})
    assert caught.value.message == message
    if "egl" not in entry:
        with pytest.raises(PlacementError) as caught:
            planned({"actor": "0"}, **entry)
        assert (caught.value.message, caught.value.path) == (message, f"cluster.{next(iter(entry))}")


# ------------------------------------------------------------------------------------------------------- the commands


def test_the_commands_show_the_cpus(tmp_path: Path) -> None:
    conf, nodes = tmp_path / "conf.yaml", tmp_path / "nodes.yaml"
    entry = {"placement": "4-5", "binding": "core-complex", "memory_binding": "preferred", "nics": "set", "egl": True}
    section = {"num_nodes": 1, "component_placement": {"actor": entry, "rollout": "0"}}
    conf.write_text(yaml.safe_dump({"cluster": section}))
    cards = [{**one, "nic": f"mlx5_{one['id']}"} for one in NODE["accelerators"]]  # type: ignore[attr-defined]
    nodes.write_text(yaml.safe_dump({"nodes": [{"ranks": 0, **NODE, "accelerators": cards, "ip": "10.0.0.1"}]}))
    given = [str(conf), "--inventory", str(nodes)]

    def said(*words: str) -> str:
        done = CliRunner().invoke(main, [*words[:1], *given, *words[1:]])
        assert done.exit_code == 0, done.output
        return done.stdout

    table = said("plan").splitlines()
    assert "CPUs" in table[0] and "8-11,24-27" in table[1] and " any" in table[3]
    rows = json.loads(said("plan", "--format", "json"))
    assert [row["cpus"] for row in rows] == ["8-11,24-27", "12-15,28-31", None]
    assert said("plan", "--format", "rankfile", "--component", "actor").splitlines() == [
        "rank 0=10.0.0.1 slot=8-11",
        "rank 1=10.0.0.1 slot=12-15",
    ]
    env = said("env", "--component", "actor", "--rank", "1")
    assert "# CPUs: start it with taskset --cpu-list 12-15,28-31\n" in env
    assert "# memory: start it with numactl --preferred-many=1\n" in env
    assert "# EGL_DEVICE_ID and MUJOCO_EGL_DEVICE_ID are omitted: a launch asks EGL on the node\n" in env
    assert "export NCCL_IB_HCA==mlx5_5:1\n" in env


def test_the_map_and_the_rows_have_the_cpus() -> None:
    plan = planned({"actor": {"placement": "0-1", "binding": "exclusive"}, "rollout": "0-1"})
    picture = map_of(plan)
    tips = [tip(plan, band, strip) for strip in picture.nodes[0].strips for lane in strip.lanes for band in lane]
    assert [line for text in tips for line in text.splitlines() if "CPUs" in line] == [
        "CPUs 0-1,16-17",
        "CPUs 2-3,18-19",
    ]
    header, first, *_ = csv_rows(plan)
    assert header.endswith(",cpus,coordinates\n") and first.endswith(',"0-1,16-17",\n')
    assert not any("cpus" in line for line in csv_rows(planned({"actor": "0-1"})))


def test_a_folded_table_has_the_cpus_of_each_node(tmp_path: Path) -> None:
    conf, nodes = tmp_path / "conf.yaml", tmp_path / "nodes.yaml"
    placement = {"actor": {"placement": "0-159", "binding": "exclusive"}, "rollout": "0-7"}
    conf.write_text(yaml.safe_dump({"cluster": {"num_nodes": 20, "component_placement": placement}}))
    other = {"ranks": "10-19", "accelerators": 8}
    nodes.write_text(yaml.safe_dump({"nodes": [{"ranks": "0-9", **NODE}, other]}))
    shown = CliRunner().invoke(main, ["plan", str(conf), "--inventory", str(nodes)]).stdout.splitlines()
    assert shown[0].endswith("CPUs") and shown[1].endswith("0-31, each rank its own")
    assert " 10-19 " in shown[2] and shown[2].endswith(" any")


def test_the_inventory_command_shows_the_facts(tmp_path: Path) -> None:
    cards = [{**one, "nic": "mlx5_0", "distance": "PIX", "uuid": f"GPU-{one['id']}"} for one in NODE["accelerators"]]  # type: ignore[attr-defined]
    cards[3] = {**cards[3], "problem": "it fell off the bus"}
    nic = {"name": "mlx5_0", "rate": 400, "numa": 0}
    memory = {0: 515_000, 1: 515_000, 2: 98_304}
    node = {**NODE, "accelerators": cards, "nics": [nic, {"name": "mlx5_1", "active": False}], "memory": memory}
    path = tmp_path / "nodes.yaml"
    path.write_text(
        yaml.safe_dump({"nodes": [{"ranks": "0-1", **node}, {"ranks": 2, **NODE}, {"ranks": 3, "accelerators": 8}]})
    )
    done = CliRunner().invoke(main, ["inventory", "--inventory", str(path), "-o", str(tmp_path / "again.yaml")])
    assert done.exit_code == 0
    assert (
        "\n".join(done.stdout.splitlines()[2:]) + "\n"
        == """\
hardware of nodes 0-1:
  2 sockets, 16 cores with 2 threads, 4 largest caches
  NUMA node 0: CPUs 0-7,16-23, 503 GiB
  NUMA node 1: CPUs 8-15,24-31, 503 GiB
  NUMA node 2: no CPUs, 96 GiB
  accelerators 0-3: NUMA node 0, card mlx5_0 (PIX)
  accelerators 4-7: NUMA node 1, card mlx5_0 (PIX)
  card mlx5_0: 400 Gbit/s, NUMA node 0
  card mlx5_1: down
hardware of node 2:
  2 sockets, 16 cores with 2 threads, 4 largest caches
  NUMA node 0: CPUs 0-7,16-23, 1 GiB
  NUMA node 1: CPUs 8-15,24-31, 1 GiB
  accelerators 0-3: NUMA node 0
  accelerators 4-7: NUMA node 1
node-0: accelerator 3: it fell off the bus
"""
    )
    assert Inventory.load(tmp_path / "again.yaml") == Inventory.load(path)


def test_a_part_of_a_plan_gets_the_cores_that_the_others_left(tmp_path: Path) -> None:
    node = {
        "ranks": 0,
        "accelerators": [{"numa": index % 2} for index in range(4)],
        "numa": {0: "0-7", 1: "8-15"},
        "cores": ["0 x16"],
    }
    roles = {
        "actor": {"placement": "2-3", "binding": "exclusive"},
        "env": {"node_group": "node", "placement": 0, "binding": "exclusive"},
    }
    inventory = Inventory.from_dict({"nodes": [node]})
    plan = ComponentPlacement({"cluster": {"num_nodes": 1, "component_placement": roles}}, inventory).plan()
    assert plan["env"].cpus(0) == plan.only("env")["env"].cpus(0) == RankSet("0-3,8-11")
    assert plan.on(inventory)["env"].cpus(0) == RankSet("0-3,8-11")
    part = plan.only("env")
    assert (
        part
        != ComponentPlacement(
            {"cluster": {"num_nodes": 1, "component_placement": {"env": roles["env"]}}}, inventory
        ).plan()
    )
    assert part.on(inventory)["env"].cpus(0) == RankSet("0-3,8-11")
    part.save(tmp_path / "part.json")
    assert Plan.load(tmp_path / "part.json") == part
    assert Plan.load(tmp_path / "part.json")["env"].cpus(0) == RankSet("0-3,8-11")
    smaller = Inventory.from_dict({"nodes": [{**node, "accelerators": node["accelerators"][:2]}]})
    assert part.on(smaller)["env"].cpus(0) is None, "the actor cannot run there"

"""``rankplan diff``: every process that changes is in one line, every other process in none."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from rankplan import ComponentPlacement, Inventory, Plan, diff
from rankplan._core import RankSet
from rankplan.render.changes import blocks
from rankplan.trainers.roll.dialect import DIALECT as roll
from support.commands import run

pytestmark = pytest.mark.usefixtures("own_folder")

TWO = {
    "num_nodes": 2,
    "component_placement": {"actor": "0-7", "rollout": "8-11:0-1", "agent": {"node_group": "node", "placement": "all"}},
}
THREE = {
    "num_nodes": 3,
    "component_placement": {
        "actor": "8-15",
        "rollout": "8-15:0-3",
        "agent": {"node_group": "node", "placement": "0-1"},
        "critic": 0,
    },
}


def plan(cluster: dict[str, Any], inventory: Inventory | None = None) -> Plan:
    return ComponentPlacement({"cluster": cluster}, inventory or Inventory.uniform(cluster["num_nodes"], 8)).plan()


def written(name: str, cluster: dict[str, Any]) -> str:
    Path(name).write_text(json.dumps({"cluster": cluster}))
    return name


def compared(*arguments: str) -> Result:
    return run("diff", *arguments)


def lines(result: Result) -> list[list[str]]:
    """Return the cells of a table without its heading."""
    return [[cell.strip() for cell in line.split("  ") if cell] for line in result.stdout.splitlines()[1:]]


def test_one_line_per_block_of_ranks_size_and_node() -> None:
    done = compared(written("two.yaml", TWO), written("three.yaml", THREE), "--nodes", "3x8")
    assert done.exit_code == 1
    assert lines(done) == [
        ["node 2", "-", "accelerators 8, accelerator_type NV_GPU"],
        ["rollout", "2 processes", "4 processes"],
        ["critic", "-", "1 process"],
        ["actor 0-7", "node 0: 0-7", "node 1: 0-7"],
        ["rollout 2-3", "-", "node 1: 4-7"],
        ["critic 0", "-", "node 0: 0"],
    ]


def test_excluded_hardware_is_a_difference_of_the_nodes() -> None:
    nodes = Inventory.uniform(3, 8)
    before, after = plan(TWO, nodes), plan(TWO, nodes.without(["node-1/7", "node-1/6", "node-2"]))
    found = diff(before, after)
    assert [(one.what, one.before, one.after) for one in found.nodes] == [
        ("node 1", {"unhealthy": None}, {"unhealthy": "6-7"})
    ]
    before.save("a.json")
    plan({**TWO, "component_placement": {"actor": "0-7"}}, nodes.without(["node-1"])).save("b.json")
    assert ["node 1", "healthy -", "healthy false"] in lines(compared("a.json", "b.json"))


def test_the_same_as_json() -> None:
    done = compared(written("two.yaml", TWO), written("three.yaml", THREE), "--nodes", "3x8", "--format", "json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["nodes"] == [
        {"what": "node 2", "before": None, "after": {"accelerators": 8, "accelerator_type": "NV_GPU"}}
    ]
    assert found["world_sizes"] == {"rollout": {"before": 2, "after": 4}, "critic": {"before": None, "after": 1}}
    assert [(block["component"], block["ranks"]) for block in found["processes"]] == [
        ("actor", "0-7"),
        ("rollout", "2-3"),
        ("critic", "0"),
    ]
    assert found["processes"][0]["before"]["nodes"] == {"0": "0-7"}
    assert found["processes"][1]["before"] is None


def test_equal_plans_exit_with_0_in_any_dialect() -> None:
    written("conf.yaml", {"num_nodes": 2, "component_placement": {"actor": "0-7:0-3", "rollout": "8-15"}})
    Path("roll.yaml").write_text(
        "num_gpus_per_node: 8\n"
        "actor: {device_mapping: 'list(range(0,8))', num_gpus_per_worker: 2}\n"
        "rollout: {device_mapping: 'list(range(8,16))'}\n"
    )
    assert run("plan", "conf.yaml", "--nodes", "2x8", "--save", "plan.json").exit_code == 0
    for first, second in itertools.product(["conf.yaml", "roll.yaml", "plan.json"], repeat=2):
        options = [] if first == second == "plan.json" else ["--nodes", "2x8"]
        done = compared(first, second, *options)
        assert (done.exit_code, done.stdout) == (0, "no difference\n"), (first, second)


TEXTS = ["0-7", "8-15", "0-15", "0-7:0-3", "8-11:0-7", "1-8", "0-3,12-15", "0,3-5,9-13", "0-1:0-7,2-9:8-11"]


@pytest.mark.parametrize(("first", "second"), list(itertools.product(TEXTS, repeat=2)))
def test_blocks_have_each_changed_process_once_with_its_place(first: str, second: str) -> None:
    here, there = (plan({"num_nodes": 2, "component_placement": {"actor": text}}) for text in (first, second))
    found = diff(here, there)
    assert bool(found) == (here != there)
    moves = {move.rank: move for move in found.moves()}
    shown = list(blocks(found))
    assert [rank for block in shown for rank in block.ranks] == sorted(moves)
    for block in shown:
        for side, rows in ((block.before, here["actor"]), (block.after, there["actor"])):
            devices = [device for rank in block.ranks for device in (rows[rank].devices if side else [])]
            assert devices == sorted(devices), "the places of a block ascend"
            by_node: dict[int, list[int]] = {}
            for node, index in devices:
                by_node.setdefault(node, []).append(index)
            assert (side.nodes if side else {}) == {node: RankSet(indices) for node, indices in by_node.items()}


def test_processes_that_swap_places_are_separate_lines() -> None:
    orders = ["[0,1,2,3,4,5]", "[3,4,5,0,1,2]"]
    here, there = (roll.plan({"a": {"device_mapping": order}}, Inventory.uniform(2, 3)) for order in orders)
    assert [block.cells() for block in blocks(diff(here, there))] == [
        ("node 0: 0-2", "node 1: 0-2"),
        ("node 1: 0-2", "node 0: 0-2"),
    ]


def test_a_large_move_is_one_line_and_many_moves_are_cut() -> None:
    thousand = Inventory.uniform(1001, 8)
    here, there = (
        plan({"num_nodes": 1001, "component_placement": {"a": text}}, thousand) for text in ("0-7999", "8-8007")
    )
    (block,) = blocks(diff(here, there))
    assert (str(block.ranks), *block.cells()) == ("0-7999", "nodes 0-999: 0-7", "nodes 1-1000: 0-7")
    Path("here.yaml").write_text("a: {device_mapping: 'list(range(0,400))'}\n")
    Path("there.yaml").write_text("a: {device_mapping: '[399 - i for i in range(400)]'}\n")
    shown = lines(compared("here.yaml", "there.yaml", "--nodes", "50x8"))
    assert len(shown) == 65 and shown[-1] == ["a: and 336 more lines"]


def test_different_nodes_and_node_groups_are_listed() -> None:
    nodes = [{"ranks": rank, "accelerators": 8, "ip": f"10.0.0.{rank}"} for rank in range(3)]
    moved = [{**node, "ip": f"10.0.1.{node['ranks']}"} for node in nodes]
    group = {"label": "g", "node_ranks": "0-1", "env_configs": [{"node_ranks": 0, "env_vars": [{"A": "1"}]}]}
    other = {**group, "env_configs": []}
    cluster = {"num_nodes": 3, "component_placement": {"a": {"node_group": "g", "placement": "0-7"}}}
    here = plan({**cluster, "node_groups": [group]}, Inventory.from_dict({"nodes": nodes}))
    there = plan({**cluster, "node_groups": [other]}, Inventory.from_dict({"nodes": moved}))
    found = diff(here, there)
    assert [change.what for change in (*found.nodes, *found.node_groups)] == ["nodes 0-2", "node group g"]
    assert found.nodes[0].after == {"ip": ["10.0.1.0", "10.0.1.1", "10.0.1.2"]}
    assert found.node_groups[0].after == {"env_configs": []}
    assert len(found.moved) == 8 and not found.world_sizes  # on other machines


def test_visibility_and_node_group_are_changes_of_a_process() -> None:
    cluster = {"num_nodes": 1, "component_placement": {"a": "0-3"}}
    grouped = {
        "num_nodes": 1,
        "component_placement": {"a": {"node_group": "g", "placement": "0-3"}},
        "node_groups": [{"label": "g", "node_ranks": 0}],
    }
    apart, all_of_them = (
        ComponentPlacement({"cluster": cluster}, Inventory.uniform(1, 8)).plan(isolate_accelerator=isolate)
        for isolate in (True, False)
    )
    (block,) = blocks(diff(apart, all_of_them))
    assert block.cells() == ("sees NV_GPU 0-3, each rank its own", "sees NV_GPU 0-7")
    (block,) = blocks(diff(apart, plan(grouped)))
    assert block.cells() == ("node group cluster", "node group g")
    assert [(move.rank, move.before is None) for move in diff(apart, plan(grouped)).moved] == [
        (rank, False) for rank in range(4)
    ]


def sized(entry: object, num_nodes: int = 1) -> Plan:
    inventory = Inventory.uniform(num_nodes, 8)
    return plan({"num_nodes": num_nodes, "component_placement": {"a": entry}}, inventory)


def test_other_coordinates_in_the_same_places() -> None:
    two, four = (sized({"placement": "0-7", "parallel": {"tp": size}}) for size in (2, 4))
    moves = diff(two, four)
    assert moves and not (moves.moved or moves.appeared or moves.went)
    wanted = {
        rank: ([{"tp": rank % 2, "dp": rank // 2}], [{"tp": rank % 4, "dp": rank // 4}])
        for rank in range(8)
        if rank > 1  # ranks 0 and 1 keep their coordinates
    }
    assert {move.rank: (move.was, move.now) for move in moves.renumbered} == wanted
    (block,) = blocks(diff(two, four))
    assert (str(block.ranks), *block.cells()) == ("2-7", "tp 0-1, dp 1-3", "tp 0-3, dp 0-1")
    assert block.after and block.after.coordinates == {"tp": RankSet("0-3"), "dp": RankSet("0-1")}
    (block,) = blocks(diff(sized("0-7"), two))
    assert block.cells() == ("no groups", "tp 0-1, dp 0-3")
    assert not diff(sized({"placement": "0-7", "parallel": "d4t2"}), two), "the data size may be stated"


def test_processes_that_move_do_not_count_as_renumbered() -> None:
    one, other = (sized({"placement": text, "parallel": {"tp": size}}, 2) for text, size in (("0-7", 2), ("8-15", 4)))
    moves = diff(one, other)
    assert len(moves.moved) == 8 and not moves.renumbered
    (block,) = blocks(diff(one, other))
    assert block.cells() == ("node 0: 0-7", "node 1: 0-7")
    assert repr(moves) == "<PlanDiff: 8 moved, 0 appeared, 0 went, 0 renumbered>"


def test_the_command_prints_changed_coordinates() -> None:
    for name, sizes in (
        ("one.yaml", {"tp": 8}),
        ("two.yaml", {"tp": 8, "order": "cp-tp-ep-dp-pp"}),
        ("pp.yaml", {"pp": 8}),
    ):
        entry = {"placement": "0-7", "parallel": sizes}
        written(name, {"num_nodes": 1, "component_placement": {"a": entry}})
    assert compared("one.yaml", "two.yaml").stdout == "no difference\n"
    done = compared("one.yaml", "pp.yaml")
    assert done.exit_code == 1 and lines(done) == [["a 0-7", "tp 0-7, dp 0", "dp 0, pp 0-7"]]


def test_facts_of_hardware_differ() -> None:
    nodes = "nodes:\n- {ranks: 0-1, accelerators: [{id: 0, numa: 0}], numa: {0: 0-7}, cores: [0 x8]}\n"
    Path("one.yaml").write_text(nodes)
    Path("two.yaml").write_text(nodes.replace("numa: 0}", "numa: 1}").replace("{0: 0-7}", "{1: 0-3}"))
    written("conf.yaml", {"num_nodes": 2, "component_placement": {"a": "0-1"}})
    for name in ("one", "two"):
        command = ["plan", "conf.yaml", "--inventory", f"{name}.yaml", "--save", f"{name}.json"]
        assert run(*command).exit_code == 0
    done = compared("one.json", "two.json")
    assert done.exit_code == 1 and "nodes 0-1" in done.stdout and "numa" in done.stdout


def test_wrong_usage_and_faults() -> None:
    written("two.yaml", TWO)
    assert run("plan", "two.yaml", "--save", "plan.json").exit_code == 0
    done = compared("plan.json", "plan.json", "--nodes", "2x8")
    assert done.exit_code == 2 and "plan.json is a saved plan with its own nodes; remove --nodes" in done.stderr
    done = run("check", "plan.json", "--nodes", "2x8")
    assert done.exit_code == 2 and "plan.json is a saved plan with its own nodes; remove --nodes" in done.stderr
    Path("cut.json").write_text(Path("plan.json").read_text()[:300])
    done = compared("plan.json", "cut.json")
    assert done.exit_code == 2 and "error[invalid-plan]" in done.stderr
    assert compared("plan.json", "nowhere.yaml").stderr == "error: nowhere.yaml: No such file or directory\n"

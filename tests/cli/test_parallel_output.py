"""What the commands print about parallel groups: sizes, crossings, coordinates and weight maps."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy
import pytest
from click.testing import Result
from rankplan import ComponentPlacement, Inventory, Plan
from support.commands import run

CONFIG = """\
cluster:
  num_nodes: 4
  component_placement:
    actor: {placement: 0-15, parallel: {tp: 4, ep: 8}}
    rollout: {placement: "16-31:0-3", parallel: {tp: 2, pp: 2, order: tp-cp-ep-pp-dp}}
    critic: {placement: 2-9, parallel: d1t4p2}
    reward: 16-23
"""


@pytest.fixture(autouse=True)
def files(own_folder: Path) -> None:
    Path("conf.yaml").write_text(CONFIG)


def on_4x8(*arguments: str) -> Result:
    return run(*arguments, "--nodes", "4x8")


def expected() -> Plan:
    return ComponentPlacement("conf.yaml", Inventory.uniform(4, 8)).plan()


def test_check_says_which_groups_cross_a_node() -> None:
    done = on_4x8("check", "conf.yaml")
    assert done.exit_code == 0
    assert done.stdout == (
        "conf.yaml: fine, 4 components, 36 processes on 4 nodes\n"
        "actor: 4 tp groups within nodes; 2 ep groups within nodes\n"
        "rollout: 8 tp groups within nodes; 8 pp groups within nodes\n"
        "critic: 1 of 2 tp groups cross a node; 2 of 4 pp groups cross a node\n"
        "warning[group-spans]: critic: tensor group 1 (ranks 4-7) spans nodes 0-1\n"
        " --> conf.yaml:6:40  cluster.component_placement.critic.parallel\n"
        "  |\n"
        "6 |     critic: {placement: 2-9, parallel: d1t4p2}\n"
        "  |                                        ^^^^^^\n"
        "  |\n"
        "  = help: place each 4 consecutive processes on one node\n"
    )


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("{placement: all, parallel: d32}", "only data groups"),
        ("{placement: 0-7, parallel: {tp: 8}}", "1 tp group within a node"),
        ("{placement: 0-15, parallel: {tp: 16}}", "1 tp group across nodes"),
        ("{placement: all, parallel: {tp: 8, cp: 2}}", "4 tp groups within nodes; 16 cp groups across nodes"),
        ("{placement: all, parallel: {ep: 4, etp: 2, pp: 2}}", None),
    ],
)
def test_lines_of_check(entry: str, line: str | None) -> None:
    Path("conf.yaml").write_text(f"cluster: {{num_nodes: 4, component_placement: {{actor: {entry}}}}}\n")
    lines = on_4x8("check", "conf.yaml").stdout.splitlines()
    wanted = line or "16 etp groups within nodes; 8 ep groups within nodes; 16 pp groups across nodes"
    assert lines[1] == f"actor: {wanted}"


def test_warnings_of_other_dialects_are_at_their_keys() -> None:
    Path("conf.yaml").write_text(
        "num_gpus_per_node: 8\na:\n  device_mapping: list(range(4,12))\n  strategy_args:\n"
        "    strategy_name: megatron_train\n    strategy_config: {tensor_model_parallel_size: 8}\n"
    )
    done = run("check", "conf.yaml")
    assert "warning[group-spans]: a: tensor group 0 (ranks 0-7) spans nodes 0-1\n --> conf.yaml:6:5  " in done.stdout
    assert done.exit_code == 0


def test_plan_prints_the_sizes() -> None:
    lines = on_4x8("plan", "conf.yaml").stdout.splitlines()
    assert lines[0].endswith("node group  coordinates")
    assert lines[2].endswith("cluster     tp 1, dp 0, ep 1, edp 0")
    assert lines[17].endswith("cluster     tp 0-1, dp 0, pp 0-1")
    assert lines[-1] != "" and lines[37:41] == [
        "",
        "actor: tp 4 x dp 4, experts ep 8 x edp 2",
        "rollout: tp 2 x pp 2 x dp 4",
        "critic: tp 4 x dp 1 x pp 2",
    ]
    alone = on_4x8("plan", "conf.yaml", "--component", "rollout").stdout.splitlines()
    assert alone[-2:] == ["", "rollout: tp 2 x pp 2 x dp 4"]
    assert "coordinates" not in on_4x8("plan", "conf.yaml", "--component", "reward").stdout


def test_rows_have_coordinates() -> None:
    rows = json.loads(on_4x8("plan", "conf.yaml", "--format", "json").stdout)
    wanted = {
        (name, rank): one.coordinates(rank) if one.parallel.stated else None
        for name, one in expected().items()
        for rank in range(len(one))
    }
    assert {(row["component"], row["rank"]): row["coordinates"] for row in rows} == wanted
    table = list(csv.DictReader(io.StringIO(on_4x8("plan", "conf.yaml", "--format", "csv").stdout)))
    cells = {(row["component"], int(row["rank"])): row["coordinates"] for row in table}
    assert cells["actor", 5] == "tp:1 dp:1 ep:5 edp:0" and cells["reward", 0] == ""
    assert cells["rollout", 1] == "tp:0 dp:1 pp:0;tp:1 dp:1 pp:0;tp:0 dp:1 pp:1;tp:1 dp:1 pp:1"


def test_columns_have_coordinates() -> None:
    assert on_4x8("plan", "conf.yaml", "--format", "numpy", "-o", "plan.npz").exit_code == 0
    with numpy.load("plan.npz", allow_pickle=False) as columns:
        assert columns["rollout.slot_starts"].tolist() == [0, 4, 8, 12, 16]
        assert columns["rollout.tp"].tolist() == [0, 1] * 8 and columns["actor.dp"].tolist()[3:5] == [0, 1]
        assert "reward.dp" not in columns.files


# ----------------------------------------------------------------------------------------------------- weight maps


def test_a_weight_map_has_a_row_per_sender() -> None:
    lines = on_4x8("plan", "conf.yaml", "--weights", "critic:rollout").stdout.splitlines()
    assert lines[0].split() == ["critic", "node", "sends", "to", "nodes", "where"]
    assert [line.split(maxsplit=4) for line in lines[1:3]] == [
        ["0", "0", "0,8", "2-3", "other node"],
        ["1", "0", "2,10", "2-3", "other node"],
    ]
    assert lines[9:] == ["", "16 receivers: 16 on another node"]


def test_a_large_weight_map_is_folded() -> None:
    Path("conf.yaml").write_text(
        "cluster:\n  num_nodes: 32\n  component_placement:\n    actor: {placement: 0-95, parallel: t4}\n"
        "    rollout: {placement: 64-255, parallel: t2}\n"
    )
    done = run("plan", "conf.yaml", "--nodes", "32x8", "--weights", "actor:rollout")
    assert done.stdout.splitlines() == [
        "actor  nodes  sends to      nodes       each  where",
        "0-63   0-7    32-159        12-27       2     other node",
        "64-95  8-11   0-31,160-191  8-11,28-31  2     16 same device, 16 same node, 32 other node",
        "",
        "192 receivers: 16 on the sender's device, 16 on the sender's node, 160 on another node",
    ]


def test_a_weight_map_for_programs() -> None:
    done = on_4x8("plan", "conf.yaml", "--weights", "actor:rollout", "--format", "json")
    weights = expected().weight_map("actor", "rollout")
    entries = json.loads(done.stdout)
    assert [entry["receivers"] for entry in entries] == list(weights)
    assert entries[5] == {"slot": 5, "rank": 5, "receivers": [6], "receiver_ranks": [1]}
    on_4x8("plan", "conf.yaml", "--weights", "actor:rollout", "--format", "json", "-o", "weights.json")
    assert Path("weights.json").read_text() == done.stdout


def test_weights_without_a_sender() -> None:
    done = on_4x8("plan", "conf.yaml", "--weights", "rollout:actor")
    assert done.exit_code == 1
    assert done.stderr.startswith(
        "error[no-weight-sender]: actor tensor size 4 does not divide rollout tensor size 2: no rollout rank holds the "
        "weights of an actor slot\n = help: use actor tensor size 1 or 2, or rollout tensor size 4\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "actor"], "'actor' is not SENDER:RECEIVER; write actor:rollout"),
        (["--weights", "actor:rollot"], "--weights: unknown component `rollot` in conf.yaml; did you mean `rollout`?"),
        (["--weights", "actor:rollout", "--format", "csv"], "--weights requires --format table or json"),
        (["--weights", "actor:rollout", "--component", "actor"], "without --component"),
    ],
)
def test_wrong_usage_says_what_to_write(arguments: list[str], message: str) -> None:
    done = on_4x8("plan", "conf.yaml", *arguments)
    assert done.exit_code == 2 and message in done.stderr and done.stdout == ""

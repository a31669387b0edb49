"""slime's way in: its flags, the order of its bundles, its sides and engines, and its own answers."""

from __future__ import annotations

import argparse
import ipaddress
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import ComponentPlacement, Inventory, PlacementError, Plan
from rankplan.dialects.placing.orders import bundle_order
from rankplan.trainers.roll.keys import KEYS as ROLL
from rankplan.trainers.slime.dialect import DIALECT as slime
from rankplan.trainers.slime.engines import EngineProcess, engine_processes
from rankplan.trainers.slime.job import layout
from rankplan.trainers.slime.keys import KEYS as SLIME
from support.configs import refused
from support.goldens import lines, named

# Flags, and the number of GPUs and the rollout's offset.
LAYOUTS: list[tuple[dict[str, Any], tuple[int, int]]] = [
    ({"rollout_num_gpus": 8}, (16, 8)),
    ({"actor_num_nodes": 2, "actor_num_gpus_per_node": 4, "rollout_num_gpus": 3}, (11, 8)),
    ({"colocate": True}, (8, 0)),
    ({"colocate": True, "rollout_num_gpus": None}, (8, 0)),
    ({"colocate": True, "rollout_num_gpus": 4}, (8, 0)),
    ({"colocate": True, "rollout_num_gpus": 12}, (12, 0)),
    ({"colocate": True, "rollout_num_gpus": 0}, (8, 0)),
    ({"debug_train_only": True}, (8, 0)),
    ({"load_debug_rollout_data": "/data/{rollout_id}.pt"}, (8, 0)),
    ({"debug_rollout_only": True, "rollout_num_gpus": 6}, (6, 0)),
    ({"debug_rollout_only": True, "colocate": True}, (8, 0)),
    ({"rollout_external": True}, (8, 8)),
    ({"rollout_external": True, "colocate": True}, (8, 8)),
    ({"rollout_external_engine_addrs": ["10.0.0.9:30000"]}, (8, 8)),
    ({"--actor-num-nodes": 2, "rollout-num-gpus": 8, "num_rollout": 3000, "ref_num_gpus_per_node": 4}, (24, 16)),
    # A critic shares the actor's GPUs, as slime has it today ...
    ({"use_critic": True, "rollout_num_gpus": 8}, (16, 8)),
    ({"advantage_estimator": "ppo", "colocate": True}, (8, 0)),
    # ... unless it has sizes, which slime had before. The one that is not given is the actor's.
    ({"use_critic": True, "critic_num_nodes": 1, "critic_num_gpus_per_node": 4, "rollout_num_gpus": 8}, (20, 12)),
    ({"advantage_estimator": "ppo", "critic_num_gpus_per_node": 2, "actor_num_nodes": 2, "colocate": True}, (20, 0)),
    ({"use_critic": True, "critic_num_nodes": 2, "debug_train_only": True}, (24, 0)),
    ({"use_critic": False, "critic_num_nodes": 2, "rollout_num_gpus": 8}, (16, 8)),
    # Today's slime fills the sizes in by itself; `megatron_config_path` came with the sharing.
    ({"use_critic": True, "critic_num_nodes": 1, "megatron_config_path": None, "rollout_num_gpus": 8}, (16, 8)),
]

# Flags, code, path and message, on 2 nodes of 8.
REFUSED: list[tuple[Any, str, str | None, str]] = [
    (5, "invalid-value", "", "the config is 5; it must be a mapping"),
    ({"actor_num_nodes": -1, "colocate": True}, "invalid-value", "actor_num_nodes", "`actor_num_nodes` is -1; it must"),
    ({"actor-num-nodes": "2", "colocate": True}, "invalid-value", "actor-num-nodes", "`actor-num-nodes` is '2'; it"),
    ({"actor_num_nodes": True, "colocate": True}, "invalid-value", "actor_num_nodes", "`actor_num_nodes` is true; it"),
    ({"rollout_num_gpus": -1}, "invalid-value", "rollout_num_gpus", "`rollout_num_gpus` is -1; it must be a whole"),
    ({"colocate": True, "rollout_num_gpus_per_engine": 0}, "invalid-value", "rollout_num_gpus_per_engine", ""),
    ({"colocate": True, "num_gpus_per_node": 0}, "invalid-value", "num_gpus_per_node", "`num_gpus_per_node` is 0; it"),
    ({"colocate": None}, "invalid-value", "colocate", "`colocate` is null; it must be true or false"),
    ({"--colocate": "true"}, "invalid-value", "--colocate", "`--colocate` is 'true'; it must be true or false"),
    (
        {"debug_train_only": True, "debug_rollout_only": True},
        "invalid-value",
        "debug_rollout_only",
        "`debug_train_only`",
    ),
    ({}, "missing-key", "", "`rollout_num_gpus` is missing; only a colocated rollout defaults to the training's GPUs"),
    (
        {"debug_rollout_only": True},
        "missing-key",
        "",
        "`rollout_num_gpus` is missing; only a colocated rollout defaults",
    ),
    (
        {"colocate": True, "actor_num_node": 2},
        "unknown-key",
        "actor_num_node",
        "unknown key `actor_num_node`",
    ),
    ({"rollout-num-gpu": 8}, "unknown-key", "rollout-num-gpu", "unknown key `rollout-num-gpu`"),
    ({"collocate": True}, "unknown-key", "collocate", "unknown key `collocate`"),
    (
        {"actor_num_nodes": 1, "actor-num-nodes": 2, "colocate": True},
        "duplicate-key",
        "actor-num-nodes",
        "`actor-num-nodes` and `actor_num_nodes` are the same flag",
    ),
    (
        {"actor_num_nodes": 0, "rollout_num_gpus": 0},
        "empty-placement",
        "",
        "these flags give GPUs neither to the",
    ),
    ({"debug_rollout_only": True, "rollout_external": True}, "empty-placement", "", "these flags give GPUs neither"),
    (
        {"actor_num_nodes": 2, "rollout_num_gpus": 8},
        "resource-out-of-range",
        "actor_num_nodes",
        "the flags need 24 GPUs (actor 16, rollout 8), but the cluster has 16; 8 GPUs per node is slime's default",
    ),
    (
        {"colocate": True, "rollout_num_gpus": 32, "use_critic": True, "critic_num_gpus_per_node": 4},
        "resource-out-of-range",
        "rollout_num_gpus",
        "the flags need 32 GPUs (actor 8, critic 4, rollout 32, colocated), but the cluster has 16",
    ),
    (
        {"colocate": True, "rollout_num_gpus_per_engine": 3},
        "not-multiple",
        "rollout_num_gpus",
        "8 GPUs cannot be divided into engines of 3",
    ),
    (
        {"colocate": True, "actor_num_nodes": 2, "rollout_num_gpus_per_engine": 12},
        "not-multiple",
        "rollout_num_gpus_per_engine",
        "an engine of 12 GPUs cannot be divided into processes of 8, the GPUs of a node",
    ),
    (
        {"actor_num_gpus_per_node": 6, "rollout_num_gpus": 8, "rollout_num_gpus_per_engine": 4},
        "spans-nodes",
        "rollout_num_gpus_per_engine",
        "process 0 of the rollout would need 4 GPUs on nodes 0 and 1",
    ),
]


@pytest.mark.parametrize(("flags", "expected"), LAYOUTS, ids=str)
def test_the_layout_is_slimes(flags: dict[str, Any], expected: tuple[int, int]) -> None:
    assert layout(flags) == expected


@pytest.mark.parametrize(("flags", "code", "path", "message"), REFUSED, ids=[str(row[:2]) for row in REFUSED])
def test_flags_are_refused_with_their_names(flags: Any, code: str, path: str | None, message: str) -> None:
    with pytest.raises(PlacementError) as caught:
        slime.plan(flags, Inventory.uniform(num_nodes=2, num_accelerators=8))
    error = caught.value
    assert (error.code, error.path or "") == (code, path)
    assert error.message.startswith(message)
    assert error.help
    assert len(error.diagnostics) == 1


def test_all_faults_of_a_file_are_reported_with_their_places(tmp_path: Path) -> None:
    text = """\
actor-num-nodes: two
actor-num-gpus-per-node: 8
actor_num_gpus_per_node: 4
rollout-num-gpus: 1.5
rollout_num_gpu_per_engine: 2
num_gpus_per_node: 0
colocate:
use-critic: 1
lr: 1.0e-6
"""
    assert refused(slime, text, tmp_path, Inventory.uniform(num_nodes=2, num_accelerators=8)) == [
        "1:18 invalid-value: `actor-num-nodes` is 'two'; it must be a whole number of 0 or more",
        "3:26 duplicate-key: `actor_num_gpus_per_node` and `actor-num-gpus-per-node` are the same flag",
        "4:19 invalid-value: `rollout-num-gpus` is 1.5; it must be a whole number of 0 or more",
        "5:1 unknown-key: unknown key `rollout_num_gpu_per_engine`",
        "6:20 invalid-value: `num_gpus_per_node` is 0; it must be a whole number of 1 or more",
        "7:1 invalid-value: `colocate` is null; it must be true or false",
        "8:13 invalid-value: `use-critic` is 1; it must be true or false",
    ]
    text = "actor_num_gpus_per_node: 6\nrollout_num_gpus: 18\nrollout_num_gpus_per_engine: 4\n"
    assert refused(slime, text, tmp_path, Inventory.uniform(num_nodes=2, num_accelerators=8)) == [
        "2:19 resource-out-of-range: the flags need 24 GPUs (actor 6, rollout 18), but the cluster has 16",
        "2:19 not-multiple: 18 GPUs cannot be divided into engines of 4",
        "3:30 spans-nodes: process 0 of the rollout would need 4 GPUs on nodes 0 and 1",
    ]
    assert refused(slime, "colocate: true\n", tmp_path, Inventory.uniform(num_nodes=2, num_accelerators=0)) == [
        "1:1 no-resources: the cluster has no accelerators"
    ]


@pytest.mark.parametrize(
    ("sizes", "path"),
    [
        ({"tensor": 4, "pipeline": 3}, "pipeline_model_parallel_size"),
        ({"tensor": 3, "pipeline": 4}, "tensor_model_parallel_size"),
        ({"tensor": 2, "pipeline": 2}, None),
    ],
)
def test_sizes_that_do_not_fit_are_shown_at_the_one_that_breaks(sizes: dict[str, int], path: str | None) -> None:
    flags: dict[str, Any] = {f"{kind}_model_parallel_size": size for kind, size in sizes.items()}
    flags |= {"actor_num_nodes": 1, "actor_num_gpus_per_node": 8, "debug_train_only": True}
    try:
        slime.plan(flags, Inventory.uniform(num_nodes=1, num_accelerators=8))
        found = None
    except PlacementError as error:
        found = error.path
    assert found == path


def test_the_help_says_which_size_fits() -> None:
    def help(flags: dict[str, Any], accelerators: int) -> str | None:
        with pytest.raises(PlacementError) as caught:
            slime.plan(flags, Inventory.uniform(num_nodes=4, num_accelerators=accelerators))
        assert caught.value.code == "spans-nodes"
        return caught.value.help

    odd = {"actor_num_gpus_per_node": 6, "rollout_num_gpus": 16}
    assert help({**odd, "rollout_num_gpus_per_engine": 8}, 8) == (
        "set rollout_num_gpus_per_engine to 2, or let the 6 GPUs before the rollout fill whole nodes"
    )
    assert help({**odd, "rollout_num_gpus_per_engine": 16}, 8) == (
        "set num_gpus_per_node to 2, or let the 6 GPUs before the rollout fill whole nodes"
    )
    # The training does fill its node here, and it is the next ones that are uneven.
    with pytest.raises(PlacementError) as caught:
        nodes = [{"ranks": rank, "accelerators": count} for rank, count in enumerate((6, 5, 8))]
        slime.plan(
            {**odd, "rollout_num_gpus": 8, "rollout_num_gpus_per_engine": 2}, Inventory.from_dict({"nodes": nodes})
        )
    assert caught.value.help == "set rollout_num_gpus_per_engine to 1"
    # slime's own default is 8, which is what its parser gives on nodes of any size.
    whole = {"colocate": True, "num_gpus_per_node": 8, "rollout_num_gpus_per_engine": 8}
    assert help(whole, 4) == "set num_gpus_per_node to 4"


def test_flags_come_as_a_mapping_a_file_or_a_namespace(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--actor-num-nodes", type=int, default=1)
    parser.add_argument("--actor-num-gpus-per-node", type=int, default=8)
    parser.add_argument("--rollout-num-gpus", type=int)
    parser.add_argument("--colocate", action="store_true")
    parser.add_argument("--lr", type=float)
    arguments = parser.parse_args(["--actor-num-gpus-per-node", "4", "--rollout-num-gpus", "4", "--lr", "1e-6"])
    path = tmp_path / "slime.yaml"
    path.write_text("actor-num-gpus-per-node: 4\nrollout_num_gpus: 4\nlr: 1e-6\n")
    inventory = Inventory.uniform(num_nodes=1, num_accelerators=8)
    assert slime.plan(arguments, inventory) == slime.plan(path, inventory) == slime.plan(vars(arguments), inventory)
    assert layout(arguments) == (8, 4)
    assert slime.assumed_inventory(arguments) == inventory


def test_a_flag_that_cannot_be_read_is_one_fault() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    flags = omegaconf.OmegaConf.create({"use_critic": "${nowhere}", "rollout_num_gpus": "???", "num_nodes": 1})
    with pytest.raises(PlacementError) as caught:
        layout(flags)
    assert [fault.path for fault in caught.value.diagnostics] == ["use_critic", "rollout_num_gpus"]


def test_slimes_flags_are_recognised() -> None:
    assert SLIME.recognises({"actor_num_nodes": 1, "num_gpus_per_node": 8})
    assert SLIME.recognises({"--rollout-num-gpus": 8})
    assert not SLIME.recognises({"cluster": {"num_nodes": 1}, "actor_num_nodes": 1})
    assert not SLIME.recognises({"num_gpus_per_node": 8, "actor_train": {"device_mapping": "range(8)"}})
    assert not ROLL.recognises({"actor_num_nodes": 1, "rollout_num_gpus": 8})


def placed(plan: Plan, component: str) -> list[tuple[int, list[str]]]:
    """Node and accelerators of each process."""
    return [(row.cluster_node_rank, row.visible_accelerators) for row in plan[component]]


def test_disaggregated() -> None:
    flags = {
        "actor_num_nodes": 1,
        "actor_num_gpus_per_node": 4,
        "rollout_num_gpus": 8,
        "rollout_num_gpus_per_engine": 4,
    }
    plan = slime.plan(flags, Inventory.uniform(num_nodes=2, num_accelerators=8))
    assert placed(plan, "actor") == [(0, ["0"]), (0, ["1"]), (0, ["2"]), (0, ["3"])]
    assert placed(plan, "rollout") == [(0, ["4", "5", "6", "7"]), (1, ["0", "1", "2", "3"])]
    assert plan.sharing().kind == "disaggregated"
    assert shares(plan) == {"actor": 0.4, "rollout": 0.2}
    assert engine_processes(plan["rollout"]) == [EngineProcess(0, 0, 0), EngineProcess(1, 0, 1)]
    assert slime.assumed_inventory(flags) == plan.inventory


def shares(plan: Plan) -> dict[str, float | None]:
    plan.check_shares()
    return {name: component.share for name, component in plan.items()}


def test_colocated() -> None:
    flags = {"actor_num_gpus_per_node": 4, "colocate": True, "rollout_num_gpus": 6, "rollout_num_gpus_per_engine": 2}
    plan = slime.plan(flags, Inventory.uniform(num_nodes=2, num_accelerators=4), isolate_accelerator=False)
    assert [row.devices for row in plan["actor"]] == [[(0, 0)], [(0, 1)], [(0, 2)], [(0, 3)]]
    assert [row.devices for row in plan["rollout"]] == [[(0, 0), (0, 1)], [(0, 2), (0, 3)], [(1, 0), (1, 1)]]
    assert plan["actor"].visibility == "node"
    assert shares(plan) == {"actor": 0.4, "rollout": 0.2}


def test_engines_over_several_nodes(tmp_path: Path) -> None:
    flags = {"actor_num_nodes": 1, "rollout_num_gpus": 32, "rollout_num_gpus_per_engine": 16}
    plan = slime.plan(flags, Inventory.uniform(num_nodes=5, num_accelerators=8))
    everything = [str(index) for index in range(8)]
    assert placed(plan, "rollout") == [(1, everything), (2, everything), (3, everything), (4, everything)]
    expected = [(0, 0, 1), (0, 1, 1), (1, 0, 3), (1, 1, 3)]
    assert engine_processes(plan["rollout"]) == [EngineProcess(*process) for process in expected]
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert Plan.load(tmp_path / "plan.json")["rollout"].engines == 2


def test_the_inventory_says_how_large_a_node_is_unless_the_flags_do() -> None:
    flags = {"colocate": True, "rollout_num_gpus_per_engine": 8}
    plan = slime.plan(flags, Inventory.uniform(num_nodes=2, num_accelerators=4))
    assert [row.num_accelerators for row in plan["rollout"]] == [4, 4]
    plan = slime.plan({**flags, "num_gpus_per_node": 4}, Inventory.uniform(num_nodes=1, num_accelerators=8))
    assert engine_processes(plan["rollout"]) == [EngineProcess(0, 0, 0), EngineProcess(0, 1, 0)]
    # The training's nodes may be larger than those of the rollout.
    uneven = Inventory.from_dict({"nodes": [{"ranks": 0, "accelerators": 8}, {"ranks": "1-2", "accelerators": 4}]})
    plan = slime.plan({"rollout_num_gpus": 8, "rollout_num_gpus_per_engine": 8}, uneven)
    assert [row.cluster_node_rank for row in plan["rollout"]] == [1, 2]


def test_a_critic_with_the_actors_gpus() -> None:
    flags: dict[str, Any] = {"actor_num_gpus_per_node": 2, "advantage_estimator": "ppo", "rollout_num_gpus": 2}
    inventory = Inventory.uniform(num_nodes=1, num_accelerators=8)
    plan = slime.plan(flags, inventory)
    assert placed(plan, "critic") == placed(plan, "actor") == [(0, ["0"]), (0, ["1"])]
    assert placed(plan, "rollout") == [(0, ["2"]), (0, ["3"])]
    assert shares(plan) == {"actor": 0.4, "critic": 0.4, "rollout": 0.2}
    flags["colocate"] = True
    plan = slime.plan(flags, inventory)
    assert plan.sharing().kind == "collocated"
    assert shares(plan) == {"actor": 0.4, "critic": 0.4, "rollout": 0.2}


def test_a_critic_with_gpus_of_its_own() -> None:
    flags = {"actor_num_gpus_per_node": 2, "use_critic": True, "critic_num_gpus_per_node": 3, "rollout_num_gpus": 2}
    inventory = Inventory.uniform(num_nodes=1, num_accelerators=8)
    plan = slime.plan(flags, inventory)
    assert list(plan) == ["actor", "critic", "rollout"]
    assert placed(plan, "critic") == [(0, ["2"]), (0, ["3"]), (0, ["4"])]
    assert placed(plan, "rollout") == [(0, ["5"]), (0, ["6"])]
    assert shares(plan) == {"actor": 0.4, "critic": 0.4, "rollout": 0.2}
    del flags["rollout_num_gpus"]
    flags["colocate"] = True
    plan = slime.plan(flags, inventory)
    assert placed(plan, "rollout") == placed(plan, "actor") + placed(plan, "critic")
    assert shares(plan) == {"actor": 0.4, "critic": 0.4, "rollout": 0.2}


@pytest.mark.parametrize(
    ("flags", "components"),
    [
        ({"debug_train_only": True}, ["actor"]),
        ({"debug_train_only": True, "use_critic": True}, ["actor", "critic"]),
        ({"debug_rollout_only": True, "use_critic": True, "rollout_num_gpus": 8}, ["rollout"]),
        ({"rollout_external": True, "colocate": True}, ["actor"]),
        ({"rollout_num_gpus": 0}, ["actor"]),
        ({"actor_num_nodes": 0, "rollout_num_gpus": 8}, ["rollout"]),
        ({"actor_num_nodes": 0, "use_critic": True, "critic_num_nodes": 1, "rollout_num_gpus": 0}, ["critic"]),
    ],
    ids=str,
)
def test_a_side_without_processes_is_not_in_the_plan(flags: dict[str, Any], components: list[str]) -> None:
    plan = slime.plan(flags, Inventory.uniform(num_nodes=1, num_accelerators=8))
    assert list(plan) == components
    assert None not in shares(plan).values()
    assert "rollout" not in components or len(engine_processes(plan["rollout"])) == 8


def test_the_pool_is_in_the_order_of_the_bundles() -> None:
    nodes = [
        {"ranks": 0, "accelerator_ids": ["10", "9"], "ip": "10.0.0.10"},
        {"ranks": 1, "accelerator_ids": ["GPU-b", "GPU-a"], "ip": "10.0.0.9"},
        {"ranks": 2, "ip": "10.0.0.1"},
    ]
    flags = {"debug_train_only": True, "actor_num_gpus_per_node": 4}
    plan = slime.plan(flags, Inventory.from_dict({"nodes": nodes}))
    assert placed(plan, "actor") == [(1, ["GPU-a"]), (1, ["GPU-b"]), (0, ["9"]), (0, ["10"])]
    # One node without an address: the order is that of the node ranks.
    del nodes[2]["ip"]
    plan = slime.plan(flags, Inventory.from_dict({"nodes": nodes}))
    assert placed(plan, "actor") == [(0, ["9"]), (0, ["10"]), (1, ["GPU-a"]), (1, ["GPU-b"])]
    # Nodes that were given one address are still taken one after another.
    same = {"nodes": [{"ranks": "0-1", "accelerators": 2, "ip": "127.0.0.1"}]}
    plan = slime.plan(flags, Inventory.from_dict(same))
    assert placed(plan, "actor") == [(0, ["0"]), (0, ["1"]), (1, ["0"]), (1, ["1"])]


WRITTEN: list[dict[str, Any]] = [
    {"rollout_num_gpus": 8},
    {"actor_num_gpus_per_node": 3, "rollout_num_gpus": 5},
    {"actor_num_nodes": 2, "rollout_num_gpus": 16, "rollout_num_gpus_per_engine": 16},
    {"colocate": True, "rollout_num_gpus": 12, "rollout_num_gpus_per_engine": 4},
    {"debug_train_only": True, "use_critic": True},
    {"use_critic": True, "rollout_num_gpus": 4},
    {"use_critic": True, "critic_num_gpus_per_node": 4, "rollout_num_gpus": 8, "rollout_num_gpus_per_engine": 4},
    {"use_critic": True, "critic_num_nodes": 1, "colocate": True, "rollout_num_gpus_per_engine": 2},
    {"debug_rollout_only": True, "rollout_num_gpus": 8, "rollout_num_gpus_per_engine": 8},
    {"rollout_external": True},
]


@pytest.mark.parametrize("flags", WRITTEN, ids=str)
def test_a_plan_is_written_as_flags_again(flags: dict[str, Any]) -> None:
    for accelerators in (8, 16):
        plan = slime.plan(flags, Inventory.uniform(num_nodes=4, num_accelerators=accelerators))
        config, unsaid = slime.written(plan)
        assert not unsaid
        assert SLIME.recognises(config)
        assert slime.plan(config, plan.inventory) == plan


def test_what_flags_cannot_say_is_named() -> None:
    components = {
        "actor": "0-7",
        "critic": "8-11:0-1",
        "rollout": "8-9:0,10:1",
        "judge": {"node_group": "node", "placement": 0},
    }
    section = {"num_nodes": 2, "component_placement": components}
    inventory = Inventory.uniform(num_nodes=2, num_accelerators=8)
    config, unsaid = slime.written(ComponentPlacement({"cluster": section}, inventory).plan())
    assert config == {
        "num_gpus_per_node": 8,
        "actor_num_nodes": 1,
        "actor_num_gpus_per_node": 8,
        "debug_train_only": True,
    }
    assert unsaid == {
        "critic": "its processes do not have one accelerator each",
        "rollout": "its processes have different numbers of accelerators",
        "judge": "slime only has an actor, a critic and a rollout",
    }
    section["component_placement"] = {"actor": "8-15", "rollout": "0-7"}
    config, unsaid = slime.written(ComponentPlacement({"cluster": section}, inventory).plan())
    assert slime.plan(config, inventory)["rollout"][7].devices == [(0, 7)]
    assert unsaid == {"actor": "slime would place it elsewhere"}
    section["component_placement"] = {"actor": "0-3", "rollout": "5-6"}
    config, unsaid = slime.written(ComponentPlacement({"cluster": section}, inventory).plan())
    assert list(slime.plan(config, inventory)) == ["actor"]
    assert unsaid == {"rollout": "slime would place it elsewhere"}


NAMES, AMONG, IPV6, STRICT = map(
    named,
    [
        "slime-names",
        "slime-names-among-addresses",
        "slime-ipv6",
        "slime-lenient-addresses",
    ],
)
# What slime orders otherwise: why, addresses, our order, slime's.
DIFFERENT = [
    (NAMES, ["node-10", "node-9", "node-1"], [2, 1, 0], [2, 0, 1]),
    (AMONG, ["node-1", "10.0.0.1", "192.168.0.1", "110.0.0.1"], [1, 3, 2, 0], [1, 3, 0, 2]),
    (IPV6, ["fe80::10", "fe80::9"], [1, 0], [0, 1]),
    (IPV6, ["::ffff:10.0.0.10", "::ffff:10.0.0.9"], [1, 0], [0, 1]),
    (STRICT, ["10.0.0.999", "10.0.1.0"], [1, 0], [0, 1]),
    (STRICT, ["10.0.0", "10.0.0.0", "10.0.0.0.0"], [1, 0, 2], [0, 1, 2]),
]


def slimes_order(bundles: list[tuple[int, str, Any]]) -> list[int]:
    """What slime does where no name can be looked up."""

    def parts(address: str) -> list[int]:
        try:
            return [int(part) for part in address.split(".")]
        except ValueError:
            return [ord(character) for character in address]

    return [bundle[0] for bundle in sorted(bundles, key=lambda bundle: (parts(bundle[1]), int(bundle[2])))]


@pytest.mark.parametrize(("difference", "addresses", "ours", "theirs"), DIFFERENT)
def test_the_order_differs_from_slimes_on_purpose(
    difference: str, addresses: list[str], ours: list[int], theirs: list[int]
) -> None:
    bundles = [(index, address, 0) for index, address in enumerate(addresses)]
    assert bundle_order(bundles) == ours
    assert slimes_order(bundles) == theirs


def test_gpu_ids_are_numbers_then_uuids() -> None:
    ids: list[int | str] = ["GPU-9c", "10", 2, "MIG-1", "1", "GPU-10"]
    assert bundle_order((index, "10.0.0.1", gpu) for index, gpu in enumerate(ids)) == [4, 2, 1, 5, 0, 3]
    assert bundle_order([]) == []


def test_one_address_written_in_several_ways_is_one_node() -> None:
    ways = ["[2001:db8::1]", "2001:db8:0:0::1", "2001:DB8::1"]
    assert bundle_order([(gpu, ways[gpu % 3], 5 - gpu) for gpu in range(6)]) == [5, 4, 3, 2, 1, 0]
    mapped = ["10.0.0.1", "::ffff:10.0.0.1", "[::ffff:a00:1]"]
    assert bundle_order([(gpu, mapped[gpu % 3], 5 - gpu) for gpu in range(6)]) == [5, 4, 3, 2, 1, 0]
    # Names that only count the same, and addresses on two links, are two nodes.
    for two in (["gpu1", "gpu01"], ["fe80::1%eth1", "fe80::1%eth0"]):
        assert bundle_order([(index, two[index % 2], index // 2) for index in range(4)]) == [1, 3, 0, 2]


def test_no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: Any) -> None:
        raise LookupError

    monkeypatch.setattr(socket, "gethostbyname", look_up)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert bundle_order([(0, "node-1", 0), (1, "localhost", 0)]) == [1, 0]


def plain_order(bundles: list[tuple[int, str, Any]]) -> list[int]:
    """The order by the plain reading of its rules."""

    def key(bundle: tuple[int, str, Any]) -> Any:
        _, address, gpu_id = bundle
        gpu = (0, int(gpu_id), "") if re.fullmatch("[0-9]+", str(gpu_id)) else (1, 0, gpu_id)
        try:
            found = ipaddress.ip_address(address.strip("[]"))
        except ValueError:
            parts = re.split("([0-9]+)", address)
            name = [int(part) if place % 2 else part for place, part in enumerate(parts)]
            return (3, name, address, gpu)
        if isinstance(found, ipaddress.IPv6Address):
            found = found.ipv4_mapped or found
        return (1 if found.version == 4 else 2, [int(found)], "", gpu)

    return [bundle[0] for bundle in sorted(bundles, key=key)]


ADDRESSES = st.one_of(
    st.ip_addresses().map(str),
    st.integers(0, 300).map(lambda last: f"10.0.0.{last}"),
    st.integers(0, 20).map(lambda last: f"[fe80::{last:x}]"),
    st.integers(0, 20).map(lambda last: f"::ffff:10.0.0.{last}"),
    st.from_regex(r"(node|gpu-?|)[0-9]{1,3}(\.rack[0-9]{1,2})?", fullmatch=True),
)
GPU_IDS = st.one_of(st.integers(0, 20), st.integers(0, 20).map(str), st.sampled_from(["GPU-1", "GPU-10", "GPU-9"]))


@given(st.lists(st.tuples(ADDRESSES, GPU_IDS), max_size=40), st.randoms())
def test_the_order_of_bundles(found: list[tuple[str, Any]], random: Any) -> None:
    bundles = [(index, address, gpu_id) for index, (address, gpu_id) in enumerate(found)]
    order = bundle_order(bundles)
    assert sorted(order) == list(range(len(bundles)))
    assert order == plain_order(bundles)
    shuffled = random.sample(bundles, len(bundles))
    again = bundle_order(shuffled)
    assert again == plain_order(shuffled)
    # It depends on how they came only where two cannot be told apart.
    assert [plain_order([bundles[a], bundles[b]][::-1]) for a, b in zip(order, again, strict=True) if a != b] == [
        [b, a] for a, b in zip(order, again, strict=True) if a != b
    ]


def golden(kind: str) -> list[dict[str, Any]]:
    return [line for line in lines("slime") if line["kind"] == kind]


def test_slimes_own_layouts() -> None:
    for line in golden("layout"):
        expected = line["result"]["current"]
        assert layout(line["flags"]) == (expected["num_gpus"], expected["rollout_offset"]), line


def why_another_order(addresses: list[str]) -> str:
    """Which difference explains that these are in another order than slime's."""
    if any(":" in address for address in addresses):
        return IPV6
    dotted = [address for address in addresses if re.fullmatch(r"[0-9.]+", address)]
    if any(not re.fullmatch(r"[0-9]+(\.[0-9]+){3}", address) for address in dotted):
        return STRICT
    return AMONG if dotted else NAMES


def test_slimes_own_orders() -> None:
    needed = set()
    for line in golden("sort"):
        bundles = [(index, address, gpu_id) for index, address, gpu_id in line["bundles"]]
        order, theirs = bundle_order(bundles), line["result"]["current"]["order"]
        assert slimes_order(bundles) == theirs, line
        if order != theirs:
            assert order == plain_order(bundles), line
            addresses = [address for _, address, _ in bundles]
            assert not all(re.fullmatch(r"[0-9]+(\.[0-9]+){3}", address) for address in addresses), line
            needed.add(why_another_order(addresses))
    assert needed == {NAMES, AMONG, IPV6, STRICT}


APART = {"actor_num_nodes": 1, "rollout_num_gpus_per_engine": 4}


@pytest.mark.parametrize(
    ("flags", "nodes", "engine"),
    [
        ({"actor_num_gpus_per_node": 4, "rollout_num_gpus": 12}, (2, 8), "engine 1 on node 1"),
        ({"actor_num_gpus_per_node": 4, "rollout_num_gpus": 4}, (1, 8), None),
        ({"actor_num_gpus_per_node": 8, "rollout_num_gpus": 16}, (3, 8), None),
        ({"actor_num_gpus_per_node": 4, "rollout_num_gpus": 12}, (4, 4), "engine 1 on node 2"),
        ({"actor_num_gpus_per_node": 4, "rollout_num_gpus": 12, "num_gpus_per_node": 4}, (4, 4), None),
        ({"actor_num_gpus_per_node": 4, "rollout_num_gpus": 12, "colocate": True}, (2, 8), None),
        (
            {"actor_num_gpus_per_node": 4, "rollout_num_gpus": 12, "rollout_num_gpus_per_engine": 2},
            (2, 8),
            "engine 2 on node 1",
        ),
    ],
)
def test_engines_that_slime_gives_the_address_of_another_node(
    flags: dict[str, Any], nodes: tuple[int, int], engine: str | None
) -> None:
    """slime's own arithmetic: as many engines as fit on a node have the address of the first of them."""
    flags = APART | flags
    report = rankplan.check(flags, Inventory.uniform(*nodes))
    texts = [warning.message for warning in report.warnings if warning.code == "engine-address"]
    assert report.plan is not None and len(texts) == (engine is not None)
    assert engine is None or texts[0].startswith(f"slime gives {engine} the address of engine 0")
    on = [row.cluster_node_rank for row in report.plan["rollout"]]
    together = flags.get("num_gpus_per_node", 8) // flags["rollout_num_gpus_per_engine"]
    wrong = [rank for rank, node in enumerate(on) if on[rank // together * together] != node]
    assert bool(wrong) == (engine is not None)


def test_the_asynchronous_program_refuses_a_colocated_job(tmp_path: Path) -> None:
    """``train`` of train_async.py asserts it; with debug_rollout_only, slime ignores the flag."""
    flags = "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --rollout-num-gpus-per-engine 2"
    script = tmp_path / "run.sh"

    def codes(program: str, more: str) -> list[str]:
        script.write_text(f"python3 {program} {flags} {more}\n")
        return [f"{fault.code} {fault.line}" for fault in rankplan.check(script, "2x8").faults]

    assert codes("train_async.py", "--colocate") == ["invalid-value 1"]
    assert codes("train.py", "--colocate") == []
    assert codes("train_async.py", "--rollout-num-gpus 8") == []
    assert codes("train_async.py", "--colocate --debug-rollout-only") == []

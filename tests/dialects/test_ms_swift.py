"""ms-swift: the pools of Megatron on Ray, against what its own pipeline did; their faults; the ways to start it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import Actors, Diagnostic, Inventory, PlacementError, Plan, Request
from support.goldens import check_verdict, lines
from support.recorded_trainers import cluster, in_order

LINES = lines("ms_swift_pools")
FEW_CPUS = "few-cpus"
"""Nodes whose CPUs decide where Ray puts a group. A plan does not count them before it takes nodes."""

COLOCATED = {
    "rlhf_type": "grpo",
    "colocate_groups": [["train", "rollout"]],
    "train": {"gpus": 8},
    "rollout": {"gpus": 8, "vllm_tensor_parallel_size": 4},
}
APART = {"rlhf_type": "grpo", "train": {"gpus": 8}, "rollout": {"gpus": 8, "vllm_tensor_parallel_size": 8}}


def nodes_of(line: dict[str, Any]) -> Inventory:
    """The recorded nodes in the order of ms-swift, in which the simulation of Ray filled them."""
    return in_order(cluster(line), "text")


def ends(plan: Plan) -> dict[str, list[list[Any]]]:
    """The address and the GPUs of each process."""
    inventory = plan.inventory
    return {
        name: [[inventory.node(row.devices[0][0]).ip, [gpu for _, gpu in row.devices]] for row in component]
        for name, component in plan.items()
    }


def groups(requests: list[Request]) -> list[tuple[str | None, list[int], list[float | None]]]:
    return [(request.strategy, list(request.accelerators), list(request.cpus)) for request in requests]


def recorded_groups(line: dict[str, Any]) -> list[tuple[str | None, list[int], list[float | None]]]:
    found = []
    for request in line["requests"]:
        bundles = [bundle for times, bundle in request["bundles"] for _ in range(times)]
        found.append((request["strategy"], [one["GPU"] for one in bundles], [one["CPU"] for one in bundles]))
    return found


def difference_of(fault: Diagnostic) -> str:
    """The difference that explains a fault of a config that ms-swift starts."""
    if fault.code == "parallel-idle":
        return "swift-undivided-server"
    assert fault.code == "spans-nodes"
    return "swift-unlike-replicas" if "some of them are on more nodes" in fault.message else "swift-replica-over-nodes"


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_a_file_of_roles_is_placed_as_the_pipeline_places_it(line: dict[str, Any]) -> None:
    has_few_cpus = line["cluster"]["name"] == FEW_CPUS
    try:
        plan = rankplan.plan(line["config"], nodes_of(line), dialect="ms_swift")
    except PlacementError as error:
        codes = {fault.code for fault in error.diagnostics}
        if "error" in line or "waits" in line:
            expected = {"never-reserved", "spans-nodes"} if has_few_cpus and "waits" in line else codes
            assert codes & expected or "resource-out-of-range" in codes
            return
        check_verdict(line["id"], {difference_of(fault) for fault in error.diagnostics})
        return
    check_verdict(line["id"], [])
    assert "error" not in line
    assert all(request.name is None and request.order == "text" for request in plan.requests)
    if "waits" in line:
        assert has_few_cpus, "a plan that does not fit"
        assert groups(list(plan.requests))[: len(line["requests"])] == recorded_groups(line)
        return
    assert groups(list(plan.requests)) == recorded_groups(line)
    servers = [(role, len(component)) for role, component in plan.items() if role != "train"]
    assert sum(count for _, count in servers) == len(line["servers"])
    assert plan.actors == tuple(Actors(f"{role} server", cpus=1, component=role) for role, _ in servers)
    if not has_few_cpus:
        recorded = {role: [[ip, gpus] for _, _, ip, gpus in rows] for role, rows in line["ends"].items()}
        assert ends(plan) == recorded


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"rlhf_type": "dpo"}, "invalid-value", "`rlhf_type` is 'dpo'; it must be grpo or gkd on Ray"),
        ({"train": {}}, "missing-key", "`train.gpus` is missing or 0: ms-swift trains on no GPU"),
        (
            {"nnodes": 3},
            "not-multiple",
            "`train.gpus` is 8, which is no multiple of the 3 nodes of `nnodes`: each of them has the same number of "
            "GPUs of a role",
        ),
        (
            {"rollout": {"gpus": 4}, "colocate_groups": [["train", "rollout"]]},
            "invalid-value",
            "roles of `colocate_groups` have the same GPUs, but ask for different numbers: train.gpus 8, "
            "rollout.gpus 4",
        ),
        (
            {"colocate_groups": [["train", "teacher"]]},
            "missing-key",
            "`teacher` is in `colocate_groups[0]`, but `teacher.gpus` is missing or 0",
        ),
        ({"colocate_groups": [["train", "rolout"]]}, "invalid-value", "unknown role `rolout` in `colocate_groups[0]`"),
        ({"colocate_groups": [["train", "train"]]}, "invalid-value", "`train` is twice in `colocate_groups`"),
        (
            {"colocate_groups": [["train"]]},
            "invalid-value",
            "`colocate_groups[0]` is ['train']; it must be a list of 2 roles or more",
        ),
        (
            {"colocate_groups": "train"},
            "invalid-value",
            "`colocate_groups` is 'train'; it must be a list of lists of roles",
        ),
        (
            {"rollout": {"gpus": 6, "vllm_tensor_parallel_size": 2, "vllm_data_parallel_size": 2}},
            "not-multiple",
            "`rollout.gpus` is 6, which is no multiple of the 4 GPUs of a replica (vllm_tensor_parallel_size 2 x "
            "vllm_data_parallel_size 2)",
        ),
        (
            {"train": {"gpus": 8, "tensor_model_parallel_size": 3}},
            "parallel-not-divisible",
            "8 processes are not a multiple of tp 3",
        ),
    ],
)
def test_what_the_pipeline_refuses_is_a_fault(changes: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        rankplan.plan(APART | changes, "3x8", dialect="ms_swift")
    first = refused.value.diagnostics[0]
    assert (first.code, first.message) == (code, message)
    assert first.help


def test_a_replica_with_unequal_parts_is_a_fault() -> None:
    """ms-swift tells vLLM ``size // nodes`` GPUs on each node, also where 6 and 2 lie (``create_replicas``)."""
    three: dict[str, Any] = {"rlhf_type": "grpo", "nnodes": 3, "train": {"gpus": 3}}
    three["rollout"] = {"gpus": 9, "vllm_tensor_parallel_size": 9}
    two: dict[str, Any] = {"rlhf_type": "grpo", "nnodes": 2, "train": {"gpus": 2}}
    two["rollout"] = {"gpus": 12, "vllm_tensor_parallel_size": 4}
    for config, nodes, message in (
        (
            three,
            "3x8",
            "replica 0 of the rollout would have 3 on node 0 and 6 on node 1 (vllm_tensor_parallel_size 9): ",
        ),
        (
            two,
            "3x7",
            "replicas of the rollout (vllm_tensor_parallel_size 4) would have 2 and 4 GPUs on a node: some of",
        ),
    ):
        with pytest.raises(PlacementError) as refused:
            rankplan.plan(config, nodes, dialect="ms_swift")
        fault = refused.value.diagnostics[0]
        assert fault.code == "spans-nodes" and fault.message.startswith(message)


def test_an_engine_over_nodes_has_a_server_on_each() -> None:
    config = {"rlhf_type": "grpo", "nnodes": 2, "train": {"gpus": 16}} | {
        "rollout": {"gpus": 16, "vllm_tensor_parallel_size": 8, "vllm_data_parallel_size": 2}
    }
    plan = rankplan.plan(config, "4x8", dialect="ms_swift")
    assert [row.cluster_node_rank for row in plan["rollout"]] == [2, 3]
    assert plan["rollout"].engines == 2
    assert [list(request.nodes) for request in plan.requests] == [[0] * 8, [1] * 8, [2] * 8, [3] * 8]


def test_groups_of_a_pool_are_sorted_by_address_as_text() -> None:
    """``sort_pgs_by_node_ip``: within a pool, so that each pool keeps its nodes."""
    addresses = ["10.0.0.9", "10.0.0.10", "10.0.0.30", "10.0.0.4"]
    entries = [{"ranks": rank, "accelerators": 8, "ip": ip} for rank, ip in enumerate(addresses)]
    inventory = Inventory.from_dict({"nodes": entries})
    config = {"rlhf_type": "grpo", "nnodes": 2, "train": {"gpus": 16}, "rollout": {"gpus": 16}}
    plan = rankplan.plan(config, inventory, dialect="ms_swift")
    pools = [("text", [0, 1]), ("text", [2, 3])]
    assert [(order, list(requests)) for order, requests in plan.requests.pools()] == pools
    assert plan.requests.order_of_pools(inventory.core, []) == [1, 0, 2, 3]


def test_groups_without_a_name_on_any_nodes_are_pools_of_their_own() -> None:
    """SkyRL sorts the bundles of each group of its engines by itself."""
    groups_ = [Request("generator", None, [1, 1], nodes, "PACK", order="id") for nodes in ([0, 0], [1, 1])]
    assert len(rankplan.plan(APART, "2x8", dialect="ms_swift").requests) == 2
    plan = Plan(Inventory.uniform(2, 2), (), requests=groups_)
    assert [list(requests) for _, requests in plan.requests.pools()] == [[0], [1]]


SCRIPT = "megatron rlhf --use_ray true --config swift.yaml"


@pytest.mark.parametrize(
    ("command", "ignored"),
    [
        (SCRIPT, []),
        ("CUDA_VISIBLE_DEVICES=0 megatron rlhf --use_ray --config swift.yaml", []),
        ("python -m swift.ray.megatron.pipeline --config swift.yaml", []),
        (f"{SCRIPT} --train.gpus 4 --max-length 7", ["train.gpus", "max_length"]),
    ],
)
def test_only_the_file_counts(command: str, ignored: list[str], tmp_path: Path) -> None:
    """``MegatronRayPipeline`` reads the file alone (`ray/megatron/pipeline.py:394-405`)."""
    (tmp_path / "swift.yaml").write_text(json.dumps(COLOCATED))
    (path := tmp_path / "run.sh").write_text(f"cd {tmp_path}\n{command}\n")
    report = rankplan.check(path, "1x8")
    assert report.plan is not None and report.plan.dialect == "ms_swift"
    assert {name: len(component) for name, component in report.plan.items()} == {"train": 8, "rollout": 2}
    assert [fault.message.split("`")[3] for fault in report.warnings] == [f"--{name}" for name in ignored]


def test_without_use_ray_the_command_does_not_read_the_file(tmp_path: Path) -> None:
    (tmp_path / "swift.yaml").write_text(json.dumps(COLOCATED))
    (path := tmp_path / "run.sh").write_text("megatron rlhf --config swift.yaml\n")
    faults = rankplan.check(path, "1x8").faults
    assert [(fault.code, fault.help) for fault in faults] == [("missing-key", "add --use_ray true")]


def test_other_programs_are_no_rl_jobs(tmp_path: Path) -> None:
    (path := tmp_path / "run.sh").write_text("swift sft --model m\n")
    fault = rankplan.check(path, "1x8").faults[0]
    assert fault.message.startswith("`swift sft` is supervised fine-tuning (SFT), not an RL job")


@pytest.mark.parametrize(
    ("cpus", "message"),
    [
        (8, "the trainer asks for 10 CPUs, but its nodes have 8: 8 for its groups, 2 for the rollout server"),
        (9, "the trainer asks for 10 CPUs, but its nodes have 9: 8 for its groups, 2 for the rollout server"),
        (10, None),
    ],
)
def test_servers_need_cpus_beside_the_groups(cpus: int, message: str | None) -> None:
    config = {"rlhf_type": "grpo", "train": {"gpus": 4}, "rollout": {"gpus": 4, "vllm_tensor_parallel_size": 2}}
    inventory = Inventory.from_dict({"nodes": [{"ranks": 0, "accelerators": 8, "cpus": cpus}]})
    report = rankplan.check(config, inventory, dialect="ms_swift")
    assert [fault.message for fault in report.faults] == ([] if message is None else [message])


def test_servers_are_on_the_nodes_of_their_engines() -> None:
    """Another node has CPUs enough; but Ray waits for those of the node with the group."""
    config = {"rlhf_type": "grpo", "train": {"gpus": 8}, "rollout": {"gpus": 8, "vllm_tensor_parallel_size": 4}}
    entries = [{"ranks": "0-1", "accelerators": 8, "cpus": 9}, {"ranks": 2, "accelerators": 0, "cpus": 64}]
    report = rankplan.check(config, Inventory.from_dict({"nodes": entries}), dialect="ms_swift")
    assert report.faults == []
    assert [fault.message for fault in report.warnings if fault.code == "never-reserved"] == [
        "node 1 has 1 of the 2 CPUs that its rollout servers ask for beside the groups"
    ]
    alike = Inventory.from_dict({"nodes": entries[:1]})
    refused = rankplan.check(config, alike, dialect="ms_swift").faults
    assert [fault.message for fault in refused] == [
        "node 1 has 1 of the 2 CPUs that its rollout servers ask for beside the groups"
    ]

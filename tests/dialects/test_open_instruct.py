"""open-instruct: learners on nodes of their own and engines beside them, against its own code; mason.py; faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import Inventory, PlacementError, Plan
from support.goldens import lines, named

LINES = lines("open_instruct_groups")
FLAGS = "--num_learners_per_node 8 8 --vllm_num_engines 16 --vllm_tensor_parallel_size 1"


def inventory(line: dict[str, Any]) -> Inventory:
    nodes = line["cluster"]["nodes"]
    return Inventory.from_dict(
        {
            "nodes": [
                {"ranks": rank, "ip": ip, "accelerators": gpus, "cpus": cpus}
                for rank, (ip, gpus, cpus) in enumerate(nodes)
            ]
        }
    )


def nodes_of(plan: Plan, name: str) -> list[str | None]:
    return [plan.inventory.node(row.cluster_node_rank).ip for row in plan[name]]


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_flags_are_placed_as_the_code_places_them(line: dict[str, Any]) -> None:
    try:
        plan = rankplan.plan(line["question"], inventory(line), dialect="open_instruct")
    except PlacementError as error:
        codes = {fault.code for fault in error.diagnostics}
        if line["cluster"]["name"] == "few-cpus" and codes == {"never-reserved"}:
            assert "waits" in line or "refused" in line
            return
        if "parallel-not-divisible" in codes:
            assert sum(line["question"]["num_learners_per_node"]) % line["question"]["sequence_parallel_size"]
            named("open-instruct-undivided-sequences")
            return
        assert "error" in line or "waits" in line or "refused" in line, codes
        return
    assert "error" not in line and "refused" not in line
    if "waits" in line:
        assert line["cluster"]["name"] == "few-cpus", "a plan that does not fit"
        return
    recorded = [
        (one["strategy"], [(size["GPU"], size["CPU"]) for times, size in one["bundles"] for _ in range(times)])
        for one in line["requests"]
    ]
    asked = [(one.strategy, list(zip(one.accelerators, one.cpus, strict=True))) for one in plan.requests]
    assert asked == recorded
    if line["cluster"]["name"] == "few-cpus":
        return  # whose CPUs decide where Ray puts a group
    assert nodes_of(plan, "learner") == [actor["node"] for actor in line["learners"]]
    assert nodes_of(plan, "vllm") == [actor["node"] for actor in line["engines"]]
    if not line["question"].get("single_gpu_mode"):
        for name, actors in (("learner", line["learners"]), ("vllm", line["engines"])):
            assert [[gpu for _, gpu in row.devices] for row in plan[name]] == [actor["ids"] for actor in actors]
    else:
        shares = {actor["gpus"] for actor in line["learners"]}, {actor["gpus"] for actor in line["engines"]}
        assert ({plan["learner"].share}, {plan["vllm"].share}) == shares


@pytest.mark.parametrize(
    ("flags", "nodes", "code", "message"),
    [
        (
            {"num_learners_per_node": [8, 8]},
            "1x24",
            "resource-out-of-range",
            "the learners need 2 nodes, one for each of 8 8, but none is left with 8 free accelerators after 1 node",
        ),
        (
            {"num_learners_per_node": [4], "vllm_num_engines": 2, "vllm_tensor_parallel_size": 3},
            "2x5",
            "spans-nodes",
            "engine 1 needs 3 accelerators of one node (vllm_tensor_parallel_size 3), but no node has as many left: 3 "
            "are free in all",
        ),
        (
            {"single_gpu_mode": True, "vllm_num_engines": 2},
            "1x8",
            "invalid-value",
            "`vllm_num_engines` is 2; with single_gpu_mode, each engine takes one of the 1 bundle of the learners: "
            "open-instruct ends with an IndexError",
        ),
        (
            {"single_gpu_mode": True, "vllm_tensor_parallel_size": 2},
            "1x8",
            "invalid-value",
            "`vllm_tensor_parallel_size` is 2; with single_gpu_mode, an engine has a part of one GPU",
        ),
        (
            {"num_learners_per_node": [8], "num_unique_prompts_rollout": 2, "num_samples_per_prompt_rollout": 2},
            "2x8",
            "invalid-value",
            "4 samples of a step (num_unique_prompts_rollout x num_samples_per_prompt_rollout) are fewer than the 8 "
            "data-parallel learners",
        ),
        (
            {"num_learners_per_node": [8], "fsdp_shard_degree": 4, "fsdp_num_replicas": 4},
            "2x8",
            "parallel-not-divisible",
            "`fsdp_shard_degree` 4 x `fsdp_num_replicas` 4 are 16, but there are 8 learners",
        ),
        (
            {"num_learners_per_node": [8], "fsdp_shard_degree": 3},
            "2x8",
            "parallel-not-divisible",
            "8 learners are not a multiple of `fsdp_shard_degree` 3",
        ),
        (
            {"num_learners_per_node": "8 x"},
            "2x8",
            "invalid-value",
            "`num_learners_per_node` is '8 x'; it must be one or more whole numbers of 1 or more",
        ),
    ],
)
def test_what_fails_when_the_job_starts_is_a_fault(flags: dict[str, Any], nodes: str, code: str, message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        rankplan.plan(flags, nodes, dialect="open_instruct")
    first = refused.value.diagnostics[0]
    assert (first.code, first.message) == (code, message)
    assert first.help


def test_eight_learners_want_eighty_cpus() -> None:
    nodes = Inventory.from_dict({"nodes": [{"ranks": "0-1", "accelerators": 8, "cpus": 64}]})
    report = rankplan.check({"num_learners_per_node": [8]}, nodes, dialect="open_instruct")
    assert [fault.message for fault in report.faults] == [
        "a bundle of learner asks for 80 CPUs, but no node has more than 64"
    ]


@pytest.mark.parametrize(
    "start",
    [
        "python mason.py --num_nodes {n} --gpus 8 -- source configs/ray.sh \\&\\& python open_instruct/grpo_fast.py",
        "python mason.py --num_nodes {n} --gpus 8 -- source a.sh \\&\\&python open_instruct/grpo_fast.py",
        "uv run mason.py --cluster a --num_nodes {n} --gpus 8 -- uv run open_instruct/grpo_fast.py",
        "python mason.py --num_nodes {n} --gpus 8 -- A=1 python -m open_instruct.grpo_fast",
        "python mason.py --num_nodes {n} --gpus 8 -- $PROGRAM",
    ],
)
def test_a_command_of_mason_has_its_nodes(start: str, tmp_path: Path) -> None:
    (path := tmp_path / "run.sh").write_text(f"{start.format(n=4)} \\\n  {FLAGS} --stop_strings '</answer>'\n")
    report = rankplan.check(path)
    assert report.plan is not None and report.plan.inventory.num_nodes == 4
    assert {name: len(component) for name, component in report.plan.items()} == {"learner": 16, "vllm": 16}
    path.write_text(f"{start.format(n=3)} {FLAGS}\n")
    faults = rankplan.check(path).faults
    assert [(fault.code, fault.message) for fault in faults] == [
        ("resource-out-of-range", "vllm needs 16 accelerators, more than what is left of the cluster: 8")
    ]


@pytest.mark.parametrize("before", ["", "source a.sh && ", "cd /x; "])
def test_a_command_of_mason_may_be_one_word(before: str, tmp_path: Path) -> None:
    """mason.py joins the words with blanks, and bash reads them."""
    text = f"python mason.py --num_nodes 4 --gpus 8 -- '{before}python open_instruct/grpo_fast.py {FLAGS}'\n"
    (path := tmp_path / "run.sh").write_text(text)
    plan = rankplan.plan(path)
    assert {name: len(component) for name, component in plan.items()} == {"learner": 16, "vllm": 16}


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("python mason.py --num_nodes 1 --gpus 1 -- python other.py --x 1", "a launch on Beaker of an unread command"),
        ("python mason.py --num_nodes 1 --gpus 1 -- python other.py", "a launch on Beaker of an unread command"),
        (
            "python mason.py --num_nodes 1 --gpus 1 -- bash tests.sh",
            "a launch on Beaker of an unread command",
        ),
        ("python -m open_instruct.benchmark_generators --vllm_num_engines 1", "a measurement of engines"),
        ("torchrun scripts/OLMo-sft.py train --cluster=slurm", "supervised fine-tuning (SFT)"),
    ],
)
def test_what_trains_nothing_online_is_no_job(command: str, what: str, tmp_path: Path) -> None:
    (path := tmp_path / "run.sh").write_text(f"{command}\n")
    (fault,) = rankplan.check(path).faults
    assert fault.code == "no-components" and f" is {what}, not an RL job" in fault.message


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("grpo_fast", "unknown-key", "open-instruct has no `actor_num_gpus_per_node` any more: it refuses the command"),
        ("ppo_vllm_thread_ray_gtrl", "no-components", "gtrl.py` is a trainer that open-instruct no longer has: there"),
    ],
)
def test_what_only_older_versions_have_is_named(program: str, code: str, said: str, tmp_path: Path) -> None:
    (path := tmp_path / "run.sh").write_text(f"python open_instruct/{program}.py --actor_num_gpus_per_node 7 8\n")
    (fault,) = rankplan.check(path).faults
    assert fault.code == code and said in fault.message
    assert fault.line == 1 and fault.help


def test_learners_of_olmo_core_may_share_a_node(tmp_path: Path) -> None:
    """`grpo.py`: SPREAD, and as many CPUs; no check of the batch."""
    (path := tmp_path / "run.sh").write_text(
        "python open_instruct/grpo.py --num_learners_per_node 4 4 --vllm_num_engines 8 --num_unique_prompts_rollout 1\n"
    )
    plan = rankplan.plan(path, "1x16")
    assert [request.strategy for request in plan.requests] == ["SPREAD", "PACK"]
    assert [list(request.accelerators) for request in plan.requests] == [[4, 4], [1] * 8]
    assert [actors.name for actors in plan.actors] == ["data preparation"]
    with pytest.raises(PlacementError):
        path.write_text(
            path.read_text().replace("grpo.py", "grpo_fast.py").replace("--num_unique_prompts_rollout 1", "")
        )
        rankplan.plan(path, "1x16")

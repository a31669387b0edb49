"""ms-swift without Ray: its shipped scripts, where the processes of their commands are, and faults between commands."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import PlacementError, Plan
from rankplan.front.command import reject_without_ray
from rankplan.front.job import unplaced_job
from support.commands import run
from support.goldens import lines

LINES = lines("ms_swift_scripts")
GRPO = "--rlhf_type grpo --use_vllm true"
COLOCATE = f"{GRPO} --vllm_mode colocate"
SERVER = f"{GRPO} --vllm_mode server --vllm_server_host 127.0.0.1"


def written(line: dict[str, Any], folder: Path) -> Path:
    """Write a script with the recorded commands, and the files that they name."""
    words = []
    for command in line["commands"]:
        launch = list(command["launch"])
        if "processes" in command:
            file = {"distributed_type": "FSDP", "num_machines": 1, "num_processes": command["processes"]}
            (folder / "accelerate.json").write_text(json.dumps(file))
            launch[launch.index("--config_file") + 1] = str(folder / "accelerate.json")
        flags = [word for name, values in command["flags"].items() for word in (f"--{name}", *values)]
        variables = [f"{name}={value}" for name, value in command["variables"].items()]
        words.append(" ".join([*variables, shlex.join([*launch, *command["program"].split(), *flags])]))
        if "config" in command["flags"]:
            roles = {"rlhf_type": "grpo", "train": {"gpus": 8}}
            (folder / Path(command["flags"]["config"][0]).name).write_text(json.dumps(roles))
    (script := folder / "run.sh").write_text(" &\n".join(words) + "\n")
    return script


def places(plan: Plan) -> dict[str, list[list[Any]]]:
    """The node and the devices of each process."""
    return {
        name: [[row.devices[0][0], [device for _, device in row.devices]] for row in component]
        for name, component in plan.items()
    }


@pytest.mark.parametrize("line", LINES, ids=[line["file"].removeprefix("examples/") for line in LINES])
def test_a_shipped_script_is_read_as_its_commands_start(line: dict[str, Any], tmp_path: Path) -> None:
    report = rankplan.check(written(line, tmp_path))
    if "refused" in line:
        assert [fault.code for fault in report.faults] == [line["refused"]]
        return
    assert report.plan is not None, report.faults
    assert (report.plan.dialect == "ms_swift") == ("on_ray" in line)
    if "on_ray" in line:
        assert report.plan.requests
    else:
        assert places(report.plan) == line["components"]
        assert not report.plan.requests


def test_the_shipped_scripts_are_of_every_kind() -> None:
    """As the table in `docs/systems/ms-swift.md` counts them."""
    kinds = Counter(line.get("refused") or "+".join(line.get("components", ["on Ray"])) for line in LINES)
    assert kinds == {"train+rollout": 48, "train": 22, "on Ray": 5, "no-components": 27}


def check(text: str, folder: Path, nodes: str | None = None) -> rankplan.Report:
    (script := folder / "run.sh").write_text(text)
    return rankplan.check(script, nodes)


@pytest.mark.parametrize(
    ("text", "nodes", "code", "message"),
    [
        (
            f"CUDA_VISIBLE_DEVICES=0 swift rollout &\nCUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift rlhf {SERVER}",
            None,
            "duplicate-resource",
            "device 0 of node 0 has rank 0 of the trainer and a server of vLLM: the group that sends the weights has "
            "it twice",
        ),
        (
            "CUDA_VISIBLE_DEVICES=2 swift rollout &\nCUDA_VISIBLE_DEVICES=2 swift rollout --port 8001 &\n"
            f"CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift rlhf {SERVER} 127.0.0.1 --vllm_server_port 8000 8001",
            None,
            "duplicate-resource",
            "servers 0 and 1 share devices of node 0",
        ),
        (
            "CUDA_VISIBLE_DEVICES=2 swift rollout &\nCUDA_VISIBLE_DEVICES=3 swift rollout &\n"
            f"CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift rlhf {SERVER} 127.0.0.1",
            None,
            "invalid-value",
            "two servers of node 0 have port 8000",
        ),
        (
            f"CUDA_VISIBLE_DEVICES=0,1 swift rollout --vllm_tensor_parallel_size 4 &\n"
            f"CUDA_VISIBLE_DEVICES=4 swift rlhf {SERVER}",
            None,
            "resource-out-of-range",
            "the server needs 4 devices of node 0, but sees 2 (CUDA_VISIBLE_DEVICES=0,1)",
        ),
        (
            f"CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=4 swift rlhf {COLOCATE}",
            None,
            "resource-out-of-range",
            "the trainer needs 4 devices of node 0, but sees 2 (CUDA_VISIBLE_DEVICES=0,1)",
        ),
        (
            f"CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=3 swift rlhf {COLOCATE}",
            None,
            "not-multiple",
            "the 4 visible devices of node 0 cannot be divided among 3 processes: ms-swift ends with an AssertionError",
        ),
        (
            f"NPROC_PER_NODE=4 swift rlhf {COLOCATE}",
            "1x8",
            "invalid-value",
            "4 processes would shard the model over 8 visible devices (device_map), which ms-swift refuses with vLLM",
        ),
        (
            "NPROC_PER_NODE=4 swift rlhf --rlhf_type gkd --deepspeed zero2",
            "1x8",
            "invalid-value",
            "4 processes would shard the model over 8 visible devices (device_map), which ms-swift refuses with "
            "deepspeed",
        ),
        (
            f"NPROC_PER_NODE=8 swift rlhf {COLOCATE} --vllm_tensor_parallel_size 3",
            "1x8",
            "parallel-not-divisible",
            "engines of 3 processes do not divide the 8 of the trainer",
        ),
        (
            f"NNODES=2 NODE_RANK=0 NPROC_PER_NODE=6 swift rlhf {COLOCATE} --vllm_tensor_parallel_size 4",
            "2x6",
            "spans-nodes",
            "engine 1 of the rollout, of 4 processes, is on nodes 0 and 1",
        ),
        (
            f"NNODES=2 NODE_RANK=0 NPROC_PER_NODE=8 swift rlhf {COLOCATE}",
            "1x8",
            "too-few-nodes",
            "the trainer needs node 1, but the cluster has 1 node",
        ),
        (
            f"CUDA_VISIBLE_DEVICES=6,9 NPROC_PER_NODE=2 swift rlhf {COLOCATE}",
            "1x8",
            "resource-out-of-range",
            "CUDA_VISIBLE_DEVICES=6,9 has device 9, but node 0 has 8",
        ),
        (
            f"NNODES=2 NODE_RANK=1 NPROC_PER_NODE=4 swift rlhf {COLOCATE} &\n"
            f"NNODES=2 NODE_RANK=1 NPROC_PER_NODE=4 swift rlhf {COLOCATE}",
            None,
            "bad-node-rank",
            "two commands have NODE_RANK 1",
        ),
        (
            f"swift rlhf {GRPO}",
            None,
            "missing-key",
            "`use_vllm` is true, but `vllm_mode` is missing: ms-swift has no default",
        ),
        (
            "swift rlhf --rlhf_type grpo --vllm_mode colocate",
            None,
            "invalid-value",
            "`vllm_mode` is colocate, but `use_vllm` is not true: ms-swift refuses the command",
        ),
        (
            f"swift rlhf {GRPO} --vllm_mode colocated",
            None,
            "invalid-value",
            "`vllm_mode` is 'colocated'; it must be server or colocate",
        ),
        (
            f"swift rlhf {GRPO} --vllm_mode server",
            None,
            "missing-key",
            "`vllm_mode` is server, but neither `vllm_server_host` nor `vllm_server_base_url` is stated",
        ),
        (
            "NPROC_PER_NODE=8 swift rlhf --rlhf_type kto",
            None,
            "no-components",
            "`rlhf_type` kto is preference training (DPO), not an RL job: there is no component to place",
        ),
        (
            "NPROC_PER_NODE=8 megatron rlhf --rlhf_type rm",
            None,
            "no-components",
            "`rlhf_type` rm is the training of a reward model, not an RL job: there is no component to place",
        ),
        ("swift rollout --model m", None, "no-components", "`swift rollout` is serving of a model, not an RL job"),
    ],
)
def test_what_would_fail_is_a_fault(text: str, nodes: str | None, code: str, message: str, tmp_path: Path) -> None:
    fault = check(text, tmp_path, nodes).faults[0]
    assert (fault.code, fault.message.partition(": there is no component")[0]) == (
        code,
        message.partition(": there is no component")[0],
    )
    assert fault.help and fault.line is not None


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (
            f"CUDA_VISIBLE_DEVICES=7 swift rollout &\nCUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift rlhf {COLOCATE}",
            "parallel-idle",
            "the server of vLLM is idle: `vllm_mode` is colocate",
        ),
        (
            f"CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift rlhf {SERVER}",
            "not-read",
            "`vllm_mode` is server, but no command here is `swift rollout`: its devices are not in the plan",
        ),
        (
            f"CUDA_VISIBLE_DEVICES=$SOME NPROC_PER_NODE=2 swift rlhf {COLOCATE}",
            "not-run",
            "which devices the command sees is known only when the script runs: it depends on SOME",
        ),
        (
            f"NPROC_PER_NODE=2 swift rlhf {COLOCATE}\nNPROC_PER_NODE=2 swift rlhf {COLOCATE}",
            "not-read",
            "2 commands start a trainer on one node: only one of them is planned",
        ),
    ],
)
def test_what_is_not_planned_is_a_warning(text: str, code: str, message: str, tmp_path: Path) -> None:
    report = check(text, tmp_path)
    assert report.faults == []
    assert (code, message) in [(warning.code, warning.message) for warning in report.warnings]


def test_servers_on_other_nodes_follow_those_of_the_training(tmp_path: Path) -> None:
    """Each server is on the node of its host; the address with its port, else the order of the commands, tells it."""
    servers = [f"CUDA_VISIBLE_DEVICES=0,1 swift rollout --vllm_data_parallel_size 2 --port {port} &" for port in (2, 1)]
    hosts = "--vllm_server_host a b --vllm_server_port 1 2"
    trainer = f"NNODES=2 NODE_RANK=0 NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1 swift rlhf {GRPO} --vllm_mode server"
    report = check("\n".join([*servers, f"{trainer} {hosts}"]), tmp_path)
    assert report.plan is not None
    assert places(report.plan) == {
        "train": [[0, [0]], [0, [1]], [1, [0]], [1, [1]]],
        "rollout": [[3, [0]], [3, [1]], [2, [0]], [2, [1]]],
    }
    urls = f"{trainer} --vllm_server_base_url http://a:1 http://localhost:2"
    mixed = check("\n".join([servers[1], servers[0].replace("0,1", "6,7"), urls]), tmp_path).plan
    assert mixed is not None and places(mixed)["rollout"] == [[2, [0]], [2, [1]], [0, [6]], [0, [7]]]


def test_a_process_that_sees_several_devices_has_every_nth_of_them(tmp_path: Path) -> None:
    """``device_map`` of rank r has devices r, r + n, ... (``patch_mp_ddp``)."""
    text = "CUDA_VISIBLE_DEVICES=4,5,6,7 NPROC_PER_NODE=2 swift rlhf --rlhf_type gkd --model m"
    plan = check(text, tmp_path).plan
    assert plan is not None and places(plan) == {"train": [[0, [4, 6]], [0, [5, 7]]]}
    single = check("CUDA_VISIBLE_DEVICES=4,5 swift rlhf --rlhf_type ppo --model m", tmp_path).plan
    assert single is not None and places(single) == {"train": [[0, [4, 5]]]}
    megatron = check(f"CUDA_VISIBLE_DEVICES=4,5,6,7 NPROC_PER_NODE=2 megatron rlhf {COLOCATE}", tmp_path).plan
    assert megatron is not None and places(megatron)["train"] == [[0, [4]], [0, [5]]]


@pytest.mark.parametrize(
    ("command", "devices", "mask"),
    [
        ("CUDA_VISIBLE_DEVICES=7,6,5,4 NPROC_PER_NODE=2 swift rlhf --rlhf_type ppo", [[7, 5], [6, 4]], "7,6,5,4"),
        ("NPROC_PER_NODE=4 swift rlhf --rlhf_type ppo", [[0], [1], [2], [3]], "0,1,2,3"),
    ],
)
def test_a_file_shows_the_devices_in_the_order_of_the_plan(
    command: str, devices: list[list[int]], mask: str, tmp_path: Path
) -> None:
    """Process r has every n-th visible device from r on."""
    (script := tmp_path / "run.sh").write_text(f"{command} --model m\n")
    plan = rankplan.plan(script, "1x8" if "VISIBLE" in command else "1x4")
    assert places(plan) == {"train": [[0, own] for own in devices]}
    count = f"NPROC_PER_NODE={len(devices)}"
    assert f" {count} CUDA_VISIBLE_DEVICES={mask} exec " in rankplan.emit(plan, "slurm")


def test_a_yaml_is_the_first_word_and_sets_variables(tmp_path: Path) -> None:
    """``parse_yaml_args``: ``ENV`` is under the environment, flags are over the file."""
    own = {"NPROC_PER_NODE": 4, "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    config = {"rlhf_type": "grpo", "use_vllm": True, "vllm_mode": "colocate", "ENV": own}
    (file := tmp_path / "swift.yaml").write_text(json.dumps(config))
    alone = rankplan.check(file).plan
    assert alone is not None and alone.dialect is None
    assert places(alone) == {"train": [[0, [0]], [0, [1]], [0, [2]], [0, [3]]]} | {"rollout": places(alone)["train"]}
    text = "NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=6,7 swift rlhf swift.yaml --vllm_tensor_parallel_size 2"
    plan = check(text, tmp_path).plan
    assert plan is not None and places(plan) == {"train": [[0, [6]], [0, [7]]], "rollout": [[0, [6, 7]]]}
    megatron = check("megatron rlhf swift.yaml --tensor_model_parallel_size 2", tmp_path).plan
    assert megatron is not None and megatron["train"].parallel.tp == 2


def test_experts_are_not_divided_like_other_tensors(tmp_path: Path) -> None:
    """``expert_tensor_parallel_size`` is 1 by default; Megatron's own default is the tensor size."""
    sizes = "--tensor_model_parallel_size 4 --expert_model_parallel_size 8"
    plan = check(f"NPROC_PER_NODE=8 megatron rlhf {COLOCATE} {sizes}", tmp_path).plan
    assert plan is not None and plan["train"].parallel.etp == 1
    stated = check(f"NPROC_PER_NODE=8 megatron rlhf {COLOCATE} {sizes} --expert_tensor_parallel_size 2", tmp_path)
    assert [fault.code for fault in stated.faults] == ["parallel-not-divisible"]
    roles = {"rlhf_type": "grpo", "train": {"gpus": 8, "tensor_model_parallel_size": 4}}
    on_ray = rankplan.plan(roles | {"expert_model_parallel_size": 8}, "1x8", dialect="ms_swift")
    assert on_ray["train"].parallel.etp == 1


def test_pin_says_that_ray_starts_no_process(tmp_path: Path) -> None:
    (script := tmp_path / "run.sh").write_text(f"NPROC_PER_NODE=8 swift rlhf {COLOCATE}\n")
    with pytest.raises(PlacementError, match=r"run.sh is a job of ms-swift, which starts its processes without Ray"):
        reject_without_ray(unplaced_job(script))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "CUDA_VISIBLE_DEVICES=4 swift rollout &\nCUDA_VISIBLE_DEVICES=5 swift rollout --port 8001 &\n"
            f"NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1 swift rlhf {SERVER} b --vllm_server_port 8000 8001",
            "2 servers are started: a file of a launcher has the command of one",
        ),
        (
            f"NPROC_PER_NODE=8 swift rlhf {COLOCATE} --model $(date)",
            "the word `...` of this command is known only when the script runs",
        ),
    ],
)
def test_what_no_file_of_a_launcher_can_have_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (script := tmp_path / "run.sh").write_text(text + "\n")
    assert rankplan.check(script).plan is not None
    refused = run("emit", str(script), "--to", "slurm")
    assert refused.exit_code == 1 and message in refused.output, refused.output


FULL = f"{COLOCATE} --model Qwen/Qwen2.5-7B-Instruct --tuner_type full --beta 0 --max_length 2048"


@pytest.mark.parametrize(
    ("text", "train", "rollout"),
    [
        (
            f"swift rlhf {FULL} --deepspeed zero3",
            {
                "training": "deepspeed",
                "zero_stage": 3,
                "sleep": "none",
                "lora": None,
                "tokens": 2560,
                "recompute": "full",
            },
            {"engine": "vllm", "sleep": "none", "share": 0.9},
        ),
        (
            f"swift rlhf {FULL} --deepspeed zero2 --sleep_level 1 --offload_model true --offload_optimizer true",
            {"zero_stage": 2, "sleep": "host"},
            {"sleep": "host"},
        ),
        (
            f"swift rlhf {COLOCATE} --model Qwen/Qwen2.5-7B-Instruct --deepspeed zero1 --lora_rank 16",
            {"zero_stage": 1, "lora": 16},
            {"sleep": "none"},
        ),
        (f"megatron rlhf {FULL} --sleep_level 2", {"training": "megatron", "sleep": "none"}, {"sleep": "free"}),
        (f"swift rlhf {FULL} --deepspeed ds.json", None, {"sleep": "none"}),
        (f"swift rlhf {FULL.replace('--beta 0', '')} --deepspeed zero3", None, {"sleep": "none"}),
    ],
)
def test_what_the_processes_keep(
    text: str, train: dict[str, Any] | None, rollout: dict[str, Any], tmp_path: Path
) -> None:
    plan = check(f"NPROC_PER_NODE=8 {text}", tmp_path).plan
    assert plan is not None
    for component, wanted in (("train", train), ("rollout", rollout)):
        memory = plan[component].memory
        assert (memory is None) == (wanted is None), component
        assert {key: getattr(memory, key) for key in wanted or ()} == (wanted or {})


def test_nothing_is_said_of_a_server(tmp_path: Path) -> None:
    """Its own command states what it keeps."""
    serve = "CUDA_VISIBLE_DEVICES=7 swift rollout --model Qwen/Qwen2.5-7B-Instruct &\n"
    train = f"CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift rlhf {SERVER} --model Qwen/Qwen2.5-7B-Instruct"
    plan = check(f"{serve}{train} --deepspeed zero3", tmp_path).plan
    assert plan is not None and plan["rollout"].memory is None and plan["train"].memory is not None


def test_a_yaml_alone_starts_as_its_command(tmp_path: Path) -> None:
    (path := tmp_path / "conf.yaml").write_text(
        "rlhf_type: grpo\nuse_vllm: true\nvllm_mode: colocate\nENV: {NPROC_PER_NODE: 2}\n"
    )
    (command,) = rankplan.plan(path).job.commands
    assert command.words == ("swift", "rlhf", str(path)) and command.inside == ("rollout",)
    assert command.variables["NPROC_PER_NODE"] == "{node_processes}"

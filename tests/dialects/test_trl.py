"""TRL: its trainer and its server as commands of one script, with masks, nodes and files of accelerate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import rankplan
from rankplan import PlacementError, Plan
from rankplan.render.report import Report
from support.commands import run

ZERO2 = """
deepspeed_config: {deepspeed_multinode_launcher: standard, zero_stage: 2}
distributed_type: DEEPSPEED
machine_rank: 0
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
"""
DEMO = """
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
use_vllm: true
gradient_accumulation_steps: 4
per_device_train_batch_size: 16
num_generations: 16
"""
SERVER_AND_TRAINER = """
CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model Qwen/Qwen2.5-1.5B-Instruct              # one node of 8
CUDA_VISIBLE_DEVICES=1,2,3,4,5,6,7 \\
    accelerate launch --config_file recipes/accelerate_configs/zero2.yaml --num_processes=7 \\
    src/open_r1/grpo.py --config recipes/Qwen2.5-1.5B-Instruct/grpo/config_demo_code.yaml
"""
SUBMITTED = (
    "sbatch --nodes=2 slurm/train.slurm --model Qwen2.5-1.5B-Instruct --task grpo --config demo --accelerator zero2"
    " --dp 8 --tp 1\n"
)
# In this order and with these forms of bash, the batch script of open-r1 divides the nodes of its job.
BATCH = r"""#!/bin/bash
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
if [[ "$*" == *"--help"* ]]; then exit 0; fi
MODEL=""
TP=1
OPTIONAL=""
while [[ $# -gt 0 ]]; do
  case $1 in
    --model) MODEL="$2"; shift 2 ;;
    --task) TASK="$2"; shift 2 ;;
    --config) SUFFIX="$2"; shift 2 ;;
    --accelerator) ACCELERATOR="$2"; shift 2 ;;
    --dp) DP="$2"; shift 2 ;;
    --tp) TP="$2"; shift 2 ;;
    *) exit 1 ;;
  esac
done
if [[ -z "$MODEL" || -z "$TASK" ]]; then exit 1; fi
FILE=recipes/$MODEL/$TASK/config_$SUFFIX.yaml
STEPS=$(grep 'gradient_accumulation_steps' $FILE | awk '{print $2}')
COUNT=$SLURM_NNODES
WORLD=$(($COUNT*8))
NAMES=($(scontrol show hostnames $SLURM_JOB_NODELIST))
FIRST=${NAMES[0]}
TRAINING=("${NAMES[@]}")
WITH_VLLM="false"
if [[ -f "$FILE" ]] && grep -qE '^\s*use_vllm:\s*true' "$FILE"; then WITH_VLLM="true"; fi
if [[ "$WITH_VLLM" == "true" ]]; then
    TRAINING=("${NAMES[@]:0:$((COUNT - 1))}")
    SERVING=${NAMES[-1]}
    WORLD=$((WORLD - 8))
    COUNT=$((COUNT - 1))
    srun --nodes=1 --ntasks=1 --nodelist=$SERVING \
        trl vllm-serve --model $MODEL --tensor_parallel_size $TP --data_parallel_size $DP &
    OPTIONAL="$OPTIONAL --vllm_server_host=$SERVING"
fi
export COMMAND=" src/open_r1/$TASK.py --config $FILE $OPTIONAL"
export LAUNCHER="LEVEL=info accelerate launch --config_file recipes/accelerate_configs/$ACCELERATOR.yaml \
    --gradient_accumulation_steps $STEPS --num_machines $COUNT --num_processes $WORLD \
    --main_process_ip $FIRST --main_process_port 6000 --machine_rank $SLURM_PROCID --rdzv_backend=c10d --tee 3 "
NAMES=$(IFS=,; echo "${TRAINING[*]}")
STEP=" --wait=60 --nodes=$COUNT --ntasks=$COUNT --nodelist=$NAMES "
srun $STEP bash -c "$LAUNCHER $COMMAND" 2>&1
"""
TRL_GRPO = (
    "trl grpo --config x.yaml --accelerate_config zero3 --num_machines 2 --num_processes 16 --main_process_ip n0"
    " --machine_rank 0\n"
)
COLOCATED = "use_vllm: true\nvllm_tensor_parallel_size: 4\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository as open-r1 has it, with the version of TRL that it pins."""
    recipes = tmp_path / "recipes" / "Qwen2.5-1.5B-Instruct" / "grpo"
    for folder in (recipes, tmp_path / "recipes" / "accelerate_configs", tmp_path / "slurm", tmp_path / ".git"):
        folder.mkdir(parents=True)
    (tmp_path / "setup.py").write_text('deps = ["trl[vllm]==0.18.0"]\n')
    (recipes / "config_demo.yaml").write_text(DEMO)
    (recipes / "config_demo_code.yaml").write_text(DEMO.replace("num_generations: 16", "num_generations: 14"))
    (tmp_path / "recipes" / "accelerate_configs" / "zero2.yaml").write_text(ZERO2)
    (tmp_path / "slurm" / "train.slurm").write_text(BATCH)
    return tmp_path


def script(folder: Path, text: str, **files: str) -> Path:
    """Write a script, and files beside it: ``x_yaml`` is ``x.yaml``."""
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    path = folder / "run.sh"
    path.write_text(text)
    return path


def devices(plan: Plan, name: str) -> list[list[tuple[int, int]]]:
    """Return the node and the number of each device of each process of a component."""
    return [[(node, device) for node, device in row.devices] for row in plan[name]]


def codes(report: Report) -> list[str]:
    """Return the codes of the faults and warnings of a config, in their order."""
    return [found.code for found in report.diagnostics]


def test_a_difference_names_what_starts_the_engines(tmp_path: Path) -> None:
    server = "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model m &\nCUDA_VISIBLE_DEVICES=1,2 "
    trainer = "trl grpo --num_processes 2 --use_vllm --vllm_mode"
    texts = {"server": f"{server}{trainer} server\n", "colocate": f"{trainer} colocate\n"}
    plans = {name: rankplan.plan(script(tmp_path, text)) for name, text in texts.items()}
    found = rankplan.diff(plans["server"], plans["colocate"])
    assert found.starts == {"rollout": ("trl vllm-serve", "in the processes of actor (trl grpo)")}
    assert not rankplan.diff(plans["server"], plans["server"]).starts
    names = {name: tmp_path / f"{name}.json" for name in plans}
    for name, path in names.items():
        plans[name].save(path)
    done = run("diff", *map(str, names.values()))
    assert "rollout, started by  trl vllm-serve" in done.output
    as_json = run("diff", *map(str, names.values()), "--format", "json").output
    assert json.loads(as_json)["starts"]["rollout"]["before"] == "trl vllm-serve"


def refused(path: Path, nodes: str | None = None) -> list[str]:
    """Return the faults of a script as ``code: message``; at least one."""
    with pytest.raises(PlacementError) as error:
        rankplan.plan(path, nodes)
    return [f"{fault.code}: {fault.message}" for fault in error.value.diagnostics if not fault.warning]


def warned(path: Path, nodes: str | None = None) -> list[str]:
    """Return the warnings of a script without faults, as ``code: message``."""
    report = rankplan.check(path, nodes)
    assert report.plan is not None, report
    return [f"{found.code}: {found.message}" for found in report.diagnostics]


# The three examples: a server beside the trainer on one node, on the last node of a job, and inside the trainer.


def test_a_server_and_a_trainer_share_a_node_by_their_masks(repository: Path) -> None:
    path = script(repository, SERVER_AND_TRAINER)
    plan = rankplan.plan(path)
    assert devices(plan, "rollout") == [[(0, 0)]]
    assert devices(plan, "actor") == [[(0, device)] for device in range(1, 8)]
    (warning,) = warned(path)
    assert warning.startswith("not-read: vllm_mode is not stated: server, the default of trl==0.18.0; with TRL 1.0")
    assert "the server idle" in warning


def test_a_batch_script_puts_the_server_on_the_last_node(repository: Path) -> None:
    path = script(repository, SUBMITTED)
    plan = rankplan.plan(path)
    assert devices(plan, "actor") == [[(0, device)] for device in range(8)]
    assert devices(plan, "rollout") == [[(1, device)] for device in range(8)]
    demo_code = script(repository, SUBMITTED.replace("--config demo ", "--config demo_code "))
    assert refused(demo_code) == [
        "not-multiple: a batch of 512 (16 x 8 processes x 4 steps) is no multiple of num_generations, which is 14"
    ]


def test_engines_in_the_trainer_are_groups_of_its_ranks(tmp_path: Path) -> None:
    path = script(tmp_path, TRL_GRPO, x_yaml=COLOCATED)
    plan = rankplan.plan(path)
    assert devices(plan, "actor") == [[(rank // 8, rank % 8)] for rank in range(16)]
    assert devices(plan, "rollout") == [
        [(node, first + device) for device in range(4)] for node in (0, 1) for first in (0, 4)
    ]
    assert plan["rollout"].share == plan["actor"].share == 0.5
    path = script(tmp_path, TRL_GRPO, x_yaml=COLOCATED.replace("4", "3"))
    assert refused(path) == ["parallel-not-divisible: engines of 3 processes do not divide the 16 of the trainer"]
    path = script(tmp_path, TRL_GRPO.replace("16", "12"), x_yaml=COLOCATED)
    assert refused(path) == ["spans-nodes: engine 1 of the rollout, of 4 processes, is on nodes 0 and 1"]


# How many processes accelerate starts, and on which devices.

ON_ONE_NODE = "accelerate launch {} train_grpo.py --use_vllm true --vllm_mode colocate --num_generations 2\n"
IMPORT = "from trl import GRPOConfig, GRPOTrainer, TrlParser\nparser = TrlParser((GRPOConfig,))\n"


@pytest.mark.parametrize(
    ("flags", "file", "actor"),
    [
        ("--config_file a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 4\n", range(4)),
        ("--config_file a.yaml --num_processes 2", "distributed_type: FSDP\nnum_processes: 4\n", range(2)),
        ("--config_file a.yaml", "distributed_type: 'NO'\nnum_processes: 1\n", range(1)),
        ("--config_file a.yaml --multi_gpu", "distributed_type: 'NO'\nnum_processes: 2\n", range(2)),
        ("--config_file a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: 5,3\n", (5, 3)),
        ("--config_file a.yaml --gpu_ids 2,7", "distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: 5,3\n", (2, 7)),
        ("--num_processes 3", None, range(3)),
        ("--num_processes=1", None, range(1)),
        ("", None, range(8)),
        ("--multi_gpu --num_processes 8 -m", None, range(8)),
    ],
)
def test_accelerate_starts_processes_on_devices(
    flags: str, file: str | None, actor: range | tuple[int, ...], tmp_path: Path
) -> None:
    (tmp_path / "train_grpo.py").write_text(IMPORT)
    if file is not None:
        (tmp_path / "a.yaml").write_text(file)
    text = ON_ONE_NODE.format(flags)
    if flags.endswith("-m"):
        text = text.replace("train_grpo.py", "train_grpo")
        (tmp_path / "train_grpo").with_suffix(".py").write_text(IMPORT)
    plan = rankplan.plan(script(tmp_path, text))
    assert devices(plan, "actor") == [[(0, device)] for device in actor]


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("torchrun --nproc_per_node 4 train_grpo.py", 4),
        ("torchrun --nproc-per-node=gpu train_grpo.py", 8),
        ("torchrun train_grpo.py", 1),
        ("python -m torch.distributed.run --nproc_per_node=2 train_grpo.py", 2),
        ("python train_grpo.py", 1),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node=auto train_grpo.py", 2),
    ],
)
def test_torchrun_and_python_start_processes(command: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "train_grpo.py").write_text(IMPORT)
    plan = rankplan.plan(script(tmp_path, f"{command} --use_vllm false --num_generations 2\n"))
    assert devices(plan, "actor") == [[(0, device)] for device in range(count)]
    assert list(plan) == ["actor"]


# Faults before a launch: two commands.

USES_SERVER = "train_grpo.py --use_vllm true --vllm_mode server\n"
BOTH = "trl vllm-serve --model m {}\n{}accelerate launch --num_processes {} " + USES_SERVER


def both(folder: Path, serving: str = "", training: str = "", processes: int = 4) -> Path:
    (folder / "train_grpo.py").write_text(IMPORT)
    mask, _, flags = serving.rpartition("|")
    text = BOTH.format(flags, training, processes)
    return script(folder, f"CUDA_VISIBLE_DEVICES={mask} {text}" if mask else text)


@pytest.mark.parametrize(
    ("serving", "training", "processes", "expected"),
    [
        (
            *("", "", 4),
            "duplicate-resource: device 0 of node 0 has rank 0 of the trainer and the server of vLLM: the group that "
            "sends the weights has it twice, and is refused after 300 s",
        ),
        (
            *("2|", "CUDA_VISIBLE_DEVICES=1,2,3,4 ", 4),
            "duplicate-resource: device 2 of node 0 has rank 1 of the trainer and the server of vLLM: both keep their "
            "weights there",
        ),
        (
            *("0|--tensor_parallel_size 2", "CUDA_VISIBLE_DEVICES=1,2 ", 2),
            "resource-out-of-range: the server needs 2 devices of node 0, but sees 1 (CUDA_VISIBLE_DEVICES=0)",
        ),
        (
            *("7|", "CUDA_VISIBLE_DEVICES=0,1 ", 4),
            "resource-out-of-range: the trainer needs 4 devices of node 0, but sees 2 (CUDA_VISIBLE_DEVICES=0,1)",
        ),
        (
            *("9|", "CUDA_VISIBLE_DEVICES=0,1 ", 2),
            "resource-out-of-range: CUDA_VISIBLE_DEVICES=9 has device 9, but node 0 has 8",
        ),
        (
            *("--tensor_parallel_size 8 --data_parallel_size 2", "CUDA_VISIBLE_DEVICES=0,1 ", 2),
            "spans-nodes: the server needs 16 devices (2 engines of 8), but its node has 8",
        ),
    ],
)
def test_devices_of_two_commands(serving: str, training: str, processes: int, expected: str, tmp_path: Path) -> None:
    assert refused(both(tmp_path, serving, training, processes), "1x8") == [expected]


def test_a_server_beside_the_trainer_is_fine(tmp_path: Path) -> None:
    path = both(tmp_path, "6,7|--tensor_parallel_size 2", "CUDA_VISIBLE_DEVICES=0,1,2,3 ", 4)
    assert warned(path) == []
    assert devices(rankplan.plan(path), "rollout") == [[(0, 6), (0, 7)]]


def test_masks_that_only_a_run_knows_take_devices_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "train_grpo.py").write_text(IMPORT)
    serve = "CUDA_VISIBLE_DEVICES=$1 trl vllm-serve --model m &\n"
    train = f"CUDA_VISIBLE_DEVICES=$2 accelerate launch --num_processes 4 {USES_SERVER}"
    plan = rankplan.plan(script(tmp_path, serve + train))
    used = [place for name in ("rollout", "actor") for row in devices(plan, name) for place in row]
    assert len(used) == len(set(used)) == 5


def test_a_large_server_takes_longer_than_the_trainer_waits(tmp_path: Path) -> None:
    (tmp_path / "train_grpo.py").write_text(IMPORT)
    serve = "CUDA_VISIBLE_DEVICES=0,1,2,3 trl vllm-serve --model {} --tensor_parallel_size 4 &\n"
    train = f"CUDA_VISIBLE_DEVICES=4,5 accelerate launch --num_processes 2 {USES_SERVER}"
    slow = warned(script(tmp_path, serve.format("Qwen/Qwen2.5-72B-Instruct") + train))
    assert "the trainer waits 240 s for the server, which loads 73B parameters" in " ".join(slow)
    assert not any("240 s" in text for text in warned(script(tmp_path, serve.format("Qwen/Qwen3-4B") + train)))


@pytest.mark.parametrize("launch", ["accelerate launch -m --num_processes 4", "torchrun -m --nproc_per_node 4"])
def test_options_of_the_launcher_may_follow_the_switch_of_modules(launch: str, tmp_path: Path) -> None:
    plan = rankplan.plan(script(tmp_path, f"{launch} trl.scripts.grpo --use_vllm false --num_generations 2\n"))
    assert len(plan["actor"]) == 4


def test_two_servers_have_two_ports(tmp_path: Path) -> None:
    (tmp_path / "train_grpo.py").write_text(IMPORT)
    serve = "CUDA_VISIBLE_DEVICES={} trl vllm-serve --model m --port {} &\n"
    train = f"CUDA_VISIBLE_DEVICES=2,3 accelerate launch --num_processes 2 {USES_SERVER}"
    path = script(tmp_path, serve.format(0, 8000) + serve.format(1, 8000) + train)
    assert refused(path) == ["invalid-value: two servers on node 0 have port 8000: the second one cannot start"]
    path = script(tmp_path, serve.format(0, 8000) + serve.format(1, 8001) + train)
    assert devices(rankplan.plan(path), "rollout") == [[(0, 0)], [(0, 1)]]
    path = script(tmp_path, serve.format(0, 8000) + serve.format("0,1", 8001) + train)
    assert refused(path) == [
        "duplicate-resource: device 0 of node 0 has engines of two servers: both keep their weights there"
    ]


# Servers that idle, or are missing.


@pytest.mark.parametrize(
    ("keys", "pin", "mode", "warning"),
    [
        ("use_vllm: true\n", "", "colocate", "vllm_mode is not stated: colocate, the default of TRL 1.0 and later"),
        ("use_vllm: true\n", "trl>=1.2", "colocate", "vllm_mode is not stated: colocate, the default of trl>=1.2"),
        ("use_vllm: true\n", "trl==1", "colocate", "vllm_mode is not stated: colocate, the default of trl==1"),
        (
            "use_vllm: true\n",
            "trl>=0.17, <1.0",
            "server",
            "vllm_mode is not stated: server, the default of trl>=0.17,<1",
        ),
        ("use_vllm: true\n", "trl==0.29.1", "server", "vllm_mode is not stated: server, the default of trl==0.29.1"),
        ("use_vllm: true\nvllm_mode: colocate\n", "", "colocate", "the server of vLLM is idle: vllm_mode is colocate"),
        ("use_vllm: false\n", "", "none", "the server of vLLM is idle: use_vllm is not true"),
        ("use_vllm: true\nvllm_mode: server\n", "", "server", None),
    ],
)
def test_the_mode_of_a_version_decides_whether_a_server_idles(
    keys: str, pin: str, mode: str, warning: str | None, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text(pin + "\n")
    serve = "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model m &\n"
    train = "CUDA_VISIBLE_DEVICES=1,2 trl grpo --config x.yaml --num_processes 2\n"
    path = script(tmp_path, serve + train, x_yaml=keys)
    assert any(warning in message for message in warned(path)) if warning else not warned(path)
    plan = rankplan.plan(path)
    server = "rollout" if mode == "server" else "server"
    assert devices(plan, server) == [[(0, 0)]]
    assert ("rollout" in plan) == (mode != "none")


def test_a_trainer_without_its_server_waits(tmp_path: Path) -> None:
    path = script(
        tmp_path, "trl grpo --config x.yaml --num_processes 2\n", x_yaml="use_vllm: true\nvllm_mode: server\n"
    )
    assert warned(path) == [
        "not-read: no command here starts the server of vLLM: the trainer waits for http://0.0.0.0:8000, and ends "
        "after 240 s"
    ]
    path = script(
        tmp_path,
        "trl grpo --config x.yaml --num_processes 2\n",
        x_yaml="use_vllm: true\nvllm_mode: server\nvllm_server_host: gpu-7\n",
    )
    assert warned(path) == []


# Processes that are lost, and nodes with one rank.


@pytest.mark.parametrize(
    ("command", "warning"),
    [
        ("--num_processes 15 --num_machines 2 --machine_rank 0", "15 processes on 2 nodes: 14 start, 7 on each node"),
        (
            "--num_machines 2 --machine_rank 0",
            "without num_processes, accelerate starts the 8 devices of one node on 2 nodes: 4 on each",
        ),
        ("--config_file a.yaml", "accelerate starts 1 process, not 8: distributed_type: NO ignores num_processes"),
        ("", "without --config_file, accelerate reads default_config.yaml in the home of the machine, if it exists"),
        ("--config_file b.yaml", "`rdzv_backend: c10d` has no effect: accelerate takes it from its flag only"),
        (
            "--config_file c.yaml",
            "with deepspeed_multinode_launcher: pdsh, DeepSpeed starts the processes on the hosts",
        ),
        ("--config_file missing.yaml", "the config of accelerate `missing.yaml` is not here"),
    ],
)
def test_lost_processes_are_named(command: str, warning: str, tmp_path: Path) -> None:
    (tmp_path / "train_grpo.py").write_text(IMPORT)
    path = script(
        tmp_path,
        f"accelerate launch {command} train_grpo.py --use_vllm false --num_generations 2\n",
        a_yaml="distributed_type: 'NO'\nnum_processes: 8\n",
        b_yaml="distributed_type: MULTI_GPU\nnum_processes: 8\nrdzv_backend: c10d\n",
        c_yaml="distributed_type: DEEPSPEED\nnum_processes: 8\nnum_machines: 2\n",
    )
    assert any(warning in message for message in warned(path))


STEP = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:8
NODES=($(scontrol show hostnames $SLURM_JOB_NODELIST))
srun {} accelerate launch --num_machines 2 --num_processes 16 --main_process_ip ${{NODES[0]}} {} \\
    train_grpo.py --use_vllm false
"""


@pytest.mark.parametrize(
    ("step", "flags", "expected"),
    [
        ("", "", "bad-node-rank: several nodes, but nothing states the `machine_rank` of each"),
        ("", "--config_file a.yaml", "bad-node-rank: all nodes of the step have the same `--machine_rank`"),
        ("", "--machine_rank 0", "bad-node-rank: all nodes of the step have the same `--machine_rank`"),
        (
            "",
            "--machine_rank $SLURM_PROCID",
            "bad-node-rank: the batch script expands $SLURM_PROCID, which is 0 there: `--machine_rank` is 0",
        ),
        (
            '--nodes=2 --nodelist="${NODES[@]:0:2}"',
            "--machine_rank 0 --rdzv_backend c10d",
            "syntax: the list is a word for each node: srun takes the first one for --nodelist",
        ),
        (
            "--nodes=1 --ntasks=1",
            "--machine_rank 0",
            "too-few-nodes: the step of Slurm has 1 node, but the launcher waits for 2",
        ),
        (
            "-l -N1 -n 1",
            "--machine_rank 0",
            "too-few-nodes: the step of Slurm has 1 node, but the launcher waits for 2",
        ),
    ],
)
def test_nodes_of_a_step_have_ranks_of_their_own(step: str, flags: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "train_grpo.py").write_text(IMPORT)
    file = "distributed_type: MULTI_GPU\nnum_processes: 16\n"
    found = refused(script(tmp_path, STEP.format(step, flags), a_yaml=file))
    assert len(found) == 1 and found[0].startswith(expected), found


def test_a_rank_that_each_task_expands_is_right(tmp_path: Path) -> None:
    (tmp_path / "train_grpo.py").write_text(IMPORT)
    text = STEP.format("bash -c '", "--machine_rank $SLURM_PROCID").replace("false\n", "false'\n")
    plan = rankplan.plan(script(tmp_path, text))
    assert devices(plan, "actor") == [[(rank // 8, rank % 8)] for rank in range(16)]
    with_rendezvous = script(tmp_path, STEP.format("", "--machine_rank 0 --rdzv_backend c10d"))
    assert "order-not-kept" in codes(rankplan.check(with_rendezvous))


def test_a_job_with_one_node_leaves_none_for_training(repository: Path) -> None:
    path = script(repository, SUBMITTED.replace("--nodes=2", "--nodes=1"))
    assert any(fault.startswith("too-few-nodes: `src/open_r1/grpo.py` runs on no node") for fault in refused(path))


def test_two_commands_of_one_job_have_two_ranks(tmp_path: Path) -> None:
    command = "trl grpo --use_vllm false --num_machines 2 --num_processes 16 --machine_rank {} --main_process_ip n0\n"
    path = script(tmp_path, command.format(0) + command.format(1))
    assert len(rankplan.plan(path)["actor"]) == 16
    path = script(tmp_path, command.format(0) + command.format(0))
    assert refused(path) == ["bad-node-rank: two nodes have rank 0: the processes wait for each other for ever"]


# Keys that TRL refuses.


def test_a_switch_of_accelerate_in_the_file_of_trl_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, "trl grpo --config x.yaml\n", x_yaml="multi_gpu: true\nnum_processes: 2\n")
    assert refused(path) == [
        "invalid-value: `multi_gpu` becomes `--multi_gpu True`, and accelerate takes `True` for the program"
    ]
    path = script(tmp_path, "trl grpo --config x.yaml --multi_gpu\n", x_yaml="use_vllm: false\nnum_processes: 2\n")
    assert len(rankplan.plan(path)["actor"]) == 2


def test_a_key_that_trl_no_longer_has_depends_on_the_version(tmp_path: Path) -> None:
    keys = "use_vllm: true\nvllm_mode: colocate\nvllm_device: auto\n"
    path = script(tmp_path, "trl grpo --config x.yaml --num_processes 2\n", x_yaml=keys)
    assert refused(path) == ["unknown-key: unknown key `vllm_device`: TRL refuses it"]
    (tmp_path / "setup.py").write_text("trl==0.18.0")
    assert warned(path) == ["unknown-key: unknown key `vllm_device`: trl==0.18.0 ignores it, and TRL 1.0 refuses it"]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("distributed_type: MULTI_GPU\nnum_proceses: 2\n", "unknown-key: unknown key `num_proceses`"),
        ("num_processes: 2\n", "missing-key: a config of accelerate must have a `distributed_type`"),
        ("distributed_type: MULTI_GPU\n", "missing-key: nothing states the number of processes"),
        ("distributed_type: XLA\nnum_processes: 8\n", "invalid-value: processes on XLA are not placed"),
        ("distributed_type: MULTI_GPU\nnum_processes: two\n", "invalid-value: `num_processes` is 'two'"),
        ("distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: '3'\n", "invalid-value: `gpu_ids` is 3"),
        ("distributed_type: [\n", "invalid-yaml"),
    ],
)
def test_a_file_that_accelerate_refuses(file: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "train_grpo.py").write_text(IMPORT)
    text = "accelerate launch --config_file a.yaml train_grpo.py --use_vllm false --num_generations 2\n"
    found = refused(script(tmp_path, text, a_yaml=file))
    assert any(fault.startswith(expected) for fault in found), found


# Keys in Python.


def python(folder: Path, program: str, command: str = "accelerate launch --num_processes 4 x.py\n") -> Path:
    (folder / "x.py").write_text(program)
    return script(folder, command)


def test_literals_of_a_program_are_read_and_nothing_is_run(tmp_path: Path) -> None:
    program = (
        "import trl\nraise SystemExit\n"
        'args = trl.GRPOConfig(output_dir=f"{1}", use_vllm=True, vllm_mode="colocate", vllm_tensor_parallel_size=2)\n'
        "trl.GRPOTrainer(args=args)\n"
    )
    plan = rankplan.plan(python(tmp_path, program))
    assert devices(plan, "rollout") == [[(0, 0), (0, 1)], [(0, 2), (0, 3)]]
    program = program.replace("size=2", "size=3")
    with pytest.raises(PlacementError) as error:
        rankplan.plan(python(tmp_path, program))
    (fault,) = (fault for fault in error.value.diagnostics if not fault.warning)
    assert (fault.code, Path(str(fault.file)).name, fault.line, fault.column) == (
        *("parallel-not-divisible", "x.py"),
        *(3, program.splitlines()[2].index("size=3") + len("size=") + 1),
    )


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("from trl import GRPOConfig, GRPOTrainer\nGRPOConfig(use_vllm=mode == 1)\n", "it computes the keys"),
        ("from trl import GRPOConfig, GRPOTrainer\nGRPOConfig(**kwargs)\n", "it passes arguments by **"),
    ],
)
def test_a_mode_that_is_computed_is_unknown_and_never_guessed(program: str, reason: str, tmp_path: Path) -> None:
    path = python(tmp_path, program)
    assert f"not-read: whether and how `x` uses vLLM is unknown: {reason}" in warned(path)
    assert list(rankplan.plan(path)) == ["actor"]


def test_a_trainer_that_is_not_here_has_known_processes_beside_its_server(tmp_path: Path) -> None:
    serve = "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model m\n"
    text = serve + "CUDA_VISIBLE_DEVICES=1,2 accelerate launch --num_processes 2 x.py\n"
    path = script(tmp_path, text)
    plan = rankplan.plan(path)
    assert devices(plan, "actor") == [[(0, 1)], [(0, 2)]] and devices(plan, "rollout") == [[(0, 0)]]
    assert any("is unknown: the program is not here" in message for message in warned(path))


def test_asynchronous_grpo_has_a_server_and_a_process_for_rollouts(tmp_path: Path) -> None:
    program = (
        "from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer\nAsyncGRPOConfig(max_staleness=2)\n"
    )
    serve = "CUDA_VISIBLE_DEVICES=0,1 VLLM_SERVER_DEV_MODE=1 vllm serve m -tp 2 --weight-transfer-config '{}'\n"
    train = "CUDA_VISIBLE_DEVICES=2 accelerate launch --num_processes 1 x.py\n"
    plan = rankplan.plan(python(tmp_path, program, serve + train))
    assert devices(plan, "rollout") == [[(0, 0), (0, 1)]] and devices(plan, "actor") == [[(0, 2)]]
    assert [(row.cluster_node_rank, list(row.devices)) for row in plan["env"]] == [(0, [])]
    file = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\n"
    (tmp_path / "a.yaml").write_text(file)
    train = "CUDA_VISIBLE_DEVICES=2,3 accelerate launch --config_file a.yaml x.py\n"
    assert refused(python(tmp_path, program, serve + train)) == [
        "invalid-value: AsyncGRPO with FSDP2 on 2 ranks waits for ever when it sends the weights"
    ]


def test_the_flags_of_a_program_with_a_parser_of_its_own_are_its_own(tmp_path: Path) -> None:
    program = (
        "import argparse\nfrom trl import GRPOConfig, GRPOTrainer\nGRPOConfig(use_vllm=args.vllm)\nGRPOTrainer()\n"
    )
    path = python(tmp_path, program, "accelerate launch --num_processes 2 x.py --vllm-url http://localhost\n")
    assert len(rankplan.plan(path)["actor"]) == 2


def test_a_program_that_only_generates_is_no_trainer(tmp_path: Path) -> None:
    program = "from open_r1.configs import GRPOConfig\nfrom trl import TrlParser\nTrlParser(GRPOConfig)\n"
    (fault,) = refused(python(tmp_path, program, "python x.py --config a.yaml --temperature 0.6\n"))
    assert fault.startswith("no-components: this script starts no training job")


# Files alone.


def test_a_config_alone_is_read_like_that_of_trl_grpo(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(COLOCATED + "num_processes: 8\nnum_machines: 2\n")
    plan = rankplan.plan(path)
    assert devices(plan, "rollout") == [[(node, device) for device in range(4)] for node in (0, 1)]
    path.write_text(COLOCATED)
    assert any("no command starts this config" in message for message in warned(path))
    assert len(rankplan.plan(path, "1x4")["actor"]) == 4
    path.write_text(COLOCATED + "num_generations: 7\n")
    assert rankplan.check(path).plan is not None  # how many processes it has is unknown
    path.write_text(COLOCATED + "num_generations: 7\nnum_processes: 8\n")
    assert [fault[:13] for fault in refused(path)] == ["not-multiple:"]


def test_a_config_of_accelerate_alone_is_no_job(tmp_path: Path) -> None:
    path = tmp_path / "zero2.yaml"
    path.write_text(ZERO2)
    (fault,) = refused(path)
    assert fault.startswith("no-components: this is a config of accelerate, which starts any program")


@pytest.mark.parametrize(
    "command", ["trl sft --config x.yaml\n", "trl dpo --learning_rate 1\n", "trl vllm-serve --model m\n"]
)
def test_other_programs_of_trl_are_no_job(command: str, tmp_path: Path) -> None:
    (fault,) = refused(script(tmp_path, command, x_yaml="learning_rate: 1\n"))
    assert fault.startswith("no-components: `trl ")


@pytest.mark.parametrize("name", ["GMPO", "GRPOWithReplayBuffer"])
def test_trainers_made_of_grpo_place_as_it_does(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"from trl.experimental.mine import {name}Config, {name}Trainer\n"
        f"{name}Trainer(args={name}Config(use_vllm=True, vllm_mode='colocate', vllm_tensor_parallel_size=2))\n"
    )
    (tmp_path / "run.sh").write_text("accelerate launch --multi_gpu --num_processes 4 mine.py\n")
    plan = rankplan.plan(tmp_path / "run.sh", "1x8")
    assert {component: len(rows) for component, rows in plan.items()} == {"actor": 4, "rollout": 2}

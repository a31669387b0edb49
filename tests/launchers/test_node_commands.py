"""Jobs whose commands start their processes themselves, in scripts and by ``rankplan exec``, with stubs that record."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import rankplan
from rankplan import EmitOptions, PlacementError, Plan
from rankplan.launchers.emit import read_emitted
from rankplan.plans.node_command import NodeCommand
from rankplan.plans.plan_job import PlanJob
from support.commands import run

# Each stub appends what it was started with. A server runs until it is ended; a trainer ends soon.
STUB = """#!{python}
import json, os, signal, sys, time
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
names = ["CUDA_VISIBLE_DEVICES", "RANK", "NCCL_DEBUG", "WANDB_API_KEY", "SLURM_PROCID", "HOST", "NPROC_PER_NODE"]
names += ["NNODES", "NODE_RANK", "MASTER_PORT"]
seen = {{name: os.environ[name] for name in names if name in os.environ}}
def note(**values):
    with open({log!r}, "a") as file:
        file.write(json.dumps({{"words": words, "seen": seen, "folder": os.getcwd(), **values}}) + chr(10))
note()
if {{"vllm-serve", "rollout", "inference", "vllm-router", "env-server"}} & set(words):
    def end(*_):
        note(ended=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    time.sleep(float(os.environ.get("SERVES", 60)))
    sys.exit(int(os.environ.get("SERVED", 0)))
time.sleep(0.3)
sys.exit(int(os.environ.get("TRAINED", 0)))
"""
# Tasks of a step run at the same time, each on its line of the list of hosts.
SRUN = """#!{python}
import os, signal, subprocess, sys
words = sys.argv[1:]
at = next(index for index, word in enumerate(words) if not word.startswith("--"))
options = dict(word[2:].partition("=")[::2] for word in words[:at])
hosts = open(options["nodelist"]).read().split()
assert len(hosts) == int(options["ntasks"]), (hosts, options)
signal.signal(signal.SIGTERM, lambda *_: [process.terminate() for process in started])
started = []
started += [
    subprocess.Popen(words[at:], env={{**os.environ, "SLURM_PROCID": str(rank), "HOST": host}})
    for rank, host in enumerate(hosts)
]
sys.exit(max(process.wait() for process in started))
"""
SCONTROL = "#!/bin/sh\nprintf '%s\\n' n0 n1 n2\n"

ACCELERATE = """distributed_type: DEEPSPEED
deepspeed_config: {deepspeed_multinode_launcher: pdsh, zero_stage: 3}
num_processes: 8
num_machines: 1
machine_rank: 0
gpu_ids: 0,1
"""
SLURM = """#!/bin/bash
#SBATCH --nodes=3
export NCCL_DEBUG=INFO WANDB_API_KEY=secret
N=($(scontrol show hostnames $SLURM_JOB_NODELIST))
srun --nodes=1 --ntasks=1 --nodelist=${N[2]} trl vllm-serve --model some/model --tensor_parallel_size 2 \\
    --data_parallel_size 4 &
srun --nodes=2 --ntasks=2 --nodelist=${N[0]},${N[1]} bash -c "accelerate launch --config_file z3.yaml \\
    --num_machines 2 --num_processes=16 --gpu_ids all --main_process_ip ${N[0]} --rdzv_backend c10d \\
    --machine_rank \\$SLURM_PROCID -m trl.scripts.grpo --use_vllm --vllm_mode server --vllm_server_host ${N[2]} \\
    --weights '{\\"a\\": 1}'"
"""
ONE_NODE = """CUDA_VISIBLE_DEVICES=5,4 trl vllm-serve --model some/model --tensor_parallel_size 2 &
CUDA_VISIBLE_DEVICES=0,1,2,3 trl grpo --accelerate_config zero3 --num_processes 4 --use_vllm --vllm_mode server
"""
TORCHRUN = """torchrun --nnodes 2 --nproc_per_node=4 --rdzv_backend c10d --rdzv-endpoint n0:1 --standalone \\
    --node_rank 0 train.py --use_vllm true --vllm_mode colocate
"""
LAUNCHED = (
    "accelerate launch --num_machines {nodes} --num_processes {processes} --machine_rank {rank} --main_process_ip"
    " {address} --main_process_port {port} --gpu_ids all --deepspeed_multinode_launcher standard --config_file z3.yaml"
)


class Run(NamedTuple):
    """What a stub was started with, or that it was ended."""

    words: list[str]
    seen: dict[str, str]
    folder: str
    ended: bool = False


class Cluster(NamedTuple):
    """A folder with stubs, and the environment in which they are found."""

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def runs(self) -> list[Run]:
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [Run(**json.loads(line)) for line in lines]

    def started(self, name: str) -> list[Run]:
        """Return the runs of a program, by the host or the devices that they saw."""
        chosen = [run for run in self.runs() if run.words[0] == name and not run.ended]
        return sorted(chosen, key=lambda run: run.seen.get("SLURM_PROCID", ""))

    def script(self, text: str, name: str = "run.sh") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    programs = tmp_path / "bin"
    programs.mkdir()
    stub = STUB.format(python=sys.executable, log=str(tmp_path / "log"))
    texts = dict.fromkeys(("trl", "accelerate", "torchrun", "uv", "rl", "swift", "megatron"), stub)
    texts |= {"srun": SRUN.format(python=sys.executable), "scontrol": SCONTROL}
    for name, text in texts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "z3.yaml").write_text(ACCELERATE)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    return Cluster(tmp_path, {**os.environ, "PATH": path, "TMPDIR": str(tmp_path), "SLURM_JOB_NODELIST": "n[0-2]"})


def rows(plan: Plan) -> dict[str, list[list[tuple[int, int]]]]:
    return {name: [list(row.devices) for row in component] for name, component in plan.items()}


def written(cluster: Cluster, plan: Plan, target: str, **options: Any) -> Path:
    """Write the file of a launcher, and read it back: it has the same places, and gives the same file again."""
    text = rankplan.emit(plan, target, EmitOptions(**options))
    path = cluster.script(text, f"job.{target}")
    emitted = read_emitted(path)
    assert emitted.launcher == target
    assert rows(emitted.emitted.plan) == rows(plan)
    assert rankplan.emit(path, target) == text
    return path


def launched(rank: int, address: str, port: int = 29500, **numbers: int) -> list[str]:
    """Return the words of accelerate, and of the trainer behind it, on a node."""
    numbers = {"nodes": 2, "processes": 16, **numbers}
    words = LAUNCHED.format(rank=rank, address=address, port=port, **numbers).split()
    return [*words, "-m", "trl.scripts.grpo", "--use_vllm", "--vllm_mode", "server", "--weights", '{"a": 1}']


def test_slurm_starts_the_server_and_one_accelerate_on_each_node_of_the_trainer(cluster: Cluster) -> None:
    plan = rankplan.plan(cluster.script(SLURM))
    path = written(cluster, plan, "slurm")
    text = path.read_text()
    assert text.index("trl vllm-serve", text.index("srun ")) < text.index("accelerate launch", text.index("srun "))
    assert "secret" not in text
    done = cluster.run("bash", str(path))
    assert done.returncode == 0, done.stderr
    every = ",".join(map(str, range(8)))
    (server,) = cluster.started("trl")
    assert server.words == shlex.split(
        "trl vllm-serve --model some/model --tensor_parallel_size 2 --data_parallel_size 4"
    )
    assert server.seen["HOST"] == "n2" and server.seen["CUDA_VISIBLE_DEVICES"] == every
    trainers = cluster.started("accelerate")
    for rank, trainer in enumerate(trainers):
        assert trainer.words == [*launched(rank, "n0"), "--vllm_server_host", "n2"]
        assert trainer.seen == {
            "CUDA_VISIBLE_DEVICES": every,
            "NCCL_DEBUG": "INFO",
            "SLURM_PROCID": str(rank),
            "HOST": f"n{rank}",
        }
    assert len(trainers) == 2


def test_torchrun_starts_what_each_node_has(cluster: Cluster) -> None:
    plan = rankplan.plan(cluster.script(SLURM), "3x8")
    path = written(cluster, plan, "torchrun", port=30000)
    hosts = {"MASTER_ADDR_0": "10.0.0.1", "MASTER_ADDR_2": "10.0.0.3"}
    assert "MASTER_ADDR_0" in cluster.run("bash", str(path), RANKPLAN_NODE_RANK="1").stderr
    for node in ("0", "1"):
        done = cluster.run("bash", str(path), RANKPLAN_NODE_RANK=node, **hosts)
        assert done.returncode == 0, done.stderr
    done = cluster.run("bash", str(path), RANKPLAN_NODE_RANK="2", SERVES="0", SERVED="3", **hosts)
    assert done.returncode == 3
    words = [run.words for run in cluster.runs()]
    assert words[0] == [*launched(0, "10.0.0.1", 30000), "--vllm_server_host", "10.0.0.3"]
    assert words[1] == [*launched(1, "10.0.0.1", 30000), "--vllm_server_host", "10.0.0.3"]
    assert words[2][:2] == ["trl", "vllm-serve"]
    assert cluster.run("bash", str(path), RANKPLAN_NODE_RANK="3").returncode == 2


GRPO = shlex.split(
    "trl grpo --num_machines 1 --num_processes 4 --machine_rank 0 --main_process_ip 127.0.0.1 --main_process_port 29500"
    " --deepspeed_multinode_launcher standard --accelerate_config zero3 --use_vllm --vllm_mode server"
    " --vllm_server_host 127.0.0.1"
)


@pytest.mark.parametrize("way", ["torchrun", "exec of a saved plan"])
def test_the_server_ends_with_the_job(cluster: Cluster, way: str) -> None:
    plan = rankplan.plan(cluster.script(ONE_NODE))
    command = ["bash", str(written(cluster, plan, "torchrun"))]
    if way != "torchrun":
        plan.save(cluster.folder / "plan.json")
        command = [sys.executable, "-m", "rankplan", "exec", "plan.json", "--node", "0"]
    done = cluster.run(*command, RANKPLAN_NODE_RANK="0", RANK="7", MASTER_ADDR="elsewhere")
    assert done.returncode == 0, done.stderr
    server, trainer = sorted(cluster.started("trl"), key=lambda run: run.words[1], reverse=True)
    assert server.words == shlex.split("trl vllm-serve --model some/model --tensor_parallel_size 2")
    assert server.seen["CUDA_VISIBLE_DEVICES"] == "5,4"
    assert trainer.words == GRPO
    assert trainer.seen["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert ("RANK" in trainer.seen) == (way == "torchrun")  # which inherits what the shell has
    assert [run.words[1] for run in cluster.runs() if run.ended] == ["vllm-serve"]


@pytest.mark.parametrize(
    ("environment", "code", "said"),
    [
        ({"TRAINED": "7"}, 7, "actor rank 0 ended with exit code 7; ending the other 1"),
        ({"SERVES": "0"}, 1, "rollout rank 0 ended with exit code 0; ending the other 1"),
    ],
)
def test_exec_ends_the_node_if_a_command_fails(
    cluster: Cluster, environment: dict[str, str], code: int, said: str
) -> None:
    command = [sys.executable, "-m", "rankplan", "exec", str(cluster.script(ONE_NODE)), "--node", "0"]
    done = cluster.run(*command, **environment)
    assert done.returncode == code and said in done.stderr, done.stderr


def test_exec_needs_the_addresses_of_other_nodes(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "rankplan", "exec", str(cluster.script(SLURM)), "--node", "1"]
    refused = run(*command[3:])
    assert refused.exit_code == 1
    assert "the inventory has no address of node 0, the first one of actor" in refused.output
    assert "state it: --master rollout=HOST:29500" in refused.output
    done = cluster.run(*command, "--master", "actor=n0:31000", "--master", "rollout=n2:1")
    assert done.returncode == 0, done.stderr
    (trainer,) = cluster.runs()
    assert trainer.words == [*launched(1, "n0", 31000), "--vllm_server_host", "n2"]


def test_torchrun_gets_the_static_rendezvous_of_the_plan(cluster: Cluster) -> None:
    plan = rankplan.plan(cluster.script(TORCHRUN), "2x4")
    path = written(cluster, plan, "slurm")
    assert cluster.run("bash", str(path)).returncode == 0
    for rank, started in enumerate(cluster.started("torchrun")):
        address = f"--node-rank {rank} --master-addr n0 --master-port 29500"
        own = "train.py --use_vllm true --vllm_mode colocate"
        assert started.words == shlex.split(f"torchrun --nnodes 2 --nproc-per-node 4 {address} {own}")
    assert len(cluster.started("torchrun")) == 2


def test_a_repaired_plan_is_written_with_its_new_hosts(cluster: Cluster) -> None:
    nodes = [{"ranks": rank, "accelerators": 8, "hostname": f"h{rank}"} for rank in range(5)]
    plan = rankplan.plan(cluster.script(SLURM), rankplan.Inventory.from_dict({"nodes": nodes[:3]}))
    spares = rankplan.Inventory.from_dict({"nodes": nodes})
    plan.save(cluster.folder / "plan.json")
    for before in (plan, Plan.load(cluster.folder / "plan.json")):
        repaired = rankplan.replan(before, spares, without=["h2", "h0"]).plan
        text = rankplan.emit(repaired, "slurm", EmitOptions(pin=True))
        assert "#SBATCH --nodelist=h3,h1,h4\n" in text or "#SBATCH --nodelist=h4,h1,h3\n" in text
        path = cluster.script(text, "repaired.sbatch")
        assert cluster.run("bash", str(path)).returncode == 0
    hosts = {run.seen["HOST"] for run in cluster.started("accelerate")}
    servers = {run.seen["HOST"] for run in cluster.started("trl")}
    assert len(hosts) == 2 and "h1" in hosts and not {"h0", "h2"} & (hosts | servers)
    (server,) = servers
    for trainer in cluster.started("accelerate"):
        assert trainer.words[-2:] == ["--vllm_server_host", server]
        assert trainer.words[trainer.words.index("--main_process_ip") + 1] in hosts


def test_other_devices_of_a_node_are_in_its_mask(cluster: Cluster) -> None:
    nodes = [{"ranks": rank, "accelerators": 5, "hostname": f"n{rank}"} for rank in range(2)]
    inventory = rankplan.Inventory.from_dict({"nodes": nodes})
    moved = rankplan.replan(rankplan.plan(cluster.script(TORCHRUN), inventory), inventory, without=["n1/2"]).plan
    path = written(cluster, moved, "slurm")
    assert cluster.run("bash", str(path)).returncode == 0
    masks = [run.seen["CUDA_VISIBLE_DEVICES"] for run in cluster.started("torchrun")]
    assert masks[0] == "0,1,2,3" and sorted(masks[1]) == sorted("0,1,3,4")


SWIFT = """export NNODES=2 NPROC_PER_NODE=4 MASTER_PORT=29600
CUDA_VISIBLE_DEVICES=0,1 swift rollout --model m --vllm_tensor_parallel_size 2 --port 8001 &
NODE_RANK=0 CUDA_VISIBLE_DEVICES=4,5,6,7 swift rlhf conf.yaml --rlhf_type grpo --use_vllm true --vllm_mode server \\
    --vllm_server_host server --vllm_server_port 8001
"""


def test_ms_swift_gets_the_variables_of_its_torchrun(cluster: Cluster) -> None:
    cluster.script("learning_rate: 1.0e-6\nENV: {NCCL_DEBUG: INFO}\n", "conf.yaml")
    plan = rankplan.plan(cluster.script(SWIFT), "3x8")
    assert plan.dialect is None and rows(plan)["rollout"] == [[(2, 0), (2, 1)]]
    path = written(cluster, plan, "slurm", port=30000)
    assert cluster.run("bash", str(path)).returncode == 0
    server, *trainers = sorted(cluster.started("swift"), key=lambda run: run.words[1], reverse=True)
    assert server.words == shlex.split("swift rollout --model m --vllm_tensor_parallel_size 2 --port 8001")
    assert server.seen["HOST"] == "n2" and server.seen["CUDA_VISIBLE_DEVICES"] == "0,1"
    words = "swift rlhf conf.yaml --rlhf_type grpo --use_vllm true --vllm_mode server --vllm_server_port 8001"
    for rank, trainer in enumerate(trainers):
        assert trainer.words == [*words.split(), "--vllm_server_host", "n2"]
        assert trainer.seen["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
        seen = [trainer.seen[name] for name in ("NPROC_PER_NODE", "NNODES", "NODE_RANK", "MASTER_PORT")]
        assert seen == ["4", "2", str(rank), "30000"]
    assert len(trainers) == 2


@pytest.mark.parametrize(("program", "host"), [("swift", "127.0.0.1"), ("megatron", "n0")])
def test_the_last_process_of_megatron_connects_to_the_server(cluster: Cluster, program: str, host: str) -> None:
    text = SWIFT.replace("host server", "host 127.0.0.1").replace("swift rlhf conf.yaml", f"{program} rlhf")
    path = written(cluster, rankplan.plan(cluster.script(text), "2x8"), "slurm")
    assert cluster.run("bash", str(path)).returncode == 0
    trainers = [run for run in cluster.started(program) if run.words[1] == "rlhf"]
    assert [run.words[-2:] for run in trainers] == [["--vllm_server_host", host]] * 2


def test_ms_swift_on_one_node(cluster: Cluster) -> None:
    path = cluster.script(SWIFT.replace("NNODES=2", "").replace("host server", "host localhost"))
    cluster.script("learning_rate: 1.0e-6\n", "conf.yaml")
    done = cluster.run(sys.executable, "-m", "rankplan", "exec", str(path), "--node", "0")
    assert done.returncode == 0, done.stderr
    server, trainer = sorted(cluster.started("swift"), key=lambda run: run.words[1], reverse=True)
    assert (server.words[1], trainer.words[-2:]) == ("rollout", ["--vllm_server_host", "127.0.0.1"])
    assert (trainer.seen["NPROC_PER_NODE"], trainer.seen["MASTER_PORT"]) == ("4", "29500")


PRIME = """[deployment]
num_infer_gpus = 2
num_train_gpus = 1
[[orchestrator.train.source]]
name = "math"
env = { taskset = { id = "math" } }
[trainer]
[inference]
"""


@pytest.mark.parametrize("file", ["rl.toml", "run.sh"])
def test_prime_rl_starts_one_command_with_the_devices_of_all_components(cluster: Cluster, file: str) -> None:
    cluster.script(PRIME, "rl.toml")
    cluster.script("cd sub\nuv run rl @ ../rl.toml --max-steps 3\n")
    (cluster.folder / "sub").mkdir()
    plan = rankplan.plan(cluster.folder / file, "1x4")
    path = written(cluster, plan, "slurm")
    assert cluster.run("bash", str(path)).returncode == 0
    (started,) = cluster.runs()
    assert started.seen["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    if file == "rl.toml":
        assert started.words == ["rl", "@", str(cluster.folder / "rl.toml")]
    else:
        assert started.words == shlex.split("uv run rl @ ../rl.toml --max-steps 3")
        assert started.folder == str(cluster.folder / "sub")


SEVERAL = """[deployment]
type = "multi_node"
num_train_nodes = 1
num_infer_nodes = 2
gpus_per_node = 4
[slurm]
[[orchestrator.train.source]]
name = "math"
[[orchestrator.train.source]]
name = "a | b"
[trainer]
[inference.vllm]
tensor_parallel_size = 2
data_parallel_size = 4
enable_expert_parallel = true
"""


def prime_rl(cluster: Cluster) -> Path:
    """Return a script of prime-rl for two nodes with servers and one of the trainer."""
    cluster.script(SEVERAL, "rl.toml")
    return cluster.script("uv run rl @ rl.toml --output-dir 'my outputs'\n")


def of_prime_rl(cluster: Cluster, name: str) -> list[Run]:
    """Return the runs of a component of prime-rl, without the ends of servers."""
    return [run for run in cluster.started("uv") if run.words[2] == name]


def test_slurm_starts_every_component_of_prime_rl_where_it_is(cluster: Cluster) -> None:
    path = written(cluster, rankplan.plan(prime_rl(cluster)), "slurm", port=30000)
    assert cluster.run("bash", str(path)).returncode == 0
    servers = of_prime_rl(cluster, "inference")
    assert [run.seen["HOST"] for run in servers] == ["n0", "n0", "n1", "n1"]
    assert [run.seen["CUDA_VISIBLE_DEVICES"] for run in servers] == ["0,1", "2,3"] * 2
    for rank, server in enumerate(servers):
        assert server.words[3:5] == ["@", "my outputs/rl/configs/inference.json"]
        assert server.words[7:9] == ["--server.port", str(8100 + rank % 2)]
        assert server.words[-3:] == [str(rank), "--vllm.data-parallel-address", "n0"]
    ports = ["n0:8100", "n0:8101", "n1:8100", "n1:8101"]
    (router,) = of_prime_rl(cluster, "vllm-router")
    assert router.seen["HOST"] == "n0" and router.words[-5:] == ["--worker-urls", *(f"http://{one}" for one in ports)]
    sources = of_prime_rl(cluster, "env-server")
    assert [run.words[-1] for run in sources] == [
        f"my outputs/rl/configs/envs/train/{x}.json" for x in ("math", "a | b")
    ]
    (trainer,) = of_prime_rl(cluster, "torchrun")
    assert trainer.seen["HOST"] == "n2" and trainer.words[-2:] == ["--rollout_transport.host", "n2"]
    (orchestrator,) = of_prime_rl(cluster, "orchestrator")
    assert orchestrator.seen["HOST"] == "n2" and orchestrator.words[-11:-4] == [
        *("--model.client.base-url", "http://n0:8000/v1", "--model.client.admin-base-url"),
        *(f"http://{one}/v1" for one in ports),
    ]
    assert orchestrator.words[-4:] == ["--weight_broadcast.host", "n2", "--rollout_transport.host", "n2"]
    ended = [run.words[2] for run in cluster.runs() if run.ended]
    assert sorted(ended) == ["env-server", "env-server", *["inference"] * 4, "vllm-router"]


def test_torchrun_and_exec_start_the_components_of_a_node(cluster: Cluster) -> None:
    plan = rankplan.plan(prime_rl(cluster))
    path = written(cluster, plan, "torchrun")
    done = cluster.run("bash", str(path), RANKPLAN_NODE_RANK="2")
    assert done.returncode and "MASTER_ADDR_" in done.stderr
    hosts = {f"MASTER_ADDR_{node}": f"n{node}" for node in range(3)}
    assert [line[2:15] for line in path.read_text().splitlines() if line.startswith("# MASTER")] == list(hosts)
    assert cluster.run("bash", str(path), RANKPLAN_NODE_RANK="2", **hosts).returncode == 0
    words = [sorted(run.words for run in cluster.runs() if not run.ended)]
    (cluster.folder / "log").unlink()
    nodes = [{"ranks": rank, "accelerators": 4, "hostname": f"n{rank}"} for rank in range(3)]
    named = rankplan.plan(cluster.folder / "run.sh", rankplan.Inventory.from_dict({"nodes": nodes}))
    named.save(cluster.folder / "plan.json")
    done = cluster.run(sys.executable, "-m", "rankplan", "exec", "plan.json", "--node", "2")
    assert done.returncode == 0, done.stderr
    words.append(sorted(run.words for run in cluster.runs() if not run.ended))
    assert words[0] == words[1] and [some[2] for some in words[0]] == [
        "env-server",
        "env-server",
        "orchestrator",
        "torchrun",
    ]


def test_exec_needs_the_address_of_every_server_of_prime_rl(cluster: Cluster) -> None:
    found = run("exec", str(prime_rl(cluster)), "--node", "2").output
    assert "the commands of the job read my outputs/rl/configs, which `rl` writes" in found
    assert "`uv run rl @ rl.toml --output-dir 'my outputs' --run.name rl --dry-run`" in found
    assert "the inventory has no address of node 0, the first one of inference" in found
    assert (
        "the inventory has no address of node 1\n = help: state `ip` or `hostname` of node 1 in the inventory" in found
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "[trainer]",
            '[trainer]\n[inference.deployment]\ntype = "disaggregated"',
            "starts servers that prefill or decode",
        ),
        (
            "[trainer]",
            '[trainer]\n[inference.router]\ntype = "llm-d"',
            "starts the router llm-d (`inference.router.type`)",
        ),
        (
            "[trainer]",
            '[trainer]\n[inference.kv_cache_offload]\ntype = "mooncake"',
            "starts a cache that the servers of",
        ),
        (
            'name = "math"',
            'env = { taskset = { id = "owner/math" } }',
            "the environment server of this source has no name",
        ),
    ],
)
def test_what_only_the_script_of_prime_rl_starts_is_refused(cluster: Cluster, old: str, new: str, said: str) -> None:
    cluster.script(SEVERAL.replace(old, new), "rl.toml")
    found = refusals(cluster.folder / "rl.toml")
    assert "error[emit-command]" in found and said in found, found


@pytest.mark.parametrize(
    ("command", "word", "decided"),
    [
        ("uv run rl @ rl.toml --run.name $X", "`...`", "X decides it"),
        ("uv run rl @ rl.toml --output-dir $X/out", "`.../out`", "X decides it"),
        ("uv run --env-file $FILE rl @ rl.toml", "`...`", "FILE decides it"),
    ],
)
def test_the_files_of_prime_rl_depend_on_every_word(cluster: Cluster, command: str, word: str, decided: str) -> None:
    cluster.script(SEVERAL, "rl.toml")
    found = refusals(cluster.script(f"{command}\n"))
    assert (
        f"error[emit-command]: the word {word} of this command is known only when the script runs: {decided}" in found
    )


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("uv run --env-file .env rl", "uv run --env-file .env"),
        ("uv run --env-file .env python -u -m prime_rl.entrypoints.rl", "uv run --env-file .env"),
        ("uv run --python python3.12 rl", "uv run --python python3.12"),
        ("uv run -m prime_rl.entrypoints.rl", "uv run"),
        ("srun -N 1 uv run --no-sync rl", "uv run --no-sync"),
        ("python -m prime_rl.entrypoints.rl", ""),
        ("rl", ""),
    ],
)
def test_what_is_before_prime_rl_is_before_its_components(cluster: Cluster, before: str, kept: str) -> None:
    cluster.script(SEVERAL, "rl.toml")
    job = rankplan.plan(cluster.script(f"{before} @ rl.toml\n")).job
    assert job is not None
    programs = ["inference", "vllm-router", "env-server", "torchrun", "orchestrator"]
    for program, command in zip(programs, job.commands, strict=True):
        assert list(command.words[: len(kept.split()) + 1]) == [*kept.split(), program]


@pytest.mark.parametrize(("stated", "shown"), [('"0,1"', "0,1"), ("[0, 3]", "0,3"), ("2", "2")])
def test_the_ranks_that_prime_rl_shows_are_those_of_its_config(cluster: Cluster, stated: str, shown: str) -> None:
    text = SEVERAL.replace("[trainer]", f"[trainer.log]\nranks_filter = {stated}")
    job = rankplan.plan(cluster.script(text, "rl.toml")).job
    assert job is not None
    assert f"--local-ranks-filter={shown}" in job.commands[3].words


@pytest.mark.parametrize("off", ['[inference]\nkv_cache_offload = "None"', 'rollout_transport = "None"'])
def test_a_section_of_prime_rl_that_is_off_has_no_kind(cluster: Cluster, off: str) -> None:
    text = SEVERAL.replace("[trainer]", f"[trainer]\n{off}") if off[0] == "[" else f"{off}\n{SEVERAL}"
    job = rankplan.plan(cluster.script(text, "rl.toml")).job
    assert job is not None and len(job.commands) == 5


def test_a_plan_with_other_processes_than_values_is_refused() -> None:
    plan = rankplan.plan({"cluster": {"num_nodes": 1, "component_placement": {"a": "0-2"}}}, "1x3")
    command = NodeCommand(("a",), ("env", NodeCommand.value_of_rank(["x", "y"])), per_process=True)
    with pytest.raises(PlacementError, match="the plan has 3 processes of a, but the commands of its job are for 2"):
        rankplan.emit(plan.with_job(PlanJob(commands=(command,))), "slurm")


def test_prime_rl_does_not_start_more_servers_than_its_files_state(cluster: Cluster) -> None:
    plan = rankplan.plan(prime_rl(cluster), "5x4")
    with pytest.raises(ValueError, match="trainer has no command"):  # its own names the orchestrator's node
        rankplan.emit(plan.only("trainer"), "slurm")
    grown = rankplan.replan(plan, plan.inventory, grow={"inference": 4}).plan
    with pytest.raises(PlacementError, match="the plan has 8 processes of inference, but the commands of its job are"):
        rankplan.emit(grown, "slurm")


def refusals(path: Path, target: str = "slurm", *words: str) -> str:
    """Return what ``rankplan emit`` says of a job that it refuses."""
    done = run("emit", str(path), "--to", target, *words)
    assert done.exit_code in (1, 2), done.output
    return done.output


ENV = "env: {CUDA_VISIBLE_DEVICES: '0,1'}\nuse_vllm: true\nvllm_mode: colocate\nnum_processes: 2\n"
PROGRAM = "from trl import GRPOConfig, GRPOTrainer\nGRPOTrainer(args=GRPOConfig(use_vllm=True, vllm_mode='server'{}))\n"
LITERALS = (
    "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model m &\nCUDA_VISIBLE_DEVICES=1,2 torchrun --nproc_per_node 2 own.py\n"
)


@pytest.mark.parametrize(
    ("text", "files", "words", "said"),
    [
        ("trl grpo --num_processes 2 --beta $(cat beta)\n", {}, (), "is known only when the script runs"),
        ("trl grpo --config x.yaml\n", {"x.yaml": ENV}, (), "it would replace the devices of the plan"),
        (
            LITERALS,
            {"own.py": PROGRAM.format(", vllm_server_host='h7'")},
            (),
            "the program takes no flags, so nothing can pass it the address of its server",
        ),
        (ONE_NODE, {}, ("--", "use_vllm=false"), "do not get use_vllm=false"),
        (
            "CUDA_VISIBLE_DEVICES=4 trl vllm-serve --model m --port 1 &\n"
            "CUDA_VISIBLE_DEVICES=5 trl vllm-serve --model m --port 2 &\n"
            "CUDA_VISIBLE_DEVICES=0,1 trl grpo --num_processes 2 --use_vllm --vllm_mode server\n",
            {},
            (),
            "2 servers are started, and a trainer of TRL uses one",
        ),
        (
            "trl vllm-serve --model m --tensor_parallel_size 16 --distributed_executor_backend ray &\n"
            "CUDA_VISIBLE_DEVICES=0,1 trl grpo --num_processes 2 --use_vllm --vllm_mode server\n",
            {},
            ("--nodes", "4x8"),
            "Ray spreads this server over several nodes",
        ),
    ],
)
def test_what_no_file_can_have_is_refused(
    cluster: Cluster, text: str, files: dict[str, str], words: Sequence[str], said: str
) -> None:
    for name, content in files.items():
        cluster.script(content, name)
    found = refusals(cluster.script(text), "slurm", *words)
    assert "error[emit-command]" in found and said in found, found


def test_a_launcher_that_starts_each_rank_is_refused(cluster: Cluster) -> None:
    found = refusals(cluster.script(ONE_NODE), "jobset")
    assert "`trl grpo` starts its processes itself, once on each node; use --to slurm or torchrun" in found


def test_nodes_that_a_command_cannot_start_on_are_refused() -> None:
    inventory = rankplan.Inventory.from_dict(
        {"nodes": [{"ranks": 0, "accelerators": 4}, {"ranks": 1, "accelerators": 2}]}
    )
    plan = rankplan.plan({"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-5"}}}, inventory)
    for words, code in ((("accelerate", "{processes}", "{node_rank}"), "emit-uneven"), (("rl",), "emit-order")):
        job = PlanJob(commands=(NodeCommand(("actor",), words),))
        with pytest.raises(PlacementError) as error:
            rankplan.emit(plan.with_job(job), "torchrun")
        assert [fault.code for fault in error.value.diagnostics] == [code]
    job = PlanJob(commands=(NodeCommand(("actor",), ("torchrun", "{node_processes}", "{node_rank}")),))
    text = rankplan.emit(plan.with_job(job), "torchrun")
    assert "exec torchrun 4 0)" in text and "exec torchrun 2 1)" in text
    assert "masks=(0,1,2,3 0,1); processes=(4 2); " in rankplan.emit(plan.with_job(job), "slurm")


def test_each_node_shows_its_devices_by_the_variables_of_its_vendor() -> None:
    kinds = ("NV_GPU", "NPU")
    nodes = [{"ranks": rank, "accelerators": 2, "accelerator_type": kind} for rank, kind in enumerate(kinds)]
    config = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-3"}}}
    plan = rankplan.plan(config, rankplan.Inventory.from_dict({"nodes": nodes}))
    job = PlanJob(commands=(NodeCommand(("actor",), ("torchrun", "{node_processes}", "{node_rank}")),))
    text = rankplan.emit(plan.with_job(job), "torchrun")
    assert "(CUDA_VISIBLE_DEVICES=0,1 exec torchrun 2 0)" in text
    assert "(ASCEND_RT_VISIBLE_DEVICES=0,1 exec torchrun 2 1)" in text
    with pytest.raises(PlacementError) as error:
        rankplan.emit(plan.with_job(job), "slurm")
    assert str(error.value).startswith(
        "the devices of actor are shown by CUDA_VISIBLE_DEVICES on node 0 and ASCEND_RT_VISIBLE_DEVICES on node 1, but"
    )


def test_a_plan_keeps_its_commands(tmp_path: Path) -> None:
    command = NodeCommand(("a",), ("x", "{{}}", "{port}"), ("b",), {"K": "v"}, "/f", True, True)
    plan = rankplan.plan({"cluster": {"num_nodes": 1, "component_placement": {"a": "0", "b": "1"}}}, "1x2")
    plan = plan.with_job(PlanJob(commands=(command,)))
    plan.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json").job
    assert loaded is not None and loaded.commands == (command,) == pickle.loads(pickle.dumps(loaded)).commands
    assert command.filled(lambda name: [f"<{name}>"]) == [["x"], ["{}"], ["", "<port>", ""]]


def test_a_word_with_endpoints_is_repeated() -> None:
    command = NodeCommand(("a",), (f"http://{NodeCommand.endpoints_of('a', 7)}/{{nodes}}",))
    values = {"endpoints of a from 7": ["h:7", "h:8"], "nodes": ["2"]}
    words = command.filled(values.__getitem__)
    assert ["".join(parts) for parts in words] == ["http://h:7/2", "http://h:8/2"]

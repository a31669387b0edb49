"""prime-rl: what its files and commands place, and what is wrong with them before a launch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import Diagnostic, PlacementError, Plan, load_config
from support.commands import run
from support.outcomes import some
from support.paths import ROOT

SOURCE = """
[orchestrator]
[[orchestrator.train.source]]
name = "math"
"""
ONE = f"{SOURCE}[trainer]\n[inference]\n"
SEVERAL = f'[deployment]\ntype = "multi_node"\nnum_train_nodes = 2\n[slurm]\n{ONE}'
SPLIT = """
[inference.deployment]
type = "disaggregated"
prefill_nodes_per_replica = 1
num_prefill_replicas = 2
decode_nodes_per_replica = 3
"""


def devices(plan: Plan, name: str) -> list[tuple[int, list[int]]]:
    """Return the node of each process of a component, and the devices that it uses there."""
    return [(row.cluster_node_rank, [device for _, device in row.devices]) for row in plan[name]]


def planned(tmp_path: Path, text: str, nodes: str | None = None) -> Plan:
    (tmp_path / "rl.toml").write_text(text)
    return rankplan.plan(tmp_path / "rl.toml", nodes)


def nodes_of(plan: Plan, name: str) -> list[int]:
    """Return the nodes of a component, each once, in the order of its processes."""
    return list(dict.fromkeys(row.cluster_node_rank for row in plan[name]))


def test_one_node_has_the_server_first_and_then_the_trainer(tmp_path: Path) -> None:
    text = f"[deployment]\nnum_infer_gpus = 4\nnum_train_gpus = 3\n{ONE}[inference.vllm]\ntensor_parallel_size = 2\n"
    plan = planned(tmp_path, text)
    assert list(plan) == ["inference", "trainer", "orchestrator", "env"]
    assert devices(plan, "inference") == [(0, [0, 1, 2, 3])]
    assert devices(plan, "trainer") == [(0, [4]), (0, [5]), (0, [6])]
    assert (plan["inference"].parallel.tp, len(plan["inference"].groups("tp"))) == (2, 2)
    assert plan.dialect is None and not plan.requests


def masked(tmp_path: Path, mask: str) -> Path:
    (tmp_path / "rl.toml").write_text(f"[deployment]\nnum_infer_gpus = 2\nnum_train_gpus = 1\n{ONE}")
    script = tmp_path / "run.sh"
    script.write_text(f"export CUDA_VISIBLE_DEVICES={mask}\nuv run rl @ rl.toml\n")
    return script


def test_the_gpus_are_those_of_the_mask_in_its_order(tmp_path: Path) -> None:
    plan = rankplan.plan(masked(tmp_path, "6,2,9,1"))
    assert devices(plan, "inference") == [(0, [6, 2])] and devices(plan, "trainer") == [(0, [9])]
    assert plan.inventory.node(0).num_accelerators == 10


@pytest.mark.parametrize(
    ("mask", "nodes", "message"),
    [
        ("0,1", None, "the job needs 3 GPUs (num_train_gpus 1, num_infer_gpus 2), but its command sees 2"),
        ("", None, "but its command sees 0"),
        ("GPU-1,GPU-2,GPU-3", None, "prime-rl reads CUDA_VISIBLE_DEVICES=GPU-1,GPU-2,GPU-3 as numbers"),
        ("2,3,4", "1x4", "the node has GPUs 0-3, and not 4"),
    ],
)
def test_a_mask_that_is_too_small_is_refused(tmp_path: Path, mask: str, nodes: str | None, message: str) -> None:
    with pytest.raises(PlacementError) as error:
        rankplan.plan(masked(tmp_path, mask), nodes)
    (fault,) = error.value.diagnostics
    assert message in fault.message and fault.line == 1


def test_a_mask_that_only_a_run_knows_is_a_warning(tmp_path: Path) -> None:
    report = rankplan.check(masked(tmp_path, "$(free_gpus)"))
    assert "not-run" in [found.code for found in report.diagnostics if found.warning]


@pytest.mark.parametrize("count", ["200000000", "0", "1.5"])
def test_a_wrong_number_of_nodes_is_one_fault(tmp_path: Path, count: str) -> None:
    text = SEVERAL.replace("num_train_nodes = 2", f"num_train_nodes = {count}\nnodes_per_fsdp_group = 2")
    with pytest.raises(PlacementError) as error:
        planned(tmp_path, text)
    assert [fault.path for fault in error.value.diagnostics] == ["deployment.num_train_nodes"]


def test_without_inference_the_trainer_has_the_first_gpu(tmp_path: Path) -> None:
    plan = planned(tmp_path, f"[deployment]\nnum_train_gpus = 2\n{SOURCE}[trainer]\n")
    assert list(plan) == ["trainer", "orchestrator", "env"]
    assert devices(plan, "trainer") == [(0, [0]), (0, [1])]


def test_several_nodes_have_the_inference_first(tmp_path: Path) -> None:
    text = SEVERAL.replace("[slurm]", "num_infer_nodes = 2\nnum_infer_replicas = 2\n[slurm]")
    plan = planned(tmp_path, f"{text}[inference.vllm]\ntensor_parallel_size = 4\n")
    assert plan.inventory.num_nodes == 6
    wanted = [(node, part) for node in range(4) for part in ([0, 1, 2, 3], [4, 5, 6, 7])]
    assert devices(plan, "inference") == wanted
    assert nodes_of(plan, "trainer") == [4, 5] and len(plan["trainer"]) == 16
    assert [nodes_of(plan, name) for name in ("router", "orchestrator", "env")] == [[0], [4], [4]]


def test_the_orchestrator_may_be_on_the_last_node_of_the_inference(tmp_path: Path) -> None:
    text = SEVERAL.replace("[slurm]", "num_infer_nodes = 3\norchestrator_on_inference = true\n[slurm]")
    plan = planned(tmp_path, text)
    assert nodes_of(plan, "orchestrator") == nodes_of(plan, "env") == [2]


def test_a_replica_prefills_before_it_decodes(tmp_path: Path) -> None:
    text = SEVERAL.replace("[slurm]", "num_infer_replicas = 2\n[slurm]")
    plan = planned(tmp_path, f"{text}{SPLIT}[inference.vllm]\ntensor_parallel_size = 8\n")
    assert nodes_of(plan, "prefill") == [0, 1, 5, 6]
    assert nodes_of(plan, "decode") == [2, 3, 4, 7, 8, 9]
    assert nodes_of(plan, "trainer") == [10, 11]
    assert (plan["prefill"].engines, plan["decode"].engines) == (1, 3)
    assert (plan["prefill"].parallel.ep, plan["decode"].parallel.ep) == (8, 24)


def test_servers_that_share_experts_are_one_engine(tmp_path: Path) -> None:
    text = SEVERAL.replace("[slurm]", "num_infer_nodes = 2\n[slurm]")
    vllm = "[inference.vllm]\nenable_expert_parallel = true\ndata_parallel_size = 4\ntensor_parallel_size = 4\n"
    plan = planned(tmp_path, f"{text}{vllm}")
    assert (len(plan["inference"]), plan["inference"].engines, plan["inference"].parallel.ep) == (4, 4, 16)


def test_the_trainer_has_its_groups(tmp_path: Path) -> None:
    text = SEVERAL.replace("[slurm]", "nodes_per_fsdp_group = 1\n[slurm]")
    plan = planned(tmp_path, f"{text}[trainer.model]\ncp = 2\nep = 4\n")
    parallel = plan["trainer"].parallel
    assert (parallel.cp, parallel.ep, parallel.fsdp) == (2, 4, 4)
    known = planned(tmp_path, f'{SEVERAL}[model]\nname = "Qwen/Qwen3-30B-A3B"\n')
    assert known["trainer"].parallel.ep == 8
    unknown = planned(tmp_path, f'{SEVERAL}[model]\nname = "nobody/knows"\n')
    assert unknown["trainer"].parallel.ep == 1


def test_each_source_has_a_server_unless_it_has_an_address(tmp_path: Path) -> None:
    sources = (
        '[[orchestrator.train.source]]\nserve = { address = "tcp://h:1" }\n[[orchestrator.eval.source]]\nname = "e"\n'
    )
    plan = planned(tmp_path, f"{ONE}{sources}")
    assert len(plan["env"]) == 2


def test_fake_data_needs_no_orchestrator(tmp_path: Path) -> None:
    text = SEVERAL.replace("[inference]", "").replace("[trainer]", "[trainer.data.fake]")
    plan = planned(tmp_path, text)
    assert list(plan) == ["trainer"] and nodes_of(plan, "trainer") == [0, 1]


def faults(tmp_path: Path, text: str) -> list[Diagnostic]:
    (tmp_path / "rl.toml").write_text(text)
    return list(rankplan.check(tmp_path / "rl.toml").faults)


# The text, the code, the marked line, and a part of the cure.
FAULTS = [
    (f"[deployment]\nnum_train_gpus = 8\n{ONE}", "resource-out-of-range", "num_train_gpus = 8", "at most 8 together"),
    (
        f"[deployment]\nnum_train_gpus = 8\n{SOURCE}[trainer]\n",
        "resource-out-of-range",
        "num_train_gpus = 8",
        "num_infer_gpus = 0",
    ),
    (
        f"[deployment]\nnum_infer_gpus = 3\n{ONE}[inference.vllm]\ntensor_parallel_size = 2\n",
        "not-multiple",
        "tensor_parallel_size = 2",
        "1, 3",
    ),
    (f"[deployment]\nnum_infer_gpus = 0\n{ONE}", "invalid-value", "num_infer_gpus = 0", "remove [inference]"),
    (
        f'[weight_broadcast]\ntype = "nccl"\n[deployment]\nnum_infer_gpus = 0\n{SOURCE}[trainer]\n',
        "resource-out-of-range",
        'type = "nccl"',
        "filesystem",
    ),
    (f"{ONE}[inference.server]\nport = 8001\n", "invalid-value", "port = 8001", "http://localhost:8001/v1"),
    (
        f'{ONE}[orchestrator.model.client]\nbase_url = "http://a:9/v1"\n',
        "invalid-value",
        'base_url = "http://a:9/v1"',
        "8000",
    ),
    (f"{SOURCE}[inference]\n", "missing-key", None, "[trainer]"),
    ("[trainer]\n[inference.vllm]\n", "missing-key", None, "[orchestrator]"),
    (f"{ONE}[inference.parallel]\ntp = 2\n", "unknown-key", "[inference.parallel]", "inference.vllm"),
    (f"[deployment]\nnum_train_nodes = 2\n{ONE}", "unknown-key", "num_train_nodes = 2", "multi_node"),
    (SEVERAL.replace("[slurm]", "num_train_gpus = 4\n[slurm]"), "unknown-key", "num_train_gpus = 4", "single_node"),
    (f'[deployment]\ntype = "many"\n{ONE}', "invalid-value", 'type = "many"', "multi_node"),
    (SEVERAL.replace("[slurm]", ""), "missing-key", 'type = "multi_node"', "[slurm]"),
    (SEVERAL.replace("num_train_nodes = 2", ""), "missing-key", 'type = "multi_node"', "num_train_nodes = 1"),
    (
        SEVERAL.replace("[slurm]", "num_infer_nodes = 0\n[slurm]"),
        "invalid-value",
        "num_infer_nodes = 0",
        "remove [inference]",
    ),
    (
        SEVERAL.replace("[slurm]", "num_infer_nodes = 1\n[slurm]").replace("[inference]", ""),
        "missing-key",
        "num_infer_nodes = 1",
        "[inference]",
    ),
    (SEVERAL.replace("[inference]", ""), "missing-key", 'type = "multi_node"', "[trainer.data.fake]"),
    (
        SEVERAL.replace("[slurm]", "num_infer_nodes = 4\n[slurm]") + SPLIT,
        "invalid-value",
        "num_infer_nodes = 4",
        "use 5",
    ),
    (
        SEVERAL.replace("[slurm]", "num_infer_nodes = 3\n[slurm]") + '[inference.deployment]\ntype = "multi_node"\n',
        "invalid-value",
        "num_infer_nodes = 3",
        "use 2",
    ),
    (f'{SEVERAL}[inference.deployment]\ntype = "split"\n', "invalid-value", 'type = "split"', "multi_node"),
    (
        SEVERAL.replace("[inference]", '[inference]\nrouter = "None"'),
        "invalid-value",
        'router = "None"',
        "remove the key",
    ),
    (
        SEVERAL.replace("[slurm]", "nodes_per_fsdp_group = 3\n[slurm]"),
        "not-multiple",
        "nodes_per_fsdp_group = 3",
        "1, 2",
    ),
    (
        f"{SEVERAL}[inference.vllm]\ntensor_parallel_size = 3\n",
        "parallel-idle",
        "tensor_parallel_size = 3",
        "divides 8, such as 2",
    ),
    (
        f"{SEVERAL}[inference.vllm]\ntensor_parallel_size = 16\n",
        "parallel-idle",
        "tensor_parallel_size = 16",
        "at most 8",
    ),
    (
        f"{SEVERAL}[inference.vllm]\ntensor_parallel_size = 4\nenable_expert_parallel = true\n",
        "invalid-value",
        None,
        "data_parallel_size = 2",
    ),
    (
        f"{SEVERAL}[inference.vllm]\ntensor_parallel_size = 4\ndata_parallel_size = 2\n"
        "data_parallel_size_local = 1\nenable_expert_parallel = true\n",
        "invalid-value",
        "data_parallel_size_local = 1",
        "use 2",
    ),
    (
        f"[deployment]\nnum_train_gpus = 3\n{ONE}[trainer.model]\ncp = 2\n",
        "parallel-not-divisible",
        "cp = 2",
        "divides 3",
    ),
    (
        f"[deployment]\nnum_train_gpus = 4\n{ONE}[trainer.model]\nep = 3\n",
        "parallel-not-divisible",
        "ep = 3",
        "1, 2, 4",
    ),
    (
        f"[deployment]\nnum_train_gpus = 4\n{ONE}[trainer.model]\ncp = 2\nep = 1.5\n",
        "invalid-value",
        "ep = 1.5",
        "auto",
    ),
    (f"[deployment]\nnum_train_gpu = 2\n{ONE}", "unknown-key", "num_train_gpu = 2", "num_train_gpus"),
    (f"[deployment]\nnum_train_gpus = 'two'\n{ONE}", "invalid-value", "num_train_gpus = 'two'", "number"),
    (f'{SEVERAL}[inference.server]\nport = "x"\n', "invalid-value", 'port = "x"', "number"),
    (f"{SEVERAL}[inference.vllm]\ndata_parallel_rpc_port = 0\n", "invalid-value", "data_parallel_rpc_port = 0", "1"),
    (f"{SEVERAL}backend_port = 1.5\n", "invalid-value", "backend_port = 1.5", "number"),
]


@pytest.mark.parametrize(("text", "code", "line", "cure"), FAULTS, ids=[f"{row[1]}-{row[2]}" for row in FAULTS])
def test_a_fault_has_its_place_and_its_cure(tmp_path: Path, text: str, code: str, line: str | None, cure: str) -> None:
    found = faults(tmp_path, text)
    assert [fault.code for fault in found] == [code], found
    (fault,) = found
    assert str(fault.file).endswith("rl.toml") and cure in (fault.help or "")
    if line is not None:
        assert fault.source == line and fault.line == text.split("\n").index(line) + 1


WARNINGS = [
    (f"[deployment]\nnum_infer_gpus = 4\n{ONE}[inference.vllm]\ndata_parallel_size = 2\n", "parallel-conflict", "by 4"),
    (f'{ONE}[inference.deployment]\ntype = "multi_node"\n', "not-read", "has no effect"),
    (f"{SOURCE}[trainer]\n", "not-read", "waits until a server answers"),
    (
        f'{ONE}[orchestrator.algo.teacher]\nname = "t"\nbase_url = "http://localhost:8001/v1"\n',
        "not-read",
        "nobody starts t",
    ),
    (
        f"{SEVERAL}[weight_broadcast]\ntype = 'filesystem'\n[inference.vllm]\ntensor_parallel_size = 3\n",
        "parallel-idle",
        "leave 2 of 8",
    ),
]


@pytest.mark.parametrize(("text", "code", "message"), WARNINGS, ids=[row[2] for row in WARNINGS])
def test_what_prime_rl_does_not_say_is_a_warning(tmp_path: Path, text: str, code: str, message: str) -> None:
    (tmp_path / "rl.toml").write_text(text)
    report = rankplan.check(tmp_path / "rl.toml")
    assert not report.faults
    (warning,) = [warning for warning in report.warnings if message in warning.message]
    assert warning.code == code and warning.help


def test_a_teacher_of_the_script_is_started(tmp_path: Path) -> None:
    teacher = '[orchestrator.algo.teacher]\nname = "t"\nbase_url = "http://localhost:8001/v1"\n'
    (tmp_path / "rl.toml").write_text(f"{ONE}{teacher}")
    script = tmp_path / "run.sh"
    script.write_text("uv run inference --vllm.model t --server.port 8001 &\nuv run rl @ rl.toml\n")
    assert not [warning for warning in rankplan.check(script).warnings if warning.code == "not-read"]
    script.write_text("uv run inference --vllm.model t --server.port 8002 &\nuv run rl @ rl.toml\n")
    assert [warning.code for warning in rankplan.check(script).warnings if warning.code == "not-read"] == ["not-read"]


COMMANDS: list[tuple[str, dict[str, int]]] = [
    ("rl @ rl.toml --deployment.num-train-gpus 2", {"inference": 1, "trainer": 2, "orchestrator": 1, "env": 1}),
    ("python -m prime_rl.entrypoints.rl @ rl.toml", {"inference": 1, "trainer": 1, "orchestrator": 1, "env": 1}),
    (
        "uv run python src/prime_rl/entrypoints/rl.py @ rl.toml --no-inference",
        {"trainer": 1, "orchestrator": 1, "env": 1},
    ),
    ("rl @ bare.toml --inference --trainer", {"inference": 1, "trainer": 1, "orchestrator": 1, "env": 1}),
    ("rl @ bare.toml --trainer @ t.toml --deployment.num_train_gpus=4", {"trainer": 4, "orchestrator": 1, "env": 1}),
    (
        "rl @ bare.toml --trainer @ t.toml --deployment '{\"num_train_gpus\": 4}'",
        {"trainer": 4, "orchestrator": 1, "env": 1},
    ),
]


@pytest.mark.parametrize(("command", "wanted"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_script_is_read(tmp_path: Path, command: str, wanted: dict[str, int]) -> None:
    (tmp_path / "rl.toml").write_text(ONE)
    (tmp_path / "bare.toml").write_text(SOURCE)
    (tmp_path / "t.toml").write_text("[model]\ncp = 1\n")
    (tmp_path / "run.sh").write_text(f"{command}\n")
    plan = rankplan.plan(tmp_path / "run.sh")
    assert {name: len(component) for name, component in plan.items()} == wanted


OTHERS = [
    ("sft @ sft.toml", "supervised fine-tuning"),
    ("uv run inference @ infer.toml", "serving of a model"),
    ("python -m prime_rl.entrypoints.evals @ e.toml", "evaluation"),
    ("torchrun -m prime_rl.trainer.rl.train @ t.toml", "one component of an RL job"),
]


@pytest.mark.parametrize(("command", "task"), OTHERS, ids=[command for command, _ in OTHERS])
def test_other_programs_are_named(tmp_path: Path, command: str, task: str) -> None:
    for name in ("sft", "infer", "e", "t"):
        (tmp_path / f"{name}.toml").write_text("x = 1\n")
    (tmp_path / "run.sh").write_text(f"{command}\n")
    (fault,) = rankplan.check(tmp_path / "run.sh").faults
    assert fault.code == "no-components" and task in fault.message


@pytest.mark.parametrize("flags", ["", " --trainer.model.cp 2 --orchestrator"], ids=["no-flags", "flags"])
def test_a_config_that_is_not_here_is_named(flags: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"uv run rl @ base.toml{flags}\n")
    (fault,) = rankplan.check(tmp_path / "run.sh").faults
    assert fault.code == "no-components" and fault.message.endswith("its config `base.toml` is not here")
    assert fault.help and "the folder that the script runs in" in fault.help


def test_the_values_of_its_helm_chart_are_no_job(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(
        "orchestrator: {enabled: true, replicas: 1}\n"
        "inference: {enabled: true, gpu: {enabled: true, count: 1}}\n"
        "trainer: {enabled: true, gpu: {enabled: true, count: 1}}\n"
    )
    (fault,) = rankplan.check(tmp_path / "values.yaml").faults
    assert fault.code == "no-components" and "Helm" in fault.message and fault.help


def test_two_files_differ_by_their_processes(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(ONE)
    (tmp_path / "b.toml").write_text(ONE.replace("[trainer]", "[deployment]\nnum_train_gpus = 2\n[trainer]"))
    result = run("diff", str(tmp_path / "a.toml"), str(tmp_path / "b.toml"))
    assert result.exit_code == 1 and "trainer" in result.stdout


def test_memory_is_read_from_its_keys(tmp_path: Path) -> None:
    model = '[model]\nname = "Qwen/Qwen3-4B"\n'
    plan = planned(tmp_path, f'{ONE}{model}[trainer.model]\nac_offloading = "None"\nseq_len = 4096\n', "1x8:H100")
    memory: Any = plan["trainer"].memory
    assert memory is not None and memory.training == "fsdp"
    assert (memory.length, memory.precision, memory.optimizer_on_host) == (4096, "fp32", 1.0)
    engine: Any = plan["inference"].memory
    assert engine is not None and (engine.engine, engine.share) == ("vllm", 0.9)


def test_each_place_of_a_layer_is_in_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f"[deployment]\nnum_train_gpus = 'x'\n{ONE}")
    (tmp_path / "b.toml").write_text("[deployment]\ngpus_per_node = 'y'\n")
    (tmp_path / "run.sh").write_text("rl @ a.toml @ b.toml --deployment.num-infer-gpus z\n")
    found = {fault.path: Path(str(fault.file)).name for fault in rankplan.check(tmp_path / "run.sh").faults}
    places = {"num_train_gpus": "a.toml", "gpus_per_node": "b.toml", "num_infer_gpus": "run.sh"}
    assert found == {f"deployment.{name}": file for name, file in some(places.items())}


def test_a_wrong_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[trainer]\nx = yes\n")
    (tmp_path / "run.sh").write_text("rl @ a.toml\n")
    with pytest.raises(PlacementError) as caught:
        load_config(tmp_path / "run.sh")
    (fault,) = caught.value.diagnostics
    assert (fault.code, fault.line) == ("syntax", 2) and str(fault.file).endswith("a.toml")


def test_exec_starts_the_command_of_each_component(tmp_path: Path) -> None:
    (tmp_path / "rl.toml").write_text(f"[deployment]\nnum_infer_gpus = 2\nnum_train_gpus = 2\n{ONE}")
    words = []
    for name in ("inference", "trainer", "env"):
        words += ["--run", f"{name}=sh -c 'echo $CUDA_VISIBLE_DEVICES $WORLD_SIZE > {name}.$RANK'"]
    command = [sys.executable, "-m", "rankplan", "exec", "rl.toml", "--node", "0", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    written = {path.name: path.read_text().split() for path in tmp_path.glob("*.[0-9]")}
    every = ",".join(map(str, range(8)))
    wanted = {"inference.0": ["0,1", "1"], "trainer.0": ["2", "2"], "trainer.1": ["3", "2"], "env.0": [every, "1"]}
    assert written == wanted


@pytest.mark.parametrize("to", ["slurm", "torchrun", "mpirun"])
def test_a_file_of_a_launcher_starts_each_component(tmp_path: Path, to: str) -> None:
    (tmp_path / "rl.toml").write_text(SEVERAL)
    (tmp_path / "nodes.yaml").write_text("nodes: [{ranks: 0-2, accelerators: 8, ip: 10.0.0.1}]\n")
    nodes = "nodes:\n" + "".join(f"- {{ranks: {rank}, accelerators: 8, ip: 10.0.0.{rank + 1}}}\n" for rank in range(3))
    (tmp_path / "nodes.yaml").write_text(nodes)
    file = tmp_path / "start.sh"
    inventory = str(tmp_path / "nodes.yaml")
    commands = ["--command", "start {}", "--command", "trainer=python train.py"]
    result = run("emit", str(tmp_path / "rl.toml"), "--inventory", inventory, "--to", to, *commands, "-o", str(file))
    assert result.exit_code == 0, result.stderr
    text = file.read_text()
    for name in ("inference", "router", "orchestrator", "env"):
        assert re.search(rf"--component {name} .*-- start {name}\b", text)
    assert re.search(r"--component trainer .*-- python train.py", text)
    assert run("check", str(file)).exit_code == 0


def test_the_example_is_a_job() -> None:
    plan = rankplan.plan(ROOT / "examples" / "prime_rl.toml")
    assert devices(plan, "inference") == [(0, [0, 1, 2, 3, 4, 5])] and devices(plan, "trainer") == [(0, [6]), (0, [7])]


def test_a_folder_has_its_files(tmp_path: Path) -> None:
    (tmp_path / "rl.toml").write_text(ONE)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    result = run("check", str(tmp_path))
    assert result.exit_code == 0 and re.search(r"/rl\.toml +4 +1\n", result.stdout)
    assert "pyproject.toml" not in result.stdout

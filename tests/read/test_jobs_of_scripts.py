"""What launch scripts start: the program and its values through guards, other scripts, launchers, Slurm and KubeRay."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import PlacementError, check, load_config
from rankplan.errors import Diagnostic
from rankplan.read.text.places import Place
from rankplan.read.text.programs import JOB, program_of

TRAIN = "python3 -m verl.trainer.main_ppo trainer.nnodes={nodes} trainer.n_gpus_per_node=8\n"


def written(folder: Path, **scripts: str) -> Path:
    """Write scripts by their names without suffix, and return the one that is called ``run``."""
    for name, text in scripts.items():
        path = folder / f"{name.replace('__', '/')}.sh"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "run.sh"


# ------------------------------------------------------------------------------------------------- guard clauses

TESTS = ['[ -z "${M:-}" ]', '[[ -z "${M:-}" ]]', '[ "${M:-none}" = none ]', '[ "${M:-0}" -lt 1 ]', '[ -z "$N" ]']
GUARDS = [
    "if {test}; then echo set M; exit 1; fi\n",
    "if {test}; then usage; exit; fi\n",
    "if ! {test}; then :; else exit 2; fi\n",
    "{test} && {{ echo set M >&2; exit 1; }}\n",
    "{test} && echo set M && exit 1\n",
    "die() {{ echo \"$1\"; exit 1; }}\n{test} && die 'set M'\n",
    "! {test} || exit 1\n",
]


@pytest.mark.parametrize(("guard", "test"), list(itertools.product(GUARDS, TESTS)))
def test_a_guard_does_not_end_the_reading(guard: str, test: str, tmp_path: Path) -> None:
    """What comes after a guard is read, and the variable that it requires is named where it is used."""
    text = "usage() { echo; }\nN=${M:-}\n" + guard.format(test=test) + TRAIN.format(nodes="$N")
    path = written(tmp_path, run=text)
    config = load_config(path)
    assert config["trainer"] == {"n_gpus_per_node": 8}
    (warning,) = config.document.warnings
    assert warning.path == "trainer.nnodes" and "the environment variable M" in warning.message
    assert warning.help == "give its value: rankplan check run.sh -- M=VALUE"
    assert load_config(path, ["M=3"])["trainer"]["nnodes"] == 3


@pytest.mark.parametrize("test", ['[ "$#" -lt 2 ]', "[[ $# == 0 ]]", "(( $# < 1 ))"])
@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_of_the_arguments_does_not_end_the_reading(guard: str, test: str, tmp_path: Path) -> None:
    text = "usage() { echo; }\n" + guard.format(test=test) + TRAIN.format(nodes="$1")
    (warning,) = check(written(tmp_path, run=text)).warnings
    assert warning.path == "trainer.nnodes" and "the argument $1" in warning.message


WAITS = [
    "wait_for() { n=0; while [ $n -lt 60 ]; do if curl -s x; then return 0; fi; n=1; done; return 1; }\n",
    "wait_for() { if curl -s x; then return 0; else return 1; fi; }\n",
    "wait_for() { curl -s x && return 0; return 1; }\n",
    "wait_for() { for i in 1 2; do curl -s x && return 0; done; echo no; return 1; }\n",
]


@pytest.mark.parametrize("waits", WAITS)
def test_a_function_that_may_return_earlier_does_not_end_the_reading(waits: str, tmp_path: Path) -> None:
    guards = ["if ! wait_for; then exit 1; fi\n", "wait_for || exit 1\n"]
    for guard in guards:
        assert load_config(written(tmp_path, run=waits + guard + TRAIN.format(nodes=2)))["trainer"]["nnodes"] == 2


CUT = [  # the end of a line, the next line, and the keys that it has
    ("python3 -m verl.trainer.main_ppo trainer.nnodes=1 \\  # nodes", "trainer.n_gpus_per_node=4"),
    ("python3 -m verl.trainer.main_ppo trainer.nnodes=1 \\ ", "trainer.n_gpus_per_node=4"),
    ("python3 -m verl.trainer.main_ppo trainer.nnodes=1", "trainer.n_gpus_per_node=4"),
    ("python3 train.py --actor-num-nodes 1 --colocate", "--rollout-num-gpus-per-engine 4"),
]


@pytest.mark.parametrize(("line", "rest"), CUT, ids=["comment", "blank", "words", "flags"])
def test_values_on_a_line_that_is_cut_off_are_named(line: str, rest: str, tmp_path: Path) -> None:
    """bash takes a line for a command unless a backslash is the last character of the line before it."""
    report = check(written(tmp_path, run=f"{line}\n  {rest}\n"))
    (found,) = [one for one in report.warnings if one.code == "syntax"]
    program = "train.py" if "train.py" in line else "verl.trainer.main_ppo"
    key = re.split("[ =]", rest)[0].removeprefix("--").replace("-", "_")
    assert (found.line, found.warning) == (2, True)
    assert found.message == f"this line is a command of its own: `{key}` does not reach `{program}`"
    command = re.sub(r" *\\.*", "", line)
    assert load_config(written(tmp_path, run=f"{command} \\\n  {rest}\n")).document.warnings == []


@pytest.mark.parametrize("words", ["optim=megatron optim.lr=1", "optim.lr=1 optim=megatron"])
def test_a_name_for_a_section_chooses_a_file(words: str, tmp_path: Path) -> None:
    """Hydra: ``key=name`` is a choice if ``key`` is a config group; other words have keys in it then."""
    config = load_config(written(tmp_path, run=f"python3 -m verl.trainer.main_ppo trainer.nnodes=1 {words}\n"))
    assert config["optim"] == {"lr": 1}
    assert config["hydra"]["runtime"]["choices"] == {"/optim": "megatron"}
    with pytest.raises(PlacementError, match="`trainer` is 1; it has no keys"):
        load_config(written(tmp_path, run="python3 -m verl.trainer.main_ppo trainer=1 trainer.nnodes=1\n"))


MAIN = '@hydra.main(version_base=None, config_path="config", config_name="base")\ndef main(config): ...\n'


@pytest.mark.parametrize(
    ("flags", "nodes"),
    [("", 1), ("--config-name big", 2), ("--config-path other", 3), ("--config-path other --config-name big", None)],
)
def test_hydra_main_names_the_config_of_a_program(flags: str, nodes: int | None, tmp_path: Path) -> None:
    """What the flags do not say, the decorator of the program says, relative to the program."""
    for name, count in (("config/base", 1), ("config/big", 2), ("other/base", 3)):
        (tmp_path / "rl" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "rl" / f"{name}.yaml").write_text(f"trainer: {{nnodes: {count}, n_gpus_per_node: 4}}\n")
    (tmp_path / "rl" / "train.py").write_text(MAIN)
    path = written(tmp_path, run=f"python rl/train.py {flags} trainer.total_epochs=1\n")
    assert load_config(path)["trainer"].get("nnodes") == nodes


ARRAYS = ["ARGS=$(cat args)\n", 'read -ra ARGS <<< "$(cat args)"\n', "mapfile -t ARGS < args\n"]


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("more", ["${ARGS[@]}", '"${ARGS[@]}"'])
def test_an_unknown_array_is_no_value_of_the_flag_before_it(array: str, more: str, tmp_path: Path) -> None:
    command = f"python3 train.py --actor-num-nodes 2 {more} --rollout-num-gpus 4 --colocate {more} --tp 1\n"
    config = load_config(written(tmp_path, run=array + command))
    assert config == {"actor_num_nodes": 2, "rollout_num_gpus": 4, "colocate": True, "tp": 1}


def test_a_case_without_a_match_does_not_end_the_reading(tmp_path: Path) -> None:
    case = 'MODE=${1:-}\ncase "$MODE" in\n  a) N=2 ;;\n  b) N=2 ;;\n  *) echo usage; exit 1 ;;\nesac\n'
    assert load_config(written(tmp_path, run=case + TRAIN.format(nodes="$N")))["trainer"]["nnodes"] == 2


def test_an_end_that_the_script_itself_decides_is_an_end(tmp_path: Path) -> None:
    path = written(tmp_path, run="N=1\nif [ $N -eq 1 ]; then exit 1; fi\n" + TRAIN.format(nodes=2))
    with pytest.raises(PlacementError, match="starts no training job"):
        load_config(path)


# ------------------------------------------------------------------------------------------------- variables


@given(st.integers(1, 99), st.integers(1, 99))
def test_variables_of_the_environment_are_those_that_bash_sees(default: int, value: int) -> None:
    """``-- X=value`` has the effect of ``X=value bash run.sh``; bash is the oracle."""
    body = f'A=${{X:-{default}}}\nB=$((A * 2))\n[ "$A" -gt 50 ] && B=1\n'
    bash = subprocess.run(["bash", "-c", f"{body}echo $B"], env={"X": str(value)}, capture_output=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), run=body + TRAIN.format(nodes="$B"))
        assert load_config(path, [f"X={value}"])["trainer"]["nnodes"] == int(bash.stdout)


def test_a_variable_that_the_script_sets_itself_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, run="X=2\n" + TRAIN.format(nodes="$X"))
    with pytest.raises(PlacementError) as caught:
        load_config(path, ["X=3"])
    assert (caught.value.line, caught.value.message) == (1, "`X=3` has no effect: the script sets X itself")
    assert load_config(path, ["trainer.nnodes=3"])["trainer"]["nnodes"] == 3


# ------------------------------------------------------------------------------------------------- other scripts

OTHER = TRAIN.format(nodes="${N:-1}").replace("\n", ' "$@"\n')

PPO = "verl.trainer.main_ppo trainer.nnodes=3 trainer.n_gpus_per_node=8"

# How a script runs another one, and the number of nodes.
RUNS = [
    ("bash other.sh", 1),
    ("bash other.sh trainer.nnodes=5", 5),
    ('N=2 bash -x other.sh "$@"', 2),
    ("N=2\nbash other.sh", 1),
    ("export N=2\nbash other.sh", 2),
    ("env N=3 A=b sh ./other.sh", 3),
    ("N=2\nsource other.sh", 2),
    ("N=2\n. ./other.sh trainer.nnodes=4", 4),
    ('D=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\nbash "$D/other.sh"', 1),
    ('D=$(dirname -- "$0")\nexec bash $D/other.sh trainer.nnodes=6', 6),
    ("nohup ./other.sh > log 2>&1 &", 1),
    ("srun -N 2 --container-image=x:y bash other.sh trainer.nnodes=7", 7),
    ("ray job submit --address=http://h:8265 --runtime-env-json='{}' -- bash other.sh trainer.nnodes=8", 8),
    ("bash -c 'N=9 bash other.sh'", 9),
    ('K=3\nbash -c "cd . && N=$K bash other.sh"', 3),
    (f'srun -w node bash -lc "pip install . && python -m {PPO}"', 3),
    (f"python3 -u -m torch.distributed.run --nproc_per_node 1 -m {PPO}", 3),
    (f"uv run --extra vllm --with x -m {PPO}", 3),
    (f"env A=b python3 -X faulthandler -m {PPO}", 3),
]


@pytest.mark.parametrize(("command", "nodes"), RUNS, ids=[command for command, _ in RUNS])
def test_scripts_and_launchers_are_followed(
    command: str, nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, run=f"#!/bin/bash\n{command}\n", other=OTHER)
    config = load_config("run.sh")
    assert config["trainer"] == {"nnodes": nodes, "n_gpus_per_node": 8}
    assert config.document.warnings == []


def test_faults_point_into_the_script_that_has_the_value(tmp_path: Path) -> None:
    path = written(tmp_path, run="bash other.sh\n", other="\nN=x\n" + TRAIN.format(nodes="$N"))
    fault = load_config(path).document.locate(("trainer", "nnodes"), Diagnostic("invalid-value", "", ""))
    assert (Path(fault.file or "").name, fault.line, fault.column) == ("other.sh", 2, 3)
    written(tmp_path, run='echo\nbash -c "python3 -m verl.trainer.main_ppo trainer.nnodes=$N a.b=1"\n')
    (warning,) = load_config(path).document.warnings
    assert (warning.path, warning.line) == ("trainer.nnodes", 2)


def test_scripts_above_are_those_of_the_repository(tmp_path: Path) -> None:
    written(tmp_path, examples__other=OTHER, tests__gpu__run="bash examples/other.sh trainer.nnodes=2\n")
    assert load_config(tmp_path / "tests" / "gpu" / "run.sh")["trainer"]["nnodes"] == 2


def test_the_config_beside_a_script_may_be_named_with_sed(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "run.yaml").write_text("cluster: {num_nodes: 3}\n")
    lines = 'D=$(cd -- "$(dirname -- "$0")" && pwd)\nN=$(basename $0 .sh)\n'
    config = "C=$(echo $D/$N.yaml | sed 's#/tests#/configs#')\nif [[ ! -f $C ]]; then exit 1; fi\n"
    path = written(tmp_path, tests__run=f"{lines}{config}uv run examples/run_ppo.py --config $C a.b=1 2>&1 | tee log\n")
    assert load_config(tmp_path / "tests" / "run.sh")["cluster"] == {"num_nodes": 3} and path


RECURSIVE = [
    "case ${{1:-all}} in\n{cases}  *) bash $0 $X; bash $0 $Y ;;\nesac\n",
    "stop() {{\n  case $1 in\n{cases}  *) for s in $X; do stop $s; stop $Y; stop $Z; done ;;\n  esac\n}}\nstop $X\n",
]


@pytest.mark.parametrize("text", RECURSIVE)
def test_stages_that_start_each_other_are_followed(text: str, tmp_path: Path) -> None:
    cases = "".join(f"  s{index}) N={index} ;;\n" for index in range(9))
    path = written(tmp_path, run=text.format(cases=cases) + TRAIN.format(nodes=2))
    assert load_config(path)["trainer"]["nnodes"] == 2


def test_scripts_that_run_each_other_end(tmp_path: Path) -> None:
    path = written(tmp_path, run="bash other.sh\n", other="bash run.sh\nsource run.sh\n" + TRAIN.format(nodes=2))
    assert load_config(path)["trainer"]["nnodes"] == 2


def test_a_here_document_is_the_value_of_a_variable(tmp_path: Path) -> None:
    text = "N=3\nread -r -d '' ARGS <<EOF\nverl.trainer.main_ppo \\\n  trainer.nnodes=$N\nEOF\npython3 -m $ARGS a.b=1\n"
    assert load_config(written(tmp_path, run=text)).to_dict() == {"trainer": {"nnodes": 3}, "a": {"b": 1}}


# ------------------------------------------------------------------------------------------------- Slurm and KubeRay


@pytest.mark.parametrize("option", ["-N 4", "--nodes=4", "--nodes 4   # of the partition", "-p gpu -N4"])
def test_the_options_of_sbatch_are_the_variables_of_slurm(option: str, tmp_path: Path) -> None:
    head = f"#!/bin/bash\n#SBATCH {option}\n#SBATCH --gres=gpu:h100:2\n"
    path = written(tmp_path, run=head + TRAIN.format(nodes="${SLURM_NNODES:-1}"))
    config = load_config(path)
    assert config["trainer"]["nnodes"] == 4
    (warning,) = config.document.warnings
    assert warning.path == "trainer.nnodes" and "options of sbatch change it" in warning.message
    assert load_config(path, ["SLURM_NNODES=2"])["trainer"]["nnodes"] == 2


RAYJOB = """\
apiVersion: v1
kind: ConfigMap
---
apiVersion: ray.io/v1
kind: RayJob
spec:
  runtimeEnvYAML: |
    env_vars: {NODES: "2"}
  entrypoint: %s
"""
LINES = (
    "|\n    cd /work\n    python3 -m verl.trainer.main_ppo \\\n      trainer.nnodes=$NODES trainer.n_gpus_per_node=x\n"
)


def test_the_entrypoint_of_a_rayjob_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(RAYJOB % LINES)
    config = load_config(path)
    assert config["trainer"]["nnodes"] == 2
    fault = config.document.locate(("trainer", "n_gpus_per_node"), Diagnostic("invalid-value", "", ""))
    assert (fault.file, fault.line, fault.column) == (str(path), 12, 53)
    path.write_text(RAYJOB % "python sample.py")
    with pytest.raises(PlacementError) as caught:
        load_config(path)
    message = "the entrypoint of this RayJob starts no training job that rankplan reads: it runs `sample.py`"
    assert (caught.value.line, caught.value.message) == (9, f"{message}, which is not here")


# ------------------------------------------------------------------------------------------------- no job

NOTHING = "this script starts no training job that rankplan reads: it "

# A command, and the start of the only fault of its script.
COMMANDS = [
    (
        "torchrun -m verl.trainer.sft_trainer engine=fsdp engine.x=1",
        "`verl.trainer.sft_trainer` is supervised fine-tun",
    ),
    ("python -m x.launch verl.trainer.fsdp_sft_trainer a.b=1", "`verl.trainer.fsdp_sft_trainer` is supervised"),
    ("python3 -m verl.trainer.main_generation trainer.nnodes=1", "`verl.trainer.main_generation` is generation only"),
    ("python3 -m verl.trainer.main_eval data.path=x", "`verl.trainer.main_eval` is evaluation"),
    ("uv run -m skyrl.train.entrypoints.serve trainer.x=false", "`skyrl.train.entrypoints.serve` is serving"),
    ("uv run -m skyrl.train.main_sft strategy=fsdp model.x=1", "`skyrl.train.main_sft` is supervised"),
    ("uv run -m mine.main_generate generator.inference_engine.x=1", "`mine.main_generate` is generation only"),
    ("deepspeed --module openrlhf.cli.train_dpo --a.b 1", "`openrlhf.cli.train_dpo` is preference training (DPO)"),
    ("python -m openrlhf.cli.train_rm --a.b 1", "`openrlhf.cli.train_rm` is the training of a reward model"),
    ("python3 prepare_data.py --out x\nwget y", "`prepare_data.py` is preparation of data"),
    ("MODEL_ARGS=(--num-layers 36)", f"{NOTHING}only sets variables"),
    ("pip install x\nray start --head --num-gpus 8", f"{NOTHING}runs `pip`, `ray`"),
    ("ray start --head --num-gpus 8\nbash missing.sh", f"{NOTHING}runs missing.sh, which is not here"),
    ("accelerate launch train_grpo.py", f"{NOTHING}runs `train_grpo.py`, which is not here"),
    ("wget y\npython mine.py", f"{NOTHING}runs `wget`, `mine.py`; `mine.py` is not here"),
]
A_JOB = "not the config of a job"
YAML = [
    ("a.yaml", "apiVersion: ray.io/v1\nkind: RayCluster\nspec: {}", f"this is a RayCluster of Kubernetes, {A_JOB}"),
    ("a.yaml", "resources: {accelerators: A100:8}\nrun: ray start", f"this is a task of SkyPilot, {A_JOB}"),
    (
        "a.yaml",
        "trainer: {nnodes: 1, n_gpus_per_node: 1}\nengine: {strategy: fsdp}\noptim: {lr: 1}",
        "this is a config of supervised fine-tuning (SFT), not of an RL job",
    ),
    (
        "older.yaml",
        "trainer: {n_gpus_per_node: 8}\nmodel: {lora_rank: 0}\noptim: {lr: 1}\nulysses_sequence_parallel_size: 1",
        "this is a config of supervised fine-tuning (SFT), not of an RL job",
    ),
    (
        "generation.yaml",
        "trainer: {nnodes: 1, n_gpus_per_node: 1}\nmodel: {path: x}\nrollout: {tensor_model_parallel_size: 1}",
        "this is a config of generation only, not of an RL job",
    ),
    ("a.yaml", "env_type: maniskill", f"this is part of a config, {A_JOB}"),
    (
        "a.yaml",
        "defaults: [base, model: x]\na: 1",
        "this is part of a config, not that of a whole job: `defaults` adds",
    ),
    ("model/cnn.yaml", "model_type: cnn", f"this is the option `cnn` of the config group `model`, {A_JOB}"),
]
NO_JOBS = [*(("run.sh", *one) for one in COMMANDS), *YAML]


@pytest.mark.parametrize(("name", "text", "message"), NO_JOBS, ids=[message for _, _, message in NO_JOBS])
def test_a_file_that_is_no_job_gets_one_sentence(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("defaults:\n  - model: cnn\n")
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    report = check(path)
    (fault,) = report.faults
    assert fault.code == "no-components" and fault.message.startswith(message) and fault.help and fault.line


def test_a_named_dialect_overrules_the_name_of_a_program(tmp_path: Path) -> None:
    path = written(tmp_path, run="python3 -m mine.main_eval trainer.nnodes=1 trainer.n_gpus_per_node=8\n")
    assert not check(path) and check(path, dialect="verl")


def test_the_job_is_read_among_other_programs(tmp_path: Path) -> None:
    other = "python3 -m verl.trainer.sft_trainer trainer.nnodes=7 a.a=1 a.b=1 a.c=1 a.d=1\n"
    assert load_config(written(tmp_path, run=other + TRAIN.format(nodes=2)))["trainer"]["nnodes"] == 2


TRAINERS = ["verl.trainer.main_ppo", "verl.experimental.fully_async_policy.fully_async_main", "train_async.py"]
TRAINERS += ["openrlhf.cli.train_ppo_ray", "skyrl.train.entrypoints.main_base", "examples/run_grpo.py"]
TRAINERS += ["examples/start_rlvr_pipeline.py", "examples/run_ppo.py", "run_vlm_grpo.py"]
TRAINERS += ["examples/run_xtoken_off_policy_distillation.py", "examples/nemo_gym/run_grpo_nemo_gym.py"]
MINE = [
    "recipe.dapo.main_dapo",
    "recipe.spin.main_spin",
    "train_reward_rl.py",
    "examples/embodiment/train_embodied_agent.py",
]


@pytest.mark.parametrize(("name", "task"), [*((one, JOB) for one in TRAINERS), *((one, None) for one in MINE)])
def test_trainers_are_jobs(name: str, task: str | None) -> None:
    assert program_of(name, Place("run.sh", 1, 0, 1, "")).task == task


# ------------------------------------------------------------------------------------------------- warnings


def test_only_values_that_decide_the_placement_are_reported(tmp_path: Path) -> None:
    flags = " ".join(f"data.x{index}=$X{index}" for index in range(9))
    path = written(tmp_path, run=TRAIN.format(nodes="$N").strip() + f" {flags}\n")
    report = check(path)
    assert [one.path for one in report.warnings] == ["trainer.nnodes"]
    assert report.unreported == 9 and "run time" not in report.render()
    told = check(path, verbose=True)
    assert len(told.warnings) == 10 and told.unreported == 0
    assert check(path, overrides=["N=2"]).warnings == []


def test_a_config_of_hydra_is_read_beside_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples" / "math").mkdir(parents=True)
    (tmp_path / "examples" / "math" / "big.yaml").write_text("trainer: {nnodes: 2, n_gpus_per_node: 8}\n")
    text = 'NAME=$(basename "$(dirname "$0")")\nif [ -z "$1" ]; then C=big; else C=$1; fi\n'
    text += "python3 examples/start_x_pipeline.py --config_path $NAME --config_name $C\n"
    written(tmp_path, examples__math__run=text)
    monkeypatch.chdir(tmp_path)
    assert check("examples/math/run.sh").plain()["nodes"] == 2
    written(tmp_path, examples__math__run=text.replace("big", "small"))
    (fault,) = check("examples/math/run.sh").faults
    assert fault.message.endswith("its values here place no process: its config `small` is not here")
    written(tmp_path, examples__math__run=text.replace("C=big", "C=$(ls)"))
    (fault,) = check("examples/math/run.sh").faults
    assert fault.message.endswith("its values here place no process: a run decides which config it reads")


def test_a_refused_script_names_the_values_that_are_unknown(tmp_path: Path) -> None:
    """They may be the cause: the fault is about verl's default."""
    rollout = "actor_rollout_ref.rollout.tensor_model_parallel_size=16"
    path = written(tmp_path, run=TRAIN.format(nodes="$N").strip() + f" {rollout} data.x=$X\n")
    report = check(path)
    assert not report and [one.path for one in report.warnings] == ["trainer.nnodes"]
    text = report.render()
    assert "warning[not-run]: `trainer.nnodes`" in text
    assert "`trainer.nnodes` is known only when the script runs: a default stands in" in text
    assert text.endswith("run.sh")


# ------------------------------------------------------------------------------------------------- loaded configs

OWN = "trainer: {nnodes: 1, n_gpus_per_node: 4}\nalgorithm: {adv_estimator: grpo}\n"
OWN += "actor_rollout_ref: {rollout: {tensor_model_parallel_size: 1}}\n"
VENDORED = {
    "verl/trainer/main_ppo.py": MAIN.replace("base", "ppo_trainer"),
    "verl/trainer/config/ppo_trainer.yaml": OWN,
}


def repository(folder: Path, files: dict[str, str]) -> Path:
    """Write the files of a repository, and return the script in it that starts the job."""
    (folder / ".git").mkdir(parents=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "examples" / "x" / "run.sh"


def components(path: Path | str) -> dict[str, int]:
    return {name: len(component) for name, component in rankplan.plan(path).items()}


@pytest.mark.parametrize("present", [".", "examples", "examples/x", ".."])
def test_a_plan_is_the_same_from_any_folder(present: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of the repository loads its own config: without it, a critic would run on 8 accelerators."""
    run = "python3 -m verl.trainer.main_ppo data.x=1\n"
    path = repository(tmp_path / "fork", {**VENDORED, "examples/x/run.sh": run})
    monkeypatch.chdir(tmp_path / "fork" / present)
    for name in (path, os.path.relpath(path)):
        report = check(name)
        assert report.warnings == [] and components(name) == {"actor": 4, "rollout": 4}
    path.write_text(run.replace("data.x=1", "trainer.n_gpus_per_node=three"))
    (fault,) = check(path).faults
    assert fault.file == str(path)


@pytest.mark.parametrize(
    ("program", "flags", "file"),
    [
        ("train.py", "", "config/base.yaml"),
        ("train.py", "--config-name big", "config/big.yaml"),
        ("train.py", "--config-path other", "other/base.yaml"),
        ("-m rl.train", "--config-path ../other", "other/base.yaml"),
        ("-m rl.train", "--config-dir more --config-name big", "rl/more/big.yaml"),
        ("-m rl.train", "--config-name big.yaml", "rl/config/big.yaml"),
        ("packaged.py", "", "rl/config/base.yaml"),
    ],
)
def test_the_config_of_a_program_above_a_script_is_read(
    program: str, flags: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {"train.py": MAIN, "rl/train.py": MAIN, "packaged.py": MAIN.replace('"config"', '"pkg://rl.config"')}
    run = f"python3 {program} {flags} data.x=1\n"
    path = repository(tmp_path / "fork", {**programs, file: OWN, "examples/x/run.sh": run})
    monkeypatch.chdir(tmp_path)
    assert check(path).warnings == [] and components(path) == {"actor": 4, "rollout": 4}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("-m verl.trainer.main_ppo --config-name mine", "mine"),
        ("-m verl.trainer.main_ppo --config-path mine --config-name ppo_trainer", "ppo_trainer"),
        ("-m recipe.dapo.main_dapo --config-name dapo_trainer", "dapo_trainer"),
        ("train.py --config-path $PWD/mine --config-name base", "base"),
        ("-m verl.trainer.main_ppo --config-name ppo_megatron_trainer", None),
        ("-m verl.trainer.main_ppo --config-path ./config --config-name ppo_trainer.yaml", None),
        ("-m verl.trainer.main_ppo", None),
    ],
)
def test_a_config_that_is_missing_is_named(command: str, name: str | None, tmp_path: Path) -> None:
    """Its values are the usual defaults; the configs of verl itself are known."""
    report = check(written(tmp_path, run=f"python3 {command} trainer.nnodes=1\n"))
    warnings = [one for one in report.warnings if "is not verl's own" not in one.message]
    found = [(one.code, one.line) for one in warnings]
    assert found == ([] if name is None else [("not-read", 1)])
    assert all(f"the config `{name}` of" in one.message for one in warnings)


def test_a_file_of_defaults_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(f"defaults:\n  - ppo_trainer\n  - optional x: y\n  - model@actor_rollout_ref.model: z\n{OWN}")
    assert [(one.code, one.line, one.message.split()[0]) for one in check(path).warnings] == [
        ("not-read", 1, "`ppo_trainer`")
    ]
    (tmp_path / "ppo_trainer.yaml").write_text("critic: {enable: true}\n")
    assert check(path).warnings == [] and components(path) == {"actor": 4, "critic": 4, "rollout": 4}


def test_values_are_checked_with_a_whole_config_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra refuses `+key` for a key that exists; with a missing file of `defaults`, the key may be in that file."""
    run = "python3 -m verl.trainer.main_ppo +trainer.nnodes=1 trainer.new=1\n"
    path = repository(tmp_path / "fork", {**VENDORED, "examples/x/run.sh": run})
    assert [fault.code for fault in check(path).faults] == ["duplicate-key"]
    (tmp_path / "fork" / "verl" / "trainer" / "config" / "ppo_trainer.yaml").write_text(f"defaults: [base]\n{OWN}")
    assert [(one.code, one.warning) for one in check(path).warnings] == [("not-read", True)]


def test_the_reference_model_of_a_vendored_config_may_have_the_text_none(tmp_path: Path) -> None:
    sizes = "{tensor_model_parallel_size: 2, expert_tensor_parallel_size: None}"
    path = tmp_path / "conf.yaml"
    path.write_text(
        "trainer: {nnodes: 1, n_gpus_per_node: 4}\nalgorithm: {adv_estimator: grpo}\n"
        f"actor_rollout_ref: {{actor: {{use_kl_loss: true}}, ref: {{megatron: {sizes}}}}}\n"
    )
    assert components(path) == {"actor": 4, "ref": 4, "rollout": 2}
    path.write_text(path.read_text().replace("size: 2", "size: None"))
    assert [fault.message for fault in check(path).faults] == [
        "`tensor_model_parallel_size` is 'None'; it must be a whole number of 1 or more"
    ]


# ------------------------------------------------------------------------------------------------- rules of forks

RUN = "python3 -m verl.trainer.main_ppo data.x=1 {words}\n"
TRAINER = "class Trainer:\n    def __init__(self, config, role_worker_mapping):\n"
KL = "actor_rollout_ref.actor.kl_loss_coef"
USE = "actor_rollout_ref.actor.use_kl_loss"
POOLS = "    mapping = {Role.RefPolicy: 'global_pool'}\n"
ALWAYS = "def main_task(config):\n    workers_mapping = {Role.A: ray.remote(A), Role.RefPolicy: ray.remote(A)}\n"
FLAG = "Role.RefPolicy in role_worker_mapping"


def below(condition: str) -> str:
    """Return a program that starts a reference model below a condition."""
    start = "def main_task(config):\n    role_worker_mapping = {Role.A: ray.remote(A)}\n"
    return f"{start}    if {condition}:\n        role_worker_mapping[Role.RefPolicy] = ray.remote(A)\n"


def behind(statement: str) -> str:
    """Return a program that starts a reference model behind a statement that may return."""
    start = "def main_task(config):\n    role_worker_mapping = {Role.A: ray.remote(A)}\n"
    return f"{start}    {statement}\n    role_worker_mapping[Role.RefPolicy] = ray.remote(A)\n"


RULES = [
    (ALWAYS, "", "", True),
    (ALWAYS, "actor_rollout_ref.actor.use_kl_loss=false", "", True),
    (ALWAYS, "actor_rollout_ref.model.lora_rank=8", "", False),
    (ALWAYS, "", FLAG, True),
    (
        ALWAYS,
        "algorithm.kl_ctrl.kl_coef=0",
        f"{FLAG} and config.algorithm.kl_ctrl.kl_coef > 0",
        False,
    ),
    (
        ALWAYS,
        "algorithm.kl_ctrl.kl_coef=0.1",
        f"{FLAG} and config.algorithm.kl_ctrl.kl_coef > 0",
        True,
    ),
    (below("config.ref.use_ref"), "ref.use_ref=true", "", True),
    (below("config.ref.use_ref"), "ref.use_ref=false", "", False),
    (below("config.ref.get('use_ref', True)"), "", "", True),
    (below(f"not (config.{KL} == 0 and self.config.{KL} == 0)"), f"{KL}=0.0", "", False),
    (below(f"not (config.{KL} == 0 and self.config.{KL} == 0)"), f"{KL}=0.01", "", True),
    (
        below(f"config.{USE}"),
        "actor_rollout_ref.actor.use_kl_loss=true",
        "",
        True,
    ),
    (below("need_reference_policy(config)"), f"{USE}=true", "", True),
    (below("need_reference_policy(config)"), "", "", False),
    ("def main(config):\n    run_ppo(config)\n", f"{USE}=true", "", True),
    (below(f"config.{KL} > 0 or config.unknown.key"), f"{KL}=0.01", "", True),
    (below("(config.trainer.n_gpus_per_node or 0) > 4"), "trainer.n_gpus_per_node=8", "", True),
    (below("(config.trainer.n_gpus_per_node and 2) > 4"), "trainer.n_gpus_per_node=8", "", False),
    (behind("if not config.ref.use_ref:\n        return"), "ref.use_ref=true", "", True),
    (behind("if not config.ref.use_ref:\n        return"), "ref.use_ref=false", "", False),
    (behind("if config.ref.use_ref:\n        pass\n    else:\n        return"), "ref.use_ref=false", "", False),
    (behind("if config.unknown.key:\n        raise ValueError"), "", "", True),
    (behind("return"), "", "", False),
]
UNREAD = [
    behind("if helper(config):\n        return"),
    below("helper(config)"),
    below("config.unknown.key"),
    below("config.trainer > 0"),
    ALWAYS + "    x = (",
    "def main(config):\n    run(role_worker_mapping)\n",
    "def main(config):\n    W = ray.remote(A)\n    role_worker_mapping = {Role.A: W, Role.RefPolicy: W}\n",
    f"{POOLS.strip()}\ndef main(config):\n    add(role_worker_mapping, Role.RefPolicy)\n",
    below("-config.algorithm.adv_estimator > 0"),
    below("1" + "+1" * 1500),
]


def with_program(folder: Path, program: str, words: str, flag: str = "") -> Path:
    files = {**VENDORED, "examples/x/run.sh": RUN.format(words=words)}
    files["verl/trainer/main_ppo.py"] = (
        f"{MAIN.replace('base', 'ppo_trainer')}\nfrom .ppo.ray_trainer import Trainer\n{program}"
    )
    files["verl/trainer/ppo/ray_trainer.py"] = TRAINER + f"        self.use_reference_policy = {flag or True}\n"
    return repository(folder, files)


@pytest.mark.parametrize(("program", "words", "flag", "starts"), RULES)
def test_the_program_of_a_fork_decides_whether_there_is_a_reference_model(
    program: str, words: str, flag: str, starts: bool, tmp_path: Path
) -> None:
    path = with_program(tmp_path, program + (POOLS if program.startswith("def main_task") else ""), words, flag)
    assert ("ref" in components(path)) is starts
    assert check(path).warnings == []


@pytest.mark.parametrize("program", UNREAD)
def test_a_rule_that_is_not_read_is_a_warning(program: str, tmp_path: Path) -> None:
    path = with_program(tmp_path, program, "actor_rollout_ref.actor.use_kl_loss=true")
    (warning,) = check(path).warnings
    assert warning.code == "not-read" and "verl/trainer/main_ppo.py: verl's own rule is used" in warning.message
    assert "ref" in components(path)


POOL = "trainer.nnodes={nodes} trainer.n_gpus_per_node={gpus} algorithm.adv_estimator=gae "
POOL += "actor_rollout_ref.rollout.tensor_model_parallel_size=1"


@pytest.mark.parametrize(
    ("nodes", "gpus", "actor", "critic"),
    [
        (1, 8, "(0, 0) (0, 3)", "(0, 4) (0, 7)"),
        (2, 4, "(0, 0) (0, 3)", "(1, 0) (1, 3)"),
        (3, 2, "(0, 0) (0, 1)", "(1, 0) (1, 1)"),
    ],
)
def test_the_split_program_has_two_pools(nodes: int, gpus: int, actor: str, critic: str, tmp_path: Path) -> None:
    """Half of the GPUs of one node for each, or half of the nodes (verl: ``main_ppo_split.py``)."""
    path = written(tmp_path, run=f"python3 main_ppo_split.py {POOL.format(nodes=nodes, gpus=gpus)}\n")
    plan = rankplan.plan(path)
    ends = {name: f"{rows[0].devices[0]} {rows[len(rows) - 1].devices[0]}" for name, rows in plan.items()}
    assert ends == {"actor": actor, "critic": critic, "rollout": actor}
    path.write_text(f"python3 main_ppo_split.py {POOL.format(nodes=1, gpus=1)}\n")
    (fault,) = check(path).faults
    assert "divides the pool between the actor and the critic" in fault.message


ROLLOUT = "actor_rollout_ref.rollout.tensor_model_parallel_size=1 trainer.n_gpus_per_node=4 trainer.nnodes=1"


def test_the_reward_model_of_rl_factory_has_a_pool_as_large_as_the_training(tmp_path: Path) -> None:
    words = "reward_rollout.if_use_reward_rollout={} reward_rollout.rollout.tensor_model_parallel_size=4"
    run = f"python3 -m verl.trainer.main_ppo {POOL.format(nodes=1, gpus=8)} {words}\n"
    path = written(tmp_path, run=run.format("true"))
    plan = rankplan.plan(path)
    assert {name: len(rows) for name, rows in plan.items()} == {"actor": 8, "critic": 8, "rollout": 8, "reward": 2}
    assert plan["reward"][0].devices[0] == (1, 0) and plan.inventory.num_nodes == 2
    path.write_text(run.format("false"))
    assert "reward" not in components(path)


RLLM = {
    "rllm/config/unified.yaml": "defaults: [rllm: base, rllm/backend: verl, _self_]\n",
    "rllm/config/rllm/base.yaml": "async_training: {enable: false}\n",
    "rllm/config/rllm/backend/verl.yaml": f"# @package _global_\nrollout: {{nnodes: 1, n_gpus_per_node: 8}}\n{OWN}",
    "examples/x/train.py": MAIN.replace('"config"', '"pkg://rllm.config"').replace("base", "unified"),
}


@pytest.mark.parametrize(
    ("words", "planned", "nodes"),
    [
        ("rllm/backend=verl", {"actor": 4, "rollout": 4}, 1),
        ("rllm/backend=verl algorithm.adv_estimator=gae", {"actor": 4, "rollout": 4}, 1),
        ("rllm.async_training.enable=true rollout.n_gpus_per_node=2", {"actor": 4, "rollout": 2}, 1),
    ],
)
def test_the_unified_trainer_of_rllm_separates_the_rollout_by_its_own_switch(
    words: str, planned: dict[str, int], nodes: int, tmp_path: Path
) -> None:
    """It states the nodes of a separate rollout always, and starts no critic."""
    path = repository(tmp_path, {**RLLM, "examples/x/run.sh": f"python3 train.py {words} data.x=1\n"})
    assert components(path) == planned and rankplan.plan(path).inventory.num_nodes == nodes
    alone = written(tmp_path / "alone", run=f"python3 train.py rllm/backend=verl {words} {ROLLOUT}\n")
    assert "critic" not in components(alone)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("-m openrlhf.cli.train_prime_ray --actor_num_nodes 1", "is read like `openrlhf.cli.train_ppo_ray`"),
        ("start_x_pipeline.py actor_train.device_mapping=[0]", "is read like `start_rlvr_pipeline.py`"),
        (
            "train.py --actor-num-nodes 1 --rollout-num-gpus 8 --prm-num-gpus 2",
            "`prm_num_gpus` is 2, but slime does not know it",
        ),
        (f"-m verl.trainer.main_ppo {POOL.format(nodes=1, gpus=8)} judge.n_gpus=2", "`judge.n_gpus` is 2, but verl"),
        ("-m openrlhf.cli.train_ppo_ray --actor_num_nodes 1", None),
        ("start_rlvr_vl_pipeline.py actor_train.device_mapping=[0]", None),
        (f"-m verl.trainer.main_ppo {POOL.format(nodes=1, gpus=8)} data.n_gpus=2 judge.n_gpus=null", None),
    ],
)
def test_what_a_fork_adds_is_named(command: str, message: str | None, tmp_path: Path) -> None:
    warnings = [one for one in check(written(tmp_path, run=f"python3 {command}\n")).warnings if one.code == "not-read"]
    assert [message is not None and message in one.message for one in warnings] == [True] * (message is not None)


@pytest.mark.parametrize(("words", "nodes"), [("", 2), ("trainer.arctic_rl.colocate=true", 1)])
def test_an_integration_of_skyrl_shares_gpus_by_its_own_key(words: str, nodes: int, tmp_path: Path) -> None:
    placement = "trainer.placement.colocate_all=false trainer.placement.policy_num_gpus_per_node=8"
    engines = "generator.inference_engine.num_engines=8 trainer.algorithm.use_kl_loss=false"
    path = written(tmp_path, run=f"python3 -m skyrl.train.entrypoints.main_base {placement} {engines} {words}\n")
    assert rankplan.plan(path).inventory.num_nodes == nodes
    path.write_text(path.read_text().strip() + " trainer.override_entrypoint=mine.start\n")
    (warning,) = check(path).warnings
    assert (warning.code, warning.message.split()[0]) == ("not-read", "`mine.start`")


# ------------------------------------------------------------------------------------------------- arguments and texts

PARSING = """NNODES=1
EXTRA=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --nnodes) NNODES="$2"; shift 2 ;;
    --tp=*) TP="${1#*=}"; shift ;;
    -h|--help) usage; exit 1 ;;
    --) shift; EXTRA+=("$@"); break ;;
    *) EXTRA+=("$1"); shift ;;
  esac
done
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.nnodes=$NNODES trainer.n_gpus_per_node=8 \\
  actor_rollout_ref.rollout.tensor_model_parallel_size=${TP:-2} "${EXTRA[@]}"
"""


@pytest.mark.parametrize(
    ("run", "overrides", "actor", "rollout"),
    [
        (PARSING, [], 8, 4),
        ("bash parse.sh --nnodes 8 --tp=4\n", [], 64, 16),
        ("bash parse.sh trainer.n_gpus_per_node=4 --tp=1\n", [], 4, 4),
        ("bash parse.sh --nnodes 2 -- trainer.n_gpus_per_node=4\n", [], 8, 4),
        ("NNODES=3\nbash parse.sh --nnodes $NNODES\n", [], 24, 12),
        (PARSING, ["1=--nnodes", "$2=4"], 32, 16),
    ],
)
def test_the_loop_over_arguments_runs_with_those_that_the_script_gets(
    run: str, overrides: list[str], actor: int, rollout: int, tmp_path: Path
) -> None:
    path = written(tmp_path, run=run, parse=PARSING)
    report = check(path, overrides=overrides)
    plan = rankplan.plan(path, overrides=overrides)
    assert report.warnings == [] and (len(plan["actor"]), len(plan["rollout"])) == (actor, rollout)


def test_arguments_are_given_by_their_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, run="N=$1\nG=${2:?}\n" + TRAIN.format(nodes="$N").replace("node=8", "node=$G"))
    assert check(path, overrides=["1=2", "$2=4"]).warnings == []
    plan = rankplan.plan(path, overrides=["1=2", "$2=4"])
    assert (len(plan["actor"]), plan.inventory.num_nodes) == (8, 2)
    (fault,) = check(path, overrides=["1=2", "2=4", "3=x"]).faults
    assert (fault.code, fault.file, fault.column) == ("unknown-key", "command line", 9)
    assert fault.message == "`3=x` has no effect: no script reads its argument $3"
    (tmp_path / "conf.yaml").write_text("trainer: {nnodes: 1, n_gpus_per_node: 8}\n")
    assert [fault.code for fault in check(tmp_path / "conf.yaml", overrides=["1=2"]).faults] == ["unknown-key"]


JOB_IN_TEXT = TRAIN.format(nodes=2).strip()


@pytest.mark.parametrize(
    "run",
    [
        f'COMMAND="uv run {JOB_IN_TEXT}" CONTAINER=x sbatch --nodes=2 --account=y ray.sub\n',
        f'export COMMAND="{JOB_IN_TEXT}"\nsbatch ray.sub\n',
        f"sbatch <<EOF\n#!/bin/bash\n#SBATCH -N 2\n{JOB_IN_TEXT}\nEOF\n",
        f"N=2\nsbatch --wait <<EOF\n{JOB_IN_TEXT.replace('=2', '=$N')}\nEOF\n",
        f"tmux new-session -d -s x\ntmux send-keys -t x '{JOB_IN_TEXT}' C-m\n",
        f'srun --nodes=2 --ntasks-per-node=1 bash -c "{JOB_IN_TEXT}"\n',
        f'srun --container-image=x bash -lc "cd /x && {JOB_IN_TEXT}"\n',
        "sbatch --nodes 2 job.slurm\n",
        'python3 -m verl.trainer.main_ppo --config-path "$PWD/conf" --config-name base trainer.nnodes=2\n',
    ],
)
def test_a_job_in_the_text_of_another_command_is_found(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, run=run)
    (tmp_path / "job.slurm").write_text(f"#!/bin/bash\n{JOB_IN_TEXT}\n")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "base.yaml").write_text("trainer: {n_gpus_per_node: 8}\n")
    monkeypatch.chdir(tmp_path)
    plan = rankplan.plan(path)
    assert (len(plan["actor"]), plan.inventory.num_nodes) == (16, 2)


def test_a_fault_in_a_text_is_shown_where_it_is_written(tmp_path: Path) -> None:
    path = written(tmp_path, run=f"X=1\nsbatch <<EOF\n{JOB_IN_TEXT} trainer.nnodez=3\nEOF\n")
    (fault,) = check(path).faults
    assert (fault.message, fault.line) == ("unknown key `nnodez`", 3)


@pytest.mark.parametrize(
    ("script", "nodes"),
    [
        (
            "f() { while [ $# -gt 0 ]; do case $1 in --n) N=$2; shift 2; continue;; esac; N=9; shift; done; }\nf --n 2",
            2,
        ),
        ("f() { while [ $# -gt 0 ]; do case $1 in --n) N=$2; shift 2; continue;; esac; N=9; shift; done; }\nf 2", 9),
        ("N=1\nfor A in 2 4; do [ $A = 4 ] && continue; N=$A; done; N=3", 3),
        ('f() { [ "$1" = a ] && break; N=5; }\nN=2\nf b', 5),
        ('f() { [ "$1" = a ] && break; echo; }\nN=2\nf a', 2),
        ("A=(); B=(x y)\nN=$((1 + ${#A[@]} + ${#B[*]}))", 3),
        ("A=x\nN=${#A[@]}", 1),
        ('f() { "${@:2}"; }\ng() { N=$2; }\nf log g a 5', 5),
        ('f() { N="${@:2:1}"; }\nf 3 4 5', 4),
        ("f() { N=$1; }\ng() { f $(($1 + 1)); M=$1; }\ng 3; N=$((N + M))", 7),
    ],
)
def test_rounds_end_where_the_shell_ends_them(script: str, nodes: int, tmp_path: Path) -> None:
    path = written(tmp_path, run=f"{script}\n{TRAIN.format(nodes='$N')}")
    ran = subprocess.run(["bash", "-c", f"{script}\necho $N"], capture_output=True, text=True)
    assert ran.stdout.split()[-1] == str(nodes)
    assert check(path).warnings == [] and rankplan.plan(path).inventory.num_nodes == nodes


def test_arguments_of_a_function_are_none_of_the_script(tmp_path: Path) -> None:
    path = written(tmp_path, run=f"f() {{ N=${{1:-9}}; }}\nf 3\n{TRAIN.format(nodes='$N')}")
    assert rankplan.plan(path).inventory.num_nodes == 3
    (fault,) = check(path, overrides=["1=2"]).faults
    assert fault.message == "`1=2` has no effect: no script reads its argument $1"


@pytest.mark.parametrize(
    "test",
    [
        'if [ "$PWD" = /opt/x ]; then N=4; fi',
        "if [[ $PWD == */scripts ]]; then N=4; fi",
        'case "$PWD" in */scripts) N=4;; esac',
        "N=${PWD##*/}",
        'N=$(basename "$PWD")',
    ],
)
def test_the_name_of_the_present_folder_is_known_only_when_the_script_runs(test: str, tmp_path: Path) -> None:
    path = written(tmp_path, run=f"N=2\n{test}\n{TRAIN.format(nodes='$N')}")
    assert [warning.code for warning in check(path).warnings] == ["not-run"]


def test_the_folder_above_the_present_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = 'python3 -m verl.trainer.main_ppo --config-path "$(dirname "$PWD")/conf" --config-name base\n'
    path = written(tmp_path / "scripts", run=run) if (tmp_path / "scripts").mkdir() is None else tmp_path
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "base.yaml").write_text(OWN)
    monkeypatch.chdir(tmp_path / "scripts")
    assert components(path) == {"actor": 4, "rollout": 4} and check(path).warnings == []


@pytest.mark.parametrize(
    ("word", "nodes"),
    [("", 2), ("~kind", 1), ("~kind=two", 1), ("~a/b", 2), ("~a/b=x", 2), ("~kind=three", None), ("~other", None)],
)
def test_a_command_removes_a_config_group(word: str, nodes: int | None, tmp_path: Path) -> None:
    path = written(tmp_path, run=f"python3 train.py --config-path . --config-name conf {word} data.x=1\n")
    (tmp_path / "conf.yaml").write_text(f"defaults: [kind: two, a/b: none, _self_]\n{OWN.replace('nnodes: 1, ', '')}")
    for group in ("kind", "a/b"):
        (tmp_path / group).mkdir(parents=True)
    (tmp_path / "kind" / "two.yaml").write_text("# @package _global_\ntrainer: {nnodes: 2}\n")
    (tmp_path / "a" / "b" / "none.yaml").write_text("x: 1\n")
    report = check(path)
    assert (None if report.plan is None else report.plan.inventory.num_nodes) == nodes


@pytest.mark.parametrize(
    "command",
    [
        "ray job submit -- {}",
        "ray job submit --address=x -- A=1 {}",
        "ray job submit -- A=1 B=2 {}",
    ],
)
def test_variables_before_a_submitted_command_are_no_program(command: str, tmp_path: Path) -> None:
    path = written(tmp_path, run=f"{command.format(TRAIN.format(nodes=2).strip())}\n")
    assert check(path).warnings == [] and rankplan.plan(path).inventory.num_nodes == 2


@pytest.mark.parametrize(
    "loop",
    [
        'for A in "$@" 4; do N=$A; done',
        'for A in "$@"; do if [ -f /a/file ]; then break; fi; N=$A; done',
    ],
)
def test_what_a_loop_may_leave_is_not_known(loop: str, tmp_path: Path) -> None:
    path = written(tmp_path, run="bash inner.sh 3 5\n", inner=f"N=1\n{loop}\n{TRAIN.format(nodes='$N')}")
    assert [warning.code for warning in check(path).warnings] == ["not-run"]


def test_a_job_for_each_argument_is_found(tmp_path: Path) -> None:
    path = written(tmp_path, run='for SIZE in "$@"; do\n' + TRAIN.format(nodes=2).strip() + " data.size=$SIZE\ndone\n")
    assert rankplan.plan(path).inventory.num_nodes == 2
    assert rankplan.plan(path, overrides=["1=a"]).inventory.num_nodes == 2


def test_a_command_beside_a_script_that_is_here_is_not_the_job(tmp_path: Path) -> None:
    path = written(tmp_path, run="COMMAND=train sbatch train.sh\n", train=TRAIN.format(nodes=2))
    assert rankplan.plan(path).inventory.num_nodes == 2
    path = written(tmp_path, run=f'COMMAND="{JOB_IN_TEXT}" sbatch train.sh\n', train='srun bash -c "$COMMAND"\n')
    assert rankplan.plan(path).inventory.num_nodes == 2

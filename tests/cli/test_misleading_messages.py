"""Messages that once sent people the wrong way: what `check` says instead, and what it must not say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from rankplan import PlacementError
from rankplan.cli.commands import main
from rankplan.front.job import read_job

VERL = "python3 -m verl.trainer.main_ppo critic.enable=False trainer.n_gpus_per_node=8"
TP = "actor_rollout_ref.rollout.tensor_model_parallel_size"
SLIME = "ray job submit -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 4"
SKYRL = "python -m skyrl_train.entrypoints.main_base trainer.strategy=fsdp2 trainer.placement.ref_num_gpus_per_node=8"
SKYRL += " trainer.placement.policy_num_gpus_per_node=8 generator.num_inference_engines=4"
KUBERNETES = '{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Node", "metadata": {"name": "a"}}]}'
CONFIG = "cluster: {num_nodes: 1, component_placement: {actor: 0-7}}\n"
BRANCHES = f"""if [ "$MODE" = a ]; then
  {VERL} trainer.nnodes=1
elif [ "$MODE" = b ]; then
  {VERL} trainer.nnodes=2
else
  {VERL} trainer.nnodes=3
fi
"""
RECIPE = """grpo: {}
cluster: {num_nodes: 2, gpus_per_node: 8}
policy:
  megatron_cfg:
    {enabled: true, tensor_model_parallel_size: 8, pipeline_model_parallel_size: 8, context_parallel_size: 4}
  dtensor_cfg: {enabled: false}
  generation: {colocated: {enabled: true}, vllm_cfg: {tensor_parallel_size: 8}}
"""
PPO = "ppo: {}\ncluster: {num_nodes: 1}\npolicy: {generation: {backend: mine, colocated: {enabled: true}}}"


class Row(NamedTuple):
    """A first file, what is passed after it, what the report says, what it does not say, and other files."""

    file: str
    text: str
    arguments: str = ""
    says: tuple[str, ...] = ()
    not_said: tuple[str, ...] = ()
    others: tuple[tuple[str, str], ...] = ()


ROWS = {
    "a config that is missing": Row(
        "run.sh",
        f"{VERL} trainer.nnodes=1 --config-path=conf --config-name=mine",
        says=("warning[not-read]: the config `mine` of `verl.trainer.main_ppo` is not read: no such file here",),
    ),
    "where the numbers of GPUs come from": Row(
        "run.sh",
        f"{SKYRL} generator.inference_engine_tensor_parallel_size=8",
        says=(
            "colocate_all, the default: the policy has 8 GPUs (policy_num_nodes 1 x policy_num_gpus_per_node 8), "
            "but the engines have 32 (4 engines x 8)",
        ),
    ),
    "a flag whose value only a run knows": Row(
        "run.sh",
        f"{SLIME} --rollout-num-gpus $GPUS --rollout-num-gpus-per-engine 1",
        says=("`rollout_num_gpus` is known only when the script runs", "-- GPUS=VALUE"),
        not_said=("is missing", "warning"),
    ),
    "its value is given": Row(
        "run.sh",
        f"{SLIME} --rollout-num-gpus $GPUS --rollout-num-gpus-per-engine 1",
        "-- GPUS=4",
        says=("run.sh: fine, 2 components, 8 processes on 1 node",),
    ),
    "a misspelt key": Row(
        "run.sh",
        f"{VERL} trainer.nnode=2 {TP}=16",
        says=("unknown key `nnode`", "did you mean `nnodes`?"),
        not_said=("larger cluster",),
    ),
    "a fork's own key of four letters": Row(
        "run.sh",
        f"{VERL} trainer.nnodes=1 {TP}=1 actor_rollout_ref.rollout.type=vllm",
        says=("fine",),
        not_said=("dtype",),
    ),
    "a size under another name": Row(
        "run.sh",
        f"{SKYRL} generator.tensor_parallel_size=2",
        says=("`tensor_parallel_size`",),
        not_said=("4 engines x 1",),
    ),
    "the version that has these backends": Row(
        "c.yaml", PPO, says=("ppo of NeMo-RL at 7ea279a generates with nothing else",)
    ),
    "nodes of Kubernetes": Row(
        "c.yaml",
        CONFIG,
        "--inventory nodes.json",
        says=("these are nodes of Kubernetes", "`rankplan inventory --kubernetes FILE -o nodes.yaml`"),
        not_said=("write `nodes:`",),
        others=(("nodes.json", KUBERNETES),),
    ),
    "nodes of Slurm": Row(
        "c.yaml",
        CONFIG,
        "--inventory nodes.txt",
        says=("these are nodes of Slurm", "`rankplan inventory --slurm FILE -o nodes.yaml`"),
        not_said=("write `nodes:`",),
        others=(("nodes.txt", "NodeName=a Arch=x86_64\n   Gres=gpu:8 State=IDLE\n"),),
    ),
    "the test of a branch": Row(
        "run.sh",
        f'if [ -n "$MULTI" ]; then\n  N=2\nelse\n  N=1\nfi\n{VERL} trainer.nnodes=$N {TP}=1',
        says=('it depends on `if [ -n "$MULTI" ]` (line 1)', "-- MULTI=VALUE", "--> run.sh:6:"),
        not_said=("`if` (line", "2 |   N=2"),
    ),
    "the variable of that test is given": Row(
        "run.sh",
        f'if [ -n "$MULTI" ]; then\n  N=2\nelse\n  N=1\nfi\n{VERL} trainer.nnodes=$N {TP}=1',
        "-- MULTI=1",
        says=("on 2 nodes",),
        not_said=("not-run",),
    ),
    "all sizes at once": Row("c.yaml", RECIPE, says=("use 256 processes",), not_said=("cp 1", "cp 2")),
    "a quote that is not opened": Row(
        "run.sh",
        f"for i in 1 2; do\n  echo it's $i\ndone\necho \"what's up\"\n{VERL}",
        says=("or look at the quote of line 2, which ends on line 4",),
        not_said=("remove it",),
    ),
    "a quote that hides `done`": Row(
        "run.sh",
        f'for i in 1 2; do\n  echo "a\ndone\necho "b"\nif true; then\n  echo "c\nfi\n{VERL}',
        says=("`for` without `done`", "or look at the quote of line 2, which ends on line 4"),
    ),
    "a quote over lines in a comment or a document": Row(
        "run.sh",
        f"# don't\ncat <<EOF\nit's\nEOF\nfor i in 1; do\n{VERL}",
        says=("= help: add `done`\n",),
        not_said=("look at",),
    ),
    "paths without `..`": Row(
        "scripts/run.sh",
        "python3 -m verl.trainer.main_ppo --config-path=../conf/../conf --config-name=mine",
        says=("--> conf/mine.yaml:1:",),
        not_said=("..",),
        others=(("conf/mine.yaml", "trainer: {nnode: 2}\n"),),
    ),
    "a fault and its unknown value": Row(
        "run.sh",
        f"{VERL} trainer.nnodes=1 trainer.n_gpus_per_node=$(nvidia-smi) {TP}=16",
        says=("`trainer.n_gpus_per_node` is known only when the script runs: a default stands in",),
    ),
    "a value that the script asks for": Row(
        "run.sh",
        f"N=$(sinfo | wc -l)\n{VERL} trainer.nnodes=$N {TP}=1",
        "-- N=3",
        says=("on 3 nodes",),
        not_said=("has no effect", "not-run"),
    ),
    "a value that a loop may change": Row(
        "run.sh",
        f"N=2\nfor i in $(ls); do N=4; done\n{VERL} trainer.nnodes=$N {TP}=1",
        says=("it depends on the `for` loop (line 2)", "--> run.sh:3:"),
        not_said=("1 | N=2",),
    ),
    "that value is given": Row(
        "run.sh",
        f"N=2\nfor i in $(ls); do N=4; done\n{VERL} trainer.nnodes=$N {TP}=1",
        "-- N=4",
        says=("on 4 nodes",),
        not_said=("has no effect",),
    ),
    "a value that the script surely sets": Row(
        "run.sh",
        f"N=2\n{VERL} trainer.nnodes=$N {TP}=1",
        "-- N=4",
        says=("`N=4` has no effect: the script sets N itself",),
    ),
    "unknown values that decide nothing": Row(
        "run.sh",
        f"{VERL} trainer.nnodes=1 {TP}=1 trainer.experiment_name=$(date) data.train_files=$(ls)",
        says=("run.sh: fine, 2 components, 16 processes on 1 node\n",),
        not_said=("run time", "not-run"),
    ),
    "one warning for all branches": Row(
        "run.sh",
        BRANCHES,
        says=("the command on line 2 is read, not those on lines 4 and 6, which have another `trainer.nnodes`",),
        not_said=("not this one",),
    ),
    "a script of LLaMA-Factory": Row(
        "run.sh",
        "llamafactory-cli train sft.yaml",
        says=("this script starts LLaMA-Factory, whose processes are all alike: it has no placement to check",),
    ),
    "a config of LLaMA-Factory": Row(
        "sft.yaml",
        "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\n",
        says=("this is a config of LLaMA-Factory, whose processes are all alike: it has no placement to check",),
        not_said=("part of a config",),
    ),
}


def checked(row: Row) -> str:
    """Return the report of a row's file."""
    for name, text in ((row.file, row.text), *row.others):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(f"{text}\n")
    return CliRunner().invoke(main, ["check", row.file, *row.arguments.split()]).output


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_what_a_report_says(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = checked(row)
    for text in row.says:
        assert text in report, report
    for text in row.not_said:
        assert text not in report, report


def test_faults_are_all_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for row in ROWS.values():
        lines = [line for line in checked(row).splitlines() if line.startswith(("error[", "warning["))]
        assert len(lines) == len(set(lines)), lines


def test_a_variable_of_the_environment_reaches_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.sh").write_text(f"{VERL} trainer.nnodes=${{NODES_OF_THIS_JOB:-2}} {TP}=1 trainer.project_name=$HOME\n")
    assert read_job("run.sh").inventory.num_nodes == 2
    monkeypatch.setenv("NODES_OF_THIS_JOB", "3")
    report = CliRunner().invoke(main, ["check", "run.sh"])
    assert "on 3 nodes" in report.stdout
    assert "run.sh: from the environment: NODES_OF_THIS_JOB=3\n" in report.stderr and "HOME" not in report.stderr
    given = CliRunner().invoke(main, ["check", "run.sh", "--", "NODES_OF_THIS_JOB=4"])
    assert "on 4 nodes" in given.stdout and "environment" not in given.stderr


def test_values_of_the_environment_that_may_be_secrets_are_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.sh").write_text(f"export HF_TOKEN=$HF_TOKEN\n{VERL} trainer.nnodes=2 {TP}=1\n")
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody")
    for command in ("check", "plan"):
        done = CliRunner().invoke(main, [command, "run.sh"])
        assert done.exit_code == 0 and "from the environment: HF_TOKEN\n" in done.stderr
        assert "hf_of_somebody" not in done.output


def test_the_standard_input_is_a_file(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "rankplan", "check", "-"]
    done = subprocess.run(words, cwd=tmp_path, input=CONFIG, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "/dev/stdin: fine, 1 component, 8 processes on 1 node\n")


def test_a_text_that_is_neither_a_size_nor_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(CONFIG)
    with pytest.raises(PlacementError, match="2by8"):
        read_job("c.yaml", "2by8")

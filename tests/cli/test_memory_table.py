"""``rankplan check --memory`` and ``plan --memory``."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy
import pytest
import rankplan
from rankplan.plans.model import Model
from support.commands import run

CONFIG = """\
cluster:
  num_nodes: 1
  model: Qwen/Qwen2.5-32B
  accelerator_memory: 80 GiB
  component_placement:
    actor:
      placement: 0-7
      parallel: {tp: TP}
      memory: {training: megatron, gradients: fp32, recompute: full, tokens: 4096, optimizer_on_host: 1.0, sleep: host}
    rollout: {placement: "0-7:0-1", memory: {engine: vllm, share: 0.6, length: 4096, sleep: host}}
"""
UNNAMED = """\
trainer: {nnodes: 1, n_gpus_per_node: 8}
algorithm: {adv_estimator: grpo}
actor_rollout_ref: {actor: {strategy: fsdp}, rollout: {name: vllm, tensor_model_parallel_size: 2}}
"""
PLAIN = "cluster:\n  num_nodes: 1\n  component_placement:\n    actor: 0-7\n"


def _run(*arguments: str) -> tuple[int, str]:
    done = run(*arguments)
    return done.exit_code, done.output


def _file(folder: Path, text: str = CONFIG.replace("TP", "8")) -> str:
    (folder / "conf.yaml").write_text(text)
    return str(folder / "conf.yaml")


def test_check_prints_the_table(tmp_path: Path) -> None:
    code, output = _run("check", _file(tmp_path), "--nodes", "1x8", "--memory")
    lines = output.splitlines()[2:]
    assert code == 0
    assert lines[0].split("  ")[0] == "component"
    assert [line.split()[0] for line in lines[1:3]] == ["actor", "rollout"]
    assert all("fits" in line for line in lines[1:4])
    assert "to 536,463 tokens of cache on an engine" in lines[4]
    assert output == rankplan.check(_file(tmp_path), "1x8", memory=True).render() + "\n"


def test_a_refusal_points_at_the_memory_of_the_component(tmp_path: Path) -> None:
    text = CONFIG.replace("TP", "2").replace("optimizer_on_host: 1.0, ", "")
    code, output = _run("check", _file(tmp_path, text), "--nodes", "1x8")
    assert code == 1
    assert "error[memory-exceeded]: `actor` needs at least" in output
    assert "conf.yaml:9:7  cluster.component_placement.actor.memory" in output
    code, shown = _run("plan", _file(tmp_path, text), "--nodes", "1x8", "--memory")
    assert code == 1 and "refused" in shown.split("error[")[0]  # the phases show why
    table = (
        _run("check", _file(tmp_path, text), "--nodes", "1x8", "--memory")[1].split("1 fault in ")[1].splitlines()[2:]
    )
    assert table[0].startswith("component ")
    assert table[1].split()[:2] == ["actor", "train"] and "refused" in table[1]
    report = json.loads(_run("check", _file(tmp_path, text), "--nodes", "1x8", "--memory", "--format", "json")[1])
    assert report[0]["memory"][0]["answer"] == "refused"


def test_json_has_both_bounds(tmp_path: Path) -> None:
    report = json.loads(_run("check", _file(tmp_path), "--nodes", "1x8", "--memory", "--format", "json")[1])
    needs = report[0]["memory"]
    assert [need["phase"] for need in needs] == ["train", "generate", "switch"]
    for need in needs:
        assert need["memory_lower"] == sum(low for low, _ in need["parts"].values())
        assert need["memory_lower"] <= need["memory_upper"]
    code, output = _run("plan", _file(tmp_path), "--nodes", "1x8", "--memory", "--format", "json")
    assert code == 0
    rows = json.loads(output)
    plain = json.loads(_run("plan", _file(tmp_path), "--nodes", "1x8", "--format", "json")[1])
    added = ("memory_lower", "memory_likely", "memory_upper", "memory_of")
    assert [{key: value for key, value in row.items() if key not in added} for row in rows] == plain
    for row in rows:
        own = [need for need in needs if row["component"] in need["components"]]
        for bound in ("memory_lower", "memory_likely", "memory_upper"):
            assert row[bound] == {need["phase"]: need[bound] for need in own}
        assert row["memory_of"] == 80 << 30


def test_numpy_has_both_bounds_of_every_process(tmp_path: Path) -> None:
    """Two kinds of accelerators, two of processes, and a component without memory."""
    (tmp_path / "nodes.yaml").write_text(
        "nodes:\n  - {ranks: 0-1, accelerators: 8, accelerator_model: H100}\n"
        "  - {ranks: 2-9, accelerators: 8, accelerator_model: H200}\n"
    )
    text = CONFIG.replace("TP", "8").replace("num_nodes: 1", "num_nodes: 10").replace("accelerator_memory: 80 GiB", "")
    text = text.replace("0-7\n", "0-39\n").replace('"0-7:0-1"', "32-71") + "    env: {placement: 64-79}\n"
    file = _file(tmp_path, text)
    rows = json.loads(
        _run("plan", file, "--inventory", str(tmp_path / "nodes.yaml"), "--memory", "--format", "json")[1]
    )
    done = _run("plan", file, "--inventory", str(tmp_path / "nodes.yaml"), "--memory", "-o", str(tmp_path / "plan.npz"))
    assert done == (0, "")
    with numpy.load(tmp_path / "plan.npz") as file_of_columns:
        columns = dict(file_of_columns)
    assert {row["memory_of"] for row in rows if row["component"] == "actor"} == {80 << 30, 141 << 30}
    for name, phases in {"actor": ("train", "switch"), "rollout": ("generate", "switch"), "env": ()}.items():
        own = [row for row in rows if row["component"] == name]
        assert {key.split(".")[2] for key in columns if key.startswith(f"{name}.memory_")} == set(phases)
        for bound in ("memory_lower", "memory_upper"):
            for phase in phases:
                wanted = [row[bound].get(phase, 0) for row in own]
                wanted = [math.inf if one is None else one for one in wanted]
                assert columns[f"{name}.{bound}.{phase}"].tolist() == wanted


def test_processes_without_accelerators_need_nothing(tmp_path: Path) -> None:
    """Also on nodes behind those of the others, and between them."""
    (tmp_path / "nodes.yaml").write_text(
        "nodes:\n  - {ranks: 0, accelerators: 8}\n  - {ranks: 1, accelerators: 0}\n"
        "  - {ranks: 2, accelerators: 8}\n  - {ranks: 3-9, accelerators: 0}\n"
    )
    text = CONFIG.replace("TP", "8").replace("num_nodes: 1", "num_nodes: 10").replace("0-7\n", "0-15\n")
    file = _file(tmp_path, text + "    env: {node_group: node, placement: 0-9}\n")
    given = [file, "--inventory", str(tmp_path / "nodes.yaml"), "--memory"]
    code, output = _run("plan", *given, "--format", "json")
    assert code == 0, output
    rows = json.loads(output)
    assert [row["memory_lower"] for row in rows if row["component"] == "env"] == [{}] * 10
    assert all(row["memory_lower"] for row in rows if row["component"] == "actor")
    assert _run("plan", *given, "-o", str(tmp_path / "plan.npz")) == (0, "")
    with numpy.load(tmp_path / "plan.npz") as columns:
        assert not [key for key in columns if key.startswith("env.memory")]
        assert all(columns["actor.memory_lower.train"] > 0)
    assert _run("plan", *given)[0] == 0


def test_of_several_switches_the_worst_one_counts(tmp_path: Path) -> None:
    engine = "{engine: vllm, share: SHARE, length: 4096, sleep: host}"
    text = CONFIG.replace("TP", "8") + "".join(
        f'    {name}: {{placement: "0-7:0-{last}", memory: {engine.replace("SHARE", share)}}}\n'
        for name, last, share in (("wide", 0, "0.3"), ("narrow", 3, "0.3"))
    )
    report = json.loads(_run("check", _file(tmp_path, text), "--nodes", "1x8", "--memory", "--format", "json")[1])
    switches = [need for need in report[0]["memory"] if need["phase"] == "switch"]
    assert len({need["memory_upper"] for need in switches}) > 1
    shown = _run("plan", _file(tmp_path, text), "--nodes", "1x8", "--memory", "--format", "json")[1]
    rows = json.loads(shown.split("error[")[0])
    assert rows[0]["memory_upper"]["switch"] == max(need["memory_upper"] for need in switches)


def test_the_table_has_what_each_process_needs(tmp_path: Path) -> None:
    lines = _run("plan", _file(tmp_path), "--nodes", "1x8", "--memory")[1].splitlines()
    plain = _run("plan", _file(tmp_path), "--nodes", "1x8")[1].splitlines()
    assert lines[0].split()[-3:] == ["needs", "of", "coordinates"]
    assert all("22.9 - 114.5 GiB  80.0 GiB  tp" in line for line in lines[1:9])
    assert all(line.endswith("15.5 - 114.5 GiB  80.0 GiB") for line in lines[9:11])
    assert lines[11 : len(plain)] == plain[11:]
    text = CONFIG.replace("TP", "8").replace("num_nodes: 1", "num_nodes: 16").replace("0-7\n", "0-127\n")
    folded = _run("plan", _file(tmp_path, text), "--nodes", "16x8", "--memory")[1].splitlines()
    assert folded[0].split()[-2:] == ["needs", "of"]
    assert [line.split()[1:3] for line in folded[1:3]] == [["0-7", "0"], ["8-127", "1-15"]]  # node 0 has a rollout


def test_without_memory_the_output_is_as_before(tmp_path: Path) -> None:
    file = _file(tmp_path, PLAIN)
    code, output = _run("check", file, "--nodes", "1x8")
    assert (code, output) == (0, f"{file}: fine, 1 component, 8 processes on 1 node\n")
    told = _run("check", file, "--nodes", "1x8", "--memory")[1]
    assert told.startswith(output + "memory: no component says what it keeps")
    assert "memory" not in json.loads(_run("check", file, "--nodes", "1x8", "--format", "json")[1])[0]


def test_check_and_plan_take_the_model_of_components_without_one(tmp_path: Path) -> None:
    file = _file(tmp_path, UNNAMED)
    for command in ("check", "plan"):
        options = (command, file, "--nodes", "1x8:H100", "--memory")
        assert "train " not in _run(*options)[1]
        phases = _run(*options, "--model", "Qwen/Qwen3-8B")[1]
        assert "train " in phases and "generate " in phases
    memory = rankplan.plan(file, "1x8", model="Qwen/Qwen3-8B")["actor"].memory
    assert memory is not None and memory.model == Model.of("Qwen/Qwen3-8B")


def test_a_saved_plan_has_its_own_models(tmp_path: Path) -> None:
    saved = str(tmp_path / "plan.json")
    assert _run("plan", _file(tmp_path), "--nodes", "1x8", "--save", saved)[0] == 0
    code, output = _run("plan", saved, "--memory", "--model", "Qwen/Qwen3-8B")
    assert code == 2 and output.endswith("is a saved plan with its own values; remove --model\n")
    code, output = _run("plan", saved, "--pinned", "--model", "Qwen/Qwen3-8B")
    assert code == 2 and output.endswith("remove --pinned and --model\n")
    with pytest.raises(ValueError, match="a plan with its own values; pinned and model apply to configs"):
        rankplan.plan(saved, model="Qwen/Qwen3-8B")


def test_options_that_exclude_each_other(tmp_path: Path) -> None:
    for more in (["--component", "actor"], ["--weights", "actor:rollout"], ["--format", "csv"]):
        assert _run("plan", _file(tmp_path), "--nodes", "1x8", "--memory", *more)[0] == 2


def test_an_unknown_answer_names_what_would_decide(tmp_path: Path) -> None:
    text = CONFIG.replace("TP", "8").replace("recompute: full, tokens: 4096, ", "")
    output = _run("check", _file(tmp_path, text), "--nodes", "1x8", "--memory")[1]
    assert "warning[memory-unknown]: `actor` needs 22.9 GiB or more in the phase train on accelerator 0 of" in output
    assert "conf.yaml:9:7  cluster.component_placement.actor.memory" in output
    assert "= help: state `actor.tokens`; or measure one step: rankplan run --timings" in output
    shown = _run("plan", _file(tmp_path, text), "--nodes", "1x8", "--memory")[1]
    assert not shown.startswith("\n")
    assert "actor, train: unknown; state `actor.tokens`; or measure" in shown
    assert "memory-unknown" not in _run("check", _file(tmp_path, text), "--nodes", "1x8")[1]


def test_keys_that_decide_only_together_are_named_together(tmp_path: Path) -> None:
    text = PLAIN.replace("actor: 0-7", "actor: {placement: 0-7, memory: {training: megatron, model: Qwen/Qwen2.5-7B}}")
    text = text.replace("num_nodes: 1", "num_nodes: 1\n  accelerator_memory: 80 GiB")
    shown = _run("plan", _file(tmp_path, text), "--nodes", "1x8", "--memory")[1]
    assert "actor, train: unknown; state `actor.tokens` and `actor.parallel`; or measure" in shown


def test_other_programs_on_the_accelerators(tmp_path: Path) -> None:
    output = _run("check", _file(tmp_path), "--nodes", "1x8", "--memory", "--reserve", "2GiB")[1]
    assert "other programs: 2.0 GiB of each accelerator" in output
    assert "24.9 GiB" in output  # 22.9 without
    report = json.loads(
        _run("check", _file(tmp_path), "--nodes", "1x8", "--memory", "--reserve", "2 GiB", "--format", "json")[1]
    )
    assert {tuple(need["parts"]["other programs"]) for need in report[0]["memory"]} == {(2 << 30, 2 << 30)}
    code, output = _run("check", _file(tmp_path), "--nodes", "1x8", "--reserve", "70GiB")
    assert code == 1
    assert "error[memory-exceeded]" in output
    for bad in ("2 bananas", "-1", "nan"):
        code, output = _run("check", _file(tmp_path), "--nodes", "1x8", "--reserve", bad)
        assert code == 2
        assert "is not a size; write a number and a unit, such as 2 GiB" in output
    assert _run("plan", _file(tmp_path), "--nodes", "1x8", "--reserve", "2GiB")[0] == 2


def test_a_trainer_has_no_key_for_the_memory_of_an_accelerator(tmp_path: Path) -> None:
    text = """\
trainer: {nnodes: 1, n_gpus_per_node: 8}
algorithm: {adv_estimator: grpo}
actor_rollout_ref:
  model: {path: Qwen/Qwen3-32B}
  actor: {strategy: fsdp2}
"""
    output = _run("check", _file(tmp_path, text), "--nodes", "1x8", "--memory")[1]
    assert "= help: name the accelerators: `--nodes 1x8:H100`, or state `accelerator_model` in an inventory\n" in output
    assert "`accelerator_memory`" not in output

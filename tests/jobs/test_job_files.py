"""Job files: what they state counts for any trainer, and every wrong key has its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import Inventory, PlacementError
from support.paths import ROOT

EXAMPLES = ROOT / "examples"
TRAINERS = ["areal.yaml", "nemo_rl.yaml", "openrlhf.sh", "roll.yaml", "skyrl.sh", "slime.yaml", "verl.sh", "verl.yaml"]
RACKS = """\
levels: [rack]
nodes:
  - {ranks: 0-1, accelerators: 8, labels: {rack: a}}
  - {ranks: 2-3, accelerators: 8, labels: {rack: b}}
"""
RLINF = """\
cluster:
  num_nodes: 2
  topology: {segment: {actor: 2}}
  component_placement: {actor: 0-7, rollout: 8-15}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an inventory, and a config of each trainer."""
    (tmp_path / "nodes.yaml").write_text(RACKS)
    (tmp_path / "rlinf.yaml").write_text(RLINF)
    for name in TRAINERS:
        (tmp_path / name).write_bytes((EXAMPLES / name).read_bytes())
    return tmp_path


def written(folder: Path, text: str, name: str = "run.job.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def faults(config: Any) -> list[str]:
    """Return the faults of a job file, each with its file, line, column and code."""
    report = rankplan.check(config)
    found = report.faults
    return [f"{Path(one.file or '').name}:{one.line}:{one.column} {one.code}: {one.message}" for one in found]


@pytest.mark.parametrize("name", TRAINERS)
def test_the_plan_of_a_job_is_that_of_its_config_with_the_rules(folder: Path, name: str) -> None:
    plain = rankplan.plan(folder / name, folder / "nodes.yaml")
    component = next(iter(plain))
    rule = f"topology: {{prefer: {{{component}: {{world: rack}}}}}}"
    job = written(folder, f"job: {name}\nnodes: nodes.yaml\n{rule}\n")
    plan = rankplan.plan(job)
    assert {one: plan[one].rows for one in plan} == {one: plain[one].rows for one in plain}
    assert plan.rules.prefer == {component: {"world": "rack"}} and plan.requests == plain.requests
    assert plan.dialect == plain.dialect and plan.inventory.levels == ("rack",)
    assert rankplan.check(job).plan == plan


@pytest.mark.parametrize("name", [*TRAINERS, "rlinf.yaml"])
def test_a_job_without_rules_is_its_config(folder: Path, name: str) -> None:
    job = written(folder, f"job: {name}\n")
    ours, theirs = rankplan.check(job), rankplan.check(folder / name)
    assert ours.plan == theirs.plan and ours.plan is not None
    assert [one.message for one in ours.warnings] == [one.message for one in theirs.warnings]


def test_paths_are_relative_to_the_file_that_names_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    job = written(folder, "job: ../verl.sh\nnodes: ../nodes.yaml\n", "jobs/run.job.yaml")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert rankplan.plan(job).inventory.num_nodes == 4
    monkeypatch.chdir(folder)
    assert rankplan.plan("jobs/run.job.yaml").inventory.num_nodes == 4
    monkeypatch.chdir(folder / "jobs")
    assert rankplan.plan("run.job.yaml").inventory.num_nodes == 4


def test_arguments_replace_or_add_to_what_the_file_states(folder: Path) -> None:
    text = "job: verl.yaml\nnodes: 1x8\nexclude: [node-0/7]\noverrides: [trainer.nnodes=2, trainer.n_gpus_per_node=4]\n"
    job = written(folder, text)
    plan = rankplan.plan(job, Inventory.uniform(3, 8), overrides=["trainer.nnodes=1"], without=["node-1"])
    assert plan.inventory.num_nodes == 3
    assert sorted(plan.inventory.marks) == [0, 1] and plan.inventory.marks[1] is None
    assert {row.cluster_node_rank for row in plan["actor"].rows} == {0}
    assert plan.inventory.facts is not None and plan.inventory.facts.exclude == ("node-0/7", "node-1")


def test_files_lie_on_each_other(folder: Path) -> None:
    written(
        folder,
        "job: ../verl.yaml\nnodes: ../nodes.yaml\nexclude: [node-3]\noverrides: [trainer.nnodes=1]\n"
        "topology: {prefer: {actor: {world: rack}}, cap: {rack: 2}}\nmemory: {reserve: 2 GiB}\n",
        "base/base.job.yaml",
    )
    top = written(
        folder,
        "job: base/base.job.yaml\nexclude: [node-2]\noverrides: [trainer.n_gpus_per_node=4]\n"
        "topology: {prefer: {rollout: {tp: rack}}}\n",
    )
    plan = rankplan.plan(top)
    assert plan.inventory.num_nodes == 4 and sorted(plan.inventory.marks) == [2, 3]
    assert plan.rules.prefer == {"rollout": {"tp": "rack"}} and plan.rules.cap == {"rack": 2}
    assert plan.rules.where("cap", "rack").file == str(folder / "base" / "base.job.yaml")
    assert plan.rules.where("prefer", "rollout").file == str(top)
    written(folder, "job: base/base.job.yaml\nexclude: [node-2, nod-1]\n")
    assert faults(top)[0].startswith("run.job.yaml:2:19 ") and "nod-1" in faults(top)[0]
    written(folder, "job: ../verl.yaml\nexclude: [nod-3]\n", "base/base.job.yaml")
    assert faults(top)[0].startswith("base.job.yaml:2:11 ")


def test_a_circle_is_reported_with_every_file_and_line(folder: Path) -> None:
    written(folder, "# a\njob: b.job.yaml\n", "a.job.yaml")
    written(folder, "job: c.job.yaml\n", "b.job.yaml")
    written(folder, "nodes: 1x8\n\njob: a.job.yaml\n", "c.job.yaml")
    (found,) = rankplan.check(folder / "a.job.yaml").faults
    circle = " -> ".join(f"{folder / name}:{line}" for name, line in [("a.job.yaml", 2), ("b.job.yaml", 1)])
    assert found.message.endswith(f"{circle} -> {folder / 'c.job.yaml'}:3 -> {folder / 'a.job.yaml'}:2")
    assert (found.file, found.line) == (str(folder / "c.job.yaml"), 3)
    written(folder, "job: b.job.yaml\n", "top.job.yaml")  # outside the circle
    assert "top.job.yaml" not in rankplan.check(folder / "top.job.yaml").faults[0].message
    written(folder, "job: self.job.yaml\n", "self.job.yaml")
    assert faults(folder / "self.job.yaml")[0].endswith(f"names itself: {folder / 'self.job.yaml'}:1")
    (folder / "link.yaml").symlink_to(folder / "through.job.yaml")
    written(folder, "job: link.yaml\n", "through.job.yaml")
    assert "names itself" in faults(folder / "through.job.yaml")[0]


def test_at_most_eight_files_lie_on_each_other(folder: Path) -> None:
    for number in range(8):
        below = f"{number + 1}.job.yaml" if number < 7 else "verl.yaml"
        written(folder, f"job: {below}\n", f"{number}.job.yaml")
    assert rankplan.check(folder / "0.job.yaml").plan is not None
    written(folder, "job: 0.job.yaml\n", "more.job.yaml")
    (found,) = faults(folder / "more.job.yaml")
    assert found.startswith("6.job.yaml:1:6 invalid-value: more than 8 job files")


WRONG = [
    ("job: verl.sh\ntrainer: {nnodes: 2}", [(1, 1, "job-conflict"), (2, 1, "job-conflict")]),
    ("job: verl.sh\ndefaults: base.yaml", [(1, 1, "job-conflict"), (2, 1, "job-conflict")]),
    ("job: verl.sh\ntopologie: {}", [(2, 1, "unknown-key")]),
    ("job: verl.sh\nfoo: 1", [(2, 1, "unknown-key")]),
    ("job: [verl.sh]", [(1, 1, "invalid-value")]),
    ("job:", [(1, 1, "invalid-value")]),
    ("job: missing.sh", [(1, 6, "invalid-value")]),
    ("job: ~/verl.sh", [(1, 6, "invalid-value")]),
    ("job: $HOME/verl.sh", [(1, 6, "invalid-value")]),
    ("job: verl.sh\nnodes: ${NODES}", [(2, 8, "invalid-value")]),
    ("job: verl.sh\nnodes: missing.yaml", [(2, 8, "invalid-value")]),
    ("job: verl.sh\nnodes: {rays: auto}", [(2, 9, "unknown-key")]),
    ("job: verl.sh\nnodes: 4", [(2, 8, "invalid-value")]),
    ("job: verl.sh\ndialect: verll", [(2, 10, "invalid-value")]),
    ("job: verl.sh\noverrides: trainer.nnodes=2", [(2, 12, "invalid-value")]),
    ("job: verl.sh\noverrides: [trainer.nnodes=2, 3]", [(2, 31, "invalid-value")]),
    ("job: verl.yaml\noverrides: [trainer.nnode=2]", [(2, 13, "unknown-key")]),
    ("job: verl.yaml\noverrides:\n  - trainer.nnodes=x", [(3, 20, "invalid-value")]),
    ("job: verl.sh\nexclude: [node-9]", [(2, 11, "invalid-value")]),
    ("job: verl.sh\nexclude: {a: 1}", [(2, 1, "invalid-value")]),
    ("job: verl.sh\ntopology: {keep: {acto: {tp: node}}}", [(2, 19, "unknown-component")]),
    ("job: verl.sh\nnodes: nodes.yaml\ntopology: {keep: {actor: {dp: rak}}}", [(3, 31, "unknown-level")]),
    ("job: verl.sh\ntopology: {keep: {actor: {tpp: node}}}", [(2, 27, "unknown-key")]),
    ("job: verl.sh\ntopology: {segment: 0}", [(2, 21, "invalid-value")]),
    ("job: verl.sh\nnodes: nodes.yaml\ntopology: {levels: [rak]}", [(3, 21, "unknown-level")]),
    ("job: verl.sh\npools: [{name: a}]", [(2, 9, "missing-key")]),
    ("job: verl.sh\nnode_groups: [{label: node, node_ranks: 0}]", [(2, 23, "reserved-label")]),
    ("job: verl.sh\nbeside: [missing.json]", [(2, 10, "invalid-value")]),
    ("job: verl.sh\nmemory: {modell: x}", [(2, 10, "unknown-key")]),
    ("job: verl.sh\nmemory: {accelerator: H101}", [(2, 23, "invalid-value")]),
    ("job: verl.sh\nmemory: {reserve: 2 XiB}", [(2, 19, "invalid-value")]),
    ("job: verl.sh\nmemory: 3", [(2, 9, "invalid-value")]),
    ("job: verl.sh\nmemory: {costs: missing.yaml}", [(2, 17, "invalid-value")]),
    ('job: "a\\0b"', [(1, 6, "invalid-value")]),
    ('job: verl.sh\nnodes: "a\\0b"', [(2, 8, "invalid-value")]),
    ('job: verl.sh\noverrides: ["a=\\0"]', [(2, 13, "invalid-value")]),
    ("job: verl.sh\nvisibility: own", [(2, 1, "invalid-value")]),
    ("job: verl.sh\nenvironment: {A: x}", [(2, 1, "invalid-value")]),
    ("job: rlinf.yaml\nbinding: nod", [(2, 10, "invalid-value")]),
    ("job: verl.sh\ncommand: [bash]", [(2, 1, "invalid-value")]),
    ("job: verl.sh\nemit: {too: kuberay}", [(2, 8, "unknown-key")]),
    ("job: verl.sh\nemit: {to: kuberayy}", [(2, 12, "invalid-value")]),
    ("job: verl.sh\nemit: {slurm_release: '24.05'}", [(2, 8, "unknown-key")]),
    ("job: verl.sh\nemit: {port: 0}", [(2, 14, "invalid-value")]),
    ("job: verl.sh\nemit: {to: kuberay, slurm-release: '24.05'}", [(2, 21, "unknown-key")]),
    ("job: verl.sh\nemit: {queue: $QUEUE}", [(2, 15, "invalid-value")]),
]


@pytest.mark.parametrize(("text", "expected"), WRONG, ids=[text.splitlines()[-1] for text, _ in WRONG])
def test_what_is_wrong_has_its_place(folder: Path, text: str, expected: list[tuple[int, int, str]]) -> None:
    report = rankplan.check(written(folder, text))
    assert [(one.line, one.column, one.code) for one in report.faults] == expected, report.render()
    assert all(one.help and Path(one.file or "").name == "run.job.yaml" for one in report.faults)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("jobs: verl.sh\nnodes: 2x8\n", "1:1 unknown-key: unknown key `jobs`"),
        ("nodes: nodes.yaml\nJOB: verl.sh\n", "2:1 unknown-key: unknown key `JOB`"),
        ("nodes: 2x8\ntopology: {segment: {actor: 1}}\n", "1:1 missing-key: `job` is missing, and all keys are"),
        ("nodes: {ray: auto}\n", "1:1 missing-key: `job` is missing"),
        ("nodes: [{ranks: 0, accelerators: 8}]\n", "1:1 no-components: this is an inventory"),
    ],
)
def test_a_file_that_should_name_a_job(folder: Path, text: str, fault: str) -> None:
    (only,) = faults(written(folder, text))
    assert only.startswith(f"run.job.yaml:{fault}")


@pytest.mark.parametrize(
    "option", ["nodes: other.job.yaml", "beside: [other.job.yaml]", "memory: {costs: other.job.yaml}"]
)
def test_a_job_file_is_no_other_file(folder: Path, option: str) -> None:
    written(folder, "job: verl.sh\nnodes: 2x8\n", "other.job.yaml")
    (only,) = faults(written(folder, f"job: verl.sh\n{option}\n"))
    assert only.startswith("other.job.yaml:") and ": this is a job file, not " in only


@pytest.mark.parametrize("folders", ["", "sub/"])
@pytest.mark.parametrize(
    "stated",
    [
        "job: https://a.example/run.sh",
        "job: verl.sh\nnodes: s3://a/b.yaml",
        "job: verl.sh\nbeside: ['http://a/b.json']",
    ],
)
def test_a_url_is_no_path(folder: Path, stated: str, folders: str) -> None:
    text = stated.replace("verl.sh", "../verl.sh") if folders else stated
    (fault,) = rankplan.check(written(folder, text, f"{folders}run.job.yaml")).faults
    assert fault.help == "write the path of a file on this machine; URLs are not read"


def test_a_job_of_a_config_does_not_load_the_reader_of_scripts(folder: Path) -> None:
    """It costs a quarter of a check."""
    job = written(folder, "job: roll.yaml\nnodes: 4x8\n")
    code = "import sys, rankplan; rankplan.check(sys.argv[1]).plan['actor_infer']; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(job)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "rankplan.read.text.script" not in done.stdout.split()


def test_overrides_and_commands_belong_to_the_trainer(folder: Path) -> None:
    text = "job: verl.yaml\noverrides: ['+a=${oc.env:HOME,x}']\ncommand: bash $RUN\nemit: {entrypoint: 'python $X'}\n"
    assert rankplan.check(written(folder, text)).plan is not None


def test_rules_of_the_config_and_of_the_job_file_both_hold(folder: Path) -> None:
    job = written(folder, "job: rlinf.yaml\ntopology: {keep: {rollout: {world: node}}, segment: {actor: 2}}\n")
    rules = rankplan.plan(job, "2x8").rules
    assert rules.segment == {"actor": 2} and rules.keep == {"rollout": {"world": "node"}}
    written(folder, "job: rlinf.yaml\ntopology: {segment: {actor: 1, rollout: 1}}\n")
    assert [one.partition(":")[0] for one in faults(job)] == ["run.job.yaml", "rlinf.yaml"]
    places = [(one.line, one.column, one.code) for one in rankplan.check(job).faults]
    assert places == [(2, 29, "job-conflict"), (3, 31, "job-conflict")]


def test_nodes_and_slurm_must_agree(folder: Path) -> None:
    script = (folder / "verl.sh").read_text().splitlines()
    (folder / "verl.sh").write_text("\n".join([script[0], "#SBATCH -N 2", *script[1:]]))
    job = written(folder, "job: verl.sh\nnodes: 4x8\n")
    assert [(Path(one.file or "").name, one.line, one.column, one.code) for one in rankplan.check(job).faults] == [
        ("run.job.yaml", 2, 8, "job-conflict"),
        ("verl.sh", 2, 12, "job-conflict"),
    ]
    assert rankplan.check(written(folder, "job: verl.sh\nnodes: 2x8\n")).plan is not None
    assert rankplan.check(written(folder, "job: verl.sh\nnodes: nodes.yaml\n")).plan is not None


def test_the_accelerator_is_that_of_the_inventory(folder: Path) -> None:
    job = written(folder, "job: verl.sh\nnodes: nodes.yaml\nmemory: {accelerator: A100}\n")
    assert {record.accelerator_model for _, record in rankplan.plan(job).inventory.stretches()} == {"A100"}
    cards = RACKS.replace("accelerators: 8", "accelerators: 8, accelerator_model: H100")
    (folder / "nodes.yaml").write_text(cards)
    assert [one.split(" ")[0:2] for one in faults(job)] == [["run.job.yaml:3:23", "job-conflict:"]]
    (folder / "nodes.yaml").write_text(cards.replace("H100", "A100-40GB"))
    assert rankplan.check(job).plan is not None


def test_a_saved_plan_takes_other_rules_only(folder: Path) -> None:
    rankplan.plan(folder / "rlinf.yaml", "2x8").save(folder / "plan.json")
    job = written(folder, "job: plan.json\ntopology: {keep: {actor: {world: node}}}\n")
    rules = rankplan.plan(job).rules
    assert rules.keep == {"actor": {"world": "node"}} and rules.segment == {"actor": 2}
    written(folder, "job: plan.json\ntopology: {keep: {actor: {world: nod}}}\n")
    assert faults(job)[0].startswith("run.job.yaml:2:34 unknown-level")
    written(folder, "job: plan.json\nnodes: 2x8\nexclude: [node-1]\noverrides: [a=1]\ndialect: verl\n")
    assert [one.rpartition(" job-conflict")[0] for one in faults(job)] == [
        f"run.job.yaml:{line}:1" for line in (5, 4, 2, 3)
    ]


def test_the_nodes_of_other_jobs_are_taken(folder: Path) -> None:
    rankplan.plan(folder / "verl.yaml", folder / "nodes.yaml").save(folder / "other.json")
    plan = rankplan.plan(written(folder, "job: verl.yaml\nnodes: nodes.yaml\nbeside: [other.json]\n"))
    other = rankplan.Plan.load(folder / "other.json")
    used = {row.cluster_node_rank for component in other.values() for row in component.rows}
    assert used and set(plan.inventory.taken) == used
    assert used.isdisjoint(row.cluster_node_rank for row in plan["actor"].rows)


def test_a_mapping_may_be_a_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    job = {"job": Path("verl.sh"), "nodes": "nodes.yaml", "topology": {"keep": {"rollout": {"tp": "node"}}}}
    assert rankplan.plan(job).rules.keep == {"rollout": {"tp": "node"}}
    with pytest.raises(PlacementError, match="unknown kind of group"):
        rankplan.plan({**job, "topology": {"keep": {"rollout": {"tpp": "node"}}}})


def test_rules_that_a_system_does_not_know_are_a_warning(folder: Path) -> None:
    text = (folder / "slime.yaml").read_text() + "topology: {keep: {actor: {tp: node}}}\n"
    (folder / "slime.yaml").write_text(text)
    (found,) = [one for one in rankplan.check(folder / "slime.yaml").warnings if one.code == "rules-not-read"]
    assert found.line == len(text.splitlines()) and found.help is not None
    lines = found.help.partition(": ")[2].removeprefix("`").removesuffix("`").split("`, `")
    assert rankplan.plan(written(folder, "\n".join(lines))).rules.keep == {"actor": {"tp": "node"}}


def test_the_unknown_cluster_of_verl_gets_the_lines_of_a_job_file(folder: Path) -> None:
    text = (folder / "verl.yaml").read_text() + "\ncluster: {topology: {keep: {actor: {tp: node}}}}\n"
    (folder / "verl.yaml").write_text(text)
    (found,) = rankplan.check(folder / "verl.yaml").faults
    assert (found.code, found.path, found.line) == ("unknown-key", "cluster", len(text.splitlines()))
    assert found.message == "`cluster` is a key of rlinf, but the config has keys of verl"
    lines = "these lines: `job: verl.yaml`, `topology: {keep: {actor: {tp: node}}}`"
    assert found.help == f"remove `cluster`, and pass a job file with {lines}"


def test_variables_are_those_of_every_process(folder: Path) -> None:
    job = written(folder, "job: rlinf.yaml\nenvironment: {NCCL_DEBUG: INFO, DEPTH: 2}\n")
    plan = rankplan.plan(job, "2x8")
    plan.save(folder / "plan.json")
    for known in (plan, rankplan.Plan.load(folder / "plan.json"), plan.on(Inventory.uniform(3, 8))):
        assert known.inventory.environment(0, "cluster") == ({"NCCL_DEBUG": "INFO", "DEPTH": "2"}, None)
    assert rankplan.Plan.load(folder / "plan.json") == plan != rankplan.plan(folder / "rlinf.yaml", "2x8")
    written(folder, "job: rlinf.yaml\nenvironment: {RANK: 1}\n")
    assert faults(job) == ["run.job.yaml:2:15 reserved-env-var: variable `RANK` is set by the plan"]


def test_a_model_whose_size_the_config_does_not_tell(folder: Path) -> None:
    text = (folder / "verl.yaml").read_text() + "\nactor_rollout_ref: {model: {path: /models/mine}}\n"
    keys = "trainer: {nnodes: 1, n_gpus_per_node: 8}\nalgorithm: {adv_estimator: grpo}\n"
    (folder / "verl.yaml").write_text(keys + text.splitlines()[-1])
    assert all(one.memory is None for one in rankplan.plan(folder / "verl.yaml").values())
    job = written(folder, "job: verl.yaml\nmemory: {model: Qwen/Qwen3-8B, accelerator: H100}\n")
    plan = rankplan.plan(job)
    assert plan["actor"].memory is not None and plan["actor"].memory.model is not None
    written(folder, "job: verl.yaml\nmemory: {model: Qwen/Qwen3-88B}\n")
    assert faults(job)[0].startswith("run.job.yaml:2:17 unknown-model: ")
    written(folder, "job: verl.yaml\nmemory: {model: ./missing.json}\n")
    assert faults(job)[0].startswith("run.job.yaml:2:17 ")

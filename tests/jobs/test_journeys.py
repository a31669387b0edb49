"""One job from its file to a repair, for every trainer: what is stated at one step holds after each later one."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from rankplan import Plan
from rankplan.plans.topology import topology_faults
from support.commands import run
from support.paths import ROOT

TRAINERS = {
    "areal.yaml": "python3 train.py",
    "ms_swift.yaml": "megatron rlhf --use_ray true --config ms_swift.yaml",
    "nemo_rl.yaml": "python3 run_grpo.py",
    "open_instruct.sh": "",
    "openrlhf.sh": "",
    "roll.yaml": "python3 start.py",
    "skyrl.sh": "",
    "slime.yaml": "python3 train.py",
    "verl.sh": "",
    "rlinf.yaml": "python {}.py",
}
"""The config of each trainer, and its command; a script is its own."""
GROWS = {
    "ms_swift.yaml": "rollout=4",
    "nemo_rl.yaml": "generation=2",
    "open_instruct.sh": "vllm=8",
    "roll.yaml": "actor_infer=4",
    "skyrl.sh": "generator=2",
    "slime.yaml": "rollout=2",
}
"""The component of which a trainer can run more engines, and how many fill a node. Others share accelerators."""
RLINF = "cluster: {num_nodes: 2, component_placement: {actor: 0-7, rollout: 8-15}}\n"
TARGETS = ("kuberay", "jobset", "lws", "kueue", "slurm", "torchrun", "mpirun")
REFUSED = {"emit-uneven", "emit-ray", "emit-topology", "emit-order"}
"""What a launcher cannot hold of some plan."""


@pytest.fixture(params=list(TRAINERS))
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a config in a folder, with an inventory of two levels whose order knows nothing of its racks."""
    monkeypatch.chdir(tmp_path)
    name = str(request.param)
    if name == "rlinf.yaml":
        Path(name).write_text(RLINF)
    else:
        shutil.copy(ROOT / "examples" / name, name)
    each = rankplan.plan(name).inventory.node(0).num_accelerators
    nodes: list[dict[str, Any]] = [
        {
            "hostname": f"n{index}",
            "ip": f"10.0.0.{index + 5}",
            "accelerators": each,
            "labels": {"example.com/zone": f"z{index // 6}", "example.com/rack": f"r{index // 3}"},
        }
        for index in range(12)
    ]
    random.Random(7).shuffle(nodes)
    content = {
        "levels": ["example.com/zone", "example.com/rack"],
        "nodes": [{"ranks": rank, **one} for rank, one in enumerate(nodes)],
    }
    Path("nodes.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return name


def done(*words: str) -> str:
    """Return what a command prints that must succeed."""
    found = run(*words)
    assert found.exit_code == 0, (words, found.stderr)
    return found.stdout


def check_plan(plan: Plan, rules: dict[str, Any], dead: set[str]) -> None:
    """The rules are the stated ones and hold, and no dead node is in use."""
    assert plan.rules.topology() == rules
    assert not list(topology_faults(plan.rules, dict(plan), plan.inventory))
    used = {str(plan.inventory.node(rank).hostname) for one in plan.values() for rank in one.used_nodes()}
    assert used and used.isdisjoint(dead)


def test_what_is_stated_holds_from_the_file_to_the_repair(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stem = Path(config).stem
    done("init", config, "--inventory", "nodes.yaml", "-o", f"{stem}.job.yaml")
    draft = Path(f"{stem}.job.yaml").read_text()
    component = next(iter(rankplan.plan(config)))
    job: dict[str, Any] = {
        "job": config,
        "nodes": "nodes.yaml",
        "topology": {"keep": {component: {"world": "example.com/rack"}}},
    }
    trains_itself = config != "rlinf.yaml"
    if trains_itself and TRAINERS[config]:
        job["command"] = TRAINERS[config]
    assert "# topology:" in draft
    Path(f"{stem}.job.yaml").write_text(yaml.safe_dump(job))
    assert ": fine, " in done("check", f"{stem}.job.yaml")
    words = ["--pinned"] if trains_itself else []
    done("plan", f"{stem}.job.yaml", *words, "--save", "v0.json")
    rules = Plan.load("v0.json").rules.topology()
    assert rules["keep"] == job["topology"]["keep"]
    check_plan(Plan.load("v0.json"), rules, set())
    assert component in done("show", "v0.json")

    for target in TARGETS:
        command = ["--command", "python {}.py"] if not trains_itself and target not in ("kuberay", "kueue") else []
        command += ["--entrypoint", "python t.py"] if not trains_itself and target == "kuberay" else []
        queue = ["--queue", "q"] if target in ("kuberay", "jobset", "lws") else []
        file = f"out.{target}"
        emitted = run("emit", "v0.json", "--to", target, *command, *queue, "-o", file)
        if emitted.exit_code:
            assert any(f"error[{code}]" in emitted.stderr for code in REFUSED), emitted.stderr
            assert not Path(file).exists()
            assert target in ("torchrun", "mpirun") or not trains_itself or "emit-ray" not in emitted.stderr
        elif target != "kueue":
            back = rankplan.plan(file)
            assert back.rules.topology() == rules
            assert {name: one.rows for name, one in back.items()} == {
                name: one.rows for name, one in Plan.load("v0.json").items()
            }

    dead: set[str] = set()
    for step in range(2):
        plan = Plan.load(f"v{step}.json")
        used = sorted({rank for one in plan.values() for rank in one.used_nodes()})
        middle = str(plan.inventory.node(used[len(used) // 2]).hostname)
        dead.add(middle)
        done("replan", f"v{step}.json", "--without", middle, "--save", f"v{step + 1}.json")
        check_plan(Plan.load(f"v{step + 1}.json"), rules, dead)
    done("arrange", "v2.json", "--save", "v3.json")
    check_plan(Plan.load("v3.json"), rules, dead)
    other = run("diff", "v0.json", "v2.json")
    assert other.exit_code in (0, 1) and "rules" not in other.stdout
    _check_sizes(config, rules, dead)

    converted = run("convert", "v3.json", "--to", "roll")
    assert "omitted in roll: `cluster.topology.keep`" in converted.stderr
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert ": fine, " in done("check", f"../{stem}.job.yaml")
    done("plan", f"../{stem}.job.yaml", *words, "--save", "v0.json")
    assert Plan.load("v0.json") == Plan.load("../v0.json")
    assert Path("v0.json").read_bytes() == Path("../v0.json").read_bytes()


def _check_sizes(config: str, rules: dict[str, Any], dead: set[str]) -> None:
    """Engines join and leave where the trainer can run more of them; else it is named."""
    change = GROWS.get(config)
    if change is None:
        name = next(iter(Plan.load("v3.json")))
        refused = run("replan", "v3.json", "--grow", f"{name}=1", "--save", "v4.json")
        assert refused.exit_code == 1 and name in refused.stderr and not Path("v4.json").exists()
        return
    done("replan", "v3.json", "--grow", change, "--save", "v4.json")
    done("replan", "v4.json", "--shrink", change, "--save", "v5.json")
    before, grown, shrunk = (Plan.load(f"v{step}.json") for step in (3, 4, 5))
    for plan in (grown, shrunk):
        check_plan(plan, rules, dead)
    component = change.partition("=")[0]
    sizes = [len(plan[component]) for plan in (before, grown, shrunk)]
    assert sizes[0] < sizes[1] and sizes[2] == sizes[0]
    assert ": fine, " in done("check", "v5.json")

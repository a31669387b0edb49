"""``rankplan move``: its output, its files, its faults, and what it simulates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from rankplan import Plan
from support.commands import run
from support.transitions import planned

ENGINE = {"engine": "vllm", "model": "Qwen/Qwen3-8B", "share": 0.6, "length": 8192}


@pytest.fixture(autouse=True)
def plans(own_folder: Path) -> None:
    for name, where, count in (("before", "0-3", 2), ("after", "0-7", 4), ("moved", "8-11", 2)):
        rollout = {"placement": f"{where}:0-{count - 1}", "parallel": {"tp": 2}, "memory": ENGINE}
        planned({"rollout": rollout}, 2, 8, "80 GiB").save(f"{name}.json")


def test_it_prints_slots_bytes_steps_and_what_is_missing() -> None:
    done = run("move", "before.json", "after.json")
    assert done.exit_code == 0, done.output
    assert "rollout    4 -> 8     4      4  32.8 GB" in done.output
    assert "32.8 GB move (32.8 GB node); 32.8 GB stay where they are" in done.output
    assert "fits: no order of the steps exceeds an accelerator" in done.output
    assert "sync rollout/2     4-5    regroup rollout/2        ?" in done.output
    assert "missing in --costs: components.rollout.load, bandwidth.node, latency" in done.output
    assert "nothing to do" in run("move", "before.json", "before.json").output


def test_configs_are_planned_on_the_nodes_of_the_options() -> None:
    for name, where in (("a", "0-3"), ("b", "4-7")):
        Path(f"{name}.yaml").write_text(f"cluster: {{num_nodes: 1, component_placement: {{actor: {where}}}}}")
    done = run("move", "a.yaml", "b.yaml", "--nodes", "1x8")
    assert done.exit_code == 0 and "4 moves of unknown bytes: state `memory` of the components" in done.output
    assert "unknown" not in run("move", "a.yaml", "a.yaml", "--nodes", "1x8").output


def test_its_json_keeps_to_its_schema() -> None:
    schema = json.loads(run("schema", "--transition").output)
    jsonschema.Draft7Validator.check_schema(schema)
    for after in ("after", "moved", "before"):
        content = json.loads(run("move", "before.json", f"{after}.json", "--format", "json").output)
        jsonschema.validate(content, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content | {"version": 2}, schema)


def test_verify_says_what_it_has_simulated() -> None:
    done = run("move", "before.json", "after.json", "--verify")
    assert done.exit_code == 0 and "verified: all nine invariants hold in every order (49 states)" in done.output
    many = run("move", "before.json", "moved.json", "--verify", "--serving", "2")
    assert many.exit_code == 0 and "verified: all nine invariants hold" in many.output


def test_a_breach_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from rankplan.moving import simulate
    from rankplan.moving.simulate import Breach, Verified

    found = Verified((Breach(2, "actor/0 sends to rollout/1"),), 3, True)
    monkeypatch.setattr(simulate, "verify", lambda _: found)
    monkeypatch.setattr("rankplan.cli.move.verified", lambda _: found)
    done = run("move", "before.json", "after.json", "--verify")
    assert done.exit_code == 1
    assert "breach (2) a sender is there while it is read, awake or on its host: actor/0 sends to" in done.output


def test_the_map_has_every_slot_of_both_plans_with_its_kind() -> None:
    assert run("move", "before.json", "moved.json", "-o", "map.svg", "-o", "map.svg").exit_code == 0
    tips = [title.text for title in ElementTree.parse("map.svg").iter("{http://www.w3.org/2000/svg}title")][1:]
    assert sorted(tips) == sorted(  # type: ignore[type-var]
        [f"rollout slot {slot}: stops" for slot in range(4)]
        + [f"rollout slot {slot}: comes from elsewhere, gets 8.19 GB" for slot in range(4)]
    )
    assert run("move", "before.json", "moved.json", "-o", "map.html").exit_code == 0
    page = Path("map.html").read_text()
    assert "<svg" in page and "load rollout/0" in page and "32.8 GB move" in page


def test_lending_takes_one_plan_twice() -> None:
    actor = {"placement": "0-3", "memory": {"resident": "60 GiB", "sleep": "host"}}
    rollout = {"placement": "0-7:0-3", "parallel": {"tp": 2}, "memory": {**ENGINE, "sleep": "host"}}
    planned({"actor": actor, "rollout": rollout}, 1, 8, "80 GiB").save("plan.json")
    done = run("move", "plan.json", "plan.json", "--sleeping", "rollout/0-1", "--sleep", "actor")
    assert done.exit_code == 0, done.output
    assert "wake rollout/0  0-1    sleep actor/0, sleep actor/1" in done.output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("before.json none.json", "none.json: No such file or directory"),
        ("before.json costs.yaml", "costs.yaml"),
        ("before.json after.json --costs costs.yaml", "error[unknown-component]: unknown component `rolout`"),
        ("before.json after.json --without h7", "error[invalid-value]: unknown node or accelerator 'h7'"),
        ("before.json after.json --without h0", "error[excluded-resource]: the plan after places rollout rank 0 on h0"),
        ("before.json before.json --sleep actor", "error[unknown-component]: unknown instances 'actor'"),
        ("before.json after.json --serving -1", "Invalid value for '--serving'"),
        ("before.json after.json --nodes 1x8", "before.json is a saved plan with its own nodes; remove --nodes"),
    ],
)
def test_faults_are_clear_and_nothing_is_written(line: str, message: str) -> None:
    Path("costs.yaml").write_text("components: {rolout: {load: 3}}")
    before = sorted(path.name for path in Path().iterdir())
    done = run("move", *line.split(), "-o", "map.svg")
    assert done.exit_code in (1, 2) and "Traceback" not in done.output
    assert message in done.output, done.output
    assert sorted(path.name for path in Path().iterdir()) == before


def test_other_commands_do_not_import_transitions() -> None:
    program = (
        "import sys\nfrom rankplan.cli import main\nsys.argv = ['rankplan', 'plan', 'before.json']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "sys.exit(any(name.startswith('rankplan.moving') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and "rollout" in done.stdout
    assert Plan.load("before.json")

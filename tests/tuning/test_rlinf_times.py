"""RLinf's times, and its recorded placements: never better than ours under its model and its rules."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rankplan import ComponentCosts, Costs, Inventory, PlacementError, tune
from rankplan.tuning import profile
from rankplan.tuning.layout import Cluster
from rankplan.tuning.shapes import best_of_shape, possible
from rankplan.tuning.times import Computed
from support import oracle_tune
from support.commands import run
from support.goldens import lines, named
from support.oracle_tune import Component, Problem
from support.outcomes import some

LINES = [line for line in lines("rlinf_auto_placement") if "error" not in line]
REASONING = [line for line in LINES if line["profile"]["task_type"] == "reasoning"]
EMBODIED = [line for line in LINES if line["profile"]["task_type"] == "embodied"]
ORDER = {"reasoning": ["rollout", "inference", "actor"], "embodied": ["env", "env_rollout", "actor"]}


def ids(line: dict[str, Any]) -> str:
    return str(line["id"])


def functions(line: dict[str, Any]) -> dict[str, Any]:
    """Return the times of a line by rankplan's version of RLinf's rules."""
    data = line["profile"]
    found: dict[str, Any] = {}
    if data["task_type"] == "reasoning":
        numbers = ("rollout_batch_size", "group_size", "n_minibatches", "max_running_requests")
        batch = profile.Batch(*(data[key] for key in numbers))
        for name in line["costs"]:
            sizes = data["components"].get(name, data["components"]["actor"])
            seconds = sizes["cost"] if name in data["components"] else data["inference_cost"]
            world, dp = sizes["world_size"], sizes["dp_size"]
            if name == "rollout":
                found[name] = profile.rollout(seconds, world, dp, batch)
            else:
                found[name] = profile.training(seconds, world, dp, batch, data["accelerators"])
        return found
    for name, key, even in (("env", "env_seconds", True), ("env_rollout", "rollout_seconds", False)):
        points = {int(load): seconds for load, seconds in data[key].items()}
        found[name] = profile.environments(points, data["env_num"], 1, even=even)
    actor = data["components"]["actor"]
    one = profile.Batch(1, 1, 1, 1)
    found["actor"] = profile.training(
        actor["cost"], actor["world_size"], actor["world_size"], one, data["accelerators"]
    )
    return found


@pytest.mark.parametrize("line", LINES, ids=ids)
def test_the_times_are_those_of_rlinf(line: dict[str, Any]) -> None:
    data = line["profile"]
    per_group = data["rollout_batch_size"] if data["task_type"] == "reasoning" else 1
    for name, times in some(functions(line).items()):
        recorded = {int(size): seconds * per_group for size, seconds in line["costs"][name].items()}
        found = {size: times(size) for size in range(1, data["accelerators"] + 1)}
        assert {size for size, seconds in found.items() if seconds is not None} == recorded.keys()
        fitted = data["task_type"] == "embodied" and name != "actor" and named("fits-through-environments")
        points = (
            {int(load) for load in data[{"env": "env_seconds", "env_rollout": "rollout_seconds"}[name]]}
            if fitted
            else set()
        )
        for size, seconds in recorded.items():
            if not fitted or data["env_num"] // size in points:
                assert found[size] == pytest.approx(seconds), (name, size)
            else:
                assert found[size] is not None and found[size] > 0


def costs(line: dict[str, Any]) -> Costs:
    """Return the recorded times of a line with RLinf's rules: reasoning components share all accelerators or none."""
    data = line["profile"]
    reasoning = data["task_type"] == "reasoning"
    batches = data["rollout_batch_size"] if reasoning else data["env_num"]
    names = [name for name in ORDER[data["task_type"]] if name in line["costs"]]
    components = {
        name: ComponentCosts(
            Computed(
                {int(size): max(s, 0) * (batches if reasoning else 1) for size, s in line["costs"][name].items()}.get
            )
        )
        for name in names
    }
    after = {name: [before] for before, name in pairwise(names)}
    shapes = ("disaggregated", "equal") if reasoning else ("disaggregated", "collocated", "hybrid")
    return Costs(components, batches, after=after, shapes=shapes)


def best_seconds(line: dict[str, Any]) -> float | None:
    nodes = Inventory.uniform(1, line["profile"]["accelerators"])
    given = costs(line)
    try:
        sizes = possible(given, line["profile"]["accelerators"], extrapolate=True)
    except PlacementError:
        return None
    found = [best_of_shape(given, sizes, Cluster.of(given, nodes), shape) for shape in given.shapes]
    return min((seconds for seconds, *_ in filter(None, found)), default=None)


@pytest.mark.parametrize("line", REASONING, ids=ids)
def test_reasoning_the_optimum_of_its_model_is_found(line: dict[str, Any]) -> None:
    expected, found = line["best_any"], best_seconds(line)
    assert found == (None if expected is None else pytest.approx(expected["total"]))


def priced(line: dict[str, Any], answer: dict[str, Any]) -> float:
    """Return the seconds of a recorded schedule if a pipeline counts all environments."""
    given = costs(line)
    names = list(given.components)
    sizes = {names.index(name): last - first + 1 for name, (first, last) in answer["placement"].items()}
    components = [
        Component(
            {size: (one.times.seconds(size) or 0, 0)}, 0, frozenset(names.index(x) for x in given.after.get(name, ()))
        )
        for (name, one), size in zip(
            given.components.items(), (sizes[index] for index in range(len(names))), strict=True
        )
    ]

    def tree(node: Any, above: str = "") -> Any:
        if isinstance(node, str):
            return names.index(node)
        ((kind, children),) = node.items()
        kind = {"collocated": "then", "disaggregated": "pipe"}[kind]
        made = [tree(child, kind) for child in children]
        flat = [
            leaf for child in made for leaf in (child[1] if isinstance(child, tuple) and child[0] == kind else [child])
        ]
        return kind, tuple(flat)

    problem = Problem(components, line["profile"]["accelerators"], given.batches)
    found = oracle_tune.price(problem, tree(answer["schedule"]), sizes)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("line", EMBODIED, ids=ids)
def test_embodied_no_recorded_schedule_is_faster(line: dict[str, Any]) -> None:
    found = best_seconds(line)
    answers = [line[name] for name in ("best_any", "best", "peer")]
    schedules = [answer for answer in answers if answer is not None and "error" not in answer]
    assert (found is not None) >= bool(schedules)
    for schedule in schedules:
        assert found <= priced(line, schedule) * (1 + 1e-9)
    if "disaggregated" in json.dumps(line["best_any"]):
        assert named("pipeline-counts-one-environment")
    elif line["best_any"] is not None:
        assert found is not None and found <= line["best_any"]["total"] * (1 + 1e-9)


def test_the_recorded_search_misses_its_own_optimum() -> None:
    missed = Counter(quirk for line in LINES for quirk in line["quirks"])
    assert named("search-misses-its-optimum")
    assert missed["slower-than-best"] >= 20 and missed["no-placement-though-one-exists"] >= 2


CONFIG = """\
runner: {task_type: reasoning}
cluster: {num_nodes: 16, component_placement: {"rollout,actor": 0-127}}
data: {rollout_batch_size: 512}
algorithm: {group_size: 16, n_minibatches: 4, recompute_logprobs: true}
rollout: {max_running_requests: 128, tensor_parallel_size: 1}
actor: {model: {tensor_model_parallel_size: 2}}
profile_data: {rollout_cost: 224, inference_cost: 10, actor_cost: 101}
"""


def test_a_config_with_profile_data_is_read_unchanged(tmp_path: Path) -> None:
    """The line is RLinf's own unit test; its configs are the same with ``inference`` in the actor's processes."""
    (line,) = [line for line in LINES if line["id"].endswith("s0001")]
    file = tmp_path / "conf.yaml"
    file.write_text(CONFIG)
    done = run("tune", str(file), "--format", "json")
    assert done.exit_code == 0, done.output
    first, second = json.loads(done.stdout)["ranking"]
    assert first["seconds"] == pytest.approx(line["best_any"]["total"])
    # From 71 accelerators on, all requests of the rollout run at once: more would be idle in turn.
    sizes = {name: one["accelerators"] for name, one in first["components"].items()}
    assert sizes == {"rollout": 71, "inference": 16, "actor": 32} and first["idle"] == 9
    assert (second["seconds"], second["sharing"]) == (335, "collocated")


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("inference_cost: 10, ", ""), "missing-times", "component `inference` has no times"),
        (("rollout_cost: 224", "rollout_cost: fast"), "invalid-value", "`rollout_cost` is 'fast'"),
        (("rollout_cost: 224", "rollout_cost: 1" + "0" * 400), "invalid-value", "`rollout_cost` is"),
        (("data: {rollout_batch_size: 512}\n", ""), "missing-key", "`data.rollout_batch_size` is missing"),
        (("n_minibatches: 4", "n_minibatches: 5"), "size-does-not-fit", "cannot be divided into 5 minibatches"),
    ],
)
def test_faults_of_a_profile_have_a_place(change: tuple[str, str], code: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text(CONFIG.replace(*change))
    done = run("tune", str(tmp_path / "conf.yaml"))
    assert done.exit_code == 1 and f"error[{code}]: " in done.stderr and message in done.stderr
    assert "conf.yaml:" in done.stderr


def test_embodied_profiles_count_environments() -> None:
    config = {
        "runner": {"task_type": "embodied"},
        "cluster": {"num_nodes": 1, "component_placement": {"env,rollout,actor": "0-3"}},
        "data": {"env_num": 64},
        "profile_data": {
            "env_profile_data": {4: 0.61, 8: 1.23, 16: 2.46, 32: 4.66, 64: 18.5},
            "rollout_profile_data": {4: 0.6, 8: 1.01, 16: 2.12, 32: 3.72, 64: 15.3},
            "actor_cost": 100,
        },
    }
    from rankplan.rlinf.dialect import DIALECT as rlinf

    nodes = Inventory.uniform(1, 4)
    found = tune(profile.costs_of(rlinf.read(config).reader, rlinf.plan(config, nodes), 4), nodes, config)
    # Collocated: 2.46 + 2.12 + 100; apart, environments and engines have two accelerators each and take 4.66 s.
    assert found.best.seconds == pytest.approx(104.58) and found.best.sharing == "collocated"
    apart = [one for one in found.ranking if one.sharing == "hybrid"]
    assert [one.seconds for one in apart] == [pytest.approx(100 + (3.72 + 4.66) / 64 + 63 * 4.66 / 64)]

"""CPUs and memory of what is emitted: what the job reserves on each node, unless the user states more."""

from __future__ import annotations

from itertools import islice, permutations
from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Actors, EmitOptions, Inventory, PlacementError, Plan, Request
from rankplan.launchers.emit import read_emitted
from rankplan.plans.node_amounts import node_amounts
from support.launchers import object_of
from support.schemas.validate import faults

SLIME = {"actor_num_nodes": 1, "actor_num_gpus_per_node": 8, "rollout_num_gpus": 8, "rollout_num_gpus_per_engine": 2}
RANKS = {
    "cluster": {
        "num_nodes": 2,
        "component_placement": {
            "actor": {"placement": "0-15", "cpus_per_process": 2.5, "host_memory_per_process": 4096},
            "env": {"node_group": "node", "placement": "0:0-3", "cpus_per_process": 0.5},
        },
    }
}
ALIKE = {
    "cluster": {"num_nodes": 2, "component_placement": {"actor": RANKS["cluster"]["component_placement"]["actor"]}}
}
COMMAND = EmitOptions(command="python {}.py", image="a:1")
DRIVER = EmitOptions(entrypoint="python train.py", image="a:1")


def plan_of(config: dict[str, Any] = SLIME, dialect: str | None = "slime", **node: Any) -> Plan:
    nodes = {"nodes": [{"ranks": "0-1", "accelerators": 8, **node}]}
    return rankplan.plan(config, Inventory.from_dict(nodes), dialect=dialect)


def resources(text: str) -> list[Any]:
    """The resources of the containers that run the job, in order."""
    found: list[Any] = []

    def search(value: Any) -> None:
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            search(part)
        if isinstance(value, dict) and "resources" in value:
            found.append(value["resources"])

    for document in yaml.safe_load_all(text):
        search(document)
    return found


def kuberay(plan: Plan, **options: Any) -> list[Any]:
    text = rankplan.emit(plan, "kuberay", EmitOptions(entrypoint="python train.py", image="a:1", **options))
    assert faults(object_of(text, "RayJob"))[1] == []
    return resources(text)


def test_pods_ask_for_what_a_trainer_reserves() -> None:
    gpus = {"nvidia.com/gpu": "8"}
    # 8 bundles, and room for the manager and the lock wherever Ray puts them: 1 each, and half of both
    assert kuberay(plan_of()) == [{"limits": gpus, "requests": {"cpu": "10"}}] * 2
    assert kuberay(plan_of(cpus=96)) == [{"limits": {"cpu": "96", **gpus}, "requests": {"cpu": "10"}}] * 2
    assert kuberay(plan_of(), cpus=12) == [{"limits": {"cpu": "12", **gpus}}] * 2
    assert (
        kuberay(plan_of(RANKS, None, cpus=None), cpus=24, memory="64Gi")
        == [{"limits": {"cpu": "24", "memory": "64Gi", **gpus}}] * 2
    )


def test_pods_ask_for_what_processes_reserve() -> None:
    first, second = resources(rankplan.emit(plan_of(RANKS, None), "jobset", COMMAND))
    assert first["requests"] == {"cpu": "22", "memory": "32768Mi"} and "cpu" not in first["limits"]
    assert second["requests"] == {"cpu": "20", "memory": "32768Mi"}
    for found in resources(rankplan.emit(plan_of(ALIKE, None), "lws", COMMAND)):
        assert found["requests"] == {"cpu": "20", "memory": "32768Mi"}
    plain = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-15"}}}
    assert "requests" not in rankplan.emit(plan_of(plain, None, cpus=96), "jobset", COMMAND)
    lines = rankplan.emit(plan_of(RANKS, None), "slurm", EmitOptions(command="python {}.py")).splitlines()
    assert [line for line in lines if "mincpus" in line] == ["#SBATCH --mincpus=22"]


@pytest.mark.parametrize(
    ("launcher", "config", "dialect", "options"),
    [
        ("kuberay", SLIME, "slime", DRIVER),
        ("jobset", RANKS, None, COMMAND),
        ("lws", ALIKE, None, COMMAND),
        ("slurm", RANKS, None, EmitOptions(command="python {}.py")),
        ("slurm", SLIME, "slime", EmitOptions(entrypoint="python train.py")),
    ],
)
def test_what_is_written_is_read_back(
    launcher: str, config: dict[str, Any], dialect: str | None, options: EmitOptions, tmp_path: Path
) -> None:
    plan = plan_of(config, dialect, cpus=96, reservable_memory=1 << 20)
    text = rankplan.emit(plan, launcher, options)
    (file := tmp_path / "train.yaml").write_text(text)
    again = read_emitted(file).emitted.plan
    assert (again.requests, again.actors) == (plan.requests, plan.actors)
    assert [one.settings for one in again.values()] == [one.settings for one in plan.values()]
    assert rankplan.emit(file, launcher) == text


def test_users_may_change_amounts_but_not_below_what_is_reserved(tmp_path: Path) -> None:
    text = rankplan.emit(plan_of(cpus=96), "kuberay", DRIVER)
    (file := tmp_path / "train.yaml").write_text(text.replace("cpu: '96'", "cpu: '10'").replace("cpu: '10'", "cpu: 64"))
    assert rankplan.plan(file).components == ["actor", "rollout"]
    file.write_text(text.replace("cpu: '96'", "cpu: 9500m"))
    with pytest.raises(PlacementError) as refused:
        rankplan.plan(file)
    fault, _ = refused.value.diagnostics
    assert (fault.code, fault.line) == ("emit-changed", 1 + text[: text.index("cpu: '96'")].count("\n"))
    assert "`cpu` of ray-worker is '9500m'" in fault.message and "10 or more" in fault.message


def test_a_base_keeps_its_own_amounts_and_gets_new_ones_of_another_plan(tmp_path: Path) -> None:
    larger = plan_of(cpus=96)
    content = larger.to_dict()
    content["actors"] = [{"name": "simulator", "cpus": 40}]
    larger = Plan.from_dict(content)
    text = rankplan.emit(plan_of(cpus=96), "kuberay", DRIVER)
    (file := tmp_path / "train.yaml").write_text(text)
    found, _ = resources(rankplan.emit(larger, "kuberay", EmitOptions(base=file)))
    assert found["requests"] == {"cpu": "68"} and found["limits"]["cpu"] == "96"
    file.write_text(text.replace("cpu: '10'", "cpu: '80'"))
    found, _ = resources(rankplan.emit(larger, "kuberay", EmitOptions(base=file)))
    assert found["requests"] == {"cpu": "80"}
    file.write_text(text.replace("cpu: '96'", "cpu: '50'"))
    with pytest.raises(PlacementError, match="`cpu` of ray-worker is '50'"):
        rankplan.emit(larger, "kuberay", EmitOptions(base=file))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpus": 9}, "--cpus is 9, but the job reserves 22 on a node of"),
        ({"memory": "31Gi"}, "--memory is 31Gi, but the job reserves 32768Mi on a node of"),
    ],
)
def test_a_pod_that_is_too_small_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlacementError, match=message) as refused:
        rankplan.emit(plan_of(RANKS, None), "jobset", EmitOptions(command="x", image="a:1", **options))
    assert {fault.code for fault in refused.value.diagnostics} == {"emit-conflict"}


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 8)), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(0, 4),
)
def test_every_order_of_actors_finds_room(actors: list[tuple[int, int]], nodes: int, bundle: int) -> None:
    inventory = Inventory.uniform(nodes, 1)
    requests = [Request("a", None, [1] * nodes, range(nodes), "PACK", amounts=[(bundle + 1, None, ())] * nodes)]
    held = [Actors(f"actor-{index}", count, cpus=cpus) for index, (count, cpus) in enumerate(actors)]
    needed = node_amounts(Plan(inventory, (), requests=requests, actors=held))
    assert list(needed) == list(range(nodes))
    sizes = [cpus for count, cpus in actors for _ in range(count)]
    for order in islice(permutations(sizes), 50):
        free = [each.cpus - bundle - 1 for each in needed.values()]
        for cpus in order:
            node = free.index(max(free))  # as Ray spreads; any node with room would do
            assert free[node] >= cpus - 1e-3
            free[node] -= cpus


def test_bundles_without_nodes_reserve_nothing_on_any() -> None:
    """The request of a guest whose nodes are not planned, of two kinds of bundles."""
    amounts = [(1, None, ()), (1, None, ()), (2, None, ())]
    request = Request("actor", None, [1, 1, 2], [], amounts=amounts)
    plan = Plan(Inventory.uniform(2, 8), (), requests=[request])
    assert list(node_amounts(plan)) == []

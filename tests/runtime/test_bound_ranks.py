"""Real ranks: bound to cores and memory before their class loads, and proved by a driver, which is a small library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from rankplan import Cluster, ComponentPlacement, Inventory, LaunchError, PlacementError, RankSet
from rankplan.hardware.machine import Machine
from rankplan.nodes.node import machine_of
from rankplan.runtime.group.ranks import rank_specs
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.nodes.probe import HARDWARE_VARIABLE, _look
from support.drivers import CUDA, EGL
from support.libraries import compiled
from support.placed import Placed

CPUS = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="two CPUs are needed")
HALF = len(CPUS) // 2


def uuid(card: int) -> str:
    return f"GPU-abababab-abab-abab-abab-ababababab0{card}"


def inventory() -> Inventory:
    """Return a node with the CPUs of this machine, each a core, and one of which nothing is known."""
    numa = min(Machine.read().memory, default=0)
    accelerators = [{"id": str(index), "uuid": uuid(index), "numa": numa, "nic": f"mlx5_{index}"} for index in range(2)]
    known = {
        "accelerators": accelerators,
        "numa": {numa: str(RankSet(CPUS))},
        "memory": {numa: 1000},
        "cores": list(map(str, CPUS)),
    }
    return Inventory.from_dict({"nodes": [{"ranks": 0, **known}, {"ranks": 1, "accelerators": 2}]})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("drivers")
    compiled(folder, "libcuda.so.1", CUDA)
    compiled(folder, "libEGL.so.1", EGL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(folder))
        with Cluster.simulate(inventory()) as cluster:
            yield cluster


def launched(cluster: Cluster, entry: dict[str, Any], variables: dict[str, str] | None = None, **more: Any) -> Any:
    """Launch the processes of an entry in a group with these variables."""
    env = [{"node_ranks": "0-1", "env_vars": [{name: value} for name, value in (variables or {}).items()]}]
    section = {
        "num_nodes": 2,
        "node_groups": [{"label": "all", "node_ranks": "0-1", "env_configs": env}],
        "component_placement": {"actor": {"node_group": "all", **entry}},
    }
    strategy = ComponentPlacement({"cluster": section}, cluster).get_strategy("actor")
    return Placed.create_group().launch(cluster, strategy, name="actor", **more)


def test_the_facts_of_a_simulated_node_are_those_of_its_inventory(cluster: Cluster) -> None:
    spec = cluster.inventory.node(0)
    assert [device.uuid for device in spec.devices] == [uuid(0), uuid(1)]
    machine = machine_of(spec)
    assert machine is not None and machine.cpus == RankSet(CPUS)
    assert machine_of(cluster.inventory.node(1)) is None


def test_ranks_are_bound_before_their_class_is_loaded(cluster: Cluster) -> None:
    entry = {"placement": "0-1", "binding": "exclusive", "memory_binding": "preferred", "nics": "set", "egl": True}
    variables = {"UCX_NET_DEVICES": "mine"}
    with launched(cluster, entry, variables, prove="devices", visibility="own-first") as group:
        reports, seen = group.verify(), group.run().wait()
    first, last = RankSet(CPUS[: len(CPUS) - HALF]), RankSet(CPUS[len(CPUS) - HALF :])
    assert [report.planned_cpus for report in reports] == [first, last]
    assert [report.cpus for report in reports] == [first, last] and reports[0].is_bound
    assert [found["imported"] for found in seen] == [sorted(first), sorted(last)]
    numa = min(Machine.read().memory, default=0)
    assert {report.planned_memory for report in reports} == {f"preferred {numa}"}
    assert {report.memory for report in reports} <= {f"preferred {numa}", None}  # a container may forbid it
    # what the driver shows, in the order of the mask
    assert [report.proof for report in reports] == ["devices"] * 2
    assert [report.uuids for report in reports] == [(uuid(0), uuid(1)), (uuid(1), uuid(0))]
    # EGL counts the other way round
    assert [report.egl_device for report in reports] == [1, 0]
    assert [found["environment"]["MUJOCO_EGL_DEVICE_ID"] for found in seen] == ["1", "0"]
    assert [report.nics for report in reports] == [("mlx5_0",), ("mlx5_1",)]
    assert seen[1]["environment"]["NCCL_IB_HCA"] == "=mlx5_1:1"
    assert seen[1]["environment"]["UCX_NET_DEVICES"] == "mine"


def test_simulated_nodes_prove_the_environment_only(cluster: Cluster) -> None:
    with launched(cluster, {"placement": "0-1"}, {"FAKE_INIT": "999"}) as group:
        assert {(report.proof, report.uuids, report.planned_cpus) for report in group.verify()} == {
            ("environment", (), None)
        }


@pytest.mark.parametrize(
    ("variables", "entry", "message"),
    [
        ({"FAKE_CARDS": "10"}, {"placement": "0-1", "visibility": "node"}, f"in the order {uuid(1)}, {uuid(0)}"),
        ({"FAKE_CARDS": "0"}, {"placement": "0-1:0"}, f"the driver shows 1 of 2 devices, without {uuid(1)}"),
        ({"FAKE_CARDS": "07"}, {"placement": "0-1"}, f"the driver shows {uuid(7)}, expected {uuid(1)}"),
        ({"FAKE_INIT": "999"}, {"placement": "0"}, "the driver does not tell its devices: cuInit fails with error 999"),
        ({"FAKE_CARDS": "00"}, {"placement": "2-3"}, f"ranks 0 and 1 both see {uuid(0)}, but share no device in the"),
    ],
    ids=["another order", "fewer devices", "a swapped card", "no driver", "two ranks on one card"],
)
def test_a_rank_with_other_devices_ends_the_launch(
    cluster: Cluster, variables: dict[str, str], entry: dict[str, Any], message: str
) -> None:
    with pytest.raises(LaunchError) as caught:
        launched(cluster, entry, variables, prove="devices")
    assert message in str(caught.value)


def test_a_binding_that_the_facts_contradict_is_rejected_before_the_launch(cluster: Cluster) -> None:
    plan = ComponentPlacement({"cluster": {"num_nodes": 2, "component_placement": {"a": "0-1"}}}, cluster).plan()
    spec = cluster.inventory.node(0)
    one = {**spec.described(), "ranks": 0, "cores": [CPUS[0]]}
    nodes = Inventory.from_dict({"nodes": [one, {"ranks": 1, "accelerators": 2}]})
    component = plan.on(nodes)["a"].with_settings(binding="exclusive")
    assert [found.code for found in component.binding_faults()] == ["binding-unmet"]
    with pytest.raises(PlacementError, match="1 usable core for 2 accelerators"):
        rank_specs(Nodes(cluster.node_ids, nodes, simulated=True), component, None)


def test_cards_that_cannot_be_set_are_pointed_out(caplog: pytest.LogCaptureFixture) -> None:
    entry = {"placement": "0-1", "nics": "set"}
    section = {"cluster": {"num_nodes": 1, "component_placement": {"a": entry}}}
    nodes = Inventory.uniform(1, 2)
    component = ComponentPlacement(section, nodes).plan()["a"]
    rank_specs(Nodes(("first",), nodes, simulated=True), component, None)
    assert "a: network cards are not set: they are not one to one with its accelerators" in caplog.text


@pytest.mark.parametrize("argument", [{"prove": "driver"}, {"visibility": "all"}])
def test_unknown_words_are_rejected(cluster: Cluster, argument: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="it must be"):
        launched(cluster, {"placement": "0"}, **argument)


def test_a_real_cluster_reports_the_cores_of_its_nodes(cluster: Cluster) -> None:
    """The same probe as on simulated nodes, in a process that is not told which node it stands for."""
    entry = next(entry for entry in ray.nodes() if entry["Alive"])
    probe = _look.options(runtime_env={"env_vars": {HARDWARE_VARIABLE: ""}})
    spec, _, _ = ray.get(probe.remote(entry, []))
    assert machine_of(spec) == Machine.read()


def test_another_connection_finds_the_same_facts(cluster: Cluster) -> None:
    with Cluster(address=cluster.address) as again:
        assert again.inventory == cluster.inventory

"""PyTorch over gloo in real ranks: device meshes, and the example. Skipped without PyTorch: its wheel has 800 MB."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from rankplan import Cluster, ComponentPlacement, Plan, WorkerGroup
from support.paths import EXAMPLES

SIZES = [{"tp": 2}, {"tp": 2, "pp": 2}, {"cp": 2, "fsdp": 2}, {"tp": 4}]

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch: pip install torch")


@pytest.fixture(scope="module")
def plan(two_nodes: Cluster) -> Plan:
    components = {f"c{index}": {"placement": "0-1,4-5", "parallel": sizes} for index, sizes in enumerate(SIZES)}
    return ComponentPlacement({"cluster": {"num_nodes": 2, "component_placement": components}}, two_nodes).plan()


@pytest.fixture(scope="module")
def ranks(two_nodes: Cluster, plan: Plan) -> Iterator[WorkerGroup]:
    from support.torch_worker import Meshed

    with Meshed.create_group().launch(two_nodes, plan["c0"]) as group:
        yield group


@pytest.mark.parametrize("index", range(len(SIZES)), ids=map(str, SIZES))
def test_a_device_mesh_has_the_groups_and_coordinates_of_the_plan(ranks: WorkerGroup, plan: Plan, index: int) -> None:
    component = plan[f"c{index}"]
    shape, names = component.mesh()
    answers: list[Any] = ranks.reduced(shape, names).wait()
    assert len(answers) == len(component)
    for rank, (sums, local) in enumerate(answers):
        for name in names:
            (group,) = (group for group in component.groups(name) if rank in group)
            assert sums[name] == sum(group)
            assert local[name] == list(group).index(rank)
        (coordinates,) = component.coordinates(rank)
        assert {name: local[name] for name in names if name in coordinates} == {
            name: coordinates[name] for name in names if name in coordinates
        }


def test_the_platform_is_a_module_of_pytorch(ranks: WorkerGroup) -> None:
    assert ranks.platform().wait() == ["torch.cuda"] * 4


def test_the_example_trains_and_sends_weights() -> None:
    command = [sys.executable, str(EXAMPLES / "torch_ddp.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    rounds = re.findall(r"^round \d: trained \d+\.\d\d s, loss of the rollouts (\S+) (\S+)$", done.stdout, re.MULTILINE)
    assert len(rounds) == 5
    assert all(first == second for first, second in rounds), "both rollouts have the same weights"
    losses = [float(first) for first, _ in rounds]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.1 < losses[0]

"""Jobs that share a cluster see what the others use; two groups of one name in one program are pointed out."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rankplan import (
    Cluster,
    ComponentPlacement,
    FlexiblePlacementStrategy,
    LaunchError,
    NodePlacementStrategy,
    RankSet,
    Worker,
)
from rankplan.runtime.reserve.notices import Overlap, is_notice, overlap_lines
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from support.workers import Reader

pytestmark = pytest.mark.long

OTHER = """
import sys
from rankplan import Cluster, FlexiblePlacementStrategy
from rankplan.runtime.group.worker import RollCall
cluster = Cluster()
options = eval(sys.argv[1])
group = RollCall.create_group().launch(cluster, FlexiblePlacementStrategy([[1], [2], [3]]), name="rollout", **options)
print("up", flush=True)
sys.stdin.read()
cluster.close()
"""


@contextmanager
def other_job(cluster: Cluster, options: str = "{}") -> Iterator[subprocess.Popen[str]]:
    """Another driver, whose component rollout uses resources 1 to 3, until the context ends."""
    command, pipe = [sys.executable, "-c", OTHER, options], subprocess.PIPE
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process


def records() -> list[dict[str, object]]:
    entries = placement_group_table().values()
    return [json.loads(entry["name"]) for entry in entries if entry["state"] != "REMOVED" and is_notice(entry["name"])]


def uses(process: subprocess.Popen[str], job: str = "[0-9a-f]+") -> str:
    program = f"python, process {process.pid} on {socket.gethostname()}"
    place = "accelerators 0-1 of node 1 for rollout ranks 1-2"
    return rf"job {job} \({re.escape(program)}\) uses {place}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.simulate("2x2") as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def all_is_withdrawn(cluster: Cluster) -> Iterator[None]:
    yield
    deadline = time.monotonic() + 60
    while records() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert records() == []


def test_a_job_sees_what_another_uses_until_it_is_gone(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    both, apart = FlexiblePlacementStrategy([[2, 3]]), FlexiblePlacementStrategy([[0]])
    with other_job(cluster) as other:
        assert {json.dumps(record["uses"]) for record in records()} == {
            '{"rollout": {"1": "0"}}',
            '{"rollout": {"0": "1", "1": "2"}}',
        }
        with Reader.create_group().launch(cluster, apart, name="actor"):
            assert caplog.messages == []
        with Reader.create_group().launch(cluster, both, name="actor") as group:
            (warning,) = caplog.messages
            advice = r"end it, use other accelerators, or pass reserve=True \(rankplan run --reserve\) to make this"
            assert re.match(rf"actor: another job uses the same accelerators: {uses(other)}; {advice}", warning)
            assert group.verify()
        caplog.clear()

        with pytest.raises(LaunchError) as refused:
            Reader.create_group().launch(cluster, both, name="actor", reserve=True)
        assert str(refused.value).startswith("cannot reserve actor: another job uses the same accelerators:\n  job ")
        assert re.search(uses(other), str(refused.value))
        assert refused.value.node == 1
        assert len(records()) == 2, "only those of the other job"
        with Reader.create_group().launch(cluster, apart, name="actor", reserve=True):
            assert caplog.messages == []
        other.send_signal(signal.SIGKILL)
        other.wait()
        deadline = time.monotonic() + 60
        while records() and time.monotonic() < deadline:
            time.sleep(0.02)
    with Reader.create_group().launch(cluster, both, name="actor", reserve=True):
        assert caplog.messages == []
        assert [record["uses"] for record in records()] == [{"actor": {"0": "0", "1": "0"}}]


def test_a_reservation_is_seen_as_well(cluster: Cluster, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Ray counts accelerators: it grants accelerator 1 of node 0 to both jobs."""
    section = {"num_nodes": 2, "component_placement": {"actor": "1", "critic": "1"}}
    plan = ComponentPlacement({"cluster": section}, cluster).plan()
    with other_job(cluster, "{'reserve': True}"):
        with Reader.create_group().launch(cluster, plan["actor"]):
            (warning,) = caplog.messages
            assert "uses accelerator 1 of node 0 for rollout rank 0; end it" in warning
        with pytest.raises(LaunchError, match=r"^cannot reserve actor \+ critic: another job uses the same"):
            cluster.reserve(plan)

        (tmp_path / "conf.yaml").write_text("cluster: {num_nodes: 2, component_placement: {actor: '1'}}\n")
        command = [sys.executable, "-m", "rankplan", "run", "conf.yaml", "--ray", cluster.address]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0 and "actor: another job uses the same accelerators: job " in ran.stderr
        refused = subprocess.run([*command, "--reserve"], cwd=tmp_path, capture_output=True, text=True)
        assert refused.returncode == 1 and "error: cannot reserve actor: another job uses the same" in refused.stderr
    with cluster.reserve(plan) as reserved:
        names = ("actor", "critic")
        groups = [Reader.create_group().launch(cluster, plan[name], reservation=reserved) for name in names]
        assert [record["uses"] for record in records()] == [{"actor": {"1": "0"}, "critic": {"1": "0"}}]
        assert all(group.verify() for group in groups)


def test_components_of_one_job_share_without_a_warning(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    strategy = FlexiblePlacementStrategy([[0], [1]])
    with (
        Reader.create_group().launch(cluster, strategy, name="actor"),
        Reader.create_group().launch(cluster, strategy, name="rollout"),
        Reader.create_group().launch(cluster, NodePlacementStrategy([0, 1]), name="env"),
    ):
        assert sorted(map(str, (record["uses"] for record in records()))) == [
            "{'actor': {'0': '0', '1': '1'}}",
            "{'rollout': {'0': '0', '1': '1'}}",
        ]
        assert caplog.messages == []


def test_a_second_group_of_a_name_is_pointed_out(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    strategy = FlexiblePlacementStrategy([[0], [1]])
    with Reader.create_group().launch(cluster, strategy, name="actor"):
        with Reader.create_group().launch(cluster, FlexiblePlacementStrategy([[3]]), name="actor"):
            (warning,) = caplog.messages
            assert warning.startswith("actor: this program already runs a group of this name: actor with ranks 0-1 on ")
            assert "on node 0; shut that down first, or pass another name to launch(name=...)" in warning
        caplog.clear()
    with Reader.create_group().launch(cluster, strategy, name="actor"):
        assert caplog.messages == []


class Broken(Worker):
    def __init__(self) -> None:
        raise ValueError("no checkpoint")


def test_a_failed_launch_leaves_no_record_and_no_name(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LaunchError, match="no checkpoint"):
        Broken.create_group().launch(cluster, FlexiblePlacementStrategy([[0]]), name="actor")
    assert records() == []
    with Reader.create_group().launch(cluster, FlexiblePlacementStrategy([[0]]), name="actor"):
        assert [record.levelno for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "name",
    [
        "{",
        '{"rankplan notice":',
        '{"rankplan notice":2}',
        '{"rankplan notice":1,"job":"x","by":"y","node":"z","uses":{"actor":{"0":"7-3"}}}',
        '{"rankplan notice":1,"job":5,"by":"y","node":"z","uses":[]}',
        '{"rankplan notice":1,"job":"x","by":"y","node":["z"],"uses":{"actor":{"0":"0"}}}',
        '{"rankplan notice":1,"job":"x","by":"y","node":{},"uses":{"actor":{"0":{"0":1}}}}',
        '{"rankplan notice":1,"job":["x"],"by":null,"node":"z","uses":{"actor":{"0":"0"}}}',
        '{"rankplan notice":1,"job":"x","by":"y","node":"z","uses":{"actor":{"1e9":[[]]}}}',
        pytest.param('{"rankplan notice":' + 100_000 * "[", id="deep"),
    ],
)
def test_records_of_another_version_are_skipped(cluster: Cluster, name: str) -> None:
    group = placement_group([{"CPU": 0.01}], name=name)
    try:
        ranks = Reader.create_group().launch(cluster, FlexiblePlacementStrategy([[0]]))
        assert len(ranks.placements) == 1
        ranks.shutdown()
    finally:
        remove_placement_group(group)


def test_accelerators_of_many_nodes_take_one_line() -> None:
    overlap = Overlap("job 1 (a)", "actor", {node: {0: RankSet([node])} for node in range(200)})
    assert str(overlap).endswith("accelerator 0 of node 3 and 196 more nodes for actor ranks 0-199")
    assert "\n" not in str(overlap)
    odd = {node: {index: RankSet([200 * node + index]) for index in range(0, 200, 2)} for node in range(500)}
    assert len(str(Overlap("job 1 (a)", "actor", odd))) < 1000
    assert [len(line) < 1000 for line in overlap_lines([overlap] * 20_000)] == [True] * 5
    assert overlap_lines([overlap] * 20_000)[-1] == "19,996 more components of other jobs"

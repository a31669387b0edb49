"""``rankplan pin`` on real raylets: programs that ask Ray for groups themselves, and get the nodes of the plan."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from rankplan import PlacementError, pin, pinned
from rankplan.runtime.nodes.processes import end, family
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.connection import head_of
from rankplan.starting.child import run_child
from rankplan_hook.pins import NotPlanned
from ray import cluster_utils
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from support.raylets import SOON

PROGRAM = """
import json, os, sys, time
from pathlib import Path
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

sizes, told, go = json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
ray.init(logging_level="ERROR", log_to_driver=False, runtime_env={"env_vars": dict(os.environ)})

@ray.remote(num_cpus=0, num_gpus=1)
class Rank:
    def node(self):
        return ray.get_runtime_context().get_node_id()

@ray.remote(num_cpus=0)
class Runner:
    def run(self):
        name = "global_poolverl_group_" + "_".join(map(str, sizes))
        groups = [
            placement_group([{"CPU": 1, "GPU": 1}] * size, strategy="STRICT_PACK", name=f"{name}:{index}")
            for index, size in enumerate(sizes)
        ]
        ray.get([group.ready() for group in groups])
        strategies = [PlacementGroupSchedulingStrategy(group, i) for group in groups for i in range(group.bundle_count)]
        self.ranks = [Rank.options(scheduling_strategy=strategy).remote() for strategy in strategies]
        return ray.get([rank.node.remote() for rank in self.ranks])

runner = Runner.remote()
nodes = ray.get(runner.run.remote())
addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
told.with_suffix(".new").write_text(json.dumps([addresses[node] for node in nodes]))
told.with_suffix(".new").rename(told)
while not go.exists():
    time.sleep(0.05)
"""
DIRECT = """
import sys, time
import ray
from ray.util.placement_group import placement_group
ray.init(logging_level="ERROR", log_to_driver=False)
ray.get(placement_group([{"GPU": 1}] * 2, strategy="STRICT_PACK", name="global_poolverl_group_2:0").ready())
time.sleep(3)
"""
RETRIES = """
import json, sys, time
from pathlib import Path
import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
told, go = Path(sys.argv[2]), Path(sys.argv[3])
ray.init(logging_level="ERROR", log_to_driver=False)
def ask():
    return placement_group([{"GPU": 1}] * 2, strategy="STRICT_PACK", name="global_poolverl_group_2:0")
group = ask()
ray.get(group.ready())
addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
nodes = set(placement_group_table(group)["bundles_to_node_id"].values())
told.write_text(json.dumps([addresses[node] for node in nodes]))
while not go.exists():
    time.sleep(0.05)
remove_placement_group(group)
try:
    ask()
except RuntimeError as error:
    print(error)
"""
# The head has no accelerators; as text, 127.0.0.10 is before 127.0.0.9.
ADDRESSES = ["127.0.0.2", "127.0.0.10", "127.0.0.9", "127.0.0.12"]
FIRST, SECOND = "127.0.0.10", "127.0.0.12"


class Machines(cluster_utils.Cluster):
    """A head, and three nodes with two accelerators."""

    def __init__(self) -> None:
        super().__init__()
        for rank in range(len(ADDRESSES)):
            self.start(rank)

    def start(self, rank: int) -> Any:
        head = {"_system_config": SOON, "include_dashboard": False, "no_monitor": True} if rank == 0 else {}
        return self.add_node(
            num_cpus=16,
            num_gpus=2 if rank else 0,
            node_ip_address=ADDRESSES[rank],
            object_store_memory=80 << 20,
            **head,
        )


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    folder = tempfile.mkdtemp(prefix="rpp-", dir="/tmp")
    before = {name: os.environ.get(name) for name in ("RAY_TMPDIR", "RAY_AUTH_MODE")}
    os.environ.update(RAY_TMPDIR=folder, RAY_AUTH_MODE="disabled")
    found = Machines()
    try:
        yield found
    finally:
        found.shutdown()
        end(family(f"RAY_TMPDIR={folder}"), 5.0)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


class Bench:
    """A folder with a config, programs and their answers, and the cluster."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        (folder / "program.py").write_text(PROGRAM)
        (folder / "direct.py").write_text(DIRECT)
        self.config = self.sized(2)

    def sized(self, *sizes: int) -> Path:
        """A config of verl with nodes of these sizes."""
        path = self.folder / f"verl-{len(sizes)}.yaml"
        trainer = f"trainer: {{nnodes: {len(sizes)}, n_gpus_per_node: {sizes[0]}}}\n"
        path.write_text(f"{trainer}algorithm: {{adv_estimator: grpo}}\n")
        return path

    def command(self, name: str, *sizes: int) -> list[str]:
        """The program; it tells its nodes in a file, and ends when another one exists."""
        return ["program.py", json.dumps(sizes), str(self.folder / name), str(self.folder / f"{name}.go")]

    @contextmanager
    def running(self, *words: str, config: Path | None = None) -> Iterator[subprocess.Popen[str]]:
        """Start ``rankplan pin``; it is killed at the end, if it still runs."""
        options = ["-m", "rankplan", "pin", str(config or self.config), "--ray", self.address]
        pipe: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen([sys.executable, *options, *words], cwd=self.folder, **pipe) as process:
            try:
                yield process
            finally:
                process.kill()

    def nodes(self, name: str) -> list[str]:
        """Wait for the answer of a program: the address of each of its ranks."""
        wait_until((self.folder / name).exists)
        found: list[str] = json.loads((self.folder / name).read_text())
        return found

    def go(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def bench(machines: Machines, tmp_path: Path) -> Bench:
    head = head_of(str(machines.address))

    def is_free() -> bool:
        tables = head.tables()
        totals = [node.resources["GPU"] for node in tables.nodes if node.alive and "GPU" in node.resources]
        return sum(free.get("GPU", 0) for free in tables.free.values()) == sum(totals)

    wait_until(is_free)  # the programs of other tests have ended
    return Bench(tmp_path, str(machines.address))


def test_two_programs_get_the_nodes_of_their_plans(bench: Bench) -> None:
    """One by bash and ``-m`` with a whole environment of its own, one with the other's node left out."""
    script = bench.folder / "train.sh"
    words = bench.command("one", 2)
    script.write_text(f"set -e\n{sys.executable} -m {words[0][:-3]} {' '.join(map(repr, words[1:]))}\n")
    with bench.running("--format", "json", "-o", "report", "--", "bash", "train.sh") as first:
        assert bench.nodes("one") == [FIRST] * 2
        with bench.running("--", sys.executable, *bench.command("two", 2)) as second:
            assert bench.nodes("two") == [SECOND] * 2
            bench.go("two")
            _, told = second.communicate()
        assert second.returncode == 0, told
        assert f"other jobs hold accelerators, which the plan leaves out: {FIRST}: 0-1" in told
        assert "groups: 1 of 1 pinned" in told
        bench.go("one")
        out, told = first.communicate()
    assert (first.returncode, out) == (0, ""), told
    report = json.loads((bench.folder / "report").read_text())
    assert report["returncode"] == 0 and report["pinned"] == report["groups"] == 1 and report["faults"] == []
    if report["ranks"] is not None:  # else the program ended before it was looked at
        assert report["on_nodes"] == report["on_accelerators"] == report["ranks"]


def test_a_request_that_the_plan_lacks_is_refused_at_the_call(bench: Bench) -> None:
    with bench.running("--", sys.executable, *bench.command("big", 1, 1)) as process:
        _, told = process.communicate()
    assert process.returncode == 1
    refused = "error[plan-mismatch]: placement group `global_poolverl_group_1_1:0` asks for 1 bundle of 1 accelerator"
    assert f"{refused}; the plan has left: actor 2 bundles of 1" in told
    assert "rankplan_hook.pins.NotPlanned: error[plan-mismatch]" in told


def test_what_the_plan_lacks_can_go_to_what_it_leaves_free(bench: Bench) -> None:
    bench.go("more")
    with bench.running("--others", "pass", "--", sys.executable, *bench.command("more", 1, 1)) as process:
        nodes = bench.nodes("more")
        _, told = process.communicate()
    assert FIRST not in nodes
    assert process.returncode == 1 and "the command did not ask for actor 2 bundles of 1" in told


def test_a_python_that_ignores_the_hook_is_reported(bench: Bench) -> None:
    with bench.running("--", sys.executable, "-I", "direct.py") as process:
        _, told = process.communicate()
    assert process.returncode == 1
    assert "error[not-pinned]: placement group `global_poolverl_group_2:0` was created without the hook" in told


def test_signals_reach_the_command_and_a_killed_pin_leaves_it_pinned(bench: Bench) -> None:
    program = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True); time.sleep(99)"
    )
    with bench.running("--", sys.executable, "-c", program) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 7
    waits = f"import time, os\nwhile not os.path.exists({str(bench.folder / 'start')!r}): time.sleep(0.05)\n"
    (bench.folder / "late.py").write_text(waits + PROGRAM)
    words = bench.command("late", 2)
    with bench.running("--", sys.executable, "-u", "late.py", *words[1:]) as process:
        wait_until(lambda: b"late.py" in children(process.pid))
        process.kill()
        process.wait()
        (bench.folder / "start").touch()
        assert bench.nodes("late") == [FIRST] * 2
        bench.go("late")


def children(pid: int) -> bytes:
    """The command lines of the processes that a process has started."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return b" ".join(Path(f"/proc/{child}/cmdline").read_bytes() for child in found)
    except OSError:
        return b""


def test_a_group_that_ray_cannot_place_is_named_with_its_node(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job takes the node between the look and the request."""
    monkeypatch.setattr(timeouts, "WAITING", 0.5)
    monkeypatch.chdir(bench.folder)
    ray.init(address=bench.address, logging_level="ERROR", log_to_driver=False)
    (node,) = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeManagerAddress"] == FIRST]
    others: list[Any] = []
    told: list[str] = []

    def started(*arguments: Any) -> int:
        others.append(placement_group([{"GPU": 2}], bundle_label_selector=[{"ray.io/node-id": node}]))
        return run_child(*arguments)

    def tell(what: Any) -> None:
        told.append(str(what))
        if "waits" in told[-1]:
            remove_placement_group(others.pop())

    monkeypatch.setattr("rankplan.runtime.live.pinned.run_child", started)
    try:
        bench.go("wait")
        ran = pin(bench.config, [sys.executable, *bench.command("wait", 2)], ray=bench.address, tell=tell)
    finally:
        ray.shutdown()
    assert ran.returncode == 0 and bench.nodes("wait") == [FIRST] * 2
    waits = "placement group `global_poolverl_group_2:0` waits for 2 accelerators of node 0"
    assert told[-1].startswith(f"{waits} ({FIRST}), which has 0 free"), told


def test_a_program_can_bind_its_own_groups(bench: Bench) -> None:
    ray.init(address=bench.address, logging_level="ERROR", log_to_driver=False)
    try:
        ids = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        plain = ray.util.placement_group
        with pinned(bench.sized(2, 2)) as binding:
            assert binding.name(0) == f"node 0 ({FIRST})"
            for index, address in enumerate((FIRST, SECOND)):
                group = ray.util.placement_group([{"GPU": 1}] * 2, "STRICT_PACK", f"global_poolverl_group_2_2:{index}")
                ray.get(group.ready())
                assert {ids[node] for node in placement_group_table(group)["bundles_to_node_id"].values()} == {address}
                with pytest.raises(NotPlanned, match="asks for 1 bundle of 1 accelerator"):
                    ray.util.placement_group([{"GPU": 1}])
                remove_placement_group(group)
        assert ray.util.placement_group is plain and "RANKPLAN_PINS" not in os.environ
        with (
            pytest.raises(PlacementError, match="the program did not ask for actor 2 bundles of 1"),
            pinned(bench.config),
        ):
            pass
    finally:
        ray.shutdown()


def test_a_lost_node_is_reported_and_not_asked_for_again(bench: Bench, machines: Machines) -> None:
    """Last in this file: the node does not come back."""
    (bench.folder / "program.py").write_text(RETRIES)
    with bench.running("--", sys.executable, *bench.command("lost", 2)) as process:
        assert bench.nodes("lost") == [FIRST]
        (node,) = [node for node in machines.worker_nodes if node.node_ip_address == FIRST]
        machines.remove_node(node, allow_graceful=False)
        wait_until(lambda: not alive(bench.address, FIRST))
        bench.go("lost")
        out, told = process.communicate()
    lost = f"node 0 ({FIRST}) of the plan has left the cluster"
    assert process.returncode == 1 and f"error[node-lost]: {lost}, with 2 ranks of actor" in told, told
    assert lost in out, out


def alive(address: str, node: str) -> bool:
    return any(one.alive and one.address == node for one in head_of(address).tables().nodes)

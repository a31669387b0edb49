"""A cluster with addresses of its own, and programs that ask Ray for places, to be run under ``rankplan pin``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import ray
from ray import cluster_utils

from support.cards import libraries
from support.paths import ROOT
from support.raylets import ONE_WORKER_AT_A_TIME, SOON

HOLD = f"""
import subprocess, sys
def hold(mebibytes):
    # In a process of its own, as an engine does; it ends with this one.
    words = [sys.executable, {str(ROOT / "tests" / "gpu" / "hold.py")!r}, str(mebibytes)]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return holder, holder.stdout.readline()
"""
PROGRAM = (
    HOLD
    + """
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
        self.held = hold(3000) if "HOLD" in os.environ else None
        return ray.get_runtime_context().get_node_id()

@ray.remote(num_cpus=0)
class Runner:
    def run(self):
        name = "global_poolverl_group_" + "_".join(map(str, sizes))
        groups = [
            placement_group([{"CPU": 3, "GPU": 1}] * size, strategy="STRICT_PACK", name=f"{name}:{index}")
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
)
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
ALONE = (
    HOLD
    + """
import json, os, sys, time
from pathlib import Path
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

told, go = Path(sys.argv[2]), Path(sys.argv[3])
ray.init(logging_level="ERROR", log_to_driver=False)

class Part:
    def place(self):
        self.held = hold(5000 if type(self).__name__ == "Engine" else 3000)
        return ray.get_runtime_context().get_node_id(), os.environ.get("OF_THE_JOB")

group = placement_group([{"CPU": 1, "GPU": 1}] * 2, lifetime="detached", name="engines")
ray.get(group.ready())
parts = []
for bundle in range(2):
    inside = PlacementGroupSchedulingStrategy(group, bundle)
    engine = ray.remote(num_cpus=0, num_gpus=1)(type("Engine", (Part,), {}))
    parts.append(engine.options(scheduling_strategy=inside).remote())
policy = ray.remote(num_cpus=0, num_gpus=1)(type("PolicyModelActor", (Part,), {}))
parts += [policy.remote() for _ in range(2)]
addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
places = [[addresses[node], of_the_job] for node, of_the_job in ray.get([part.place.remote() for part in parts])]
told.with_suffix(".new").write_text(json.dumps(places))
told.with_suffix(".new").rename(told)
while not go.exists():
    time.sleep(0.05)
"""
)
SUBMITS = """
import sys, time, types
from pathlib import Path
sys.modules["aiohttp"] = types.ModuleType("aiohttp")  # of ray[default]; the client only reads logs with it
from ray.job_submission import JobSubmissionClient

entrypoint, done = sys.argv[1:]
client = JobSubmissionClient("http://127.0.0.1:1")  # RAY_API_SERVER_ADDRESS comes first
client.submit_job(entrypoint=f"{entrypoint}; touch {done}", metadata={"of": "the job"})
while not Path(done).exists():
    time.sleep(0.05)
"""
# The head has no accelerators.
ADDRESSES = ["127.0.0.2", "127.0.0.10", "127.0.0.9", "127.0.0.12", "127.0.0.8"]
FIRST, SECOND, THIRD = "127.0.0.9", "127.0.0.10", "127.0.0.12"
FOURTH = ADDRESSES[-1]
"""The address of a node that a test adds. As text or as numbers, the same nodes are next to each other with it."""
RACKS = {FOURTH: "a", FIRST: "a", SECOND: "b", THIRD: "b"}
LATE = "127.0.0.20"
"""The address of a node that a test adds."""


class Machines(cluster_utils.Cluster):
    """A head, and three nodes with two accelerators and a driver, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.library = libraries(folder)
        for rank in range(len(ADDRESSES) - 1):
            self.start(rank)

    def start(self, rank: int) -> Any:
        self.uses(rank).mkdir()
        variables = {"LD_LIBRARY_PATH": str(self.library), "FAKE_CARDS": "2", "FAKE_USES": str(self.uses(rank))}
        head = {"_system_config": SOON, "include_dashboard": False, "no_monitor": True} if rank == 0 else {}
        return self.add_node(
            num_cpus=16,
            num_gpus=2 if rank else 0,
            node_ip_address=ADDRESSES[rank],
            labels={"rack": RACKS[ADDRESSES[rank]]} if rank else {},
            object_store_memory=80 << 20,
            env_vars=variables | ONE_WORKER_AT_A_TIME,
            **head,
        )

    def uses(self, rank: int) -> Path:
        """The folder in which the driver of a node notes who holds memory; with a file ``broken``, it is silent."""
        return self.library / f"uses-{rank}"


class Bench:
    """A folder with a config, programs and their answers, and the cluster."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        (folder / "program.py").write_text(PROGRAM)
        (folder / "direct.py").write_text(DIRECT)
        (folder / "alone.py").write_text(ALONE)
        (folder / "submits.py").write_text(SUBMITS)
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
    def running(self, *words: str, config: Path | None = None, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """Start ``rankplan pin``; it is killed at the end, if it still runs."""
        options = ["-m", "rankplan", "pin", str(config or self.config), "--ray", self.address]
        pipe: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = {**os.environ, **variables}
        command = [sys.executable, *options, *words]
        with subprocess.Popen(command, cwd=self.folder, env=environment, **pipe) as process:
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


@contextmanager
def job_server(address: str, folder: Path) -> Iterator[str]:
    """Yield the URL of a stand-in for Ray's job server, which needs ray[default]; its client is Ray's own.

    It starts what is submitted with the environment that Ray's ``JobSupervisor`` gives to a job.
    """
    started: list[subprocess.Popen[bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that the base class calls
            self.answer({"version": "4", "ray_version": ray.__version__, "ray_commit": "", "session_name": ""})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            variables = {name: value for name, value in os.environ.items() if not name.startswith("RANKPLAN")}
            variables |= as_a_job(address, asked.get("runtime_env"), asked.get("metadata"))
            started.append(subprocess.Popen(asked["entrypoint"], shell=True, cwd=folder, env=variables))
            self.answer({"job_id": "job", "submission_id": "job"})

        def answer(self, content: Mapping[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        for process in started:
            process.kill()
            process.wait()


def as_a_job(address: str, runtime_env: Any = None, metadata: Any = None) -> dict[str, str]:
    """Return what Ray's ``JobSupervisor`` adds to the environment of a submitted job."""
    config = {"runtime_env": runtime_env or {}, "metadata": metadata or {}}
    variables: dict[str, str] = config["runtime_env"].get("env_vars", {})
    return {**variables, "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config), "RAY_ADDRESS": address}


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)

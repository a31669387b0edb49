"""Clusters that were started by a plain ``ray start``, with Ray's token: joining them, and ``rankplan run`` on them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rankplan import ComponentPlacement, Inventory
from rankplan.runtime.nodes.processes import end, family, left_after

pytestmark = pytest.mark.long

JOINS = """
import sys
from rankplan import Cluster, ClusterError
from rankplan.runtime.group.worker import RollCall
try:
    with Cluster(address=eval(sys.argv[1])) as cluster, RollCall.create_group().launch(cluster) as group:
        print([report.accelerators for report in group.verify()], cluster.inventory.node(0).ip)
except ClusterError as error:
    print("refused:", error)
"""
WORKERS = """
import os, time
from rankplan import Worker

class Trainer(Worker):
    def __init__(self, lr, steps=1, name="x", mask=None, flag=None):
        self.given = lr, steps, name, mask, flag
    def run(self):
        self.log_debug(f"given {self.given!r}")

class Stuck(Worker):
    def __init__(self, file):
        self.file = file
    def run(self):
        open(f"{self.file}-{self.rank}", "w").write(str(os.getpid()))
        time.sleep(600)
"""
TWO = "cluster: {num_nodes: 1, component_placement: {actor: 0-1}}\n"


@dataclass
class Plain:
    """A cluster of one node with two accelerators, and the environment of a shell on that machine."""

    folder: Path
    address: str
    environment: dict[str, str]

    def python(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python there; a traceback fails the test."""
        environment = {**self.environment, **variables}
        command = [sys.executable, *arguments]
        options: dict[str, Any] = {"cwd": self.folder, "env": environment, "preexec_fn": _interruptible}
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, **options)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run ``rankplan run`` there."""
        return self.python("-m", "rankplan", "run", *arguments, **variables)

    @contextmanager
    def running(
        self, *arguments: str, start_new_session: bool = False, **variables: str
    ) -> Iterator[subprocess.Popen[str]]:
        """Start ``rankplan run`` there; it must have ended at the end of the context."""
        command, pipe = [sys.executable, "-m", "rankplan", "run", *arguments], subprocess.PIPE
        environment = {**self.environment, **variables}
        options: dict[str, Any] = {"cwd": self.folder, "env": environment, "preexec_fn": _interruptible}
        options["start_new_session"] = start_new_session
        with subprocess.Popen(command, stderr=pipe, text=True, **options) as process:
            try:
                yield process
            finally:
                process.kill()

    def pids(self, name: str) -> list[int]:
        """Wait until two ranks have written their process ids, and return these."""
        files = [self.folder / f"{name}-{rank}" for rank in range(2)]
        wait_until(lambda: all(file.exists() and file.read_text() for file in files))
        return [int(file.read_text()) for file in files]


def _interruptible() -> None:
    """Where the tests run in the background, SIGINT is ignored, and what they start inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def plain() -> Iterator[Plain]:
    folder = Path(tempfile.mkdtemp(prefix="rpj-", dir="/tmp"))
    (folder / ".ray").mkdir()
    shutil.copy(os.environ["RAY_AUTH_TOKEN_PATH"], folder / ".ray" / "auth_token")
    (folder / "two.yaml").write_text(TWO)
    (folder / "mine.py").write_text(WORKERS)
    (folder / "ray").mkdir()
    own = {"HOME": str(folder), "RAY_TMPDIR": str(folder / "ray"), "PYTHONUNBUFFERED": "1"}
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}, **own}
    port = free_port()
    options = {
        "port": port,
        "node-ip-address": "127.0.0.9",
        "num-cpus": 8,
        "num-gpus": 2,
        "object-store-memory": 80 << 20,
        "include-dashboard": "false",
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head"]
    command += [f"--{name}={value}" for name, value in options.items()]
    try:
        started = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert "Token authentication is enabled" in started.stderr, started.stderr
        yield Plain(folder, f"127.0.0.9:{port}", environment)
    finally:
        end(family(f"RAY_TMPDIR={folder / 'ray'}"), 0)
        shutil.rmtree(folder)


# ----------------------------------------------------------------------------------------------------------- joining


def test_a_cluster_is_joined_as_ray_init_does(plain: Plain) -> None:
    assert plain.python("-c", JOINS, "'auto'").stdout == "[('0',), ('1',)] 127.0.0.9\n"


def test_a_given_address_needs_the_mode(plain: Plain) -> None:
    """As in Ray, which does not send a token to just any address."""
    done = plain.python("-c", JOINS, repr(plain.address), RAY_AUTH_MODE="token")
    assert done.stdout == "[('0',), ('1',)] 127.0.0.9\n"
    for address, variables in ((repr(plain.address), {}), ("None", {"RAY_ADDRESS": plain.address})):
        refused = plain.python("-c", JOINS, address, **variables)
        assert refused.stdout.startswith("refused: cannot connect to a Ray cluster: RPC error: InvalidAuthToken: ")
        assert "Ensure that the token for the cluster is available in a local file" in refused.stdout
        assert "Ray offers the token of this machine only to a cluster that it finds by itself" in refused.stdout
        assert refused.stdout.endswith("set RAY_AUTH_MODE=token\n")


@pytest.mark.parametrize(
    ("variables", "cause"),
    [
        ({}, "RPC error: InvalidAuthToken: Authentication token is missing or incorrect. Note: RAY_AUTH_MODE is "),
        ({"RAY_AUTH_MODE": "token"}, "Token authentication is enabled but no authentication token was found. Ensure "),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}, "RPC error: InvalidAuthToken: Authentication token"),
    ],
)
def test_rays_cause_and_advice_are_kept(plain: Plain, variables: dict[str, str], cause: str) -> None:
    done = plain.run("two.yaml", HOME=str(plain.folder / "ray"), **variables)
    assert done.returncode == 1
    looked = plain.python("-m", "rankplan", "live", "--ray", plain.address, HOME=str(plain.folder / "ray"), **variables)
    assert (looked.returncode, looked.stdout) == (1, "") and looked.stderr.startswith("error: "), looked.stderr
    (message,) = [line for line in done.stderr.splitlines() if "WARNING services.py" not in line]
    assert message.startswith(f"error: cannot connect to a Ray cluster: {cause}")
    assert "Ensure that the token for the cluster is available in a local file (e.g., ~/.ray/auth_token" in message
    assert message.endswith("https://docs.ray.io/en/latest/ray-security/token-auth.html")


# ------------------------------------------------------------------------------------------------------ rankplan run


def rows(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines() if line.startswith("actor")]


def test_run_accepts_a_saved_plan(plain: Plain) -> None:
    inventory = Inventory.uniform(num_nodes=1, num_accelerators=2)
    section = {"cluster": {"num_nodes": 1, "component_placement": {"actor": "0-1:0"}}}
    ComponentPlacement(section, inventory).plan(isolate_accelerator=False).save(plain.folder / "plan.json")
    done = plain.run("plan.json")
    ((*_, seen, verified),) = rows(done)
    assert (seen, verified) == ("0,1", "environment")
    assert "INFO" not in done.stderr

    done = plain.run("plan.json", "--dialect", "roll")
    assert done.returncode == 2 and "plan.json is a saved plan with its own nodes" in done.stderr
    done = plain.run("plan.json", "--nodes", "1x4", "--simulate")
    assert done.returncode == 1 and "error[plan-mismatch]: node 0: the plan has 2 NV_GPU" in done.stderr


def arguments(texts: list[str]) -> list[str]:
    """Return the words that pass arguments to a worker class."""
    return [word for text in texts for word in ("--argument", text)]


def test_run_forwards_arguments_and_shows_the_log(plain: Plain) -> None:
    given = ["lr=1e-3", "steps=012", "name=1:0", "mask=[0, yes]", "flag=true"]
    done = plain.run("two.yaml", "--worker", "mine:Trainer", "--ray", "auto", "--verbose", *arguments(given))
    assert [row[0] for row in rows(done)] == ["actor", "actor"]
    assert "INFO 1 node, in the order of the node addresses: 127.0.0.9 (" in done.stderr
    shown = "given (0.001, 12, '1:0', [0, 'yes'], True)"
    assert f"[actor rank 0] {shown}" in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["lr"], "'lr' is not key=value"),
        (["l-r=1"], "'l-r' is not the name of an argument"),
        (["lr=1", "lr=2"], "'lr' is given twice"),
        (["lr=[1"], "'lr=[1': invalid YAML: "),
        (["steps=1"], "the constructor of Trainer does not accept this: missing a required argument: 'lr'"),
        (["lr=1", "speed=2"], "does not accept this: got an unexpected keyword argument 'speed'"),
    ],
)
def test_run_rejects_arguments_that_do_not_fit(plain: Plain, given: list[str], message: str) -> None:
    done = plain.run("two.yaml", "--worker", "mine:Trainer", *arguments(given))
    assert done.returncode == 2
    assert f"Error: Invalid value for --argument: {message}" in done.stderr or message in done.stderr


def test_run_waits_for_nodes_as_long_as_told_and_says_so(plain: Plain) -> None:
    (plain.folder / "three.yaml").write_text("cluster: {num_nodes: 3, component_placement: {actor: 0-1}}\n")
    prelude = (
        "from rankplan.runtime.ray import connection\n"
        "connection._LINE_SECONDS = 1\n"
        "from rankplan.cli import main; main()\n"
    )
    done = plain.python("-c", prelude, "run", "three.yaml", "--timeout", "3")
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "WARNING services.py" not in line]  # other clusters run here
    assert lines[0] == "waiting for nodes: 1 of 3 have joined"
    assert lines[1] == "error: num_nodes is 3, but only 1 node has joined within 3 s:"


def test_a_signal_ends_a_run_and_its_ranks(plain: Plain) -> None:
    with plain.running("two.yaml", "--worker", "mine:Stuck", "--argument", f"file={plain.folder / 'stuck'}") as process:
        pids = plain.pids("stuck")
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Traceback" not in error and error.splitlines()[-1] == "interrupted"
    wait_until(lambda: not any(Path("/proc", str(pid)).exists() for pid in pids))


@pytest.mark.parametrize(
    ("number", "stage"),
    [
        (signal.SIGTERM, "starting node 2 of 2"),
        (signal.SIGHUP, "launching actor"),
        (signal.SIGINT, "running run()"),
    ],
)
def test_a_signal_leaves_nothing_of_a_simulation(plain: Plain, number: signal.Signals, stage: str) -> None:
    """Also while its nodes start: Ray's own handler would end the program without them."""
    base = plain.folder / f"simulated-{number.name}"
    base.mkdir()
    prelude = (
        "import os, signal, sys\n"
        "from rankplan.runtime.ray import connection\n"
        "def told(listener, lines=False):\n"
        "    def show(message):\n"
        f"        if message == {stage!r}: os.kill(os.getpid(), {int(number)})\n"
        "    import contextlib\n"
        "    return contextlib.nullcontext(show)\n"
        "connection.told = told\n"
        "from rankplan.cli import main; main()\n"
    )
    (plain.folder / "nodes.yaml").write_text(TWO.replace("1, c", "2, c"))
    done = plain.python("-c", prelude, "run", "nodes.yaml", "--nodes", "2x2", "--simulate", TMPDIR=str(base))
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr.splitlines()[-1] == "interrupted"
    assert list(base.glob("rankplan-*")) == []
    assert not left_after(family(f"TMPDIR={base}"), 60)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_signals_to_the_whole_process_group_of_a_simulation(plain: Plain, number: signal.Signals) -> None:
    """A terminal that closes, or a batch system. Ray's processes must not end before the ranks, or cleanup takes long.

    More signals follow until the end.
    """
    base = plain.folder / f"group-{number.name}"
    base.mkdir()
    name = f"group-{number.name.lower()}"
    arguments = [
        "two.yaml",
        "--nodes",
        "1x2",
        "--simulate",
        "--worker",
        "mine:Stuck",
        "--argument",
        f"file={plain.folder / name}",
    ]
    with plain.running(*arguments, TMPDIR=str(base), start_new_session=True) as process:
        plain.pids(name)
        rays = {one.name(): os.getsid(one.pid) for one in family(f"TMPDIR={base}")}
        assert process.pid not in {rays["raylet"], rays["gcs_server"]}
        while process.poll() is None:
            os.killpg(process.pid, number)
            time.sleep(0.05)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + number, error
    assert "Traceback" not in error and "interrupted" in error.splitlines()
    assert list(base.glob("rankplan-*")) == []
    assert not left_after(family(f"TMPDIR={base}"), 60)


# --------------------------------------------------------------------------------------------------- an early Ctrl-C


@pytest.mark.parametrize(
    "module", ["pydantic", "rankplan.plans.plan", "click", "rankplan.cli.run", "ray", "ray._raylet"]
)
def test_an_early_interrupt_prints_no_traceback(plain: Plain, module: str) -> None:
    """Ctrl-C arrives when this module is imported."""
    (plain.folder / "early").mkdir(exist_ok=True)
    (plain.folder / "early" / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder)\n"
    )
    path = os.pathsep.join([str(plain.folder / "early"), os.environ.get("PYTHONPATH", "")])
    done = plain.run("two.yaml", PYTHONPATH=path)
    assert (done.returncode, done.stderr.splitlines()) == (130, ["interrupted"])

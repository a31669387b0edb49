"""The worker classes of the tests with real Ray clusters."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import rankplan.rlinf
from rankplan import Cluster, ComponentPlacement, Worker

NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "NODE_LOCAL_RANK",
    "NODE_LOCAL_WORLD_SIZE",
    "CLUSTER_NODE_RANK",
    "CUDA_VISIBLE_DEVICES",
)


def read(*names: str) -> tuple[str | None, ...]:
    return tuple(os.environ.get(name) for name in names)


SEEN_AT_IMPORT = read(*NAMES)


class Reader(Worker):
    """Returns what its process sees."""

    def environment(self, *names: str) -> tuple[str | None, ...]:
        return read(*(names or NAMES))

    def at_import(self) -> tuple[str | None, ...]:
        return SEEN_AT_IMPORT

    def at_start(self, name: str) -> bool:
        return f"\n{name}=" in "\n" + Path("/proc/self/environ").read_text().replace("\0", "\n")

    def import_path(self) -> list[str]:
        return sys.path

    def in_main_thread(self) -> bool:
        return threading.current_thread() is threading.main_thread()

    def interpreter(self) -> str:
        return sys.executable

    def pid(self) -> int:
        return os.getpid()

    def node_id(self) -> str:
        import ray

        return ray.get_runtime_context().get_node_id()

    def wait_for(self, path: Path) -> int:
        """Be busy until a file exists."""
        while not path.exists():
            time.sleep(0.02)
        return os.getpid()

    def listen(self) -> int:
        with socket.create_server(("", int(os.environ["MASTER_PORT"]))) as server:
            return int(server.getsockname()[1])

    def robots(self) -> list[Any]:
        return self.hardware

    def set(self, name: str, value: str) -> None:
        os.environ[name] = value

    def put(self, name: str, value: str) -> None:
        """Set a variable as a library in C does, which Python's copy of the environment does not show."""
        os.putenv(name, value)


class Counting(Reader):
    """Counts its calls. A rank from 2 on joins later: its constructor waits until the file ``go`` exists."""

    def __init__(self, folder: Path) -> None:
        self.count = 0
        if self.rank >= 2:
            note(folder, self.rank)
            self.wait_for(folder / "go")

    def answer(self) -> int:
        self.count += 1
        return self.count

    def write_after(self, path: Path, text: str) -> None:
        """Write to a file that waits for another one."""
        self.wait_for(path)
        (path.parent / text).touch()


class AsyncCounting(Counting):
    """The same in an event loop."""

    async def wait_long(self, path: Path) -> int:
        while not path.exists():
            await asyncio.sleep(0.02)
        return os.getpid()


class Early(Worker):
    """Uses the properties of its rank in the constructor, without calling ``super().__init__()``."""

    def __init__(self, base: int, *, factor: int = 1) -> None:
        self.sum = base + factor * self.rank
        self.known = (self._rank, self._world_size, self.world_size, self.local_rank, self.component)
        self.row = self.placement

    def attributes(self) -> tuple[Any, ...]:
        return self.sum, self.known, self.row


class Caller(Worker):
    """Methods of every kind."""

    limit = 3

    def __init__(self) -> None:
        super().__init__()
        self.second = threading.Event()

    def echo(self, value: Any, *, key: Any = None) -> tuple[int, Any, Any]:
        return self.rank, value, key

    def length(self, data: bytes) -> int:
        return len(data)

    async def later(self) -> int:
        return self.rank

    def sleep(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    def first_waits(self) -> bool:
        came = self.second.wait(120)
        self.second.clear()
        return came

    def second_comes(self) -> None:
        self.second.set()

    @property
    def size(self) -> int:
        return self.limit


class Plain(Worker):
    """Has no async method, so that an answer is stored before the next call begins."""

    def echo(self, value: Any) -> Any:
        return value

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Looper(rankplan.rlinf.Worker):
    """Async methods beside plain ones, with the names of the group's own, and an attribute of the worker's."""

    def __init__(self) -> None:
        self.running, self.present, self.busy = True, 0, 0
        self.stopped = asyncio.Event()
        self.placement = f"row {self.placement.rank}"
        self._context = self._log = None

    async def loop(self) -> int:
        turns = 0
        while self.running:
            turns += 1
            await asyncio.sleep(0.001)
        return turns

    async def until_stopped(self) -> str:
        await self.stopped.wait()
        return self.placement

    def halt(self) -> None:
        self.running = False
        self.stopped.set()

    async def meet(self, others: int) -> int:
        """Return once this many calls are here at the same time."""
        self.present += 1
        while self.present < others:
            await asyncio.sleep(0.001)
        return self.present

    def alone(self) -> bool:
        self.busy += 1
        time.sleep(0.02)
        was_alone, self.busy = self.busy == 1, 0
        return was_alone

    def shutdown(self) -> str:
        self.log_info("shutting down")
        return "of the worker"

    def world_size(self) -> str:
        return "of the worker"

    def verify(self, *, rank: int) -> int:
        return rank

    @Worker.timer
    def step(self, seconds: float) -> None:
        time.sleep(seconds)

    @Worker.timer("thought")
    async def think(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def train(self) -> str:
        self.step(0.01)
        self.step(0.02)
        await self.think(0.01 * (self.rank + 1))
        return "trained"

    async def fail(self) -> None:
        raise KeyError("enough")

    async def nothing(self) -> None: ...

    def facts(self) -> tuple[Any, ...]:
        return self.accelerator_type, self.torch_device_type, Worker.accelerator_type, "torch" in sys.modules

    def platform(self) -> str:
        return str(self.torch_platform.__name__)

    def where(self) -> Any:
        return self.coordinates

    async def leave(self) -> None:
        sys.exit(4)


class Nested(Worker):
    """Uses the driver's cluster in a rank."""

    def known(self) -> Any:
        with Cluster() as cluster:
            return cluster.node_ids, cluster.inventory

    def part(self, num_nodes: int) -> Any:
        with Cluster(num_nodes=num_nodes) as cluster:
            return cluster.node_ids, cluster.inventory.group_labels

    def launch(self) -> Any:
        config = {"cluster": {"num_nodes": 2, "component_placement": {"env": {"node_group": "second", "placement": 1}}}}
        with Cluster() as cluster:
            strategy = ComponentPlacement(config, cluster).get_strategy("env")
            with Reader.create_group().launch(cluster, strategy, name="env") as group:
                return group.environment("CUDA_VISIBLE_DEVICES", "CLUSTER_NODE_RANK", "MODE", "EXPORTED").wait()


class Engine(Worker):
    """Serves until it is told to stop; does not start while the file ``obstacle`` exists."""

    def __init__(self, folder: Path) -> None:
        (folder / f"pid-{self.rank}").write_text(str(os.getpid()))
        if (folder / "obstacle").exists():
            raise ValueError(f"rank {self.rank} finds an obstacle")
        self.stopped = asyncio.Event()

    async def serve(self) -> int:
        await self.stopped.wait()
        return os.getpid()

    async def stop(self) -> None:
        self.stopped.set()

    async def pid(self) -> int:
        return os.getpid()

    async def environment(self, *names: str) -> tuple[str | None, ...]:
        return read(*names)

    async def size(self) -> tuple[int, int, int]:
        return self.world_size, self.placement.world_size, self._world_size


class Unloadable(Exception):
    """Can be pickled but not unpickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


class Unpicklable(Exception):
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class Unreadable:
    """A value that can be pickled but not unpickled."""

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return int, ("no number",)


class Faulty(Worker):
    """Fails on request, in the requested ranks."""

    def fail(self, *ranks: int) -> int:
        if self.rank in ranks:
            raise KeyError(f"rank {self.rank} had enough")
        return self.rank

    def fail_while_others_wait(self, rank: int) -> None:
        self.fail(rank)
        time.sleep(600)  # longer than a test

    def unloadable(self) -> None:
        raise Unloadable("one", "two")

    def unpicklable(self) -> None:
        raise Unpicklable

    def cannot_be_written(self) -> None:
        raise ValueError(os.fsdecode(b"no such file: \xff\x1b[31m"))

    def says_much(self) -> None:
        raise ValueError("no" * 10**6)

    def fails_in_a_task(self) -> None:
        import ray

        ray.get(ray.remote(num_cpus=0)(lambda: int("no number")).remote())

    def returns_a_lock(self) -> Any:
        return threading.Lock()

    def returns_what_cannot_be_read(self) -> Any:
        return Unreadable()

    def die(self, rank: int) -> int:
        if self.rank == rank:
            os._exit(3)
        return self.rank

    def leave(self, rank: int) -> None:
        if self.rank == rank:
            threading.Thread(target=time.sleep, args=(600,)).start()
            sys.exit(4)

    def pid(self) -> int:
        return os.getpid()


class FailsToStart(Worker):
    """Does not start in one rank."""

    def __init__(self, how: str, rank: int) -> None:
        if self.rank != rank:
            return
        if how == "raise":
            raise ValueError(f"no weights for rank {rank}")
        if how == "die":
            os._exit(3)
        if how == "hang":
            time.sleep(600)
        if how == "wrong rank":
            os.environ["RANK"] = "99"
        if how == "wrong devices":
            os.environ["CUDA_VISIBLE_DEVICES"] = "7"


class Refuses(Worker):
    """Does not start in any rank."""

    def __init__(self) -> None:
        raise ValueError(f"rank {self.rank} refuses")


class Stuck(Worker):
    """Never starts: each rank writes its process id to a file in the folder, and stays in its constructor."""

    def __init__(self, folder: Path) -> None:
        note(folder, self.rank)
        time.sleep(600)


def note(folder: Path, rank: int) -> None:
    """Write the id of this process to a file of its rank, at once as a whole."""
    (folder / f"{rank}.new").write_text(str(os.getpid()))
    (folder / f"{rank}.new").rename(folder / str(rank))


def stuck(folder: Path, rank: int) -> int:
    """Wait until that rank is stuck, and return its process id."""
    deadline = time.monotonic() + 60
    while not (folder / str(rank)).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int((folder / str(rank)).read_text())


def has_ended(pid: int) -> bool:
    """Whether the process ends within 30 seconds."""
    deadline = time.monotonic() + 30
    while (text := command(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not text


def command(pid: int) -> bytes:
    """Return the command line of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""

"""The actor that a rank runs in.

It starts without the user's code, sets the environment of its rank, and then loads the user's class. The module of the
class therefore sees ``RANK`` and its devices when it is imported, and Ray needs no ``runtime_env``, which would double
the launch time. ``OMP_NUM_THREADS=1``, which Ray sets in processes without reserved CPUs (as torchrun does), stays
unless the driver or the node group's ``env_vars`` set it.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import ray

from rankplan._core import RankSet
from rankplan.accelerators import Vendor, adopt, registered, vendor
from rankplan.environment import (
    added,
    expanded,
    planned_environment,
    process_environment,
    rank_environment,
    reserved_variables,
    restart_environment,
)
from rankplan.errors import LaunchError
from rankplan.frozen import frozen
from rankplan.hardware import bind
from rankplan.hardware.driver import Question, Shown, plain, written
from rankplan.hardware.egl import VARIABLES, device_of, egl_devices
from rankplan.runtime.rank.memory import MemoryUse, memory_use
from rankplan.runtime.rank.ports import free_block
from rankplan.runtime.rank.spec import DEVICES, RankReport, RankSpec
from rankplan.runtime.rank.timing import Stopwatch
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import RankFailure
from rankplan.runtime.ray.internals import accepts, answers, is_termination

if TYPE_CHECKING:
    from rankplan.runtime.nodes.nodes import Nodes

_Value = TypeVar("_Value")


class RankProcess:
    """This process as a rank: its spec, with the state that exists only here and cannot be sent.

    ``hardware`` are the configs of its robots. ``pickled_nodes`` are the nodes of the driver's cluster, loaded only if
    the rank uses a `Cluster` itself.
    """

    def __init__(self, spec: RankSpec, pickled_nodes: bytes) -> None:
        self.spec, self.pickled_nodes = spec, pickled_nodes
        self.hardware: tuple[Any, ...] = ()
        self._thread = threading.get_native_id()
        self._question: Question | None = None
        self._egl_device: int | None = None

    def settle(self) -> None:
        """Bind this process, set the variables that its node group leaves open, and start asking the driver."""
        spec = self.spec
        if spec.bound.cpus:
            bind.move(spec.bound.cpus)
        if spec.bound.memory_nodes:
            bind.set_memory_policy(spec.bound.memory, spec.bound.memory_nodes)
        os.environ |= {name: value for name, value in spec.nic_variables.items() if name not in spec.env_vars}
        if spec.proof == DEVICES:
            self._question = Question(os.environ)
        if spec.egl:
            self._egl_device = self._find_egl_device()

    def load_hardware(self) -> None:
        """Load the configs of the robots, with the modules of their models."""
        if self.spec.hardware:
            from rankplan.runtime.rank.hardware import on_node  # most ranks have no robots, and need no pydantic

            robots = pickle.loads(self.spec.hardware)
            self.hardware = on_node(robots, self.spec.placement.local_hardware_ranks, os.environ)

    def nodes(self) -> Nodes:
        nodes: Nodes = pickle.loads(self.pickled_nodes)
        return nodes

    def report(self) -> RankReport:
        """Return the report of this process. The driver is asked again unless an answer is due."""
        spec, shown = self.spec, Shown()
        if spec.proof == DEVICES:
            question, self._question = self._question or Question(process_environment()), None
            shown = question.answer(timeouts.DRIVER)
        row, bound = vendor(spec.placement.accelerator_type), spec.bound
        known = {plain(uuid): uuid for uuid in spec.uuids}
        reserved = reserved_variables()
        environment = {name: value for name, value in process_environment().items() if name in reserved}
        return RankReport(
            component=spec.component,
            rank=spec.placement.rank,
            node_rank=spec.placement.cluster_node_rank,
            pid=os.getpid(),
            accelerators=(row and row.shown(environment)) or (),
            proof=spec.proof,
            uuids=tuple(written(uuid, known) for uuid in shown.uuids),
            planned_cpus=bound.cpus or None,
            cpus=bind.allowed_cpus(),
            planned_memory=_memory(bound.memory, bound.memory_nodes),
            memory=_memory(*bind.memory_policy(self._thread)),
            nics=spec.nics,
            egl_device=self._egl_device,
            node_id=ray.get_runtime_context().get_node_id(),
            environment=environment,
            driver_problem=shown.problem,
        )

    def _find_egl_device(self) -> int | None:
        """Return the number of the EGL device of the first accelerator, and set the variables that select it."""
        row = vendor(self.spec.placement.accelerator_type)
        masks = {row.env_var} if row else set()
        number = device_of(egl_devices(os.environ, masks), self.spec.ordinal, self.spec.pci)
        if number is None:
            print("EGL shows no device for the first accelerator of this rank; it renders as before", file=sys.stderr)
            return None
        os.environ |= {name: str(number) for name in VARIABLES if name not in self.spec.env_vars}
        return number


def _memory(policy: str, nodes: RankSet | None) -> str | None:
    return f"{policy} {nodes}" if nodes else None


_current: RankProcess | None = None


def this_process() -> RankProcess | None:
    """Return the rank that this process is, or ``None`` if it is no rank of a group, but a driver, say."""
    return _current


class OfRank(Generic[_Value]):
    """A fact of the rank that this process is, readable on the worker class and on the worker.

    A worker may have an attribute of its own by that name. Raises ``AttributeError`` outside a rank.
    """

    def __init__(self, read: Callable[[RankSpec], _Value]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, worker: object, owner: type) -> _Value:
        if _current is None:
            raise AttributeError(f"{owner.__name__}.{self._name} is known only in the ranks of a group")
        return self._read(_current.spec)


MOST_CALLS = 1000
"""The most calls that a rank works on at a time: Ray's limit for ``async`` methods.

Plain methods need a thread each, all started at once, and a process does not survive many thousands of threads.
"""


@frozen
class GroupSetup:
    """The settings that all ranks of a group share. They are in Ray's object store once, not in the spec of each rank.

    ``exports`` are the variables of the driver, ``import_path`` its own module folders, and ``accelerators`` the types
    that it has registered. ``pickled_nodes`` are those of its cluster. ``restarts`` counts the restarts of the group.
    """

    master_addr: str
    exports: Mapping[str, str]
    import_path: list[str]
    log_level: int
    pickled_nodes: bytes
    accelerators: list[Vendor] = field(default_factory=registered)
    restarts: int = 0


class Rank:
    """The tasks of the hosts of both kinds."""

    def __init__(self, name: str, driver: str) -> None:
        self._name = name
        self._worker: Any = None
        self._stopwatch = Stopwatch()
        head = str(ray.get_runtime_context().gcs_address)
        orphan = threading.Thread(target=_end_as_orphan, args=(driver, head), name="rankplan-orphan", daemon=True)
        orphan.start()

    def __repr__(self) -> str:
        return self._name  # Ray prefixes it to each line that this process prints

    def free_block(self, choice: range, count: int) -> int | None:
        return free_block(choice, count)

    def look(self) -> RankReport | None:
        """Return the report of this process, ``None`` if it is no rank yet."""
        return _current.report() if _current else None

    def renew(self, spec: RankSpec, rendezvous: dict[str, str], pickled_nodes: bytes) -> RankReport | None:
        """Take over the row and the environment that a restart of other ranks has changed."""
        if _current is not None:
            before, _current.spec, _current.pickled_nodes = _current.spec, spec, pickled_nodes
            self._worker._renew(before)
        os.environ |= planned_environment(spec.placement) | rendezvous
        return self.look()

    def is_alive(self) -> None:
        """Answer: this process lives."""

    def leave(self) -> None:
        """End this process, for a driver without a head."""
        os._exit(1)

    def durations(self, ticket: int) -> dict[str, float]:
        return self._stopwatch.durations.get(ticket, {})

    def timings(self) -> list[tuple[str, float, float]]:
        return list(self._stopwatch.calls)

    def memory_use(self) -> MemoryUse | None:
        placement = _current.spec.placement if _current is not None else None
        own = placement is not None and placement.visibility == "own"  # others' devices are none of this rank's
        return memory_use(placement.visible_accelerators if placement is not None and own else ())

    def _become(self, spec: RankSpec, group: GroupSetup, master_port: int | None, payload: bytes) -> RankReport:
        global _current
        adopt(group.accelerators)
        if master_port is None:
            raise RankFailure.of(LaunchError(f"none of the ports tried is free on {group.master_addr}"))
        given = spec.late(group.exports)
        exports = added(given, os.environ)
        env_vars = exports | expanded(spec.late(spec.env_vars), os.environ | exports)
        os.environ |= rank_environment(
            spec.placement, master_addr=group.master_addr, master_port=master_port, env_vars=env_vars
        )
        os.environ |= restart_environment(group.restarts)
        # Python reads PYTHONPATH only at its start
        first = given.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [folder for folder in first if folder and folder not in sys.path]
        sys.path += [folder for folder in group.import_path if folder not in sys.path]
        _show_logs(group.log_level)
        process = RankProcess(spec, group.pickled_nodes)
        process.settle()
        threading.Thread(target=_end_after_main_thread, name="rankplan-end", daemon=True).start()
        try:
            process.load_hardware()
            _current = process
            worker_class, args, kwargs = pickle.loads(payload)
            self._worker = worker_class(*args, **kwargs)
        except BaseException as error:
            if is_termination(error):
                raise
            raise RankFailure.of(error) from None
        return process.report()

    def _run(self, ticket: int, method: str, args: Any, kwargs: Any) -> Any:
        """Run a method of the worker; an ``async`` one returns a coroutine, which the caller awaits."""
        try:
            with self._stopwatch.measured(ticket):
                return _sendable(method, getattr(self._worker, method)(*args, **kwargs))
        except SystemExit:
            raise
        except BaseException as error:
            raise RankFailure.of(error) from None


# not a method: Ray runs every method of a class that has an async one in an event loop
async def _awaited(rank: Rank, ticket: int, method: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        with rank._stopwatch.measured(ticket):
            return _sendable(method, await coroutine)
    except SystemExit:
        raise
    except BaseException as error:
        raise RankFailure.of(error) from None


def _sendable(method: str, value: Any) -> Any:
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise TypeError(f"{method}() returns a generator, which cannot be sent to the driver; return a list")
    return value


class Host(Rank):
    """The rank of a class without ``async`` methods: works on one call at a time, or on several in threads of Ray."""

    def __init__(self, name: str, driver: str) -> None:
        super().__init__(name, driver)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, spec: RankSpec, group: GroupSetup, master_port: int | None, payload: bytes) -> RankReport:
        """Become the rank: ``payload`` is the pickled class with its arguments."""
        return self._become(spec, group, master_port, payload)

    def call(self, ticket: int, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Run a method of the worker. One that returns a coroutine is awaited in the event loop of the process."""
        with self._stopwatch.timing(method):
            found = self._run(ticket, method, args, kwargs)
            if not inspect.iscoroutine(found):
                return found
            return asyncio.run_coroutine_threadsafe(_awaited(self, ticket, method, found), self._event_loop()).result()

    def finish(self) -> None:
        """Return once no call runs."""
        while self._stopwatch.running:
            time.sleep(timeouts.FINISH_POLL)

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        """Return the one event loop of this process: tasks of one method continue during the next."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="rankplan-async", daemon=True).start()
            return self._loop


class AsyncHost(Rank):
    """The rank of a class with ``async`` methods: these run concurrently, in the event loop of the process.

    The constructor and plain methods, which may block, run in ``threads`` threads of their own.
    """

    def __init__(self, name: str, driver: str, threads: int) -> None:
        super().__init__(name, driver)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="rankplan-call")

    async def start(self, spec: RankSpec, group: GroupSetup, master_port: int | None, payload: bytes) -> RankReport:
        report: RankReport = await self._in_thread(self._become, spec, group, master_port, payload)
        return report

    async def call(self, ticket: int, method: str, /, *args: Any, **kwargs: Any) -> Any:
        try:
            with self._stopwatch.timing(method):
                if inspect.iscoroutinefunction(getattr(self._worker, method)):
                    found = self._run(ticket, method, args, kwargs)
                else:
                    found = await self._in_thread(self._run, ticket, method, args, kwargs)
                return await _awaited(self, ticket, method, found) if inspect.iscoroutine(found) else found
        except SystemExit as end:
            # it would end only the event loop, and every call would wait forever; Ray keeps no exit code here
            print(f"{method}() ends the process (code {end.code})", file=sys.stderr, flush=True)
            return ray.actor.exit_actor()

    async def finish(self) -> None:
        """Return once no call runs."""
        while self._stopwatch.running:
            await asyncio.sleep(timeouts.FINISH_POLL)

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        run = partial(contextvars.copy_context().run, function, *args)
        return await asyncio.get_running_loop().run_in_executor(self._threads, run)


def has_async_methods(worker_class: type) -> bool:
    """Whether a class needs the event loop of an `AsyncHost`."""
    found = (inspect.getattr_static(worker_class, name, None) for name in dir(worker_class))
    return any(inspect.iscoroutinefunction(inspect.unwrap(each)) for each in found)


# Any: the types of Ray know no options() of a decorated class
_options: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0}
HostActor: Any = ray.remote(**_options)(Host)
AsyncHostActor: Any = ray.remote(**_options)(AsyncHost)


def _end_after_main_thread() -> None:
    """End this process if a thread or an exit handler keeps it from exiting: Ray would leave it behind."""
    threading.main_thread().join()
    time.sleep(timeouts.EXIT)
    os._exit(1)


def _end_as_orphan(driver: str, head: str) -> None:
    """End this process once neither its driver, at host:port, nor the head has been reached for `timeouts.ORPHAN`.

    A head tells the ranks of a driver that has gone. Without one, nobody does.
    """
    last = time.monotonic()
    while time.monotonic() - last < timeouts.ORPHAN:
        time.sleep(timeouts.ORPHAN_POLL)
        if accepts(driver, timeouts.ORPHAN_POLL) or answers(head, timeouts.ORPHAN_POLL):
            last = time.monotonic()
    lost = f"neither its driver at {driver} nor the Ray head at {head} has answered for {timeouts.ORPHAN:g} s"
    print(f"this rank ends: {lost}", file=sys.stderr, flush=True)
    os._exit(1)


def _show_logs(level: int) -> None:
    """Write the worker's log from this level on to stderr, however logging is configured in this process."""
    logger = logging.getLogger("rankplan.worker")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level)

"""The actor that a rank runs in.

It starts without the user's code, sets the environment of its rank, and then loads the user's class. The module of the
class therefore sees ``RANK`` and its devices when it is imported, and Ray needs no ``runtime_env``, which would double
the launch time. ``OMP_NUM_THREADS=1``, which Ray sets in processes without reserved CPUs (as torchrun does), stays
unless the node group's ``env_vars`` set it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray

from rankplan.environment import expanded, rank_environment, start_variables
from rankplan.errors import LaunchError
from rankplan.placement import Placement
from rankplan.runtime import context, timeouts
from rankplan.runtime.faults import RankFailure
from rankplan.runtime.ports import free_block
from rankplan.runtime.ray_internals import is_termination
from rankplan.runtime.settings import RankSettings
from rankplan.runtime.verify import Sighting


@dataclass(frozen=True, slots=True)
class RankSetup:
    """What makes a host a rank: its row, the address of rank 0's node, the variables of its node group.

    ``hardware`` is pickled, because the modules of its models must be imported after the environment is set.
    ``import_path`` has the driver's own module folders. The worker's log is shown from ``log_level`` on.
    """

    component: str
    placement: Placement
    hardware: bytes
    master_addr: str
    env_vars: Mapping[str, str]
    import_path: list[str]
    log_level: int
    settings: RankSettings = field(default_factory=RankSettings)


class Host:
    """One rank: sets the environment, loads the worker, forwards calls."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._worker: Any = None
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return self._name  # Ray prefixes it to each line that this process prints

    def free_block(self, choice: range, count: int) -> int | None:
        """Return the first port of a free block on this machine, or ``None``; see `ports.free_block`."""
        return free_block(choice, count)

    def start(self, setup: RankSetup, master_port: int | None, payload: bytes) -> Sighting:
        """Become the rank: ``payload`` is the pickled class with its positional and keyword arguments."""
        placement, address = setup.placement, setup.master_addr
        if master_port is None:
            raise RankFailure.of(LaunchError(f"none of the ports tried is free on {address}"))
        at_start = start_variables(setup.env_vars)  # Ray has set and expanded them
        late = {name: value for name, value in setup.env_vars.items() if name not in at_start}
        env_vars = expanded(late, os.environ)
        os.environ |= rank_environment(placement, master_addr=address, master_port=master_port, env_vars=env_vars)
        sys.path += [folder for folder in setup.import_path if folder not in sys.path]
        _show_logs(setup.log_level)
        setup.settings.enter(setup.env_vars)
        threading.Thread(target=_end_after_main_thread, name="rankplan-end", daemon=True).start()
        try:
            context.enter(context.RankContext(setup.component, placement, pickle.loads(setup.hardware)))
            worker_class, args, kwargs = pickle.loads(payload)
            self._worker = worker_class(*args, **kwargs)
        except BaseException as error:
            if is_termination(error):
                raise
            raise RankFailure.of(error) from None
        return Sighting.here()

    def look(self) -> Sighting:
        """Return where this process runs and what it sees."""
        return Sighting.here()

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Run a method of the worker; an ``async`` one runs to completion in the event loop of the process."""
        try:
            value = getattr(self._worker, method)(*args, **kwargs)
            if inspect.iscoroutine(value):
                value = asyncio.run_coroutine_threadsafe(value, self._event_loop()).result()
            if inspect.isgenerator(value) or inspect.isasyncgen(value):
                raise TypeError(f"{method}() returns a generator, which cannot be sent to the driver; return a list")
            return value
        except SystemExit:
            raise
        except BaseException as error:
            raise RankFailure.of(error) from None

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        """Return the one event loop of this process: tasks of one ``async`` method continue during the next."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="rankplan-async", daemon=True).start()
            return self._loop


# Any: the types of Ray know no options() of a decorated class
HostActor: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(Host)


def _end_after_main_thread() -> None:
    """End this process if a thread or an exit handler keeps it from exiting.

    Ray counts a rank that exits as dead, and would leave such a process behind.
    """
    threading.main_thread().join()
    time.sleep(timeouts.EXIT)
    os._exit(1)


def _show_logs(level: int) -> None:
    """Write the worker's log from this level on to stderr, however logging is configured in this process."""
    logger = logging.getLogger("rankplan.worker")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level)

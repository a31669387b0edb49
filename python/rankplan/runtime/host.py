"""The actor that a rank lives in.

It comes up bare, gets the environment of its rank, and only then loads the user's class: the module of that class
already sees ``RANK`` and its devices when it is imported, and Ray needs no ``runtime_env`` (which doubles the time of a
launch). ``OMP_NUM_THREADS=1``, which Ray sets in processes without reserved CPUs (as torchrun does), stays unless the
node group's ``env_vars`` say otherwise.
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
from dataclasses import dataclass
from typing import Any

import ray

from rankplan.environment import expanded, rank_environment, start_variables
from rankplan.errors import LaunchError
from rankplan.placement import Placement
from rankplan.runtime import context
from rankplan.runtime.faults import RankFailure
from rankplan.runtime.ports import free_block
from rankplan.runtime.verify import Sighting

_LEAVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RankSetup:
    """What makes a host a rank: who it is, where its component meets, the variables of its node group.

    ``hardware`` is pickled, for the modules of its models are found and may be imported only when the rank has its
    environment. ``import_path`` are the driver's own folders of modules, in its order; what the worker logs from
    ``log_level`` on is shown.
    """

    component: str
    placement: Placement
    hardware: bytes
    master_addr: str
    env_vars: Mapping[str, str]
    import_path: list[str]
    log_level: int


class Host:
    """One rank: sets the environment, loads the worker, forwards calls."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._worker: Any = None
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return self._name  # Ray puts it before each line that this process prints

    def free_block(self, choice: range, count: int) -> int | None:
        """Return the first port of a free block here, or ``None`` where there is none; see `ports.free_block`."""
        return free_block(choice, count)

    def start(self, setup: RankSetup, master_port: int | None, payload: bytes) -> Sighting:
        """Become the rank: ``payload`` is the pickled class with its positional and keyword arguments."""
        placement, address = setup.placement, setup.master_addr
        if master_port is None:
            raise RankFailure.of(LaunchError(f"no port of those that were looked at is free on {address}"))
        at_start = start_variables(setup.env_vars)  # Ray has set and expanded them
        late = {name: value for name, value in setup.env_vars.items() if name not in at_start}
        env_vars = expanded(late, os.environ)
        os.environ |= rank_environment(placement, master_addr=address, master_port=master_port, env_vars=env_vars)
        sys.path += [folder for folder in setup.import_path if folder not in sys.path]
        _show_logs(setup.log_level)
        threading.Thread(target=_end_after_main_thread, name="rankplan-end", daemon=True).start()
        try:
            context.enter(context.RankContext(setup.component, placement, pickle.loads(setup.hardware)))
            worker_class, args, kwargs = pickle.loads(payload)
            self._worker = worker_class(*args, **kwargs)
        except BaseException as error:
            if hasattr(error, "ray_terminate_msg"):
                raise  # this is how SIGTERM arrives
            raise RankFailure.of(error) from None
        return Sighting.here()

    def look(self) -> Sighting:
        """Return where this process is and what it sees."""
        return Sighting.here()

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Run a method of the worker. One that is ``async`` runs to its end in the event loop of the process."""
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
        """Return the one loop of this process, so that what an ``async`` method starts is there for the next."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="rankplan-async", daemon=True).start()
            return self._loop


# Any: the types of Ray know no options() of a decorated class
HostActor: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(Host)


def _end_after_main_thread() -> None:
    """End this process when it does not come to its end by itself, for a thread or an exit handler that hangs.

    Ray takes a rank that exits for dead, and would leave such a process behind.
    """
    threading.main_thread().join()
    time.sleep(_LEAVE_SECONDS)
    os._exit(1)


def _show_logs(level: int) -> None:
    """Bring what the worker logs from that level on to its output, whatever else is set up to log in this process."""
    logger = logging.getLogger("rankplan.worker")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level)

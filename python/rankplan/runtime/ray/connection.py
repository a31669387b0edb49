"""A driver's connection to Ray, the groups and reservations that end before it, and progress on the way."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Literal, Protocol, TypeAlias

import ray
from ray.exceptions import RayError

from rankplan.errors import ClusterError, LaunchError
from rankplan.runtime.ray import internals, timeouts
from rankplan.runtime.ray.asking import patience
from rankplan.runtime.ray.head import Head
from rankplan.words import wrong_type

Report: TypeAlias = Callable[[str], None]

_QUIET_SECONDS = 1.0
_LINE_SECONDS = 20.0
_NONE_FOUND = "no running Ray cluster was found; give the host:port of its head, or set RAY_ADDRESS"
_TOKEN = "Ray offers the token of this machine only to a cluster that it finds by itself: set RAY_AUTH_MODE=token"


@contextmanager
def told(listener: Report | None, *, lines: bool = False) -> Iterator[Report]:
    """Yield a function to call with short progress messages.

    They go to ``listener``; without one, to stderr if that is a terminal, starting after one second. With ``lines``,
    any other stderr gets the current message as a line, at most every 20 seconds and only if it has changed.
    """
    printed, since = "", time.monotonic()

    def show_line(message: str) -> None:
        nonlocal printed, since
        if lines and message != printed and time.monotonic() - since >= _LINE_SECONDS:
            printed, since = message, time.monotonic()
            print(message, file=sys.stderr, flush=True)

    if listener is not None or not sys.stderr.isatty():
        yield listener or show_line
        return
    from rich.console import Console

    status = Console(stderr=True).status("")

    def show(message: str) -> None:
        if time.monotonic() - since >= _QUIET_SECONDS:
            status.update(message)
            status.start()

    try:
        yield show
    finally:
        status.stop()


def current_session() -> str | None:
    """Return a text that identifies this process's connection to Ray, or ``None`` without a connection."""
    # Ray starts a new cluster for a call on anything that outlived its connection, so such calls must be refused
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return f"{context.gcs_address} {context.get_job_id()}"


_users: list[int] = []  # thread ids, one for each `using_session` that the thread is in
_changed = threading.Condition()


@contextmanager
def using_session() -> Iterator[None]:
    """Mark this thread as using the connection."""
    with _changed:
        _users.append(threading.get_ident())
    try:
        yield
    finally:
        with _changed:
            _users.remove(threading.get_ident())
            _changed.notify_all()


def wait_until_unused(seconds: float) -> None:
    """Wait until no other thread uses the connection, at most ``seconds``."""
    with _changed:
        _changed.wait_for(lambda: set(_users) <= {threading.get_ident()}, seconds)


class Ends(Protocol):
    """Something that runs until it is ended; ``end`` may be called again, and from any thread."""

    def end(self) -> None: ...


class Owner(ABC):
    """Owns running things and ends them before it ends itself. Thread-safe."""

    def __init__(self) -> None:
        self._owned: list[Ends] = []
        self._ended = False
        self._lock = threading.Lock()

    @abstractmethod
    def check_open(self) -> None:
        """Raise ``LaunchError`` if this has ended."""

    def own(self, thing: Ends) -> None:
        """End this thing later, unless it is disowned before. Raises ``LaunchError`` if this has ended."""
        with self._lock:
            if not self._ended:
                self._owned.append(thing)
                return
        self.check_open()

    def disown(self, thing: Ends) -> None:
        """Forget a thing that has ended; does nothing for an unknown one."""
        with self._lock:
            self._owned = [other for other in self._owned if other is not thing]

    def end_owned(self) -> None:
        """End everything that is owned, the newest first, even if ending one fails. Nothing can be owned afterwards."""
        with ExitStack() as steps, self._lock:
            self._ended = True
            for thing in self._owned:
                steps.callback(thing.end)


class Connection(Owner):
    """The connection to Ray that this process has at the moment, shown to everything that launches or reserves."""

    def __init__(self, on_progress: Report | None) -> None:
        super().__init__()
        self._on_progress = on_progress
        self._session = current_session()
        self.address = str(ray.get_runtime_context().gcs_address)
        self.has_launched = False
        self._groups: list[tuple[str, object]] = []

    @property
    def is_current(self) -> bool:
        """Whether the process still has this connection to Ray."""
        return self._session == current_session()

    def check_open(self) -> None:
        """Raise ``LaunchError`` if the cluster was closed, or the connection has been replaced."""
        if self._ended or not self.is_current:
            raise LaunchError("the cluster was closed; launch before close(), inside its `with`")

    def check_alive(self) -> None:
        """Raise ``LaunchError`` if the cluster was closed, or Ray has ended under this program."""
        self.check_open()
        if lost := internals.lost_connection(patience()):
            raise LaunchError(f"{lost}; close this Cluster, start Ray again, and make a new Cluster")

    def enter(self, component: str, group: object) -> list[object]:
        """Note a group of a component that starts, until it leaves; return the running ones of the same name."""
        with self._lock:
            namesakes = [other for name, other in self._groups if name == component]
            self._groups.append((component, group))
        return namesakes

    def leave(self, group: object) -> None:
        """Forget a group that has ended; does nothing for an unknown one."""
        with self._lock:
            self._groups = [(name, other) for name, other in self._groups if other is not group]

    def progress(self) -> AbstractContextManager[Report]:
        """Return a context with the function that reports progress to ``on_progress``, or else to the terminal."""
        return told(self._on_progress)


def connect(address: str | None, num_nodes: int | None) -> Literal["kept", "joined", "started"]:
    """Connect to Ray; return whether a connection was kept, a running cluster joined, or a local one started."""
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", connected):
            raise ClusterError(
                f"this process is connected to the Ray cluster at {connected}, not to {address}; close that Cluster, "
                "or call ray.shutdown(), first"
            )
        return "kept"
    with _connecting():
        running = _running_cluster(address)
        if running is None and num_nodes is not None and num_nodes > 1:
            raise ClusterError(
                f"num_nodes is {num_nodes}, but no running Ray cluster was found; run `ray start --head` on one node "
                "and `ray start --address=...` on the others, set RAY_ADDRESS, or use "
                f'Cluster.simulate("{num_nodes}x8") to try it out on this machine'
            )
        with internals.signals_apart():
            if running is None:
                ray.init(address="local", include_dashboard=False, logging_level=logging.WARNING)
            else:
                internals.offer_token(address)
                internals.introduce(running)
                # Ray offers its token only to a cluster that it looks for itself
                ray.init(address=address or "auto", logging_level=logging.WARNING)
    return "started" if running is None else "joined"


@contextmanager
def joined(head: Head) -> Iterator[None]:
    """Be a job of the cluster of a head during the ``with``, unless this program is connected already."""
    was_connected = connect(head.address, None) == "kept"
    try:
        yield
    finally:
        if not was_connected:
            ray.shutdown()


def head_of(address: str | None) -> Head:
    """Return a connection to the head of a running cluster, found as ``ray.init`` finds it, without becoming a job.

    Raises ``ClusterError`` if no cluster is found, none answers, or its head refuses the token of this process.
    """
    if ray.is_initialized() and address in (None, "auto"):
        address = str(ray.get_runtime_context().gcs_address)
    with _connecting():
        running = _running_cluster(address)
        if running is None:
            raise ClusterError(_NONE_FOUND)
        internals.offer_token(address)
        internals.introduce(running)
        return Head(running)


@contextmanager
def _connecting() -> Iterator[None]:
    """Turn what Ray raises if it cannot connect into a ``ClusterError``."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, RayError) as error:
        if isinstance(error, ClusterError):
            raise
        advice = f"; {_TOKEN}" if internals.unused_token() else ""
        raise ClusterError(f"cannot connect to a Ray cluster: {internals.connection_fault(error)}{advice}") from error


def _running_cluster(address: str | None) -> str | None:
    """Return host:port of the cluster to connect to, found as ``ray.init`` finds it; ``None`` if there is none."""
    if not isinstance(address, str | None):
        raise wrong_type("address", address, "the host:port of a Ray head, such as 10.0.0.1:6379")
    given = os.environ.get("RAY_ADDRESS", "") if address is None else address
    is_named = _is_named(address, given)
    try:
        running = internals.running_cluster(address)
    except ConnectionError:  # "auto" requires one
        raise ClusterError(_NONE_FOUND) from None
    if running is None:
        return None
    try:
        internals.greet(running, timeouts.CONNECT)
    except OSError as error:
        # Ray replaces the address of the loopback device by that of the node.
        advice = "give the address of a running one"
        if address is None or not is_named:
            advice += ", or remove the outdated address (unset RAY_ADDRESS, or run `ray stop`)"
        place = given if is_named else running
        raise ClusterError(f"no Ray cluster answers at {place} ({error}); {advice}") from None
    return running


def _is_named(address: str | None, given: str) -> bool:
    """Whether an address, or else the variable ``RAY_ADDRESS``, names a head; if not, Ray looks for one.

    Raises ``ClusterError`` unless it does so as host:port.
    """
    if given.startswith(("http://", "https://")):
        raise ClusterError(
            f"{given} is the address of a job server; give the host:port of the head, such as 10.0.0.1:6379, or submit "
            "this command as a job (`ray job submit`)"
        )
    if "://" in given:
        raise ClusterError(
            f"{given} is a Ray Client address, which cannot launch groups; run on a node of the cluster, with its "
            "host:port, or as a job (`ray job submit`)"
        )
    if given in ("auto", "local") or (address is None and not given):
        return False
    host, _, port = given.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16
    if not (host and is_port):
        raise ClusterError(f"{given!r} is not the address of a Ray cluster; write host:port, such as 10.0.0.1:6379")
    return True

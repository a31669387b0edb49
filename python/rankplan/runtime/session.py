"""Which connection to Ray a thing belongs to: for one that outlived its connection, Ray would start a new cluster."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray._private.worker import global_worker

_ANSWER_SECONDS = 5.0


def current() -> str | None:
    """Return what tells this process's connection to Ray from any other, or ``None`` without a connection."""
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return f"{context.gcs_address} {context.get_job_id()}"


def lost() -> str | None:
    """Return what of Ray has ended under this program, if anything.

    Ray would end the program for it at the next large thing that is sent: within a minute, or at once and without a
    word.
    """
    node: Any = global_worker.node
    if node is None:
        return None  # inside of a Ray task or actor, which ends with its raylet
    try:
        if hasattr(socket, "AF_UNIX"):
            with socket.socket(socket.AF_UNIX) as raylet:
                raylet.settimeout(_ANSWER_SECONDS)
                raylet.connect(node.raylet_socket_name)
    except OSError:
        return "Ray has ended on this machine"
    host, port = node.gcs_address.rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        return f"the Ray head at {node.gcs_address} does not answer ({error})"
    return None


_users: list[int] = []  # threads, each as often as it is in `used`
_changed = threading.Condition()


@contextmanager
def used() -> Iterator[None]:
    """Hold that this thread is using the connection."""
    with _changed:
        _users.append(threading.get_ident())
    try:
        yield
    finally:
        with _changed:
            _users.remove(threading.get_ident())
            _changed.notify_all()


def wait_until_unused(seconds: float) -> None:
    """Wait until no other thread uses the connection, but not longer than ``seconds``."""
    with _changed:
        _changed.wait_for(lambda: set(_users) <= {threading.get_ident()}, seconds)


def keep_handler() -> Callable[[], None]:
    """Return what puts the program's SIGTERM handler back: Ray takes its place when it starts, and keeps it."""
    before = signal.getsignal(signal.SIGTERM)

    def restore() -> None:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)

    return restore

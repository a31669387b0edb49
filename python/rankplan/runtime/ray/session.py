"""The connection of this process to Ray: its identity, and the threads that use it.

Ray starts a new cluster for a call on anything that outlived its connection, so such calls must be refused.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray


def current() -> str | None:
    """Return a text that identifies this process's connection to Ray, or ``None`` without a connection."""
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return f"{context.gcs_address} {context.get_job_id()}"


_users: list[int] = []  # thread ids, one for each `used` that the thread is in
_changed = threading.Condition()


@contextmanager
def used() -> Iterator[None]:
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


def keep_handler() -> Callable[[], None]:
    """Return a function that restores the program's SIGTERM handler, which Ray replaces when it starts."""
    before = signal.getsignal(signal.SIGTERM)

    def restore() -> None:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)

    return restore

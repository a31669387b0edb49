"""Failures of ranks: from the exceptions of the user's code and of Ray to one sentence."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import TypeVar

from ray import cloudpickle
from ray.exceptions import (
    ActorUnavailableError,
    ActorUnschedulableError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RaySystemError,
    RayTaskError,
    TaskUnschedulableError,
)

from rankplan._core import Placement
from rankplan.errors import LaunchError
from rankplan.runtime.ray.internals import death, memory_shortage, unloadable
from rankplan.words import printable

_Error = TypeVar("_Error", bound=Exception)

_LONGEST_LINE = 1000  # characters; more is in the traceback
_LONGEST_TRACEBACK = 50_000


def launch_error(component: str, row: Placement, what: str) -> LaunchError:
    """Return the error for a rank that cannot be launched as planned: its name, followed by the cause ``what``."""
    where = component, row.rank, row.cluster_node_rank
    return LaunchError(f"{component} rank {row.rank} (node {row.cluster_node_rank}){what}", *where)


class RankFailure(Exception):
    """An exception of the user's code on its way from a rank to the driver.

    It carries text, and the exception itself as bytes: an exception the driver cannot unpickle is harmless.
    """

    def __init__(self, summary: str, remote_traceback: str, pickled: bytes | None) -> None:
        super().__init__(summary, remote_traceback, pickled)
        self.summary, self.remote_traceback, self.pickled = summary, remote_traceback, pickled

    def __str__(self) -> str:
        return self.summary

    @classmethod
    def of(cls, error: BaseException) -> RankFailure:
        """Pack an exception that was just caught, without the frame that caught it."""
        caught = error.__traceback__
        lines = traceback.format_exception(type(error), error, caught.tb_next if caught else None)
        try:
            pickled = cloudpickle.dumps(error)
        except Exception:
            pickled = None
        return cls(_summary(error), _sendable("".join(lines)), pickled)

    def cause(self) -> BaseException | None:
        """Return the exception, or ``None`` if it cannot be loaded in this process."""
        try:
            error = None if self.pickled is None else pickle.loads(self.pickled)
        except Exception:
            return None
        return error if isinstance(error, BaseException) else None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a rank gave no answer: one sentence, and the remote traceback and the exception if known."""

    reason: str
    remote_traceback: str | None = None
    cause: BaseException | None = None

    @classmethod
    def of(cls, error: Exception) -> Fault:
        """Describe an exception that Ray raised instead of returning an answer."""
        if isinstance(error, RayTaskError):
            if isinstance(error.cause, RankFailure):
                return cls(f"raised {error.cause.summary}", error.cause.remote_traceback, error.cause.cause())
            return cls(f"failed: {_summary(error)}", str(error), error.cause)
        if isinstance(error, (ActorUnschedulableError, TaskUnschedulableError)):
            return cls("could not start: its node has left the cluster", cause=error)
        if isinstance(error, ActorUnavailableError):
            # the connection broke, and Ray does not know why: it takes about 15 s to declare a node dead
            return cls(
                "gave no answer, its process cannot be reached: the process, its node or the network is down",
                cause=error,
            )
        if isinstance(error, OutOfMemoryError):
            return cls(f"gave no answer, Ray has killed its process: {memory_shortage(error)}", cause=error)
        if isinstance(error, RayActorError):
            return cls(f"gave no answer, its process is gone: {death(error)}", cause=error)
        if isinstance(error, ObjectLostError):
            return cls("gave an answer that is lost: the node that held it died before it was fetched", cause=error)
        if isinstance(error, RaySystemError) and (cause := unloadable(error)) is not None:
            return cls(f"gave an answer that cannot be unpickled by the driver: {_summary(cause)}", cause=cause)
        return cls(f"gave no answer: {_summary(error)}", cause=error)

    def noted(self, error: _Error) -> _Error:
        """Add the remote traceback to an error, as a note that Python prints below it, and return the error."""
        if self.remote_traceback is not None:
            error.add_note(self.remote_traceback)
        return error


def _summary(error: BaseException) -> str:
    """Return the type and the first line of the text of an exception."""
    if isinstance(error, RayTaskError):
        error = error.cause  # the first line of the error itself names Ray's task, in colour
    try:
        text = str(error).strip()
    except Exception:
        text = "its text cannot be read"
    line, name = plain(text.partition("\n")[0]), type(error).__name__
    return f"{name}: {line}" if line else name


def plain(line: str) -> str:
    """Return a line without control characters, shortened if it is very long."""
    kept = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."
    return printable(kept)


def _sendable(text: str) -> str:
    """Return a traceback without lone surrogates, and without its middle if it is very long.

    Ray ends a process that sends lone surrogates, which occur in the names of files.
    """
    if (left_out := len(text) - _LONGEST_TRACEBACK) > 0:
        half = _LONGEST_TRACEBACK // 2
        text = f"{text[:half]}\n... {left_out} characters left out ...\n{text[-half:]}"
    return text.encode(errors="backslashreplace").decode()

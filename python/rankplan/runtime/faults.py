"""What went wrong in a rank, in words: from the exceptions of users' code and of Ray to rankplan's own."""

from __future__ import annotations

import pickle
import re
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

_Error = TypeVar("_Error", bound=Exception)

_LONGEST_LINE = 1000  # characters; more is in the traceback
_LONGEST_TRACEBACK = 50_000


class RankFailure(Exception):
    """An exception of the user's code on its way from a rank to the driver.

    It carries texts, and the exception itself only as bytes: one that the driver cannot load spoils nothing then.
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
        """Return the exception, where it can be loaded here."""
        try:
            error = None if self.pickled is None else pickle.loads(self.pickled)
        except Exception:
            return None
        return error if isinstance(error, BaseException) else None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a rank gave no answer: in one sentence, with the traceback of its process and the exception where known."""

    reason: str
    remote_traceback: str | None = None
    cause: BaseException | None = None

    @classmethod
    def of(cls, error: Exception) -> Fault:
        """Read an exception that Ray raised in place of an answer."""
        if isinstance(error, RayTaskError):
            if isinstance(error.cause, RankFailure):
                return cls(f"raised {error.cause.summary}", error.cause.remote_traceback, error.cause.cause())
            return cls(f"failed: {_summary(error)}", str(error), error.cause)
        if isinstance(error, (ActorUnschedulableError, TaskUnschedulableError)):
            return cls("found no node: the one it is planned on has left the cluster", cause=error)
        if isinstance(error, ActorUnavailableError):
            # the process broke off and Ray does not know why: it takes some 15 s to declare a node dead
            return cls(
                "gave no answer, its process cannot be reached: it, its node or the network is down", cause=error
            )
        if isinstance(error, OutOfMemoryError):
            return cls(f"gave no answer, Ray has killed its process: {_shortage(str(error))}", cause=error)
        if isinstance(error, RayActorError):
            return cls(f"gave no answer, its process is gone: {_death(str(error))}", cause=error)
        if isinstance(error, ObjectLostError):
            return cls("gave an answer that is lost: the node that held it died before it was fetched", cause=error)
        if isinstance(error, RaySystemError) and isinstance(error.client_exc, Exception):
            unloadable = error.client_exc
            return cls(f"gave an answer that cannot be loaded here: {_summary(unloadable)}", cause=unloadable)
        return cls(f"gave no answer: {_summary(error)}", cause=error)

    def noted(self, error: _Error) -> _Error:
        """Return the error with the remote traceback, where there is one, as a note that Python prints below it."""
        if self.remote_traceback is not None:
            error.add_note(self.remote_traceback)
        return error


def _summary(error: BaseException) -> str:
    """Return the type and the first line of an exception's text, as far as a line goes."""
    if isinstance(error, RayTaskError):
        error = error.cause  # its own first line names Ray's task, in colours
    try:
        text = str(error).strip()
    except Exception:
        text = "its text cannot be had"
    line, name = plain(text.partition("\n")[0]), type(error).__name__
    return f"{name}: {line}" if line else name


def plain(line: str) -> str:
    """Return a line that harms no terminal, cut where it is too long to be read."""
    kept = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in kept)


def _sendable(text: str) -> str:
    """Return a traceback, its middle left out where it is very long, without halves of characters.

    Ray would end the process for these, which are in the names of files.
    """
    if (left_out := len(text) - _LONGEST_TRACEBACK) > 0:
        half = _LONGEST_TRACEBACK // 2
        text = f"{text[:half]}\n... {left_out} characters left out ...\n{text[-half:]}"
    return text.encode(errors="backslashreplace").decode()


_DEATH_HEADER = ("class_name:", "actor_id:", "pid:", "namespace:", "ip:", "name:")


def _death(text: str) -> str:
    """Return what Ray's message on a dead actor says about the cause, on one line."""
    lines = [line.strip() for line in text.splitlines()[1:]]
    reason = " ".join(line for line in lines if line and not line.startswith(_DEATH_HEADER)) or text
    if "its node has died" in reason:
        why = re.search(r"terminated \w+: (.*?)( The actor never ran|$)", reason)
        return f"its node has died ({why[1]})" if why else "its node has died"
    if "ray.kill" in reason:
        return "it was ended, with its group or by ray.kill"
    if "SIGTERM" in reason:
        return "it was ended by SIGTERM"
    if exited := re.search(r"exit code (.+?)\.( exit_actor\(\) is called\.)?$", reason):
        return f"it exited (code {exited[1]})"
    if "End of file" in reason:
        return "it ended without a word (killed, out of memory, or a crash)"
    return reason.rsplit("Worker exit detail:", 1)[-1].split(" Some common causes")[0].strip()


def _shortage(text: str) -> str:
    """Return what Ray's report on a node without memory says about the node."""
    used = re.search(r"was (\S+ used / \S+) limit", text)
    return f"its node ran low on memory ({used[1]})" if used else "its node ran low on memory"

"""What went wrong in a rank, in words: from the exceptions of users' code and of Ray to rankplan's own."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import TypeVar

from ray import cloudpickle
from ray.exceptions import ActorUnavailableError, ActorUnschedulableError, RayActorError, RayTaskError

_Error = TypeVar("_Error", bound=Exception)


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
        return cls(_summary(error), "".join(lines), pickled)

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
            return cls(f"failed: {type(error.cause).__name__}: {error.cause}", str(error), error.cause)
        if isinstance(error, ActorUnschedulableError):
            return cls("found no node: the one it is planned on has left the cluster", cause=error)
        if isinstance(error, RayActorError) and not isinstance(error, ActorUnavailableError):
            return cls(f"got no answer, its process is gone: {_death(str(error))}", cause=error)
        return cls(f"got no answer: {error}", cause=error)

    def noted(self, error: _Error) -> _Error:
        """Return the error with the remote traceback, where there is one, as a note that Python prints below it."""
        if self.remote_traceback is not None:
            error.add_note(self.remote_traceback)
        return error


def _summary(error: BaseException) -> str:
    """Return the type and the first line of an exception's text."""
    try:
        text = str(error).strip()
    except Exception:
        text = "its text cannot be had"
    name = type(error).__name__
    return f"{name}: {text.splitlines()[0]}" if text else name


_DEATH_HEADER = ("class_name:", "actor_id:", "pid:", "namespace:", "ip:", "name:")


def _death(text: str) -> str:
    """Return the part of Ray's message on a dead actor that says why, on one line."""
    lines = [line.strip() for line in text.splitlines()[1:]]
    reason = " ".join(line for line in lines if line and not line.startswith(_DEATH_HEADER)) or text
    detail = reason.rsplit("Worker exit detail:", 1)[-1].split(" Some common causes")[0].strip()
    return "it ended without a word (killed, out of memory, or a crash)" if "End of file" in detail else detail

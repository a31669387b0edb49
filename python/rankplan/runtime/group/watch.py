"""Noticing dead ranks and nodes without a call in flight."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ray

from rankplan._core import RankSet
from rankplan.errors import WorkerError
from rankplan.runtime.group.crew import Crew, LiveRank
from rankplan.runtime.ray import session, timeouts
from rankplan.runtime.ray.answers import outcomes, ranks_text
from rankplan.runtime.ray.faults import Fault
from rankplan.runtime.ray.internals import actor_id, dead_actors
from rankplan.words import nodes_text

_logger = logging.getLogger("rankplan")


@dataclass(frozen=True, slots=True)
class Failure:
    """Ranks of a group that are dead.

    ``ranks`` are their process ranks and ``nodes`` the node ranks that they ran on, of the plan that the group runs.
    ``dead_nodes`` are the ones among these nodes that have left the cluster; on the others, only processes have died.
    ``reason`` is why the first of the ranks is gone.
    """

    component: str
    ranks: RankSet
    nodes: RankSet
    dead_nodes: RankSet
    reason: str

    def __str__(self) -> str:
        verb = "is" if len(self.ranks) == 1 else "are"
        where = f"({nodes_text(self.nodes)})"
        return f"{self.component} {ranks_text(self.ranks)} {where} {verb} gone: {self.reason}"


def dead_ranks(ranks: Sequence[LiveRank]) -> list[LiveRank]:
    """Return the ranks that are dead, or on a node that has left the cluster."""
    dead, present = dead_actors(), _present()
    return [rank for rank in ranks if actor_id(rank.actor) in dead or rank.spec.node_id not in present]


def wait_for_failure(crew: Crew, timeout: float | None) -> Failure | None:
    """Return which ranks are dead as soon as some are; ``None`` after ``timeout`` seconds.

    Raises ``WorkerError`` if the group ends meanwhile.
    """
    dead = _wait(crew, timeout, frozenset())
    return _failure(crew, dead) if dead else None


def watch(crew: Crew, on_failure: Callable[[Failure], object]) -> None:
    """Call a function in a thread of its own whenever ranks have died, until the group ends."""

    def run() -> None:
        known: frozenset[str] = frozenset()
        while True:
            try:
                dead = _wait(crew, None, known)
                failure = _failure(crew, dead)
            except WorkerError:
                return
            except Exception as error:
                _logger.warning("%s: no failure will be reported any more: %s", crew.component, error)
                return
            known |= {actor_id(rank.actor) for rank in dead}
            try:
                on_failure(failure)
            except Exception:
                if not crew.ended:
                    _logger.exception("%s: on_failure has failed", crew.component)

    threading.Thread(target=run, name=f"rankplan-watch-{crew.component}", daemon=True).start()


def _wait(crew: Crew, timeout: float | None, known: frozenset[str]) -> list[LiveRank]:
    """Return the ranks that are dead, without those ``known``, as soon as there are some; none after ``timeout``."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        with session.used():
            _check_running(crew)
            dead = [rank for rank in dead_ranks(list(crew.ranks)) if actor_id(rank.actor) not in known]
        if dead:
            _check_running(crew)  # its end kills its ranks
            return dead
        left = deadline - time.monotonic()
        if left <= 0:
            return []
        time.sleep(min(timeouts.WATCH, left))


def _check_running(crew: Crew) -> None:
    if not crew.is_running:
        raise WorkerError(f"{crew.component}: the group was shut down; launch it again", crew.component)


def _failure(crew: Crew, dead: Sequence[LiveRank]) -> Failure:
    with session.used():
        _check_running(crew)
        present = _present()
        (word,) = outcomes([dead[0].actor.look.remote()], timeouts.ANSWER)
    rows = [rank.placement for rank in dead]
    gone = {rank.placement.cluster_node_rank for rank in dead if rank.spec.node_id not in present}
    reason = word.reason if isinstance(word, Fault) else "its node has left the cluster"
    return Failure(
        crew.component,
        RankSet(row.rank for row in rows),
        RankSet(row.cluster_node_rank for row in rows),
        RankSet(gone),
        reason.removeprefix("gave no answer, ").removeprefix("its process is gone: "),
    )


def _present() -> set[str]:
    return {entry["NodeID"] for entry in ray.nodes() if entry["Alive"]}

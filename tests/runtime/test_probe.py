"""What the probe of a node says, and which of two records of a node is the present one, without a cluster."""

from __future__ import annotations

import errno
import os

import pytest
from rankplan import ClusterError, NodeSpec
from rankplan._core import RankSet
from rankplan.runtime.nodes.nodes import FoundNode
from rankplan.runtime.nodes.probe import _fault, without_replaced
from rankplan.runtime.ray.answers import Fault
from ray.exceptions import OutOfDiskError, RayTaskError


def task_error(cause: Exception) -> RayTaskError:
    """What Ray raises for a task that has raised this."""
    return RayTaskError("look", "Traceback", cause)


@pytest.mark.parametrize(
    "error",
    [
        task_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
        task_error(OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))),
        OutOfDiskError(),
        task_error(RuntimeError("cannot start: [Errno 28] No space left on device: '/tmp/ray/session'")),
    ],
)
def test_a_full_disk_is_named_as_the_cause(error: Exception) -> None:
    message = str(_fault("10.0.0.9  n1", Fault.of(error), 60.0))
    assert message.startswith("node 10.0.0.9  n1: a disk of it is full: the probe ")
    assert message.endswith("make room there, for Ray's files (RAY_TMPDIR, by default /tmp/ray) in particular")


def test_what_is_no_full_disk_is_another_version() -> None:
    message = str(_fault("n1", Fault.of(task_error(OSError(errno.ENOENT, "No such file"))), 60.0))
    assert message.endswith("; install the same version of rankplan on every node")


def node(node_id: str, ip: str, *, answers: bool) -> FoundNode:
    fault = None if answers else ClusterError("gone")
    return FoundNode(node_id, NodeSpec(ranks=RankSet(), hostname="host", ip=ip), fault=fault)


def test_a_record_that_does_not_answer_is_that_of_a_node_that_was_started_again() -> None:
    before = node("a", "10.0.0.1", answers=False)
    after, second = node("b", "10.0.0.1", answers=True), node("c", "10.0.0.1", answers=True)
    other = node("d", "10.0.0.2", answers=False)
    assert without_replaced([before, after, other]) == [after, other]
    assert without_replaced([after, second]) == [after, second], "two raylets of one machine"
    assert without_replaced([before, other]) == [before, other]

"""``rankplan.pin`` and ``rankplan.pinned``: a Ray program whose placement groups are bound to the nodes of a plan."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import ray as _ray

from rankplan.errors import ClusterError, Diagnostic
from rankplan.front import Config, read_job, saved_plan
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.runtime.cluster import Cluster
from rankplan.runtime.live.binding import Binding, bound, check_hook
from rankplan.runtime.live.commands import check_command, check_hook_folder, command_environment
from rankplan.runtime.live.watch import Watch
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.connection import connect, head_of
from rankplan.runtime.ray.head import Head
from rankplan.starting.child import run_child
from rankplan.words import shown

Others: TypeAlias = Literal["refuse", "pass"]
"""What happens to requests with accelerators that the plan does not have."""

Devices: TypeAlias = Literal["warn", "require"]
"""Whether ranks on the right node must also have the accelerators of the plan."""

Tell: TypeAlias = Callable[["Diagnostic | str"], None]


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a command: its exit code, the plan as it was pinned, and every fault.

    ``pinned`` and ``requests`` count the groups of the plan that came, and all. ``refused`` are the faults of requests
    that the plan does not have; they are also in ``faults``.
    """

    code: int
    plan: Plan
    pinned: int
    requests: int
    faults: tuple[Diagnostic, ...]
    detached: tuple[str, ...]

    @property
    def returncode(self) -> int:
        """The command's own exit code; 1 if it ended with 0 although the plan was not kept."""
        return self.code or int(bool(self.faults))

    @property
    def refused(self) -> tuple[Diagnostic, ...]:
        """The faults of requests that the plan does not have."""
        return tuple(fault for fault in self.faults if fault.code == "plan-mismatch")


def pin(
    config: Config,
    command: Sequence[str],
    *,
    ray: str | None = None,
    others: Others = "refuse",
    devices: Devices = "warn",
    timeout: float = timeouts.PINNED,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    isolate: bool | None = None,
    node_order: str | None = None,
    tell: Tell | None = None,
) -> Ran:
    """Run a Ray program, unchanged, with its placement groups on the nodes of the plan; as ``rankplan pin`` does.

    ``config`` is a trainer's config, a launch script (read, not run), or a saved plan; see `rankplan.plan`. ``command``
    is the program with its arguments. ``ray`` is the address of the running cluster, found by Ray by default.
    ``others`` tells what happens to requests with accelerators that the plan lacks: ``"refuse"``, at the call, or
    ``"pass"``, on what the plan leaves free. ``timeout`` are the seconds from the first group to the last rank, after
    which missing ones are told. ``tell`` gets every fault and note at once. The call returns when the command ends.

    Raises `PlacementError` with every fault of the config, the script or the cluster, `ClusterError`, ``ValueError``
    for invalid arguments, and ``OSError`` for a file that cannot be read or a command that cannot be started.
    """
    command = list(command)
    if not command:
        raise ValueError("the command is empty; pass the program with its arguments")
    if others not in get_args(Others) or devices not in get_args(Devices):
        raise ValueError(f"others is {shown(others)}, devices is {shown(devices)}; see rankplan.pin")
    if not timeout > 0 or not math.isfinite(timeout):
        raise ValueError(f"timeout is {shown(timeout)}; it must be a number of seconds above 0")
    environment = dict(os.environ)
    check_command(command)
    check_hook_folder()
    planned = _planner(config, dialect, overrides, without, isolate=isolate)
    say = tell or (lambda told: None)
    head = head_of(ray)
    _check_versions(head)
    binding = _looked_at(planned, head, node_order, lenient=others == "pass")
    for note in binding.notes:
        say(note)
    address = ray if ray not in (None, "auto") else "auto"
    watch = Watch(binding, head, say, timeout)
    binding.publish(head)
    try:
        code = run_child(command, command_environment(environment, binding.run, address), watch.look, timeouts.LOOK)
        watch.finish(code)
    finally:
        with suppress(ClusterError):
            binding.withdraw(head)
    have, all = watch.pinned
    detached = tuple(f"{id} {name}".rstrip() for id, name in watch.seen.detached.items())
    return Ran(code, binding.plan, have, all, tuple(watch.seen.faults.values()), detached)


@contextmanager
def pinned(plan: Plan | Config, ray: str | None = None) -> Iterator[Binding]:
    """Bind the placement groups that this program creates in the ``with`` to the nodes of a plan.

    The program must be connected to Ray, or is connected to ``ray``. Groups that its workers create are not bound.
    """
    raise NotImplementedError
    yield


def _planner(
    config: Config, dialect: str | None, overrides: Sequence[str], without: Sequence[str], *, isolate: bool | None
) -> Callable[[Inventory], Plan]:
    """Return the function from the nodes of a cluster to the plan; faults that need no cluster are raised now."""
    if (saved := saved_plan(config, None, dialect, overrides)) is not None:

        def fitted(inventory: Inventory) -> Plan:
            found = saved.fitted(inventory.without(without) if without else inventory)
            return found if isolate is None else found.with_visibility("own" if isolate else "node")

        return fitted
    job = read_job(config, "1x1", dialect=dialect, overrides=overrides)
    job.reader.fork().finish()

    def plan(inventory: Inventory) -> Plan:
        inventory = inventory.without(without) if without else inventory
        return replace(job, inventory=inventory, labelled=True, assumed=False).plan(isolate=isolate, pinned=True)

    return plan


def _check_versions(head: Head) -> None:
    pass


def _looked_at(planned: Callable[[Inventory], Plan], head: Head, node_order: str | None, *, lenient: bool) -> Binding:
    """Look at the cluster as a job of its own, which has ended when the command starts."""
    tables = head.tables()
    connected = _ray.is_initialized()
    connect(head.address, None)
    try:
        check_hook()
        with Cluster(node_order=node_order) as cluster:
            return bound(planned, cluster.nodes, tables, lenient=lenient)
    finally:
        if not connected:
            _ray.shutdown()

"""``rankplan.pin`` and ``rankplan.pinned``: a Ray program whose placement groups are bound to the nodes of a plan."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import ray as _ray
from rankplan_hook.names import VARIABLE, WRAPPED
from rankplan_hook.wrap import unwrap, wrap
from ray.exceptions import RayError

from rankplan.errors import ClusterError, Diagnostic
from rankplan.front.job import Config, job_file_of, opened, saved_plan, unplaced_job
from rankplan.front.pinning import Planner, check_requests, moved_lines, planner_of
from rankplan.front.warnings import reject_saved
from rankplan.frozen import frozen
from rankplan.launchers.exec.child import run_child
from rankplan.memory.peaks import Peak
from rankplan.plans.plan import Plan
from rankplan.read.sources import Planned, Sources
from rankplan.runtime.cluster import Cluster
from rankplan.runtime.live.binding import Binding, bound, check_nodes, fit
from rankplan.runtime.live.commands import check_command, check_hook_folder, command_environment
from rankplan.runtime.live.meters import metered
from rankplan.runtime.live.peaks import NO_PEAKS, ComponentPeaks, Ending, peak_lines, write_peaks
from rankplan.runtime.live.report import difference_lines
from rankplan.runtime.live.runs import remove_ended
from rankplan.runtime.live.watch import Watch
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import as_timeout
from rankplan.runtime.ray.connection import connect, head_of, joined
from rankplan.runtime.ray.head import Head
from rankplan.runtime.usage.held import Held
from rankplan.runtime.usage.model import Difference, Live
from rankplan.tuning.measurements import check_addable
from rankplan.words import counted, shown, wrong_type

Others: TypeAlias = Literal["refuse", "pass"]
"""What happens to requests with accelerators that the plan does not have."""

Devices: TypeAlias = Literal["warn", "require"]
"""Whether ranks on the right node must also have the accelerators of the plan."""

_OLDEST = (2, 49)
"""The first version of Ray with label selectors of bundles."""

Tell: TypeAlias = Callable[["Diagnostic | str"], None]


@frozen
class Ran:
    """What became of a command.

    ``code`` is its own exit code, ``plan`` the plan that it was bound to. Of ``requests`` placement groups of the plan,
    ``pinned`` came. After ``seconds``, all ranks were up; ``live`` is what ran then, with its differences, or what ran
    after the timeout if some were not.
    ``detached`` are the groups that outlive the command, by id. ``moved`` are the addresses before and now, by node
    rank, of nodes of a saved plan that were exchanged for the order of the trainer. ``peaks`` are the most memory of
    each component, if they were measured and written.
    """

    code: int
    plan: Plan
    pinned: int
    requests: int
    seconds: float | None
    live: Live | None
    faults: tuple[Diagnostic, ...]
    detached: Mapping[str, str]
    moved: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    peaks: Mapping[str, tuple[Peak, ...]] = field(default_factory=dict)

    @property
    def returncode(self) -> int:
        """The command's own exit code; 1 if it ended with 0 although the plan was not kept."""
        return self.code or int(bool(self.faults))

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The differences from the plan; none if the program ended before all ranks came up."""
        return () if self.live is None else self.live.differences

    @property
    def refused(self) -> tuple[Diagnostic, ...]:
        """The faults of requests that the plan lacks, and of those that never came."""
        return tuple(fault for fault in self.faults if fault.code == "plan-mismatch")

    def lines(self) -> list[str]:
        """Return the report as lines."""
        compared = None if self.live is None else self.live.compared
        lines = []
        if self.live is not None and compared is not None:
            text = f"{compared.on_nodes} of {counted(compared.ranks, 'rank')} on their nodes"
            text += f", {compared.on_accelerators} on their accelerators"
            if compared.untold:
                text += f", {compared.untold} on accelerators that Ray does not tell"
            lines.append(text)
            if compared.differences:
                lines += difference_lines(self.live)
        lines += moved_lines(self.moved)
        has_lone_actors = any(request.strategy is None and not request.optional for request in self.plan.requests)
        kinds = "groups and actors" if has_lone_actors else "groups"
        lines.append(f"{kinds}: {self.pinned} of {self.requests} pinned")
        if self.seconds is not None:
            lines.append(f"started in {self.seconds:.1f} s")
        for id, name in self.detached.items():
            lines.append(f"left running: detached placement group {shown(name) if name else id}; remove it with")
            lines.append(f"  {_REMOVE.format(id)}")
        return [*lines, *peak_lines(self.peaks)]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        compared = None if self.live is None else self.live.compared
        return {
            "returncode": self.returncode,
            "ranks": None if compared is None else compared.ranks,
            "on_nodes": None if compared is None else compared.on_nodes,
            "on_accelerators": None if compared is None else compared.on_accelerators,
            "untold_accelerators": None if compared is None else compared.untold,
            "groups": self.requests,
            "pinned": self.pinned,
            "seconds": self.seconds,
            "differences": [{**asdict(difference), "ranks": str(difference.ranks)} for difference in self.differences],
            "faults": [fault.plain() for fault in self.faults],
            "detached": dict(self.detached),
            "moved": {str(rank): list(names) for rank, names in self.moved.items()},
            "peaks": {name: [peak.plain() for peak in peaks] for name, peaks in self.peaks.items()},
        }


_REMOVE = (
    'python3 -c "import ray; from ray.util.placement_group import *; ray.init(); '
    "remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex('{}')))\""
)


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
    verbose: bool = False,
    tell: Tell | None = None,
    report: Callable[[Ran], None] | None = None,
    save: str | os.PathLike[str] | None = None,
    peaks: str | os.PathLike[str] | None = None,
) -> Ran:
    """Run a Ray program, unchanged, with its placement groups on the nodes of the plan; as ``rankplan pin`` does.

    ``config`` is a trainer's config, a launch script (read, not run), or a saved plan; see `rankplan.plan`. ``command``
    is the program with its arguments. ``ray`` is the address of the running cluster, found by Ray by default.
    ``others`` tells what happens to requests with accelerators that the plan lacks: ``"refuse"``, at the call, or
    ``"pass"``, on what the plan leaves free. With ``devices="require"``, other accelerators than planned on the right
    node are a fault. ``timeout`` are the seconds from the first group to the last rank, after which missing ones are
    told. ``verbose`` tells what is wrapped in the program, and the nodes of each request. ``tell`` gets every fault and
    note at once, ``report`` what ran when all ranks are up, and when that changes. The call returns when the command
    ends.

    ``save`` is the path to which the plan is written as it runs, with its nodes, before the command starts. ``peaks``
    is that of a file of costs, to which the most memory of each component is added at the end, as NVML counts it. The
    file is not changed if the command fails, or if its ranks are elsewhere than planned.

    Raises `PlacementError` with every fault of the config, the script or the cluster, `ClusterError`, ``ValueError``
    for invalid arguments, and ``OSError`` for a file that cannot be read or a command that cannot be started.
    """
    command = _words(command)
    _check_word("others", others, get_args(Others))
    _check_word("devices", devices, get_args(Devices))
    timeout = as_timeout(timeout)
    environment = dict(os.environ)
    if VARIABLE in environment:
        raise ClusterError(f"this is under `rankplan pin` already ({VARIABLE} is set): leave out one of the two")
    check_hook_folder()
    if peaks is not None:
        check_addable(Path(peaks))
    config = opened(config)
    saved = saved_plan(config, None, dialect, overrides)
    planned = _planner(config, saved, dialect, overrides, without, isolate=isolate)
    check_command(command)  # last: a job that cannot be pinned may start a program that is not on this machine
    head = head_of(ray)
    say: Tell = tell or _silent
    binding = _looked_at(planned, head, say, node_order, lenient=others == "pass", saved=saved)
    if verbose:
        for line in binding.lines():
            say(line)
    if save is not None:
        binding.plan.save(save)
    # Ray offers the token of this machine only to a cluster that it finds itself.
    address = (environment.get("RAY_ADDRESS") or "auto") if ray in (None, "auto") else ray

    def up() -> None:
        if report is not None:
            report(_ran(binding, watch, 0))

    name = os.fspath(config) if isinstance(config, str | os.PathLike) else "the plan"
    watch = Watch(binding, head, say, timeout, name=name, strict=devices == "require", up=up)
    variables = command_environment(environment, binding.run, address)
    if peaks is None:
        ended = _run(command, variables, binding, head, watch, say)
        return _ran(binding, watch, ended.code)
    with metered(binding, head) as meters:
        started = time.monotonic()
        ended = _run(command, variables, binding, head, watch, say)
        live = None if watch.seen.faults else watch.seen.live
        ending = Ending(ended.code, time.monotonic() - started, ended.is_over, live, ended.signals)
        return _ran(binding, watch, ended.code, write_peaks(Path(peaks), binding, meters.cards(), ending, say))


class _Ended(NamedTuple):
    """The exit code of a command, whether its jobs have ended, too, and the signals that were passed on to it."""

    code: int
    is_over: bool
    signals: tuple[int, ...]


def _run(
    command: Sequence[str], variables: Mapping[str, str], binding: Binding, head: Head, watch: Watch, tell: Tell
) -> _Ended:
    """Publish the pins, run a command, and watch it. The pins stay in the head's store while a job of it goes on."""
    signals: list[int] = []
    binding.publish(head)
    is_over = True
    try:
        code = run_child(command, variables, watch.look, timeouts.LOOK, signals.append)
        is_over = watch.finish(code)
        if not is_over:
            tell("a job of the command is still running, and stays pinned")
    finally:
        if is_over:
            with suppress(ClusterError, RayError):
                binding.withdraw(head)
    return _Ended(code, is_over, tuple(signals))


def _ran(binding: Binding, watch: Watch, code: int, peaks: ComponentPeaks = NO_PEAKS) -> Ran:
    """Return what has become of a command so far."""
    seen = watch.seen
    came, requests = watch.pinned
    return Ran(
        code=code,
        plan=binding.plan,
        pinned=came,
        requests=requests,
        seconds=seen.seconds,
        live=seen.live or seen.partial,
        faults=tuple(seen.faults.values()),
        detached=dict(seen.detached),
        moved=binding.moved,
        peaks=peaks,
    )


def _silent(text: Diagnostic | str) -> None:
    """Tell nobody."""


def _check_word(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {shown(value)}; it must be {' or '.join(allowed)}")


def _words(command: Sequence[str]) -> list[str]:
    """Return the words of a command. Raises ``TypeError`` for anything else, and ``ValueError`` if there is none."""
    is_list = isinstance(command, Sequence) and not isinstance(command, str)
    if not is_list or not all(isinstance(word, str) for word in command):
        raise wrong_type("command", command, 'the program and its arguments: ["python", "train.py"]')
    if not command:
        raise ValueError("the command is empty; pass the program with its arguments")
    return list(command)


@contextmanager
def pinned(plan: Config, ray: str | None = None) -> Iterator[Binding]:
    """Bind the placement groups that this program creates in the ``with`` to the nodes of a plan.

    ``plan`` is a plan, its path, or a trainer's config. The program keeps its connection to Ray, or is connected to the
    cluster at ``ray``. Groups that other processes create are not bound. A request that the plan lacks raises
    `rankplan_hook.pins.NotPlanned` at the call.

    Raises `PlacementError`, also at the end (``plan-mismatch``) if requests of the plan have not come, and
    `ClusterError`.
    """
    if VARIABLE in os.environ:
        raise ClusterError("this program runs under `rankplan pin`, or in another rankplan.pinned()")
    plan = opened(plan)
    saved = saved_plan(plan)
    planned = _planner(plan, saved, None, (), (), isolate=None)
    head = head_of(ray)
    connect(head.address, None)
    binding = _looked_at(planned, head, _silent, None, lenient=False, saved=saved)
    watch = Watch(binding, head, _silent, math.inf)
    modules = [sys.modules[name] for name in WRAPPED if name in sys.modules]
    job = str(_ray.get_runtime_context().get_job_id())
    earlier = {group.group_id for group in head.tables().groups}
    binding.publish(head, job)
    os.environ[VARIABLE] = binding.run
    try:
        for module in modules:
            wrap(module, loaded=True)
        yield binding
        watch.check_all_came(job, earlier)
    finally:
        for module in modules:
            unwrap(module)
        del os.environ[VARIABLE]
        with suppress(ClusterError, RayError):
            binding.withdraw(head)


def _planner(
    config: Config,
    saved: Plan | None,
    dialect: str | None,
    overrides: Sequence[str],
    without: Sequence[str],
    *,
    isolate: bool | None,
) -> Planner:
    """Return the function from the nodes of a cluster to the plan; faults that need no cluster are raised now."""
    if saved is not None:
        check_requests(saved)
        reject_saved(saved, job_file_of(config))

        def fitted(nodes: Nodes, held: Held) -> Planned:
            plan = fit(saved, nodes, held, without)
            if isolate is not None:
                plan = plan.with_visibility("own" if isolate else "node")
            return Planned(plan, Sources())

        return fitted
    return planner_of(unplaced_job(config, dialect=dialect, overrides=overrides), without, isolate=isolate)


def _looked_at(
    planned: Planner, head: Head, tell: Tell, node_order: str | None, *, lenient: bool, saved: Plan | None
) -> Binding:
    """Look at the cluster as a job of its own, which has ended when the command starts.

    Where a launcher has set node ranks, those that a ``saved`` plan uses may still be joining.
    """
    if tuple(map(int, _ray.__version__.split(".")[:2])) < _OLDEST:
        raise ClusterError(f"Ray {_ray.__version__} cannot bind placement groups to nodes; use 2.49 or later")
    remove_ended(head)
    with joined(head):
        check_nodes()
        with Cluster(node_order=node_order, plan=saved, spares=True) as cluster:
            return bound(planned, cluster.nodes, head.tables(), tell, lenient=lenient, saved=saved)

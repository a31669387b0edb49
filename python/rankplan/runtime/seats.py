"""Seats: each row of a plan with its node on a live cluster and the settings of its node group."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from rankplan._core import RankSet
from rankplan.component import Component
from rankplan.environment import expanded, planned_environment, start_variables
from rankplan.errors import LaunchError
from rankplan.placement import Placement
from rankplan.runtime import timeouts
from rankplan.runtime.calls import Failed, Unanswered, collect
from rankplan.runtime.faults import launch_error, plain
from rankplan.runtime.nodes import Nodes, pinned
from rankplan.runtime.verify import Expectation
from rankplan.words import nodes_text

_logger = logging.getLogger("rankplan")


@dataclass(frozen=True, slots=True)
class Seat:
    """A row of a plan, Ray's id of its node, its robots' configs, and the settings of its node group on that node."""

    placement: Placement
    node_id: str
    hardware: tuple[Any, ...]
    env_vars: Mapping[str, str]
    interpreter: str | None

    def expectation(self) -> Expectation:
        """Return what the rank must report once it is up."""
        return Expectation(self.placement, self.node_id, planned_environment(self.placement))

    def runtime_env(self) -> dict[str, Any] | None:
        """Return the settings needed at process start; with ``None``, Ray starts the process in half the time."""
        runtime_env: dict[str, Any] = {}
        if variables := start_variables(self.env_vars):
            runtime_env["env_vars"] = variables
        if self.interpreter is not None:
            # Ray passes it to a shell
            runtime_env["py_executable"] = shlex.quote(self.interpreter)
        return runtime_env or None


def find_seats(nodes: Nodes, component: Component) -> list[Seat]:
    """Return the seat of each row of a component on these nodes.

    Raises ``LaunchError`` if there are no rows, or the interpreter of a node group cannot run a rank.
    """
    inventory, name = component.inventory, component.name
    if not component.rows:
        raise LaunchError(f"{name} has no processes to launch: its placement is empty", name)
    settings: dict[tuple[int, str], tuple[dict[str, str], str | None]] = {}
    missing: dict[tuple[str, str], list[int]] = {}
    seats = []
    for row in component:
        node, label = row.cluster_node_rank, row.node_group_label
        if (node, label) not in settings:
            env_vars, interpreter = inventory.environment(node, label)
            if nodes.simulated and interpreter is not None and not Path(interpreter).exists():
                missing.setdefault((label, interpreter), []).append(node)
                interpreter = None
            settings[node, label] = env_vars, interpreter
        seats.append(Seat(row, nodes.ids[node], tuple(inventory.hardware(row)), *settings[node, label]))
    for (label, interpreter), ranks in missing.items():
        message = "%s: simulated %s of node group %r with %s, because its interpreter %s does not exist on this machine"
        _logger.warning(message, name, nodes_text(RankSet(ranks)), label, sys.executable, interpreter)
    _check_interpreters(name, seats)
    return seats


def _check_interpreters(component: str, seats: Sequence[Seat]) -> None:
    """Try the interpreters on their nodes: if one does not exist or lacks Ray, Ray would wait for minutes."""
    wanted = {(seat.node_id, seat.interpreter): seat for seat in reversed(seats) if seat.interpreter is not None}
    tries = [
        _fault_of.options(scheduling_strategy=pinned(node)).remote(
            path, start_variables(seat.env_vars), timeouts.INTERPRETER
        )
        for (node, path), seat in wanted.items()
    ]
    try:
        faults = collect(tries, timeouts.INTERPRETER_TASK)
    except (Failed, Unanswered):
        return  # the node has another problem, which the launch will report with the ranks affected
    unfit = [(seat, fault) for seat, fault in zip(wanted.values(), faults, strict=True) if fault is not None]
    if unfit:
        seat, fault = min(unfit, key=lambda found: found[0].placement.rank)
        row = seat.placement
        others = {other.placement.cluster_node_rank for other, _ in unfit} - {row.cluster_node_rank}
        also = f" (also on {nodes_text(RankSet(others))})" if others else ""
        which = f"the interpreter {seat.interpreter} of node group {row.node_group_label!r}"
        raise launch_error(component, row, f": {which} cannot run a rank: {fault}{also}")


_TRIAL = """
import json, sys
import ray, rankplan.runtime.host
with open(sys.argv[1], "w") as report:
    json.dump({"Python": "{}.{}".format(*sys.version_info), "Ray": ray.__version__}, report)
"""


@ray.remote(num_cpus=0)
def _fault_of(path: str, variables: Mapping[str, str], timeout: float) -> str | None:
    """Return why an interpreter cannot run a rank on this node, or ``None`` if it can."""
    if not (Path(path).is_file() and os.access(path, os.X_OK)):
        return "it is not an executable file there"
    with tempfile.TemporaryDirectory() as folder:
        report, errors = Path(folder, "report"), Path(folder, "errors")
        try:
            environment = {**os.environ, **expanded(variables, os.environ)}
            status = _tried([path, "-c", _TRIAL, str(report)], environment, errors, timeout)
        except OSError as error:
            return f"it does not start: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"it did not import ray within {timeout:g} s"
        if not report.exists():
            said = errors.read_text(errors="replace").strip().splitlines() or [f"it exited with status {status}"]
            return f"it cannot import ray and rankplan: {plain(said[-1])}"
        found = json.loads(report.read_text())
    for name, needed in {"Python": "{}.{}".format(*sys.version_info), "Ray": ray.__version__}.items():
        if found[name] != needed:
            return f"it has {name} {found[name]}, but Ray was started there with {name} {needed}; use the same version"
    return None


def _tried(command: list[str], environment: Mapping[str, str], errors: Path, timeout: float) -> int:
    """Run a command, write its stderr to a file, leave no process behind, and return its exit status.

    It runs in the folder of that file: ``python -c`` imports from the working directory, which a rank does not.
    """
    with errors.open("w") as said:
        trial = subprocess.Popen(
            command,
            env=environment,
            cwd=errors.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
    try:
        return trial.wait(timeout)
    finally:
        # a wrapper script may have left something running
        with suppress(ProcessLookupError):
            os.killpg(trial.pid, signal.SIGKILL)
        trial.wait()

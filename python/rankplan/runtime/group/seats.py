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

from rankplan._core import Placement, RankSet
from rankplan.environment import added, expanded, planned_environment, start_variables
from rankplan.errors import LaunchError
from rankplan.plans.component import Component, Coordinates
from rankplan.runtime.group.calls import Failed, Unanswered, collect, outcomes
from rankplan.runtime.nodes.exports import environment_of
from rankplan.runtime.nodes.nodes import Nodes, pinned
from rankplan.runtime.rank.report import Expectation
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.faults import launch_error, plain
from rankplan.words import nodes_text

_logger = logging.getLogger("rankplan")


@dataclass(frozen=True, slots=True)
class Seat:
    """A row of a plan with its coordinates, Ray's id of its node, its robots' configs, and the settings of its node.

    ``at_start`` are the variables that the process must start with, with their final values.
    """

    placement: Placement
    coordinates: Coordinates | list[Coordinates]
    node_id: str
    hardware: tuple[Any, ...]
    exports: Mapping[str, str]
    env_vars: Mapping[str, str]
    at_start: Mapping[str, str]
    interpreter: str | None

    def expectation(self) -> Expectation:
        """Return what the rank must report once it is up."""
        return Expectation(self.placement, self.node_id, planned_environment(self.placement))

    def runtime_env(self) -> dict[str, Any] | None:
        """Return the settings needed at process start; with ``None``, Ray starts the process in half the time."""
        runtime_env: dict[str, Any] = {}
        if self.at_start:
            runtime_env["env_vars"] = dict(self.at_start)
        if self.interpreter is not None:
            # Ray passes it to a shell
            runtime_env["py_executable"] = shlex.quote(self.interpreter)
        return runtime_env or None

    def late(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the exports and the variables of the node group that the process sets itself."""
        exports, env_vars = (
            {name: value for name, value in layer.items() if name not in self.at_start}
            for layer in (self.exports, self.env_vars)
        )
        return exports, env_vars


def find_seats(nodes: Nodes, component: Component, ranks: RankSet | None = None) -> list[Seat]:
    """Return the seat of each row of a component on these nodes, or of those of some ranks.

    Raises ``LaunchError`` if there are no rows, or the interpreter of a node group cannot run a rank.
    """
    inventory, name = component.inventory, component.name
    if not component.rows:
        raise LaunchError(f"{name} has no processes to launch: its placement is empty", name)
    settings: dict[tuple[int, str], tuple[dict[str, str], str | None]] = {}
    missing: dict[tuple[str, str], list[int]] = {}
    rows = [row for row in component if ranks is None or row.rank in ranks]
    for row in rows:
        node, label = row.cluster_node_rank, row.node_group_label
        if (node, label) not in settings:
            env_vars, interpreter = inventory.environment(node, label)
            if nodes.simulated and interpreter is not None and not Path(interpreter).exists():
                missing.setdefault((label, interpreter), []).append(node)
                interpreter = None
            settings[node, label] = env_vars, interpreter
    at_start = _at_start(name, nodes, {place: env_vars for place, (env_vars, _) in settings.items()})
    seats = []
    for row in rows:
        place = row.cluster_node_rank, row.node_group_label
        env_vars, interpreter = settings[place]
        robots, coordinates = tuple(inventory.hardware(row)), component.coordinates(row.rank)
        layers = nodes.exports, env_vars, at_start[place]
        seats.append(Seat(row, coordinates, nodes.ids[place[0]], robots, *layers, interpreter))
    for (label, interpreter), places in missing.items():
        message = "%s: simulated %s of node group %r with %s, because its interpreter %s does not exist on this machine"
        _logger.warning(message, name, nodes_text(RankSet(places)), label, sys.executable, interpreter)
    _check_interpreters(name, seats)
    return seats


def _at_start(
    component: str, nodes: Nodes, settings: Mapping[tuple[int, str], Mapping[str, str]]
) -> dict[tuple[int, str], dict[str, str]]:
    """Return the variables that processes must start with, by node and node group: of the driver, and of the group.

    PYTHONPATH of the driver is not among them: every rank adds its folders to ``sys.path``, which costs no second start
    of the interpreter. Raises ``LaunchError`` if a node does not answer.
    """
    exported = start_variables({name: value for name, value in nodes.exports.items() if name != "PYTHONPATH"})
    starts = {place: [*exported, *start_variables(env_vars)] for place, env_vars in settings.items()}
    used = sorted({node for (node, _), names in starts.items() if names})
    looks = outcomes([environment_of(nodes.ids[node]) for node in used], timeouts.ENVIRONMENT) if used else []
    if None in looks:
        node = used[looks.index(None)]
        raise LaunchError(
            f"{component}: node {node} has not started a process in {timeouts.ENVIRONMENT:g} s, to read its variables",
            component,
            node=node,
        )
    # a fault: the launch will name the ranks that it affects
    environments = {node: found if isinstance(found, dict) else {} for node, found in zip(used, looks, strict=True)}
    result = {}
    for (node, label), names in starts.items():
        here = environments.get(node, {})
        exports = added(nodes.exports, here)
        values = exports | expanded(settings[node, label], here | exports)
        result[node, label] = {name: values[name] for name in names}
    return result


def _check_interpreters(component: str, seats: Sequence[Seat]) -> None:
    """Try the interpreters on their nodes: if one does not exist or lacks Ray, Ray would wait for minutes."""
    wanted = {(seat.node_id, seat.interpreter): seat for seat in reversed(seats) if seat.interpreter is not None}
    tries = [
        _fault_of.options(scheduling_strategy=pinned(node)).remote(path, seat.at_start, timeouts.INTERPRETER)
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
import ray, rankplan.runtime.rank.host
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
            environment = {**os.environ, **variables}
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

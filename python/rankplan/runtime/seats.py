"""The place of each row of a plan on a live cluster: its node, and what its node group says about the process."""

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
from typing import TYPE_CHECKING, Any

import ray

from rankplan._core import RankSet
from rankplan.environment import expanded, planned_environment, start_variables
from rankplan.errors import LaunchError
from rankplan.placement import Placement
from rankplan.runtime.calls import Failed, Unanswered, collect
from rankplan.runtime.faults import plain
from rankplan.runtime.probe import pinned
from rankplan.runtime.verify import Expectation

if TYPE_CHECKING:
    from rankplan.inventory import Inventory
    from rankplan.runtime.cluster import Cluster

_TRIAL_SECONDS = 30.0  # to import Ray from a slow network drive
_LOOK_SECONDS = 2 * _TRIAL_SECONDS

_logger = logging.getLogger("rankplan")


@dataclass(frozen=True, slots=True)
class Seat:
    """A row of a plan with Ray's id of its node, its robots' configs, and the settings of its node group there."""

    placement: Placement
    node_id: str
    hardware: tuple[Any, ...]
    env_vars: Mapping[str, str]
    interpreter: str | None

    def expectation(self) -> Expectation:
        """Return what must be found when the rank is up."""
        return Expectation(self.placement, self.node_id, planned_environment(self.placement))

    def runtime_env(self) -> dict[str, Any] | None:
        """Return what must be there when the process starts; with ``None`` Ray starts it in half the time."""
        runtime_env: dict[str, Any] = {}
        if variables := start_variables(self.env_vars):
            runtime_env["env_vars"] = variables
        if self.interpreter is not None:
            # Ray hands it to a shell
            runtime_env["py_executable"] = shlex.quote(self.interpreter)
        return runtime_env or None


def find_seats(cluster: Cluster, inventory: Inventory, component: str, placements: Sequence[Placement]) -> list[Seat]:
    """Look up the place of each row; raises ``LaunchError`` for one that this cluster does not have.

    ``inventory`` is the cluster's, with the node groups that the rows were selected through.
    """
    if not placements:
        raise LaunchError(f"{component} has no processes to launch: its placement is empty", component)
    settings: dict[tuple[int, str], tuple[dict[str, str], str | None]] = {}
    missing: dict[tuple[str, str], RankSet] = {}
    seats = []
    for row in placements:
        node, label = row.cluster_node_rank, row.node_group_label
        if node >= inventory.num_nodes:
            raise LaunchError(
                f"{component} rank {row.rank} is planned on node {node}, but the cluster has only the nodes "
                f"0-{inventory.num_nodes - 1}; plan it on this cluster's inventory",
                component,
                row.rank,
                node,
            )
        if (node, label) not in settings:
            if label not in inventory.group_labels:
                raise LaunchError(
                    f"{component} rank {row.rank} is planned in node group {label!r}, which the cluster does not know; "
                    "give the config to Cluster(cluster_cfg=...), or launch a strategy of ComponentPlacement",
                    component,
                    row.rank,
                    node,
                )
            settings[node, label] = inventory.environment(node, label)
            interpreter = settings[node, label][1]
            if cluster.simulated and interpreter is not None and not Path(interpreter).exists():
                settings[node, label] = (settings[node, label][0], None)
                missing[label, interpreter] = missing.get((label, interpreter), RankSet()) | RankSet([node])
        seats.append(Seat(row, cluster.node_ids[node], tuple(inventory.hardware(row)), *settings[node, label]))
    for (label, interpreter), nodes in missing.items():
        message = (
            "%s: simulated with %s on node %s, where node group %r has the interpreter %s: it is not on this machine"
        )
        _logger.warning(message, component, sys.executable, nodes, label, interpreter)
    _check_interpreters(component, seats)
    return seats


def _check_interpreters(component: str, seats: Sequence[Seat]) -> None:
    """Try the interpreters on their nodes: with one that is not there, or has no Ray, Ray would wait for minutes."""
    wanted = {(seat.node_id, seat.interpreter): seat for seat in reversed(seats) if seat.interpreter is not None}
    tries = [
        _fault_of.options(scheduling_strategy=pinned(node)).remote(path, start_variables(seat.env_vars))
        for (node, path), seat in wanted.items()
    ]
    try:
        faults = collect(tries, _LOOK_SECONDS)
    except (Failed, Unanswered):
        return  # there is more amiss with a node than its interpreter: the launch will find it, and say who is hit
    unfit = [(seat, fault) for seat, fault in zip(wanted.values(), faults, strict=True) if fault is not None]
    if unfit:
        seat, fault = min(unfit, key=lambda found: found[0].placement.rank)
        row = seat.placement
        others = {other.placement.cluster_node_rank for other, _ in unfit} - {row.cluster_node_rank}
        also = f" (that of node {RankSet(others)} is unfit too)" if others else ""
        raise LaunchError(
            f"{component} rank {row.rank} (node {row.cluster_node_rank}): the interpreter {seat.interpreter} of node "
            f"group {row.node_group_label!r} {fault}{also}",
            component,
            row.rank,
            row.cluster_node_rank,
        )


_TRIAL = """
import json, sys
import ray, rankplan.runtime.host
with open(sys.argv[1], "w") as report:
    json.dump({"Python": "{}.{}".format(*sys.version_info), "Ray": ray.__version__}, report)
"""


@ray.remote(num_cpus=0)
def _fault_of(path: str, variables: Mapping[str, str]) -> str | None:
    """Return what is wrong with an interpreter on this node."""
    if not (Path(path).is_file() and os.access(path, os.X_OK)):
        return "is no executable file on that node"
    with tempfile.TemporaryDirectory() as folder:
        report, errors = Path(folder, "report"), Path(folder, "errors")
        try:
            status = _tried(
                [path, "-c", _TRIAL, str(report)], {**os.environ, **expanded(variables, os.environ)}, errors
            )
        except OSError as error:
            return f"does not run on that node: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"has not imported ray after {_TRIAL_SECONDS:g} s on that node"
        if not report.exists():
            said = errors.read_text(errors="replace").strip().splitlines() or [f"it is no Python (status {status})"]
            return f"cannot import ray and rankplan on that node: {plain(said[-1])}"
        found = json.loads(report.read_text())
    for name, needed in {"Python": "{}.{}".format(*sys.version_info), "Ray": ray.__version__}.items():
        if found[name] != needed:
            return f"has {name} {found[name]}, but Ray was started on that node with {name} {needed}; use the same"
    return None


def _tried(command: list[str], environment: Mapping[str, str], errors: Path) -> int:
    """Run a command to its end, with nothing left behind, and return its status; what it complains of goes to a file.

    It runs beside that file: ``-c`` imports from the folder that it is run in, which a rank does not.
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
        return trial.wait(_TRIAL_SECONDS)
    finally:
        # a wrapper may have left something running
        with suppress(ProcessLookupError):
            os.killpg(trial.pid, signal.SIGKILL)
        trial.wait()

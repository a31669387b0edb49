"""The interpreters of node groups, tried on their nodes before a launch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import ray

from rankplan._core import RankSet
from rankplan.runtime.nodes.nodes import pinned
from rankplan.runtime.rank.spec import RankSpec
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import Failed, Unanswered, collect, launch_error, plain
from rankplan.words import nodes_text


def check_interpreters(specs: Sequence[RankSpec]) -> None:
    """Raise ``LaunchError`` if an interpreter does not exist on a node or lacks Ray: Ray would wait for minutes."""
    wanted = {(spec.node_id, spec.interpreter): spec for spec in reversed(specs) if spec.interpreter is not None}
    if not wanted:
        return
    tries = [
        _fault_of.options(scheduling_strategy=pinned(node)).remote(path, spec.at_start, timeouts.INTERPRETER)
        for (node, path), spec in wanted.items()
    ]
    try:
        faults = collect(tries, timeouts.INTERPRETER_TASK)
    except (Failed, Unanswered):
        return  # the node has another problem, which the launch will report with the ranks affected
    unfit = [(spec, fault) for spec, fault in zip(wanted.values(), faults, strict=True) if fault is not None]
    if unfit:
        spec, fault = min(unfit, key=lambda found: found[0].placement.rank)
        row = spec.placement
        others = {other.placement.cluster_node_rank for other, _ in unfit} - {row.cluster_node_rank}
        also = f" (also on {nodes_text(RankSet(others))})" if others else ""
        which = f"the interpreter {spec.interpreter} of node group {row.node_group_label!r}"
        raise launch_error(spec.component, row, f": {which} cannot run a rank: {fault}{also}")


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

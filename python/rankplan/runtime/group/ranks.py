"""The ranks of a component on the nodes of a live cluster, and a trial of their interpreters there."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle

from rankplan._core import Placement, RankSet
from rankplan.environment import added, expanded, start_variables
from rankplan.errors import LaunchError, PlacementError
from rankplan.plans.component import Component
from rankplan.plans.nearby import first_accelerator, near_cards, network_variables, visible_uuids
from rankplan.plans.process_reserving import process_faults
from rankplan.runtime.nodes.exports import environment_of
from rankplan.runtime.nodes.nodes import Nodes, pinned
from rankplan.runtime.rank.hardware import hardware_of
from rankplan.runtime.rank.spec import DEVICES, ENVIRONMENT, RankSpec
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import Failed, Unanswered, collect, launch_error, outcomes, plain
from rankplan.runtime.ray.asking import ask
from rankplan.words import nodes_text

_logger = logging.getLogger("rankplan")

_CUDA = "NV_GPU"


def rank_specs(nodes: Nodes, component: Component, prove: str | None, ranks: RankSet | None = None) -> list[RankSpec]:
    """Return the spec of each rank of a component on these nodes, or of some ``ranks``; see ``GroupSpec.launch``.

    Raises `PlacementError` (``binding-unmet``, ``never-reserved``), and ``LaunchError`` if there are no rows, or a
    driver cannot be asked.
    """
    if faults := component.binding_faults():
        raise PlacementError(faults)
    if lacking := process_faults(nodes.inventory, [component]):
        raise PlacementError([one.fault for one in lacking])
    name = component.name
    if not component.rows:
        raise LaunchError(f"{name} has no processes to launch: its placement is empty", name)
    rows = [row for row in component if ranks is None or row.rank in ranks]
    uuids = [visible_uuids(component, row) if row.num_accelerators else () for row in rows]
    default = ENVIRONMENT if nodes.simulated else None
    proofs = [_proof(component, row, prove or default, known) for row, known in zip(rows, uuids, strict=True)]
    settings = _settings(nodes, component, rows)
    at_start = _at_start(name, nodes, settings)
    advice = "define its model at the top level of a module"
    specs = []
    for row, known, proof in zip(rows, uuids, proofs, strict=True):
        place = row.cluster_node_rank, row.node_group_label
        env_vars, interpreter = settings[place]
        robots = tuple(hardware_of(component.inventory, row))
        egl = component.egl and row.num_accelerators > 0
        ordinal, pci = first_accelerator(component, row) if egl else (None, None)
        specs.append(
            RankSpec(
                component=name,
                placement=row,
                coordinates=component.coordinates(row.rank),
                node_id=nodes.ids[place[0]],
                hardware=pickled(name, "the hardware of a rank", robots, advice) if robots else b"",
                env_vars=env_vars,
                at_start=at_start[place],
                interpreter=interpreter,
                bound=component.bound(row.rank),
                proof=proof,
                uuids=known,
                nics=near_cards(component, row),
                nic_variables=network_variables(component, row),
                egl=egl,
                ordinal=ordinal,
                pci=pci,
                cpus=component.cpus_per_process or 0,
                host_memory=component.host_memory_per_process or 0,
            )
        )
    if component.nics == "set" and not any(spec.nic_variables for spec in specs):
        _logger.warning("%s: network cards are not set: they are not one to one with its accelerators", name)
    return specs


def _proof(component: Component, row: Placement, prove: str | None, uuids: tuple[str, ...]) -> str:
    """Return how a rank proves that it sees its devices, which have these uuids."""
    if not row.num_accelerators:
        return ENVIRONMENT
    if prove == DEVICES and row.accelerator_type != _CUDA:
        why = f"needs NVIDIA devices; rank {row.rank} has {row.accelerator_type}"
        message = f'{component.name}: prove="devices" {why}; use prove="environment"'
        raise LaunchError(message, component.name, row.rank, row.cluster_node_rank)
    return prove or (DEVICES if uuids and row.accelerator_type == _CUDA else ENVIRONMENT)


def pickled(component: str, what: str, value: object, advice: str) -> bytes:
    """Return a value as bytes. Raises ``LaunchError``, with this advice, if it cannot be pickled."""
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise LaunchError(f"{component}: {what} cannot be sent to the ranks: {error}; {advice}", component) from error


_Place = tuple[int, str]  # a node and a node group
_Settings = dict[_Place, tuple[dict[str, str], str | None]]


def _settings(nodes: Nodes, component: Component, rows: list[Placement]) -> _Settings:
    """Return the variables and the interpreter of each node in a node group; a simulated node may lack it."""
    settings: _Settings = {}
    missing: dict[tuple[str, str], list[int]] = {}
    for node, label in dict.fromkeys((row.cluster_node_rank, row.node_group_label) for row in rows):
        env_vars, interpreter = component.inventory.environment(node, label)
        if nodes.simulated and interpreter is not None and not Path(interpreter).exists():
            missing.setdefault((label, interpreter), []).append(node)
            interpreter = None
        settings[node, label] = env_vars, interpreter
    for (label, interpreter), places in missing.items():
        message = "%s: simulated %s of node group %r with %s, because its interpreter %s does not exist on this machine"
        _logger.warning(message, component.name, nodes_text(RankSet(places)), label, sys.executable, interpreter)
    return settings


def _at_start(component: str, nodes: Nodes, settings: _Settings) -> dict[_Place, dict[str, str]]:
    """Return the variables that processes must start with, by node and node group: of the driver, and of the group."""
    # every rank adds the PYTHONPATH of the driver to sys.path, which costs no second start of the interpreter
    exported = start_variables({name: value for name, value in nodes.exports.items() if name != "PYTHONPATH"})
    starts = {place: [*exported, *start_variables(env_vars)] for place, (env_vars, _) in settings.items()}
    used = sorted({node for (node, _), names in starts.items() if names})
    looks = outcomes([environment_of(nodes.ids[node]) for node in used], timeouts.ENVIRONMENT) if used else []
    if None in looks:
        node = used[looks.index(None)]
        why = f"node {node} has not started a process in {timeouts.ENVIRONMENT:g} s, to read its variables"
        raise LaunchError(f"{component}: {why}", component, node=node)
    # a fault: the launch will name the ranks that it affects
    environments = {node: found if isinstance(found, dict) else {} for node, found in zip(used, looks, strict=True)}
    result = {}
    for (node, label), names in starts.items():
        here = environments.get(node, {})
        exports = added(nodes.exports, here)
        values = exports | expanded(settings[node, label][0], here | exports)
        result[node, label] = {name: values[name] for name in names}
    return result


def check_interpreters(specs: Sequence[RankSpec]) -> None:
    """Raise ``LaunchError`` if an interpreter does not exist on a node or lacks Ray: Ray would wait for minutes."""
    wanted = {(spec.node_id, spec.interpreter): spec for spec in reversed(specs) if spec.interpreter is not None}
    if not wanted:
        return
    tries = ask(
        lambda: [
            _fault_of.options(scheduling_strategy=pinned(node)).remote(path, spec.at_start, timeouts.INTERPRETER)
            for (node, path), spec in wanted.items()
        ]
    )
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
    """Run a command, write its stderr to a file, leave no process behind, and return its exit status."""
    with errors.open("w") as said, Path(os.devnull).open("r+") as null:
        # ``python -c`` imports from the working directory, which a rank does not
        options: dict[str, Any] = {"env": environment, "cwd": errors.parent, "start_new_session": True}
        trial = subprocess.Popen(command, stdin=null, stdout=null, stderr=said, **options)
    try:
        return trial.wait(timeout)
    finally:
        # a wrapper script may have left something running
        with suppress(ProcessLookupError):
            os.killpg(trial.pid, signal.SIGKILL)
        trial.wait()

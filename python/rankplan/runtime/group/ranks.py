"""The ranks of a component on the nodes of a live cluster, and a trial of their interpreters there."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

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
    if unreservable := process_faults(nodes.inventory, [component]):
        raise PlacementError([process.fault for process in unreservable])
    name = component.name
    if not component.rows:
        raise LaunchError(f"{name} has no processes to launch: its placement is empty", name)
    rows = [row for row in component if ranks is None or row.rank in ranks]
    default = ENVIRONMENT if nodes.simulated else None
    proofs = [_proof(component, row, prove or default) for row in rows]
    settings = _settings(nodes, component, rows)
    at_start = _at_start(name, nodes, settings)
    specs = []
    for row, proof in zip(rows, proofs, strict=True):
        place = _place(row)
        specs.append(_spec(component, row, nodes.ids[place.node], proof, settings[place], at_start[place]))
    if component.nics == "set" and not any(spec.nic_variables for spec in specs):
        _logger.warning("%s: network cards are not set: they are not one to one with its accelerators", name)
    return specs


class _Place(NamedTuple):
    """A node, and a node group on it, by whose settings ranks start there."""

    node: int
    label: str


def _place(row: Placement) -> _Place:
    return _Place(row.cluster_node_rank, row.node_group_label)


class _Settings(NamedTuple):
    """The variables and the interpreter of a node group on a node; ``None``: Ray's interpreter."""

    env_vars: dict[str, str]
    interpreter: str | None


class _Proof(NamedTuple):
    """How a rank proves that it sees its devices, and their uuids, empty if unknown."""

    kind: str
    uuids: tuple[str, ...]


def _spec(
    component: Component,
    row: Placement,
    node_id: str,
    proof: _Proof,
    settings: _Settings,
    at_start: dict[str, str],
) -> RankSpec:
    """Return the spec of a rank; ``at_start`` are the variables that its process starts with."""
    hardware = b""
    if robots := tuple(hardware_of(component.inventory, row)):
        advice = "define its model at the top level of a module"
        hardware = pickled(component.name, "the hardware of a rank", robots, advice)
    ordinal, pci = None, None
    egl = component.egl and row.num_accelerators > 0
    if egl:
        ordinal, pci = first_accelerator(component, row)
    return RankSpec(
        component=component.name,
        placement=row,
        coordinates=component.coordinates(row.rank),
        node_id=node_id,
        hardware=hardware,
        env_vars=settings.env_vars,
        at_start=at_start,
        interpreter=settings.interpreter,
        bound=component.bound(row.rank),
        proof=proof.kind,
        uuids=proof.uuids,
        nics=near_cards(component, row),
        nic_variables=network_variables(component, row),
        egl=egl,
        ordinal=ordinal,
        pci=pci,
        cpus=component.cpus_per_process or 0,
        host_memory=component.host_memory_per_process or 0,
    )


def _proof(component: Component, row: Placement, prove: str | None) -> _Proof:
    """Return how a rank proves that it sees its devices. Raises ``LaunchError`` if it cannot prove it as stated."""
    if not row.num_accelerators:
        return _Proof(ENVIRONMENT, ())
    is_cuda = row.accelerator_type == _CUDA
    if prove == DEVICES and not is_cuda:
        why = f"needs NVIDIA devices; rank {row.rank} has {row.accelerator_type}"
        message = f'{component.name}: prove="devices" {why}; use prove="environment"'
        raise LaunchError(message, component.name, row.rank, row.cluster_node_rank)
    uuids = visible_uuids(component, row)
    default = DEVICES if uuids and is_cuda else ENVIRONMENT
    return _Proof(prove or default, uuids)


def pickled(component: str, what: str, value: object, advice: str) -> bytes:
    """Return a value as bytes. Raises ``LaunchError``, with this advice, if it cannot be pickled."""
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise LaunchError(f"{component}: {what} cannot be sent to the ranks: {error}; {advice}", component) from error


def _settings(nodes: Nodes, component: Component, rows: Sequence[Placement]) -> dict[_Place, _Settings]:
    """Return the settings of each node in a node group; a simulated node may lack the interpreter."""
    settings: dict[_Place, _Settings] = {}
    missing: dict[tuple[str, str], list[int]] = {}
    for place in dict.fromkeys(map(_place, rows)):
        env_vars, interpreter = component.inventory.environment(place.node, place.label)
        if nodes.simulated and interpreter is not None and not Path(interpreter).exists():
            missing.setdefault((place.label, interpreter), []).append(place.node)
            interpreter = None
        settings[place] = _Settings(env_vars, interpreter)
    for (label, interpreter), lacking in missing.items():
        message = "%s: simulated %s of node group %r with %s, because its interpreter %s does not exist on this machine"
        _logger.warning(message, component.name, nodes_text(RankSet(lacking)), label, sys.executable, interpreter)
    return settings


def _at_start(component: str, nodes: Nodes, settings: Mapping[_Place, _Settings]) -> dict[_Place, dict[str, str]]:
    """Return the variables that processes must start with, by node and node group: of the driver, and of the group."""
    # every rank adds the PYTHONPATH of the driver to sys.path, which costs no second start of the interpreter
    exported = start_variables({name: value for name, value in nodes.exports.items() if name != "PYTHONPATH"})
    names_at = {place: [*exported, *start_variables(of_group.env_vars)] for place, of_group in settings.items()}
    environments = _environments(component, nodes, {place.node for place, names in names_at.items() if names})
    at_start = {}
    for place, names in names_at.items():
        environment = environments.get(place.node, {})
        exports = added(nodes.exports, environment)
        values = exports | expanded(settings[place].env_vars, environment | exports)
        at_start[place] = {name: values[name] for name in names}
    return at_start


def _environments(component: str, nodes: Nodes, ranks: Iterable[int]) -> dict[int, dict[str, str]]:
    """Return the environments that Ray starts processes with on these nodes, by node rank.

    That of a node with a fault is empty: the launch will name the ranks that the fault affects.
    """
    ordered = sorted(ranks)
    if not ordered:
        return {}
    answers = outcomes([environment_of(nodes.ids[node]) for node in ordered], timeouts.ENVIRONMENT)
    environments = {}
    for node, answer in zip(ordered, answers, strict=True):
        if answer is None:
            why = f"node {node} has not started a process in {timeouts.ENVIRONMENT:g} s, to read its variables"
            raise LaunchError(f"{component}: {why}", component, node=node)
        environments[node] = answer if isinstance(answer, dict) else {}
    return environments


def check_interpreters(specs: Sequence[RankSpec]) -> None:
    """Raise ``LaunchError`` if an interpreter does not exist on a node or lacks Ray: Ray would wait for minutes.

    The specs are in rank order.
    """
    # the spec with the lowest rank of each interpreter on a node
    first_specs: dict[tuple[str, str], RankSpec] = {}
    for spec in specs:
        if spec.interpreter is not None:
            first_specs.setdefault((spec.node_id, spec.interpreter), spec)
    if not first_specs:
        return
    tries = ask(
        lambda: [
            _fault_of.options(scheduling_strategy=pinned(node)).remote(path, spec.at_start, timeouts.INTERPRETER)
            for (node, path), spec in first_specs.items()
        ]
    )
    try:
        faults = collect(tries, timeouts.INTERPRETER_TASK)
    except (Failed, Unanswered):
        return  # the node has another problem, which the launch will report with the ranks affected
    unfit = [(spec, fault) for spec, fault in zip(first_specs.values(), faults, strict=True) if fault is not None]
    if unfit:
        spec, fault = unfit[0]
        row = spec.placement
        other_nodes = {other.placement.cluster_node_rank for other, _ in unfit} - {row.cluster_node_rank}
        also = f" (also on {nodes_text(RankSet(other_nodes))})" if other_nodes else ""
        interpreter = f"the interpreter {spec.interpreter} of node group {row.node_group_label!r}"
        raise launch_error(spec.component, row, f": {interpreter} cannot run a rank: {fault}{also}")


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
            lines = errors.read_text(errors="replace").strip().splitlines() or [f"it exited with status {status}"]
            return f"it cannot import ray and rankplan: {plain(lines[-1])}"
        versions = json.loads(report.read_text())
    for name, needed in {"Python": "{}.{}".format(*sys.version_info), "Ray": ray.__version__}.items():
        if versions[name] != needed:
            return (
                f"it has {name} {versions[name]}, but Ray was started there with {name} {needed}; use the same version"
            )
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

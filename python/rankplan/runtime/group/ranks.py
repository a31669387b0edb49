"""The ranks of a component on the nodes of a live cluster."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path

from ray import cloudpickle

from rankplan._core import Placement, RankSet
from rankplan.environment import added, expanded, start_variables
from rankplan.errors import LaunchError, PlacementError
from rankplan.plans.component import Component
from rankplan.plans.nearby import near_cards, network_variables, own_devices, visible_uuids
from rankplan.runtime.nodes.exports import environment_of
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.rank.spec import DEVICES, ENVIRONMENT, RankSpec
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import outcomes
from rankplan.words import nodes_text

_logger = logging.getLogger("rankplan")

_CUDA = "NV_GPU"


def rank_specs(nodes: Nodes, component: Component, prove: str | None, ranks: RankSet | None = None) -> list[RankSpec]:
    """Return the spec of each rank of a component on these nodes, or of some ``ranks``.

    ``prove``: ``devices`` asks the driver, ``environment`` does not; by default the driver is asked if the inventory
    has the uuids of the devices, but not on simulated nodes. Raises `PlacementError` (``binding-unmet``), and
    ``LaunchError`` if there are no rows, or the driver of an accelerator cannot be asked.
    """
    if faults := component.binding_faults():
        raise PlacementError(faults)
    name = component.name
    if not component.rows:
        raise LaunchError(f"{name} has no processes to launch: its placement is empty", name)
    rows = [row for row in component if ranks is None or row.rank in ranks]
    uuids = [visible_uuids(component, row) if row.num_accelerators else () for row in rows]
    default = ENVIRONMENT if nodes.simulated else None
    proofs = [_proof(component, row, prove or default, known) for row, known in zip(rows, uuids, strict=True)]
    settings = _settings(nodes, component, rows)
    at_start = _at_start(name, nodes, {place: env_vars for place, (env_vars, _) in settings.items()})
    specs = []
    for row, known, proof in zip(rows, uuids, proofs, strict=True):
        place = row.cluster_node_rank, row.node_group_label
        env_vars, interpreter = settings[place]
        egl = component.egl and row.num_accelerators > 0
        ordinal, pci = _first_accelerator(component, row) if egl else (None, None)
        specs.append(
            RankSpec(
                component=name,
                placement=row,
                coordinates=component.coordinates(row.rank),
                node_id=nodes.ids[place[0]],
                hardware=_pickled_hardware(component, row),
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
        raise LaunchError(
            f'{component.name}: prove="devices" needs NVIDIA devices; rank {row.rank} has {row.accelerator_type}; '
            'use prove="environment"',
            component.name,
            row.rank,
            row.cluster_node_rank,
        )
    return prove or (DEVICES if uuids and row.accelerator_type == _CUDA else ENVIRONMENT)


def _first_accelerator(component: Component, row: Placement) -> tuple[int | None, str | None]:
    """Return the number of a process's first accelerator on its node, and its PCI address, as far as known."""
    name = component.inventory.node(row.cluster_node_rank).accelerator_ids[row.local_accelerator_rank]
    own = own_devices(component, row)
    return int(name) if name.isascii() and name.isdigit() else None, own[0].pci if own else None


def _pickled_hardware(component: Component, row: Placement) -> bytes:
    robots = tuple(component.inventory.hardware(row))
    what, advice = "the hardware of a rank", "define its model at the top level of a module"
    return pickled(component.name, what, robots, advice) if robots else b""


def pickled(component: str, what: str, value: object, advice: str) -> bytes:
    """Return a value as bytes. Raises ``LaunchError``, with this advice, if it cannot be pickled."""
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise LaunchError(f"{component}: {what} cannot be sent to the ranks: {error}; {advice}", component) from error


_Place = tuple[int, str]
"""A node and a node group."""


def _settings(
    nodes: Nodes, component: Component, rows: list[Placement]
) -> dict[_Place, tuple[dict[str, str], str | None]]:
    """Return the variables and the interpreter of each node in a node group; a simulated node may lack it."""
    settings: dict[_Place, tuple[dict[str, str], str | None]] = {}
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


def _at_start(
    component: str, nodes: Nodes, settings: Mapping[_Place, Mapping[str, str]]
) -> dict[_Place, dict[str, str]]:
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

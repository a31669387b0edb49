"""Finding the nodes of a live Ray cluster: waits for them to join, and looks at each one from a process there."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray

from rankplan._core import RankSet
from rankplan.accelerators import NO_ACCEL, VENDORS, Vendor, adopt, registered, vendor
from rankplan.environment import NODE_RANK_VARIABLES
from rankplan.errors import ClusterError
from rankplan.frozen import frozen
from rankplan.hardware.facts import hardware_facts
from rankplan.hardware.nvml import fabrics, uses
from rankplan.nodes.facts import ClusterFacts
from rankplan.nodes.inventory import NodeSpec
from rankplan.nodes.topology.domains import RANK_LABELS
from rankplan.nodes.topology.sources import NVLINK_DOMAIN, fabric_labels, known_key, nemo_rl_labels, slurm_labels
from rankplan.plans.node_order import NODE_RANK
from rankplan.runtime.nodes import faults
from rankplan.runtime.nodes.nodes import (
    BY_ADDRESS,
    BY_LABEL,
    BY_VARIABLE,
    NODE_RANK_LABEL,
    FoundNode,
    MissingRanks,
    Nodes,
    age,
    by_address_key,
    in_order,
    inherited,
    live_nodes,
    pinned,
)
from rankplan.runtime.nodes.processes import ancestors
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import Fault, outcomes
from rankplan.runtime.ray.asking import ask
from rankplan.runtime.ray.connection import Report
from rankplan.runtime.ray.internals import accelerator_managers
from rankplan.words import counted

# Node labels of Ray.
TYPE_LABEL = "rankplan.io/accelerator-type"  # required for types that Ray cannot detect
HARDWARE_LABEL = "rankplan.io/hardware."  # followed by a type, with the number of pieces: rankplan.io/hardware.Franka=2
MODEL_LABEL = "ray.io/accelerator-type"  # the accelerator model, which Ray sets if it knows it

HARDWARE_VARIABLE = "RANKPLAN_HARDWARE"
"""Set on a simulated node: the hardware facts of the node that it stands for, as JSON."""

_SOURCES = "set before `ray start`, or by the job's runtime_env"

_logger = logging.getLogger("rankplan")


def find_nodes(
    num_nodes: int | None,
    timeout: float,
    report: Report,
    *,
    starting: bool,
    facts: ClusterFacts,
    needed: RankSet | None = None,
) -> list[FoundNode]:
    """Return the nodes to use, by node rank: all live nodes, or the first ``num_nodes`` in the order of ``facts``.

    Where nodes have ranks, only the ``needed`` ones must join (default: all); see `in_order`.

    ``starting``: other nodes may be about to join, so nodes without ranks are used only once no node has joined for
    `timeouts.LAST_JOIN` seconds. The rank of the only node does not matter. Raises ``ClusterError`` if too few nodes
    join within ``timeout`` seconds, if their ranks are contradictory, or if a node to use cannot run rankplan.
    """
    deadline = time.monotonic() + timeout
    probed_nodes: dict[str, FoundNode] = {}
    driver = str(ray.get_runtime_context().get_node_id())
    choice = _Choice(num_nodes, timeout, starting, facts, needed, driver)
    fewest = 1 if needed else num_nodes or 1
    # Nodes are probed as soon as enough have joined, and again when others join meanwhile. Only then is it decided
    # whether these are the nodes to use, or others are awaited.
    while True:
        entries = live_nodes()
        late = time.monotonic() >= deadline
        new = [entry for node_id, entry in entries.items() if node_id not in probed_nodes]
        if new and len(entries) >= fewest:
            report(f"probing {counted(len(new), 'node')}")
            left = max(deadline - time.monotonic(), timeouts.ANSWER)
            probed_nodes |= {node.node_id: node for node in probed(new, math.ceil(left))}
            continue
        nodes = without_replaced([probed_nodes[node_id] for node_id in entries if node_id in probed_nodes])
        joined = list(entries) if new else [node.node_id for node in nodes]
        if len(joined) >= fewest:
            chosen = choice.of(nodes, late=late)
            if not isinstance(chosen, str):
                return chosen
            report(f"waiting for nodes: {chosen}")
        elif late:
            raise _too_few(num_nodes, timeout, [entries[node_id] for node_id in joined])
        else:
            report(f"waiting for nodes: {len(joined)} of {num_nodes} have joined")
        time.sleep(timeouts.JOIN_POLL)


@frozen
class _Choice:
    """What decides which nodes are used; see `find_nodes`. ``driver`` is the node of this program."""

    num_nodes: int | None
    timeout: float
    starting: bool
    facts: ClusterFacts
    needed: RankSet | None
    driver: str

    def of(self, nodes: Sequence[FoundNode], *, late: bool) -> list[FoundNode] | str:
        """Return the nodes to use, or what is awaited; with ``late``, nothing is awaited any more."""
        newest = max(node.started for node in nodes)
        settled = late or not self.starting or time.monotonic() - newest >= timeouts.LAST_JOIN
        try:
            ordered, source = in_order(nodes, self.num_nodes, self.facts, self.driver, self.needed)
        except MissingRanks as missing:
            needs_others = self.needed is not None and len(self.needed) > 1
            if len(nodes) == 1 and self.num_nodes in (None, 1) and settled and not needs_others:
                return [_only(nodes[0])]
            if late:  # unusable nodes may have the missing ranks
                why = ClusterError(f"after {self.timeout:g} s, {missing}; start the missing nodes")
                raise next((node.fault for node in nodes if node.fault is not None), why) from None
            return str(missing)
        if settled or self.num_nodes is None or source in (BY_LABEL, BY_VARIABLE):
            return _chosen(ordered, source, self.num_nodes, self.driver)
        return f"more than {self.num_nodes} may be joining"


def _too_few(num_nodes: int | None, timeout: float, entries: Sequence[Mapping[str, Any]]) -> ClusterError:
    rows = "".join(f"\n  {_describe(entry)}" for entry in entries) or " none"
    few = f"{counted(len(entries), 'node')} {'has' if len(entries) == 1 else 'have'} joined within {timeout:g} s"
    advice = "join the others with `ray start --address=...`, or lower num_nodes"
    return ClusterError(f"num_nodes is {num_nodes}, but only {few}:{rows}\n{advice}")


def _chosen(ordered: Sequence[FoundNode], source: str, num_nodes: int | None, driver: str) -> list[FoundNode]:
    """Return the first nodes of an order; raises ``ClusterError`` if one of them cannot be used."""
    used = list(ordered[:num_nodes])
    has_ranks = source in (BY_LABEL, BY_VARIABLE)
    if num_nodes is not None and not has_ranks:
        usable = [node for node in ordered if node.fault is None]
        if len(usable) >= num_nodes:  # without ranks, nodes that cannot be used are skipped
            used = usable[:num_nodes]
    for node in used:
        if node.fault is not None:
            raise node.fault
    used_ids = {node.node_id for node in used}
    unused = [node for node in ordered if node.node_id not in used_ids]
    _log_used([node for node in used if node.node_id], source)
    _log_unused(unused, source, len(ordered), driver)
    return used


def _log_used(nodes: Sequence[FoundNode], source: str) -> None:
    """Log the nodes in use that have joined, and which of their accelerators have a problem."""
    _logger.info("%s, in the order of %s: %s", counted(len(nodes), "node"), source, ", ".join(map(str, nodes)))
    for node in nodes:
        for index, problem in node.spec.problems():
            name = f"{node.spec.hostname or node.spec.ip}/{index}"
            _logger.warning("accelerator %s: %s; do not use it with exclude: [%s]", name, problem, name)


def _log_unused(nodes: Sequence[FoundNode], source: str, total: int, driver: str) -> None:
    """Log the nodes that are left over of a ``total``; ``driver`` is the node of this program."""
    if nodes:
        names = ", ".join(map(str, nodes))
        _logger.warning("using %d of %d nodes (num_nodes); not used: %s", total - len(nodes), total, names)
    if source == BY_ADDRESS and any(node.node_id == driver for node in nodes):
        _logger.warning('the node of this program is not used; node_order="rlinf" puts it first')
    for node in nodes:
        if node.fault is not None:
            _logger.warning("an unused node cannot run rankplan: %s", node.fault)


def _only(node: FoundNode) -> FoundNode:
    """Return the only node, whose rank may be left over from another cluster."""
    if node.fault is not None:
        raise node.fault
    rank, source = node.rank_variable, " or ".join(NODE_RANK_VARIABLES)
    if rank is None:
        rank, source = node.rank_label, f"the Ray label {NODE_RANK_LABEL}"
    advice = "if it is left over from another cluster, unset it and start Ray again"
    _logger.warning("%s is the only node, and used as node 0 despite its rank %s (%s); %s", node, rank, source, advice)
    return node


def _describe(entry: Mapping[str, Any]) -> str:
    shown = {"CPU"} | {row.resource for row in VENDORS}
    counts = [f"{count:g} {name}" for name, count in sorted(entry["Resources"].items()) if name in shown]
    return "  ".join([entry["NodeManagerAddress"], entry["NodeManagerHostname"], ", ".join(counts)])


def probed(entries: Sequence[dict[str, Any]], timeout: float) -> list[FoundNode]:
    """Look at each of these nodes from a process there, all at once."""
    rows = registered()
    looks = ask(
        lambda: [_look.options(scheduling_strategy=pinned(entry["NodeID"])).remote(entry, rows) for entry in entries]
    )
    nodes = []
    for entry, answer in zip(entries, outcomes(looks, timeout), strict=True):
        label = entry["Labels"].get(NODE_RANK_LABEL)
        if isinstance(answer, tuple):
            spec, variable, seconds = answer
            nodes.append(FoundNode(entry["NodeID"], spec, variable, label, started=time.monotonic() - seconds))
        else:
            fault = _fault(_describe(entry), answer, timeout)
            spec = NodeSpec(**_names(entry), labels=kept_labels(entry["Labels"]))
            nodes.append(FoundNode(entry["NodeID"], spec, rank_label=label, fault=fault))
    return nodes


def without_replaced(nodes: Sequence[FoundNode]) -> list[FoundNode]:
    """Return the nodes without those that were started again, with their hostname and address.

    The head notices the death of a raylet only after 15 s. Until then it also lists the node as it was, which does not
    answer. Several raylets on one machine all answer.
    """
    answering = {(node.spec.hostname, node.spec.ip) for node in nodes if node.fault is None}
    return [node for node in nodes if node.fault is None or (node.spec.hostname, node.spec.ip) not in answering]


def _fault(place: str, fault: Fault | None, timeout: float) -> ClusterError:
    if fault is None:
        return faults.no_process(place, timeout)
    if isinstance(fault.cause, ClusterError):
        return ClusterError(f"node {place}: {fault.cause}")
    error = faults.full_disk(place, fault.reason) if fault.is_full_disk else faults.probe_failed(place, fault.reason)
    error.__cause__ = fault.cause
    return error


@frozen
class Process:
    """A process that computes on an accelerator, its memory there in MiB, and its ancestors, the nearest first.

    ``ancestors`` is ``None`` for a process of another pid namespace, whose number means nothing here.
    """

    accelerator: int
    pid: int
    memory: int | None
    ancestors: tuple[int, ...] | None


def computing(
    entries: Sequence[dict[str, Any]], timeout: float
) -> list[tuple[NodeSpec, list[Process] | None] | ClusterError]:
    """Ask the driver of each of these nodes which processes compute on its accelerators; ``None``: it does not tell."""
    rows = registered()
    answers = ask(
        lambda: [
            _computing.options(scheduling_strategy=pinned(entry["NodeID"])).remote(entry, rows) for entry in entries
        ]
    )
    return [
        answer if isinstance(answer, tuple) else _fault(_describe(entry), answer, timeout)
        for entry, answer in zip(entries, outcomes(answers, timeout), strict=True)
    ]


@ray.remote(num_cpus=0)
def _computing(entry: dict[str, Any], rows: Sequence[Vendor]) -> tuple[NodeSpec, list[Process] | None]:
    """Return the record of this node, and the processes that compute on its accelerators."""
    spec = _record(entry, rows, inherited())
    uses_by_index = uses(spec.accelerator_ids) if spec.accelerator_type == "NV_GPU" else None
    if uses_by_index is None:
        return spec, None
    processes = []
    for index, uses_there in enumerate(uses_by_index):
        processes += [Process(index, use.pid, use.memory, ancestors(use.pid)) for use in uses_there]
    return spec, processes


@ray.remote(num_cpus=0)
def _look(entry: dict[str, Any], rows: Sequence[Vendor]) -> tuple[NodeSpec, str | None, float]:
    """Return the record of this node, the node rank that is set in its environment, and the age of its raylet."""
    environment = inherited()
    spec = _record(entry, rows, environment)
    variable = next((environment[name] for name in NODE_RANK_VARIABLES if name in environment), None)
    return spec, variable, age(os.getppid())


def _record(entry: dict[str, Any], rows: Sequence[Vendor], environment: Mapping[str, str]) -> NodeSpec:
    """Return the record of this node, on which Ray was started in this environment."""
    adopt(rows)
    resources, labels = entry["Resources"], entry["Labels"]
    row = _vendor_here(resources, labels)
    facts = {**_names(entry), "labels": _labels(entry, row, environment)}
    facts["hardware"] = {
        name.removeprefix(HARDWARE_LABEL): count
        for name, count in labels.items()
        if name.startswith(HARDWARE_LABEL) and count.isdecimal() and int(count)
    }
    ids: tuple[str, ...] = ()
    if row is not None:
        ids = _ids(row, int(resources[row.resource]), environment)
        if ids:
            facts["accelerator_type"] = row.accelerator_type
            facts["accelerator_ids"] = ids
            facts["accelerator_model"] = labels.get(MODEL_LABEL)
    stated_facts = environment.get(HARDWARE_VARIABLE)
    if stated_facts:
        facts |= json.loads(stated_facts)
    else:
        facts |= hardware_facts(row.accelerator_type if row else NO_ACCEL, ids)
        facts |= _reservable(resources)
    return NodeSpec(**facts)


def _labels(entry: Mapping[str, Any], row: Vendor | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of this node, from all sources; ``row`` is the vendor of its accelerators."""
    fabric = fabrics() if row is not None and row.accelerator_type == "NV_GPU" else []
    try:
        labels = slurm_labels(environment) | nemo_rl_labels(entry["Resources"]) | fabric_labels(fabric)
    except ValueError as contradiction:
        raise ClusterError(str(contradiction)) from None
    labels |= kept_labels(entry["Labels"])
    if NODE_RANK in environment:
        labels[NODE_RANK] = environment[NODE_RANK]
    return labels


def _reservable(resources: Mapping[str, float]) -> dict[str, Any]:
    """Return what Ray lets jobs reserve on a node besides accelerators, by the keys of an inventory.

    Resources of Ray itself, of placement groups and of the network are left out. Ray lists no amount
    that is 0.
    """
    own = {"CPU", "GPU", "memory", "object_store_memory", "topo_rank"} | {row.resource for row in VENDORS}
    custom = {
        name: amount
        for name, amount in resources.items()
        if name not in own and ":" not in name and "_group_" not in name and not name.startswith(NVLINK_DOMAIN)
    }
    memory = int(resources.get("memory", 0)) >> 20
    return {"cpus": resources.get("CPU", 0), "reservable_memory": memory, "resources": custom}


def _names(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"ranks": RankSet(), "ip": entry["NodeManagerAddress"], "hostname": entry["NodeManagerHostname"]}


def kept_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of the user and of other tools, and Ray's own ones that tell where a node is."""

    def is_kept(name: str) -> bool:
        is_internal = name.startswith(("ray.io/", "rankplan.io/"))
        return not is_internal or known_key(name) or name in RANK_LABELS

    return {name: value for name, value in labels.items() if is_kept(name)}


def _vendor_here(resources: Mapping[str, float], labels: Mapping[str, str]) -> Vendor | None:
    """Return the vendor of this node's accelerators: from its label, or else as Ray detected it."""
    if (declared := labels.get(TYPE_LABEL)) is not None:
        try:
            row = vendor(declared)
        except ValueError as unknown:
            raise ClusterError(f"the Ray label {TYPE_LABEL}: {unknown}") from None
        if row is not None and not resources.get(row.resource):
            raise ClusterError(
                f"the Ray label {TYPE_LABEL} is {declared}, but Ray counts no {row.resource} there; start Ray "
                f"with their number, e.g. {_counting(row, 8)}, or without the label"
            )
        return row
    managers = accelerator_managers({row.resource: resources.get(row.resource, 0) for row in VENDORS})
    detected = [row for row in VENDORS if row.manager in managers]
    if len(detected) > 1:
        counts = " and ".join(f"{resources[row.resource]:g} {row.resource}" for row in detected)
        types = " or ".join(f"--labels={TYPE_LABEL}={row.accelerator_type}" for row in detected)
        raise ClusterError(f"it has {counts}, but a node must have one accelerator type; start Ray there with {types}")
    return detected[0] if detected else None


def _counting(row: Vendor, number: int) -> str:
    """Return the option of ``ray start`` that declares this many accelerators."""
    return f"--num-gpus={number}" if row.resource == "GPU" else f"--resources='{{\"{row.resource}\": {number}}}'"


def _ids(row: Vendor, count: int, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the node's own ids of its accelerators: those in the mask that Ray was started under, or else 0, 1, ..."""
    if disturbing := row.disturbed(environment):
        others = " ".join(f"{name}={value}" for name, value in disturbing.items())
        raise ClusterError(
            f"its processes start with {others} ({_SOURCES}), which changes the devices they see; unset it, and "
            f"select {row.vendor} devices with {row.env_var} only"
        )
    ids = row.shown(environment)
    if ids is None:
        return tuple(map(str, range(count)))
    if len(ids) < count:
        raise ClusterError(
            f"its processes start with {row.env_var}={environment[row.env_var]} ({_SOURCES}), which names "
            f"{counted(len(ids), 'device')}, but Ray counts {count} {row.resource}; name each device once, separated "
            f"by commas, or start Ray with {_counting(row, len(ids))}"
        )
    return ids[:count]


def refreshed(nodes: Nodes, dead: dict[int, NodeSpec], timeout: float) -> Nodes:
    """Return the nodes as they are now; every known one keeps its rank. ``dead`` has the last records of dead ones.

    See ``Cluster.refresh``. A node that was started again also has its marks again.
    """
    alive = {node.node_id: node for node in without_replaced(probed(list(live_nodes().values()), timeout))}
    ids = list(nodes.ids)
    specs = [nodes.inventory.node(rank) for rank in range(len(ids))]
    new = [node for node in alive.values() if node.node_id not in ids]
    for rank, spec in enumerate(specs):
        if ids[rank] not in alive:
            again = _started_again(spec, new)
            if again is not None:
                new.remove(again)
                ids[rank] = again.node_id
        present = alive.get(ids[rank])
        if present is not None:
            specs[rank] = _updated(dead.pop(rank, spec), present)
        elif rank not in dead:
            dead[rank] = spec
            _logger.warning("node %d (%s) has left the cluster; plan again without it", rank, spec.name)
            specs[rank] = spec.changed(healthy=False)
    for node in sorted(new, key=by_address_key):
        if node.fault is not None:
            _logger.warning("a new node cannot run rankplan: %s", node.fault)
            continue
        _logger.info("node %d is new: %s", len(ids), node)
        specs.append(node.spec.at(RankSet([len(ids)])))
        ids.append(node.node_id)
    return replace(nodes, ids=tuple(ids), inventory=nodes.inventory.updated(specs))


def _started_again(spec: NodeSpec, new: Sequence[FoundNode]) -> FoundNode | None:
    """Return the new node with the hostname and the address of a known one, if it can be used."""
    names = (spec.hostname, spec.ip)
    return next((node for node in new if node.fault is None and (node.spec.hostname, node.spec.ip) == names), None)


def _updated(before: NodeSpec, node: FoundNode) -> NodeSpec:
    """Return the new record of a known node; excluded hardware stays excluded."""
    if node.fault is not None:
        _logger.warning("node %d cannot be looked at again: %s", before.rank, node.fault)
        return before
    return node.spec.at(before.ranks).changed(healthy=before.healthy, unhealthy=before.unhealthy)

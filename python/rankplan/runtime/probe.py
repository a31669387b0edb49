"""What a live Ray cluster consists of: waits for its nodes, and looks at each one on the spot."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray._private.accelerators import get_accelerator_manager_for_resource
from ray.exceptions import TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rankplan.accelerators import NO_ACCEL, VENDORS, Vendor, vendor
from rankplan.errors import ClusterError
from rankplan.render.progress import Report
from rankplan.runtime.calls import Failed, Unanswered, collect
from rankplan.runtime.node_order import NODE_RANK_LABEL, NODE_RANK_VARIABLES, NodeFacts

TYPE_LABEL = "rankplan.io/accelerator-type"
"""The Ray node label that names the accelerator type. Needed where Ray itself cannot tell (MUSA_GPU, KUNLUN_XPU)."""

MODEL_LABEL = "ray.io/accelerator-type"
"""The Ray node label with the model, which Ray sets where it knows it."""

_POLL_SECONDS = 0.25
_SOURCES = "set before `ray start`, or by the job's runtime_env"


def wait_for_nodes(num_nodes: int | None, timeout: float, report: Report) -> list[dict[str, Any]]:
    """Return Ray's entries of the live nodes, when there are at least ``num_nodes``.

    Raises ``ClusterError`` with a table of the nodes that are there after ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        entries = [entry for entry in ray.nodes() if entry["Alive"]]
        if len(entries) >= (num_nodes or 1):
            return entries
        if time.monotonic() >= deadline:
            break
        report(f"waiting for nodes: {len(entries)} of {num_nodes} are there")
        time.sleep(_POLL_SECONDS)
    rows = "".join(f"\n  {_describe(entry)}" for entry in entries) or " none"
    raise ClusterError(
        f"{num_nodes} nodes are asked for (num_nodes), but after {timeout:g} s {len(entries)} are there:{rows}"
        "\njoin the others with `ray start --address=...`, or lower num_nodes"
    )


def _describe(entry: Mapping[str, Any]) -> str:
    counts = [f"{count:g} {name}" for name, count in sorted(entry["Resources"].items()) if name in _counted()]
    return "  ".join([entry["NodeManagerAddress"], entry["NodeManagerHostname"], ", ".join(counts)])


def _counted() -> set[str]:
    return {"CPU"} | {row.resource for row in VENDORS}


def look_at(entries: list[dict[str, Any]], timeout: float) -> list[NodeFacts]:
    """Look at each of these nodes from a process there, all at once.

    Raises ``ClusterError`` for a node that cannot run rankplan, or does not answer within ``timeout`` seconds.
    """
    looks = [_look.options(scheduling_strategy=pinned(entry["NodeID"])).remote(entry) for entry in entries]
    try:
        facts: list[NodeFacts] = collect(looks, timeout)
    except Failed as failed:
        index = min(failed.faults)
        fault, place = failed.faults[index], _describe(entries[index])
        if isinstance(fault.cause, ClusterError):
            raise ClusterError(f"node {place}: {fault.cause}") from None
        if isinstance(fault.cause, TaskUnschedulableError):
            raise ClusterError(f"node {place} has left the cluster while it was looked at") from fault.cause
        raise ClusterError(
            f"node {place}: looking at it {fault.reason}; rankplan must be installed on every node, in the same version"
        ) from fault.cause
    except Unanswered as unanswered:
        silent = "".join(f"\n  {_describe(entries[index])}" for index in unanswered.pending)
        raise ClusterError(f"these nodes start no process for rankplan within {timeout:g} s:{silent}") from None
    return facts


def pinned(node_id: str) -> NodeAffinitySchedulingStrategy:
    """Return what makes Ray run a task or an actor on this node or, when the node is gone, refuse it."""
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


@ray.remote(num_cpus=0)
def _look(entry: dict[str, Any]) -> NodeFacts:
    resources, labels, environment = entry["Resources"], entry["Labels"], _inherited()
    row = _vendor_here(resources, labels)
    return NodeFacts(
        node_id=entry["NodeID"],
        ip=entry["NodeManagerAddress"],
        hostname=entry["NodeManagerHostname"],
        rank_variable=next((environment[name] for name in NODE_RANK_VARIABLES if name in environment), None),
        rank_label=labels.get(NODE_RANK_LABEL),
        accelerator_type=row.accelerator_type if row else NO_ACCEL,
        accelerator_model=labels.get(MODEL_LABEL) if row else None,
        accelerator_ids=_ids(row, int(resources[row.resource]), environment) if row else (),
        labels={name: value for name, value in labels.items() if not name.startswith(("ray.io/", "rankplan.io/"))},
    )


def _vendor_here(resources: Mapping[str, float], labels: Mapping[str, str]) -> Vendor | None:
    """Return whose accelerators this node has: what its label says, else what Ray found here."""
    if TYPE_LABEL in labels:
        return _declared(labels[TYPE_LABEL], resources)
    counted = {row.resource for row in VENDORS if resources.get(row.resource)}
    managers: set[Any] = {get_accelerator_manager_for_resource(resource) for resource in counted} - {None}
    found = [row for row in VENDORS if row.manager in {manager.__name__ for manager in managers}]
    if len(found) > 1:
        counts = " and ".join(f"{resources[row.resource]:g} {row.resource}" for row in found)
        types = " or ".join(f"--labels={TYPE_LABEL}={row.accelerator_type}" for row in found)
        raise ClusterError(f"it has {counts}, and a node has one type for rankplan; start Ray there with {types}")
    return found[0] if found else None


def _declared(accelerator_type: str, resources: Mapping[str, float]) -> Vendor | None:
    try:
        row = vendor(accelerator_type)
    except ValueError as unknown:
        raise ClusterError(f"the Ray label {TYPE_LABEL}: {unknown}") from None
    if row is not None and not resources.get(row.resource):
        raise ClusterError(
            f"the Ray label {TYPE_LABEL} says {accelerator_type}, but Ray counts no {row.resource} there; start Ray "
            f"with their number, e.g. {_counting(row, 8)}, or without the label"
        )
    return row


def _counting(row: Vendor, number: int) -> str:
    """Return the option that makes `ray start` count so many of them."""
    return f"--num-gpus={number}" if row.resource == "GPU" else f"--resources='{{\"{row.resource}\": {number}}}'"


def _ids(row: Vendor, count: int, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the node's own ids of its accelerators: those of the mask that Ray was started under, else from 0 on."""
    if spoilt := row.disturbed(environment):
        others = " ".join(f"{name}={value}" for name, value in spoilt.items())
        raise ClusterError(
            f"its processes start with {others} ({_SOURCES}), which has a say in the devices that they see; leave it "
            f"out, and choose {row.maker} devices by {row.visibility} alone"
        )
    ids = row.shown(environment)
    if ids is None:
        return tuple(map(str, range(count)))
    if len(ids) < count:
        raise ClusterError(
            f"its processes start with {row.visibility}={environment[row.visibility]} ({_SOURCES}), which names "
            f"{len(ids)} device(s), but Ray counts {count} {row.resource}; name each device once, with commas between, "
            f"or start Ray with {_counting(row, len(ids))}"
        )
    return ids[:count]


def _inherited() -> dict[str, str]:
    """Return the environment that this process was started with: Ray may have changed it for the task since."""
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return dict(os.environ)
    entries = (os.fsdecode(entry).partition("=") for entry in block.split(b"\0"))
    return {name: value for name, _, value in entries}

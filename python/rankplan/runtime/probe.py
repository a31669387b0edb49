"""What a live Ray cluster consists of: waits for its nodes, and looks at each one on the spot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray._private.accelerators import get_accelerator_manager_for_resource
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rankplan.accelerators import NO_ACCEL, VENDORS, Vendor, vendor
from rankplan.errors import ClusterError
from rankplan.runtime.calls import Failed, Unanswered, collect
from rankplan.runtime.node_order import NODE_RANK_LABEL, NODE_RANK_VARIABLES, NodeFacts

TYPE_LABEL = "rankplan.io/accelerator-type"
"""The Ray node label that names the accelerator type where Ray itself cannot tell (MUSA_GPU, KUNLUN_XPU)."""

MODEL_LABEL = "ray.io/accelerator-type"
"""The Ray node label with the model, which Ray sets where it knows it."""

_POLL_SECONDS = 0.25
_HIDDEN_MASKS = ("", "NoDevFiles")


def wait_for_nodes(num_nodes: int | None, timeout: float, report: Callable[[str], None]) -> list[dict[str, Any]]:
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
    resources, labels = entry["Resources"], entry["Labels"]
    row = _vendor_here(resources, labels)
    return NodeFacts(
        node_id=entry["NodeID"],
        ip=entry["NodeManagerAddress"],
        hostname=entry["NodeManagerHostname"],
        rank_variable=next((rank for rank in map(_inherited, NODE_RANK_VARIABLES) if rank is not None), None),
        rank_label=labels.get(NODE_RANK_LABEL),
        accelerator_type=row.accelerator_type if row else NO_ACCEL,
        accelerator_model=labels.get(MODEL_LABEL) if row else None,
        accelerator_ids=_ids(row, int(resources[row.resource])) if row else (),
        labels={name: value for name, value in labels.items() if not name.startswith(("ray.io/", "rankplan.io/"))},
    )


def _vendor_here(resources: Mapping[str, float], labels: Mapping[str, str]) -> Vendor | None:
    """Return whose accelerators this node has: what its label says, else what Ray found here."""
    try:
        declared = vendor(labels.get(TYPE_LABEL, NO_ACCEL))
    except ValueError as unknown:
        raise ClusterError(f"the Ray label {TYPE_LABEL}: {unknown}") from None
    if declared is not None:
        return declared if resources.get(declared.resource) else None
    for row in VENDORS:
        manager = get_accelerator_manager_for_resource(row.resource) if resources.get(row.resource) else None
        # several vendors are counted as GPU: the one that Ray found is known by its visibility variable
        if manager is not None and manager.get_visible_accelerator_ids_env_var() == row.visibility:
            return row
    return None


def _ids(row: Vendor, count: int) -> tuple[str, ...]:
    """Return the node's own ids of its accelerators: those of the mask that Ray was started under, else from 0 on."""
    mask = _inherited(row.visibility)
    if mask is None:
        return tuple(map(str, range(count)))
    ids = () if mask in _HIDDEN_MASKS else tuple(part.strip() for part in mask.split(","))
    if len(ids) < count:
        raise ClusterError(
            f"Ray was started with {row.visibility}={mask} and counts {count} {row.resource}; give `ray start` as many "
            "as the mask has"
        )
    return ids[:count]


def _inherited(variable: str) -> str | None:
    """Return a variable as this process was started with it: Ray may have changed it for the task since."""
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return os.environ.get(variable)
    start = f"{variable}=".encode()
    return next((entry[len(start) :].decode() for entry in block.split(b"\0") if entry.startswith(start)), None)

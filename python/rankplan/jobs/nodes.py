"""The nodes that a job file states: a size, an inventory, or those of a Ray cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rankplan.errors import PlacementError, Where
from rankplan.files import read_text
from rankplan.jobs import faults
from rankplan.jobs.reader import JobFile
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.inventory_file import is_size
from rankplan.plans.diff import same_nodes
from rankplan.read.text.load import SCRIPTS
from rankplan.read.text.sbatch import sbatch_options


def nodes_of(job: JobFile) -> Inventory:
    """Return the nodes that a job file states.

    Raises `PlacementError` for an inventory that cannot be read, and for a size other than the one that the ``#SBATCH``
    lines of the script ask for. Raises ``ClusterError`` for a Ray cluster that cannot be reached.
    """
    if job.ray is not None:
        from rankplan.runtime.cluster import Cluster

        with Cluster(address=job.ray) as cluster:
            return cluster.inventory
    stated = job.nodes or ""
    if not is_size(stated):
        try:
            return Inventory.load(stated)
        except OSError as error:
            fault = faults.no_file("nodes", stated, error.strerror or str(error))
            raise PlacementError([job.where("nodes").locate(fault)]) from None
    place = job.where("nodes")
    try:
        inventory = Inventory.parse(stated)
    except PlacementError as error:
        raise PlacementError([place.locate(fault) for fault in error.diagnostics]) from None
    for nodes, where in _asked_of_slurm(job.job):
        if nodes != inventory.num_nodes:
            ours, theirs = faults.other_nodes(inventory.num_nodes, nodes), faults.other_size(inventory.num_nodes, nodes)
            raise PlacementError([place.locate(ours), where.locate(theirs)])
    return inventory


def usable(cluster: Inventory, allowed: Inventory | None, stated: JobFile | None) -> Inventory:
    """Return the nodes of a cluster, and exclude those that a job may not use.

    A job may use the nodes that are in ``allowed`` and healthy there. A node is found by its hostname, else by its
    address. Labels that the cluster does not show, and the levels of the network, are those of ``allowed``. Raises
    `PlacementError` if no node of ``allowed`` is in the cluster.
    """
    if allowed is None or stated is None:
        return cluster
    # By the ranks of the cluster: the ranks of the same nodes in `allowed`.
    allowed_ranks = {place: rank for rank, place in enumerate(same_nodes(allowed, cluster)) if place is not None}
    if not allowed_ranks:
        raise PlacementError([stated.where("nodes").locate(faults.no_such_nodes(cluster))])
    records = []
    for rank in range(cluster.num_nodes):
        record = cluster.node(rank)
        if rank in allowed_ranks:
            stated_record = allowed.node(allowed_ranks[rank])
            record = record.changed(labels={**stated_record.labels, **record.labels})
        records.append(record)
    result = cluster.updated(records)
    if allowed.levels:
        result = result.with_levels(allowed.levels)
    unusable: list[str] = []
    for rank, record in enumerate(records):
        name = result.names.lasting(rank) or f"node-{rank}"  # a host may be called node-3
        excluded = allowed.marks.get(allowed_ranks[rank], ()) if rank in allowed_ranks else None
        if excluded is None:
            unusable.append(name)
        else:
            unusable += [f"{name}/{index}" for index in excluded if index < record.num_accelerators]
    return result.without(unusable) if unusable else result


class _Nodes(NamedTuple):
    """A number of nodes, and where a script asks for them."""

    number: int
    where: Where


def _asked_of_slurm(file: str) -> Iterator[_Nodes]:
    """Yield the number of nodes that the ``#SBATCH`` lines of a script ask for. A range asks for no number."""
    if not file.endswith(SCRIPTS):
        return
    for number, line in enumerate(read_text(file).splitlines(), 1):
        for option in sbatch_options(line):
            if option.name == "--nodes" and re.fullmatch("[0-9]{1,9}", option.value):
                place = Where("", file, number, option.at + 1, line, option.at, len(option.value))
                yield _Nodes(int(option.value), place)

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
from rankplan.read.text.load import SCRIPTS
from rankplan.read.text.sbatch import sbatch_options


def nodes_of(job: JobFile) -> Inventory:
    """Return the nodes that a job file states.

    Raises `PlacementError` for an inventory that cannot be read, and for a size that the options of a batch script
    contradict; ``ClusterError`` for a Ray cluster that cannot be reached.
    """
    if job.ray is not None:
        from rankplan.runtime.cluster import Cluster

        with Cluster(address=job.ray) as cluster:
            return cluster.inventory
    stated, place = job.nodes or "", job.where("nodes")
    if not is_size(stated):
        try:
            return Inventory.load(stated)
        except OSError as error:
            fault = faults.no_file("nodes", stated, error.strerror or str(error))
            raise PlacementError([place.locate(fault)]) from None
    try:
        inventory = Inventory.parse(stated)
    except PlacementError as error:
        raise PlacementError([place.locate(fault) for fault in error.diagnostics]) from None
    for nodes, where in _asked_of_slurm(job.job):
        if nodes != inventory.num_nodes:
            ours, theirs = faults.other_nodes(inventory.num_nodes, nodes), faults.other_size(inventory.num_nodes, nodes)
            raise PlacementError([place.locate(ours), where.locate(theirs)])
    return inventory


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

"""The nodes that a config is probably meant for, where none are given."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress

from rankplan.dialects.interface.job import Job
from rankplan.dialects.placing.placer import Packing, Placer
from rankplan.errors import PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.read.components import assumed
from rankplan.read.read_config import ReadConfig


def probable_nodes(read: ReadConfig, inventory: Inventory) -> Inventory:
    """Return the nodes that a batch script asks Slurm for if its job fits there, else the fewest on which it fits.

    ``inventory`` has the nodes that the config states. Raises `PlacementError` if they are too many.
    """
    job: Job = read.values
    largest = job.largest_node()
    if largest is not None:
        inventory = _fewest(read, largest)
    allocation = read.reader.allocation
    if allocation is None:
        return inventory
    core = inventory.core
    size = allocation.size(len(core.accelerators()), max(core.nodes_by_size()))
    allocated = assumed(read.reader, *size)
    return inventory if _spans(read, allocated) is None else allocated


def _fewest(read: ReadConfig, largest: int) -> Inventory:
    """Return the fewest nodes, of the fewest accelerators, on which no component is on more nodes than it must be.

    The job fits on the nodes of its `Job.size`, each component apart. If it fits on some number of nodes, it fits on
    more of them, and on larger ones: halving finds the least.
    """
    job: Job = read.values
    most, smallest = job.size()
    apart = _spans(read, assumed(read.reader, most, largest))
    if apart is None:
        return assumed(read.reader, most, smallest)

    def fits(nodes: int, accelerators: int) -> bool:
        spans = _spans(read, Inventory.uniform(nodes, accelerators))
        return spans is not None and all(spans[name] <= count for name, count in apart.items())

    nodes = 1 + bisect_left(range(1, most), x=True, key=lambda count: fits(count, largest))
    accelerators = smallest + bisect_left(range(smallest, largest), x=True, key=lambda count: fits(nodes, count))
    return Inventory.uniform(nodes, accelerators)


def _spans(read: ReadConfig, inventory: Inventory) -> dict[str, int] | None:
    """Return the number of nodes of each component, ``None`` if the job does not fit on these nodes."""
    job: Job = read.values
    faults = read.reader.fork().faults
    with suppress(PlacementError):
        nodes = job.inventory(inventory, faults, pinned=False)
        placer = Placer(faults, nodes, Packing(order=job.node_order(), sorted_first=job.sorts_first))
        job.place(placer)
        if not faults:
            return {component.name: len(component.used_nodes()) for component in placer.components}
    return None

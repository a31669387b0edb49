"""The processes of a program, as its launcher starts them on each node."""

from __future__ import annotations

from dataclasses import field

from rankplan.dialects.launching import faults
from rankplan.errors import NOWHERE, Faults, Where
from rankplan.frozen import frozen
from rankplan.read.text.started import CommandWord


@frozen
class Processes:
    """What a launcher starts: processes of a program on each of some nodes.

    ``launcher`` is ``accelerate``, ``torchrun`` or ``python``. ``nodes`` is the number of nodes of the program, each of
    which runs the launcher. ``total`` are its processes on all of them together, of which every node starts an equal
    number; ``None``: as many as the devices that one node shows. ``each_node``: that is the number of each node, and
    otherwise divided between them.

    ``devices`` are the devices that the launcher makes visible, in place of those that it sees itself. ``rank`` is the
    number of the node as the command states it, ``is_ordered`` tells that it decides the order of the nodes.

    ``framework`` is what trains, as far as the launcher tells: ``deepspeed``, ``fsdp`` or ``ddp``.
    """

    launcher: str
    nodes: int = 1
    total: int | None = 1
    each_node: bool = False
    devices: tuple[int, ...] | None = None
    rank: CommandWord | None = None
    is_ordered: bool = True
    framework: str = "ddp"
    zero_stage: int | None = None
    fsdp_version: int | None = None
    where: Where = field(default=NOWHERE)
    """The place of the number of processes."""
    nodes_at: Where = field(default=NOWHERE)
    """The place of the number of nodes."""

    def on_node(self, visible: int) -> int:
        """Return the processes of a node that shows so many devices."""
        if self.total is None:
            return visible if self.each_node else visible // max(self.nodes, 1)
        return self.total // max(self.nodes, 1)

    def check_node_ranks(self, step_nodes: int, collector: Faults) -> None:
        """Record the faults of nodes of one step of Slurm whose ranks do not differ, or that have no order."""
        if self.nodes < 2 or step_nodes < 2:
            return
        if not self.is_ordered:
            collector.warn(self.nodes_at, faults.order_of_rendezvous())
            return
        is_of_accelerate = self.launcher == "accelerate"
        flag = "machine_rank" if is_of_accelerate else "node_rank"
        if self.rank is None:
            if not is_of_accelerate:  # accelerate refuses the command itself, which is a fault already
                collector.add(self.nodes_at, faults.same_rank(flag))
        elif self.rank.text is not None:
            collector.add(self.rank.where, faults.same_rank(flag))
        elif self.rank.variable in ("SLURM_PROCID", "SLURM_NODEID"):
            collector.add(self.rank.where, faults.expanded_early(flag, self.rank.variable))

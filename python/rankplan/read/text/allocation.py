"""The nodes that a batch script asks Slurm for, in its ``#SBATCH`` lines."""

from __future__ import annotations

import re

from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.read.text.sbatch import sbatch_options
from rankplan.words import counted

_LINE = re.compile(r"^#SBATCH\s.*", re.MULTILINE)
_NUMBER = re.compile(r"[1-9][0-9]{0,6}")
_GPUS = re.compile(r"(?:[^:,()]+:)?([1-9][0-9]{0,3})")
_GRES = re.compile(rf"gpu:{_GPUS.pattern}")
_MOST_NODES = 100_000


@frozen
class Allocation:
    """The numbers that a batch script states: of nodes, and of the GPUs of each node; ``None`` for one it does not."""

    nodes: int | None
    gpus_per_node: int | None

    def reason(self, inventory: Inventory) -> str:
        """Return why these nodes are assumed, to follow their number in a sentence."""
        parts = [] if self.nodes is None else [counted(self.nodes, "node")]
        if self.gpus_per_node is not None:
            parts.append(f"{counted(self.gpus_per_node, 'GPU')} of each node")
        text = f"its #SBATCH lines ask for {' and '.join(parts)}"
        sizes = inventory.core.nodes_by_size()
        is_assumed = self.nodes in (None, inventory.num_nodes) and self.gpus_per_node in (None, *sizes)
        return f", as {text}" if is_assumed else f"; {text}, on which the job does not fit"

    def size(self, accelerators: int, largest: int) -> tuple[int, int]:
        """Return the nodes and the accelerators of each, for a job that needs these, at most ``largest`` of a node."""
        each = max(largest, 1) if self.gpus_per_node is None else self.gpus_per_node
        return -(-accelerators // each) if self.nodes is None else self.nodes, each


def allocation_of(text: str) -> Allocation | None:
    """Return what a script asks Slurm for; ``None`` if it states no number, or several sizes (a heterogeneous job)."""
    values: dict[str, str] = {}
    for line in _LINE.finditer(text):
        for option in sbatch_options(line[0]):
            values[option.name] = option.value
    if "hetjob" in values:
        return None
    nodes = _number(_NUMBER.fullmatch(values.get("--nodes", "")))
    if nodes is not None and nodes > _MOST_NODES:
        return None
    gpus = _gpus(values, nodes)
    return None if nodes is None and gpus is None else Allocation(nodes, gpus)


def _gpus(values: dict[str, str], nodes: int | None) -> int | None:
    """Return the GPUs of each node: as stated, or the total number divided by the nodes."""
    for option, form in (("--gpus-per-node", _GPUS), ("--gres", _GRES)):
        stated = next(filter(None, map(form.fullmatch, values.get(option, "").split(","))), None)
        if stated is not None:
            return _number(stated)
    total = _number(_GPUS.fullmatch(values.get("--gpus", "")))
    return total // nodes if total is not None and nodes is not None and total % nodes == 0 else None


def _number(match: re.Match[str] | None) -> int | None:
    return None if match is None else int(match[match.re.groups])

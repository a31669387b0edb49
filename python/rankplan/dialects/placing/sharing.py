"""Models that share GPUs with another model, and must have as many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rankplan.dialects.keys.config import Config
from rankplan.dialects.keys.key import Key
from rankplan.errors import Diagnostic
from rankplan.words import path_text


class ModelNodes(NamedTuple):
    """The nodes of a model, and its GPUs of each, with their keys in this order."""

    name: str
    nodes: int
    gpus_per_node: int
    keys: tuple[Key[Any], Key[Any]]

    @property
    def size(self) -> tuple[int, int]:
        """Its nodes, and its GPUs of a node."""
        return self.nodes, self.gpus_per_node

    @property
    def gpus(self) -> int:
        """All its GPUs."""
        return self.nodes * self.gpus_per_node


def reject_other_nodes(config: Config, host: ModelNodes, model: ModelNodes, flag: Key[bool]) -> None:
    """Record the fault of a model that shares the GPUs of a host, but has other nodes or GPUs of a node.

    ``flag`` makes them share. The fault is at a size that differs, or at the flag if the config states none.
    """
    differing: list[Key[Any]] = []
    for index in range(2):
        if model.size[index] != host.size[index]:
            differing += [model.keys[index], host.keys[index]]
    stated = list(filter(config.stated, differing))
    unset = [path_text(config.path(key)) for key in differing if key not in stated]
    fault = _other_size(model, host, unset, config.system, path_text(config.path(flag)))
    config.faults.add(config.where(*stated, flag), fault)


def _other_size(model: ModelNodes, host: ModelNodes, unset: Sequence[str], system: str, flag: str) -> Diagnostic:
    """Return the fault of sizes that differ; ``unset`` are the keys of those that the system's defaults state."""
    message = f"{model.name} shares the GPUs of {host.name}, but has {model.nodes} x {model.gpus_per_node} GPUs"
    message += f" instead of {host.nodes} x {host.gpus_per_node}"
    if unset:
        message += f"; {' and '.join(unset)} {'are' if len(unset) > 1 else 'is'} {system}'s default"
    return Diagnostic("invalid-value", message, f"give both the same nodes and GPUs of a node, or do not set {flag}")

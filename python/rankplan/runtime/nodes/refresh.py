"""Looking at the nodes of a cluster again: which have died, have come back, or are new."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import ray

from rankplan._core import RankSet
from rankplan.nodes.inventory import NodeSpec
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.nodes.order import FoundNode, by_address_key
from rankplan.runtime.nodes.probe import probed

_logger = logging.getLogger("rankplan")


class Roster:
    """The records of nodes that have died, as they were before."""

    def __init__(self) -> None:
        self._dead: dict[int, NodeSpec] = {}

    def refreshed(self, nodes: Nodes, timeout: float) -> Nodes:
        """Return the nodes as they are now; every known one keeps its rank.

        Nodes that have died are not ``healthy``. One that was started again, with its hostname and address, has its
        rank and its marks again. New nodes come last, by address; unusable ones are skipped, with a warning.
        """
        entries = [entry for entry in ray.nodes() if entry["Alive"]]
        alive = {node.node_id: node for node in probed(entries, timeout)}
        ids = list(nodes.ids)
        known = [nodes.inventory.node(rank) for rank in range(len(ids))]
        new = [node for node in alive.values() if node.node_id not in ids]
        for rank, spec in enumerate(known):
            if ids[rank] in alive:
                known[rank] = _updated(self._dead.pop(rank, spec), alive[ids[rank]])
                continue
            again = next((node for node in new if node.fault is None and _names(node.spec) == _names(spec)), None)
            if again is not None:
                new.remove(again)
                ids[rank], known[rank] = again.node_id, _updated(self._dead.pop(rank, spec), again)
            elif rank not in self._dead:
                self._dead[rank] = spec
                _logger.warning("node %d (%s) has left the cluster; plan again without it", rank, spec.name)
                known[rank] = spec.model_copy(update={"healthy": False})
        for node in _spares(new):
            _logger.info("node %d is new: %s", len(ids), node)
            known.append(node.spec.at(RankSet([len(ids)])))
            ids.append(node.node_id)
        return replace(nodes, ids=tuple(ids), inventory=nodes.inventory.updated(known))


def _spares(new: Sequence[FoundNode]) -> list[FoundNode]:
    """Return the new nodes that can be used, by address."""
    for node in new:
        if node.fault is not None:
            _logger.warning("a new node cannot run rankplan: %s", node.fault)
    return sorted((node for node in new if node.fault is None), key=by_address_key)


def _updated(before: NodeSpec, found: FoundNode) -> NodeSpec:
    """Return the new record of a known node; excluded hardware stays excluded."""
    if found.fault is not None:
        _logger.warning("node %d cannot be looked at again: %s", before.rank, found.fault)
        return before
    marks = {"healthy": before.healthy, "unhealthy": before.unhealthy}
    return found.spec.at(before.ranks).model_copy(update=marks)


def _names(spec: NodeSpec) -> tuple[str | None, str | None]:
    return spec.hostname, spec.ip

"""Looking at the nodes of a cluster again: which have died, have come back, or are new."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import ray

from rankplan._core import RankSet
from rankplan.inventory import NodeSpec
from rankplan.runtime.node_order import FoundNode, by_address_key
from rankplan.runtime.nodes import Nodes
from rankplan.runtime.probe import probed
from rankplan.words import nodes_text

_logger = logging.getLogger("rankplan")


class Roster:
    """What is known of the nodes of a cluster beyond the present ones: how those were that have died."""

    def __init__(self) -> None:
        self._dead: dict[int, NodeSpec] = {}

    def refreshed(self, nodes: Nodes, timeout: float) -> Nodes:
        """Return the nodes as they are now; every known one keeps its rank.

        Nodes that have died are not ``healthy``. One that was started again, with its hostname and address, has its
        rank and its marks again. New nodes come last, by address; those that cannot be used are skipped, with a
        warning.
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
                known[rank] = spec.model_copy(update={"healthy": False})
        ids, known = self._extended(ids, known, new)
        inventory = nodes.inventory.updated(known)
        return replace(nodes, ids=tuple(ids), inventory=inventory)

    def _extended(
        self, ids: list[str], known: list[NodeSpec], new: Sequence[FoundNode]
    ) -> tuple[list[str], list[NodeSpec]]:
        for node in new:
            if node.fault is not None:
                _logger.warning("a new node cannot run rankplan: %s", node.fault)
        spares = sorted((node for node in new if node.fault is None), key=by_address_key)
        first = len(ids)
        specs = [node.spec.at(RankSet([first + index])) for index, node in enumerate(spares)]
        if self._dead:
            _logger.warning("dead: %s", nodes_text(RankSet(self._dead)))
        if spares:
            ranks = nodes_text(RankSet(range(first, first + len(spares))))
            _logger.info("new, as %s: %s", ranks, ", ".join(map(str, spares)))
        return [*ids, *(node.node_id for node in spares)], [*known, *specs]


def _updated(before: NodeSpec, found: FoundNode) -> NodeSpec:
    """Return the record of a node that was looked at again; what must not be used stays so."""
    if found.fault is not None:
        _logger.warning("node %d cannot be looked at again: %s", before.rank, found.fault)
        return before
    marks = {"healthy": before.healthy, "unhealthy": before.unhealthy}
    return found.spec.at(before.ranks).model_copy(update=marks)


def _names(spec: NodeSpec) -> tuple[str | None, str | None]:
    return spec.hostname, spec.ip

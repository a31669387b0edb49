"""What a config states of its cluster: how many nodes it has, what is true of them, and the rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankplan.errors import Diagnostic, KeyPath
from rankplan.frozen import frozen
from rankplan.nodes.facts import ClusterFacts
from rankplan.nodes.inventory import Inventory, configured
from rankplan.plans.rules import Rules, with_named_levels
from rankplan.read.shared import Shared
from rankplan.read.text.reader import Reader


@frozen(slots=False)
class StatedCluster:
    """A cluster as a config states it.

    ``reader`` has the section that states it, and its faults. ``node_groups`` are the labels of the node groups of each
    component, by the key of its entry.
    """

    reader: Reader
    num_nodes: int
    shared: Shared
    node_groups: Mapping[str, tuple[str, ...]]

    @property
    def facts(self) -> ClusterFacts:
        """What the config states of the nodes."""
        return self.shared.facts

    @property
    def rules(self) -> Rules:
        """What it states about the components, each rule where it is written."""
        return self.shared.rules

    def finish(self) -> None:
        """Raise `PlacementError` with every fault if there is any."""
        self.reader.finish()

    def on(self, inventory: Inventory, *, planned: bool = False) -> Inventory:
        """Return the first ``num_nodes`` nodes of an inventory with the facts of the config.

        ``planned``: see `Inventory.with_facts`. Raises `PlacementError` for an invalid section, or one that needs more
        nodes.
        """
        reader = self.reader.fork()
        facts = with_named_levels(self.facts, self.rules, inventory)
        nodes, unfit = configured(inventory, facts, self.num_nodes, planned=planned)
        for path, fault in in_section(unfit):
            reader.add(path, fault)
        reader.finish()
        return nodes


def in_section(unfit: Iterable[tuple[KeyPath, Diagnostic]]) -> Iterable[tuple[KeyPath, Diagnostic]]:
    """Yield the faults of facts that do not suit an inventory, each at its path in the section; see `configured`."""
    for path, fault in unfit:
        yield ("topology", *path) if path[0] == "levels" else path, fault

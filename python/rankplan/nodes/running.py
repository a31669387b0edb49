"""A cluster that runs, for those who ask for one before they import Ray."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class RunningCluster(Protocol):
    """A Ray cluster that runs, such as a `Cluster`: its nodes with Ray's ids of them, and the address of its head."""

    @property
    def nodes(self) -> Any:
        """The nodes in their order."""

    @property
    def node_ids(self) -> tuple[str, ...]:
        """Ray's ids of the nodes, by node rank."""

    @property
    def address(self) -> str:
        """The host:port of its head."""

"""The network: levels, the domains of each level, and the sources that tell where a node is."""

from __future__ import annotations

from rankplan.nodes.topology.domains import Domains, Listed, Name, domains, natural_order
from rankplan.nodes.topology.sources import detect

__all__ = ["Domains", "Listed", "Name", "detect", "domains", "natural_order"]

"""The network: levels, the domains of each level, and the sources that tell where a node is."""

from __future__ import annotations

from rankplan.nodes.topology.domains import Domains, Name, domains, natural_order, one_by_one
from rankplan.nodes.topology.sources import detect

__all__ = ["Domains", "Name", "detect", "domains", "natural_order", "one_by_one"]

"""The network: levels, the domains of each level, and the sources that tell where a node is."""

from __future__ import annotations

from rankplan._core import natural_order
from rankplan.nodes.topology.domains import Domains, Name, domains, levels_of
from rankplan.nodes.topology.sources import detect

__all__ = ["Domains", "Name", "detect", "domains", "levels_of", "natural_order"]

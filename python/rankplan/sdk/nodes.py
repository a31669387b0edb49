"""What `Job.inventory` is made of: the nodes that a job uses, and their order."""

from rankplan.nodes.ordered import first_nodes, reordered

__all__ = ["first_nodes", "reordered"]

"""Models that share GPUs with another model."""

from rankplan.dialects.placing.sharing import ModelNodes, reject_other_nodes

__all__ = ["ModelNodes", "reject_other_nodes"]

"""The nodes of a cluster: their records, names and facts, and the node groups on them."""

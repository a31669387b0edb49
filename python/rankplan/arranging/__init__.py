"""Node ranks to nodes: arranging a plan, and repairing it after a failure."""

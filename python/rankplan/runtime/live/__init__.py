"""What runs on a cluster, and programs that are bound to a plan."""

"""What runs on a cluster, whoever started it, and where that differs from a plan."""

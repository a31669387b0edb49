"""What runs on a cluster, whoever started it, and programs whose placement groups are bound to a plan."""

"""What runs on a cluster, from the tables of its head: groups, actors and idle accelerators; what other jobs hold."""

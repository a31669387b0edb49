"""The lowest-cost placement: measured times, the search, and what its answer means for a cluster."""

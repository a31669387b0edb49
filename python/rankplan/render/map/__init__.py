"""The map of a plan: nodes down, accelerators across, processes on them."""

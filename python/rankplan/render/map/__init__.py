"""The map of a plan: nodes down, accelerators across, who is where."""

"""The nodes of a live cluster: probing, order, simulation and exports."""

"""Facts of a machine: cores, network cards, accelerators, the cores and cards near them, and the driver's view."""

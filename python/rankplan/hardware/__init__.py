"""Facts of a machine, and what follows from them: nearby cores and network cards, and what a driver shows."""

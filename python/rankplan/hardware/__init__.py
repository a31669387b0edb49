"""Facts of a machine, and what follows from them: cores near an accelerator, near network cards, what a driver shows."""

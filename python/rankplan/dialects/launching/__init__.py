"""What starts the processes of a trainer without Ray: accelerate, torchrun, Python, and the steps of Slurm."""

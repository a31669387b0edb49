"""Files that list nodes: inventories, tables, jobs with their pods or nodes, and what Slurm and Kubernetes show."""

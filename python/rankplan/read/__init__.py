"""The cluster section: its models, and files with line and column."""

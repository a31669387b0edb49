"""What a dialect is: one value, its jobs, and how these become plans."""

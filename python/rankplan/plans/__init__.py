"""The plan: components, their rows and decisions, and the file."""

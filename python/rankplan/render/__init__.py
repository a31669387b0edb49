"""A plan as tables, rows, files and maps."""

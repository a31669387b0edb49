"""The plan for readers: tables, rows, text."""

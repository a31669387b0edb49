"""The keys of a trainer's config: declared as values, listed as tables, and read from a config."""

"""Texts of configs: YAML, launch scripts and overrides, each value with its place, and the collector of faults."""

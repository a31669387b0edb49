"""Words of messages: counts, lists, shown values, suggestions, and whole numbers in texts."""

from rankplan.words import (
    as_int,
    counted,
    did_you_mean,
    listed,
    misspelt,
    nearest,
    nodes_text,
    path_text,
    shown,
    whole_number,
)

__all__ = [
    "as_int",
    "counted",
    "did_you_mean",
    "listed",
    "misspelt",
    "nearest",
    "nodes_text",
    "path_text",
    "shown",
    "whole_number",
]

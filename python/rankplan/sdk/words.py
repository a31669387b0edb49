"""Words of messages: counts, lists, shown values, suggestions; whole numbers, and interpolations, in texts."""

from rankplan.read.text.unresolved import RESOLVE, unresolved
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
    unknown,
    whole_number,
)

__all__ = [
    "RESOLVE",
    "as_int",
    "counted",
    "did_you_mean",
    "listed",
    "misspelt",
    "nearest",
    "nodes_text",
    "path_text",
    "shown",
    "unknown",
    "unresolved",
    "whole_number",
]

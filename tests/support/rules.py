"""Rules of a ``cluster`` section, as a plan keeps them."""

from __future__ import annotations

from typing import Any

from rankplan.plans.rules import Rules
from rankplan.read.section import read_section


def rules_in(section: dict[str, Any]) -> Rules:
    """Return the rules that a section states."""
    reading = read_section({"num_nodes": 1, **section})
    reading.finish()
    return reading.rules

"""Rules of a ``cluster`` section, as a plan keeps them."""

from __future__ import annotations

from typing import Any

from rankplan.dialects import stated_cluster
from rankplan.plans.rules import Rules


def rules_in(section: dict[str, Any]) -> Rules:
    """Return the rules that a section states."""
    stated = stated_cluster({"num_nodes": 1, **section})
    stated.finish()
    return stated.rules

"""Rules that a caller states, such as the options of a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rankplan.errors import PlacementError
from rankplan.plans.rules import Rules
from rankplan.read.text.invalid import Invalid


def with_stated(rules: Rules, stated: Mapping[str, Any]) -> Rules:
    """Return rules in which these replace those of the same names.

    Raises `PlacementError` with every invalid value.
    """
    if not stated:
        return rules
    from rankplan.read.network import read_topology

    try:
        topology = read_topology(stated)
    except Invalid as error:
        faults = [fault for _, fault in error.below(())]
        # A wrong word of an option is a wrong value; in a config, it is a key.
        wrong = [replace(one, code="invalid-value") if one.code == "unknown-key" else one for one in faults]
        raise PlacementError(wrong) from None
    places = {path: where for path, where in rules.places.items() if path[0] not in stated}
    return replace(rules, **{key: getattr(topology, key) for key in stated}, places=places)

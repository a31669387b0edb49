"""Rules that a caller states, such as the options of a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rankplan._core import MAX_NODES, read_cluster
from rankplan.errors import PlacementError
from rankplan.plans.rules import Rules


def with_stated(rules: Rules, stated: Mapping[str, Any]) -> Rules:
    """Return rules in which these replace those of the same names.

    Raises `PlacementError` with every invalid value.
    """
    if not stated:
        return rules
    values, faults = read_cluster({"topology": dict(stated), "num_nodes": MAX_NODES})
    if values is None:
        # A wrong word of an option is a wrong value; in a config, it is a key.
        wrong = [replace(one, code="invalid-value") if one.code == "unknown-key" else one for _, one in faults]
        raise PlacementError(wrong)
    topology = Rules.of(values).topology()
    places = {path: where for path, where in rules.places.items() if path[0] not in stated}
    return replace(rules, **{key: topology[key] for key in stated}, places=places)

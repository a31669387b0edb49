"""The costs of a config: those that are given or its ``profile_data``, with the sizes of its components."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rankplan.config.models import component_names
from rankplan.config.section import Reading
from rankplan.config.text.reader import Reader
from rankplan.dialects import Dialect
from rankplan.dialects.rlinf import dialect as rlinf
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.tuning.costs import Costs
from rankplan.tuning.profile import costs_of, has_profile


def read_costs(costs: Costs | Mapping[str, Any] | str | os.PathLike[str]) -> Costs:
    """Return the costs in a mapping or a file. Raises `PlacementError` with every fault, ``OSError``."""
    if isinstance(costs, Costs):
        return costs
    return Costs.from_dict(costs) if isinstance(costs, Mapping) else Costs.load(costs)


def whole_config(reader: Reader, dialect: Dialect) -> Mapping[str, Any] | None:
    """Return the config whose sections decide which placements are valid: one of RLinf's, or ``None``."""
    return reader.config if dialect is rlinf else None


def costs_for(costs: Costs | None, reader: Reader, dialect: Dialect, inventory: Inventory, file: str) -> Costs:
    """Return the costs of a config: with its parallel sizes where they state none, or else those of its profile.

    Raises `PlacementError` (``missing-times``) if neither has the times of a component on accelerators.
    """
    section = reader if dialect is rlinf and isinstance(reader, Reading) else None
    if costs is not None:
        costs = _with_sizes(costs, dialect, reader, inventory)
        if section is not None:
            _check_all_timed(costs, section)
        return costs
    if section is None or not has_profile(section.config):
        message, help = "the config has no measured times", "pass them with --costs, or add `profile_data:`"
        raise PlacementError([Diagnostic("missing-times", message, help, file=file)])
    return costs_of(section, dialect.plan(section, inventory), len(inventory.core.accelerators()))


def _with_sizes(costs: Costs, dialect: Dialect, reader: Reader, inventory: Inventory) -> Costs:
    try:
        planned = dialect.plan(reader, inventory)
    except PlacementError:
        return costs  # the placement is about to be replaced
    components = {
        name: replace(one, parallel=planned[name].parallel) if name in planned and not one.parallel.stated else one
        for name, one in costs.components.items()
    }
    return replace(costs, components=components)


def _check_all_timed(costs: Costs, reading: Reading) -> None:
    """Raise `PlacementError` for components on accelerators of the cluster that the costs do not mention."""
    faults = []
    for key, entry in reading.section.component_placement.items():
        for name in component_names(key):
            if entry.node_group == ("cluster",) and name not in costs.components and name not in costs.like:
                message = f"component `{name}` of the config has no times"
                help = "add its seconds to the costs, or `with: NAME` if it runs with another component"
                faults.append(costs.located(("components",), Diagnostic("missing-times", message, help)))
    if faults:
        raise PlacementError(faults)

"""From a config to components: what every dialect needs between its reader, an inventory and a plan."""

from __future__ import annotations

from dataclasses import replace

from rankplan._core import ACCELERATOR, CLUSTER, NODE, WHOLE_NODE
from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Reader
from rankplan.errors import PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import Parallel
from rankplan.plans.component import Component

ASSUMED = 8
"""Accelerators per node if neither the config nor an inventory says how many."""


def with_sizes(reader: Reader, component: Component, parallel: Parallel, path: KeyPath) -> Component:
    """Return a component with parallel sizes, which are at a path of the config; it is a fault if they do not fit."""
    reader.size_paths[component.name] = path
    try:
        return replace(component, parallel=parallel)
    except PlacementError as error:
        for one in error.diagnostics:
            if reader.located(path, one) not in reader.faults:  # two components may have the same sizes
                reader.add_in_config(path, one)
        return component


def resource_lists(component: Component, cluster: Inventory) -> list[list[int]]:
    """Return the resources of each process: accelerators counted over the cluster, or its node.

    ``cluster`` is the component's inventory without node groups. Raises ``ValueError`` for processes that use anything
    else, such as robots.
    """
    kinds = {run.pattern.resource_type for run in component.rows.runs()}
    if kinds not in ({WHOLE_NODE}, {ACCELERATOR}):
        raise ValueError(f"{' and '.join(sorted(kinds))} of a node group cannot be converted")
    return cluster.pool((NODE if kinds == {WHOLE_NODE} else CLUSTER,)).ranks_of(component.rows)

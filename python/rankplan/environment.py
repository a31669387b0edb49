"""The environment of one rank, from its row of the plan. Pure: nothing is read, nothing is set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rankplan.accelerators import VARIABLES, vendor

if TYPE_CHECKING:
    from rankplan._core import Placement

RANK_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "NODE_LOCAL_RANK",
    "NODE_LOCAL_WORLD_SIZE",
    "CLUSTER_NODE_RANK",
)
MASTER_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")

RESERVED_VARIABLES = frozenset({*RANK_VARIABLES, *MASTER_VARIABLES, *VARIABLES})
"""What the plan decides, ranks and devices: the ``env_vars`` of a node group may set any variable but these."""

NODE_RANK_VARIABLES = ("RANKPLAN_NODE_RANK", "RLINF_NODE_RANK")
"""Set one of them on every node before ``ray start``; the first one set on a node counts."""

REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
"""What stands in a value for another variable: ``$NAME`` (the first group) or ``${NAME}`` (the second)."""

_READ_AT_START = ("LD_", "PYTHON", "MALLOC_")


def planned_environment(placement: Placement) -> dict[str, str]:
    """Return what the plan says about a rank: its ranks and its devices.

    ``LOCAL_RANK`` is always the index, among the visible devices, of the process's own first one, so that
    ``set_device(LOCAL_RANK)`` is right: isolated it is 0, in a ``LOCAL_WORLD_SIZE`` of 1. A process without
    accelerators of its own has its place among the component's processes on the node. The vendor's visibility variable
    lists the node's own ids; another tells Ray not to rewrite it.
    """
    local_rank, local_world_size = placement.local_rank, placement.local_world_size
    if placement.num_accelerators and placement.isolate_accelerator:
        local_rank, local_world_size = 0, 1
    elif placement.num_accelerators:
        local_rank = placement.local_accelerator_rank
    ranks = (
        placement.rank,
        placement.world_size,
        local_rank,
        local_world_size,
        placement.placement_node_rank,
        placement.local_rank,
        placement.local_world_size,
        placement.cluster_node_rank,
    )
    environment = {name: str(value) for name, value in zip(RANK_VARIABLES, ranks, strict=True)}
    row = vendor(placement.accelerator_type)
    if row is not None:
        environment |= row.showing(placement.visible_accelerators)
    return environment


def rank_environment(
    placement: Placement, *, master_addr: str, master_port: int, env_vars: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment of a rank: its node group's part, the plan's, and the rendezvous of its component.

    ``env_vars`` come from the node group; where both say something, the plan wins (a config that tries is refused
    long before). ``master_addr`` is the address of rank 0's node and ``master_port`` a free port there.
    """
    return {
        **env_vars,
        **planned_environment(placement),
        "MASTER_ADDR": master_addr,
        "MASTER_PORT": str(master_port),
    }


def expanded(env_vars: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with ``$NAME`` and ``${NAME}`` in them replaced, as Ray does it.

    They stand for variables of ``environment`` or for earlier ones; ``${NAME}`` for nothing where there is none.
    """
    known, result = dict(environment), {}

    def filled_in(found: re.Match[str]) -> str:
        return known.get(found[1] or found[2], found[0] if found[1] else "")

    for name, value in env_vars.items():
        known[name] = result[name] = REFERENCE.sub(filled_in, value)
    return result


def start_variables(env_vars: Mapping[str, str]) -> dict[str, str]:
    """Return those that must be there when the process starts: the loader, libc and the interpreter read them once."""
    return {name: value for name, value in env_vars.items() if name.startswith(_READ_AT_START)}

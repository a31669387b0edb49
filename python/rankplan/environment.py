"""The environment of one rank, from its row of the plan. Pure: nothing is read, nothing is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rankplan.accelerators import NO_ACCEL, VENDORS, vendor

if TYPE_CHECKING:
    from rankplan.placement import Placement

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

RESERVED_VARIABLES = frozenset(
    {*RANK_VARIABLES, *MASTER_VARIABLES}
    | {row.visibility for row in VENDORS}
    | {row.hands_off for row in VENDORS if row.hands_off is not None}
)
"""What the plan decides: a node group's ``env_vars`` may set any other variable, and none of these."""

_READ_AT_START = ("LD_", "PYTHON", "MALLOC_")


def planned_environment(placement: Placement, *, owns_accelerators: bool) -> dict[str, str]:
    """Return what the plan says about a rank: its ranks and its devices.

    ``owns_accelerators``: the resources of this process are accelerators (not robots, not whole nodes).

    ``LOCAL_RANK`` is always the index, among the visible devices, of the process's own first one, so that
    ``set_device(LOCAL_RANK)`` is right: isolated it is 0 (in a ``LOCAL_WORLD_SIZE`` of 1). A process without
    accelerators of its own has its place among the component's processes on the node. The vendor's visibility variable
    lists the node's own ids; the variable beside it tells Ray not to rewrite it.
    """
    local_rank, local_world_size = placement.local_rank, placement.local_world_size
    if owns_accelerators and placement.isolate_accelerator:
        local_rank, local_world_size = 0, 1
    elif owns_accelerators:
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
        environment[row.visibility] = ",".join(placement.visible_accelerators)
        if row.hands_off is not None:
            environment[row.hands_off] = "1"
    return environment


def rank_environment(
    placement: Placement,
    *,
    owns_accelerators: bool,
    master_addr: str,
    master_port: int,
    env_vars: Mapping[str, str],
) -> dict[str, str]:
    """Return the whole environment of a rank: the plan's part, the rendezvous of its component, its node group's part.

    ``master_addr`` is the address of rank 0's node and ``master_port`` a free port there. ``env_vars`` come from the
    node group; one that the plan decides (``RESERVED_VARIABLES``) is a ``ValueError``, for whichever of the two won,
    the config would say something that is not so.
    """
    if clash := sorted(RESERVED_VARIABLES.intersection(env_vars)):
        raise ValueError(
            f"node group {placement.node_group_label!r} sets {', '.join(clash)} in its env_vars, which the plan decides; "
            "take it out there, and say with the placement which ranks and devices a process gets"
        )
    return {
        **planned_environment(placement, owns_accelerators=owns_accelerators),
        "MASTER_ADDR": master_addr,
        "MASTER_PORT": str(master_port),
        **env_vars,
    }


def owns_accelerators(placement: Placement, hardware: list[object]) -> bool:
    """Whether the resources of this process are accelerators; ``hardware`` are the configs of its robots, if any."""
    return bool(placement.local_hardware_ranks) and placement.accelerator_type != NO_ACCEL and not hardware


def start_variables(env_vars: Mapping[str, str]) -> dict[str, str]:
    """Return those that must be there when the process starts: the loader, libc and the interpreter read them once."""
    return {name: value for name, value in env_vars.items() if name.startswith(_READ_AT_START)}

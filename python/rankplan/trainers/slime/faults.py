"""The faults and warnings of slime's flags: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from rankplan import Diagnostic


def colocated_async() -> Diagnostic:
    """Return the fault of a colocated job that the asynchronous program starts."""
    message = "`train_async` refuses `colocate`: it trains while the engines generate, on GPUs of their own"
    help = "remove colocate and set rollout_num_gpus, or start train.py"
    return Diagnostic("invalid-value", message, help)


def whole_nodes(gpus: int) -> str:
    """Return the help for engines that slime expects on nodes with so many GPUs."""
    return f"give the training a multiple of {gpus} GPUs, and set num_gpus_per_node to the GPUs of a node"


def order_of_groups(system: str, sides: tuple[str, str], addresses: tuple[str, str]) -> Diagnostic:
    """Return the fault of two sides in node groups that the order of the nodes contradicts.

    ``addresses`` are those of a node of the first side, and of one of the second, which comes before it.
    """
    first, second = sides
    before, after = addresses[1], addresses[0]
    message = (
        f"{system} sorts the nodes of its only placement group by addresses as numbers: {before}, on which `{second}` "
        f"would be, comes before {after} of `{first}`, but `{first}` has the first accelerators"
    )
    help = f"exchange the nodes of the two groups, or give those of `{first}` lower addresses"
    return Diagnostic("order-not-kept", message, help)

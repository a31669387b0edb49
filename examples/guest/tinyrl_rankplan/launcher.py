"""TinyRL's own launcher starts from a list of hosts: `rankplan emit --to tinyhosts`."""

from __future__ import annotations

from rankplan import Diagnostic
from rankplan.launchers import Draft, Form, Launcher, Starts


def write(draft: Draft) -> str:
    """Return a line for each node, with its processes of each component."""
    user = draft.options.own.get("user")
    lines = []
    for node in range(draft.plan.inventory.num_nodes):
        address = draft.plan.inventory.node(node).ip
        if address is None:
            help = "add `ip` to every node of the inventory"
            draft.refuse(Diagnostic("emit-no-address", f"node {node} has no address for the list of hosts", help))
            continue
        counts = [
            f"{name}={sum(row.cluster_node_rank == node for row in component)}"
            for name, component in draft.plan.items()
        ]
        lines.append(" ".join([address if user is None else f"{user}@{address}", *counts]))
    return "\n".join(lines) + "\n"


LAUNCHER = Launcher(
    name="tinyhosts",
    write=write,
    starts=Starts.NOTHING,
    own={"user": Form("The user on every host.", metavar="NAME")},
)

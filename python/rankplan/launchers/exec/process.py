"""A rank as a process of this node: its environment, its CPUs and memory, and its interpreter."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

from rankplan.accelerators import vendor
from rankplan.environment import MASTER_VARIABLES, RANK_VARIABLES, expanded, planned_environment
from rankplan.frozen import frozen
from rankplan.hardware import bind
from rankplan.hardware.egl import VARIABLES, device_of, egl_devices
from rankplan.hardware.policies import Bound
from rankplan.plans.nearby import first_accelerator, network_variables
from rankplan.plans.plan import Plan

_PYTHON = ("python", "python3")
"""Commands that the interpreter of a node group replaces."""


@frozen
class RankProcess:
    """A rank of a component, and everything that its process starts with.

    ``environment`` is the whole one: that of this process, the variables of the node group and of the nearest network
    cards, and what the plan decides. ``interpreter`` runs commands that start with ``python``. A process that
    ``serves`` does not end by itself: it ends with the others of its node.
    """

    component: str
    rank: int
    environment: Mapping[str, str]
    bound: Bound
    interpreter: str | None
    serves: bool = False

    def arguments(self, command: Sequence[str]) -> list[str]:
        """Return a command with the interpreter of the rank's node group in place of ``python``."""
        if self.interpreter is not None and command[0] in _PYTHON:
            return [self.interpreter, *command[1:]]
        return list(command)

    def bind(self) -> None:
        """Bind this process as the plan says; processes that it starts or becomes stay bound."""
        if self.bound.cpus:
            bind.move(self.bound.cpus)
        if self.bound.memory_nodes:
            bind.set_memory_policy(self.bound.memory, self.bound.memory_nodes)

    def become(self, command: Sequence[str]) -> NoReturn:
        """Replace this process by the command. Raises ``OSError`` if it cannot be started."""
        self.bind()
        arguments = self.arguments(command)
        os.execvpe(arguments[0], arguments, self.environment)


def rank_process(
    plan: Plan, component: str, rank: int, given: Mapping[str, str], master: tuple[str, int] | None = None
) -> RankProcess:
    """Return a rank of a plan as a process with the environment ``given``.

    ``master`` is the rendezvous: an address on rank 0's node and a port. Without it, ``MASTER_ADDR`` and
    ``MASTER_PORT`` stay as given, for a launcher that sets them; a missing address is that of the inventory.
    Raises ``IndexError`` for an unknown rank.
    """
    own = plan[component]
    row = own[rank]
    of_group, interpreter = plan.inventory.environment(row.cluster_node_rank, row.node_group_label)
    environment = {name: value for name, value in given.items() if name not in RANK_VARIABLES}
    environment |= network_variables(own, row)
    environment |= expanded(of_group, given)
    environment |= planned_environment(row)
    first = plan.inventory.node(own[0].cluster_node_rank)
    address = first.ip or first.hostname
    if master is not None:
        environment |= dict(zip(MASTER_VARIABLES, map(str, master), strict=True))
    elif address is not None:
        environment.setdefault(MASTER_VARIABLES[0], address)
    if own.egl and row.num_accelerators:
        mask = vendor(row.accelerator_type)
        devices = egl_devices(environment, {mask.env_var} if mask else set())
        number = device_of(devices, *first_accelerator(own, row))
        if number is not None:
            environment |= {name: str(number) for name in VARIABLES if name not in of_group}
    return RankProcess(component, rank, environment, own.bound(rank), interpreter)

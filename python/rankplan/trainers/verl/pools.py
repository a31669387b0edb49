"""verl's pools: a number of nodes, and of accelerators on each."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from rankplan.sdk import Config, Placer, Taken, Where
from rankplan.trainers.verl import faults
from rankplan.trainers.verl.keys import PoolKeys

USERS = 3
"""``max_colocate_count`` of verl's pools: also the CPUs of a bundle (``RayResourcePool``)."""


USUAL_GPUS = 8
"""``n_gpus_per_node`` by default."""


class Pool(NamedTuple):
    """A pool of a section: its nodes, and its accelerators of each. ``where`` is the place of its size."""

    name: str
    nodes: int
    gpus_per_node: int
    where: Where

    @property
    def gpus(self) -> int:
        """All its accelerators."""
        return self.nodes * self.gpus_per_node

    def take(
        self, placer: Placer, component: str, prefix: str, cpus: int | None = USERS, users: Collection[str] = ()
    ) -> Taken:
        """Take its accelerators for a component, and record its requests, a group a node; too few are a fault.

        A bundle has ``cpus`` with its accelerator; ``None`` is unknown. ``users`` are all components on the pool, by
        default the one that it is taken for.
        """
        taken = self.take_nodes(placer, users or (component,))
        name = f"{prefix}{group_name(self.nodes, self.gpus_per_node)}"
        placer.ask(
            component, taken, per_group=self.gpus_per_node, name=name, strategy="STRICT_PACK", order="text", cpus=cpus
        )
        return taken

    def halves(self) -> tuple[Pool, Pool]:
        """Return two pools of a half each: of the GPUs of a single node, else of the nodes (``main_ppo_split``)."""
        if self.nodes // 2 == 0 and self.gpus_per_node // 2 > 0:
            half = self._replace(gpus_per_node=self.gpus_per_node // 2)
        else:
            half = self._replace(nodes=self.nodes // 2)
        return half, half

    def take_nodes(self, placer: Placer, users: Collection[str]) -> Taken:
        """Take its accelerators for these components; too few are a fault."""
        return placer.nodes(self.nodes, self.gpus_per_node, f"the pool of {self.name}", self.where, users=users)


def read_pool(
    section: Config, keys: PoolKeys, *, usual_nodes: int = 0, least_nodes: int = 1, usual_gpus: int = USUAL_GPUS
) -> Pool:
    """Return the pool of a section; missing nodes are a fault if the usual ones are too few."""
    for key in keys:
        if key.name in section.section and not section.stated(key):
            section.faults.add(section.where(key), faults.empty_size(key.name))
    if usual_nodes < least_nodes and not section.stated(keys.nodes):
        section.faults.add(section.place, faults.missing_nodes(section.name))
    stated = [key for key in keys if section.stated(key)]
    return Pool(
        section.name,
        section.get(keys.nodes, usual_nodes, least=least_nodes),
        section.get(keys.gpus, usual_gpus),
        section.where(*stated) if stated else section.place,
    )


def group_name(nodes: int, gpus: int) -> str:
    """Return the pattern of the name of a pool's groups, without their numbers.

    It has the size of every node (``RayResourcePool.get_placement_groups``), which a short pattern says of many nodes.
    """
    size, others = f"_{gpus}", nodes - 1
    sizes = f"(?:{size}){{{others}}}"
    if len(size) * others <= len(sizes):
        sizes = size * others
    return f"verl_group_{gpus}{sizes}:"

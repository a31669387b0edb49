"""Pod groups: runs of consecutive node ranks with the same accelerators and the same components."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from rankplan.frozen import frozen
from rankplan.plans.plan import Plan

_LONGEST = 20
_PLAIN = "nodes"
_RESERVED = ("head",)
"""Kueue names the pod set of Ray's head so."""


@frozen
class PodGroup:
    """Nodes that a launcher starts alike: consecutive ranks, the same accelerators, the same components.

    ``components`` are in the order of the plan. ``hostname`` is set for the only node of a group that is pinned to it.
    """

    name: str
    nodes: range
    components: tuple[str, ...]
    accelerator_type: str
    num_accelerators: int
    hostname: str | None = None

    @property
    def node_rank(self) -> str:
        """The node rank of a pod: a number, or an expression of ``RANKPLAN_INDEX``, its index in the group."""
        return str(self.nodes.start) if len(self.nodes) == 1 else f"{self.nodes.start}+$(RANKPLAN_INDEX)"


def components_by_node(plan: Plan) -> list[tuple[str, ...]]:
    """Return the components that use each node of the inventory, by node rank, in the order of the plan."""
    used = [0] * plan.inventory.num_nodes
    for index, component in enumerate(plan.values()):
        bit = 1 << index
        for run in component.rows.runs():
            for node in range(run.node, run.node + run.nodes):
                used[node] |= bit
    names = list(plan)
    sets = {bits: tuple(name for index, name in enumerate(names) if bits >> index & 1) for bits in set(used)}
    return [sets[bits] for bits in used]


def pod_groups(plan: Plan, *, single: bool = False) -> list[PodGroup]:
    """Return the pod groups of a plan by node rank. Nodes that no component uses are in none.

    A group is named by its components: joined by ``-``, in lower case, ``_`` as ``-``; ``nodes`` if that is longer than
    20 characters or reserved. Names that are not unique get the first node rank. ``single``: each node is a group.
    """
    found = list(_runs(plan, single=single))
    uses = Counter(group.name for group in found)
    named = [one if uses[one.name] == 1 else _numbered(one) for one in found]
    unique = len({one.name for one in named}) == len(named)  # a component may be named like a numbered group
    return named if unique else [_numbered(one) for one in found]


def _numbered(group: PodGroup) -> PodGroup:
    return replace(group, name=f"{group.name}-{group.nodes.start}")


def _runs(plan: Plan, *, single: bool) -> Iterator[PodGroup]:
    components = components_by_node(plan)
    start, last = 0, None
    for nodes, record in plan.inventory.stretches():
        hardware = record.accelerator_type, record.num_accelerators
        for node in nodes:
            here = (components[node], *hardware)
            if node and (here != last or single):
                yield from _group(plan, range(start, node), last, single=single)
                start = node
            last = here
    yield from _group(plan, range(start, plan.inventory.num_nodes), last, single=single)


def _group(
    plan: Plan, nodes: range, here: tuple[tuple[str, ...], str, int] | None, *, single: bool
) -> Iterator[PodGroup]:
    if here is not None and here[0]:
        components, accelerator_type, number = here
        hostname = plan.inventory.node(nodes.start).hostname if single else None
        yield PodGroup(_name(components), nodes, components, accelerator_type, number, hostname)


def _name(components: tuple[str, ...]) -> str:
    name = "-".join(components).lower().replace("_", "-")
    plain = len(name) <= _LONGEST and name not in _RESERVED and is_label(name)
    return name if plain else _PLAIN


def is_label(text: str) -> bool:
    """Whether a text is a DNS label as Kubernetes names objects: RFC 1035, at most 63 characters."""
    fine = text[:1].isalpha() and text[-1:] != "-" and all(one.isalnum() or one == "-" for one in text)
    return fine and text.isascii() and text == text.lower() and len(text) <= 63

"""The placement groups that a trainer asks Ray for, in order, with the nodes that a plan has for their bundles.

Beside them: what the trainer's other actors hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, TypeAlias

from rankplan._core import Request
from rankplan.frozen import frozen

__all__ = ["Actors", "NodeOrder", "Request"]

NodeOrder: TypeAlias = Literal["text", "number", "id", "topology", "topology-id", "rank", "rank-cpus"]
"""What a trainer sorts nodes by: addresses as text or as numbers, Ray node ids, ranks in the network, these or else Ray
node ids, the variable ``NODE_RANK``, or this and else the number of CPUs."""


@frozen
class Actors:
    """Equal actors of a trainer that no placement group holds, and what each reserves while it lives.

    ``count`` is their number, with ``each_node`` that on every node. With a ``component`` it is the number with each
    process of this component, on the node of that process. ``cpus`` and custom ``resources`` are in Ray's units,
    ``memory`` is in MiB; ``None`` reserves nothing. ``brief`` ones end soon, and wait for what others leave.
    """

    name: str
    count: int = 1
    cpus: float | None = None
    memory: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    each_node: bool = False
    component: str | None = None
    brief: bool = False

    def plain(self) -> dict[str, Any]:
        """Return the fields that it states, as in the file of a plan."""
        values: dict[str, Any] = {"name": self.name, "count": self.count, "cpus": self.cpus, "memory": self.memory}
        if self.resources:
            values["resources"] = dict(self.resources)
        for name in ("each_node", "component", "brief"):
            if getattr(self, name):
                values[name] = getattr(self, name)
        return {name: value for name, value in values.items() if value is not None}

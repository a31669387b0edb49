"""What a file says besides the plan, and what is found wrong while it is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from rankplan.errors import Diagnostic, refusal
from rankplan.plans.plan import Plan
from rankplan.words import wrong_type

JOB, CLUSTER = "job", "cluster"
KINDS = (JOB, CLUSTER)
"""A RayJob, which runs its entrypoint and ends, or a RayCluster, which stays."""

DEFAULT = "*"
"""The key of the command of every component that has none of its own; ``{}`` in it is the component's name."""


AGAIN = "write the file again with `rankplan emit`"
"""The help for a file that is no longer what rankplan wrote."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a file says besides the plan; what is not given is left out of it.

    ``name`` is that of the job; unless it is ``named``, a base may have another. ``entrypoint`` is the driver of a job
    on Ray; ``commands`` are by component, and that of `DEFAULT` is for all others. ``base`` is the path of the user's
    own file. ``queue`` is Kueue's local queue; ``levels`` are node labels by level, ``resource_keys`` the resources
    that count accelerators, by type. ``pin``: only the named hosts. ``kind`` is one of `KINDS`. ``slurm_release`` and
    ``segment_level`` are Slurm's. Component i has its rendezvous at ``port`` + i.
    """

    name: str = "train"
    named: bool = False
    entrypoint: str | None = None
    commands: Mapping[str, str] = field(default_factory=dict)
    base: str | None = None
    image: str | None = None
    cpus: str | None = None
    memory: str | None = None
    namespace: str | None = None
    queue: str | None = None
    levels: Mapping[str, str] = field(default_factory=dict)
    resource_keys: Mapping[str, str] = field(default_factory=dict)
    pin: bool = False
    kind: str = JOB
    slurm_release: str | None = None
    segment_level: str | None = None
    port: int = 29500

    def command(self, component: str) -> str | None:
        """Return the command of a component, ``None`` if there is none."""
        if component in self.commands:
            return self.commands[component]
        default = self.commands.get(DEFAULT)
        return None if default is None else default.replace("{}", component)


_TYPES: dict[str, tuple[Any, str]] = {
    "command": (str | Mapping, "a text, or one for each component"),
    "base": (str | os.PathLike, "a path"),
    "cpus": (str | int, "a number or a text such as 500m"),
    "memory": (str | int, "a text such as 512Gi"),
    "levels": (Mapping, 'the label of each level: {"nvlink": "nvidia.com/gpu.clique"}'),
    "resource_keys": (Mapping, 'the resource of each type: {"NV_GPU": "nvidia.com/gpu"}'),
    "pin": (bool, "True or False"),
    "port": (int, "a number such as 29500"),
}
"""The type of each option of `emit` that is not a text, and what to pass."""


def check_types(given: Mapping[str, object]) -> None:
    """Raise ``TypeError`` for an option of a wrong type; ``None`` is one that is not given."""
    for name, value in given.items():
        types, instead = _TYPES.get(name, (str, "a text"))
        right = isinstance(value, types) and (types is bool or not isinstance(value, bool))
        texts = chain(value, value.values()) if isinstance(value, Mapping) else ()
        if value is not None and not (right and all(isinstance(text, str) for text in texts)):
            raise wrong_type(name, value, instead)


@dataclass(slots=True)
class Draft:
    """A file that is being written: the plan, the options, every fault so far, and notes for the user."""

    plan: Plan
    options: Options
    faults: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def refuse(self, code: str, message: str, help: str | None = None) -> None:
        """Record a fact that the target cannot hold, once."""
        found = Diagnostic(code, message, help)
        if found not in self.faults:
            self.faults.append(found)

    def finish(self) -> None:
        """Raise `PlacementError` with every fault, if there are any."""
        if self.faults:
            raise refusal(self.faults)


@dataclass(frozen=True, slots=True)
class Emitted:
    """A file that rankplan has written: the plan, the target, and the options that give the same file again."""

    plan: Plan
    target: str
    options: Options

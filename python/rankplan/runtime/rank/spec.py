"""A rank, as its plan and its node describe it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rankplan._core import Placement
from rankplan.hardware.policies import Bound

if TYPE_CHECKING:
    from rankplan.plans.component import Coordinates

DEVICES, ENVIRONMENT = PROOFS = ("devices", "environment")
"""How a rank proves that it sees its devices: by asking the driver, or by its environment variables alone."""


@dataclass(frozen=True, slots=True)
class RankSpec:
    """A rank, as its plan and its node describe it. Its process gets no other description, and must report the same.

    ``node_id`` is Ray's id of its node. ``hardware`` are the configs of its robots, pickled because the modules of
    their models must be imported after the environment is set. ``env_vars`` are those of its node group. ``at_start``
    are the variables that the process must start with, with their final values, and ``interpreter`` runs it (``None``:
    Ray's interpreter).

    ``uuids`` are those of its visible devices, empty if unknown; ``proof`` says whether to ask the driver for them.
    ``nics`` are the network cards near it, and ``nic_variables`` make it use them. With ``egl``, it renders on the EGL
    device of its first accelerator: ``ordinal`` is the number of that accelerator on its node, ``pci`` its address.
    """

    component: str
    placement: Placement
    coordinates: list[Coordinates]
    node_id: str
    hardware: bytes = b""
    env_vars: Mapping[str, str] = field(default_factory=dict)
    at_start: Mapping[str, str] = field(default_factory=dict)
    interpreter: str | None = None
    bound: Bound = field(default_factory=Bound)
    proof: str = ENVIRONMENT
    uuids: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()
    nic_variables: Mapping[str, str] = field(default_factory=dict)
    egl: bool = False
    ordinal: int | None = None
    pci: str | None = None

    def runtime_env(self) -> dict[str, Any] | None:
        """Return the settings needed at process start; with ``None``, Ray starts the process in half the time."""
        runtime_env: dict[str, Any] = {}
        if self.at_start:
            runtime_env["env_vars"] = dict(self.at_start)
        if self.interpreter is not None:
            # Ray passes it to a shell
            runtime_env["py_executable"] = shlex.quote(self.interpreter)
        return runtime_env or None

    def late(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that the process sets itself, because it did not start with them."""
        return {name: value for name, value in variables.items() if name not in self.at_start}

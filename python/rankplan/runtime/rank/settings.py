"""What a rank sets up besides its environment, before the user's class is loaded, and what it reports about it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rankplan.accelerators import vendor
from rankplan.errors import LaunchError, PlacementError
from rankplan.hardware import bind
from rankplan.hardware.bind import Whereabouts
from rankplan.hardware.driver import Question, Shown
from rankplan.hardware.egl import VARIABLES, device_of, egl_devices
from rankplan.plans.binding import Bound
from rankplan.plans.component import Component
from rankplan.plans.nearby import near_cards, network_variables, own_devices, visible_uuids
from rankplan.runtime.ray import timeouts

_logger = logging.getLogger("rankplan")

DEVICES, ENVIRONMENT = PROOFS = ("devices", "environment")
_CUDA = "NV_GPU"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rank reports: where it runs, what the driver shows it (``None``: not asked), and its EGL device."""

    where: Whereabouts = field(default_factory=Whereabouts)
    shown: Shown | None = None
    egl_device: int | None = None


@dataclass(frozen=True, slots=True)
class RankSettings:
    """The plan of a rank beyond its row.

    ``uuids`` are those of its visible devices, empty if unknown; ``proof`` says whether to ask the driver for them.
    ``nics`` are the network cards near it, and ``variables`` make it use them. With ``egl``, it finds the EGL device
    of its first accelerator: ``ordinal`` is the number of that accelerator on its node, ``pci`` its address.
    """

    bound: Bound = field(default_factory=Bound)
    uuids: tuple[str, ...] = ()
    proof: str = ENVIRONMENT
    nics: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    egl: bool = False
    ordinal: int | None = None
    pci: str | None = None
    masks: frozenset[str] = frozenset()

    def enter(self, env_vars: Mapping[str, str]) -> None:
        """Bind this process, set its variables that ``env_vars`` leaves open, and start asking the driver."""
        process = _Process(self)
        if self.bound.cpus:
            bind.move(self.bound.cpus)
        if self.bound.memory_nodes:
            bind.set_memory_policy(self.bound.memory, self.bound.memory_nodes)
        os.environ |= {name: value for name, value in self.variables.items() if name not in env_vars}
        if self.proof == DEVICES:
            process.question = Question(os.environ)
        if self.egl:
            process.egl_device = self._egl(env_vars)
        _processes[:] = [process]

    def _egl(self, env_vars: Mapping[str, str]) -> int | None:
        number = device_of(egl_devices(os.environ, set(self.masks)), self.ordinal, self.pci)
        if number is None:
            print("EGL shows no device for the first accelerator of this rank; it renders as before", file=sys.stderr)
            return None
        os.environ |= {name: str(number) for name in VARIABLES if name not in env_vars}
        return number


class _Process:
    """The settings of this process, and what was found out meanwhile."""

    def __init__(self, settings: RankSettings) -> None:
        self.settings = settings
        self.thread = bind.this_thread()
        self.question: Question | None = None
        self.egl_device: int | None = None

    def seen(self) -> Seen:
        """Return what this process can say about itself; the driver is asked again unless an answer is due."""
        shown = None
        if self.settings.proof == DEVICES:
            question, self.question = self.question or Question(os.environ), None
            shown = question.answer(timeouts.DRIVER)
        return Seen(Whereabouts.of(self.thread), shown, self.egl_device)


_processes: list[_Process] = []


def seen_here() -> Seen:
    """Return what this process can say about itself."""
    return _processes[0].seen() if _processes else Seen()


def rank_settings(component: Component, prove: str | None, simulated: bool) -> list[RankSettings]:
    """Return the settings of each rank of a component.

    ``prove``: ``devices`` asks the driver, ``environment`` does not; by default the driver is asked if the inventory
    has the uuids of the devices, but not on simulated nodes. Raises `PlacementError` (``binding-unmet``), and
    ``LaunchError`` if the driver of an accelerator cannot be asked.
    """
    if faults := component.binding_faults():
        raise PlacementError(faults)
    settings = []
    for row in component:
        here = component.inventory.node(row.cluster_node_rank)
        uuids = visible_uuids(component, row) if row.num_accelerators else ()
        proof = prove or (DEVICES if uuids and not simulated and row.accelerator_type == _CUDA else ENVIRONMENT)
        if proof == DEVICES and row.num_accelerators and row.accelerator_type != _CUDA:
            raise LaunchError(
                f'{component.name}: prove="devices" needs NVIDIA devices; rank {row.rank} has {row.accelerator_type}; '
                'use prove="environment"',
                component.name,
                row.rank,
                row.cluster_node_rank,
            )
        one = RankSettings(
            component.bound(row.rank),
            uuids,
            proof if row.num_accelerators else ENVIRONMENT,
            near_cards(component, row),
            network_variables(component, row),
        )
        if component.egl and row.num_accelerators:
            own, maker = own_devices(component, row), vendor(row.accelerator_type)
            name = here.accelerator_ids[row.local_accelerator_rank]
            one = replace(
                one,
                egl=True,
                ordinal=int(name) if name.isascii() and name.isdigit() else None,
                pci=own[0].pci if own else None,
                masks=frozenset({maker.env_var}) if maker else frozenset(),
            )
        settings.append(one)
    if component.nics == "set" and not any(one.variables for one in settings):
        _logger.warning("%s: network cards are not set: they are not one to one with its accelerators", component.name)
    return settings

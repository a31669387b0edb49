"""Hardware facts in the record of a node: its cores, NUMA nodes, accelerators one by one, and network cards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from rankplan._core import RankSet
from rankplan.config.base import Model
from rankplan.config.models import Count
from rankplan.config.text.faults import fault
from rankplan.hardware.machine import Machine, groups_text, parse_groups
from rankplan.hardware.pci import DISTANCES, address_of
from rankplan.hardware.sysfs import MAX_CPU, cpu_list
from rankplan.words import as_int, shown

_GROUPS = "write CPUs such as 0,112, or `0,112 x56` for 56 groups that each start one higher"


def _cpus(value: Any) -> Any:
    if isinstance(value, RankSet):
        return value
    number = as_int(value)
    found = cpu_list(str(value if number is None else number)) if number is not None or isinstance(value, str) else None
    if found is None:
        message = f"{shown(value)} is not a list of CPUs"
        raise fault("invalid-value", message, f"write ranges such as 0-55,112-167, up to {MAX_CPU}")
    return found


def _groups(value: Any) -> Any:
    texts = value if isinstance(value, (list, tuple)) else [value]
    groups: list[RankSet] = []
    for index, text in enumerate(texts):
        found = [text] if isinstance(text, RankSet) else parse_groups(str(text)) if _is_text(text) else None
        if found is None:
            raise fault("invalid-value", f"{shown(text)} is not a group of CPUs", _GROUPS, (index,))
        groups += found
    return tuple(groups)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or as_int(value) is not None


def _address(value: Any) -> Any:
    if value is None:
        return None
    found = address_of(value) if isinstance(value, str) else None
    if found is None:
        message = f"{shown(value)} is not a PCI address"
        raise fault("invalid-value", message, 'write domain, bus, device and function: "0000:1b:00.0"')
    return found


def _distance(value: Any) -> Any:
    if value is not None and value not in DISTANCES:
        help = f"use one of {', '.join(DISTANCES)}"
        raise fault("invalid-value", f"`distance` is {shown(value)}, which is unknown", help)
    return value


def _texts(groups: Iterable[RankSet]) -> list[str]:
    return groups_text(groups)


Cpus = Annotated[RankSet, BeforeValidator(_cpus), PlainSerializer(str, return_type=str)]
Groups = Annotated[tuple[RankSet, ...], BeforeValidator(_groups), PlainSerializer(_texts, return_type=list[str])]
Nodes = Annotated[tuple[Cpus, ...], PlainSerializer(lambda nodes: [str(each) for each in nodes], return_type=list[str])]
Address = Annotated[str | None, BeforeValidator(_address)]
Size = Annotated[Count, Field(ge=0, le=1 << 40)]
NumaNode = Annotated[Count, Field(ge=0, le=MAX_CPU)]


class AcceleratorFacts(Model):
    """Facts of one accelerator beside its id. Every field may be missing."""

    uuid: str | None = None
    pci: Address = None
    numa: NumaNode | None = None
    model: str | None = None
    memory: Size | None = None
    """In MiB."""
    nic: str | None = None
    """The network card to use."""
    distance: Annotated[str | None, BeforeValidator(_distance)] = None
    """How far that card is, as in `DISTANCES`."""
    problem: str | None = None
    """Why the accelerator is not healthy."""


class NicFacts(Model):
    """Facts of a network card."""

    name: str = Field(min_length=1)
    active: bool = True
    bonded: bool = False
    rate: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    """In Gbit/s."""
    pci: Address = None
    numa: NumaNode | None = None


FIELDS = ("numa", "memory", "sockets", "cores", "caches", "nics")
"""The facts of a node besides those of its accelerators."""


class NodeFacts:
    """The facts of the hardware of a node, whose record has them as fields."""

    if TYPE_CHECKING:  # pydantic would take annotations here for fields, in this order
        devices: tuple[AcceleratorFacts, ...]
        numa: dict[int, RankSet]
        memory: dict[int, int]
        sockets: tuple[RankSet, ...]
        cores: tuple[RankSet, ...]
        caches: tuple[RankSet, ...]

    def check_facts(self) -> None:
        """Raise a fault if a CPU is on two NUMA nodes, in two cores or in two caches."""
        for name, sets in (("numa", self.numa.values()), ("cores", self.cores), ("caches", self.caches)):
            seen = RankSet()
            for cpus in sets:
                if both := seen & cpus:
                    message = f"CPU {both[0]} is in two entries of `{name}`"
                    raise fault("invalid-inventory", message, "list each CPU once")
                seen = seen | cpus

    @cached_property
    def machine(self) -> Machine | None:
        """The cores and the NUMA nodes, or ``None`` if unknown."""
        if not self.numa:
            return None
        return Machine(self.numa, self.memory, self.sockets, self.cores, self.caches)

    @property
    def accelerator_numa(self) -> tuple[int | None, ...]:
        """The NUMA node of each accelerator, by local index; empty if nothing is known of any."""
        return tuple(device.numa for device in self.devices)

    def plain_devices(self) -> list[dict[str, Any]]:
        """Return the facts of each accelerator as plain values."""
        return [device.model_dump(exclude_none=True) for device in self.devices]


def device_facts(accelerators: Iterable[Mapping[Any, Any]]) -> tuple[AcceleratorFacts, ...]:
    """Return the facts of accelerators that are listed one by one, or nothing if no entry has any."""
    own = set(AcceleratorFacts.model_fields)
    facts = [{key: value for key, value in one.items() if key in own} for one in accelerators]
    return tuple(AcceleratorFacts(**each) for each in facts) if any(facts) else ()

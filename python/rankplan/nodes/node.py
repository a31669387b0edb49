"""The record of a node: an entry of an inventory file, a probed node, and the input of the core."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    StrictBool,
    ValidationError,
    field_validator,
    model_validator,
)

from rankplan._core import MAX_LOCAL, RankSet
from rankplan.accelerators import NO_ACCEL, TYPES
from rankplan.config.base import Model
from rankplan.config.models import HardwareType
from rankplan.config.ranks import Count, Ranks
from rankplan.config.text.faults import as_pydantic, diagnostics, fault
from rankplan.hardware.machine import Machine, groups_text, parse_groups
from rankplan.hardware.pci import DISTANCES, address_of
from rankplan.hardware.sysfs import MAX_CPU, cpu_list
from rankplan.words import as_int, counted, did_you_mean, shown

USUAL_TYPE = "NV_GPU"
"""The type of accelerators whose type is not stated."""
_NAMES = {"accelerator_model", "ip", "hostname"}
_NULLABLE = {"accelerator_type", "accelerator_ids", *_NAMES}
_FACTS = ("numa", "memory", "sockets", "cores", "caches", "nics")
"""The facts of a node besides those of its accelerators."""


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
        is_text = isinstance(text, str) or as_int(text) is not None
        found = [text] if isinstance(text, RankSet) else parse_groups(str(text)) if is_text else None
        if found is None:
            help = "write CPUs such as 0,112, or `0,112 x56` for 56 groups that each start one higher"
            raise fault("invalid-value", f"{shown(text)} is not a group of CPUs", help, (index,))
        groups += found
    return tuple(groups)


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


Cpus = Annotated[RankSet, BeforeValidator(_cpus), PlainSerializer(str, return_type=str)]
Groups = Annotated[tuple[RankSet, ...], BeforeValidator(_groups), PlainSerializer(groups_text, return_type=list[str])]
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


class _Named(Model):
    """The keys of an accelerator in a list beside its facts."""

    id: Any = None
    healthy: StrictBool = True


class _Listed(AcceleratorFacts, _Named):
    """An accelerator in a list, which states the keys of both."""


class NicFacts(Model):
    """Facts of a network card."""

    name: str = Field(min_length=1)
    active: bool = True
    bonded: bool = False
    rate: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    """In Gbit/s."""
    pci: Address = None
    numa: NumaNode | None = None


class NodeSpec(Model):
    """One node, or several equal ones: their ranks, accelerators and names.

    The same record serves an entry of an inventory file, a probed node and the core; an entry names the number of
    accelerators ``accelerators``, and so does the constructor. ``accelerator_type`` and
    ``accelerator_ids`` (the node's own ids, by local index) always have a value; `states` tells whether it was given.
    No process may use a node that is not ``healthy`` or that another job has (``taken``: its name), nor the
    accelerators whose local indices are ``unhealthy``.

    Every hardware fact may be missing. ``numa`` has the CPUs that processes may use, by NUMA node; ``memory`` the size
    of each NUMA node with memory, in MiB. ``sockets`` are the NUMA nodes of each package, ``cores`` the threads of each
    physical core, ``caches`` the CPUs of each largest cache. ``devices`` describes the accelerators by local index.
    """

    ranks: Ranks
    num_accelerators: Count = Field(default=0, ge=0, le=MAX_LOCAL, alias="accelerators")
    accelerator_type: str = NO_ACCEL
    accelerator_model: str | None = None
    accelerator_ids: tuple[str, ...] = ()
    ip: str | None = None
    hostname: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    hardware: dict[HardwareType, Annotated[Count, Field(ge=1, le=MAX_LOCAL)]] = Field(default_factory=dict)
    healthy: bool = True
    unhealthy: Ranks = RankSet()
    taken: Annotated[str, Field(min_length=1)] | None = None
    numa: dict[NumaNode, Cpus] = Field(default_factory=dict)
    memory: dict[NumaNode, Size] = Field(default_factory=dict)
    sockets: Nodes = ()
    cores: Groups = ()
    caches: Groups = ()
    nics: tuple[NicFacts, ...] = ()
    devices: tuple[AcceleratorFacts, ...] = ()

    @field_validator("accelerator_ids", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        ids = [str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in value]
        for item in ids:
            if isinstance(item, str) and (not item or "," in item or not item.isprintable()):
                message = f"{item!r} is not an accelerator id"
                raise fault("invalid-value", message, "write ids such as 0 or GPU-5c89, without commas")
        return ids

    @field_validator("accelerator_type")
    @classmethod
    def _known_type(cls, value: str) -> str:
        if value not in TYPES:
            help = did_you_mean(value, TYPES)
            help += "" if help.endswith("?") else "; a type of your own: rankplan.register_accelerator"
            raise fault("invalid-value", f"unknown accelerator_type `{value}`", help)
        return value

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        given = value
        if any(_empty(key, value.get(key, ...)) for key in _NULLABLE):
            given = {key: item for key, item in value.items() if not _empty(key, item)}
        if isinstance(given.get("accelerators"), (list, tuple)):
            given = {**given, **_one_by_one(given["accelerators"])}
        if isinstance(given.get("accelerator_ids"), (list, tuple)):
            return {"accelerators": len(given["accelerator_ids"]), **given}
        return given

    @model_validator(mode="after")
    def _filled_in(self) -> NodeSpec:
        ids, stated = self.accelerator_ids, self.states("accelerator_ids")
        if stated and len(ids) != self.num_accelerators:
            message = f"{self.num_accelerators} accelerators, but {counted(len(ids), 'accelerator id')}"
            raise fault("invalid-inventory", message, "list one id per accelerator, or remove `accelerators`")
        if len(set(ids)) < len(ids):
            twice = next(item for item, count in Counter(ids).items() if count > 1)
            message = f"accelerator id {twice} is listed twice for one node"
            raise fault("invalid-inventory", message, "list each accelerator once")
        if self.num_accelerators and self.states("accelerator_type") and self.accelerator_type == NO_ACCEL:
            message = f"{counted(self.num_accelerators, 'accelerator')} of type {NO_ACCEL}"
            raise fault("invalid-inventory", message, "write their type, e.g. NV_GPU, or remove the accelerators")
        self._check_cpus()
        if self.devices and len(self.devices) != self.num_accelerators:
            message = f"{self.num_accelerators} accelerators, but facts of {len(self.devices)}"
            raise fault("invalid-inventory", message, "list all accelerators under `accelerators`")
        if self.unhealthy and self.unhealthy[-1] >= self.num_accelerators:
            message = f"accelerator {self.unhealthy[-1]} is unhealthy, but the node has {self.num_accelerators}"
            raise fault("invalid-inventory", message, "count accelerators from 0")
        # Set past the frozen model, so that the fields do not count as stated.
        if not self.num_accelerators:
            self.__dict__["accelerator_type"] = NO_ACCEL
        elif self.accelerator_type == NO_ACCEL:
            self.__dict__["accelerator_type"] = USUAL_TYPE
        if not stated:
            self.__dict__["accelerator_ids"] = tuple(str(index) for index in range(self.num_accelerators))
        return self

    def _check_cpus(self) -> None:
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
        return Machine(self.numa, self.memory, self.sockets, self.cores, self.caches) if self.numa else None

    def states(self, field: str) -> bool:
        """Return whether the source of the record gave this field."""
        return field in self.model_fields_set

    @property
    def rank(self) -> int:
        """The node rank; of several equal nodes, that of the first."""
        return self.ranks[0]

    @property
    def name(self) -> str:
        """The hostname, else the address, else ``node-3``."""
        return self.hostname or self.ip or f"node-{self.rank}"

    def at(self, ranks: RankSet) -> NodeSpec:
        """Return the same record for other node ranks; this one if it has them."""
        return self if ranks == self.ranks else self.changed(ranks=ranks)

    def changed(self, **fields: Any) -> NodeSpec:
        """Return the record with other values, which must be valid."""
        # As `model_copy`, but the set of stated fields is shared if it can be: faster, for thousands of nodes.
        stated = self.__pydantic_fields_set__
        found = NodeSpec.__new__(NodeSpec)
        put = object.__setattr__
        put(found, "__dict__", self.__dict__ | fields)
        put(found, "__pydantic_fields_set__", stated if stated >= fields.keys() else stated | fields.keys())
        put(found, "__pydantic_extra__", None)
        put(found, "__pydantic_private__", None)
        return found

    def problems(self) -> list[tuple[int, str]]:
        """Return the local index of each accelerator that should not be used, with the reason."""
        return [(index, one.problem) for index, one in enumerate(self.devices) if one.problem is not None]

    def described(self) -> dict[str, Any]:
        """Return the stated fields as plain values, as in an inventory file."""
        plain = self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"devices", *_FACTS})
        if self.healthy:
            plain.pop("healthy", None)
        if self.accelerator_type == USUAL_TYPE:
            plain.pop("accelerator_type", None)
        facts = self._plain_facts()
        if devices := facts.pop("devices", None):
            stated, broken = plain.pop("accelerator_ids", None), plain.pop("unhealthy", None)
            plain["accelerators"] = [
                ({} if stated is None else {"id": name})
                | device
                | ({"healthy": False} if broken is not None and index in self.unhealthy else {})
                for index, (name, device) in enumerate(zip(self.accelerator_ids, devices, strict=True))
            ]
        plain |= facts
        return {key: value for key, value in plain.items() if key == "healthy" or value not in (None, {}, 0, [], "")}

    @property
    def kind(self) -> tuple[Any, ...]:
        """Everything but the node ranks, as a hashable value."""
        labels, hardware = frozenset(self.labels.items()), frozenset(self.hardware.items())
        ids = self.states("accelerator_ids") and self.accelerator_ids
        return (
            self.num_accelerators,
            self.accelerator_type,
            self.accelerator_model,
            ids,
            self.ip,
            self.hostname,
            labels,
            hardware,
            self.healthy,
            self.unhealthy,
            self.taken,
            self.facts,
        )

    def _plain_facts(self) -> dict[str, Any]:
        """Return the facts of the machine and of its accelerators as plain values."""
        if not any(getattr(self, name) for name in (*_FACTS, "devices")):
            return {}  # quick for a large cluster
        plain = self.model_dump(mode="json", include=set(_FACTS), exclude_defaults=True)
        facts = {key: value for key, value in plain.items() if value}
        for key in facts.keys() & {"numa", "memory"}:
            facts[key] = {int(node): value for node, value in facts[key].items()}
        devices = [device.model_dump(exclude_none=True) for device in self.devices]
        return facts | ({"devices": devices} if devices else {})

    @cached_property
    def facts(self) -> str:
        """The facts of the machine as JSON: equal for equal facts, empty without any."""
        return json.dumps(facts, sort_keys=True) if (facts := self._plain_facts()) else ""


def _empty(key: Any, value: Any) -> bool:
    """Whether a key that may be null is null, or an empty name, which says as little."""
    return key in _NULLABLE and (value is None or (value == "" and key in _NAMES))


def _one_by_one(accelerators: Sequence[Any]) -> dict[str, Any]:
    """Return the facts of accelerators that are listed one by one: ``[{id: GPU-5c}, {id: GPU-77, healthy: false}]``."""
    devices: list[dict[str, Any]] = []
    for index, one in enumerate(accelerators):
        if not isinstance(one, Mapping):
            message = f"an accelerator is {shown(one)}; it must be a mapping"
            raise fault("invalid-value", message, "write {id: GPU-5c89}, for example", ("accelerators", index))
        try:
            found = _Listed.model_validate({str(key): value for key, value in one.items()})
        except ValidationError as error:
            where, first = next(diagnostics(error, {"": _Listed}))
            raise as_pydantic(first, ("accelerators", index, *where)) from None
        devices.append(found.model_dump(exclude={"id", "healthy"}, exclude_unset=True))
    facts: dict[str, Any] = {"accelerators": len(accelerators), "devices": devices if any(devices) else ()}
    if any("id" in one for one in accelerators):
        facts["accelerator_ids"] = [one.get("id", str(index)) for index, one in enumerate(accelerators)]
    broken = [index for index, one in enumerate(accelerators) if not one.get("healthy", True)]
    return facts | ({"unhealthy": broken} if broken else {})

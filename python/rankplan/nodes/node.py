"""The record of a node: an entry of an inventory file, a probed node, and the input of the core."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator

from rankplan._core import MAX_LOCAL, RankSet
from rankplan.accelerators import NO_ACCEL, TYPES
from rankplan.config.base import Model
from rankplan.config.models import Count, HardwareType, Ranks
from rankplan.config.text.faults import diagnostics, fault
from rankplan.nodes.node_facts import (
    FIELDS,
    AcceleratorFacts,
    Cpus,
    Groups,
    NicFacts,
    NodeFacts,
    Nodes,
    NumaNode,
    Size,
    device_facts,
)
from rankplan.words import counted, did_you_mean, shown

_NAMES = {"accelerator_model", "ip", "hostname"}
_NULLABLE = {"accelerator_type", "accelerator_ids", *_NAMES}


class NodeSpec(NodeFacts, Model):
    """One node, or several equal ones: their ranks, accelerators and names.

    The same record serves an entry of an inventory file, a probed node and the core; an entry names the number of
    accelerators ``accelerators``, and so does the constructor. ``accelerator_type`` and
    ``accelerator_ids`` (the node's own ids, by local index) always have a value; `states` tells whether it was given.
    No process may use a node that is not ``healthy``, nor the accelerators whose local indices are ``unhealthy``.

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
        self.check_facts()
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
            self.__dict__["accelerator_type"] = "NV_GPU"
        if not stated:
            self.__dict__["accelerator_ids"] = tuple(str(index) for index in range(self.num_accelerators))
        return self

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
        if ranks == self.ranks:
            return self
        # As `model_copy`, but the set of stated fields is shared: a quarter of the time, for thousands of nodes.
        found = NodeSpec.__new__(NodeSpec)
        put = object.__setattr__
        put(found, "__dict__", {**self.__dict__, "ranks": ranks})
        put(found, "__pydantic_fields_set__", self.__pydantic_fields_set__)
        put(found, "__pydantic_extra__", None)
        put(found, "__pydantic_private__", None)
        return found

    def problems(self) -> list[tuple[int, str]]:
        """Return the local index of each accelerator that should not be used, with the reason."""
        return [(index, one.problem) for index, one in enumerate(self.devices) if one.problem is not None]

    def described(self) -> dict[str, Any]:
        """Return the stated fields as plain values, as in an inventory file."""
        plain = self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"devices", *FIELDS})
        if self.healthy:
            plain.pop("healthy", None)
        if self.devices:
            stated = plain.pop("accelerator_ids", None) is not None
            broken = plain.pop("unhealthy", None) is not None
            plain["accelerators"] = [
                {
                    **({"id": name} if stated else {}),
                    **facts,
                    **({"healthy": False} if broken and index in self.unhealthy else {}),
                }
                for index, (name, facts) in enumerate(zip(self.accelerator_ids, self.plain_devices(), strict=True))
            ]
        plain |= self._plain_facts()
        return {key: value for key, value in plain.items() if key == "healthy" or value not in (None, {}, 0, [], "")}

    @property
    def kind(self) -> tuple[Any, ...]:
        """Everything but the node ranks, as a hashable value."""
        labels, hardware = frozenset(self.labels.items()), frozenset(self.hardware.items())
        facts = (self.accelerator_type, self.accelerator_model, self.accelerator_ids)
        return *facts, self.ip, self.hostname, labels, hardware, self.healthy, self.unhealthy, self.facts

    def _plain_facts(self) -> dict[str, Any]:
        if not any(getattr(self, name) for name in FIELDS):
            return {}
        plain = self.model_dump(mode="json", include=set(FIELDS), exclude_defaults=True)
        facts = {key: value for key, value in plain.items() if value}
        for key in ("numa", "memory"):
            if key in facts:
                facts[key] = {int(node): value for node, value in facts[key].items()}
        return facts

    @cached_property
    def facts(self) -> str:
        """The facts of the machine as JSON: equal for equal facts, empty without any."""
        facts = {**self._plain_facts(), **({"devices": self.plain_devices()} if self.devices else {})}
        return json.dumps(facts, sort_keys=True) if facts else ""


def _empty(key: Any, value: Any) -> bool:
    """Whether a key that may be null is null, or an empty name, which says as little."""
    return key in _NULLABLE and (value is None or (value == "" and key in _NAMES))


def _one_by_one(accelerators: Sequence[Any]) -> dict[str, Any]:
    """Return the facts of accelerators that are listed one by one: ``[{id: GPU-5c}, {id: GPU-77, healthy: false}]``."""
    known = ["id", "healthy", *AcceleratorFacts.model_fields]
    for index, one in enumerate(accelerators):
        if not isinstance(one, Mapping):
            message = f"an accelerator is {shown(one)}; it must be a mapping"
            raise fault("invalid-value", message, "write {id: GPU-5c89}, for example", ("accelerators", index))
        for key in one:
            if key not in known:
                help = did_you_mean(str(key), known)
                raise fault("unknown-key", f"unknown key `{key}`", help, ("accelerators", index, str(key)))
        if not isinstance(one.get("healthy", True), bool):
            message = f"`healthy` is {shown(one['healthy'])}; it must be true or false"
            raise fault("invalid-value", message, "write true or false", ("accelerators", index, "healthy"))
        try:
            AcceleratorFacts(**{key: value for key, value in one.items() if key not in ("id", "healthy")})
        except ValidationError as error:
            where, found = next(diagnostics(error, {"": AcceleratorFacts}))
            raise fault(found.code, found.message, found.help, ("accelerators", index, *where)) from None
    facts: dict[str, Any] = {"accelerators": len(accelerators), "devices": device_facts(accelerators)}
    if any("id" in one for one in accelerators):
        facts["accelerator_ids"] = [one.get("id", str(index)) for index, one in enumerate(accelerators)]
    broken = [index for index, one in enumerate(accelerators) if not one.get("healthy", True)]
    return facts | ({"unhealthy": broken} if broken else {})

"""The devices of commands that start their processes without Ray, and those that two of them have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple


class Device(NamedTuple):
    """A device of a node, by its number there."""

    node: int
    number: int

    @staticmethod
    def first_shared(holders: Sequence[Iterable[Device]], devices: Collection[Device]) -> SharedDevice | None:
        """Return the first of these devices that the first of these holders has, too."""
        wanted = set(devices)
        for number, held in enumerate(holders):
            both = wanted.intersection(held)
            if both:
                return SharedDevice(number, min(both))
        return None


class SharedDevice(NamedTuple):
    """A device that two have: ``holder`` is the number of the first one."""

    holder: int
    device: Device

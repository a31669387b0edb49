"""The devices that a command sees: ``CUDA_VISIBLE_DEVICES`` before it, or exported, or that of another vendor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rankplan.accelerators import vendor
from rankplan.dialects.launching import faults
from rankplan.errors import Faults, Where
from rankplan.read.text.started import CommandWord

MASK = "CUDA_VISIBLE_DEVICES"


class Mask(NamedTuple):
    """The devices that a command sees, by their numbers on its node; ``None``: all. ``stated`` is its text.

    ``is_known``: no other devices may be meant, as in a mask that only a run knows, or in one of UUIDs.
    """

    devices: tuple[int, ...] | None = None
    stated: str = ""
    where: Where | None = None
    is_known: bool = True
    is_of_file: bool = False
    """Whether ``env`` of a YAML file sets it, in place of the environment of its command."""

    @staticmethod
    def shows(accelerator_type: str) -> bool:
        """Return whether ``CUDA_VISIBLE_DEVICES`` shows devices of a type, as it does with HIP, too."""
        row = vendor(accelerator_type)
        return row is not None and MASK in row.variables

    @classmethod
    def of(cls, text: str, where: Where, name: str = MASK) -> Mask:
        """Return the devices in a text; those after one that is no number are not visible. UUIDs are not read."""
        devices: list[int] = []
        for part in text.split(","):
            if not re.fullmatch(" *[0-9]{1,4} *", part):
                break
            devices.append(int(part))
        is_read = bool(devices) or not text.strip() or text.strip().startswith("-")
        return cls(tuple(dict.fromkeys(devices)) if is_read else None, f"{name}={text}", where, is_read)

    @classmethod
    def seen_with(cls, variables: Mapping[str, CommandWord], collector: Faults, names: Sequence[str] = (MASK,)) -> Mask:
        """Return the devices that a command with these variables sees, by the first of these names that it has.

        A mask that only a run knows is a warning.
        """
        name = next((name for name in names if name in variables), None)
        if name is None:
            return cls()
        word = variables[name]
        if word.text is None:
            collector.warn(word.where, faults.unknown_mask(name, word.variable or word.shown))
            return cls(is_known=False)
        return cls.of(word.text, word.where, name)

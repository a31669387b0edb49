"""What a package needs to add a trainer, besides the public names of `rankplan`.

Its entry point names a `Dialect` (group ``rankplan.dialects``). A launcher (``rankplan.launchers``) has the names of
`rankplan.launchers`, a command of click (``rankplan.commands``) needs none. rankplan's own trainers use these names,
too. A name is imported when it is used: the keys of a dialect need nothing that plans.

What several trainers share has modules of its own, by subject: `rankplan.sdk.keys`, `rankplan.sdk.memory`,
`rankplan.sdk.nodes`, `rankplan.sdk.placing`, `rankplan.sdk.resizing`, `rankplan.sdk.sharing`, `rankplan.sdk.words`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankplan._core import Taken as Taken
    from rankplan.dialects.interface.dialect import Dialect as Dialect
    from rankplan.dialects.interface.job import Job as Job
    from rankplan.dialects.interface.tried import Tried as Tried
    from rankplan.dialects.keys.config import Config as Config
    from rankplan.dialects.keys.key import Key as Key
    from rankplan.dialects.keys.key import anything as anything
    from rankplan.dialects.keys.key import fact as fact
    from rankplan.dialects.keys.key import number as number
    from rankplan.dialects.keys.key import share as share
    from rankplan.dialects.keys.key import size as size
    from rankplan.dialects.keys.key import switch as switch
    from rankplan.dialects.keys.key import text as text
    from rankplan.dialects.keys.roles import Role as Role
    from rankplan.dialects.keys.roles import setting as setting
    from rankplan.dialects.keys.table import KeyTable as KeyTable
    from rankplan.dialects.launching.command import Command as Command
    from rankplan.dialects.launching.masks import Mask as Mask
    from rankplan.dialects.launching.processes import Processes as Processes
    from rankplan.dialects.memory.convert import EFFECT as EFFECT
    from rankplan.dialects.placing.devices import Device as Device
    from rankplan.dialects.placing.engines import Engine as Engine
    from rankplan.dialects.placing.placer import Placer as Placer
    from rankplan.errors import Where as Where
    from rankplan.plans.node_command import NodeCommand as NodeCommand
    from rankplan.plans.requests import NodeOrder as NodeOrder
    from rankplan.read.text.programs import Program as Program
    from rankplan.read.text.sizes import Sizes as Sizes
    from rankplan.read.text.started import Started as Started
    from rankplan.words import must_be as must_be

_NAMES = {
    "_core": ("Taken",),
    "dialects.interface.dialect": ("Dialect",),
    "dialects.interface.job": ("Job",),
    "dialects.interface.tried": ("Tried",),
    "dialects.keys.config": ("Config",),
    "dialects.keys.key": ("Key", "anything", "fact", "number", "share", "size", "switch", "text"),
    "dialects.keys.roles": ("Role", "setting"),
    "dialects.keys.table": ("KeyTable",),
    "dialects.launching.command": ("Command",),
    "dialects.launching.masks": ("Mask",),
    "dialects.launching.processes": ("Processes",),
    "dialects.memory.convert": ("EFFECT",),
    "dialects.placing.devices": ("Device",),
    "dialects.placing.engines": ("Engine",),
    "dialects.placing.placer": ("Placer",),
    "errors": ("Where",),
    "plans.node_command": ("NodeCommand",),
    "plans.requests": ("NodeOrder",),
    "read.text.programs": ("Program",),
    "read.text.sizes": ("Sizes",),
    "read.text.started": ("Started",),
    "words": ("must_be",),
}
"""The names by the module that has them."""

_HOMES = {name: f"rankplan.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

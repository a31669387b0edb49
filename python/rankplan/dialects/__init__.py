"""The config dialects. Each plans into an ordinary `Plan`; its module is imported when it is used."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rankplan.dialects.no_job import description, fine_tuning
from rankplan.dialects.tables import TABLES
from rankplan.errors import Diagnostic, KeyPath
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.plans.requests import NodeOrder
from rankplan.read.text.document import Section
from rankplan.read.text.programs import Program, started
from rankplan.read.text.reader import Reader
from rankplan.words import path_text


class Dialect(Protocol):
    """The functions of a dialect's module. A config that was read can be passed in place of the config."""

    def read(self, config: Any) -> Reader:
        """Read and validate a config, once. Raises `PlacementError` if it is not a mapping."""

    def plan(
        self, config: Any, inventory: Inventory, *, isolate_accelerator: bool = True, pinned: bool = False
    ) -> Plan:
        """Return the plan of a config. Raises `PlacementError` with every fault.

        The plan predicts what the trainer does on its own, filling nodes as Ray does. A ``pinned`` one is to be bound
        to its nodes, which are in the trainer's order already: its pools take whole tensor groups and engines.
        """

    def node_order(self, config: Any) -> NodeOrder | None:
        """Return by what the trainer sorts the nodes that Ray gives it; ``None`` if it does not sort them."""

    def assumed_inventory(self, config: Any) -> Inventory:
        """Return the inventory that a config is probably meant for. Raises `PlacementError`."""


class Writing(Dialect, Protocol):
    """A dialect that can be written, too."""

    def written(self, planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a config for the components that the dialect can express, and why it cannot express the others."""


_MODULES = {
    "rlinf": "rankplan.rlinf.dialect",
    "areal": "rankplan.trainers.areal.dialect",
    "nemo_rl": "rankplan.trainers.nemo_rl.dialect",
    "openrlhf": "rankplan.trainers.openrlhf.dialect",
    "roll": "rankplan.trainers.roll.dialect",
    "skyrl": "rankplan.trainers.skyrl.dialect",
    "slime": "rankplan.trainers.slime.dialect",
    "verl": "rankplan.trainers.verl.dialect",
}
"""The modules of dialects that have a folder."""
_Module = TypeVar("_Module", bound=Dialect)


class _Modules(Mapping[str, _Module]):
    """Modules of dialects by name. Only ``modules[name]`` imports one."""

    def __init__(self, *names: str) -> None:
        self._names = dict.fromkeys(names)

    def __getitem__(self, name: str) -> _Module:
        if name not in self._names:
            raise KeyError(name)
        module: Any = import_module(_MODULES.get(name, f"rankplan.dialects.{name}"))
        found: _Module = module
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


WRITERS: Mapping[str, Writing] = _Modules[Writing]("rlinf", "verl", "slime", "roll")
"""Dialects that `convert` writes."""

DIALECTS: Mapping[str, Dialect] = _Modules[Dialect]("nemo_rl", "areal", "skyrl", *WRITERS, "openrlhf")
"""By name."""

if TYPE_CHECKING:  # mypy compares each module with its protocol
    from rankplan.rlinf import dialect as rlinf
    from rankplan.trainers.areal import dialect as areal
    from rankplan.trainers.nemo_rl import dialect as nemo_rl
    from rankplan.trainers.openrlhf import dialect as openrlhf
    from rankplan.trainers.roll import dialect as roll
    from rankplan.trainers.skyrl import dialect as skyrl
    from rankplan.trainers.slime import dialect as slime
    from rankplan.trainers.verl import dialect as verl

    _readers: list[Dialect] = [nemo_rl, areal, skyrl, openrlhf]
    _writers: list[Writing] = [rlinf, verl, slime, roll]


def name_of(config: Mapping[Any, Any]) -> str:
    """Return the dialect of the program that gets a config, else the first one whose keys it has, else RLinf's."""
    return _recognised(config) or "rlinf"


def _recognised(config: Mapping[Any, Any]) -> str | None:
    program = _program(config)
    if program is not None and program.system is not None:
        return program.system
    return next((name for name, table in TABLES.items() if table.recognises(config)), None)


def _program(config: Mapping[Any, Any]) -> Program | None:
    return started(config.document) if isinstance(config, Section) else None


def no_job(config: Mapping[Any, Any]) -> Diagnostic | None:
    """Return the fault of a config that is of no training job, as far as its program or its keys tell."""
    program, known = _program(config), _recognised(config)
    if program is not None and program.task:
        return program.fault
    document = config.document if isinstance(config, Section) else None
    file = None if document is None else document.file
    told = description(config, file) if known is None else fine_tuning(config) if known == "verl" else None
    if told is None or program is not None:
        return None if told is None or program is None else program.fault
    found = Diagnostic("no-components", *told)
    return found if document is None else document.locate((), found)


def dialect_of(config: Mapping[Any, Any]) -> Dialect:
    """Return the dialect of a config, detected from its keys."""
    return DIALECTS[name_of(config)]


def resembled(keys: Collection[str]) -> str | None:
    """Return the dialect that has one of these keys at the top of its configs or in their ``cluster`` section."""
    known = {"resource_pool_spec": "verl", "segment_size": "nemo_rl"}  # too weak to recognise a config by
    for name, table in TABLES.items():
        for path in (*table.telling, *table.alone):
            if path[:-1] in ((), ("cluster",)):
                known.setdefault(str(path[-1]), name)
    return next((name for key, name in known.items() if key in keys), None)


def mixed(config: Mapping[Any, Any]) -> list[tuple[KeyPath, Diagnostic]]:
    """Return the faults of a config whose keys are of several dialects: each key of another one, with its path."""
    name = name_of(config)
    found: list[tuple[KeyPath, Diagnostic]] = []
    telling = {"rlinf": [("cluster", "component_placement")]} | {name: table.alone for name, table in TABLES.items()}
    own = TABLES[name].known if name in TABLES else {}
    for other, path in ((other, path) for other, paths in telling.items() if other != name for path in paths):
        if path[-1] in own.get(path[:-1], ()):
            continue  # both systems have this key
        here: Any = config
        for key in path:
            here = here.get(key) if isinstance(here, Mapping) else None
        if here is not None:
            message = f"`{path_text(path)}` is a key of {other}, but the config has keys of {name}"
            help = f"remove it, or choose with --dialect {other} or --dialect {name}"
            found.append((path, Diagnostic("unknown-key", message, help)))
    return found

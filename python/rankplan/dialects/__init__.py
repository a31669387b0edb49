"""Which dialect a config is written in: each is a value, which is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rankplan.dialects.built_in import ASKED, DIALECTS, OWN
from rankplan.dialects.interface.dialect import Dialect
from rankplan.dialects.no_job import description, fine_tuning
from rankplan.errors import Diagnostic, KeyPath
from rankplan.read.text.document import Section
from rankplan.read.text.programs import Program, started
from rankplan.words import path_text

__all__ = ["ASKED", "DIALECTS", "OWN", "Dialect", "dialect_of", "mixed", "name_of", "no_job", "resembled", "writers"]


def asked() -> Iterator[Dialect]:
    """Yield the dialects of rankplan itself whose keys recognise a config, in their order."""
    for name in ASKED:
        yield DIALECTS[name]


def writers(form: str = "") -> list[str]:
    """Return the names of the dialects that can be written, in a form that an option of `convert` chooses."""
    known = [DIALECTS[name] for name in DIALECTS.builtin]
    known += DIALECTS.loaded().guests.values()
    return [dialect.name for dialect in known if form in dialect.writers]


def name_of(config: Mapping[Any, Any]) -> str:
    """Return the dialect of the program that gets a config, else the first one whose keys it has, else RLinf's."""
    return _recognised(config) or OWN


def _recognised(config: Mapping[Any, Any]) -> str | None:
    program = _program(config)
    if program is not None and program.system is not None:
        return program.system
    return next((dialect.name for dialect in asked() if dialect.keys.recognises(config)), None)


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
    for dialect in asked():
        if any(key in keys for key in dialect.resembles):
            return dialect.name
    for dialect in asked():
        for path in (*dialect.keys.telling, *dialect.keys.alone):
            if path[:-1] in ((), ("cluster",)) and path[-1] in keys:
                return dialect.name
    return None


def mixed(config: Mapping[Any, Any]) -> list[tuple[KeyPath, Diagnostic]]:
    """Return the faults of a config whose keys are of several dialects: each key of another one, with its path."""
    name = name_of(config)
    found: list[tuple[KeyPath, Diagnostic]] = []
    own = DIALECTS[name].keys.known
    for other in (DIALECTS[OWN], *asked()):
        if other.name == name:
            continue
        for path in other.keys.alone:
            is_common = path[-1] in own.get(path[:-1], ())
            if not is_common and _value_at(config, path) is not None:
                message = f"`{path_text(path)}` is a key of {other.name}, but the config has keys of {name}"
                help = f"remove it, or choose with --dialect {other.name} or --dialect {name}"
                found.append((path, Diagnostic("unknown-key", message, help)))
    return found


def _value_at(config: Any, path: KeyPath) -> Any:
    """Return the value at a path, ``None`` if it is missing."""
    for key in path:
        config = config.get(key) if isinstance(config, Mapping) else None
    return config

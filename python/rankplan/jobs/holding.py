"""What holds for a job: every value that is stated, and where, after files and options have replaced each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rankplan.errors import KeyPath, Where
from rankplan.jobs.keys import KEYS
from rankplan.jobs.reader import JobFile
from rankplan.plans.rules import TOPOLOGY_RULES, Rules
from rankplan.words import path_text, shown


class Held(NamedTuple):
    """A value that holds, by its path, and where it is stated: a line of a file, or an option."""

    path: str
    value: str
    where: str


def holding(
    stated: JobFile,
    rules: Rules | None,
    *,
    nodes: tuple[str, str] | None = None,
    dialect: str | None = None,
) -> Iterator[Held]:
    """Yield what holds. ``rules`` are those of the plan; ``None``: there is no plan, and those of the files count.

    ``nodes`` are those of an option, which replace those of the files, and the option; ``dialect`` is that of the
    option ``--dialect``.
    """
    for key in KEYS:
        if key == "nodes" and nodes is not None:
            yield Held("nodes", *nodes)
        elif key == "dialect" and dialect is not None:
            yield Held("dialect", dialect, "--dialect")
        elif key == "topology":
            yield from _topology(stated, stated.rules if rules is None else rules)
        elif stated.states(key):
            for path, value in _leaves(stated.reader.at((key,)), (key,)):
                yield Held(path_text(path), _text(value), _line(stated.where(*path)))


def _topology(stated: JobFile, rules: Rules) -> Iterator[Held]:
    """Yield the rules, those of the trainer's config too, and the levels."""
    for key, value in rules.topology().items():
        if value not in (None, {}):
            for path, leaf in _leaves(value, (key,)):
                yield Held(path_text(("topology", *path)), _text(leaf), _line(rules.where(*path)))
    section: Mapping[str, Any] = stated.reader.section_at(("topology",))
    for key, value in section.items():
        if key not in TOPOLOGY_RULES:
            yield Held(f"topology.{key}", _text(value), _line(stated.where("topology", key)))


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the values of nested mappings, and the items of a list that is stated at the top."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list) and len(path) == 1:
        for index, inner in enumerate(value):
            yield (*path, index), inner
    else:
        yield path, value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)


def _line(place: Where) -> str:
    """Return the file and the line of a place."""
    return place.path if place.file is None else f"{place.file}:{place.line}"

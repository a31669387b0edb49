"""Rules of the network in configs whose systems do not know them: they belong in a job file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from rankplan.dialects.keys.key import Entry, Kind
from rankplan.errors import Diagnostic, KeyPath
from rankplan.front.faults import size_not_read
from rankplan.plans.rules import TOPOLOGY_RULES
from rankplan.read.text.document import Section
from rankplan.read.text.reader import Reader
from rankplan.read.text.scalars import Written
from rankplan.words import as_int

_COUNT = r"(^|_)(n|num)_?(gpus|nodes)(_per_node)?$|(^|_)gpus_per_node$"
"""Keys that count nodes or GPUs."""
_OF_NO_PROCESS: tuple[KeyPath, ...] = (("data",), ("hydra",))
"""Sections of data sets and of Hydra, which start no process."""
_DEEPEST = 8
_SECTIONS: tuple[KeyPath, ...] = (("cluster", "topology"), ("topology",))


def unread_rules(reader: Reader, system: str, known: Mapping[KeyPath, Collection[str]]) -> Iterator[Diagnostic]:
    """Yield a warning for each section with rules. ``known`` are the keys of a system, by their sections."""
    config: Any = reader.content
    for path in _SECTIONS:
        if path[-1] in known.get(path[:-1], ()):
            continue
        rules = _rules_at(config, path)
        if rules:
            from rankplan.jobs.faults import rules_not_read  # few configs state such rules

            yield reader.located(path, rules_not_read(system, ".".join(map(str, path)), _job_lines(config, rules)))


def unread_sizes(reader: Reader, system: str, entries: Collection[Entry]) -> Iterator[Diagnostic]:
    """Yield a warning for each section, and each flag, that counts nodes or GPUs, and that a system does not know.

    ``entries`` are the places of its keys. One of any type covers what is inside it.
    """
    known = {entry.path for entry in entries}
    covering = {entry.path for entry in entries if entry.kind is Kind.ANY}
    for path in _sizes(reader.content, (), known, covering):
        size = ".".join(map(str, path))
        yield reader.located(path, size_not_read(size, reader.at(path), system))


def _sizes(section: Any, path: KeyPath, known: Collection[KeyPath], covering: Collection[KeyPath]) -> Iterator[KeyPath]:
    """Yield the first path in each unknown section whose value is a number of nodes or of GPUs."""
    for key, value in section.items():
        inner = (*path, str(key))
        if inner in covering or inner in _OF_NO_PROCESS or len(inner) > _DEEPEST:
            continue
        if isinstance(value, Mapping):
            sizes = _sizes(value, inner, known, covering)
            yield from sizes if any(other[: len(inner)] == inner for other in known) else islice(sizes, 1)
        elif inner not in known and re.search(_COUNT, str(key)) and (as_int(value) or 0) > 0:
            yield inner


def with_job_lines(config: Mapping[str, Any], fault: Diagnostic) -> Diagnostic:
    """Return the fault of a config with keys of two systems; rules without components belong in a job file."""
    cluster = config.get("cluster")
    rules = _rules_at(config, ("cluster", "topology"))
    if not rules or not isinstance(cluster, Mapping):
        return fault
    from rankplan.jobs.faults import in_job_file
    from rankplan.jobs.keys import OF_CLUSTER

    if not set(cluster) <= set(OF_CLUSTER):
        return fault
    return replace(fault, help=in_job_file("cluster", _job_lines(config, rules)))


def _rules_at(config: Any, path: KeyPath) -> dict[str, Any]:
    """Return the rules in a section, by their keys."""
    section = config
    for key in path:
        if not isinstance(section, Mapping) or key not in section:
            return {}
        section = section[key]
    return {key: section[key] for key in TOPOLOGY_RULES if key in section} if isinstance(section, Mapping) else {}


def _job_lines(config: Mapping[str, Any], rules: Mapping[str, Any]) -> list[str]:
    """Return the lines of a job file that states these rules about a config."""
    import yaml  # needed here only

    file = config.document.file if isinstance(config, Section) else None
    name = "conf.yaml" if file is None else Path(file).name
    return [f"job: {name}", yaml.safe_dump({"topology": _plain(rules)}, default_flow_style=True, width=10_000)[1:-2]]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.plain(value) if isinstance(value, Written) else value

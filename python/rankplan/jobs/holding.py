"""What holds for a job: every value that is stated, and where, after files and options have replaced each other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rankplan.errors import KeyPath, Where
from rankplan.jobs.keys import KEYS
from rankplan.jobs.reader import JobFile
from rankplan.plans.plan import Plan
from rankplan.plans.rules import TOPOLOGY_RULES, Rules
from rankplan.words import path_text


class Held(NamedTuple):
    """A value that holds, by its path, and where it is stated: a line of a file, or an option."""

    path: KeyPath
    value: Any
    where: str

    def texts(self) -> tuple[str, str, str]:
        """Return the path, the value and the place as texts."""
        return path_text(self.path), _text(self.value), self.where


class Option(NamedTuple):
    """The value of an option of a command, and the option."""

    value: str
    name: str


def holding(
    stated: JobFile,
    plan: Plan | None,
    *,
    is_plan: bool,
    replaced: Mapping[KeyPath, Option],
    added: Mapping[str, Sequence[Option]],
) -> Iterator[Held]:
    """Yield what holds, in the order of the keys of a job file.

    The rules are those of the ``plan``, which has those of the trainer's config, too; without a plan, those of the
    files. ``is_plan``: the files name a saved plan, which states what they do not. ``replaced`` are values that options
    state in place of those of the files, by their paths, ``added`` those that they add to lists.
    """
    rules = stated.rules if plan is None else plan.rules
    for key in KEYS:
        values = list(_of_files(stated, key, rules))
        if is_plan and plan is not None:
            paths = {held.path for held in values}
            excluded = {option.value for option in added.get(key, ())}
            values += [held for held in _of_plan(plan, key, stated.job, excluded) if held.path not in paths]
        options = {path: option for path, option in replaced.items() if path[0] == key}
        for held in values:
            if not any(held.path[: len(path)] == path for path in options):
                yield held
        for path, option in options.items():
            yield Held(path, *option)
        for index, option in enumerate(added.get(key, ()), len(values)):
            yield Held((key, index), *option)


def _of_files(stated: JobFile, key: str, rules: Rules) -> Iterator[Held]:
    """Yield what the files state under a key, and the rules of a plan."""
    if key == "topology":
        for rule, value in rules.topology().items():
            if value not in (None, {}):
                for path, leaf in _leaves(value, (rule,)):
                    yield Held((key, *path), leaf, _line(rules.where(*path)))
        section: Mapping[str, Any] = stated.reader.section_at((key,))
        for fact, value in section.items():
            if fact not in TOPOLOGY_RULES:
                yield Held((key, fact), value, _line(stated.where(key, fact)))
    elif key == "pools":
        for index, pool in enumerate(rules.pools):
            for path, leaf in _leaves(pool.plain(), ()):
                yield Held((key, index, *path), leaf, _line(rules.where(key, index, *path)))
    elif stated.states(key):
        for path, leaf in _leaves(stated.reader.at((key,)), (key,)):
            yield Held(path, leaf, _line(stated.where(*path)))


def _of_plan(plan: Plan, key: str, file: str, added: Collection[str]) -> Iterator[Held]:
    """Yield what a saved plan states under a key, besides its rules and the hardware that options exclude."""
    values: Any = None
    if key == "exclude" and plan.inventory.facts is not None:
        values = [name for name in plan.inventory.facts.exclude if name not in added]
    elif key in ("overrides", "command", "emit") and plan.job is not None:
        values = plan.job.plain().get(key)
    if values:
        yield from (Held(path, leaf, file) for path, leaf in _leaves(values, (key,)))


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the values of nested mappings, also in the lists of a key at the top."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, (list, tuple)) and len(path) == 1:
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path, value


def _text(value: Any) -> str:
    """Return a value as YAML writes it in one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_text, value))}]"
    return "" if value is None else str(value)


def _line(place: Where) -> str:
    """Return the file and the line of a place."""
    if place.file is None:
        return place.path
    return place.file if place.line is None else f"{place.file}:{place.line}"

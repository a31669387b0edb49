"""Commands of a launch script that start, stop or submit to Ray: such a script cannot run inside a job on Ray."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from rankplan.read.text.places import Place, Text
from rankplan.read.text.script import opened
from rankplan.read.text.shell.expand import Field
from rankplan.read.text.shell.run import follow
from rankplan.read.text.shell.sources import Sources
from rankplan.read.text.shell.words import ShellSyntaxError

_SAYS = re.compile(r"\s*(?:#|echo\b|printf\b)")
"""A line that runs nothing which matters here."""
_CHANGES_RAY = re.compile(
    r"""(?:^|(?<=[\s;&|("'/`]))(?:sudo\s+)?(?:ray\s+(?:stop|start)\b|(?:pkill|killall)\b[^#\n;&|]*\b(?:ray|python3?)\b)"""
)
_SUBMITS = re.compile(r"""(?:^|(?<=[\s;&|("'/`]))ray\s+job\s+submit\b""")


class RayCommand(NamedTuple):
    """A command of a script, and where it is."""

    text: str
    place: Place


def commands_changing_ray(file: str, text: str) -> list[RayCommand]:
    """Return the commands of a script that end or start the Ray of a machine."""
    return _matching(_CHANGES_RAY, file, text)


def ray_commands(file: str, text: str) -> list[RayCommand]:
    """Return the commands of a script that start, stop or submit to Ray, in their order."""
    return sorted(
        [*_matching(_CHANGES_RAY, file, text), *_matching(_SUBMITS, file, text)], key=lambda one: one.place.line
    )


def _matching(pattern: re.Pattern[str], file: str, text: str) -> list[RayCommand]:
    commands = []
    for number, line in enumerate(text.splitlines(), 1):
        match = None if _SAYS.match(line) else pattern.search(line)
        if match is not None:
            place = Place(file, number, match.start(), match.end(), line)
            commands.append(RayCommand(" ".join(match[0].split()), place))
    return commands


def submitted_command(file: str, text: str) -> str | None:
    """Return what a script passes to ``ray job submit`` after ``--``, as words of a shell; ``None`` if unknown.

    A word whose value only a run reveals is as the script has it.
    """
    sources = Sources()
    sources.add(text, Text(file, text))
    try:
        followed = follow(sources, {}, opened)
    except (ShellSyntaxError, RecursionError):
        return None
    for command in followed.commands:
        texts = [field.text for field in command.fields]
        if [_base(word) for word in texts[:3]] == ["ray", "job", "submit"] and "--" in texts[3:-1]:
            words = command.fields[texts.index("--", 3) + 1 :]
            return " ".join(_written(field, sources) for field in words)
    return None


def _base(word: str | None) -> str:
    return (word or "").rpartition("/")[2]


def _written(field: Field, sources: Sources) -> str:
    return sources.text[field.start : field.end] if field.text is None else shlex.quote(field.text)

"""The command that starts the trainer of a job inside it: a script is its own command, unless it starts Ray itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from rankplan.errors import PlacementError
from rankplan.files import read_text
from rankplan.jobs import faults
from rankplan.read.text.load import SCRIPTS
from rankplan.read.text.ray_commands import ray_commands, submitted_command

_ARGUMENTS = re.compile(r"\$(?:[@*1-9]|\{[@*1-9])")
"""Where a script passes on what it is started with."""


def own_command(
    file: str, name: str, overrides: Sequence[str] = (), *, system: str, example: str = "", is_here: bool = False
) -> str:
    """Return the command that starts a job inside it, whose file is a script: ``bash run.sh``.

    ``name`` is the path of the script in the command. It gets the ``overrides`` of the plan: variables that it reads
    from its environment, and words if it passes them on. ``system`` is the trainer, ``example`` what starts it.
    ``is_here``: it starts on this machine, so that an absolute path stays.

    Raises `PlacementError` (``emit-command``) for a config, which states no command, and for a script that starts,
    stops or submits to Ray, or takes no overrides; ``OSError`` for a file that cannot be read.
    """
    if not file.endswith(SCRIPTS):
        raise PlacementError([faults.no_command(file, system, example)])
    text = read_text(file).replace("\r\n", "\n")
    if found := ray_commands(file, text):
        submitted = submitted_command(file, text)
        raise PlacementError([found[0].place.of(faults.starts_ray(found[0].text, submitted, example))])
    variables = [one for one in overrides if _is_variable(one, text)]
    words = [one for one in overrides if one not in variables]
    if words and not _ARGUMENTS.search(text):
        raise PlacementError([faults.takes_no_overrides(file, words)])
    if PurePath(name).is_absolute() and not is_here:
        name = PurePath(name).name
    return " ".join(_words(name, variables, words))


def _words(name: str, variables: Sequence[str], words: Sequence[str]) -> Iterator[str]:
    for variable in variables:
        key, _, value = variable.partition("=")
        yield f"{key}={shlex.quote(value)}"
    yield from ("bash", shlex.quote(name), *map(shlex.quote, words))


def _is_variable(override: str, text: str) -> bool:
    """Whether an override sets a variable that a script reads."""
    key, equals, _ = override.partition("=")
    return bool(equals) and key.isidentifier() and re.search(rf"\$\{{?{key}\b", text) is not None

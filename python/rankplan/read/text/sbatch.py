"""The options in the ``#SBATCH`` lines of a batch script for Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankplan.frozen import frozen

_START = re.compile(r"#SBATCH\s+")
_WORD = re.compile(r"""(?:[^\s"'#]|"[^"]*"|'[^']*'|(?<=\S)#|["'])+""")
_HETJOB = ("hetjob", "packjob")
_LONG = {
    "-a": "--array",
    "-c": "--cpus-per-task",
    "-C": "--constraint",
    "-F": "--nodefile",
    "-G": "--gpus",
    "-J": "--job-name",
    "-m": "--distribution",
    "-n": "--ntasks",
    "-N": "--nodes",
    "-p": "--partition",
    "-s": "--oversubscribe",
    "-S": "--core-spec",
    "-w": "--nodelist",
    "-x": "--exclude",
    "--tasks-per-node": "--ntasks-per-node",
}


@frozen
class SbatchOption:
    """An option: its long name (``hetjob`` begins a component of the job) and its value, empty for a flag.

    ``start`` and ``end`` are its columns in the line, from 0; ``at`` is that of the value, or of a flag itself.
    """

    name: str
    value: str
    start: int
    end: int
    at: int


def sbatch_options(line: str) -> Iterator[SbatchOption]:
    """Yield the options of a line; nothing for any other line. ``#`` at the start of a word begins a comment.

    Slurm: sbatch/opt.c, _opt_batch_script reads every word of a line as an argument.
    """
    begun = _START.match(line)
    if begun is None:
        return
    words = []
    at = begun.end()
    while (found := _WORD.match(line, at)) is not None:
        words.append(found)
        at = found.end() + len(line[found.end() :]) - len(line[found.end() :].lstrip())
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, at = word[0], word.start()
        end = word.end()
        if name in _HETJOB:
            yield SbatchOption(_HETJOB[0], "", at, end, at)
            continue
        if not name.startswith("-"):
            continue
        value: str | None = None
        if name.startswith("--"):
            name, equals, rest = name.partition("=")
            if equals:
                value, at = rest, end - len(rest)
        elif len(name) > 2:
            value = name[2:].removeprefix("=")
            name, at = name[:2], end - len(value)
        if value is None and index < len(words) and not words[index][0].startswith("-"):
            value, at, end = words[index][0], words[index].start(), words[index].end()
            index += 1
        plain = (value or "").strip("\"'")
        if plain and plain != value:
            at += 1
        yield SbatchOption(_LONG.get(name, name), plain, word.start(), end, at)

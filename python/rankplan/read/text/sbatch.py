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
    words = _words(line, begun.end())
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        end = word.end()
        if word[0] in _HETJOB:
            yield SbatchOption(_HETJOB[0], "", word.start(), end, word.start())
            continue
        if not word[0].startswith("-"):
            continue
        name, value = _name_and_value(word[0])
        at = word.start() if value is None else end - len(value)
        if value is None and position < len(words) and not words[position][0].startswith("-"):
            value = words[position][0]
            at = words[position].start()
            end = words[position].end()
            position += 1
        plain = (value or "").strip("\"'")
        if plain and plain != value:
            at += 1
        yield SbatchOption(_LONG.get(name, name), plain, word.start(), end, at)


def _words(line: str, start: int) -> list[re.Match[str]]:
    """Return the words of a line from a position on, up to a comment."""
    words = []
    word = _WORD.match(line, start)
    while word is not None:
        words.append(word)
        rest = line[word.end() :]
        word = _WORD.match(line, len(line) - len(rest.lstrip()))
    return words


def _name_and_value(word: str) -> tuple[str, str | None]:
    """Return the name of an option, and its value if that is in the same word: ``--nodes=2``, ``-N2``, ``-N=2``."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    return (word[:2], word[2:].removeprefix("=")) if len(word) > 2 else (word, None)

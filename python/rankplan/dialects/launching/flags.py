"""The flags of a launcher, as its command states them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from rankplan.read.text.started import CommandWord

Flags: TypeAlias = Mapping[str, CommandWord]
"""The values of flags by name, with ``_`` for ``-``; that of a switch is ``true``. The last one of a name counts."""

TRUE = "true"


def flags_in(
    words: Sequence[CommandWord], switches: Collection[str] = (), short: Mapping[str, str] | None = None
) -> Flags:
    """Return the flags among the words of a command: ``--name value``, ``--name=value``, ``--switch``.

    ``switches`` are the names of flags without a value, ``short`` the names of flags such as ``-n``.
    """
    flags: dict[str, CommandWord] = {}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        written = word.shown if word.text is None else word.text
        name, equals, value = written.partition("=")
        long = (short or {}).get(name, name)
        if not long.startswith("--"):
            continue
        named = long[2:].replace("-", "_")
        if equals:
            flags[named] = _value_of(word, value)
        elif named in switches or position == len(words) or (words[position].text or "").startswith("--"):
            flags[named] = CommandWord(TRUE, word.where, TRUE)
        else:
            flags[named] = words[position]
            position += 1
    return flags


def _value_of(word: CommandWord, value: str) -> CommandWord:
    if word.text is None:
        return word
    return replace(word, text=value, shown=value)

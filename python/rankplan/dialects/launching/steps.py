"""The steps of a Slurm job: on which of its nodes ``srun`` starts a command, and how often."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import pairwise

from rankplan.dialects.launching import faults
from rankplan.dialects.launching.flags import Flags, flags_in
from rankplan.errors import NOWHERE, Faults, Where
from rankplan.frozen import frozen
from rankplan.read.text.started import CommandWord, Started

_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-w": "--nodelist", "-G": "--gpus"}
_SHORT_VALUE = re.compile("-[NnwG].+")
"""A short option with its value: ``-N4``."""
_SWITCHES = frozenset({"exclusive", "overlap", "label", "unbuffered", "quiet", "verbose", "no_kill", "pty"})
_JOB = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")


@frozen
class Step:
    """A command that ``srun`` starts: the number of its nodes, and these as positions in the list of the job, if known.

    ``nodes`` is ``None`` if nothing tells. ``where`` is the place of ``srun``.
    """

    nodes: int | None
    hosts: tuple[int, ...] | None
    where: Where = field(default=NOWHERE)


def step_of(program: Started, collector: Faults) -> Step | None:
    """Return the step that starts a program, ``None`` if ``srun`` does not."""
    for words in program.launchers:
        for position, word in enumerate(words):
            if (word.text or "").rpartition("/")[2] == "srun":
                return _step(program, words[position:], collector)
    return None


def nodes_of_job(program: Started) -> int | None:
    """Return the number of nodes of the Slurm job of a program, ``None`` if nothing tells."""
    for name in _JOB:
        word = program.variables.get(name)
        if word is not None and word.text is not None and re.fullmatch("[0-9]{1,6}", word.text):
            return int(word.text)
    return None


def _step(program: Started, words: Sequence[CommandWord], collector: Faults) -> Step:
    own = words_of_srun(words)
    flags = flags_in([divided for word in own[1:] for divided in _divided(word)], _SWITCHES, _SHORT)
    _reject_split(own, collector)
    listed = flags.get("nodelist")
    hosts = None if listed is None or not listed.nodes else listed.nodes
    count = _number(flags, "nodes")
    if count is None and hosts is not None:
        count = len(hosts)
    if count is None:
        count = _number(flags, "ntasks")
    if count is None:
        count = nodes_of_job(program)
    if hosts is not None and count is not None:
        hosts = hosts[:count] if len(hosts) >= count else None
    where = flags["nodes"].where if "nodes" in flags else words[0].where
    return Step(count, hosts, where)


def _divided(word: CommandWord) -> tuple[CommandWord, ...]:
    """Return a short option and its value as two words: ``-N4``."""
    if word.text is None or _SHORT_VALUE.fullmatch(word.text) is None:
        return (word,)
    option, value = word.text[:2], word.text[2:]
    return replace(word, text=option, shown=option), replace(word, text=value, shown=value)


def words_of_srun(words: Sequence[CommandWord]) -> Sequence[CommandWord]:
    """Return ``srun`` and its options: what follows is the command, which is no option and the value of none."""
    position = 1
    while position < len(words):
        text = words[position].text
        if text is None:
            position += 1  # a value, or an option whose value only a run knows
        elif not text.startswith("-"):
            return words[:position]
        else:
            following = words[position + 1].text if position + 1 < len(words) else None
            is_alone = "=" in text or text.lstrip("-").replace("-", "_") in _SWITCHES or _SHORT_VALUE.fullmatch(text)
            position += 1 if is_alone or (following or "").startswith("-") else 2
    return words


def _reject_split(words: Sequence[CommandWord], collector: Faults) -> None:
    """Record a list of nodes that bash splits into words."""
    for before, word in pairwise(words):
        is_value = (before.text or "") in ("--nodelist", "-w")
        if word.nodes and before.nodes and not is_value:
            collector.add(before.where, faults.several_words("nodelist"))
            return


def _number(flags: Flags, name: str) -> int | None:
    word = flags.get(name)
    if word is None or word.text is None or re.fullmatch("[0-9]{1,6}", word.text) is None:
        return None
    return int(word.text)

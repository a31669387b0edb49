"""The nodes of a Slurm job in its script, whose names only a run knows: each has a name that stands for its position.

``$(scontrol show hostnames $SLURM_JOB_NODELIST)`` lists them. The names start with a character that no script has. In
what a program gets they are unknown; where a command runs, they tell the node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from rankplan.read.text.shell.parse import Block, Simple, Statement
from rankplan.read.text.shell.words import Expansion, Word

_MOST_HOSTS = 4096
_START, _END = "\ue000", "\ue001"
_HOST = re.compile(f"{_START}([0-9]+){_END}")
_COUNTS = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")

TASK_RANK = f"{_START}r{_END}"
"""The value of ``$SLURM_PROCID`` or ``$SLURM_NODEID`` in a task that ``srun`` starts on each node."""


class _Text(Protocol):
    @property
    def text(self) -> str: ...

    @property
    def cause(self) -> object: ...


class JoinedArray(NamedTuple):
    """The elements of an array with a text between them."""

    elements: Expansion
    between: str


def host(node: int) -> str:
    """Return the name that stands for a node of the job."""
    return f"{_START}{node}{_END}"


def nodes_in(text: str) -> tuple[int, ...]:
    """Return the nodes of the job whose names are in a text, in this order."""
    return tuple(int(name[1]) for name in _HOST.finditer(text))


def is_of_run(text: str) -> bool:
    """Return whether a text has a name that only a run knows."""
    return _START in text


def hosts(variable: Callable[[str], Sequence[_Text] | None]) -> list[str] | None:
    """Return the names of the nodes of the job; ``None`` if their number is unknown."""
    for name in _COUNTS:
        value = variable(name)
        if value is None or len(value) != 1 or value[0].cause is not None:
            continue
        text = value[0].text
        if text.isascii() and text.isdecimal() and len(text) < 6 and 0 < int(text) <= _MOST_HOSTS:
            return [host(node) for node in range(int(text))]
    return None


def lists_hosts(commands: Block) -> bool:
    """Return whether commands are ``scontrol show hostnames`` of the nodes of the job."""
    command = commands[0] if len(commands) == 1 else None
    if not isinstance(command, Simple) or command.assignments or not 3 <= len(command.words) <= 4:
        return False
    if [word.literal for word in command.words[:3]] != ["scontrol", "show", "hostnames"]:
        return False
    return len(command.words) == 3 or _name_of(command.words[3]) in _LISTS


def joined_array(commands: Block) -> JoinedArray | None:
    """Return the array that ``IFS=,; echo "${nodes[*]}"`` joins, ``None`` for other commands."""
    if len(commands) != 2:
        return None
    separator = _separator(commands[0])
    array = _echoed_array(commands[1])
    if separator is None or array is None:
        return None
    return JoinedArray(array._replace(operator="", elements=True), separator[:1])


def _separator(statement: Statement) -> str | None:
    """Return the text that ``IFS=text`` sets, ``None`` for any other command."""
    if not isinstance(statement, Simple) or statement.words or len(statement.assignments) != 1:
        return None
    assignment = statement.assignments[0]
    if assignment.name != "IFS" or assignment.append or not isinstance(assignment.value, Word):
        return None
    return assignment.value.literal


def _echoed_array(statement: Statement) -> Expansion | None:
    """Return the array of ``echo "${array[*]}"``, ``None`` for any other command."""
    if not isinstance(statement, Simple) or statement.assignments or len(statement.words) != 2:
        return None
    command, word = statement.words
    part = word.parts[0] if len(word.parts) == 1 else None
    if command.literal != "echo" or not isinstance(part, Expansion):
        return None
    return part if part.operator == "*" and part.name not in ("@", "*") else None


def _name_of(word: Word) -> str | None:
    """Return the name of the variable that a word is."""
    part = word.parts[0] if len(word.parts) == 1 else None
    is_plain = isinstance(part, Expansion) and not part.operator
    return part.name if is_plain and isinstance(part, Expansion) else None

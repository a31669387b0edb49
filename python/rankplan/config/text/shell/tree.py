"""The parts of a shell script. Offsets count characters of the script, from 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import TypeAlias

from rankplan.config.text.shell.arithmetic import assigned_names


@dataclass(frozen=True, slots=True)
class Literal:
    """Text as written; ``quoted`` text is never split into words."""

    text: str
    start: int
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Expansion:
    """``$name``, or ``${name}`` with an operator such as ``:-`` and its argument.

    ``elements`` for ``[@]`` and ``[*]``, ``joined`` for ``"${name[*]}"``: one word of all elements.
    """

    name: str
    start: int
    end: int
    operator: str = ""
    argument: Word | None = None
    elements: bool = False
    quoted: bool = False
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Substitution:
    """The output of a command: ``$(...)``, backquotes or ``<(...)``."""

    text: str
    start: int
    end: int
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``$((...))``."""

    expression: Word
    start: int
    end: int
    quoted: bool = False


Part: TypeAlias = Literal | Expansion | Substitution | Arithmetic


@dataclass(frozen=True, slots=True)
class Word:
    """A word, from ``start`` to ``end`` (exclusive)."""

    parts: tuple[Part, ...]
    start: int
    end: int

    @property
    def literal(self) -> str | None:
        """The text of a word without expansions, else ``None``."""
        texts = [part.text for part in self.parts if isinstance(part, Literal)]
        return "".join(texts) if len(texts) == len(self.parts) else None


@dataclass(frozen=True, slots=True)
class Assignment:
    """``name=word``, ``name=(words)``, or either with ``+=``; ``index`` is that of ``name[index]=word``."""

    name: str
    value: Word | tuple[Word, ...]
    append: bool
    start: int
    index: str | None = None


@dataclass(frozen=True, slots=True)
class Simple:
    """A command with its words, after assignments; or a test between ``[[`` and ``]]``."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    start: int


@dataclass(frozen=True, slots=True)
class Calculation:
    """``((...))``."""

    expression: Word


@dataclass(frozen=True, slots=True)
class Not:
    """A command after ``!``."""

    body: Statement


@dataclass(frozen=True, slots=True)
class Chain:
    """Commands joined by ``&&``, ``||`` or ``|``: ``rest`` has each operator with its command."""

    first: Statement
    rest: tuple[tuple[str, Statement], ...]
    start: int


@dataclass(frozen=True, slots=True)
class If:
    """``if`` and every ``elif`` with its condition and commands, and those of ``else``."""

    branches: tuple[tuple[Block, Block], ...]
    otherwise: Block
    start: int


@dataclass(frozen=True, slots=True)
class Case:
    """``case``: a word, and the patterns and commands of each branch."""

    word: Word
    branches: tuple[tuple[tuple[Word, ...], Block], ...]
    start: int


@dataclass(frozen=True, slots=True)
class Loop:
    """``for``, ``while``, ``until`` or ``select``; ``variable`` is ``None`` without one."""

    kind: str
    variable: str | None
    body: Block
    start: int


@dataclass(frozen=True, slots=True)
class Function:
    """The definition of a function."""

    name: str
    body: Block


@dataclass(frozen=True, slots=True)
class Group:
    """Commands between braces, or between parentheses: those change nothing outside."""

    body: Block
    apart: bool


Statement: TypeAlias = Simple | Calculation | Not | Chain | If | Case | Loop | Function | Group
Block: TypeAlias = tuple[Statement, ...]


def assigned(node: object) -> Iterator[str]:
    """Yield the names that commands assign."""
    if isinstance(node, Assignment):
        yield node.name
    if isinstance(node, Simple) and node.words and node.words[0].literal in ("read", "mapfile", "readarray"):
        yield from (word.literal for word in node.words[1:] if word.literal and word.literal.isidentifier())
    if isinstance(node, Calculation | Arithmetic):
        yield from assigned_names("".join(part.text for part in node.expression.parts if isinstance(part, Literal)))
    if isinstance(node, tuple):
        for item in node:
            yield from assigned(item)
    elif is_dataclass(node):
        for each in fields(node):
            yield from assigned(getattr(node, each.name))

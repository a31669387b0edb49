"""The words of a shell script: quotes, escapes and expansions. Offsets count characters of the script, from 0."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, TypeAlias

_META = frozenset(" \t\n;|&()<>")
_NAME = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#])", re.ASCII)
_BRACED = re.compile(r"\$\{([A-Za-z_]\w*|[0-9]+|[@*])(?:\[([@*0])\])?(:?[-=?+]|##?|%%?|(?=\}))", re.ASCII)
_ELEMENT = re.compile(r"\$\{([A-Za-z_]\w*)\[(-[0-9]{1,9}|[1-9][0-9]{0,8})\]\}", re.ASCII)
"""An element of an array: ``${nodes[-1]}``."""
_SLICE = re.compile(r"\$\{(?:([A-Za-z_]\w*)\[@\]|(@)):(?![-=?+])", re.ASCII)
"""The start of some elements of an array, or of the arguments: ``${nodes[@]:0:4}``, ``${@:2}``."""
_COUNT = re.compile(r"\$\{#([A-Za-z_]\w*)\[[@*]\]\}", re.ASCII)
"""The number of elements of an array: ``${#nodes[@]}``."""
_UNREAD = re.compile(r"`(?:\\.|[^`\\])*`|\$'(?:\\.|[^'\\])*'|\$[?!$-]", re.DOTALL)

_PLACEHOLDER = re.compile(r"<[A-Za-z][\w.-]*>(?=[\s:,;)<]|\Z)")
"""What a document puts in the place of a value, such as ``<node1_ip>``.

bash reads it as redirections (``cmd <in> out``). No script that trainers ship has them in this form, but some have
placeholders: as text, each is a value, and a message can name it.
"""


class ShellSyntaxError(Exception):
    """A script that no shell accepts, with the offset of the fault."""

    def __init__(self, message: str, start: int, help: str) -> None:
        super().__init__(message)
        self.message, self.start, self.help = message, start, help


class Literal(NamedTuple):
    """Text as written; ``quoted`` text is never split into words."""

    text: str
    start: int
    quoted: bool = False

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.start + len(self.text)


class Expansion(NamedTuple):
    """``$name``, or ``${name}`` with an operator such as ``:-`` and its argument.

    ``elements`` for the elements of an array, ``[@]``; the operator ``*`` joins them: ``"${name[*]}"``. The operator
    ``[`` is for the element whose number is the argument, `SLICE` for the elements from a number on, and how many, and
    `COUNT` for the number of elements.
    """

    name: str
    start: int
    end: int
    operator: str
    argument: Word
    elements: bool
    quoted: bool


ELEMENT = "["
COUNT = "#["
SLICE = "@:"


class Unread(NamedTuple):
    """A part that only a run can tell, such as ``$(...)``, and any expansion that launch scripts do not use.

    ``commands`` are those of ``$(...)``: a `rankplan.read.text.shell.parse.Block`.
    """

    start: int
    end: int
    quoted: bool
    commands: tuple[object, ...] = ()


class Arithmetic(NamedTuple):
    """``$((...))``."""

    expression: Word
    start: int
    end: int
    quoted: bool


Part: TypeAlias = Literal | Expansion | Unread | Arithmetic


class Word(NamedTuple):
    """A word, from ``start`` to ``end`` (exclusive)."""

    parts: tuple[Part, ...]
    start: int
    end: int

    @property
    def literal(self) -> str | None:
        """The text of a word without expansions, else ``None``."""
        texts = [part.text for part in self.parts if isinstance(part, Literal)]
        return "".join(texts) if len(texts) == len(self.parts) else None

    @property
    def quoted(self) -> bool:
        """Whether any part of it is between quotes."""
        return any(part.quoted for part in self.parts)


class Parentheses:
    """Which parenthesis of a text closes which, whether they are quoted or not.

    The first call of `closing` matches all of them, in one pass: a script may open an expression many times and
    close none.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def closing(self, opening: int) -> int | None:
        """Return the offset of the parenthesis that closes the one at an offset, ``None`` if none does."""
        return self._closing.get(opening)

    @cached_property
    def _closing(self) -> dict[int, int]:
        closing: dict[int, int] = {}
        open_: list[int] = []
        for parenthesis in re.finditer("[()]", self._text):
            if parenthesis[0] == "(":
                open_.append(parenthesis.start())
            elif open_:
                closing[open_.pop()] = parenthesis.start()
        return closing


class Words(ABC):
    """A position in a script, and the words from there on. The parser of commands continues this class.

    ``parentheses`` are those of the script, if ``text`` is its beginning.
    """

    def __init__(self, text: str, position: int = 0, parentheses: Parentheses | None = None) -> None:
        self.text = text
        self.position = position
        self._parentheses = Parentheses(text) if parentheses is None else parentheses

    def _at(self, text: str) -> bool:
        return self.text.startswith(text, self.position)

    def word(self, stop: Callable[[str], bool] = _META.__contains__) -> Word:
        """Return the word at the position; it ends at the first unquoted character that stops it."""
        start = self.position
        parts: list[Part] = []
        while self.position < len(self.text):
            if (placeholder := self._placeholder()) is not None:
                parts.append(placeholder)
                self.position = placeholder.end
            elif stop(self.text[self.position]):
                break
            elif self._at("\\\n"):
                self.position += 2
            elif self._at("'"):
                parts.append(self._single_quoted())
            elif self._at('"') or self._at('$"'):
                parts += self._double_quoted()
            elif self._at("\\"):
                parts.append(Literal(self.text[self.position + 1 : self.position + 2], self.position + 1, quoted=True))
                self.position += 2
            elif (expansion := self._expansion(quoted=False)) is not None:
                parts.append(expansion)
            else:
                parts.append(self._plain(lambda letter: letter in "\\'\"$`" or stop(letter), quoted=False))
        return Word(tuple(parts), start, self.position)

    def _placeholder(self) -> Literal | None:
        """Return the placeholder at the position, ``None`` if there is none."""
        placeholder = _PLACEHOLDER.match(self.text, self.position)
        return None if placeholder is None else Literal(placeholder[0], self.position, quoted=True)

    def _plain(self, stop: Callable[[str], bool], *, quoted: bool) -> Literal:
        start = self.position
        self.position += 1  # a `$` that expands nothing is text
        while self.position < len(self.text) and not stop(self.text[self.position]):
            self.position += 1
        return Literal(self.text[start : self.position], start, quoted)

    def _single_quoted(self) -> Literal:
        start = self.position + 1
        end = self.text.find("'", start)
        if end < 0:
            raise ShellSyntaxError("this quote is not closed", self.position, "add the closing quote")
        self.position = end + 1
        return Literal(self.text[start:end], start, quoted=True)

    def _double_quoted(self) -> list[Part]:
        start = self.position
        self.position += 2 if self._at("$") else 1
        parts = self._quoted_parts('"')
        if not self._at('"'):
            raise ShellSyntaxError("this quote is not closed", start, "add the closing quote")
        self.position += 1
        return parts or [Literal("", start + 1, quoted=True)]

    def _quoted_parts(self, end: str) -> list[Part]:
        """Return the parts up to a character, read as between double quotes."""
        parts: list[Part] = []
        stops = "\\$`" + end + ('"' if end == "}" else "")
        while self.position < len(self.text) and not self._at(end):
            if self._at("\\\n"):
                self.position += 2
            elif self._at("\\") and self.text[self.position + 1 : self.position + 2] in ("$", "`", '"', "\\", end):
                parts.append(Literal(self.text[self.position + 1], self.position + 1, quoted=True))
                self.position += 2
            elif not self._at("$'") and (expansion := self._expansion(quoted=True)) is not None:
                parts.append(expansion)
            elif end == "}" and self._at('"'):
                parts += self._double_quoted()
            else:
                parts.append(self._plain(stops.__contains__, quoted=True))
        return parts

    def _expansion(self, *, quoted: bool) -> Part | None:
        """Return the expansion at the position, ``None`` if there is none."""
        start = self.position
        if self._at("$(("):
            expression = self._arithmetic(start + 3)
            if expression is not None:
                return Arithmetic(expression, start, self.position, quoted)
        if self._at("$("):
            self.position += 2
            commands = self._commands(start)
            return Unread(start, self.position, quoted, commands)
        if self._at("${"):
            return self._braced(quoted=quoted)
        if (unread := _UNREAD.match(self.text, start)) is not None:
            self.position = unread.end()
            return Unread(start, self.position, quoted)
        if self._at("`"):
            raise ShellSyntaxError("this backquote is not closed", start, "add the closing backquote")
        if (name := _NAME.match(self.text, start)) is not None:
            self.position = name.end()
            return self._named(start, name[1], None, "", Word((), name.end(), name.end()), quoted=quoted)
        return None

    def _braced(self, *, quoted: bool) -> Part:
        start = self.position
        if (element := _ELEMENT.match(self.text, start)) is not None:
            self.position = element.end()
            number = Word((Literal(element[2], element.start(2)),), *element.span(2))
            return Expansion(element[1], start, self.position, ELEMENT, number, elements=False, quoted=quoted)
        if (some := _SLICE.match(self.text, start)) is not None:
            return self._slice(some, quoted=quoted)
        if (count := _COUNT.match(self.text, start)) is not None:
            self.position = count.end()
            nothing = Word((), count.end(), count.end())
            return Expansion(count[1], start, self.position, COUNT, nothing, elements=False, quoted=quoted)
        opening = _BRACED.match(self.text, start)
        begin = self.position = start + 2 if opening is None else opening.end()
        parts = self._quoted_parts("}") if quoted else self.word("}".__eq__).parts
        argument = Word(tuple(parts), begin, self.position)
        if not self._at("}"):
            raise ShellSyntaxError("this `${` is not closed", start, "add the closing brace")
        self.position += 1
        if opening is None:
            return Unread(start, self.position, quoted)
        return self._named(start, opening[1], opening[2], opening[3], argument, quoted=quoted)

    def _slice(self, some: re.Match[str], *, quoted: bool) -> Part:
        """Return the elements of an array from a number on: both numbers are the argument."""
        begin = self.position = some.end()
        argument = Word(tuple(self._quoted_parts("}")), begin, self.position)
        if not self._at("}"):
            raise ShellSyntaxError("this `${` is not closed", some.start(), "add the closing brace")
        self.position += 1
        return Expansion(some[1] or some[2], some.start(), self.position, SLICE, argument, elements=True, quoted=quoted)

    def _named(self, start: int, name: str, index: str | None, operator: str, argument: Word, *, quoted: bool) -> Part:
        """Return the expansion of a name that ends here; an operator on all elements of an array is not read."""
        if (index or name) not in ("@", "*"):
            return Expansion(name, start, self.position, operator, argument, elements=False, quoted=quoted)
        if operator:
            return Unread(start, self.position, quoted)
        joined = quoted and (index or name) == "*"
        return Expansion(name, start, self.position, "*" if joined else "", argument, not joined, quoted)

    @abstractmethod
    def _commands(self, start: int) -> tuple[object, ...]:
        """Return the commands of a substitution that starts at ``start``; move past its closing parenthesis."""

    def _arithmetic(self, start: int) -> Word | None:
        """Move past an expression and its ``))``, and return it; ``None`` if it does not end so.

        The expression starts after its two opening parentheses.
        """
        end = self._parentheses.closing(start - 1)
        if end is None or not self.text.startswith("))", end):
            return None
        inner = type(self)(self.text[:end], start, self._parentheses)
        parts = inner._quoted_parts("\0")
        self.position = end + 2
        return Word(tuple(parts), start, end)

"""Expands the words of a shell script into fields, and keeps where every piece of text was written."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, TypeAlias

from rankplan.frozen import frozen
from rankplan.read.text.shell.arithmetic import assigned_names, calculated
from rankplan.read.text.shell.hosts import hosts, joined_array, lists_hosts
from rankplan.read.text.shell.parse import Block
from rankplan.read.text.shell.sources import Sources
from rankplan.read.text.shell.substitutions import output
from rankplan.read.text.shell.words import COUNT, ELEMENT, SLICE, Arithmetic, Expansion, Literal, Part, Unread, Word

_BLANKS = re.compile(r"[ \t\n]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})|")
_BRACES = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_BOUNDS = re.compile(r" *(-?[0-9]{1,9}) *(?:: *([0-9]{1,9}) *)?")
_LONGEST = 10_000


@frozen
class Cause:
    """Why a value is known only when the script runs: the text that decides it, and its offset in the script.

    ``variable`` is the name of the environment variable, if it is one.
    """

    text: str
    start: int
    variable: str = ""


@frozen
class Piece:
    """Text of the script at ``start`` to ``end``; with a ``cause``, text that only a run can reveal.

    ``assumed``: this is the text if nobody sets that environment variable or argument, as in ``${NNODES:-2}``.
    """

    text: str
    start: int
    end: int
    cause: Cause | None = None
    assumed: Cause | None = None


Value: TypeAlias = tuple[Piece, ...]


@frozen
class Field:
    """One argument of a command, and its word; with a ``doubt``, whether it is passed depends on the run.

    ``several``: it stands for the elements of an unknown array, of which there may be any number.
    """

    pieces: Value
    start: int
    end: int
    doubt: Cause | None = None
    several: bool = False

    @property
    def causes(self) -> list[Cause]:
        """Why the text or its presence is unknown; empty if both are known."""
        causes = [piece.cause for piece in self.pieces if piece.cause is not None]
        return list(dict.fromkeys([*causes, self.doubt] if self.doubt is not None else causes))

    @property
    def text(self) -> str | None:
        """The text, ``None`` if any of it is unknown."""
        return text_of(self.pieces)

    @property
    def value(self) -> Value:
        """The pieces; those of a field that may not be passed are unknown."""
        return (*self.pieces, unknown(self.doubt, self.start, self.end)) if self.doubt is not None else self.pieces


Variable: TypeAlias = Value | tuple[Field, ...]
"""The text of a variable, or the elements of an array."""


def unknown(cause: Cause, start: int = 0, end: int = 0) -> Piece:
    """Return a piece of unknown text; without a place, a fault is at the word that uses it."""
    return Piece("", start, end, cause)


def text_of(value: Value) -> str | None:
    """Return the text of a value, ``None`` if any of it is unknown."""
    if len(value) == 1:
        return None if value[0].cause else value[0].text
    return None if any(piece.cause for piece in value) else "".join(piece.text for piece in value)


def scalar(value: Variable) -> Value:
    """Return the value of a variable; of an array, its first element."""
    first = value[0] if value else None
    return first.value if isinstance(first, Field) else tuple(piece for piece in value if isinstance(piece, Piece))


def is_array(value: Variable) -> bool:
    """Return whether a value has elements, and not a text."""
    return any(isinstance(item, Field) for item in value)


def _is_counted(items: Variable) -> bool:
    """Return whether each item is one element: none stands for several, and none may be left out."""
    return not any(isinstance(item, Field) and (item.several or item.doubt) for item in items)


def cause_of(value: Value) -> Cause | None:
    """Return why a value is unknown."""
    return next((piece.cause for piece in value if piece.cause), None)


def assumed_by(value: Value) -> list[Cause]:
    """Return the environment variables and arguments that a known value assumes to be unset."""
    return [piece.assumed for piece in value if piece.assumed is not None]


def as_field(item: Piece | Field) -> Field:
    """Return an element of a variable as a field."""
    return item if isinstance(item, Field) else Field((item,), item.start, item.end)


def short(text: str) -> str:
    """Return a part of a script for a message."""
    line = " ".join(text.split())
    return f"`{line}`" if len(line) <= 50 else f"`{line[:46]}...`"


class _Bounds(NamedTuple):
    """The number of the first element of a slice, from the end if negative; and its length, ``None`` for all others."""

    first: int
    length: int | None


@dataclass(slots=True)
class Scope:
    """The variables at one moment of a script. ``arguments`` are those of the script or function, if known.

    ``environment`` has the environment variables that are known; the script has used those in ``used``. Those that are
    ``given`` stand in for a value that the script sets itself, and that only a run knows. ``folder`` is the one in
    which its commands run, relative to the one in which it was started. ``in_function``: the arguments are those of a
    function.
    """

    sources: Sources
    variables: dict[str, Variable]
    environment: Mapping[str, Value] = field(default_factory=dict)
    arguments: tuple[Field, ...] | None = None
    used: set[str] = field(default_factory=set)
    folder: str = ""
    given: frozenset[str] = frozenset()
    in_function: bool = False

    def copy(self) -> Scope:
        """Return a scope that can change on its own."""
        return replace(self, variables=dict(self.variables))

    def fields(self, word: Word) -> list[Field]:
        """Return the fields of a word: none, one or several."""
        if len(word.parts) == 1:
            part = word.parts[0]
            if isinstance(part, Literal) and (part.quoted or "{" not in part.text):
                return [Field(self._pieces(part), word.start, word.end)]  # most words
            if isinstance(part, Expansion) and part.elements and self._is_known(part):
                return list(self._elements(part))  # each one keeps its own place
        fields: list[Field] = []
        pieces: list[Piece] | None = None  # those of the next field, None before its first one
        for item in chain.from_iterable(map(self._split, word.parts)):
            if item is not None:
                pieces = [*(pieces or []), item]
            elif pieces is not None:
                fields.append(Field(tuple(pieces), word.start, word.end))
                pieces = None
        if pieces is not None:
            fields.append(Field(tuple(pieces), word.start, word.end))
        return fields

    def _split(self, part: Part) -> Iterator[Piece | None]:
        """Yield the text of a part of a word, with ``None`` where one word ends and another starts."""
        is_list = isinstance(part, Expansion) and part.elements
        has_braces = isinstance(part, Literal) and not part.quoted and _BRACES.search(part.text)
        if isinstance(part, Expansion) and part.operator == SLICE and self._is_known(part):
            yield from self._split_elements(part)
        elif is_list or has_braces:
            yield self._odd(part)
        elif isinstance(part, Literal) or part.quoted:
            yield from self._pieces(part) or (Piece("", part.start, part.start),)
        else:
            yield from self._split_unquoted(part)

    def _split_elements(self, part: Expansion) -> Iterator[Piece | None]:
        for number, element in enumerate(self._elements(part)):
            if number:
                yield None
            yield from element.value

    def _split_unquoted(self, part: Part) -> Iterator[Piece | None]:
        """Divide the value of an unquoted part at its blanks, as far as the script leaves these their meaning."""
        unusual = "IFS" in self.variables or (isinstance(part, Expansion) and part.argument.quoted)
        for piece in self._pieces(part):
            if unusual and re.search(r"[^\w.=/-]", piece.text):
                yield self._odd(part)
            elif piece.cause is not None:
                yield piece
            else:
                yield from _words(piece)

    def value(self, word: Word) -> Value:
        """Return the text of a word that is not split into fields."""
        return tuple(piece for part in word.parts for piece in self._pieces(part))

    def names_folder(self, word: Word) -> bool:
        """Return whether the text of a word has the present folder, whose path is a relative one here: ``.``."""
        return any(isinstance(part, Expansion) and self._is_folder(part) for part in word.parts)

    def _is_folder(self, part: Expansion) -> bool:
        return part.name == "PWD" and "PWD" not in self.variables

    def pattern(self, word: Word) -> str | None:
        """Return the text of a word as a pattern, in which quoted characters count as they are."""
        texts = [(text_of(self._pieces(part)), part) for part in word.parts]
        known = [glob.escape(text) if part.quoted else text for text, part in texts if text is not None]
        return "".join(known) if len(known) == len(texts) else None

    def _pieces(self, part: Part) -> Value:
        """Return the text of a part, with a blank between the elements of an array."""
        if isinstance(part, Literal):
            return (Piece(part.text, part.start, part.end),)
        if isinstance(part, Arithmetic):
            return (self._calculated(part),)
        if isinstance(part, Unread) and part.commands:
            return (self._substituted(part),)
        if isinstance(part, Unread) or (part.operator == "*" and "IFS" in self.variables):
            return (self._odd(part),)
        if not part.elements and part.operator != "*":
            return self._expanded(part)
        if not self._is_known(part):
            return (self._odd(part),)
        blank = Piece(" ", part.start, part.end)
        return tuple(piece for element in self._elements(part) for piece in (blank, *element.value))[1:]

    def _substituted(self, part: Unread) -> Piece:
        commands: Block = part.commands  # type: ignore[assignment]  # words are below commands
        if lists_hosts(commands):
            names = hosts(self._variable)
            return self._odd(part) if names is None else Piece(" ".join(names), part.start, part.end)
        array = joined_array(commands)
        if array is not None:
            texts = [text_of(element.value) for element in self._elements(array.elements)]
            known = [text for text in texts if text is not None]
            return Piece(array.between.join(known), part.start, part.end) if known == texts else self._odd(part)
        path = output(commands, lambda word: text_of(self.value(word)), self.folder)
        return self._odd(part) if path is None else Piece(path, part.start, part.end)

    def number(self, word: Word) -> int | None:
        """Return the value of an arithmetic expression, ``None`` if it is unknown."""
        text = text_of(self.value(word))
        number = None if text is None else calculated(text, self._number)
        self.changed_by(self.sources.text[word.start : word.end] if text is None else text, word.start)
        return number

    def changed_by(self, expression: str, start: int) -> None:
        """Forget the variables that an expression changes."""
        for name in assigned_names(expression):
            self.forget(name, Cause(short(expression), start))

    def forget(self, name: str, cause: Cause) -> None:
        """Make the value of a variable unknown."""
        self.variables[name] = (unknown(cause),)
        self.use_given()

    def use_given(self) -> None:
        """Use what is given for a variable instead of a value that only a run knows."""
        for name in self.given:
            value = self.variables.get(name, ())
            if any(isinstance(piece, Piece) and piece.cause is not None for piece in value):
                self.variables[name] = self.environment[name]
                self.used.add(name)

    def _number(self, name: str) -> int | None:
        value = self._variable(name)
        text = None if value is None else text_of(value)
        return None if text is None or _NUMBER.fullmatch(text) is None else int(text or 0)

    def _calculated(self, part: Arithmetic) -> Piece:
        number = self.number(part.expression)
        values = [self.value(part.expression)]
        for name in re.findall(r"[A-Za-z_]\w*", self.sources.text[part.expression.start : part.expression.end]):
            value = self._variable(name)
            values.append((unknown(environment_variable(name, part.start)),) if value is None else value)
        if number is not None:
            assumed = next((cause for value in values for cause in assumed_by(value)), None)
            return Piece(str(number), part.start, part.end, assumed=assumed)
        cause = next((cause for cause in map(cause_of, values) if cause is not None), None)
        return self._odd(part) if cause is None else unknown(cause, part.start, part.end)

    def _elements(self, part: Expansion) -> Sequence[Field]:
        if part.name in ("@", "*"):
            # Nothing is passed to a script that is only read: `"$@"` adds what the user wants to change.
            self.use_arguments(range(len(self.arguments or ())))
        every: list[Field] = []
        for item in self._all_of(part.name):
            if isinstance(item, Field):
                every.append(item)
            else:
                every.append(Field((item,), part.start, part.end, several=item.cause is not None))
        bounds = self._bounds(part) if part.operator == SLICE else None
        if bounds is None:
            return every
        first = bounds.first
        if part.name == "@" and first > 0:
            first -= 1  # they are counted from 1
        if first < 0:
            first = max(len(every) + first, 0)
        return every[first:] if bounds.length is None else every[first : first + bounds.length]

    def _all_of(self, name: str) -> Variable:
        """Return the elements of an array, or the arguments. Nothing is passed to a script that is only read."""
        return (self.arguments or ()) if name in ("@", "*") else self.variables.get(name, ())

    def use_arguments(self, indices: Iterable[int]) -> None:
        """Note that the script uses these of its arguments; those of a function are no arguments of the script."""
        if not self.in_function:
            self.used |= {str(index + 1) for index in indices}

    def _is_known(self, part: Expansion) -> bool:
        """Return whether the elements that an expansion stands for are known; without bounds, they always are."""
        if part.operator != SLICE:
            return True
        bounds = self._bounds(part)
        elements = self._all_of(part.name)
        if bounds is None or not _is_counted(elements):
            return False
        return is_array(elements) or (part.name == "@" and bounds != _Bounds(0, None))

    def _bounds(self, part: Expansion) -> _Bounds | None:
        """Return the bounds of a slice of an array, ``None`` if they are unknown."""
        text = text_of(self.value(part.argument))
        numbers = None if text is None else _BOUNDS.fullmatch(text)
        if numbers is None:
            return None
        return _Bounds(int(numbers[1]), None if numbers[2] is None else int(numbers[2]))

    def _counted(self, part: Expansion) -> Piece:
        """Return the number of elements of an array; a variable that is not an array counts as one."""
        value = self.variables.get(part.name)
        if value is None or not _is_counted(value):
            return self._odd(part)
        count = len(value) if is_array(value) or not value else 1
        return Piece(str(count), part.start, part.end)

    def _element(self, part: Expansion) -> Value:
        """Return an element of an array by its number, from the end if that is negative."""
        number = int(text_of(self.value(part.argument)) or 0)
        value = self.variables.get(part.name)
        if value is None or not is_array(value):
            return (self._odd(part),)
        up_to_it = value[: number + 1] if number >= 0 else value[number:]
        if not _is_counted(up_to_it) or not -len(value) <= number < len(value):
            return (self._odd(part),)
        return as_field(value[number]).value

    def _expanded(self, part: Expansion) -> Value:
        if part.operator == ELEMENT:
            return self._element(part)
        if part.operator == COUNT:
            return (self._counted(part),)
        value = self._variable(part.name)
        kind = part.operator.removeprefix(":")
        if kind in ("-", "=", "+"):
            return self._with_alternative(part, kind, value)
        if value is None:
            return (unknown(_cause(part), part.start, part.end),)
        text = text_of(value)
        if kind in ("", "?") or not text:
            return value
        return (self._cut(text, part, next(iter(assumed_by(value)), None)),)

    def _with_alternative(self, part: Expansion, kind: str, value: Value | None) -> Value:
        """Return the value of ``${name-text}``, ``${name=text}`` or ``${name+text}``.

        With a colon before the operator, an empty variable counts as one that is not set.
        """
        if value is not None and part.operator.startswith(":") and text_of(value) == "":
            assumed = next(iter(assumed_by(value)), None)
        elif value is None:
            assumed = _cause(part)
        elif kind == "+":
            return tuple(piece for piece in value if piece.cause) or self.value(part.argument)
        else:
            return value
        if kind == "+":
            return _assuming((), assumed, part)
        default = _assuming(self.value(part.argument), assumed, part)
        if kind == "=":
            self.variables[part.name] = default
        return default

    def _variable(self, name: str) -> Value | None:
        """Return the value of a variable, ``None`` if it is not set. Paths start at the present folder: ``.``."""
        if name == "#":
            return (self._number_of_arguments(),)
        if name.isdigit() and name != "0":
            return self._argument(name)
        value = self.variables.get(name)
        if value is None and name == "PWD":
            return (Piece(self.folder or ".", 0, 0),)
        if value is not None and value is self.environment.get(name):
            self.used.add(name)
        return None if value is None else scalar(value)

    def _number_of_arguments(self) -> Piece:
        count = len(self.arguments or ())
        self.use_arguments(range(count))
        return Piece(str(count), 0, 0, assumed=Cause("the arguments", 0) if self.arguments is None else None)

    def _argument(self, name: str) -> Value | None:
        """Return the value of an argument by its number, from 1."""
        if self.arguments is None:
            return None
        number = int(name)
        self.use_arguments([number - 1])
        return self.arguments[number - 1].value if number <= len(self.arguments) else ()

    def _cut(self, text: str, part: Expansion, assumed: Cause | None) -> Piece:
        """Return a text without the start or the end that fits a pattern: ``${name##*/}``, ``${name%.yaml}``."""
        if self._is_folder(part):
            return self._odd(part)
        pattern = text_of(self.value(part.argument)) if part.quoted else self.pattern(part.argument)
        if pattern is None or len(text) > _LONGEST:
            return self._odd(part)
        sizes = range(len(text) + 1) if len(part.operator) == 1 else range(len(text), -1, -1)
        for size in sizes:
            places = slice(size) if part.operator[0] == "#" else slice(len(text) - size, None)
            if fnmatch.fnmatchcase(text[places], pattern):
                text = text[size:] if part.operator[0] == "#" else text[: len(text) - size]
                break
        return Piece(text, part.start, part.end, assumed=assumed)

    def _odd(self, part: Part) -> Piece:
        return unknown(Cause(short(self.sources.text[part.start : part.end]), part.start), part.start, part.end)


def _cause(part: Expansion) -> Cause:
    if part.name.isdigit():
        return Cause(f"the argument ${part.name}", part.start)
    return environment_variable(part.name, part.start)


def environment_variable(name: str, start: int) -> Cause:
    """Return the cause that a variable which the script does not set is."""
    return Cause(f"the environment variable {name}", start, name)


def _assuming(value: Value, cause: Cause | None, part: Expansion) -> Value:
    """Return the value of ``part`` as long as ``cause`` is not set."""
    if cause is None:
        return value
    pieces = tuple(piece if piece.cause else replace(piece, assumed=cause) for piece in value)
    return pieces or (Piece("", part.start, part.start, assumed=cause),)


def _words(piece: Piece) -> Iterator[Piece | None]:
    """Yield the words of a known piece, with ``None`` at the blanks between them."""
    literal = piece.end - piece.start == len(piece.text)
    position = 0
    for blank in [*_BLANKS.finditer(piece.text), None]:
        end = blank.start() if blank else len(piece.text)
        if position < end:
            text = piece.text[position:end]
            if literal:
                yield Piece(text, piece.start + position, piece.start + end, assumed=piece.assumed)
            else:
                yield replace(piece, text=text)
        if blank:
            yield None
            position = blank.end()

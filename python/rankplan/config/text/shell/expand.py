"""Expands the words of a shell script into fields, and keeps where every piece of text was written."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from rankplan.config.text.shell.arithmetic import assigned_names, calculated
from rankplan.config.text.shell.tree import Arithmetic, Expansion, Literal, Part, Substitution, Word

_BLANKS = re.compile(r"[ \t\n]+")
_BRACES = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_SLICE = re.compile(r"\s*([0-9]{1,6})\s*(?::\s*([0-9]{1,6})\s*)?")
_DEEPEST = 20
_LONGEST = 10_000


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a value is known only when the script runs: the text that decides it, and its offset in the script."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of the script at ``start`` to ``end``; with a ``cause``, text that only a run can reveal."""

    text: str
    start: int
    end: int
    cause: Cause | None = None


Value: TypeAlias = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """One argument of a command, and its word; with a ``doubt``, whether it is passed depends on the run."""

    pieces: Value
    start: int
    end: int
    doubt: Cause | None = None

    @property
    def causes(self) -> list[Cause]:
        """Why the text or its presence is unknown; empty if both are known."""
        causes = [piece.cause for piece in self.pieces if piece.cause is not None]
        return list(dict.fromkeys([*causes, self.doubt] if self.doubt is not None else causes))

    @property
    def text(self) -> str | None:
        """The text, ``None`` if any of it is unknown."""
        return text_of(self.pieces)


def text_of(value: Value) -> str | None:
    """Return the text of a value, ``None`` if any of it is unknown."""
    return None if any(piece.cause for piece in value) else "".join(piece.text for piece in value)


def scalar(value: Variable) -> Value:
    """Return the value of a variable; of an array, its first element."""
    first = value[0] if value else None
    return first.pieces if isinstance(first, Field) else tuple(one for one in value if isinstance(one, Piece))


def cause_of(value: Value) -> Cause | None:
    """Return why a value is unknown."""
    return next((piece.cause for piece in value if piece.cause), None)


Variable: TypeAlias = Value | tuple[Field, ...]
"""The text of a variable, or the elements of an array."""


class Scope:
    """The variables at one moment of a script. ``arguments`` are those of the script or function, if known."""

    def __init__(self, source: str, variables: dict[str, Variable]) -> None:
        self.source = source
        self.variables = variables
        self.arguments: tuple[Field, ...] | None = None

    def copy(self) -> Scope:
        """Return a scope that can change on its own."""
        other = Scope(self.source, dict(self.variables))
        other.arguments = self.arguments
        return other

    def fields(self, word: Word) -> list[Field]:
        """Return the fields of a word: none, one or several."""
        done: list[Field] = []
        pieces: list[Piece] | None = None

        def finish() -> None:
            nonlocal pieces
            if pieces is not None:
                done.append(Field(tuple(pieces), word.start, word.end))
                pieces = None

        for part in self._chosen(word.parts):
            if isinstance(part, Expansion) and part.elements and part.operator != "#" and not part.joined:
                elements = self._changed_elements(part)
                for index, element in enumerate(elements):
                    if index:
                        finish()
                    if pieces is None and element.pieces and (index + 1 < len(elements) or part is word.parts[-1]):
                        done.append(element)  # a whole element keeps its own place
                        continue
                    doubt = [Piece("", part.start, part.end, element.doubt)] if element.doubt else []
                    pieces = [*(pieces or []), *element.pieces, *doubt]
                continue
            found = self.value(Word((part,), word.start, word.end))
            if isinstance(part, Literal) or part.quoted:
                if isinstance(part, Literal) and not part.quoted and (braces := _BRACES.search(part.text)):
                    found = (Piece("", part.start, word.end, Cause(short(braces[0]), part.start)),)
                pieces = [*(pieces or []), *found]
                continue
            for piece in found:
                if "IFS" in self.variables and re.search(r"[^\w.=/-]", piece.text):
                    piece = replace(piece, text="", cause=Cause("`IFS`", part.start))
                for index, split in enumerate(_split(piece)):
                    if index:
                        finish()
                    if split is not None:
                        pieces = [*(pieces or []), split]
        finish()
        return done

    def _chosen(self, parts: Sequence[Part]) -> Iterator[Part]:
        """Yield the parts of a word; a default with quotes (``${x:-"a b"}``) in place of the variable if it counts."""
        for part in parts:
            if (
                isinstance(part, Expansion)
                and part.argument is not None
                and part.operator in (":-", "-")
                and not (part.quoted or part.elements or part.name.isdigit())
                and any(one.quoted for one in part.argument.parts)
            ):
                value, _ = self._variable(part)
                if value is None or (part.operator == ":-" and text_of(value) == ""):
                    yield from self._chosen(part.argument.parts)
                    continue
            yield part

    def value(self, word: Word) -> Value:
        """Return the text of a word that is not split into fields."""
        found: list[Piece] = []
        for part in word.parts:
            if isinstance(part, Expansion) and part.elements and part.operator != "#":
                between = Piece(self._separator() if part.joined else " ", part.start, part.end)
                for index, element in enumerate(self._changed_elements(part)):
                    found += [between] * bool(index)
                    found += element.pieces
                    if element.doubt:
                        found.append(Piece("", part.start, part.end, element.doubt))
                    if len(found) > 10 * _LONGEST:
                        return (Piece("", part.start, part.end, Cause("a very long text", part.start)),)
            else:
                found += self.pieces(part)
        return tuple(found)

    def _separator(self) -> str:
        """Return the character that joins the elements of ``"${name[*]}"``."""
        value = self.variables.get("IFS")
        return " " if value is None else (text_of(scalar(value)) or "")[:1]

    def pattern(self, word: Word) -> str | None:
        """Return the text of a word as a pattern, in which quoted characters count as they are."""
        texts = [(text_of(self.value(Word((part,), word.start, word.end))), part) for part in word.parts]
        known = [glob.escape(text) if part.quoted else text for text, part in texts if text is not None]
        return "".join(known) if len(known) == len(texts) else None

    def pieces(self, part: Part) -> Value:
        """Return the text of a part."""
        if isinstance(part, Literal):
            return (Piece(part.text, part.start, part.start + len(part.text)),)
        if isinstance(part, Substitution):
            return (Piece("", part.start, part.end, Cause(short(part.text), part.start)),)
        if isinstance(part, Arithmetic):
            return (self._calculated(part),)
        return self._expanded(part)

    def number(self, word: Word) -> int | None:
        """Return the value of an arithmetic expression, ``None`` if it is unknown."""
        text = text_of(self.value(word))
        number = None if text is None else calculated(text, lambda name: self._number(name, {}))
        self.changed_by(self.source[word.start : word.end] if text is None else text, word.start)
        return number

    def changed_by(self, expression: str, start: int) -> None:
        """Forget the variables that an expression changes."""
        for name in assigned_names(expression):
            self.variables[name] = (Piece("", start, start, Cause(short(expression), start)),)

    def _number(self, name: str, known: dict[str, int | None], depth: int = 0) -> int | None:
        if name not in known:
            value = self.variables.get(name)
            text = text_of(scalar(value)) if value else None
            if text is None or depth > _DEEPEST:
                return None
            known[name] = calculated(text, lambda other: self._number(other, known, depth + 1)) if text.strip() else 0
        return known[name]

    def _calculated(self, part: Arithmetic) -> Piece:
        number = self.number(part.expression)
        if number is not None:
            return Piece(str(number), part.start, part.end)
        cause = cause_of(self.value(part.expression)) or self._unknown_name(part)
        return Piece("", part.start, part.end, cause)

    def _unknown_name(self, part: Arithmetic) -> Cause:
        text = self.source[part.expression.start : part.expression.end]
        for name in re.findall(r"[A-Za-z_]\w*", text):
            value = self.variables.get(name)
            if value is None:
                return Cause(f"the environment variable {name}", part.start)
            if (cause := cause_of(scalar(value))) is not None:
                return cause
        return Cause(short(self.source[part.start : part.end]), part.start)

    def _elements(self, part: Expansion) -> Sequence[Field]:
        if part.name in ("@", "*"):
            # Nothing is passed to a script that is only read: `"$@"` adds what the user wants to change.
            return self.arguments or ()
        value = self.variables.get(part.name, ())
        return [item if isinstance(item, Field) else Field((item,), part.start, part.end) for item in value]

    def _changed_elements(self, part: Expansion) -> Sequence[Field]:
        """Return the elements after an operator: some of them (``:1``), or each of them changed."""
        elements = self._elements(part)
        if not elements and part.operator in ("-", ":-") and part.argument is not None:
            return self.fields(part.argument)
        if part.operator in ("", "+", ":+", "-", ":-") or not elements:
            return elements
        if part.operator == ":" and part.argument is not None:
            found = _SLICE.fullmatch(text_of(self.value(part.argument)) or "")
            if found is not None:
                first = int(found[1]) - (part.name in "@*")
                if first >= 0:
                    return elements[first : first + int(found[2]) if found[2] else None]
        elif part.operator != "!":
            texts = [(one, self._changed(one.text, part) if one.text is not None else None) for one in elements]
            if all(text is not None for _, text in texts):
                return [replace(one, pieces=(Piece(text or "", part.start, part.end),)) for one, text in texts]
        return [Field((self._odd(part),), part.start, part.end)]

    def _expanded(self, part: Expansion) -> Value:
        value, known = self._variable(part)
        text = text_of(value) if value is not None else None
        empty = value is None or text == ""
        argument, operator = part.argument, part.operator
        if not operator:
            return value if value is not None else self._unset(part, known=known)
        if argument is not None and operator in (":-", "-", ":=", "="):
            if value is not None and (text != "" or operator in ("-", "=")):
                return value
            if part.name.isdigit() and not known:
                return self._unset(part, known=known)
            found = self.value(argument)
            if "=" in operator:
                self.variables[part.name] = found
            return found
        if argument is not None and operator in (":+", "+"):
            if value is not None and text is None:
                return (Piece("", part.start, part.end, cause_of(value)),)
            return () if (empty if operator == ":+" else value is None) else self.value(argument)
        if value is None:
            return self._unset(part, known=known)
        if operator in (":?", "?"):
            return value
        if text is None:
            return value
        changed = self._changed(text, part)
        return (Piece(changed, part.start, part.end) if changed is not None else self._odd(part),)

    def _changed(self, text: str, part: Expansion) -> str | None:
        """Return the text after an operator that cuts or replaces, ``None`` for one that is not read."""
        if part.operator == "#" and part.argument is None:
            return str(len(text))
        if part.argument is None or len(text) > _LONGEST:
            return None
        raw = part.quoted or part.operator in ("/", "//")
        pattern = text_of(self.value(part.argument)) if raw else self.pattern(part.argument)
        if pattern is None:
            return None
        if part.operator in ("%", "%%", "#", "##"):
            suffix = part.operator[0] == "%"
            sizes = range(len(text) + 1) if len(part.operator) == 1 else range(len(text), -1, -1)
            for size in sizes:
                cut = text[len(text) - size :] if suffix else text[:size]
                if fnmatch.fnmatchcase(cut, pattern):
                    return text[: len(text) - size] if suffix else text[size:]
            return text
        if part.operator in ("/", "//"):
            old, _, new = pattern.partition("/")
            if not old or re.search(r"[*?\[\\]", old) or old[0] in "#%":
                return None
            return text.replace(old, new, 1 if part.operator == "/" else -1)
        return None

    def _variable(self, part: Expansion) -> tuple[Value | None, bool]:
        """Return a variable's value, ``None`` if it is not set; and whether that is known."""
        name = part.name
        if name.isdigit() and name != "0":
            if self.arguments is None:
                return None, False
            index = int(name) - 1
            return (self.arguments[index].pieces if index < len(self.arguments) else None), True
        if not (name[0].isalpha() or name[0] == "_"):
            return (self._odd(part),), True
        value = self.variables.get(name)
        if value is None:
            return None, False
        if any(isinstance(item, Field) for item in value) or part.elements:
            if part.operator in ("#", "[]") or not value:
                return (self._odd(part),) if value or part.operator else (), True
            return scalar(value), True
        if part.operator == "!":
            return (self._odd(part),), True
        return scalar(value), True

    def _unset(self, part: Expansion, *, known: bool) -> Value:
        if known:
            return ()
        if part.name.isdigit():
            return (Piece("", part.start, part.end, Cause(f"the argument ${part.name}", part.start)),)
        return (Piece("", part.start, part.end, Cause(f"the environment variable {part.name}", part.start)),)

    def _odd(self, part: Expansion) -> Piece:
        return Piece("", part.start, part.end, Cause(short(self.source[part.start : part.end]), part.start))


def _split(piece: Piece) -> Iterator[Piece | None]:
    """Yield the words of a piece; ``None`` for an empty part at a blank, which ends the word before it."""
    if piece.cause is not None:
        yield piece
        return
    literal = piece.end - piece.start == len(piece.text)
    position = 0
    for blank in [*_BLANKS.finditer(piece.text), None]:
        end = blank.start() if blank else len(piece.text)
        text = piece.text[position:end]
        start, stop = (piece.start + position, piece.start + end) if literal else (piece.start, piece.end)
        yield Piece(text, start, stop) if text else None
        position = blank.end() if blank else end


def short(text: str) -> str:
    line = " ".join(text.split())
    return f"`{line}`" if len(line) <= 50 else f"`{line[:46]}...`"

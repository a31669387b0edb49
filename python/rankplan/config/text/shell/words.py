"""The words of a shell script: quotes, escapes and expansions."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable

from rankplan.config.text.shell.tree import Arithmetic, Expansion, Literal, Part, Substitution, Word

_META = frozenset(" \t\n;|&()<>")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]+|[@*#?$!-]", re.ASCII)
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]", re.ASCII)
_OPERATOR = re.compile(r":[-=?+]|[-=?+]|##?|%%?|//?|\^\^?|,,?|@|:")
_INDEX = re.compile(r"\[([^\]]*)\]")
_CODE = re.compile(r"x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([0-7]{1,3})")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "e": "\x1b"}


class ShellSyntaxError(Exception):
    """A script that no shell accepts, with the offset of the fault."""

    def __init__(self, message: str, start: int, help: str) -> None:
        super().__init__(message)
        self.message, self.start, self.help = message, start, help


class Words(ABC):
    """A position in a script, and the words from there on. The parser of commands continues this class."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def _at(self, text: str) -> bool:
        return self.text.startswith(text, self.position)

    def word(self, stop: Callable[[str], bool] = _META.__contains__) -> Word:
        """Return the word at the position; it ends at the first unquoted character that stops it."""
        start = self.position
        parts: list[Part] = []
        while self.position < len(self.text) and not stop(self.text[self.position]):
            if self._at("\\\n"):
                self.position += 2
            elif self._at("'"):
                parts.append(self._single_quoted())
            elif self._at('"') or self._at('$"'):
                parts += self._double_quoted()
            elif self._at("$'"):
                parts.append(self._escaped())
            elif self._at("\\"):
                parts.append(Literal(self.text[self.position + 1 : self.position + 2], self.position + 1, quoted=True))
                self.position += 2
            elif (expansion := self._expansion(quoted=False)) is not None:
                parts.append(expansion)
            else:
                parts.append(self._plain(stop))
        return Word(tuple(parts), start, self.position)

    def _plain(self, stop: Callable[[str], bool]) -> Literal:
        start = self.position
        self.position += 1  # a `$` that expands nothing is text
        while self.position < len(self.text):
            character = self.text[self.position]
            if character in "\\'\"$`" or stop(character):
                break
            self.position += 1
        return Literal(self.text[start : self.position], start)

    def _single_quoted(self) -> Literal:
        start = self.position + 1
        end = self.text.find("'", start)
        if end < 0:
            raise ShellSyntaxError("this quote is not closed", self.position, "add the closing quote")
        self.position = end + 1
        return Literal(self.text[start:end], start, quoted=True)

    def _escaped(self) -> Literal:
        start = self.position + 2
        self.position = start
        text = ""
        while not self._at("'"):
            if self.position >= len(self.text):
                raise ShellSyntaxError("this quote is not closed", start - 2, "add the closing quote")
            step = 1
            if self._at("\\") and (code := _CODE.match(self.text, self.position + 1)):
                step = len(code[0]) + 1
                text += chr(int(code[1] or code[2], 16) if code[3] is None else int(code[3], 8))
            elif self._at("\\"):
                step, escaped = 2, self.text[self.position + 1 : self.position + 2]
                text += _ESCAPES.get(escaped, "\\" + escaped)
            else:
                text += self.text[self.position]
            self.position += step
        self.position += 1
        return Literal(text, start, quoted=True)

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
        while self.position < len(self.text) and not self._at(end):
            if self._at("\\\n"):
                self.position += 2
            elif self._at("\\") and self.text[self.position + 1 : self.position + 2] in ("$", "`", '"', "\\", end):
                parts.append(Literal(self.text[self.position + 1], self.position + 1, quoted=True))
                self.position += 2
            elif (expansion := self._expansion(quoted=True)) is not None:
                parts.append(expansion)
            elif end == "}" and self._at('"'):
                parts += self._double_quoted()
            else:
                start = self.position
                self.position += 1
                stop = "\\$`" + end + ('"' if end == "}" else "")
                while self.position < len(self.text) and self.text[self.position] not in stop:
                    self.position += 1
                parts.append(Literal(self.text[start : self.position], start, quoted=True))
        return parts

    def _expansion(self, *, quoted: bool) -> Part | None:
        """Return the expansion at the position, ``None`` if there is none."""
        start = self.position
        if self._at("`"):
            end = re.compile(r"(?:\\.|[^`\\])*", re.DOTALL).match(self.text, start + 1)
            self.position = (end.end() if end else start) + 1
            if self.position > len(self.text):
                raise ShellSyntaxError("this backquote is not closed", start, "add the closing backquote")
            return Substitution(self.text[start : self.position], start, self.position, quoted)
        if self._at("$((") and (end_of := self._end_of_arithmetic(start + 3)) is not None:
            inner = type(self)(self.text[:end_of])
            inner.position = start + 3
            expression = Word(tuple(inner._quoted_parts("\0")), start + 3, end_of)
            self.position = end_of + 2
            return Arithmetic(expression, start, self.position, quoted)
        if self._at("$("):
            self.position += 2
            self._skip_commands(start)
            return Substitution(self.text[start : self.position], start, self.position, quoted)
        if self._at("${"):
            return self._braced(quoted=quoted)
        if self._at("$") and (name := _PLAIN_NAME.match(self.text, start + 1)):
            self.position = name.end()
            joined = quoted and name[0] == "*"
            return Expansion(name[0], start, self.position, elements=name[0] in "@*", quoted=quoted, joined=joined)
        return None

    @abstractmethod
    def _skip_commands(self, start: int) -> None:
        """Move past the commands of a substitution that starts at ``start``, and past its closing parenthesis."""

    def _end_of_arithmetic(self, position: int) -> int | None:
        depth = 0
        while position < len(self.text):
            if self.text[position] == "(":
                depth += 1
            elif self.text[position] == ")":
                if not depth:
                    return position if self.text.startswith("))", position) else None
                depth -= 1
            position += 1
        return None

    def _braced(self, *, quoted: bool) -> Expansion:
        start = self.position
        self.position += 2
        operator, argument, elements, joined = "", None, False, False
        if self.text[self.position : self.position + 1] in ("#", "!") and not self._at("#}") and not self._at("#:"):
            operator = self.text[self.position]
            self.position += 1
        name = _NAME.match(self.text, self.position)
        if name is None:
            raise ShellSyntaxError("`${` without a name", start, "write ${NAME}")
        self.position = name.end()
        if index := _INDEX.match(self.text, self.position):
            elements, joined = index[1] in ("@", "*"), quoted and index[1] == "*"
            operator = operator or ("" if elements else "[]")
            self.position = index.end()
        if found := _OPERATOR.match(self.text, self.position):
            operator = found[0]
            self.position = found.end()
            begin = self.position
            parts = self._quoted_parts("}") if quoted else list(self.word("}".__eq__).parts)
            argument = Word(tuple(parts), begin, self.position)
        if not self._at("}"):
            raise ShellSyntaxError("this `${` is not closed", start, "add the closing brace")
        self.position += 1
        whole = elements or name[0] in ("@", "*")
        joined = joined or (quoted and name[0] == "*")
        return Expansion(name[0], start, self.position, operator, argument, whole, quoted, joined)

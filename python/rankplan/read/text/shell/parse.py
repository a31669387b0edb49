"""The commands of a shell script: lists, branches, loops, functions and here-documents.

Offsets count characters of the script, from 0.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from rankplan.read.text.shell.arithmetic import assigned_names
from rankplan.read.text.shell.words import Literal, Parentheses, ShellSyntaxError, Unread, Word, Words

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]\n]*\])?(\+?)=", re.ASCII)
_INDEXED = re.compile(r"\[[^\]]*\]\+?=")
_FUNCTION = re.compile(
    r"(?:function[ \t]+([^\s()]+)[ \t]*(?:\([ \t]*\))?|([A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\))\s*(?=[{(])"
)
_REDIRECTION = re.compile(r"[0-9]*(?:<<<|<<-?|<&|<>|>>|>&|>\||<(?!\()|>(?!\())|&>>?")
_AND_OR, _PIPE = re.compile(r"&&|\|\|"), re.compile(r"\|&?(?!\|)")
_IN_TESTS = re.compile(r"&&|\|\||[()<>]")
_ENDS = (";;&", ";&", ";;", "")
_BLANKS = re.compile(r"(?:[ \t\r]|\\\n|#[^\n]*)+")
_ENDS_OF_COMMANDS = re.compile(rf"{_BLANKS.pattern}|\n|;(?![;&])")
_RESERVED = re.compile(r"[A-Za-z]+(?=[\s;&|()<>]|$)|\{(?=\s)|\}|!(?=\s)|\[\[(?=\s)")
_DECLARING = frozenset({"export", "local", "declare", "readonly", "typeset"})
_CLOSING = re.compile(r"\)|;[;&]|\}|(?:then|elif|else|fi|do|done|esac)(?=[\s;&|()<>]|$)")


class Assignment(NamedTuple):
    """``name=word``, ``name=(words)``, or either with ``+=``; ``element`` is the index in ``name[index]=word``."""

    name: str
    value: Word | tuple[Word, ...]
    append: bool
    start: int
    element: str | None


class Document:
    """A here-document; its ``word`` is known once the parser has passed it."""

    def __init__(self, delimiter: Word, *, indented: bool) -> None:
        self.delimiter, self.indented = delimiter, indented
        self.word: Word | None = None


class Simple(NamedTuple):
    """A command with its words, after assignments, and its here-document; or a test between ``[[`` and ``]]``."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    start: int
    document: Document | None = None


class Calculation(NamedTuple):
    """``((...))``."""

    expression: Word


class Not(NamedTuple):
    """A command after ``!``."""

    body: Statement


class Chain(NamedTuple):
    """Commands joined by ``&&`` and ``||``, each with the operator before it (the first one: ``&&``)."""

    commands: tuple[tuple[str, Statement], ...]
    start: int


class If(NamedTuple):
    """``if`` with its condition and commands, and those of ``else``; ``elif`` is an `If` in ``otherwise``."""

    condition: Block
    body: Block
    otherwise: Block
    start: int


class Case(NamedTuple):
    """``case``: a word, and the patterns and commands of each branch."""

    word: Word
    branches: tuple[tuple[tuple[Word, ...], Block], ...]
    start: int


class Loop(NamedTuple):
    """``for``, ``while``, ``until`` or ``select``; ``variable`` is ``None`` without one.

    ``condition`` is that of ``while`` and ``until``, ``words`` those that ``for`` goes over.
    """

    kind: str
    variable: str | None
    body: Block
    start: int
    condition: Block = ()
    words: tuple[Word, ...] = ()


class Function(NamedTuple):
    """The definition of a function."""

    name: str
    body: Block


class Group(NamedTuple):
    """Commands between braces; ``apart`` for those that change nothing outside: between parentheses, in a pipeline."""

    body: Block
    apart: bool


Statement: TypeAlias = Simple | Calculation | Not | Chain | If | Case | Loop | Function | Group
Block: TypeAlias = tuple[Statement, ...]


def parse(text: str, start: int = 0) -> Block:
    """Return the commands of a script, which starts at an offset of a text. Raises `ShellSyntaxError`."""
    parser = _Parser(text, start)
    block = parser.block()
    if parser.position < len(text):
        rest = re.match(r"\S+", text[parser.position :])
        word = rest[0] if rest else text[parser.position]
        raise ShellSyntaxError(f"`{word}` does not match the commands before it", parser.position, "remove it")
    return block


class _Parser(Words):
    def __init__(self, text: str, position: int = 0, parentheses: Parentheses | None = None) -> None:
        super().__init__(text, position, parentheses)
        self._documents: list[Document] = []

    def _skip_blanks(self, *, lines: bool = False) -> None:
        """Move past blanks, comments and continuations, and past ends of lines if ``lines``."""
        skipped = _ENDS_OF_COMMANDS if lines else _BLANKS
        while (blanks := skipped.match(self.text, self.position)) is not None:
            self.position = blanks.end()
            if blanks[0] == "\n":
                self._skip_documents()

    def _skip_documents(self) -> None:
        """Read the here-documents that follow a line."""
        for document in self._documents:
            tabs = r"\t*" if document.indented else ""
            delimiter = re.escape(document.delimiter.literal or "")
            end = re.compile(rf"^{tabs}{delimiter}(?:\n|\Z)", re.MULTILINE).search(self.text, self.position)
            start = self.position
            stop = len(self.text) if end is None else end.start()
            if document.delimiter.quoted:
                document.word = Word((Literal(self.text[start:stop], start, quoted=True),), start, stop)
            else:
                with suppress(ShellSyntaxError):  # a program in another language
                    parser = _Parser(self.text[:stop], start, self._parentheses)
                    document.word = Word(tuple(parser._quoted_parts("\0")), start, stop)
            self.position = stop if end is None else end.end()
        self._documents = []

    def _reserved(self) -> str | None:
        word = _RESERVED.match(self.text, self.position)
        return None if word is None else word[0]

    def _take(self, word: str, opening: str, start: int) -> None:
        """Move past a reserved word, which must come next."""
        self._skip_blanks(lines=True)
        if self._reserved() != word and not (word in "()" and self._at(word)):
            raise ShellSyntaxError(f"`{opening}` without `{word}`", start, f"add `{word}`")
        self.position += len(word)

    def _commands(self, start: int) -> Block:
        pending, self._documents = self._documents, []
        commands = self.block()
        self._documents = pending
        if not self._at(")"):
            raise ShellSyntaxError("this `$(` is not closed", start, "add the closing parenthesis")
        self.position += 1
        return commands

    def block(self) -> Block:
        """Return the commands up to a word or a character that closes them, which is not consumed."""
        statements: list[Statement] = []
        while True:
            self._skip_blanks(lines=True)
            if self.position >= len(self.text) or _CLOSING.match(self.text, self.position):
                return tuple(statements)
            before = self.position
            statements.append(self._chain())
            self._skip_blanks()
            if self._at("&"):
                statements[-1] = Group((statements[-1],), apart=True)
                self.position += 1
            if self.position == before:
                raise ShellSyntaxError(f"unexpected `{self.text[before]}`", before, "remove or quote it")

    def _chain(self) -> Statement:
        start = self.position
        commands = [("&&", self._pipeline())]
        while operator := self._operator(_AND_OR):
            commands.append((operator, self._pipeline()))
        return Chain(tuple(commands), start) if len(commands) > 1 else commands[0][1]

    def _pipeline(self) -> Statement:
        commands = [self._command()]
        while self._operator(_PIPE):
            commands.append(self._command())
        if len(commands) == 1:
            return commands[0]
        return Group(tuple(Group((command,), apart=True) for command in commands), apart=False)

    def _operator(self, pattern: re.Pattern[str]) -> str | None:
        """Move past an operator and the ends of lines after it, and return it; ``None`` if there is none."""
        self._skip_blanks()
        operator = pattern.match(self.text, self.position)
        if operator is None:
            return None
        self.position = operator.end()
        self._skip_blanks(lines=True)
        return operator[0]

    def _command(self) -> Statement:
        self._skip_blanks()
        start = self.position
        word = self._reserved()
        if word == "!":
            self.position += 1
            return Not(self._command())
        if word == "[[":
            return self._test()
        statement: Statement
        if self._at("((") and (expression := self._arithmetic(start + 2)) is not None:
            statement = Calculation(expression)
        elif word == "if":
            statement = self._if(start)
        elif word == "case":
            statement = self._case()
        elif word in ("for", "select", "while", "until"):
            statement = self._loop(word)
        elif self._at("(") or word == "{":
            closing = ")" if self._at("(") else "}"
            self.position += 1
            statement = Group(self.block(), apart=closing == ")")
            self._take(closing, self.text[start], start)
        elif function := _FUNCTION.match(self.text, start):
            self.position = function.end()
            body = self._command()
            return Function(function[1] or function[2], (body,))
        else:
            return self._simple()
        self._skip_redirections()
        return statement

    def _skip_redirections(self) -> bool:
        """Move past redirections, and note here-documents; return whether there was one."""
        count = 0
        while True:
            self._skip_blanks()
            redirection = _REDIRECTION.match(self.text, self.position)
            if redirection is None or self._placeholder() is not None:
                return count > 0
            count += 1
            self.position = redirection.end()
            self._skip_blanks()
            target = self.word()
            if redirection[0].lstrip("0123456789") in ("<<", "<<-"):
                self._documents.append(Document(target, indented=redirection[0].endswith("-")))

    def _simple(self) -> Simple:
        start = self.position
        assignments: list[Assignment] = []
        words: list[Word] = []
        declaring = False
        before = len(self._documents)
        while True:
            if self._skip_redirections():
                continue
            if self.position >= len(self.text) or self.text[self.position] in "\n;|&)":
                document = self._documents[-1] if len(self._documents) > before else None
                return Simple(tuple(assignments), tuple(words), start, document)
            if (not words or declaring) and (assigned := _ASSIGNMENT.match(self.text, self.position)):
                assignments.append(self._assignment(assigned))
                continue
            if self._at("<(") or self._at(">("):
                begin = self.position
                self.position += 2
                self._commands(begin)
                continue
            if self._at("("):
                raise ShellSyntaxError("unexpected `(`", self.position, "quote it")
            words.append(self.word())
            declaring = declaring or (len(words) == 1 and words[0].literal in _DECLARING)

    def _assignment(self, beginning: re.Match[str]) -> Assignment:
        """Read the value after ``name=``, ``name[index]=`` or either with ``+=``."""
        start = beginning.start()
        self.position = beginning.end()
        value = self._array(start) if self._at("(") else self.word()
        name, index, plus = beginning.groups()
        return Assignment(name, value, bool(plus), start, index and index[1:-1])

    def _array(self, start: int) -> tuple[Word, ...]:
        """Read the words between parentheses; ``start`` is that of the assignment."""
        self.position += 1
        items: list[Word] = []
        while True:
            self._skip_blanks(lines=True)
            if self.position >= len(self.text):
                raise ShellSyntaxError("this array is not closed", start, "add the closing parenthesis")
            if self._at(")"):
                self.position += 1
                return tuple(items)
            item = self.word()
            if _INDEXED.match(self.text, item.start):
                item = item._replace(parts=(Unread(item.start, item.end, quoted=True),))
            if item.end == item.start:
                raise ShellSyntaxError(f"unexpected `{self.text[item.start]}`", item.start, "quote it")
            items.append(item)

    def _test(self) -> Simple:
        start = self.position
        words: list[Word] = []
        while True:
            self._skip_blanks(lines=True)
            regex = bool(words) and words[-1].literal == "=~"
            if not regex and (operator := _IN_TESTS.match(self.text, self.position)):
                self.position = operator.end()
                words.append(Word((Literal(operator[0], operator.start()),), *operator.span()))
                continue
            before = self.position
            words.append(self.word(" \t\n".__contains__ if regex else " \t\n;|&()<>".__contains__))
            if words[-1].literal == "]]":
                self._skip_redirections()
                return Simple((), tuple(words), start)
            if self.position >= len(self.text) or self.position == before:
                raise ShellSyntaxError("`[[` without `]]`", start, "add `]]`")

    def _if(self, start: int) -> If:
        """Read from ``if`` or ``elif`` to ``fi``; ``start`` is that of ``if``."""
        self.position += len(self._reserved() or "")
        condition = self.block()
        self._take("then", "if", start)
        body = self.block()
        if self._reserved() == "elif":
            return If(condition, body, (self._if(start),), start)
        otherwise: Block = ()
        if self._reserved() == "else":
            self.position += 4
            otherwise = self.block()
        self._take("fi", "if", start)
        return If(condition, body, otherwise, start)

    def _case(self) -> Case:
        start = self.position
        self.position += 4
        self._skip_blanks()
        word = self.word()
        self._take("in", "case", start)
        branches: list[tuple[tuple[Word, ...], Block]] = []
        while True:
            self._skip_blanks(lines=True)
            if self._reserved() == "esac" or self.position >= len(self.text):
                self._take("esac", "case", start)
                return Case(word, tuple(branches), start)
            patterns = self._patterns()
            branches.append((patterns, self.block()))
            end = next(end for end in _ENDS if self._at(end))
            if end in (";;&", ";&"):  # several branches may run
                word = Word((Unread(self.position, self.position + len(end), quoted=True),), word.start, word.end)
            self.position += len(end)

    def _patterns(self) -> tuple[Word, ...]:
        """Read the patterns of a branch of ``case``, and the parenthesis after them."""
        if self._at("("):
            self.position += 1
        patterns: list[Word] = []
        while not self._at(")"):
            self._skip_blanks(lines=True)
            patterns.append(self.word())
            self._skip_blanks(lines=True)
            if self._at("|"):
                self.position += 1
            elif not self._at(")"):
                raise ShellSyntaxError("a pattern of `case` ends with `)`", patterns[-1].start, "add `)`")
        self.position += 1
        return tuple(patterns)

    def _loop(self, kind: str) -> Loop:
        start = self.position
        self.position += len(kind)
        self._skip_blanks()
        variable: str | None = None
        words: tuple[Word, ...] = ()
        condition: Block = ()
        if kind in ("for", "select"):
            variable, words = self._for()
        else:
            condition = self.block()
        self._take("do", kind, start)
        body = self.block()
        self._take("done", kind, start)
        return Loop(kind, variable, body, start, condition, words)

    def _for(self) -> tuple[str | None, tuple[Word, ...]]:
        """Read the variable of ``for`` and its list of words; ``((i = 0; i < 4; i++))`` has no list."""
        if self._at("((") and (header := self._arithmetic(self.position + 2)) is not None:
            names = assigned_names(self.text[header.start : header.end])
            return (names[0] if names else None), ()
        variable = self.word().literal
        self._skip_blanks(lines=True)
        if self._reserved() != "in":
            return variable, ()
        self.position += 2
        return variable, self._simple().words

"""Follows a shell script as far as the script itself decides: variables, arrays, tests, branches and functions.

Nothing is executed. A value that depends on anything else has a `Cause`: a command's output, the environment, an
argument. Where a branch depends on such a value, every branch is followed, and what differs after it is unknown.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rankplan.config.text.shell.arithmetic import assigned_names
from rankplan.config.text.shell.conditions import Tested, holds
from rankplan.config.text.shell.expand import (
    Cause,
    Field,
    Piece,
    Scope,
    Variable,
    as_field,
    cause_of,
    scalar,
    short,
    text_of,
    unknown,
)
from rankplan.config.text.shell.parse import (
    Assignment,
    Block,
    Calculation,
    Case,
    Chain,
    Function,
    If,
    Loop,
    Not,
    Simple,
    Statement,
    parse,
)
from rankplan.config.text.shell.words import Arithmetic, Literal, ShellSyntaxError, Word

_DEEPEST = 20
_LONGEST = 10_000
"""Pieces of a value: a few lines that double a variable would exceed any memory."""
_MOST_STEPS = 50_000
_DECLARING = frozenset({"export", "local", "readonly"})
_SETTING = frozenset({"read", "mapfile", "readarray", "getopts", "let", "declare", "typeset"})
"""Commands that set the variables they name, to values that are not read."""
_SILENT = _DECLARING | {":", "true", "cd", "echo", "printf", "mkdir", "trap", "sleep", "wait", "rm", "cp", "break"}
"""Commands that decide nothing here, and succeed."""
_NAMED = re.compile(r"(?:\+\+|--)?([A-Za-z_]\w*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the script runs, or may run, with its arguments."""

    fields: tuple[Field, ...]
    start: int


def follow(text: str) -> tuple[list[Command], list[Cause]]:
    """Return the commands of a script, and its parts that are not followed. Raises `ShellSyntaxError`."""
    run = _Run(text)
    run.block(parse(text))
    return run.commands, list(dict.fromkeys(run.skipped))


class _Run:
    def __init__(self, text: str) -> None:
        self.scope = Scope(text, {})
        self.commands: list[Command] = []
        self.skipped: list[Cause] = []
        self.functions: dict[str, Block] = {}
        self.ended = False
        self.left = False
        self.steps = 0
        self.locals: list[dict[str, Variable | None]] = []
        """The variables that the functions on the way here have made their own, and the values before."""

    def block(self, block: Block) -> bool | None:
        """Follow commands, and return whether the last one succeeds; ``None`` if that is unknown."""
        status: bool | None = True
        for statement in block:
            if self.ended or self.left:
                break
            status = self.statement(statement)
        return status

    def statement(self, statement: Statement) -> bool | None:
        """Follow a command, and return whether it succeeds; ``None`` if that is unknown."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            message = f"the script has more than {_MOST_STEPS:,} steps"
            raise ShellSyntaxError(message, 0, "write the values without recursion")
        match statement:
            case Simple():
                return self._simple(statement)
            case Calculation():
                number = self.scope.number(statement.expression)
                return None if number is None else number != 0
            case Not():
                status = self.statement(statement.body)
                return None if status is None else not status
            case Chain():
                return self._chain(statement)
            case If():
                return self._if(statement)
            case Case():
                return self._case(statement)
            case Loop():
                return self._loop(statement)
            case Function():
                self.functions[statement.name] = statement.body
                return True
        return self._apart(statement.body)[0] if statement.apart else self.block(statement.body)

    def _apart(self, block: Block) -> tuple[bool | None, Scope]:
        """Follow commands that change nothing outside; return whether they succeed, and the variables after them."""
        before, self.scope = self.scope, self.scope.copy()
        status = self.block(block)
        after, self.scope = self.scope, before
        self.ended = self.left = False
        return status, after

    def _chain(self, chain: Chain) -> bool | None:
        status: bool | None = True
        for operator, statement in chain.commands:
            if self.ended or self.left:
                break
            if status is None:
                self._either(Cause(f"`{operator}`", chain.start), [(statement,), ()])
            elif status == (operator == "&&"):
                status = self.statement(statement)
        return status

    def _if(self, found: If) -> bool | None:
        status = self.block(found.condition)
        if self.ended or self.left:
            return None
        if status is not None:
            return self.block(found.body if status else found.otherwise)
        self._either(Cause("`if`", found.start), [found.body, found.otherwise])
        return None

    def _case(self, case: Case) -> bool | None:
        value = self.scope.value(case.word)
        text = text_of(value)
        possible: list[Block] = []
        for words, body in case.branches:
            patterns = [self.scope.pattern(word) for word in words]
            fits = [None if None in (text, one) else fnmatch.fnmatchcase(text or "", one or "") for one in patterns]
            sure = True in fits or any(word.literal == "*" and not word.quoted for word in words)
            if sure or None in fits:
                possible.append(body)
            if sure:
                break
        else:
            possible.append(())
        if len(possible) == 1:
            return self.block(possible[0])
        self._either(cause_of(value) or Cause("`case`", case.start), possible)
        return None

    def _either(self, cause: Cause, ways: Sequence[Block]) -> None:
        """Follow each of several ways from here; afterwards, variables that differ between them are unknown."""
        before = self.scope
        self.steps += len(before.variables) // 100
        scopes: list[Scope] = []
        for way in ways:
            self.scope, self.ended, self.left = before.copy(), False, False
            self.block(way)
            if not (self.ended or self.left):
                scopes.append(self.scope)
        self.scope, self.ended, self.left = before, False, False
        if scopes:
            names = dict.fromkeys(name for scope in scopes for name in scope.variables)
            merged = {name: _merged([scope.variables.get(name) for scope in scopes], cause) for name in names}
            self.scope.variables = {name: value for name, value in merged.items() if value is not None}
            self.scope.arguments = _same([scope.arguments for scope in scopes])

    def _loop(self, loop: Loop) -> bool | None:
        cause = Cause(f"the `{loop.kind}` loop", loop.start)
        self.skipped.append(cause)
        before = dict(self.scope.variables)
        for name in [*([loop.variable] if loop.variable else []), *_assigned(loop.body)]:
            self.scope.forget(name, cause)
        _, after = self._apart(loop.body)
        for name in {**before, **after.variables}:
            self._restore(name, _merged([before.get(name), after.variables.get(name)], cause))
        self.scope.arguments = _same([self.scope.arguments, after.arguments])
        return None

    def _restore(self, name: str, value: Variable | None) -> None:
        if value is None:
            self.scope.variables.pop(name, None)
        else:
            self.scope.variables[name] = value

    def _simple(self, simple: Simple) -> bool | None:
        if not simple.words:
            for assignment in simple.assignments:
                self._set(assignment, self._value(assignment))
            return True
        found = tuple(field for word in simple.words for field in self.scope.fields(word))
        name = found[0].text if found and not found[0].doubt else None
        own = [one for one in simple.assignments if one.start < simple.words[0].start]  # they last as long as it
        before = {one.name: self.scope.variables.get(one.name) for one in own}
        new = [(one, self._value(one)) for one in simple.assignments if one not in own]
        for assignment in own:
            self._set(assignment, self._value(assignment))
        if name in _DECLARING:
            self._declare(name, found, [one.name for one, _ in new])
        for assignment, value in new:
            self._set(assignment, value)
        status = self._command(name, found, simple)
        for text, old in before.items():
            self._restore(text, old)
        return status

    def _declare(self, name: str, found: tuple[Field, ...], assigned: list[str]) -> None:
        """Follow ``local``, ``export`` and ``readonly``, whose ``name=value`` words may come from expansions."""
        pairs = [(field.text or "").partition("=") for field in found[1:]]
        if name == "local" and self.locals:
            for text in [*(text for text, _, _ in pairs if text.isidentifier()), *assigned]:
                if text not in self.locals[-1]:
                    self.locals[-1][text] = self.scope.variables.pop(text, None)
        for field, (text, equals, value) in zip(found[1:], pairs, strict=True):
            if equals and text.isidentifier():
                self.scope.variables[text] = (Piece(value, field.start, field.end),)

    def _command(self, name: str | None, found: tuple[Field, ...], simple: Simple) -> bool | None:
        texts = [field.text or "" for field in found[1:]]
        cause = Cause(f"`{name}`", simple.start)
        if name in ("[", "[["):
            return self._test(name, simple.words, found)
        if name == "exit":
            self.ended = True
            return _status(texts)
        if name == "return":
            self.left = True
            return _status(texts)
        if name in ("eval", "source", "."):
            self.skipped.append(cause)
            return None
        if name in _SETTING or (name == "printf" and texts[:1] == ["-v"]):
            for text in [*texts, *(one.name for one in simple.assignments)]:
                if named := _NAMED.match(text):
                    self.scope.forget(named[1], cause)
            return None
        if name == "unset":
            for text in texts:
                array, index, _ = text.partition("[")
                self._restore(array, (unknown(cause),) if index else None)
        elif name == "shift":
            count = texts[0] if texts else "1"
            known = self.scope.arguments if count.isdecimal() and len(count) < 10 else None
            self.scope.arguments = None if known is None else known[int(count) :]
        elif name == "set":
            self._set_arguments(found[1:])
        elif name in self.functions and len(self.locals) < _DEEPEST:
            return self._call(self.functions[name], found[1:])
        elif name not in _SILENT:
            self.commands.append(Command(found, simple.start))
            return False if name == "false" else None
        return True

    def _set_arguments(self, found: tuple[Field, ...]) -> None:
        """Follow ``set``: the words after the options become the arguments."""
        position = 0
        while position < len(found) and (text := found[position].text) is not None and text[:1] in ("-", "+"):
            position += 2 if text.endswith("o") else 1
            if text == "--":
                self.scope.arguments = found[position:]
                return
        if position < len(found):
            self.scope.arguments = found[position:]

    def _call(self, body: Block, arguments: tuple[Field, ...]) -> bool | None:
        outer, self.scope.arguments = self.scope.arguments, arguments
        self.locals.append({})
        status = self.block(body)
        for name, value in self.locals.pop().items():
            self._restore(name, value)
        self.left = False
        self.scope.arguments = outer
        return status

    def _value(self, assignment: Assignment) -> Variable:
        """Return the value that an assignment writes."""
        if isinstance(assignment.value, Word):
            return self.scope.value(assignment.value)
        return tuple(field for word in assignment.value for field in self.scope.fields(word))

    def _set(self, assignment: Assignment, value: Variable) -> None:
        name, variables = assignment.name, self.scope.variables
        before = variables.get(name, ())
        if not isinstance(assignment.value, Word):
            items = tuple(as_field(item) for item in (*(before if assignment.append else ()), *value))
            variables[name] = items[:_LONGEST]
        elif assignment.element is not None or any(isinstance(item, Field) for item in before):
            written = self.scope.source[assignment.start : assignment.value.end]
            self.scope.forget(name, Cause(short(written), assignment.start))  # an element of an array
        else:
            text = scalar(before) + scalar(value) if assignment.append else scalar(value)
            variables[name] = text
            if len(text) > _LONGEST or sum(len(piece.text) for piece in text) > 100 * _LONGEST:
                self.scope.forget(name, Cause("a very long text", assignment.start))

    def _test(self, name: str, words: Sequence[Word], found: tuple[Field, ...]) -> bool | None:
        if name == "[":
            return holds([Tested(field.text, text_of(field.value)) for field in found[1:-1]])
        # Words are not split between `[[` and `]]`, and an empty one counts.
        return holds(
            [
                Tested(None if word.quoted else word.literal, text_of(self.scope.value(word)), self.scope.pattern(word))
                for word in words[1:-1]
            ]
        )


def _status(texts: list[str]) -> bool | None:
    """Return whether ``exit`` or ``return`` means success; without a number, the last command decides."""
    return texts[0] == "0" if texts and texts[0].isdecimal() else None


def _same(arguments: Sequence[tuple[Field, ...] | None]) -> tuple[Field, ...] | None:
    """Return the arguments if they are the same in every way that a script may take."""
    return arguments[0] if all(one == arguments[0] for one in arguments) else None


def _merged(values: Sequence[Variable | None], cause: Cause) -> Variable | None:
    """Return a value that is one of several: their common start, and the rest with a cause."""
    first = values[0]
    if all(value == first for value in values):
        return first
    if any(value and isinstance(value[0], Field) for value in values):
        lists = [tuple(as_field(item) for item in value or ()) for value in values]
        common = 0
        while all(len(items) > common and items[common] == lists[0][common] for items in lists):
            common += 1
        rest = dict.fromkeys(item for items in lists for item in items[common:])
        return (*lists[0][:common], *(item if item.doubt else replace(item, doubt=cause) for item in rest))
    known = {text_of(scalar(value)) for value in values if value is not None}
    if len(known) == 1 and None not in known and None not in values:
        return first
    places = [piece for value in values if value for piece in value]
    start, end = (places[0].start, places[0].end) if places else (cause.start, cause.start)
    return (unknown(cause, start, end),)


def _assigned(node: object) -> Iterator[str]:
    """Yield the names that commands assign."""
    if isinstance(node, Assignment):
        yield node.name
    if isinstance(node, Simple) and node.words and node.words[0].literal in ("read", "mapfile", "readarray"):
        yield from (word.literal for word in node.words[1:] if word.literal and word.literal.isidentifier())
    if isinstance(node, Calculation | Arithmetic):
        yield from assigned_names("".join(part.text for part in node.expression.parts if isinstance(part, Literal)))
    if isinstance(node, tuple):
        for item in node:
            yield from _assigned(item)

"""Follows a shell script as far as the script itself decides: variables, arrays, tests, branches and functions.

Nothing is executed. A value that depends on anything else has a `Cause`: a command's output, the environment, an
argument. Where a branch depends on such a value, every branch is followed, and what differs after it is unknown.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rankplan.config.text.shell.conditions import Test
from rankplan.config.text.shell.expand import (
    Cause,
    Field,
    Piece,
    Scope,
    Value,
    Variable,
    cause_of,
    scalar,
    short,
    text_of,
)
from rankplan.config.text.shell.parse import parse
from rankplan.config.text.shell.tree import (
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
    Word,
    assigned,
)
from rankplan.config.text.shell.words import ShellSyntaxError

_DEEPEST = 20
_LONGEST = 10_000
"""Pieces of a value: a few lines that double a variable would exceed any memory."""
_MOST_STEPS = 50_000
_DECLARING = frozenset({"export", "local", "declare", "readonly", "typeset"})
_SILENT = _DECLARING | {":", "true", "cd", "echo", "printf", "mkdir", "trap", "sleep", "wait", "rm", "cp", "break"}
"""Commands that decide nothing here, and succeed."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the script runs, or may run, with its arguments."""

    fields: tuple[Field, ...]
    start: int


@dataclass(frozen=True, slots=True)
class Followed:
    """The commands of a script, and its parts that are not followed."""

    commands: tuple[Command, ...]
    skipped: tuple[Cause, ...]


def follow(text: str, environment: dict[str, str] | None = None, arguments: Sequence[str] | None = None) -> Followed:
    """Return the commands of a script; ``environment`` and ``arguments`` are those of its run, if known.

    Raises `ShellSyntaxError`.
    """
    scope = Scope(text, {name: (Piece(value, 0, 0),) for name, value in (environment or {}).items()})
    if arguments is not None:
        scope.arguments = tuple(Field((Piece(value, 0, 0),), 0, 0) for value in arguments)
    run = _Run(scope)
    run.block(parse(text))
    return Followed(tuple(run.commands), tuple(dict.fromkeys(run.skipped)))


class _Run:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.commands: list[Command] = []
        self.skipped: list[Cause] = []
        self.functions: dict[str, Block] = {}
        self.depth = 0
        self.ended = False
        self.left = False
        self.steps = [0]
        self.locals: list[dict[str, Variable | None]] = []

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
        self.steps[0] += 1
        if self.steps[0] > _MOST_STEPS:
            message = f"the script has more than {_MOST_STEPS:,} steps"
            raise ShellSyntaxError(message, 0, "write the values without recursion")
        if isinstance(statement, Simple):
            return self._simple(statement)
        if isinstance(statement, Calculation):
            number = self.scope.number(statement.expression)
            return None if number is None else number != 0
        if isinstance(statement, Not):
            status = self.statement(statement.body)
            return None if status is None else not status
        if isinstance(statement, Chain):
            return self._chain(statement)
        if isinstance(statement, If):
            return self._if(statement, 0)
        if isinstance(statement, Case):
            return self._case(statement)
        if isinstance(statement, Loop):
            return self._loop(statement)
        if isinstance(statement, Function):
            self.functions[statement.name] = statement.body
            return True
        return self._apart(statement.body) if statement.apart else self.block(statement.body)

    def _apart(self, block: Block) -> bool | None:
        """Follow commands that change nothing outside."""
        before, self.scope = self.scope, self.scope.copy()
        status = self.block(block)
        self.scope, self.ended, self.left = before, False, False
        return status

    def _chain(self, chain: Chain) -> bool | None:
        pipelines: list[tuple[str, list[Statement]]] = [("&&", [chain.first])]
        for operator, statement in chain.rest:
            if operator in ("|", "|&"):
                pipelines[-1][1].append(statement)
            else:
                pipelines.append((operator, [statement]))
        status: bool | None = True
        for operator, pipeline in pipelines:
            if self.ended or self.left:
                break
            if status is None:
                cause = Cause(f"`{operator}`", chain.start)
                results = self._either(cause, [lambda one=pipeline: self._pipeline(one), lambda: None])  # type: ignore[misc]
                status = results[0] if operator == "&&" and results[0] is False else None
            elif status == (operator == "&&"):
                status = self._pipeline(pipeline)
        return status

    def _pipeline(self, pipeline: Sequence[Statement]) -> bool | None:
        if len(pipeline) == 1:
            return self.statement(pipeline[0])
        return [self._apart((statement,)) for statement in pipeline][-1]

    def _if(self, found: If, index: int) -> bool | None:
        if index == len(found.branches):
            return self.block(found.otherwise)
        condition, body = found.branches[index]
        status = self.block(condition)
        if self.ended or self.left:
            return None
        if status is not None:
            return self.block(body) if status else self._if(found, index + 1)
        self._either(Cause("`if`", found.start), [lambda: self.block(body), lambda: self._if(found, index + 1)])
        return None

    def _case(self, case: Case) -> bool | None:
        value = self.scope.value(case.word)
        text = text_of(value)
        possible: list[Callable[[], bool | None]] = []
        for patterns, body in case.branches:
            texts = [self.scope.pattern(pattern) for pattern in patterns]
            if text is not None and None not in texts:
                if any(fnmatch.fnmatchcase(text, pattern or "") for pattern in texts):
                    if not possible:
                        return self.block(body)
                    possible.append(lambda body=body: self.block(body))  # type: ignore[misc]
                    break
                continue
            possible.append(lambda body=body: self.block(body))  # type: ignore[misc]
        else:
            if not possible:
                return True
            if not any(pattern.literal == "*" for patterns, _ in case.branches for pattern in patterns):
                possible.append(lambda: True)
        self._either(cause_of(value) or Cause("`case`", case.start), possible)
        return None

    def _either(self, cause: Cause, ways: Sequence[Callable[[], bool | None]]) -> list[bool | None]:
        """Follow each of several ways from here; afterwards, variables that differ between them are unknown."""
        before, ended, left = self.scope, self.ended, self.left
        self.steps[0] += len(before.variables) // 100
        scopes, results = list[Scope](), list[bool | None]()
        for way in ways:
            self.scope, self.ended, self.left = before.copy(), ended, left
            results.append(way())
            if not (self.ended or self.left):
                scopes.append(self.scope)
        self.scope, self.ended, self.left = before, ended, left
        if scopes:
            names = dict.fromkeys(name for scope in scopes for name in scope.variables)
            merged = {name: _merged([scope.variables.get(name) for scope in scopes], cause) for name in names}
            self.scope.variables = {name: value for name, value in merged.items() if value is not None}
            self.scope.arguments = scopes[0].arguments
        return results

    def _loop(self, loop: Loop) -> bool | None:
        cause = Cause(f"the `{loop.kind}` loop", loop.start)
        self.skipped.append(cause)
        names = [*([loop.variable] if loop.variable else []), *dict.fromkeys(assigned(loop.body))]
        unknown = (Piece("", loop.start, loop.start, cause),)
        before = dict(self.scope.variables)
        for name in names:
            self.scope.variables[name] = unknown
        inside = _Run(self.scope.copy())
        inside.functions, inside.depth, inside.steps = self.functions, self.depth, self.steps
        inside.locals = self.locals
        inside.block(loop.body)
        self.commands += inside.commands
        self.skipped += inside.skipped
        after = inside.scope.variables
        names += [name for name in {**before, **after} if name not in names and after.get(name) != before.get(name)]
        for name in names:
            arrays = [before.get(name), inside.scope.variables.get(name)]
            if any(value and isinstance(value[0], Field) for value in arrays):
                self.scope.variables[name] = _merged(arrays, cause) or ()
            else:
                self.scope.variables[name] = unknown
        return None

    def _simple(self, simple: Simple) -> bool | None:
        if not simple.words:
            for assignment in simple.assignments:
                self._assign(assignment)
            return True
        found = tuple(field for word in simple.words for field in self.scope.fields(word))
        name = found[0].text if found and not found[0].doubt else None
        own = [one for one in simple.assignments if one.start < simple.words[0].start]  # they last as long as it
        before = {one.name: self.scope.variables.get(one.name) for one in own}
        new = [(one, self._value(one)) for one in simple.assignments if one not in own]
        for assignment in own:
            self._assign(assignment)
        if name in _DECLARING:
            self._declare(name, found, [one.name for one, _ in new])
        for assignment, value in new:
            self._set(assignment, value)
        status = self._command(name, found, simple)
        for text, old in before.items():
            self._restore(text, old)
        return status

    def _declare(self, name: str, found: tuple[Field, ...], assigned: list[str]) -> None:
        """Follow ``local``, ``export`` and the like, whose ``name=value`` words may come from expansions."""
        pairs = [(field.text or "").partition("=") for field in found[1:]]
        names = [text for text, _, _ in pairs if text.isidentifier()] + assigned
        if (
            self.locals
            and name in ("local", "declare", "typeset")
            and not any("g" in text for text, _, _ in pairs if text[:1] == "-")
        ):
            for text in names:
                if text not in self.locals[-1]:
                    self.locals[-1][text] = self.scope.variables.pop(text, None)
        for field, (text, equals, value) in zip(found[1:], pairs, strict=True):
            if equals and text.isidentifier():
                self.scope.variables[text] = (Piece(value, field.start, field.end),)

    def _restore(self, name: str, value: Variable | None) -> None:
        if value is None:
            self.scope.variables.pop(name, None)
        else:
            self.scope.variables[name] = value

    def _command(self, name: str | None, found: tuple[Field, ...], simple: Simple) -> bool | None:
        if name in ("[", "[[", "test"):
            return self._test(name, simple.words, found)
        if name in ("exit", "exec") and (name == "exit" or len(found) > 1):
            if name == "exec":
                self.commands.append(Command(found[1:], simple.start))
            self.ended = True
            return _status(found) if name == "exit" else None
        if name == "return":
            self.left = True
            return _status(found)
        if name == "false":
            return False
        if name in ("eval", "source", "."):
            self.skipped.append(Cause(f"`{name}`", simple.start))
        elif name in ("read", "mapfile", "readarray", "getopts") or (
            name == "printf" and [field.text for field in found[1:2]] == ["-v"]
        ):
            for field in found[1:3] if name == "printf" else found[1:]:
                if (text := field.text) and text.isidentifier():
                    self.scope.variables[text] = (Piece("", 0, 0, Cause(f"`{name}`", simple.start)),)
        elif name == "let":
            self.scope.changed_by(" , ".join(field.text or "" for field in found[1:]), simple.start)
            return None
        elif name == "unset":
            for field in found[1:]:
                array, index, _ = (field.text or "").partition("[")
                if index and array in self.scope.variables:
                    self.scope.variables[array] = (Piece("", 0, 0, Cause("`unset`", simple.start)),)
                self.scope.variables.pop(field.text or "", None)
        elif name == "shift":
            count = found[1].text if len(found) > 1 else "1"
            known = self.scope.arguments if count is not None and count.isdecimal() and len(count) < 10 else None
            self.scope.arguments = None if known is None else known[int(count or 1) :]
        elif name == "set":
            self._set_arguments(found[1:])
        elif name in _SILENT:
            return True
        elif name in self.functions and self.depth < _DEEPEST:
            return self._call(self.functions[name], found[1:])
        else:
            self.commands.append(Command(found, simple.start))
        return True if name in ("unset", "shift", "set") else None

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
        outer = self.scope.arguments
        self.scope.arguments = arguments
        self.depth += 1
        self.locals.append({})
        status = self.block(body)
        for name, value in self.locals.pop().items():
            self._restore(name, value)
        self.depth -= 1
        self.left = False
        self.scope.arguments = outer
        return status

    def _assign(self, assignment: Assignment) -> None:
        self._set(assignment, self._value(assignment))

    def _value(self, assignment: Assignment) -> Variable:
        """Return the value that an assignment writes."""
        if isinstance(assignment.value, Word):
            return self.scope.value(assignment.value)
        return tuple(self._element(field) for word in assignment.value for field in self.scope.fields(word))

    def _element(self, field: Field) -> Field:
        """Return an element of an array; one with an index, ``[x]=1``, is unknown."""
        if not re.match(r"\[[^\]]*\]=", field.text or ""):
            return field
        return replace(field, doubt=Cause(short(self.scope.source[field.start : field.end]), field.start))

    def _set(self, assignment: Assignment, value: Variable) -> None:
        name, variables = assignment.name, self.scope.variables
        before = variables.get(name, ())
        if not isinstance(assignment.value, Word):
            items = tuple(_as_field(item) for item in (*(before if assignment.append else ()), *value))
            variables[name] = items[:_LONGEST]
            return
        text = scalar(value)
        if assignment.index is not None or any(isinstance(item, Field) for item in before):
            variables[name] = self._with_element(assignment, [_as_field(item) for item in before], text)
            return
        text = scalar(before) + text if assignment.append else text
        too_long = len(text) > _LONGEST or sum(len(piece.text) for piece in text) > 100 * _LONGEST
        cause = Cause("a very long text", assignment.start)
        variables[name] = (Piece("", assignment.start, assignment.start, cause),) if too_long else text

    def _with_element(self, assignment: Assignment, items: list[Field], value: Value) -> tuple[Field, ...]:
        """Return an array after ``name[index]=value``, without an index the first element."""
        index, start = assignment.index or "0", assignment.start
        place = int(index) if index.isdecimal() and len(index) < 10 else len(items) + 1
        new = Field(value, value[0].start if value else start, value[-1].end if value else start)
        if place > len(items):
            return (*items, replace(new, doubt=Cause(f"`{assignment.name}[{index}]`", start)))
        if place < len(items) and assignment.append:
            new = replace(new, pieces=items[place].pieces + value)
        return (*items[:place], new, *items[place + 1 :])

    def _test(self, name: str, words: Sequence[Word], found: tuple[Field, ...]) -> bool | None:
        if name == "[[":
            # Words are not split between `[[` and `]]`, and an empty one counts.
            items = [
                (word.literal if not _is_quoted(word) else None, self.scope.value(word), self.scope.pattern(word))
                for word in words[1:-1]
            ]
        else:
            last = len(found) - (name == "[")
            items = [(field.text, field.pieces, None) for field in found[1:last]]
        return Test(items).whole()


def _status(found: tuple[Field, ...]) -> bool | None:
    """Return whether ``exit`` or ``return`` means success; without a number, the last command decides."""
    text = found[1].text if len(found) > 1 else None
    return text == "0" if text is not None and text.isdecimal() else None


def _is_quoted(word: Word) -> bool:
    return any(getattr(part, "quoted", False) for part in word.parts)


def _as_field(item: Piece | Field) -> Field:
    return item if isinstance(item, Field) else Field((item,), item.start, item.end)


def _merged(values: Sequence[Variable | None], cause: Cause) -> Variable | None:
    """Return a value that is one of several: their common start, and the rest with a cause."""
    first = values[0]
    if all(value == first for value in values):
        return first
    if any(value and isinstance(value[0], Field) for value in values):
        lists = [tuple(_as_field(item) for item in value or ()) for value in values]
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
    return (Piece("", start, end, cause),)

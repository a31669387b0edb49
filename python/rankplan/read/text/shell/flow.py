"""The way that a shell script takes: its branches, loops and functions. `run.py` has the commands on the way."""

from __future__ import annotations

import fnmatch
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from rankplan.frozen import frozen
from rankplan.read.text.shell.arithmetic import assigned_names
from rankplan.read.text.shell.expand import (
    Cause,
    Field,
    Scope,
    Value,
    Variable,
    as_field,
    assumed_by,
    cause_of,
    is_array,
    scalar,
    short,
    text_of,
    unknown,
)
from rankplan.read.text.shell.parse import (
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
)
from rankplan.read.text.shell.words import SLICE, Arithmetic, Expansion, Literal, ShellSyntaxError, Word

_MOST_STEPS = 50_000
_MOST_ROUNDS = 300


@frozen
class Command:
    """A command that a script runs, or may run: its fields, the program that it starts, and the program's arguments.

    ``program`` is a module, a path or a name, ``None`` if it is unknown; ``script`` tells a shell script that cannot be
    read. ``folder`` is the one that the script has changed to. ``words`` are the fields with the names that stand for
    the nodes of the job (`hosts.py`), which are unknown in ``fields``; ``around`` has those of the commands whose text
    it is in (``srun bash -c "..."``), the outer one first. ``variables`` are those of its environment.
    """

    fields: tuple[Field, ...]
    start: int
    program: str | None
    arguments: tuple[Field, ...]
    script: bool = False
    folder: str = ""
    words: tuple[Field, ...] = field(default=(), compare=False)
    around: tuple[tuple[Field, ...], ...] = field(default=(), compare=False)
    variables: Mapping[str, Value] = field(default_factory=dict, compare=False)


class Flow(ABC):
    """Follows a script; the class of its commands continues this one."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.functions: dict[str, Block] = {}
        self.commands: list[Command] = []
        self.assumed: list[Cause] = []
        """What the last test assumes to be unset."""
        self.ended = False
        self.failed = False
        """Whether the script has ended with an exit code that is not 0."""
        self.left = False
        self.broken = False
        """Whether a round of a loop has ended: by `break`, or by `continue`."""
        self.continues = False
        """Whether `continue` has ended it: the next one follows."""
        self.may_have_broken = False
        """Whether a way that may be taken ends the loop."""
        self.loops = 0
        self.may_have_left = False
        """Whether a way that may be taken returns from the function: how the function ends is unknown then."""
        self.steps = 0

    @abstractmethod
    def simple(self, simple: Simple) -> bool | None:
        """Follow a command without others in it, and return whether it succeeds; ``None`` if that is unknown."""

    def block(self, block: Block) -> bool | None:
        """Follow commands, and return whether the last one succeeds; ``None`` if that is unknown."""
        status: bool | None = True
        for statement in block:
            if self.ended or self.left or self.broken:
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
                return self.simple(statement)
            case Calculation():
                self.assumed += assumed_by(self.scope.value(statement.expression))
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
        before = self.scope
        self.scope = before.copy()
        status = self.block(block)
        self.may_have_left |= self.left
        after = self.scope
        self.scope = before
        self.ended = self.left = False
        return status, after

    def _chain(self, chain: Chain) -> bool | None:
        status: bool | None = True
        for position, (operator, statement) in enumerate(chain.commands):
            if self.ended or self.left:
                break
            if position == 0:
                self.assumed = []
            if status is None:
                self._either(Cause(f"`{operator}`", chain.start), [(statement,), ()])
            elif status == (operator == "&&"):
                status = self._taken((statement,), ()) if position else self.statement(statement)
        return status

    def _if(self, branch: If) -> bool | None:
        self.assumed = []
        status = self.block(branch.condition)
        if self.ended or self.left:
            return None
        if status is None:
            self._either(self._test_cause(branch), [branch.body, branch.otherwise])
            return None
        if status:
            return self._taken(branch.body, branch.otherwise)
        return self._taken(branch.otherwise, branch.body)

    def _test_cause(self, branch: If) -> Cause:
        """Return the test of an `if` as a cause, with the environment variable that decides it."""
        line = self.scope.sources.text[branch.start :].partition("\n")[0].partition(";")[0]
        variables = (cause.variable for cause in self._causes(branch.condition) if cause.variable)
        return Cause(short(line), branch.start, next(variables, ""))

    def _causes(self, node: object) -> Iterator[Cause]:
        """Yield why words of commands are unknown."""
        if isinstance(node, Word):
            cause = cause_of(self.scope.value(node))
            if cause is not None:
                yield cause
        elif isinstance(node, tuple):
            for item in node:
                yield from self._causes(item)

    def _case(self, case: Case) -> bool | None:
        value = self.scope.value(case.word)
        text = None if self.scope.names_folder(case.word) else text_of(value)
        possible: list[Block] = []
        for words, body in case.branches:
            fits = self._fits(text, words)
            if fits is not False:
                possible.append(body)
            if fits:
                break
        else:
            possible.append(())
        if len(possible) == 1:
            self.assumed = assumed_by(value)
            others = [body for _, body in case.branches if body is not possible[0]]
            return self._taken(possible[0], *others)
        self._either(cause_of(value) or Cause("`case`", case.start), possible)
        return None

    def _fits(self, text: str | None, words: Sequence[Word]) -> bool | None:
        """Return whether a text fits one of the patterns of a branch; ``None`` if that is unknown."""
        patterns = [self.scope.pattern(word) for word in words]
        if any(word.literal == "*" and not word.quoted for word in words):
            return True
        fits: bool | None = False
        for pattern in patterns:
            if text is None or pattern is None:
                fits = None
            elif fnmatch.fnmatchcase(text, pattern):
                return True
        return fits

    def _taken(self, way: Block, *others: Block) -> bool | None:
        """Follow the way that a test has chosen.

        If that ends the script because a variable is not set (``exit 1`` after a message), it will be set: it is
        unknown, and another way is taken.
        """
        assumed = self.assumed
        before = self.scope.copy()
        count = len(self.commands)
        status = self.block(way)
        if not assumed or not self.ended or not (self.failed or len(self.commands) == count):
            return status
        self.scope = before
        self.ended = False
        del self.commands[count:]
        for cause in assumed:
            for name, value in before.variables.items():
                if cause.text in [other.text for other in assumed_by(scalar(value))]:
                    self.scope.forget(name, cause)
            if cause.variable:
                self.scope.forget(cause.variable, cause)
        if len(others) == 1:
            return self.block(others[0])
        self._either(assumed[0], others or [()])
        return None

    def _either(self, cause: Cause, ways: Sequence[Block]) -> None:
        """Follow each of several ways from here; afterwards, variables that differ between them are unknown."""
        before = self.scope
        self.steps += len(before.variables) // 100
        scopes: list[Scope] = []
        for way in ways:
            self._go_on(before.copy())
            self.block(way)
            self.may_have_left |= self.left
            self.may_have_broken |= self.broken and not self.continues
            if not (self.ended or self.left):
                scopes.append(self.scope)
        self._go_on(before)
        if scopes:
            self.scope.variables = _joined([scope.variables for scope in scopes], cause)
            self.scope.use_given()
            self.scope.arguments = _same([scope.arguments for scope in scopes])

    def _go_on(self, scope: Scope) -> None:
        """Go on with these variables after a way that may have ended the script, the function or the loop."""
        self.scope = scope
        self.ended = False
        self.left = False
        self.broken = False

    def _loop(self, loop: Loop) -> bool | None:
        """Follow a loop: one over the arguments round by round, any other one as if it ran any number of times."""
        before = self.scope.copy()
        count = len(self.commands)
        self.loops += 1
        may_have_broken = self.may_have_broken
        self.may_have_broken = False
        is_known = _is_over_arguments(loop) and self._rounds(loop)
        self.may_have_broken = may_have_broken
        if is_known:
            if before.arguments is None:
                self._possible_commands(loop)
            self.loops -= 1
            return True
        self._go_on(before)
        del self.commands[count:]
        status = self._unknown_rounds(loop)
        self.loops -= 1
        return status

    def _possible_commands(self, loop: Loop) -> None:
        """Add what a loop runs for each argument that a run passes, and leave the variables as they are."""
        outside = self.scope
        may_have_left = self.may_have_left
        ended = self.ended
        left = self.left
        self.scope = outside.copy()
        self.ended = False
        self.left = False
        self._unknown_rounds(loop)
        self.scope = outside
        self.may_have_left = may_have_left
        self.ended = ended
        self.left = left

    def _rounds(self, loop: Loop) -> bool:
        """Follow each round of a loop over the arguments; return whether all of them are known.

        Without a word about them, a script that is only read has no arguments: there is no round.
        """
        return self._rounds_of_for(loop) if loop.kind == "for" else self._rounds_of_while(loop)

    def _rounds_of_for(self, loop: Loop) -> bool:
        arguments = self.scope.arguments or ()
        self.scope.use_arguments(range(len(arguments)))
        for argument in arguments:
            self.scope.variables[str(loop.variable)] = argument.value
            self.block(loop.body)
            if self._leaves():
                break
            if self.may_have_broken:
                return False
        return True

    def _rounds_of_while(self, loop: Loop) -> bool:
        for _ in range(_MOST_ROUNDS):
            arguments = self.scope.arguments
            self.assumed = []
            status = self.block(loop.condition)
            if status is None:
                return False
            if status == (loop.kind == "until"):
                return True
            self.block(loop.body)
            if self._leaves():
                return True
            are_lost = arguments is not None and self.scope.arguments is None
            if self.may_have_broken or are_lost:
                return False
        return False

    def _leaves(self) -> bool:
        """Return whether a round ends the loop."""
        is_broken = self.broken and not self.continues
        self.broken = False
        self.continues = False
        return is_broken or self.ended or self.left

    def _unknown_rounds(self, loop: Loop) -> bool | None:
        cause = Cause(f"the `{loop.kind}` loop", loop.start)
        before = dict(self.scope.variables)
        body = loop.condition + loop.body
        for name in [*([loop.variable] if loop.variable else []), *_assigned(body)]:
            self.scope.forget(name, cause)
        _, after = self._apart(body)
        self.broken = False
        for name in {**before, **after.variables}:
            self.restore(name, _merged([before.get(name), after.variables.get(name)], cause))
        self.scope.use_given()
        self.scope.arguments = _same([self.scope.arguments, after.arguments])
        return None

    def restore(self, name: str, value: Variable | None) -> None:
        if value is None:
            self.scope.variables.pop(name, None)
        else:
            self.scope.variables[name] = value


def _is_over_arguments(loop: Loop) -> bool:
    """Return whether a loop goes over the arguments of its script or function."""
    if loop.kind == "for":
        is_all = not loop.words or (len(loop.words) == 1 and _is_all_arguments(loop.words[0]))
        return loop.variable is not None and is_all
    return any(name in ("#", "1", "@", "*", "getopts") for name in _read(loop.condition))


def _is_all_arguments(word: Word) -> bool:
    """Return whether a word is ``"$@"`` or ``$*``."""
    if len(word.parts) != 1:
        return False
    part = word.parts[0]
    return isinstance(part, Expansion) and part.name in ("@", "*") and part.operator != SLICE


def _read(node: object) -> Iterator[str]:
    """Yield the names of variables that commands read, and of commands."""
    if isinstance(node, Expansion):
        yield node.name
    elif isinstance(node, Literal):
        yield node.text
    elif isinstance(node, tuple):
        for item in node:
            yield from _read(item)


def _same(ways: Sequence[tuple[Field, ...] | None]) -> tuple[Field, ...] | None:
    """Return the arguments if they are the same in every way that a script may take."""
    return ways[0] if all(arguments == ways[0] for arguments in ways) else None


def _joined(ways: Sequence[dict[str, Variable]], cause: Cause) -> dict[str, Variable]:
    """Return the variables after one of several ways."""
    first, *others = ways
    result = dict(first)
    for name in _differing(first, others):
        value = _merged([way.get(name) for way in ways], cause)
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def _differing(first: dict[str, Variable], others: Sequence[dict[str, Variable]]) -> dict[str, None]:
    """Return the names of variables that are not the same object in every way: most are, and are not compared."""
    names: dict[str, None] = {}
    for other in others:
        if other == first:
            continue
        names |= {name: None for name, value in first.items() if other.get(name) is not value}
        names |= {name: None for name, value in other.items() if first.get(name) is not value}
    return names


def _merged(values: Sequence[Variable | None], cause: Cause) -> Variable | None:
    """Return a value that is one of several: their common start, and the rest with a cause."""
    first = values[0]
    if all(value == first for value in values):
        return first
    if any(is_array(value or ()) for value in values):
        return _merged_arrays([_elements(value or ()) for value in values], cause)
    texts = [None if value is None else text_of(scalar(value)) for value in values]
    is_same_text = None not in texts and len(set(texts)) == 1
    return first if is_same_text else (unknown(cause),)


def _elements(value: Variable) -> tuple[Field, ...]:
    return tuple(as_field(item) for item in value)


def _merged_arrays(arrays: Sequence[tuple[Field, ...]], cause: Cause) -> tuple[Field, ...]:
    """Return the elements that several arrays start with, and those of all that follow, with a doubt."""
    first = arrays[0]
    common = 0
    while all(len(array) > common and array[common] == first[common] for array in arrays):
        common += 1
    doubtful: dict[Field, None] = {}
    for array in arrays:
        for item in array[common:]:
            doubtful[item] = None
    return (*first[:common], *(item if item.doubt else replace(item, doubt=cause) for item in doubtful))


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

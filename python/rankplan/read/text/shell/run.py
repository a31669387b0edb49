"""Follows a shell script as far as the script itself decides: variables, arrays, tests, branches, functions, scripts.

Nothing is executed. A value that depends on anything else has a `Cause`: a command's output, the environment, an
argument. Where a branch depends on such a value, every branch is followed, and what differs after it is unknown. A
branch that ends the script because the environment lacks a variable is not taken: the variable is unknown then.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from rankplan.frozen import frozen
from rankplan.read.text.shell.conditions import Tested, holds
from rankplan.read.text.shell.expand import (
    Cause,
    Field,
    Piece,
    Scope,
    Value,
    Variable,
    as_field,
    assumed_by,
    is_array,
    scalar,
    short,
    text_of,
    unknown,
)
from rankplan.read.text.shell.flow import Command, Flow
from rankplan.read.text.shell.hosts import TASK_RANK, is_of_run
from rankplan.read.text.shell.launchers import Launched, is_text, launched, passed_on
from rankplan.read.text.shell.parse import (
    Assignment,
    Block,
    Simple,
    parse,
)
from rankplan.read.text.shell.searches import QuietSearch, quiet_search
from rankplan.read.text.shell.sources import Origin, Sources, Span
from rankplan.read.text.shell.words import Expansion, ShellSyntaxError, Word

_LONGEST = 10_000
"""Pieces of a value: a few lines that double a variable would exceed any memory."""
_MOST_SCRIPTS = 8
"""Scripts that run each other."""
_MOST_TURNS = 3
"""How often a script or a function is followed inside itself: each turn follows all of its ways again."""
_DECLARING = frozenset({"export", "local", "readonly"})
_SETTING = frozenset({"read", "mapfile", "readarray", "getopts", "let", "declare", "typeset"})
"""Commands that set the variables they name, to values that are not read."""
_SILENT = _DECLARING | {":", "true", "cd", "echo", "printf", "mkdir", "trap", "sleep", "wait", "rm", "cp"}
"""Commands that decide nothing here, and succeed."""
_COMPARING = frozenset({"=", "==", "!=", "=~"})
"""Tests of texts."""
_TASK_RANKS = ("SLURM_PROCID", "SLURM_NODEID")
"""The variables that tell a task of ``srun`` its number; in the batch script itself, they are 0."""
_NAMED = re.compile(r"(?:\+\+|--)?([A-Za-z_]\w*)", re.ASCII)

Open: TypeAlias = Callable[[str, str, str], tuple[str, Origin] | None]
"""Returns the text of a script: by its path, the folder of the command, and the path of the script that names it."""
Submitted: TypeAlias = Callable[[str, int], Mapping[str, Value]]
"""Returns the variables of Slurm in a batch script, whose text is at an offset of the sources."""


@frozen
class Followed:
    """The commands of a script, and its parts that are not followed.

    ``used`` are the variables of the environment that it reads, ``own`` those that it sets, with the first offset.
    """

    commands: list[Command]
    skipped: list[Cause]
    used: set[str]
    own: dict[str, int]


def follow(
    sources: Sources,
    environment: Mapping[str, Value] | None = None,
    opened: Open = lambda name, folder, script: None,
    given: frozenset[str] = frozenset(),
    submitted: Submitted = lambda text, offset: {},
) -> Followed:
    """Follow a script, the only text in ``sources``. Raises `ShellSyntaxError`.

    ``environment`` has the environment variables that are known, and the arguments of the script by their numbers;
    those that are ``given`` stand in for unknown values that the script sets. The texts of other scripts are added to
    ``sources``. ``submitted`` reads the options in those that ``sbatch`` gets.
    """
    variables = environment or {}
    numbers = {int(name): value for name, value in variables.items() if name.isdecimal()}
    named = {name: value for name, value in variables.items() if not name.isdecimal()}
    run = _Run(sources, named, opened, submitted)
    run.scope.given = frozenset(name for name in given if not name.isdecimal())
    if numbers:
        missing = [unknown(Cause(f"the argument ${number}", 0)) for number in range(max(numbers) + 1)]
        values = [numbers.get(number, (missing[number],)) for number in range(1, max(numbers) + 1)]
        run.scope.arguments = tuple(Field(value, 0, 0) for value in values)
    run.block(parse(sources.text))
    return Followed(run.commands, list(dict.fromkeys(run.skipped)), run.scope.used, run.own)


def _without(fields: tuple[Field, ...], arguments: tuple[Field, ...], launch: Launched) -> tuple[Field, ...]:
    """Return the fields of a command with these of its arguments, which are its first ones."""
    return fields[: len(fields) - (len(launch.arguments) - len(arguments))]


class _Call(NamedTuple):
    """A simple command: its name and words, and the variables that it alone gets (``own``)."""

    name: str
    fields: tuple[Field, ...]
    simple: Simple
    own: frozenset[str]

    @property
    def texts(self) -> list[str]:
        """The texts of its arguments."""
        return [field.text or "" for field in self.fields[1:]]

    @property
    def cause(self) -> Cause:
        """The command as the reason why a value is unknown."""
        return Cause(f"`{self.name}`", self.simple.start)


class _Run(Flow):
    def __init__(self, sources: Sources, environment: Mapping[str, Value], opened: Open, submitted: Submitted) -> None:
        script: Value = (Piece(sources.file(0), 0, 0),)
        super().__init__(Scope(sources, {**environment, "0": script, "BASH_SOURCE": script}, environment))
        self.opened = opened
        self.submitted = submitted
        self.around: tuple[tuple[Field, ...], ...] = ()
        """The words of the commands whose text is followed, the outer one first."""
        self.skipped: list[Cause] = []
        self.own: dict[str, int] = {}
        self.exported = set(environment)
        self.depth = 0
        self.running: list[str] = [sources.file(0)]
        """The scripts and functions on the way here."""
        self.files: dict[str, tuple[str, int, Block]] = {}
        """The scripts that were read: by path, their text, their offset and their commands."""
        self.locals: list[dict[str, Variable | None]] = []
        """The variables that the functions on the way here have made their own, and the values before."""

    def simple(self, simple: Simple) -> bool | None:
        if not simple.words:
            self._assign(simple.assignments)
            return True
        fields = tuple(field for word in simple.words for field in self.scope.fields(word))
        name = fields[0].text if fields and not fields[0].doubt else None
        # `A=1 command` sets A as long as the command runs, `export A=1` for good.
        begin = simple.words[0].start
        for_command = [assignment for assignment in simple.assignments if assignment.start < begin]
        lasting = [assignment for assignment in simple.assignments if assignment.start >= begin]
        before = {assignment.name: self.scope.variables.get(assignment.name) for assignment in for_command}
        lasting_values = [self._value(assignment) for assignment in lasting]
        self._assign(for_command)
        if name in _DECLARING:
            self._declare(name, fields, [assignment.name for assignment in lasting])
        for assignment, value in zip(lasting, lasting_values, strict=True):
            self._set(assignment, value)
        status = self._command(name, fields, simple, frozenset(before))
        for variable, old_value in before.items():
            self.restore(variable, old_value)
        return status

    def _assign(self, assignments: Iterable[Assignment]) -> None:
        for assignment in assignments:
            self._set(assignment, self._value(assignment))

    def _declare(self, name: str, fields: tuple[Field, ...], assigned: list[str]) -> None:
        """Follow ``local``, ``export`` and ``readonly``, whose ``name=value`` words may come from expansions."""
        names = [(field.text or "").partition("=")[0] for field in fields[1:]] + assigned
        if name == "export":
            self.exported |= set(names)
        if name == "local" and self.locals:
            self._make_local(text for text in names if text.isidentifier())
        for field in fields[1:]:
            variable, equals, value = (field.text or "").partition("=")
            if equals and variable.isidentifier():
                self.scope.variables[variable] = (Piece(value, field.start, field.end),)

    def _make_local(self, names: Iterable[str]) -> None:
        """Unset variables until the function ends; then they have the values that they had before."""
        values_before = self.locals[-1]
        for name in names:
            if name not in values_before:
                values_before[name] = self.scope.variables.pop(name, None)

    def _command(self, name: str | None, fields: tuple[Field, ...], simple: Simple, own: frozenset[str]) -> bool | None:
        """Follow a command of the shell, a function, or what another command starts."""
        call = _Call(name or "", fields, simple, own)
        if name in _FOLLOWED:
            return _FOLLOWED[name](self, call)
        if name in _SETTING or (name == "printf" and call.texts[:1] == ["-v"]):
            return self._set_unread(call)
        if name in self.functions and self.running.count(name) < _MOST_TURNS:
            self.running.append(name)
            status = self._call(self.functions[name], fields[1:])
            self.running.pop()
            return status
        return True if name in _SILENT else self._started(call)

    def _test_of(self, call: _Call) -> bool | None:
        return self._test(call.name, call.simple.words)

    def _exit(self, call: _Call) -> bool | None:
        status = _status(call.texts)
        self.ended = True
        self.failed = status is False
        return status

    def _return(self, call: _Call) -> bool | None:
        self.left = True
        return _status(call.texts)

    def _leave_loop(self, call: _Call) -> bool:
        self.broken = self.loops > 0
        self.continues = call.name == "continue"
        return True

    def _source_of(self, call: _Call) -> bool | None:
        return self._source(call.fields[1:], call.cause)

    def _grep(self, call: _Call) -> bool | None:
        searched = quiet_search(call.texts)
        if searched is None:
            return self._started(call)
        return self._contains(searched)

    def _getopts(self, call: _Call) -> bool | None:
        return self._set_unread(call) if self.scope.arguments else False

    def _eval(self, call: _Call) -> None:
        self.skipped.append(call.cause)

    def _unset(self, call: _Call) -> bool:
        for text in call.texts:
            array, index, _ = text.partition("[")
            self.restore(array, (unknown(call.cause),) if index else None)
        return True

    def _shift(self, call: _Call) -> bool:
        count = call.texts[0] if call.texts else "1"
        arguments = self.scope.arguments if count.isdecimal() and len(count) < 10 else None
        self.scope.arguments = None if arguments is None else arguments[int(count) :]
        return True

    def _set_words(self, call: _Call) -> bool:
        self._set_arguments(call.fields[1:])
        return True

    def _cd(self, call: _Call) -> bool:
        if len(call.fields) == 2 and (folder := call.fields[1].text):
            self.scope.folder = posixpath.join(self.scope.folder, folder)
        return True

    def _set_unread(self, call: _Call) -> bool | None:
        """Forget the variables that a command sets to values which are not read; ``read -d`` of a text is."""
        for text in [*call.texts, *(assignment.name for assignment in call.simple.assignments)]:
            if named := _NAMED.match(text):
                self.scope.forget(named[1], call.cause)
        word = None if call.simple.document is None else call.simple.document.word
        if call.name == "read" and word is not None and "-d" in call.texts and call.texts[-1].isidentifier():
            self.scope.variables[call.texts[-1]] = self.scope.value(word)
        return None

    def _started(self, call: _Call) -> bool | None:
        """Follow what a command starts: the text or the commands that it passes on, else its program or script."""
        start = call.simple.start
        launch = launched(call.fields)
        text = self._text_for_shell(call, launch)
        if text is not None and text_of(text) != "":
            launch = Launched("text", None, (), Field(text, start, start))
        if launch.kind == "program":
            arguments, commands = passed_on(launch.arguments)
            if commands:
                rest = _without(call.fields, arguments, launch)
                self._launch(replace(launch, arguments=arguments), rest, start, call.own)
                self._pass_on(commands, start, call.own)
                return None
        return self._launch(launch, call.fields, start, call.own)

    def _text_for_shell(self, call: _Call, launch: Launched) -> Value | None:
        """Return the text that a command passes to another shell, ``None`` if it passes none.

        ``tmux send-keys`` types its words: the longest one is the command.
        """
        name = posixpath.basename(call.fields[0].text or "") if call.fields else ""
        if name == "sbatch":
            return self._text_for_job(call, launch)
        if name == "tmux" and call.texts[:1] in (["send-keys"], ["send"]):
            typed = max(call.fields[2:], key=lambda field: len(field.text or ""), default=None)
            return None if typed is None else typed.value
        return None

    def _text_for_job(self, call: _Call, launch: Launched) -> Value | None:
        """Return the text that a job of ``sbatch`` runs, ``None`` if it runs a script, or nothing that is known.

        It is the here-document, or that of ``COMMAND`` for a script of a cluster that runs it (NeMo-RL: ``ray.sub``).
        """
        document = call.simple.document
        if document is not None and document.word is not None:
            return self.scope.value(document.word)
        is_passed = "COMMAND" in self.exported | call.own
        command = self.scope.variables.get("COMMAND") if is_passed else None
        return scalar(command) if command is not None and self._runs_command(launch) else None

    def _pass_on(self, commands: Sequence[tuple[Field, ...]], start: int, own: frozenset[str]) -> None:
        """Follow the commands that a program runs elsewhere."""
        for command in commands:
            if is_text(command):
                self._launch(Launched("text", None, (), command[0]), command, start, own)
            elif command[0].text not in _SILENT | {"source", "."}:
                self._launch(launched(command), command, start, own)

    def _runs_command(self, launch: Launched) -> bool:
        """Return whether a script of sbatch uses ``COMMAND``, as far as it can be read."""
        path = text_of(scalar(self.scope.variables["0"])) or ""
        script = self.opened(launch.program or "", self.scope.folder, path) if launch.kind == "script" else None
        return script is None or "COMMAND" in script[0]

    def _launch(self, launch: Launched, fields: tuple[Field, ...], start: int, own: frozenset[str]) -> bool | None:
        """Follow the script that a command runs, or add the command."""
        script = self._script_of(launch)
        if script is None:
            self.commands.append(self._command_of(launch, fields, start, own))
            return False if fields and fields[0].text == "false" else None
        begin, block = script
        variables = self._variables_for(launch, fields, begin, own)
        arguments = launch.arguments if launch.kind == "script" else launch.arguments[1:]
        around = (*self.around, fields) if launch.kind == "text" else self.around
        with self._inside(begin, replace(self.scope, variables=variables, arguments=arguments), around):
            try:
                status = self.block(parse(self.scope.sources.text, begin) if block is None else block)
            except ShellSyntaxError:
                if launch.kind == "script":
                    raise
                status = None  # its quotes may depend on the run
                self.commands.append(Command(fields, start, None, fields))
        return status

    @contextmanager
    def _inside(self, begin: int, scope: Scope, around: tuple[tuple[Field, ...], ...]) -> Iterator[None]:
        """Follow a script in a process of its own, which starts with these variables and changes none outside."""
        outer = self.scope, self.functions, self.around, self.exported
        self.scope = scope
        self.functions = {}
        self.around = around
        self.exported = self.exported | scope.variables.keys() - {"0", "BASH_SOURCE"}
        self.depth += 1
        self.running.append(scope.sources.file(begin))
        yield
        self.running.pop()
        self.depth -= 1
        self.scope, self.functions, self.around, self.exported = outer
        self.ended = self.left = False

    def _script_of(self, launch: Launched) -> tuple[int, Block | None] | None:
        """Return the offset of the text that a command runs here, and its commands if they are parsed.

        ``None`` for other commands, and for a script that cannot be read or that is too deep inside others or itself.
        """
        if self.depth >= _MOST_SCRIPTS:
            return None
        if launch.kind == "text" and launch.text is not None:
            begin = self._add_text(launch.text.value)
            return None if begin is None else (begin, None)
        script = self._file(launch.program) if launch.kind == "script" and launch.program else None
        if script is None or self.running.count(self.scope.sources.file(script[0])) >= _MOST_TURNS:
            return None
        return script

    def _variables_for(
        self, launch: Launched, fields: tuple[Field, ...], begin: int, own: frozenset[str]
    ) -> dict[str, Variable]:
        """Return the variables with which a script starts: those of the environment, and those that Slurm adds."""
        path: Value = (Piece(self.scope.sources.file(begin), 0, 0),)
        passed = self.exported | own
        variables = {name: value for name, value in self.scope.variables.items() if name in passed}
        variables |= _stated_variables(launch)
        variables |= {"0": path, "BASH_SOURCE": path}
        variables |= self._of_slurm(fields, begin, launch)
        return variables

    def _command_of(self, launch: Launched, words: tuple[Field, ...], start: int, own: frozenset[str]) -> Command:
        """Return a command with what its program gets, and where it runs."""
        passed = self.exported | own
        variables = {name: scalar(value) for name, value in self.scope.variables.items() if name in passed}
        variables |= _stated_variables(launch)
        fields = tuple(map(self._of_run, words))
        count = len(words) - len(launch.arguments)
        are_last = words[count:] == launch.arguments
        arguments = fields[count:] if are_last else tuple(map(self._of_run, launch.arguments))
        program = None if launch.program is not None and is_of_run(launch.program) else launch.program
        is_script = launch.kind == "script"
        return Command(fields, start, program, arguments, is_script, self.scope.folder, words, self.around, variables)

    def _of_run(self, field: Field) -> Field:
        """Return a field in which names that only a run knows are unknown."""
        if not any(is_of_run(piece.text) for piece in field.pieces):
            return field
        pieces = []
        for piece in field.pieces:
            if is_of_run(piece.text):
                piece = unknown(Cause("the nodes of the Slurm job", piece.start), piece.start, piece.end)
            pieces.append(piece)
        return replace(field, pieces=tuple(pieces))

    def _of_slurm(self, fields: tuple[Field, ...], begin: int, launch: Launched) -> Mapping[str, Value]:
        """Return the variables that Slurm sets for what a command runs: a job, or the tasks of a step."""
        names = [posixpath.basename(field.text or "") for field in fields]
        if names[:1] == ["sbatch"]:
            stated = {**self.submitted(self.scope.sources.text[begin:], begin)}
            for field, after in pairwise([*fields[1:], None]):
                if field is not None and (field.text or "").startswith("-") and field not in launch.arguments:
                    stated |= self._of_option(field, after)
            return stated
        if "srun" in names:
            return dict.fromkeys(_TASK_RANKS, (Piece(TASK_RANK, begin, begin),))
        return {}

    def _of_option(self, option: Field, after: Field | None) -> dict[str, Value]:
        """Return the variables that Slurm sets for an option of ``sbatch``; its value may be the word after it."""
        text = option.text or ""
        value = (after.text if after is not None else None) or "-"
        line = text if "=" in text or value.startswith("-") else f"{text} {value}"
        return {
            name: tuple(replace(piece, start=option.start, end=option.end, assumed=None) for piece in pieces)
            for name, pieces in self.submitted(f"#SBATCH {line}", 0).items()
        }

    def _file(self, name: str) -> tuple[int, Block] | None:
        """Return the offset and the commands of a script, which is parsed once; ``None`` if it cannot be read."""
        script = text_of(scalar(self.scope.variables["0"])) or ""
        opened = self.opened(name, self.scope.folder, script)
        if opened is None:
            return None
        text, origin = opened
        parsed = self.files.get(origin.file)
        if parsed is None or parsed[0] != text:
            begin = self.scope.sources.add(text, origin)
            parsed = self.files[origin.file] = text, begin, parse(self.scope.sources.text, begin)
        return parsed[1:]

    def _add_text(self, value: Value) -> int | None:
        """Add the text of ``bash -c``, in which an unknown piece is a variable; return its offset."""
        text = ""
        spans: list[Span] = []
        for piece in value:
            shown = piece.text
            if piece.cause is not None:
                name = f"_unknown_{len(self.scope.variables)}"
                self.scope.variables[name] = (piece,)
                self.exported.add(name)
                shown = f"${{{name}}}"
            spans.append(Span(len(text), len(text) + len(shown), piece.start, piece.end))
            text += shown
        return self.scope.sources.add_expanded(text, spans) if text.strip() else None

    def _source(self, fields: tuple[Field, ...], cause: Cause) -> bool | None:
        """Follow the commands of another file as if they were here."""
        name = fields[0].text if fields else None
        read = self._file(name) if name and self.depth < _MOST_SCRIPTS else None
        if read is None:
            self.skipped.append(cause)
            return None
        begin, block = read
        before = self.scope.variables.get("BASH_SOURCE")
        arguments = self.scope.arguments
        self.scope.variables["BASH_SOURCE"] = (Piece(self.scope.sources.file(begin), 0, 0),)
        if fields[1:]:
            self.scope.arguments = fields[1:]
        self.depth += 1
        status = self.block(block)
        self.depth -= 1
        self.left = False
        self.scope.arguments = arguments
        self.restore("BASH_SOURCE", before)
        return status

    def _contains(self, searched: QuietSearch) -> bool | None:
        """Return whether a file has a line that ``grep -q`` looks for; ``None`` if it cannot be read."""
        script = text_of(scalar(self.scope.variables["0"])) or ""
        opened = self.opened(searched.file, self.scope.folder, script)
        return None if opened is None else searched.matches(opened[0])

    def _set_arguments(self, fields: tuple[Field, ...]) -> None:
        """Follow ``set``: the words after the options become the arguments."""
        position = 0
        while position < len(fields) and (text := fields[position].text) is not None and text[:1] in ("-", "+"):
            position += 2 if "o" in text else 1
            if text == "--":
                self.scope.arguments = fields[position:]
                return
        if position < len(fields):
            self.scope.arguments = fields[position:]

    def _call(self, body: Block, arguments: tuple[Field, ...]) -> bool | None:
        """Follow a function, and return whether it succeeds; that is unknown if it may have returned earlier."""
        outer_arguments = self.scope.arguments
        was_in_function = self.scope.in_function
        may_have_left = self.may_have_left
        self.scope.arguments = arguments
        self.scope.in_function = True
        self.may_have_left = False
        self.locals.append({})
        status = self.block(body)
        if self.may_have_left:
            status = None
        for name, value in self.locals.pop().items():
            self.restore(name, value)
        self.left = False
        self.may_have_left = may_have_left
        self.scope.arguments = outer_arguments
        self.scope.in_function = was_in_function
        return status

    def _value(self, assignment: Assignment) -> Variable:
        """Return the value that an assignment writes."""
        if isinstance(assignment.value, Word):
            return self.scope.value(assignment.value)
        return tuple(field for word in assignment.value for field in self.scope.fields(word))

    def _set(self, assignment: Assignment, value: Variable) -> None:
        name = assignment.name
        variables = self.scope.variables
        self.own.setdefault(name, assignment.start)
        before = variables.get(name, ())
        if not isinstance(assignment.value, Word):
            elements = (*before, *value) if assignment.append else value
            variables[name] = tuple(as_field(item) for item in elements[:_LONGEST])
        elif assignment.element is None and not is_array(before):
            text = scalar(before) + scalar(value) if assignment.append else scalar(value)
            variables[name] = text
            if len(text) > _LONGEST or sum(len(piece.text) for piece in text) > 100 * _LONGEST:
                self.scope.forget(name, Cause("a very long text", assignment.start))
            self.scope.use_given()
        elif assignment.element is None and not assignment.append:
            # `NAME=value` of an array sets its first element.
            first = Field(scalar(value), assignment.value.start, assignment.value.end)
            variables[name] = (first, *(as_field(item) for item in before[1:]))
        else:
            # `NAME[i]=value`, and `NAME+=value` of an array, change an element that is not looked for.
            written = self.scope.sources.text[assignment.start : assignment.value.end]
            self.scope.forget(name, Cause(short(written), assignment.start))

    def _test(self, name: str, words: Sequence[Word]) -> bool | None:
        scope = self.scope
        if scope.arguments is None:  # nothing is passed to a script that is only read
            self.assumed += _missing_arguments(words)
            scope = replace(scope, arguments=())
        for word in words:
            self.assumed += assumed_by(scope.value(word))
        if any(map(scope.names_folder, words)) and any(word.literal in _COMPARING for word in words):
            return None
        tested = []
        for word in words[1:-1]:
            if name == "[":
                fields = map(self._of_run, scope.fields(word))
                tested += [Tested(field.text, text_of(field.value)) for field in fields]
            else:
                # Words are not split between `[[` and `]]`, and an empty one counts.
                literal = None if word.quoted else word.literal
                tested.append(Tested(literal, _known(text_of(scope.value(word))), scope.pattern(word)))
        return holds(tested, self._exists)

    def _exists(self, name: str) -> bool:
        """Return whether a file is here; one that is missing may exist where the script runs."""
        script = text_of(scalar(self.scope.variables["0"])) or ""
        return self.opened(name, self.scope.folder, script) is not None


_FOLLOWED: dict[str | None, Callable[[_Run, _Call], bool | None]] = {
    "[": _Run._test_of,
    "[[": _Run._test_of,
    "exit": _Run._exit,
    "return": _Run._return,
    "break": _Run._leave_loop,
    "continue": _Run._leave_loop,
    "source": _Run._source_of,
    ".": _Run._source_of,
    "grep": _Run._grep,
    "getopts": _Run._getopts,
    "eval": _Run._eval,
    "unset": _Run._unset,
    "shift": _Run._shift,
    "set": _Run._set_words,
    "cd": _Run._cd,
}
"""How the commands of the shell that decide something are followed."""


def _missing_arguments(words: Sequence[Word]) -> list[Cause]:
    """Return the arguments that words name, and their number, as what they assume to be unset."""
    start = words[0].start
    names = [part.name for word in words for part in word.parts if isinstance(part, Expansion)]
    numbered = [Cause(f"the argument ${name}", start) for name in names if name.isdigit()]
    return numbered + [Cause("the arguments", start) for name in names if name == "#"]


def _stated_variables(launch: Launched) -> dict[str, Value]:
    """Return the variables that a command states for what it starts: ``env NAME=value program``."""
    variables: dict[str, Value] = {}
    for field in launch.variables:
        name, _, value = (field.text or "").partition("=")
        variables[name] = (Piece(value, field.start, field.end),)
    return variables


def _known(text: str | None) -> str | None:
    """Return a text, ``None`` if it has a name that only a run knows."""
    return None if text is not None and is_of_run(text) else text


def _status(texts: list[str]) -> bool | None:
    """Return whether ``exit`` or ``return`` means success; without a number, the last command decides."""
    return texts[0] == "0" if texts and texts[0].isdecimal() else None

"""Follows a shell script as far as the script itself decides: variables, arrays, tests, branches, functions, scripts.

Nothing is executed. A value that depends on anything else has a `Cause`: a command's output, the environment, an
argument. Where a branch depends on such a value, every branch is followed, and what differs after it is unknown. A
branch that ends the script because the environment lacks a variable is not taken: the variable is unknown then.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
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
    found: tuple[Field, ...]
    simple: Simple
    own: frozenset[str]

    @property
    def texts(self) -> list[str]:
        """The texts of its arguments."""
        return [field.text or "" for field in self.found[1:]]

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
            if name == "export":
                names = [(field.text or "").partition("=")[0] for field in found[1:]]
                self.exported |= {*names, *(one.name for one, _ in new)}
        for assignment, value in new:
            self._set(assignment, value)
        status = self._command(name, found, simple, frozenset(before))
        for text, old in before.items():
            self.restore(text, old)
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

    def _command(self, name: str | None, found: tuple[Field, ...], simple: Simple, own: frozenset[str]) -> bool | None:
        """Follow a command of the shell, a function, or what another command starts."""
        call = _Call(name or "", found, simple, own)
        if name in _FOLLOWED:
            return _FOLLOWED[name](self, call)
        if name in _SETTING or (name == "printf" and call.texts[:1] == ["-v"]):
            return self._set_unread(call)
        if name in self.functions and self.running.count(name) < _MOST_TURNS:
            self.running.append(name)
            status = self._call(self.functions[name], found[1:])
            self.running.pop()
            return status
        return True if name in _SILENT else self._started(found, simple, own)

    def _test_of(self, call: _Call) -> bool | None:
        return self._test(call.name, call.simple.words)

    def _exit(self, call: _Call) -> bool | None:
        self.ended, status = True, _status(call.texts)
        self.failed = status is False
        return status

    def _return(self, call: _Call) -> bool | None:
        self.left = True
        return _status(call.texts)

    def _leave_loop(self, call: _Call) -> bool:
        self.broken, self.continues = self.loops > 0, call.name == "continue"
        return True

    def _source_of(self, call: _Call) -> bool | None:
        return self._source(call.found[1:], call.cause)

    def _grep(self, call: _Call) -> bool | None:
        searched = quiet_search(call.texts)
        if searched is None:
            return self._started(call.found, call.simple, call.own)
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
        known = self.scope.arguments if count.isdecimal() and len(count) < 10 else None
        self.scope.arguments = None if known is None else known[int(count) :]
        return True

    def _set_words(self, call: _Call) -> bool:
        self._set_arguments(call.found[1:])
        return True

    def _cd(self, call: _Call) -> bool:
        if len(call.found) == 2 and (folder := call.found[1].text):
            self.scope.folder = posixpath.join(self.scope.folder, folder)
        return True

    def _set_unread(self, call: _Call) -> bool | None:
        """Forget the variables that a command sets to values which are not read; ``read -d`` of a text is."""
        for text in [*call.texts, *(one.name for one in call.simple.assignments)]:
            if named := _NAMED.match(text):
                self.scope.forget(named[1], call.cause)
        word = None if call.simple.document is None else call.simple.document.word
        if call.name == "read" and word is not None and "-d" in call.texts and call.texts[-1].isidentifier():
            self.scope.variables[call.texts[-1]] = self.scope.value(word)
        return None

    def _started(self, found: tuple[Field, ...], simple: Simple, own: frozenset[str]) -> bool | None:
        """Follow what a command starts: the text or the commands that it passes on, else its program or script."""
        launch = launched(found)
        text = self._text_for_shell(found, launch, simple, own)
        if text is not None and text_of(text) != "":
            launch = Launched("text", None, (), Field(text, simple.start, simple.start))
        if launch.kind == "program":
            arguments, commands = passed_on(launch.arguments)
            if commands:
                rest = _without(found, arguments, launch)
                self._launch(replace(launch, arguments=arguments), rest, simple.start, own)
                self._pass_on(commands, simple.start, own)
                return None
        return self._launch(launch, found, simple.start, own)

    def _text_for_shell(
        self, found: tuple[Field, ...], launch: Launched, simple: Simple, own: frozenset[str]
    ) -> Value | None:
        """Return the text that a command passes to another shell, ``None`` if it passes none.

        ``sbatch`` runs its here-document, or a script of a cluster that runs the text in ``COMMAND`` (NeMo-RL:
        ``ray.sub``). ``tmux send-keys`` types its words.
        """
        name = posixpath.basename(found[0].text or "") if found else ""
        if name == "sbatch":
            if simple.document is not None and simple.document.word is not None:
                return self.scope.value(simple.document.word)
            command = self.scope.variables.get("COMMAND") if "COMMAND" in self.exported | own else None
            return scalar(command) if command is not None and self._runs_command(launch) else None
        if name == "tmux" and len(found) > 1 and found[1].text in ("send-keys", "send"):
            typed = max(found[2:], key=lambda field: len(field.text or ""), default=None)
            return None if typed is None else typed.value
        return None

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

    def _launch(self, one: Launched, found: tuple[Field, ...], start: int, own: frozenset[str]) -> bool | None:
        """Follow the script that a command runs, or add the command."""
        begin: int | None = None
        block: Block | None = None
        if one.kind == "text" and one.text is not None and self.depth < _MOST_SCRIPTS:
            begin = self._add_text(one.text.value)
        elif one.kind == "script" and one.program and self.depth < _MOST_SCRIPTS:
            begin, block = self._file(one.program) or (None, None)
            if begin is not None and self.running.count(self.scope.sources.file(begin)) >= _MOST_TURNS:
                begin = None
        if begin is None:
            self.commands.append(self._command_of(one, found, start, own))
            return False if found and found[0].text == "false" else None
        before, functions, passed = self.scope, self.functions, self.exported | own
        variables = {name: value for name, value in before.variables.items() if name in passed}
        for field in one.variables:
            name, _, value = (field.text or "").partition("=")
            variables[name] = (Piece(value, field.start, field.end),)
        path: Value = (Piece(before.sources.file(begin), 0, 0),)
        variables |= {"0": path, "BASH_SOURCE": path}
        variables |= self._of_slurm(found, begin, one)
        arguments = one.arguments if one.kind == "script" else one.arguments[1:]
        self.scope = replace(before, variables=variables, arguments=arguments)
        self.functions, self.depth = {}, self.depth + 1
        around, exported = self.around, self.exported
        self.exported = exported | variables.keys() - {"0", "BASH_SOURCE"}
        if one.kind == "text":
            self.around = (*around, found)
        self.running.append(before.sources.file(begin))
        try:
            status = self.block(parse(before.sources.text, begin) if block is None else block)
        except ShellSyntaxError:
            if one.kind == "script":
                raise
            status = None  # its quotes may depend on the run
            self.commands.append(Command(found, start, None, found))
        self.scope, self.functions, self.depth = before, functions, self.depth - 1
        self.around, self.exported = around, exported
        self.running.pop()
        self.ended = self.left = False
        return status

    def _command_of(self, one: Launched, found: tuple[Field, ...], start: int, own: frozenset[str]) -> Command:
        """Return a command with what its program gets, and where it runs."""
        passed = self.exported | own
        variables = {name: scalar(value) for name, value in self.scope.variables.items() if name in passed}
        for field in one.variables:
            name, _, value = (field.text or "").partition("=")
            variables[name] = (Piece(value, field.start, field.end),)
        fields = tuple(map(self._of_run, found))
        arguments = (
            fields[len(fields) - len(one.arguments) :]
            if found[len(found) - len(one.arguments) :] == one.arguments
            else tuple(map(self._of_run, one.arguments))
        )
        program = None if one.program is not None and is_of_run(one.program) else one.program
        is_script = one.kind == "script"
        return Command(fields, start, program, arguments, is_script, self.scope.folder, found, self.around, variables)

    def _of_run(self, field: Field) -> Field:
        """Return a field in which names that only a run knows are unknown."""
        if not any(is_of_run(piece.text) for piece in field.pieces):
            return field
        pieces = tuple(
            unknown(Cause("the nodes of the Slurm job", piece.start), piece.start, piece.end)
            if is_of_run(piece.text)
            else piece
            for piece in field.pieces
        )
        return replace(field, pieces=pieces)

    def _of_slurm(self, found: tuple[Field, ...], begin: int, one: Launched) -> Mapping[str, Value]:
        """Return the variables that Slurm sets for what a command runs: a job, or the tasks of a step."""
        names = [posixpath.basename(field.text or "") for field in found]
        if names[:1] == ["sbatch"]:
            stated = {**self.submitted(self.scope.sources.text[begin:], begin)}
            for field, after in pairwise([*found[1:], None]):
                if field is not None and (field.text or "").startswith("-") and field not in one.arguments:
                    stated |= self._of_option(field, after)
            return stated
        if "srun" in names:
            return dict.fromkeys(_TASK_RANKS, (Piece(TASK_RANK, begin, begin),))
        return {}

    def _of_option(self, option: Field, after: Field | None) -> dict[str, Value]:
        """Return the variables that Slurm sets for an option of ``sbatch``; its value may be the word after it."""
        text, value = option.text or "", (after.text if after is not None else None) or "-"
        line = text if "=" in text or value.startswith("-") else f"{text} {value}"
        return {
            name: tuple(replace(piece, start=option.start, end=option.end, assumed=None) for piece in pieces)
            for name, pieces in self.submitted(f"#SBATCH {line}", 0).items()
        }

    def _file(self, name: str) -> tuple[int, Block] | None:
        """Return the offset and the commands of a script, which is parsed once; ``None`` if it cannot be read."""
        script = text_of(scalar(self.scope.variables["0"])) or ""
        found = self.opened(name, self.scope.folder, script)
        if found is None:
            return None
        text, origin = found
        known = self.files.get(origin.file)
        if known is None or known[0] != text:
            begin = self.scope.sources.add(text, origin)
            known = self.files[origin.file] = text, begin, parse(self.scope.sources.text, begin)
        return known[1:]

    def _add_text(self, value: Value) -> int | None:
        """Add the text of ``bash -c``, in which an unknown piece is a variable; return its offset."""
        text, spans = "", list[Span]()
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

    def _source(self, found: tuple[Field, ...], cause: Cause) -> bool | None:
        """Follow the commands of another file as if they were here."""
        name = found[0].text if found else None
        read = self._file(name) if name and self.depth < _MOST_SCRIPTS else None
        if read is None:
            self.skipped.append(cause)
            return None
        begin, block = read
        before, arguments = self.scope.variables.get("BASH_SOURCE"), self.scope.arguments
        self.scope.variables["BASH_SOURCE"] = (Piece(self.scope.sources.file(begin), 0, 0),)
        if found[1:]:
            self.scope.arguments = found[1:]
        self.depth += 1
        status = self.block(block)
        self.depth -= 1
        self.left, self.scope.arguments = False, arguments
        self.restore("BASH_SOURCE", before)
        return status

    def _contains(self, searched: QuietSearch) -> bool | None:
        """Return whether a file has a line that ``grep -q`` looks for; ``None`` if it cannot be read."""
        script = text_of(scalar(self.scope.variables["0"])) or ""
        found = self.opened(searched.file, self.scope.folder, script)
        return None if found is None else searched.matches(found[0])

    def _set_arguments(self, found: tuple[Field, ...]) -> None:
        """Follow ``set``: the words after the options become the arguments."""
        position = 0
        while position < len(found) and (text := found[position].text) is not None and text[:1] in ("-", "+"):
            position += 2 if "o" in text else 1
            if text == "--":
                self.scope.arguments = found[position:]
                return
        if position < len(found):
            self.scope.arguments = found[position:]

    def _call(self, body: Block, arguments: tuple[Field, ...]) -> bool | None:
        outer, was_in_function = self.scope.arguments, self.scope.in_function
        self.scope.arguments, self.scope.in_function = arguments, True
        before, self.may_have_left = self.may_have_left, False
        self.locals.append({})
        status = self.block(body)
        status, self.may_have_left = None if self.may_have_left else status, before
        for name, value in self.locals.pop().items():
            self.restore(name, value)
        self.left = False
        self.scope.arguments, self.scope.in_function = outer, was_in_function
        return status

    def _value(self, assignment: Assignment) -> Variable:
        """Return the value that an assignment writes."""
        if isinstance(assignment.value, Word):
            return self.scope.value(assignment.value)
        return tuple(field for word in assignment.value for field in self.scope.fields(word))

    def _set(self, assignment: Assignment, value: Variable) -> None:
        name, variables = assignment.name, self.scope.variables
        self.own.setdefault(name, assignment.start)
        before = variables.get(name, ())
        if not isinstance(assignment.value, Word):
            items = tuple(as_field(item) for item in (*(before if assignment.append else ()), *value))
            variables[name] = items[:_LONGEST]
        elif assignment.element is None and not assignment.append and any(isinstance(item, Field) for item in before):
            text = scalar(value)
            first = Field(text, assignment.value.start, assignment.value.end)
            variables[name] = (first, *(as_field(item) for item in before[1:]))  # the first element of an array
        elif assignment.element is not None or any(isinstance(item, Field) for item in before):
            written = self.scope.sources.text[assignment.start : assignment.value.end]
            self.scope.forget(name, Cause(short(written), assignment.start))  # an element of an array
        else:
            text = scalar(before) + scalar(value) if assignment.append else scalar(value)
            variables[name] = text
            if len(text) > _LONGEST or sum(len(piece.text) for piece in text) > 100 * _LONGEST:
                self.scope.forget(name, Cause("a very long text", assignment.start))
            self.scope.use_given()

    def _test(self, name: str, words: Sequence[Word]) -> bool | None:
        scope = self.scope
        if scope.arguments is None:  # nothing is passed to a script that is only read
            names = [part.name for word in words for part in word.parts if isinstance(part, Expansion)]
            self.assumed += [Cause(f"the argument ${text}", words[0].start) for text in names if text.isdigit()]
            self.assumed += [Cause("the arguments", words[0].start) for text in names if text == "#"]
            scope = replace(scope, arguments=())
        for word in words:
            self.assumed += assumed_by(scope.value(word))
        if any(map(scope.names_folder, words)) and any(word.literal in _COMPARING for word in words):
            return None
        if name == "[":
            found = [self._of_run(field) for word in words[1:-1] for field in scope.fields(word)]
            return holds([Tested(field.text, text_of(field.value)) for field in found], self._exists)
        # Words are not split between `[[` and `]]`, and an empty one counts.
        return holds(
            [
                Tested(None if word.quoted else word.literal, _known(text_of(scope.value(word))), scope.pattern(word))
                for word in words[1:-1]
            ],
            self._exists,
        )

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


def _known(text: str | None) -> str | None:
    """Return a text, ``None`` if it has a name that only a run knows."""
    return None if text is not None and is_of_run(text) else text


def _status(texts: list[str]) -> bool | None:
    """Return whether ``exit`` or ``return`` means success; without a number, the last command decides."""
    return texts[0] == "0" if texts and texts[0].isdecimal() else None

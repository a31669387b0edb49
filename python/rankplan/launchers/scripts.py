"""What launchers with a script write: words of a shell, the plan in a here-document, the user's head, and waiting."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from rankplan.errors import Diagnostic
from rankplan.frozen import frozen
from rankplan.launchers import faults
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan

STRICT = "set -euo pipefail"
"""The line between the head, which is the user's too, and the body, which is rankplan's."""
DIGEST = "# rankplan: "
"""Starts the line with the digest of the plan."""
OPENS, CLOSES = "<<'PLAN'", "PLAN"
"""The end of the line before the plan, and the line after it."""
WAIT = (
    "# a component that fails ends the others; the exit code is its own",
    "for job in $(jobs -p); do wait -n; done",
)
"""The last lines of a script that has started its components in the background."""


LAST_SIGNAL = 'trap "" TERM INT HUP'
"""The first command at the end of a script: Slurm signals all its processes, some of them more than once."""


def wait_lines(serving: int, others: int) -> Iterator[str]:
    """Yield the last lines of a script that has started so many servers and so many other commands in the background.

    A server does not end by itself: the script ends with the other commands, and ends the servers then.
    """
    if not serving or not others:
        yield from WAIT
        return
    yield "# a command that fails ends the job; a server runs until the others have ended"
    yield f"for ((left = {others}; left > 0; left--)); do wait -n; done"


_SHEBANG = "#!/bin/bash"
_ESCAPED = re.compile(r"[\x00-\x1f\x7f'\\]")
RESERVED = ("json", "sh", "nodes")
"""Endings of files that are no component's."""
_SAFE = re.compile(r"[A-Za-z0-9_.-]+")
_INTERPRETER = re.compile(r"#!\s*\S*/(?:env\s+(?:-S\s+)?)?bash(?:\s.*)?")


class Verbatim(str):
    """A command as a script has it, in the words of a shell. Other commands are words without a shell."""

    __slots__ = ()


def shell_words(command: str) -> str:
    """Return a command in the words of a shell, which passes them on. Raises ``ValueError`` for open quotes."""
    return command if isinstance(command, Verbatim) else " ".join(map(quoted, shlex.split(command)))


def quoted(word: str) -> str:
    """Return a word as a shell reads it, on one line."""
    return shlex.quote(word) if word.isprintable() else "$'" + _ESCAPED.sub(_escape, word) + "'"


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    is_control = character < " " or character == "\x7f"
    return f"\\x{ord(character):02x}" if is_control else f"\\{character}"


@frozen
class Stay:
    """Consecutive process ranks of a component on one node."""

    node: int
    processes: int


def stays_of(component: Component) -> list[Stay]:
    """Return where the processes of a component run, in the order of their ranks; a node may come back."""
    runs = sorted(component.rows.runs(at_home=True), key=lambda run: run.first_rank)
    each = ((run.node + offset, run.pattern.processes) for run in runs for offset in range(run.nodes))
    return [Stay(node, sum(count for _, count in some)) for node, some in groupby(each, key=lambda one: one[0])]


def returns(stays: Sequence[Stay]) -> bool:
    """Whether ranks return to an earlier node."""
    return len({stay.node for stay in stays}) < len(stays)


def home_nodes(plan: Plan) -> list[int]:
    """Return the node ranks that processes run on, ascending."""
    runs = (run for component in plan.values() for run in component.rows.runs(at_home=True))
    return sorted({run.node + offset for run in runs for offset in range(run.nodes)})


def file_names(plan: Plan) -> dict[str, str]:
    """Return the ending of the files of each component: its name, or its number if the name is no plain word."""
    plain = {name: bool(_SAFE.fullmatch(name)) and name not in RESERVED for name in plan}
    return {name: name if plain[name] else f"{index}+" for index, name in enumerate(plan)}


def commands_read(plan: Plan, text: str, pattern: Callable[[str], str]) -> dict[str, Any]:
    """Return the commands of components in a script, and the port of the first one, if it has any.

    ``pattern`` returns, for a component, the expression whose two groups are its port and its command.
    """
    commands: dict[str, Verbatim] = {}
    ports: list[int] = []
    for index, name in enumerate(plan):
        line = re.search(pattern(name), text, re.M)
        if line is not None:
            commands[name] = Verbatim(line[2])
            ports.append(int(line[1]) - index)
    return {"commands": commands, "port": ports[0]} if ports else {"commands": commands}


def folder_lines(parent: str) -> Iterator[str]:
    """Yield the lines that make ``$folder``, a new folder of this user alone, and remove it when the script ends.

    The script ends its background jobs first. Signals end it, too, and those that follow do not interrupt its end.
    """
    yield f'folder=$(mktemp -d "{parent}/rankplan-XXXXXXXXXX")'
    yield f"""trap '{LAST_SIGNAL}; kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT"""
    yield "trap 'exit 143' TERM"
    yield "trap 'exit 130' INT"
    yield "trap 'exit 129' HUP"


def plan_lines(text: str, path: str) -> Iterator[str]:
    """Yield the lines that write the plan to a file."""
    yield f"cat >{path} {OPENS}"
    yield from text.splitlines()
    yield CLOSES


Lines: TypeAlias = tuple[tuple[int, str], ...]
"""Lines, each with its number from 1."""


@frozen
class Head:
    """The user's part of a script: its first line, its comments and options of a batch system, and its commands."""

    shebang: str = _SHEBANG
    options: Lines = ()
    commands: Lines = ()

    def fault(self, file: str) -> Diagnostic | None:
        """Return the fault of a first line that starts another shell."""
        if _INTERPRETER.fullmatch(self.shebang):
            return None
        return faults.other_shell(file, self.shebang, _SHEBANG)

    def unmarked(self, file: str) -> Diagnostic | None:
        """Return the fault of commands without a first line that says what reads them: the file may be no script."""
        if not self.commands:
            return None
        number, line = self.commands[0]
        return faults.no_shell(file, number, line, _SHEBANG)


def split(text: str, is_own: Callable[[str, Sequence[str]], bool]) -> tuple[Head, Lines]:
    """Return the user's head of a script, and rankplan's lines; without the line of a digest, all lines are the user's.

    Between the digest and the first command, ``is_own`` tells rankplan's lines from those of the user, by the lines
    above them.
    """
    lines = text.removesuffix("\n").split("\n")
    first_number = 1
    shebang = _SHEBANG
    if lines[0].startswith("#!"):
        shebang = lines.pop(0)
        first_number = 2
    numbered = list(enumerate(lines, first_number))
    body = _first(lines, lambda line: line == STRICT)
    digest = _first(lines[:body], lambda line: line.startswith(DIGEST))
    if digest == body:
        body = digest = len(lines)
    head = numbered[:body]
    commands = _first(lines[:body], lambda line: line.strip() != "" and line[0] != "#")
    own: list[tuple[int, str]] = []
    for number, line in head[digest:commands]:
        if line.startswith(DIGEST) or is_own(line, [above for _, above in own]):
            own.append((number, line))
    options = tuple(numbered_line for numbered_line in head[:commands] if numbered_line not in own)
    return Head(shebang, options, tuple(head[commands:])), (*own, *numbered[body:])


def _first(lines: Sequence[str], is_meant: Callable[[str], bool]) -> int:
    """Return the index of the first line of a kind; the number of lines if there is none."""
    return next((index for index, line in enumerate(lines) if is_meant(line)), len(lines))


def script(head: Head, digest: str, options: Sequence[str], body: Sequence[str]) -> str:
    """Return a script; ``options`` are rankplan's lines of the head."""
    before = [line for _, line in head.options]
    after = [line for _, line in head.commands]
    return "\n".join([head.shebang, *before, DIGEST + digest, *options, *after, STRICT, *body, ""])

"""Launch scripts: the ``key=value`` words or the flags of the command that starts a job. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from rankplan.config.text.document import Section
from rankplan.config.text.overrides import OVERRIDE, Override, overridden
from rankplan.config.text.places import Path, Place, Places, Text, relocated
from rankplan.config.text.shell.expand import Cause, Field
from rankplan.config.text.shell.run import Command, follow
from rankplan.config.text.shell.words import ShellSyntaxError
from rankplan.errors import Diagnostic, PlacementError
from rankplan.words import path_text

_UNKNOWN = "\0"
_FLAG = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_NO_KEY = re.compile(rf"[{_UNKNOWN}]|^hydra\.")
"""An unknown key, or a key of Hydra itself."""
_MODULE = re.compile(r"[A-Za-z_][\w.]*")
_FILES = ("--config", "--config-file", "--config_path")


@dataclass(frozen=True, slots=True)
class _Token(Override):
    """An override in a script; with ``causes``, its value is known only when the script runs."""

    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class _Program:
    """The program that a command starts, as written: a module or a path."""

    name: str


def parse_script(file: str, text: str, load: Callable[[str], Section]) -> Section:
    """Return the config that a script passes to the command with the most ``key=value`` words or flags.

    ``load`` reads the file that such a command names after ``--config``. A value that only a run would reveal is left
    out, with a warning. Raises `PlacementError` (``syntax``, ``missing-key``).
    """
    text = text.replace("\r\n", "\n")
    lines = Text(file, text)
    try:
        commands, skipped = follow(text)
    except ShellSyntaxError as error:
        raise PlacementError(
            [lines.place(error.start, error.start + 1).of(Diagnostic("syntax", error.message, error.help))]
        ) from None
    except RecursionError:
        raise PlacementError([Diagnostic("syntax", "the script is nested too deeply", "split it", file=file)]) from None
    found = [(command, _tokens(command, lines)) for command in commands]
    command, tokens = max(found, key=lambda one: len(one[1]), default=(None, []))
    if command is None or not tokens:
        message = "the script has no command with key=value words or flags of a job"
        raise PlacementError([Diagnostic("missing-key", message, "pass the script that starts the job", file=file)])
    names = [  # the key under which Hydra keeps the name
        _Token("", "hydra.job.config_name", name, place, place, causes)
        for name, place, causes in _options(command, lines, ("--config-name", "-cn"))
    ]
    tokens = [*names, *tokens]
    source = Places(file)
    warnings = [_skipped(cause, lines) for cause in skipped]
    base = _base(command, lines, load, warnings)
    config: Section = relocated(base if base is not None else {}, source if base is None else base.document)
    config = overridden(config, [one for one in tokens if not one.causes], strict=base is not None)
    warnings += [_unknown(one, lines, file) for one in tokens if one.causes]
    for other, others in found:
        if other is not command and _differs(tokens, others):
            message = f"this command is not read; line {lines.place(command.start, command.start).line} has more keys"
            start = lines.place(other.start, other.start + 1)
            warnings.append(
                start.of(Diagnostic("not-run", message, "check a script with this command alone", warning=True))
            )
    config.document.warnings = sorted(warnings, key=lambda one: (one.line or 0, one.column or 0))
    if isinstance(config.document, Places):
        config.document.program = _program(command)
    return config


def _program(command: Command) -> _Program | None:
    """Return the module after ``-m``, or the first Python file among the words of a command."""
    words = [field.text or "" for field in command.fields]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "-m" and _MODULE.fullmatch(following):
            return _Program(following)
        if word.endswith(".py"):
            return _Program(word)
    return None


def _tokens(command: Command, lines: Text) -> list[_Token]:
    """Return the overrides of a command, or its flags if it has no override with a nested key."""
    fields = list(command.fields)
    overrides = [token for field in fields for token in _override(field, lines)]
    if any("." in token.key for token in overrides):
        return overrides
    last = max((index for index, field in enumerate(fields) if field.text == "--"), default=0)
    flags = list(_flags(fields[last + 1 :], lines))
    return overrides if len(overrides) > len(flags) and not flags else flags


def _text(field: Field) -> str:
    return "".join(_UNKNOWN if piece.cause else piece.text for piece in field.pieces)


def _override(field: Field, lines: Text) -> Iterator[_Token]:
    found = OVERRIDE.fullmatch(_text(field))
    if found is None or _NO_KEY.search(found["key"]) or (found["value"] is None and found["sign"] != "~"):
        return
    sign, start = found["sign"] or "", _start(field)
    key = lines.place(start + len(sign), start + found.end("key"))
    place = _value_place(field, found.end("key") + 1, lines)
    yield _Token(sign, found["key"], found["value"], key, place, tuple(field.causes))


def _start(field: Field) -> int:
    """Return where the text of a field starts: the place of its first characters, if they are in the script."""
    return next((piece.start for piece in field.pieces[:1] if piece.end > piece.start), field.start)


def _value_place(field: Field, length: int, lines: Text) -> Place:
    """Return the place of the text of a field after its first ``length`` characters: where it was written."""
    spans: list[tuple[int, int]] = []
    for piece in field.pieces:
        size = 1 if piece.cause else len(piece.text)
        if length < size and (piece.cause or piece.text):
            exact = piece.end - piece.start == len(piece.text)
            spans.append((piece.start + (length if exact else 0), piece.end))
        length = max(0, length - size)
    if len(spans) == 1 and spans[0][1] > 0:
        return lines.place(*spans[0])
    return lines.place(field.start, field.end)


def _flags(fields: Sequence[Field], lines: Text) -> Iterator[_Token]:
    """Yield the flags of a command: ``--key value``, ``--key=value``, ``--key``."""
    flags: list[tuple[Field, list[Field]]] = []
    for field in fields:
        if re.match(r"-{1,2}[A-Za-z]", _text(field)):
            flags.append((field, []))
        elif flags:
            flags[-1][1].append(field)
    for field, values in flags:
        found = _FLAG.fullmatch(_text(field))
        if found is None or _UNKNOWN in found[1]:
            continue
        causes, start = field.causes, _start(field)
        key = place = lines.place(start, start + len(found[1]) + 2)
        value = "true" if found[2] is None else _as_text(found[2])
        if found[2] is not None:
            place = _value_place(field, len(found[1]) + 3, lines)
        elif values:
            texts = [one.text or "" for one in values]
            value = _as_text(texts[0]) if len(texts) == 1 else f"[{','.join(map(_quoted, texts))}]"
            place = _value_place(values[0], 0, lines)
            causes = [*causes, *values[0].causes]
        yield _Token("", found[1], value, key, place, tuple(causes))


def _as_text(text: str) -> str:
    """Return the value of a flag as an override has it: brackets and quotes are a part of its text."""
    return _quoted(text) if text[:1] in ("[", "{", "'", '"') else text


def _quoted(text: str) -> str:
    return "'" + re.sub(r"(\\*)('|\Z)", lambda end: end[1] * 2 + ("\\'" if end[2] else ""), text) + "'"


def _options(command: Command, lines: Text, flags: Sequence[str]) -> Iterator[tuple[str, Place, tuple[Cause, ...]]]:
    """Yield the value of each of these flags, its place, and why it is unknown."""
    fields = command.fields
    for index, field in enumerate(fields):
        flag, equals, value = _text(field).partition("=")
        if flag in flags and (equals or index + 1 < len(fields)):
            named = field if equals else fields[index + 1]
            place = _value_place(named, len(flag) + 1 if equals else 0, lines)
            yield value if equals else _text(named), place, tuple(named.causes)


def _base(command: Command, lines: Text, load: Callable[[str], Section], warnings: list[Diagnostic]) -> Section | None:
    """Return the config file that a command names; without it, its values are unknown."""
    for name, place, _ in _options(command, lines, _FILES):
        if not name.endswith((".yaml", ".yml")):
            continue
        for candidate in (FilePath(name), FilePath(lines.file).parent / name):
            if _UNKNOWN not in name and candidate.is_file():
                return load(str(candidate))
        message = f"the values of {name.replace(_UNKNOWN, '...')} are not read: no such file here"
        fault = Diagnostic("not-run", message, "run the check in the folder that the script runs in", warning=True)
        warnings.append(place.of(fault))
    return None


def _differs(tokens: Sequence[_Token], others: Sequence[_Token]) -> bool:
    mine = {token.key: token.value for token in tokens}
    return any(token.key in mine and mine[token.key] != token.value for token in others)


def _skipped(cause: Cause, lines: Text) -> Diagnostic:
    help = "check that it changes no placement; override values on the command line: `-- key=value`"
    place = lines.place(cause.start, cause.start + 1)
    return place.of(Diagnostic("not-run", f"{cause.text} is not run: what it changes is not read", help, warning=True))


def _unknown(token: _Token, lines: Text, file: str) -> Diagnostic:
    cause = token.causes[0]
    line = lines.place(cause.start, cause.start).line
    message = f"`{token.key}` is known only when the script runs: it depends on {cause.text} (line {line})"
    help = f"give its value: rankplan check {FilePath(file).name} -- {token.key}=VALUE"
    path: Path = tuple(token.key.split("."))
    return token.value_place.of(Diagnostic("not-run", message, help, path=path_text(path), warning=True))

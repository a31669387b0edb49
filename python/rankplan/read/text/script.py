"""Launch scripts: the ``key=value`` words or the flags of the command that starts a job. Nothing is executed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, NamedTuple, Protocol, cast

from rankplan.errors import Diagnostic, PlacementError, Where
from rankplan.files import read_text
from rankplan.frozen import frozen
from rankplan.read.text.allocation import allocation_of
from rankplan.read.text.at_files import SIGN, divided, negated, ordered
from rankplan.read.text.document import Section
from rankplan.read.text.entrypoints import Entrypoint
from rankplan.read.text.layers import Layers, over
from rankplan.read.text.nearby import nearest_file
from rankplan.read.text.overrides import OVERRIDE, Override, overridden
from rankplan.read.text.places import Place, Places, Text, relocated
from rankplan.read.text.program_configs import HydraOptions, loaded_config, program_file
from rankplan.read.text.programs import JOB, StartedProgram, program_of
from rankplan.read.text.sbatch import sbatch_options
from rankplan.read.text.script_faults import (
    ignored_flag,
    no_config,
    no_file,
    not_run,
    other_value,
    own_command,
    own_program,
    places_nothing,
    sets_itself,
    starts_elsewhere,
    starts_nothing,
    submitted_value,
    too_deep,
    unknown_value,
)
from rankplan.read.text.shell.expand import Cause, Field, Piece, Value, assumed_by
from rankplan.read.text.shell.flow import Command
from rankplan.read.text.shell.hosts import is_of_run, nodes_in
from rankplan.read.text.shell.quotes import hint
from rankplan.read.text.shell.run import Followed, follow
from rankplan.read.text.shell.sources import Sources
from rankplan.read.text.shell.words import ShellSyntaxError
from rankplan.read.text.started import CommandWord, Started
from rankplan.words import path_text

_LARGEST = 1 << 20
"""The most bytes of a script that another one names."""
_UNKNOWN = "\0"
_FLAG = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_NO_KEY = re.compile(rf"[{_UNKNOWN}]|^hydra\.")
"""An unknown key, or a key of Hydra itself."""
_FILES = ("--config", "--config-file", "--config_path")
_WORD = "config"
"""The key that names a config file among the words of a command, which programs of OmegaConf merge into it."""
_FOLDERS, _NAMES = ("--config-path", "--config_path", "-cp"), ("--config-name", "--config_name", "-cn")
_FOLDERS_BESIDE = ("--config-dir", "--config_dir", "-cd")
"""Flags of Hydra: the folder of the config, its name, and another folder of configs."""


_LATER = re.compile(r"config(?:_file|_path|_name|_dir)?")
"""Flags that name files, not values."""
_ALWAYS_SET = frozenset(
    {"HOME", "PATH", "PWD", "OLDPWD", "USER", "LOGNAME", "SHELL", "SHLVL", "HOSTNAME", "LANG", "TERM", "TMPDIR", "_"}
    | {"PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "EDITOR", "PAGER", "DISPLAY", "COLUMNS", "LINES"}
)
"""Variables of every environment, which say nothing about a job that runs elsewhere."""
_SBATCH = re.compile(r"^#SBATCH\s.*", re.MULTILINE)
_SLURM = {
    ("--nodes",): ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    ("--gpus-per-node", "--gres"): ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    ("--ntasks",): ("SLURM_NTASKS",),
    ("--ntasks-per-node",): ("SLURM_NTASKS_PER_NODE",),
}
"""Options of sbatch, and the variables that Slurm sets to their number."""


class Load(Protocol):
    """Reads the config file that a command names; ``choices`` are names of files of Hydra's config groups."""

    def __call__(self, file: str, /, *, choices: Mapping[str, str] = ...) -> Section: ...


@frozen
class _Token(Override):
    """An override in a script; with ``causes``, its value is known only when the script runs."""

    causes: tuple[Cause, ...] = ()
    submitted: Cause | None = None
    """The option of sbatch in the script that the value depends on."""
    partial: str = ""
    """A text that the command surely passes, if a part of it is unknown."""
    is_bare: bool = False
    """Whether it is a flag without a value."""


@frozen
class _Started:
    """A command with its values, and its program."""

    command: Command
    tokens: list[_Token]
    program: StartedProgram
    configured: bool
    """Whether it names a config file."""

    @property
    def size(self) -> int:
        """The number of its values and config files."""
        return len(self.tokens) + self.configured


class _Values(NamedTuple):
    """What a program gets from a command: a config file, if there is one, and the values that change it.

    ``is_strict``: a value must have a key of the file, as Hydra demands. ``has_groups``: a name for a section chooses a
    file of one of Hydra's config groups.
    """

    base: Section | None
    tokens: Sequence[_Token]
    is_strict: bool
    has_groups: bool = True


def parse_script(origin: Text | Entrypoint, text: str, load: Load, given: Mapping[str, str]) -> Section:
    """Return the config that a script passes to the trainer that it starts.

    The trainer is the known program with the most ``key=value`` words or flags, or else any program. ``given`` are
    environment variables; ``load`` reads the file that a command names after ``--config``. A value that only a run
    would reveal is left out, with a warning. Raises `PlacementError` (``syntax``, ``no-components``,
    ``unknown-key``).
    """
    sources = Sources()
    sources.add(text, origin)
    followed = _followed(origin, text, sources, given)
    commands = _commands(followed, sources)
    chosen = _chosen(commands, origin, sources)
    commands = [chosen if started.command is chosen.command else started for started in commands]
    warnings = [_skipped(cause, sources) for cause in followed.skipped]
    values = _values(chosen, sources, load, warnings)
    if values.base is not None and chosen.program.system is None:  # the keys of its config tell more than its name
        chosen = replace(chosen, program=replace(chosen.program, task=None))
    try:
        config = _config(values, origin)
    except PlacementError as error:  # the keys of a program that is no job may have another order
        raise PlacementError([chosen.program.fault]) if chosen.program.task else error from None
    programs = list(_programs(commands, chosen, config, _Reading(origin, sources, load, warnings)))
    warnings += _warnings(commands, chosen, values.tokens, sources)
    if not chosen.program.is_released and not chosen.program.task:
        warnings.append(chosen.program.place.of(own_program(chosen.program.name, chosen.program.trainer)))
    config.document.warnings = sorted(warnings, key=lambda warning: (warning.line or 0, warning.column or 0))
    if isinstance(config.document, Places):
        file = program_file(chosen.program.name, chosen.program.place.file, chosen.command.folder)
        config.document.program = replace(chosen.program, file="" if file is None else os.fspath(file))
        config.document.programs = tuple(programs)
        config.document.allocation = allocation_of(text)
        config.document.used = followed.used & set(given)
        own = followed.used & os.environ.keys() - _ALWAYS_SET - set(given)
        config.document.environment = {name: os.environ[name] for name in sorted(own)}
        config.document.partial |= _partial_texts(values.tokens)
    _reject_own(given, followed, config, sources)
    return config


def _followed(origin: Text | Entrypoint, text: str, sources: Sources, given: Mapping[str, str]) -> Followed:
    """Follow a script with the variables of Slurm and the given ones. Raises `PlacementError` (``syntax``)."""
    texts = {name: value for name, value in os.environ.items() if name in text and name not in _ALWAYS_SET}
    ambient: dict[str, Value] = {name: (Piece(value, 0, 0),) for name, value in texts.items()}
    environment = ambient | _slurm(text) | {name: (Piece(value, 0, 0),) for name, value in given.items()}
    try:
        return follow(sources, environment, opened, frozenset(given), _slurm)
    except ShellSyntaxError as error:
        remark = hint(text, error.start) if sources.file(error.start) == sources.file(0) else None
        help = error.help if remark is None else f"{error.help}, {remark}"
        fault = Diagnostic("syntax", error.message, help)
        raise PlacementError([sources.place(error.start, error.start + 1).of(fault)]) from None
    except RecursionError:
        raise PlacementError([too_deep(origin.file)]) from None


def _commands(followed: Followed, sources: Sources) -> list[_Started]:
    """Return the commands of a script with their programs. Guests are asked only if none of them starts a job."""
    commands = list(dict.fromkeys(followed.commands))
    started = [_started(command, sources) for command in commands]
    if any(map(_is_job, started)):
        return started
    return [_started(command, sources, guests=True) for command in commands]


def _values(started: _Started, lines: Sources, load: Load, warnings: list[Diagnostic]) -> _Values:
    """Return what a command passes: a config file, which a flag or a word names, and the values that change it."""
    config_names = [  # the key under which Hydra keeps the name
        _Token("", "hydra.job.config_name", name, place, place, causes)
        for name, place, causes in _options(started.command, lines, _NAMES)
    ]
    tokens = [*config_names, *started.tokens]
    base = _base(started, lines, load, warnings)
    if base is None and started.program.task == JOB and _files_after_sign(started):
        raise PlacementError([started.program.fault])
    file_word = _config_word(tokens)
    if base is None and file_word is not None:
        tokens.remove(file_word)
        base = _loaded(str(file_word.value), file_word.value_place, started.command, load, warnings)
    tokens = _counting(tokens, started, base, warnings)
    is_whole = base is not None and "defaults" not in base
    takes = started.program.takes
    is_of_hydra = SIGN not in takes and "flags" not in takes
    is_strict = is_whole and is_of_hydra and file_word is None
    return _Values(base, tokens, is_strict=is_strict, has_groups=SIGN not in takes)


def _counting(
    tokens: list[_Token], started: _Started, base: Section | None, warnings: list[Diagnostic]
) -> list[_Token]:
    """Return the values that count: some programs take only a few keys beside a config file. Warn of the others."""
    counting = started.program.beside
    if base is None or counting is None or _first_file(started) is not None:
        return tokens
    warnings += [_ignored(token, started) for token in tokens if token.key not in counting]
    return [token for token in tokens if token.key in counting]


def _config_word(tokens: Sequence[_Token]) -> _Token | None:
    """Return the word that names a config file: ``config=file.yaml``."""
    for token in tokens:
        if token.key == _WORD and str(token.value).endswith((".yaml", ".yml")):
            return token
    return None


def _config(values: _Values, origin: Text | Entrypoint) -> Section:
    """Return a config file with the values that change it, as far as they are known. Raises `PlacementError`."""
    base = relocated({}, Places(origin.file)) if values.base is None else values.base
    tokens = [
        # A name for a section has chosen its file.
        replace(token, key=f"/{token.key}") if values.has_groups and _is_choice(token, base) else token
        for token in values.tokens
        if not token.causes
    ]
    return overridden(base, tokens, strict=values.is_strict)


def _partial_texts(tokens: Sequence[_Token]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the values that a command surely passes and of which a part is known, by their paths: the last counts."""
    for token in tokens:
        if token.partial.strip(_UNKNOWN):
            names = {cause.variable for cause in token.causes}
            name = names.pop() if len(names) == 1 else ""
            yield tuple(token.key.split(".")), token.partial.replace(_UNKNOWN, f"${name}" if name else "...")


def _is_choice(token: _Token, base: Section) -> bool:
    return isinstance(base.get(token.key), Section) and re.fullmatch(r"[A-Za-z_][\w.-]*", token.value or "") is not None


def _part(
    started: _Started,
    origin: Text | Entrypoint,
    sources: Sources,
    load: Load,
    warnings: list[Diagnostic],
) -> Section:
    """Return the values of a program that is another part of the job."""
    base = _base(started, sources, load, warnings)
    warnings += [_unknown(token, sources) for token in started.tokens if token.causes]
    return _config(_Values(base, started.tokens, is_strict=False), origin)


class _Reading(NamedTuple):
    """What the values of a program are read with."""

    origin: Text | Entrypoint
    sources: Sources
    load: Load
    warnings: list[Diagnostic]


def _programs(commands: Sequence[_Started], chosen: _Started, config: Section, reading: _Reading) -> Iterator[Started]:
    """Yield the programs of a job: the chosen one, those of the same name, and the other parts of its system.

    A program takes place once for each of its nodes, so that commands of one name may be those of one job.
    """
    for started in commands:
        if started.command is chosen.command:
            yield _program(started, reading.sources, config, is_main=True)
        elif started.program.part:
            if chosen.program.system in (None, started.program.dialect):
                yield _program(started, reading.sources, _part(started, *reading), is_main=False)
        elif started.program.name == chosen.program.name and "flags" in chosen.program.takes:
            with suppress(PlacementError):
                values = _part(started, *reading._replace(warnings=[]))
                yield _program(started, reading.sources, values, is_main=False)


def _program(started: _Started, sources: Sources, values: Section, *, is_main: bool) -> Started:
    """Return a program of the job; ``is_main``: its values are those of the config."""
    command = started.command
    count = len(command.words) - len(command.arguments)
    words = [_word(field, sources) for field in command.words]
    variables = {name: _word(Field(value, 0, 0), sources) for name, value in command.variables.items()}
    return Started(
        name=started.program.name,
        where=_where(started.program.place),
        part=started.program.part,
        launch=tuple(words[:count]),
        arguments=tuple(words[count:]),
        around=tuple(tuple(_word(field, sources) for field in fields) for fields in command.around),
        variables=variables,
        values=values,
        folder=command.folder,
        is_main=is_main,
    )


def _word(field: Field, sources: Sources) -> CommandWord:
    """Return a word of a command with what is known of it."""
    known = "".join(piece.text for piece in field.pieces if piece.cause is None)
    is_known = not is_of_run(known) and field.text is not None and field.doubt is None
    start = _start(field)
    place = _value_place(field, 0, sources) if any(piece.end for piece in field.pieces) else sources.place(start, start)
    variable = next((cause.variable for cause in field.causes if cause.variable), "")
    shown = "".join("..." if piece.cause or is_of_run(piece.text) else piece.text for piece in field.pieces)
    return CommandWord(
        text=field.text if is_known else None,
        where=_where(place),
        shown=shown,
        nodes=nodes_in(known),
        variable=variable,
    )


def _where(place: Place) -> Where:
    return Where.at(place.of(Diagnostic("", "")))


def _warnings(
    commands: Sequence[_Started], chosen: _Started, tokens: Sequence[_Token], sources: Sources
) -> Iterator[Diagnostic]:
    """Yield the warnings of values that the config lacks or may get, and of commands with other values."""
    yield from (_unknown(token, sources) for token in tokens if token.causes)
    for token in tokens:
        if token.submitted is not None and not token.causes:
            yield _submitted(token, sources)
    line = sources.place(chosen.command.start, chosen.command.start).line
    others: dict[str, list[_Started]] = {}
    for started in commands:
        key = _differs(tokens, started)
        if started.command is not chosen.command and key is not None:
            others.setdefault(key, []).append(started)
    for key, commands_with_it in others.items():
        places = [started.program.place for started in commands_with_it]
        yield places[0].of(other_value(line, key, _path(key), [place.line for place in places]))
    for started in commands:
        yield from _lost(started.command, chosen, sources)


def _slurm(text: str, offset: int = 0) -> dict[str, Value]:
    """Return the variables that sbatch sets as a script asks it to, whose text is at an offset of the sources."""
    variables: dict[str, Value] = {}
    for line in _SBATCH.finditer(text):
        for option in sbatch_options(line[0]):
            names = next((names for options, names in _SLURM.items() if option.name in options), ())
            number = re.search(r"(?:^|:)([0-9]+)$", option.value)
            if number is not None:
                start = offset + line.start() + option.at + number.start(1)
                flag = re.split("[=0-9 ]", line[0][option.start :])[0]
                cause = Cause(f"`#SBATCH {flag}`", start)
                piece = Piece(number[1], start, start + len(number[1]), assumed=cause)
                variables |= dict.fromkeys(names, (piece,))
    return variables


def opened(name: str, folder: str, script: str) -> tuple[str, Text] | None:
    """Read a script that another one names."""
    if (path := nearest_file(name, script, folder)) is None:
        return None
    try:
        text = read_text(path, _LARGEST).replace("\r\n", "\n")
    except (OSError, ValueError):
        return None
    return text, Text(os.path.normpath(path), text)


def _started(command: Command, sources: Sources, *, guests: bool = False) -> _Started:
    name = command.program or (command.fields[0].text if command.fields else None) or "this command"
    place = sources.place(command.start, command.start + 1)
    configured = next(_options(command, sources, (*_FILES, *_NAMES)), None) is not None
    word = (command.arguments[0].text or "") if command.arguments else ""
    program = program_of(name, place, word=word, guests=guests, text=lambda: _text_of_program(name, place, command))
    started = _Started(command, _tokens(command, sources, program), program, configured)
    configured = configured or bool(_files_after_sign(started)) or _first_file(started) is not None
    return replace(started, configured=configured)


def _files_after_sign(started: _Started) -> list[str]:
    """Return the names of the config files after ``@``, for a program that takes them there."""
    fields = started.command.arguments
    files = divided(fields).files if SIGN in started.program.takes else []
    return [_text(fields[file.word])[file.start :] for file in files]


def _text_of_program(name: str, place: Place, command: Command) -> str | None:
    """Return the text of a program of Python, ``None`` if the repository of its script does not have it."""
    file = program_file(name, place.file, command.folder)
    try:
        return None if file is None else read_text(file, _LARGEST)
    except (OSError, ValueError):
        return None


def _is_job(started: _Started) -> bool:
    return started.program.task == JOB and not started.program.part


def _chosen(found: list[_Started], origin: Text | Entrypoint, sources: Sources) -> _Started:
    """Return the command that starts the job. Raises `PlacementError` if there is none."""
    jobs = [started for started in found if _is_job(started)] or _beside_parts(found)
    chosen = max(jobs or found, key=lambda started: started.size, default=None)
    if chosen is None or not (chosen.size or jobs):
        raise PlacementError([_nothing(found, origin)])
    if not jobs:
        return replace(chosen, program=replace(chosen.program, otherwise=_nothing(found, origin)))
    configs = [*_options(chosen.command, sources, _NAMES), *_options(chosen.command, sources, _FILES)]
    config = next((name for name, *_ in configs), next(iter(_files_after_sign(chosen)), None))
    fault = places_nothing(chosen.program.name, config, known=config is None or _UNKNOWN not in config)
    return replace(chosen, program=replace(chosen.program, otherwise=chosen.program.place.of(fault)))


def _beside_parts(commands: Sequence[_Started]) -> list[_Started]:
    """Return the programs of Python whose task is unknown, beside those that are parts of the job of a system.

    Users write trainers of their own, which nothing but the server beside them tells.
    """
    systems = {started.program.system for started in commands if started.program.part}
    if len(systems) != 1 or None in systems:
        return []
    (system,) = systems
    return [
        replace(started, program=replace(started.program, system=system, task=JOB))
        for started in commands
        if started.program.task is None and (started.command.program or "").endswith(".py")
    ]


def _nothing(found: list[_Started], origin: Text | Entrypoint) -> Diagnostic:
    """Return the fault of a script without a training job: what it does instead."""
    subject = "this script" if isinstance(origin, Text) else "the entrypoint of this RayJob"
    largest_first = sorted(found, key=lambda started: -started.size)
    with_task = [started.program for started in largest_first if started.program.task]
    unread = [started for started in found if started.command.script and started.command.program]
    if with_task and (with_task[0].system is not None or not unread):
        return with_task[0].fault
    if unread:
        return unread[0].program.place.of(starts_elsewhere(subject, str(unread[0].command.program)))
    programs = list(dict.fromkeys(started.command.program for started in found if started.command.program))
    absent = [started.program for started in largest_first if _is_absent(started)]
    if absent:
        return absent[0].place.of(starts_nothing(subject, programs, absent[0].name))
    return origin.place(0, 0).of(starts_nothing(subject, programs, ""))


def _is_absent(started: _Started) -> bool:
    """Return whether a command starts a program of Python whose file is not here."""
    program = started.program
    is_file = program.name.endswith(".py") and started.command.program is not None
    return is_file and program_file(program.name, program.place.file, started.command.folder) is None


def _reject_own(given: Mapping[str, str], followed: Followed, config: Section, sources: Sources) -> None:
    """Raise `PlacementError` if a given variable is one that the script sets itself."""
    faults = []
    for name, value in given.items():
        if name in followed.own and name not in followed.used and name not in config:
            start = followed.own[name]
            place: Place = sources.place(start, start + len(name))
            faults.append(place.of(sets_itself(name, value)))
    if faults:
        raise PlacementError(faults)


def _tokens(command: Command, lines: Sources, program: StartedProgram) -> list[_Token]:
    """Return the values of a command in the ways that its program takes them.

    Unless these are known, they are its overrides, or its flags if it has no override with a nested key.
    """
    fields = list(command.fields if command.program is None else command.arguments)
    takes = program.takes
    if SIGN in takes:
        return list(_flags_beside_files(divided(fields).others, lines, program)) if "flags" in takes else []
    overrides = [token for field in fields for token in _override(field, lines)]
    if takes:
        words = overrides if "words" in takes else []
        return [*words, *_value_flags(fields, lines)] if "flags" in takes else words
    if any("." in token.key for token in overrides):
        return overrides
    after_dashes = max((index + 1 for index, field in enumerate(fields) if field.text == "--"), default=0)
    return _value_flags(fields[after_dashes:], lines) or overrides


def _value_flags(fields: Sequence[Field], lines: Sources) -> list[_Token]:
    """Return the flags of a command, but for those that name config files."""
    return [flag for flag in _flags(fields, lines) if not _LATER.fullmatch(flag.key)]


def _text(field: Field) -> str:
    return "".join(_UNKNOWN if piece.cause else piece.text for piece in field.pieces)


def _override_of(text: str) -> re.Match[str] | None:
    match = OVERRIDE.fullmatch(text)
    if match is None or _NO_KEY.search(match["key"]):
        return None
    return match if match["value"] is not None or match["sign"] == "~" else None


def _override(field: Field, lines: Sources) -> Iterator[_Token]:
    match = _override_of(_text(field))
    if match is None:
        return
    sign = match["sign"] or ""
    start = _start(field)
    key = lines.place(start + len(sign), start + match.end("key"))
    place = _value_place(field, match.end("key") + 1, lines)
    submitted = next((cause for cause in assumed_by(field.pieces) if cause.text.startswith("`#SBATCH")), None)
    partial = _partial(field, match["value"] or "")
    yield _Token(sign, match["key"], match["value"], key, place, tuple(field.causes), submitted, partial)


def _partial(field: Field, text: str) -> str:
    """Return the text of a field, or a part of it, if it is surely passed and partly unknown."""
    return text if field.doubt is None and _UNKNOWN in text else ""


def _start(field: Field) -> int:
    """Return where the text of a field starts: the place of its first characters, if they are in the script."""
    return next((piece.start for piece in field.pieces[:1] if piece.end > piece.start), field.start)


def _value_place(field: Field, length: int, lines: Sources) -> Place:
    """Return the place of the text of a field after its first ``length`` characters: where it was written."""
    spans: list[tuple[int, int]] = []
    for piece in field.pieces:
        size = 1 if piece.cause else len(piece.text)
        if length < size and (piece.cause or piece.text):
            exact = piece.end - piece.start == len(piece.text)
            spans.append((piece.start + (length if exact else 0), piece.end))
        length = max(0, length - size)
    one = len(spans) == 1 and spans[0][1] > 0
    place: Place = lines.place(*(spans[0] if one else (field.start, field.end)))
    return place


def _flags(fields: Sequence[Field], lines: Sources) -> Iterator[_Token]:
    """Yield the flags of a command: ``--key value``, ``--key=value``, ``--key``; in keys, ``-`` is ``_`` (argparse)."""
    for field, values in _flags_with_values(fields):
        match = _FLAG.fullmatch(_text(field))
        if match is None or _UNKNOWN in match[1]:
            continue
        name = match[1].replace("-", "_")
        start = _start(field)
        key = lines.place(start, start + len(match[1]) + 2)
        flag = _Token("", name, "true", key, key, tuple(field.causes))
        if match[2] is not None:
            place = _value_place(field, len(match[1]) + 3, lines)
            partial = _partial(field, match[2])
            yield replace(flag, value=_as_text(match[2]), value_place=place, partial=partial)
        elif values:
            texts = [value.text or "" for value in values]
            text = _as_text(texts[0]) if len(texts) == 1 else f"[{','.join(map(_quoted, texts))}]"
            place = _value_place(values[0], 0, lines)
            causes = (*flag.causes, *values[0].causes)
            partial = _partial(values[0], _text(values[0])) if len(values) == 1 and field.doubt is None else ""
            yield replace(flag, value=text, value_place=place, causes=causes, partial=partial)
        else:
            yield replace(flag, is_bare=True)


def _flags_with_values(fields: Sequence[Field]) -> list[tuple[Field, list[Field]]]:
    """Return each flag with the fields after it. An unknown one after others may be more flags, or none."""
    flags: list[tuple[Field, list[Field]]] = []
    for field in fields:
        if field.several or re.match(r"-{1,2}[A-Za-z]", _text(field)):
            flags.append((field, []))
        elif flags:
            _, values = flags[-1]
            if not values or not all(piece.cause for piece in field.pieces):
                values.append(field)
    return flags


def _flags_beside_files(fields: Sequence[Field], lines: Sources, program: StartedProgram) -> Iterator[_Token]:
    """Yield the flags of a program that takes files after ``@``.

    A value in brackets is a list or a mapping of JSON. A flag without a value is a section, if the system has one of
    this name, else it is true; ``--no-x`` turns ``x`` off.
    """
    for token in _flags(fields, lines):
        if token.is_bare:
            key = negated(token.key)
            token = token if key is None else replace(token, key=key, value="false")
            if token.path in program.sections:
                token = replace(token, value="{}" if key is None else "null")
        text = token.value or ""
        if text[:2] in ("'[", "'{"):
            token = replace(token, value=_unquoted(text))
        yield token


def _as_text(text: str) -> str:
    """Return the value of a flag as an override has it: brackets and quotes are a part of its text."""
    return _quoted(text) if text[:1] in ("[", "{", "'", '"') else text


def _unquoted(text: str) -> str:
    """Return the text that `_quoted` was given."""
    return re.sub(r"(\\+)('|\Z)", lambda end: end[1][: len(end[1]) // 2] + end[2], text[1:-1])


def _quoted(text: str) -> str:
    return "'" + re.sub(r"(\\*)('|\Z)", lambda end: end[1] * 2 + ("\\'" if end[2] else ""), text) + "'"


def _options(command: Command, lines: Sources, flags: Sequence[str]) -> Iterator[tuple[str, Place, tuple[Cause, ...]]]:
    """Yield the value of each of these flags, its place, and why it is unknown."""
    fields = command.fields
    for index, field in enumerate(fields):
        flag, equals, value = _text(field).partition("=")
        if flag in flags and (equals or index + 1 < len(fields)):
            named = field if equals else fields[index + 1]
            place = _value_place(named, len(flag) + 1 if equals else 0, lines)
            yield value if equals else _text(named), place, tuple(named.causes)


def _base(started: _Started, lines: Sources, load: Load, warnings: list[Diagnostic]) -> Section | None:
    """Return the config file that a command names; without it, its values are unknown."""
    if (hydra := _hydra_config(started, lines, warnings)) is not None:
        return load(str(hydra), choices=_choices(started.tokens))
    if SIGN in started.program.takes:
        return _merged(started.command, lines, load, warnings)
    suffixes = (".yaml", ".yml", ".toml", *started.program.suffixes)
    first = _first_file(started)
    if first is not None:
        place = _value_place(first, 0, lines)
        return _loaded(_text(first), place, started.command, load, warnings)
    for name, place, _ in _options(started.command, lines, _FILES):
        if name.endswith(suffixes) and (base := _loaded(name, place, started.command, load, warnings)) is not None:
            return base
    return None


def _first_file(started: _Started) -> Field | None:
    """Return the first argument of a program that takes a config file there, ``None`` if it is none."""
    if "file" not in started.program.takes:
        return None
    name = started.command.program or ""
    arguments = started.command.arguments[started.program.name != name :]  # the name of the program may have a word
    if not arguments or not _text(arguments[0]).endswith((".yaml", ".yml", ".json")):
        return None
    return arguments[0]


def _choices(tokens: Sequence[_Token]) -> dict[str, str]:
    """Return the names that words such as ``optim/kind=adam`` choose of Hydra's config groups.

    A group keeps the sign with which it is added (``+``) or removed (``~``).
    """
    return {
        (token.sign if token.sign in ("+", "~") else "") + token.key: token.value or ""
        for token in tokens
        if "." not in token.key.partition("@")[0] and not token.causes
    }


def _merged(command: Command, lines: Sources, load: Load, warnings: list[Diagnostic]) -> Section | None:
    """Return the config files after ``@`` as one config."""
    fields = command.arguments
    layers: list[tuple[tuple[str, ...], Section]] = []
    for file in ordered(divided(fields).files):
        field = fields[file.word]
        name = _text(field)[file.start :]
        section = _loaded(name, _value_place(field, file.start, lines), command, load, warnings)
        if section is not None:
            layers.append((file.section, section))
    if not layers:
        return None
    merged: dict[Any, Any] = {}
    for path, section in layers:
        merged = over(merged, _nested(path, section))
    return cast("Section", relocated(merged, Layers(list(reversed(layers)))))


def _nested(path: Sequence[str], section: Section) -> dict[Any, Any]:
    """Return a mapping with a section at a path."""
    content: dict[Any, Any] = section
    for name in reversed(path):
        content = {name: content}
    return content


def _loaded(name: str, place: Place, command: Command, load: Load, warnings: list[Diagnostic]) -> Section | None:
    """Return the config file with a name; without it, its values are unknown."""
    if _UNKNOWN not in name and (path := nearest_file(name, place.file, command.folder)) is not None:
        return load(str(path))
    warnings.append(place.of(no_file(name.replace(_UNKNOWN, "..."))))
    return None


def _hydra_config(started: _Started, lines: Sources, warnings: list[Diagnostic]) -> FilePath | None:
    """Return the config that a program loads with Hydra; one that cannot be found is a warning.

    The configs that a program brings itself are known: its values that are not stated have the usual defaults.
    """
    # The last of several flags counts.
    folder, _ = _last_option(started.command, lines, _FOLDERS)
    name, name_place = _last_option(started.command, lines, _NAMES)
    if _UNKNOWN in (folder or "") or _UNKNOWN in (name or ""):
        return None  # a run decides it
    beside = tuple(value for value, _, _ in _options(started.command, lines, _FOLDERS_BESIDE) if _UNKNOWN not in value)
    options = HydraOptions(folder, name, beside)
    program = started.program
    config = loaded_config(program.name, program.place.file, started.command.folder, options)
    if config is None:
        return None
    if config.file is not None:
        return config.file
    in_usual_folder = options.folder is None or FilePath(options.folder).name == "config"
    is_own = in_usual_folder and config.name.removesuffix(".yaml") in program.configs
    if not is_own:
        place = program.place if name_place is None else name_place
        warnings.append(place.of(no_config(config.name, program.name)))
    return None


def _last_option(command: Command, lines: Sources, flags: Sequence[str]) -> tuple[str, Place] | tuple[None, None]:
    """Return the value of the last of these flags, and its place, if the command has any."""
    options = list(_options(command, lines, flags))
    return options[-1][:2] if options else (None, None)


def _ignored(token: _Token, started: _Started) -> Diagnostic:
    return token.key_place.of(ignored_flag(token.key, started.program.name))


def _differs(tokens: Sequence[_Token], other: _Started) -> str | None:
    """Return the first key to which another command gives another value."""
    values = {token.key: token.value for token in tokens}
    for token in other.tokens:
        if token.key in values and values[token.key] != token.value:
            return token.key
    return None


def _lost(command: Command, chosen: _Started, sources: Sources) -> Iterator[Diagnostic]:
    """Yield the warning of values that bash takes for a command, since the line before them ends the trainer's.

    A backslash continues a line only if nothing follows it, no blank and no comment either.
    """
    first = _text(command.fields[0]) if command.fields else ""
    if not (re.match(r"--[A-Za-z]", first) or (_override_of(first) and "." in first.partition("=")[0])):
        return
    overrides = [token for field in command.fields for token in _override(field, sources)]
    tokens = overrides or list(_flags(command.fields, sources))
    place: Place = sources.place(command.start, command.fields[0].end)
    yield place.of(own_command([token.key for token in tokens], chosen.program.name))


def _path(key: str) -> str:
    return path_text(tuple(key.split(".")))


def _skipped(cause: Cause, lines: Sources) -> Diagnostic:
    place: Place = lines.place(cause.start, cause.start + 1)
    return place.of(not_run(cause.text))


def _submitted(token: _Token, lines: Sources) -> Diagnostic:
    cause = token.submitted or Cause("", 0)
    place: Place = lines.place(cause.start, cause.start)
    warning = submitted_value(token.key, token.value, cause.text, place.line, FilePath(lines.file(0)).name)
    return token.value_place.of(replace(warning, path=_path(token.key)))


def _unknown(token: _Token, lines: Sources) -> Diagnostic:
    cause = token.causes[0]
    place: Place = lines.place(cause.start, cause.start)
    script = FilePath(lines.file(0)).name
    warning = unknown_value(token.key, cause.text, place.line, script, cause.variable or token.key)
    return token.value_place.of(replace(warning, path=_path(token.key)))

"""The program that a command starts, behind those that only start others: ``env``, ``srun``, ``ray job submit``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rankplan.frozen import frozen
from rankplan.read.text.shell.expand import Field, Piece

_PYTHON = re.compile(r"python[0-9.]*|pypy3?")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_RUNNERS = frozenset({"torchrun", "deepspeed", "accelerate", "uv", "torch.distributed.run", "torch.distributed.launch"})
"""Programs that run a module or a file of Python."""
_LAUNCHERS = _RUNNERS | {
    *("srun", "mpirun", "mpiexec", "ray", "docker", "podman", "apptainer", "singularity", "enroot", "conda", "mamba"),
    *("sbatch", "numactl", "taskset", "nsys", "py-spy", "kubectl", "modal", "sky", "pixi", "poetry", "pipenv", "hatch"),
}
_PROGRAMS = frozenset({"trl", "vllm"})
"""Programs of trainers that are words, and no option of a launcher has as its value."""
_PREFIXES = frozenset({"env", "nohup", "exec", "time", "timeout", "sudo", "command", "nice", "setsid", "stdbuf"})
"""Launchers whose program may be any word."""
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".sub")
"""The suffixes of scripts of a shell, and of batch scripts."""
_SUBCOMMANDS = {"ray": ("job", "submit"), "uv": ("run",), "accelerate": ("launch",), "conda": ("run",)}
_VALUED = frozenset({"-X", "-W", "-Q", "--check-hash-based-pycs"})
_VALUED_OF_UV = frozenset(
    (
        *("--extra", "--no-extra", "--group", "--no-group", "--only-group", "--with", "-w", "--with-editable"),
        *("--with-requirements", "--env-file", "--python", "-p", "--package", "--project", "--directory"),
        *("--index", "--index-url", "-i", "--extra-index-url", "--find-links", "-f", "--cache-dir", "--config-file"),
    )
)
"""Options of ``uv run`` that take the next word."""
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+", re.ASCII)
_OPERATORS = frozenset({"&&", "||", ";"})
"""Operators of a shell as words: the shell that reads them does not act on them."""
_OPERATOR = re.compile(r"&&|\|\||;")
_JOINED = re.compile(r"(&&|\|\||;)(.+)", re.DOTALL)
_WORD = re.compile(r"[^-0-9]")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)


@frozen
class Launched:
    """What a command starts: a ``program`` (a module, a path or a name; ``None``: unknown) with its arguments.

    ``kind`` is ``program``; or ``script`` for the path of a shell script, and ``text`` for the text of ``bash -c``,
    which is then the field ``text``. ``variables`` are those that ``env`` sets.
    """

    kind: str
    program: str | None
    arguments: tuple[Field, ...]
    text: Field | None = None
    variables: tuple[Field, ...] = ()


def launched(fields: Sequence[Field]) -> Launched:
    """Return what a command starts."""
    texts = [field.text for field in fields]
    variables: list[Field] = []
    position = 0
    while position < len(texts):
        name = _name(texts[position])
        if _PYTHON.fullmatch(name):
            launch = _python(fields, position + 1)
        elif name in _SHELLS:
            launch = _shell(fields, position + 1)
        elif (following := _inner(texts, position)) is None:
            kind = "script" if name.endswith(_SCRIPTS) else "program"
            launch = Launched(kind, texts[position], tuple(fields[position + 1 :]))
        elif texts[following] in ("-m", "--module"):
            launch = _module(fields, following)
        else:
            if name == "env":
                before = fields[position + 1 : following]
                variables += [field for field in before if _VARIABLE.fullmatch(field.text or "")]
            position = following
            continue
        return replace(launch, variables=tuple(variables))
    return Launched("program", None, tuple(fields))


def passed_on(arguments: Sequence[Field]) -> tuple[tuple[Field, ...], list[tuple[Field, ...]]]:
    """Return the arguments that a program reads itself, and the commands that it runs elsewhere: those after ``--``.

    They are commands if they start with a program, or with a word that only a run knows before a flag; if operators
    divide them that this shell has left alone: ``-- source x \\&\\& python y.py``; or if they are one word with the
    text of a shell: ``-- "python y.py"``. Otherwise all arguments are the program's own.
    """
    texts = [argument.text for argument in arguments]
    if "--" not in texts:
        return tuple(arguments), []
    end = texts.index("--")
    commands: list[list[Field]] = [[]]
    for argument in arguments[end + 1 :]:
        for word in _divided(argument):
            if word.text in _OPERATORS:
                commands.append([])
            elif commands[-1] or not _VARIABLE.fullmatch(word.text or ""):  # variables are before the program
                commands[-1].append(word)
    if len(commands) == 1 and not _is_command(commands[0]):
        return tuple(arguments), []
    return tuple(arguments[:end]), [tuple(command) for command in commands if command]


def _is_command(words: Sequence[Field]) -> bool:
    """Return whether words that operators do not divide are a command, and no arguments of the program before them."""
    if not words:
        return False
    if words[0].text is None and len(words) > 1:
        return any((word.text or "").startswith("--") for word in words)
    return _starts(words[0].text) or is_text(words)


def is_text(words: Sequence[Field]) -> bool:
    """Return whether words are one with the text of a shell, which starts a program."""
    if len(words) != 1:
        return False
    text = "".join(piece.text for piece in words[0].pieces)
    commands = [command.split() for command in _OPERATOR.split(text)]
    return any(len(command) > 1 and _starts(command[0]) for command in commands)


def _divided(argument: Field) -> list[Field]:
    """Split an operator from the word that it is joined to, as in ``;python``; return any other argument unchanged."""
    joined = _JOINED.fullmatch(argument.text or "")
    if joined is None:
        return [argument]
    return [replace(argument, pieces=(Piece(text, argument.start, argument.end),)) for text in joined.groups()]


def _name(text: str | None) -> str:
    return (text or "").rpartition("/")[2]


def _inner(texts: Sequence[str | None], position: int) -> int | None:
    """Return where the command starts that a launcher at ``position`` runs, or ``-m``; ``None`` if it runs none."""
    name = _name(texts[position])
    if name not in _LAUNCHERS and name not in _PREFIXES:
        return None
    subcommand = _SUBCOMMANDS.get(name, ())
    if tuple(texts[position + 1 : position + 1 + len(subcommand)]) != subcommand:
        return None
    if name == "uv":
        return _behind_uv(texts, position + 2)
    is_module = False
    for index in range(position + 1, len(texts)):
        text = texts[index]
        if text == "--":
            return _behind_variables(texts, index + 1)
        if text in ("-m", "--module") and name in _RUNNERS:
            following = texts[index + 1] if index + 1 < len(texts) else None
            if following is None or not following.startswith("-"):
                return index
            is_module = True  # a switch: the module follows other options
        if _is_program(name, text, texts[index - 1], is_module=is_module):
            return index
    return None


def _behind_variables(texts: Sequence[str | None], position: int) -> int | None:
    """Return where a command starts behind its variables (``ray job submit -- A=1 python x.py``), if it is there."""
    while position < len(texts) and _VARIABLE.fullmatch(texts[position] or ""):
        position += 1
    return position if position < len(texts) else None


def _is_program(launcher: str, text: str | None, before: str | None, *, is_module: bool) -> bool:
    """Return whether a word of a launcher, or of what stands before a command, is its program.

    ``before`` is the word before it. ``is_module``: an option tells that the program is a module.
    """
    if _starts(text):
        return True
    if launcher in _PREFIXES and text and not _VARIABLE.fullmatch(text) and text[0] not in "-0123456789":
        return True
    is_named = _name(text) in _PROGRAMS or bool(is_module and _MODULE.fullmatch(text or ""))
    return is_named and not _takes_value(before)


def _behind_uv(texts: Sequence[str | None], position: int) -> int | None:
    """Return where the command of ``uv run`` starts, or ``-m``; ``None`` if it runs none."""
    while position < len(texts):
        text = texts[position] or ""
        if text in ("-m", "--module"):
            return position
        if text == "--":
            return position + 1 if position + 1 < len(texts) else None
        if not text.startswith("-"):
            return position
        position += 2 if text in _VALUED_OF_UV else 1
    return None


def _takes_value(text: str | None) -> bool:
    """Return whether the next word may be the value of an option."""
    return text is not None and text.startswith("-") and "=" not in text


def _starts(text: str | None) -> bool:
    """Return whether a word is a program, and no option or value of a launcher."""
    name = _name(text)
    is_script = name.endswith((".py", *_SCRIPTS))
    return is_script or bool(_PYTHON.fullmatch(name)) or name in _SHELLS | _LAUNCHERS | _PREFIXES


def _module(fields: Sequence[Field], position: int) -> Launched:
    """Return the module after ``-m``, or the one that it launches."""
    name = fields[position + 1].text if position + 1 < len(fields) else None
    if name in _RUNNERS:
        return launched(fields[position + 1 :])
    following = fields[position + 2].text if position + 2 < len(fields) else None
    if name is not None and name.endswith(".launch") and following is not None and _MODULE.fullmatch(following):
        return Launched("program", following, tuple(fields[position + 3 :]))
    return Launched("program", name, tuple(fields[position + 2 :]))


def _python(fields: Sequence[Field], position: int) -> Launched:
    while position < len(fields):
        text = fields[position].text
        if text == "-m":
            return _module(fields, position)
        if text == "-c":
            return Launched("program", "python -c", ())
        if text is None or not text.startswith("-") or text == "-":
            return Launched("program", text, tuple(fields[position + 1 :]))
        position += 2 if text in _VALUED else 1
    return Launched("program", "python", ())


def _shell(fields: Sequence[Field], position: int) -> Launched:
    command = False
    while position < len(fields):
        text = fields[position].text
        if text is not None and re.fullmatch(r"[-+][A-Za-z]+", text):
            command = command or (text[0] == "-" and "c" in text)
            position += 2 if "o" in text else 1
        elif text is not None and text.startswith("--"):
            position += 1
        elif command:
            return Launched("text", None, tuple(fields[position + 1 :]), fields[position])
        else:
            return Launched("script", text, tuple(fields[position + 1 :]))
    return Launched("program", "bash", ())

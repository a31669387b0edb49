"""The programs that launch scripts start: the dialect that each belongs to, and whether it is a training job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol

from rankplan.errors import Diagnostic, KeyPath
from rankplan.frozen import frozen
from rankplan.guests.built_in import ASKED, DIALECTS, FORKS
from rankplan.guests.doors import Door, GuestError, Table
from rankplan.read.text.document import Source
from rankplan.read.text.places import Place, Places

JOB = ""

Way = Literal["words", "flags", "@", "file"]
"""How a program gets its values."""

_WORDS: tuple[tuple[str, str], ...] = (
    ("sft", "supervised fine-tuning (SFT)"),
    ("dpo kto orpo", "preference training (DPO)"),
    ("rm reward_model", "the training of a reward model"),
    ("eval evaluate evaluation evaluator", "evaluation"),
    ("generate generation generator infer inference", "generation only"),
    ("serve server serving launch_server api", "serving of a model"),
    (
        "data dataset datasets preprocess prepare process download convert converter merge merger",
        "preparation of data or checkpoints",
    ),
)
"""Words in the last name of a program of Python that no dialect has, and the task that they tell."""
_TRAINING = frozenset({"ppo", "grpo", "dapo", "gspo", "rloo", "reinforce", "rlhf", "rl", "rlvr", "agentic", "train"})


@frozen
class Program:
    """Programs of a system: what a script starts.

    ``pattern`` is a regular expression that matches the whole name: of a module, or of the path of a script with dots
    (``examples.run_grpo`` for ``examples/run_grpo.py``). ``task`` is a phrase for what they do if that is no job that
    rankplan places, such as ``evaluation``; ``is_rl``: it is an RL job all the same. ``tells``: a config of such a
    program is written in the dialect; otherwise its keys tell.

    A pattern with a blank matches a name and its first word: ``trl grpo``. ``takes`` says how the program gets values:
    ``words`` of Hydra, ``flags``, config files after ``@``, a config ``file`` as its first argument; empty: rankplan
    sees it. Values that it does not take are ignored, as the program ignores them. ``beside`` are the flags that count
    beside a config file after ``--config``, for a program that ignores all others there: each of these is a warning.
    ``part``: no job of its own, but a part of one with this name, such as a server beside the trainer; `Config.part`
    has its values. ``configs`` are the names of their Hydra configs, whose values are the defaults of the keys.
    ``released`` is a regular expression that matches the names of the system's own programs; a program with another
    name is read in the same way, with a warning.

    ``imports`` are regular expressions that must match the text of a Python program as well, if the program is in the
    repository of the script: users write their own programs, which import the system. Such a program is used only if no
    program that tells its system matches.
    """

    pattern: str
    task: str = JOB
    tells: bool = True
    is_rl: bool = False
    takes: tuple[Way, ...] = ()
    beside: tuple[str, ...] | None = None
    part: str = ""
    configs: tuple[str, ...] = ()
    released: str = ""
    imports: tuple[str, ...] = ()


class HasSections(Protocol):
    """What the reader of scripts uses of the keys of a dialect."""

    @property
    def known(self) -> Mapping[KeyPath, Any]:
        """The sections of the keys, by their paths."""


class HasPrograms(Protocol):
    """What the reader of scripts uses of a dialect."""

    @property
    def name(self) -> str:
        """The name of the dialect."""

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of the system; the first one whose pattern matches counts."""

    @property
    def trainer(self) -> str:
        """The program that starts its jobs, as messages name it."""

    @property
    def formats(self) -> Mapping[str, Any]:
        """The formats of its files besides YAML, by suffix."""

    @property
    def keys(self) -> HasSections:
        """The keys by which the system places."""


class _Owned(NamedTuple):
    """A program of a dialect."""

    dialect: HasPrograms
    program: Program


DIALECT_TABLE: Table[HasPrograms] = Table(Door.DIALECTS, object, DIALECTS)  # type: ignore[arg-type]  # a low room knows no type


@frozen
class StartedProgram:
    """A program that a script starts: its name as written, its dialect if that is known, and its task.

    ``task`` is `JOB` for a training job, a phrase for anything else, and ``None`` if the program is unknown.
    """

    name: str
    place: Place
    system: str | None = None
    dialect: str = ""
    """The dialect whose program it is, also if its keys tell the system."""
    task: str | None = None
    trainer: str = ""
    is_rl: bool = False
    takes: tuple[Way, ...] = ()
    beside: tuple[str, ...] | None = None
    part: str = ""
    configs: tuple[str, ...] = ()
    is_released: bool = True
    """Whether the system itself brings it, as far as that is known."""
    file: str = ""
    """Its file of Python, if it is in the repository of the script."""
    suffixes: tuple[str, ...] = ()
    """The suffixes of its config files besides those of YAML."""
    sections: frozenset[KeyPath] = frozenset()
    """The sections of its config that have keys of its dialect, for a program that takes files after ``@``."""
    otherwise: Diagnostic | None = None
    """The fault of the script if its values have the keys of no system."""

    @property
    def module(self) -> str:
        """The module, or the path of the script with dots: ``verl.trainer.main_ppo``."""
        return _module(self.name)

    @property
    def fault(self) -> Diagnostic:
        """The fault of a script whose program is no training job."""
        if not self.task and self.otherwise is not None:
            return self.otherwise
        other = "" if self.is_rl else ", not an RL job"
        message = f"`{self.name}` is {self.task}{other}: there is no component to place"
        reads = f"`{self.trainer}`" if self.trainer else "the trainer of a system"
        help = f"pass the script of a job: rankplan reads what a script passes to {reads}"
        return self.place.of(Diagnostic("no-components", message, help))


def started(source: Source | None) -> StartedProgram | None:
    """Return the program that a script passes its values to, ``None`` if they come from no script."""
    program: StartedProgram | None = source.program if isinstance(source, Places) else None
    return program


def _module(name: str) -> str:
    return re.sub(r"^(\.{0,2}/)+|\.py$", "", name).replace("/", ".")


def program_of(
    name: str,
    place: Place,
    *,
    word: str = "",
    guests: bool = False,
    text: Callable[[], str | None] = lambda: None,
) -> StartedProgram:
    """Return the program with this module, path or name, and this first word, with ``guests`` also a guest's.

    ``text`` returns the text of the program, ``None`` if it is not in the repository of its script.
    """
    program = _matching(_built_in(), name, word, place)
    if program is None and guests:
        program = _matching(_of_guests(), name, word, place)
    if (program is None or program.system is None) and any(owned.program.imports for owned in _built_in()):
        content = text()
        if content is not None:
            program = _matching(_importing(content), name, word, place, imported=True) or program
    return StartedProgram(name, place, task=_task_of(name)) if program is None else program


def _importing(text: str) -> Sequence[_Owned]:
    """Return the programs whose systems a program of Python with this text imports."""
    return [
        owned
        for owned in _built_in()
        if owned.program.imports and all(re.search(pattern, text, re.MULTILINE) for pattern in owned.program.imports)
    ]


def _matching(
    programs: Sequence[_Owned], name: str, word: str, place: Place, *, imported: bool = False
) -> StartedProgram | None:
    """Return the first of these programs whose pattern matches."""
    dotted = _module(name)
    for dialect, program in programs:
        if program.imports and not imported:
            continue
        has_word = " " in program.pattern
        if re.fullmatch(program.pattern, f"{dotted} {word}" if has_word else dotted):
            return StartedProgram(
                name=f"{name} {word}" if has_word else name,
                place=place,
                system=dialect.name if program.tells else None,
                dialect=dialect.name,
                task=program.task,
                trainer=dialect.trainer,
                is_rl=program.is_rl,
                takes=program.takes,
                beside=program.beside,
                part=program.part,
                configs=program.configs,
                is_released=not program.released or re.fullmatch(program.released, dotted) is not None,
                suffixes=tuple(dialect.formats),
                sections=frozenset(dialect.keys.known if "@" in program.takes else ()),
            )
    return None


@cache
def _built_in() -> Sequence[_Owned]:
    """Return the programs of rankplan's own dialects, those of a fork before those of its parent."""
    names = [name for asked in ASKED for name in (*FORKS.get(asked, ()), asked)]
    return _in_order(DIALECT_TABLE[name] for name in names)


def _of_guests() -> Sequence[_Owned]:
    """Return the programs of guests; one whose code fails is reported when its dialect is asked."""
    dialects: list[HasPrograms] = []
    for guest, dialect in DIALECT_TABLE.loaded().guests.items():
        with suppress(GuestError), guest.running():
            for program in dialect.programs:
                re.compile(program.pattern)
            dialects.append(dialect)
    return _in_order(dialects)


def _in_order(dialects: Iterable[HasPrograms]) -> Sequence[_Owned]:
    """Return the programs of dialects. Those that tell are first: they are known by more than their last name."""
    programs = [_Owned(dialect, program) for dialect in dialects for program in dialect.programs]
    return sorted(programs, key=lambda owned: not owned.program.tells)


def _task_of(name: str) -> str | None:
    """Return the task of a program of Python by the words of its last name, ``None`` if they tell none."""
    last = _module(name).rpartition(".")[2].lower()
    parts = set(re.split(r"[_\W]+", last))
    is_python = name.endswith(".py") or re.fullmatch(r"\w+(\.\w+)+", name)
    if not is_python or parts & _TRAINING:
        return None
    for words, task in _WORDS:
        if any(word in parts or word == last for word in words.split()):
            return task
    return None

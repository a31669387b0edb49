"""The programs of a job that a launch script starts: each with its launcher, its environment, its node and its values.

Most trainers are one program. Others are several, such as a trainer and an inference server beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from rankplan.errors import Where
from rankplan.frozen import frozen
from rankplan.read.text.document import Section


@frozen
class CommandWord:
    """A word of a command, or a variable: its text, ``None`` if only a run knows it; its place; and why it is unknown.

    ``shown`` is the text with ``...`` for what is unknown. ``nodes`` are the nodes of the Slurm job that it names, as
    positions in the list of the job. ``variable`` is the one of the environment that decides it.
    """

    text: str | None
    where: Where
    shown: str = ""
    nodes: tuple[int, ...] = ()
    variable: str = ""


@frozen(slots=False)
class Started:
    """A program of a job, as a launch script starts it.

    ``name`` is the program as written, ``part`` its part of the job (`Program.part`), empty for the trainer. ``launch``
    are the words before its arguments: those of launchers, and the program itself. ``around`` are the words of the
    commands whose text starts it (``srun bash -c "..."``), the outer one first. ``variables`` are those of its
    environment that the script sets. ``values`` are its config file with its flags, whose place is ``where``.
    ``folder`` is the one that the script has changed to. ``is_main``: its values are those of the config.
    """

    name: str
    where: Where
    values: Section
    part: str = ""
    launch: tuple[CommandWord, ...] = ()
    arguments: tuple[CommandWord, ...] = ()
    around: tuple[tuple[CommandWord, ...], ...] = ()
    variables: Mapping[str, CommandWord] = field(default_factory=dict)
    folder: str = ""
    is_main: bool = False

    @classmethod
    def of_words(cls, where: Where, *words: str, arguments: Sequence[str] = ()) -> Started:
        """Return a program that no script starts: its words, then its arguments. ``where`` is what states it."""
        launch = tuple(CommandWord(text, where, text) for text in words)
        own = tuple(CommandWord(text, where, text) for text in arguments)
        return cls(words[-1], where, {}, launch=launch, arguments=own)  # type: ignore[arg-type]  # no file has it

    @property
    def launchers(self) -> Sequence[Sequence[CommandWord]]:
        """The words of the launchers, those around the command first."""
        return (*self.around, self.launch)

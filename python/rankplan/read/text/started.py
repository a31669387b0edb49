"""The programs of a job that a launch script starts: each with its launcher, its environment, its node and its values.

Most trainers are one program. Others are several, such as a trainer and an inference server beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from rankplan.errors import Where
from rankplan.frozen import frozen
from rankplan.read.text.document import Section


@frozen(slots=False)
class Started:
    """A program of a job, as a launch script starts it.

    ``name`` is the program as written, ``part`` its part of the job (`Program.part`), empty for the trainer. ``launch``
    are the words before its arguments: those of launchers, and the program itself. ``around`` are the words of the
    commands whose text starts it (``srun bash -c "..."``), the outer one first. ``variables`` are those of its
    environment that the script sets. ``values`` are its config file with its flags, whose place is ``where``.
    ``folder`` is the one that the script has changed to. ``is_main``: its values are those of the config.
    """

    @frozen
    class Word:
        """A word of a command, or a variable: its text, ``None`` if only a run knows it, and its place.

        ``shown`` is the text with ``...`` for what is unknown. ``nodes`` are the nodes of the Slurm job that it names,
        as positions in the list of the job. ``variable`` is the one of the environment that decides it.
        """

        text: str | None
        where: Where
        shown: str = ""
        nodes: tuple[int, ...] = ()
        variable: str = ""

    name: str
    where: Where
    values: Section
    part: str = ""
    launch: tuple[Word, ...] = ()
    arguments: tuple[Word, ...] = ()
    around: tuple[tuple[Word, ...], ...] = ()
    variables: Mapping[str, Word] = field(default_factory=dict)
    folder: str = ""
    is_main: bool = False

    @property
    def launchers(self) -> Sequence[Sequence[Word]]:
        """The words of the launchers, those around the command first."""
        return (*self.around, self.launch)


CommandWord: TypeAlias = Started.Word
"""A word of a command; trainers call it by the class that has it."""

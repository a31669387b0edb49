"""A command of a job that starts processes without Ray: what its launcher starts, and the same on a plan's nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankplan.dialects.launching import launcher, node_commands, steps
from rankplan.dialects.launching.flags import Flags
from rankplan.dialects.launching.processes import Processes
from rankplan.errors import Faults, Where
from rankplan.plans.node_command import NodeCommand
from rankplan.read.text.started import Started


class Command:
    """The command of a program that a launch script starts. ``faults`` collects what is wrong with it."""

    def __init__(self, program: Started, faults: Faults) -> None:
        self.program = program
        self.faults = faults

    @staticmethod
    def without_script(where: Where, *words: str, arguments: Sequence[str] = ()) -> Started:
        """Return a program that no script starts: its words, then its arguments. ``where`` is what states it."""
        launch = tuple(Started.Word(text, where, text) for text in words)
        own = tuple(Started.Word(text, where, text) for text in arguments)
        return Started(words[-1], where, {}, launch=launch, arguments=own)  # type: ignore[arg-type]  # no file has it

    def processes(self) -> Processes | None:
        """Return the processes that accelerate, torchrun or Python starts, ``None`` if the command has no launcher."""
        return launcher.processes_of(self.program, self.faults)

    def accelerated(self, flags: Flags, files: Mapping[str, Mapping[str, Any]] = launcher.NO_FILES) -> Processes:
        """Return the processes of a system that passes these flags to accelerate itself.

        One of the flags may name the file of accelerate. ``files`` are those that the system brings, by their names.
        """
        return launcher.accelerated(flags, self.program, self.faults, self.program.where, files)

    def step(self) -> steps.Step | None:
        """Return the step of Slurm that starts the program, ``None`` if ``srun`` does not."""
        return steps.step_of(self.program, self.faults)

    def on_nodes(
        self,
        components: Sequence[str],
        processes: Processes | None = None,
        *,
        inside: Sequence[str] = (),
        serves: bool = False,
        flags: Mapping[str, str] = node_commands.NO_FLAGS,
        variables: Mapping[str, str] = node_commands.NO_FLAGS,
    ) -> NodeCommand:
        """Return the command that starts these components as this one does, with the numbers of any plan.

        ``processes`` are those that its launcher starts, ``None`` for a program without a launcher. ``inside`` are
        components in the processes of these; a program that ``serves`` ends with the others. ``flags`` are those of the
        program that get other values, by their names, as do ``variables`` of its environment; values are words of a
        `NodeCommand`. Words that only a run knows are faults; variables that only a run knows, or that may be secrets,
        are left out with a warning.
        """
        parts = node_commands.parts_of(self.program, processes)
        words = node_commands.words_of(parts, flags, self.faults)
        return NodeCommand(
            components=tuple(components),
            words=tuple(words),
            inside=tuple(inside),
            variables={**dict(node_commands.variables_of(self.program, variables, self.faults)), **variables},
            folder=self.program.folder or None,
            serves=serves,
        )

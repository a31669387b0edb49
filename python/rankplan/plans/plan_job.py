"""What the job of a plan states besides its placement: for later commands, which have no job file any more."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory

if TYPE_CHECKING:  # few plans have commands
    from rankplan.plans.node_command import NodeCommand

BASE, TO = "base", "to"
"""The options of ``rankplan emit`` that are a path, and the name of the launcher."""


@frozen
class PlanJob:
    """What a job file states that decides nothing about the processes of its plan.

    ``file`` is the name of the trainer's file, without its folder, and ``digest`` its SHA-256 digest. ``overrides`` are
    those of its config, ``command`` is the trainer's own. ``emit`` are the options of ``rankplan emit`` by their long
    names: texts, numbers and switches, but no content of a file. ``commands`` are those that start the processes of a
    trainer without Ray, each once on every node of its components. ``spares`` are the other nodes that it may use, if
    its plan has only those that its trainer counts; ``None`` without any.

    The path of a base is relative to the working directory. In the file of a plan, it is relative to that file, and an
    absolute one is left out.
    """

    file: str | None = None
    digest: str | None = None
    overrides: tuple[str, ...] = ()
    command: str | None = None
    emit: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[NodeCommand, ...] = ()
    spares: Inventory | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PlanJob:
        """Return the job of a plan whose file the core has read."""
        commands: tuple[NodeCommand, ...] = ()
        if stated := values.get("commands"):
            from rankplan.plans.node_command import NodeCommand

            commands = tuple(map(NodeCommand.of, stated))
        nodes = values.get("spares")
        spares = None if nodes is None else Inventory.from_dict({"nodes": nodes})
        overrides = tuple(values.get("overrides", ()))
        return cls(**{**values, "overrides": overrides, "commands": commands, "spares": spares})

    def with_level_labels(self, labels: Mapping[str, str]) -> PlanJob:
        """Return the same with node labels by level, as the option ``--level`` states them; stated ones stay."""
        stated = self.emit.get("level")
        levels = {**labels, **(stated if isinstance(stated, Mapping) else {})}
        return replace(self, emit={**self.emit, "level": levels})

    def written_in(self, folder: Path) -> PlanJob:
        """Return what a file in a folder states: paths are relative to it."""
        return self._with_base(lambda base: base if Path(base).is_absolute() else os.path.relpath(base, folder))

    def read_in(self, folder: Path) -> PlanJob:
        """Return what a file in a folder states, with paths relative to the working directory."""
        return self._with_base(lambda base: os.path.normpath(folder / base))

    def without_base(self) -> PlanJob:
        """Return the same without the path of a base."""
        return replace(self, emit={key: value for key, value in self.emit.items() if key != BASE})

    def without_spares(self) -> PlanJob:
        """Return the same without spares."""
        return replace(self, spares=None)

    def _with_base(self, path: Callable[[str], str]) -> PlanJob:
        base = self.emit.get(BASE)
        return replace(self, emit={**self.emit, BASE: path(base)}) if isinstance(base, str) else self

    def plain(self) -> dict[str, Any]:
        """Return what is stated, by its key."""
        stated = {
            "file": self.file,
            "digest": self.digest,
            "overrides": list(self.overrides),
            "command": self.command,
            "commands": [command.plain() for command in self.commands],
            "spares": None if self.spares is None else self.spares.core.described(),
            "emit": {key: value for key, value in self.emit.items() if key != BASE or not _is_absolute(value)},
        }
        return {key: value for key, value in stated.items() if value not in (None, [], {})}

    def __reduce__(self) -> tuple[Any, ...]:
        stated = self.file, self.digest, self.overrides, self.command, dict(self.emit), self.commands, self.spares
        return PlanJob, stated


def _is_absolute(path: Any) -> bool:
    return isinstance(path, str) and Path(path).is_absolute()

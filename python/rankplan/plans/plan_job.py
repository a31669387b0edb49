"""What the job of a plan states besides its placement: for later commands, which have no job file any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from rankplan.frozen import frozen


@frozen
class PlanJob:
    """What a job file states that decides nothing about the processes of its plan.

    ``file`` is the name of the trainer's file, without its folder, and ``digest`` its SHA-256 digest. ``overrides`` are
    those of its config, ``command`` is the trainer's own. ``emit`` are the options of ``rankplan emit`` by their long
    names: texts, numbers and switches, but no content of a file. A file of the plan has no absolute path of a base.
    """

    file: str | None = None
    digest: str | None = None
    overrides: tuple[str, ...] = ()
    command: str | None = None
    emit: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PlanJob:
        """Return the job of a plan whose file the core has read."""
        return cls(**{**values, "overrides": tuple(values.get("overrides", ()))})

    def with_level_labels(self, labels: Mapping[str, str]) -> PlanJob:
        """Return the same with node labels by level, as the option ``--level`` states them; stated ones stay."""
        stated = self.emit.get("level")
        levels = {**labels, **(stated if isinstance(stated, Mapping) else {})}
        return replace(self, emit={**self.emit, "level": levels})

    def plain(self) -> dict[str, Any]:
        """Return what is stated, by its key."""
        stated = {
            "file": self.file,
            "digest": self.digest,
            "overrides": list(self.overrides),
            "command": self.command,
            "emit": {key: value for key, value in self.emit.items() if key != "base" or not Path(value).is_absolute()},
        }
        return {key: value for key, value in stated.items() if value not in (None, [], {})}

    def __reduce__(self) -> tuple[Any, ...]:
        return PlanJob, (self.file, self.digest, self.overrides, self.command, dict(self.emit))

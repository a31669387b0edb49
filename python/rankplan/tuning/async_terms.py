"""What costs state of an asynchronous run: its rule, its terms, and whole runs that were measured."""

from __future__ import annotations

from enum import Enum
from typing import Any

from rankplan.frozen import frozen

MEAN_SHARE = 0.35
"""The mean length of a response as a part of the longest, if neither is stated."""

PARTS_EXCEED = 1.1
"""The parts of a step must not take longer than this many times the step."""


class Rule(Enum):
    """What the trainer waits for, and whether generation may run ahead of the weights of its step."""

    STREAM = "stream"
    BATCH = "batch"
    PARTIAL = "partial"
    WHOLE = "whole"
    CONTINUOUS = "continuous"
    TURNS = "turns"
    LEND = "lend"

    @property
    def has_levels(self) -> bool:
        """Whether the seconds of a step depend on the staleness."""
        return self in (Rule.PARTIAL, Rule.WHOLE)

    @property
    def level(self) -> float | None:
        """The staleness that the rule fixes, ``None`` if it fixes no value."""
        return {Rule.STREAM: 0.0, Rule.BATCH: 1.0}.get(self)


@frozen(slots=False)
class AsyncTerms:
    """The terms of an asynchronous run; ``None`` is not stated.

    ``trainer`` and ``rollout`` are the names of the two components. ``levels`` are the numbers of batches that
    generation may run ahead; ``None`` is the one level of a rule without staleness. ``samples`` are the responses of a
    batch, ``mean`` and ``longest`` their lengths. ``sync`` are the seconds in which the trainer waits for the weights
    to be sent, ``switch`` those of both switches of lent accelerators.
    """

    rule: Rule
    trainer: str
    rollout: str
    levels: tuple[float | None, ...]
    samples: int | None = None
    mean: float | None = None
    longest: float | None = None
    sync: float | None = None
    switch: float | None = None

    @property
    def mean_share(self) -> float:
        """The mean length of a response as a part of the longest one."""
        if self.mean is None or self.longest is None:
            return MEAN_SHARE
        return self.mean / self.longest

    def plain(self) -> dict[str, Any]:
        """Return the mapping in a costs file."""
        levels = [level for level in self.levels if level is not None]
        values = {
            "staleness": levels[0] if len(levels) == 1 else levels,
            "rule": self.rule.value,
            "samples": self.samples,
            "mean": self.mean,
            "max": self.longest,
            "sync": self.sync,
            "switch": self.switch,
        }
        return {key: value for key, value in values.items() if value not in (None, [])}


@frozen(slots=False)
class MeasuredRun:
    """A whole run: the seconds of a step on a number of accelerators, and those of its parts; ``None``: not stated.

    A colocated run has the seconds of ``generation`` and of ``training``. A run on separate accelerators has a
    ``split``, the accelerators of trainer and rollout, its ``staleness``, and ``wait``, the seconds of a step in which
    the trainer has no samples. ``lends``: its trainer lends accelerators while it waits.
    """

    accelerators: int
    step: float
    split: tuple[int, int] | None = None
    staleness: float | None = None
    generation: float | None = None
    training: float | None = None
    wait: float | None = None
    lends: bool = False

    @property
    def has_parts(self) -> bool:
        """Whether the seconds of training, and those of generation or of waiting for it, are known."""
        if self.split is None:
            return self.generation is not None and self.training is not None
        return self.wait is not None or self.training is not None

    @property
    def trained(self) -> float | None:
        """The seconds in which the trainer of a run on separate accelerators trains."""
        if self.training is not None or self.wait is None:
            return self.training
        return max(self.step - self.wait, 0.0)

    @property
    def parts(self) -> float:
        """The seconds of all parts that are stated, none of which overlap."""
        return (self.generation or 0.0) + (self.training or 0.0) + (self.wait or 0.0)

    def plain(self, trainer: str, rollout: str) -> dict[str, Any]:
        """Return the entry of ``runs`` in a costs file."""
        if self.split is None:
            values: dict[str, Any] = {"cards": self.accelerators, "step": self.step}
            values |= {rollout: self.generation, trainer: self.training}
        else:
            values = {trainer: self.split[0], rollout: self.split[1], "staleness": self.staleness, "step": self.step}
            values |= {"wait": self.wait, "train": self.training, "lend": self.lends or None}
        return {key: value for key, value in values.items() if value is not None}

"""Lending: accelerators of the trainer generate while the trainer waits for samples.

`lending_seconds` is the formula: for the list of ``rankplan tune --lend``, and for any other model of a run whose
trainer lends its accelerators.
"""

from __future__ import annotations

from typing import NamedTuple

from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.tuning.costs import Costs
from rankplan.tuning.faults import lends_to_itself, no_lender, no_switch, not_two_components
from rankplan.words import unknown


@frozen(slots=False)
class Split:
    """A trainer and a rollout beside each other, and what a step asks of them.

    ``generation`` are the accelerator-seconds that the rollout needs for a step, ``training`` the seconds of the
    trainer, ``switch`` the seconds of both switches, to the rollout and back. A lent accelerator generates ``speed``
    times as much as one of the rollout. ``ahead`` is the part of the next step's generation that may come before this
    step's weights: 0 on policy, 1 one step stale.
    """

    trainer: int
    rollout: int
    generation: float
    training: float
    switch: float
    speed: float = 1.0
    ahead: float = 0.0


class StepSeconds(NamedTuple):
    """Seconds of a step if the trainer keeps its accelerators, and if it lends them while it waits."""

    without: float
    lending: float


def lending_seconds(split: Split) -> StepSeconds:
    """Return the seconds of a step, without lending and with it.

    While the trainer trains, the rollout generates what it may of the next step, alone. The trainer waits for what is
    then left. If it lends its accelerators, the rollout goes on alone for the time of both switches, and all of them
    generate the rest together.
    """
    early = min(split.ahead * split.generation, split.rollout * split.training)
    left = max(0.0, split.generation - early)
    shared = max(0.0, left - split.rollout * split.switch)
    return StepSeconds(
        without=split.training + left / split.rollout,
        lending=split.training + split.switch + shared / (split.rollout + split.speed * split.trainer),
    )


@frozen(slots=False)
class LendingTerms:
    """Who lends to whom, and on which terms. ``assumptions`` says in words what the seconds of a step rest on."""

    trainer: str
    rollout: str
    switch: float
    speed: float
    ahead: float
    assumptions: tuple[str, ...]

    def split(self, sizes: dict[str, int], seconds: dict[str, float]) -> Split:
        """Return the split with these accelerators and seconds of the trainer and the rollout."""
        accelerators = sizes[self.rollout]
        return Split(
            sizes[self.trainer],
            accelerators,
            seconds[self.rollout] * accelerators,
            seconds[self.trainer],
            self.switch,
            self.speed,
            self.ahead,
        )


def lending_terms(costs: Costs) -> LendingTerms:
    """Return the terms that the costs state under ``lend``, completed from their other keys.

    Raises `PlacementError` unless exactly two components have times, if nothing tells which of them is the trainer, and
    if the seconds of the switches are missing.
    """
    if len(costs.components) != 2:
        raise PlacementError([costs.located(("components",), not_two_components(list(costs.components)))])
    trainer, rollout = _pair(costs)
    stated = costs.lend
    speed = 1.0 if stated.speed is None else stated.speed
    ahead = float(costs.stale) if stated.ahead is None else stated.ahead
    switch, source = _switch(costs, trainer, rollout)
    unstated = "" if stated.speed is not None else " (`speed` is not stated)"
    assumptions = (
        f"the switches to {rollout} and back take {switch:g} s together ({source})",
        f"a lent accelerator generates {speed:g} times as much as one of {rollout}{unstated}",
        _ahead_text(ahead),
        "there are so many samples that all accelerators are busy to the end of a generation",
    )
    return LendingTerms(trainer, rollout, switch, speed, ahead, assumptions)


def _switch(costs: Costs, trainer: str, rollout: str) -> tuple[float, str]:
    """Return the seconds of both switches, and where they are stated."""
    if costs.lend.switch is not None:
        return costs.lend.switch, "`lend.switch`"
    stated = {name: costs.components[name].switch for name in (trainer, rollout)}
    seconds = [each for each in stated.values() if each is not None]
    if not seconds:
        raise PlacementError([costs.located(("lend",), no_switch(trainer, rollout))])
    names = [name for name, each in stated.items() if each is not None]
    return sum(seconds), f"`switch` of {' and '.join(names)}"


def _ahead_text(ahead: float) -> str:
    if ahead == 0:
        return "nothing is generated before the weights of its step (`ahead: 0`)"
    if ahead >= 1:
        return f"a whole generation may run ahead of the weights of its step (`ahead: {ahead:g}`)"
    return f"{ahead:.0%} of a generation may run ahead of the weights of its step (`ahead: {ahead:g}`)"


def _pair(costs: Costs) -> tuple[str, str]:
    """Return the component that lends and the one that borrows: stated, or the ends of a transfer, or of ``after``."""
    names, stated = list(costs.components), costs.lend
    for key, name in (("from", stated.trainer), ("to", stated.rollout)):
        if name is not None and name not in names:
            raise PlacementError([costs.located(("lend", key), unknown("component", name, names, "with times are"))])
    if stated.trainer is not None and stated.trainer == stated.rollout:
        raise PlacementError([costs.located(("lend", "to"), lends_to_itself(stated.trainer))])
    trainer = stated.trainer
    if trainer is None and stated.rollout is not None:
        trainer = _other(names, stated.rollout)
    if trainer is None:
        waiting = [name for name in names if set(costs.after.get(name, ())) & set(names)]
        trainer = next(iter([*(sync.sender for sync in costs.syncs), *waiting]), None)
    if trainer is None:
        raise PlacementError([costs.located((), no_lender(names))])
    return trainer, _other(names, trainer)


def _other(names: list[str], name: str) -> str:
    return names[1] if names[0] == name else names[0]

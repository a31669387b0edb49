"""Published runs of reinforcement learning (``measured_runs``) as costs, and what the model says about each."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any, NamedTuple

from rankplan import Costs, Inventory, SplitTime
from rankplan.tuning.splits import Known, search_splits

from support.goldens import lines

Row = dict[str, Any]

ROWS: dict[str, Row] = {row["id"]: row for row in lines("measured_runs")}
EMPTY = {"rollout": {}, "actor": {}}
RESPONSES = 16
"""Responses of a prompt where the page does not say; ten times as many change a step by less than 2 %."""

_RULES = {"stream": "stream", "colocated-async": "turns", "bounded-age": "whole", "async-switch": "lend"}


class Prediction(NamedTuple):
    """A published run, and the row that follows from another run, or from several."""

    row: Row
    result: SplitTime

    @property
    def measured(self) -> float:
        """The published seconds of a step."""
        return float(self.row["step_seconds"])

    @property
    def inside(self) -> bool:
        """Whether the published seconds are inside the range."""
        return self.result.low <= self.measured <= self.result.high

    @property
    def error(self) -> float:
        """The error of the predicted seconds, as a share of the published ones."""
        return abs(self.result.seconds / self.measured - 1)

    @property
    def has_parts(self) -> bool:
        """Whether the other run has the seconds of generation and training."""
        published = ROWS[self.row["reference"]]["published"]
        return "update_actor_s" in published or "wait_s" in published

    @property
    def is_of_its_own(self) -> bool:
        """Whether the page has nothing to say against the row: no doubt, no other cause, no second average of a run."""
        return self.row["note"] is None or "step = total / steps" in self.row["note"]


def rule_of(row: Row) -> str:
    """Return the rule of an asynchronous run."""
    return _RULES.get(row["mode"]) or ("partial" if row["partial_rollout"] else "continuous")


def run_of(row: Row) -> Row:
    """Return the entry of ``runs`` for a published run."""
    published = row["published"]
    if row["split"] is None:
        run = {"cards": row["cards"], "step": row["step_seconds"]}
        if "gen_s" in published:
            run |= {"rollout": published["gen_s"], "actor": published["update_actor_s"]}
        return run
    run = {"actor": row["split"]["trainer"], "rollout": row["split"]["rollout"], "step": row["step_seconds"]}
    parts = {"wait": published.get("gen_s", published.get("wait_s")), "train": published.get("update_actor_s")}
    run |= {"staleness": row["staleness"], **parts}
    return {key: value for key, value in run.items() if value is not None}


def costs_for(row: Row, references: list[Row]) -> Costs:
    """Return the costs of somebody who has measured the references, and asks about a row."""
    rule = rule_of(row)
    terms: dict[str, Any] = {"rule": rule}
    if rule in ("partial", "whole"):
        terms["staleness"] = row["staleness"]
    batch, lengths = row["batch"] or {}, references[0]["lengths"] or {}
    if rule == "partial":
        prompts = batch.get("prompts", 1)
        terms["samples"] = prompts * batch.get("samples", RESPONSES)
    if lengths.get("mean") and lengths.get("max"):
        terms |= {"mean": lengths["mean"], "max": lengths["max"]}
    if rule == "lend":
        terms["switch"] = row["published"]["to_rollout_s"] + row["published"]["to_trainer_s"]
    content = {"async": terms, "runs": [run_of(reference) for reference in references], "components": EMPTY}
    if row["split"] is not None:
        content["unit"] = gcd(*row["split"].values())
    return Costs.from_dict(content | {"batches": row["chunks"] or 1})


def predicted(row: Row, references: list[Row]) -> Prediction:
    """Return what follows from the references about a row."""
    tuning = search_splits(costs_for(row, references), Inventory.uniform(1, row["cards"]), extrapolate=True)
    split = None if row["split"] is None else (row["split"]["trainer"], row["split"]["rollout"])
    [result] = [result for result in tuning.rows if result.split == split and result.known is not Known.MEASURED]
    return Prediction(row, result)


def guesses() -> Iterator[Prediction]:
    """Yield every published run that is compared with another one, as a guess from that one alone."""
    for row in ROWS.values():
        if row["reference"] is not None and row["mode"] not in ("async-switch",):
            yield predicted(row, [ROWS[row["reference"]]])


NEAR = {
    "7b-64:64-s0.1": ("7b-64:64-s0", "7b-64:64"),
    "7b-64:64-s0.3": ("7b-64:64-s0", "7b-64:64"),
    "7b-32:32": ("7b-16:16", "7b-64:64"),
    "omni-2+1-switch": ("omni-2+1",),
    **{
        f"marin-{branch}-s{level}": (f"marin-{branch}-s0", f"marin-{branch}-s4")
        for branch in ("main", "branch")
        for level in (1, 2, 3)
    },
}
"""The published runs that are near to measured ones, with these."""


def near() -> Iterator[Prediction]:
    """Yield every published run that is near to others, as a row that follows from them."""
    for name, references in NEAR.items():
        yield predicted(ROWS[name], [ROWS[reference] for reference in references])

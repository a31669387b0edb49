"""The ``async`` and ``runs`` of a costs file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rankplan.errors import Diagnostic, KeyPath
from rankplan.read.text.reader import Reader
from rankplan.tuning.async_terms import PARTS_EXCEED, AsyncTerms, MeasuredRun, Rule
from rankplan.tuning.faults import (
    half_of_lengths,
    mean_exceeds,
    no_rule,
    no_runs,
    no_samples,
    no_staleness,
    no_step,
    no_trainer,
    no_waiting_run,
    not_accelerators,
    not_trainer_and_rollout,
    one_part,
    only_separate,
    parts_exceed_step,
)
from rankplan.tuning.models import AsyncModel, RunModel, run_model, validated
from rankplan.tuning.roles import ROLLOUT, TRAINER, stage_of
from rankplan.words import must_be

_ASYNC: KeyPath = ("async",)
_RUNS: KeyPath = ("runs",)


def trainer_and_rollout(
    names: Sequence[str], after: Mapping[str, Sequence[str]], lender: str | None
) -> tuple[str, str] | Diagnostic:
    """Return which of two components trains and which generates, or the fault of those that do not tell.

    That is stated by the one that lends or the one that waits for the other, or else by their names.
    """
    if len(names) != 2:
        return not_trainer_and_rollout(names)
    first, second = names
    trainers = [lender, *(name for name in names if set(after.get(name, ())) & set(names))]
    trainers += [name for name in names if stage_of(name) == TRAINER]
    rollouts = [name for name in names if stage_of(name) == ROLLOUT]
    trainers += [other for other, name in ((first, second), (second, first)) if name in rollouts]
    trainer = next((name for name in trainers if name in names), None)
    if trainer is None:
        return no_trainer(names)
    return trainer, second if trainer == first else first


class RunReader:
    """Reads the terms of an asynchronous run, and the runs that were measured."""

    def __init__(self, reader: Reader, trainer: str, rollout: str) -> None:
        self._reader, self._trainer, self._rollout = reader, trainer, rollout

    def terms(self, content: Any) -> AsyncTerms | None:
        """Return the terms in ``async``; ``None`` if they have faults, which are recorded."""
        if not isinstance(content, Mapping):
            help = "write {rule: partial, staleness: 0.5, samples: 8192}"
            self._reader.add(_ASYNC, must_be("`async`", content, "a mapping", help))
            return None
        model = validated(AsyncModel, content, _ASYNC, self._reader.add)
        if model is None:
            return None
        faults = list(_faults(model))
        for fault in faults:
            self._reader.add(_ASYNC, fault)
        if faults or model.rule is None:
            return None
        levels: list[float | None] = [*(model.staleness or [])] or [model.rule.level]
        if model.rule in (Rule.TURNS, Rule.LEND, Rule.CONTINUOUS):
            levels = [None]
        return AsyncTerms(
            model.rule,
            self._trainer,
            self._rollout,
            tuple(levels),
            model.samples,
            model.mean,
            model.max,
            model.sync,
            model.switch,
        )

    def runs(self, content: Any, terms: AsyncTerms | None) -> tuple[MeasuredRun, ...]:
        """Return the runs in ``runs``; every fault is recorded."""
        if content is None or content == []:
            self._reader.add(_ASYNC, no_runs())
            return ()
        if not isinstance(content, list):
            self._reader.add(_RUNS, must_be("`runs`", content, "a list of runs", "write - {cards: 64, step: 365}"))
            return ()
        runs: list[MeasuredRun] = []
        for index, entry in enumerate(content):
            runs += self._run(entry, (*_RUNS, index), terms)
        waits = any(run.split is not None and run.wait is not None and not run.lends for run in runs)
        if terms is not None and terms.rule is Rule.LEND and len(runs) == len(content) and not waits:
            self._reader.add(_ASYNC, no_waiting_run())
        return tuple(runs)

    def _run(self, entry: Any, path: KeyPath, terms: AsyncTerms | None) -> Iterator[MeasuredRun]:
        """Yield the run of an entry, unless it has faults."""
        if not isinstance(entry, Mapping):
            self._reader.add(path, must_be("a run", entry, "a mapping", "write {cards: 64, step: 365}"))
            return
        model = validated(run_model(self._trainer, self._rollout), entry, path, self._reader.add)
        if model is None:
            return
        faults = list(self._colocated_faults(model) if model.cards is not None else self._separate_faults(model))
        if model.step is None:
            faults.append(no_step("`step`, the seconds of a step"))
        for fault in faults:
            self._reader.add(path, fault)
        if faults or model.step is None:
            return
        if model.cards is not None:
            yield MeasuredRun(model.cards, model.step, generation=model.rollout, training=model.trainer)
        else:
            yield from self._separate_run(model, model.step, path, terms)

    def _separate_run(
        self, model: RunModel, step: float, path: KeyPath, terms: AsyncTerms | None
    ) -> Iterator[MeasuredRun]:
        """Yield a run whose trainer and rollout have accelerators of their own, if its staleness is known."""
        staleness = model.staleness
        if staleness is None and terms is not None and len(terms.levels) == 1:
            staleness = terms.levels[0]
        if staleness is None and terms is not None and terms.rule.has_levels:
            self._reader.add(path, no_staleness(terms.rule.value))
            return
        split = int(model.trainer or 0), int(model.rollout or 0)
        yield MeasuredRun(sum(split), step, split, staleness, None, model.train, model.wait, model.lend)

    def _colocated_faults(self, model: RunModel) -> Iterator[Diagnostic]:
        for key in ("staleness", "wait", "train"):
            if getattr(model, key) is not None:
                yield only_separate(key)
        if model.lend:
            yield only_separate("lend")
        if (model.trainer is None) != (model.rollout is None):
            stated, missing = self._trainer, self._rollout
            if model.trainer is None:
                stated, missing = missing, stated
            yield one_part(stated, missing)

    def _separate_faults(self, model: RunModel) -> Iterator[Diagnostic]:
        sizes = {self._trainer: model.trainer, self._rollout: model.rollout}
        if any(size is None for size in sizes.values()):
            yield no_step(f"accelerators: neither `cards` nor both of `{self._trainer}` and `{self._rollout}`")
            return
        for name, size in sizes.items():
            if size is not None and not size.is_integer():
                yield not_accelerators(name, size)


def _faults(model: AsyncModel) -> Iterator[Diagnostic]:
    """Yield what the terms lack for their rule."""
    if model.rule is None:
        yield no_rule()
        return
    if model.rule.has_levels and model.staleness is None:
        yield no_staleness(model.rule.value)
    if model.rule is Rule.PARTIAL and model.samples is None:
        yield no_samples()
    if (model.mean is None) != (model.max is None):
        yield half_of_lengths(*(("mean", "max") if model.max is None else ("max", "mean")))
    elif model.mean is not None and model.max is not None and model.mean > model.max:
        yield mean_exceeds(model.mean, model.max)


def exceeding_parts(runs: Sequence[MeasuredRun]) -> Iterator[tuple[KeyPath, Diagnostic]]:
    """Yield a warning for each run whose parts take much longer than its step."""
    for index, run in enumerate(runs):
        if run.parts > PARTS_EXCEED * run.step:
            yield (*_RUNS, index), parts_exceed_step(run.parts, run.step)

"""The times in a trainer's own log, as a run of costs.

Each trainer prints its timers under its own names, and the same name has another meaning if the rollout has
accelerators of its own: verl's ``timing_s/gen`` is the generation of a colocated run, and the trainer's wait for
samples elsewhere.
A `_Format` says how a trainer prints the times of a step; a `_Meaning` says what its names mean in one kind of run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.frozen import frozen
from rankplan.read.text.load import load_config
from rankplan.tuning.async_terms import MeasuredRun
from rankplan.tuning.costs import Costs
from rankplan.tuning.faults import no_logged_steps, no_logged_time, not_colocated, not_separate
from rankplan.tuning.run_reader import trainer_and_rollout

_NUMBER = r"(?:np\.float\d+\()?(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"

Times = dict[str, float]
"""The seconds of a step by the names of a trainer's timers."""


@frozen(slots=False)
class _Meaning:
    """The timers of a kind of run: sums of those that a step has; the first group that is not empty counts.

    ``train`` is what the trainer still does on accelerators of its own, ``left_out`` what it may do. ``besides`` are
    outside the timer of the step. If no timer counts the wait, it is what ``all_but_wait`` leaves of the step.
    """

    step: tuple[str, ...]
    train: tuple[str, ...]
    generation: tuple[str, ...] = ()
    wait: tuple[str, ...] = ()
    sync: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    all_but_wait: tuple[str, ...] = ()


@frozen(slots=False)
class _Format:
    """How a trainer prints the times of a step, and what its timers mean.

    ``separate`` are timers that only a run on separate accelerators has, ``colocated`` those of colocated ones.
    ``tells_separate``: every run on separate accelerators has one of them.
    """

    trainer: str
    example: str
    shared: _Meaning
    apart: _Meaning
    separate: frozenset[str] = frozenset()
    colocated: frozenset[str] = frozenset()
    tells_separate: bool = False


_VERL_TRAIN = ("reward", "ref", "values", "adv", "update_critic", "update_actor")
_VERL = _Format(
    "verl",
    "step:12 - timing_s/gen:150.7 - timing_s/step:365.3",
    shared=_Meaning(
        step=("step",), generation=("gen",), train=_VERL_TRAIN, sync=("update_weights",), left_out=("old_log_prob",)
    ),
    apart=_Meaning(
        step=("step",),
        wait=("gen",),
        generation=("generate_async",),
        train=(*_VERL_TRAIN, "old_log_prob"),
        sync=("param_sync", "sync_rollout_weights"),
        besides=("param_sync",),
    ),
    separate=frozenset({"param_sync", "sync_rollout_weights", "generate_async", "fully_async"}),
    tells_separate=True,
)
"""``marked_timer`` of verl's trainers. The fully asynchronous one adds up the parts of a batch before it prints them,
and prints ``param_sync``, which is outside its step, in a line of its own."""

_SLIME = _Format(
    "slime",
    "perf 12: {'perf/train_time': 133.4, 'perf/train_wait_time': 231.9}",
    shared=_Meaning(step=("step",), generation=("rollout",), train=("train",), sync=("update_weights",)),
    apart=_Meaning(
        step=("step",), generation=("rollout",), wait=("train_wait",), train=("train",), sync=("update_weights",)
    ),
    colocated=frozenset({"sleep", "wake_up"}),
)
"""``log_perf_data`` of the trainer and ``log_rollout_data`` of the rollout. ``train_wait`` is all but ``train``, so it
has the weight update, and in a colocated run the generation."""

_NEMO_TRAIN = (
    *("policy_training", "training_prep", "policy_and_reference_logprobs", "logprob_inference_prep"),
    *("advantage_calculation", "reward_calculation", "data_processing"),
)
_NEMO_RL = _Format(
    "NeMo-RL",
    "Total step time: 91.00s, and a line for each timer: generation: 40.10s (44.1%)",
    shared=_Meaning(
        step=("Total step time",),
        generation=("generation",),
        train=_NEMO_TRAIN,
        sync=("prepare_for_generation/total",),
    ),
    apart=_Meaning(step=("Total step time",), wait=("exposed_generation",), train=_NEMO_TRAIN, sync=("weight_sync",)),
    separate=frozenset({"exposed_generation", "weight_sync"}),
    tells_separate=True,
)
"""``Timing`` of ``grpo_train`` and ``async_grpo_train``: ``exposed_generation`` is what the trainer sees of the
generation."""

_SKYRL_TRAIN = (
    *("fwd_logprobs_values_reward", "apply_reward_kl_penalty", "compute_advantages_and_returns"),
    "train_critic_and_policy",
)
_SKYRL = _Format(
    "SkyRL",
    "Finished: 'generate', time cost: 12.34s",
    shared=_Meaning(step=("step",), generation=("generate",), train=_SKYRL_TRAIN, sync=("sync_weights",)),
    apart=_Meaning(
        step=("step",),
        generation=("generate",),
        wait=("wait_for_generation_buffer",),
        train=_SKYRL_TRAIN,
        sync=("sync_weights",),
        all_but_wait=("convert_to_training_input", *_SKYRL_TRAIN, "sync_weights"),
    ),
    separate=frozenset({"wait_for_generation_buffer", "run_training"}),
)
"""``Timer`` of ``trainer.py`` and ``fully_async_trainer.py``. The timers within ``run_training`` are those of a
colocated run."""


def _verl_steps(text: str) -> Iterator[tuple[str, Times]]:
    """Yield the number and the timers of each line ``step:N - timing_s/NAME:SECONDS``."""
    for line in re.finditer(r"\bstep:(\d+) - (.*)", text):
        times = {name: float(seconds) for name, seconds in re.findall(rf"\btiming_s/(\w+):{_NUMBER}", line[2])}
        if times and "fully_async/" in line[2]:
            times["fully_async"] = 0.0
        yield line[1], times


def _slime_steps(text: str) -> Iterator[tuple[str, Times]]:
    """Yield the number and the timers of each line ``perf N: {'perf/NAME_time': SECONDS}``."""
    for line in re.finditer(r"\bperf (\d+): (\{.*)", text):
        found = re.findall(rf"'perf/(\w+)_time': {_NUMBER}", line[2])
        yield line[1], {name: float(seconds) for name, seconds in found}


def _nemo_rl_steps(text: str) -> Iterator[tuple[str, Times]]:
    """Yield the timers of each block that starts with ``Total step time``."""
    blocks = re.split(r"(?=• Total step time: )", text)[1:]
    for number, block in enumerate(blocks):
        found = re.findall(rf"• ([\w/ ]+): {_NUMBER}s(?: \(|\s*$)", block, re.MULTILINE)
        times: Times = {}
        for name, seconds in found:
            times.setdefault(name, float(seconds))
        yield str(number), times


def _skyrl_steps(text: str) -> Iterator[tuple[str, Times]]:
    """Yield the timers that end before each ``step``, added up."""
    times: Times = {}
    number = 0
    for name, seconds in re.findall(rf"Finished: '(\w+)', time cost: {_NUMBER}s", text):
        times[name] = times.get(name, 0.0) + float(seconds)
        if name == "step":
            yield str(number), times
            number, times = number + 1, {}


_READERS = ((_VERL, _verl_steps), (_SLIME, _slime_steps), (_NEMO_RL, _nemo_rl_steps), (_SKYRL, _skyrl_steps))


class LoggedRun(NamedTuple):
    """A run as its log tells it.

    ``generation`` are the seconds of a batch's generation on separate accelerators, ``sync`` those of sending weights;
    ``None``: unknown. ``notes`` say what was read, and what it means.
    """

    trainer: str
    steps: int
    run: MeasuredRun
    generation: float | None
    sync: float | None
    notes: tuple[str, ...]

    def content(self, trainer: str = "actor", rollout: str = "rollout") -> dict[str, Any]:
        """Return what the log adds to a costs file."""
        components: dict[str, Any] = {rollout: {}, trainer: {}}
        if self.run.split is not None and self.generation is not None:
            components[rollout] = {"seconds": {self.run.split[1]: _rounded(self.generation)}}
        return {"runs": [self.run.plain(trainer, rollout)], "components": components}


def read_log(
    path: Path, accelerators: int, split: tuple[int, int] | None = None, staleness: float | None = None
) -> LoggedRun:
    """Return the run whose log this is, on this number of accelerators or on this split of them.

    The seconds are means over all steps after the first, which compiles and fills buffers. Raises `PlacementError` if
    the log has no times, or not those of such a run; ``OSError``.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    form, steps = _read(path, text)
    names: set[str] = set().union(*steps)
    is_separate = split is not None
    if not is_separate and form.separate & names:
        raise PlacementError([not_colocated(str(path), form.trainer, sorted(form.separate & names))])
    if is_separate and (form.colocated & names or (form.tells_separate and not form.separate & names)):
        raise PlacementError([not_separate(str(path), form.trainer)])
    meaning = form.apart if is_separate else form.shared
    chosen = steps[1:] or steps
    mean = {name: sum(step.get(name, 0.0) for step in chosen) / len(chosen) for name in sorted(names)}
    return _logged(path, form, meaning, mean, _Place(accelerators, split, staleness), len(chosen))


class _Place(NamedTuple):
    accelerators: int
    split: tuple[int, int] | None
    staleness: float | None


def _read(path: Path, text: str) -> tuple[_Format, list[Times]]:
    """Return the format of a log, and the timers of each step; one step may have several lines."""
    for form, reader in _READERS:
        steps: dict[str, Times] = {}
        for number, times in reader(text):
            steps[number] = steps.get(number, {}) | times
        complete = [times for times in steps.values() if _step(form, times) is not None]
        if complete:
            return form, complete
    raise PlacementError([no_logged_steps(str(path), [f"{form.trainer}: {form.example}" for form, _ in _READERS])])


def _step(form: _Format, times: Times) -> float | None:
    """Return the seconds of a step; slime's older logs have its two parts only."""
    if form is _SLIME and "train" in times and "train_wait" in times:
        times.setdefault("step", times["train"] + times["train_wait"])
    return _sum(times, form.shared.step)


def _sum(times: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    """Return the sum of some timers, ``None`` if they are all missing from the log."""
    found = [times[name] for name in names if name in times]
    return sum(found) if found else None


def _logged(path: Path, form: _Format, meaning: _Meaning, mean: Times, place: _Place, steps: int) -> LoggedRun:
    """Return the run with these mean seconds."""
    step = (_sum(mean, meaning.step) or 0.0) + (_sum(mean, meaning.besides) or 0.0)
    train, sync = _sum(mean, meaning.train), _sum(mean, meaning.sync)
    generation = _sum(mean, meaning.generation)
    if train is None:
        raise PlacementError([no_logged_time(str(path), form.trainer, meaning.train)])
    if place.split is None and generation is None:
        raise PlacementError([no_logged_time(str(path), form.trainer, meaning.generation)])
    wait = None
    if place.split is not None:
        wait = _wait(form, meaning, mean, step)
    run = MeasuredRun(
        place.accelerators if place.split is None else sum(place.split),
        _rounded(step),
        place.split,
        place.staleness,
        None if generation is None or place.split is not None else _rounded(generation),
        _rounded(train),
        None if wait is None else _rounded(wait),
    )
    return LoggedRun(form.trainer, steps, run, generation, sync, tuple(_notes(form, meaning, mean, place)))


def _wait(form: _Format, meaning: _Meaning, mean: Times, step: float) -> float:
    """Return the seconds in which the trainer has no samples."""
    wait = _sum(mean, meaning.wait)
    if wait is None:
        wait = step - (_sum(mean, meaning.all_but_wait) or 0.0)
    elif form is _SLIME:
        wait -= _sum(mean, meaning.sync) or 0.0
    return max(wait, 0.0)


def _notes(form: _Format, meaning: _Meaning, mean: Times, place: _Place) -> Iterator[str]:
    """Yield what each part is made of, and what it leaves out."""
    parts = {
        "step": (*meaning.step, *meaning.besides),
        "training": meaning.train,
        "generation": meaning.generation,
        "wait": meaning.wait or (("what the others leave",) if place.split is not None else ()),
        "sync": meaning.sync,
    }
    for part, names in parts.items():
        found = [f"{name} {mean[name]:.4g} s" for name in names if name in mean]
        if part == "wait" and not found and place.split is not None:
            found = [f"what {', '.join(name for name in meaning.all_but_wait if name in mean)} leave of the step"]
        if found:
            yield f"{part}: {' + '.join(found)}"
    for name in meaning.left_out:
        if name in mean:
            reason = "a run that uses the log probabilities of the rollout does not have it"
            yield f"left out: {name} {mean[name]:.4g} s; {reason}"


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.5g}")


def costs_with_log(path: Path, logged: LoggedRun) -> Costs:
    """Return the costs in a file with the run of a log, and the seconds of its parts where the file states none.

    Raises `PlacementError` with every fault; ``OSError``.
    """
    content = load_config(path).to_dict()
    stated, runs = content.get("components") or {}, content.get("runs") or []
    if not isinstance(stated, Mapping) or not isinstance(runs, list):
        return Costs.load(path)  # raises what is wrong
    lend, after = content.get("lend"), content.get("after")
    lender = lend.get("from") if isinstance(lend, Mapping) else None
    waits = {}
    if isinstance(after, Mapping):
        waits = {name: others for name, others in after.items() if isinstance(others, list)}
    pair = trainer_and_rollout(list(stated) or ["rollout", "actor"], waits, lender)
    if isinstance(pair, Diagnostic):
        raise PlacementError([replace(pair, file=str(path))])
    added = logged.content(*pair)
    values: dict[KeyPath, Any] = {("runs",): [*runs, *added["runs"]]}
    for name, entry in added["components"].items():
        own = stated.get(name)
        own = own if isinstance(own, Mapping) else {}
        if not own:
            values["components", name] = entry
        values |= {("components", name, key): value for key, value in entry.items() if key not in own}
    return Costs.load(path, values)

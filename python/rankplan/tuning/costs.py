"""Costs: the times, sizes and limits of each component, and their order; and costs files."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any

import yaml

from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.files import write_whole
from rankplan.frozen import frozen
from rankplan.kinds import COSTS
from rankplan.memory.peaks import Peak, Peaks
from rankplan.parallel import NO_SIZES, Parallel
from rankplan.read.text.reader import Reader
from rankplan.tuning.async_terms import AsyncTerms, MeasuredRun
from rankplan.tuning.faults import (
    no_async,
    no_bandwidth,
    no_bytes,
    no_components,
    no_environments,
    no_seconds,
    no_times,
    not_overlapped,
    sends_to_itself,
    several_names,
    times_grow,
    too_many_components,
    uneven_measurement,
    untimed_partner,
    waits_in_circle,
)
from rankplan.tuning.models import SHAPES, TIMES, ComponentModel, CostsModel, SyncModel, plain, validated
from rankplan.tuning.run_reader import RunReader, exceeding_parts, trainer_and_rollout
from rankplan.tuning.times import ByEnvironments, Computed, Measured, Times
from rankplan.words import must_be, shown, unknown

MOST_COMPONENTS = 8
"""Components with times: the search visits all subsets of them."""

LEVELS = ("device", "node", "network")
"""Levels of every cluster that weights cross, the fastest first. Those of an inventory are between node and network."""


@frozen(slots=False)
class ComponentCosts:
    """The times of a component and the sizes that it may have.

    ``dp`` are the data sizes that divide the batch, ``sizes`` the only numbers of accelerators that count (``None``:
    all). ``memory`` is resident on each accelerator, in the unit of `Costs.capacity`, by number of accelerators or the
    same for all (key 0). ``switch`` are the seconds to load and unload it once, ``None`` if not stated. ``peaks`` are
    what runs have measured.
    """

    times: Times
    parallel: Parallel = NO_SIZES
    dp: frozenset[int] | None = None
    sizes: frozenset[int] | None = None
    measured_only: bool = False
    memory: Mapping[int, float] = field(default_factory=dict)
    switch: float | None = None
    peaks: tuple[Peak, ...] = ()

    @property
    def written(self) -> tuple[int, ...]:
        """The numbers of accelerators that were measured, if they are known."""
        return tuple(self.times.points) if isinstance(self.times, Measured) else ()

    def divides(self, accelerators: int) -> bool:
        """Whether the parallel sizes and the data sizes allow this number of accelerators."""
        if accelerators % self.parallel.dense or accelerators % self.parallel.expert:
            return False
        replicas = accelerators // self.parallel.dense
        if self.parallel.dp not in (None, replicas) or replicas % self.parallel.fsdp:
            return False
        return self.dp is None or replicas in self.dp

    def to_dict(self, name: str) -> dict[str, Any]:
        """Return the entry of the component in a costs file. Raises ``ValueError`` for times that a function gives."""
        if not isinstance(self.times, (Measured, ByEnvironments)):
            raise ValueError(f"the times of `{name}` are a function, which a file cannot contain")
        sizes = None if self.sizes is None else sorted(self.sizes)
        found = {
            "seconds" if isinstance(self.times, Measured) else "seconds_by_environments": dict(self.times.points),
            "parallel": self.parallel.plain(),
            "dp": None if self.dp is None else sorted(self.dp),
            "sizes": "measured" if self.measured_only else sizes,
            "memory": self.memory[0] if 0 in self.memory else dict(self.memory),
            "switch": self.switch,
            "peak": [peak.plain() for peak in self.peaks],
        }
        return {key: value for key, value in found.items() if value not in (None, {}, [])}

    def resident(self, accelerators: int) -> float:
        """Return the resident memory on each of this many accelerators: of the next smaller number that is stated."""
        stated = [size for size in self.memory if size <= accelerators] or list(self.memory)[:1]
        return self.memory[max(stated)] if stated else 0.0


@frozen(slots=False)
class WeightSync:
    """Weights that one component sends to another once an iteration."""

    sender: str
    receiver: str
    bytes: float


@frozen(slots=False)
class Lend:
    """What is stated of a trainer that lends its accelerators to the rollout while it waits; ``None`` is not stated.

    ``switch`` are the seconds to the rollout and back. A lent accelerator generates ``speed`` times as much as one of
    the rollout. ``ahead`` is the part of the next step's generation that may come before this step's weights.
    """

    trainer: str | None = None
    rollout: str | None = None
    switch: float | None = None
    speed: float | None = None
    ahead: float | None = None

    def plain(self) -> dict[str, Any]:
        """Return the mapping in a costs file."""
        values = {
            "from": self.trainer,
            "to": self.rollout,
            "switch": self.switch,
            "speed": self.speed,
            "ahead": self.ahead,
        }
        return {key: value for key, value in values.items() if value is not None}


@frozen(slots=False)
class Costs:
    """The components, and the rules of time.

    ``batches`` are the micro-batches of an iteration. ``stale`` iterations overlap, so that only the period of the
    slowest part counts. ``after`` names the components that each one needs results of. ``capacity`` is the memory of an
    accelerator. ``bandwidth`` is in bytes per second by level: one of `LEVELS`, or a level of the inventory. ``unit``
    divides every number of accelerators. ``like`` maps components without times of their own to those that they run
    with. ``estimated`` are those whose memory or switch follows from what they keep, as a config states it. ``lend``
    are the terms on which a trainer lends its accelerators. ``asynchronous`` are the terms of an asynchronous run, and
    ``runs`` those that were measured: such costs are for `rankplan.tune_async`.
    """

    components: Mapping[str, ComponentCosts]
    batches: int = 1
    stale: bool = False
    after: Mapping[str, Sequence[str]] = field(default_factory=dict)
    capacity: float | None = None
    syncs: tuple[WeightSync, ...] = ()
    bandwidth: Mapping[str, float] = field(default_factory=dict)
    unit: int = 1
    shapes: tuple[str, ...] = SHAPES
    like: Mapping[str, str] = field(default_factory=dict)
    estimated: tuple[str, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    lend: Lend = Lend()
    asynchronous: AsyncTerms | None = None
    runs: tuple[MeasuredRun, ...] = ()
    reader: Reader | None = field(default=None, repr=False, compare=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str], added: Mapping[KeyPath, Any] | None = None) -> Costs:
        """Read a costs file; ``added`` are values by paths that take the place of its own.

        Raises `PlacementError` with every fault, ``OSError`` if the file cannot be read.
        """
        return _Reading(Reader.load(path, COSTS).with_values(added or {})).costs()

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Costs:
        """Return the costs in a mapping like ``costs.yaml``; ``seconds`` of a component may be a function.

        The function gets a number of accelerators, and returns seconds, or ``None`` for a number that it rules out.
        Raises `PlacementError` with every fault.
        """
        return _Reading(Reader.load(content)).costs()

    def to_dict(self) -> dict[str, Any]:
        """Return the mapping that `from_dict` reads. Raises ``ValueError`` for times that a function gives."""
        components = {name: one.to_dict(name) for name, one in self.components.items()}
        shared = {one.times.environments for one in self.components.values() if isinstance(one.times, ByEnvironments)}
        found = {
            "batches": self.batches,
            "mode": "async" if self.stale else None,
            "after": {name: list(before) for name, before in self.after.items()},
            "sharing": None if self.shapes == SHAPES else list(self.shapes),
            "memory": self.capacity,
            "unit": self.unit,
            "environments": max(shared, default=None),
            "sync": [{"from": sync.sender, "to": sync.receiver, "bytes": sync.bytes} for sync in self.syncs],
            "bandwidth": dict(self.bandwidth),
            "lend": self.lend.plain(),
            "async": None if self.asynchronous is None else self.asynchronous.plain(),
            "runs": self._plain_runs(),
            "components": components | {name: {"with": other} for name, other in self.like.items()},
        }
        return {key: value for key, value in found.items() if value not in (None, {}, [])}

    def _plain_runs(self) -> list[dict[str, Any]]:
        if self.asynchronous is None:
            return []
        return [run.plain(self.asynchronous.trainer, self.asynchronous.rollout) for run in self.runs]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a costs file atomically. Raises ``OSError``, and ``ValueError`` for times that a function gives."""
        write_whole(Path(path), yaml.safe_dump(self.to_dict(), sort_keys=False, default_flow_style=None))

    @property
    def peaks(self) -> Peaks:
        """The peaks of memory that runs have measured, by component."""
        return {name: one.peaks for name, one in self.components.items() if one.peaks}

    def check_timed(self) -> None:
        """Raise `PlacementError` (``missing-times``) with every component of which only peaks of memory are known."""
        untimed = [
            name
            for name, component in self.components.items()
            if isinstance(component.times, Measured) and not component.times.points
        ]
        if untimed:
            raise PlacementError(self.located(("components", name), no_times(name, TIMES)) for name in untimed)

    def located(self, path: KeyPath, diagnostic: Diagnostic) -> Diagnostic:
        """Return a diagnostic with the place of a path in the costs, if it is known."""
        return diagnostic if self.reader is None else self.reader.located(path, diagnostic)


class _Reading:
    """Costs that are read model by model, so that every fault is found."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        if (message := COSTS.instead(reader.content)) is not None:
            self._reader.add((), Diagnostic(COSTS.code, message, COSTS.help))
            raise reader.refusal()
        content = plain(reader, reader.content, ())
        faulty: set[str | int] = set()

        def add(path: KeyPath, found: Diagnostic) -> None:
            faulty.update(path[:1])
            reader.add(path, found)

        file = validated(CostsModel, content, (), add)
        # The values without a fault are still checked together.
        sound = {key: value for key, value in content.items() if key not in faulty}
        self._file = file or CostsModel.model_validate(sound)
        self._is_async = self._file.asynchronous is not None or self._file.runs is not None
        self._entries = reader.mapping(content, "components", ())

    def _check_known(self, name: str, known: Mapping[str, Any], path: KeyPath) -> None:
        if name not in known:
            self._reader.add(path, unknown("component", name, known, "the components are"))

    def costs(self) -> Costs:
        """Return the costs. Raises `PlacementError` with every fault."""
        if not self._entries and not self._reader.faults:
            self._reader.add((), no_components())
        components: dict[str, ComponentCosts] = {}
        partners: dict[str, str] = {}
        for name in self._entries:
            self._read_component(name, components, partners)
        for name, partner in partners.items():
            if partner not in self._entries or partner in partners:
                fault = untimed_partner(name, partner, components)
                self._reader.add(("components", name, "with"), fault)
        if len(components) > MOST_COMPONENTS:
            self._reader.add(("components",), too_many_components(len(components), MOST_COMPONENTS))
        result = self._result(components, partners)
        if self._is_async:
            result = self._with_runs(result)
        self._reader.finish()
        return replace(result, warnings=(*_rising(result), *_exceeding(result)))

    def _with_runs(self, costs: Costs) -> Costs:
        """Return the costs with the terms of an asynchronous run and the runs that were measured."""
        terms, runs = self._file.asynchronous, self._file.runs
        if terms is None:
            self._reader.add(("runs",), no_async())
            return costs
        if self._file.mode == "sync":
            self._reader.add(("mode",), not_overlapped())
        pair = trainer_and_rollout(list(costs.components), costs.after, costs.lend.trainer)
        if isinstance(pair, Diagnostic):
            self._reader.add(("components",), pair)
            return costs
        reader = RunReader(self._reader, *pair)
        asynchronous = reader.terms(terms)
        return replace(costs, stale=True, asynchronous=asynchronous, runs=reader.runs(runs, asynchronous))

    def _read_component(self, name: str, components: dict[str, ComponentCosts], partners: dict[str, str]) -> None:
        """Add the times of a component to ``components``; to ``partners``, the one whose times it has."""
        path: KeyPath = ("components", name)
        if "," in name or name != name.strip():
            self._reader.add(path, several_names(name))
        entry = dict(self._reader.mapping(self._entries, name, ("components",)))
        function = entry.pop("seconds") if callable(entry.get("seconds")) else None
        model = validated(ComponentModel, entry, path, self._reader.add)
        if model is None:
            return
        if model.runs_with is not None:
            partners[name] = model.runs_with
            return
        times = self._times(name, model, function)
        if times is not None:
            components[name] = self._component(name, model, times)

    def _result(self, components: dict[str, ComponentCosts], partners: dict[str, str]) -> Costs:
        """Return the costs of these components, with the other values of the file."""
        file = self._file
        shapes = SHAPES if file.sharing is None else tuple(shape for shape in SHAPES if shape in file.sharing)
        return Costs(
            components,
            file.batches or 1,
            file.mode == "async",
            self._after(partners),
            file.memory,
            tuple(self._syncs(components)),
            file.bandwidth or {},
            file.unit or 1,
            shapes,
            partners,
            lend=Lend() if file.lend is None else Lend(**file.lend.model_dump()),
            reader=self._reader,
        )

    def _times(self, name: str, model: ComponentModel, function: Callable[[int], Any] | None) -> Times | None:
        """Return the times of a component; record a fault and return ``None`` if they are missing."""
        path: KeyPath = ("components", name)
        if function is not None:
            return Computed(_checked(name, function))
        key = "seconds" if model.seconds_by_environments is None else "seconds_by_environments"
        points: dict[int, float] | None = getattr(model, key)
        if not points and (self._is_async or model.peak) and key == "seconds":
            return Measured({})
        if not points:
            self._reader.add(path if points is None else (*path, key), no_times(name, TIMES))
            return None
        points = dict(sorted(points.items()))
        if key == "seconds":
            return Measured(points)
        if self._file.environments is None:
            self._reader.add((*path, key), no_environments(key))
            return None
        return ByEnvironments(points, self._file.environments, _sizes(model).dense)

    def _component(self, name: str, model: ComponentModel, times: Times) -> ComponentCosts:
        parallel = _sizes(model)
        sizes: Any = model.sizes or self._file.sizes
        component = ComponentCosts(
            times,
            parallel,
            None if model.dp is None else frozenset(model.dp),
            frozenset(sizes) if isinstance(sizes, list) else None,
            sizes == "measured",
            dict(sorted(model.memory.items())),
            model.switch,
            tuple(Peak(**one.model_dump()) for one in model.peak),
        )
        for size in [size for size in component.written if size % parallel.dense]:
            fault = uneven_measurement(name, size, parallel.dense, str(parallel))
            self._reader.add(("components", name, "seconds", str(size)), fault)
        return component

    def _after(self, partners: Mapping[str, str]) -> dict[str, list[str]]:
        """Return what each component with times waits for: a component that runs with another waits as that one."""
        after: dict[str, list[str]] = {}
        for name, before in (self._file.after or {}).items():
            for stated in (name, *before):
                self._check_known(stated, self._entries, ("after", name))
            timed = partners.get(name, name)
            awaited = [partners.get(other, other) for other in before if other in self._entries]
            runs_together = name in partners or not partners.keys().isdisjoint(before)
            if runs_together:
                awaited = [other for other in awaited if other != timed]
            after[timed] = list(dict.fromkeys([*after.get(timed, ()), *awaited]))
        try:
            TopologicalSorter(after).prepare()
        except CycleError as error:
            loop = error.args[1][:0:-1]
            first = next((name for name in self._entries if name in loop), loop[0])  # in the order of the file
            start = loop.index(first)
            circle = [*loop[start:], *loop[: start + 1]]
            self._reader.add(("after", first), waits_in_circle(circle))
        return after

    def _syncs(self, components: Mapping[str, ComponentCosts]) -> Iterator[WeightSync]:
        value = self._file.sync
        entries = [value] if isinstance(value, Mapping) else value or []
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            help = "write - {from: actor, to: rollout, bytes: 14e9}"
            self._reader.add(("sync",), must_be("`sync`", value, "a list of mappings", help))
            return
        if entries and not self._file.bandwidth:
            self._reader.add(("sync",), no_bandwidth())
        for index, entry in enumerate(entries):
            path: KeyPath = ("sync",) if entries is not value else ("sync", index)
            model = validated(SyncModel, entry, path, self._reader.add)
            if model is not None:
                yield from self._sync(model, components, path)

    def _sync(self, model: SyncModel, components: Mapping[str, ComponentCosts], path: KeyPath) -> Iterator[WeightSync]:
        """Yield the synchronization that a mapping states, unless its bytes are missing."""
        sender = model.sender if isinstance(model.sender, str) else shown(model.sender)
        receiver = model.to if isinstance(model.to, str) else shown(model.to)
        self._check_known(sender, components, (*path, "from"))
        self._check_known(receiver, components, (*path, "to"))
        if sender == receiver and sender in components:
            self._reader.add((*path, "to"), sends_to_itself(sender))
        if model.bytes is None:
            self._reader.add(path, no_bytes())
        else:
            yield WeightSync(sender, receiver, model.bytes)


def _sizes(model: ComponentModel) -> Parallel:
    return model.parallel or NO_SIZES


def _rising(costs: Costs) -> Iterator[Diagnostic]:
    """Yield a warning for each measured time that is longer than that on fewer accelerators."""
    for name, component in costs.components.items():
        points = component.times.points if isinstance(component.times, Measured) else {}
        for fewer, more in pairwise(points.items()):
            if more[1] > fewer[1]:
                yield costs.located(("components", name, "seconds", str(more[0])), times_grow(name, fewer, more))


def _exceeding(costs: Costs) -> Iterator[Diagnostic]:
    """Yield a warning for each run whose parts take longer than its step."""
    for path, warning in exceeding_parts(costs.runs):
        yield costs.located(path, warning)


def _checked(name: str, function: Callable[[int], Any]) -> Callable[[int], float | None]:
    """Return a cost function whose answers are numbers of seconds, or ``None``."""

    def seconds(accelerators: int) -> float | None:
        answer = function(accelerators)
        if answer is None:
            return None
        if isinstance(answer, bool) or not isinstance(answer, Real) or not 0 <= float(answer) < math.inf:
            raise PlacementError([no_seconds(name, accelerators, answer)])
        return float(answer)

    return seconds

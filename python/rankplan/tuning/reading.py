"""Reads costs: a file such as ``costs.yaml`` or a mapping, with every fault and its place."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from numbers import Real
from typing import Any

from pydantic import ValidationError

from rankplan._core import MAX_PROCESSES
from rankplan.config.parallel import ParallelEntry
from rankplan.config.text.faults import KeyPath, diagnostics
from rankplan.config.text.reader import Reader
from rankplan.errors import Diagnostic, PlacementError
from rankplan.parallel import NO_SIZES, Parallel
from rankplan.tuning.costs import SHAPES, ComponentCosts, Costs, WeightSync, cycle
from rankplan.tuning.times import ByEnvironments, Computed, Measured, Times
from rankplan.words import as_int, did_you_mean, nearest, shown, whole_number

MOST_COMPONENTS = 8
"""Components with times: the search visits all subsets of them."""

_KEYS = (
    "batches",
    "mode",
    "after",
    "components",
    "sharing",
    "memory",
    "unit",
    "environments",
    "sizes",
    "sync",
    "bandwidth",
)
_OF_COMPONENT = ("seconds", "seconds_by_environments", "parallel", "dp", "sizes", "memory", "switch", "with")
_TIMES = "write seconds by number of accelerators, e.g. {8: 120, 16: 64}"


def read_costs(source: Costs | Mapping[str, Any] | str | os.PathLike[str]) -> Costs:
    """Return the costs in a mapping or a file; costs that are already read are returned.

    Raises `PlacementError` with every fault, ``OSError`` if the file cannot be read.
    """
    if isinstance(source, Costs):
        return source
    return _Costs.load(source).costs()


class _Costs(Reader):
    def costs(self) -> Costs:
        content: Mapping[str, Any] = self.content
        self._known_keys(content, _KEYS, ())
        batches = self._whole(content, "batches", ()) or 1
        unit = self._whole(content, "unit", ()) or 1
        environments = self._whole(content, "environments", ())
        sizes = self._sizes(content, ())
        mode = self.value(content, "mode", ())
        if mode not in (None, "sync", "async"):
            message = f"`mode` is {shown(mode)}; it must be sync or async"
            self.add(("mode",), Diagnostic("invalid-value", message, "write mode: async if iterations overlap"))
        shapes = self._shapes(content)
        entries = self.mapping(content, "components", ())
        if not entries and not self.faults:
            message = "the costs have no components"
            self.add((), Diagnostic("missing-times", message, "write `components:` with the seconds of each"))
        components: dict[str, ComponentCosts] = {}
        like: dict[str, str] = {}
        for name in entries:
            entry = self.mapping(entries, name, ("components",))
            path: KeyPath = ("components", str(name))
            self._known_keys(entry, _OF_COMPONENT, path)
            if "," in str(name) or str(name) != str(name).strip():
                message = f"{shown(name)} is not the name of one component"
                self.add(path, Diagnostic("invalid-value", message, "write a name without commas and outer blanks"))
            if (other := self.value(entry, "with", path)) is not None:
                like[str(name)] = str(other)
            elif (found := self._component(str(name), entry, path, environments, sizes)) is not None:
                components[str(name)] = found
        for name, other in like.items():
            if other not in entries or other in like:
                help = did_you_mean(other, components, "components with times are")
                message = f"`{name}` runs with `{other}`, which has no times"
                self.add(("components", name, "with"), Diagnostic("missing-times", message, help))
        if len(components) > MOST_COMPONENTS:
            message = f"{len(components)} components have times; at most {MOST_COMPONENTS}"
            help = "write `with: NAME` for components that run together with another"
            self.add(("components",), Diagnostic("invalid-value", message, help))
        after = self._after(content, [str(name) for name in entries], like)
        bandwidth = self._bandwidth(content)
        result = Costs(
            components,
            batches,
            mode == "async",
            after,
            self._number(content, "memory", ()),
            tuple(self._syncs(content, components, bandwidth)),
            bandwidth,
            unit,
            shapes,
            like,
            reader=self,
        )
        self.finish()
        return replace(result, warnings=tuple(self._rising(components)))

    def _shapes(self, content: Mapping[str, Any]) -> tuple[str, ...]:
        value = self.value(content, "sharing", ())
        chosen = [value] if isinstance(value, str) else value
        if chosen is None:
            return SHAPES
        if not isinstance(chosen, Sequence) or not chosen or not all(one in SHAPES for one in chosen):
            message = f"`sharing` is {shown(value)}; it must be some of {', '.join(SHAPES)}"
            help = "write sharing: [disaggregated, collocated] to leave out hybrid placements"
            self.add(("sharing",), Diagnostic("invalid-value", message, help))
            return SHAPES
        return tuple(shape for shape in SHAPES if shape in chosen)

    def _component(
        self, name: str, entry: Mapping[str, Any], path: KeyPath, environments: int | None, shared: Any
    ) -> ComponentCosts | None:
        before = len(self.faults)
        parallel = self._parallel(entry, path)
        sizes = self._sizes(entry, path) or shared
        group = parallel.dense
        times, written = self._times(name, entry, path, environments, group)
        dp = self._whole_list(entry, "dp", path)
        memory = self._memory(entry, path)
        switch = self._number(entry, "switch", path) or 0.0
        if times is None or len(self.faults) > before:
            return None
        result = ComponentCosts(
            times,
            parallel,
            None if dp is None else frozenset(dp),
            frozenset(sizes) if isinstance(sizes, list) else None,
            sizes == "measured",
            memory,
            switch,
            tuple(written),
        )
        for size in written:
            if size % group:
                message = (
                    f"`{name}` was measured on {size} accelerators, which is not a multiple of {group} ({parallel})"
                )
                self.add(
                    (*path, "seconds", str(size)),
                    Diagnostic("size-does-not-fit", message, f"measure a multiple of {group}"),
                )
        return result

    def _times(
        self, name: str, entry: Mapping[str, Any], path: KeyPath, environments: int | None, group: int
    ) -> tuple[Times | None, list[int]]:
        """Return the times of a component, and the numbers of accelerators that were measured."""
        by_environments = self.value(entry, "seconds_by_environments", path)
        value = self.value(entry, "seconds", path)
        if callable(value):
            return Computed(_checked(name, value)), []
        key = "seconds" if by_environments is None else "seconds_by_environments"
        if value is None and by_environments is None:
            self.add(path, Diagnostic("missing-times", f"component `{name}` has no times", _TIMES))
            return None, []
        points = self._points(name, entry, key, path)
        if not points:
            return None, []
        if key == "seconds":
            return Measured(points), list(points)
        if environments is None:
            help = "add `environments:`, the number of all environments, at the top"
            self.add((*path, key), Diagnostic("missing-key", f"`{key}` needs the number of environments", help))
            return None, []
        return ByEnvironments(points, environments, group), []

    def _points(self, name: str, entry: Mapping[str, Any], key: str, path: KeyPath) -> dict[int, float]:
        mapping = self.value(entry, key, path)
        if not isinstance(mapping, Mapping):
            message = f"`{key}` is {shown(mapping)}; it must map numbers to seconds"
            self.add((*path, key), Diagnostic("invalid-value", message, _TIMES))
            return {}
        if not mapping:
            self.add((*path, key), Diagnostic("missing-times", f"component `{name}` has no times", _TIMES))
        points = {}
        for size in mapping:
            number = whole_number(size)
            seconds = self._number(mapping, size, (*path, key), more_than_0=True)
            if number is None or not 1 <= number <= MAX_PROCESSES:
                message = f"{shown(size)} is not a number of accelerators"
                self.add((*path, key, str(size)), Diagnostic("invalid-value", message, _TIMES))
            elif seconds is not None:
                points[number] = seconds
        return dict(sorted(points.items()))

    def _parallel(self, entry: Mapping[str, Any], path: KeyPath) -> Parallel:
        value = self.value(entry, "parallel", path)
        if value is None:
            return NO_SIZES
        try:
            return ParallelEntry.model_validate(value).value()
        except ValidationError as error:
            for where, found in diagnostics(error, {"": ParallelEntry}, (*path, "parallel")):
                self.add(where, found)
        except PlacementError as error:
            self.add_all((*path, "parallel"), error)
        return NO_SIZES

    def _memory(self, entry: Mapping[str, Any], path: KeyPath) -> dict[int, float]:
        value = self.value(entry, "memory", path)
        if isinstance(value, Mapping):
            return self._points(str(path[-1]), entry, "memory", path)
        number = self._number(entry, "memory", path)
        return {} if number is None else {0: number}

    def _sizes(self, mapping: Mapping[str, Any], path: KeyPath) -> Any:
        """Return ``"measured"``, a list of sizes, or ``None`` for any size."""
        value = self.value(mapping, "sizes", path)
        if value in (None, "any", "measured"):
            return None if value == "any" else value
        if isinstance(value, str):
            message = f"`sizes` is {shown(value)}; it must be measured, any, or a list of numbers"
            self.add((*path, "sizes"), Diagnostic("invalid-value", message, "write sizes: measured"))
            return None
        return self._whole_list(mapping, "sizes", path)

    def _after(self, content: Mapping[str, Any], names: Sequence[str], like: Mapping[str, str]) -> dict[str, list[str]]:
        """Return what each component with times waits for: a component that runs with another waits as that one."""
        mapping = self.mapping(content, "after", ())
        after: dict[str, list[str]] = {}
        for name in mapping:
            value = self.value(mapping, name, ("after",))
            before = [value] if isinstance(value, str) else value
            if not isinstance(before, Sequence) or not all(isinstance(one, str) for one in before):
                message = f"`{name}` is {shown(value)}; it must be the components before `{name}`"
                self.add(("after", name), Diagnostic("invalid-value", message, "write a list such as [rollout]"))
                continue
            for unknown in [one for one in (name, *before) if one not in names]:
                help = did_you_mean(unknown, names, "the components are")
                self.add(("after", name), Diagnostic("unknown-component", f"unknown component `{unknown}`", help))
            own, others = like.get(name, name), [like.get(one, one) for one in before if one in names]
            together = name in like or any(one in like for one in before)
            waits = [one for one in others if not (together and one == own)]
            after[own] = list(dict.fromkeys([*after.get(own, ()), *waits]))
        if loop := cycle(after, names):
            chain = " after ".join(f"`{name}`" for name in (*loop, loop[0]))
            message = f"the components wait for each other: {chain}"
            self.add(("after", loop[0]), Diagnostic("precedence-cycle", message, "remove one of these dependencies"))
        return after

    def _bandwidth(self, content: Mapping[str, Any]) -> dict[str, float]:
        mapping = self.mapping(content, "bandwidth", ())
        found = {str(level): self._number(mapping, level, ("bandwidth",), more_than_0=True) for level in mapping}
        return {level: number for level, number in found.items() if number is not None}

    def _syncs(
        self, content: Mapping[str, Any], components: Mapping[str, Any], bandwidth: Mapping[str, float]
    ) -> list[WeightSync]:
        value = self.value(content, "sync", ())
        entries = [value] if isinstance(value, Mapping) else value or []
        if not isinstance(entries, Sequence) or not all(isinstance(entry, Mapping) for entry in entries):
            message = f"`sync` is {shown(value)}; it must be a list of mappings"
            help = "write - {from: actor, to: rollout, bytes: 14e9}"
            self.add(("sync",), Diagnostic("invalid-value", message, help))
            return []
        if entries and not bandwidth:
            help = "add `bandwidth: {node: 400e9, network: 50e9}`, in bytes per second"
            self.add(("sync",), Diagnostic("missing-key", "`sync` needs the bandwidth of the levels", help))
        found = []
        for index, entry in enumerate(entries):
            path: KeyPath = ("sync",) if entries is not value else ("sync", index)
            self._known_keys(entry, ("from", "to", "bytes"), path)
            found_ends = [self.value(entry, key, path) for key in ("from", "to")]
            ends = [end if isinstance(end, str) else shown(end) for end in found_ends]
            size = self._number(entry, "bytes", path)
            for key, end in zip(("from", "to"), ends, strict=True):
                if end not in components:
                    help = did_you_mean(str(end), components, "the components are")
                    self.add((*path, key), Diagnostic("unknown-component", f"unknown component `{end}`", help))
            if ends[0] == ends[1] and ends[0] in components:
                message = f"`{ends[0]}` sends weights to itself"
                self.add((*path, "to"), Diagnostic("invalid-value", message, "name two components"))
            if size is None:
                self.add(
                    path, Diagnostic("missing-key", "`bytes` is missing", "write the bytes of all weights, e.g. 14e9")
                )
            else:
                found.append(WeightSync(str(ends[0]), str(ends[1]), size))
        return found

    def _rising(self, components: Mapping[str, ComponentCosts]) -> list[Diagnostic]:
        """Return a warning for each measured time that is longer than that on fewer accelerators."""
        found = []
        for name, one in components.items():
            points = one.times.points if isinstance(one.times, Measured) else {}
            for (fewer, before), (more, seconds) in pairwise(points.items()):
                if seconds > before:
                    message = f"`{name}` takes {seconds:g} s on {more} accelerators, but {before:g} s on {fewer}"
                    help = "measure it again, or remove the number; sizes between the two count as slow as the smaller"
                    warning = Diagnostic("times-grow", message, help, warning=True)
                    found.append(self.located(("components", name, "seconds", str(more)), warning))
        return found

    def _known_keys(self, mapping: Mapping[str, Any], known: Sequence[str], path: KeyPath) -> None:
        for key in mapping:
            if key not in known:
                near = nearest(str(key), known)
                help = f"did you mean `{near}`?" if near else f"known keys: {', '.join(known)}"
                self.add((*path, str(key)), Diagnostic("unknown-key", f"unknown key `{key}`", help))

    def _whole(self, mapping: Mapping[str, Any], key: str, path: KeyPath) -> int | None:
        value = self.value(mapping, key, path)
        number = None if value is None else self.number(value, (*path, key), 1)
        if number is not None and number > MAX_PROCESSES:
            message = f"`{key}` is {shown(number)}; it must be {MAX_PROCESSES} or less"
            self.add((*path, key), Diagnostic("invalid-value", message, f"use {MAX_PROCESSES} or less"))
            return None
        return number

    def _whole_list(self, mapping: Mapping[str, Any], key: str, path: KeyPath) -> list[int] | None:
        value = self.value(mapping, key, path)
        if value is None:
            return None
        if isinstance(value, str) or not isinstance(value, Sequence) or not value:
            message = f"`{key}` is {shown(value)}; it must be a list of whole numbers"
            self.add((*path, key), Diagnostic("invalid-value", message, "write a list such as [1, 2, 4, 8]"))
            return None
        numbers = [as_int(one) for one in value]
        for index, number in enumerate(numbers):
            if number is None or number < 1:
                message = f"{shown(value[index])} is not a whole number of 1 or more"
                self.add((*path, key, index), Diagnostic("invalid-value", message, "write a list such as [1, 2, 4, 8]"))
        return [number for number in numbers if number is not None]

    def _number(self, mapping: Mapping[Any, Any], key: Any, path: KeyPath, more_than_0: bool = False) -> float | None:
        """Return a finite number of 0 or more, ``None`` if it is missing. Anything else is a fault."""
        value = self.value(mapping, key, path)
        if value is None and key not in mapping:
            return None
        if isinstance(value, Real) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number) and (number > 0 or (number == 0 and not more_than_0)):
                return number
        least = "above 0" if more_than_0 else "of 0 or more"
        message = f"`{key}` is {shown(value)}; it must be a number {least}"
        self.add((*path, str(key)), Diagnostic("invalid-value", message, "write a number such as 12.5"))
        return None


def _checked(name: str, function: Callable[[int], Any]) -> Callable[[int], float | None]:
    """Return a cost function whose answers are numbers of seconds, or ``None``."""

    def seconds(accelerators: int) -> float | None:
        found = function(accelerators)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, Real) or not 0 <= float(found) < math.inf:
            message = f"the times of `{name}` on {accelerators} accelerators are {shown(found)}; they must be seconds"
            help = "return a finite number of 0 or more, or None for a number of accelerators that cannot be used"
            raise PlacementError([Diagnostic("invalid-value", message, help, path=f"components.{name}.seconds")])
        return float(found)

    return seconds

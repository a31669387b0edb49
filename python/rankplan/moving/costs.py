"""The costs of a transition: bandwidths of an accelerator, and the seconds of single steps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from rankplan.frozen import frozen
from rankplan.moving.faults import bandwidth_of_what, syncs_itself, two_senders, unknown_cost, unknown_level
from rankplan.read.text.load import load_config
from rankplan.read.text.reader import Reader
from rankplan.words import must_be, shown, unknown

STEPS = ("drain", "abort", "sleep", "wake", "load", "cache", "verify")
"""Steps whose seconds a component can state."""

_KEYS = ("bandwidth", "bandwidth_of", "latency", "sync", "components")
_ACCELERATOR = "accelerator"


@frozen(slots=False)
class MoveCosts:
    """What steps cost.

    ``bandwidth`` are bytes per second of one accelerator in each direction, by level. ``latency`` are the seconds of a
    sync besides its bytes. ``components`` has the seconds of the steps of each component. ``syncs`` maps a component to
    the one that it gets weights from.
    """

    bandwidth: Mapping[str, float] = field(default_factory=dict)
    latency: float | None = None
    components: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    syncs: Mapping[str, str] = field(default_factory=dict)

    def seconds(self, component: str, step: str) -> float | None:
        """Return the seconds of a step of a component, ``None`` if they are not stated."""
        return self.components.get(component, {}).get(step)

    @property
    def aborting(self) -> set[str]:
        """The components that abort their requests when an instance leaves: they state `abort`, and no `drain`."""
        return {name for name, steps in self.components.items() if "abort" in steps and "drain" not in steps}


NO_COSTS = MoveCosts()


def read_costs(
    source: MoveCosts | Mapping[str, Any] | str | os.PathLike[str] | None,
    components: Iterable[str],
    levels: Iterable[str],
) -> MoveCosts:
    """Return the costs in a mapping or a file, for plans with these components and levels.

    Raises `PlacementError` with every fault, ``OSError`` if the file cannot be read.
    """
    if source is None:
        return NO_COSTS
    if isinstance(source, MoveCosts):
        return source
    content = load_config(source) if isinstance(source, (str, os.PathLike)) else source
    return _Reading(Reader.load(content), list(components), list(levels)).costs()


class _Reading:
    """Costs that are read key by key, so that every fault is found."""

    def __init__(self, reader: Reader, components: list[str], levels: list[str]) -> None:
        self._reader, self._components, self._levels = reader, components, levels

    def costs(self) -> MoveCosts:
        """Return the costs. Raises `PlacementError` with every fault."""
        content, reader = self._reader.content, self._reader
        for key in content:
            if key not in _KEYS:
                reader.add((key,), unknown("key", key, _KEYS))
        bandwidth = self._bandwidth()
        latency = self._number(content, ("latency",))
        components = {}
        for name in reader.mapping(content, "components", ()):
            if name not in self._components:
                reader.add(("components", name), unknown_cost(str(name), self._components))
            components[name] = self._steps(name)
        syncs = self._syncs()
        reader.finish()
        return MoveCosts(bandwidth, latency, components, syncs)

    def _bandwidth(self) -> dict[str, float]:
        content, reader = self._reader.content, self._reader
        stated = reader.mapping(content, "bandwidth", ())
        of = content.get("bandwidth_of")
        if of is None and stated:
            reader.add(("bandwidth",), bandwidth_of_what())
        elif of not in (None, _ACCELERATOR):
            help = f"write bandwidth_of: {_ACCELERATOR}"
            reader.add(("bandwidth_of",), must_be("bandwidth_of", of, _ACCELERATOR, help))
        bandwidth = {}
        for level in stated:
            if level not in self._levels:
                reader.add(("bandwidth", level), unknown_level(str(level), self._levels))
            value = self._number(stated, ("bandwidth", level))
            if value == 0:
                help = "leave out a level whose bandwidth is unknown"
                reader.add(("bandwidth", level), must_be(str(level), value, "a number above 0", help))
            elif value is not None:
                bandwidth[level] = value
        return bandwidth

    def _steps(self, name: Any) -> dict[str, float]:
        entries = self._reader.mapping(self._reader.content["components"], name, ("components",))
        steps = {}
        for step in entries:
            if step not in STEPS:
                self._reader.add(("components", name, step), unknown("key", step, STEPS))
            value = self._number(entries, ("components", name, step))
            if value is not None:
                steps[step] = value
        return steps

    def _number(self, entries: Mapping[Any, Any], path: tuple[Any, ...]) -> float | None:
        """Return the finite number of 0 or more at a path, whose last key is one of ``entries``; else add a fault."""
        value = entries.get(path[-1])
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf"):
            return float(value)
        self._reader.add(path, must_be(str(path[-1]), value, "a number of 0 or more", "write a number such as 12.5"))
        return None

    def _syncs(self) -> dict[str, str]:
        """Return the component that each one gets weights from: ``sync: {from: actor, to: rollout}``, or a list."""
        stated = self._reader.content.get("sync")
        entries = stated if isinstance(stated, list) else [] if stated is None else [stated]
        syncs: dict[str, str] = {}
        for entry in entries:
            if not isinstance(entry, Mapping) or not {"from", "to"} <= entry.keys():
                help = "write - {from: actor, to: rollout}"
                self._reader.add(("sync",), must_be("sync", stated, "a list of mappings with `from` and `to`", help))
                return {}
            for key in ("from", "to"):
                if entry[key] not in self._components:
                    name = entry[key] if isinstance(entry[key], str) else shown(entry[key])
                    self._reader.add(("sync",), unknown_cost(name, self._components))
            sender, receiver = str(entry["from"]), str(entry["to"])
            if sender == receiver:
                self._reader.add(("sync",), syncs_itself(sender))
            elif syncs.get(receiver, sender) != sender:
                self._reader.add(("sync",), two_senders(receiver, syncs[receiver], sender))
            syncs[receiver] = sender
        return syncs

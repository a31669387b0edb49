"""The requests of a plan, and the one that a request of the program takes. Pure: no Ray, and nothing is stored."""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import Any, NamedTuple

from rankplan_hook.patterns import Groups, readable

VERSION = 2
_LARGEST = 1 << 28
"""Bytes of a decoded plan; the largest of a million bundles has a hundredth of them."""
_LONGEST = 60
_MOST = 6

_OTHER_SIZES = "the sizes of the command are not those of the plan: pass the same overrides to both"
_LET_RAY = "or let Ray place what the plan lacks: --others pass"


class NotPlanned(RuntimeError):
    """A request that the plan does not have, or that cannot be placed as planned. Printed as a diagnostic.

    ``file`` and ``line`` are where the program asks, if that is known.
    """

    def __init__(self, code: str, message: str, help: str, file: str | None = None, line: int | None = None) -> None:
        place = f"\n --> {file}:{line}" if file is not None else ""
        super().__init__(f"error[{code}]: {message}{place}\n = help: {help}")
        self.code, self.message, self.help = code, message, help
        self.file, self.line = file, line

    def __reduce__(self) -> tuple[type[NotPlanned], tuple[str, str, str, str | None, int | None]]:
        return type(self), (self.code, self.message, self.help, self.file, self.line)

    def at(self, file: str, line: int) -> NotPlanned:
        """Return the same error with the place where the program asks."""
        return type(self)(self.code, self.message, self.help, file, line)


class Slot(NamedTuple):
    """What a request takes: a planned request by its ``number``; of one for actors without a group, an ``entry``."""

    number: int
    entry: int = -1

    def __str__(self) -> str:
        return str(self.number) if self.entry < 0 else f"{self.number}.{self.entry}"

    @classmethod
    def read(cls, text: str) -> Slot:
        """Return the slot that `str` has written."""
        number, _, entry = text.partition(".")
        return cls(int(number), int(entry) if entry else -1)


@dataclass(frozen=True)
class Asked:
    """What a program asks Ray for: a placement group, or an actor of a class that has none.

    ``sizes`` has the accelerators of each bundle, and ``cpus`` its CPUs, if they are known; an actor has one bundle.
    """

    sizes: tuple[float, ...]
    name: str = ""
    strategy: str = "PACK"
    actor: str | None = None
    cpus: tuple[float, ...] = ()

    def __str__(self) -> str:
        if self.actor is not None:
            return (
                f"an actor of class `{shown(self.actor)}` asks for {_pieces(self.sizes[0])} without a placement group"
            )
        what = f"placement group `{shown(self.name)}`" if self.name else "a placement group without a name"
        return f"{what} asks for {bundles(self.sizes)} accelerator{'s' if self.sizes[-1] != 1 else ''}"


@dataclass(frozen=True)
class Planned:
    """A request of the plan. ``nodes`` has the number of the node of each bundle; see `rankplan.Request`.

    ``cpus`` has the CPUs of each bundle, ``None`` if they are unknown; without any, all are.
    """

    component: str
    name: str | None
    sizes: tuple[int, ...]
    nodes: tuple[int, ...]
    strategy: str | None
    optional: bool
    cpus: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Pins:
    """The requests of a plan, and its nodes.

    ``ids`` are Ray's ids of the nodes, ``free`` the accelerators of each that the plan leaves free. ``resources`` are
    Ray's names of accelerators. ``lenient``: requests that the plan lacks go to free accelerators. ``cpus`` are those
    that Ray counts on each node, ``None`` if they are unknown.
    """

    requests: tuple[Planned, ...]
    ids: tuple[str, ...]
    free: tuple[int, ...]
    resources: tuple[str, ...]
    lenient: bool = False
    cpus: tuple[float | None, ...] = ()

    def encoded(self) -> bytes:
        """Return the pins for `decoded`: compressed JSON, equal bundles in a row once."""
        rows = []
        for one in self.requests:
            nodes: Iterable[int | None] = one.nodes or [None] * len(one.sizes)
            cpus = one.cpus or [None] * len(one.sizes)
            runs = [[len(list(run)), *bundle] for bundle, run in groupby(zip(one.sizes, nodes, cpus))]
            rows.append([one.component, one.name, runs, one.strategy, one.optional])
        content = {"version": VERSION, "requests": rows, "ids": self.ids, "free": self.free}
        content.update(resources=self.resources, lenient=self.lenient, cpus=self.cpus)
        return zlib.compress(json.dumps(content, separators=(",", ":")).encode())

    @classmethod
    def decoded(cls, data: bytes) -> Pins:
        """Return the pins of `encoded`. Raises ``ValueError`` for anything else."""
        try:
            decompressor = zlib.decompressobj()
            content = json.loads(decompressor.decompress(data, _LARGEST))
            if not decompressor.eof or content["version"] != VERSION:
                raise ValueError("it is cut off, too large, or of another version")
            return cls(
                tuple(_planned(*row) for row in content["requests"]),
                tuple(map(str, content["ids"])),
                tuple(map(int, content["free"])),
                tuple(map(str, content["resources"])),
                bool(content["lenient"]),
                tuple(None if number is None else float(number) for number in content["cpus"]),
            )
        except (zlib.error, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"it is damaged ({error})") from error

    def find(self, asked: Asked, taken: Callable[[Slot], bool], classes: Callable[[int], str | None]) -> Slot | None:
        """Return the first slot that suits a request and is not taken; optional ones come last.

        All actors of a request have one class: ``classes`` tells that of those that it has got.
        """
        if asked.actor is None:
            number = self._groups.first(asked.sizes, asked.name, lambda number: taken(Slot(number)))
            return None if number is None else Slot(number)
        of_class = (slot for slot in self._actors.get(asked.sizes[0], ()) if not taken(slot))
        return next((slot for slot in of_class if classes(slot.number) in (None, asked.actor)), None)

    @functools.cached_property
    def _groups(self) -> Groups:
        """The requests for groups, by their numbers."""
        found = Groups()
        for number, one in enumerate(self.requests):
            if one.strategy is not None:
                found.add(one.sizes, one.name, range(number, number + 1), optional=one.optional)
        return found

    @functools.cached_property
    def _actors(self) -> dict[float, list[Slot]]:
        """The slots for actors without a group, by their size."""
        found: dict[float, list[Slot]] = {}
        for index in sorted(range(len(self.requests)), key=lambda index: self.requests[index].optional):
            if (one := self.requests[index]).strategy is None:
                for entry, size in enumerate(one.sizes):
                    found.setdefault(size, []).append(Slot(index, entry))
        return found

    def nodes(self, slot: Slot) -> tuple[int, ...]:
        """Return the numbers of the nodes of a slot's bundles; none for an optional one."""
        nodes = self.requests[slot.number].nodes
        return nodes if slot.entry < 0 else nodes[slot.entry : slot.entry + 1]

    def spare(self, asked: Asked, others: Iterable[Iterable[tuple[int, float]]]) -> list[int] | None:
        """Return nodes for bundles that the plan lacks, on what it leaves free; ``None`` if there is too little.

        ``others`` has the node and the size of each bundle of earlier ones.
        """
        free = list(self.free)
        for placed in others:
            for node, size in placed:
                free[node] -= ceil(size)
        sizes = asked.sizes
        if asked.strategy == "STRICT_PACK":
            alone = next((node for node, room in enumerate(free) if room >= sum(sizes)), None)
            return None if alone is None else [alone] * len(sizes)
        found: list[int] = []
        for size in sizes:
            apart = found if asked.strategy == "STRICT_SPREAD" else ()
            place = next((node for node, room in enumerate(free) if room >= size and node not in apart), None)
            if place is None:
                return None
            free[place] -= ceil(size)
            found.append(place)
        return found

    def all_slots(self) -> Iterator[Slot]:
        """Yield every slot that the program must take: those with accelerators, since only these are bound."""
        for index, one in enumerate(self.requests):
            if one.optional:
                continue
            if one.strategy is None:
                yield from (Slot(index, entry) for entry, size in enumerate(one.sizes) if size)
            elif any(one.sizes):
                yield Slot(index)

    def left(self, taken: Callable[[Slot], bool]) -> str:
        """Return what the plan has left, as messages show it: ``actor 4 bundles of 1 (3 groups)``."""
        counts: dict[tuple[str, str], int] = {}
        for slot in self.all_slots():
            if not taken(slot):
                one = self.requests[slot.number]
                text = bundles(one.sizes) if slot.entry < 0 else f"an actor with {_pieces(one.sizes[slot.entry])}"
                key = f"{shown(one.component)} {text}", "groups" if slot.entry < 0 else "actors"
                counts[key] = counts.get(key, 0) + 1
        parts = [f"{text} ({count} {noun})" if count > 1 else text for (text, noun), count in counts.items()]
        more = f" and {len(parts) - _MOST} more" if len(parts) > _MOST else ""
        return "; ".join(parts[:_MOST]) + more if parts else "nothing"

    def refusal(self, asked: Asked, taken: Callable[[Slot], bool], classes: Callable[[int], str | None]) -> NotPlanned:
        """Return the error for a request that the plan does not have; ``classes`` is that of `find`."""
        message = f"{asked}; the plan has left: {self.left(taken)}"
        return NotPlanned("plan-mismatch", message, self._cure(asked, taken, classes))

    def _cure(self, asked: Asked, taken: Callable[[Slot], bool], classes: Callable[[int], str | None]) -> str:
        """Return what to do about a request that the plan does not have."""
        if self.lenient:
            return "--others pass allows it only on accelerators that the plan leaves free: use more nodes"
        if asked.actor is not None:
            return f"{self._cure_of_actor(asked, taken, classes)}, {_LET_RAY}"
        groups = [(index, one) for index, one in enumerate(self.requests) if one.strategy is not None]
        alike = [(index, one) for index, one in groups if one.sizes == asked.sizes]
        if not alike:
            return f"{_OTHER_SIZES}, {_LET_RAY}"
        if self._groups.first(asked.sizes, asked.name, lambda number: False) is not None:
            return "the plan has no more groups like it: remove one before asking again, or plan for more"
        free = (one for index, one in alike if not taken(Slot(index)))
        name = shown(readable(next(free, alike[0][1]).name or ""))
        return f"the plan names a group of this size `{name}`: pass the same overrides to both"

    def _cure_of_actor(self, asked: Asked, taken: Callable[[Slot], bool], classes: Callable[[int], str | None]) -> str:
        for slot in self._actors.get(asked.sizes[0], ()):
            owner = None if taken(slot) else classes(slot.number)
            if owner:
                return f"the places that are left are for actors of class `{shown(owner)}`"
        return _OTHER_SIZES

    def contradiction(self, slot: Slot, asked: Asked) -> NotPlanned | None:
        """Return why Ray could not place a group as planned, though Ray itself would place it elsewhere or wait."""
        nodes, help = self.nodes(slot), "plan again with `rankplan plan --pinned`, or change the sizes"
        if asked.strategy == "STRICT_PACK" and len(set(nodes)) > 1:
            where = f"the plan has its bundles on {len(set(nodes))} nodes"
        elif asked.strategy == "STRICT_SPREAD" and len(set(nodes)) < len(nodes):
            where = "the plan has several of its bundles on one node"
            help = "ask for PACK, or use a plan that has a node for each of them"
        else:
            return self._short_of_cpus(slot, asked)
        what = f"placement group `{shown(asked.name)}`" if asked.name else "a placement group"
        message = f"{what} of {self.requests[slot.number].component} is {asked.strategy}, but {where}"
        return NotPlanned("plan-mismatch", message, help)

    def _short_of_cpus(self, slot: Slot, asked: Asked) -> NotPlanned | None:
        """Return the error for a request with more CPUs than a node of its bundles has: Ray would wait for ever."""
        needed: dict[int, float] = {}
        for node, cpus in zip(self.nodes(slot), asked.cpus):
            needed[node] = round(needed.get(node, 0) + cpus, 4)
        for node, cpus in needed.items():
            present = self.cpus[node] if node < len(self.cpus) else None
            if present is not None and cpus > present:
                planned = "" if (text := self._planned_cpus(slot)) is None else f"; the plan has {text}"
                message = f"{asked} and {cpus:g} CPUs on node {node} of the plan, which has {present:g}{planned}"
                help = "give Ray more CPUs there, or ask for fewer accelerators of a node"
                return NotPlanned("plan-mismatch", message, help)
        return None

    def other_cpus(self, slot: Slot, asked: Asked) -> str | None:
        """Return a note on a request whose bundles have other CPUs than planned; ``None`` if they are as planned."""
        one = self.requests[slot.number]
        planned = one.cpus if slot.entry < 0 else one.cpus[slot.entry : slot.entry + 1]
        if not planned or None in planned or planned == asked.cpus or len(planned) != len(asked.cpus):
            return None
        what = f"{shown(one.component)} asks for {_cpus_text(asked.cpus)}"
        return f"{what} with its accelerators; the plan has {self._planned_cpus(slot)}"

    def _planned_cpus(self, slot: Slot) -> str | None:
        """Return the CPUs of the bundles of a slot as messages show them, ``None`` if they are unknown."""
        one = self.requests[slot.number]
        cpus = one.cpus if slot.entry < 0 else one.cpus[slot.entry : slot.entry + 1]
        known = tuple(number for number in cpus if number is not None)
        return _cpus_text(known) if known and len(known) == len(cpus) else None


def _planned(component: str, name: str | None, runs: list[Any], strategy: str | None, optional: object) -> Planned:
    sizes = tuple(int(size) for times, size, _, _ in runs for _ in range(times))
    nodes = tuple(int(node) for times, _, node, _ in runs if node is not None for _ in range(times))
    cpus = tuple(None if each is None else float(each) for times, _, _, each in runs for _ in range(times))
    cpus = cpus if any(each is not None for each in cpus) else ()
    return Planned(component, name, sizes, nodes, strategy, bool(optional), cpus)


def bundles(sizes: Sequence[float]) -> str:
    """Return the sizes of bundles as messages show them: ``8 bundles of 1``, ``1 bundle of 4 and 2 of 1``."""
    runs = [(len(list(run)), size) for size, run in groupby(sizes)]
    (count, size), *rest = runs[:_MOST]
    more = f" and {len(runs) - _MOST} other sizes" if len(runs) > _MOST else ""
    return f"{count} bundle{'s' if count != 1 else ''} of {size:g}" + "".join(f", {n} of {s:g}" for n, s in rest) + more


def _cpus_text(cpus: Sequence[float]) -> str:
    """Return the CPUs of bundles as messages show them: ``24 CPUs (8 bundles of 3)``."""
    total = f"{sum(cpus):g} CPU{'s' if sum(cpus) != 1 else ''}"
    return total if len(cpus) == 1 else f"{total} ({bundles(cpus)})"


def _pieces(size: float) -> str:
    return f"{size:g} accelerator{'s' if size != 1 else ''}"


def shown(text: str) -> str:
    """Return a name of the program for a message: without control characters, and at most 60 characters."""
    text = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."

"""Costs: the times, sizes and limits of each component, and their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rankplan.config.text.reader import Reader
from rankplan.errors import Diagnostic
from rankplan.parallel import NO_SIZES, Parallel
from rankplan.tuning.times import Times

LEVELS = ("device", "node", "network")
"""Levels of every cluster that weights cross, the fastest first. Those of an inventory are between node and network."""

SHAPES = ("disaggregated", "collocated", "hybrid")
"""Which components share accelerators: none, all, or some."""


@dataclass(frozen=True)
class ComponentCosts:
    """The times of a component and the sizes that it may have.

    ``dp`` are the data sizes that divide the batch, ``sizes`` the only numbers of accelerators that count (``None``:
    all). ``memory`` is resident on each accelerator, in the unit of `Costs.capacity`, by number of accelerators or the
    same for all (key 0). ``switch`` are the seconds to load and unload it once.
    """

    times: Times
    parallel: Parallel = NO_SIZES
    dp: frozenset[int] | None = None
    sizes: frozenset[int] | None = None
    measured_only: bool = False
    memory: Mapping[int, float] = field(default_factory=dict)
    switch: float = 0.0
    written: tuple[int, ...] = ()
    """The numbers of accelerators that were measured, if they are known."""

    @property
    def group(self) -> int:
        """Accelerators of a replica."""
        return self.parallel.dense

    def divides(self, accelerators: int) -> bool:
        """Whether the parallel sizes and the data sizes allow this number of accelerators."""
        if accelerators % self.group or accelerators % (self.parallel.etp * self.parallel.ep * self.parallel.pp):
            return False
        replicas = accelerators // self.group
        if self.parallel.dp not in (None, replicas) or replicas % self.parallel.fsdp:
            return False
        return self.dp is None or replicas in self.dp

    def resident(self, accelerators: int) -> float:
        """Return the resident memory on each of this many accelerators: of the next smaller number that is stated."""
        stated = [size for size in self.memory if size <= accelerators] or list(self.memory)[:1]
        return self.memory[max(stated)] if stated else 0.0


@dataclass(frozen=True)
class WeightSync:
    """Weights that one component sends to another once an iteration."""

    sender: str
    receiver: str
    bytes: float


@dataclass(frozen=True)
class Costs:
    """The components, and the rules of time.

    ``batches`` are the micro-batches of an iteration. ``stale`` iterations overlap, so that only the period of the
    slowest part counts. ``after`` names the components that each one needs results of. ``capacity`` is the memory of an
    accelerator. ``bandwidth`` is in bytes per second by level: one of `LEVELS`, or a level of the inventory. ``unit``
    divides every number of accelerators. ``like`` maps components without times of their own to those that they run
    with.
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
    warnings: tuple[Diagnostic, ...] = ()
    reader: Reader | None = field(default=None, repr=False, compare=False)


def cycle(after: Mapping[str, Sequence[str]], names: Iterable[str]) -> list[str]:
    """Return the components of a cycle in order, an empty list if there is none."""
    state: dict[str, int] = {}
    path: list[str] = []

    def visit(name: str) -> list[str]:
        if state.get(name) == 2:
            return []
        if state.get(name) == 1:
            return path[path.index(name) :]
        state[name] = 1
        path.append(name)
        for before in after.get(name, ()):
            if found := visit(before):
                return found
        path.pop()
        state[name] = 2
        return []

    for name in names:
        if found := visit(name):
            return found
    return []

"""Groups: a worker class with its arguments before the launch, the ranks of a component after it."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rankplan._core import RankSet
from rankplan.config.models import as_int
from rankplan.errors import LaunchError, WorkerError
from rankplan.placement import (
    NodePlacementStrategy,
    PackedPlacementStrategy,
    Placement,
    Placements,
    PlacementStrategy,
)
from rankplan.runtime import session
from rankplan.runtime.calls import Call, as_timeout
from rankplan.runtime.launch import Crew, LiveRank, Recipe, bring_up
from rankplan.runtime.shares import as_share
from rankplan.runtime.verify import RankReport, check

if TYPE_CHECKING:
    from ray import ObjectRef

    from rankplan.inventory import Inventory
    from rankplan.runtime.cluster import Cluster


class RankSelection:
    """Some ranks of a component. Every method of the worker class can be called on it, and gives a ``Call``."""

    def __init__(self, component: str, worker_class: type, ranks: Sequence[LiveRank]) -> None:
        self._component, self._worker_class, self._ranks = component, worker_class, ranks
        self._session = session.current()

    def __repr__(self) -> str:
        ranks = RankSet([rank.expected.placement.rank for rank in self._ranks])
        state = f"on rank {ranks}" if ranks else "shut down"
        return f"<{self._component}: {self._worker_class.__name__} {state}>"

    def __getattr__(self, name: str) -> Callable[..., Call]:
        # pickle, copy and notebooks ask for private names, some before __init__ has run
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if not _is_method(self._worker_class, name):
            methods = _methods(self._worker_class)
            close = difflib.get_close_matches(name, methods, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"its methods are {', '.join(methods)}"
            raise AttributeError(f"{self._worker_class.__name__} has no method {name!r}; {hint}")
        return partial(self._send, name)

    def _send(self, method: str, /, *args: Any, **kwargs: Any) -> Call:
        with session.used():
            ranks = self._running(method)
            try:
                answers = [rank.host.call.remote(method, *args, **kwargs) for rank in ranks]
            except TypeError as error:
                what = error.__cause__ or error  # Ray's own text is a report of many lines
                raise TypeError(
                    f"{self._component}.{method}(): an argument cannot be sent to the ranks: {what}"
                ) from error
        return self._call(method, ranks, answers)

    def _running(self, method: str) -> Sequence[LiveRank]:
        if not self._ranks or self._session != session.current():
            raise WorkerError(
                f"{self._component}.{method}(): the group was shut down; launch it again", self._component
            )
        return self._ranks

    def _call(self, method: str, ranks: Sequence[LiveRank], answers: Sequence[ObjectRef[Any]]) -> Call:
        return Call(self._component, method, [rank.expected.placement for rank in ranks], answers)


class WorkerGroup(RankSelection):
    """The ranks of a launched component. A method called on it runs in every rank::

        values = group.method(1, key=2).wait()       # one value a rank, in rank order
        group.execute_on(0, 3).method()              # in some ranks only

    ``shutdown()``, leaving ``with``, or closing the cluster ends the ranks.
    """

    def __init__(self, cluster: Cluster, component: str, worker_class: type, crew: Crew) -> None:
        super().__init__(component, worker_class, crew.ranks)
        self._cluster, self._crew = cluster, crew

    @property
    def component(self) -> str:
        """The name of the component."""
        return self._component

    @property
    def world_size(self) -> int:
        """The number of ranks; 0 after the shutdown."""
        return len(self._ranks)

    @property
    def placements(self) -> list[Placement]:
        """The rows that the ranks were started from, in rank order."""
        return [rank.expected.placement for rank in self._ranks]

    def execute_on(self, *ranks: int) -> RankSelection:
        """Return some ranks, to call methods on.

        Raises ``ValueError`` for a rank that is not there, or named twice, and ``WorkerError`` after the shutdown.
        """
        self._running("execute_on")
        unknown = [rank for rank in ranks if as_int(rank) not in range(self.world_size)]
        if unknown or not ranks or len(set(ranks)) < len(ranks):
            given = ", ".join(map(repr, ranks)) or "none"
            raise ValueError(
                f"{self._component} has the ranks {RankSet(range(self.world_size))}; execute_on() takes some of them, "
                f"each once, and was given {given}"
            )
        return RankSelection(self._component, self._worker_class, [self._ranks[rank] for rank in sorted(ranks)])

    def verify(self, timeout: float | None = None) -> list[RankReport]:
        """Ask every rank where it is and what it sees, and return the reports in rank order.

        A rank answers when the calls that it was sent before are done. Raises ``LaunchError`` when anything is not as
        planned, ``WorkerError`` when a rank is dead, ``TimeoutError`` after ``timeout`` seconds.
        """
        with session.used():
            ranks = self._running("verify")
            looks = [rank.host.look.remote() for rank in ranks]
        sightings = self._call("verify", ranks, looks).wait(timeout)
        return check(self._component, [rank.expected for rank in ranks], sightings)

    def free_ports(self, count: int = 1, timeout: float | None = None) -> list[range]:
        """Find, for every rank, ``count`` consecutive ports that are free on its node, and return them in rank order.

        They are found by the ranks themselves, clear of the ports of Ray's workers and, where there is room, of the
        system's ephemeral ones, and are handed out to nobody else of this program until the group is shut down. A rank
        answers when the calls that it was sent before are done. Raises ``LaunchError`` when a node has not so many,
        ``ValueError`` for a ``count`` below 1, ``WorkerError`` and ``TimeoutError`` as other calls do.
        """
        if (as_int(count) or 0) < 1:
            raise ValueError(f"count is {count!r}; it must be a whole number of 1 or more")
        ranks = list(self._running("free_ports"))
        inventory = self._cluster.inventory
        machines = [str(inventory.node(rank.expected.placement.cluster_node_rank).hostname) for rank in ranks]
        blocks: dict[int, range] = {}
        while len(blocks) < len(ranks):
            left = [index for index in range(len(ranks)) if index not in blocks]
            choices: list[range] = []
            for index in left:
                try:
                    choices.append(self._crew.choice(machines[index], count))
                except LaunchError:
                    if not choices:
                        raise
                    break  # the others are asked when these have given back what they did not take
            left = left[: len(choices)]
            asked = zip(left, choices, strict=True)
            answers = [ranks[index].host.free_block.remote(choice, count) for index, choice in asked]
            call = Call(self._component, "free_ports", [ranks[index].expected.placement for index in left], answers)
            for index, choice, start in zip(left, choices, call.wait(timeout), strict=True):
                if start is not None:  # else it is given another choice
                    blocks[index] = range(start, start + count)
                    self._crew.keep(machines[index], choice, blocks[index])
        return [blocks[index] for index in range(len(ranks))]

    def shutdown(self) -> None:
        """End the ranks, whatever they are doing, and give back what was reserved; may be called again."""
        if self._ranks and self._session == session.current():
            self._crew.end()
        self._ranks = []
        self._cluster.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


class GroupSpec:
    """A worker class and the arguments that every rank constructs it with; ``launch`` makes it a running group.

    Raises ``TypeError`` when the constructor does not take these arguments, or when the class has a method that would
    be hidden by one of the group's own.
    """

    def __init__(self, worker_class: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = worker_class.__name__
        try:
            inspect.signature(worker_class.__init__).bind(None, *args, **kwargs)  # type: ignore[misc]
        except TypeError as error:
            raise TypeError(f"{name}.create_group(): the constructor of {name} does not take this: {error}") from None
        hidden = [method for method in _methods(worker_class) if hasattr(WorkerGroup, method)]
        if hidden:
            raise TypeError(f"{name}.{hidden[0]}() would be hidden by WorkerGroup.{hidden[0]}; give it another name")
        self._recipe = Recipe(worker_class, args, kwargs)

    def __repr__(self) -> str:
        return f"<group of {self._recipe.worker_class.__name__}, not launched>"

    def has_method(self, name: str) -> bool:
        """Whether this can be called on the group."""
        return _is_method(self._recipe.worker_class, name)

    def launch(
        self,
        cluster: Cluster,
        placement_strategy: PlacementStrategy | Placements | None = None,
        name: str | None = None,
        max_concurrency: int | None = None,
        isolate_accelerator: bool = True,
        reserve: float | None = None,
        timeout: float = 300.0,
    ) -> WorkerGroup:
        """Start the ranks where the strategy says, verify them, and return the running group.

        ``placement_strategy`` may also be rows of a plan for this cluster (``plan["actor"]``). Without one there is a
        process for each accelerator of the cluster, or for each node of a cluster that has no accelerators. ``name``
        is the component's (the name of the class without). ``max_concurrency`` is how many calls a rank works on
        at a time, in threads (1 without). ``isolate_accelerator`` narrows a process to its own accelerators; rows of
        a plan have it decided.

        Without ``reserve`` Ray is asked for nothing, and components share accelerators freely. A share from 0.0001 to
        1, in such steps, reserves that much of each of its accelerators, and of one CPU, for each process, in one
        placement group a node; the rows and the environment are the same. The shutdown gives it back.

        All ranks must have constructed their worker within ``timeout`` seconds.

        All or nothing: raises ``LaunchError`` naming component, rank and node, and leaves no process behind, when any
        rank does not come up or is not as planned, or, at once, when what is to be reserved is not free.
        ``PlacementError`` when the strategy does not fit the cluster, ``ValueError`` and ``TypeError`` for an argument
        that makes no sense.
        """
        if not hasattr(cluster, "check_open"):
            raise TypeError(f"{type(cluster).__name__} is no rankplan.Cluster; a group is launched on a live one")
        cluster.check_open()
        if max_concurrency is not None and (as_int(max_concurrency) or 0) < 1:
            raise ValueError(f"max_concurrency is {max_concurrency!r}; it must be a whole number of 1 or more")
        share = as_share(reserve)
        if reserve is not None and share is None:
            raise ValueError(
                f"reserve is {reserve!r}; it must be a share of an accelerator from 0.0001 to 1, in steps of 0.0001, "
                "such as 1.0, or 0.8 where another component takes 0.2"
            )
        seconds = as_timeout(timeout)
        if name is not None and not (isinstance(name, str) and name and name.isprintable()):
            raise ValueError(f"name is {name!r}; it must be plain text that is not empty")
        component = name or self._recipe.worker_class.__name__
        if placement_strategy is None:
            placement_strategy = _one_process_each(cluster.inventory)
        if isinstance(placement_strategy, Placements):
            rows, inventory = placement_strategy, cluster.inventory
        elif isinstance(placement_strategy, PlacementStrategy):
            rows = placement_strategy.get_placement(cluster, isolate_accelerator)
            inventory = placement_strategy.inventory_on(cluster)
        else:
            raise TypeError(
                f"placement_strategy is a {type(placement_strategy).__name__}; give a strategy, such as "
                "placement.get_strategy(name), or the rows of a plan"
            )
        recipe = replace(self._recipe, max_concurrency=as_int(max_concurrency))
        crew = bring_up(cluster, inventory, component, recipe, list(rows), share, seconds)
        group = WorkerGroup(cluster, component, self._recipe.worker_class, crew)
        cluster.remember(group)
        return group


def _is_method(worker_class: type, name: str) -> bool:
    public = not name.startswith("_") and name != "create_group"
    return public and name in dir(worker_class) and callable(getattr(worker_class, name))


def _methods(worker_class: type) -> list[str]:
    """Return the names of what can be called on a group of this class."""
    return [name for name in dir(worker_class) if _is_method(worker_class, name)]


def _one_process_each(inventory: Inventory) -> PlacementStrategy:
    if accelerators := len(inventory.core.accelerators()):
        return PackedPlacementStrategy(0, accelerators - 1)
    return NodePlacementStrategy(range(inventory.num_nodes))

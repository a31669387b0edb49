"""A worker class with its arguments, before the launch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

from rankplan import (
    FlexiblePlacementStrategy,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    PlacementStrategy,
)
from rankplan._core import RankSet
from rankplan.hardware.policies import VISIBILITIES
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component, Visibility
from rankplan.runtime.cluster import Cluster
from rankplan.runtime.group.crew import Crew, Failure, Terms, watch
from rankplan.runtime.group.group import WorkerGroup, check_names, is_method
from rankplan.runtime.group.launch import bring_up
from rankplan.runtime.group.ranks import check_interpreters, rank_specs
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.rank.host import MOST_CALLS
from rankplan.runtime.rank.spec import PROOFS
from rankplan.runtime.ray.answers import as_timeout
from rankplan.runtime.ray.asking import answers_within
from rankplan.runtime.ray.signals import Uninterrupted
from rankplan.runtime.reserve.reserve import Reservation, make_reservation
from rankplan.words import as_int, shown, wrong_type


class GroupSpec:
    """A worker class and the arguments that every rank constructs it with; ``launch`` makes it a running group.

    Raises ``TypeError`` if the constructor does not accept these arguments, or a method has a name of the group.
    """

    def __init__(self, worker_class: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = worker_class.__name__
        try:
            inspect.signature(worker_class.__init__).bind(None, *args, **kwargs)  # type: ignore[misc]
        except TypeError as error:
            raise TypeError(f"{name}.create_group(): the constructor of {name} does not accept this: {error}") from None
        check_names(worker_class)
        self._worker_class, self._args, self._kwargs = worker_class, args, kwargs

    def __repr__(self) -> str:
        return f"<group of {self._worker_class.__name__}, not launched>"

    def has_method(self, name: str) -> bool:
        """Whether this can be called on the group."""
        return is_method(self._worker_class, name)

    def launch(
        self,
        cluster: Cluster,
        placement_strategy: PlacementStrategy | Component | None = None,
        *,
        name: str | None = None,
        max_concurrency: int | None = None,
        isolate_accelerator: bool = True,
        reservation: Reservation | None = None,
        reserve: bool = False,
        timeout: float | None = None,
        visibility: Visibility | None = None,
        prove: Literal["devices", "environment"] | None = None,
        on_failure: Callable[[WorkerGroup, Failure], object] | None = None,
    ) -> WorkerGroup:
        """Start a rank for each process of the strategy, verify them, and return the running group.

        ``placement_strategy`` may also be a component of a plan that fits this cluster (``plan["actor"]``), whose nodes
        are found by their names. The default is one process per accelerator of the cluster that is not excluded, or per
        node of a cluster without accelerators. ``name`` is the component's name (default: its name in the plan,
        else that of the class). ``isolate_accelerator`` shows a process only its own accelerators; for a component of
        a plan this is already decided. ``visibility`` overrides both: ``own``, ``node``, or ``own-first`` for all
        accelerators of the node with its own first.

        ``prove``: with ``devices``, each rank asks the driver in a separate process which devices it has, while it
        loads; a difference from the plan is a ``LaunchError``. With ``environment``, only variables are compared. The
        default is ``devices`` where the inventory has the uuids of NVIDIA devices, except on simulated nodes.

        ``max_concurrency`` is how many calls a rank works on at a time, at most 1,000. By default, plain methods run
        one at a time, in the order of the calls, and ``async`` methods concurrently, up to 1,000: they share the event
        loop of the process, so that one method can wait for another. If a class has ``async`` methods, its plain
        methods run in threads beside that event loop, as many at a time as ``max_concurrency`` says (default: 1).

        By default nothing but ``cpus_per_process`` and ``host_memory_per_process`` of the component is requested from
        Ray, and components share accelerators freely. With a ``reservation`` (see
        ``Cluster.reserve``) each rank starts in the bundle of its first accelerator. ``reserve=True`` reserves for this
        component alone, until the group is shut down. Rows and environment are the same in all cases, but for
        OMP_NUM_THREADS: Ray sets it to the CPUs that a process holds outside of a reservation, else to 1.

        ``on_failure`` is called with the group and a `Failure` whenever ranks have died, without a call in flight; it
        may restart them. It runs in a thread of its own, one failure at a time, until the group ends.

        All ranks must have constructed their worker within ``timeout`` seconds, by default 300 and 2 for each rank on
        the machine with the most, whose processes start one after another. All or nothing: raises ``LaunchError``
        naming component, rank and node, and leaves no process behind, if a rank does not come up or differs from its
        plan, or, within about a second, if the reservation does not fit. Raises ``PlacementError`` if the strategy does
        not fit the cluster (for a plan, ``plan-mismatch`` or, by ``cluster.topology.keep``, ``group-spans``),
        ``ValueError`` and ``TypeError`` for an invalid argument.
        """
        check_cluster(cluster)
        cluster.connection.check_open()
        _check_calls_at_a_time(max_concurrency)
        if visibility not in (None, *VISIBILITIES):
            raise ValueError(f"visibility is {shown(visibility)}; it must be own, node or own-first")
        if prove not in (None, *PROOFS):
            raise ValueError(f"prove is {shown(prove)}; it must be devices or environment")
        check_reserve(reserve)
        _check_reservation(cluster, reservation, reserve=reserve)
        if on_failure is not None and not callable(on_failure):
            raise TypeError(f"on_failure is {shown(on_failure)}; pass a function of the group and the failure")
        seconds = None if timeout is None else as_timeout(timeout)
        with answers_within(seconds):
            cluster.connection.check_alive()
        if name is not None and not (isinstance(name, str) and name and name.isprintable()):
            raise ValueError(f"name is {shown(name)}; it must be a non-empty printable string")
        placed = self._placed(cluster, placement_strategy, name, isolate_accelerator=isolate_accelerator)
        nodes, component = placed.nodes, placed.component
        if visibility is not None:
            component = component.with_settings(visibility=visibility)
        specs = rank_specs(nodes, component, prove)
        check_interpreters(specs)
        worker = self._worker_class, self._args, self._kwargs
        at_a_time = as_int(max_concurrency)
        terms = Terms(lambda: cluster.nodes, worker, at_a_time, component, placed.planned_name, visibility, prove)
        crew = None
        try:
            if reserve:
                reservation = make_reservation(cluster.connection, nodes, [component])
                reservation.release_when_unused()
            crew = Crew(terms, cluster.connection, nodes, reservation)
            with answers_within(seconds):
                bring_up(crew, specs, seconds)
            group = WorkerGroup(crew)
            if on_failure is not None:
                watch(crew, partial(on_failure, group))
            return group
        except BaseException:
            with Uninterrupted():
                if crew is not None:
                    crew.end()
                if reserve and reservation is not None:
                    reservation.release()
            raise

    def _placed(
        self,
        cluster: Cluster,
        strategy: PlacementStrategy | Component | None,
        name: str | None,
        *,
        isolate_accelerator: bool,
    ) -> _Placed:
        """Return the component that a strategy gives on a cluster, or a component of a plan on its nodes."""
        if strategy is None:
            strategy = one_process_each(cluster.inventory)
        if isinstance(strategy, Component):
            nodes, (component,) = cluster.nodes.fitted(strategy.inventory, [strategy])
            return _Placed(nodes, replace(component, name=name or strategy.name), strategy.name)
        if isinstance(strategy, PlacementStrategy):
            own_name = name or self._worker_class.__name__
            component = strategy.on(cluster, own_name, isolate_accelerator=isolate_accelerator)
            return _Placed(cluster.nodes, component, own_name)
        instead = "a strategy, such as placement.get_strategy(name), or a component of a plan, such as plan[name]"
        raise wrong_type("placement_strategy", strategy, instead)


class _Placed(NamedTuple):
    """A component to launch, its nodes in the order of its plan, and its name in that plan."""

    nodes: Nodes
    component: Component
    planned_name: str


def _check_calls_at_a_time(value: object) -> None:
    if value is not None and as_int(value) not in range(1, MOST_CALLS + 1):
        raise ValueError(
            f"max_concurrency is {shown(value)}; it must be a whole number from 1 to {MOST_CALLS}, the "
            "most calls that a rank works on at a time"
        )


def check_cluster(cluster: Cluster) -> None:
    if not isinstance(cluster, Cluster):
        raise wrong_type("cluster", cluster, "a live rankplan.Cluster")


def check_reserve(value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"reserve is {shown(value)}; pass True or False: shares belong to the components of a plan")


def _check_reservation(cluster: Cluster, reservation: Reservation | None, *, reserve: bool) -> None:
    if reservation is None:
        return
    if not isinstance(reservation, Reservation):
        raise wrong_type("reservation", reservation, "the result of cluster.reserve(plan)")
    if reserve:
        raise ValueError("reserve=True makes a reservation of its own; pass either reserve or reservation")
    if reservation.connection is not cluster.connection:
        raise ValueError("the reservation belongs to another Cluster; reserve on the Cluster that is passed to launch")


def one_process_each(inventory: Inventory) -> PlacementStrategy:
    """Return the strategy of a launch without one: a process per accelerator, or per node if there are none.

    Excluded ones are left out. RLinf starts one process in all if there are no accelerators; here a job that is tried
    without them keeps a process on every node.
    """
    if accelerators := inventory.core.accelerators():
        usable = accelerators - inventory.excluded_accelerators
        if usable in (accelerators, RankSet()):
            return PackedPlacementStrategy(0, len(accelerators) - 1)
        return FlexiblePlacementStrategy([[index] for index in usable])
    nodes = RankSet(range(inventory.num_nodes))
    excluded = RankSet(chain.from_iterable(ranks for ranks, local in inventory.excluded if local is None))
    return NodePlacementStrategy(list(nodes - excluded or nodes))

"""A live cluster: the connection to Ray, the nodes in a fixed order, and the groups and reservations on them."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray

from rankplan._core import RankSet
from rankplan.dialects import stated_cluster
from rankplan.errors import ClusterError
from rankplan.nodes.facts import NO_FACTS, NODE_ORDERS, ClusterFacts
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.plans.component import used_nodes
from rankplan.plans.plan import Plan, check_plan
from rankplan.read.cluster import StatedCluster
from rankplan.runtime.nodes.exports import Selection, as_selection, find_exports, selected
from rankplan.runtime.nodes.nodes import FoundNode, Nodes
from rankplan.runtime.nodes.probe import find_nodes, refreshed
from rankplan.runtime.nodes.simulate import Raylets
from rankplan.runtime.rank.host import this_process
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import as_timeout
from rankplan.runtime.ray.asking import HeadSilent, answers_within
from rankplan.runtime.ray.connection import (
    Connection,
    Report,
    connect,
    told,
    using_session,
    wait_until_unused,
)
from rankplan.runtime.ray.internals import is_driver
from rankplan.runtime.ray.signals import TerminationHandler
from rankplan.runtime.reserve.reserve import Reservation, make_reservation
from rankplan.words import as_int, counted, shown, wrong_type

if TYPE_CHECKING:
    from typing_extensions import Self


class Cluster:
    """A Ray cluster with its nodes in a fixed order. It ends with ``close()``, ``with``, or the program.

    ``cluster_cfg`` is the ``cluster`` section of a config. ``num_nodes`` is the number of nodes to wait for and use if
    no section says so (default: all). ``address`` is the address of a running cluster. By default, the cluster is found
    as Ray finds it: at ``RAY_ADDRESS``, then on this machine; if there is none, one is started on this machine alone. A
    process that is already connected to Ray keeps its connection, and ``close`` leaves that open. Nodes may take
    ``timeout`` seconds to join. ``on_progress`` is called with a short text on each step, also during launches; by
    default, a terminal shows every step that takes more than a second.

    ``node_order`` is the order of nodes that have no rank (``RANKPLAN_NODE_RANK``, or the label
    ``rankplan.io/node-rank``): by ``"address"``, compared as numbers; by ``"topology"``, domain after domain; or as in
    ``"rlinf"``, which puts the node of this program first, then compares addresses as text. By default, the section
    decides (``topology: {order: topology}``), else the addresses.

    With ``plan``, the cluster has the nodes of that plan. If a launcher has set their ranks, only those must join that
    the plan uses; the others may be missing, and no plan may use them then. ``spares``: it has all other nodes, too.

    ``forward_env`` selects the variables of this program that reach every rank: by default all that were set after Ray
    was started on this node, except those of a shell or a machine (``PWD``, ``HOSTNAME``, ``SSH_*``). Pass a list of
    names and patterns (``["NCCL_*", "HF_TOKEN"]``), or ``False`` for none.

    In a rank, a `Cluster` has the nodes of the driver's cluster, in the same order, with its node groups and exports.

    Raises ``PlacementError`` for a faulty section and ``ValueError`` for an invalid number, before any connection, and
    ``ClusterError`` if the cluster cannot be used.
    """

    _raylets: Raylets | None = None

    def __init__(
        self,
        cluster_cfg: Mapping[str, Any] | StatedCluster | None = None,
        num_nodes: int | None = None,
        address: str | None = None,
        *,
        timeout: float = timeouts.JOIN,
        node_order: str | None = None,
        plan: Plan | None = None,
        spares: bool = False,
        on_progress: Report | None = None,
        forward_env: Selection = True,
    ) -> None:
        timeout = as_timeout(timeout)
        if node_order not in (None, *NODE_ORDERS):
            raise ValueError(f"node_order is {shown(node_order)}; it must be address, topology or rlinf")
        forward_env = as_selection(forward_env)
        if num_nodes is not None and (as_int(num_nodes) or 0) < 1:
            raise ValueError(f"num_nodes is {shown(num_nodes)}; it must be a whole number of 1 or more")
        if on_progress is not None and not callable(on_progress):
            raise wrong_type("on_progress", on_progress, "a function of a text")
        stated = _stated(cluster_cfg)
        num_nodes = _agreed_number(as_int(num_nodes), stated, plan)
        if plan is not None and spares:
            num_nodes = None
        needed = None if plan is None else used_nodes(plan.values())
        self._closed = False
        self._dead: dict[int, NodeSpec] = {}
        self._refreshing = threading.Lock()
        how = self._connect(address, num_nodes, on_progress)
        try:
            driver = this_process()
            if driver is not None:
                self.nodes = _of_driver(driver.nodes(), num_nodes, stated, forward_env)
                return
            with self.connection.progress() as report:
                starting = self._raylets is None and how != "started"
                facts = _facts(stated, plan)
                facts = replace(facts, order=node_order or facts.order)
                found = find_nodes(num_nodes, timeout, report, starting=starting, facts=facts, needed=needed)
            self.nodes = self._nodes_of(found, stated, forward_env)
        except HeadSilent as silent:
            self.close()
            raise ClusterError(str(silent)) from None
        except BaseException:
            self.close()
            raise

    def _connect(self, address: str | None, num_nodes: int | None, on_progress: Report | None) -> str:
        """Connect this process to Ray, and return how; without a connection, leave nothing behind."""
        self._connected_here = not ray.is_initialized()
        # the handler of a process of Ray's is not ours to replace
        self._termination = TerminationHandler() if self._connected_here or is_driver() else None
        try:
            how = connect(address, num_nodes)
            if self._termination is not None:
                self._termination.install()
            self.connection = Connection(on_progress)
        except BaseException:
            self._disconnect()
            raise
        return how

    def _nodes_of(self, found: Sequence[FoundNode], stated: StatedCluster | None, forward_env: Selection) -> Nodes:
        """Return the nodes that were found with what is stated of them, and keep the records of missing ones."""
        self._dead = {rank: node.spec for rank, node in enumerate(found) if not node.node_id}
        inventory = Inventory([node.spec.at(RankSet([rank])) for rank, node in enumerate(found)])
        is_simulated = self._raylets is not None
        if stated is not None:
            # the names that a simulated cluster excludes are those of other machines
            inventory = stated.on(inventory, planned=is_simulated)
        return Nodes(tuple(node.node_id for node in found), inventory, is_simulated, find_exports(forward_env))

    @classmethod
    def simulate(
        cls,
        nodes: str | Inventory,
        cluster_cfg: Mapping[str, Any] | StatedCluster | None = None,
        *,
        on_progress: Report | None = None,
    ) -> Self:
        """Start a real Ray cluster of several raylets on this machine (Linux), and connect to it.

        ``nodes`` is the number of nodes and of accelerators on each (``"2x8"``), or an inventory. The accelerators are
        only declared; ranks get the environment they would get on such nodes. Interpreters of node groups that do not
        exist on this machine are replaced by the current one, with a warning. Takes about 3 seconds, plus one second
        and 135 MiB per node.

        Raises ``PlacementError`` for a faulty size or section, before anything is started, and ``ClusterError`` if this
        process is already connected to Ray, or this is not the main thread.
        """
        inventory = Inventory.parse(nodes) if isinstance(nodes, str) else nodes
        if not isinstance(inventory, Inventory):
            raise TypeError(f'{nodes!r} is neither a size such as "2x8" nor an Inventory')
        if threading.current_thread() is not threading.main_thread():
            raise ClusterError("only the main thread can simulate a cluster; groups can be launched from any thread")
        stated = _stated(cluster_cfg)
        if stated is not None:
            inventory = stated.on(inventory)
        if ray.is_initialized():
            raise ClusterError(
                "this process is already connected to a Ray cluster; close that Cluster, or call ray.shutdown(), "
                "before simulating another"
            )
        cluster, raylets = cls.__new__(cls), Raylets(inventory)
        try:
            with told(on_progress) as report:
                raylets.start(report)
            cluster._raylets = raylets
            Cluster.__init__(cluster, stated, inventory.num_nodes, raylets.address, on_progress=on_progress)
            records = []
            for rank in range(cluster.num_nodes):  # the raylets of excluded nodes run too
                here = cluster.inventory.node(rank)
                local = inventory.marks.get(rank, RankSet())
                marks = {"healthy": False} if local is None else {"unhealthy": here.unhealthy | local}
                records.append(here.changed(**marks))
            cluster.nodes = replace(cluster.nodes, inventory=cluster.inventory.updated(records))
            # Ray ends its own connection when the program ends, but not these raylets
            atexit.register(cluster.close)
            return cluster
        except BaseException:
            raylets.close()
            raise

    @property
    def inventory(self) -> Inventory:
        """The nodes and their facts, by node rank, with the node groups of ``cluster_cfg``."""
        return self.nodes.inventory

    @property
    def node_ids(self) -> tuple[str, ...]:
        """Ray's ids of the nodes, by node rank."""
        return self.nodes.ids

    @property
    def address(self) -> str:
        """The address for other processes to connect to, as ``Cluster(address=...)`` or ``RAY_ADDRESS``.

        For a cluster with a token, these processes also need ``RAY_AUTH_MODE=token``.
        """
        return self.connection.address

    @property
    def simulated(self) -> bool:
        """Whether the nodes are raylets that were started on this machine by `simulate`."""
        return self.nodes.simulated

    @property
    def num_nodes(self) -> int:
        """The number of known nodes: the nodes in use and, after `refresh`, spares and dead nodes."""
        return len(self.nodes.ids)

    def reserve(self, plan: Plan, components: str | Iterable[str] | None = None) -> Reservation:
        """Reserve whole accelerators, CPUs and memory for all components of a plan or those named.

        A process has one CPU, unless its component states its ``cpus_per_process``.

        Use it in a ``with``, and launch each component with ``reservation=...``::

            with cluster.reserve(plan) as reserved:
                actor = Actor.create_group().launch(cluster, plan["actor"], reservation=reserved)

        All or nothing: raises ``PlacementError`` before any request to Ray if the plan does not fit the cluster
        (``plan-mismatch``), breaks a rule of ``cluster.topology`` (``group-spans``, ``segment-incomplete``), or the
        shares of an accelerator add up to more than 1 (``share-overflow``), and ``LaunchError`` within about a second,
        with a table of the nodes, if too little is available; ``KeyError`` for an unknown component. Ray counts the
        accelerators of a node, but does not tell them apart: other programs cannot take more than the rest, whichever
        they use.
        """
        self.connection.check_open()
        check_plan(plan)
        names = list(plan) if components is None else [components] if isinstance(components, str) else components
        if not isinstance(names, Iterable):
            raise wrong_type("components", components, f"names of components: {', '.join(plan)}")
        chosen = plan.only(*names)
        complete = len(chosen) == len(plan)
        nodes, found = self.nodes.fitted(plan.inventory, list(chosen.values()), complete=complete)
        plan = chosen
        plan.check_shares()
        return make_reservation(self.connection, nodes, found)

    def refresh(self, timeout: float = timeouts.JOIN) -> Inventory:
        """Probe the nodes again, and return the current inventory. No node rank changes.

        Nodes that have left are not ``healthy`` any more: no plan may use them. A node that was started again, with its
        hostname and address, has its rank again, also before Ray has noticed that it was gone. Nodes that have joined
        come last, as spares, also those beyond ``num_nodes``; unusable ones are skipped, with a warning. Groups are
        left alone: see `replan` and ``WorkerGroup.restart``. Raises ``LaunchError`` if the cluster was closed, Ray has
        ended, or its head does not answer in that time, ``ValueError`` for an invalid timeout.
        """
        seconds = as_timeout(timeout)
        with self._refreshing, using_session(), answers_within(seconds), self.connection.progress() as report:
            self.connection.check_alive()
            report("looking at the nodes again")
            self.nodes = refreshed(self.nodes, self._dead, seconds)
        return self.inventory

    def stop_node(self, rank: int) -> None:
        """Stop a node of a simulated cluster, with everything that runs there, to try out a failure.

        Raises ``ClusterError`` for a real cluster, and for node 0, where Ray's head runs; ``IndexError`` for an unknown
        node.
        """
        if self._raylets is None:
            raise ClusterError("only a simulated cluster can stop a node; use `ray stop` on the node")
        if rank == 0:
            raise ClusterError("node 0 runs the head of the simulated cluster; stop another node")
        if rank not in range(self.num_nodes):
            raise IndexError(f"unknown node {rank}; the nodes are {RankSet(range(self.num_nodes))}")
        self._raylets.stop(self.node_ids[rank])

    def close(self) -> None:
        """End groups and reservations, then the connection or nodes that this object started; may be called again."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        # in reverse order, each even if another fails
        with ExitStack() as steps:
            if self._raylets is not None:
                steps.callback(self._raylets.close)
            if self._connected_here and self.connection.is_current:
                steps.callback(self._disconnect)
                if self.connection.has_launched:
                    steps.callback(time.sleep, timeouts.LAST_LINES)
                # other threads soon notice that their ranks have ended
                steps.callback(wait_until_unused, timeouts.THREADS)
            steps.callback(self.connection.end_owned)

    def _disconnect(self) -> None:
        """End the connection that this object started, and leave SIGTERM as it was."""
        if self._connected_here:
            ray.shutdown()
        if self._termination is not None:
            self._termination.restore()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cluster of {counted(self.num_nodes, 'node')}{', closed' if self._closed else ''}>"


def _stated(cluster_cfg: Mapping[str, Any] | StatedCluster | None) -> StatedCluster | None:
    """Return what a section states. Raises `PlacementError` if it is no mapping."""
    if cluster_cfg is None or isinstance(cluster_cfg, StatedCluster):
        return cluster_cfg
    return stated_cluster(cluster_cfg)


def _agreed_number(argument: int | None, stated: StatedCluster | None, plan: Plan | None) -> int | None:
    """Return the number of nodes that the argument, the section and the plan agree on; ``None`` if none states it.

    Raises `PlacementError` for a faulty section, ``ClusterError`` for numbers that differ.
    """
    num_nodes = argument
    if stated is not None:
        stated.finish()
        if num_nodes not in (None, stated.num_nodes):
            raise ClusterError(f"num_nodes is {num_nodes}, but cluster_cfg has {stated.num_nodes}; omit the argument")
        num_nodes = stated.num_nodes
    if plan is not None:
        check_plan(plan)
        if num_nodes not in (None, plan.inventory.num_nodes):
            raise ClusterError(f"num_nodes is {num_nodes}, but the plan has {plan.inventory.num_nodes} nodes")
        num_nodes = plan.inventory.num_nodes
    return num_nodes


def _facts(stated: StatedCluster | None, plan: Plan | None) -> ClusterFacts:
    """Return the levels of the network and the order of nodes: those of the section, or else of the plan."""
    if stated is not None:
        return stated.facts
    if plan is None:
        return NO_FACTS
    found = plan.inventory.facts or NO_FACTS
    return replace(found, levels=found.levels or plan.inventory.levels or None)


def _of_driver(nodes: Nodes, num_nodes: int | None, stated: StatedCluster | None, forward_env: Selection) -> Nodes:
    """Return the nodes of the driver's cluster for use in a rank, the first ``num_nodes`` of them."""
    present = len(nodes.ids)
    if num_nodes is not None and num_nodes > present:
        raise ClusterError(f"num_nodes is {num_nodes}, but the driver's cluster has {counted(present, 'node')}")
    inventory = nodes.inventory.first(num_nodes or present)
    if stated is not None:
        inventory = stated.on(inventory)
    exports = selected(forward_env, nodes.exports, {})
    return replace(nodes, ids=nodes.ids[: inventory.num_nodes], inventory=inventory, exports=exports)

"""The cluster that groups are launched on: a connection to Ray, and the inventory of its nodes."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import ray
from ray._private.services import canonicalize_bootstrap_address
from ray.exceptions import RayError

from rankplan.config.models import as_int
from rankplan.config.section import read_section
from rankplan.errors import ClusterError, LaunchError
from rankplan.inventory import Inventory
from rankplan.render.progress import Report, told
from rankplan.runtime import session
from rankplan.runtime.calls import as_timeout
from rankplan.runtime.node_order import NodeFacts, in_order
from rankplan.runtime.probe import look_at, wait_for_nodes
from rankplan.runtime.simulate import Raylets

if TYPE_CHECKING:
    from rankplan.runtime.group import WorkerGroup

_ANSWER_SECONDS = 5.0
_LAST_LINES_SECONDS = 0.5  # Ray brings what the ranks printed to the driver with some delay, and drops it on shutdown
_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # a frame of HTTP/2, which both sides begin with
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS

_logger = logging.getLogger("rankplan")


class Cluster:
    """A Ray cluster with its nodes in a fixed order. Ended by ``close()``, by leaving ``with``, or with the program.

    ``cluster_cfg`` is the ``cluster`` section of a config; ``num_nodes`` says how many nodes to wait for and use where
    no section does (all without). ``address`` is that of a running cluster; without one it is found as Ray finds it:
    ``RAY_ADDRESS``, else the cluster that runs on this machine, else one of this machine alone is started. A process
    that is connected to Ray already keeps its connection, and ``close`` leaves that open. Nodes may take ``timeout``
    seconds to join. ``on_progress`` is told in a few words what is being waited for, also while groups are launched;
    without it a terminal shows what takes more than a second.

    Raises ``PlacementError`` for a faulty section and ``ValueError`` for a number that is none, before anything of Ray
    is started, and ``ClusterError`` when the cluster cannot be used.
    """

    inventory: Inventory
    """What the nodes have, by node rank; it knows the node groups of ``cluster_cfg``."""

    node_ids: tuple[str, ...]
    """Ray's ids of the nodes, by node rank."""

    def __init__(
        self,
        cluster_cfg: Mapping[str, Any] | None = None,
        num_nodes: int | None = None,
        address: str | None = None,
        *,
        timeout: float = 60.0,
        on_progress: Report | None = None,
    ) -> None:
        timeout = as_timeout(timeout)
        if num_nodes is not None and (as_int(num_nodes) or 0) < 1:
            raise ValueError(f"num_nodes is {num_nodes!r}; it must be a whole number of 1 or more")
        num_nodes = as_int(num_nodes)
        if cluster_cfg is not None:
            num_nodes = _configured_nodes(cluster_cfg, num_nodes)
        self._on_progress = on_progress
        self._groups: list[WorkerGroup] = []
        self._raylets: Raylets | None = None
        self._launched = False
        self._closed = False
        self._restore_handler = session.keep_handler()
        self._connected_here = _connect(address, num_nodes)
        self._session = session.current()
        self._address = str(ray.get_runtime_context().gcs_address)
        try:
            with self.progress() as report:
                nodes = _nodes(num_nodes, timeout, report)
            self.node_ids = tuple(node.node_id for node in nodes)
            inventory = Inventory.from_dict({"nodes": [_row(rank, node) for rank, node in enumerate(nodes)]})
            self.inventory = inventory if cluster_cfg is None else inventory.with_config(cluster_cfg)
        except BaseException:
            self.close()
            raise

    @classmethod
    def simulate(
        cls,
        nodes: str | Inventory,
        cluster_cfg: Mapping[str, Any] | None = None,
        *,
        on_progress: Report | None = None,
    ) -> Self:
        """Start a real Ray cluster of several raylets on this machine (Linux), and connect to it.

        ``nodes`` is the number of nodes and of accelerators on each (``"2x8"``), or an inventory. The accelerators are
        declared only: ranks get the environment that they would get on such nodes. Interpreters of node groups that are
        not on this machine are replaced by this one, with a warning. Takes about 3 seconds, and one second and 135 MiB
        for each node.

        Raises ``PlacementError`` for a faulty size or section, before anything is started, and ``ClusterError`` when
        this process is connected to Ray already, or when it is not the main thread that asks.
        """
        inventory = Inventory.of_size(nodes) if isinstance(nodes, str) else nodes
        if not isinstance(inventory, Inventory):
            raise TypeError(f'{nodes!r} is neither a size such as "2x8" nor an Inventory')
        if threading.current_thread() is not threading.main_thread():
            raise ClusterError("a cluster is simulated from the main thread; groups can be launched from any thread")
        if cluster_cfg is not None:
            inventory = inventory.with_config(cluster_cfg)
        if ray.is_initialized():
            raise ClusterError(
                "this process is connected to a Ray cluster already; close that Cluster, or call ray.shutdown(), "
                "before another is simulated"
            )
        with told(on_progress) as report:
            raylets = Raylets(inventory, report)
        try:
            cluster = cls(cluster_cfg, inventory.num_nodes, raylets.address, on_progress=on_progress)
        except BaseException:
            raylets.close()
            raise
        cluster._raylets = raylets
        # Ray ends what it connected when the program ends, but not these raylets
        atexit.register(cluster.close)
        return cluster

    @property
    def address(self) -> str:
        """The address that other processes can connect to, as ``Cluster(address=...)`` or ``RAY_ADDRESS``."""
        return self._address

    @property
    def simulated(self) -> bool:
        """Whether the nodes are raylets of this machine that were started here."""
        return self._raylets is not None

    @property
    def num_nodes(self) -> int:
        """The number of nodes that are used."""
        return len(self.node_ids)

    def close(self) -> None:
        """End the groups that were launched here, and what this object started or connected; may be called again."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        # from the last to the first, and each of them whatever happens in another
        with ExitStack() as steps:
            if self._raylets is not None:
                steps.callback(self._raylets.close)
            if self._connected_here and self._session == session.current():
                steps.callback(self._restore_handler)
                steps.callback(ray.shutdown)
                if self._launched:
                    steps.callback(time.sleep, _LAST_LINES_SECONDS)
                # other threads learn in a moment that their ranks are gone
                steps.callback(session.wait_until_unused, _ANSWER_SECONDS)
            for group in self._groups:
                steps.callback(group.shutdown)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cluster of {self.num_nodes} nodes{', closed' if self._closed else ''}>"

    def check_alive(self) -> None:
        """Raise ``LaunchError`` when nothing can be launched here, because Ray has ended under this program."""
        if lost := session.lost():
            raise LaunchError(f"{lost}; close this Cluster, start Ray again, and make a new Cluster")

    def check_open(self) -> None:
        """Raise ``LaunchError`` when nothing can be launched here any more."""
        if self._closed or self._session != session.current():
            raise LaunchError("the cluster was closed; launch inside its `with`, or before close()")

    def remember(self, group: WorkerGroup) -> None:
        """Shut this group down when the cluster is closed."""
        self._launched = True
        self._groups.append(group)

    def forget(self, group: WorkerGroup) -> None:
        """Undo ``remember``, for a group that was shut down; also one that is forgotten already."""
        if group in self._groups:
            self._groups.remove(group)

    def progress(self) -> AbstractContextManager[Report]:
        """Return a context with what tells ``on_progress``, or else the terminal, what is being waited for."""
        return told(self._on_progress)


def _configured_nodes(cluster_cfg: Mapping[str, Any], num_nodes: int | None) -> int:
    """Return the section's number of nodes; raises ``PlacementError`` for a faulty section."""
    reading = read_section(cluster_cfg)
    reading.finish()
    configured = reading.section.num_nodes
    if num_nodes not in (None, configured):
        raise ClusterError(f"num_nodes is {num_nodes}, but {configured} in cluster_cfg; leave the argument out")
    return configured


def _connect(address: str | None, num_nodes: int | None) -> bool:
    """Connect to Ray, and return whether this call did it."""
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", connected):
            raise ClusterError(
                f"this process is connected to the Ray cluster at {connected}, not to {address}; close that Cluster, "
                "or call ray.shutdown(), first"
            )
        return False
    try:
        running = _running_cluster(address)
        if running is None and num_nodes is not None and num_nodes > 1:
            raise ClusterError(
                f"no running Ray cluster was found, and {num_nodes} nodes are asked for (num_nodes); run `ray start "
                "--head` on one node and `ray start --address=...` on the others, or set RAY_ADDRESS, or use "
                f'Cluster.simulate("{num_nodes}x8") to try it out on this machine'
            )
        if running is None:
            ray.init(address="local", include_dashboard=False, logging_level=logging.WARNING)
        else:
            ray.init(address=running, logging_level=logging.WARNING)
    except (OSError, ValueError, RuntimeError, RayError) as error:
        if isinstance(error, ClusterError):
            raise
        raise ClusterError(f"cannot connect to a Ray cluster: {error}") from error
    return True


def _running_cluster(address: str | None) -> str | None:
    """Return host:port of the cluster to connect to, or ``None`` when there is none. Found as ``ray.init`` does it."""
    given = address or os.environ.get("RAY_ADDRESS", "")
    if "://" in given:
        raise ClusterError(
            f"{given} is an address of Ray Client, which cannot launch groups; run on a node of the cluster, with its "
            "host:port, or as a job (`ray job submit`)"
        )
    found: str | None = canonicalize_bootstrap_address(address)  # type: ignore[arg-type]  # None is fine there
    if found is None:
        return None
    host, port = found.rsplit(":", 1)
    try:
        # Ray itself would try for minutes
        _greet(host.strip("[]"), int(port))
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {found} ({error}); give the address of a running one, or clear what is left of "
            "one that is gone (RAY_ADDRESS, or the record that `ray stop` removes)"
        ) from None
    return found


def _greet(host: str, port: int) -> None:
    """Raise ``OSError`` unless a server of gRPC answers there, which a Ray head is (and its dashboard is not)."""
    with socket.create_connection((host, port), timeout=_ANSWER_SECONDS) as head:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return
        head.sendall(_GREETING)
        answer = head.recv(len(_SETTINGS))
        if answer[3:4] != _SETTINGS[3:4]:
            raise OSError("what answers is no Ray head, whose port is 6379 unless it was set")


def _nodes(num_nodes: int | None, timeout: float, report: Report) -> list[NodeFacts]:
    """Return the nodes to use, by node rank."""
    entries = wait_for_nodes(num_nodes, timeout, report)
    report(f"looking at {len(entries)} nodes")
    nodes, source = in_order(look_at(entries, timeout))
    used = nodes[:num_nodes]
    _logger.info("%d node(s), in the order of %s: %s", len(used), source, ", ".join(map(str, used)))
    if len(nodes) > len(used):
        unused = ", ".join(map(str, nodes[len(used) :]))
        _logger.warning("%d of %d nodes are used (num_nodes), all but: %s", len(used), len(nodes), unused)
    return used


def _row(rank: int, node: NodeFacts) -> dict[str, Any]:
    """Return the entry of a node in an inventory."""
    row: dict[str, Any] = {"ranks": rank, "ip": node.ip, "hostname": node.hostname, "labels": node.labels}
    row["accelerator_type"] = node.accelerator_type
    if node.accelerator_ids:
        row |= {"accelerator_model": node.accelerator_model, "accelerator_ids": list(node.accelerator_ids)}
    return row

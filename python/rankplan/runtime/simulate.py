"""A real Ray cluster of several raylets on this machine, with accelerators that are declared and need not exist."""

from __future__ import annotations

import ipaddress
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ray import cluster_utils

from rankplan.accelerators import VARIABLES, vendor
from rankplan.errors import ClusterError
from rankplan.render.progress import Report
from rankplan.runtime import session
from rankplan.runtime.node_order import NODE_RANK_VARIABLES
from rankplan.runtime.probe import MODEL_LABEL, TYPE_LABEL
from rankplan.runtime.processes import Process, end, family

if TYPE_CHECKING:
    from rankplan.inventory import Inventory, NodeSpec

_FIRST_ADDRESS = ipaddress.ip_address("127.0.0.2")  # a head on 127.0.0.1 makes the driver rewrite the address and hang
_OBJECT_STORE_BYTES = 80 << 20
_HEAD_OPTIONS = {"include_dashboard": False, "no_monitor": True}
_CPUS = 128  # declared, as the accelerators are: a node of a real cluster has about as many
_STARTS = {
    "RAY_worker_maximum_startup_concurrency": str(4 * (os.cpu_count() or 1)),
    "RAY_prestart_worker_first_driver": "0",  # Ray would start processes for so many CPUs at once
}
_LONGEST_BASE = 17  # characters: Ray's socket in the folder adds 90, and the system allows 107
_GONE_SECONDS = 5.0

_logger = logging.getLogger("rankplan")


class Raylets:
    """One raylet for each node of the inventory, from ``127.0.0.2`` on, in a private folder; ``close`` ends it all.

    The accelerators, their ids, models and types, and the node ranks are those of the inventory. Starting takes about a
    second and 135 MiB a node.
    """

    def __init__(self, inventory: Inventory, report: Report) -> None:
        base = tempfile.gettempdir()
        self._folder = tempfile.mkdtemp(prefix="rankplan-", dir=base if len(base) <= _LONGEST_BASE else "/tmp")
        self._restore_handler = session.keep_handler()
        self._cluster = cluster_utils.Cluster()
        self._closed = False
        try:
            with _environment(self._start_environment()), _unlogged("ray._private.accelerators"):
                for rank in range(inventory.num_nodes):
                    report(f"starting node {rank + 1} of {inventory.num_nodes}")
                    self._cluster.add_node(**_node_options(inventory.node(rank), rank))
            self.address = str(self._cluster.address)
        except BaseException as error:
            # A raylet that was about to start is in no list of Ray's, and would be waited for in vain.
            self.close(patience=0.0)
            if isinstance(error, Exception):
                raise ClusterError(f"the simulated cluster did not start: {error}") from error
            raise

    def _start_environment(self) -> dict[str, str | None]:
        """What Ray's processes are started with.

        The private folder keeps this cluster from being recorded as the machine's running one, and tells its
        processes from all others. The driver's own mask and node rank are not those of the declared nodes. Ray starts
        a few processes at a time, for all nodes share the cores of one machine, and does not warn of many.
        """
        hidden = dict.fromkeys([*NODE_RANK_VARIABLES, *VARIABLES])
        return {**hidden, "RAY_TMPDIR": self._folder, "RAY_USAGE_STATS_ENABLED": "0", **_STARTS}

    def close(self, patience: float = _GONE_SECONDS) -> None:
        """End every process of the cluster and remove its folder; may be called again.

        Those that end by themselves have ``patience`` seconds for it.
        """
        if self._closed:
            return
        self._closed = True
        processes = self.processes()
        try:
            with _environment({"RAY_TMPDIR": self._folder}):
                self._cluster.shutdown()
        except Exception as error:
            _logger.debug("Ray did not end its processes by itself: %s", error)
        finally:
            # workers end when they miss their raylet
            end(processes | self.processes(), patience)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._restore_handler()

    def processes(self) -> set[Process]:
        """Return the processes of the cluster: Ray's own, the ranks, and what those have started."""
        return family(f"RAY_TMPDIR={self._folder}")


def _node_options(node: NodeSpec, rank: int) -> dict[str, Any]:
    environment = {NODE_RANK_VARIABLES[0]: str(rank)}
    labels = {**node.labels, TYPE_LABEL: node.accelerator_type}
    options: dict[str, Any] = {"num_gpus": 0, **(_HEAD_OPTIONS if rank == 0 else {})}
    row = vendor(node.accelerator_type)
    if row is not None:
        if node.accelerator_model is not None:
            labels[MODEL_LABEL] = node.accelerator_model
        environment[row.visibility] = row.showing(node.accelerator_ids)[row.visibility]
        if row.resource == "GPU":
            options["num_gpus"] = node.accelerators
        else:
            options["resources"] = {row.resource: node.accelerators}
    return {
        **options,
        "num_cpus": _CPUS,
        "node_ip_address": str(_FIRST_ADDRESS + rank),
        "env_vars": environment,
        "labels": labels,
        "object_store_memory": _OBJECT_STORE_BYTES,
    }


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Change variables of this process for a while (``None``: not set)."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


@contextmanager
def _unlogged(name: str) -> Iterator[None]:
    """Keep a logger silent for a while: Ray looks here for the model of declared devices, and shows why it fails."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

"""A real Ray cluster of several raylets on this machine, with declared accelerators that need not exist."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import psutil
from ray import cluster_utils

from rankplan.accelerators import VARIABLES, vendor
from rankplan.environment import NODE_RANK_VARIABLES
from rankplan.errors import ClusterError
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.runtime.nodes import processes
from rankplan.runtime.nodes.probe import HARDWARE_LABEL, HARDWARE_VARIABLE, MODEL_LABEL, TYPE_LABEL
from rankplan.runtime.nodes.processes import end, family
from rankplan.runtime.ray import internals, timeouts
from rankplan.runtime.ray.connection import Report
from rankplan.runtime.ray.signals import TerminationHandler

_FIRST_ADDRESS = ipaddress.ip_address("127.0.0.2")  # a head on 127.0.0.1 makes the driver rewrite the address and hang
_OBJECT_STORE_BYTES = 80 << 20
_CPUS = 128  # declared where the inventory does not tell, and not shown by the nodes: unknown stays unknown

_logger = logging.getLogger("rankplan")


class Raylets:
    """One raylet for each node of the inventory, from ``127.0.0.2`` on, in a private folder; ``close`` ends them."""

    address: str

    def __init__(self, inventory: Inventory) -> None:
        base = tempfile.gettempdir() if len(tempfile.gettempdir()) <= internals.LONGEST_FOLDER else "/tmp"
        self._folder = Path(base, f"rankplan-{uuid.uuid4().hex[:8]}")
        self._inventory = inventory
        self._closed = False
        self._cluster = cluster_utils.Cluster()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._termination = TerminationHandler()

    def start(self, report: Report) -> None:
        """Start the nodes one after another, and all again if one is not up in time: Ray waits 30 s, whatever the load.

        Raises ``ClusterError``, and ends the nodes, if one does not start.
        """
        try:
            self._folder.mkdir(mode=0o700)
            self._keeper = self._keep()
            with _environment(self._start_environment()), internals.quiet_detection(), internals.signals_apart():
                try:
                    self._add_nodes(report)
                except Exception as error:
                    report(f"the nodes did not start ({error}); starting them again")
                    self._end(patience=0.0)
                    self._cluster = cluster_utils.Cluster()
                    self._add_nodes(report)
            self._termination.install()
            self.address = str(self._cluster.address)
        except BaseException as error:
            # Ray does not list a raylet that was about to start, so waiting for it would be in vain.
            self.close(patience=0.0)
            if isinstance(error, Exception):
                raise ClusterError(f"the simulated cluster did not start: {error}") from error
            raise

    def _add_nodes(self, report: Report) -> None:
        num_nodes = self._inventory.num_nodes
        for rank in range(num_nodes):
            report(f"starting node {rank + 1} of {num_nodes}")
            self._cluster.add_node(**_node_options(self._inventory.node(rank), rank))

    def _keep(self) -> subprocess.Popen[bytes]:
        """Start the process that ends the cluster if this one is killed: some of Ray's processes take minutes."""
        command = [sys.executable, "-P", processes.__file__, str(os.getpid()), *self._marks]
        path = os.pathsep.join([str(Path(psutil.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        null = subprocess.DEVNULL
        options: dict[str, Any] = {"env": {**os.environ, "PYTHONPATH": path}, "start_new_session": True}
        return subprocess.Popen(command, stdin=null, stdout=null, stderr=null, **options)

    @property
    def _marks(self) -> tuple[str, str]:
        """The variable that all processes of the cluster have, and the folder of their files."""
        return f"RAY_TMPDIR={self._folder}", str(self._folder)

    def _start_environment(self) -> dict[str, str | None]:
        # The private folder keeps this cluster from being recorded as the machine's running one, and identifies its
        # processes. The driver's own mask and node rank do not apply to the declared nodes.
        hidden = dict.fromkeys([*NODE_RANK_VARIABLES, *VARIABLES])
        return {**hidden, "RAY_TMPDIR": str(self._folder), **internals.SIMULATED_SETTINGS}

    def close(self, patience: float = timeouts.RAYLETS) -> None:
        """End every process of the cluster, by force after ``patience`` seconds, and remove its folder."""
        if self._closed:
            return
        self._closed = True
        try:
            self._end(patience)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            if self._keeper is not None:
                self._keeper.kill()
                self._keeper.wait()
            self._termination.restore()

    def _end(self, patience: float) -> None:
        """End every process of the cluster, by force after ``patience`` seconds."""
        running = self.processes()
        try:
            with _environment({"RAY_TMPDIR": str(self._folder)}):
                self._cluster.shutdown()
        except Exception as error:
            _logger.debug("Ray did not end its processes: %s", error)
        finally:
            # workers end when their raylet is gone
            end(running | self.processes(), patience)

    def stop(self, node_id: str) -> None:
        """End a node with this id, in order; does nothing if it has ended."""
        for node in [node for node in self._cluster.worker_nodes if node.node_id == node_id]:
            with _environment({"RAY_TMPDIR": str(self._folder)}):
                self._cluster.remove_node(node)

    def processes(self) -> set[psutil.Process]:
        """Return the processes of the cluster: Ray's own, the ranks, and their descendants."""
        return family(self._marks[0])


def _node_options(node: NodeSpec, rank: int) -> dict[str, Any]:
    facts = json.dumps(json.loads(node.facts or "{}") | _reservable(node))
    environment = {NODE_RANK_VARIABLES[0]: str(rank), HARDWARE_VARIABLE: facts}
    labels = {**node.labels, TYPE_LABEL: node.accelerator_type}
    labels |= {f"{HARDWARE_LABEL}{name}": str(count) for name, count in node.hardware.items()}
    options: dict[str, Any] = {
        "num_gpus": 0,
        "resources": {name: ceil(amount) for name, amount in node.resources.items()},  # Ray wants whole numbers
        **(internals.SIMULATED_HEAD if rank == 0 else {}),
    }
    row = vendor(node.accelerator_type)
    if row is not None:
        if node.accelerator_model is not None:
            labels[MODEL_LABEL] = node.accelerator_model
        environment[row.env_var] = row.showing(node.accelerator_ids)[row.env_var]
        if row.resource == "GPU":
            options["num_gpus"] = node.num_accelerators
        else:
            options["resources"][row.resource] = node.num_accelerators
    if node.reservable_memory is not None:
        options["memory"] = node.reservable_memory << 20
    return {
        **options,
        "num_cpus": _CPUS if node.cpus is None else ceil(node.cpus),
        "node_ip_address": str(_FIRST_ADDRESS + rank),
        "env_vars": environment,
        "labels": labels,
        "object_store_memory": _OBJECT_STORE_BYTES,
    }


def _reservable(node: NodeSpec) -> dict[str, Any]:
    """Return the stated amounts that jobs can reserve on a node, by the keys of an inventory."""
    fields = node.fields()
    return {name: fields[name] for name in ("cpus", "reservable_memory", "resources") if fields[name]}


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Change environment variables of this process temporarily (``None``: unset)."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

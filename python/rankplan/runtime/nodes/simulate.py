"""A real Ray cluster of several raylets on this machine, with declared accelerators that need not exist."""

from __future__ import annotations

import ipaddress
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psutil
from ray import cluster_utils

from rankplan.accelerators import VARIABLES, vendor
from rankplan.environment import NODE_RANK_VARIABLES
from rankplan.errors import ClusterError
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.runtime.nodes.probe import HARDWARE_LABEL, HARDWARE_VARIABLE, MODEL_LABEL, TYPE_LABEL
from rankplan.runtime.ray import internals, timeouts
from rankplan.runtime.ray.connection import Report, keep_handler

_FIRST_ADDRESS = ipaddress.ip_address("127.0.0.2")  # a head on 127.0.0.1 makes the driver rewrite the address and hang
_OBJECT_STORE_BYTES = 80 << 20
_CPUS = 128  # declared, like the accelerators: as many as a node of a real cluster has

_logger = logging.getLogger("rankplan")


class Raylets:
    """One raylet for each node of the inventory, from ``127.0.0.2`` on, in a private folder; ``close`` ends them."""

    def __init__(self, inventory: Inventory, report: Report) -> None:
        base = tempfile.gettempdir() if len(tempfile.gettempdir()) <= internals.LONGEST_FOLDER else "/tmp"
        self._folder = tempfile.mkdtemp(prefix="rankplan-", dir=base)
        self._restore_handler = keep_handler()
        self._cluster = cluster_utils.Cluster()
        self._closed = False
        try:
            with _environment(self._start_environment()), internals.quiet_detection(), internals.sigterm_handler_kept():
                for rank in range(inventory.num_nodes):
                    report(f"starting node {rank + 1} of {inventory.num_nodes}")
                    self._cluster.add_node(**_node_options(inventory.node(rank), rank))
            self.address = str(self._cluster.address)
        except BaseException as error:
            # Ray does not list a raylet that was about to start, so waiting for it would be in vain.
            self.close(patience=0.0)
            if isinstance(error, Exception):
                raise ClusterError(f"the simulated cluster did not start: {error}") from error
            raise

    def _start_environment(self) -> dict[str, str | None]:
        # The private folder keeps this cluster from being recorded as the machine's running one, and identifies its
        # processes. The driver's own mask and node rank do not apply to the declared nodes.
        hidden = dict.fromkeys([*NODE_RANK_VARIABLES, *VARIABLES])
        return {**hidden, "RAY_TMPDIR": self._folder, **internals.SIMULATED_SETTINGS}

    def close(self, patience: float = timeouts.RAYLETS) -> None:
        """End every process of the cluster, by force after ``patience`` seconds, and remove its folder."""
        if self._closed:
            return
        self._closed = True
        processes = self.processes()
        try:
            with _environment({"RAY_TMPDIR": self._folder}):
                self._cluster.shutdown()
        except Exception as error:
            _logger.debug("Ray did not end its processes: %s", error)
        finally:
            # workers end when their raylet is gone
            end(processes | self.processes(), patience)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._restore_handler()

    def stop(self, node_id: str) -> None:
        """End a node with this id, in order; does nothing if it has ended."""
        for node in [node for node in self._cluster.worker_nodes if node.node_id == node_id]:
            with _environment({"RAY_TMPDIR": self._folder}):
                self._cluster.remove_node(node)

    def processes(self) -> set[psutil.Process]:
        """Return the processes of the cluster: Ray's own, the ranks, and their descendants."""
        return family(f"RAY_TMPDIR={self._folder}")


def _node_options(node: NodeSpec, rank: int) -> dict[str, Any]:
    environment = {NODE_RANK_VARIABLES[0]: str(rank), HARDWARE_VARIABLE: node.facts or "{}"}
    labels = {**node.labels, TYPE_LABEL: node.accelerator_type}
    labels |= {f"{HARDWARE_LABEL}{name}": str(count) for name, count in node.hardware.items()}
    options: dict[str, Any] = {"num_gpus": 0, **(internals.SIMULATED_HEAD if rank == 0 else {})}
    row = vendor(node.accelerator_type)
    if row is not None:
        if node.accelerator_model is not None:
            labels[MODEL_LABEL] = node.accelerator_model
        environment[row.env_var] = row.showing(node.accelerator_ids)[row.env_var]
        if row.resource == "GPU":
            options["num_gpus"] = node.num_accelerators
        else:
            options["resources"] = {row.resource: node.num_accelerators}
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


def family(variable: str) -> set[psutil.Process]:
    """Return the processes that were started with this ``NAME=value`` in their environment, and their descendants."""
    # a process that sets its title, as Ray's do, may overwrite the environment that the system shows
    name, _, value = variable.partition("=")
    parents, found = {}, set()
    for pid in psutil.pids():  # psutil.process_iter() would keep a process whose pid another one has now
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if not _runs(process):
                continue
            parents[process] = process.ppid()
            with suppress(psutil.AccessDenied):
                if process.environ().get(name) == value:
                    found.add(process)
    newest = {process.pid for process in found}
    while newest:
        below = {process for process, parent in parents.items() if parent in newest} - found
        found |= below
        newest = {process.pid for process in below}
    return found


def end(processes: set[psutil.Process], patience: float) -> None:
    """Wait ``patience`` seconds for these processes to end by themselves, then kill the others."""
    left = left_after(processes, patience)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    left_after(left, timeouts.PROCESS_KILL)


def left_after(processes: set[psutil.Process], seconds: float) -> set[psutil.Process]:
    """Wait at most ``seconds`` until these processes have ended; return the ones that still run."""
    deadline = time.monotonic() + seconds
    while (left := set(filter(_runs, processes))) and time.monotonic() < deadline:
        time.sleep(timeouts.PROCESS_POLL)
    return left


def _runs(process: psutil.Process) -> bool:
    """Whether a process still runs; a zombie, whose parent has not waited for it, does not."""
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False

"""Real raylets that can be killed. Ray is configured to notice within 2 seconds, not 15."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import cluster_utils

SOON = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 5,
}

ONE_WORKER_AT_A_TIME = {"RAY_worker_maximum_startup_concurrency": "1"}
"""Environment of a node that does not start a second worker for the first task of a job, as Ray does if it may."""


class Raylets(cluster_utils.Cluster):
    """Some nodes, from 127.0.0.2 on, of which all but the first can be killed. ``settings`` are those of Ray."""

    def __init__(self, count: int, *, settings: Mapping[str, int] = SOON, **options: Any) -> None:
        super().__init__()
        self._settings, self._options = dict(settings), options
        for rank in range(count):
            self.start(rank)

    def start(self, rank: int) -> None:
        """Start the node with this address; the first one is the head."""
        head = {"_system_config": self._settings, "include_dashboard": False, "no_monitor": True}
        self.add_node(
            num_cpus=8,
            node_ip_address=f"127.0.0.{rank + 2}",
            object_store_memory=80 << 20,
            **self._options,
            **(head if rank == 0 else {}),
        )

    def kill(self, rank: int) -> None:
        """Kill the raylet with this address."""
        address = f"127.0.0.{rank + 2}"
        (node,) = [node for node in self.worker_nodes if node.node_ip_address == address and node.any_processes_alive()]
        raylet = node.all_processes["raylet"][0].process
        raylet.kill()
        raylet.wait()

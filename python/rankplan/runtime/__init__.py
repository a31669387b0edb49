"""Binding a plan to Ray actors: the only part of rankplan that needs Ray."""

import os

try:
    import ray  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "ray":
        raise
    from rankplan.errors import ClusterError

    raise ClusterError("this needs Ray, which is not installed: pip install 'rankplan[ray]'") from None

# Of several ranks that fail in one call the first is reported; Ray would print the others, with their pickled bytes.
os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")

from rankplan.runtime.calls import Call
from rankplan.runtime.cluster import Cluster
from rankplan.runtime.group import GroupSpec, WorkerGroup
from rankplan.runtime.verify import RankReport
from rankplan.runtime.worker import Worker

__all__ = ["Call", "Cluster", "GroupSpec", "RankReport", "Worker", "WorkerGroup"]

"""Binding a plan to Ray actors: the only part of rankplan that needs Ray."""

try:
    import ray  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "ray":
        raise
    from rankplan.errors import MissingRayError

    # Ray itself: the name of the extra works only where an index has rankplan.
    raise MissingRayError("this needs Ray, which is not installed; run pip install 'ray>=2.49'") from None

from rankplan.runtime.calls import Call
from rankplan.runtime.cluster import Cluster
from rankplan.runtime.group import WorkerGroup
from rankplan.runtime.reserve import Reservation
from rankplan.runtime.spec import GroupSpec
from rankplan.runtime.verify import RankReport
from rankplan.runtime.watch import Failure
from rankplan.runtime.worker import Worker

__all__ = ["Call", "Cluster", "Failure", "GroupSpec", "RankReport", "Reservation", "Worker", "WorkerGroup"]

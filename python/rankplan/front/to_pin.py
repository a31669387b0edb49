"""A config whose placement groups `pin` would bind on a running cluster."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan.front.job import Config, Job, Nodes, job_file_of, notes, unplaced_job
from rankplan.frozen import frozen
from rankplan.nodes.running import RunningCluster
from rankplan.read.sources import Planned


@frozen
class JobToPin:
    """A job whose trainer asks Ray for placement groups, and the cluster, or its address, where they would be bound."""

    job: Job
    cluster: RunningCluster | str

    def planned(
        self, without: Sequence[str] = (), *, isolate: bool | None = None, fitting: bool = True, by_text: bool = False
    ) -> Planned:
        """Return the plan that `pin` would bind now, and where the config states it; log what it leaves out, and why.

        Unless it must be ``fitting``, it may need more memory than there is. ``by_text``: nodes are in the order of
        their addresses as text, where the trainer does not sort them. Raises `PlacementError`, `ClusterError`.
        """
        from rankplan.front.pinning import planned_now, planner_of  # it imports Ray

        return planned_now(
            planner_of(self.job, without, isolate=isolate, fitting=fitting),
            self.cluster,
            lambda text: notes.warning("%s", text),
            by_text=by_text,
        )


def job_to_pin(
    config: Config,
    nodes: Nodes | None,
    ray: str | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    model: str | None = None,
) -> JobToPin | None:
    """Return a job on the running cluster that is given, has the address ``ray``, or is stated by its job file.

    Return ``None`` for other nodes, and for a trainer that asks Ray for no placement groups.
    """
    stated = job_file_of(config)
    cluster: RunningCluster | str
    if ray is not None:
        cluster = ray
    elif isinstance(nodes, RunningCluster):
        cluster = nodes
    elif nodes is None and stated is not None and stated.ray is not None:
        cluster = stated.ray
    else:
        return None
    job = unplaced_job(config, dialect=dialect, overrides=overrides, model=model)
    return JobToPin(job, cluster) if job.asks_ray else None

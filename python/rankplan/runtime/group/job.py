"""Launching every component of a plan: what ``rankplan run`` does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from rankplan.plans.plan import Plan, check_plan
from rankplan.runtime.cluster import Cluster
from rankplan.runtime.group.group import WorkerGroup
from rankplan.runtime.group.spec import GroupSpec, check_cluster, check_reserve
from rankplan.runtime.group.worker import RollCall, Worker
from rankplan.runtime.ray.signals import Uninterrupted
from rankplan.words import shown

Workers = type[Worker] | GroupSpec | Mapping[str, type[Worker] | GroupSpec]


def launch(
    plan: Plan,
    cluster: Cluster,
    workers: Workers = RollCall,
    *,
    reserve: bool = False,
    timeout: float | None = None,
) -> dict[str, WorkerGroup]:
    """Launch every component of a plan, as ``rankplan run`` does; return the running groups by component name.

    ``workers`` is a subclass of `Worker` for all components, or a mapping with one for each component. A class with
    arguments is given as a group: ``{"actor": Actor.create_group(lr=1e-4), "rollout": Rollout}``. The default is a
    class whose ``run`` returns the process id.

    With ``reserve``, or if the components of the plan have shares of their accelerators, everything is reserved first,
    as by `Cluster.reserve`, until the last group is shut down. The ranks of each component must come up within
    ``timeout`` seconds (default: that of `GroupSpec.launch`).

    All or nothing: if a component cannot be reserved or launched, the groups that already run are shut down, and the
    errors of `Cluster.reserve` and `GroupSpec.launch` are raised. Raises ``KeyError`` for a name in ``workers`` that
    the plan lacks, ``ValueError`` for a component without a worker, ``TypeError`` for a worker of another type
    and without a `Cluster`.
    """
    check_cluster(cluster)
    check_plan(plan)
    check_reserve(reserve)
    specs = _specs(plan, workers)
    cluster.nodes.fitted(plan.inventory, list(plan.values()), complete=True)
    reservation, groups = None, {}
    try:
        if reserve or any(component.share for component in plan.values()):
            reservation = cluster.reserve(plan)
            reservation.release_when_unused()
        for name, spec in specs.items():
            with cluster.connection.progress() as report:
                report(f"launching {name}")
            groups[name] = spec.launch(cluster, plan[name], reservation=reservation, timeout=timeout)
        return groups
    except BaseException:
        with Uninterrupted(), ExitStack() as steps:
            if reservation is not None:
                steps.callback(reservation.release)
            for group in groups.values():
                steps.callback(WorkerGroup.shutdown, group)
        raise


def _specs(plan: Plan, workers: Workers) -> dict[str, GroupSpec]:
    """Return the group of each component, in the order of the plan."""
    given = workers if isinstance(workers, Mapping) else dict.fromkeys(plan, workers)
    plan.only(*given)  # raises KeyError for an unknown name
    if missing := [name for name in plan if name not in given]:
        raise ValueError(f"workers lacks {', '.join(missing)}; name a class for each, or launch plan.only(...)")
    specs = {}
    for name in plan:
        worker = given[name]
        spec = worker.create_group() if isinstance(worker, type) and issubclass(worker, Worker) else worker
        if not isinstance(spec, GroupSpec):
            advice = "pass a subclass of rankplan.Worker, or its create_group(...)"
            raise TypeError(f"{shown(worker)} is not a worker; {advice}")
        specs[name] = spec
    return specs

"""`rankplan.live`: a look at a cluster through the tables of its head, and a comparison with a plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from rankplan.errors import ClusterError
from rankplan.front.job import Config, Job, opened, saved_plan, unplaced_job
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.runtime.live.claims import asking
from rankplan.runtime.live.compare import compare
from rankplan.runtime.live.devices import with_devices
from rankplan.runtime.live.runs import remove_ended
from rankplan.runtime.ray.connection import head_of
from rankplan.runtime.ray.tables import Tables
from rankplan.runtime.usage.held import Held
from rankplan.runtime.usage.look import look, short
from rankplan.runtime.usage.model import Live
from rankplan.words import shown


def live(
    ray: str | None = None,
    plan: Config | None = None,
    *,
    job: str | None = None,
    devices: bool = False,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
) -> Live:
    """Return what runs on a Ray cluster now, whoever started it, as ``rankplan live`` does.

    ``ray`` is the host:port of its head, or ``"auto"`` (the default), as for ``ray.init``. This process does not become
    a job of the cluster, and nothing starts there. ``plan`` is a plan, or a config of any dialect, to compare with; a
    config is planned as `rankplan.plan` does with ``pinned``, on the nodes of the cluster without what other jobs hold.
    ``job`` is the number of the job to show and to compare; by default all are shown, and the one whose requests
    match most of the plan is compared. ``devices`` asks the driver of each node which processes use which accelerators,
    which starts a job with one short task a node. ``dialect`` and ``overrides`` are those of the config.

    Raises ``ClusterError`` if no cluster answers, or it has no such job, and `PlacementError` or ``OSError`` for a plan
    that cannot be read, or a config that does not fit the cluster.
    """
    return Looks(ray, plan, job=job, devices=devices, dialect=dialect, overrides=overrides).now()


class Looks:
    """Repeated looks at one cluster over one connection; see `live`. A config is planned at the first look."""

    def __init__(
        self,
        ray: str | None = None,
        plan: Config | None = None,
        *,
        job: str | None = None,
        devices: bool = False,
        dialect: str | None = None,
        overrides: Sequence[str] = (),
    ) -> None:
        self._job, self._devices, self._given = job, devices, plan
        plan = None if plan is None else opened(plan)
        self._plan = None if plan is None else saved_plan(plan, dialect=dialect, overrides=overrides)
        self._name = os.fspath(plan) if isinstance(plan, str | os.PathLike) else "the plan"
        self._probed = self._plan is not None
        self._config: Job | None = None
        if plan is not None and self._plan is None:
            self._config = unplaced_job(plan, dialect=dialect, overrides=overrides)
            self._config.reader.finish()  # faults come before a connection
        self._head = head_of(ray)
        self._cleaned = False

    def now(self) -> Live:
        """Look at the cluster."""
        if not self._cleaned:
            remove_ended(self._head)
            self._cleaned = True
        tables = self._head.tables()
        job = _known(tables, self._job)
        if self._plan is None and self._config is not None:
            self._plan = _planned(look(tables, self._head.address), self._config, job)
        planned = None if self._plan is None else self._plan.inventory
        live = look(tables, self._head.address, planned, probed=self._probed)
        if self._plan is not None:
            live = compare(live, self._plan, self._name, job)
        if self._devices:
            live = with_devices(live)
        return live if job is None else _only(live, job)


def _known(tables: Tables, job: str | None) -> str | None:
    """Return the number of a job as Ray shows it. Raises ``ClusterError`` if none that runs has it."""
    if job is None:
        return None
    number = short(job.lower())
    running = [short(entry.job_id) for entry in tables.jobs if not entry.ended]
    # Detached actors and groups outlive their job.
    owners = {short(actor.job_id) for actor in tables.actors} | {short(group.job_id) for group in tables.groups}
    if number not in running and number not in owners:
        advice = f"the running jobs are {', '.join(running)}" if running else "no job is running"
        raise ClusterError(f"no job {shown(job)} has anything on the cluster; {advice}")
    return number


def _planned(base: Live, config: Job, job: str | None) -> Plan:
    """Return the plan of a config on the nodes of a cluster, without what other jobs than the compared one hold."""
    ids = [node.node_id for node in base.nodes]

    def plan_on(inventory: Inventory) -> Plan:
        attempt = replace(config, config=config.config.fork()).on(inventory)
        return attempt.plan(pinned=True, node_ids=ids)

    first = plan_on(base.inventory)
    held = Held.of(base, but=job or asking(base, tuple(first.requests)))
    return held.planned(held.left(base.inventory), plan_on) if held else first


def _only(live: Live, job: str) -> Live:
    """Return what runs with the groups and the actors of one job."""
    groups = tuple(group for group in live.groups if group.job == job)
    actors = tuple(actor for actor in live.actors if actor.job == job)
    return replace(live, groups=groups, actors=actors)

"""``rankplan run``: launch every component, call a method on each rank, verify, report."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rankplan._core import RankSet
from rankplan.cli import signals
from rankplan.cli.common import (
    Choice,
    InputFile,
    Seconds,
    cluster_option,
    dialect_option,
    format_option,
    isolate_option,
    nodes_option,
    overrides,
    planned,
    without_option,
)
from rankplan.cli.output import faults_end_it, print_table
from rankplan.errors import PlacementError, RankplanError
from rankplan.front.command import reject_without_ray
from rankplan.front.job import Config, inventory_from, is_saved, job_file_of, opened, unplaced_job
from rankplan.nodes.facts import NODE_ORDERS
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.inventory_file import is_size
from rankplan.plans.plan import Plan
from rankplan.read.read_config import ReadConfig
from rankplan.read.text.document import read_value
from rankplan.tuning.measurements import Measurement, Run, add_measurements, check_addable, peak

if TYPE_CHECKING:
    from rich.table import Table

    from rankplan.jobs.reader import JobFile
    from rankplan.read.cluster import StatedCluster
    from rankplan.runtime.cluster import Cluster
    from rankplan.runtime.group.group import WorkerGroup
    from rankplan.runtime.group.spec import GroupSpec
    from rankplan.runtime.group.worker import Worker
    from rankplan.runtime.rank.spec import RankReport
    from rankplan.runtime.ray.connection import Report


_JOINING = 300.0  # seconds for the nodes of a batch job to join
_ARGUMENT = "--argument"


def _keyword_arguments(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Return the keyword arguments for the worker class."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            message = f"{key!r} is not the name of an argument" if equals else f"{text!r} is not key=value"
            raise click.BadParameter(message, param_hint=_ARGUMENT)
        if key in found:
            raise click.BadParameter(f"{key!r} is given twice", param_hint=_ARGUMENT)
        try:
            found[key] = read_value(value)
        except PlacementError as error:
            raise click.BadParameter(f"{text!r}: {error.message}", param_hint=_ARGUMENT) from None
    return found


@click.command()
@click.argument("file", metavar="FILE", type=InputFile())
@nodes_option("The nodes to simulate: an inventory file, or N nodes with M accelerators each, e.g. 2x8.")
@click.option(
    "--simulate", is_flag=True, help="Simulate the nodes on this machine; those of --nodes, or of the job file."
)
@cluster_option
@dialect_option
@click.option(
    "--worker",
    "worker_name",
    metavar="MODULE:CLASS",
    help="Worker class (default: a built-in class that reports its rank).",
)
@click.option(
    _ARGUMENT,
    "arguments",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_keyword_arguments,
    help="Pass this to the constructor of the worker class; the value is read as YAML; repeatable.",
)
@click.option("--method", default="run", show_default=True, help="Method to call on every rank.")
@click.option(
    "--timeout",
    type=Seconds(),
    help="Wait this long for the nodes to join, and for each component to start (default: 300; for a component, plus "
    "2 for each rank on the machine with the most).",
)
@click.option("--timings", metavar="COSTS", type=click.Path(), help="Add the measured times to this file, for tune.")
@isolate_option
@click.option("--reserve", is_flag=True, help="Reserve the accelerators; fail if another job uses them.")
@click.option(
    "--node-order",
    type=click.Choice(NODE_ORDERS),
    help="Order of nodes without ranks (default: address, or as the config says). rlinf: this node first, then "
    "addresses as text.",
)
@without_option
@format_option("table", "json")
@click.option("--verbose", is_flag=True, help="Show the log of the driver and the ranks on stderr.")
def run(
    *,
    file: str,
    arguments: dict[str, Any],
    nodes: str | None,
    simulate: bool,
    ray: str | None,
    dialect_name: str | None,
    worker_name: str | None,
    method: str,
    timeout: float | None,
    timings: str | None,
    isolate: bool | None,
    reserve: bool,
    node_order: str | None,
    without: tuple[str, ...],
    form: str,
    verbose: bool,
) -> None:
    """Launch a config or saved plan, call every rank, verify.

    Prints where each rank runs, what it sees, and whether its environment or its driver (devices) confirms that, then
    shuts everything down. With json, the output of workers goes to stderr.
    """
    if arguments and worker_name is None:
        raise click.UsageError("--argument is for the worker class of --worker; the built-in one takes none")
    _check_cluster(nodes, ray, simulate=simulate)
    if verbose:
        logging.basicConfig(format="%(levelname)s %(message)s")
        logging.getLogger("rankplan").setLevel(logging.DEBUG)
    with faults_end_it(), signals.raised():
        if timings is not None:
            check_addable(Path(timings))
        config = opened(file)
        nodes, ray = _nodes_and_ray(job_file_of(config), nodes, ray, simulate=simulate)
        is_sized = nodes is not None and is_size(nodes)  # nodes that are only a number have no labels
        planner = _planner(config, dialect_name, without, isolate=isolate, labelled=not is_sized)
        inventory = None if nodes is None else inventory_from(nodes)
        planner.check(inventory)
        _prepare_ray()
        with signals.at_once():
            from rankplan.runtime.group.group import WorkerGroup
            from rankplan.runtime.group.job import launch
            from rankplan.runtime.group.worker import RollCall
            from rankplan.runtime.ray.connection import told

        spec = _group_spec(_worker(worker_name) if worker_name else RollCall, arguments, method)
        # Ray copies what workers print to stdout.
        quiet = redirect_stdout(sys.stderr) if form == "json" else nullcontext()
        with told(None, lines=True) as report, quiet:
            if inventory is None:
                cluster = _joined(planner, ray, timeout or _JOINING, node_order, report)
            else:
                cluster = _simulated(planner, inventory, report)
            with cluster:
                plan = planner.plan(cluster.inventory)
                groups = launch(plan, cluster, spec, reserve=reserve, timeout=timeout)
                report(f"running {method}()")
                for call in [WorkerGroup.call(group, method) for group in groups.values()]:
                    call.wait()
                report("verifying")
                measured = {} if timings is None else _measurements(plan, groups, method)
                reports = [found for group in groups.values() for found in WorkerGroup.verify(group)]
        if timings is not None:
            _add_timings(timings, measured, Run.of(plan, planner.read))
        _print_reports(plan, reports, form)


def _nodes_and_ray(
    job_file: JobFile | None, nodes: str | None, ray: str | None, *, simulate: bool
) -> tuple[str | None, str | None]:
    """Return the nodes to simulate, or the address of the cluster; a job file states what no option does."""
    if simulate:
        return nodes or _nodes_to_simulate(job_file), None
    return None, job_file.ray if ray is None and job_file is not None else ray


def _joined(planner: _Planner, address: str | None, timeout: float, node_order: str | None, report: Report) -> Cluster:
    """Join a cluster that runs, when its nodes have joined."""
    from rankplan.runtime.cluster import Cluster

    return Cluster(
        planner.section, address=address, plan=planner.saved, timeout=timeout, node_order=node_order, on_progress=report
    )


def _simulated(planner: _Planner, inventory: Inventory, report: Report) -> Cluster:
    """Start a cluster of these nodes on this machine."""
    from rankplan.runtime.cluster import Cluster

    return Cluster.simulate(inventory, planner.section, on_progress=report)


def _check_cluster(nodes: str | None, ray: str | None, *, simulate: bool) -> None:
    """Raise ``click.UsageError`` for nodes that are neither simulated nor those of a Ray cluster."""
    if simulate and ray is not None:
        raise click.UsageError("use only one of --simulate and --ray")
    if nodes is not None and not simulate:
        raise click.UsageError(f"run starts on a Ray cluster; to simulate these nodes, use --nodes {nodes} --simulate")


def _nodes_to_simulate(job_file: JobFile | None) -> str:
    """Return the nodes of a job file. Raises ``click.UsageError`` without them."""
    nodes = None if job_file is None else job_file.nodes
    if nodes is None:
        raise click.UsageError("name the nodes to simulate: --nodes 2x8 --simulate")
    return nodes


def _prepare_ray() -> None:
    """Set what Ray reads when it is imported: the output of workers is plain, and complete."""
    if not sys.stdout.isatty():
        os.environ.setdefault("RAY_COLOR_PREFIX", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")


class _Planner(NamedTuple):
    """What is planned: a config that is read, or a saved plan. ``plan`` returns the plan for an inventory."""

    plan: Callable[[Inventory], Plan]
    read: ReadConfig | None
    saved: Plan | None

    @property
    def section(self) -> StatedCluster | None:
        """What the config states of the cluster."""
        return None if self.read is None else self.read.cluster

    def check(self, inventory: Inventory | None) -> None:
        """Raise `PlacementError` for what is wrong before anything starts, on these nodes or on any."""
        if inventory is not None:
            self.plan(inventory)
        elif self.read is not None:
            self.read.reader.finish()


def _planner(
    file: Config, dialect: str | None, without: tuple[str, ...], *, isolate: bool | None, labelled: bool
) -> _Planner:
    """Read a config or a saved plan."""
    if is_saved(file):
        saved = planned(file, Choice(without=without, dialect=dialect), isolate=isolate)
        return _Planner(saved.fitted, None, saved)
    found = unplaced_job(file, dialect=dialect, overrides=overrides())
    reject_without_ray(found)

    def plan(inventory: Inventory) -> Plan:
        inventory = inventory.without(without) if without else inventory
        return found.on(inventory, labelled=labelled).plan(isolate=isolate)

    return _Planner(plan, found.config, None)


def _worker(name: str) -> type[Worker]:
    from rankplan.runtime.group.worker import Worker

    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        message = f"{name!r} does not have the form module:Class, e.g. train:Actor"
        raise click.BadParameter(message, param_hint="--worker")
    sys.path.insert(0, str(Path.cwd()))
    try:
        worker = getattr(importlib.import_module(module_name), class_name, None)
    except (Exception, SystemExit) as error:
        raise RankplanError(f"cannot import {module_name}: {type(error).__name__}: {error}") from error
    if not (isinstance(worker, type) and issubclass(worker, Worker)):
        message = f"{class_name!r} in {module_name} is not a subclass of rankplan.Worker"
        raise click.BadParameter(message, param_hint="--worker")
    return worker


def _group_spec(worker: type[Worker], arguments: Mapping[str, Any], method: str) -> GroupSpec:
    """Return the group of a worker class to launch. Raises ``click.BadParameter`` for wrong arguments or methods."""
    try:
        spec = worker.create_group(**arguments)
    except TypeError as error:
        hint = _ARGUMENT if arguments else "--worker"
        raise click.BadParameter(str(error), param_hint=hint) from None
    if not spec.has_method(method):
        raise click.BadParameter(f"{worker.__name__} has no method {method!r}", param_hint="--method")
    return spec


def _measurements(plan: Plan, groups: Mapping[str, WorkerGroup], method: str) -> dict[str, Measurement]:
    """Return what the ranks of each component have measured during a call of this method."""
    from rankplan.runtime.group.group import WorkerGroup
    from rankplan.runtime.rank.timing import slowest_rank

    measured: dict[str, Measurement] = {}
    for name, group in groups.items():
        rows, seconds = plan[name].rows, slowest_rank(WorkerGroup.timings(group))
        most = peak(plan, name, method, WorkerGroup.memory_use(group))
        size = len(rows.accelerators()) or len(rows)
        measured[name] = Measurement(size, seconds, plan[name].parallel, () if most is None else (most,))
    return measured


def _add_timings(file: str, measured: Mapping[str, Measurement], about: Run) -> None:
    """Add measured times to a file of costs, and print what the user must add."""
    add_measurements(Path(file), measured, about)
    for name in about.unknown:
        click.echo(f"{file}: add what `{name}` waits for to `after`; no role has this name", err=True)


def _print_reports(plan: Plan, reports: list[RankReport], form: str) -> None:
    """Print the report of every rank."""
    if form == "json":
        ranks = [report.to_dict() | {"verified": True} for report in reports]
        mode = plan.mode and plan.mode.name
        click.echo(json.dumps({"mode": mode, "ranks": ranks}, indent=2, default=str))  # CPUs are sets of ranks
        return
    print_table(_table(reports))
    if plan.mode is not None:
        click.echo(f"mode: {plan.mode.name}")


def _table(reports: list[RankReport]) -> Table:
    from rankplan.render.tables import MOST_ROWS, table

    result = table("component", "rank#", "node#", "process id#", "accelerators", "verified")
    by_rank = len(reports) <= MOST_ROWS
    rows: dict[tuple[str, int, int], list[RankReport]] = {}
    for found in reports:
        rows.setdefault((found.component, found.node_rank, found.rank if by_rank else -1), []).append(found)
    for (component, node, _), here in rows.items():
        seen = ",".join(dict.fromkeys(name for found in here for name in found.accelerators)) or "-"
        proofs = ",".join(sorted({found.proof for found in here}))
        process = str(here[0].pid) if by_rank else f"{len(here)} processes"
        result.add_row(component, str(RankSet(found.rank for found in here)), str(node), process, seen, proofs)
    return result

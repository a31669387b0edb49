"""``rankplan run``: launch every component, call a method on each rank, verify, report."""

from __future__ import annotations

import importlib
import math
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from rankplan._core import RankSet
from rankplan.cli.common import (
    Nodes,
    chosen_dialect,
    dialect_option,
    faults_end_it,
    print_table,
    stdout,
    without_option,
)
from rankplan.config.load import load_config
from rankplan.dialects import rlinf
from rankplan.errors import RankplanError
from rankplan.inventory import Inventory
from rankplan.plan import Plan
from rankplan.render.progress import Report, told
from rankplan.render.tables import MOST_ROWS, table

if TYPE_CHECKING:
    from rankplan.runtime import Cluster, GroupSpec, RankReport, Worker


class _Nodes(Nodes):
    """``2x8``, or an inventory file."""

    otherwise = ", or the path of an inventory file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the inventory, or the path of an inventory file."""
        return value if isinstance(value, str) and Path(value).is_file() else super().convert(value, param, ctx)


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option(
    "--simulate",
    type=_Nodes(),
    metavar="NxM",
    help="Simulate N nodes with M accelerators each on this machine, or the nodes of an inventory file.",
)
@click.option("--ray", metavar="ADDRESS", help="Address of the Ray cluster (default: found by Ray).")
@dialect_option
@click.option(
    "--worker",
    "worker_name",
    metavar="MODULE:CLASS",
    help="Worker class (default: a built-in class that reports its rank).",
)
@click.option("--method", default="run", show_default=True, help="Method to call on every rank.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds to wait for a component to start.",
)
@click.option("--isolate/--no-isolate", default=True, help="Whether a process sees only its own accelerators.")
@without_option
def run(
    file: str,
    simulate: Inventory | str | None,
    ray: str | None,
    dialect_name: str | None,
    worker_name: str | None,
    method: str,
    timeout: float,
    isolate: bool,
    without: tuple[str, ...],
) -> None:
    """Launch a config on Ray, run a method on every rank, and verify.

    Prints where each rank runs, what it sees, and whether its environment or its driver (devices) confirms that, then
    shuts everything down.
    """
    if not math.isfinite(timeout):
        raise click.BadParameter(f"{timeout} is not a finite number of seconds", param_hint="--timeout")
    if simulate is not None and ray is not None:
        raise click.UsageError("use only one of --simulate and --ray")
    with faults_end_it():
        config = load_config(file)
        inventory = Inventory.from_yaml(simulate) if isinstance(simulate, str) else simulate
        dialect = chosen_dialect(dialect_name, config)
        # Report faults before anything starts.
        reading = dialect.read(config)
        if inventory is None:
            reading.finish()
        else:
            dialect.plan(reading, inventory.without(without), isolate)
        if not stdout.is_terminal:
            os.environ.setdefault("RAY_COLOR_PREFIX", "0")
        os.environ.setdefault("RAY_DEDUP_LOGS", "0")
        # Ray reads these when it is imported.
        from rankplan.runtime import Cluster
        from rankplan.runtime.roll_call import RollCall

        worker = _worker(worker_name) if worker_name else RollCall
        try:
            spec = worker.create_group()
        except TypeError as error:
            raise click.BadParameter(str(error), param_hint="--worker") from None
        if not spec.has_method(method):
            raise click.BadParameter(f"{worker.__name__} has no method {method!r}", param_hint="--method")
        with told(None) as report:
            options: dict[str, Any] = {
                "cluster_cfg": reading if dialect is rlinf else None,
                "on_progress": report,
            }
            cluster = Cluster(address=ray, **options) if inventory is None else Cluster.simulate(inventory, **options)
            with cluster:
                # Ray's own handler would end the process without shutting down, and Ray changes an exit code.
                signal.signal(signal.SIGTERM, signal.default_int_handler)
                planned = dialect.plan(reading, cluster.inventory.without(without), isolate)
                reports = _run(cluster, planned, spec, method, timeout, report)
        print_table(_table(reports))
        if planned.mode is not None:
            click.echo(f"mode: {planned.mode}")


def _run(
    cluster: Cluster, planned: Plan, spec: GroupSpec, method: str, timeout: float, report: Report
) -> list[RankReport]:
    shared = any(component.share for component in planned.values())
    reservation = cluster.reserve(planned) if shared else None
    groups = []
    for name, component in planned.items():
        report(f"launching {name}")
        groups.append(spec.launch(cluster, component, name, reservation=reservation, timeout=timeout))
    report(f"running {method}()")
    for call in [getattr(group, method)() for group in groups]:
        call.wait()
    report("verifying")
    return [found for group in groups for found in group.verify()]


def _worker(name: str) -> type[Worker]:
    from rankplan.runtime import Worker

    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        raise click.BadParameter(
            f"{name!r} does not have the form module:Class, e.g. train:Actor", param_hint="--worker"
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        worker = getattr(importlib.import_module(module_name), class_name, None)
    except (Exception, SystemExit) as error:
        raise RankplanError(f"cannot import {module_name}: {type(error).__name__}: {error}") from error
    if not (isinstance(worker, type) and issubclass(worker, Worker)):
        raise click.BadParameter(
            f"{class_name!r} in {module_name} is not a subclass of rankplan.Worker", param_hint="--worker"
        )
    return worker


def _table(reports: list[RankReport]) -> Table:
    result = table("component", "rank#", "node#", "process id#", "accelerators", "verified")
    if len(reports) <= MOST_ROWS:
        for found in reports:
            seen = ",".join(found.accelerators) or "-"
            result.add_row(found.component, str(found.rank), str(found.node_rank), str(found.pid), seen, found.proof)
        return result
    nodes: dict[tuple[str, int], list[RankReport]] = {}
    for found in reports:
        nodes.setdefault((found.component, found.node_rank), []).append(found)
    for (component, node), here in nodes.items():
        seen = ",".join(dict.fromkeys(name for found in here for name in found.accelerators)) or "-"
        proofs = ",".join(sorted({found.proof for found in here}))
        ranks = str(RankSet(found.rank for found in here))
        result.add_row(component, ranks, str(node), f"{len(here)} processes", seen, proofs)
    return result

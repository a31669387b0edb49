"""``rankplan plan``: the placements."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TextIO

import click

from rankplan.cli.common import (
    Component,
    InventoryChoice,
    component_of,
    dialect_option,
    faults_end_it,
    inventory_options,
    isolate_option,
    planned,
    print_sharing,
    print_table,
)
from rankplan.files import write_whole
from rankplan.plan import Plan
from rankplan.render.hosts import hostfile, rankfile
from rankplan.render.rows import npz, write_csv, write_json
from rankplan.render.tables import plan_table

_ROWS = {"json": write_json, "csv": write_csv}
_HOSTS = {"hostfile": hostfile, "rankfile": rankfile}
FORMATS = ["table", *_ROWS, *_HOSTS, "numpy"]


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@inventory_options
@dialect_option
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--component", metavar="NAME", type=Component(), help="Show only this component.")
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    type=click.Path(),
    help="Write to this file instead of stdout (required for numpy).",
)
@click.option("--save", metavar="PATH", type=click.Path(), help="Also save the plan to this file, for Plan.load.")
@isolate_option
def plan(
    file: str,
    choice: InventoryChoice,
    dialect_name: str | None,
    form: str,
    component: str | None,
    output: str | None,
    save: str | None,
    isolate: bool | None,
) -> None:
    """Show where every process runs.

    FILE is a config or a saved plan. The table folds equal nodes if there are more than 64 processes; json and csv have
    one entry per process.

    hostfile and rankfile describe one component for Open MPI. In a hostfile, slots is the number of its processes on a
    host; mpirun --map-by slot --bind-to none fills the hosts in this order. In a rankfile, slot is the CPU core to bind
    to: edit it, since a plan does not know cores and writes the local rank. A host is an ip or a hostname; if the
    inventory lacks one, a rankfile uses +n, the n-th host given to mpirun.

    numpy is an .npz file with the columns of each component, named component.column; see Placements.to_numpy.
    """
    if output is None and form == "numpy":
        raise click.UsageError("--format numpy requires -o PATH")
    if output is not None and form == "table":
        raise click.UsageError(f"-o requires another --format: {', '.join(FORMATS[1:])}")
    with faults_end_it():
        result = planned(file, choice, dialect_name, isolate)
        if save is not None:
            result.save(save)
        if form in _HOSTS or component is not None:
            component = component_of(result, component, file)
            result = result.only(component)
        if form == "table":
            print_table(plan_table(result))
            if component is None:
                print_sharing(result)
        elif output is None:
            _write(result, form, sys.stdout)
            sys.stdout.flush()
        elif form == "numpy":
            write_whole(Path(output), npz(result))
        else:
            _write(result, form, text := io.StringIO())
            write_whole(Path(output), text.getvalue())


def _write(plan: Plan, form: str, file: TextIO) -> None:
    if form in _ROWS:
        _ROWS[form](plan, file)
    else:
        file.writelines(_HOSTS[form](plan, plan.components[0]))

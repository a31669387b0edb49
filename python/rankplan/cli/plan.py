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
    print_lines,
    print_table,
)
from rankplan.config.text.files import write_whole
from rankplan.plans.plan import Plan
from rankplan.render.groups import size_lines
from rankplan.render.hosts import hostfile, rankfile
from rankplan.render.rows import npz, write_csv, write_json
from rankplan.render.tables import plan_table, sharing_lines
from rankplan.render.weights import weights_line, weights_table, write_weights

_ROWS = {"json": write_json, "csv": write_csv}
_HOSTS = {"hostfile": hostfile, "rankfile": rankfile}
_SUFFIXES = {".json": "json", ".csv": "csv", ".npz": "numpy"}
FORMATS = ["table", *_ROWS, *_HOSTS, "numpy"]


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@inventory_options
@dialect_option
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default: by the suffix of -o, else table.")
@click.option("--component", metavar="NAME", type=Component(), help="Show only this component.")
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    type=click.Path(),
    help="Write to this file instead of stdout (required for numpy).",
)
@click.option("--weights", metavar="SENDER:RECEIVER", help="Show which slots send their weights to which slots.")
@click.option("--save", metavar="PATH", type=click.Path(), help="Also save the plan to this file, for Plan.load.")
@isolate_option
def plan(
    *,
    file: str,
    choice: InventoryChoice,
    dialect_name: str | None,
    form: str | None,
    component: str | None,
    output: str | None,
    weights: str | None,
    save: str | None,
    isolate: bool | None,
) -> None:
    """Show where every process runs.

    FILE is a config or a saved plan. The table folds equal nodes if there are more than 64 processes; json and csv have
    one entry per process.

    hostfile and rankfile describe one component for Open MPI. In a hostfile, slots is the number of its processes on a
    host; mpirun --map-by slot --bind-to none fills the hosts in this order. In a rankfile, slot has the CPU cores to
    bind to: those of the component's binding, else the local rank, which you should edit. A host is an ip or a
    hostname; if the inventory lacks one, a rankfile uses +n, the n-th host given to mpirun.

    numpy is an .npz file with the columns of each component, named component.column; see Component.to_numpy.

    --weights replaces the placements: it shows which slots of a component, such as the actor, send their weights to
    which slots of another, such as the rollout. A slot is a process, or an accelerator of a process with several.
    """
    if form is None:
        form = "table" if output is None else _SUFFIXES.get(Path(output).suffix.lower(), "table")
    if output is None and form == "numpy":
        raise click.UsageError("--format numpy requires -o PATH")
    if output is not None and form == "table":
        suffixes = ", ".join(_SUFFIXES)
        message = f"-o requires a suffix of {suffixes}, or another --format: {', '.join(FORMATS[1:])}"
        raise click.UsageError(f"{message}; rankplan show writes pictures")
    if weights is not None and (component is not None or form not in ("table", "json")):
        raise click.UsageError("--weights requires --format table or json, without --component")
    with faults_end_it():
        result = planned(file, choice, dialect_name, isolate=isolate)
        if save is not None:
            result.save(save)
        if weights is not None:
            _write_weights(result, weights, file, form, output)
            return
        if form in _HOSTS or component is not None:
            component = component_of(result, component, file)
            result = result.only(component)
        if form == "table":
            print_table(plan_table(result))
            print_lines(size_lines(result) + (sharing_lines(result) if component is None else []))
        elif output is None:
            _write(result, form, sys.stdout)
            sys.stdout.flush()
        elif form == "numpy":
            write_whole(Path(output), npz(result))
        else:
            _write(result, form, text := io.StringIO())
            write_whole(Path(output), text.getvalue())


def _write_weights(plan: Plan, pair: str, file: str, form: str, output: str | None) -> None:
    sender, colon, receiver = pair.partition(":")
    if not colon:
        raise click.BadParameter(f"{pair!r} is not SENDER:RECEIVER; write actor:rollout", param_hint="--weights")
    names = [component_of(plan, name, file, "--weights") for name in (sender, receiver)]
    weights = plan.weight_map(*names)
    if form == "table":
        print_table(weights_table(weights))
        print_lines([weights_line(weights)])
    elif output is None:
        write_weights(weights, sys.stdout)
        sys.stdout.flush()
    else:
        write_weights(weights, text := io.StringIO())
        write_whole(Path(output), text.getvalue())


def _write(plan: Plan, form: str, file: TextIO) -> None:
    if form in _ROWS:
        _ROWS[form](plan, file)
    else:
        file.writelines(_HOSTS[form](plan, plan.components[0]))

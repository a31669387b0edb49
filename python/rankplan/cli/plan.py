"""``rankplan plan``: the placements."""

from __future__ import annotations

import sys

import click

from rankplan.cli.common import (
    InventoryChoice,
    dialect_option,
    faults_end_it,
    inventory_options,
    loaded,
    print_table,
)
from rankplan.plan import Plan
from rankplan.render.rows import write_csv, write_json
from rankplan.render.tables import by_nodes, plan_table

MOST_PAIRS = 20
"""Pairs of components that share accelerators and are named one a line."""


@click.command()
@click.argument("file", metavar="FILE")
@inventory_options
@dialect_option
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option("--save", metavar="PATH", help="Also write the plan to a file that Plan.load reads.")
@click.option("--isolate/--no-isolate", default=True, help="Whether a process sees its own accelerators only.")
def plan(
    file: str, choice: InventoryChoice, dialect_name: str | None, form: str, save: str | None, isolate: bool
) -> None:
    """Show where every process of a config runs.

    A table folds equal nodes when there are more than 64 processes; json and csv have a line for each process.
    """
    with faults_end_it():
        config, dialect, inventory, _ = loaded(file, choice, dialect_name)
        result = dialect.plan(config, inventory, isolate)
        if save is not None:
            result.save(save)
        if form == "json":
            write_json(result, sys.stdout)
        elif form == "csv":
            write_csv(result, sys.stdout)
        else:
            print_table(plan_table(result))
            _print_sharing(result)
        sys.stdout.flush()


def _print_sharing(plan: Plan) -> None:
    """Say who shares what, and what nobody uses, in a few lines."""
    sharing = plan.sharing()
    if sum(bool(rows.accelerators()) for rows in plan.values()) > 1:
        click.echo(f"\n{sharing.kind}")
    lines = [f"  {first} and {second} share {by_nodes(both)}" for (first, second), both in sharing.pairs.items()]
    for line in lines[:MOST_PAIRS]:
        click.echo(line)
    if len(lines) > MOST_PAIRS:
        click.echo(f"  and {len(lines) - MOST_PAIRS} more pairs")
    if idle := plan.idle():
        click.echo(f"idle: {by_nodes(idle)}")

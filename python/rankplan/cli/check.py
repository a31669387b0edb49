"""``rankplan check``: every fault of every file, before anything is started."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from rankplan.cli.common import (
    EXPECTED,
    InventoryChoice,
    colored,
    dialect_option,
    faults_end_it,
    inventory_options,
    loaded,
    show_error,
    stdout,
)
from rankplan.errors import Diagnostic
from rankplan.inventory import Inventory
from rankplan.plan import Plan
from rankplan.render.tables import by_nodes
from rankplan.words import counted


@click.command()
@click.argument("files", metavar="FILE...", type=click.Path(), nargs=-1, required=True)
@inventory_options
@dialect_option
def check(files: tuple[str, ...], choice: InventoryChoice, dialect_name: str | None) -> None:
    """Check config files and show every fault with its place and its cure.

    Without an inventory, each node is taken to have as many accelerators as the config says, or 8. Exit code 1 when a
    file has a fault.
    """
    faulty = 0
    for file in files:
        with faults_end_it():
            try:
                _check(file, choice, dialect_name)
            except BrokenPipeError:
                raise
            except EXPECTED as error:
                show_error(error)
                faulty += 1
    sys.exit(1 if faulty else 0)


def _check(file: str, choice: InventoryChoice, dialect_name: str | None) -> None:
    config, dialect, inventory, assumed = loaded(file, choice, dialect_name)
    plan = dialect.plan(config, inventory)
    counts = (
        counted(len(plan), "component"),
        counted(sum(len(rows) for rows in plan.values()), "process", "processes"),
        counted(plan.inventory.num_nodes, "node"),
    )
    click.echo(f"{file}: fine, {counts[0]}, {counts[1]} on {counts[2]}")
    if not assumed:
        for warning in warnings(plan, inventory, file):
            click.echo(warning.render(colored(stdout)))


def warnings(plan: Plan, inventory: Inventory, file: str) -> Iterator[Diagnostic]:
    """Yield what nobody uses: nodes that ``num_nodes`` leaves out, accelerators without a component."""
    if (left := inventory.num_nodes - plan.inventory.num_nodes) > 0:
        message = f"num_nodes leaves {left} of {inventory.num_nodes} nodes out"
        help = f"set num_nodes to {inventory.num_nodes} to use all"
        yield Diagnostic("idle-nodes", message, help, file=file, warning=True)
    if idle := plan.idle():
        unused, there = sum(map(len, idle.values())), len(plan.inventory.core.accelerators())
        verb = "is" if unused == 1 else "are"
        message = f"{unused} of {there} accelerators {verb} used by no component: {by_nodes(idle)}"
        help = "place a component on them, or leave them idle on purpose"
        yield Diagnostic("idle-accelerators", message, help, file=file, warning=True)

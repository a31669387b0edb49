"""``rankplan check``: every fault of every file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain

import click

from rankplan.cli.common import (
    EXPECTED,
    InventoryChoice,
    colored,
    dialect_option,
    faults_end_it,
    inventory_options,
    loaded,
    reject_crossings,
    show_error,
    stdout,
)
from rankplan.config.reader import Reader
from rankplan.errors import Diagnostic
from rankplan.inventory import Inventory
from rankplan.plan import Plan
from rankplan.render.groups import group_lines
from rankplan.render.tables import by_nodes
from rankplan.words import counted


@click.command()
@click.argument("files", metavar="FILE...", type=click.Path(), nargs=-1, required=True)
@inventory_options
@dialect_option
def check(files: tuple[str, ...], choice: InventoryChoice, dialect_name: str | None) -> None:
    """Report every fault in config files, with location and fix.

    Without an inventory, every node has as many accelerators as the config states, or 8. The exit code is 1 if a file
    has a fault.
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
    reject_crossings(plan, config, labelled=not assumed and choice.nodes is None)
    counts = (
        counted(len(plan), "component"),
        counted(sum(len(rows) for rows in plan.values()), "process", "processes"),
        counted(plan.inventory.num_nodes, "node"),
    )
    mode = "" if plan.mode is None else f", mode {plan.mode}"
    click.echo(f"{file}: fine, {counts[0]}, {counts[1]} on {counts[2]}{mode}")
    for line in group_lines(plan):
        click.echo(line)
    found = group_warnings(plan, config)
    if not assumed:
        found = chain(found, idle_warnings(plan, inventory, file))
    for warning in found:
        click.echo(warning.render(colored(stdout)))


def group_warnings(plan: Plan, reader: Reader) -> Iterator[Diagnostic]:
    """Yield warnings about parallel groups, at the sizes of their components."""
    for name, component in plan.items():
        for warning in component.parallel_warnings():
            yield reader.located(reader.size_paths.get(name, ()), warning)


def idle_warnings(plan: Plan, inventory: Inventory, file: str) -> Iterator[Diagnostic]:
    """Yield warnings about unused nodes and accelerators."""
    if inventory.num_nodes > plan.inventory.num_nodes:
        message = f"num_nodes is {plan.inventory.num_nodes}, but the inventory has {inventory.num_nodes} nodes"
        help = f"set num_nodes to {inventory.num_nodes} to use all nodes"
        yield Diagnostic("idle-nodes", message, help, file=file, warning=True)
    if idle := plan.idle():
        usable = plan.inventory.core.accelerators() - plan.inventory.excluded_accelerators
        unused, total = sum(map(len, idle.values())), len(usable)
        message = f"no component uses {unused} of {total} accelerators: {by_nodes(idle)}"
        help = "place a component on them, or ignore this warning"
        yield Diagnostic("idle-accelerators", message, help, file=file, warning=True)

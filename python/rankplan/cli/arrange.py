"""``rankplan arrange``: node ranks for the nodes, by the network."""

from __future__ import annotations

import click

from rankplan.arranging import Rules
from rankplan.cli.common import (
    InventoryChoice,
    dialect_option,
    faults_end_it,
    inventory_options,
    is_saved,
    loaded,
    print_table,
)
from rankplan.dialects import DIALECTS
from rankplan.plan import Plan
from rankplan.render.network import crossings_table, proof
from rankplan.words import counted

_MOST_SHOWN = 64


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@inventory_options
@dialect_option
@click.option("-o", "--output", metavar="PATH", type=click.Path(), help="Write the nodes to this inventory file.")
def arrange(file: str, choice: InventoryChoice, dialect_name: str | None, output: str | None) -> None:
    """Find node ranks with which as few parallel groups as possible cross a domain of the network.

    FILE is a config or a saved plan; the inventory may have more nodes than it needs. The nodes that are not needed come
    last, as spares, and stay in whole domains if possible. The levels of the network are labels of the nodes. The rules
    keep and segment of cluster.topology hold.

    Prints the groups that cross domains before and after. Without -o, prints the nodes in their new order.
    """
    with faults_end_it():
        if is_saved(file):
            plan = Plan.load(file)
            inventory = plan.inventory.without_groups()
            if choice != InventoryChoice():
                inventory, _ = choice.load({}, next(iter(DIALECTS.values())))
        else:
            config, dialect, inventory, _ = loaded(file, choice, dialect_name)
            plan = dialect.plan(config, inventory)
        solution = inventory.arrangement(plan)
        arranged = inventory.reordered([*solution.nodes, *solution.spares])
        if (crossings := crossings_table(solution, Rules.of(inventory, plan.inventory).levels)) is not None:
            print_table(crossings)
        else:
            click.echo("no group crosses a domain, before or after")
        spares = len(solution.spares)
        spare = f"; {counted(spares, 'spare')}" if spares else ""
        click.echo(f"{counted(len(solution.nodes), 'node')}{spare}; {proof(solution)}")
        if output is not None:
            arranged.to_yaml(output)
            return
        for rank, old in enumerate([*solution.nodes, *solution.spares][:_MOST_SHOWN]):
            spare = "  (spare)" if rank >= len(solution.nodes) else ""
            click.echo(f"{rank:>6}  {inventory.node(old).name}{spare}")
        if arranged.num_nodes > _MOST_SHOWN:
            click.echo(f"and {arranged.num_nodes - _MOST_SHOWN:,} more; write them to a file with -o")

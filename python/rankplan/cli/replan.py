"""``rankplan replan``: a plan after a failure."""

from __future__ import annotations

from dataclasses import replace

import click

from rankplan.arranging.replan import replan as repaired
from rankplan.cli.common import Choice, beside_option, faults_end_it, inventory_options
from rankplan.front import load_plan
from rankplan.render.changes import replan_lines


@click.command()
@click.argument("file", metavar="PLAN", type=click.Path())
@inventory_options
@click.option(
    "--shrink",
    multiple=True,
    metavar="COMPONENT",
    help="Remove whole data groups of this component if the spares do not suffice; may be repeated.",
)
@click.option("--renumber", is_flag=True, help="Let --shrink change the ranks of processes that stay.")
@click.option("--whole-group", is_flag=True, help="Move a whole group rather than tear it apart.")
@click.option("--fixed", is_flag=True, help="Move no process of a healthy node; refuse instead.")
@beside_option
@click.option("-o", "--output", metavar="PATH", type=click.Path(), help="Save the new plan to this file.")
def replan(
    file: str,
    choice: Choice,
    shrink: tuple[str, ...],
    beside: tuple[str, ...],
    *,
    renumber: bool,
    whole_group: bool,
    fixed: bool,
    output: str | None,
) -> None:
    """Repair a saved plan after hardware failed.

    The inventory has the nodes of the plan and spares; without one, there are no spares. Processes on healthy nodes
    stay. Each lost node gets a spare with the same hardware, so that as few parallel groups as possible cross a domain
    of the network. If an accelerator breaks, its processes use an idle one of the same node; if none is idle, the
    components that use the broken one move to another node; if they do not fit there, all components of the node move.
    Process ranks do not change. What the plan excludes stays excluded.

    Prints what moves. rankplan diff PLAN NEW has the details.
    """
    if renumber and not shrink:
        raise click.UsageError("--renumber requires --shrink")
    with faults_end_it():
        plan = load_plan(file)
        inventory = replace(choice, without=()).among(plan.inventory)  # names of the plan's nodes are excluded below
        found = repaired(
            plan,
            inventory,
            without=choice.without,
            shrink=shrink,
            renumber=renumber,
            whole_group=whole_group,
            fixed=fixed,
            beside=[load_plan(path) for path in beside],
        )
        click.echo("\n".join(replan_lines(found)))
        if output is not None:
            found.plan.save(output)

"""``rankplan diff``: the changes from one plan to another."""

from __future__ import annotations

import sys

import click

from rankplan.cli.common import Choice, config_options, format_option, shown_on
from rankplan.cli.output import faults_end_it, print_table, show_error
from rankplan.front.job import is_saved, opened
from rankplan.plans.diff import PlanDiff
from rankplan.render.changes import diff_json, diff_table


@click.command()
@click.argument("before", metavar="A", type=click.Path())
@click.argument("after", metavar="B", type=click.Path())
@config_options
@format_option("text", "json")
def diff(before: str, after: str, choice: Choice, form: str) -> None:
    """Compare two configs or saved plans.

    Lists changed rules, nodes, node groups and world sizes, and the processes that move or get other coordinates in
    parallel groups; consecutive ranks that change together are one line. The options define the nodes on which a config
    is planned; a saved plan has its own nodes.

    Exit codes: 0 no difference, 1 differences, or a plan that breaks its rules or does not fit into memory, 2 other
    faults in A or B, or wrong usage.
    """
    with faults_end_it(code=2):
        configs = [opened(file) for file in (before, after)]
        saved = [is_saved(config) for config in configs]
        # Beside a config, a saved plan keeps its own nodes: the options are those of the config.
        choices = [Choice() if is_plan and not all(saved) else choice for is_plan in saved]
        old, new = (shown_on(config, options) for config, options in zip(configs, choices, strict=True))
        changes = PlanDiff(old.plan, new.plan)
        if form == "json":
            click.echo(diff_json(changes))
        elif changes:
            print_table(diff_table(changes))
        else:
            click.echo("no difference")
        refused = [shown.refused for shown in (old, new) if shown.refused is not None]
        for error in refused:
            show_error(error)
        sys.exit(1 if changes or refused else 0)

"""``rankplan init``: a job file to edit."""

from __future__ import annotations

from pathlib import Path

import click

from rankplan.cli.common import Choice, dialect_option, nodes_option, output_option, planned_on
from rankplan.cli.output import faults_end_it
from rankplan.front.job import is_saved, opened
from rankplan.jobs.drafting import Draft, from_folder_of, usual_name, write_draft
from rankplan.nodes.inventory_file import is_size


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@nodes_option("The nodes that the job may use: an inventory file, or a size.")
@dialect_option
@output_option("Write the job file here (default: NAME.job.yaml beside FILE).")
def init(file: str, nodes: str | None, dialect_name: str | None, output: str | None) -> None:
    """Write a job file: nodes, rules and more, for any trainer.

    FILE is a config, a launch script, a saved plan or another job file. The job file names it; every other key is a
    comment, with the components of this job, the kinds of their groups, and the levels of the inventory filled in.
    """
    with faults_end_it():
        path = usual_name(file) if output is None else Path(output)
        config = opened(file)
        size = nodes if nodes is not None and is_size(nodes) else None
        inventory_file = nodes if size is None else None
        plan, inventory, _ = planned_on(config, Choice(inventory_file, size, dialect=dialect_name))
        draft = Draft(
            file=from_folder_of(path, file),
            plan=plan,
            inventory=inventory,
            nodes=size if inventory_file is None else from_folder_of(path, inventory_file),
            is_plan=is_saved(config),
            owns_processes=plan.dialect is None,
        )
        write_draft(path, draft)
        click.echo(f"{path}: written; state what you need in it, then: rankplan check {path}")

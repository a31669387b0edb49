"""``rankplan init``: a job file to edit."""

from __future__ import annotations

from pathlib import Path

import click

from rankplan.cli.common import Choice, InputFile, dialect_option, output_option, planned_on
from rankplan.cli.output import faults_end_it
from rankplan.front.job import is_saved, opened
from rankplan.jobs.drafting import Draft, from_folder_of, usual_name, write_draft


@click.command()
@click.argument("file", metavar="FILE", type=InputFile())
@click.option("--inventory", metavar="FILE", type=click.Path(), help="The nodes that the job may use.")
@dialect_option
@output_option("Write the job file here (default: NAME.job.yaml beside FILE).")
def init(file: str, inventory: str | None, dialect_name: str | None, output: str | None) -> None:
    """Write a job file: nodes, rules and more, for any trainer.

    FILE is a config, a launch script, a saved plan or another job file. The job file names it; every other key is a
    comment, with the components of this job, the kinds of their groups, and the levels of the inventory filled in.
    """
    with faults_end_it():
        path = usual_name(file) if output is None else Path(output)
        config = opened(file)
        choice = Choice(inventory, dialect=dialect_name)
        plan, nodes, _ = planned_on(config, choice)
        draft = Draft(
            file=from_folder_of(path, file),
            plan=plan,
            inventory=nodes,
            inventory_file=None if inventory is None else from_folder_of(path, inventory),
            is_plan=is_saved(config),
            owns_processes=plan.dialect is None,
        )
        write_draft(path, draft)
        click.echo(f"{path}: written; state what you need in it, then: rankplan check {path}")

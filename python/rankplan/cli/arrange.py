"""``rankplan arrange``: node ranks for the nodes, by the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from rankplan.arranging.arrange import arrange as arranged
from rankplan.arranging.arrange import arranged_plan
from rankplan.arranging.rules import beside as beside_others
from rankplan.arranging.task import Arrangement, nameless, reject_nameless
from rankplan.cli.common import (
    Choice,
    InputFile,
    beside_option,
    config_options,
    others_beside,
    output_option,
    read,
    restore_option,
    save_option,
)
from rankplan.cli.output import faults_end_it, print_table
from rankplan.cli.rule_options import rule_options
from rankplan.front.job import Config, job_file_of, opened, saved_plan
from rankplan.front.warnings import reject_saved
from rankplan.plans.plan import Plan
from rankplan.plans.spares import known_nodes
from rankplan.read.facts import with_stated
from rankplan.render.changes import arrangement_line, crossings_table, node_lines


@click.command()
@click.argument("file", metavar="FILE", type=InputFile())
@config_options
@rule_options
@restore_option
@beside_option
@output_option("Write the nodes to this inventory file.")
@save_option
def arrange(
    file: str,
    choice: Choice,
    rules: Mapping[str, Any],
    restore: tuple[str, ...],
    beside: tuple[str, ...],
    output: str | None,
    save: str | None,
) -> None:
    """Order nodes so that few parallel groups cross a domain.

    Ranks the nodes so that as few groups as possible cross a domain of the network; outer levels come first.

    FILE is a config or a saved plan; the inventory may have more nodes than it needs. The other nodes come last, as
    spares, and stay in whole domains if possible. The levels of the network are labels of the nodes. --segment, --keep,
    --prefer, --balance and --cap replace those of cluster.topology.

    Prints the groups that cross domains before and after. Without -o and --save, prints the nodes in their
    new order.
    """
    with faults_end_it():
        config = opened(file)
        found = _arranged(config, choice, rules, restore, beside)
        arrangement, plan = found
        if (crossings := crossings_table(arrangement)) is not None:
            print_table(crossings)
        else:
            click.echo("no group crosses a domain, before or after")
        click.echo(arrangement_line(arrangement))
        if output is not None:
            arrangement.save(output)
        if save is not None:
            if plan is None:
                raise click.UsageError("--with and --save take a saved plan; a config states what it excludes itself")
            reject_nameless(arrangement.present, arrangement.order)
            plan.save(save)
        if output is None and save is None:
            click.echo("\n".join(node_lines(arrangement)))


class _Arranged(NamedTuple):
    """An arrangement, and the plan on it; ``None`` if a config excludes some of its nodes."""

    arrangement: Arrangement
    plan: Plan | None


def _arranged(
    config: Config, choice: Choice, stated: Mapping[str, Any], restore: Sequence[str], beside: Sequence[str]
) -> _Arranged:
    """Return the arrangement of the nodes of a config, a job file or a saved plan, with these rules of options."""
    others = others_beside(config, beside)
    saved = saved_plan(config)
    if saved is not None:
        inventory = replace(choice, without=()).among(known_nodes(saved))
        inventory.without(choice.without)  # checks the names
        inventory = inventory.excluding(choice.without)
        arrangement = arranged(saved, inventory, **stated, restore=restore, beside=others)
        plan = saved.placed(saved.inventory, saved.values(), with_stated(saved.rules, stated))
        moved = arranged_plan(plan, arrangement, restore)
        reject_saved(moved, job_file_of(config))
        return _Arranged(arrangement, moved)
    job = replace(read(config, choice), options=stated)
    job.announce()
    if job.is_arranged and not restore and not nameless(job.inventory):
        job = replace(job, inventory=beside_others(job.inventory, others))
        found = job.arranged()
        if found.arrangement is not None:
            planned = found.job.fitting(found.job.checked(found.planned))
            return _Arranged(found.arrangement, planned.plan)
    arrangement = arranged(job.unchecked_plan(), job.inventory, **stated, restore=restore, beside=others)
    if restore:
        return _Arranged(arrangement, None)  # the config excludes what is brought back here
    return _Arranged(arrangement, job.reordered(arrangement.order).planned().plan)

"""``rankplan replan``: a plan after a failure, or with other numbers of data groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rankplan.arranging.faults import not_a_plan, with_inventory, wrong_number
from rankplan.arranging.replan import replan as repaired
from rankplan.cli.commands import no_guests_option
from rankplan.cli.common import (
    Choice,
    InputFile,
    beside_option,
    inventory_options,
    others_beside,
    restore_option,
    save_option,
)
from rankplan.cli.output import faults_end_it
from rankplan.cli.rule_options import rule_options
from rankplan.errors import PlacementError
from rankplan.front.job import Config, job_file_of, load_plan, name_of, opened, saved_plan
from rankplan.front.warnings import reject_saved
from rankplan.jobs.recognising import is_job_file
from rankplan.plans.spares import known_nodes
from rankplan.read.text.load import SCRIPTS
from rankplan.read.text.scalars import plain_scalar
from rankplan.render.changes import replan_lines


@click.command()
@click.argument("file", metavar="PLAN", type=InputFile())
@inventory_options
@no_guests_option
@restore_option
@click.option(
    "--shrink",
    multiple=True,
    metavar="COMPONENT[=N]",
    help="Remove N data groups of this component; without N, as many as needed if spares run short; repeatable.",
)
@click.option(
    "--grow",
    multiple=True,
    metavar="COMPONENT=N",
    help="Add N data groups to this component on spares; repeatable.",
)
@click.option("--renumber", is_flag=True, help="Let --shrink change the ranks of processes that stay.")
@click.option("--whole-group", is_flag=True, help="Move a whole group rather than tear it apart.")
@click.option("--fixed", is_flag=True, help="Move no process of a healthy node; refuse instead.")
@rule_options
@beside_option
@save_option
def replan(
    file: str,
    choice: Choice,
    restore: tuple[str, ...],
    rules: Mapping[str, Any],
    shrink: tuple[str, ...],
    grow: tuple[str, ...],
    beside: tuple[str, ...],
    *,
    renumber: bool,
    whole_group: bool,
    fixed: bool,
    save: str | None,
) -> None:
    """Repair a saved plan after hardware failed, or change its size.

    The spares are the nodes that the plan does not use, or those of another inventory, which has its nodes, too.
    Processes on healthy nodes stay. Each lost node gets a spare with the same hardware, so that as few parallel groups
    as possible cross a domain of the network. If an accelerator breaks, its processes use an idle one of the same node;
    if none is idle, the components that use the broken one move to another node; if they do not fit there, all
    components of the node move. Process ranks do not change. What --without names is excluded from then on, on any
    inventory, until --with brings it back.

    After the repair, components shrink, then grow by whole data groups (engines): --shrink rollout=1, --grow rollout=2.
    Nothing that stays moves, and a node without processes becomes a spare. --shrink removes the last data groups; with
    --renumber, those whose nodes free the most domains.

    --segment, --keep, --prefer, --balance and --cap replace those of the plan, and are saved with it.

    Prints what moves. rankplan diff PLAN NEW has the details.
    """
    if renumber and not shrink:
        raise click.UsageError("--renumber requires --shrink")
    if bare := [text for text in grow if "=" not in text]:
        raise click.BadParameter(f"{bare[0]!r} is not COMPONENT=N; write {bare[0]}=2", param_hint="--grow")
    with faults_end_it():
        config = opened(file)
        plan = saved_plan(config)
        if plan is None:
            _reject_config(config)
            plan = load_plan(file)
        inventory = replace(choice, without=()).among(known_nodes(plan))  # names of its nodes are excluded below
        try:
            found = repaired(
                plan,
                inventory,
                without=choice.without,
                restore=restore,
                shrink=data_groups(shrink, "--shrink", "rollout=1"),
                grow=data_groups(grow, "--grow", "rollout=2"),
                renumber=renumber,
                whole_group=whole_group,
                fixed=fixed,
                beside=others_beside(config, beside),
                **rules,
            )
        except PlacementError as error:
            if choice.given is not None:
                raise
            raise PlacementError(map(with_inventory, error.diagnostics)) from None
        reject_saved(found.plan, job_file_of(config))
        click.echo("\n".join(replan_lines(found)))
        if save is not None:
            found.plan.save(save)


def _reject_config(config: Config) -> None:
    """Raise `PlacementError` for a job file or a script, where a saved plan is changed."""
    if is_job_file(config) or (name_of(config).endswith(SCRIPTS) and Path(name_of(config)).is_file()):
        raise PlacementError([not_a_plan(name_of(config))])


def data_groups(texts: Sequence[str], option: str, example: str) -> dict[str, Any]:
    """Return numbers of data groups by component from texts such as ``rollout=2``; ``None`` without a number.

    Raises `PlacementError` for 0, which changes nothing; `rankplan.arranging.replan.replan` checks the others.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, count = text.rpartition("=")
        name, value = (name, plain_scalar(count)) if equals else (text, None)
        if not name:
            raise click.BadParameter(f"{text!r} names no component; write {example}", param_hint=option)
        if equals and value is None:
            raise click.BadParameter(f"{text!r} has no number; write {name}=1", param_hint=option)
        if found.setdefault(name, value) != value:
            raise click.BadParameter(f"{name} has two numbers; state one", param_hint=option)
    none = [wrong_number(name, count) for name, count in found.items() if count == 0]
    if none:
        raise PlacementError(none)
    return found

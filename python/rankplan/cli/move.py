"""``rankplan move``: how a running job gets from one plan to another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from rankplan.cli.commands import no_guests_option
from rankplan.cli.common import Choice, Suffixed, format_option, inventory_options, planned
from rankplan.cli.output import faults_end_it, print_lines, print_table
from rankplan.files import write_whole
from rankplan.front.job import is_saved, opened
from rankplan.moving.simulate import verify as verified
from rankplan.moving.transition import AS_PLANNED, FREE, Transition, transition
from rankplan.plans.plan import Plan
from rankplan.render.map.moving import moving_page, moving_svg
from rankplan.render.moving import (
    seconds_lines,
    slots_table,
    steps_more,
    steps_table,
    summary_lines,
    transition_json,
    verified_lines,
)


@click.command()
@click.argument("before", metavar="BEFORE", type=click.Path())
@click.argument("after", metavar="AFTER", type=click.Path())
@inventory_options
@no_guests_option
@click.option("--costs", metavar="COSTS", type=click.Path(), help="Bandwidths of an accelerator, seconds of steps.")
@click.option("--keep-names", is_flag=True, help="Keep the numbers of data groups as AFTER states them.")
@click.option("--serving", type=click.IntRange(0), default=1, show_default=True, help="Instances that keep serving.")
@click.option("--sleeping", multiple=True, metavar="NAME", help="Asleep before, e.g. rollout/2-3; with one plan twice.")
@click.option("--sleep", multiple=True, metavar="NAME", help="Asleep after, e.g. actor; with one plan twice.")
@click.option("--verify", is_flag=True, help="Simulate the steps, and check that every order of them is safe.")
@format_option("text", "json")
@click.option(
    "-o", "--output", type=Suffixed(".html", ".svg"), help="Write map.html or map.svg: before, after, changes."
)
def move(
    before: str,
    after: str,
    choice: Choice,
    *,
    costs: str | None,
    keep_names: bool,
    serving: int,
    sleeping: tuple[str, ...],
    sleep: tuple[str, ...],
    verify: bool,
    form: str,
    output: Path | None,
) -> None:
    """Show how a running job gets from one plan to another.

    Says what moves and how many bytes, from where, in which order of steps it is safe, and how long it takes. Changes
    nothing. BEFORE and AFTER are saved plans, or configs, which are planned on the nodes of the options. Nodes are the
    same by name, also if the inventories differ. What --without names is dead.

    With --sleeping or --sleep, BEFORE and AFTER are the same plan, and some of its instances sleep while others wake.

    Exit codes: 0 a safe order exists, 1 faults, or a breach that --verify found, 2 wrong usage.
    """
    with faults_end_it():
        asleep = (list(sleeping), list(sleep)) if sleeping or sleep else None
        old, new = _plans([before, after], replace(choice, without=()))
        found = transition(
            old,
            new,
            without=choice.without,
            costs=costs,
            names=AS_PLANNED if keep_names else FREE,
            asleep=asleep,
            serving=serving,
        )
        if output is not None:
            draw = moving_page if output.suffix.lower() == ".html" else moving_svg
            write_whole(output, draw(found, f"{Path(before).name} to {Path(after).name}"))
        if form == "json":
            click.echo(transition_json(found), nl=False)
        else:
            _print(found)
        if verify:
            checked = verified(found)
            click.echo("\n".join(verified_lines(checked)), err=form == "json")
            if checked.breaches:
                sys.exit(1)


def _plans(files: Sequence[str], choice: Choice) -> list[Plan]:
    """Return the plans of files. A saved plan has its own nodes: the options are those of a config beside it."""
    configs = [opened(file) for file in files]
    has_config = not all(map(is_saved, configs))
    return [planned(config, Choice() if has_config and is_saved(config) else choice) for config in configs]


def _print(found: Transition) -> None:
    print_table(slots_table(found))
    print_lines(list(summary_lines(found)))
    if found.steps:
        click.echo()
        print_table(steps_table(found))
        more = steps_more(found)
        if more is not None:
            click.echo(more)
    print_lines(list(seconds_lines(found)))

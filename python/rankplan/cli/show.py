"""``rankplan show``: the map of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from rankplan.cli.common import Choice, InputFile, Suffixed, beside_option, config_options, others_beside, shown_on
from rankplan.cli.output import faults_end_it, print_lines, text_console
from rankplan.files import write_whole
from rankplan.front.job import opened
from rankplan.parallel import KINDS
from rankplan.render.lines import reserved_lines, sharing_lines
from rankplan.render.map.domains import around
from rankplan.render.map.model import has_groups, map_of
from rankplan.render.map.page import page
from rankplan.render.map.svg import svg
from rankplan.render.map.terminal import lines

_DRAWN: dict[str, Callable[..., str]] = {".svg": svg, ".html": page}


@click.command()
@click.argument("file", metavar="FILE", type=InputFile())
@config_options
@click.option("--by", type=click.Choice(KINDS), help="Color and number parallel groups of this kind.")
@beside_option
@click.option("-o", "--output", type=Suffixed(*_DRAWN), help="Write map.svg, or map.html for a page with tooltips.")
def show(file: str, choice: Choice, by: str | None, beside: tuple[str, ...], output: Path | None) -> None:
    """Show a map: nodes, their accelerators, the processes on them.

    FILE is a config or a saved plan. With more than 16 nodes, nodes that run the same processes are folded. If the
    network is known, a row for each domain has its nodes: those in use, those of other jobs, and the spares of the
    inventory. Equal domains are one row. A plan that breaks its rules, or does not fit into memory, is drawn, too; its
    faults follow, and the exit code is 1.
    """
    with faults_end_it():
        config = opened(file)
        plan, inventory, refused = shown_on(config, choice)
        kinds = [kind for kind in KINDS if any(has_groups(component, kind) for component in plan.values())]
        if by is not None and by not in kinds:
            help = f"use {' or '.join(kinds)}" if kinds else "no component states parallel sizes"
            message = f"no component has {by} groups of two or more slots; {help}"
            raise click.BadParameter(message, param_hint="--by")
        everything = around(inventory, others_beside(config, beside))
        if output is not None:
            write_whole(output, _DRAWN[output.suffix.lower()](plan, Path(file).name, by, around=everything))
        else:
            picture = map_of(plan, by, around=everything)
            console = text_console()
            for line in lines(picture, console.width):
                console.print(line)
            print_lines(reserved_lines(plan) + sharing_lines(plan))
        if refused is not None:
            raise refused

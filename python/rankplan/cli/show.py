"""``rankplan show``: the map of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rankplan.cli.common import (
    InventoryChoice,
    dialect_option,
    faults_end_it,
    inventory_options,
    planned,
    print_sharing,
    text_console,
)
from rankplan.config.text.files import write_whole
from rankplan.parallel import KINDS
from rankplan.plans.plan import Plan
from rankplan.render.map.model import has_groups, map_of
from rankplan.render.map.network import network_of
from rankplan.render.map.page import page
from rankplan.render.map.svg import svg
from rankplan.render.map.terminal import lines

_DRAWN = {".svg": svg, ".html": page}


class _Picture(click.ParamType):  # type: ignore[type-arg]
    """A file whose suffix selects the format of the map."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path."""
        if Path(value).suffix.lower() not in _DRAWN:
            self.fail(f"{value} must end in .svg or .html", param, ctx)
        return Path(value)


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@inventory_options
@dialect_option
@click.option("--by", type=click.Choice(KINDS), help="Color and number parallel groups of this kind.")
@click.option("-o", "--output", type=_Picture(), help="Write map.svg, or map.html for a page with tooltips.")
def show(file: str, choice: InventoryChoice, dialect_name: str | None, by: str | None, output: Path | None) -> None:
    """Show a map: nodes, their accelerators, the processes on them.

    FILE is a config or a saved plan. With more than 16 nodes, nodes that run the same processes are folded.
    """
    with faults_end_it():
        plan = planned(file, choice, dialect_name)
        if by is not None and not any(has_groups(component, by) for component in plan.values()):
            raise click.BadParameter(_no_groups(plan, by), param_hint="--by")
        if output is not None:
            write_whole(output, _DRAWN[output.suffix.lower()](plan, Path(file).name, by))
            return
        picture = map_of(plan, by)
        console = text_console()
        for line in lines(picture, console.width, network_of(plan, picture)):
            console.print(line)
        print_sharing(plan)


def _no_groups(plan: Plan, by: str) -> str:
    kinds = [kind for kind in KINDS if any(has_groups(component, kind) for component in plan.values())]
    help = f"use {' or '.join(kinds)}" if kinds else "no component states parallel sizes"
    return f"no component has {by} groups of two or more slots; {help}"

"""``rankplan tune``: the fastest placement for measured times."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import yaml

from rankplan.cli.common import (
    InventoryChoice,
    colored,
    dialect_option,
    faults_end_it,
    inventory_options,
    overrides,
    print_lines,
    print_sharing,
    print_table,
)
from rankplan.config.text.files import write_whole
from rankplan.dialects import WRITERS
from rankplan.dialects.convert import convert
from rankplan.front import tune as tuned
from rankplan.plans.plan import Plan
from rankplan.render.tables import plan_table
from rankplan.render.tuning import placement_text, plot, ranking_table, reason_lines, sensitivity_line, tuning_json
from rankplan.tuning.search import Tuning
from rankplan.tuning.sweep import sweep

_SUFFIXES = (".svg", ".yaml", ".json")


class _Output(click.ParamType):  # type: ignore[type-arg]
    """A file whose suffix selects what is written."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path."""
        if Path(value).suffix.lower() not in _SUFFIXES:
            self.fail(f"{value} must end in .svg, .yaml or .json", param, ctx)
        return Path(value)


@click.command()
@click.argument("file", metavar="[FILE]", type=click.Path(), required=False)
@click.option("--costs", "costs_file", metavar="COSTS", type=click.Path(), help="Measured times of the components.")
@inventory_options
@dialect_option
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--to", type=click.Choice(list(WRITERS)), help="Print the placement as a config of this dialect.")
@click.option("--extrapolate", is_flag=True, help="Also use sizes far from every measured one; the result marks them.")
@click.option("--from", "present", metavar="PLAN", type=click.Path(), help="Prefer few moves from this saved plan.")
@click.option(
    "-o",
    "--output",
    "outputs",
    type=_Output(),
    multiple=True,
    help="Write the plot (.svg), the config (.yaml) or the plan (.json); may be repeated.",
)
def tune(
    *,
    file: str | None,
    costs_file: str | None,
    choice: InventoryChoice,
    dialect_name: str | None,
    form: str,
    to: str | None,
    extrapolate: bool,
    present: str | None,
    outputs: tuple[Path, ...],
) -> None:
    """Find the fastest placement for measured times.

    FILE is a config; its nodes, parallel sizes and rules count. Without --costs, its profile_data has the times. COSTS
    alone needs --nodes, --inventory or --ray.

    Prints a ranking, the measured time that decides it, and the plan, which is checked like that of any config. The
    answer is exact under the model of the guide "Which placement is fastest?".
    """
    if file is None and (costs_file is None or choice == InventoryChoice()):
        raise click.UsageError("without FILE, use --costs and one of --nodes, --inventory and --ray")
    with faults_end_it():
        before = Plan.load(present) if present is not None else None
        named: dict[str, Any] = {"dialect": dialect_name, "overrides": overrides(), "without": choice.without}
        result = tuned(costs_file, choice.given, file, **named, extrapolate=extrapolate, present=before)
        for warning in (*result.warnings, *result.best.warnings):
            click.echo(warning.render(color=colored(sys.stderr)), err=True)
        for output in outputs:
            _write(output, result)
        if form == "json":
            click.echo(tuning_json(result), nl=False)
            return
        print_table(ranking_table(result))
        click.echo("\n".join(sensitivity_line(result)))
        print_lines(list(reason_lines(result)))
        click.echo()
        _print_config(result, to)
        click.echo()
        print_table(plan_table(result.plan))
        print_sharing(result.plan)


def _write(path: Path, result: Tuning) -> None:
    suffix = path.suffix.lower()
    if suffix == ".svg":
        write_whole(path, plot(sweep(result), result))
    elif suffix == ".yaml":
        write_whole(path, yaml.safe_dump(dict(result.best.config), sort_keys=False))
    else:
        result.plan.save(path)


def _print_config(result: Tuning, to: str | None) -> None:
    if to is None:
        click.echo(placement_text(result.best), nl=False)
        return
    conversion = convert(result.plan, to)
    click.echo(yaml.safe_dump(conversion.config, sort_keys=False) if conversion.config else "", nl=False)
    for what in conversion.missing:
        click.echo(f"omitted in {to}: {what}", err=True)
    for name in conversion.added:
        click.echo(f"added in {to}: {name}, which every config of {to} has", err=True)

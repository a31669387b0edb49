"""``rankplan tune``: the fastest placement for measured times."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from rankplan.cli.common import (
    Choice,
    InputFile,
    Suffixed,
    WrittenName,
    config_arguments,
    config_options,
    format_option,
    model_option,
    save_option,
)
from rankplan.cli.convert import print_converted
from rankplan.cli.output import colored, faults_end_it, print_lines, print_table
from rankplan.dialects.convert import convert
from rankplan.errors import Diagnostic
from rankplan.files import write_whole
from rankplan.front.api import tune as tuned
from rankplan.front.api import tune_async as tuned_async
from rankplan.front.job import Nodes, inventory_from, load_plan
from rankplan.frozen import frozen
from rankplan.render.lines import sharing_lines
from rankplan.render.splits import splits_json, splits_lines, splits_table
from rankplan.render.tables import plan_table
from rankplan.render.tuning import (
    lending_lines,
    placement_text,
    plot,
    ranking_table,
    reason_lines,
    sensitivity_line,
    tuning_json,
)
from rankplan.tuning.costs import Costs
from rankplan.tuning.logs import LoggedRun, costs_with_log, read_log
from rankplan.tuning.search import Tuning, read_costs, sweep
from rankplan.tuning.splits import AsyncTuning
from rankplan.words import counted, whole_number


def _split(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Return the accelerators of trainer and rollout in a text such as ``32:32``."""
    if value is None:
        return None
    sizes = [whole_number(part) for part in value.split(":")]
    if len(sizes) != 2 or not all(sizes):
        raise click.BadParameter(f"{value!r} is no split; write the accelerators of trainer and rollout, such as 32:32")
    return sizes[0] or 0, sizes[1] or 0


@frozen
class _Log:
    """The log of a trainer's run, and what the log does not tell."""

    path: Path
    choice: Choice
    split: tuple[int, int] | None
    staleness: float | None

    def read(self) -> LoggedRun:
        """Return the measured run."""
        return read_log(self.path, self._accelerators(), self.split, self.staleness)

    def _accelerators(self) -> int:
        """Return the accelerators of the run: those of its split, or of all nodes."""
        if self.split is not None:
            return sum(self.split)
        if self.choice.given is None:
            raise click.UsageError("a log does not tell its accelerators: use --nodes, --ray or --split")
        return len(inventory_from(self.choice.given).without(self.choice.without).core.accelerators())


@frozen
class _Wanted:
    """What to do with the best placement, by the options that say it."""

    form: str
    to: str | None
    lend: bool
    present: str | None
    outputs: tuple[Path, ...]
    save: str | None

    @property
    def is_of_placements(self) -> bool:
        """Whether an option asks for what only a placement has."""
        return bool(self.to or self.lend or self.present or self.outputs or self.save)


def _read_costs(path: str | None, log: _Log | None) -> Costs | None:
    """Return the costs in a file, with the run of a log; ``None`` without a file."""
    if path is None:
        return None
    return read_costs(path) if log is None else costs_with_log(Path(path), log.read())


def _print_log(logged: LoggedRun) -> None:
    """Print the run of a log as it stands in a costs file, with what each number is made of."""
    click.echo(f"# {logged.trainer}: means of {counted(logged.steps, 'step')}")
    for note in logged.notes:
        click.echo(f"# {note}")
    click.echo(yaml.safe_dump(logged.content(), sort_keys=False, default_flow_style=None), nl=False)


@click.command()
@click.argument("file", metavar="[FILE]", type=InputFile(), required=False)
@click.option("--costs", "costs_file", metavar="COSTS", type=click.Path(), help="Measured times of the components.")
@config_options
@format_option("table", "json")
@click.option("--to", type=WrittenName(refuse=True), help="Print the placement as a config of this dialect.")
@click.option("--log", metavar="LOG", type=click.Path(), help="Read a measured run from what the trainer has printed.")
@click.option("--split", metavar="T:R", callback=_split, help="The log's accelerators of trainer and rollout.")
@click.option("--staleness", type=click.FloatRange(min=0), help="The log's batches that generation ran ahead.")
@click.option("--extrapolate", is_flag=True, help="Also use sizes far from every measured one; the result marks them.")
@model_option
@click.option("--lend", is_flag=True, help="Also let the trainer lend its accelerators to the rollout while it waits.")
@click.option("--from", "present", metavar="PLAN", type=click.Path(), help="Prefer few moves from this saved plan.")
@click.option(
    "-o",
    "--output",
    "outputs",
    type=Suffixed(".svg", ".yaml"),
    multiple=True,
    help="Write the plot (.svg) or the config (.yaml); repeatable.",
)
@save_option
def tune(
    *,
    file: str | None,
    costs_file: str | None,
    choice: Choice,
    form: str,
    to: str | None,
    log: str | None,
    split: tuple[int, int] | None,
    staleness: float | None,
    extrapolate: bool,
    model: str | None,
    lend: bool,
    present: str | None,
    outputs: tuple[Path, ...],
    save: str | None,
) -> None:
    """Find the fastest placement for measured times.

    FILE is a config, which states nodes, parallel sizes and rules. Without --costs, its profile_data has the times.
    COSTS alone needs --nodes or --ray. Costs with "async" and "runs" are of an asynchronous run, whose
    trainer does not wait for a whole generation: each split of the accelerators gets its seconds, or a range of them.
    Such a run is read from the log of verl, slime, NeMo-RL or SkyRL: --log prints it, and with --costs adds it to them.

    Prints a ranking, the measured time that decides it, and the plan, which is checked like that of any config. The
    answer is exact under the model of the guide "Which placement is fastest?".
    """
    if log is None and (split is not None or staleness is not None):
        raise click.UsageError("--split and --staleness are of --log")
    logged = None if log is None else _Log(Path(log), choice, split, staleness)
    wanted = _Wanted(form, to, lend, present, outputs, save)
    _check_sources(file, costs_file, choice, logged, model)
    if logged is not None and costs_file is None:
        if file is not None or extrapolate or wanted.is_of_placements or form != "table":
            raise click.UsageError("--log without --costs only prints the run; add --costs to tune")
        with faults_end_it():
            _print_log(logged.read())
        return
    with faults_end_it():
        costs = _read_costs(costs_file, logged)
        options = {"extrapolate": extrapolate} | config_arguments(choice)
        if costs is None or costs.asynchronous is None:
            _tune_placements(costs, choice.given, file, wanted, options | {"model": model})
            return
        if wanted.is_of_placements or model is not None:
            raise click.UsageError("costs with `async` take none of --model, --to, --lend, --from, --save and -o")
        _print_splits(tuned_async(costs, choice.given, file, **options), form)


def _check_sources(
    file: str | None, costs_file: str | None, choice: Choice, log: _Log | None, model: str | None
) -> None:
    """Raise ``click.UsageError`` if something is missing that another option needs."""
    if model is not None and file is None:
        raise click.UsageError("--model names the model of the components of FILE; add FILE")
    prints_log = log is not None and costs_file is None
    if not prints_log and file is None and (costs_file is None or choice.given is None):
        raise click.UsageError("without FILE, use --costs and one of --nodes and --ray")


def _tune_placements(
    costs: Costs | None, nodes: Nodes | None, file: str | None, wanted: _Wanted, options: Mapping[str, Any]
) -> None:
    """Rank the placements of a run whose components wait for each other; print the best one, and write it."""
    before = load_plan(wanted.present) if wanted.present is not None else None
    result = tuned(costs, nodes, file, lend=wanted.lend, present=before, **options)
    _print_warnings(*result.warnings, *result.best.warnings)
    for output in wanted.outputs:
        _write(output, result)
    if wanted.save is not None:
        result.plan.save(wanted.save)
    _print_tuning(result, wanted.form, wanted.to)


def _print_warnings(*warnings: Diagnostic) -> None:
    for warning in warnings:
        click.echo(warning.render(color=colored(sys.stderr)), err=True)


def _print_tuning(result: Tuning, form: str, to: str | None) -> None:
    """Print the ranking, what decides it, and the best placement, as a config of a dialect if there is one."""
    if form == "json":
        click.echo(tuning_json(result), nl=False)
        return
    print_table(ranking_table(result))
    click.echo("\n".join(sensitivity_line(result)))
    print_lines(list(reason_lines(result)))
    print_lines(list(lending_lines(result)))
    click.echo()
    if to is None:
        click.echo(placement_text(result.best), nl=False)
    else:
        print_converted(convert(result.plan, to), to)
    click.echo()
    print_table(plan_table(result.plan))
    print_lines(sharing_lines(result.plan))


def _print_splits(result: AsyncTuning, form: str) -> None:
    """Print how long a step of an asynchronous run takes on each split."""
    _print_warnings(*result.warnings)
    if form == "json":
        click.echo(splits_json(result), nl=False)
        return
    print_table(splits_table(result))
    print_lines(list(splits_lines(result)))


def _write(path: Path, result: Tuning) -> None:
    suffix = path.suffix.lower()
    if suffix == ".svg":
        write_whole(path, plot(sweep(result), result))
    else:
        write_whole(path, yaml.safe_dump(dict(result.best.config), sort_keys=False))

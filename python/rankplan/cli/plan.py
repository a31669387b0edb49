"""``rankplan plan``: the placements."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankplan.cli.common import (
    Choice,
    Component,
    InputFile,
    component_of,
    config_options,
    isolate_option,
    memory_options,
    output_option,
    planned_by,
    save_option,
)
from rankplan.cli.output import faults_end_it, print_lines, print_table
from rankplan.files import write_whole
from rankplan.front.job import job_file_of, opened
from rankplan.front.memory import UsedMemory, needs_of, peaks_of
from rankplan.front.warnings import reject_unfit
from rankplan.memory.needs import Needs
from rankplan.memory.rows import ProcessNeeds
from rankplan.plans.plan import Plan
from rankplan.read.sources import Planned
from rankplan.render.lines import reserved_lines, sharing_lines, size_lines
from rankplan.render.memory import memory_lines, unknown_lines
from rankplan.render.rows import csv_rows, hostfile, json_list, npz, plain_rows, rankfile
from rankplan.render.tables import plain_weights, plan_table, weights_line, weights_table

if TYPE_CHECKING:
    from rankplan.plans.weights import WeightMap

_TEXTS: dict[str, Callable[[Plan], Iterable[str]]] = {
    "csv": csv_rows,
    "hostfile": hostfile,
    "rankfile": rankfile,
}
_SUFFIXES = {".csv": "csv", ".npz": "numpy"}
_FILES = ("numpy",)
"""Formats of files."""
_OF_ONE_COMPONENT = ("hostfile", "rankfile")
"""Formats that describe a single component."""
FORMATS = ["table", "json", *_TEXTS, *_FILES]


@click.command()
@click.argument("file", metavar="FILE", type=InputFile())
@config_options
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default: by the suffix of -o, else table.")
@click.option("--component", metavar="NAME", type=Component(), help="Show only this component.")
@output_option("Write to this file instead of stdout (required for numpy).")
@click.option("--weights", metavar="SENDER:RECEIVER", help="Show which slots send their weights to which slots.")
@click.option("--memory", is_flag=True, help="Also show what each phase needs on an accelerator, and whether it fits.")
@memory_options
@save_option
@isolate_option
@click.option("--pinned", is_flag=True, help="Plan whole tensor groups and engines, in the trainer's order of nodes.")
def plan(
    *,
    file: str,
    choice: Choice,
    form: str | None,
    component: str | None,
    output: str | None,
    weights: str | None,
    memory: bool,
    model: str | None,
    reserve: float | None,
    costs: str | None,
    save: str | None,
    isolate: bool | None,
    pinned: bool,
) -> None:
    """Show where every process runs.

    FILE is a config or a saved plan. The table folds equal nodes if there are more than 64 processes; json and csv have
    one entry per process.

    hostfile and rankfile describe one component for Open MPI. In a hostfile, slots is the number of its processes on a
    host; mpirun --map-by slot --bind-to none fills the hosts in this order. In a rankfile, slot has the CPU cores to
    bind to: those of the component's binding, else the local rank, which you should edit; mpirun fails if the host has
    fewer. A host is an ip or a hostname; if the inventory lacks one, a rankfile uses +n, the n-th host of a resource
    manager's allocation, which mpirun does not accept with --host and --hostfile.

    json is a list of processes; --save writes the plan itself, for every command that reads a saved plan.
    numpy is an .npz file with the columns of each component, named component.column; see Component.to_numpy.

    For a trainer that starts its own processes, the plan predicts where Ray puts them. With --pinned, it is the plan to
    bind them to: nodes in the trainer's order of addresses, and no tensor group, context group or engine on two nodes
    if whole ones fit. With --ray too, it is what rankplan pin would bind now: what other jobs hold is left out.

    --memory adds two columns (what each process needs in its worst phase, and the memory of its accelerator) and a
    table of all phases. json and numpy have memory_lower and memory_upper of each phase, in bytes.

    --weights replaces the placements: it shows which slots of a component, such as the actor, send their weights to
    which slots of another, such as the rollout. A slot is a process, or an accelerator of a process with several.
    """
    form = _chosen_format(form, output)
    _check_output(form, output)
    _check_flags(form, component=component, weights=weights, memory=memory)
    if (reserve is not None or costs is not None) and not memory:
        raise click.UsageError("--reserve and --costs require --memory")
    with faults_end_it():
        config = opened(file)
        result, sources, reader = planned_by(
            config, choice, isolate=isolate, pinned=pinned, fitting=not memory, model=model
        )
        needs = None
        if memory:
            used = UsedMemory(reserve, peaks_of(costs)).or_stated(job_file_of(config))
            needs = needs_of(Planned(result, sources), used, always=True)
            if output is None:
                _show(result, needs, form, None)  # also if it does not fit: the phases show why
            reject_unfit(Planned(result, sources), needs, reader)
        if save is not None:
            result.save(save)
        if weights is not None:
            sender, receiver = _sender_and_receiver(result, weights, file)
            _write_weights(result.weight_map(sender, receiver), form, output)
        elif not memory:
            if component is not None or form in _OF_ONE_COMPONENT:
                component = component_of(result, component, file)
                result = result.only(component)
            _show(result, None, form, output, is_part=component is not None)
        elif output is not None:
            _show(result, needs, form, output)


def _check_flags(form: str, *, component: str | None, weights: str | None, memory: bool) -> None:
    """Raise ``click.UsageError`` for what a format cannot show, and for two tables that replace each other."""
    if weights is not None and (component is not None or form not in ("table", "json")):
        raise click.UsageError("--weights requires --format table or json, without --component")
    if memory and (weights is not None or component is not None or form not in ("table", "json", "numpy")):
        raise click.UsageError("--memory requires --format table, json or numpy, without --component and --weights")


def _show(plan: Plan, needs: Needs | None, form: str, output: str | None, *, is_part: bool = False) -> None:
    """Print a plan, or one component of it, or write it to a file, with what it needs of memory."""
    if form == "table":
        _print_plan(plan, needs, is_part=is_part)
    else:
        _write_plan(plan, _process_needs(needs), form, output)


def _print_plan(plan: Plan, needs: Needs | None, *, is_part: bool) -> None:
    """Print the processes of a plan, or of one component, and what it needs of memory."""
    of_processes = _process_needs(needs)
    print_table(plan_table(plan, of_processes), plan_table(plan, of_processes, is_narrow=True))
    sharing = [] if is_part else sharing_lines(plan)
    print_lines([*size_lines(plan), *reserved_lines(plan), *sharing])
    if needs is not None:
        print_lines([*memory_lines(needs), *unknown_lines(needs)])


def _process_needs(needs: Needs | None) -> ProcessNeeds | None:
    return None if needs is None else ProcessNeeds(needs)


def _chosen_format(form: str | None, output: str | None) -> str:
    """Return the format: the stated one, else that of the suffix of a file."""
    if form is not None:
        return form
    return "table" if output is None else _SUFFIXES.get(Path(output).suffix.lower(), "table")


def _check_output(form: str, output: str | None) -> None:
    """Raise ``click.UsageError`` for a format of files without a file, or a file with the format of a terminal."""
    if output is None and form in _FILES:
        raise click.UsageError(f"--format {form} requires -o PATH")
    if output is not None and form == "table":
        suffixes = ", ".join(_SUFFIXES)
        raise click.UsageError(
            f"--save {output} writes the plan, and rankplan show pictures; -o writes its rows, with the suffix "
            f"{suffixes} or another --format: {', '.join(FORMATS[1:])}"
        )


def _write_weights(weights: WeightMap, form: str, output: str | None) -> None:
    if form == "table":
        print_table(weights_table(weights))
        print_lines([weights_line(weights)])
    else:
        _write(json_list(plain_weights(weights)), output)


def _write_plan(plan: Plan, rows: ProcessNeeds | None, form: str, output: str | None) -> None:
    """Write a plan in a format other than a table; ``rows`` are the needs of its processes."""
    if form == "numpy" and output is not None:
        write_whole(Path(output), npz(plan, rows))
    elif form == "json":
        _write(json_list(plain_rows(plan, rows)), output)
    else:
        _write(_TEXTS[form](plan), output)


def _sender_and_receiver(plan: Plan, pair: str, file: str) -> list[str]:
    sender, colon, receiver = pair.partition(":")
    if not colon:
        raise click.BadParameter(f"{pair!r} is not SENDER:RECEIVER; write actor:rollout", param_hint="--weights")
    return [component_of(plan, name, file, "--weights") for name in (sender, receiver)]


def _write(parts: Iterable[str], output: str | None) -> None:
    if output is not None:
        write_whole(Path(output), "".join(parts))
    else:
        sys.stdout.writelines(parts)
        sys.stdout.flush()

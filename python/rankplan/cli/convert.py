"""``rankplan convert``: the same plan as a config of another system."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rankplan.cli.common import Choice, InputFile, WrittenName, config_options, output_option, shown_on
from rankplan.cli.output import faults_end_it
from rankplan.dialects import DIALECTS, writers
from rankplan.dialects.convert import TOPOLOGY, Converted
from rankplan.dialects.convert import convert as converted
from rankplan.errors import printable
from rankplan.files import write_whole
from rankplan.front.job import opened


@click.command()
@click.argument("file", metavar="FILE", type=InputFile())
@click.option("--to", required=True, type=WrittenName(), help="Dialect to write.")
@config_options
@click.option("--topology", is_flag=True, help="Write the topology section of verl's draft, RFC #7269.")
@output_option("Write to this file instead of stdout.")
def convert(file: str, to: str, choice: Choice, *, topology: bool, output: str | None) -> None:
    """Write the placements of a config in another dialect.

    Whatever that dialect cannot express is omitted and listed on stderr; the exit code is then 1. What it adds is
    listed, too. So are the faults of a plan that breaks its rules, or does not fit into memory.
    """
    if not DIALECTS[to].writers:
        help = f"use {', '.join(writers())}"
        raise click.BadParameter(f"rankplan reads {to}, but cannot write it; {help}", param_hint="--to")
    if topology and TOPOLOGY not in DIALECTS[to].writers:
        names = writers(TOPOLOGY)
        message = f"only {' and '.join(names)} has a topology section; use --to {' or --to '.join(names)}"
        raise click.BadParameter(message, param_hint="--topology")
    with faults_end_it():
        plan, _, refused = shown_on(opened(file), choice)
        conversion = converted(plan, to, topology=topology)
        print_converted(conversion, to, output)
        if refused is not None:
            raise refused
        sys.exit(1 if conversion.omitted else 0)


def print_converted(conversion: Converted, to: str, output: str | None = None) -> None:
    """Print a config of another dialect, or write it to a file, and tell on stderr how it differs from the plan."""
    if output is not None and conversion.text:
        write_whole(Path(output), conversion.text)
    else:
        click.echo(conversion.text, nl=False)
    for what in conversion.omitted:
        click.echo(f"omitted in {to}: {printable(what)}", err=True)
    for what in conversion.added:
        click.echo(f"added in {to}: {printable(what)}", err=True)

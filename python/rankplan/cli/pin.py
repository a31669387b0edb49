"""``rankplan pin``: run a Ray program with its placement groups bound to the nodes of a plan."""

from __future__ import annotations

import math
import sys

import click

from rankplan.cli import signals
from rankplan.cli.common import dialect_option, faults_end_it, isolate_option, note, show_error, without_option
from rankplan.config.network import NODE_ORDERS
from rankplan.errors import Diagnostic, PlacementError

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.argument("command", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.option("--ray", metavar="ADDRESS", help="Address of the Ray cluster (default: found by Ray).")
@dialect_option
@click.option(
    "--set", "changes", metavar="KEY=VALUE", multiple=True, help="Override a value of the config (may be repeated)."
)
@without_option
@isolate_option
@click.option("--node-order", type=click.Choice(NODE_ORDERS), help="Order of nodes that the trainer does not sort.")
@click.option(
    "--others",
    type=click.Choice(["refuse", "pass"]),
    default="refuse",
    show_default=True,
    help="Requests that the plan does not have: refuse them, or place them on what it leaves free.",
)
@click.option(
    "--devices",
    type=click.Choice(["warn", "require"]),
    default="warn",
    show_default=True,
    help="Ranks on the right node with other accelerators than planned: warn, or count them as a fault.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds from the first group to the last rank, after which missing ones are told.",
)
def pin(
    *,
    file: str,
    command: tuple[str, ...],
    ray: str | None,
    dialect_name: str | None,
    changes: tuple[str, ...],
    without: tuple[str, ...],
    isolate: bool | None,
    node_order: str | None,
    others: str,
    devices: str,
    timeout: float,
) -> None:
    """Run a Ray program with its placement groups bound to the nodes of a plan."""
    if not command:
        raise click.UsageError(f"write the command after --, e.g. rankplan pin {file} -- bash {file}")
    if not math.isfinite(timeout):
        raise click.BadParameter(f"{timeout} is not a finite number of seconds", param_hint="--timeout")
    with faults_end_it(), signals.raised():
        with signals.at_once():
            from rankplan.runtime.live.pinned import pin as run
        try:
            ran = run(
                file,
                command,
                ray=ray,
                others=others,  # type: ignore[arg-type]
                devices=devices,  # type: ignore[arg-type]
                timeout=timeout,
                dialect=dialect_name,
                overrides=changes,
                without=without,
                isolate=isolate,
                node_order=node_order,
                tell=_tell,
            )
        except OSError as error:
            if error.filename != command[0]:
                raise
            show_error(error)
            sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)
    note(f"groups: {ran.pinned} of {ran.requests} pinned")
    sys.exit(ran.returncode)


def _tell(told: Diagnostic | str) -> None:
    if isinstance(told, str):
        note(told)
    else:
        click.echo(PlacementError([told]).render(), err=True)

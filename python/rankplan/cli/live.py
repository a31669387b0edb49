"""``rankplan live``: what runs on a cluster, and where that differs from a plan."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from rankplan.cli import signals
from rankplan.cli.common import InputFile, Seconds, Suffixed, dialect_option, format_option, overrides
from rankplan.cli.output import faults_end_it, table_lines
from rankplan.files import write_whole
from rankplan.front.job import is_saved

if TYPE_CHECKING:
    from rankplan.runtime.usage.model import Live

_PAUSE = 2.0  # seconds between looks that state none


@click.command()
@click.argument("file", metavar="[FILE]", type=InputFile(), required=False)
@click.option("--ray", metavar="ADDRESS", default="auto", show_default=True, help="Address of the Ray head, host:port.")
@dialect_option
@click.option("--job", metavar="ID", help="Show only this job, e.g. 02.")
@click.option("--all", "everything", is_flag=True, help="Also show actors without accelerators.")
@click.option(
    "--devices", is_flag=True, help="Ask the driver of each node which processes use which accelerators (NVML)."
)
@click.option(
    "--watch",
    is_flag=False,
    flag_value=_PAUSE,
    type=Seconds(),
    metavar="[SECONDS]",
    help="Look again every 2 seconds, or as many as given, and print what has changed.",
)
@format_option("table", "json")
@click.option("-o", "--output", type=Suffixed(".svg", ".html"), help="Write a map of what runs: live.svg or live.html.")
def live(
    *,
    file: str | None,
    ray: str,
    dialect_name: str | None,
    job: str | None,
    everything: bool,
    devices: bool,
    watch: float | None,
    form: str,
    output: Path | None,
) -> None:
    """Show what runs on a Ray cluster; compare it with a plan.

    Shows every job, whoever started it. FILE is a config or a saved plan to compare with: ranks on other nodes or
    accelerators than planned, tensor groups on several nodes, ranks that do not run. A config is planned on what other
    jobs leave free in this cluster.

    Reads the tables of the head from any machine that reaches it, and starts nothing; only --devices starts a job, with
    a short task on each node. Accelerators in parentheses belong to the bundle of an actor that reserves none itself.
    #0 is an index, if the driver's id is unknown.

    Exit codes: 0 nothing to report, 1 differences, accelerators used twice, groups that Ray cannot place, or faults,
    2 wrong usage.
    """
    if watch is not None and output is not None:
        raise click.UsageError("--watch prints; remove -o")
    if file is None and (dialect_name is not None or overrides()):
        raise click.UsageError("--dialect and overrides apply to FILE, which is missing")
    if file is not None and is_saved(file) and (dialect_name is not None or overrides()):
        raise click.UsageError(f"{file} is a saved plan; remove --dialect and overrides")
    with faults_end_it(), signals.raised():
        with signals.at_once():
            from rankplan.runtime.live.live import Looks
        looks = Looks(ray, file, job=job, devices=devices, dialect=dialect_name, overrides=overrides())
        found = looks.now()
        if output is not None:
            from rankplan.runtime.live.picture import drawn

            write_whole(output, drawn(found, output.suffix.lower()))
        else:
            show = _text if form == "table" else partial(_json, indented=watch is None)
            lines = show(found, everything=everything)
            click.echo("\n".join(lines))
            if watch is not None:
                shown_changes = _changes if form == "table" else _whole
                _watch(lambda: show(looks.now(), everything=everything), lines, watch, shown_changes)
        sys.exit(1 if found.differences or found.doubled or found.waiting else 0)


def _watch(
    look: Callable[[], list[str]], lines: list[str], pause: float, shown: Callable[[list[str], list[str]], list[str]]
) -> NoReturn:
    """Look again and again, and print what ``shown`` makes of lines that are not the last ones; a signal ends it."""
    while True:
        time.sleep(pause)
        before = lines
        lines = look()
        if lines != before:
            click.echo("\n".join(shown(before, lines)))


def _text(found: Live, *, everything: bool) -> list[str]:
    from rankplan.runtime.live.report import actor_table, live_lines

    return [*table_lines(actor_table(found, everything=everything)), *live_lines(found)]


def _json(found: Live, *, everything: bool, indented: bool) -> list[str]:
    """Return one JSON document, in one line if more of them follow."""
    from rankplan.runtime.live.report import plain

    return [json.dumps(plain(found, everything=everything), indent=2 if indented else None)]


def _changes(before: list[str], after: list[str]) -> list[str]:
    """Return the time, and the lines that have gone (``-``) and come (``+``)."""
    removed = set(before).difference(after)
    added = set(after).difference(before)
    minus = [f"- {line}" for line in before if line in removed]
    plus = [f"+ {line}" for line in after if line in added]
    return [time.strftime("%H:%M:%S"), *minus, *plus]


def _whole(before: list[str], after: list[str]) -> list[str]:
    """Return all lines: each change of a JSON document is a document."""
    return after

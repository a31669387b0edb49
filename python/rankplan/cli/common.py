"""Shared by the commands: options, reading a file as a plan, output and errors."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.shell_completion import CompletionItem

from rankplan.cli import signals
from rankplan.cli.commands import OVERRIDES
from rankplan.dialects import DIALECTS
from rankplan.dialects.pools import by_address_text
from rankplan.errors import PlacementError, RankplanError
from rankplan.front import Job, faults_line, inventory_from, is_saved, notes, plan, read_job, saved_plan
from rankplan.front import Nodes as Given
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.render.tables import sharing_lines
from rankplan.words import did_you_mean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EXPECTED = (RankplanError, OSError)
"""Errors that input or a cluster can cause; any other error is a bug of rankplan and keeps its traceback."""


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        hint = getattr(record, "hint", None)
        note(record.getMessage() + (f"; {hint}" if hint else ""))


@contextmanager
def _notes_on_stderr() -> Iterator[None]:
    """Print the notes of `rankplan.front` on stderr, with hints that name options."""
    handler = _Notes()
    notes.addHandler(handler)
    notes.propagate = False
    try:
        yield
    finally:
        notes.removeHandler(handler)
        notes.propagate = True


class Nodes(click.ParamType):  # type: ignore[type-arg]
    """``2x8``: nodes x accelerators per node."""

    name = "nodes"
    otherwise = ""
    """What else the option accepts, appended to its error message."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text if it is a size."""
        try:
            Inventory.parse(str(value))
        except PlacementError as error:
            self.fail(f"{error.message}; {error.help}{self.otherwise}", param, ctx)
        return str(value)


dialect_option = click.option(
    "--dialect",
    "dialect_name",
    type=click.Choice(list(DIALECTS)),
    help="Config dialect (default: detected from its keys).",
)


@dataclass(frozen=True, slots=True)
class InventoryChoice:
    """The inventory options of a command."""

    file: str | None = None
    nodes: str | None = None
    ray: str | None = None
    without: tuple[str, ...] = ()
    by_text: bool = False

    @property
    def given(self) -> Given | None:
        """The nodes as `rankplan.plan` takes them: a size, or this object, which has the inventory when it is used."""
        if self.nodes is not None:
            return self.nodes
        return None if self.file is None and self.ray is None else self

    @property
    def inventory(self) -> Inventory:
        """The nodes of the file or the Ray cluster, in the order that the options state."""
        if self.file is not None:
            found = Inventory.load(self.file)
        else:
            from rankplan.runtime.cluster import Cluster

            with Cluster(address=self.ray) as cluster:
                found = cluster.inventory
        return by_address_text(found) if self.by_text else found

    def among(self, otherwise: Inventory) -> Inventory:
        """Return the nodes that the options state, or else others, without the excluded hardware."""
        found = otherwise if self.given is None else inventory_from(self.given)
        return found.without(self.without) if self.without else found


without_option = click.option(
    "--without",
    multiple=True,
    metavar="NAME",
    help="Do not use this node (node-3), accelerator (node-5/2, or its id) or domain (nvlink=b); may be repeated.",
)


def inventory_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--inventory``, ``--nodes``, ``--ray`` and ``--without``; the command gets them as ``choice``."""

    @wraps(command)
    def chosen(
        inventory: str | None,
        nodes: str | None,
        ray: str | None,
        without: tuple[str, ...],
        node_order: str,
        **rest: Any,
    ) -> Any:
        if sum(option is not None for option in (inventory, nodes, ray)) > 1:
            raise click.UsageError("use only one of --inventory, --nodes and --ray")
        if node_order == "text" and nodes is not None:
            raise click.UsageError("--node-order text needs nodes with addresses: --inventory or --ray")
        return command(choice=InventoryChoice(inventory, nodes, ray, without, node_order == "text"), **rest)

    for option in (
        click.option(
            "--node-order",
            type=click.Choice(["given", "text"]),
            default="given",
            help="Order of the nodes: as given, or by address as text, as in verl.",
        ),
        without_option,
        click.option("--ray", metavar="ADDRESS", help="Use the nodes of this Ray cluster (auto finds it)."),
        click.option(
            "--nodes", type=Nodes(), metavar="NxM", help="Use N equal nodes with M accelerators each, e.g. 2x8."
        ),
        click.option("--inventory", metavar="FILE", type=click.Path(), help="Use the nodes of this inventory file."),
    ):
        option(chosen)
    return chosen


def overrides() -> tuple[str, ...]:
    """Return the overrides that follow ``--`` on the command line."""
    context = click.get_current_context(silent=True)
    return context.meta.get(OVERRIDES, ()) if context is not None else ()


def read(file: str, choice: InventoryChoice, dialect: str | None, *, quiet: bool = False) -> Job:
    """Return a config with its dialect and nodes, as the options say."""
    job = read_job(file, choice.given, dialect=dialect, overrides=overrides(), without=choice.without)
    if not quiet:
        job.announce()
    return job


def planned(file: str, choice: InventoryChoice, dialect: str | None, *, isolate: bool | None = None) -> Plan:
    """Return the plan of a config in any dialect, or the saved plan in the file, which has its own nodes.

    ``isolate``: whether a process sees only its own accelerators; ``None``: as saved, or yes for a config.
    """
    if is_saved(file) and (replace(choice, without=()) != InventoryChoice() or dialect is not None or overrides()):
        raise click.UsageError(
            f"{file} is a saved plan with its own nodes; remove --nodes, --inventory, --ray, --dialect and overrides"
        )
    return plan(file, choice.given, dialect=dialect, overrides=overrides(), without=choice.without, isolate=isolate)


class Component(click.ParamType):  # type: ignore[type-arg]
    """The name of a component; shell completion reads it from the file given before."""

    name = "component"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the components that start like this; none if the file has faults."""
        # Parsing ends at the completed option, before click names the arguments.
        file = next(iter(ctx.args), None)
        if file is None:
            return []
        with suppress(*EXPECTED):
            choice = InventoryChoice(
                ctx.params.get("inventory"), ctx.params.get("nodes"), without=ctx.params.get("without", ())
            )
            saved = saved_plan(file)
            found = read(file, choice, ctx.params.get("dialect_name"), quiet=True).plan() if saved is None else saved
            return [CompletionItem(name) for name in found if name.startswith(incomplete)]
        return []


def component_of(plan: Plan, name: str | None, file: str, option: str = "--component") -> str:
    """Return the component with this name, or the only one; anything else is wrong usage."""
    if name is not None and name in plan:
        return name
    if name is None and len(plan) == 1:
        return plan.components[0]
    if not plan:
        raise click.BadParameter(f"{file} has no components", param_hint=option)
    names = did_you_mean(name or "", plan, "choose one")
    missing = f"unknown component `{name}` in {file}" if name is not None else f"{file} has {len(plan)} components"
    raise click.BadParameter(f"{missing}; {names}", param_hint=option)


isolate_option = click.option(
    "--isolate/--no-isolate",
    default=None,
    help="Whether a process sees only its own accelerators (default: as saved, else yes).",
)


def text_console(width: int | None = None) -> Console:
    """Return a console of rich for stdout. Names come from configs: a bracket in a name is not markup."""
    from rich.console import Console  # most commands print plain lines

    console = Console(highlight=False, markup=False, soft_wrap=True, width=width)
    if console.width < 1:  # COLUMNS=0 would print nothing
        console.width = 80
    return console


def print_table(table: Table) -> None:
    """Print a table, as wide as the terminal if there is one, else as wide as it needs."""
    console = text_console(None if sys.stdout.isatty() else 10_000)
    with console.capture() as capture:
        console.print(table, soft_wrap=False)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def print_sharing(plan: Plan) -> None:
    """Print which components share accelerators and which accelerators are idle."""
    print_lines(sharing_lines(plan))


def print_lines(lines: Sequence[str]) -> None:
    """Print lines after a blank one, if there are any."""
    if lines:
        click.echo("\n".join(["", *lines]))


def colored(stream: TextIO) -> bool:
    """Whether to print colors to this stream."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def note(text: str, color: str | None = None) -> None:
    """Print a note on stderr, dim unless it has a color."""
    click.secho(text, fg=color, dim=color is None, err=True, color=None if colored(sys.stderr) else False)


def show_error(error: Exception) -> None:
    """Print an expected error: every fault with its location, or one message."""
    if isinstance(error, PlacementError):
        click.echo(f"{error.render(color=colored(sys.stderr))}\n\n{faults_line(error.diagnostics)}", err=True)
        return
    style = None if colored(sys.stderr) else False
    click.secho("error:", fg="red", bold=True, nl=False, err=True, color=style)
    click.echo(" ", nl=False, err=True)
    if isinstance(error, OSError) and error.filename:
        hint = "; write overrides after --" if "=" in str(error.filename) else ""
        click.echo(f"{error.filename}: {error.strerror}{hint}", err=True)
    else:
        click.echo("\n".join([str(error), *getattr(error, "__notes__", ())]), err=True)


@contextmanager
def faults_end_it(code: int = 1) -> Iterator[None]:
    """Turn expected errors into a message and an exit code, without a traceback."""
    try:
        with _notes_on_stderr():
            yield
    except BrokenPipeError:
        # The reader of stdout has closed it; the interpreter must not write at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except EXPECTED as error:
        show_error(error)
        sys.exit(code)
    except KeyboardInterrupt:
        with suppress(OSError):  # its terminal may be closed
            click.echo("interrupted", err=True)
        sys.exit(signals.exit_code())

"""Shared by the commands: options, reading a file as a plan, output and errors."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.table import Table

from rankplan.cli import signals
from rankplan.config.text.load import load_config
from rankplan.config.text.reader import Reader
from rankplan.dialects import DIALECTS, Dialect, dialect_of, mixed
from rankplan.dialects.pools import by_address_text
from rankplan.errors import PlacementError, RankplanError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.render.tables import sharing_lines
from rankplan.words import counted, did_you_mean

# Names come from configs: a bracket in a name is not markup.
stdout = Console(highlight=False, markup=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

for console in (stdout, stderr):
    if console.width < 1:  # COLUMNS=0 would print nothing
        console.width = 80

EXPECTED = (RankplanError, OSError)
"""Errors that input or a cluster can cause; any other error is a bug of rankplan and keeps its traceback."""


class Nodes(click.ParamType):  # type: ignore[type-arg]
    """``2x8``: nodes x accelerators per node."""

    name = "nodes"
    otherwise = ""
    """What else the option accepts, appended to its error message."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Inventory:
        """Return the inventory of these nodes."""
        if isinstance(value, Inventory):
            return value
        try:
            return Inventory.parse(str(value))
        except PlacementError as error:
            self.fail(f"{error.message}; {error.help}{self.otherwise}", param, ctx)


dialect_option = click.option(
    "--dialect",
    "dialect_name",
    type=click.Choice(list(DIALECTS)),
    help="Config dialect (default: detected from its keys).",
)


def chosen_dialect(name: str | None, config: Mapping[str, Any]) -> Dialect:
    """Return the dialect with this name, or else the one detected from the keys of the config.

    Raises `PlacementError` for a config with keys of several, unless one is named.
    """
    if name is not None:
        return DIALECTS[name]
    reader = Reader(config)
    for path, fault in mixed(config):
        reader.add(path, fault)
    reader.finish()
    return dialect_of(config)


@dataclass(frozen=True, slots=True)
class InventoryChoice:
    """The inventory options of a command."""

    file: str | None = None
    nodes: Inventory | None = None
    ray: str | None = None
    without: tuple[str, ...] = ()
    by_text: bool = False

    def load(self, config: Any, dialect: Dialect) -> tuple[Inventory, bool]:
        """Return the inventory for a config, without the excluded hardware, and whether it is assumed."""
        inventory, assumed = self._whole(config, dialect)
        inventory = by_address_text(inventory) if self.by_text else inventory
        return (inventory.without(self.without) if self.without else inventory), assumed

    def _whole(self, config: Any, dialect: Dialect) -> tuple[Inventory, bool]:
        if self.file is not None:
            return Inventory.load(self.file), False
        if self.nodes is not None:
            return self.nodes, False
        if self.ray is not None:
            from rankplan.runtime.cluster import Cluster

            with Cluster(address=self.ray) as cluster:
                return cluster.inventory, False
        return dialect.assumed_inventory(config), True


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
        nodes: Inventory | None,
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


OVERRIDES = "rankplan.overrides"
"""The key, in the context of click, of the words after ``--``."""


class Commands(click.Group):
    """The commands, each imported when it is used. They take overrides of their config after ``--``."""

    names: tuple[str, ...] = (
        *("arrange", "check", "convert", "diff", "env", "explain"),
        *("inventory", "plan", "replan", "run", "schema", "show", "tune"),
    )
    without: frozenset[str] = frozenset({"explain", "schema", "diff", "inventory"})
    """Commands that read no config, or several."""
    other: frozenset[str] = frozenset({"run"})
    """Commands with another use for these words."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, sorted."""
        return list(self.names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self.names:
            return None
        with signals.at_once():
            command: click.Command = getattr(import_module(f"rankplan.cli.{cmd_name}"), cmd_name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words after ``--`` for `loaded`."""
        name = next((word for word in args if word in self.names), None)
        if "--" in args[1:] and name not in self.other and not ctx.resilient_parsing:
            dashes = args.index("--", 1)
            ctx.meta[OVERRIDES] = tuple(args[dashes + 1 :])
            if name in self.without:
                raise click.UsageError(f"{name} takes no overrides after --", ctx)
            args = args[:dashes]
        return super().parse_args(ctx, args)


def overrides() -> tuple[str, ...]:
    """Return the overrides that follow ``--`` on the command line."""
    context = click.get_current_context(silent=True)
    return context.meta.get(OVERRIDES, ()) if context is not None else ()


def loaded(
    file: str, choice: InventoryChoice, name: str | None, note: bool = True
) -> tuple[Reader, Dialect, Inventory, bool]:
    """Return a config, its dialect, its inventory, and whether that is assumed; if so, print a note."""
    config = load_config(file, overrides())
    dialect = chosen_dialect(name, config)
    reading = dialect.read(config)
    inventory, assumed = choice.load(reading, dialect)
    if assumed and note:
        nodes, has = counted(inventory.num_nodes, "node"), counted(inventory.node(0).num_accelerators, "accelerator")
        each = " each" if inventory.num_nodes > 1 else ""
        stderr.print(
            f"{file}: assuming {nodes} with {has}{each}; set other nodes with --nodes, --inventory or --ray",
            style="dim",
        )
    return reading, dialect, inventory, assumed


def reject_crossings(plan: Plan, config: Reader, labelled: bool) -> None:
    """Raise `PlacementError` if groups cross what the config forbids, with the place of each rule.

    Unless the nodes are real ones, whose labels are known, only the level ``node`` is checked.
    """
    reader = config.fork()
    for keys, found in plan.topology_faults(labelled):
        reader.add_in_config(("cluster", "topology", *keys), found)
    reader.finish()


def note_warnings(file: str, reading: Any) -> None:
    """Print how many values of a launch script are known only when it runs, if any."""
    if reading.warnings:
        values = counted(len(reading.warnings), "warning")
        stderr.print(f"{file}: {values} about what only a run decides; rankplan check lists them", style="dim")


def is_saved(file: str) -> bool:
    """Whether a file starts like a saved plan. A pipe never counts as one. Raises ``OSError``."""
    if not Path(file).is_file():
        return False  # a pipe can be read only once
    with Path(file).open("rb") as opened:
        return re.match(rb"\s*\{\s*\"rankplan\"\s*:", opened.read(256)) is not None


def planned(file: str, choice: InventoryChoice, name: str | None, isolate: bool | None = None) -> Plan:
    """Return the plan of a config in any dialect, or the saved plan in the file, which has its own nodes.

    ``isolate``: whether a process sees only its own accelerators; ``None``: as saved, or yes for a config.
    """
    if not is_saved(file):
        config, dialect, inventory, assumed = loaded(file, choice, name)
        note_warnings(file, config)
        plan = dialect.plan(config, inventory, isolate is not False)
        reject_crossings(plan, config, labelled=not assumed and choice.nodes is None)
        return plan
    if replace(choice, without=()) != InventoryChoice() or name is not None or overrides():
        raise click.UsageError(
            f"{file} is a saved plan with its own nodes; remove --nodes, --inventory, --ray, --dialect and overrides"
        )
    plan = Plan.load(file)
    if choice.without:
        plan = plan.on(plan.inventory.without(choice.without))
    if isolate is None:
        return plan
    return plan.with_visibility("own" if isolate else "node")


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
            if is_saved(file):
                plan = Plan.load(file)
            else:
                config, dialect, inventory, _ = loaded(file, choice, ctx.params.get("dialect_name"), note=False)
                plan = dialect.plan(config, inventory)
            return [CompletionItem(name) for name in plan if name.startswith(incomplete)]
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


def print_table(table: Table) -> None:
    """Print a table, as wide as the terminal if there is one, else as wide as it needs."""
    console = stdout if stdout.is_terminal else Console(highlight=False, markup=False, width=10_000)
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


def colored(console: Console) -> bool:
    """Whether to print colors to this console."""
    return console.is_terminal and not console.no_color


def show_error(error: Exception) -> None:
    """Print an expected error: every fault with its location, or one message."""
    if isinstance(error, PlacementError):
        click.echo(error.render(colored(stderr)), err=True)
        files = dict.fromkeys(found.file for found in error.diagnostics if found.file)
        where = f" in {' and '.join(files)}" if files else ""
        click.echo(f"\n{counted(len(error.diagnostics), 'fault')}{where}", err=True)
        return
    stderr.print("error:", style="bold red", end=" ")
    if isinstance(error, OSError) and error.filename:
        hint = "; write overrides after --" if "=" in str(error.filename) else ""
        click.echo(f"{error.filename}: {error.strerror}{hint}", err=True)
    else:
        click.echo("\n".join([str(error), *getattr(error, "__notes__", ())]), err=True)


@contextmanager
def faults_end_it(code: int = 1) -> Iterator[None]:
    """Turn expected errors into a message and an exit code, without a traceback."""
    try:
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

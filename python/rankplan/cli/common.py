"""What the commands share: the inventory options, and how faults end a command."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.table import Table

from rankplan.config.load import load_config
from rankplan.dialects import DIALECTS, Dialect, dialect_of
from rankplan.errors import PlacementError, RankplanError
from rankplan.inventory import Inventory
from rankplan.plan import Plan
from rankplan.render.tables import sharing_lines
from rankplan.words import counted, did_you_mean

# Names come from configs: a bracket in one is no markup.
stdout = Console(highlight=False, markup=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

for console in (stdout, stderr):
    if console.width < 1:  # COLUMNS=0: nothing would be written
        console.width = 80

EXPECTED = (RankplanError, OSError)
"""What a user's input or cluster can cause; anything else is a fault of rankplan and keeps its traceback."""


class Nodes(click.ParamType):  # type: ignore[type-arg]
    """``2x8``: nodes x accelerators."""

    name = "nodes"
    otherwise = ""
    """What else may be written, in the words of a refusal."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Inventory:
        """Return the inventory of so many nodes."""
        if isinstance(value, Inventory):
            return value
        try:
            return Inventory.of_size(str(value))
        except PlacementError as error:
            self.fail(f"{error.message}; {error.help}{self.otherwise}", param, ctx)


dialect_option = click.option(
    "--dialect",
    "dialect_name",
    type=click.Choice(list(DIALECTS)),
    help="What the config is written in; without, its keys tell.",
)


def chosen_dialect(name: str | None, config: Mapping[str, Any]) -> Dialect:
    """Return the dialect of this name, or else the one that the config's keys tell."""
    return dialect_of(config) if name is None else DIALECTS[name]


@dataclass(frozen=True, slots=True)
class InventoryChoice:
    """Which inventory a command was told to use."""

    file: str | None = None
    nodes: Inventory | None = None
    ray: str | None = None

    def load(self, config: Any, dialect: Dialect) -> tuple[Inventory, bool]:
        """Return the inventory for a config, and whether it is only assumed."""
        if self.file is not None:
            return Inventory.from_yaml(self.file), False
        if self.nodes is not None:
            return self.nodes, False
        if self.ray is not None:
            from rankplan.runtime import Cluster

            with Cluster(address=self.ray) as cluster:
                return cluster.inventory, False
        return dialect.assumed_inventory(config), True


def inventory_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--inventory``, ``--nodes`` and ``--ray``; the command gets an `InventoryChoice` as ``choice``."""

    @wraps(command)
    def chosen(inventory: str | None, nodes: Inventory | None, ray: str | None, **rest: Any) -> Any:
        if sum(option is not None for option in (inventory, nodes, ray)) > 1:
            raise click.UsageError("give one of --inventory, --nodes and --ray")
        return command(choice=InventoryChoice(inventory, nodes, ray), **rest)

    for option in (
        click.option("--ray", metavar="ADDRESS", help="The nodes of this running Ray cluster (auto finds it)."),
        click.option("--nodes", type=Nodes(), metavar="NxM", help="N equal nodes with M accelerators each, e.g. 2x8."),
        click.option("--inventory", metavar="FILE", type=click.Path(), help="An inventory file."),
    ):
        option(chosen)
    return chosen


def loaded(file: str, choice: InventoryChoice, name: str | None) -> tuple[Any, Dialect, Inventory, bool]:
    """Return a config, its dialect, and the inventory for it with whether it is only assumed, which is said then."""
    config, dialect, inventory, assumed = _read(file, choice, name)
    if assumed:
        nodes, each = counted(inventory.num_nodes, "node"), counted(inventory.node(0).accelerators, "accelerator")
        stderr.print(
            f"{file}: assuming {nodes} with {each} each; --nodes, --inventory or --ray say what there is", style="dim"
        )
    return config, dialect, inventory, assumed


def _read(file: str, choice: InventoryChoice, name: str | None) -> tuple[Any, Dialect, Inventory, bool]:
    """Return what `loaded` does, and say nothing."""
    config = load_config(file)
    dialect = chosen_dialect(name, config)
    reading = dialect.read(config)
    return reading, dialect, *choice.load(reading, dialect)


def is_saved(file: str) -> bool:
    """Whether a file is a saved plan, whole or not, as its beginning tells; what is no file, a pipe say, is none.

    Raises ``OSError``.
    """
    if not Path(file).is_file():
        return False  # what is read from a pipe is gone
    with Path(file).open("rb") as opened:
        return re.match(rb"\s*\{\s*\"rankplan\"\s*:", opened.read(256)) is not None


def planned(file: str, choice: InventoryChoice, name: str | None, isolate: bool | None = None) -> Plan:
    """Return the plan of a config in any dialect, or the saved plan that the file holds, which has its own nodes.

    ``isolate``: whether a process sees its own accelerators only; ``None`` for as it was saved, and yes for a config.
    """
    if not is_saved(file):
        config, dialect, inventory, _ = loaded(file, choice, name)
        return dialect.plan(config, inventory, isolate is not False)
    if choice != InventoryChoice() or name is not None:
        raise click.UsageError(f"{file} is a saved plan: it needs no --nodes, --inventory, --ray or --dialect")
    plan = Plan.load(file)
    if isolate is None:
        return plan
    return plan.with_visibility("own" if isolate else "node")


class Component(click.ParamType):  # type: ignore[type-arg]
    """The name of a component; a shell completes it from the file before it."""

    name = "component"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the components of the file that begin like this; nothing of a file that does not plan."""
        # Parsing ended at the option that is completed, before the arguments were given their names.
        file = next(iter(ctx.args), None)
        if file is None:
            return []
        with suppress(*EXPECTED):
            choice = InventoryChoice(ctx.params.get("inventory"), ctx.params.get("nodes"))
            names = _components(file, choice, ctx.params.get("dialect_name"))
            return [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return []


def _components(file: str, choice: InventoryChoice, name: str | None) -> list[str]:
    if is_saved(file):
        return Plan.load(file).components
    config, dialect, inventory, _ = _read(file, choice, name)
    return dialect.plan(config, inventory).components


def component_of(plan: Plan, name: str | None, file: str) -> str:
    """Return the component of this name, or the only one; anything else is wrong usage."""
    if name is not None and name in plan:
        return name
    if name is None and len(plan) == 1:
        return plan.components[0]
    if not plan:
        raise click.BadParameter(f"{file} places no component", param_hint="--component")
    names = did_you_mean(name or "", plan, "the components are")
    missing = f"component `{name}` is not in {file}" if name is not None else f"{file} has {len(plan)} components"
    raise click.BadParameter(f"{missing}; {names}", param_hint="--component")


isolate_option = click.option(
    "--isolate/--no-isolate",
    default=None,
    help="Whether a process sees its own accelerators only: yes, or for a saved plan as it was saved.",
)


def print_table(table: Table) -> None:
    """Print a table: as wide as the terminal, or as wide as it wants to be where there is none."""
    console = stdout if stdout.is_terminal else Console(highlight=False, markup=False, width=10_000)
    with console.capture() as capture:
        console.print(table, soft_wrap=False)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def print_sharing(plan: Plan) -> None:
    """Say who shares accelerators, and which nobody uses, if there is anything to say."""
    if lines := sharing_lines(plan):
        click.echo("\n".join(["", *lines]))


def colored(console: Console) -> bool:
    """Whether colour is wanted there."""
    return console.is_terminal and not console.no_color


def show_error(error: Exception) -> None:
    """Print an error that is expected: every fault with its place, anything else on a line of its own."""
    if isinstance(error, PlacementError):
        click.echo(error.render(colored(stderr)), err=True)
        click.echo(f"\n{counted(len(error.diagnostics), 'fault')} in {error.file or 'the config'}", err=True)
        return
    stderr.print("error:", style="bold red", end=" ")
    if isinstance(error, OSError) and error.filename:
        click.echo(f"{error.filename}: {error.strerror}", err=True)
    else:
        click.echo("\n".join([str(error), *getattr(error, "__notes__", ())]), err=True)


@contextmanager
def faults_end_it(code: int = 1) -> Iterator[None]:
    """Turn what can go wrong on purpose into a message and an exit code: no traceback on a user's way."""
    try:
        yield
    except BrokenPipeError:
        # Whoever reads our output has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except EXPECTED as error:
        show_error(error)
        sys.exit(code)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(130)

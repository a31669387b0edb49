"""Shared by the commands: options, and reading a file as a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rankplan.cli.commands import OVERRIDES, no_guests_option
from rankplan.cli.output import EXPECTED
from rankplan.dialects import DIALECTS, writers
from rankplan.dialects.placing.orders import by_address_text
from rankplan.errors import PlacementError, printable
from rankplan.front.api import plan
from rankplan.front.job import (
    Config,
    Job,
    inventory_from,
    is_saved,
    job_file_of,
    load_plan,
    name_of,
    opened,
    read_job,
    saved_plan,
)
from rankplan.front.job import Nodes as Given
from rankplan.front.warnings import reject_saved
from rankplan.frozen import frozen
from rankplan.guests.doors import Table
from rankplan.hardware.cards import size_in_bytes
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.inventory_file import is_size
from rankplan.plans.plan import Plan
from rankplan.read.sources import Sources
from rankplan.read.text.reader import Reader
from rankplan.words import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_STDIN = "/dev/stdin"


class Seconds(click.FloatRange):
    """A finite number of seconds above 0."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{seconds} is not a finite number of seconds", param, ctx)
        return seconds


class InputFile(click.Path):
    """A file to read; ``-`` is the standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        return super().convert(_STDIN if value == "-" else value, param, ctx)


class Nodes(click.ParamType):  # type: ignore[type-arg]
    """``2x8``: nodes x accelerators per node; their model may follow: ``2x8:H100``. Or the path of an inventory."""

    name = "nodes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text if it is a size, or can be a path: it has a suffix or a folder, or the file exists."""
        text = str(value)
        if not is_size(text) and (Path(text).name != text or Path(text).suffix or Path(text).exists()):
            return text
        try:
            Inventory.parse(text)
        except PlacementError as error:
            self.fail(f"{error.message}; {error.help}, or the path of an inventory file", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return a hint for the shell to complete files."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class Name(click.ParamType):  # type: ignore[type-arg]
    """A name of a table. Guests are searched for when a name is not built in, or all names are shown."""

    name = "choice"

    def __init__(self, table: Table[Any]) -> None:
        self._table = table

    def names(self) -> Iterable[str]:
        """Return the names as help texts and messages show them: by default, all of the table."""
        return self._table

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, if the table has it."""
        if value in self._table.builtin:
            return str(value)
        return self._choice().convert(value, param, ctx)

    def get_metavar(self, *arguments: Any, **named: Any) -> str | None:
        """Return the names as a help text shows them."""
        return self._choice().get_metavar(*arguments, **named)

    def get_missing_message(self, *arguments: Any, **named: Any) -> str:
        """Return the names, for a command line without the option."""
        return self._choice().get_missing_message(*arguments, **named)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that start like this."""
        return self._choice().shell_complete(ctx, param, incomplete)

    def _choice(self) -> click.Choice[str]:
        return click.Choice([printable(name) for name in self.names()])


class WrittenName(Name):
    """The name of a dialect; those that can be written are shown. ``refuse``: no other one is accepted."""

    def __init__(self, *, refuse: bool = False) -> None:
        super().__init__(DIALECTS)
        self._refuse = refuse

    def names(self) -> Iterable[str]:
        """Return the dialects that can be written."""
        return writers()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, if there is a dialect of this name."""
        if not self._refuse:
            return Name(DIALECTS).convert(value, param, ctx)
        if value in DIALECTS.builtin and DIALECTS[value].writers:
            return str(value)
        return self._choice().convert(value, param, ctx)


def dialect_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--dialect``, which the command gets as ``dialect_name``, and ``--no-guests``."""
    dialect = click.option(
        "--dialect",
        "dialect_name",
        type=Name(DIALECTS),
        help="Config dialect (default: detected from its keys).",
    )
    return dialect(no_guests_option(command))


@frozen(slots=False)
class Choice:
    """The nodes and the dialect that the options of a command choose."""

    file: str | None = None
    nodes: str | None = None
    ray: str | None = None
    without: tuple[str, ...] = ()
    by_text: bool = False
    dialect: str | None = None

    @property
    def given(self) -> Given | None:
        """The nodes as `rankplan.plan` takes them: a size, or this object, which has the inventory when it is used."""
        if self.nodes is not None:
            return self.nodes
        return None if self.file is None and self.ray is None else self

    @property
    def stated_nodes(self) -> tuple[str, str] | None:
        """What an option says about the nodes, and the option."""
        options = (("--nodes", self.nodes), ("--nodes", self.file), ("--ray", self.ray))
        return next(((value, option) for option, value in options if value is not None), None)

    @cached_property
    def inventory(self) -> Inventory:
        """The nodes of the file or the Ray cluster, in the order that the options state. They are read once."""
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
    help="Do not use this node (node-3), accelerator (node-5/2, or its id) or domain (nvlink=b); repeatable.",
)


restore_option = click.option(
    "--with",
    "restore",
    multiple=True,
    metavar="NAME",
    help="Use this node, accelerator or domain again, which the plan excludes; repeatable.",
)


def _keep_overrides(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> None:
    ctx.meta[OVERRIDES] = words


set_option = click.option(
    "--set",
    metavar="KEY=VALUE",
    multiple=True,
    expose_value=False,
    callback=_keep_overrides,
    help="Override a value of the config; repeatable. The words after -- are the command.",
)
"""Overrides of a command that runs what follows ``--``."""


cluster_option = click.option("--ray", metavar="ADDRESS", help="Address of the Ray cluster (default: found by Ray).")


beside_option = click.option(
    "--beside",
    multiple=True,
    metavar="PLAN",
    type=click.Path(),
    help="Do not use the nodes of another job's saved plan; repeatable.",
)


def output_option(help: str) -> Callable[..., Any]:
    """Return ``--output``, a path."""
    return click.option("-o", "--output", metavar="PATH", type=click.Path(), help=help)


save_option = click.option(
    "--save", metavar="PATH", type=click.Path(), help="Save the plan to this file, for every command that takes a plan."
)


def format_option(*formats: str) -> Callable[..., Any]:
    """Return ``--format``, which is the first format by default; the command gets it as ``form``."""
    choice = click.Choice(formats)
    return click.option("--format", "form", type=choice, default=formats[0], show_default=True, help="Output format.")


def nodes_option(help: str) -> Callable[..., Any]:
    """Return ``--nodes``, also named ``--inventory``: a size, or the path of an inventory."""
    option: Callable[..., Any] = click.option(
        "--nodes",
        "--inventory",
        "nodes",
        type=Nodes(),
        metavar="FILE|NxM[:MODEL]",
        multiple=True,
        callback=_only_nodes,
        help=help,
    )
    return option


def _only_nodes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Return the nodes of an option with two names. Raises ``click.UsageError`` if both are stated."""
    if len(values) > 1:
        raise click.UsageError("use --nodes once; --inventory is its other name")
    return next(iter(values), None)


def inventory_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--nodes``, ``--ray`` and ``--without``; the command gets them as ``choice``."""

    @nodes_option("Use these nodes: an inventory file, or N nodes with M accelerators each, e.g. 2x8, or 2x8:H100.")
    @click.option("--ray", metavar="ADDRESS", help="Use the nodes of this Ray cluster (auto finds it).")
    @without_option
    @click.option(
        "--node-order",
        type=click.Choice(["given", "text"]),
        default="given",
        help="Order of the nodes: as given, or by address as text, as in verl.",
    )
    @wraps(command)
    def chosen(
        nodes: str | None,
        ray: str | None,
        without: tuple[str, ...],
        node_order: str,
        dialect_name: str | None = None,
        **rest: Any,
    ) -> Any:
        if nodes is not None and ray is not None:
            raise click.UsageError("use only one of --nodes and --ray")
        is_file = nodes is not None and not is_size(nodes)
        if node_order == "text" and nodes is not None and not is_file:
            raise click.UsageError("--node-order text needs nodes with addresses: an inventory file, or --ray")
        file, size = (nodes, None) if is_file else (None, nodes)
        choice = Choice(file, size, ray, without, by_text=node_order == "text", dialect=dialect_name)
        return command(choice=choice, **rest)

    options: Callable[..., Any] = chosen
    return options


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `inventory_options` and ``--dialect``; the command gets all of them as ``choice``."""
    return inventory_options(dialect_option(command))


def overrides() -> tuple[str, ...]:
    """Return the overrides on the command line: the words after ``--``, or after each ``--set``."""
    context = click.get_current_context(silent=True)
    return context.meta.get(OVERRIDES, ()) if context is not None else ()


def config_arguments(choice: Choice) -> dict[str, Any]:
    """Return the arguments of `rankplan.plan` and its like, besides a config and its nodes, that the options state."""
    return {"dialect": choice.dialect, "overrides": overrides(), "without": choice.without}


def refuse_other_nodes(file: Config, choice: Choice) -> None:
    """Raise ``click.UsageError`` for a saved plan with options that only a config takes."""
    if is_saved(file) and (replace(choice, without=()) != Choice() or overrides()):
        raise click.UsageError(
            f"{name_of(file)} is a saved plan with its own nodes; remove --nodes, --ray, --dialect and overrides"
        )


def read(file: Config, choice: Choice, model: str | None = None) -> Job:
    """Return a config with its dialect and nodes, as the options say; ``model`` is for what names none."""
    return read_job(file, choice.given, **config_arguments(choice), model=model)


def planned(file: Config, choice: Choice, *, isolate: bool | None = None, pinned: bool = False) -> Plan:
    """Return the plan of a config in any dialect, or the saved plan in the file, which has its own nodes.

    ``isolate``: whether a process sees only its own accelerators; ``None``: as saved, or yes for a config. ``pinned``:
    see `rankplan.plan`.
    """
    return planned_by(file, choice, isolate=isolate, pinned=pinned).plan


class PlannedFile(NamedTuple):
    """A plan, and where its config states what decides it; a saved plan does not say it."""

    plan: Plan
    sources: Sources
    reader: Reader


def planned_by(
    file: Config, choice: Choice, *, isolate: bool | None, pinned: bool, fitting: bool = True, model: str | None = None
) -> PlannedFile:
    """Return what `planned` does, and where the config states it.

    Unless it must be ``fitting``, the plan may need more memory than there is. ``model`` is for what names none.
    """
    file = opened(file)
    refuse_other_nodes(file, choice)
    if is_saved(file):
        given = {"--pinned": pinned, "--model": model is not None}
        refused = " and ".join(option for option in given if given[option])
        if refused:
            raise click.UsageError(f"{name_of(file)} is a saved plan with its own values; remove {refused}")
        saved = plan(file, choice.given, **config_arguments(choice), isolate=isolate)
        if fitting:
            reject_saved(saved, job_file_of(file))
        return PlannedFile(saved, Sources(), Reader({}))
    if pinned:
        from rankplan.front.to_pin import job_to_pin  # most commands take no pinned plan

        to_pin = job_to_pin(file, choice.given, choice.ray, dialect=choice.dialect, overrides=overrides(), model=model)
        if to_pin is not None:
            bound = to_pin.planned(choice.without, isolate=isolate, fitting=fitting, by_text=choice.by_text)
            return PlannedFile(*bound, to_pin.job.reader)
    job = read(file, choice, model)
    return PlannedFile(*job.announced(isolate=isolate, pinned=pinned, fitting=fitting), job.reader)


class PlanOnNodes(NamedTuple):
    """A plan, and all nodes that its job may use: also those that the plan leaves to others.

    ``refused`` are the faults for which other commands refuse the plan.
    """

    plan: Plan
    inventory: Inventory
    refused: PlacementError | None = None


def planned_on(file: Config, choice: Choice) -> PlanOnNodes:
    """Return the plan of a config, or the saved plan in the file, with all nodes of the options or of the job file.

    Its rules may not hold on these nodes.
    """
    file = opened(file)
    saved = saved_plan(file)
    if saved is not None:
        return PlanOnNodes(saved, choice.among(saved.inventory))
    job = read(file, choice)
    job.announce()
    return PlanOnNodes(job.unchecked_plan(), job.inventory)


def shown_on(file: Config, choice: Choice) -> PlanOnNodes:
    """Return what `planned_on` does for a plan that is drawn or compared: it may be refused otherwise.

    Raises `PlacementError` for a config without a plan.
    """
    file = opened(file)
    try:
        if is_saved(file):
            found = planned(file, choice)
            return PlanOnNodes(found, _around_saved(found, choice))
        job = read(file, choice)
        return PlanOnNodes(job.announced_plan(), job.inventory)
    except PlacementError as error:
        try:
            return _refused(file, choice, error)
        except PlacementError:
            raise error from None


def _around_saved(plan: Plan, choice: Choice) -> Inventory:
    """Return the nodes that the options state, or else those of a saved plan and the spares of its job."""
    from rankplan.plans.spares import known_nodes  # most commands draw no plan

    return choice.among(known_nodes(plan))


def _refused(file: Config, choice: Choice, error: PlacementError) -> PlanOnNodes:
    """Return a plan that was refused. Raises `PlacementError` if there is none."""
    saved = saved_plan(file, choice.given, **config_arguments(choice))
    if saved is not None:
        return PlanOnNodes(saved, _around_saved(saved, choice), error)
    job = read(file, choice)
    try:
        found = job.kept().plan
    except PlacementError:
        found = job.unchecked_plan()
    if not found:
        raise error
    return PlanOnNodes(found, job.inventory, error)


def others_beside(file: Config, paths: Sequence[str]) -> list[Plan]:
    """Return the plans of other jobs that options name, after those that a job file names."""
    stated = job_file_of(file)
    return [load_plan(path) for path in (*(() if stated is None else stated.beside), *paths)]


class Component(click.ParamType):  # type: ignore[type-arg]
    """The name of a component; shell completion reads it from the file given before."""

    name = "component"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the components that start like this; none if the file has faults."""
        from click.shell_completion import CompletionItem

        given = ctx.params.get
        choice = Choice(None, given("nodes"), None, given("without") or (), dialect=given("dialect_name"))
        with suppress(*EXPECTED):
            for file in ctx.args[:1]:  # parsing ends at the completed option, before click names the arguments
                found = planned(file, choice)
                return [CompletionItem(name) for name in found if name.startswith(incomplete)]
        return []


class Suffixed(click.ParamType):  # type: ignore[type-arg]
    """A file whose suffix, one of several, selects its format."""

    name = "path"

    def __init__(self, *suffixes: str) -> None:
        self._suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path."""
        if Path(value).suffix.lower() not in self._suffixes:
            self.fail(f"{value} must end in {', '.join(self._suffixes[:-1])} or {self._suffixes[-1]}", param, ctx)
        return Path(value)


class Size(click.ParamType):  # type: ignore[type-arg]
    """Bytes, as a number with a unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the bytes."""
        try:
            return size_in_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


model_option = click.option(
    "--model", metavar="MODEL", help="Model of components whose own is unknown: a name, or a folder."
)


def memory_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--model``, ``--reserve`` and ``--costs``, which say what is known of models and accelerators."""
    reserve = click.option(
        "--reserve", type=Size(), metavar="SIZE", help="Memory that others use on each accelerator: 2GiB."
    )
    costs = click.option(
        "--costs", metavar="COSTS", type=click.Path(), help="Use the memory that run --timings has measured."
    )
    return model_option(reserve(costs(command)))


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

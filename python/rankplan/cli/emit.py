"""``rankplan emit``: a plan as the file of a launcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click

from rankplan.cli.common import Choice, InputFile, Name, config_options, output_option, overrides, planned
from rankplan.cli.output import faults_end_it
from rankplan.dialects import DIALECTS
from rankplan.errors import PlacementError
from rankplan.files import write_whole
from rankplan.front.command import OwnCommand, announce_without_ray, check_node_commands, command_of
from rankplan.front.job import Config, is_saved, opened, unplaced_job
from rankplan.guests.doors import GuestError
from rankplan.launchers.emit import emit as emitted
from rankplan.launchers.launcher import Starts
from rankplan.launchers.options import DEFAULT, EmitOptions, Form, flag, forms
from rankplan.launchers.table import LAUNCHERS
from rankplan.launchers.trainer import starts_itself
from rankplan.marks import is_emitted
from rankplan.plans.plan import Plan
from rankplan.plans.plan_job import TO, PlanJob


class Pair(click.ParamType):  # type: ignore[type-arg]
    """``LEVEL=LABEL``: two words."""

    name = "pair"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the words."""
        if isinstance(value, tuple):
            return value
        name, equals, rest = value.partition("=")
        if not (name and equals and rest) or any(word.split() != [word] for word in (name, rest)):
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, rest


def _stated(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of `EmitOptions` to a command."""
    for option, form in reversed(list(forms())):
        command = click.option(flag(option, form), option, help=form.help, **_type(option, form))(command)
    return command


def _type(option: str, form: Form) -> dict[str, Any]:
    """Return what click must know of a flag besides its help."""
    if form.types is bool:
        return {"is_flag": True, "default": None}
    if form.choices:
        return {"type": click.Choice(form.choices)}
    if form.bounds is not None:
        return {"type": click.IntRange(*form.bounds)}
    if option == "command" or not form.repeatable:
        kind = click.Path() if option == "base" else str
        return {"type": kind, "metavar": form.metavar, "multiple": form.repeatable}
    return {"type": Pair(), "metavar": form.metavar, "multiple": True}


class _Emit(click.Command):
    """The command, with the options that only the chosen launcher has."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look for the launcher first: its options are those of the command, too."""
        ctx.meta[_OWN] = [] if _NO_GUESTS in args else self._own(_launcher_in(args))
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of the command and of the launcher."""
        return [*super().get_params(ctx), *ctx.meta.get(_OWN, ())]

    def _own(self, to: str | None) -> list[click.Parameter]:
        """Return the options that only a guest has; none for a guest that fails, which the command reports."""
        if to is None or to in LAUNCHERS.builtin:
            return []
        try:
            launcher = LAUNCHERS.get(to)
        except GuestError:
            return []
        if launcher is None:
            return []
        return [
            click.Option([flag(option, form), f"{_OWN}{option}"], help=form.help, **_type(option, form))
            for option, form in launcher.own.items()
        ]


_OWN = "own_option_"
"""Starts the names of parameters that are options of a guest, and is their key in the context of click."""
_NO_GUESTS = "--no-guests"


def _launcher_in(args: Sequence[str]) -> str | None:
    """Return the launcher that words of a command line choose, before click reads them."""
    for word, after in zip_longest(args, args[1:]):
        if word == "--to":
            return after
        if word.startswith("--to="):
            return word.removeprefix("--to=")
    return None


@click.command(cls=_Emit)
@click.argument("file", metavar="PLAN", type=InputFile())
@click.option("--to", type=Name(LAUNCHERS), help="Launcher to write for (required, unless the job states it).")
@output_option("Write to this file instead of stdout.")
@_stated
@config_options
def emit(*, file: str, to: str | None, output: str | None, choice: Choice, **given: Any) -> None:
    """Write a plan as the file of a launcher.

    PLAN is a config, a saved plan, or a file that this command has written. The file starts the same ranks on the same
    accelerators; what the launcher cannot do is an error, and nothing is written. Notes about what the file leaves open
    go to stderr.
    """
    with faults_end_it():
        config = opened(file)
        plan = _planned(config, choice)
        to = _launcher(plan, to)
        if not given["command"] and not is_saved(config) and _starts_on_nodes(plan, to):
            check_node_commands(unplaced_job(config, dialect=choice.dialect, overrides=overrides()))
        own = _own_command(config, plan)
        if own is not None:
            plan = plan.with_job(replace(plan.job or PlanJob(), command=own.text))
        try:
            text = emitted(file if is_emitted(file) else plan, to, emit_options(plan, given))
        except PlacementError as error:
            if own is not None and own.error is not None and error.code == own.error.code:
                raise own.error from None  # it has the line
            raise
        except ValueError as error:  # options that do not fit the target
            raise click.UsageError(str(error)) from None
        if output is None:
            click.echo(text, nl=False)
        else:
            write_whole(Path(output), text)


def _planned(config: Config, choice: Choice) -> Plan:
    """Return the plan that the file of a launcher starts: of a trainer that starts itself, the one to pin."""
    if is_saved(config):
        return planned(config, choice)
    job = unplaced_job(config, dialect=choice.dialect, overrides=overrides())
    announce_without_ray(job)
    return planned(config, choice, pinned=job.asks_ray)


def _launcher(plan: Plan, to: str | None) -> str:
    """Return the launcher that the flag names, else the job. Raises ``click.UsageError`` if neither does."""
    if to is None and plan.job is not None:
        to = plan.job.emit.get(TO)
    if to is None:
        raise click.UsageError(f"name the launcher with --to: {', '.join(LAUNCHERS)}")
    return to


def _own_command(config: Config, plan: Plan) -> OwnCommand | None:
    """Return the command of a config that starts its trainer; ``None`` if rankplan starts it, or the plan has one."""
    if is_saved(config) or not starts_itself(plan):
        return None
    if plan.job is not None and plan.job.command is not None:
        return None
    return command_of(config, DIALECTS[plan.dialect or ""], overrides())


def _starts_on_nodes(plan: Plan, to: str) -> bool:
    """Return whether the file of a launcher starts the own commands of a job on each node, as no other is stated."""
    launcher = LAUNCHERS.get(to) if plan.dialect is None else None
    if launcher is None or Starts.NODE_COMMANDS not in launcher.starts:
        return False
    return plan.job is None or "command" not in plan.job.emit


def emit_options(plan: Plan, given: Mapping[str, Any]) -> EmitOptions:
    """Return what the flags of the command state."""
    command = dict(_command(text, list(plan)) for text in given["command"])
    pairs = {option: dict(given[option]) for option in ("levels", "resource_keys")}
    shared = {option: value for option, value in given.items() if not option.startswith(_OWN)}
    own = {option.removeprefix(_OWN): value for option, value in given.items() if option not in shared}
    stated = {option: value for option, value in own.items() if value not in (None, ())}
    return EmitOptions(**{**shared, **pairs, "command": command, "own": stated})


def _command(text: str, components: list[str]) -> tuple[str, str]:
    """Return the component of a command, and the command."""
    name, equals, command = text.partition("=")
    return (name, command) if equals and (name in components or name.isidentifier()) else (DEFAULT, text)
